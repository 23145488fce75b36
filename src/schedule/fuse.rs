//! Fusion of stores into kernels. Input: stores over ranges. Output: groups of stores that share a
//! loop nest.
//!
//! ```text
//! a[i] = x[i] + 1 over i < 8;  b[j] = a[j] * 2 over j < 8
//!     =>   a[i] = x[i] + 1, b[i] = (x[i] + 1) * 2 over i < 8
//! ```

use super::assign_ranges::RangeAssignment;
use super::scan;
use crate::ir::{AxisKind, DeviceName, Op, UOp, substitute_all, toposort};
use crate::symbolic::simplify;
use crate::target::ScheduleTuning;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Largest number of buffers of a fused kernel: that of Metal, so that most devices get the same
/// kernels. Devices may have lower limits.
pub const MAX_MERGED_BUFFERS: usize = 31;

/// Maximum number of groups that are tried per store, the latest first: an unbounded number would
/// make planning quadratic.
const MAX_CANDIDATES: usize = 64;

/// Largest number of nodes of a fused kernel, so that fusion does not undo the splits of `ranges`.
const MAX_MERGED_NODES: usize = 2 * super::cost::MAX_EVALUATIONS;

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
    pub fn new(
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
    fn refit(&mut self, other: &KernelGroup, tuning: &ScheduleTuning) {
        let plain = self.update.is_none() && self.is_unordered();
        let is_finer = self.ranges.len() < other.ranges.len();
        if !plain || !is_finer || !scan::is_epilogue(self.values(), tuning.scan_epilogue) {
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
/// cycle, and fits the device. `live_out` are the buffers that are read after the plan.
pub fn fuse(
    ranged: &RangeAssignment,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    live_out: &FxHashSet<usize>,
    fits: Fits,
) -> Vec<KernelGroup> {
    let mut fusion = Fusion {
        groups: Vec::new(),
        writers: FxHashMap::default(),
        needs: Vec::new(),
        copies_and_customs: ranged.copies_and_customs().collect(),
        copied: ranged.copies.iter().map(|c| c.1).collect(),
        tuning: ranged.costs.tuning,
        by_extents: FxHashMap::default(),
    };
    for s in &ranged.stored {
        let store =
            BufferStore { buffer: s.buffer, index: s.index.clone(), value: s.value.clone() };
        let device = device_of(&s.node);
        let group = KernelGroup::new(device, s.ranges.clone(), vec![store], s.update.clone());
        fusion.add(s.buffer, group, fits);
    }
    without_dead_stores(fusion.groups, ranged, live_out)
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
    copies_and_customs: FxHashMap<usize, &'a [usize]>,
    /// The buffers that are copied.
    copied: FxHashSet<usize>,
    /// Thresholds of the device.
    tuning: ScheduleTuning,
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
            group.refit(scan, &self.tuning);
        }
        let key = (group.extents(), group.device.clone());
        let candidates = self.by_extents.get(&key).map_or(&[][..], |c| c);
        // The latest candidate is tried first: it is the likeliest to share inputs.
        let merged = candidates.iter().rev().take(MAX_CANDIDATES).find_map(|&i| {
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
            Some((i, try_merge(first, &group, direct.contains(&i), &self.tuning)?))
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
            if self.copies_and_customs.contains_key(n) {
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
            match self.copies_and_customs.get(&n) {
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
    live_out: &FxHashSet<usize>,
) -> Vec<KernelGroup> {
    let count = |groups: &[KernelGroup]| groups.iter().map(|g| g.stores.len()).sum::<usize>();
    loop {
        let of_groups = groups.iter().flat_map(|g| &g.reads);
        let of_others = ranged.copies_and_customs().flat_map(|b| b.1);
        let read: FxHashSet<usize> = of_groups.chain(of_others).chain(live_out).copied().collect();
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
    tuning: &ScheduleTuning,
) -> Option<KernelGroup> {
    if !fits_together(a, b)
        || !has_equal_order(a, b, dependent, tuning.scan_epilogue)
        || !is_profitable(a, b, dependent, tuning.row_bytes)
    {
        return None;
    }
    let map: FxHashMap<UOp, UOp> = b.ranges.iter().cloned().zip(a.ranges.iter().cloned()).collect();
    let moved: Vec<UOp> =
        b.stores.iter().flat_map(|s| [s.index.clone(), s.value.clone()]).collect();
    let mut moved = substitute_all(&moved, &map);
    if dependent {
        moved = forward_stores(a, &moved)?;
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
        && a.size + b.size <= MAX_MERGED_NODES
        && a.reads.len() + b.reads.len() + written.len() <= MAX_MERGED_BUFFERS
}

/// Returns true if the loops of both run in order along the same axes, or `b` is an epilogue of a
/// loop that does, with at most `epilogue` work per element.
fn has_equal_order(a: &KernelGroup, b: &KernelGroup, dependent: bool, epilogue: f64) -> bool {
    let is_ordered = |r: &UOp| r.range_kind() == AxisKind::Ordered;
    a.ranges.iter().map(is_ordered).eq(b.ranges.iter().map(is_ordered))
        || (dependent && b.is_unordered() && scan::is_epilogue(b.values(), epilogue))
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

/// Forwards stored values to loads: replaces loads from buffers that a group writes. `None` if one
/// of them is not computed in the same iteration.
fn forward_stores(a: &KernelGroup, values: &[UOp]) -> Option<Vec<UOp>> {
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
