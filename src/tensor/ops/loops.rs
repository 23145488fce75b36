//! Loops in the graph: a body that is traced once and run for each element, with carried values.

use crate::error::Result;
use crate::ir::{Body, DeviceName, Op, UOp, param, substitute_all, toposort};
use crate::tensor::Tensor;
use crate::tensor::broadcast::device_of;
use crate::tensor::grad::gradient::leaf;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const OP: &str = "scan";
/// Maximum iterations of an unrolled loop.
const MAX_UNROLLED: usize = 1 << 16;

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
        let count = iterations(op, xs)?;
        let inputs = || carry.iter().chain(xs).copied();
        let device = device_of(op, inputs())?;
        let scan = Loop { op, device, reverse, count, carry, xs };
        // Loops over several devices or with symbolic dimensions are unrolled.
        if device.is_multi_device() || inputs().any(|t| !t.uop().extents().is_empty()) {
            return scan.unroll(body);
        }
        let Traced { carried, elements, nodes } = scan.trace(&mut body)?;
        let empty = |u: &UOp| u.numel() == 0;
        let odd = |u: &UOp| u.op() == Op::Shards || !u.extents().is_empty();
        let is_empty = nodes.iter().any(empty) || inputs().any(|t| empty(&t.uop()));
        if count > 0 && (is_empty || toposort(&nodes).iter().any(odd)) {
            return scan.unroll(body);
        }
        let (after, stacked) = nodes.split_at(carry.len());
        if count == 0 {
            return scan.without_iterations(stacked);
        }
        let with_inputs = |arguments: Vec<UOp>, inputs: &[&Tensor]| {
            arguments.into_iter().zip(inputs.iter().map(|t| t.uop())).collect::<Vec<_>>()
        };
        let carries: Vec<(UOp, UOp, UOp)> = with_inputs(carried, carry)
            .into_iter()
            .zip(after)
            .map(|((node, first), after)| (node, first, after.clone()))
            .collect();
        let elements = with_inputs(elements, xs);
        let made = Body { carries: &carries, elements: &elements, stacked, count, reverse, device }
            .build();
        let tensor = |i: usize| Tensor::new_inner(made.output(i), device, None);
        Ok((
            (0..carry.len()).map(tensor).collect(),
            made.stacked.iter().map(|&i| tensor(i)).collect(),
        ))
    }
}

/// Returns the number of iterations of a loop over tensors: the size of their first axes, which
/// must be equal.
fn iterations(op: &'static str, xs: &[&Tensor]) -> Result<usize> {
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
        let (a, b) = (first.dims(), x.dims());
        if a[0] != b[0] {
            return wrong_shape!(op, "the first axes of {a:?} and {b:?} differ");
        }
    }
    Ok(first.dims()[0])
}

/// Checked arguments of a loop.
struct Loop<'a> {
    op: &'static str,
    device: &'static DeviceName,
    reverse: bool,
    count: usize,
    carry: &'a [&'a Tensor],
    xs: &'a [&'a Tensor],
}

/// Traced body of a loop.
struct Traced {
    /// Arguments for the carries.
    carried: Vec<UOp>,
    /// Arguments for the elements.
    elements: Vec<UOp>,
    /// Next carries, then outputs.
    nodes: Vec<UOp>,
}

impl Loop<'_> {
    /// Traces the body on arguments without values.
    fn trace(
        &self,
        body: &mut impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
    ) -> Result<Traced> {
        // A leaf shows where gradients are detached inside.
        let mut unmarked: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut argument = |t: &Tensor, shape: &[usize]| {
            let slot = NEXT_SLOT.fetch_add(1, Ordering::Relaxed);
            let node = param(slot, t.dtype(), &shape.into(), self.device);
            let marked = if t.dtype().is_float() { leaf(node.clone()).0 } else { node.clone() };
            unmarked.insert(marked.clone(), node.clone());
            (node, Tensor::new_inner(marked, self.device, None))
        };
        let (carried, carry): (Vec<UOp>, Vec<Tensor>) =
            self.carry.iter().map(|t| argument(t, &t.dims())).unzip();
        let (elements, xs): (Vec<UOp>, Vec<Tensor>) =
            self.xs.iter().map(|t| argument(t, &t.dims()[1..])).unzip();
        let (after, kept) = body(&carry, &xs)?;
        self.check_carries(&after, &kept)?;
        let nodes: Vec<UOp> = after.iter().chain(&kept).map(Tensor::uop).collect();
        Ok(Traced { carried, elements, nodes: substitute_all(&nodes, &unmarked) })
    }

    /// Result of a loop without iterations: the first carries, and empty outputs.
    fn without_iterations(&self, stacked: &[UOp]) -> Result<Scanned> {
        let none = |u: &UOp| {
            let shape = [&[0], &u.shape()[..]].concat();
            Tensor::zeros(&shape[..]).try_cast(u.dtype())?.try_to(self.device.as_str())
        };
        let carry = self.carry.iter().map(|t| t.copy()).collect();
        Ok((carry, stacked.iter().map(none).collect::<Result<_>>()?))
    }

    /// Checks that carries keep their number, shape, dtype and device.
    fn check_carries(&self, after: &[Tensor], kept: &[Tensor]) -> Result<()> {
        let Loop { op, device, carry, .. } = *self;
        let (expected, given) = (carry.len(), after.len());
        if expected != given {
            return wrong_shape!(op, "expected {expected} carries from the body, got {given}");
        }
        for (i, (before, after)) in carry.iter().zip(after).enumerate() {
            let (a, b) = (before.dims(), after.dims());
            if a != b {
                return wrong_shape!(
                    op,
                    "expected carry {i} of shape {a:?} from the body, got {b:?}"
                );
            }
            let (a, b) = (before.dtype(), after.dtype());
            if a != b {
                return wrong_dtype!(
                    op,
                    "expected carry {i} of {a} from the body, got {b}; cast it to {a}"
                );
            }
        }
        match after.iter().chain(kept).find(|t| t.device() != device && t.uop().has_data()) {
            Some(t) => refuse!(
                Device,
                "{op}: the loop is on {device}, but the body returned a tensor on {}",
                t.device()
            ),
            None => Ok(()),
        }
    }

    /// Unrolls the loop: a copy of the body for each iteration.
    fn unroll(
        &self,
        mut body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
    ) -> Result<Scanned> {
        let count = self.count;
        if count > MAX_UNROLLED {
            return wrong_shape!(
                self.op,
                "{count} iterations of an unrolled loop (several devices, symbolic dimensions or \
                 tensors without elements), expected at most {MAX_UNROLLED}"
            );
        }
        let mut now: Vec<Tensor> = self.carry.iter().map(|t| t.copy()).collect();
        let mut runs: Vec<Vec<Tensor>> = Vec::new();
        for run in 0..count {
            let t = if self.reverse { count - 1 - run } else { run };
            let x = self.xs.iter().map(|x| x.slice_axis(0, t, t + 1)?.try_squeeze(0));
            let (after, kept) = body(&now, &x.collect::<Result<Vec<_>>>()?)?;
            self.check_carries(&after, &kept)?;
            now = after.iter().map(Tensor::contiguous).collect();
            runs.push(kept);
        }
        if self.reverse {
            runs.reverse();
        }
        let stack =
            |i: usize| Tensor::try_stack(&runs.iter().map(|r| r[i].clone()).collect::<Vec<_>>(), 0);
        let kept = (0..runs.first().map_or(0, Vec::len)).map(stack).collect::<Result<_>>()?;
        Ok((now, kept))
    }
}
