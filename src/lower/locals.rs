//! Reduces that the threads of a workgroup share: each thread folds its part, puts it into local memory, and after a barrier folds all parts.
//! After this pass no reduce closes a range of kind Group; such ranges are thread positions like those of kind Local.

use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp, next_range};
use crate::opt::extent;
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Parts that a thread folds in one round. Few, because all threads of the workgroup read at the same time.
const EACH_ROUND: usize = 8;

/// The rounds in which so many parts become one: how many each thread folds at a time.
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

/// Each thread puts its part into local memory at its place, and after a barrier folds the parts that `others` says, over `ranges`.
#[expect(clippy::too_many_arguments, reason = "they are all of one step")]
fn fold_parts(
    u: &UOp,
    part: &UOp,
    after: Option<UOp>,
    place: &dyn Fn(&FxHashMap<u32, UOp>) -> UOp,
    others: &[(u32, UOp)],
    ranges: &[UOp],
    id: u32,
    threads: usize,
) -> UOp {
    let lanes = part.dtype().lanes as i64;
    let local = UOp::new(Op::DefineLocal, part.dtype().scalar(), Src::new(), Arg::Local { id, len: threads * lanes as usize });
    let index = |i: UOp| UOp::new(Op::Index, local.dtype(), [local.clone(), simplify(&(i * lanes))].to_src(), Arg::None);
    let mut put: Src = [index(place(&FxHashMap::default())), part.clone()].to_src();
    put.extend(after);
    let put = UOp::new(Op::Store, DType::VOID, put, Arg::None);
    let all = UOp::new(Op::Barrier, DType::VOID, [put].to_src(), Arg::None);
    let got = UOp::new(Op::Load, part.dtype(), [index(place(&others.iter().cloned().collect())), all].to_src(), Arg::None);
    UOp::new(Op::Reduce, u.dtype(), std::iter::once(got).chain(ranges.iter().cloned()).collect::<Src>(), u.arg().clone())
}

/// The pass.
pub fn share_reduces(ast: &UOp) -> UOp {
    let order = ast.toposort();
    let mut threads: Vec<UOp> =
        order.iter().filter(|u| u.op() == Op::Range && matches!(u.range_kind(), AxisKind::Local | AxisKind::Group)).cloned().collect();
    let groups: Vec<UOp> = threads.iter().filter(|r| r.range_kind() == AxisKind::Group).cloned().collect();
    if groups.is_empty() {
        return ast.clone();
    }
    threads.sort_by_key(|r| r.range_id());
    let count: usize = threads.iter().map(extent).product();
    let mut next_range = next_range(&order);
    let local = |u: &UOp| if let Arg::Local { id, .. } = u.arg() { Some(id + 1) } else { None };
    let mut next_local = order.iter().filter_map(local).max().unwrap_or(0);
    // Each thread has its own place, so no two write the same one.
    let place = |map: &FxHashMap<u32, UOp>| -> UOp {
        let mut sum = UOp::int(0);
        for r in &threads {
            sum = &sum * extent(r) as i64 + map.get(&r.range_id()).unwrap_or(r);
        }
        sum
    };
    let written: Vec<&UOp> = ast.src().iter().map(|s| &s.src()[0].src()[0]).collect();
    // Every thread of a group has the result; one of them stores it, and so only that one may read what was there before.
    let by_first = |index: &UOp| -> UOp {
        let mut valid: Option<UOp> = index.src().get(2).cloned();
        for g in groups.iter().filter(|g| !index.uses_range(g.range_id())) {
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
                let own: Src = std::iter::once(src[0].clone()).chain(src[1..].iter().filter(|r| !groups.contains(r)).cloned()).collect();
                let part = if own.len() == 1 { src[0].clone() } else { u.with_src(own) };
                let shared: Vec<&UOp> = u.src()[1..].iter().filter(|r| groups.contains(r)).collect();
                let mut range = |size: usize| -> UOp {
                    next_range += 1;
                    UOp::range(size as i64, next_range - 1, AxisKind::Reduce)
                };
                // The first barrier keeps a new part from overwriting one that another thread has still to read in an earlier round.
                let ready = UOp::new(Op::Barrier, DType::VOID, [part.clone()].to_src(), Arg::None);
                let mut after = Some(ready);
                let mut value = part;
                if let [g] = shared.as_slice() {
                    // After each round as many threads hold different values as there are parts left; the others hold the same again.
                    let mut left = extent(g);
                    for n in rounds(left) {
                        left /= n;
                        let r = range(n);
                        let other = &r * left as i64 + *g % left as i64;
                        value = fold_parts(u, &value, after.take(), &place, &[(g.range_id(), other)], &[r], next_local, count);
                        next_local += 1;
                    }
                } else {
                    let ranges: Vec<UOp> = shared.iter().map(|g| range(extent(g))).collect();
                    let others: Vec<(u32, UOp)> = shared.iter().map(|g| g.range_id()).zip(ranges.iter().cloned()).collect();
                    value = fold_parts(u, &value, after, &place, &others, &ranges, next_local, count);
                    next_local += 1;
                }
                value
            }
            Op::Load if written.contains(&&u.src()[0].src()[0]) => {
                let mut src = src.clone();
                src[0] = by_first(&src[0]);
                if src.len() == 1 && src[0].src().len() == 3 {
                    src.push(UOp::constant(0i64, u.dtype()));
                }
                u.with_src(src)
            }
            Op::Store if ast.src().contains(u) => {
                let mut src = src.clone();
                src[0] = by_first(&src[0]);
                // Thread positions are open to the end of the kernel.
                src.extend(groups.iter().filter(|g| !u.src()[2..].contains(g)).cloned());
                u.with_src(src)
            }
            _ => u.with_src(src),
        };
        done.insert(u.id(), new);
    }
    simplify(&done[&ast.id()])
}
