//! Which optimisations to apply without search. It is meant to be right and reasonable on every target; tuning it is work of its own.

use super::{Kernel, Opt, OptOp, extent};
use crate::ir::{AxisKind, Op, UOp};
use crate::symbolic::Linear;
use crate::target::Target;

/// Kernels below this many operations are not worth waking threads for.
const WORTH_THREADS: usize = 32_768;

/// Good optimisations for a kernel on a target.
pub fn heuristic(kernel: &Kernel, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    let lanes = if target.vector_bytes >= 4 { target.vector_bytes / 4 } else { 4 };
    if target.grid {
        // Workgroup threads along the fastest axis.
        if let Some(axis) = fastest_output(&k) {
            let size = extent(&k.axes()[axis]);
            if let Some(amount) = [32, 16, 8, 4].into_iter().find(|a| size.is_multiple_of(*a) && size > *a) {
                try_apply(&mut k, Opt::new(OptOp::Local, axis, amount), target);
            }
        }
        return k;
    }
    // Vector lanes: along the axis in which stores are contiguous; for a reduce without one, along the axis in which its loads are.
    let outputs = fastest_output(&k);
    let upcast = outputs.and_then(|axis| {
        let size = extent(&k.axes()[axis]);
        divisor(size, lanes).map(|amount| Opt::new(OptOp::Upcast, axis, amount))
    });
    match upcast {
        Some(opt) => drop(try_apply(&mut k, opt, target)),
        None => {
            if let Some(axis) = fastest_reduce(&k) {
                let size = extent(&k.axes()[axis]);
                if let Some(amount) = divisor(size, lanes) {
                    try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target);
                }
            }
        }
    }
    // Each further reduce of a row is vectorised on its own.
    for _ in 0..4 {
        let Some(axis) = fastest_reduce(&k) else { break };
        let r = k.axes()[axis].clone();
        let Some(amount) = divisor(extent(&r), lanes) else { break };
        if k.axes().iter().any(|a| a.range_kind() == AxisKind::Upcast && shares_node(&k.ast, a, &r))
            || !try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target)
        {
            break;
        }
    }
    threads(&mut k, target);
    k
}

fn try_apply(k: &mut Kernel, opt: Opt, target: &Target) -> bool {
    match k.apply(&opt, target) {
        Ok(next) => {
            *k = next;
            true
        }
        Err(_) => false,
    }
}

/// The largest power of two up to `most` that divides.
fn divisor(size: usize, most: usize) -> Option<usize> {
    let mut a = most.next_power_of_two();
    while a >= 2 {
        if size.is_multiple_of(a) {
            return Some(a);
        }
        a /= 2;
    }
    None
}

fn shares_node(ast: &UOp, a: &UOp, b: &UOp) -> bool {
    ast.toposort().iter().any(|u| u.op() == Op::Load && u.uses_range(a.range_id()) && u.uses_range(b.range_id()))
}

fn coefficient(index: &UOp, r: &UOp) -> Option<i64> {
    let l = Linear::of(index)?;
    let other = l.terms.iter().any(|(t, _)| t != r && t.uses_range(r.range_id()));
    (!other).then(|| l.coefficient(r))
}

/// The output axis with stride one in every store.
fn fastest_output(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    (0..axes.len()).find(|&i| {
        matches!(axes[i].range_kind(), AxisKind::Global | AxisKind::Loop)
            && k.ast.src().iter().all(|s| coefficient(&s.src()[0].src()[1], &axes[i]) == Some(1))
    })
}

/// A reduce axis with stride one in some load.
fn fastest_reduce(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    let order = k.ast.toposort();
    (0..axes.len()).find(|&i| {
        axes[i].range_kind() == AxisKind::Reduce
            && order.iter().any(|u| u.op() == Op::Load && coefficient(&u.src()[0].src()[1], &axes[i]) == Some(1))
    })
}

/// Divides the outermost output axis that can be divided.
fn threads(k: &mut Kernel, target: &Target) {
    let size = |reduce: bool| -> usize {
        k.axes().iter().filter(|r| r.range_kind().is_reduce() == reduce).map(extent).fold(1usize, usize::saturating_mul)
    };
    let work = size(false).saturating_mul(size(true));
    if target.threads < 2 || work < WORTH_THREADS {
        return;
    }
    let axes = k.axes();
    for (i, r) in axes.iter().enumerate().filter(|(_, r)| matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop)) {
        if let Some(n) = (2..=target.threads).rev().find(|n| extent(r).is_multiple_of(*n))
            && try_apply(k, Opt::new(OptOp::Thread, i, n), target)
        {
            return;
        }
    }
}
