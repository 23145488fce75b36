//! The heuristic for targets with workgroups. The shapes are those that were measured to be best on
//! an H200, among those that Opts can express:
//!
//! | kernel | shape |
//! |---|---|
//! | elementwise | a vector of 16 bytes for each thread, workgroups of 256 |
//! | elementwise that transposes | 4 × 4 elements for each thread, read along one axis and written along the other; workgroups of 16 × 16 |
//! | a reduction along rows that are contiguous in memory | a workgroup for each row; values that are used again stay in registers |
//! | products of f16 and bf16 | tensor cores, warps of 64 × 64 outputs with prefetch, workgroups of 2 × 2 warps |
//! | large products of matrices | register tiles of up to 8 × 8 outputs, workgroups of 16 × 16, tiles of both inputs in shared memory |
//! | other products, such as convolutions and their gradients | the register tile and the workgroup of the least estimated cost (`tile`) |
//! | any other reduction | a thread for each output along unit stride; where outputs are few, threads share them |

mod matmul;
mod rows;
mod tensor_core;
mod tile;

use super::facts::{KernelFacts, iterations};
use super::{power_of_two_divisor, try_apply, unit_stride_output, unit_stride_reduce};
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel::{extent, has_unit_stride_load, is_symbolic, max_lanes};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Chooses the Opts of a kernel on a GPU.
pub(super) fn choose(kernel: &Kernel, target: &Target) -> Kernel {
    let (mut k, tuning) = (kernel.clone(), &target.tuning.gpu);
    if outputs(&k) < tuning.few_outputs {
        pad_symbolic_reductions(&mut k, target);
    }
    let facts = KernelFacts::of(&k);
    let Some(main) = &facts.main else {
        elementwise(&mut k, target);
        return k;
    };
    let tiled = tensor_core::tensor_cores(&facts, main, target)
        .or_else(|| matmul::staged_tiles(&facts, target))
        .or_else(|| tile::gpu_register_tile(&facts, main, target))
        .or_else(|| rows::rows(&facts, target));
    if let Some(tiled) = tiled {
        return tiled;
    }
    if outputs(&k) < tuning.few_outputs && iterations(main) >= long_axis(target) {
        share_outputs(&mut k, main, target);
    } else {
        local(&mut k, tuning.workgroup, target);
    }
    // Several iterations of a reduction at a time, so that their loads are in flight together.
    if let Some(axis) = unit_stride_reduce(&k).or_else(|| longest_reduce(&k))
        && let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), tuning.unroll)
    {
        try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target);
    }
    k
}

/// Returns the extent from which on an axis is long: threads that share it have several iterations.
fn long_axis(target: &Target) -> usize {
    target.tuning.gpu.long_axis * target.machine.lockstep_threads
}

/// Pads reductions of symbolic extent to their upper bound: threads cannot share them otherwise.
fn pad_symbolic_reductions(k: &mut Kernel, target: &Target) {
    let (lockstep, long) = (target.machine.lockstep_threads, long_axis(target));
    let is_long =
        |r: &UOp| is_symbolic(r) && r.range_kind() == AxisKind::Reduce && extent(r) >= long;
    while let Some(axis) = k.axes().iter().position(is_long)
        && try_apply(k, Opt::new(OptOp::PadTo, axis, lockstep), target)
    {}
}

/// Shares each of few outputs between threads. If a load has unit stride along an output axis, a
/// workgroup has several of its outputs, so that accesses are coalesced.
fn share_outputs(k: &mut Kernel, main: &UOp, target: &Target) {
    let (body, lockstep) = (main.operand().toposort(), target.machine.lockstep_threads);
    if let Some(axis) = unit_stride_output(k)
        && has_unit_stride_load(&body, &k.axes()[axis])
        && let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), lockstep)
    {
        try_apply(k, Opt::new(OptOp::Local, axis, amount), target);
    }
    // The same threads share every long reduction; otherwise each would compute all of the others.
    // If no number of threads divides them all, they share the longest.
    let is_long = |u: &UOp| {
        u.op() == Op::Reduce && u.closed_ranges().iter().map(extent).product::<usize>() >= lockstep
    };
    let reduces: Vec<UOp> = k.ast.toposort().into_iter().filter(is_long).collect();
    if !share(k, &reduces, target) {
        share(k, std::slice::from_ref(main), target);
    }
}

/// Shares reductions, along one axis of each, between as many threads as possible.
fn share(k: &mut Kernel, reduces: &[UOp], target: &Target) -> bool {
    let axis_for = |u: &UOp, amount: usize| -> Option<UOp> {
        let fits = u.closed_ranges().iter().filter(|r| {
            r.range_kind() == AxisKind::Reduce
                && !is_symbolic(r)
                && extent(r).is_multiple_of(amount)
        });
        fits.max_by_key(|r| extent(r)).cloned()
    };
    let tuning = &target.tuning.gpu;
    let most = tuning.row_threads.max(target.local_max / tuning.core_workgroups) / threads(k);
    let mut amount = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
    while amount >= 2 {
        let axes: Option<Vec<UOp>> = reduces.iter().map(|u| axis_for(u, amount)).collect();
        if let Some(mut axes) = axes {
            // One axis may belong to several reductions.
            axes.sort_by_key(UOp::range_id);
            axes.dedup();
            let mut shared = k.clone();
            let mut apply = |r: &UOp| {
                shared.axis_of(r).is_some_and(|axis| {
                    try_apply(&mut shared, Opt::new(OptOp::Group, axis, amount), target)
                })
            };
            if axes.iter().all(&mut apply) {
                *k = shared;
                return true;
            }
        }
        amount /= 2;
    }
    false
}

/// Returns the number of outputs that threads of their own compute.
fn outputs(k: &Kernel) -> usize {
    k.axes().iter().filter(|r| is_output(r)).map(extent).fold(1, usize::saturating_mul)
}

/// Returns the threads of a workgroup so far.
fn threads(k: &Kernel) -> usize {
    k.axes().iter().filter(|r| r.range_kind().is_workgroup()).map(extent).product()
}

/// Upcasts the axis along which stores have unit stride to a vector, if there are enough outputs
/// for threads.
fn upcast(k: &mut Kernel, target: &Target) {
    let lanes = max_lanes(target);
    if outputs(k) >= target.machine.lockstep_threads * lanes
        && let Some(axis) = unit_stride_output(k)
        && let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), lanes)
    {
        try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target);
    }
}

/// Chooses the Opts of a kernel without reductions.
fn elementwise(k: &mut Kernel, target: &Target) {
    let (loaded, side) = (transposed_axis(k, target), target.tuning.gpu.transpose_side);
    upcast(k, target);
    // Each thread, and each workgroup, reads a square along one axis and writes it along the other.
    if let Some(r) = loaded
        && let Some(axis) = k.axis_of(&r)
        && let Some(amount) = power_of_two_divisor(extent(&r), max_lanes(target))
        && try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target)
        && let Some(axis) = k.axis_of(&r)
        && let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), side)
    {
        try_apply(k, Opt::new(OptOp::Local, axis, amount), target);
        local(k, side * amount, target);
        return;
    }
    local(k, target.tuning.gpu.workgroup, target);
}

/// Returns the output axis along which a load has unit stride, if stores have it along another one
/// and both are long.
fn transposed_axis(k: &Kernel, target: &Target) -> Option<UOp> {
    let axes = k.axes();
    let stored = &axes[unit_stride_output(k)?];
    let is_long = |r: &UOp| extent(r) >= long_axis(target);
    if !is_long(stored) || outputs(k) < target.tuning.gpu.few_outputs {
        return None;
    }
    let order = k.ast.toposort();
    let is_other = |r: &&UOp| is_output(r) && r.range_id() != stored.range_id() && is_long(r);
    axes.iter().filter(is_other).find(|r| has_unit_stride_load(&order, r)).cloned()
}

/// Makes output axes threads of a workgroup, innermost axis first. A long axis that no number of
/// threads divides is padded.
fn local(k: &mut Kernel, most: usize, target: &Target) {
    let lockstep = target.machine.lockstep_threads;
    let inner: Vec<UOp> = k.axes().into_iter().filter(is_output).rev().collect();
    for r in inner {
        let room = most / threads(k).min(most);
        let Some(axis) = k.axis_of(&r) else { continue };
        let size = extent(&r);
        let mut amount = power_of_two_divisor(size, room);
        // A symbolic axis has a launch dimension of its own, unless there are no other threads:
        // then it is padded to its upper bound.
        if is_symbolic(&r) {
            let pad = room.min(size).next_power_of_two();
            if threads(k) > 1
                || pad > room
                || !try_apply(k, Opt::new(OptOp::PadTo, axis, pad), target)
            {
                continue;
            }
            amount = Some(pad);
        }
        let is_few = amount.unwrap_or(1) < lockstep.min(room);
        if is_few && size > long_axis(target) && room >= lockstep {
            let pad = room.min(size / 2).next_power_of_two() / 2;
            if try_apply(k, Opt::new(OptOp::PadTo, axis, pad), target) {
                amount = Some(pad);
            }
        }
        if let Some(amount) = amount {
            try_apply(k, Opt::new(OptOp::Local, axis, amount), target);
        }
        if threads(k) * 2 > most {
            return;
        }
    }
}

/// Returns the reduction axis with the most iterations.
fn longest_reduce(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    let is_reduce =
        |i: &usize| axes[*i].range_kind() == AxisKind::Reduce && !is_symbolic(&axes[*i]);
    (0..axes.len()).filter(is_reduce).max_by_key(|i| extent(&axes[*i]))
}
