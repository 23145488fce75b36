//! Expressions of kernels. Input: the uses of each node that
//! `assign_ranges` has decided. Output: stores
//! over ranges, built from inputs to outputs.

use super::assign_ranges::{
    CustomNode, Decided, IndexCache, PendingStore, RangeAssignment, Use, contiguous_memory,
    contiguous_node, placeholder,
};
use super::index::{flat, load};
use super::{lower_cats, scan, scatter};
use crate::dtype::DType;
use crate::ir::{Arg, Group, Op, Src, UOp};
use crate::symbolic::{simplify, simplify_mask};
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the ids of the nearest buffers under nodes, ascending.
fn nearest_buffers(nodes: &[UOp], buffer_ids: &FxHashMap<u64, usize>) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut seen: FxHashSet<u64> = FxHashSet::default();
    let mut open: Vec<&UOp> = nodes.iter().collect();
    while let Some(u) = open.pop() {
        match buffer_ids.get(&u.id()) {
            Some(n) => found.push(*n),
            None => open.extend(u.src().iter().filter(|s| seen.insert(s.id()))),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Builds the stores of a graph in topological order.
pub(super) fn build(
    order: &[UOp],
    inputs: usize,
    decided: Decided,
    moves: &mut IndexCache,
) -> RangeAssignment {
    let next_range = decided.next_range;
    let out = RangeAssignment { count: inputs, next_range, ..RangeAssignment::default() };
    let (values, buffers) = (FxHashMap::default(), FxHashMap::default());
    let mut builder = Builder { decided, values, buffers, out };
    for u in order {
        let uses = builder.decided.uses.get(&u.id()).map_or(0, |d| d.len());
        if u.numel() == 0 {
            // No element is ever read, but users need a value of the dtype.
            builder.define_at_all_uses(u, uses, UOp::constant(0i64, u.dtype()));
            continue;
        }
        builder.assign_buffer(u);
        builder.evaluate(u, moves);
        if matches!(u.op(), Op::Const | Op::Var) {
            builder.define_at_all_uses(u, uses, u.clone());
        } else {
            builder.define_loads(u);
        }
    }
    builder.out
}

struct Builder {
    decided: Decided,
    /// The expression of each node at each of its uses.
    values: FxHashMap<(u64, usize), UOp>,
    /// The buffers that nodes are stored in.
    buffers: FxHashMap<u64, UOp>,
    out: RangeAssignment,
}

impl Builder {
    fn next_buffer_id(&mut self) -> usize {
        self.out.count += 1;
        self.out.count - 1
    }

    /// Records that the node is stored in the buffer of this id.
    fn set_buffer(&mut self, u: &UOp, buffer_id: usize) -> UOp {
        let buffer = placeholder(u, buffer_id);
        self.buffers.insert(u.id(), buffer.clone());
        self.out.buffer_ids.insert(u.id(), buffer_id);
        buffer
    }

    /// Defines the same value at all uses of the node.
    fn define_at_all_uses(&mut self, u: &UOp, uses: usize, value: UOp) {
        self.values.extend((0..uses).map(|k| ((u.id(), k), value.clone())));
    }

    /// Defines the value at each use of the node as a load of its buffer, if it has one.
    fn define_loads(&mut self, u: &UOp) {
        let Some(buffer) = self.buffers.get(&u.id()) else { return };
        for (k, d) in self.decided.uses.get(&u.id()).into_iter().flatten().enumerate() {
            let value = load(buffer, u.numel(), flat(&d.at, u.shape()), &d.mask);
            self.values.insert((u.id(), k), value);
        }
    }

    /// Assigns buffer ids to inputs, outputs of copies, and outputs of custom kernels and loops.
    fn assign_buffer(&mut self, u: &UOp) {
        match u.op() {
            Op::Param => {
                self.buffers.insert(u.id(), u.clone());
                self.out.buffer_ids.insert(u.id(), u.expect_param().slot);
            }
            Op::Copy => self.assign_copy_buffer(u),
            Op::Kernel | Op::Loop => {
                let count = match u.arg() {
                    Arg::Loop(l) => l.outputs().len(),
                    _ => u.expect_kernel().kernel.outputs.len(),
                };
                let writes = (0..count).map(|_| self.next_buffer_id()).collect();
                let reads =
                    u.src().iter().map(|s| self.out.buffer_ids[&contiguous_node(s).id()]).collect();
                self.out.customs.push(CustomNode { node: u.clone(), writes, reads });
            }
            Op::Output => {
                let output = u.expect_output();
                let customs = &self.out.customs;
                let kernel = customs.iter().rev().find(|c| c.node == *output.of);
                let kernel = kernel.expect("a kernel comes before its outputs");
                self.set_buffer(u, kernel.writes[output.number]);
            }
            _ => {}
        }
    }

    fn assign_copy_buffer(&mut self, u: &UOp) {
        let buffer_id = self.next_buffer_id();
        self.set_buffer(u, buffer_id);
        let copy = u.expect_copy();
        let (source, part) = contiguous_memory(copy.x);
        let from = self.out.buffer_ids[&source.id()];
        self.out.copies.push((buffer_id, from, part.map_or(0, |p| p.start)));
        if !copy.after.is_empty() {
            let under = nearest_buffers(copy.after, &self.out.buffer_ids);
            self.out.waits.insert(buffer_id, std::iter::once(from).chain(under).collect());
        }
    }

    /// Stores a node, or defines its value at each use, as decided.
    fn evaluate(&mut self, u: &UOp, moves: &mut IndexCache) {
        let Some(evals) = self.decided.evaluated.remove(&u.id()) else { return };
        match u.op() {
            Op::Scatter => {
                let buffer_id = self.next_buffer_id();
                let buffer = self.set_buffer(u, buffer_id);
                let s = u.expect_scatter();
                let value = |x: &UOp, k: usize| self.values[&(x.id(), k)].clone();
                let operands = [
                    value(s.base, evals[0].operands[0]),
                    value(s.index, evals[1].operands[0]),
                    value(s.value, evals[1].operands[1]),
                ];
                self.out.stored.extend(scatter::stored(u, buffer_id, &buffer, &evals, operands));
            }
            Op::Cat => {
                let buffer_id = self.next_buffer_id();
                let part = |x: &UOp, d: &Use| self.values[&(x.id(), d.operands[0])].clone();
                self.out.stored.extend(lower_cats::stored(u, buffer_id, &evals, part));
                self.set_buffer(u, buffer_id);
            }
            _ => {
                for (k, d) in evals.iter().enumerate() {
                    let value = expression(u, d, &self.values, moves);
                    let Some(ranges) = self.decided.stored.get(&u.id()).cloned() else {
                        self.values.insert((u.id(), k), value);
                        continue;
                    };
                    let buffer_id = self.next_buffer_id();
                    self.set_buffer(u, buffer_id);
                    let (node, index) = (u.clone(), flat(&d.at, u.shape()));
                    let store = PendingStore {
                        node,
                        buffer: buffer_id,
                        ranges,
                        value,
                        index,
                        update: None,
                    };
                    self.out.stored.push(store);
                }
            }
        }
    }
}

/// Returns the value of a node at one demand, from its operands' values.
fn expression(
    u: &UOp,
    d: &Use,
    values: &FxHashMap<(u64, usize), UOp>,
    moves: &mut IndexCache,
) -> UOp {
    if u.op().is(Group::Movement) {
        let (x, _, mask) = moves.of(u, &d.at);
        let value = values[&(x.id(), d.operands[0])].clone();
        let mask = simplify_mask(&simplify(mask));
        // A masked load already yields zero outside the buffer.
        let zero_there = value.as_load().is_some_and(|load| load.alt.is_some());
        return if mask.is_int(1) || zero_there {
            value
        } else {
            mask.select(&value, &UOp::constant(0i64, u.dtype()))
        };
    }
    let mut operands = u.src().iter().zip(&d.operands).map(|(x, k)| values[&(x.id(), *k)].clone());
    let mut only = || operands.next().expect("the op has an operand");
    match u.op() {
        Op::Const | Op::Var => u.clone(),
        Op::Iota => d.at[0].cast(u.dtype()),
        Op::Contiguous | Op::Slice => only(),
        Op::Scan => scan::expression(u, only(), &d.at),
        Op::Reduce => {
            let fold = u.expect_reduce().fold;
            if d.opened.is_empty() { fold.of_one(&only()) } else { only().fold(fold, &d.opened) }
        }
        _ => {
            debug_assert!(u.op().is_alu() || u.dtype() == DType::VOID, "no expression for {u:?}");
            u.retyped(u.dtype(), operands.collect::<Src>())
        }
    }
}
