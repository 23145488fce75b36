//! The axes of a kernel: their order, extents and kinds, and the kernel name made from them.

use super::outer_reduce;
use crate::ir::{Arg, AxisKind, Op, UOp};

/// Returns the axes of a kernel: those of outputs in loop order, then those of reductions, outer
/// first, sorted by kind in the order of [`AxisKind::ALL`]. A reduction loop outside output loops
/// is among them.
pub fn axes(ast: &UOp) -> Vec<UOp> {
    let mut axes: Vec<UOp> = Vec::new();
    let add = |r: &UOp, axes: &mut Vec<UOp>| {
        if r.op() == Op::Range && !axes.contains(r) {
            axes.push(r.clone());
        }
    };
    for store in ast.src() {
        store.closed_ranges().iter().for_each(|r| add(r, &mut axes));
    }
    let order = ast.toposort();
    for u in order.iter().rev().filter(|u| u.op() == Op::Reduce) {
        u.closed_ranges().iter().for_each(|r| add(r, &mut axes));
    }
    // The ranges of the registers of a tensor core's matrices.
    for product in order.iter().filter_map(UOp::as_wmma) {
        product.ranges.iter().for_each(|r| add(r, &mut axes));
    }
    let outer = outer_reduce(ast);
    axes.sort_by_key(|r| if Some(r) == outer.as_ref() { AxisKind::Global } else { r.range_kind() });
    axes
}

/// Returns the kinds and extents of the axes, as kernel names show them.
pub fn sizes(ast: &UOp) -> Vec<(AxisKind, usize)> {
    axes(ast).iter().map(|r| (r.range_kind(), extent(r))).collect()
}

/// Returns the kernel's name: `E_` for elementwise or `r_` for reduce, then the extents.
pub fn name(ast: &UOp) -> String {
    let reduce = ast.toposort().iter().any(|u| matches!(u.op(), Op::Reduce | Op::Wmma));
    let mut name = String::from(if reduce { "r" } else { "E" });
    for (_, n) in sizes(ast) {
        name.push('_');
        name.push_str(&n.to_string());
    }
    name
}

/// Returns the name with each extent in the colour of its kind; `docs/debug.md` lists the colours.
pub fn colored_name(ast: &UOp) -> String {
    let mut text = String::from(&name(ast)[..1]);
    for (kind, n) in sizes(ast) {
        text.push_str(&format!("_{}{n}\x1b[0m", color(kind)));
    }
    text
}

/// Returns the terminal colour of an axis kind.
pub fn color(kind: AxisKind) -> &'static str {
    match kind {
        AxisKind::Global => "\x1b[34m",
        AxisKind::Thread => "\x1b[94m",
        AxisKind::Local => "\x1b[36m",
        AxisKind::Loop => "\x1b[37m",
        AxisKind::Ordered => "\x1b[95m",
        AxisKind::Group => "\x1b[32m",
        AxisKind::Reduce => "\x1b[31m",
        AxisKind::Upcast => "\x1b[33m",
        AxisKind::Unroll => "\x1b[35m",
    }
}

/// Returns a range's extent, or its upper bound if the extent is symbolic.
pub fn extent(r: &UOp) -> usize {
    r.expect_range().extent.vmax() as usize
}

/// Returns true if the extent of a range is no literal: it depends on a variable, or on the chunk.
/// Such a range is split only after it was padded to its upper bound and masked.
pub fn is_symbolic(r: &UOp) -> bool {
    r.expect_range().extent.as_int().is_none()
}

/// Returns the smallest unused id of shared memory.
pub fn next_shared(order: &[UOp]) -> u32 {
    let number = |u: &UOp| if let Arg::Shared { id, .. } = u.arg() { Some(id + 1) } else { None };
    order.iter().filter_map(number).max().unwrap_or(0)
}
