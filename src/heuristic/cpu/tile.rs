//! Register tiles on a CPU: vector lanes along one axis, and a tile of outputs that share loads.

use super::super::facts::{KernelFacts, iterations};
use super::super::{apply_to, argument, power_of_two_divisor, splittable_extent};
use super::fit::{self, Fit, Tiles, overlaps};
use super::{conv_grad, pack};
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel;
use crate::opt::{Kernel, OptOp, is_output};
use crate::target::{CpuTuning, Target};

/// A register tile.
struct Tile {
    /// The axis of the vector lanes, and the vectors along it.
    lanes: (UOp, Tiles),
    /// Further output axes, and the copies along each.
    copies: Vec<(UOp, Tiles)>,
    /// Machine loads per operation on one element.
    cost: f64,
}

/// Returns the kernel with a register tile, if it has one main nest of reductions with several
/// loads: lanes along one axis, and outputs that share loads. The tile is the one with the fewest
/// loads for the work whose accumulators fit in registers. The arguments to pack come with it.
pub(super) fn cpu_register_tile(
    facts: &KernelFacts,
    target: &Target,
) -> Option<(Kernel, Vec<usize>)> {
    let (k, axes, main) = (&facts.kernel, &facts.axes, facts.main.as_ref()?);
    let work = |u: &UOp| iterations(u) as f64;
    // Other reductions must be small, or be in the same loops.
    if facts.reduces.iter().any(|u| {
        u.closed_ranges() != main.closed_ranges()
            && work(u) * target.tuning.cpu.main_reduce > work(main)
    }) {
        return None;
    }
    let all = facts.accesses();
    let body = main.operand().toposort();
    let loads: Vec<&kernel::Access> =
        all.iter().filter(|a| a.node.op() == Op::Load && body.contains(&a.node)).collect();
    if loads.len() < 2 {
        return None;
    }
    let small: Vec<bool> = loads.iter().map(|l| pack::is_profitable(axes, l, target)).collect();
    if let Some(tiled) = conv_grad::conv_grad_tile(k, main, &loads, &small, target) {
        return Some(tiled);
    }
    let best = best_tile(main, facts, &loads, &small, target)?;
    let packed = to_pack(&loads, &small, &best.lanes.0, best.lanes.1.size, target);
    let mut k = k.clone();
    let (axis, vectors) = best.lanes;
    if axis.range_kind() == AxisKind::Reduce {
        apply_to(&mut k, OptOp::Unroll, &axis, vectors.size, target)?;
    } else {
        vectors.upcast(&mut k, &axis, target)?;
    }
    for (r, copies) in best.copies {
        copies.upcast(&mut k, &r, target)?;
    }
    Some((k, packed))
}

/// Tiles with vector lanes along one axis.
struct LaneTiles<'a> {
    axis: &'a UOp,
    vectors: Tiles,
    /// The output axes that the reduction depends on.
    outputs: &'a [&'a UOp],
    /// The output axes that each load depends on.
    uses: &'a [Vec<bool>],
    /// The machine accesses of each load.
    parts: Vec<f64>,
    stores: Vec<&'a kernel::Access>,
    /// The tiles along each output axis.
    sizes: Vec<usize>,
    /// Iterations of the reduction.
    steps: f64,
    target: &'a Target,
}

impl LaneTiles<'_> {
    /// Returns the cover of an axis by copies.
    fn cover(&self, (axis, n): &AxisCopies) -> Tiles {
        let fit = if self.sizes[*axis].is_multiple_of(*n) { Fit::Divides } else { Fit::Overlaps };
        Tiles { size: *n, fit }
    }

    /// Returns the loads and operations of a tile, for each element that it computes.
    fn cost(&self, tile: &[AxisCopies]) -> f64 {
        let lanes = self.vectors.size;
        let count = |l: usize| -> usize {
            tile.iter().filter(|(axis, _)| self.uses[*axis][l]).map(|(_, n)| *n).product()
        };
        let loaded: f64 = self.parts.iter().enumerate().map(|(l, p)| count(l) as f64 * p).sum();
        let copies = tile.iter().map(|(_, n)| *n).product::<usize>() as f64;
        let waste = |(axis, n): &AxisCopies| {
            self.sizes[*axis].next_multiple_of(*n) as f64 / self.sizes[*axis] as f64
        };
        let computed = tile.iter().map(waste).product::<f64>() / self.vectors.efficiency(self.axis);
        let along = |store: &kernel::Access| {
            let unit = |(axis, _): &&AxisCopies| {
                kernel::stride(&store.node, self.outputs[*axis]) == Some(1)
            };
            tile.iter().find(unit).map_or(1, |(_, n)| *n)
        };
        let store = |s: &&kernel::Access| store_cost(s, self.axis, lanes, along(s), self.target);
        // Lanes of a reduction are combined in the end.
        let ends = match self.axis.range_kind() {
            AxisKind::Reduce => lanes as f64,
            _ => self.stores.iter().map(store).sum(),
        };
        (loaded / copies + 1.0 + ends / self.steps) / lanes as f64 * computed
    }
}

/// Returns the vectors along an axis.
fn vectors_along(axis: &UOp, facts: &KernelFacts, target: &Target) -> Option<Tiles> {
    let max_lanes = (target.vector_bytes / 4).max(2);
    if is_output(axis) {
        return fit::vectors(facts, axis, max_lanes, target);
    }
    let size = power_of_two_divisor(splittable_extent(axis), max_lanes)?;
    Some(Tiles { size, fit: Fit::Divides })
}

/// Returns the register tile of the lowest estimated cost.
fn best_tile(
    main: &UOp,
    facts: &KernelFacts,
    loads: &[&kernel::Access],
    small: &[bool],
    target: &Target,
) -> Option<Tile> {
    let (axes, all) = (&facts.axes, facts.accesses());
    let [most, fewer] = target.tuning.cpu.tile_accumulators;
    let budget = if target.machine.vector_registers >= 32 { most } else { fewer };
    // Copies along an axis that the reduction does not depend on would compute the same value.
    let is_output = |r: &UOp| is_output(r) && main.uses_range(r.range_id());
    let outputs: Vec<&UOp> = axes.iter().filter(|r| is_output(r)).collect();
    let uses: Vec<Vec<bool>> = outputs
        .iter()
        .map(|r| loads.iter().map(|l| l.node.uses_range(r.range_id())).collect())
        .collect();
    let may_overlap: Vec<bool> =
        outputs.iter().map(|r| (2..5).any(|n| overlaps(facts, r, n, target))).collect();
    let mut best: Option<Tile> = None;
    for v in axes.iter().filter(|r| is_output(r) || main.closed_ranges().contains(r)) {
        let Some(vectors) = vectors_along(v, facts, target) else { continue };
        let lanes = vectors.size;
        let part = |(a, small): (&&kernel::Access, &bool)| {
            load_cost(a, *small && is_output(v), v, lanes, target)
        };
        let size = |r: &&UOp| match splittable_extent(r) {
            size if *r == v => size.div_ceil(lanes),
            size => size,
        };
        let candidates = LaneTiles {
            axis: v,
            vectors,
            outputs: &outputs,
            uses: &uses,
            parts: loads.iter().zip(small).map(part).collect(),
            stores: all.iter().filter(|a| a.node.op() == Op::Store).collect(),
            sizes: outputs.iter().map(size).collect(),
            steps: iterations(main) as f64,
            target,
        };
        // Tiles of vectors divide their number.
        let overlaps: Vec<bool> =
            outputs.iter().zip(&may_overlap).map(|(r, may)| *may && *r != v).collect();
        each_tile(&candidates.sizes, &overlaps, budget, &target.tuning.cpu, &mut |tile| {
            let cost = candidates.cost(tile);
            if best.as_ref().is_none_or(|t| cost < t.cost) {
                let copies =
                    tile.iter().map(|t| (outputs[t.0].clone(), candidates.cover(t))).collect();
                best = Some(Tile { lanes: (v.clone(), vectors), copies, cost });
            }
        });
    }
    best
}

/// Returns the machine loads for one load of lanes along an axis. Lanes that are loaded one by one
/// must also be inserted into a vector, unless the input is packed first.
pub(super) fn load_cost(
    load: &kernel::Access,
    packed: bool,
    axis: &UOp,
    lanes: usize,
    target: &Target,
) -> f64 {
    let (parts, tuning) = (load.machine_accesses(axis, lanes, target), &target.tuning.cpu);
    match load.is_masked(axis) {
        _ if parts == 1 || packed => 1.0,
        true => parts as f64 * tuning.masked_lane_load,
        false => parts as f64 * tuning.lane_load,
    }
}

/// Returns the machine stores for one store of lanes along an axis. Where there are several copies
/// along the axis that the output is contiguous in, they are transposed in registers.
fn store_cost(
    store: &kernel::Access,
    axis: &UOp,
    lanes: usize,
    copies: usize,
    target: &Target,
) -> f64 {
    match store.machine_accesses(axis, lanes, target) {
        1 => 1.0,
        n if copies > 1 && !store.is_masked(axis) => {
            let rows = 1 << copies.min(lanes).ilog2();
            (n / rows.min(n) + rows.ilog2() as usize) as f64
        }
        n => n as f64 * target.tuning.cpu.lane_store,
    }
}

/// Returns the arguments that lanes along an output axis need in another order.
pub(super) fn to_pack(
    loads: &[&kernel::Access],
    small: &[bool],
    axis: &UOp,
    lanes: usize,
    target: &Target,
) -> Vec<usize> {
    let apart = loads.iter().zip(small).filter(|(l, small)| {
        is_output(axis) && **small && l.machine_accesses(axis, lanes, target) > 1
    });
    apart.filter_map(|(l, _)| argument(&l.node)).collect()
}

/// The copies along an output axis of a tile: the position of the axis, and their number.
type AxisCopies = (usize, usize);

/// Calls `f` with every tile of at most `budget` copies. The copies divide the axis, or are fewer
/// than a quarter of it where tiles may overlap.
fn each_tile(
    sizes: &[usize],
    overlaps: &[bool],
    budget: usize,
    limits: &CpuTuning,
    f: &mut dyn FnMut(&[AxisCopies]),
) {
    fn extend_tile(
        sizes: &[usize],
        overlaps: &[bool],
        from: usize,
        budget: usize,
        limits: &CpuTuning,
        tile: &mut Vec<AxisCopies>,
        f: &mut dyn FnMut(&[AxisCopies]),
    ) {
        f(tile);
        if tile.len() == limits.tile_axes {
            return;
        }
        for axis in from..sizes.len() {
            let size = sizes[axis];
            let fits = |n: &usize| size.is_multiple_of(*n) || (overlaps[axis] && *n * 4 <= size);
            for n in (2..=budget.min(limits.tile_side)).filter(fits) {
                tile.push((axis, n));
                extend_tile(sizes, overlaps, axis + 1, budget / n, limits, tile, f);
                tile.pop();
            }
        }
    }
    extend_tile(sizes, overlaps, 0, budget, limits, &mut Vec::new(), f);
}
