//! Replacement of ranges in a kernel: splitting, padding and exchanging kinds are all built on it.

use super::{extent, is_symbolic};
use crate::ir::typed::Index;
use crate::ir::{Op, Src, ToSrc, UOp};
use crate::symbolic::simplify;

/// Replaces a range: by `value` where it is used as a value, by `ranges` where it is closed.
pub fn replace_range(ast: &UOp, r: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    simplify(&ast.rebuild(|u, src| {
        if u == r {
            return Some(value.clone());
        }
        let (values, closed) = u.values_and_ranges();
        if !closed.contains(r) {
            return None;
        }
        let mut out: Src = src[..values.len()].iter().cloned().collect();
        for s in closed {
            if s == r { out.extend(ranges.iter().cloned()) } else { out.push(s.clone()) }
        }
        Some(u.with_src(out))
    }))
}

/// Returns the extent of the loop of a chunk of `len` iterations, where all chunks together have
/// `size`: the last one may be shorter.
pub fn chunk_extent(chunk: &UOp, len: usize, size: usize) -> UOp {
    if size.is_multiple_of(len) {
        return UOp::int(len as i64);
    }
    UOp::int(len as i64).binary(Op::Min, UOp::int(size as i64) - chunk * len as i64)
}

/// Returns true if the extent of a range depends on the chunk, because the last chunk is shorter.
pub fn is_of_chunk(r: &UOp) -> bool {
    !r.expect_range().extent.ranges().is_empty()
}

/// Pads a range to a larger extent. Loads and stores past the old end are masked, and a reduction
/// combines its identity there. A symbolic extent becomes the literal `padded`.
pub fn pad_range(ast: &UOp, r: &UOp, padded: usize) -> UOp {
    let long = UOp::range(padded as i64, r.range_id(), r.range_kind());
    let mut mask = long.lt(r.expect_range().extent);
    if is_symbolic(r) && padded > extent(r) {
        // The variable is at most its upper bound, which the bounds proof does not derive from
        // the comparison.
        mask = mask.and(long.lt(extent(r) as i64));
    }
    let masked = |index: &UOp| -> UOp {
        let Index { buffer, index, mask: old, .. } = index.expect_index();
        UOp::masked_index(buffer, index, Some(old.map_or(mask.clone(), |old| old.and(&mask))))
    };
    let id = r.range_id();
    simplify(&ast.rebuild(|u, src| {
        if u == r {
            return Some(long.clone());
        }
        let [first, others @ ..] = src else { return None };
        let closes = u.closed_ranges().contains(r);
        let (first, others): (UOp, Src) = match u.op() {
            Op::Load if first.uses_range(id) => {
                let alt = others.first().cloned();
                let zero = || UOp::constant(0i64, u.dtype());
                (masked(first), [alt.unwrap_or_else(zero)].to_src())
            }
            Op::Store if closes => (masked(first), others.iter().cloned().collect()),
            Op::Reduce if closes => {
                let identity = u.expect_reduce().fold.identity(u.dtype());
                let identity = UOp::literal(identity, u.dtype());
                (mask.select(first, &identity), others.iter().cloned().collect())
            }
            _ => return None,
        };
        Some(u.with_src(std::iter::once(first).chain(others).collect::<Src>()))
    }))
}
