//! Loops in the graph: a body that is traced once and run for each element, with carried values.

use crate::error::{Error, Result};
use crate::ir::{Body, DeviceName, Op, UOp, param, substitute_all, toposort};
use crate::shape::Dims;
use crate::tensor::Tensor;
use crate::tensor::broadcast::{Operand, common_device, has_data};
use crate::tensor::grad::gradient::leaf;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const OP: &str = "scan";
/// Maximum iterations of an unrolled loop.
const MOST_UNROLLED: usize = 1 << 16;

/// Slots of body arguments are unique. Those of other functions start at zero, and those of
/// gradients later.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(1 << 40);

/// Carries and outputs of an iteration; of a loop the last carries and the stacked outputs.
pub type Scanned = (Vec<Tensor>, Vec<Tensor>);

impl Tensor {
    /// Loops over the first axis of `xs`: from the carry and the elements the body computes the
    /// next carry and the outputs of the iteration. Returns the last carry and the stacked outputs.
    ///
    /// The body is traced once, on tensors without values, and its graph becomes one loop, which is
    /// scheduled and compiled once for any number of elements. Reading a value inside is an error.
    /// A carry keeps its shape, dtype and device. Other tensors may be used inside; what does not
    /// depend on the carry or the elements is computed once, before the loop, and random numbers
    /// are drawn once. Gradients flow to the first carry, the elements and other tensors used
    /// inside. `docs/loops.md` has details.
    ///
    /// ```
    /// use picograd::Tensor;
    /// // A running sum that forgets.
    /// let xs = Tensor::new([1.0f32, 2.0, 3.0]);
    /// let (last, all) = Tensor::scan(&[&Tensor::zeros(())], &[&xs], |carry, x| {
    ///     let sum = &carry[0] * 0.5 + &x[0];
    ///     Ok((vec![sum.clone()], vec![sum]))
    /// })?;
    /// assert_eq!(all[0].to_vec::<f32>()?, [1.0, 2.5, 4.25]);
    /// assert_eq!(last[0].item::<f32>()?, 4.25);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn scan(
        carry: &[&Tensor],
        xs: &[&Tensor],
        body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
    ) -> Result<Scanned> {
        Tensor::scan_in(OP, false, carry, xs, body)
    }

    /// [`scan`](Self::scan) in either direction, for the operation `op`.
    pub(crate) fn scan_in(
        op: &'static str,
        reverse: bool,
        carry: &[&Tensor],
        xs: &[&Tensor],
        mut body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
    ) -> Result<Scanned> {
        let Some(first) = xs.first() else {
            return wrong_shape!(
                op,
                "expected a tensor to loop over, got none; for n iterations give \
                 Tensor::arange(0, n, 1)"
            );
        };
        for (i, x) in xs.iter().enumerate() {
            if x.ndim() == 0 {
                return wrong_shape!(op, "tensor {i} to loop over has no axis");
            }
            x.require_static(op, 0..1)?;
            if x.dims()[0] != first.dims()[0] {
                let (a, b) = (first.dims(), x.dims());
                return wrong_shape!(op, "the first axes of {a:?} and {b:?} differ");
            }
        }
        let count = first.dims()[0];
        let device = common_device(
            op,
            &carry.iter().chain(xs).map(|t| Operand::from(*t)).collect::<Vec<_>>(),
        )?;
        let plain = |t: &&Tensor| t.uop().extents().is_empty();
        // Loops over several devices or with symbolic dimensions are unrolled.
        if device.is_several() || !carry.iter().chain(xs).all(plain) {
            return unroll(op, device, (reverse, count), carry, xs, body);
        }
        let argument = |t: &Tensor, shape: Dims| {
            let node = param(NEXT_SLOT.fetch_add(1, Ordering::Relaxed), t.dtype(), &shape, device);
            // A leaf shows where gradients are detached inside.
            let marked = if t.dtype().is_float() { leaf(node.clone()).0 } else { node.clone() };
            (node, marked)
        };
        let carried: Vec<(UOp, UOp)> = carry.iter().map(|t| argument(t, t.dims())).collect();
        let elements: Vec<(UOp, UOp)> =
            xs.iter().map(|t| argument(t, t.dims()[1..].into())).collect();
        let tensors = |list: &[(UOp, UOp)]| {
            list.iter().map(|a| Tensor::new_inner(a.1.clone(), device, None)).collect::<Vec<_>>()
        };
        let (after, kept) = body(&tensors(&carried), &tensors(&elements))?;
        check_carries(op, device, carry, &after, &kept)?;
        let nodes: Vec<UOp> = after.iter().chain(&kept).map(Tensor::uop).collect();
        let map: FxHashMap<UOp, UOp> = carried
            .iter()
            .chain(&elements)
            .map(|(node, marked)| (marked.clone(), node.clone()))
            .collect();
        let nodes = substitute_all(&nodes, &map);
        let empty = |u: &UOp| u.numel() == 0;
        let odd = |u: &UOp| u.op() == Op::Shards || !u.extents().is_empty();
        let inputs: Vec<UOp> = carry.iter().chain(xs).map(|t| t.uop()).collect();
        if count > 0 && (nodes.iter().chain(&inputs).any(empty) || toposort(&nodes).iter().any(odd))
        {
            return unroll(op, device, (reverse, count), carry, xs, body);
        }
        if count == 0 {
            let none = |t: &Tensor| {
                Tensor::zeros(&[&[0], &t.dims()[..]].concat()[..])
                    .try_cast(t.dtype())?
                    .try_to(device.as_str())
            };
            return Ok((
                carry.iter().map(|t| t.copy()).collect(),
                kept.iter().map(none).collect::<Result<_>>()?,
            ));
        }
        let (after, stacked) = nodes.split_at(carry.len());
        let carries: Vec<(UOp, UOp, UOp)> = carried
            .into_iter()
            .zip(carry)
            .zip(after)
            .map(|((a, t), after)| (a.0, t.uop(), after.clone()))
            .collect();
        let elements: Vec<(UOp, UOp)> =
            elements.into_iter().zip(xs).map(|(a, t)| (a.0, t.uop())).collect();
        let made = Body { carries: &carries, elements: &elements, stacked, count, reverse, device }
            .build();
        let tensor = |i: usize| Tensor::new_inner(made.output(i), device, None);
        Ok((
            (0..carry.len()).map(tensor).collect(),
            made.stacked.iter().map(|&i| tensor(i)).collect(),
        ))
    }
}

/// Checks that carries keep their number, shape, dtype and device.
fn check_carries(
    op: &'static str,
    device: &DeviceName,
    carry: &[&Tensor],
    after: &[Tensor],
    kept: &[Tensor],
) -> Result<()> {
    if after.len() != carry.len() {
        return wrong_shape!(
            op,
            "expected {} carries from the body, got {}",
            carry.len(),
            after.len()
        );
    }
    for (i, (a, b)) in carry.iter().zip(after).enumerate() {
        if a.dims() != b.dims() {
            return wrong_shape!(
                op,
                "expected carry {i} of shape {:?} from the body, got {:?}",
                a.dims(),
                b.dims()
            );
        }
        if a.dtype() != b.dtype() {
            let (a, b) = (a.dtype(), b.dtype());
            return wrong_dtype!(
                op,
                "expected carry {i} of {a} from the body, got {b}; cast it to {a}"
            );
        }
    }
    match after.iter().chain(kept).find(|t| t.device() != device && has_data(&t.uop())) {
        Some(t) => Err(Error::Device(format!(
            "{op}: the loop is on {device}, but the body returned a tensor on {}",
            t.device()
        ))),
        None => Ok(()),
    }
}

/// Unrolls the loop: a copy of the body for each iteration.
fn unroll(
    op: &'static str,
    device: &DeviceName,
    (reverse, count): (bool, usize),
    carry: &[&Tensor],
    xs: &[&Tensor],
    mut body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
) -> Result<Scanned> {
    if count > MOST_UNROLLED {
        let why = "the loop is unrolled (several devices, symbolic dimensions or tensors without \
                   elements)";
        return wrong_shape!(op, "{count} iterations; {why}, expected at most {MOST_UNROLLED}");
    }
    let mut now: Vec<Tensor> = carry.iter().map(|t| t.copy()).collect();
    let mut runs: Vec<Vec<Tensor>> = Vec::new();
    for run in 0..count {
        let t = if reverse { count - 1 - run } else { run };
        let x = xs
            .iter()
            .map(|x| x.slice_axis(0, t, t + 1)?.try_squeeze(0))
            .collect::<Result<Vec<_>>>()?;
        let (after, kept) = body(&now, &x)?;
        check_carries(op, device, carry, &after, &kept)?;
        now = after.iter().map(Tensor::contiguous).collect();
        runs.push(kept);
    }
    if reverse {
        runs.reverse();
    }
    let stack =
        |i: usize| Tensor::try_stack(&runs.iter().map(|r| r[i].clone()).collect::<Vec<_>>(), 0);
    let kept = (0..runs.first().map_or(0, Vec::len)).map(stack).collect::<Result<_>>()?;
    Ok((now, kept))
}
