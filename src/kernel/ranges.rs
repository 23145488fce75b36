//! Replacement of ranges in a kernel: splitting, padding and exchanging kinds are all built on it.

use super::{extent, is_symbolic};
use crate::dtype::DType;
use crate::ir::typed::Index;
use crate::ir::{Arg, Op, Src, ToSrc, UOp};
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Replaces a range: by `value` where it is used as a value, by `ranges` where it is closed.
pub fn replace_range(ast: &UOp, r: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    rebuild(ast, r.range_id(), &mut |u, src| {
        if u == r {
            return value.clone();
        }
        let (values, closed) = u.values_and_ranges();
        if !closed.contains(r) {
            return u.with_src(src);
        }
        let mut out: Src = src[..values.len()].iter().cloned().collect();
        for s in closed {
            if s == r { out.extend(ranges.iter().cloned()) } else { out.push(s.clone()) }
        }
        u.with_src(out)
    })
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
    rebuild(ast, id, &mut |u, src| {
        if u == r {
            return long.clone();
        }
        match u.op() {
            Op::Load if src[0].uses_range(id) => {
                let mut out: Src = [masked(&src[0])].to_src();
                out.push(src.get(1).cloned().unwrap_or_else(|| UOp::constant(0i64, u.dtype())));
                u.with_src(out)
            }
            Op::Store if u.closed_ranges().contains(r) => {
                let mut out: Src = src.iter().cloned().collect();
                out[0] = masked(&src[0]);
                u.with_src(out)
            }
            Op::Reduce if u.closed_ranges().contains(r) => {
                let identity = u.expect_reduce().fold.identity(u.dtype());
                let identity = UOp::new(Op::Const, u.dtype(), Src::new(), Arg::Const(identity));
                let mut out: Src = src.iter().cloned().collect();
                out[0] = mask.select(&src[0], &identity);
                debug_assert!(mask.dtype() == DType::BOOL);
                u.with_src(out)
            }
            _ => u.with_src(src),
        }
    })
}

/// Rebuilds the nodes that depend on a range, operands first, and simplifies the result. All other
/// nodes stay shared.
fn rebuild(ast: &UOp, id: u32, f: &mut dyn FnMut(&UOp, Src) -> UOp) -> UOp {
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in ast.toposort() {
        let touched = u.uses_range(id)
            || u.src()
                .iter()
                .any(|s| done.get(&s.id()).is_some_and(|d| d != s) || s.uses_range(id));
        let new = if touched {
            let src: Src = u.src().iter().map(|s| done[&s.id()].clone()).collect();
            f(&u, src)
        } else {
            u.clone()
        };
        done.insert(u.id(), new);
    }
    simplify(&done[&ast.id()])
}
