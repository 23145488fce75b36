//! Matrix products on a CPU: a register tile of the output, and a panel of the matrix that runs
//! along the vectors, which is copied once for all rows of the other matrix.

use super::super::facts::KernelFacts;
use super::super::matmul::MatmulPattern;
use super::super::{argument, try_apply};
use super::chunks::chunks;
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
    if p.left.dtype() != DType::F32 || p.right.dtype() != DType::F32 {
        return None;
    }
    let (height, vectors) = panel_tile(facts, &p, target)?;
    let lanes = target.vector_bytes / 4;
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
    chunks(&mut k, usize::MAX, target);
    let inner = k.axes().iter().rposition(is_output)?;
    // The masks of padded rows are evaluated by a copy too.
    let is_padded = fit_of(facts, &p.row, height, target).fit == Fit::Pads;
    let rows = is_padded.then_some(&p.left);
    for load in rows.into_iter().chain([&p.right]) {
        k = k.apply(&Opt::new(OptOp::Stage, inner, argument(load)?), target).ok()?;
    }
    Some(k)
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

/// Returns the rows and vectors of the register tile of the lowest estimated cost.
fn panel_tile(facts: &KernelFacts, p: &MatmulPattern, target: &Target) -> Option<(usize, usize)> {
    let lanes = target.vector_bytes / 4;
    let (rows, columns, steps) = (extent(&p.row), extent(&p.column), extent(&p.inner));
    // Registers for accumulators, for a row of loaded vectors and for one broadcast value.
    let registers = target.machine.vector_registers - target.tuning.cpu.spare_registers;
    let uses: usize = facts
        .axes
        .iter()
        .filter(|r| is_output(r) && !p.right.uses_range(r.range_id()))
        .map(extent)
        .product();
    let least = if kernel::stride(&p.right, &p.column) == Some(1) {
        target.tuning.cpu.panel_uses
    } else {
        target.tuning.cpu.strided_panel_uses
    };
    let others: Vec<usize> = facts
        .axes
        .iter()
        .filter(|r| is_output(r) && **r != p.row && **r != p.column)
        .map(extent)
        .collect();
    let [most_vectors, most_rows] = target.tuning.cpu.panel_tile;
    // A tile of two elements stands for all that do not divide the axis.
    let [wide_overlap, high_overlap] =
        [&p.column, &p.row].map(|r| (2..5).any(|n| overlaps(facts, r, n, target)));
    let mut best: Option<(f64, usize, usize)> = None;
    for vectors in (1..=most_vectors).rev().filter(|_| lanes >= target.tuning.cpu.min_panel_lanes) {
        let padding = target.tuning.cpu.padded_columns;
        let wide = TileFit::of(columns, vectors * lanes, padding, wide_overlap, target);
        for height in
            (2..=most_rows).filter(|r| r * vectors + vectors < registers && uses >= r * least)
        {
            let padding = target.tuning.cpu.padded_rows;
            let high = TileFit::of(rows, height, padding, high_overlap, target);
            let copied = vectors * lanes + if high.padded { height } else { 0 };
            if !wide.is_within_limit
                || !high.is_within_limit
                || steps * copied * 4 > target.shared_bytes
            {
                continue;
            }
            // A multiplication and what is loaded for it, with those that padding adds.
            let cost = (1.0 + (height + vectors) as f64 / (height * vectors) as f64)
                * wide.cost
                * high.cost;
            // Threads take chunks of one axis.
            let shared = others
                .iter()
                .copied()
                .chain([wide.parts, high.parts])
                .map(|n| balance(n, target))
                .fold(0.0, f64::max);
            let cost = cost / shared;
            if best.is_none_or(|b| cost < b.0) {
                best = Some((cost, height, vectors));
            }
        }
    }
    let (_, height, vectors) = best.filter(|b| b.1 * b.2 >= target.tuning.cpu.min_panel_tile)?;
    Some((height, vectors))
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
