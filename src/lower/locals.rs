//! Reduces that the threads of a workgroup share: each thread folds its part, puts it into local memory, and after a barrier folds all parts.
//! After this pass no reduce closes a range of kind Group; such ranges are thread positions like those of kind Local.

use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp};
use crate::opt::extent;
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

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
    let mut next_range = order.iter().filter(|u| u.op() == Op::Range).map(|u| u.range_id() + 1).max().unwrap_or(0);
    let mut next_local = 0;
    // Each thread has its own place, so no two write the same one.
    let place = |map: &FxHashMap<u32, UOp>| -> UOp {
        let mut sum = UOp::int(0);
        for r in &threads {
            sum = &sum * extent(r) as i64 + map.get(&r.range_id()).unwrap_or(r);
        }
        sum
    };
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in &order {
        let src: Src = u.src().iter().map(|s| done[&s.id()].clone()).collect();
        let new = match u.op() {
            Op::Reduce if u.src()[1..].iter().any(|r| groups.contains(r)) => {
                let own: Src = std::iter::once(src[0].clone()).chain(src[1..].iter().filter(|r| !groups.contains(r)).cloned()).collect();
                let part = if own.len() == 1 { src[0].clone() } else { u.with_src(own) };
                let lanes = part.dtype().lanes as i64;
                let local = UOp::new(
                    Op::DefineLocal,
                    part.dtype().scalar(),
                    Src::new(),
                    Arg::Local { id: next_local, len: count * lanes as usize },
                );
                next_local += 1;
                let index = |i: UOp| UOp::new(Op::Index, local.dtype(), [local.clone(), simplify(&(i * lanes))].to_src(), Arg::None);
                // The first barrier keeps a new part from overwriting one that another thread has still to read in an earlier round.
                let ready = UOp::new(Op::Barrier, DType::VOID, [part.clone()].to_src(), Arg::None);
                let put = UOp::new(Op::Store, DType::VOID, [index(place(&FxHashMap::default())), part.clone(), ready].to_src(), Arg::None);
                let all = UOp::new(Op::Barrier, DType::VOID, [put].to_src(), Arg::None);
                let mut closing: Src = Src::new();
                let mut others: FxHashMap<u32, UOp> = FxHashMap::default();
                for g in u.src()[1..].iter().filter(|r| groups.contains(r)) {
                    let r = UOp::range(extent(g) as i64, next_range, AxisKind::Reduce);
                    next_range += 1;
                    others.insert(g.range_id(), r.clone());
                    closing.push(r);
                }
                let got = UOp::new(Op::Load, part.dtype(), [index(place(&others)), all].to_src(), Arg::None);
                let src: Src = std::iter::once(got).chain(closing).collect();
                UOp::new(Op::Reduce, u.dtype(), src, u.arg().clone())
            }
            // Every thread of a group has the result; one of them stores it.
            Op::Store if ast.src().contains(u) => {
                let mut valid: Option<UOp> = src[0].src().get(2).cloned();
                for g in groups.iter().filter(|g| !u.src()[0].uses_range(g.range_id())) {
                    let first = g.equals(0i64);
                    valid = Some(valid.map_or(first.clone(), |v| v.and(&first)));
                }
                let mut place: Src = src[0].src()[..2].iter().cloned().collect();
                place.extend(valid);
                let mut src = src.clone();
                src[0] = src[0].with_src(place);
                // Thread positions are open to the end of the kernel.
                src.extend(groups.iter().cloned());
                u.with_src(src)
            }
            _ => u.with_src(src),
        };
        done.insert(u.id(), new);
    }
    simplify(&done[&ast.id()])
}
