//! Geometry of staged tiles: which part of an input a staged load uses below its loop, and how the
//! tile is laid out in shared memory.
//!
//! A staged load carries the id of the loop at which its tile is copied. Ranges that are open there
//! are constant during one copy. All other ranges that the load uses are axes of the tile: inner
//! loops, threads of the workgroup and register copies. Later Opts split ranges further, so the
//! tile is derived again after each of them; the pass `stage` of lowering builds it.

use super::{axes, extent, index_stride, is_of_chunk, is_symbolic};
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::target::Target;

/// One axis of a tile.
#[derive(Clone, Debug)]
pub struct TileAxis {
    /// The range of the kernel.
    pub range: UOp,
    /// Its stride in the input, if that is constant.
    pub input_stride: Option<i64>,
    /// Its stride in the tile.
    pub tile_stride: usize,
}

/// The copy that a staged load reads.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The load.
    pub load: UOp,
    /// The loops in each of whose iterations the tile is copied.
    pub loops: Vec<UOp>,
    /// The axes, slowest first.
    pub axes: Vec<TileAxis>,
    /// Elements, padding included.
    pub len: usize,
}

impl Tile {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.len.saturating_mul(self.load.dtype().itemsize())
    }
}

/// Returns the tiles of a kernel's staged loads in topological order, or the reason why one of
/// them cannot be built.
pub fn tiles(ast: &UOp, target: &Target) -> Result<Vec<Tile>, String> {
    let axes = axes(ast);
    let order = ast.toposort();
    let staged = order.iter().filter(|u| u.op() == Op::Load);
    staged.filter_map(|u| Some(tile_of(u, staged_at(u)?, &axes, target))).collect()
}

/// Returns the id of the loop at which the tile of a staged load is copied.
pub fn staged_at(load: &UOp) -> Option<u32> {
    match load.arg() {
        Arg::LoadHint(hint) => hint.stage_at,
        _ => None,
    }
}

/// Derives the tile of a load that is staged at the loop with the id `at`.
pub fn tile_of(load: &UOp, at: u32, axes: &[UOp], target: &Target) -> Result<Tile, String> {
    let is_loop = |r: &UOp| r.range_id() == at && !r.range_kind().is_copied();
    let Some(at) = axes.iter().position(is_loop) else {
        return Err("the loop of the staged load no longer exists".into());
    };
    let is_data = |u: &UOp| matches!(u.op(), Op::Load | Op::Reduce);
    if load.src().iter().any(|s| s.toposort().iter().any(is_data)) {
        return Err("the index or mask of the load depends on data".into());
    }
    let fixed = |i: usize| match axes[i].range_kind() {
        AxisKind::Thread => true,
        AxisKind::Global | AxisKind::Loop => target.grid || i <= at,
        AxisKind::Reduce => i <= at,
        _ => false,
    };
    let used: Vec<usize> =
        (0..axes.len()).filter(|i| load.uses_range(axes[*i].range_id())).collect();
    // Where the last chunk of an axis is shorter, its loop is one on every target.
    let is_loop = |r: &UOp| {
        let runs_in_order = !target.grid || is_of_chunk(r);
        r.range_kind() == AxisKind::Reduce || (runs_in_order && r.range_kind() != AxisKind::Thread)
    };
    let loops: Vec<UOp> =
        used.iter().filter(|i| fixed(**i)).map(|i| axes[*i].clone()).filter(is_loop).collect();
    let index = load.expect_load().place.index;
    let mut list: Vec<TileAxis> = used
        .iter()
        .filter(|i| !fixed(**i))
        .map(|i| TileAxis {
            range: axes[*i].clone(),
            input_stride: index_stride(index, &axes[*i]),
            tile_stride: 0,
        })
        .collect();
    if list.is_empty() {
        return Err("the load uses no range below the loop".into());
    }
    if list.iter().any(|a| is_symbolic(&a.range)) {
        return Err("the last chunk of an axis of the tile is shorter".into());
    }
    // With register tiling, the elements that one step loads are adjacent; otherwise the tile keeps
    // the order of the input.
    let copies = list.iter().any(|a| a.range.range_kind() == AxisKind::Upcast);
    let is_row = |a: &TileAxis| !(copies && a.range.range_kind().is_reduce());
    let far =
        |a: &TileAxis| a.input_stride.map(i64::unsigned_abs).filter(|s| *s > 0).unwrap_or(u64::MAX);
    list.sort_by_key(|a| (is_row(a), std::cmp::Reverse(far(a))));
    let across = target.grid && list.iter().min_by_key(|a| far(a)).is_some_and(|a| !is_row(a));
    let mut len = 1usize;
    let mut padded = !across;
    for a in list.iter_mut().rev() {
        if !padded && !is_row(a) {
            len += (target.tuning.gpu.row_padding / load.dtype().itemsize()).max(1);
            padded = true;
        }
        a.tile_stride = len;
        len = len.saturating_mul(extent(&a.range));
    }
    Ok(Tile { load: load.clone(), loops, axes: list, len })
}
