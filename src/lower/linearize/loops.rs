//! The loops of a kernel graph and their nesting.

use super::closed;
use crate::ir::{Op, RangeSet, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A loop, by its number in nesting order. Block 0 is the whole program.
pub(in crate::lower) type Block = usize;

/// The loops of a kernel as a tree.
pub(in crate::lower) struct Loops {
    /// The ranges, outer before inner; entry `i` is block `i + 1`.
    pub(super) ranges: Vec<UOp>,
    place: FxHashMap<u32, Block>,
    pub(in crate::lower) parent: Vec<Block>,
    pub(super) depth: Vec<usize>,
}

impl Loops {
    pub(super) fn of(order: &[UOp]) -> Loops {
        let ranges = ranges(order);
        let place: FxHashMap<u32, Block> =
            ranges.iter().enumerate().map(|(i, r)| (r.range_id(), i + 1)).collect();
        let mut inside = enclosing(order, &place);
        let mut parent = vec![0; ranges.len() + 1];
        // Two loops that enclose a third enclose each other; the innermost is its parent.
        for b in (1..=ranges.len()).rev() {
            let list: Vec<Block> = inside[b].iter().copied().collect();
            for w in list.windows(2) {
                inside[w[1]].insert(w[0]);
            }
            parent[b] = list.last().copied().unwrap_or(0);
        }
        // Parents have smaller numbers than their children.
        let mut depth = vec![0; parent.len()];
        for b in 1..parent.len() {
            depth[b] = depth[parent[b]] + 1;
        }
        Loops { ranges, place, parent, depth }
    }

    /// Returns the deeper of two blocks, one of which is inside the other.
    pub(super) fn deeper(&self, a: Block, b: Block) -> Block {
        if self.depth[a] >= self.depth[b] { a } else { b }
    }

    /// Returns the block of a range; 0 if it is not a loop.
    pub(super) fn of_range(&self, r: &UOp) -> Block {
        self.place.get(&r.range_id()).copied().unwrap_or(0)
    }

    /// Returns the innermost loop whose range the node depends on.
    pub(super) fn of_node(&self, u: &UOp) -> Block {
        u.ranges().iter().filter_map(|id| self.place.get(&id).copied()).max().unwrap_or(0)
    }

    /// Returns the blocks of the loops that a node closes.
    pub(super) fn closed(&self, u: &UOp) -> impl Iterator<Item = Block> {
        closed(u).map(|r| self.of_range(r))
    }

    /// Returns the block around the loops that a node closes, if it closes any.
    pub(super) fn around(&self, u: &UOp) -> Option<Block> {
        self.closed(u).min().map(|outermost| self.parent[outermost])
    }
}

/// Returns the ranges of all loops: those of the outputs first, then those of inner nodes from the
/// outputs to the inputs.
fn ranges(order: &[UOp]) -> Vec<UOp> {
    let sink = order.last().expect("a kernel has a sink");
    // Stores inside a kernel fill shared memory.
    let inner = order.iter().rev().filter(|u| matches!(u.op(), Op::Reduce | Op::Store));
    let mut ranges: Vec<UOp> = sink.src().iter().chain(inner).flat_map(closed).cloned().collect();
    let mut seen = FxHashSet::default();
    ranges.retain(|r| seen.insert(r.range_id()));
    ranges
}

/// Returns the loops that each loop must be inside of: the other loops of every value that depends
/// on it, and of the node that closes it.
fn enclosing(order: &[UOp], place: &FxHashMap<u32, Block>) -> Vec<BTreeSet<Block>> {
    let mut inside: Vec<BTreeSet<Block>> = vec![BTreeSet::new(); place.len() + 1];
    // Many nodes use and close the same ranges.
    let mut known: FxHashSet<(&RangeSet, SmallVec<[Block; 8]>)> = FxHashSet::default();
    for u in order {
        let closed: SmallVec<[Block; 8]> = closed(u).map(|r| place[&r.range_id()]).collect();
        if known.insert((u.ranges(), closed.clone())) {
            let used = u.ranges().iter().filter_map(|id| place.get(&id).copied());
            let blocks: BTreeSet<Block> = closed.into_iter().chain(used).collect();
            for (outer, inner) in blocks.iter().zip(blocks.iter().skip(1)) {
                inside[*inner].insert(*outer);
            }
        }
    }
    inside
}
