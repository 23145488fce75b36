//! Loops in the graph: a body that is traced once and run for each element, with values that go
//! from one run to the next.

use crate::error::{Error, Result};
use crate::ir::{Body, DeviceName, Op, UOp, param, substitute_all, toposort};
use crate::shape::Dims;
use crate::tensor::broadcast::{Operand, common_device, has_data};
use crate::tensor::grad::gradient::leaf;
use crate::tensor::{Tensor, wrong_dtype, wrong_shape};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const OP: &str = "scan";
/// Runs of a loop that is written out, at most.
const MOST_UNROLLED: usize = 1 << 16;

/// No two arguments of bodies are one node. Other functions of the user's count from zero, and
/// gradients further on.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(1 << 40);

/// Carries and what is kept of a run; of a loop the last carries, and stacks of what was kept.
pub type Scanned = (Vec<Tensor>, Vec<Tensor>);

impl Tensor {
    /// Runs a body for each element along the first axis of `xs`, one after the other: from the
    /// carry and the elements it makes the next carry, and what is kept of this run. Returns the
    /// last carry, and stacks of what was kept.
    ///
    /// The body is run once, on tensors without values, and the graph that it builds is one loop:
    /// it is scheduled and compiled once however many elements there are. Nothing can be read
    /// inside. A carry keeps its shape, dtype and device. Other tensors may be used inside; what
    /// does not depend on the carry and the elements is computed once, before the loop, and random
    /// numbers are drawn once. Gradients go through the loop as through any graph, to the first
    /// carry, the elements and what else is used inside. `docs/loops.md` says more.
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

    /// The same, in either direction, for an operation of this name.
    pub(crate) fn scan_in(
        op: &'static str,
        reverse: bool,
        carry: &[&Tensor],
        xs: &[&Tensor],
        mut body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
    ) -> Result<Scanned> {
        let Some(first) = xs.first() else {
            return wrong_shape(
                op,
                "takes a tensor to go along; for n runs without one give it Tensor::arange(0, n, \
                 1)",
            );
        };
        for (i, x) in xs.iter().enumerate() {
            if x.ndim() == 0 {
                return wrong_shape(op, format!("element {i} has no axis to go along"));
            }
            x.require_static(op, 0..1)?;
            if x.dims()[0] != first.dims()[0] {
                let (a, b) = (first.dims(), x.dims());
                return wrong_shape(
                    op,
                    format!("goes along the first axis of {a:?} and of {b:?}, which differ"),
                );
            }
        }
        let count = first.dims()[0];
        let device = common_device(
            op,
            &carry.iter().chain(xs).map(|t| Operand::from(*t)).collect::<Vec<_>>(),
        )?;
        let plain = |t: &&Tensor| t.uop().extents().is_empty();
        // What lies over several devices or has sizes of variables is written out run by run.
        if device.is_several() || !carry.iter().chain(xs).all(plain) {
            return unrolled(op, device, (reverse, count), carry, xs, body);
        }
        let argument = |t: &Tensor, shape: Dims| {
            let node = param(NEXT_SLOT.fetch_add(1, Ordering::Relaxed), t.dtype(), &shape, device);
            // Marked, so that what cuts gradients inside is seen.
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
        check(op, device, carry, &after, &kept)?;
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
            return unrolled(op, device, (reverse, count), carry, xs, body);
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

/// The body gave carries as they were given to it.
fn check(
    op: &'static str,
    device: &DeviceName,
    carry: &[&Tensor],
    after: &[Tensor],
    kept: &[Tensor],
) -> Result<()> {
    if after.len() != carry.len() {
        return wrong_shape(
            op,
            format!("the body returned {} carries for {}", after.len(), carry.len()),
        );
    }
    for (i, (a, b)) in carry.iter().zip(after).enumerate() {
        if a.dims() != b.dims() {
            return wrong_shape(
                op,
                format!(
                    "carry {i} was {:?} and is {:?} after a run; its shape is to stay",
                    a.dims(),
                    b.dims()
                ),
            );
        }
        if a.dtype() != b.dtype() {
            let (a, b) = (a.dtype(), b.dtype());
            return wrong_dtype(
                op,
                format!("carry {i} was of {a} and is of {b} after a run; cast it to {a}"),
            );
        }
    }
    match after.iter().chain(kept).find(|t| t.device() != device && has_data(&t.uop())) {
        Some(t) => Err(Error::Device(format!(
            "{op}: the loop is on {device}, and the body returned a tensor on {}",
            t.device()
        ))),
        None => Ok(()),
    }
}

/// The loop written out: a copy of the body for each run.
fn unrolled(
    op: &'static str,
    device: &DeviceName,
    (reverse, count): (bool, usize),
    carry: &[&Tensor],
    xs: &[&Tensor],
    mut body: impl FnMut(&[Tensor], &[Tensor]) -> Result<Scanned>,
) -> Result<Scanned> {
    if count > MOST_UNROLLED {
        let why = "each is part of the graph here (several devices, sizes of variables or tensors \
                   without elements)";
        return wrong_shape(op, format!("{count} runs; {why}, and at most {MOST_UNROLLED} are"));
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
        check(op, device, carry, &after, &kept)?;
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
