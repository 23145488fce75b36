//! Loops that run only where a mask holds. A reduction of `Where(mask, x, identity)` does not
//! change its accumulator where the mask is false; if the mask is known before the loop, the loop
//! is skipped. So the taps of a convolution that fall on padding cost nothing, and loads inside the
//! loop need no mask.

use super::linearize::{Block, Loops, bodies, fold_of};
use crate::ir::{Op, UOp};
use crate::kernel::masked_term;
use rustc_hash::FxHashMap;

/// Returns the mask that all terms of a reduction have in common.
fn common(u: &UOp) -> Option<UOp> {
    let mut masks = bodies(u).map(|b| masked_term(fold_of(u), b).map(|m| m.0));
    let first = masks.next()??;
    masks.all(|m| m.as_ref() == Some(&first)).then_some(first)
}

/// Returns true if `mask` is a conjunct of `from`, so that it holds where `from` does.
pub(super) fn follows(mask: &UOp, from: &UOp) -> bool {
    mask == from
        || (from.op() == Op::And && from.src().iter().any(|s| follows(mask, s)))
        || (mask.op() == Op::And && mask.src().iter().all(|s| follows(s, from)))
}

/// Returns the outermost loops that run only where a mask holds. `steps` are the reductions, each
/// with the block of its update; `effects` are the blocks with stores, barriers, warp shuffles and
/// tensor-core products.
pub(super) fn of_loops(
    loops: &Loops,
    steps: &[(&UOp, Block)],
    effects: &[Block],
    block_of: impl Fn(&UOp) -> Block,
) -> FxHashMap<Block, UOp> {
    let up = |b: Block| {
        std::iter::successors(Some(b), |b| (*b > 0).then(|| loops.parent[*b])).filter(|b| *b > 0)
    };
    // The mask of everything in a loop so far; `None` if there is no common one.
    let mut known: FxHashMap<Block, Option<UOp>> = FxHashMap::default();
    for (reduce, step) in steps {
        let mask = common(reduce);
        for b in up(*step) {
            let all = known.entry(b).or_insert_with(|| mask.clone());
            if *all != mask {
                *all = None;
            }
        }
    }
    for b in effects.iter().flat_map(|b| up(*b)) {
        known.insert(b, None);
    }
    // The mask is computed outside the loop.
    let before = |b: Block, mask: &UOp| !up(block_of(mask)).any(|c| c == b);
    let mut masked: FxHashMap<Block, UOp> = known
        .into_iter()
        .filter_map(|(b, mask)| mask.filter(|c| before(b, c)).map(|c| (b, c)))
        .collect();
    let inner: Vec<Block> = masked
        .keys()
        .copied()
        .filter(|b| up(*b).skip(1).any(|p| masked.contains_key(&p)))
        .collect();
    inner.iter().for_each(|b| drop(masked.remove(b)));
    masked
}
