//! Reductions that the threads of a workgroup share. Each thread reduces its part. Then the threads
//! of a warp combine their partial results by warp shuffles, and one thread of each warp stores the
//! result to shared memory; on targets without warps every thread stores its own. After a barrier
//! all threads reduce the values in shared memory, so that each has the result.
//!
//! After this pass no reduction closes a range of kind Group; such ranges are thread positions like
//! those of kind Local.

use super::launch_dims::thread_order;
use super::linearize::fold_of;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp, dtype_bounds, next_range};
use crate::kernel::{extent, next_shared};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Partial results that a thread reduces in one round. Few, because all threads of the workgroup
/// read shared memory at the same time.
const EACH_ROUND: usize = 8;

/// Returns the number of partial results that each thread reduces in each round.
fn rounds(mut parts: usize) -> Vec<usize> {
    let mut rounds = Vec::new();
    while parts > 2 * EACH_ROUND
        && let Some(n) = (2..=EACH_ROUND).rev().find(|n| parts.is_multiple_of(*n))
    {
        rounds.push(n);
        parts /= n;
    }
    rounds.push(parts);
    rounds
}

/// Partial results in shared memory: the index and mask of the thread's own, their number, and the
/// number of the memory.
struct Parts {
    at: UOp,
    valid: Option<UOp>,
    len: usize,
    id: u32,
}

impl Parts {
    /// Stores the partial result of each thread, and after a barrier reduces those at `others`
    /// over `ranges`; without ranges it loads one.
    fn fold(self, u: &UOp, part: &UOp, after: Option<UOp>, others: UOp, ranges: &[UOp]) -> UOp {
        let lanes = part.dtype().lanes as i64;
        let local = UOp::new(
            Op::DefineShared,
            part.dtype().scalar(),
            Src::new(),
            Arg::Shared { id: self.id, len: self.len * lanes as usize },
        );
        let index = |i: UOp, valid: Option<UOp>| {
            let mut src = [local.clone(), simplify(&(i * lanes))].to_src();
            src.extend(valid);
            UOp::new(Op::Index, local.dtype(), src, Arg::None)
        };
        let mut put: Src = [index(self.at, self.valid), part.clone()].to_src();
        put.extend(after);
        let put = UOp::new(Op::Store, DType::VOID, put, Arg::None);
        let all = UOp::new(Op::Barrier, DType::VOID, [put].to_src(), Arg::None);
        let got = UOp::new(Op::Load, part.dtype(), [index(others, None), all].to_src(), Arg::None);
        if ranges.is_empty() {
            return got;
        }
        UOp::new(
            Op::Reduce,
            u.dtype(),
            std::iter::once(got).chain(ranges.iter().cloned()).collect::<Src>(),
            u.arg().clone(),
        )
    }
}

/// Returns true if the range is a position in the launch, not a loop.
fn is_position(r: &UOp) -> bool {
    matches!(r.range_kind(), AxisKind::Local | AxisKind::Group | AxisKind::Global | AxisKind::Loop)
}

/// Returns the number of threads of a group in one warp, and the distance of their lane numbers.
/// `order` has the range with adjacent numbers last.
fn in_warp(order: &[UOp], g: &UOp, warp: usize) -> Option<(usize, usize)> {
    let place = order.iter().position(|r| r == g)?;
    let apart: usize = order[place + 1..].iter().map(extent).product();
    let count: usize = order.iter().map(extent).product();
    // Every warp must be full, unless there is only one.
    let whole = count < warp || (warp > 0 && count.is_multiple_of(warp));
    // Powers of two, so that an exchange by exclusive or of lane numbers stays in the group.
    let bits = extent(g).is_power_of_two() && apart.is_power_of_two();
    let lanes = extent(g).min(warp / apart);
    (whole && bits && lanes > 1).then_some((lanes, apart))
}

/// Reduces the values of `lanes` threads whose lane numbers are `apart`, by warp shuffles. All of
/// them get the same bits, since every fold is commutative.
fn fold_lanes(u: &UOp, mut value: UOp, lanes: usize, apart: usize) -> UOp {
    let mut bits = lanes * apart / 2;
    while bits >= apart {
        let other =
            UOp::new(Op::Shuffle, value.dtype(), [value.clone()].to_src(), Arg::Shuffle(bits));
        value = value.binary(fold_of(u).op(), other);
        bits /= 2;
    }
    value
}

/// Builds the shared reductions of a kernel. `numbered` is the order of threads that `stage` relies
/// on, if any. Warp shuffles rely on an order too; the result has the one to keep.
pub(super) fn group_reduce(ast: &UOp, numbered: Vec<u32>, target: &Target) -> (UOp, Vec<u32>) {
    let order = ast.toposort();
    let mut threads: Vec<UOp> = order
        .iter()
        .filter(|u| {
            u.op() == Op::Range && matches!(u.range_kind(), AxisKind::Local | AxisKind::Group)
        })
        .cloned()
        .collect();
    let groups: Vec<UOp> =
        threads.iter().filter(|r| r.range_kind() == AxisKind::Group).cloned().collect();
    if groups.is_empty() {
        return (ast.clone(), numbered);
    }
    let mut by_number: Vec<UOp> = match (target.warp, numbered.as_slice()) {
        (0, _) => Vec::new(),
        (_, []) => thread_order(ast),
        (_, list) => list
            .iter()
            .filter_map(|id| threads.iter().find(|r| r.range_id() == *id).cloned())
            .collect(),
    };
    if by_number.len() != threads.len() {
        by_number.clear();
    }
    let mut shuffled = false;
    threads.sort_by_key(|r| r.range_id());
    let count: usize = threads.iter().map(extent).product();
    let mut next_range = next_range(&order);
    let mut next_shared = next_shared(&order);
    // Each thread has its own element.
    let place = |map: &FxHashMap<u32, UOp>| -> UOp {
        let mut sum = UOp::int(0);
        for r in &threads {
            sum = &sum * extent(r) as i64 + map.get(&r.range_id()).unwrap_or(r);
        }
        sum
    };
    let written: Vec<&UOp> = ast.src().iter().map(|s| &s.src()[0].src()[0]).collect();
    // Every thread of a group has the result. One of them stores it, and only that one may read the
    // buffer that is written.
    let by_first = |old: &UOp, index: &UOp| -> UOp {
        let mut valid: Option<UOp> = index.src().get(2).cloned();
        for g in groups.iter().filter(|g| !old.uses_range(g.range_id())) {
            let first = g.equals(0i64);
            valid = Some(valid.map_or(first.clone(), |v| v.and(&first)));
        }
        index.with_src(index.src()[..2].iter().cloned().chain(valid).collect::<Src>())
    };
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in &order {
        let src: Src = u.src().iter().map(|s| done[&s.id()].clone()).collect();
        let new = match u.op() {
            Op::Reduce if u.src()[1..].iter().any(|r| groups.contains(r)) => {
                let own: Src = std::iter::once(src[0].clone())
                    .chain(src[1..].iter().filter(|r| !groups.contains(r)).cloned())
                    .collect();
                let part = if own.len() == 1 { src[0].clone() } else { u.with_src(own) };
                let shared: Vec<&UOp> =
                    u.src()[1..].iter().filter(|r| groups.contains(r)).collect();
                let mut range = |size: usize| -> UOp {
                    next_range += 1;
                    UOp::range(size as i64, next_range - 1, AxisKind::Reduce)
                };
                // In a loop, a barrier keeps a new partial result from overwriting one of the
                // previous iteration that another thread has not read yet.
                let turns =
                    |r: &UOp| r.op() == Op::Range && !is_position(r) && u.uses_range(r.range_id());
                let ready = |part: &UOp| {
                    order.iter().any(turns).then(|| {
                        UOp::new(Op::Barrier, DType::VOID, [part.clone()].to_src(), Arg::None)
                    })
                };
                let mut value = part;
                if let [g] = shared.as_slice()
                    && let Some((lanes, apart)) = in_warp(&by_number, g, target.warp)
                {
                    shuffled = true;
                    value = fold_lanes(u, value, lanes, apart);
                    let warps = extent(g) / lanes;
                    if warps > 1 {
                        // The results of the warps of a group are adjacent.
                        let others: Vec<&UOp> = threads.iter().filter(|r| r != g).collect();
                        let before =
                            others.iter().fold(UOp::int(0), |sum, r| &sum * extent(r) as i64 + *r);
                        let place = |i: UOp| &before * warps as i64 + i;
                        let first = (*g % lanes as i64).equals(0i64);
                        let each = lanes.min(warps);
                        let rounds: Vec<UOp> =
                            (warps > each).then(|| range(warps / each)).into_iter().collect();
                        let own = *g % each as i64;
                        let other = rounds.first().map_or(own.clone(), |r| r * each as i64 + &own);
                        let after = ready(&value);
                        let put = Parts {
                            at: place(*g / lanes as i64),
                            valid: Some(first),
                            len: count / lanes,
                            id: next_shared,
                        };
                        value = put.fold(u, &value, after, place(other), &rounds);
                        value = fold_lanes(u, value, each, apart);
                        next_shared += 1;
                    }
                } else if let [g] = shared.as_slice() {
                    let mut after = ready(&value);
                    // After each round, `left` threads hold different values, and the others copies
                    // of them.
                    let mut left = extent(g);
                    for n in rounds(left) {
                        left /= n;
                        let r = range(n);
                        let other = &r * left as i64 + *g % left as i64;
                        let put = Parts {
                            at: place(&FxHashMap::default()),
                            valid: None,
                            len: count,
                            id: next_shared,
                        };
                        value = put.fold(
                            u,
                            &value,
                            after.take(),
                            place(&FxHashMap::from_iter([(g.range_id(), other)])),
                            &[r],
                        );
                        next_shared += 1;
                    }
                } else {
                    let ranges: Vec<UOp> = shared.iter().map(|g| range(extent(g))).collect();
                    let others: FxHashMap<u32, UOp> =
                        shared.iter().map(|g| g.range_id()).zip(ranges.iter().cloned()).collect();
                    let put = Parts {
                        at: place(&FxHashMap::default()),
                        valid: None,
                        len: count,
                        id: next_shared,
                    };
                    let after = ready(&value);
                    value = put.fold(u, &value, after, place(&others), &ranges);
                    next_shared += 1;
                }
                within_bounds(u, value)
            }
            Op::Load if written.contains(&&u.src()[0].src()[0]) => {
                let mut src = src.clone();
                src[0] = by_first(&u.src()[0], &src[0]);
                if src.len() == 1 && src[0].src().len() == 3 {
                    src.push(UOp::constant(0i64, u.dtype()));
                }
                u.with_src(src)
            }
            Op::Store if ast.src().contains(u) => {
                let mut src = src.clone();
                src[0] = by_first(&u.src()[0], &src[0]);
                // Thread positions stay open to the end of the kernel.
                src.extend(groups.iter().filter(|g| !u.src()[2..].contains(g)).cloned());
                u.with_src(src)
            }
            _ => u.with_src(src),
        };
        done.insert(u.id(), new);
    }
    let numbered = if shuffled { by_number.iter().map(UOp::range_id).collect() } else { numbered };
    (simplify(&done[&ast.id()]), numbered)
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
