//! The vector lanes of a kernel: which axes of `UPCAST` and `UNROLL` become lanes, by the accesses
//! and operations that lanes save.

use super::try_apply;
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel::{
    Access, accesses, can_be_lanes, copied_ranges, extent, have_common_user, lanes_of, max_lanes,
    next_shared, split_to_lanes, tiles,
};
use crate::opt::{Kernel, Opt, OptOp};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Adds the `VECTORIZE` Opts that pay off to a list that has none.
pub(super) fn vectorized(kernel: &Kernel, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    if kernel.has(OptOp::Vectorize) || max_lanes(target) < 2 {
        return k;
    }
    for id in lanes(&kernel.ast, target) {
        let is_lanes = |r: &UOp| r.range_id() == id && r.range_kind().is_copied();
        if let Some(axis) = k.axes().iter().position(is_lanes) {
            try_apply(&mut k, Opt::of_axis(OptOp::Vectorize, axis), target);
        }
    }
    k
}

/// Chooses the ranges that become lanes, by number: those that save the most first, and no two
/// that meet in a value.
fn lanes(ast: &UOp, target: &Target) -> Vec<u32> {
    if copied_ranges(ast).is_empty() {
        return Vec::new();
    }
    let (ast, inner) = split_to_lanes(&staged(ast, target), target);
    let order = ast.toposort();
    let counted = accesses(&ast);
    let many = |r: &UOp| {
        target.grid && r.range_kind() == AxisKind::Unroll && closes_many_sums(&order, r, target)
    };
    let mut candidates: Vec<(f64, u32, UOp)> = inner
        .into_iter()
        .filter(|(_, r)| lanes_of(extent(r), target) == Some(extent(r)))
        .filter(|(_, r)| can_be_lanes(&order, r) && !many(r))
        .map(|(id, r)| (gain(&counted, &r, target), id, r))
        .filter(|(gain, ..)| *gain > 0.0)
        .collect();
    candidates.sort_by(|(a, _, r), (b, _, s)| b.total_cmp(a).then(r.range_id().cmp(&s.range_id())));
    let mut chosen: Vec<(u32, UOp)> = Vec::new();
    for (_, id, r) in candidates {
        if !chosen.iter().any(|(_, other)| have_common_user(&order, other, &r)) {
            chosen.push((id, r));
        }
    }
    chosen.into_iter().map(|(id, _)| id).collect()
}

/// Returns the kernel with staged loads from their tiles, whose strides are those that count.
fn staged(ast: &UOp, target: &Target) -> UOp {
    let Ok(tiles) = tiles(ast, target) else { return ast.clone() };
    if tiles.is_empty() {
        return ast.clone();
    }
    let first = next_shared(&ast.toposort());
    let load = |(id, tile): (u32, &crate::kernel::Tile)| {
        let (load, len) = (&tile.load, tile.len);
        let memory = UOp::define_shared(id, len, load.dtype());
        let terms = tile.axes.iter().map(|a| &a.range * a.tile_stride as i64);
        let index = terms.reduce(|a, b| a + b).unwrap_or_else(|| UOp::int(0));
        (load.clone(), memory.at(index).load())
    };
    ast.substitute(&(first..).zip(&tiles).map(load).collect::<FxHashMap<UOp, UOp>>())
}

/// Returns true if the range is closed by a reduction with many accumulators.
fn closes_many_sums(order: &[UOp], r: &UOp, target: &Target) -> bool {
    let copies = |u: &UOp| -> usize {
        let upcast = |x: &&UOp| {
            x.op() == Op::Range && x.range_kind() == AxisKind::Upcast && u.uses_range(x.range_id())
        };
        order.iter().filter(upcast).map(extent).product()
    };
    let closes = |u: &UOp| u.op() == Op::Reduce && u.closed_ranges().contains(r);
    order.iter().any(|u| closes(u) && copies(u) >= target.tuning.many_accumulators)
}

/// Estimates the accesses and operations that vector lanes along the range save, where a store has
/// the weight of the tuning. Lanes pay off where the result is above 0.
fn gain((accesses, operations): &(Vec<Access>, Vec<Access>), r: &UOp, target: &Target) -> f64 {
    let lanes = extent(r).max(2);
    let of = |a: &Access| {
        let weight =
            a.times * if a.node.op() == Op::Store { target.tuning.store_weight } else { 1.0 };
        if a.has_unit_stride(r, target) {
            weight
        } else {
            weight * (1.0 - a.machine_accesses(r, lanes, target) as f64) / lanes as f64
        }
    };
    let along = |o: &&Access| {
        o.node.uses_range(r.range_id())
            || (o.node.op() == Op::Reduce && o.node.closed_ranges().contains(r))
    };
    accesses.iter().map(of).sum::<f64>()
        + operations.iter().filter(along).map(|o| o.times * (1.0 - 1.0 / lanes as f64)).sum::<f64>()
}
