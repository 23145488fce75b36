//! Orders a kernel graph as a linear program. Input: a kernel whose ranges are loops or CPU
//! threads. Output: a list in which operands precede users, loops are opened and closed in order,
//! reductions are accumulators, masked stores are inside an `If`, and index integers have a width:
//! 32 bits if every one of them fits, else 64.
//!
//! A value is placed in the innermost loop of the ranges that it depends on, so loop-invariant
//! values are hoisted, and several reductions over one row become consecutive loops.
//!
//! ```text
//! store(out[i], reduce(load(x[4*i + j]) closes j)) closes i
//! =>
//! for i { acc = 0; for j { acc = acc + load(x[4*i + j]) }; store(out[i], acc) }
//! ```

mod emit;
mod items;
mod loops;

pub(super) use loops::{Block, Loops};

use super::fma::is_product;
use super::loop_masks;
use crate::ir::{AxisKind, Fold, Group, Op, UOp};
use crate::kernel::masked_term;
use crate::target::Target;
use emit::Emit;
use items::Items;
use rustc_hash::{FxHashMap, FxHashSet};

/// Orders a kernel as a linear program. `args` are the arguments of the kernel: one that
/// simplification removed from the graph keeps its slot.
pub fn linearize(ast: &UOp, args: &[UOp], target: &Target) -> Vec<UOp> {
    let order = ast.toposort();
    let placement = Placement::of(&order);
    let reduces = placement.reductions();
    let masks = LoopMasks::of(&placement, &reduces);
    let terms = Terms::of(&placement, &reduces, &masks, target);
    let mut items = Items::of(&placement, &terms, &masks);
    let mut emit = Emit::new(&placement, &terms, &masks);
    emit.arguments(args);
    emit.all(&mut items, target);
    emit.list
}

/// Returns the terms that a reduction or a scan combines per iteration: one, or after `unroll`
/// several, which follow its ranges. An accumulator with an initial value is no term.
pub(super) fn bodies(u: &UOp) -> impl Iterator<Item = &UOp> {
    let (body, others) = match u.as_scan() {
        Some(scan) => (scan.body, scan.ranges),
        None => (u.expect_reduce().body, u.expect_reduce().ranges),
    };
    let is_term = |s: &&UOp| !matches!(s.op(), Op::Range | Op::DefineAcc);
    std::iter::once(body).chain(others.iter().filter(is_term))
}

/// Returns the initial value of the accumulator of a reduction, if it is not the identity.
fn initial_value(u: &UOp) -> Option<&UOp> {
    u.src().last().and_then(UOp::as_define_acc).map(|acc| acc.init)
}

/// Returns the operation of a reduction or a scan.
pub(super) fn fold_of(u: &UOp) -> Fold {
    u.as_scan().map_or_else(|| u.expect_reduce().fold, |scan| scan.fold)
}

/// Returns the loops that a node closes.
fn closed(u: &UOp) -> impl Iterator<Item = &UOp> {
    let list = match u.op() {
        Op::Reduce => u.expect_reduce().ranges,
        Op::Store => u.expect_store().ranges,
        _ => &[],
    };
    list.iter().filter(|r| r.op() == Op::Range && r.range_kind() != AxisKind::Thread)
}

/// The nodes of a kernel in topological order, and the block of each.
struct Placement<'a> {
    order: &'a [UOp],
    /// The position of each node in the order, by id.
    number: FxHashMap<u64, usize>,
    loops: Loops,
    block: Vec<Block>,
}

impl<'a> Placement<'a> {
    fn of(order: &'a [UOp]) -> Placement<'a> {
        let number = order.iter().enumerate().map(|(i, u)| (u.id(), i)).collect();
        let mut placement = Placement { order, number, loops: Loops::of(order), block: Vec::new() };
        // Stores in an ordered loop.
        let in_order = |s: &&UOp| {
            s.as_store().is_some_and(|store| {
                let mut ranges = store.ranges.iter().filter(|r| r.op() == Op::Range);
                ranges.any(|r| r.range_kind() == AxisKind::Ordered)
            })
        };
        let sink = order.last().expect("a kernel has a sink");
        let updates: Vec<&UOp> = sink.src().iter().filter(in_order).collect();
        for u in order {
            let block = placement.block_of_new(u, &updates);
            placement.block.push(block);
        }
        placement
    }

    /// Returns the block of a node whose operands are placed. `updates` are the stores in ordered
    /// loops.
    fn block_of_new(&self, u: &UOp, updates: &[&UOp]) -> Block {
        let loops = &self.loops;
        let deepest = |from: Block, blocks: &mut dyn Iterator<Item = Block>| {
            blocks.fold(from, |a, b| loops.deeper(a, b))
        };
        let mut operands = u.src().iter().filter(|s| s.op() != Op::Range).map(|s| {
            // A barrier after a store is outside the loops that the store closes.
            let around = if u.op() == Op::Barrier { loops.around(s) } else { None };
            around.unwrap_or_else(|| self.block_of(s))
        });
        let own = loops.of_node(u);
        match u.op() {
            Op::Range => loops.of_range(u),
            Op::Sink => 0,
            // The result of a reduction is outside the loops that it closes.
            Op::Reduce => loops.deeper(own, loops.around(u).unwrap_or(0)),
            // A store is inside all the loops that it closes.
            Op::Store => deepest(own, &mut operands.chain(loops.closed(u))),
            // The load of an update is not loop-invariant, even where its index is: it stays inside
            // the ordered loop.
            Op::Load => {
                let buffer = u.expect_load().place.buffer;
                let of_buffer = updates.iter().filter(|s| s.expect_store().place.buffer == buffer);
                deepest(own, &mut operands.chain(of_buffer.flat_map(|s| loops.closed(s))))
            }
            _ => deepest(own, &mut operands),
        }
    }

    fn number_of(&self, u: &UOp) -> usize {
        self.number[&u.id()]
    }

    fn block_of(&self, u: &UOp) -> Block {
        self.block[self.number_of(u)]
    }

    /// Returns the block in which the accumulator of a reduction or a scan is updated.
    fn update_block(&self, u: &UOp) -> Block {
        if u.op() == Op::Scan {
            return self.block_of(u);
        }
        let closing = self.loops.closed(u).max().unwrap_or(0);
        bodies(u).fold(closing, |b, body| self.loops.deeper(b, self.block_of(body)))
    }

    /// Returns the reductions, and the block of the update of each.
    fn reductions(&self) -> Vec<(&'a UOp, Block)> {
        let reduces = self.order.iter().filter(|u| u.op() == Op::Reduce);
        reduces.map(|u| (u, self.update_block(u))).collect()
    }
}

/// Loops that run only where a mask holds, and their masks.
struct LoopMasks(FxHashMap<Block, UOp>);

impl LoopMasks {
    fn of(placement: &Placement, reduces: &[(&UOp, Block)]) -> LoopMasks {
        let is_effect = |u: &UOp| u.op().is(Group::Effect) || u.op().is(Group::Convergent);
        let blocks = placement.order.iter().zip(&placement.block);
        let effects: Vec<Block> = blocks.filter(|(u, _)| is_effect(u)).map(|(_, b)| *b).collect();
        LoopMasks(loop_masks::of_loops(&placement.loops, reduces, &effects, |u| {
            placement.block_of(u)
        }))
    }

    /// Returns the mask of the loop around a block that runs only where a mask holds.
    fn around(&self, mut b: Block, loops: &Loops) -> Option<&UOp> {
        while b > 0 && !self.0.contains_key(&b) {
            b = loops.parent[b];
        }
        self.0.get(&b)
    }
}

/// The form in which the terms of reductions enter the update of their accumulator.
#[derive(Default)]
struct Terms {
    /// Nodes that only an update uses and that are part of its instruction.
    fused: FxHashSet<u64>,
    /// The values of masked terms inside loops that run only where the mask holds.
    unmasked: FxHashMap<u64, UOp>,
}

impl Terms {
    fn of(
        placement: &Placement,
        reduces: &[(&UOp, Block)],
        masks: &LoopMasks,
        target: &Target,
    ) -> Terms {
        let mut users = vec![0; placement.order.len()];
        for s in placement.order.iter().flat_map(|u| u.src()) {
            users[placement.number_of(s)] += 1;
        }
        let used_once = |u: &UOp| users[placement.number_of(u)] == 1;
        let mut terms = Terms::default();
        for (u, update) in reduces {
            let in_mask = masks.around(*update, &placement.loops).is_some();
            for body in bodies(u) {
                let mut term = body.clone();
                if in_mask && let Some((_, value)) = masked_term(fold_of(u), body) {
                    terms.unmasked.insert(body.id(), value.clone());
                    if used_once(body) {
                        terms.fused.insert(body.id());
                    }
                    term = value;
                }
                if (term == *body || used_once(body))
                    && used_once(&term)
                    && is_product(fold_of(u), &term, target)
                {
                    terms.fused.insert(term.id());
                }
            }
        }
        terms
    }

    /// Returns the value that an update combines for a term.
    fn value<'t>(&'t self, body: &'t UOp) -> &'t UOp {
        self.unmasked.get(&body.id()).unwrap_or(body)
    }
}
