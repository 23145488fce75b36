//! Fusion of stores into kernels: stores that can share a loop nest share it, buffers become
//! numbered arguments, and ranges get their final ids. Equal kernels from different parts of the
//! graph are the same interned node.

use super::ranges::{RangeAssignment, buffer_param};
use super::scan;
use crate::ir::typed::{Reduce, Store};
use crate::ir::{AxisKind, DeviceName, Op, Src, UOp, substitute_all, toposort};
use crate::rewrite::Rules;
use crate::rewrite::rules;
use crate::symbolic::simplify;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Largest number of buffers of a fused kernel. Devices may have lower limits.
const MOST_MERGED_BUFFERS: usize = 31;

/// Groups that are tried per store, the latest first: an unbounded number would make planning
/// quadratic.
const TRIED: usize = 64;

/// Largest number of nodes of a fused kernel, so that fusion does not undo the splits of `ranges`.
const MOST_MERGED_NODES: usize = 2 * super::cost::MOST_EVALUATIONS;

/// A store of a group.
#[derive(Clone)]
pub struct BufferStore {
    /// Number of the buffer.
    pub buffer: usize,
    /// Flat index of the element.
    pub index: UOp,
    /// Value of the element.
    pub value: UOp,
}

/// Stores that share a loop nest.
#[derive(Clone)]
pub struct KernelGroup {
    /// Device that runs it.
    pub device: DeviceName,
    /// The shared ranges.
    pub ranges: Vec<UOp>,
    /// The stores, in the order in which they were fused.
    pub stores: Vec<BufferStore>,
    /// Mask of the store, for a group of one store that updates what another has written; its loops
    /// may be ordered.
    pub update: Option<UOp>,
    /// Buffers that the values load.
    pub reads: BTreeSet<usize>,
    /// Buffers that are loaded inside a reduce.
    reduced: BTreeSet<usize>,
    /// Nodes of its values.
    size: usize,
}

impl KernelGroup {
    /// Makes a group of these stores.
    fn new(
        device: DeviceName,
        ranges: Vec<UOp>,
        stores: Vec<BufferStore>,
        update: Option<UOp>,
    ) -> KernelGroup {
        let (reads, reduced) = (BTreeSet::new(), BTreeSet::new());
        let mut group = KernelGroup { device, ranges, stores, update, reads, reduced, size: 0 };
        group.refresh();
        group
    }

    /// Returns the buffers that it writes.
    pub fn writes(&self) -> impl Iterator<Item = usize> + '_ {
        self.stores.iter().map(|s| s.buffer)
    }

    /// Returns the values that it stores.
    pub fn values(&self) -> impl Iterator<Item = &UOp> {
        self.stores.iter().map(|s| &s.value)
    }

    fn extents(&self) -> Vec<UOp> {
        self.ranges.iter().map(|r| r.expect_range().extent.clone()).collect()
    }

    /// Returns true if no loop has to run in order.
    fn is_unordered(&self) -> bool {
        self.ranges.iter().all(|r| r.range_kind() == AxisKind::Global)
    }

    /// Returns the bytes that its longest reduce reads per output.
    fn longest_row(&self) -> usize {
        let bytes = |u: &UOp| {
            let ranges = u.expect_reduce().ranges.iter();
            ranges.map(|r| r.expect_range().extent.vmax() as usize).product::<usize>()
                * u.dtype().itemsize()
        };
        let order = toposort(self.values());
        order.iter().filter(|u| u.op() == Op::Reduce).map(bytes).max().unwrap_or(0)
    }

    /// Adopts the finer loops of another group, if this group is an epilogue of it.
    fn refit(&mut self, other: &KernelGroup) {
        let plain = self.update.is_none() && self.is_unordered();
        if !plain || self.ranges.len() >= other.ranges.len() || !scan::is_epilogue(self.values()) {
            return;
        }
        let Some(map) = scan::refit(&self.ranges, &other.ranges) else { return };
        let global = |r: &UOp| UOp::range(r.expect_range().extent, r.range_id(), AxisKind::Global);
        self.ranges = other.ranges.iter().map(global).collect();
        let own: FxHashMap<UOp, UOp> =
            other.ranges.iter().cloned().zip(self.ranges.iter().cloned()).collect();
        for s in &mut self.stores {
            let moved = |u: &UOp| simplify(&u.substitute(&map).substitute(&own));
            (s.index, s.value) = (moved(&s.index), moved(&s.value));
        }
        self.refresh();
    }

    /// Updates the buffers that it reads, and its size.
    pub fn refresh(&mut self) {
        self.reads.clear();
        self.reduced.clear();
        let mut values: Vec<&UOp> = self.stores.iter().map(|s| &s.value).collect();
        if let Some(mask) = &self.update {
            // An update keeps the elements that it does not write.
            self.reads.extend(self.stores.iter().map(|s| s.buffer));
            values.extend(self.stores.iter().map(|s| &s.index).chain([mask]));
        }
        let order = toposort(values);
        self.size = order.len();
        for u in order {
            match u.op() {
                Op::Load => drop(self.reads.insert(loaded(&u))),
                Op::Reduce => self.reduced.extend(loads_under(u.operand())),
                _ => {}
            }
        }
    }
}

/// Returns the number of the buffer that a load reads, before slots are assigned.
pub fn loaded(load: &UOp) -> usize {
    load.expect_load().place.buffer.expect_param().slot
}

/// Returns the buffers that a value loads.
pub fn loads_under(value: &UOp) -> BTreeSet<usize> {
    value.toposort().iter().filter(|u| u.op() == Op::Load).map(loaded).collect()
}

/// A test of whether two groups fit in one kernel of their device.
type Fits<'a> = &'a dyn Fn(&KernelGroup, &KernelGroup) -> bool;

/// Makes one group per store and merges groups if that saves a launch or memory traffic, makes no
/// cycle, and fits the device. `keep` are the buffers that are read after the plan.
pub fn fuse(
    ranged: &RangeAssignment,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    keep: &FxHashSet<usize>,
    fits: Fits,
) -> Vec<KernelGroup> {
    let mut fusion = Fusion {
        groups: Vec::new(),
        writers: FxHashMap::default(),
        needs: Vec::new(),
        between: ranged.between().collect(),
        copied: ranged.copies.iter().map(|c| c.1).collect(),
        row_bytes: ranged.costs.tuning.row_bytes,
        by_extents: FxHashMap::default(),
    };
    for s in &ranged.stored {
        let store =
            BufferStore { buffer: s.number, index: s.index.clone(), value: s.value.clone() };
        let device = device_of(&s.node);
        let group = KernelGroup::new(device, s.ranges.clone(), vec![store], s.update.clone());
        fusion.add(s.number, group, fits);
    }
    without_dead_stores(fusion.groups, ranged, keep)
}

/// The groups made so far, and their dependencies.
struct Fusion<'a> {
    groups: Vec<KernelGroup>,
    /// The groups that write each buffer; several may write parts of one.
    writers: FxHashMap<usize, Vec<usize>>,
    /// For each group the groups that it depends on, directly or not, also through copies and user
    /// kernels.
    needs: Vec<BTreeSet<usize>>,
    /// The buffers that copies and custom kernels write, each with those that they read.
    between: FxHashMap<usize, &'a [usize]>,
    /// The buffers that are copied.
    copied: FxHashSet<usize>,
    /// The longest row that one kernel walks more than once, in bytes.
    row_bytes: usize,
    /// The groups by extents and device: those that a group could share loops with.
    by_extents: FxHashMap<(Vec<UOp>, DeviceName), Vec<usize>>,
}

/// The groups that a group depends on.
struct Dependencies {
    /// Those whose buffers it reads, also through copies and custom kernels.
    direct: BTreeSet<usize>,
    /// Those of them that are behind a copy or a custom kernel.
    behind_copies: BTreeSet<usize>,
    /// All, with their own dependencies.
    all: BTreeSet<usize>,
}

impl Fusion<'_> {
    /// Adds a group that stores one buffer: merged with an earlier one, or on its own.
    fn add(&mut self, number: usize, mut group: KernelGroup, fits: Fits) {
        let Dependencies { direct, behind_copies, mut all } = self.dependencies(&group);
        // An epilogue of a blocked scan adopts its loops, so that it can be fused.
        let mut producers = direct.iter().rev().map(|i| &self.groups[*i]);
        if let Some(scan) = producers.find(|g| scan::has_scan(g.values())) {
            group.refit(scan);
        }
        let key = (group.extents(), group.device.clone());
        let candidates = self.by_extents.get(&key).map_or(&[][..], |c| c);
        // The latest candidate is tried first: it is the likeliest to share inputs.
        let merged = candidates.iter().rev().take(TRIED).find_map(|&i| {
            let first = &self.groups[i];
            // Fusing with a group that reaches this one through another would make a cycle.
            let cycle = behind_copies.contains(&i)
                || direct.iter().any(|d| *d != i && self.needs[*d].contains(&i));
            // A buffer that is copied to another device must not wait for other groups.
            let delays_copy =
                || all.iter().any(|d| *d != i) && first.writes().any(|n| self.copied.contains(&n));
            if cycle || delays_copy() || !fits(first, &group) {
                return None;
            }
            Some((i, try_merge(first, &group, direct.contains(&i), self.row_bytes)?))
        });
        let Some((i, merged)) = merged else {
            let i = self.groups.len();
            self.writers.entry(number).or_default().push(i);
            self.by_extents.entry(key).or_default().push(i);
            self.groups.push(group);
            self.needs.push(all);
            return;
        };
        // Other stores of the group may have been updated since.
        self.writers.entry(number).or_default().push(i);
        self.groups[i] = merged;
        all.remove(&i);
        // Dependents of the group now depend on what the new store needs.
        for (j, needs) in self.needs.iter_mut().enumerate() {
            if j == i || needs.contains(&i) {
                needs.extend(all.iter().copied());
            }
        }
    }

    fn dependencies(&self, group: &KernelGroup) -> Dependencies {
        let (mut direct, mut behind_copies) = (BTreeSet::new(), BTreeSet::new());
        for n in &group.reads {
            let writers: Vec<usize> = self.writers_behind(*n);
            if self.between.contains_key(n) {
                behind_copies.extend(&writers);
            }
            direct.extend(writers);
        }
        let indirect = direct.iter().flat_map(|d| &self.needs[*d]);
        let all = direct.iter().chain(indirect).copied().collect();
        Dependencies { direct, behind_copies, all }
    }

    /// Returns the groups that write a buffer, or the buffers that copies and custom kernels make
    /// it from.
    fn writers_behind(&self, number: usize) -> Vec<usize> {
        let (mut open, mut seen, mut found) = (vec![number], FxHashSet::default(), Vec::new());
        while let Some(n) = open.pop() {
            match self.between.get(&n) {
                Some(made_of) => open.extend(made_of.iter().filter(|m| seen.insert(**m))),
                None => found.extend(self.writers.get(&n).into_iter().flatten()),
            }
        }
        found
    }
}

/// Removes stores to buffers that nothing reads, until there are none.
fn without_dead_stores(
    mut groups: Vec<KernelGroup>,
    ranged: &RangeAssignment,
    keep: &FxHashSet<usize>,
) -> Vec<KernelGroup> {
    let count = |groups: &[KernelGroup]| groups.iter().map(|g| g.stores.len()).sum::<usize>();
    loop {
        let of_groups = groups.iter().flat_map(|g| &g.reads);
        let of_others = ranged.between().flat_map(|b| b.1);
        let read: FxHashSet<usize> = of_groups.chain(of_others).chain(keep).copied().collect();
        let before = count(&groups);
        for g in &mut groups {
            g.stores.retain(|s| read.contains(&s.buffer));
            g.refresh();
        }
        groups.retain(|g| !g.stores.is_empty());
        if count(&groups) == before {
            return groups;
        }
    }
}

/// Returns `b` in the loops of `a`, if that is valid and profitable. `dependent` is true if `b`
/// reads what `a` writes.
fn try_merge(
    a: &KernelGroup,
    b: &KernelGroup,
    dependent: bool,
    row_bytes: usize,
) -> Option<KernelGroup> {
    if !fits_together(a, b)
        || !has_equal_order(a, b, dependent)
        || !is_profitable(a, b, dependent, row_bytes)
    {
        return None;
    }
    let map: FxHashMap<UOp, UOp> = b.ranges.iter().cloned().zip(a.ranges.iter().cloned()).collect();
    let moved: Vec<UOp> =
        b.stores.iter().flat_map(|s| [s.index.clone(), s.value.clone()]).collect();
    let mut moved = substitute_all(&moved, &map);
    if dependent {
        moved = with_values_of(a, &moved)?;
    }
    let of_b = b.stores.iter().zip(moved.chunks(2)).map(|(s, m)| BufferStore {
        buffer: s.buffer,
        index: m[0].clone(),
        value: m[1].clone(),
    });
    let stores = a.stores.iter().cloned().chain(of_b).collect();
    Some(KernelGroup::new(a.device.clone(), a.ranges.clone(), stores, None))
}

/// Returns true if neither group is an update, and both together are below the limits of a kernel.
fn fits_together(a: &KernelGroup, b: &KernelGroup) -> bool {
    let written: BTreeSet<usize> = a.writes().chain(b.writes()).collect();
    a.update.is_none()
        && b.update.is_none()
        && a.size + b.size <= MOST_MERGED_NODES
        && a.reads.len() + b.reads.len() + written.len() <= MOST_MERGED_BUFFERS
}

/// Returns true if the loops of both run in order along the same axes, or `b` is an epilogue of a
/// loop that does.
fn has_equal_order(a: &KernelGroup, b: &KernelGroup, dependent: bool) -> bool {
    let is_ordered = |r: &UOp| r.range_kind() == AxisKind::Ordered;
    a.ranges.iter().map(is_ordered).eq(b.ranges.iter().map(is_ordered))
        || (dependent && b.is_unordered() && scan::is_epilogue(b.values()))
}

/// Returns true if one kernel is faster than two.
fn is_profitable(a: &KernelGroup, b: &KernelGroup, dependent: bool, row_bytes: usize) -> bool {
    match (a.reduced.is_empty(), b.reduced.is_empty()) {
        (true, true) => true,
        // They read the same memory, or one reads a superset. Two that share only a part, as two
        // products of one matrix, gain more from tiles of their own.
        (false, false) => {
            (a.reduced.is_subset(&b.reduced) || b.reduced.is_subset(&a.reduced))
                && !(dependent && b.longest_row() > row_bytes)
        }
        _ => dependent,
    }
}

/// Replaces loads from buffers that a group writes by the stored values. `None` if one of them is
/// not computed in the same iteration.
fn with_values_of(a: &KernelGroup, values: &[UOp]) -> Option<Vec<UOp>> {
    let mut inline: FxHashMap<UOp, UOp> = FxHashMap::default();
    let is_written = |u: &&UOp| u.op() == Op::Load && a.writes().any(|n| n == loaded(u));
    for u in toposort(values).iter().filter(is_written) {
        let place = u.expect_load().place;
        let same = |s: &&BufferStore| s.buffer == loaded(u) && *place.index == s.index;
        let store = a.stores.iter().find(same).filter(|_| place.mask.is_none())?;
        inline.insert(u.clone(), store.value.clone());
    }
    // Substitution can leave a value in non-canonical form.
    Some(substitute_all(values, &inline).iter().map(simplify).collect())
}

/// Merges adjacent ranges that only occur as one flat index: longer loops leave more choice of
/// vector lanes and threads.
pub fn merge_ranges(sink: &UOp) -> UOp {
    let mut ranges: Vec<UOp> = sink.operand().expect_store().ranges.to_vec();
    let mut exprs: Vec<UOp> = sink
        .src()
        .iter()
        .flat_map(|s| {
            let Store { place, value, .. } = s.expect_store();
            let mask = place.mask.cloned().unwrap_or_else(|| UOp::truth(true));
            [place.index.clone(), value.clone(), mask]
        })
        .collect();
    let mut i = 0;
    while i + 1 < ranges.len() {
        let Some((range, new)) = join(&ranges[i], &ranges[i + 1], &exprs) else {
            i += 1;
            continue;
        };
        ranges.splice(i..i + 2, [range]);
        exprs = new;
    }
    let stores = sink.src().iter().zip(exprs.chunks(3)).map(|(s, e)| {
        let mask = Some(e[2].clone()).filter(|mask| !mask.is_int(1));
        let place = UOp::masked_index(s.expect_store().place.buffer, &e[0], mask);
        place.store(MERGE_RULES.fixpoint(&e[1], &mut ()), &ranges)
    });
    renumbered(&separated(UOp::sink(stores.collect::<Src>())))
}

/// Nests reduces that share a range alike. A range is one loop of
/// the program: if one reduce has it inside another loop and a second does not, the second gets
/// ranges of its own.
///
/// ```text
/// Reduce(x[b], a, b) + Reduce(x[b], b, c)   ->   Reduce(x[b], a, b) + Reduce(x[d], d, c)
/// ```
fn separated(mut sink: UOp) -> UOp {
    let is_range = |r: &&UOp| r.op() == Op::Range;
    let closed = |u: &UOp| -> BTreeSet<u32> {
        u.expect_reduce().ranges.iter().filter(is_range).map(UOp::range_id).collect()
    };
    let reduces = |sink: &UOp| {
        sink.toposort().into_iter().filter(|u| u.op() == Op::Reduce).collect::<Vec<_>>()
    };
    for _ in 0..reduces(&sink).len() {
        let list = reduces(&sink);
        let all: BTreeSet<u32> = list.iter().flat_map(&closed).collect();
        // The reduce ranges around a reduce, with its own.
        let around = |u: &UOp| -> BTreeSet<u32> {
            u.ranges().iter().filter(|id| all.contains(id)).chain(closed(u)).collect()
        };
        let mut known: FxHashMap<u32, BTreeSet<u32>> = FxHashMap::default();
        let differs = |u: &&UOp| {
            let own = around(u);
            closed(u).into_iter().any(|id| *known.entry(id).or_insert_with(|| own.clone()) != own)
        };
        let Some(u) = list.iter().find(differs) else { break };
        let ids =
            sink.toposort().iter().filter(is_range).map(UOp::range_id).max().map_or(0, |id| id + 1);
        let fresh = |(i, r): (u32, &UOp)| {
            (r.clone(), UOp::range(r.expect_range().extent, ids + i, r.range_kind()))
        };
        let map: FxHashMap<UOp, UOp> =
            (0..).zip(u.expect_reduce().ranges.iter().filter(is_range)).map(fresh).collect();
        let new = u.with_src(
            u.src()
                .iter()
                .map(|s| map.get(s).cloned().unwrap_or_else(|| s.substitute(&map)))
                .collect::<Src>(),
        );
        sink = sink.substitute(&FxHashMap::from_iter([(u.clone(), new)]));
    }
    sink
}

/// Replaces two ranges by one in all expressions, if no division by it remains.
fn join(a: &UOp, b: &UOp, exprs: &[UOp]) -> Option<(UOp, Vec<UOp>)> {
    // Ordered and unordered ranges are not merged.
    if a.range_kind() != b.range_kind() {
        return None;
    }
    let (m, n) = (a.expect_range().extent.as_int()?, b.expect_range().extent.as_int()?);
    let whole = UOp::range(m.checked_mul(n)?, a.range_id(), a.range_kind());
    let map = FxHashMap::from_iter([(a.clone(), &whole / n), (b.clone(), &whole % n)]);
    let new: Vec<UOp> = substitute_all(exprs, &map).iter().map(simplify).collect();
    let splits = |u: &UOp| matches!(u.op(), Op::IDiv | Op::Mod) && u.uses_range(whole.range_id());
    (!toposort(&new).iter().any(splits)).then_some((whole, new))
}

rules! {
    /// Rules on the values of kernels. Ranges are renumbered afterwards.
    pub MERGE_RANGES |u, _cx: ()| {
        reduce_join: Reduce(..) => join_reduce(u);
    }
}

static MERGE_RULES: LazyLock<Rules<()>> = LazyLock::new(|| Rules::new(&[&MERGE_RANGES]));

/// Merges adjacent ranges of a reduce.
fn join_reduce(u: &UOp) -> Option<UOp> {
    let Reduce { body, ranges, .. } = u.as_reduce()?;
    (0..ranges.len().saturating_sub(1)).find_map(|i| {
        let (range, mut body) = join(&ranges[i], &ranges[i + 1], std::slice::from_ref(body))?;
        let mut src: Src = smallvec::smallvec![body.pop()?];
        src.extend(ranges[..i].iter().chain([&range]).chain(&ranges[i + 2..]).cloned());
        Some(u.with_src(src))
    })
}

/// Makes the kernel of a group: the `Sink` of its stores, and the buffer number of each argument
/// slot. `len` returns the elements of a buffer.
///
/// **Invariant:** the bounds of each store's index are inside its buffer, also if the store is
/// masked.
pub fn finish(g: &KernelGroup, len: &dyn Fn(usize) -> usize) -> (UOp, Vec<usize>) {
    let ranges = scan::loop_order(&g.ranges, g.values());
    let close = |BufferStore { buffer: number, index, value }: &BufferStore| -> UOp {
        let len = len(*number);
        let inside = index.vmin() >= 0 && index.vmax() < len as i128;
        assert!(inside, "finish: a store leaves its buffer of {len}: {index:?}");
        let mask = g.update.clone().filter(|mask| !mask.is_int(1));
        let buffer = buffer_param(*number, len, value.dtype());
        UOp::masked_index(&buffer, index, mask).store(value, &ranges)
    };
    let sink = UOp::sink(g.stores.iter().map(close).collect::<Src>());
    let order = sink.toposort();
    // Slots: written buffers, then those that are only read, in order of use.
    let mut slots: Vec<usize> = Vec::new();
    g.writes().for_each(|n| {
        if !slots.contains(&n) {
            slots.push(n)
        }
    });
    let mut map = numbers(&sink, &order);
    for u in order.iter().filter(|u| u.op() == Op::Param) {
        let param = u.expect_param();
        let slot = slots.iter().position(|n| *n == param.slot).unwrap_or_else(|| {
            slots.push(param.slot);
            slots.len() - 1
        });
        map.insert(u.clone(), UOp::define_global(slot, param.len, u.dtype()));
    }
    (sink.substitute(&map), slots)
}

/// Renumbers the ranges of a kernel.
fn renumbered(sink: &UOp) -> UOp {
    sink.substitute(&numbers(sink, &sink.toposort()))
}

/// Returns the new ids of a kernel's ranges: those of the outputs, then those of reduces, outer
/// ones first.
fn numbers(sink: &UOp, order: &[UOp]) -> FxHashMap<UOp, UOp> {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut number = |r: &UOp| {
        let next = map.len() as u32;
        map.entry(r.clone())
            .or_insert_with(|| UOp::range(r.expect_range().extent, next, r.range_kind()));
    };
    sink.operand().expect_store().ranges.iter().for_each(&mut number);
    for u in order.iter().rev().filter(|u| u.op() == Op::Reduce) {
        u.expect_reduce().ranges.iter().for_each(&mut number);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn group(extent: i64, update: Option<UOp>) -> KernelGroup {
        let range = UOp::range(extent, 0, AxisKind::Global);
        let value = UOp::constant(1i64, DType::I32);
        let store = BufferStore { buffer: 0, index: range.clone(), value };
        KernelGroup::new(DeviceName::new("CPU"), vec![range], vec![store], update)
    }

    #[test]
    fn stores_inside_their_buffer_are_accepted() {
        assert_eq!(finish(&group(8, None), &|_| 8).1, [0]);
    }

    #[test]
    #[should_panic(expected = "a store leaves its buffer of 8")]
    fn stores_outside_their_buffer_are_refused() {
        finish(&group(9, None), &|_| 8);
    }
}
