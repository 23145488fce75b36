//! Which part of an input a staged load uses below its loop: the tile that is copied, and how it
//! lies in local memory.
//!
//! A staged load carries the number of a range, the loop at which its tile is copied. Ranges that
//! are open there are fixed for one copy; all others that the load uses are axes of the tile: what
//! is left of the loops, the threads of a workgroup, and copies in registers. Later optimisations
//! cut ranges further, so the tile is looked at anew each time, and built by the pass `stage` of
//! the lowering.

use super::{Kernel, extent, vector};
use crate::ir::{Arg, AxisKind, LoadHint, Op, UOp};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Bytes between rows of a tile that is written across its rows, so that threads side by side do
/// not write to one bank.
const APART: usize = 16;

/// One axis of a tile.
#[derive(Clone, Debug)]
pub struct TileAxis {
    /// The range of the kernel.
    pub range: UOp,
    /// Its step in the input, where there is one.
    pub global: Option<i64>,
    /// Its step in the tile.
    pub local: usize,
}

/// What a staged load is copied into.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The load.
    pub load: UOp,
    /// The loops in which it is copied anew.
    pub loops: Vec<UOp>,
    /// The axes, slowest first.
    pub axes: Vec<TileAxis>,
    /// Elements in memory.
    pub len: usize,
}

impl Tile {
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.len.saturating_mul(self.load.dtype().itemsize())
    }
}

/// The tiles of a kernel's staged loads, in the order of its graph, or why there can be none.
pub fn tiles(kernel: &Kernel, target: &Target) -> Result<Vec<Tile>, String> {
    let axes = kernel.axes();
    let order = kernel.ast.toposort();
    let staged = order.iter().filter(|u| u.op() == Op::Load);
    staged.filter_map(|u| Some(tile(u, at(u)?, &axes, target))).collect()
}

/// The number of the loop at which a load is copied, if it is.
pub fn at(load: &UOp) -> Option<u32> {
    match load.arg() {
        Arg::LoadHint(hint) => hint.stage_at,
        _ => None,
    }
}

/// Marks the loads of an argument that use something below a loop.
pub(super) fn mark(kernel: &Kernel, at: &UOp, slot: usize, target: &Target) -> Result<UOp, String> {
    if !matches!(at.range_kind(), AxisKind::Global | AxisKind::Loop | AxisKind::Reduce) {
        return Err(format!("the axis is of kind {:?}, which is no loop", at.range_kind()));
    }
    let of_slot = |buffer: &UOp| matches!(buffer.arg(), Arg::Global { slot: s, .. } if *s == slot);
    if kernel.ast.src().iter().any(|s| of_slot(&s.src()[0].src()[0])) {
        return Err(format!("the kernel writes argument {slot}"));
    }
    let order = kernel.ast.toposort();
    let loads: Vec<&UOp> =
        order.iter().filter(|u| u.op() == Op::Load && of_slot(&u.src()[0].src()[0])).collect();
    if loads.is_empty() {
        return Err(format!("nothing is loaded from argument {slot}"));
    }
    let axes = kernel.axes();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut why = String::new();
    for u in loads {
        if *u.arg() != Arg::None {
            why = format!("argument {slot} is staged already");
            continue;
        }
        match tile(u, at.range_id(), &axes, target) {
            Ok(_) => drop(map.insert(
                u.clone(),
                UOp::new(
                    Op::Load,
                    u.dtype(),
                    u.src().iter().cloned().collect::<crate::ir::Src>(),
                    Arg::LoadHint(LoadHint { stage_at: Some(at.range_id()), prefetch_in: None }),
                ),
            )),
            Err(e) => why = e,
        }
    }
    if map.is_empty() { Err(why) } else { Ok(kernel.ast.substitute(&map)) }
}

fn tile(load: &UOp, at: u32, axes: &[UOp], target: &Target) -> Result<Tile, String> {
    let Some(at) = axes.iter().position(|r| {
        r.range_id() == at && !matches!(r.range_kind(), AxisKind::Upcast | AxisKind::Unroll)
    }) else {
        return Err("the loop of a staged load is gone".into());
    };
    if load
        .src()
        .iter()
        .any(|s| s.toposort().iter().any(|u| matches!(u.op(), Op::Load | Op::Reduce)))
    {
        return Err("what is loaded depends on data".into());
    }
    let fixed = |i: usize| match axes[i].range_kind() {
        AxisKind::Thread => true,
        AxisKind::Global | AxisKind::Loop => target.grid || i <= at,
        AxisKind::Reduce => i <= at,
        _ => false,
    };
    let used: Vec<usize> =
        (0..axes.len()).filter(|i| load.uses_range(axes[*i].range_id())).collect();
    let is_loop = |r: &UOp| {
        r.range_kind() == AxisKind::Reduce || (!target.grid && r.range_kind() != AxisKind::Thread)
    };
    let loops: Vec<UOp> =
        used.iter().filter(|i| fixed(**i)).map(|i| axes[*i].clone()).filter(is_loop).collect();
    let index = &load.src()[0].src()[1];
    let mut list: Vec<TileAxis> = used
        .iter()
        .filter(|i| !fixed(**i))
        .map(|i| TileAxis {
            range: axes[*i].clone(),
            global: vector::step(index, &axes[*i]),
            local: 0,
        })
        .collect();
    if list.is_empty() {
        return Err("nothing of it is used below the loop".into());
    }
    // Where a thread has several outputs, what they load at a time lies side by side; else the
    // input's own order is kept.
    let copies = list.iter().any(|a| a.range.range_kind() == AxisKind::Upcast);
    let is_row = |a: &TileAxis| !(copies && a.range.range_kind().is_reduce());
    let far = |a: &TileAxis| a.global.map(i64::unsigned_abs).filter(|s| *s > 0).unwrap_or(u64::MAX);
    list.sort_by_key(|a| (is_row(a), std::cmp::Reverse(far(a))));
    let across = target.grid && list.iter().min_by_key(|a| far(a)).is_some_and(|a| !is_row(a));
    let mut len = 1usize;
    let mut padded = !across;
    for a in list.iter_mut().rev() {
        if !padded && !is_row(a) {
            len += (APART / load.dtype().itemsize()).max(1);
            padded = true;
        }
        a.local = len;
        len = len.saturating_mul(extent(&a.range));
    }
    Ok(Tile { load: load.clone(), loops, axes: list, len })
}
