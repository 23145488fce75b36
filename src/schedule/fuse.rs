//! Fusion of stores into kernels: stores that can share a loop nest share it, buffers become
//! numbered arguments, and ranges get their final ids. Equal kernels from different parts of the
//! graph are the same interned node.

use super::ranges::{PendingStore, RangeAssignment};
use super::scan;
use crate::dtype::DType;
use crate::ir::typed::Store;
use crate::ir::{Arg, AxisKind, DeviceName, Op, Src, ToSrc, UOp, substitute_all};
use crate::rewrite::Rules;
use crate::rules;
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

/// Stores that share a loop nest.
#[derive(Clone)]
pub struct KernelGroup {
    /// Device that runs it.
    pub device: DeviceName,
    /// The shared ranges.
    pub ranges: Vec<UOp>,
    /// `(buffer number, flat index, value)`.
    pub stores: Vec<(usize, UOp, UOp)>,
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
    fn extents(&self) -> Vec<UOp> {
        self.ranges.iter().map(|r| r.expect_range().extent.clone()).collect()
    }
    /// Buffers that it writes.
    pub fn writes(&self) -> impl Iterator<Item = usize> + '_ {
        self.stores.iter().map(|s| s.0)
    }
    /// Bytes that its longest reduce reads per output.
    fn longest_row(&self) -> usize {
        let values: Vec<&UOp> = self.stores.iter().map(|s| &s.2).collect();
        let order = crate::ir::toposort(values.iter().copied());
        let bytes = |u: &UOp| {
            let ranges = u.expect_reduce().ranges.iter();
            ranges.map(|r| r.expect_range().extent.vmax() as usize).product::<usize>()
                * u.dtype().itemsize()
        };
        order.iter().filter(|u| u.op() == Op::Reduce).map(bytes).max().unwrap_or(0)
    }
    /// Adopts the finer loops of another group, if this group is an epilogue of it.
    fn refit(&mut self, other: &KernelGroup) {
        let plain =
            self.update.is_none() && self.ranges.iter().all(|r| r.range_kind() == AxisKind::Global);
        if !plain
            || self.ranges.len() >= other.ranges.len()
            || !scan::is_epilogue(self.stores.iter().map(|s| &s.2))
        {
            return;
        }
        let Some(map) = scan::refit(&self.ranges, &other.ranges) else { return };
        self.ranges = other
            .ranges
            .iter()
            .map(|r| UOp::range(r.expect_range().extent, r.range_id(), AxisKind::Global))
            .collect();
        let own: FxHashMap<UOp, UOp> =
            other.ranges.iter().cloned().zip(self.ranges.iter().cloned()).collect();
        for s in &mut self.stores {
            let moved = |u: &UOp| crate::symbolic::simplify(&u.substitute(&map).substitute(&own));
            (s.1, s.2) = (moved(&s.1), moved(&s.2));
        }
        self.refresh();
    }
    /// Recomputes what it reads.
    pub fn refresh(&mut self) {
        self.reads.clear();
        self.reduced.clear();
        let mut values: Vec<&UOp> = self.stores.iter().map(|s| &s.2).collect();
        if let Some(inside) = &self.update {
            // An update keeps the elements that it does not write.
            self.reads.extend(self.stores.iter().map(|s| s.0));
            values.extend(self.stores.iter().map(|s| &s.1).chain([inside]));
        }
        let order = crate::ir::toposort(values.iter().copied());
        self.size = order.len();
        for u in order {
            match u.op() {
                Op::Load => drop(self.reads.insert(loaded(&u))),
                Op::Reduce => {
                    for v in u.operand().toposort().iter().filter(|v| v.op() == Op::Load) {
                        self.reduced.insert(loaded(v));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The number of the buffer that a load reads, before slots are assigned.
pub fn loaded(load: &UOp) -> usize {
    match load.expect_load().place.buffer.arg() {
        Arg::Param { slot, .. } => *slot,
        _ => panic!("a load from something else than a buffer: {load:?}"),
    }
}

/// Makes one group per store and merges groups if that saves a launch or memory traffic, makes no
/// cycle, and fits the device.
pub fn fuse(
    ranged: &RangeAssignment,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    keep: &FxHashSet<usize>,
    fits: &dyn Fn(&KernelGroup, &KernelGroup) -> bool,
) -> Vec<KernelGroup> {
    let mut groups: Vec<Option<KernelGroup>> = Vec::new();
    // Several groups may write parts of one buffer.
    let mut producer: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    // For each group the groups that it depends on, directly or not, also through copies and user
    // kernels.
    let mut needs: Vec<BTreeSet<usize>> = Vec::new();
    let between: FxHashMap<usize, &[usize]> = ranged.between().collect();
    let sent: FxHashSet<usize> = ranged.copies.iter().map(|c| c.1).collect();
    // The buffers behind copies and user kernels.
    let sources = |n: &usize| -> Vec<usize> {
        let (mut open, mut seen, mut found) = (vec![*n], FxHashSet::default(), Vec::new());
        while let Some(n) = open.pop() {
            match between.get(&n) {
                Some(made_of) => open.extend(made_of.iter().filter(|m| seen.insert(**m))),
                None => found.push(n),
            }
        }
        found
    };
    let producers = |n: &usize, producer: &FxHashMap<usize, Vec<usize>>| -> Vec<usize> {
        sources(n).iter().filter_map(|n| producer.get(n)).flatten().copied().collect()
    };
    let mut by_extents: FxHashMap<(Vec<UOp>, DeviceName), Vec<usize>> = FxHashMap::default();
    for s in &ranged.stored {
        let mut g = single(s, device_of(&s.node));
        let copied: BTreeSet<usize> = g
            .reads
            .iter()
            .filter(|n| between.contains_key(n))
            .flat_map(|n| producers(n, &producer))
            .collect();
        let first: BTreeSet<usize> = g.reads.iter().flat_map(|n| producers(n, &producer)).collect();
        let mut all: BTreeSet<usize> = first.clone();
        for d in &first {
            all.extend(needs[*d].iter().copied());
        }
        // An epilogue of a blocked scan adopts its loops, so that it can be fused.
        let scan_of = |i: &&usize| {
            groups[**i].as_ref().is_some_and(|a| scan::has_scan(a.stores.iter().map(|s| &s.2)))
        };
        if let Some(a) = first.iter().rev().find(scan_of).and_then(|i| groups[*i].as_ref()) {
            g.refit(a);
        }
        let waits = |i: usize| all.iter().any(|d| *d != i);
        let key = (g.extents(), g.device.clone());
        let candidates = by_extents.entry(key).or_default();
        // The latest candidate is tried first: it is the likeliest to share inputs.
        let found = candidates.iter().rev().take(TRIED).copied().find_map(|i| {
            // Fusing with a group that reaches this one through another would make a cycle.
            if copied.contains(&i) || first.iter().any(|d| *d != i && needs[*d].contains(&i)) {
                return None;
            }
            let a = groups[i].as_ref().expect("candidates are alive");
            // A buffer that is copied to another device must not wait for other groups.
            if waits(i) && a.writes().any(|n| sent.contains(&n)) {
                return None;
            }
            let merged = || try_merge(a, &g, first.contains(&i), ranged.costs.tuning.row_bytes);
            if fits(a, &g) { merged().map(|m| (i, m)) } else { None }
        });
        match found {
            Some((i, merged)) => {
                g = merged;
                // Other stores of the group may have been updated since.
                producer.entry(s.number).or_default().push(i);
                groups[i] = Some(g);
                all.remove(&i);
                // Dependents of the group now depend on what the new store needs.
                for (j, n) in needs.iter_mut().enumerate() {
                    if j == i || n.contains(&i) {
                        n.extend(all.iter().copied());
                    }
                }
            }
            None => {
                let i = groups.len();
                producer.entry(s.number).or_default().push(i);
                candidates.push(i);
                groups.push(Some(g));
                needs.push(all);
            }
        }
    }
    let mut groups: Vec<KernelGroup> = groups.into_iter().flatten().collect();
    // Dead stores are removed.
    loop {
        let read: FxHashSet<usize> = groups
            .iter()
            .flat_map(|g| g.reads.iter().copied())
            .chain(ranged.between().flat_map(|b| b.1.iter().copied()))
            .chain(keep.iter().copied())
            .collect();
        let before: usize = groups.iter().map(|g| g.stores.len()).sum();
        for g in &mut groups {
            g.stores.retain(|s| read.contains(&s.0));
            g.refresh();
        }
        groups.retain(|g| !g.stores.is_empty());
        if groups.iter().map(|g| g.stores.len()).sum::<usize>() == before {
            return groups;
        }
    }
}

fn single(s: &PendingStore, device: DeviceName) -> KernelGroup {
    let mut g = KernelGroup {
        device,
        ranges: s.ranges.clone(),
        update: s.update.clone(),
        stores: vec![(s.number, s.index.clone(), s.value.clone())],
        reads: BTreeSet::new(),
        reduced: BTreeSet::new(),
        size: 0,
    };
    g.refresh();
    g
}

/// `b` in the loops of `a`, if that is valid and profitable.
fn try_merge(
    a: &KernelGroup,
    b: &KernelGroup,
    dependent: bool,
    row_bytes: usize,
) -> Option<KernelGroup> {
    if a.update.is_some() || b.update.is_some() || a.size + b.size > MOST_MERGED_NODES {
        return None;
    }
    let written: BTreeSet<usize> = a.writes().chain(b.writes()).collect();
    if a.reads.len() + b.reads.len() + written.len() > MOST_MERGED_BUFFERS {
        return None;
    }
    // An ordered loop is fused with one ordered along the same axis, or with its epilogue.
    let ordered = |g: &KernelGroup| {
        g.ranges.iter().map(|r| r.range_kind() == AxisKind::Ordered).collect::<Vec<bool>>()
    };
    if ordered(a) != ordered(b) {
        let plain = b.ranges.iter().all(|r| r.range_kind() == AxisKind::Global);
        if !(dependent && plain && scan::is_epilogue(b.stores.iter().map(|s| &s.2))) {
            return None;
        }
    }
    let worth = match (a.reduced.is_empty(), b.reduced.is_empty()) {
        (true, true) => true,
        // They read the same memory, or one reads a superset. Two that share only a part, as two
        // products of one matrix, gain more from tiles of their own.
        (false, false) => {
            (a.reduced.is_subset(&b.reduced) || b.reduced.is_subset(&a.reduced))
                && !(dependent && b.longest_row() > row_bytes)
        }
        _ => dependent,
    };
    if !worth {
        return None;
    }
    let map: FxHashMap<UOp, UOp> = b.ranges.iter().cloned().zip(a.ranges.iter().cloned()).collect();
    let moved: Vec<UOp> = b.stores.iter().flat_map(|s| [s.1.clone(), s.2.clone()]).collect();
    let mut moved = substitute_all(&moved, &map);
    if dependent {
        // A value of `a` that `b` reads must be computed in the same iteration.
        let mut inline: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in crate::ir::toposort(moved.iter()) {
            if u.op() != Op::Load {
                continue;
            }
            if a.writes().any(|n| n == loaded(&u)) {
                let place = u.expect_load().place;
                let same = |s: &&(usize, UOp, UOp)| s.0 == loaded(&u) && *place.index == s.1;
                let (_, _, value) = a.stores.iter().find(same).filter(|_| place.mask.is_none())?;
                inline.insert(u.clone(), value.clone());
            }
        }
        moved = substitute_all(&moved, &inline);
        // Substitution can leave a value in non-canonical form.
        moved = moved.iter().map(crate::symbolic::simplify).collect();
    }
    let mut stores = a.stores.clone();
    stores.extend(
        b.stores.iter().zip(moved.chunks(2)).map(|(s, m)| (s.0, m[0].clone(), m[1].clone())),
    );
    let (device, ranges) = (a.device.clone(), a.ranges.clone());
    let mut g = KernelGroup {
        device,
        ranges,
        stores,
        update: None,
        reads: BTreeSet::new(),
        reduced: BTreeSet::new(),
        size: 0,
    };
    g.refresh();
    Some(g)
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
        let place = s.expect_store().place;
        let mut src: Src = [place.buffer.clone(), e[0].clone()].to_src();
        if !e[2].is_int(1) {
            src.push(e[2].clone());
        }
        let place = place.node.with_src(src);
        s.with_src(
            [place, MERGE_RULES.fixpoint(&e[1], &mut ())]
                .into_iter()
                .chain(ranges.iter().cloned())
                .collect::<Src>(),
        )
    });
    renumbered(&separated(UOp::sink(stores.collect::<Src>())))
}

/// The kernel in which reduces that share a range are nested alike. A range is one loop of the
/// program: if one reduce has it inside another loop and a second does not, the second gets ranges
/// of its own.
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
    let new: Vec<UOp> = substitute_all(exprs, &map).iter().map(crate::symbolic::simplify).collect();
    let apart = |u: &UOp| matches!(u.op(), Op::IDiv | Op::Mod) && u.uses_range(whole.range_id());
    (!crate::ir::toposort(&new).iter().any(apart)).then_some((whole, new))
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
    let (body, ranges) = u.src().split_first()?;
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
    let ranges = scan::loop_order(&g.ranges, g.stores.iter().map(|s| &s.2));
    let close = |(number, index, value): &(usize, UOp, UOp)| -> UOp {
        let len = len(*number);
        let inside = index.vmin() >= 0 && index.vmax() < len as i128;
        assert!(inside, "finish: a store leaves its buffer of {len}: {index:?}");
        let buffer = UOp::new(
            Op::Param,
            value.dtype(),
            Src::new(),
            Arg::Param { slot: *number, len, device: DeviceName::new("") },
        );
        let mask = g.update.iter().filter(|inside| !inside.is_int(1)).cloned();
        let place = [buffer, index.clone()].into_iter().chain(mask).collect::<Src>();
        let place = UOp::new(Op::Index, value.dtype(), place, Arg::None);
        let mut src: Src = [place, value.clone()].to_src();
        src.extend(ranges.iter().cloned());
        UOp::new(Op::Store, DType::VOID, src, Arg::None)
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
        let Arg::Param { slot: number, len, .. } = u.arg() else {
            panic!("a parameter without a slot: {u:?}")
        };
        let slot = slots.iter().position(|n| n == number).unwrap_or_else(|| {
            slots.push(*number);
            slots.len() - 1
        });
        map.insert(
            u.clone(),
            UOp::new(Op::DefineGlobal, u.dtype(), Src::new(), Arg::Global { slot, len: *len }),
        );
    }
    (sink.substitute(&map), slots)
}

/// The kernel with renumbered ranges.
fn renumbered(sink: &UOp) -> UOp {
    sink.substitute(&numbers(sink, &sink.toposort()))
}

/// New ids of a kernel's ranges: those of the outputs, then those of reduces, outer ones first.
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
    use crate::ir::AxisKind;

    fn group(extent: i64, update: Option<UOp>) -> KernelGroup {
        let range = UOp::range(extent, 0, AxisKind::Global);
        let stores = vec![(0, range.clone(), UOp::constant(1i64, DType::I32))];
        let (reads, reduced) = (BTreeSet::new(), BTreeSet::new());
        KernelGroup {
            device: DeviceName::new("CPU"),
            ranges: vec![range],
            stores,
            update,
            reads,
            reduced,
            size: 1,
        }
    }

    #[test]
    fn a_store_inside_its_buffer_is_finished() {
        assert_eq!(finish(&group(8, None), &|_| 8).1, [0]);
    }

    #[test]
    #[should_panic(expected = "a store leaves its buffer of 8")]
    fn a_store_that_leaves_its_buffer_is_not() {
        finish(&group(9, None), &|_| 8);
    }
}
