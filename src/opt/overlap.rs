//! `OVERLAP`: an output axis is covered by tiles of one size, the last of which starts early, so
//! that it ends where the axis does and overlaps the tile before it. The outputs that both compute
//! are written twice, with the same bits; nothing is masked.
//!
//! ```text
//! OVERLAP:0:16    for i in 0..20  ->  for o in 0..2, for u in 0..16, with min(o * 16, 4) + u for i
//! ```

use super::apply::{Applied, OptRequest};
use super::is_output;
use crate::ir::{Op, UOp, next_range};
use crate::kernel::{extent, replace_range};

/// Applies `OVERLAP`.
pub(super) fn overlap(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(is_output(r), "an output axis")?;
    q.check_unordered()?;
    let (size, tile) = (extent(r), q.opt.amount);
    if tile < 2 || tile >= size || size.is_multiple_of(tile) {
        return Err(format!("tiles of {tile} do not overlap on an axis of {size}"));
    }
    let order = q.kernel.ast.toposort();
    if order.iter().any(|u| u.op() != Op::Store && u.closed_ranges().contains(r)) {
        return Err("the axis is not one of outputs alone".into());
    }
    if reads_outputs(&order) {
        return Err("the kernel reads what it writes, and outputs would be updated twice".into());
    }
    let outer = UOp::range(size.div_ceil(tile) as i64, r.range_id(), r.range_kind());
    let inner = UOp::range(tile as i64, next_range(&order), r.range_kind());
    let start = (&outer * tile as i64).binary(Op::Min, UOp::int((size - tile) as i64));
    Ok(replace_range(&q.kernel.ast, r, &(start + &inner), &[outer, inner]))
}

/// Returns true if a load reads a buffer that a store writes.
fn reads_outputs(order: &[UOp]) -> bool {
    let stores = order.iter().filter_map(UOp::as_store);
    let written: Vec<&UOp> = stores.map(|s| s.place.buffer).collect();
    order.iter().filter_map(UOp::as_load).any(|l| written.contains(&l.place.buffer))
}
