//! The heuristic for targets without workgroups: vector lanes, register tiles, copied inputs,
//! threads, and values that are stored for reuse.

mod conv_grad;
mod fit;
mod pack;
mod panels;
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
    let (mut k, tuning) = (kernel.clone(), &target.tuning.cpu);
    let lanes = if target.vector_bytes >= 4 { target.vector_bytes / 4 } else { 4 };
    if let Some((tiled, packed)) = tile::cpu_register_tile(&facts, target) {
        k = tiled;
        threads(&mut k, target);
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
                threads(&mut k, target);
                return k;
            }
            tiles.upcast(&mut k, r, target);
            across = upcasts(&k);
            rows = reduce.is_some()
                && unit_stride_reduce(&k).is_some_and(|axis| {
                    upcast_rows(&mut k, axis, tuning.rows, tuning.row_reduces, target)
                });
        }
        None => {
            if let Some(axis) = reduce {
                let mut r = k.axes()[axis].clone();
                if let Some(padded) = fit::padded_reduce(&facts, &r, lanes, target)
                    && try_apply(&mut k, Opt::new(OptOp::PadTo, axis, padded), target)
                {
                    r = k.axes()[axis].clone();
                }
                let (streams, most) = (tuning.streams, tuning.stream_reduces);
                let amount = if upcast_rows(&mut k, axis, streams, most, target) {
                    power_of_two_divisor(extent(&r), lanes)
                } else {
                    unrolled_iterations(extent(&r), lanes, target)
                };
                if let (Some(amount), Some(axis)) = (amount, k.axes().iter().position(|x| *x == r))
                {
                    try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target);
                }
            } else {
                interleave_scans(&mut k, target);
            }
        }
    }
    if reduce.is_some() {
        vectorize_reduces(&mut k, rows, &across, target);
    }
    threads(&mut k, target);
    k
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
    if let Some(amount) = power_of_two_divisor(
        splittable_extent(&axes[axis]) / target.threads.max(1),
        target.tuning.cpu.interleaved_scans,
    ) {
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
    // Enough outputs remain for all threads.
    match power_of_two_divisor(splittable_extent(&axes[axis]) / target.threads.max(1), most) {
        Some(amount) => try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target),
        None => false,
    }
}

/// Returns true if a load depends on both ranges.
fn shares_load(ast: &UOp, a: &UOp, b: &UOp) -> bool {
    ast.toposort()
        .iter()
        .any(|u| u.op() == Op::Load && u.uses_range(a.range_id()) && u.uses_range(b.range_id()))
}

/// Returns the iterations of a kernel: outputs times reduced elements. Independent reductions add
/// up; one inside another runs for each of its elements.
fn work(k: &Kernel, axes: &[UOp]) -> usize {
    let (folded, outputs): (Vec<&UOp>, Vec<&UOp>) =
        axes.iter().partition(|r| r.range_kind().is_reduce());
    let of_one = |u: &UOp| {
        let inside = u.operand().ranges();
        folded
            .iter()
            .filter(|r| inside.has(r.range_id()))
            .map(|r| extent(r))
            .fold(1usize, usize::saturating_mul)
    };
    let order = k.ast.toposort();
    let reduces =
        order.iter().filter(|u| u.op() == Op::Reduce).map(of_one).fold(0, usize::saturating_add);
    outputs.into_iter().map(extent).fold(reduces.max(1), usize::saturating_mul)
}

/// Divides the outermost output axis that has a divisor between threads.
pub(super) fn threads(k: &mut Kernel, target: &Target) {
    let axes = k.axes();
    if target.threads < 2 || work(k, &axes) < target.tuning.cpu.min_thread_work {
        return;
    }
    for (i, r) in axes.iter().enumerate().filter(|(_, r)| is_output(r)) {
        if let Some(n) = (2..=target.threads).rev().find(|n| extent(r).is_multiple_of(*n))
            && try_apply(k, Opt::new(OptOp::Thread, i, n), target)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ScheduleItem;

    #[test]
    fn independent_reductions_add_up() {
        let x = crate::Tensor::ones([2, 32, 64])
            .contiguous()
            .realize()
            .unwrap()
            .to("interp")
            .realize()
            .unwrap();
        let (a, b) = (x.i(0), x.i(1));
        let three = a.square().sum(1) + b.square().sum(1) * (&a * &b).sum(1);
        let Some(ScheduleItem::Kernel { ast, .. }) = three.schedule().unwrap().pop() else {
            panic!("a kernel")
        };
        let k = Kernel::new(ast);
        assert_eq!(work(&k, &k.axes()), 32 * 3 * 64);
        let product = a.matmul(&b.t());
        let Some(ScheduleItem::Kernel { ast, .. }) = product.schedule().unwrap().pop() else {
            panic!("a kernel")
        };
        let k = Kernel::new(ast);
        assert_eq!(work(&k, &k.axes()), 32 * 32 * 64);
    }
}
