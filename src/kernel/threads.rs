//! The order of the threads of a workgroup, which numbers them: the threads along the last axis of
//! the order are adjacent. The Opt `ORDER` makes it a payload of the kernel's `Sink`; without one
//! it is the order of the axes.

use super::axes;
use crate::ir::{Arg, UOp};

/// Returns the ranges of workgroup threads in the order of the launch.
pub fn thread_order(ast: &UOp) -> Vec<UOp> {
    let mut threads = axes(ast);
    threads.retain(|r| r.range_kind().is_workgroup());
    if let Arg::ThreadOrder(ids) = ast.arg() {
        threads.sort_by_key(|r| ids.iter().position(|id| *id == r.range_id()));
    }
    warp_last(ast, &mut threads);
    threads
}

/// Moves the thread ranges of a tensor-core warp last: the threads of a warp have adjacent numbers.
pub fn warp_last(ast: &UOp, threads: &mut [UOp]) {
    if threads.is_empty() {
        return;
    }
    let lanes = |u: UOp| if let Arg::Wmma { lanes, .. } = u.arg() { Some(*lanes) } else { None };
    if let Some(lanes) = ast.toposort().into_iter().find_map(lanes) {
        let place = |r: &UOp| lanes.iter().rev().position(|id| *id == r.range_id());
        threads.sort_by_key(|r| place(r).map_or(0, |i| i + 1));
    }
}

/// Returns the kernel with this order of its threads.
pub fn with_thread_order(ast: &UOp, threads: &[UOp]) -> UOp {
    let ids = threads.iter().map(UOp::range_id).collect();
    ast.with_arg(Arg::ThreadOrder(ids))
}

/// Returns the kernel without an order of threads of its own.
pub fn without_thread_order(ast: &UOp) -> UOp {
    match ast.arg() {
        Arg::ThreadOrder(_) => ast.with_arg(Arg::None),
        _ => ast.clone(),
    }
}
