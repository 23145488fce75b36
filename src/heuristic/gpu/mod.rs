//! The heuristic for targets with workgroups. The shapes are those that were measured to be best on
//! an H200, as far as opts can say them:
//!
//! | kernel | shape |
//! |---|---|
//! | elementwise | a vector of 16 bytes for each thread, workgroups of 256 |
//! | elementwise, from rows to columns | 4 × 4 elements for each thread, read along one side and written along the other; workgroups of 16 × 16 |
//! | a reduce of rows that lie in memory one after the other | a workgroup shares a row; what is computed from the row again stays in registers |
//! | products of f16 and bf16 | tensor cores, warps of 64 × 64 outputs that load a step ahead, workgroups of 2 × 2 warps |
//! | large products of matrices | register tiles of up to 8 × 8 outputs, workgroups of 16 × 16, tiles of both inputs in local memory |
//! | other products, those of convolutions and of their gradients among them | the register tile and the threads of the least estimated cost (`tile`) |
//! | any other reduce | a thread for each output along memory; where outputs are few, threads share them |

mod matmul;
mod rows;
mod tensor_core;
mod tile;

use super::facts::{KernelFacts, iterations};
use super::{power_of_two_divisor, try_apply, unit_stride_output, unit_stride_reduce};
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel::{extent, has_unit_stride_load, is_symbolic};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Good optimisations for a kernel.
pub(super) fn choose(kernel: &Kernel, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    if outputs(&k) < target.tuning.gpu.few_outputs {
        share_variables(&mut k, target);
    }
    let facts = KernelFacts::of(&k);
    let Some(main) = &facts.main else {
        elementwise(&mut k, target);
        return k;
    };
    if let Some(products) = tensor_core::tensor_cores(&facts, main, target) {
        return products;
    }
    if let Some(staged) = matmul::staged_tiles(&facts, target) {
        return staged;
    }
    if let Some(tiled) = tile::gpu_register_tile(&facts, main, target) {
        return tiled;
    }
    if let Some(shared) = rows::rows(&facts, target) {
        return shared;
    }
    if outputs(&k) < target.tuning.gpu.few_outputs
        && iterations(main) >= 2 * target.machine.lockstep_threads
    {
        few(&mut k, main, target);
    } else {
        local(&mut k, target.tuning.gpu.workgroup, target);
    }
    if let Some(axis) = unit_stride_reduce(&k).or_else(|| longest_reduce(&k)) {
        unroll(&mut k, axis, target.tuning.gpu.unroll, target);
    }
    k
}

/// A reduce that ends at a variable is of one thread. It is made as long as it can be, with a
/// guard, so that threads can share it.
fn share_variables(k: &mut Kernel, target: &Target) {
    let is_long = |r: &UOp| {
        is_symbolic(r)
            && r.range_kind() == AxisKind::Reduce
            && extent(r) >= 2 * target.machine.lockstep_threads
    };
    while let Some(axis) = k.axes().iter().position(is_long) {
        if !try_apply(k, Opt::new(OptOp::PadTo, axis, target.machine.lockstep_threads), target) {
            return;
        }
    }
}

/// Few outputs: threads share each of them. Where outputs lie beside each other in what is loaded,
/// a workgroup has some of them, so that its loads do too.
fn few(k: &mut Kernel, main: &UOp, target: &Target) {
    let body = main.operand().toposort();
    if let Some(axis) = unit_stride_output(k)
        && has_unit_stride_load(&body, &k.axes()[axis])
        && let Some(amount) =
            power_of_two_divisor(extent(&k.axes()[axis]), target.machine.lockstep_threads)
    {
        try_apply(k, Opt::new(OptOp::Local, axis, amount), target);
    }
    // The same threads share every long reduce, or each of them would do all of the others. Where
    // no number of threads divides them all, they share the longest.
    let long = |u: &UOp| {
        u.op() == Op::Reduce
            && u.closed_ranges().iter().map(extent).product::<usize>()
                >= target.machine.lockstep_threads
    };
    let reduces: Vec<UOp> = k.ast.toposort().into_iter().filter(long).collect();
    if !share(k, &reduces, target) {
        share(k, std::slice::from_ref(main), target);
    }
}

/// Lets as many threads as possible share the reduces, an axis of each.
fn share(k: &mut Kernel, reduces: &[UOp], target: &Target) -> bool {
    let axis_for = |u: &UOp, amount: usize| -> Option<UOp> {
        let fits = u.closed_ranges().iter().filter(|r| {
            r.range_kind() == AxisKind::Reduce
                && !is_symbolic(r)
                && extent(r).is_multiple_of(amount)
        });
        fits.max_by_key(|r| extent(r)).cloned()
    };
    let most = target.tuning.gpu.row_threads.max(target.local_max / 2) / threads(k);
    let mut amount = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
    while amount >= 2 {
        if let Some(mut axes) =
            reduces.iter().map(|u| axis_for(u, amount)).collect::<Option<Vec<UOp>>>()
        {
            // One axis may be of several reduces.
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

/// Several steps of a reduce at a time, so that their loads are on their way together.
fn unroll(k: &mut Kernel, axis: usize, most: usize, target: &Target) {
    if let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), most) {
        try_apply(k, Opt::new(OptOp::Unroll, axis, amount), target);
    }
}

/// Outputs that are computed by threads of their own.
fn outputs(k: &Kernel) -> usize {
    k.axes().iter().filter(|r| is_output(r)).map(extent).fold(1, usize::saturating_mul)
}

/// Threads of a workgroup so far.
fn threads(k: &Kernel) -> usize {
    k.axes()
        .iter()
        .filter(|r| matches!(r.range_kind(), AxisKind::Local | AxisKind::Group))
        .map(extent)
        .product()
}

/// A vector for each thread along the axis in which stores are contiguous, unless there are hardly
/// enough outputs for threads.
fn upcast(k: &mut Kernel, target: &Target) {
    let lanes = (target.vector_bytes / 4).min(target.max_lanes as usize);
    if outputs(k) >= target.machine.lockstep_threads * lanes
        && let Some(axis) = unit_stride_output(k)
        && let Some(amount) = power_of_two_divisor(extent(&k.axes()[axis]), lanes.max(1))
    {
        try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target);
    }
}

fn elementwise(k: &mut Kernel, target: &Target) {
    let turned = turned(k, target);
    upcast(k, target);
    // A block of a thread is read along one axis and written along the other, and so is that of a
    // workgroup.
    if let Some(r) = turned
        && let Some(axis) = k.axis_of(&r)
        && let Some(amount) = power_of_two_divisor(
            extent(&r),
            (target.vector_bytes / 4).min(target.max_lanes as usize),
        )
        && try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target)
        && let Some(axis) = k.axis_of(&r)
        && let Some(amount) =
            power_of_two_divisor(extent(&k.axes()[axis]), target.tuning.gpu.transpose_side)
    {
        try_apply(k, Opt::new(OptOp::Local, axis, amount), target);
        local(k, target.tuning.gpu.transpose_side * amount, target);
        return;
    }
    local(k, target.tuning.gpu.workgroup, target);
}

/// The output axis along which something is loaded, where that is not the one along which is stored
/// and there is enough of both.
fn turned(k: &Kernel, target: &Target) -> Option<UOp> {
    let axes = k.axes();
    let stored = &axes[unit_stride_output(k)?];
    let order = k.ast.toposort();
    let long = |r: &&UOp| extent(r) >= 2 * target.machine.lockstep_threads;
    axes.iter()
        .filter(|r| {
            is_output(r)
                && r.range_id() != stored.range_id()
                && outputs(k) >= target.tuning.gpu.few_outputs
        })
        .filter(long)
        .find(|r| has_unit_stride_load(&order, r))
        .filter(|_| long(&stored))
        .cloned()
}

/// Threads of a workgroup, innermost axis first. An axis that no number of threads divides is made
/// longer, if it is long.
fn local(k: &mut Kernel, most: usize, target: &Target) {
    let inner: Vec<UOp> = k.axes().into_iter().filter(is_output).rev().collect();
    for r in inner {
        let room = most / threads(k).min(most);
        let Some(axis) = k.axis_of(&r) else { continue };
        let size = extent(&r);
        let mut amount = power_of_two_divisor(size, room);
        // One that ends where a variable says has a dimension of the launch, unless there are no
        // other threads: then it is as long as it can be, and guarded.
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
        if amount.unwrap_or(1) < target.machine.lockstep_threads.min(room)
            && size > 2 * target.machine.lockstep_threads
            && room >= target.machine.lockstep_threads
        {
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

/// The reduce axis with the most steps.
fn longest_reduce(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    (0..axes.len())
        .filter(|&i| axes[i].range_kind() == AxisKind::Reduce && !is_symbolic(&axes[i]))
        .max_by_key(|&i| extent(&axes[i]))
}
