//! The gradient of a loop: a loop in the other direction, whose carries are the cotangents of the
//! carries.
//!
//! A run of it reads what the run of the forward loop has read, and the values of reduces that the
//! forward loop kept; all else it computes again. What a capture gets is summed over all runs, and
//! is not added up run by run: the backward loop keeps the small factors, and one large op outside
//! makes the sum of them.
//!
//! ```text
//! h = tanh(h·W + x)        dz = dh·(1 - h²), dx = dz, dh = dz·Wᵀ in each run;  dW = Σ_t h[t-1]ᵀ·dz[t] after all of them
//! ```

use super::{gradients_of, spread, zeros};
use crate::error::Result;
use crate::ir::{
    Arg, Batch, Body, DeviceName, Group, Loop, Op, UOp, before, output, param, substitute_all,
    toposort, toposort_until, typed, unshaped,
};
use crate::shape::{Dims, Movement};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// No two arguments of bodies are one node. Slots of the user's functions count from zero.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(1 << 32);

/// An argument of a body that is being made.
fn argument(like: &UOp, shape: &Dims, device: &DeviceName) -> UOp {
    param(NEXT_SLOT.fetch_add(1, Ordering::Relaxed), like.dtype(), shape, device)
}

/// A stack of values of one run.
struct Stacked {
    /// The value in a run.
    inner: UOp,
    /// All of them.
    outer: UOp,
}

/// The gradients of the operands of a loop, from those of its outputs. Operands that are not
/// `wanted` have none.
pub fn backward(
    u: &UOp,
    upstream: &FxHashMap<usize, UOp>,
    wanted: &dyn Fn(&UOp) -> bool,
) -> Result<Vec<Option<UOp>>> {
    let typed::Loop { body: l, inputs, .. } = u.expect_loop();
    let results = l.body.src();
    let device = device_of(l);
    let params = params(l);
    let float = |i: &usize| inputs[*i].dtype().is_float();
    // A cotangent goes from run to run for every carry of floats.
    let carried: Vec<usize> = (0..l.carries).filter(float).collect();
    let cotangents: Vec<UOp> =
        carried.iter().map(|&i| argument(&inputs[i], inputs[i].shape(), &device)).collect();
    let mut stacks: Vec<Stacked> = Vec::new();
    let mut roots: Vec<(UOp, UOp)> =
        carried.iter().zip(&cotangents).map(|(&i, g)| (results[i].clone(), g.clone())).collect();
    let mut asked: Vec<(&usize, &UOp)> =
        upstream.iter().filter(|(i, _)| **i >= l.carries).collect();
    asked.sort_by_key(|a| a.0);
    for (i, g) in asked {
        let value = &results[*i];
        let inner = argument(value, value.shape(), &device);
        roots.push((value.clone(), inner.clone()));
        stacks.push(Stacked { inner, outer: g.clone() });
    }
    let targets: Vec<usize> = (0..inputs.len())
        .filter(|i| float(i) && params.contains_key(i) && (*i < l.carries || wanted(&inputs[*i])))
        .collect();
    let nodes: Vec<UOp> = targets.iter().map(|i| params[i].clone()).collect();
    let found = gradients_of(&roots, &nodes)?;
    // What the forward loop read and kept, by argument of this body.
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for (j, value) in results.iter().enumerate().skip(l.carries) {
        if !map.contains_key(value) && unshaped(value).op() != Op::Param {
            let inner = argument(value, value.shape(), &device);
            map.insert(value.clone(), inner.clone());
            stacks.push(Stacked { inner, outer: output(u, j) });
        }
    }
    let mut fixed: Vec<(UOp, UOp)> = Vec::new();
    let mut slots: Vec<(&usize, &UOp)> = params.iter().collect();
    slots.sort_by_key(|p| p.0);
    for (&i, p) in slots {
        let flat: Dims = smallvec::smallvec![p.numel()];
        if i < l.carries || l.is_element(i) {
            let inner = argument(p, &flat, &device);
            map.insert(p.clone(), unshaped(&inner).clone());
            let outer = if i < l.carries { before(u, i) } else { inputs[i].clone() };
            let outer = outer.moved(Movement::Reshape(smallvec::smallvec![l.count, p.numel()]));
            stacks.push(Stacked { inner: unshaped(&inner).clone(), outer });
        } else {
            let capture = inputs[i].moved(Movement::Reshape(flat));
            map.insert(p.clone(), capture.clone());
            fixed.push((capture.clone(), capture));
        }
    }
    let found = found.into_iter().zip(&nodes).map(|(g, p)| g.unwrap_or_else(|| zeros(p)));
    let found = substitute_all(&found.collect::<Vec<_>>(), &map);
    let of: FxHashMap<usize, UOp> = targets.iter().copied().zip(found).collect();
    let carry = |(&i, g): (&usize, &UOp)| {
        let shape = inputs[i].shape();
        let first = upstream.get(&i).cloned().unwrap_or_else(|| zeros(&inputs[i]));
        let after = of.get(&i).map_or_else(
            || spread(&g.const_like(0i64), shape),
            |d| d.moved(Movement::Reshape(shape.clone())),
        );
        (g.clone(), first, after)
    };
    let carries: Vec<(UOp, UOp, UOp)> = carried.iter().zip(&cotangents).map(carry).collect();
    let sums: Vec<usize> = targets.iter().copied().filter(|i| *i >= l.carries).collect();
    let known: FxHashSet<u64> = stacks
        .iter()
        .map(|s| unshaped(&s.inner).id())
        .chain(fixed.iter().map(|f| f.0.id()))
        .collect();
    let used = |i: usize| if l.is_element(i) { Use::Stack } else { Use::Sum };
    let kept = cut(&cotangents, &known, sums.iter().map(|&i| (of[&i].clone(), used(i))).collect());
    // Of what the runs could read, they read what they need.
    let needed: FxHashSet<u64> =
        toposort(carries.iter().map(|c| &c.2).chain(&kept)).iter().map(UOp::id).collect();
    let elements: Vec<(UOp, UOp)> = stacks
        .iter()
        .filter(|s| needed.contains(&unshaped(&s.inner).id()))
        .map(|s| (s.inner.clone(), s.outer.clone()))
        .collect();
    let made = Body {
        carries: &carries,
        elements: &elements,
        stacked: &kept,
        count: l.count,
        reverse: !l.reverse,
        device: &device,
    }
    .build();
    let mut all: Vec<(UOp, UOp)> = stacks
        .iter()
        .map(|s| (unshaped(&s.inner).clone(), flat_stack(&s.outer, l.count)))
        .collect();
    all.extend(kept.iter().zip(&made.stacked).map(|(k, &i)| (k.clone(), made.output(i))));
    let mut batch = Batch::new(l.count, &all, &fixed);
    let part = |i: usize| {
        if let Some(at) = carried.iter().position(|c| *c == i) {
            return Some(made.output(at));
        }
        let sum = of.get(&i)?;
        let shape = Movement::Reshape(inputs[i].shape().clone());
        Some(if l.is_element(i) {
            batch.stack(sum).moved(shape)
        } else {
            batch.sum(sum).moved(shape)
        })
    };
    Ok((0..inputs.len()).map(part).collect())
}

/// A stack with its elements in one row each, as the argument for them is.
fn flat_stack(u: &UOp, count: usize) -> UOp {
    u.moved(Movement::Reshape(smallvec::smallvec![count, u.numel() / count]))
}

fn device_of(l: &Loop) -> DeviceName {
    let device =
        |u: &UOp| if let Arg::Param { device, .. } = u.arg() { Some(device.clone()) } else { None };
    l.body.toposort().iter().find_map(device).expect("a body reads its arguments")
}

/// The arguments of a body, by number.
fn params(l: &Loop) -> FxHashMap<usize, UOp> {
    let slot = |u: &UOp| {
        if let Arg::Param { slot, .. } = u.arg() { Some((*slot, u.clone())) } else { None }
    };
    l.body.toposort().iter().filter_map(slot).collect()
}

/// What becomes of a value for which a cut is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    /// It is stacked.
    Stack,
    /// It is summed over the runs.
    Sum,
    /// It is inside a reduce of what is summed.
    Reduced,
}

/// What each run keeps of some values, so that the rest can be computed from it for all runs at
/// once. Only what is made of a cotangent has to be kept, and of an outer product only its factors.
fn cut(cotangents: &[UOp], known: &FxHashSet<u64>, values: Vec<(UOp, Use)>) -> Vec<UOp> {
    let order = toposort_until(values.iter().map(|v| &v.0), |u| known.contains(&u.id()));
    let carried: FxHashSet<u64> = cotangents.iter().map(|c| unshaped(c).id()).collect();
    let mut inside: FxHashSet<u64> = FxHashSet::default();
    for u in order.iter().filter(|u| !known.contains(&u.id())) {
        if carried.contains(&u.id()) || u.src().iter().any(|s| inside.contains(&s.id())) {
            inside.insert(u.id());
        }
    }
    let mut kept: Vec<UOp> = Vec::new();
    let mut seen: FxHashSet<(u64, Use)> = FxHashSet::default();
    let mut open: Vec<(UOp, Use)> = values.into_iter().rev().collect();
    while let Some((u, used)) = open.pop() {
        if known.contains(&u.id()) || !seen.insert((u.id(), used)) {
            continue;
        }
        let goes_on = Batch::takes(&u)
            && (!inside.contains(&u.id())
                || match (u.op(), used) {
                    (Op::Reshape, _) | (Op::Add, Use::Sum) => true,
                    (_, Use::Stack) => false,
                    (op, _) => op.is(Group::Movement) || op == Op::Reduce || is_outer(&u, &inside),
                });
        if goes_on {
            let under = if u.op() == Op::Reduce && used == Use::Sum { Use::Reduced } else { used };
            open.extend(u.src().iter().rev().map(|s| (s.clone(), under)));
        } else if !kept.contains(&u) {
            kept.push(u);
        }
    }
    kept
}

/// Whether an op has more elements than each of its operands that a run has to compute.
fn is_outer(u: &UOp, inside: &FxHashSet<u64>) -> bool {
    u.src().iter().filter(|s| inside.contains(&s.id())).all(|s| {
        let mut base = s;
        while base.op().is(Group::Movement) {
            base = base.operand();
        }
        base.numel() < u.numel()
    })
}
