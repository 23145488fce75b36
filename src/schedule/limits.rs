//! Buffer limits. In come stores over ranges; out come the same, with those split that read more
//! buffers than a kernel of their device may have: part of the value is stored by an earlier kernel
//! and loaded in its place.
//!
//! **Invariant:** values do not change. A product inside a sum stays where it is, because the two
//! may be rounded as one.

use super::cost::Costs;
use super::fuse::{KernelGroup, loaded};
use super::index::{flat, load};
use super::ranges::{PendingStore, RangeAssignment};
use super::{BufferInfo, UNPLACED, scan};
use crate::ir::{Arg, AxisKind, DeviceName, Op, Src, UOp, toposort};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Limits of the kernels of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelLimits {
    /// Most buffers.
    pub buffers: usize,
    /// Largest buffer in bytes; a larger one counts as several.
    pub bytes: usize,
    /// Threads that saturate the device; 0 for CPUs.
    pub wide: usize,
    /// Costs of kernels.
    pub costs: Costs,
}

impl KernelLimits {
    /// No limits.
    pub const ANY: KernelLimits =
        KernelLimits { buffers: usize::MAX, bytes: usize::MAX, wide: 0, costs: Costs::FIXED };

    /// Returns the limits and costs of a target.
    pub fn of(target: &Target) -> KernelLimits {
        KernelLimits {
            buffers: target.max_buffers,
            bytes: target.buffer_bytes,
            wide: target.tuning.saturating_threads,
            costs: Costs::of(target),
        }
    }

    /// Returns true if every kernel is within the limits.
    pub fn is_unlimited(&self) -> bool {
        KernelLimits { costs: Costs::FIXED, ..*self } == KernelLimits::ANY
    }

    /// Number of buffers that one of `bytes` bytes counts as.
    pub fn count(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.bytes.max(1)).max(1)
    }
    /// True if the groups fit in one kernel.
    pub fn takes(&self, buffers: &[Option<BufferInfo>], groups: [&KernelGroup; 2]) -> bool {
        let all = || {
            groups
                .iter()
                .flat_map(|g| g.reads.iter().copied().chain(g.writes()))
                .collect::<BTreeSet<usize>>()
        };
        let of_variables = || {
            values_argument(
                groups.iter().flat_map(|g| g.ranges.iter().chain(g.stores.iter().map(|s| &s.2))),
            )
        };
        self.is_unlimited() || self.sum(buffers, all().into_iter()) + of_variables() <= self.buffers
    }
    /// Number of buffers that these count as.
    fn sum(&self, buffers: &[Option<BufferInfo>], numbers: impl Iterator<Item = usize>) -> usize {
        let bytes = |n: usize| buffers[n].as_ref().map_or(0, |b| b.len * b.dtype.itemsize());
        numbers.map(|n| self.count(bytes(n))).sum()
    }
}

/// 1 if a kernel has variables, whose values are one more argument; 0 otherwise.
fn values_argument<'a>(parts: impl Iterator<Item = &'a UOp>) -> usize {
    toposort(parts).iter().any(|u| u.op() == Op::Var) as usize
}

/// Candidates that are tried per split, the most promising first.
const TRIED: usize = 32;

/// Splits stores that read too many buffers. New buffers are numbered after all others.
pub fn split(
    ranged: &mut RangeAssignment,
    buffers: &mut Vec<Option<BufferInfo>>,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) {
    let all = std::mem::take(&mut ranged.stored);
    for mut stored in all {
        let device = device_of(&stored.node);
        let room = room(&device);
        let count = |s: &PendingStore, buffers: &[Option<BufferInfo>]| {
            let of_variables = values_argument(s.ranges.iter().chain([&s.value]));
            let place = s.update.iter().chain([&s.value, &s.index]);
            let all: BTreeSet<usize> = place.flat_map(reads).chain([s.number]).collect();
            room.sum(buffers, all.into_iter()) + of_variables
        };
        while !room.is_unlimited() && count(&stored, buffers) > room.buffers {
            let Some(part) = cut(&mut stored, buffers, &device, room, &mut ranged.next_range)
            else {
                break;
            };
            ranged.stored.push(part);
        }
        ranged.stored.push(stored);
    }
    ranged.count = buffers.len();
}

/// Buffers that a value reads.
fn reads(value: &UOp) -> BTreeSet<usize> {
    value.toposort().iter().filter(|u| u.op() == Op::Load).map(loaded).collect()
}

/// The buffers that each node reads, if there are at most `most`.
fn few_reads(value: &UOp, most: usize) -> FxHashMap<u64, Option<BTreeSet<usize>>> {
    let mut few: FxHashMap<u64, Option<BTreeSet<usize>>> = FxHashMap::default();
    for u in value.toposort() {
        let mut set =
            Some(if u.op() == Op::Load { BTreeSet::from([loaded(&u)]) } else { BTreeSet::new() });
        for s in u.src() {
            set = set.zip(few[&s.id()].as_ref()).map(|(mut a, b)| {
                a.extend(b);
                a
            });
        }
        few.insert(u.id(), set.filter(|s| s.len() <= most));
    }
    few
}

/// Moves a part of a value to a store of its own, so that the rest reads fewer buffers, and returns
/// that store. `None` if there is no such part.
fn cut(
    s: &mut PendingStore,
    buffers: &mut Vec<Option<BufferInfo>>,
    device: &DeviceName,
    room: KernelLimits,
    next: &mut u32,
) -> Option<PendingStore> {
    let before = reads(&s.value).len();
    let own: FxHashSet<u32> = s.ranges.iter().map(UOp::range_id).collect();
    let few = few_reads(&s.value, room.buffers);
    let mut places: Vec<(usize, usize, UOp, Vec<UOp>)> = Vec::new();
    for u in values_of(&s.value) {
        let Some(Some(needs)) =
            few.get(&u.id()).filter(|n| n.as_ref().is_some_and(|n| n.len() > 1))
        else {
            continue;
        };
        let ranges = open_ranges(&u, &s.ranges);
        // A reduce whose extent depends on outer ranges has no rectangular buffer.
        if ranges.iter().any(|r| !r.expect_range().extent.ranges().is_empty()) {
            continue;
        }
        let inner = ranges.iter().filter(|r| !own.contains(&r.range_id())).count();
        let fused = u.op() == Op::Mul && inner > 0;
        let bytes = u.dtype().itemsize() * extents(&ranges).iter().product::<usize>();
        let of_variables = values_argument(ranges.iter().chain([&u]));
        let fits = room.sum(buffers, needs.iter().copied()) + room.count(bytes) + of_variables
            <= room.buffers;
        if u != s.value && fits && !fused {
            places.push((inner, needs.len(), u, ranges));
        }
    }
    // Values outside reduces first, because they are smaller; then those that save most buffers.
    places.sort_by_key(|(inner, needs, ..)| (*inner, std::cmp::Reverse(*needs)));
    let number = buffers.len();
    for (_, _, u, ranges) in places.into_iter().take(TRIED) {
        let shape = extents(&ranges);
        let len = shape.iter().product();
        let buffer = UOp::new(
            Op::Param,
            u.dtype(),
            Src::new(),
            Arg::Param { slot: number, len, device: DeviceName::new("") },
        );
        let there = load(&buffer, len, flat(&ranges, &shape), &UOp::truth(true));
        let value = s.value.substitute(&FxHashMap::from_iter([(u.clone(), there)]));
        if reads(&value).len() >= before {
            continue;
        }
        let in_order = scan::has_scan([&u]);
        let mut range = |r: &UOp| {
            *next += 1;
            UOp::range(
                r.expect_range().extent,
                *next - 1,
                if in_order { r.range_kind() } else { AxisKind::Global },
            )
        };
        let new: Vec<UOp> = ranges.iter().map(&mut range).collect();
        let map: FxHashMap<UOp, UOp> = ranges.iter().cloned().zip(new.iter().cloned()).collect();
        buffers.push(Some(BufferInfo {
            dtype: u.dtype(),
            len,
            device: device.clone(),
            role: UNPLACED,
        }));
        s.value = value;
        return Some(PendingStore {
            node: s.node.clone(),
            number,
            index: flat(&new, &shape),
            ranges: new,
            value: u.substitute(&map),
            update: None,
        });
    }
    None
}

/// Nodes that a value is computed from, without index expressions.
fn values_of(value: &UOp) -> Vec<UOp> {
    let (mut open, mut seen, mut found) = (vec![value.clone()], FxHashSet::default(), Vec::new());
    while let Some(u) = open.pop() {
        if !seen.insert(u.id()) || matches!(u.op(), Op::Load | Op::Const | Op::Range) {
            continue;
        }
        let own = if u.op() == Op::Reduce { 1 } else { u.src().len() };
        open.extend(u.src().iter().take(own).cloned());
        found.push(u);
    }
    found
}

/// The open ranges of an expression: those of the store, outermost first, then those of reduces
/// around it.
fn open_ranges(u: &UOp, outer: &[UOp]) -> Vec<UOp> {
    let mut ranges: Vec<UOp> =
        outer.iter().filter(|r| u.uses_range(r.range_id())).cloned().collect();
    let mut inner: Vec<UOp> = u
        .toposort()
        .into_iter()
        .filter(|r| r.op() == Op::Range && u.uses_range(r.range_id()) && !outer.contains(r))
        .collect();
    inner.sort_by_key(UOp::range_id);
    ranges.extend(inner);
    ranges
}

fn extents(ranges: &[UOp]) -> Vec<usize> {
    ranges.iter().map(|r| r.expect_range().extent.vmax() as usize).collect()
}
