//! A reduction loop outside output loops. The Opt `REDUCE_OUTER` lists its range among those that
//! the stores close, at its place in the nest. The accumulators of its reductions are carried
//! through memory: through the output, where nothing else needs it, otherwise through scratch
//! memory.
//!
//! ```text
//! store(out[n, m], reduce(x) closes k, j) closes n, k, m
//! =>
//! for n { for k { for m { acc = memory[m]; for j { acc = acc + x }; memory[m] = acc } } }
//! ```

use super::{extent, masked_term};
use crate::ir::{AxisKind, Op, UOp};

/// Returns the ranges of loops that a store lists.
fn listed(store: &UOp) -> impl Iterator<Item = &UOp> {
    store.closed_ranges().iter().filter(|r| r.op() == Op::Range)
}

/// Returns the range of the reduction loop that is outside output loops, if there is one.
pub fn outer_reduce(ast: &UOp) -> Option<UOp> {
    ast.src().iter().flat_map(listed).find(|r| r.range_kind() == AxisKind::Reduce).cloned()
}

/// Returns the reductions over a range, operands first.
pub fn reductions_over<'a>(order: &'a [UOp], r: &UOp) -> Vec<&'a UOp> {
    order.iter().filter(|u| u.op() == Op::Reduce && u.closed_ranges().contains(r)).collect()
}

/// Returns the output loops inside the loop of a range that stores list, outer first.
pub fn loops_inside(ast: &UOp, r: &UOp) -> Vec<UOp> {
    let mut inside: Vec<UOp> = Vec::new();
    for store in ast.src() {
        let after = listed(store).skip_while(|x| *x != r).skip(1);
        for x in after.filter(|x| x.range_kind() != AxisKind::Thread) {
            if !inside.contains(x) {
                inside.push(x.clone());
            }
        }
    }
    inside
}

/// Returns the loops that the accumulator of a reduction has an element for in each iteration.
pub fn loops_of_accumulator(inside: &[UOp], reduce: &UOp) -> Vec<UOp> {
    inside.iter().filter(|r| reduce.uses_range(r.range_id())).cloned().collect()
}

/// Returns the store of the kernel that alone uses a reduction, if its place can hold the
/// accumulator: an element for each iteration, which nothing else reads or writes.
pub fn store_for_accumulator(ast: &UOp, order: &[UOp], reduce: &UOp) -> Option<UOp> {
    let store = ast.src().iter().find(|s| s.expect_store().value == reduce)?;
    let place = store.expect_store().place;
    let users = order.iter().flat_map(|u| u.src()).filter(|s| *s == reduce).count();
    let same_dtype = place.node.dtype().scalar() == reduce.dtype().scalar();
    if users > 1 || !same_dtype || place.mask.is_some() {
        return None;
    }
    let is_read = order.iter().any(|u| u.as_load().is_some_and(|l| l.place.buffer == place.buffer));
    // The element is the same in several iterations of a loop that the index does not depend on,
    // several elements are the same in one that the reduction does not, and tiles of `OVERLAP` have
    // elements in common.
    let is_own = |r: &UOp| {
        let both = || [place.index, reduce].iter().all(|u| u.uses_range(r.range_id()));
        r.range_kind() == AxisKind::Reduce || both()
    };
    let overlaps = |s: &UOp| {
        let other = s.expect_store().place;
        other.buffer == place.buffer && other.index.toposort().iter().any(|u| u.op() == Op::Min)
    };
    let alone = !is_read && listed(store).all(is_own) && !ast.src().iter().any(overlaps);
    alone.then(|| store.clone())
}

/// Checks the rules of a kernel with such a loop, and returns the bytes of scratch memory that its
/// accumulators take.
pub fn accumulator_bytes(ast: &UOp) -> Result<usize, String> {
    let Some(outer) = outer_reduce(ast) else { return Ok(0) };
    let order = ast.toposort();
    let inside = loops_inside(ast, &outer);
    let mut bytes = 0usize;
    for reduce in reductions_over(&order, &outer) {
        let loops = reduce.closed_ranges();
        if loops.first() != Some(&outer) {
            return Err("the loop is not the outermost of a reduction, so the order of its terms \
                        would change"
                .into());
        }
        // A loop inside the masked one keeps the form of the sum: products are added with one
        // rounding there.
        let is_loop = |r: &&UOp| r.range_kind() == AxisKind::Reduce;
        let masked = masked_term(reduce.expect_reduce().fold, reduce.operand()).is_some();
        if masked && loops.iter().filter(is_loop).count() < 2 {
            return Err("a masked reduction needs a loop of its own inside the output loops".into());
        }
        if store_for_accumulator(ast, &order, reduce).is_none() {
            let lanes = loops.iter().filter(|r| r.is_lanes());
            let elements = loops_of_accumulator(&inside, reduce);
            let count = elements.iter().chain(lanes).map(extent).fold(1, usize::saturating_mul);
            bytes = bytes.saturating_add(count.saturating_mul(reduce.dtype().itemsize()));
        }
    }
    Ok(bytes)
}
