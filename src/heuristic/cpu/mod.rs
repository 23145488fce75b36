//! The heuristic for targets without workgroups: vector lanes, register tiles, copied inputs,
//! chunks, and values that are stored for reuse.

mod chunks;
mod conv_grad;
mod fit;
mod pack;
mod panels;
mod row_sums;
mod tile;
mod transpose;

use super::facts::KernelFacts;
use super::{
    power_of_two_divisor, splittable_extent, try_apply, unit_stride_output, unit_stride_reduce,
};
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel::extent;
use crate::opt::{Kernel, Opt, OptOp, is_output, reuse};
use crate::target::Target;
use chunks::chunks;

/// Chooses the Opts of a kernel on a CPU.
pub(super) fn choose(kernel: &Kernel, target: &Target) -> Kernel {
    let k = choose_loops(kernel, target);
    // Last, because what is stored depends on how many rows are computed together.
    let fits_cache = reuse::reuse(&k.ast, target).is_some_and(|r| r.bytes <= target.stored_bytes());
    if fits_cache { k.apply(&Opt::of_kernel(OptOp::Reuse), target).unwrap_or(k) } else { k }
}

/// Chooses all Opts but `REUSE`.
fn choose_loops(kernel: &Kernel, target: &Target) -> Kernel {
    let facts = KernelFacts::of(kernel);
    if let Some(staged) = panels::panels(&facts, target) {
        return staged;
    }
    if let Some(in_order) = row_sums::row_sums(&facts, target) {
        return in_order;
    }
    let (mut k, tuning) = (kernel.clone(), &target.tuning.cpu);
    let lanes = if target.vector_bytes >= 4 { target.vector_bytes / 4 } else { 4 };
    if let Some((tiled, packed)) = tile::cpu_register_tile(&facts, target) {
        k = tiled;
        let most =
            if packed.is_empty() { usize::MAX } else { pack::max_chunks(&k, &packed, target) };
        chunks(&mut k, most, target);
        pack::pack(&mut k, &packed, target);
        return k;
    }
    // Vector lanes: along the axis in which stores are contiguous; for a reduction without such an
    // axis, or whose loads would then be strided, along the axis in which its loads are contiguous.
    let reduce = unit_stride_reduce(&k);
    let outputs = unit_stride_output(&k)
        .filter(|axis| reduce.is_none() || !lanes_are_strided(&facts, *axis, target));
    let (mut rows, mut across) = (false, Vec::new());
    let upcast = outputs.and_then(|axis| {
        let r = &facts.axes[axis];
        fit::vectors(&facts, r, lanes, target).map(|tiles| (r, tiles))
    });
    match upcast {
        Some((r, tiles)) => {
            if reduce.is_none() && transpose::tile(&mut k, r, &facts, target) {
                chunks(&mut k, usize::MAX, target);
                return k;
            }
            tiles.upcast(&mut k, r, target);
            across = upcasts(&k);
            rows = reduce.is_some()
                && unit_stride_reduce(&k).is_some_and(|axis| {
                    upcast_rows(&mut k, axis, tuning.rows, tuning.row_reduces, target)
                });
        }
        None => match reduce {
            Some(axis) => vectorize_reduce(&mut k, axis, &facts, lanes, target),
            None => interleave_scans(&mut k, target),
        },
    }
    if reduce.is_some() {
        vectorize_reduces(&mut k, rows, &across, target);
    }
    chunks(&mut k, usize::MAX, target);
    k
}

/// Unrolls a reduction to vectors, and computes several outputs together.
fn vectorize_reduce(
    k: &mut Kernel,
    axis: usize,
    facts: &KernelFacts,
    lanes: usize,
    target: &Target,
) {
    let tuning = &target.tuning.cpu;
    let mut r = k.axes()[axis].clone();
    if let Some(padded) = fit::padded_reduce(facts, &r, lanes, target)
        && try_apply(k, Opt::new(OptOp::PadTo, axis, padded), target)
    {
        r = k.axes()[axis].clone();
    }
    let amount = if upcast_rows(k, axis, tuning.streams, tuning.stream_reduces, target) {
        power_of_two_divisor(extent(&r), lanes)
    } else {
        unrolled_iterations(extent(&r), lanes, target)
    };
    if let (Some(amount), Some(axis)) = (amount, k.axes().iter().position(|x| *x == r)) {
        try_apply(k, Opt::new(OptOp::Unroll, axis, amount), target);
    }
}

/// Unrolls each further reduction of a row to vectors. `rows` says that several rows are computed
/// together; `across` are the axes that are lanes already.
fn vectorize_reduces(k: &mut Kernel, rows: bool, across: &[UOp], target: &Target) {
    let lanes = if target.vector_bytes >= 4 { target.vector_bytes / 4 } else { 4 };
    for _ in 0..target.tuning.cpu.vectorized_reduces {
        let Some(axis) = unit_stride_reduce(k) else { break };
        let r = k.axes()[axis].clone();
        let Some(amount) = (if rows {
            power_of_two_divisor(extent(&r), lanes)
        } else {
            unrolled_iterations(extent(&r), lanes, target)
        }) else {
            break;
        };
        if across.iter().any(|a| shares_load(&k.ast, a, &r))
            || !try_apply(k, Opt::new(OptOp::Unroll, axis, amount), target)
        {
            break;
        }
    }
}

/// Interleaves scans, where there are enough rows for all threads.
fn interleave_scans(k: &mut Kernel, target: &Target) {
    if !k.ast.toposort().iter().any(|u| u.op() == Op::Scan) {
        return;
    }
    let axes = k.axes();
    let Some(axis) = (0..axes.len()).rev().find(|i| is_output(&axes[*i])) else { return };
    let most = target.tuning.cpu.interleaved_scans;
    if let Some(amount) = rows_of_thread(k, &axes[axis], most, target) {
        try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target);
    }
}

/// Returns the iterations of a reduction that are unrolled to vectors.
fn unrolled_iterations(size: usize, lanes: usize, target: &Target) -> Option<usize> {
    let many = lanes * target.tuning.cpu.reduce_vectors;
    if size.is_multiple_of(many) && size >= target.tuning.cpu.reduce_rounds * many {
        Some(many)
    } else {
        power_of_two_divisor(size, lanes)
    }
}

/// Returns true if lanes along an output axis have no unit stride in the loads of the largest
/// reduction.
fn lanes_are_strided(facts: &KernelFacts, axis: usize, target: &Target) -> bool {
    let (axis, all) = (&facts.axes[axis], facts.accesses());
    let often = all.iter().filter(|a| a.node.op() == Op::Load).map(|a| a.times).fold(0.0, f64::max);
    let mut loads = all.iter().filter(|a| a.node.op() == Op::Load && a.times == often).peekable();
    often > 1.0
        && loads.peek().is_some()
        && loads
            .all(|a| a.node.uses_range(axis.range_id()) && a.machine_accesses(axis, 8, target) == 8)
}

/// Returns the axes of kind Upcast.
fn upcasts(k: &Kernel) -> Vec<UOp> {
    k.axes().into_iter().filter(|a| a.range_kind() == AxisKind::Upcast).collect()
}

/// Upcasts an output axis by up to `most`, so that several outputs of a reduction axis are computed
/// together: memory serves several streams faster than one. Does nothing if the kernel has more
/// than `reduces` reductions.
fn upcast_rows(
    k: &mut Kernel,
    reduce: usize,
    most: usize,
    reduces: usize,
    target: &Target,
) -> bool {
    let (axes, order) = (k.axes(), k.ast.toposort());
    let r = &axes[reduce];
    let output = |a: &UOp| is_output(a) && shares_load(&k.ast, a, r);
    let lanes = |a: &UOp| a.range_kind() == AxisKind::Upcast && shares_load(&k.ast, a, r);
    if order.iter().filter(|u| u.op() == Op::Reduce).count() > reduces || axes.iter().any(lanes) {
        return false;
    }
    let Some(axis) = (0..axes.len()).rev().find(|i| output(&axes[*i])) else { return false };
    match rows_of_thread(k, &axes[axis], most, target) {
        Some(amount) => try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target),
        None => false,
    }
}

/// Returns the rows of an axis that are computed together, at most `most`, so that enough remain
/// for all threads that the kernel is worth.
fn rows_of_thread(k: &Kernel, axis: &UOp, most: usize, target: &Target) -> Option<usize> {
    let rows = splittable_extent(axis);
    power_of_two_divisor(rows, most.min(rows / chunks::useful_threads(k, target)))
}

/// Returns true if a load depends on both ranges.
fn shares_load(ast: &UOp, a: &UOp, b: &UOp) -> bool {
    ast.toposort()
        .iter()
        .any(|u| u.op() == Op::Load && u.uses_range(a.range_id()) && u.uses_range(b.range_id()))
}
