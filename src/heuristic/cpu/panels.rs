//! Matrix products on a CPU: a register tile of the output, and a panel of the matrix that runs
//! along the vectors, which is copied once for all rows of the other matrix. Where a panel is too
//! large for the cache, it has a block of the sum, and the loop over blocks is outside that of the
//! rows.

use super::super::facts::KernelFacts;
use super::super::matmul::MatmulPattern;
use super::super::{argument, try_apply};
use super::chunks::chunks_along;
use super::fit::{Fit, Tiles, overlaps};
use crate::dtype::DType;
use crate::ir::UOp;
use crate::kernel::{self, extent};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Chooses a register tile of a matrix product, and stages a panel of the matrix of its columns.
pub(super) fn panels(facts: &KernelFacts, target: &Target) -> Option<Kernel> {
    let mut p = MatmulPattern::of(facts)?;
    if let Some(row) = min_stride_row(facts, &p, target) {
        p.row = row;
    }
    if p.left.dtype() != p.right.dtype() || ![DType::F32, DType::F64].contains(&p.left.dtype()) {
        return None;
    }
    let whole = panel_tile(facts, &p, false, target);
    // Blocks of the sum are for sums of which a wide panel does not fit.
    if whole.as_ref().is_none_or(|tile| tile.vectors < 2)
        && let Some(tile) = panel_tile(facts, &p, true, target)
        && let Some(k) = built(facts, &p, &tile, target)
    {
        return Some(k);
    }
    built(facts, &p, &whole?, target)
}

/// Returns the kernel with a register tile and panels.
fn built(
    facts: &KernelFacts,
    p: &MatmulPattern,
    tile: &PanelTile,
    target: &Target,
) -> Option<Kernel> {
    let (height, vectors) = (tile.height, tile.vectors);
    let lanes = lanes(p, target);
    let mut k = facts.kernel.clone();
    // The axes of the panel come first, so that one copy serves all rows of the other matrix.
    let apart = k.axes().iter().position(|r| is_output(r) && !p.right.uses_range(r.range_id()))?;
    let column = k.axis_of(&p.column)?;
    if apart < column && !try_apply(&mut k, Opt::new(OptOp::Swap, apart, column), target) {
        return None;
    }
    for (r, amount) in [(&p.column, vectors * lanes), (&p.row, height)] {
        fit_of(facts, r, amount, target).upcast(&mut k, r, target)?;
    }
    // Each chunk copies the panels of all its columns, which takes long where the sum does.
    let columns = |r: &UOp| p.right.uses_range(r.range_id());
    let tiles = k.axes().into_iter().filter(|r| is_output(r) && columns(r));
    let enough = tiles.map(|r| extent(&r)).any(|n| n >= target.tuning.cpu.reference_threads);
    let is_wanted = |r: &UOp| tile.steps == extent(&p.inner) || !enough || columns(r);
    chunks_along(&mut k, usize::MAX, is_wanted, target);
    if tile.steps < extent(&p.inner) {
        k = blocked(&k, p, tile, target)?;
    }
    let inner = k.axes().iter().rposition(is_output)?;
    // The masks of padded rows are evaluated by a copy too.
    let is_padded = fit_of(facts, &p.row, height, target).fit == Fit::Pads;
    let rows = is_padded.then_some(&p.left);
    for load in rows.into_iter().chain([&p.right]) {
        k = k.apply(&Opt::new(OptOp::Stage, inner, argument(load)?), target).ok()?;
    }
    Some(k)
}

/// Splits the sum into blocks whose loop is outside that of the rows. Accumulators in scratch
/// memory take half of it: where there are more, the rows are split too.
fn blocked(k: &Kernel, p: &MatmulPattern, tile: &PanelTile, target: &Target) -> Option<Kernel> {
    let is_row = |r: &UOp| is_output(r) && !p.right.uses_range(r.range_id());
    let k = k.apply(&Opt::new(OptOp::Split, k.axis_of(&p.inner)?, tile.steps), target).ok()?;
    let moved = |k: &Kernel| {
        let outer = k.axes().iter().position(is_row)?;
        k.apply(&Opt::new(OptOp::ReduceOuter, k.axis_of(&p.inner)?, outer), target).ok()
    };
    let fits = |k: &Kernel| {
        kernel::accumulator_bytes(&k.ast).is_ok_and(|bytes| bytes <= target.shared_bytes / 2)
    };
    if let Some(k) = moved(&k).filter(fits) {
        return Some(k);
    }
    let axis = k.axes().iter().position(is_row)?;
    let rows = extent(&k.axes()[axis]);
    let divisors = (2..rows).rev().filter(|n| rows.is_multiple_of(*n));
    let split = |n: usize| {
        let k = k.apply(&Opt::new(OptOp::Split, axis, n), target).ok()?;
        let outer = axis + 1;
        k.apply(&Opt::new(OptOp::ReduceOuter, k.axis_of(&p.inner)?, outer), target).ok()
    };
    let uses = target.tuning.cpu.panel_uses;
    divisors.take_while(|n| *n >= uses).filter_map(split).find(fits)
}

/// Returns how tiles of this size cover an axis.
fn fit_of(facts: &KernelFacts, r: &UOp, size: usize, target: &Target) -> Tiles {
    let fit = match extent(r) {
        n if n.is_multiple_of(size) => Fit::Divides,
        n if n > size && overlaps(facts, r, size, target) => Fit::Overlaps,
        _ => Fit::Pads,
    };
    Tiles { size, fit }
}

/// Returns the row axis with the smallest stride in the output.
fn min_stride_row(facts: &KernelFacts, p: &MatmulPattern, target: &Target) -> Option<UOp> {
    let store = facts.kernel.ast.operand();
    let stride = |r: &UOp| kernel::stride(store, r).map_or(u64::MAX, i64::unsigned_abs);
    let is_row = |r: &&UOp| {
        is_output(r)
            && extent(r) >= target.tuning.cpu.panel_uses
            && p.left.uses_range(r.range_id())
            && !p.right.uses_range(r.range_id())
    };
    facts.axes.iter().filter(is_row).min_by_key(|r| stride(r)).cloned()
}

/// A register tile and its panel.
struct PanelTile {
    /// Rows of the tile.
    height: usize,
    /// Vectors of a row.
    vectors: usize,
    /// Iterations of the sum in a panel.
    steps: usize,
}

/// Returns the elements of a vector of the matrices.
fn lanes(p: &MatmulPattern, target: &Target) -> usize {
    target.vector_bytes / p.right.dtype().itemsize()
}

/// The search for a register tile.
struct TileSearch<'a> {
    p: &'a MatmulPattern,
    target: &'a Target,
    /// True if a panel may have a part of the sum.
    blocks: bool,
    /// True if tiles of columns, and of rows, may overlap.
    overlap: [bool; 2],
    /// The extents of output axes beside rows and columns.
    others: Vec<usize>,
}

impl TileSearch<'_> {
    /// Returns the iterations of the sum in a panel of as many columns: all, or a divisor.
    fn steps(&self, columns: usize) -> Option<usize> {
        let (steps, target) = (extent(&self.p.inner), self.target);
        let row = columns * self.p.right.dtype().itemsize();
        if steps * row <= target.shared_bytes {
            return Some(steps);
        }
        // Half of the memory is left to accumulators. Shorter blocks carry them too often.
        let least = target.tuning.cpu.carried_steps as usize * 8;
        let divisors = (least..steps).rev().filter(|n| steps.is_multiple_of(*n));
        divisors.filter(|_| self.blocks).find(|n| n * row <= target.shared_bytes / 2)
    }

    /// Returns a tile with its estimated cost, if its panel fits and it needs little padding.
    fn tile(&self, height: usize, vectors: usize) -> Option<(f64, PanelTile)> {
        let (target, tuning) = (self.target, &self.target.tuning.cpu);
        let (rows, columns) = (extent(&self.p.row), extent(&self.p.column));
        let width = vectors * lanes(self.p, target);
        let wide = TileFit::of(columns, width, tuning.padded_columns, self.overlap[0], target);
        let high = TileFit::of(rows, height, tuning.padded_rows, self.overlap[1], target);
        let steps = self.steps(width + if high.padded { height } else { 0 })?;
        if !wide.is_within_limit || !high.is_within_limit {
            return None;
        }
        let is_carried = steps < extent(&self.p.inner);
        let carried = if is_carried { tuning.carried_steps / steps as f64 } else { 0.0 };
        // A multiplication and what is loaded for it, with those that padding adds.
        let cost = (1.0 + (height + vectors) as f64 / (height * vectors) as f64)
            * wide.cost
            * high.cost
            * (1.0 + carried);
        // Threads take chunks of one axis.
        let parts = self.others.iter().copied().chain([wide.parts, high.parts]);
        let shared = parts.map(|n| balance(n, target)).fold(0.0, f64::max);
        Some((cost / shared, PanelTile { height, vectors, steps }))
    }
}

/// Returns the register tile of the lowest estimated cost. Only with `blocks` a panel may have a
/// part of the sum.
fn panel_tile(
    facts: &KernelFacts,
    p: &MatmulPattern,
    blocks: bool,
    target: &Target,
) -> Option<PanelTile> {
    let tuning = &target.tuning.cpu;
    if lanes(p, target) < tuning.min_panel_lanes {
        return None;
    }
    let outputs = || facts.axes.iter().filter(|r| is_output(r));
    let uses: usize = outputs().filter(|r| !p.right.uses_range(r.range_id())).map(extent).product();
    let least = match kernel::stride(&p.right, &p.column) {
        Some(1) => tuning.panel_uses,
        _ => tuning.strided_panel_uses,
    };
    let others = outputs().filter(|r| **r != p.row && **r != p.column).map(extent).collect();
    // A tile of two elements stands for all that do not divide the axis.
    let overlap = [&p.column, &p.row].map(|r| (2..5).any(|n| overlaps(facts, r, n, target)));
    let search = TileSearch { p, target, blocks, overlap, others };
    // Registers for accumulators, for a row of loaded vectors and for one broadcast value.
    let registers = target.machine.vector_registers - tuning.spare_registers;
    let [most_vectors, most_rows] = tuning.panel_tile;
    let most_rows = if blocks { tuning.blocked_rows } else { most_rows };
    let mut best: Option<(f64, PanelTile)> = None;
    for vectors in (1..=most_vectors).rev() {
        let fits = |rows: &usize| rows * vectors + vectors < registers && uses >= rows * least;
        for found in (2..=most_rows).filter(fits).filter_map(|rows| search.tile(rows, vectors)) {
            if best.as_ref().is_none_or(|b| found.0 < b.0) {
                best = Some(found);
            }
        }
    }
    let (_, tile) = best?;
    (tile.height * tile.vectors >= tuning.min_panel_tile).then_some(tile)
}

/// Returns the number of threads that work at a time, on average, on an axis of tiles.
fn balance(tiles: usize, target: &Target) -> f64 {
    tiles as f64 / tiles.div_ceil(target.tuning.cpu.reference_threads) as f64
}

/// The division of an axis into tiles of equal size.
struct TileFit {
    /// The number of parts.
    parts: usize,
    /// True if the axis is padded.
    padded: bool,
    /// True if the padding is within the limit of the tuning.
    is_within_limit: bool,
    /// The work relative to that without padding.
    cost: f64,
}

impl TileFit {
    fn of(size: usize, part: usize, padding: f64, overlap: bool, target: &Target) -> TileFit {
        let whole = size.next_multiple_of(part);
        let padded = whole != size && !(overlap && size > part);
        TileFit {
            parts: whole / part,
            padded,
            is_within_limit: (whole - size) as f64
                <= size as f64 * target.tuning.cpu.padding_fraction,
            cost: whole as f64 / size as f64 * if padded { padding } else { 1.0 },
        }
    }
}
