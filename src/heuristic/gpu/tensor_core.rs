//! Tensor cores: which core, axes, register tiles and warps a product uses.

use super::super::facts::KernelFacts;
use super::super::{apply_to, power_of_two_divisor, unit_stride_output};
use crate::ir::UOp;
use crate::kernel::{extent, is_symbolic};
use crate::opt::tensor_core::{TensorCoreMapping, all_mappings, mappings};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;
use std::cmp::Reverse;

/// Returns the tensor-core mapping of the longest reduction axis, and of those the one with the
/// longest output axes with unit stride.
fn best_mapping(facts: &KernelFacts, main: &UOp, target: &Target) -> Option<TensorCoreMapping> {
    let kernel = &facts.kernel;
    let along = unit_stride_output(kernel).map(|i| &facts.axes[i]);
    let all = main.closed_ranges().iter().flat_map(|k| all_mappings(kernel, k, target));
    all.max_by_key(|w| {
        // More loads in flight hide more latency.
        let long = extent(&w.k).is_multiple_of(w.core.dims[2]).then_some(w.core.dims[2]);
        let size = extent(&w.m).saturating_mul(extent(&w.n));
        (
            extent(&w.k),
            extent(&w.m).min(target.tuning.gpu.warp_tile[0]),
            Some(&w.n) == along,
            size,
            long,
            Reverse(w.core.dims[2]),
        )
    })
}

/// Returns the register tile of a warp, in products along m and n: the largest that leaves enough
/// warps. The longer side is halved first.
fn warp_tile(
    mapping: &TensorCoreMapping,
    products: [usize; 2],
    others: usize,
    target: &Target,
) -> [usize; 2] {
    let dims = mapping.core.dims;
    let mut tile = [0, 1].map(|i| {
        power_of_two_divisor(products[i], target.tuning.gpu.warp_tile[i] / dims[i]).unwrap_or(1)
    });
    let warps = |t: [usize; 2]| others * (products[0] / t[0]) * (products[1] / t[1]);
    while warps(tile) < target.tuning.gpu.few_warps && tile != [1, 1] {
        let longer =
            usize::from(tile[1] * dims[1] >= tile[0] * dims[0] && tile[1] > 1 || tile[0] == 1);
        tile[longer] /= 2;
    }
    tile
}

/// Chooses the Opts of a kernel whose main sum a tensor core can compute; none if there is no such
/// core, or if most of its work would be padding.
pub(super) fn tensor_cores(facts: &KernelFacts, main: &UOp, target: &Target) -> Option<Kernel> {
    if target.tensor_cores.is_empty() {
        return None;
    }
    let mapping = best_mapping(facts, main, target)?;
    let axes = [&mapping.m, &mapping.n, &mapping.k];
    let padded = [0, 1, 2].map(|i| extent(axes[i]).next_multiple_of(mapping.core.dims[i]));
    let waste: f64 = axes.iter().zip(padded).map(|(r, p)| p as f64 / extent(r) as f64).product();
    if waste > target.tuning.gpu.padded_work {
        return None;
    }
    let mut k = facts.kernel.clone();
    for (i, r) in axes.iter().enumerate().filter(|(i, r)| padded[*i] != extent(r) || is_symbolic(r))
    {
        apply_to(&mut k, OptOp::PadTo, r, mapping.core.dims[i], target)?;
    }
    let others: usize =
        facts.axes.iter().filter(|r| is_output(r) && !axes.contains(r)).map(extent).product();
    let products = [0, 1].map(|i| padded[i] / mapping.core.dims[i]);
    let tile = warp_tile(&mapping, products, others, target);
    // Before the axes are split, so that the elements of a thread are adjacent along each.
    for (i, r) in axes[..2].iter().enumerate() {
        apply_to(&mut k, OptOp::Upcast, r, tile[i], target)?;
    }
    let axis = k.axis_of(&mapping.k)?;
    let same = |w: &TensorCoreMapping| {
        w.core == mapping.core
            && [&w.m, &w.n].map(UOp::range_id) == [&mapping.m, &mapping.n].map(UOp::range_id)
    };
    let which = mappings(&k, &k.axes()[axis], target).iter().position(same)?;
    k = k.apply(&Opt::new(OptOp::Tc, axis, which), target).ok()?;
    for (i, r) in axes[..2].iter().enumerate() {
        if let Some(axis) = k.axis_of(r) {
            let amount = power_of_two_divisor(extent(&k.axes()[axis]), target.tuning.gpu.warps[i])
                .unwrap_or(1);
            apply_to(&mut k, OptOp::Local, r, amount, target)?;
        }
    }
    // Masked elements are loaded one by one, which takes too many registers.
    let least = target.tuning.gpu.prefetch_iterations;
    let iterations = |axis: usize| extent(&k.axes()[axis]);
    if let Some(axis) =
        k.axis_of(&mapping.k).filter(|axis| waste == 1.0 && iterations(*axis) >= least)
    {
        k = k.apply(&Opt::new(OptOp::Prefetch, axis, 0), target).ok()?;
    }
    Some(k)
}
