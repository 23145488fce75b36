//! Reductions of masked terms, and their register tiles. An example is the gradient of a
//! convolution: a product for each tap, masked where the tap is outside the image.

use super::super::{apply_to, power_of_two_divisor};
use super::tile::{load_cost, to_pack};
use crate::ir::typed::Reduce;
use crate::ir::{Op, UOp};
use crate::kernel::{self, Access, extent, masked_term};
use crate::opt::{Kernel, OptOp, is_output};
use crate::symbolic::clauses;
use crate::target::Target;

/// Returns the accumulators of a tile.
fn accumulators(target: &Target) -> usize {
    target.machine.vector_registers * target.tuning.cpu.conv_registers_of_4 / 4
}

/// Returns an output axis that is short enough to be unrolled as a whole, and the axes of taps,
/// whose masks are then constant.
fn window(axes: &[UOp], main: &UOp, loads: &[&Access], target: &Target) -> Option<(UOp, Vec<UOp>)> {
    let Reduce { body, ranges: reduced, fold, .. } = main.expect_reduce();
    let clauses = clauses(&masked_term(fold, body)?.0);
    let uses = |c: &UOp, r: &UOp| c.uses_range(r.range_id());
    let outputs = || axes.iter().filter(|r| is_output(r));
    outputs().find_map(|a| {
        let has_unit_stride = |l: &&Access| kernel::stride(&l.node, a) == Some(1);
        let (of_axis, rest): (Vec<&UOp>, Vec<&UOp>) = clauses.iter().partition(|c| uses(c, a));
        let taps: Vec<UOp> =
            reduced.iter().filter(|r| of_axis.iter().any(|c| uses(c, r))).cloned().collect();
        // The other clauses are evaluated before the innermost loop.
        let inner = reduced.iter().rev().find(|r| !taps.contains(r))?;
        let hoisted = !rest.iter().any(|c| uses(c, inner) || taps.iter().any(|t| uses(c, t)));
        let alone = !of_axis.iter().any(|c| outputs().any(|b| b != a && uses(c, b)));
        let is_short = extent(a) <= accumulators(target)
            && taps.iter().map(extent).product::<usize>() <= target.tuning.cpu.conv_taps;
        let is_window = !of_axis.is_empty() && !taps.is_empty() && hoisted && alone && is_short;
        (is_window && loads.iter().any(has_unit_stride)).then(|| (a.clone(), taps))
    })
}

/// Returns the kernel with a tile for such a reduction, a row of the image in registers and lanes
/// along another axis, and the arguments to pack. `small` says which loads may be packed.
pub(super) fn conv_grad_tile(
    k: &Kernel,
    main: &UOp,
    loads: &[&Access],
    small: &[bool],
    target: &Target,
) -> Option<(Kernel, Vec<usize>)> {
    if main.operand().op() != Op::Where {
        return None;
    }
    let axes = k.axes();
    let (row, taps) = window(&axes, main, loads, target)?;
    let max_lanes = (target.vector_bytes / 4).max(2);
    let budget = accumulators(target);
    if extent(&row) > budget {
        return None;
    }
    let outputs: Vec<&UOp> = axes.iter().filter(|r| is_output(r) && **r != row).collect();
    let uses = |a: &Access, r: &UOp| a.node.uses_range(r.range_id());
    let mut best: Option<(f64, &UOp, usize, &UOp, usize)> = None;
    for v in outputs.iter().filter(|v| main.uses_range(v.range_id())) {
        let Some(lanes) = power_of_two_divisor(extent(v), max_lanes) else { continue };
        for b in &outputs {
            let left = if b == v { extent(b) / lanes } else { extent(b) };
            for n in (1..=budget / extent(&row)).filter(|n| left.is_multiple_of(*n)) {
                let cost = |(l, small): (&&Access, &bool)| {
                    let copies = if uses(l, &row) { extent(&row) } else { 1 }
                        * if uses(l, b) { n } else { 1 };
                    copies as f64 * load_cost(l, *small, v, lanes, target)
                };
                let cost = (loads.iter().zip(small).map(cost).sum::<f64>()
                    / (extent(&row) * n) as f64
                    + 1.0)
                    / lanes as f64;
                if best.is_none_or(|best| cost < best.0) {
                    best = Some((cost, v, lanes, b, n));
                }
            }
        }
    }
    let (_, v, lanes, b, n) = best?;
    let packed = to_pack(loads, small, v, lanes, target);
    let mut k = k.clone();
    let upcasts = [(v, lanes), (&row, extent(&row)), (b, n)].map(|(r, n)| (OptOp::Upcast, r, n));
    let unrolls = taps.iter().map(|r| (OptOp::Unroll, r, extent(r)));
    for (op, r, amount) in upcasts.into_iter().chain(unrolls) {
        apply_to(&mut k, op, r, amount, target)?;
    }
    Some((k, packed))
}
