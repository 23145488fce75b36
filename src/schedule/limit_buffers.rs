//! Buffer limits. Input: stores over ranges. Output: the same, with those split that read more
//! buffers than a kernel of their device may have: part of the value is stored by an earlier kernel
//! and loaded in its place.
//!
//! ```text
//! out[i] = a[i] + b[i] + c[i]   =>   t[i] = a[i] + b[i];  out[i] = t[i] + c[i]
//! ```
//!
//! **Invariant:** values do not change. A product inside a sum stays where it is, because the two
//! may be rounded as one.

use super::assign_ranges::{PendingStore, RangeAssignment, buffer_param};
use super::fuse::{KernelGroup, loaded, loads_under};
use super::index::{flat, load};
use super::{BufferInfo, UNPLACED, scan};
use crate::ir::{AxisKind, DeviceName, Op, UOp, toposort};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Limits of one kernel of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelLimits {
    /// Maximum number of buffers.
    pub buffers: usize,
    /// Largest buffer in bytes; a larger one counts as several.
    pub bytes: usize,
}

impl KernelLimits {
    /// No limits.
    pub const UNLIMITED: KernelLimits = KernelLimits { buffers: usize::MAX, bytes: usize::MAX };

    /// Returns the limits of a target.
    pub fn of(target: &Target) -> KernelLimits {
        KernelLimits { buffers: target.max_buffers, bytes: target.buffer_bytes }
    }

    /// Returns true if every kernel is within the limits.
    pub fn is_unlimited(&self) -> bool {
        *self == KernelLimits::UNLIMITED
    }

    /// Returns the number of buffers that one of `bytes` bytes counts as.
    pub fn count(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.bytes.max(1)).max(1)
    }
    /// Returns true if the groups fit in one kernel.
    pub fn fits(&self, buffers: &[Option<BufferInfo>], groups: [&KernelGroup; 2]) -> bool {
        if self.is_unlimited() {
            return true;
        }
        let all: BTreeSet<usize> =
            groups.iter().flat_map(|g| g.reads.iter().copied().chain(g.writes())).collect();
        let nodes = groups.iter().flat_map(|g| g.ranges.iter().chain(g.values()));
        self.buffer_count(buffers, all.into_iter()) + values_argument(nodes) <= self.buffers
    }

    /// Returns the number of buffers that these count as.
    fn buffer_count(
        &self,
        buffers: &[Option<BufferInfo>],
        numbers: impl Iterator<Item = usize>,
    ) -> usize {
        let bytes = |n: usize| buffers[n].as_ref().map_or(0, |b| b.len * b.dtype.itemsize());
        numbers.map(|n| self.count(bytes(n))).sum()
    }
}

/// Returns 1 if a kernel has variables, whose values are one more argument, else 0.
fn values_argument<'a>(parts: impl Iterator<Item = &'a UOp>) -> usize {
    toposort(parts).iter().any(|u| u.op() == Op::Var) as usize
}

/// Maximum number of candidates that are tried per split, the most promising first. The limit keeps
/// the time of a split linear in the size of the kernel.
const MAX_CANDIDATES: usize = 32;

/// Splits stores that read too many buffers. New buffers are numbered after all others.
pub fn limit_buffers(
    ranged: &mut RangeAssignment,
    buffers: &mut Vec<Option<BufferInfo>>,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    limits_of: &dyn Fn(&DeviceName) -> KernelLimits,
) {
    let all = std::mem::take(&mut ranged.stored);
    for mut stored in all {
        let device = device_of(&stored.node);
        let limits = limits_of(&device);
        let count = |s: &PendingStore, buffers: &[Option<BufferInfo>]| {
            let of_variables = values_argument(s.ranges.iter().chain([&s.value]));
            let read = s.update.iter().chain([&s.value, &s.index]).flat_map(loads_under);
            let all: BTreeSet<usize> = read.chain([s.buffer]).collect();
            limits.buffer_count(buffers, all.into_iter()) + of_variables
        };
        while !limits.is_unlimited() && count(&stored, buffers) > limits.buffers {
            let next = &mut ranged.next_range;
            let Some(part) = split_off(&mut stored, buffers, &device, limits, next) else { break };
            ranged.stored.push(part);
        }
        ranged.stored.push(stored);
    }
    ranged.count = buffers.len();
}

/// Returns the buffers that each node reads, if there are at most `most`.
fn reads_up_to(value: &UOp, most: usize) -> FxHashMap<u64, Option<BTreeSet<usize>>> {
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

/// A part of a value that could be stored on its own.
struct StorablePart {
    value: UOp,
    /// The open ranges of the value, outermost first.
    ranges: Vec<UOp>,
    /// Number of its ranges that reduces close.
    inner: usize,
    /// Number of buffers that it reads.
    reads: usize,
}

/// Returns the parts of a store's value that fit in a kernel, the most promising first.
fn parts(
    s: &PendingStore,
    buffers: &[Option<BufferInfo>],
    limits: KernelLimits,
) -> Vec<StorablePart> {
    let own: FxHashSet<u32> = s.ranges.iter().map(UOp::range_id).collect();
    let few = reads_up_to(&s.value, limits.buffers);
    let mut parts: Vec<StorablePart> = Vec::new();
    for value in values_of(&s.value) {
        let Some(reads) = few[&value.id()].as_ref().filter(|n| n.len() > 1) else { continue };
        let ranges = open_ranges(&value, &s.ranges);
        // A reduce whose extent depends on outer ranges has no rectangular buffer.
        if ranges.iter().any(|r| !r.expect_range().extent.ranges().is_empty()) {
            continue;
        }
        let inner = ranges.iter().filter(|r| !own.contains(&r.range_id())).count();
        let is_term = value.op() == Op::Mul && inner > 0;
        let bytes = value.dtype().itemsize() * extents(&ranges).iter().product::<usize>();
        let count = limits.buffer_count(buffers, reads.iter().copied())
            + limits.count(bytes)
            + values_argument(ranges.iter().chain([&value]));
        if value != s.value && count <= limits.buffers && !is_term {
            parts.push(StorablePart { value, ranges, inner, reads: reads.len() });
        }
    }
    // Values outside reduces first, because they are smaller; then those with most reads.
    parts.sort_by_key(|part| (part.inner, std::cmp::Reverse(part.reads)));
    parts
}

/// Moves a part of a value to a store of its own, so that the rest reads fewer buffers, and returns
/// that store. `None` if there is no such part.
fn split_off(
    s: &mut PendingStore,
    buffers: &mut Vec<Option<BufferInfo>>,
    device: &DeviceName,
    limits: KernelLimits,
    next_range: &mut u32,
) -> Option<PendingStore> {
    let (before, number) = (loads_under(&s.value).len(), buffers.len());
    let mut candidates = parts(s, buffers, limits).into_iter().take(MAX_CANDIDATES);
    let (part, shape, rest) = candidates.find_map(|part| {
        let shape = extents(&part.ranges);
        let len = shape.iter().product();
        let buffer = buffer_param(number, len, part.value.dtype());
        let stored = load(&buffer, len, flat(&part.ranges, &shape), &UOp::truth(true));
        let rest = s.value.substitute(&FxHashMap::from_iter([(part.value.clone(), stored)]));
        (loads_under(&rest).len() < before).then_some((part, shape, rest))
    })?;
    let in_order = scan::has_scan([&part.value]);
    let ranges: Vec<UOp> = (part.ranges.iter().zip(*next_range..))
        .map(|(r, id)| {
            let kind = if in_order { r.range_kind() } else { AxisKind::Global };
            UOp::range(r.expect_range().extent, id, kind)
        })
        .collect();
    *next_range += ranges.len() as u32;
    let map = part.ranges.iter().cloned().zip(ranges.iter().cloned()).collect();
    let (dtype, len) = (part.value.dtype(), shape.iter().product());
    buffers.push(Some(BufferInfo { dtype, len, device: device.clone(), role: UNPLACED }));
    s.value = rest;
    Some(PendingStore {
        node: s.node.clone(),
        buffer: number,
        index: flat(&ranges, &shape),
        ranges,
        value: part.value.substitute(&map),
        update: None,
    })
}

/// Returns the nodes that a value is computed from, without index expressions.
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

/// Returns the open ranges of an expression: those of the store, outermost first, then those of
/// reduces around it.
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
