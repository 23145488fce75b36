//! Replacement of ranges in a kernel: splitting, padding and exchanging kinds are all built on it.

use super::{extent, is_symbolic};
use crate::dtype::DType;
use crate::ir::{Arg, Op, Src, ToSrc, UOp};
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Returns the position of the first range that a store or reduce closes among its operands.
pub fn closing(u: &UOp) -> usize {
    match u.op() {
        Op::Store => 2,
        Op::Reduce => 1,
        _ => usize::MAX,
    }
}

/// Replaces a range: by `value` where it is used as a value, by `ranges` where it is closed.
pub fn replace_range(ast: &UOp, r: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    rebuild(ast, r.range_id(), &mut |u, src| {
        if u == r {
            return value.clone();
        }
        let from = closing(u);
        if !u.src().iter().skip(from.min(u.src().len())).any(|s| s == r) {
            return u.with_src(src);
        }
        let mut out: Src = src[..from].iter().cloned().collect();
        for s in &u.src()[from..] {
            if s == r { out.extend(ranges.iter().cloned()) } else { out.push(s.clone()) }
        }
        u.with_src(out)
    })
}

/// Pads a range to a larger extent. Loads and stores past the old end are masked, and a reduction
/// combines its identity there. A symbolic extent becomes the literal `padded`.
pub fn pad_range(ast: &UOp, r: &UOp, padded: usize) -> UOp {
    let long = UOp::range(padded as i64, r.range_id(), r.range_kind());
    let mut mask = long.lt(&r.src()[0]);
    if is_symbolic(r) && padded > extent(r) {
        // The variable is at most its upper bound, which the bounds proof does not derive from
        // the comparison.
        mask = mask.and(long.lt(extent(r) as i64));
    }
    let masked = |index: &UOp| -> UOp {
        let mut src: Src = index.src()[..2].iter().cloned().collect();
        src.push(match index.src().get(2) {
            Some(old) => old.and(&mask),
            None => mask.clone(),
        });
        index.with_src(src)
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
            Op::Store if u.src()[2..].contains(r) => {
                let mut out: Src = src.iter().cloned().collect();
                out[0] = masked(&src[0]);
                u.with_src(out)
            }
            Op::Reduce if u.src()[1..].contains(r) => {
                let Arg::Reduce { fold, .. } = u.arg() else {
                    panic!("a reduce without a payload: {u:?}")
                };
                let identity = UOp::new(
                    Op::Const,
                    u.dtype(),
                    Src::new(),
                    Arg::Const(fold.identity(u.dtype())),
                );
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
