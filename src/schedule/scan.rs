//! Scans along an axis, as stores in an ordered loop with an accumulator.
//!
//! A long axis is split into blocks of a size that depends on its length alone, so that results are
//! the same for any number of threads:
//!
//! ```text
//! scan(x)  =>  fold(carry, scan(x split into blocks)),   carry = scan of the blocks' totals,
//! shifted by one
//! ```
//!
//! The totals are a reduce, which is vectorized; the scan of the totals is short, or is split in
//! turn. A sum of n floats then takes at most `scan_block` additions per level.

use super::cost;
use super::prepare;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Fold, Group, Op, UOp, toposort, typed};
use crate::shape::{Dims, Movement};
use crate::target::ScheduleTuning;
use rustc_hash::FxHashMap;

/// Returns the axis of a scan of the tensor graph.
pub fn axis(u: &UOp) -> usize {
    u.expect_scan().axes[0]
}

/// Splits a scan along a long axis into blocks; `None` if the axis is short.
pub fn in_blocks(u: &UOp, x: &UOp, tuning: &ScheduleTuning) -> Option<UOp> {
    let (at, fold) = (axis(u), prepare::fold(u));
    let n = x.shape()[at];
    let block = tuning.scan_block;
    let has_rows = x.numel() / n >= tuning.scan_rows;
    let least = if has_rows { tuning.long_scan } else { tuning.scan_blocks };
    if n < least * block || !x.extents().is_empty() {
        return None;
    }
    // A size that divides the axis needs no mask. Multiples of the lanes are best for the totals,
    // and numbers of blocks that are multiples of the threads.
    let odd = |size: usize| {
        (1 << 4u32.saturating_sub(size.trailing_zeros()))
            + (1 << 3u32.saturating_sub((n / size).trailing_zeros()))
    };
    let sizes = (block / 2..=2 * block).filter(|b| n.is_multiple_of(*b));
    let size = sizes.min_by_key(|b| (odd(*b), b.abs_diff(block))).unwrap_or(block);
    let blocks = n.div_ceil(size);
    let cut: Dims = x.shape()[..at]
        .iter()
        .copied()
        .chain([blocks, size])
        .chain(x.shape()[at + 1..].iter().copied())
        .collect();
    let filled = padded(x, at, (0, blocks * size - n), fold);
    let filled = filled.moved(Movement::Reshape(cut.clone()));
    let totals = filled.reduced(fold, [at + 1]).contiguous();
    // The totals of all blocks but the last, shifted by one block.
    let carry = padded(&totals.narrowed(at, 0..blocks - 1).scanned(fold, at), at, (1, 0), fold);
    let carry = carry.moved(Movement::Expand(cut));
    let whole = carry.binary(fold.op(), filled.scanned(fold, at + 1));
    let flat: Dims = x
        .shape()
        .iter()
        .enumerate()
        .map(|(a, &s)| if a == at { blocks * size } else { s })
        .collect();
    let whole = whole.moved(Movement::Reshape(flat));
    Some(if blocks * size == n { whole } else { whole.narrowed(at, 0..n) })
}

/// Pads an axis with the identity of a fold.
fn padded(x: &UOp, axis: usize, sides: (usize, usize), fold: Fold) -> UOp {
    if sides == (0, 0) {
        return x.clone();
    }
    let pad = |x: &UOp| {
        x.moved(Movement::pad((0..x.shape().len()).map(|a| if a == axis { sides } else { (0, 0) })))
    };
    let out = pad(x);
    let identity = fold.identity(x.dtype());
    if identity.is_zero() {
        return out;
    }
    let n = out.shape()[axis];
    let along: Dims = (0..out.shape().len()).map(|a| if a == axis { n } else { 1 }).collect();
    let place = UOp::iota(n, DType::I32);
    let place = place.moved(Movement::Reshape(along)).moved(Movement::Expand(out.shape().clone()));
    let inside = place.lt(sides.0 as i64).not().and(place.lt((n - sides.1) as i64));
    let neutral = UOp::literal(identity, x.dtype());
    inside.select(&out, &neutral)
}

/// Returns the kind of the range of an axis that a stored node is evaluated over.
pub fn range_kind(u: &UOp, at: usize) -> AxisKind {
    if u.op() == Op::Scan && axis(u) == at { AxisKind::Ordered } else { AxisKind::Global }
}

/// Returns the value of a scan in its kernel, from that of its operand and the ranges that it is
/// evaluated at.
pub fn expression(u: &UOp, operand: UOp, at: &[UOp]) -> UOp {
    let arg = Arg::Reduce { fold: prepare::fold(u), axes: smallvec::SmallVec::new() };
    typed::Scan::build(u.dtype(), arg, operand, [at[axis(u)].clone()])
}

/// Returns true if one of the values has a scan.
pub fn has_scan<'a>(values: impl IntoIterator<Item = &'a UOp>) -> bool {
    toposort(values).iter().any(|u| u.op() == Op::Scan)
}

/// Returns true if values computed from a scan can be computed in its loop, with at most `most`
/// work per element: an epilogue.
pub fn is_epilogue<'a>(values: impl IntoIterator<Item = &'a UOp>, most: f64) -> bool {
    // Masks mostly depend on positions, and are loop-invariant.
    let is_index = |u: &UOp| u.dtype() == DType::INDEX || u.dtype().is_bool();
    let work = |u: &UOp| if u.op().is_alu() && !is_index(u) { cost::of_op(u) } else { 0.0 };
    let order = toposort(values);
    let plain = |u: &UOp| u.op() != Op::Reduce && !u.op().is(Group::Transcendental);
    order.iter().all(plain) && order.iter().map(work).sum::<f64>() <= most
}

/// Returns the ranges of a kernel in the order of its loops: the loop of a scan is the innermost,
/// so that its accumulator is reset for each element of the others.
pub fn loop_order<'a>(ranges: &[UOp], values: impl IntoIterator<Item = &'a UOp>) -> Vec<UOp> {
    let mut ranges = ranges.to_vec();
    if ranges.iter().any(|r| r.range_kind() == AxisKind::Ordered) && has_scan(values) {
        ranges.sort_by_key(|r| r.range_kind() == AxisKind::Ordered);
    }
    ranges
}

/// Expresses the ranges of one kernel by those of another that has more: `r` of n becomes `i · b +
/// j` where the other has `i` of a and `j` of b, and n = a · b. `None` if the extents do not match.
pub fn refit(ranges: &[UOp], finer: &[UOp]) -> Option<FxHashMap<UOp, UOp>> {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut rest = finer.iter();
    for r in ranges {
        let size = r.expect_range().extent.as_int()?;
        let first = rest.next()?;
        let (mut value, mut n) = (first.clone(), first.expect_range().extent.as_int()?);
        while n < size {
            let next = rest.next()?;
            let by = next.expect_range().extent.as_int()?;
            value = value * by + next;
            n *= by;
        }
        if n != size {
            return None;
        }
        map.insert(r.clone(), value);
    }
    rest.next().is_none().then_some(map)
}
