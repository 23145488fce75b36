//! Reductions that the threads of a workgroup share. Each thread reduces its part. Then the threads
//! of a warp combine their partial results by warp shuffles, and one thread of each warp stores the
//! result to shared memory; on targets without warps every thread stores its own. After a barrier
//! all threads reduce the values in shared memory, so that each has the result.
//!
//! After this pass no reduction closes a range of kind Group; such ranges are thread positions like
//! those of kind Local.

use super::linearize::fold_of;
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp, dtype_bounds, next_range};
use crate::kernel::{extent, next_shared};
use crate::symbolic::simplify;
use crate::target::Target;

/// Returns the number of partial results that each thread reduces in each round, at most `most`
/// except in the last.
fn rounds(mut parts: usize, most: usize) -> Vec<usize> {
    let mut rounds = Vec::new();
    while parts > 2 * most
        && let Some(n) = (2..=most).rev().find(|n| parts.is_multiple_of(*n))
    {
        rounds.push(n);
        parts /= n;
    }
    rounds.push(parts);
    rounds
}

/// Returns true if the range is a position in the launch, not a loop.
fn is_position(r: &UOp) -> bool {
    matches!(r.range_kind(), AxisKind::Local | AxisKind::Group | AxisKind::Global | AxisKind::Loop)
}

/// Returns the number of threads of a group in one warp, and the distance of their lane numbers.
/// `order` has the range with adjacent numbers last.
fn in_warp(order: &[UOp], g: &UOp, warp: usize) -> Option<(usize, usize)> {
    let place = order.iter().position(|r| r == g)?;
    let distance: usize = order[place + 1..].iter().map(extent).product();
    let count: usize = order.iter().map(extent).product();
    // Every warp must be full, unless there is only one.
    let whole = count < warp || (warp > 0 && count.is_multiple_of(warp));
    // Powers of two, so that an exchange by exclusive or of lane numbers stays in the group.
    let bits = extent(g).is_power_of_two() && distance.is_power_of_two();
    let lanes = extent(g).min(warp / distance);
    (whole && bits && lanes > 1).then_some((lanes, distance))
}

/// Reduces the values of `lanes` threads by warp shuffles; `distance` is that of their lane
/// indices. All of them get the same bits, because every reduction is commutative.
fn reduce_lanes(u: &UOp, mut value: UOp, lanes: usize, distance: usize) -> UOp {
    let mut bits = lanes * distance / 2;
    while bits >= distance {
        value = value.binary(fold_of(u).op(), value.shuffle(bits));
        bits /= 2;
    }
    value
}

/// Builds the shared reductions of a kernel. `threads` are the ranges of workgroup threads in the
/// order that warp shuffles rely on.
pub(super) fn group_reduce(ast: &UOp, threads: &[UOp], target: &Target) -> UOp {
    let order = ast.toposort();
    let mut reducer = GroupReducer::of(&order, threads, target);
    if reducer.groups.is_empty() {
        return ast.clone();
    }
    let written: Vec<&UOp> = ast.src().iter().map(|s| s.expect_store().place.buffer).collect();
    simplify(&ast.rebuild(|u, src| match u.op() {
        Op::Reduce if u.expect_reduce().ranges.iter().any(|r| reducer.groups.contains(r)) => {
            Some(reducer.reduce(u, src))
        }
        Op::Load if written.contains(&u.expect_load().place.buffer) => {
            let new = u.with_src(src);
            let Load { place, alt, after, .. } = new.expect_load();
            let at = reducer.first_thread_only(u.expect_load().place.node, place.node);
            let zero = || at.expect_index().mask.is_some().then(|| UOp::constant(0i64, u.dtype()));
            let alt = alt.cloned().or_else(zero);
            let src = std::iter::once(at).chain(alt).chain(after.iter().cloned());
            Some(u.with_src(src.collect::<Src>()))
        }
        Op::Store if ast.src().contains(u) => {
            let Store { place, ranges, .. } = u.expect_store();
            let (new_place, others) = src.split_first().expect("a store has a place");
            let at = reducer.first_thread_only(place.node, new_place);
            // Thread positions stay open to the end of the kernel.
            let open = reducer.groups.iter().filter(|g| !ranges.contains(g));
            let src = std::iter::once(at).chain(others.iter().chain(open).cloned());
            Some(u.with_src(src.collect::<Src>()))
        }
        _ => None,
    }))
}

/// The element of shared memory that each thread stores its partial result to, under a mask if not
/// all threads store, and the number of elements.
struct SharedSlot {
    index: UOp,
    mask: Option<UOp>,
    len: usize,
}

/// The state of the pass: the threads of the kernel, and the next free numbers.
struct GroupReducer<'a> {
    order: &'a [UOp],
    /// The ranges of threads, by number.
    threads: Vec<UOp>,
    /// Those of kind Group.
    groups: Vec<UOp>,
    /// The ranges of threads in the order of lane numbers; empty without warp shuffles.
    lane_order: Vec<UOp>,
    warp: usize,
    /// Partial results that a thread reduces in one round.
    round: usize,
    next_range: u32,
    next_shared: u32,
}

impl<'a> GroupReducer<'a> {
    fn of(order: &'a [UOp], lane_order: &[UOp], target: &Target) -> GroupReducer<'a> {
        let is_thread = |u: &&UOp| u.op() == Op::Range && u.range_kind().is_workgroup();
        let mut threads: Vec<UOp> = order.iter().filter(is_thread).cloned().collect();
        let groups: Vec<UOp> =
            threads.iter().filter(|r| r.range_kind() == AxisKind::Group).cloned().collect();
        let lane_order = if target.warp > 0 { lane_order.to_vec() } else { Vec::new() };
        threads.sort_by_key(|r| r.range_id());
        GroupReducer {
            order,
            threads,
            groups,
            lane_order,
            warp: target.warp,
            round: target.tuning.gpu.reduce_round,
            next_range: next_range(order),
            next_shared: next_shared(order),
        }
    }

    /// Returns the place, masked so that only the first thread of each group accesses it: every
    /// thread of a group has the result. One of them stores it, and only that one may read the
    /// buffer that is written. `old` is the place before this pass.
    fn first_thread_only(&self, old: &UOp, place: &UOp) -> UOp {
        let Index { buffer, index, mask, .. } = place.expect_index();
        let unused = self.groups.iter().filter(|g| !old.uses_range(g.range_id()));
        let mask = unused.map(|g| g.equals(0i64)).fold(mask.cloned(), |mask, first| {
            Some(mask.map_or(first.clone(), |mask| mask.and(&first)))
        });
        UOp::masked_index(buffer, index, mask)
    }

    fn range(&mut self, size: usize) -> UOp {
        self.next_range += 1;
        UOp::range(size as i64, self.next_range - 1, AxisKind::Reduce)
    }

    /// Returns the flat index of a thread in its workgroup, with some of its coordinates replaced.
    fn thread(&self, replaced: &[(&UOp, UOp)]) -> UOp {
        self.threads.iter().fold(UOp::int(0), |sum, r| {
            let position = replaced.iter().find(|(old, _)| *old == r).map_or(r, |(_, new)| new);
            &sum * extent(r) as i64 + position
        })
    }

    /// Returns a slot for every thread.
    fn every_thread(&self) -> SharedSlot {
        SharedSlot {
            index: self.thread(&[]),
            mask: None,
            len: self.threads.iter().map(extent).product(),
        }
    }

    /// Returns a barrier if the reduction is in a loop. It keeps a new partial result from
    /// overwriting one of the previous iteration that another thread has not read yet.
    fn previous_read(&self, u: &UOp, part: &UOp) -> Option<UOp> {
        let repeats =
            |r: &UOp| r.op() == Op::Range && !is_position(r) && u.uses_range(r.range_id());
        self.order.iter().any(repeats).then(|| UOp::barrier([part.clone()].to_src()))
    }

    /// Builds a reduction that the threads of groups share, from its new operands.
    fn reduce(&mut self, u: &UOp, src: &[UOp]) -> UOp {
        let is_group = |r: &&UOp| self.groups.contains(r);
        let shared: Vec<&UOp> = u.expect_reduce().ranges.iter().filter(is_group).collect();
        let (body, ranges) = src.split_first().expect("a reduction has a term");
        let own: Vec<UOp> = ranges.iter().filter(|r| !is_group(r)).cloned().collect();
        let part = if own.is_empty() {
            body.clone()
        } else {
            u.with_src(std::iter::once(body.clone()).chain(own).collect::<Src>())
        };
        let value = match shared.as_slice() {
            [g] => match in_warp(&self.lane_order, g, self.warp) {
                Some(lanes) => self.by_shuffles(u, part, g, lanes),
                None => self.in_rounds(u, part, g),
            },
            _ => self.in_one_round(u, part, &shared),
        };
        within_bounds(u, value)
    }

    /// Reduces the partial results of a group by warp shuffles, then those of its warps through
    /// shared memory. `lanes` threads of the group are in one warp, at lane numbers of `distance`.
    fn by_shuffles(
        &mut self,
        u: &UOp,
        part: UOp,
        g: &UOp,
        (lanes, distance): (usize, usize),
    ) -> UOp {
        let value = reduce_lanes(u, part, lanes, distance);
        let warps = extent(g) / lanes;
        if warps == 1 {
            return value;
        }
        // The results of the warps of a group are adjacent.
        let others = self.threads.iter().filter(|r| *r != g);
        let before = others.fold(UOp::int(0), |sum, r| &sum * extent(r) as i64 + r);
        let place = |i: UOp| &before * warps as i64 + i;
        let slot = SharedSlot {
            index: place(g / lanes as i64),
            mask: Some((g % lanes as i64).equals(0i64)),
            len: self.threads.iter().map(extent).product::<usize>() / lanes,
        };
        let each = lanes.min(warps);
        let rounds: Vec<UOp> =
            (warps > each).then(|| self.range(warps / each)).into_iter().collect();
        let own = g % each as i64;
        let other = rounds.first().map_or(own.clone(), |r| r * each as i64 + &own);
        let after = self.previous_read(u, &value);
        let value = self.exchange(u, value, slot, after, place(other), &rounds);
        reduce_lanes(u, value, each, distance)
    }

    /// Reduces the partial results of a group in rounds through shared memory.
    fn in_rounds(&mut self, u: &UOp, part: UOp, g: &UOp) -> UOp {
        let mut after = self.previous_read(u, &part);
        let mut value = part;
        // After each round, `left` threads hold different values, and the others copies of them.
        let mut left = extent(g);
        for n in rounds(left, self.round) {
            left /= n;
            let r = self.range(n);
            let other = self.thread(&[(g, &r * left as i64 + g % left as i64)]);
            value = self.exchange(u, value, self.every_thread(), after.take(), other, &[r]);
        }
        value
    }

    /// Reduces the partial results of several groups in one round through shared memory.
    fn in_one_round(&mut self, u: &UOp, part: UOp, groups: &[&UOp]) -> UOp {
        let ranges: Vec<UOp> = groups.iter().map(|g| self.range(extent(g))).collect();
        let replaced: Vec<(&UOp, UOp)> = groups.iter().copied().zip(ranges.clone()).collect();
        let after = self.previous_read(u, &part);
        self.exchange(u, part, self.every_thread(), after, self.thread(&replaced), &ranges)
    }

    /// Stores the partial result of each thread, and after a barrier reduces those at `others`
    /// over `ranges`; without ranges it loads one.
    fn exchange(
        &mut self,
        u: &UOp,
        part: UOp,
        slot: SharedSlot,
        after: Option<UOp>,
        others: UOp,
        ranges: &[UOp],
    ) -> UOp {
        let (dtype, lanes) = (part.dtype(), part.dtype().lanes as usize);
        let shared = UOp::define_shared(self.next_shared, slot.len * lanes, dtype.scalar());
        self.next_shared += 1;
        let place = |i: UOp, mask: Option<UOp>| {
            UOp::masked_index(&shared, simplify(&(i * lanes as i64)), mask)
        };
        let store = place(slot.index, slot.mask).store(part, after.as_slice());
        let stored = UOp::barrier([store].to_src());
        let load = Load::build(dtype, Arg::None, place(others, None), None, [stored]);
        if ranges.is_empty() {
            return load;
        }
        let src: Src = std::iter::once(load).chain(ranges.iter().cloned()).collect();
        u.retyped(u.dtype(), src)
    }
}

/// Clamps the value of an integer reduction to its known bounds. A load from shared memory has only
/// the bounds of its dtype, and the bounds proof of an index computed from it would fail.
fn within_bounds(reduce: &UOp, value: UOp) -> UOp {
    if !reduce.dtype().is_int() || reduce.dtype().lanes > 1 {
        return value;
    }
    let (lo, hi) = dtype_bounds(reduce.dtype());
    let value =
        if reduce.vmin() > lo { value.binary(Op::Max, reduce.vmin() as i64) } else { value };
    if reduce.vmax() < hi { value.binary(Op::Min, reduce.vmax() as i64) } else { value }
}
