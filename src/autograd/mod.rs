//! Gradients: the table of VJP rules, and the reverse walk that applies them.
//!
//! Input: a node of the tensor graph and the nodes to differentiate by. Output: nodes of the same
//! graph. Therefore forward and backward are scheduled together and fuse, and a gradient has a
//! gradient.
//!
//! **Invariant:** no gradient is dropped silently. An op without a rule on a path of gradients is
//! an error. Ops whose derivative is zero wherever it exists (rounding, casts from or to integers,
//! the condition of a `Where`) have rules that return zero, so that no gradient reaches
//! comparisons, which only such ops use.

mod indexed;
mod loops;
mod product;
mod rules;
mod scan;

pub(crate) use rules::decision_operands;
pub use rules::{GRADIENTS, device_of};
pub(crate) use scan::monotone_gather_gradient;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Arg, Fold, Gradient, Op, UOp, substitute_all, toposort_until, walk_along};
use crate::rewrite::Rules;
use crate::shape::{Dims, Movement};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::LazyLock;

static RULES: LazyLock<Rules<UOp>> = LazyLock::new(|| Rules::new(&[&GRADIENTS]));

/// Returns the gradients of `sum(seed * root)` by each of the targets; none for a target that the
/// root does not depend on. `seed` has the shape of the root.
pub fn gradients(root: &UOp, seed: UOp, targets: &[UOp]) -> Result<Vec<Option<UOp>>> {
    gradients_of(&[(root.clone(), seed)], targets)
}

/// As [`gradients`], of the sum over several roots, each with its seed.
fn gradients_of(roots: &[(UOp, UOp)], targets: &[UOp]) -> Result<Vec<Option<UOp>>> {
    let wanted: FxHashSet<u64> = targets.iter().map(|t| t.id()).collect();
    // The nodes on paths from the roots to the targets, operands first.
    let mut all: Vec<UOp> = Vec::new();
    walk_along(roots.iter().map(|r| &r.0), differentiable_operands, |u| all.push(u.clone()));
    let mut on_way: FxHashSet<u64> = FxHashSet::default();
    for u in &all {
        if wanted.contains(&u.id())
            || differentiable_operands(u).iter().any(|s| on_way.contains(&s.id()))
        {
            on_way.insert(u.id());
        }
    }
    let mut grads: FxHashMap<u64, UOp> = FxHashMap::default();
    for (root, seed) in roots.iter().filter(|r| on_way.contains(&r.0.id())) {
        add(&mut grads, root, seed.clone());
    }
    // The upstream gradients of the outputs of each loop.
    let mut of_outputs: FxHashMap<u64, FxHashMap<usize, UOp>> = FxHashMap::default();
    // Values that are stored, which gradients read instead of their graphs.
    let mut computed: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in all.iter().rev() {
        if !differentiable_operands(u).iter().any(|s| on_way.contains(&s.id())) {
            continue;
        }
        let parts = if let Some(upstream) = of_outputs.remove(&u.id()) {
            loops::backward(u, &upstream, &|s| on_way.contains(&s.id()))?
        } else {
            let Some(g) = grads.get(&u.id()).cloned() else { continue };
            match (u.arg(), u.src()) {
                (Arg::Output(i), [of]) if of.op() == Op::Loop => {
                    of_outputs.entry(of.id()).or_default().insert(*i, g);
                    continue;
                }
                _ => operand_gradients(u, g)?,
            }
        };
        if let Some(c) = u.as_computed() {
            computed.insert(c.origin.clone(), u.clone());
        }
        for (s, part) in differentiable_operands(u).iter().zip(parts) {
            if let (true, Some(part)) = (on_way.contains(&s.id()), part) {
                add(&mut grads, s, reduce_to_shape(part, s));
            }
        }
    }
    // If all derivatives on the paths to a target are zero, its gradient is zero.
    let of = |t: &UOp| {
        grads.get(&t.id()).cloned().or_else(|| on_way.contains(&t.id()).then(|| zeros(t)))
    };
    let found: Vec<Option<UOp>> = targets.iter().map(of).collect();
    let flat: Vec<UOp> = found.iter().flatten().cloned().collect();
    let mut flat = substitute_all(&flat, &computed).into_iter();
    Ok(found.into_iter().map(|g| g.and_then(|_| flat.next())).collect())
}

/// Adds a part to the gradient of a node.
fn add(grads: &mut FxHashMap<u64, UOp>, u: &UOp, part: UOp) {
    let sum = match grads.remove(&u.id()) {
        Some(other) => other.binary(Op::Add, part),
        None => part,
    };
    grads.insert(u.id(), sum);
}

/// Returns the leaves that gradients of the node reach, in topological order.
pub fn leaves(root: &UOp) -> Vec<UOp> {
    let all = toposort_until([root], |u| !u.requires_grad() || u.op() == Op::Leaf);
    all.into_iter().filter(|u| u.op() == Op::Leaf).collect()
}

/// Returns the operands that gradients follow.
fn differentiable_operands(u: &UOp) -> &[UOp] {
    match (u.op(), u.src()) {
        (Op::Detach | Op::Leaf, _) => &[],
        (Op::Computed | Op::Relu | Op::Call, [_, followed @ ..]) => followed,
        (Op::Copy, [x, ..]) => std::slice::from_ref(x),
        (_, src) => src,
    }
}

/// Returns the gradients of the followed operands; `None` where the derivative is zero.
fn operand_gradients(u: &UOp, g: UOp) -> Result<Vec<Option<UOp>>> {
    if let Some(s) = std::iter::once(u)
        .chain(differentiable_operands(u).iter().filter(|s| s.requires_grad()))
        .find(|s| s.op() == Op::Slice || !s.extents().is_empty())
    {
        let msg = format!(
            "{:?} has a symbolic size, which gradients do not support; use detach() to stop \
             gradients there, or constant sizes",
            s.op()
        );
        return Err(Error::Gradient(msg));
    }
    if let Arg::Gradient(gradient) = u.arg() {
        return custom_gradients(gradient, &g, differentiable_operands(u));
    }
    let mut g = g;
    let Some((sink, _)) = RULES.step(u, &mut g) else {
        return Err(Error::Gradient(format!(
            "the operation {:?} is not differentiable, and the result depends on a parameter \
             through it; use detach() to stop gradients there",
            u.op()
        )));
    };
    debug_assert_eq!(
        sink.src().len(),
        differentiable_operands(u).len(),
        "a gradient for each operand of {u:?}"
    );
    Ok(sink.src().iter().map(|part| (part.op() != Op::Sink).then(|| part.clone())).collect())
}

/// Returns the gradients of the inputs of a call by its custom function; none for inputs that are
/// no floats.
fn custom_gradients(gradient: &Gradient, g: &UOp, inputs: &[UOp]) -> Result<Vec<Option<UOp>>> {
    let parts = gradient.apply(g, inputs)?;
    if parts.len() != inputs.len() {
        let msg = format!(
            "call: expected one gradient per input, in order; got {} for {} inputs",
            parts.len(),
            inputs.len()
        );
        return Err(Error::Gradient(msg));
    }
    let fit = |(i, (part, input)): (usize, (UOp, &UOp))| {
        if !input.dtype().is_float() {
            return Ok(None);
        }
        if (part.shape(), part.dtype()) != (input.shape(), input.dtype()) {
            let (has, is) = ((part.dtype(), part.shape()), (input.dtype(), input.shape()));
            let msg = format!(
                "call: the gradient of input {i} is {} {:?}, but the input is {} {:?}; both must \
                 be the same",
                has.0, has.1, is.0, is.1
            );
            return Err(Error::Gradient(msg));
        }
        Ok(Some(part))
    };
    parts.into_iter().zip(inputs).enumerate().map(fit).collect()
}

/// Returns a gradient in the shape of the operand: for an operand of rank 0 its sum.
fn reduce_to_shape(g: UOp, operand: &UOp) -> UOp {
    debug_assert_eq!(g.dtype(), operand.dtype(), "the gradient of {operand:?}");
    if operand.shape() == g.shape() {
        return g;
    }
    if g.shape().is_empty() {
        return broadcast_to(&g, operand.shape());
    }
    let rank = g.shape().len();
    g.reduced(Fold::Add, 0..rank).moved(Movement::Reshape(operand.shape().clone()))
}

/// Expands a value of rank 0, or one with axes of size one, to a shape.
fn broadcast_to(x: &UOp, shape: &Dims) -> UOp {
    let ones =
        if x.shape().is_empty() { Dims::from_elem(1, shape.len()) } else { x.shape().clone() };
    let x = if x.shape() == &ones { x.clone() } else { x.moved(Movement::Reshape(ones)) };
    if x.shape() == shape { x } else { x.moved(Movement::Expand(shape.clone())) }
}

/// Returns the inverse of a permutation of axes.
fn inverse(order: &[usize]) -> Dims {
    let place = |a: usize| order.iter().position(|&p| p == a).expect("a permutation of axes");
    (0..order.len()).map(place).collect()
}

/// Returns `0, 1, …` in a dtype that holds every index.
fn iota_vector(len: usize) -> UOp {
    UOp::iota(len, if i32::try_from(len).is_ok() { DType::I32 } else { DType::I64 })
}

/// Returns `0, 1, …` along an axis of a shape; the other axes have size one.
fn iota(shape: &[usize], axis: usize) -> UOp {
    let along = (0..shape.len()).map(|a| if a == axis { shape[a] } else { 1 });
    iota_vector(shape[axis]).moved(Movement::reshape(along))
}

fn zeros(like: &UOp) -> UOp {
    broadcast_to(&like.const_like(0i64), like.shape())
}
