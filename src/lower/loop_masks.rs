//! Steps of a reduce that change nothing. Where a condition does not hold, a fold of
//! `Where(condition, x, neutral element)` gets its neutral element; if the condition
//! is known before a loop, the loop need not run. So the taps of a convolution that fall on padding
//! cost nothing, and inside the loop loads need no guard.

use super::linearize::{Block, Loops, bodies, fold_of};
use crate::ir::{Op, UOp};
use crate::kernel::masked_term;
use rustc_hash::FxHashMap;

/// The condition that all values of a reduce are folded under.
fn common(u: &UOp) -> Option<UOp> {
    let mut gates = bodies(u).map(|b| masked_term(fold_of(u), b).map(|g| g.0));
    let first = gates.next()??;
    gates.all(|g| g.as_ref() == Some(&first)).then_some(first)
}

/// Is a condition a part of another, so that it holds where that does?
pub(super) fn follows(condition: &UOp, from: &UOp) -> bool {
    condition == from
        || (from.op() == Op::And && from.src().iter().any(|s| follows(condition, s)))
        || (condition.op() == Op::And && condition.src().iter().all(|s| follows(s, from)))
}

/// The loops that need not run where a condition does not hold, outermost ones alone. `steps` are
/// the reduces, each with the block of its steps; `effects` the blocks that change memory, wait for
/// others or read what they hold.
pub(super) fn of_loops(
    loops: &Loops,
    steps: &[(&UOp, Block)],
    effects: &[Block],
    block_of: impl Fn(&UOp) -> Block,
) -> FxHashMap<Block, UOp> {
    let up = |b: Block| {
        std::iter::successors(Some(b), |b| (*b > 0).then(|| loops.parent[*b])).filter(|b| *b > 0)
    };
    // What is known of each loop so far: the condition of everything in it, or that there is none.
    let mut known: FxHashMap<Block, Option<UOp>> = FxHashMap::default();
    for (reduce, step) in steps {
        let condition = common(reduce);
        for b in up(*step) {
            let all = known.entry(b).or_insert_with(|| condition.clone());
            if *all != condition {
                *all = None;
            }
        }
    }
    for b in effects.iter().flat_map(|b| up(*b)) {
        known.insert(b, None);
    }
    // The condition is computed outside the loop.
    let before = |b: Block, condition: &UOp| !up(block_of(condition)).any(|c| c == b);
    let mut gated: FxHashMap<Block, UOp> = known
        .into_iter()
        .filter_map(|(b, condition)| condition.filter(|c| before(b, c)).map(|c| (b, c)))
        .collect();
    let inner: Vec<Block> =
        gated.keys().copied().filter(|b| up(*b).skip(1).any(|p| gated.contains_key(&p))).collect();
    inner.iter().for_each(|b| drop(gated.remove(b)));
    gated
}
