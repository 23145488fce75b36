//! Reductions along rows that are contiguous in memory: a workgroup for each row.

use super::super::facts::{KernelFacts, iterations};
use super::super::{apply_to, power_of_two_divisor, try_apply, unit_stride_reduce};
use crate::ir::UOp;
use crate::kernel::{extent, max_lanes};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Chooses a workgroup for each row, if reductions have unit stride: the same threads share every
/// reduction of the row, and the output if it is as long.
pub(super) fn rows(facts: &KernelFacts, target: &Target) -> Option<Kernel> {
    let (reduces, tuning) = (&facts.reduces, &target.tuning.gpu);
    let len = extent(&facts.axes[unit_stride_reduce(&facts.kernel)?]);
    let along = row_axes(reduces, len, target)?;
    let lanes = power_of_two_divisor(len, max_lanes(target)).unwrap_or(1);
    let vectors = len / lanes;
    let wanted = (vectors / tuning.thread_vectors)
        .clamp(target.machine.lockstep_threads, tuning.row_threads)
        .min(target.local_max)
        .min(vectors.next_power_of_two());
    let wanted = if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 };
    // A row without a good divisor is padded.
    let is_near = |s: &usize| tuning.row_shortfall * s >= wanted;
    let share = power_of_two_divisor(vectors, wanted).filter(is_near).unwrap_or(wanted);
    let padding = if vectors.is_multiple_of(share) { 1 } else { share };
    let of_thread = vectors.div_ceil(share);
    let mut k = facts.kernel.clone();
    // An output axis that the reductions do not depend on is a second loop over the row.
    let again = k.axes().into_iter().find(|r| {
        is_output(r) && extent(r) == len && !reduces.iter().any(|u| u.uses_range(r.range_id()))
    });
    if again.is_none() && vectors < tuning.min_row_vectors {
        return None;
    }
    // A row that is too long for registers is recomputed by each of several workgroups.
    let in_registers = again.is_some() && of_thread <= tuning.row_vectors;
    let mut apply = |op: OptOp, r: &UOp, amount: usize| apply_to(&mut k, op, r, amount, target);
    let unrolled = power_of_two_divisor(of_thread, tuning.row_unroll).unwrap_or(1);
    for r in &along {
        apply(OptOp::Unroll, r, lanes)?;
        apply(OptOp::PadTo, r, padding)?;
        apply(OptOp::Group, r, share)?;
        apply(OptOp::Unroll, r, if in_registers { of_thread } else { unrolled })?;
    }
    if let Some(r) = &again {
        apply(OptOp::Upcast, r, lanes)?;
        apply(OptOp::PadTo, r, padding)?;
        apply(OptOp::Local, r, share)?;
        apply(OptOp::Upcast, r, if in_registers { of_thread } else { 1 })?;
    }
    // Several short rows share a workgroup.
    if share < tuning.short_rows_threads
        && let Some(r) = k.axes().into_iter().rfind(is_output)
        && let Some(axis) = k.axis_of(&r)
        && let Some(amount) = power_of_two_divisor(extent(&r), tuning.short_rows_threads / share)
    {
        try_apply(&mut k, Opt::new(OptOp::Local, axis, amount), target);
    }
    Some(k)
}

/// Returns the axes of the reductions along rows of this length; none if there is no such
/// reduction, or if another one is long.
fn row_axes(reduces: &[UOp], len: usize, target: &Target) -> Option<Vec<UOp>> {
    let mut along: Vec<UOp> = Vec::new();
    for u in reduces {
        match u.closed_ranges() {
            [r] if extent(r) == len && !along.contains(r) => along.push(r.clone()),
            _ => {}
        }
    }
    let is_long = |u: &UOp| {
        !along.contains(&u.closed_ranges()[0]) && iterations(u) > target.tuning.gpu.short_reduce
    };
    (!along.is_empty() && !reduces.iter().any(is_long)).then_some(along)
}
