//! The gradient of a loop: a loop in the opposite direction, whose carries are the cotangents of
//! the carries.
//!
//! An iteration reads the inputs of the forward iteration and the reductions that the forward loop
//! has stacked, and rematerializes all else. The gradient of a capture is a sum over all
//! iterations. It is not accumulated in the backward loop: the loop stacks the small factors, and
//! one large op after it computes the sum.
//!
//! ```text
//! h = tanh(h·W + x)
//! in each iteration:  dz = dh·(1 - h²), dx = dz, dh = dz·Wᵀ
//! after all of them:  dW = Σ_t h[t-1]ᵀ·dz[t]
//! ```

use super::{broadcast_to, gradients_of, zeros};
use crate::error::Result;
use crate::ir::{
    BatchedGraph, Body, DeviceName, Group, Loop, Op, UOp, carry_stack, dependents, movement_base,
    output, param, substitute_all, toposort, toposort_until, typed, unshaped,
};
use crate::shape::{Dims, Movement};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The next slot of an argument, so that no two arguments of bodies are one node. The slots of
/// captured functions count from zero.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(1 << 32);

/// A value of one iteration, and the stack of its values in all iterations.
struct Stacked {
    inner: UOp,
    outer: UOp,
}

/// Returns the gradients of the operands of a loop, from those of its outputs. Operands that are
/// not `wanted` have none.
pub fn backward(
    u: &UOp,
    upstream: &FxHashMap<usize, UOp>,
    wanted: &dyn Fn(&UOp) -> bool,
) -> Result<Vec<Option<UOp>>> {
    let mut b = Backward::new(u);
    let roots = b.roots(upstream);
    let targets = b.targets(wanted);
    let nodes: Vec<UOp> = targets.iter().map(|i| b.params[i].clone()).collect();
    let found = gradients_of(&roots, &nodes)?;
    let map = b.forward_values();
    let found = found.into_iter().zip(&nodes).map(|(g, p)| g.unwrap_or_else(|| zeros(p)));
    let found = substitute_all(&found.collect::<Vec<_>>(), &map);
    Ok(b.build(upstream, &targets.into_iter().zip(found).collect()))
}

/// The backward loop while it is built.
struct Backward<'a> {
    /// The forward loop.
    node: &'a UOp,
    l: &'a Loop,
    inputs: &'a [UOp],
    device: DeviceName,
    /// The arguments of the forward body by number.
    params: BTreeMap<usize, UOp>,
    /// The carries of floats. Each has a cotangent that is carried from iteration to iteration.
    carried: Vec<usize>,
    cotangents: Vec<UOp>,
    /// The values that iterations may read.
    stacks: Vec<Stacked>,
    /// The captures, which are loop-invariant.
    fixed: Vec<(UOp, UOp)>,
}

impl<'a> Backward<'a> {
    fn new(node: &'a UOp) -> Backward<'a> {
        let typed::Loop { body: l, inputs, .. } = node.expect_loop();
        let params: BTreeMap<usize, UOp> = l
            .body
            .toposort()
            .iter()
            .filter_map(|u| u.as_param().map(|p| (p.slot, u.clone())))
            .collect();
        let device = params.values().find_map(UOp::as_param).expect("a body reads its arguments");
        let device = device.device.clone();
        let carried: Vec<usize> =
            (0..l.carries).filter(|i| inputs[*i].dtype().is_float()).collect();
        let cotangent = |&i: &usize| argument(&inputs[i], inputs[i].shape(), &device);
        let cotangents = carried.iter().map(cotangent).collect();
        let (stacks, fixed) = (Vec::new(), Vec::new());
        Backward { node, l, inputs, device, params, carried, cotangents, stacks, fixed }
    }

    /// Returns the results of the forward body, with the cotangent of each.
    fn roots(&mut self, upstream: &FxHashMap<usize, UOp>) -> Vec<(UOp, UOp)> {
        let results = self.l.body.src();
        let of_carry = |(&i, g): (&usize, &UOp)| (results[i].clone(), g.clone());
        let mut roots: Vec<(UOp, UOp)> =
            self.carried.iter().zip(&self.cotangents).map(of_carry).collect();
        let mut stacked: Vec<(&usize, &UOp)> =
            upstream.iter().filter(|(i, _)| **i >= self.l.carries).collect();
        stacked.sort_by_key(|a| a.0);
        for (&i, g) in stacked {
            let inner = argument(&results[i], results[i].shape(), &self.device);
            roots.push((results[i].clone(), inner.clone()));
            self.stacks.push(Stacked { inner, outer: g.clone() });
        }
        roots
    }

    /// Returns the operands whose gradients are computed, ascending.
    fn targets(&self, wanted: &dyn Fn(&UOp) -> bool) -> Vec<usize> {
        let is_target = |i: &usize| {
            self.inputs[*i].dtype().is_float()
                && self.params.contains_key(i)
                && (*i < self.l.carries || wanted(&self.inputs[*i]))
        };
        (0..self.inputs.len()).filter(is_target).collect()
    }

    /// Returns the replacements of values that the forward loop read or stacked, by arguments of
    /// this loop.
    fn forward_values(&mut self) -> FxHashMap<UOp, UOp> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (j, value) in self.l.body.src().iter().enumerate().skip(self.l.carries) {
            if !map.contains_key(value) && unshaped(value).op() != Op::Param {
                let inner = argument(value, value.shape(), &self.device);
                map.insert(value.clone(), inner.clone());
                self.stacks.push(Stacked { inner, outer: output(self.node, j) });
            }
        }
        for (&i, p) in &self.params {
            let flat: Dims = smallvec::smallvec![p.numel()];
            if i < self.l.carries || self.l.is_element(i) {
                let inner = unshaped(&argument(p, &flat, &self.device)).clone();
                map.insert(p.clone(), inner.clone());
                let is_carry = i < self.l.carries;
                let outer =
                    if is_carry { carry_stack(self.node, i) } else { self.inputs[i].clone() };
                self.stacks.push(Stacked { inner, outer: flat_stack(&outer, self.l.count) });
            } else {
                let capture = self.inputs[i].moved(Movement::Reshape(flat));
                map.insert(p.clone(), capture.clone());
                self.fixed.push((capture.clone(), capture));
            }
        }
        map
    }

    /// For each cotangent its argument, its initial value, and its value after an iteration.
    fn carries(
        &self,
        upstream: &FxHashMap<usize, UOp>,
        gradients: &BTreeMap<usize, UOp>,
    ) -> Vec<(UOp, UOp, UOp)> {
        let carry = |(&i, g): (&usize, &UOp)| {
            let shape = self.inputs[i].shape();
            let first = upstream.get(&i).cloned().unwrap_or_else(|| zeros(&self.inputs[i]));
            let after = gradients.get(&i).map_or_else(
                || broadcast_to(&g.const_like(0i64), shape),
                |d| d.moved(Movement::Reshape(shape.clone())),
            );
            (g.clone(), first, after)
        };
        self.carried.iter().zip(&self.cotangents).map(carry).collect()
    }

    /// Builds the loop from the gradients of one iteration, and the gradients of the operands from
    /// its outputs.
    fn build(
        &self,
        upstream: &FxHashMap<usize, UOp>,
        gradients: &BTreeMap<usize, UOp>,
    ) -> Vec<Option<UOp>> {
        let l = self.l;
        let carries = self.carries(upstream, gradients);
        let of_stacks = self.stacks.iter().map(|s| unshaped(&s.inner).id());
        let known = of_stacks.chain(self.fixed.iter().map(|f| f.0.id())).collect();
        let used = |i: usize| if l.is_element(i) { Use::Stack } else { Use::Sum };
        let values = gradients.range(l.carries..).map(|(&i, g)| (g.clone(), used(i))).collect();
        let kept = values_to_stack(&self.cotangents, &known, values);
        // Iterations read only the stacks that they need.
        let needed: FxHashSet<u64> =
            toposort(carries.iter().map(|c| &c.2).chain(&kept)).iter().map(UOp::id).collect();
        let elements: Vec<(UOp, UOp)> = self
            .stacks
            .iter()
            .filter(|s| needed.contains(&unshaped(&s.inner).id()))
            .map(|s| (s.inner.clone(), s.outer.clone()))
            .collect();
        let built = Body {
            carries: &carries,
            elements: &elements,
            stacked: &kept,
            count: l.count,
            reverse: !l.reverse,
            device: &self.device,
        }
        .build();
        let flat = |s: &Stacked| (unshaped(&s.inner).clone(), flat_stack(&s.outer, l.count));
        let mut stacks: Vec<(UOp, UOp)> = self.stacks.iter().map(flat).collect();
        stacks.extend(kept.iter().zip(&built.stacked).map(|(k, &i)| (k.clone(), built.output(i))));
        let mut batch = BatchedGraph::new(l.count, &stacks, &self.fixed);
        let part = |i: usize| {
            if let Some(at) = self.carried.iter().position(|c| *c == i) {
                return Some(built.output(at));
            }
            let g = gradients.get(&i)?;
            let all = if l.is_element(i) { batch.stack(g) } else { batch.sum(g) };
            Some(all.moved(Movement::Reshape(self.inputs[i].shape().clone())))
        };
        (0..self.inputs.len()).map(part).collect()
    }
}

/// Returns a new argument of a body.
fn argument(like: &UOp, shape: &Dims, device: &DeviceName) -> UOp {
    param(NEXT_SLOT.fetch_add(1, Ordering::Relaxed), like.dtype(), shape, device)
}

/// Returns a stack with each of its elements flattened to one row.
fn flat_stack(u: &UOp, count: usize) -> UOp {
    u.moved(Movement::Reshape(smallvec::smallvec![count, u.numel() / count]))
}

/// The use of a value by the gradients of operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    /// It is stacked.
    Stack,
    /// It is summed over the iterations.
    Sum,
    /// It is reduced, and the result is summed over the iterations.
    Reduced,
}

/// Returns the values that each iteration stacks, so that the given values can be computed from
/// them for all iterations at once. Only values that depend on a cotangent need to be stacked, and
/// of an outer product only its factors.
fn values_to_stack(
    cotangents: &[UOp],
    known: &FxHashSet<u64>,
    values: Vec<(UOp, Use)>,
) -> Vec<UOp> {
    let order = toposort_until(values.iter().map(|v| &v.0), |u| known.contains(&u.id()));
    let carried: FxHashSet<u64> = cotangents.iter().map(|c| unshaped(c).id()).collect();
    let unknown = order.iter().filter(|u| !known.contains(&u.id()));
    let inside = dependents(unknown, |u| carried.contains(&u.id()));
    let mut kept: Vec<UOp> = Vec::new();
    let mut seen: FxHashSet<(u64, Use)> = FxHashSet::default();
    let mut open: Vec<(UOp, Use)> = values.into_iter().rev().collect();
    while let Some((u, used)) = open.pop() {
        if known.contains(&u.id()) || !seen.insert((u.id(), used)) {
            continue;
        }
        let goes_on = BatchedGraph::supports(&u)
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

/// Returns true if an op has more elements than each of its operands that depend on a cotangent.
fn is_outer(u: &UOp, inside: &FxHashSet<u64>) -> bool {
    let mut operands = u.src().iter().filter(|s| inside.contains(&s.id()));
    operands.all(|s| movement_base(s).numel() < u.numel())
}
