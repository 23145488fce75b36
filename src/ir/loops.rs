//! Loops of the tensor graph: what a `Loop` node carries, and how one is made from the graph of its
//! body.
//!
//! A body is traced once. In come the nodes that it computes, over `Param`s that stand for the
//! carries and for the elements of one run; out comes a `Loop` node whose operands are the first
//! carries, the stacked elements, and the captures: what the body uses from outside.
//!
//! ```text
//! (carry, ys) = scan(|carry, x| (carry·W + x, carry), first, xs)
//!   Loop(first, xs, W) {count=T, body: Sink(p0·p2 + p1, p0·p2 + p1, …)}
//! ```
//!
//! The body lists the carries after a run, then the values stacked from each run.

use super::{
    Arg, DeviceName, Fold, Group, Op, Src, ToSrc, UOp, substitute_all, toposort, unmarked,
};
use crate::dtype::DType;
use crate::shape::{Dims, Movement};
use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Runs of one body, one after the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Loop {
    /// A `Sink`: the carries after a run, then what is stacked of all runs. Its inputs are
    /// `Param`s, numbered as the operands of the node.
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
        // By structure, so that it is the same in every process.
        self.body.key().hash(state);
        (self.count, self.reverse, self.carries, self.elements).hash(state);
    }
}

impl Loop {
    /// The dtype and the shape of each output: the last carries, then the stacks.
    pub fn outputs(&self) -> Vec<(DType, Dims)> {
        (0..self.body.src().len()).filter_map(|i| self.output(i)).collect()
    }
    /// The dtype and the shape of an output.
    pub fn output(&self, i: usize) -> Option<(DType, Dims)> {
        let node = self.body.src().get(i)?;
        let stacked = (i >= self.carries).then_some(self.count);
        Some((node.dtype(), stacked.into_iter().chain(node.shape().iter().copied()).collect()))
    }
    /// True if an operand has an element per iteration.
    pub fn is_element(&self, operand: usize) -> bool {
        (self.carries..self.carries + self.elements).contains(&operand)
    }
    /// The same loop without marks for gradients.
    pub(crate) fn unmarked(&self) -> Loop {
        Loop { body: UOp::sink(unmarked(self.body.src(), |_| None)), ..self.clone() }
    }
}

/// What a loop is made of. Each argument of the body is a `Param` that no other graph has, under
/// the reshape to its shape.
pub(crate) struct Body<'a> {
    /// For each carry its argument, its first value, and its value after a run.
    pub carries: &'a [(UOp, UOp, UOp)],
    /// For each element its argument, and the stack of all.
    pub elements: &'a [(UOp, UOp)],
    /// What is stacked of each run.
    pub stacked: &'a [UOp],
    pub count: usize,
    pub reverse: bool,
    pub device: &'a DeviceName,
}

/// A loop with the numbers of its outputs.
pub(crate) struct Made {
    pub node: UOp,
    /// For each of `Body::stacked` its output.
    pub stacked: Vec<usize>,
}

impl Made {
    /// An output.
    pub fn output(&self, i: usize) -> UOp {
        output(&self.node, i)
    }
}

/// An output of a loop.
pub(crate) fn output(node: &UOp, i: usize) -> UOp {
    let Arg::Loop(l) = node.arg() else { panic!("not a loop: {node:?}") };
    let dtype = l.body.src()[i].dtype();
    UOp::new(Op::Output, dtype, [node.clone()].to_src(), Arg::Output(i))
}

/// The node under reshapes: of an argument its `Param`.
pub(crate) fn unshaped(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op() == Op::Reshape {
        u = &u.src()[0];
    }
    u
}

/// An input of a graph as a node of a shape.
pub(crate) fn param(slot: usize, dtype: DType, shape: &Dims, device: &DeviceName) -> UOp {
    let arg = Arg::Param { slot, len: shape.iter().product(), device: device.clone() };
    UOp::new(Op::Param, dtype, Src::new(), arg).moved(Movement::Reshape(shape.clone()))
}

/// A value that a loop reads: in memory, on its device even if it is made of nothing.
fn placed(u: &UOp, device: &DeviceName) -> UOp {
    let has_data = |n: &UOp| {
        matches!(n.op(), Op::Buffer | Op::Param | Op::Copy | Op::Shards)
            || matches!(n.arg(), Arg::Device(_))
    };
    if toposort([u]).iter().any(has_data) {
        return u.clone();
    }
    UOp::new(Op::Contiguous, u.dtype(), [u.clone()].to_src(), Arg::Device(device.clone()))
}

impl Body<'_> {
    /// The loop. What the body computes without its arguments is an operand, so that it is computed
    /// once; all carries are among what is stacked, and so are its reduces, which a gradient would
    /// otherwise compute again. An output that nobody asks for is not computed.
    pub(crate) fn build(&self) -> Made {
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
        let arguments: FxHashSet<u64> = self
            .carries
            .iter()
            .map(|c| &c.0)
            .chain(self.elements.iter().map(|e| &e.0))
            .map(|a| unshaped(a).id())
            .collect();
        let order = toposort(&outputs);
        let mut inside: FxHashSet<u64> = FxHashSet::default();
        for u in &order {
            if arguments.contains(&u.id()) || u.src().iter().any(|s| inside.contains(&s.id())) {
                inside.insert(u.id());
            }
        }
        let saved = |u: &&UOp| {
            inside.contains(&u.id())
                && u.op() == Op::Reduce
                && u.dtype().is_float()
                && u.numel() < u.src()[0].numel()
        };
        for u in order.iter().filter(saved) {
            add(u, &mut outputs);
        }
        let captures = captures(&order, &outputs, &inside);
        let mut src: Vec<UOp> = self.carries.iter().map(|c| placed(&c.1, self.device)).collect();
        src.extend(self.elements.iter().map(|e| placed(&e.1, self.device)));
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (slot, a) in
            self.carries.iter().map(|c| &c.0).chain(self.elements.iter().map(|e| &e.0)).enumerate()
        {
            let p = unshaped(a);
            map.insert(
                p.clone(),
                unshaped(&param(slot, p.dtype(), &smallvec::smallvec![p.numel()], self.device))
                    .clone(),
            );
        }
        for c in captures {
            map.insert(c.clone(), param(src.len(), c.dtype(), c.shape(), self.device));
            src.push(placed(&c, self.device));
        }
        let body = UOp::sink(substitute_all(&outputs, &map));
        let (count, reverse, carries, elements) =
            (self.count, self.reverse, first, self.elements.len());
        let arg = Arg::Loop(Arc::new(Loop { body, count, reverse, carries, elements }));
        Made {
            node: UOp::new(Op::Loop, DType::VOID, src.into_iter().collect::<Src>(), arg),
            stacked,
        }
    }
}

/// The node under movement ops.
fn unmoved(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op().is(Group::Movement) {
        u = &u.src()[0];
    }
    u
}

/// What a body uses from outside, in the order of the graph. Literals and what is made of them
/// alone are written out in the body, and so are views, and what has more elements than all that it
/// is made of: to read it back would cost more than to compute it.
fn captures(order: &[UOp], outputs: &[UOp], inside: &FxHashSet<u64>) -> Vec<UOp> {
    let mut outer: FxHashSet<u64> = FxHashSet::default();
    for u in order {
        let is =
            matches!(u.op(), Op::Buffer | Op::Param | Op::Copy | Op::Shards | Op::Var | Op::Leaf)
                || matches!(u.arg(), Arg::Device(_));
        if !inside.contains(&u.id()) && (is || u.src().iter().any(|s| outer.contains(&s.id()))) {
            outer.insert(u.id());
        }
    }
    let used =
        order.iter().filter(|u| inside.contains(&u.id())).flat_map(|u| u.src()).chain(outputs);
    let mut open: Vec<&UOp> = used.collect();
    let (mut seen, mut found): (FxHashSet<u64>, FxHashSet<u64>) = Default::default();
    while let Some(u) = open.pop() {
        let base = unmoved(u);
        if !outer.contains(&base.id()) || !seen.insert(base.id()) {
            continue;
        }
        let from_outside = || base.src().iter().filter(|s| outer.contains(&s.id()));
        if base.op().is_alu()
            && !base.op().is(Group::Mark)
            && from_outside().all(|s| unmoved(s).numel() < base.numel())
        {
            open.extend(base.src());
        } else {
            found.insert(base.id());
        }
    }
    order.iter().filter(|u| found.contains(&u.id())).cloned().collect()
}

/// The stack of what a carry was before each run: its first value, and all values after a run but
/// the last.
pub(crate) fn before(node: &UOp, carry: usize) -> UOp {
    let Arg::Loop(l) = node.arg() else { panic!("not a loop: {node:?}") };
    let after = &l.body.src()[carry];
    let kept = (l.carries..l.body.src().len())
        .find(|&j| l.body.src()[j] == *after)
        .expect("a loop keeps its carries");
    let (all, first, n) = (output(node, kept), &node.src()[carry], l.count);
    let stack = all.shape().clone();
    let one = first.moved(Movement::Reshape(
        std::iter::once(1).chain(first.shape().iter().copied()).collect(),
    ));
    let spread = one.moved(Movement::Expand(stack.clone()));
    if n == 1 {
        return spread;
    }
    let by = if l.reverse { (0, 1) } else { (1, 0) };
    let part = if l.reverse { 1..n } else { 0..n - 1 };
    let shifted = all
        .narrowed(0, part)
        .moved(Movement::pad((0..stack.len()).map(|a| if a == 0 { by } else { (0, 0) })));
    let place = UOp::new(Op::Iota, DType::I32, Src::new(), Arg::Iota { len: n });
    let at = if l.reverse { n as i64 - 1 } else { 0 };
    let column: Dims = (0..stack.len()).map(|a| if a == 0 { n } else { 1 }).collect();
    let is_first = place.equals(at).moved(Movement::Reshape(column)).moved(Movement::Expand(stack));
    // Stored, so that a product that reads it has no mask.
    let before = is_first.select(spread, &shifted);
    UOp::new(Op::Contiguous, before.dtype(), [before].to_src(), Arg::None)
}

/// A graph for one run as a graph for all of them: every value has one more axis, the first, with a
/// step for each run.
pub(crate) struct Batch {
    count: usize,
    /// What nodes have become, and whether they have the axis: what is the same in each run has
    /// not.
    done: FxHashMap<u64, (UOp, bool)>,
}

impl Batch {
    /// With the stacks of some nodes, and for others a value that is the same in each run.
    pub(crate) fn new(count: usize, stacks: &[(UOp, UOp)], fixed: &[(UOp, UOp)]) -> Batch {
        let stacks = stacks.iter().map(|(u, s)| (u.id(), (s.clone(), true)));
        Batch {
            count,
            done: stacks.chain(fixed.iter().map(|(u, f)| (u.id(), (f.clone(), false)))).collect(),
        }
    }

    /// Whether a node can be taken to all runs at once, if its operands can.
    pub(crate) fn takes(u: &UOp) -> bool {
        let leaf = matches!(u.op(), Op::Const | Op::Iota);
        leaf || u.op().is(Group::Movement)
            || u.op().is_alu()
            || matches!(u.op(), Op::Reduce | Op::Contiguous | Op::ContiguousBackward)
    }

    /// The stack of a node.
    pub(crate) fn stack(&mut self, root: &UOp) -> UOp {
        for u in super::toposort_until([root], |u| self.done.contains_key(&u.id())) {
            if !self.done.contains_key(&u.id()) {
                let new = self.node(&u);
                self.done.insert(u.id(), new);
            }
        }
        let (node, stacked) = self.done[&root.id()].clone();
        if stacked { node } else { self.spread(&node, root.shape()) }
    }

    /// What is the same in each run, once for each.
    fn spread(&self, u: &UOp, shape: &Dims) -> UOp {
        let one: Dims = std::iter::once(1).chain(shape.iter().copied()).collect();
        let all: Dims = std::iter::once(self.count).chain(shape.iter().copied()).collect();
        u.moved(Movement::Reshape(one)).moved(Movement::Expand(all))
    }

    fn node(&self, u: &UOp) -> (UOp, bool) {
        let src: Vec<&(UOp, bool)> = u.src().iter().map(|s| &self.done[&s.id()]).collect();
        if src.iter().all(|s| !s.1) {
            return (u.with_src(src.iter().map(|s| s.0.clone()).collect::<Src>()), false);
        }
        let with_first = |d: &[usize]| -> Dims {
            std::iter::once(self.count).chain(d.iter().copied()).collect()
        };
        let new = match u.arg() {
            Arg::Movement(m) => src[0].0.moved(match &**m {
                Movement::Reshape(d) => Movement::Reshape(with_first(d)),
                Movement::Expand(d) => Movement::Expand(with_first(d)),
                Movement::Permute(axes) => {
                    Movement::permute(std::iter::once(0).chain(axes.iter().map(|a| a + 1)))
                }
                Movement::Pad(by) => {
                    Movement::pad(std::iter::once((0, 0)).chain(by.iter().copied()))
                }
                Movement::Shrink(to) => {
                    Movement::shrink(std::iter::once((0, self.count)).chain(to.iter().copied()))
                }
                Movement::Flip(flags) => {
                    Movement::Flip(std::iter::once(false).chain(flags.iter().copied()).collect())
                }
            }),
            Arg::Reduce { fold, axes } => src[0].0.reduced(*fold, axes.iter().map(|a| a + 1)),
            _ if matches!(u.op(), Op::Contiguous | Op::ContiguousBackward) => src[0].0.clone(),
            _ => {
                let rank = u.shape().len();
                let fit =
                    |(s, (node, stacked)): (&UOp, &(UOp, bool))| match (stacked, s.shape().len()) {
                        (false, 0) => node.clone(),
                        (false, _) => self.spread(node, s.shape()),
                        (true, n) if n == rank => node.clone(),
                        // An operand of rank 0 goes with any shape; with an axis it has to have the
                        // shape.
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

    /// The sum of a node over all runs.
    pub(crate) fn sum(&mut self, root: &UOp) -> UOp {
        // In the shape that it was computed in, whose axes have loops of their own.
        let base = unshaped(root);
        let sum = self.stack(base).reduced(Fold::Add, [0]);
        sum.moved(Movement::Reshape(root.shape().clone()))
    }
}
