//! Ranges that become vector lanes: a range of kind Upcast or Unroll that is marked so. Lowering
//! splits a range that is longer than a vector and makes its inner part the lanes.

use super::{extent, replace_range};
use crate::ir::{Op, UOp, next_range};
use crate::target::Target;

/// Returns the maximum number of lanes of a vector of 32-bit elements.
pub fn max_lanes(target: &Target) -> usize {
    (target.vector_bytes / 4).min(target.max_lanes as usize)
}

/// Returns the ranges of kind Upcast or Unroll, by id.
pub fn copied_ranges(ast: &UOp) -> Vec<UOp> {
    let mut list = ast.toposort();
    list.retain(|u| u.op() == Op::Range && u.range_kind().is_copied());
    list.sort_by_key(|r| r.range_id());
    list
}

/// Returns the number of lanes that a range of this extent can have: a power of two of at least 2,
/// which is the extent or divides it.
pub fn lanes_of(size: usize, target: &Target) -> Option<usize> {
    let most = max_lanes(target);
    let lanes = if size > most && most >= 2 && size.is_multiple_of(most) { most } else { size };
    (lanes >= 2 && lanes <= most && lanes.is_power_of_two()).then_some(lanes)
}

/// Splits each range of kind Upcast or Unroll that is longer than a vector, so that its inner part
/// can be lanes. Returns the graph, and for each such range of the old graph, by id, the range of
/// its lanes.
pub fn split_to_lanes(ast: &UOp, target: &Target) -> (UOp, Vec<(u32, UOp)>) {
    let most = max_lanes(target);
    let mut ast = ast.clone();
    let mut inner_ranges = Vec::new();
    for r in copied_ranges(&ast) {
        let size = extent(&r);
        if most < 2 || size <= most || !size.is_multiple_of(most) || is_register(&ast, &r) {
            inner_ranges.push((r.range_id(), r));
            continue;
        }
        let next = next_range(&ast.toposort());
        let outer = UOp::range((size / most) as i64, r.range_id(), r.range_kind());
        let inner = UOp::range(most as i64, next, r.range_kind()).with_lanes(r.is_lanes());
        let value = &outer * most as i64 + &inner;
        inner_ranges.push((r.range_id(), inner.clone()));
        ast = replace_range(&ast, &r, &value, &[outer, inner]);
    }
    (ast, inner_ranges)
}

/// Returns true if the range numbers registers of a tensor core's matrices.
fn is_register(ast: &UOp, r: &UOp) -> bool {
    ast.toposort().iter().filter_map(UOp::as_wmma).any(|w| w.ranges.contains(r))
}

/// Returns true if the range can be lanes in this graph: no tensor core uses it.
pub fn can_be_lanes(order: &[UOp], r: &UOp) -> bool {
    let mut products = order.iter().filter_map(UOp::as_wmma);
    !products.any(|w| w.node.uses_range(r.range_id()) || w.ranges.contains(r))
}

/// Returns true if a value depends on both ranges, so that only one of them can be lanes. The
/// reduction that closes a range counts as depending on it.
pub fn have_common_user(order: &[UOp], a: &UOp, b: &UOp) -> bool {
    order.iter().any(|u| {
        let touches = |r: &UOp| {
            u.uses_range(r.range_id()) || (u.op() == Op::Reduce && u.closed_ranges().contains(r))
        };
        touches(a) && touches(b)
    })
}
