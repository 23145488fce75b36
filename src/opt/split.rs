//! `UPCAST`, `UNROLL`, `THREAD` and `SPLIT`: an axis becomes two, of which the inner one has
//! another kind or is a loop of its own.
//!
//! ```text
//! UPCAST:0:4    for i in 0..64  ->  for i in 0..16, copies u in 0..4, with i * 4 + u for i
//! ```

use super::apply::{Applied, OptRequest};
use super::is_output;
use crate::ir::{AxisKind, UOp, next_range};
use crate::kernel::{chunk_extent, copied_ranges, extent, replace_range};
use crate::symbolic::Linear;

/// Maximum number of copies of one value that upcasts and unrolls make together. Structural: it
/// bounds the size of a program, beyond anything that a search has seen win.
const MAX_COPIES: usize = 2048;

/// Applies `UPCAST`.
pub(super) fn upcast(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(is_output(r), "an output axis")?;
    if counts_overlapping_tiles(q, r) {
        return Err("its iterations are tiles that overlap".into());
    }
    copied(q, r, AxisKind::Upcast)
}

/// Returns true if the range counts tiles of `OVERLAP`, whose starts are `min(r * tile, last)`.
/// Copies of two such tiles would store some elements twice.
fn counts_overlapping_tiles(q: &OptRequest, r: &UOp) -> bool {
    let starts = |u: &UOp| {
        let start = u.as_min().and_then(|min| Linear::of(min.x));
        start.is_some_and(|start| start.terms.iter().any(|(term, _)| term == r))
    };
    q.kernel.ast.toposort().iter().any(starts)
}

/// Applies `UNROLL`.
pub(super) fn unroll(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(r.range_kind() == AxisKind::Reduce, "a reduction axis")?;
    q.check_inner(r)?;
    copied(q, r, AxisKind::Unroll)
}

fn copied(q: &OptRequest, r: &UOp, kind: AxisKind) -> Applied {
    let ast = split(&q.kernel.ast, r, q.divisor()?, kind, false);
    match copies(&ast) {
        n if n > MAX_COPIES => Err(format!("{n} copies of a value are more than {MAX_COPIES}")),
        _ => Ok(ast),
    }
}

/// Applies `THREAD`.
pub(super) fn thread(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(is_output(r), "an output axis")?;
    if q.axes.iter().any(|a| a.range_kind() == AxisKind::Thread) {
        return Err("another axis is already split into chunks".into());
    }
    if !q.target.chunks {
        return Err("the target has no threads that claim chunks".into());
    }
    let (amount, size) = (q.opt.amount, extent(r));
    if amount < 2 || amount > size {
        return Err(format!("an axis of {size} cannot be split into {amount} chunks"));
    }
    // With chunks of this length there may be fewer of them: 9 iterations in 4 chunks are 3, 3, 3.
    let len = size.div_ceil(amount);
    let id = next_range(&q.kernel.ast.toposort());
    let chunk = UOp::range(size.div_ceil(len) as i64, id, AxisKind::Thread);
    if len == 1 {
        return Ok(replace_range(&q.kernel.ast, r, &chunk, std::slice::from_ref(&chunk)));
    }
    let rest = UOp::range(chunk_extent(&chunk, len, size), r.range_id(), r.range_kind());
    let position = &chunk * len as i64 + &rest;
    Ok(replace_range(&q.kernel.ast, r, &position, &[chunk, rest]))
}

/// Applies `SPLIT`.
pub(super) fn split_loop(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    // In a launch grid the positions of an output axis have no order.
    let is_loop = r.range_kind() == AxisKind::Reduce || (is_output(r) && !q.target.grid);
    q.check_kind(is_loop, "a loop")?;
    q.check_inner(r)?;
    let amount = q.divisor()?;
    if amount == extent(r) {
        return Err(format!(
            "an amount of {amount} is the whole axis, so there is nothing to split"
        ));
    }
    Ok(split(&q.kernel.ast, r, amount, r.range_kind(), false))
}

/// Splits a range into `outer * amount + inner`, or with `top` into
/// `inner * (size / amount) + outer`, where `inner` has the kind.
pub(super) fn split(ast: &UOp, r: &UOp, amount: usize, kind: AxisKind, top: bool) -> UOp {
    let next = next_range(&ast.toposort());
    split_by(ast, r, UOp::range(amount as i64, next, kind), top)
}

/// Splits a range so that its inner part is `inner`.
pub(super) fn split_by(ast: &UOp, r: &UOp, inner: UOp, top: bool) -> UOp {
    let (size, amount, kind) = (extent(r), extent(&inner), inner.range_kind());
    let rest = size / amount;
    if rest == 1 {
        return replace_range(ast, r, &inner, std::slice::from_ref(&inner));
    }
    let outer = UOp::range(rest as i64, r.range_id(), r.range_kind());
    let value = if top { &inner * rest as i64 + &outer } else { &outer * amount as i64 + &inner };
    // The threads of a CPU are outside of the loop that remains, every other part is inside.
    let order = if top && kind == AxisKind::Thread { [inner, outer] } else { [outer, inner] };
    replace_range(ast, r, &value, &order)
}

/// Returns true if the node depends on the range or closes it.
pub(super) fn touches(u: &UOp, r: &UOp) -> bool {
    u.uses_range(r.range_id()) || u.closed_ranges().contains(r)
}

/// Returns the largest number of copies that upcasts and unrolls make of one value.
fn copies(ast: &UOp) -> usize {
    let (order, copied) = (ast.toposort(), copied_ranges(ast));
    let of = |u: &UOp| {
        copied.iter().filter(|r| touches(u, r)).map(extent).fold(1, usize::saturating_mul)
    };
    order.iter().map(of).max().unwrap_or(1)
}
