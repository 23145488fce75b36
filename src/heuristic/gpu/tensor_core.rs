//! Tensor cores: which core, axes, register tiles and warps a product uses.

use super::super::{power_of_two_divisor, unit_stride_output};
use crate::ir::UOp;
use crate::kernel::{extent, is_symbolic};
use crate::opt::tensor_core::{Way, pairs, ways};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;
use std::cmp::Reverse;

/// Good optimisations for a kernel whose main sum a tensor core can make; none where there is no
/// such core, or where most of its work would be for nothing.
pub(super) fn tensor_cores(kernel: &Kernel, main: &UOp, target: &Target) -> Option<Kernel> {
    if target.tensor_cores.is_empty() {
        return None;
    }
    // The longest axis, and of the outputs those that are longest and run along memory.
    let along = unit_stride_output(kernel).map(|i| kernel.axes()[i].clone());
    let all = main.closed_ranges().iter().flat_map(|k| pairs(kernel, k, target));
    let way = all.max_by_key(|w| {
        // More loads in flight hide more latency.
        let long = extent(&w.k).is_multiple_of(w.core.dims[2]).then_some(w.core.dims[2]);
        let size = extent(&w.m).saturating_mul(extent(&w.n));
        (
            extent(&w.k),
            extent(&w.m).min(target.tuning.gpu.warp_tile[0]),
            Some(&w.n) == along.as_ref(),
            size,
            long,
            Reverse(w.core.dims[2]),
        )
    })?;
    let axes = [&way.m, &way.n, &way.k];
    let padded = [0, 1, 2].map(|i| extent(axes[i]).next_multiple_of(way.core.dims[i]));
    let waste: f64 = axes.iter().zip(padded).map(|(r, p)| p as f64 / extent(r) as f64).product();
    if waste > target.tuning.gpu.padded_work {
        return None;
    }
    let mut k = kernel.clone();
    let apply = |k: &mut Kernel, op: OptOp, r: &UOp, amount: usize| -> Option<()> {
        if amount > 1 {
            let axis = k
                .axes()
                .iter()
                .position(|x| x.range_id() == r.range_id() && x.range_kind() == r.range_kind())?;
            *k = k.apply(&Opt::new(op, axis, amount), target).ok()?;
        }
        Some(())
    };
    for (i, r) in axes.iter().enumerate().filter(|(i, r)| padded[*i] != extent(r) || is_symbolic(r))
    {
        apply(&mut k, OptOp::PadTo, r, way.core.dims[i])?;
    }
    // What a warp computes, as numbers of products along m and n. The longer side is made shorter
    // first.
    let most = |i: usize| {
        power_of_two_divisor(
            padded[i] / way.core.dims[i],
            target.tuning.gpu.warp_tile[i] / way.core.dims[i],
        )
        .unwrap_or(1)
    };
    let mut tile = [most(0), most(1)];
    let others: usize =
        kernel.axes().iter().filter(|r| is_output(r) && !axes.contains(r)).map(extent).product();
    let warps = |t: [usize; 2]| {
        others * (padded[0] / way.core.dims[0] / t[0]) * (padded[1] / way.core.dims[1] / t[1])
    };
    while warps(tile) < target.tuning.gpu.few_warps && tile != [1, 1] {
        let longer = usize::from(
            tile[1] * way.core.dims[1] >= tile[0] * way.core.dims[0] && tile[1] > 1 || tile[0] == 1,
        );
        tile[longer] /= 2;
    }
    // Before the axes are split, so that the elements of a thread are adjacent along each.
    for (i, r) in axes[..2].iter().enumerate() {
        apply(&mut k, OptOp::Upcast, r, tile[i])?;
    }
    let axis = k.axis_of(&way.k)?;
    let same = |w: &Way| {
        w.core == way.core && [&w.m, &w.n].map(UOp::range_id) == [&way.m, &way.n].map(UOp::range_id)
    };
    let which = ways(&k, &k.axes()[axis], target).iter().position(same)?;
    k = k.apply(&Opt::new(OptOp::Tc, axis, which), target).ok()?;
    for (i, r) in axes[..2].iter().enumerate() {
        if let Some(axis) = k.axis_of(r) {
            let amount = power_of_two_divisor(extent(&k.axes()[axis]), target.tuning.gpu.warps[i])
                .unwrap_or(1);
            apply(&mut k, OptOp::Local, r, amount)?;
        }
    }
    // Masked elements are loaded one by one, which takes too many registers.
    let least = target.tuning.gpu.prefetch_iterations;
    let iterations = |axis: usize| extent(&k.axes()[axis]);
    if let Some(axis) = k.axis_of(&way.k).filter(|axis| waste == 1.0 && iterations(*axis) >= least)
    {
        k = k.apply(&Opt::new(OptOp::Prefetch, axis, 0), target).ok()?;
    }
    Some(k)
}
