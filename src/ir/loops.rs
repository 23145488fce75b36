//! Loops of the tensor graph: the payload of a `Loop`, and its construction from a traced body.
//!
//! Input: the nodes that the body computes, over `Param`s for the carries and for the elements of
//! one iteration. Output: a `Loop` node whose operands are the initial carries, the stacked
//! elements and the captures, which are the nodes outside the body that it uses.
//!
//! ```text
//! (carry, ys) = scan(|carry, x| (carry·W + x, carry), first, xs)
//!   Loop(first, xs, W) {count=T, body: Sink(p0·p2 + p1, p0·p2 + p1, …)}
//! ```
//!
//! The body lists the carries after an iteration, then the values that are stacked.

use super::{
    Arg, DeviceName, Fold, Group, Op, Src, UOp, dependents, substitute_all, toposort, typed,
    unmarked,
};
use crate::dtype::DType;
use crate::shape::{Dims, Movement};
use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The payload of a `Loop`: iterations of one body.
#[derive(Clone, PartialEq, Eq)]
pub struct Loop {
    /// A `Sink` of the carries after an iteration, then of the values that are stacked. Its inputs
    /// are `Param`s, numbered as the operands of the node.
    pub body: UOp,
    /// The number of iterations.
    pub count: usize,
    /// True if the loop runs over the elements from last to first.
    pub reverse: bool,
    /// The number of carries, which are the first operands.
    pub carries: usize,
    /// The number of stacked operands after the carries, with an element per iteration. All other
    /// operands are loop-invariant captures.
    pub elements: usize,
}

impl Hash for Loop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // By structure, so that the hash is the same in every process.
        self.body.key().hash(state);
        (self.count, self.reverse, self.carries, self.elements).hash(state);
    }
}

impl Loop {
    /// Returns the dtype and the shape of each output: the last carries, then the stacks.
    pub fn outputs(&self) -> Vec<(DType, Dims)> {
        (0..self.body.src().len()).filter_map(|i| self.output(i)).collect()
    }
    /// Returns the dtype and the shape of an output.
    pub fn output(&self, i: usize) -> Option<(DType, Dims)> {
        let node = self.body.src().get(i)?;
        let stacked = (i >= self.carries).then_some(self.count);
        Some((node.dtype(), stacked.into_iter().chain(node.shape().iter().copied()).collect()))
    }
    /// Returns true if an operand has an element per iteration.
    pub fn is_element(&self, operand: usize) -> bool {
        (self.carries..self.carries + self.elements).contains(&operand)
    }
    /// Returns the loop without marks in its body.
    pub(crate) fn unmarked(&self) -> Loop {
        Loop { body: UOp::sink(unmarked(self.body.src(), |_| None)), ..self.clone() }
    }
}

/// The parts of a loop to build. Each argument of the body is a `Param` that no other graph has,
/// under a reshape to its shape.
pub(crate) struct Body<'a> {
    /// For each carry its argument, its initial value, and its value after an iteration.
    pub carries: &'a [(UOp, UOp, UOp)],
    /// For each element its argument, and the stack of its values.
    pub elements: &'a [(UOp, UOp)],
    /// The values to stack.
    pub stacked: &'a [UOp],
    pub count: usize,
    pub reverse: bool,
    pub device: &'a DeviceName,
}

/// A loop that was built, with the indices of its outputs.
pub(crate) struct BuiltLoop {
    pub node: UOp,
    /// The output of each of `Body::stacked`.
    pub stacked: Vec<usize>,
}

impl BuiltLoop {
    /// Returns an output.
    pub fn output(&self, i: usize) -> UOp {
        output(&self.node, i)
    }
}

/// Returns an output of a loop.
pub(crate) fn output(node: &UOp, i: usize) -> UOp {
    let dtype = node.expect_loop().body.body.src()[i].dtype();
    typed::Output::build(dtype, Arg::Output(i), node.clone())
}

/// Returns the node under reshapes: of an argument its `Param`.
pub(crate) fn unshaped(u: &UOp) -> &UOp {
    u.follow_operands(|op| op == Op::Reshape)
}

/// Returns an input of a graph as a node of a shape.
pub(crate) fn param(slot: usize, dtype: DType, shape: &Dims, device: &DeviceName) -> UOp {
    let whole = UOp::param(slot, shape.iter().product(), dtype, device);
    whole.moved(Movement::Reshape(shape.clone()))
}

/// Returns a value that a loop reads, stored on the device of the loop if it depends on no data.
fn stored_on_device(u: &UOp, device: &DeviceName) -> UOp {
    if u.has_data() {
        return u.clone();
    }
    u.contiguous_on(device)
}

impl Body<'_> {
    /// Builds the loop. Values of the body that do not depend on its arguments become operands, so
    /// that they are computed once. The carries are stacked, and so are reductions, which a
    /// gradient would otherwise compute again. Unused outputs are not computed.
    pub(crate) fn build(&self) -> BuiltLoop {
        let mut outputs: Vec<UOp> = self.carries.iter().map(|c| c.2.clone()).collect();
        let first = outputs.len();
        let mut at: FxHashMap<u64, usize> = FxHashMap::default();
        let mut add = |u: &UOp, outputs: &mut Vec<UOp>| {
            *at.entry(u.id()).or_insert_with(|| {
                outputs.push(u.clone());
                outputs.len() - 1
            })
        };
        let stacked = self.stacked.iter().map(|u| add(u, &mut outputs)).collect();
        for (_, _, after) in self.carries {
            add(after, &mut outputs);
        }
        let arguments: Vec<&UOp> = self
            .carries
            .iter()
            .map(|c| &c.0)
            .chain(self.elements.iter().map(|e| &e.0))
            .map(unshaped)
            .collect();
        let order = toposort(&outputs);
        let inside = dependents(&order, |u| arguments.contains(&u));
        let saved = |u: &&UOp| {
            inside.contains(&u.id())
                && u.op() == Op::Reduce
                && u.dtype().is_float()
                && u.numel() < u.operand().numel()
        };
        for u in order.iter().filter(saved) {
            add(u, &mut outputs);
        }
        let captures = captures(&order, &outputs, &inside);
        let mut src: Vec<UOp> =
            self.carries.iter().map(|c| stored_on_device(&c.1, self.device)).collect();
        src.extend(self.elements.iter().map(|e| stored_on_device(&e.1, self.device)));
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (slot, p) in arguments.into_iter().enumerate() {
            let new = param(slot, p.dtype(), &smallvec::smallvec![p.numel()], self.device);
            map.insert(p.clone(), unshaped(&new).clone());
        }
        for c in captures {
            map.insert(c.clone(), param(src.len(), c.dtype(), c.shape(), self.device));
            src.push(stored_on_device(&c, self.device));
        }
        let body = UOp::sink(substitute_all(&outputs, &map));
        let (count, reverse, carries, elements) =
            (self.count, self.reverse, first, self.elements.len());
        let arg = Arg::Loop(Arc::new(Loop { body, count, reverse, carries, elements }));
        BuiltLoop { node: typed::Loop::build(DType::VOID, arg, src), stacked }
    }
}

/// Returns the node under movement ops.
pub(crate) fn movement_base(u: &UOp) -> &UOp {
    u.follow_operands(|op| op.is(Group::Movement))
}

/// Returns the nodes outside a body that it uses, in the order of the graph. Expressions of
/// literals and views remain in the body, and so do nodes with more elements than their operands:
/// reading them costs more than computing them.
fn captures(order: &[UOp], outputs: &[UOp], inside: &FxHashSet<u64>) -> Vec<UOp> {
    let outer = dependents(order.iter().filter(|u| !inside.contains(&u.id())), |u| {
        u.own_device().is_some() || matches!(u.op(), Op::Var | Op::Leaf)
    });
    let used =
        order.iter().filter(|u| inside.contains(&u.id())).flat_map(|u| u.src()).chain(outputs);
    let mut open: Vec<&UOp> = used.collect();
    let (mut seen, mut found): (FxHashSet<u64>, FxHashSet<u64>) = Default::default();
    while let Some(u) = open.pop() {
        let base = movement_base(u);
        if !outer.contains(&base.id()) || !seen.insert(base.id()) {
            continue;
        }
        let from_outside = || base.src().iter().filter(|s| outer.contains(&s.id()));
        if base.op().is_alu()
            && !base.op().is(Group::Mark)
            && from_outside().all(|s| movement_base(s).numel() < base.numel())
        {
            open.extend(base.src());
        } else {
            found.insert(base.id());
        }
    }
    order.iter().filter(|u| found.contains(&u.id())).cloned().collect()
}

/// Returns a list with one more item in front.
fn prepended<T: Copy, L: FromIterator<T>>(first: T, rest: &[T]) -> L {
    std::iter::once(first).chain(rest.iter().copied()).collect()
}

/// Returns the stack of a carry's values before each iteration: its initial value, and its values
/// after all iterations but the last.
pub(crate) fn carry_stack(node: &UOp, carry: usize) -> UOp {
    let l = node.expect_loop().body;
    let after = &l.body.src()[carry];
    let kept = (l.carries..l.body.src().len())
        .find(|&j| l.body.src()[j] == *after)
        .expect("a loop stacks its carries");
    let (all, first, n) = (output(node, kept), &node.src()[carry], l.count);
    let stack = all.shape().clone();
    let one = first.moved(Movement::Reshape(prepended(1, first.shape())));
    let spread = one.moved(Movement::Expand(stack.clone()));
    if n == 1 {
        return spread;
    }
    let by = if l.reverse { (0, 1) } else { (1, 0) };
    let part = if l.reverse { 1..n } else { 0..n - 1 };
    let shifted = all
        .narrowed(0, part)
        .moved(Movement::pad((0..stack.len()).map(|a| if a == 0 { by } else { (0, 0) })));
    let place = UOp::iota(n, DType::I32);
    let at = if l.reverse { n as i64 - 1 } else { 0 };
    let column: Dims = (0..stack.len()).map(|a| if a == 0 { n } else { 1 }).collect();
    let is_first = place.equals(at).moved(Movement::Reshape(column)).moved(Movement::Expand(stack));
    // Stored, so that a product that reads it has no mask.
    is_first.select(spread, &shifted).unary(Op::Contiguous)
}

/// The vectorization (JAX: `vmap`) of a graph of one iteration over all iterations: values get a
/// leading axis with an element per iteration.
pub(crate) struct BatchedGraph {
    count: usize,
    /// The converted nodes, and whether they have the axis: loop-invariant nodes do not.
    done: FxHashMap<u64, (UOp, bool)>,
}

impl BatchedGraph {
    /// Returns the conversion with the stacks of some nodes, and with loop-invariant values of
    /// others.
    pub(crate) fn new(count: usize, stacks: &[(UOp, UOp)], fixed: &[(UOp, UOp)]) -> BatchedGraph {
        let stacks = stacks.iter().map(|(u, s)| (u.id(), (s.clone(), true)));
        BatchedGraph {
            count,
            done: stacks.chain(fixed.iter().map(|(u, f)| (u.id(), (f.clone(), false)))).collect(),
        }
    }

    /// Returns true if a node can be converted when its operands can.
    pub(crate) fn supports(u: &UOp) -> bool {
        let leaf = matches!(u.op(), Op::Const | Op::Iota);
        leaf || u.op().is(Group::Movement)
            || u.op().is_alu()
            || matches!(u.op(), Op::Reduce | Op::Contiguous | Op::ContiguousBackward)
    }

    /// Returns the stack of a node.
    pub(crate) fn stack(&mut self, root: &UOp) -> UOp {
        for u in super::toposort_until([root], |u| self.done.contains_key(&u.id())) {
            if !self.done.contains_key(&u.id()) {
                let new = self.node(&u);
                self.done.insert(u.id(), new);
            }
        }
        let (node, stacked) = self.done[&root.id()].clone();
        if stacked { node } else { self.broadcast(&node, root.shape()) }
    }

    /// Returns a loop-invariant value, repeated along the axis.
    fn broadcast(&self, u: &UOp, shape: &Dims) -> UOp {
        let all = prepended(self.count, shape);
        u.moved(Movement::Reshape(prepended(1, shape))).moved(Movement::Expand(all))
    }

    fn node(&self, u: &UOp) -> (UOp, bool) {
        let src: Vec<&(UOp, bool)> = u.src().iter().map(|s| &self.done[&s.id()]).collect();
        if src.iter().all(|s| !s.1) {
            return (u.with_src(src.iter().map(|s| s.0.clone()).collect::<Src>()), false);
        }
        let with_first = |d: &[usize]| -> Dims { prepended(self.count, d) };
        let new = match u.arg() {
            Arg::Movement(m) => src[0].0.moved(match &**m {
                Movement::Reshape(d) => Movement::Reshape(with_first(d)),
                Movement::Expand(d) => Movement::Expand(with_first(d)),
                Movement::Permute(axes) => {
                    let axes: Dims = axes.iter().map(|a| a + 1).collect();
                    Movement::Permute(prepended(0, &axes))
                }
                Movement::Pad(by) => Movement::Pad(prepended((0, 0), by)),
                Movement::Shrink(to) => Movement::Shrink(prepended((0, self.count), to)),
                Movement::Flip(flags) => Movement::Flip(prepended(false, flags)),
            }),
            Arg::Reduce { fold, axes } => src[0].0.reduced(*fold, axes.iter().map(|a| a + 1)),
            _ if matches!(u.op(), Op::Contiguous | Op::ContiguousBackward) => src[0].0.clone(),
            _ => {
                let rank = u.shape().len();
                let fit =
                    |(s, (node, stacked)): (&UOp, &(UOp, bool))| match (stacked, s.shape().len()) {
                        (false, 0) => node.clone(),
                        (false, _) => self.broadcast(node, s.shape()),
                        (true, n) if n == rank => node.clone(),
                        // A stacked operand of rank 0 is expanded to the shape.
                        (true, _) => {
                            let column: Dims =
                                (0..=rank).map(|a| if a == 0 { self.count } else { 1 }).collect();
                            node.moved(Movement::Reshape(column))
                                .moved(Movement::Expand(with_first(u.shape())))
                        }
                    };
                u.with_src(u.src().iter().zip(src.iter().copied()).map(fit).collect::<Src>())
            }
        };
        (new, true)
    }

    /// Returns the sum of a node over all iterations.
    pub(crate) fn sum(&mut self, root: &UOp) -> UOp {
        // In the shape in which it is computed, whose axes are loops of the kernel.
        let base = unshaped(root);
        let sum = self.stack(base).reduced(Fold::Add, [0]);
        sum.moved(Movement::Reshape(root.shape().clone()))
    }
}
