//! Software pipelining of loads: an iteration of a loop computes while the data of the next one is
//! being loaded. A marked load becomes a load of the first iteration before the loop and a load of
//! the next iteration inside it, held in an accumulator. The last iteration loads its own data
//! again.
//!
//! ```text
//! for i { y = load(x[i]); use(y) }
//! =>
//! acc = load(x[0]); for i { next = load(x[min(i + 1, n - 1)]); use(acc); acc = next }
//! ```

use crate::ir::{Arg, IdSet, Op, Src, ToSrc, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Prefetches the marked loads of a linear program. A load that depends on data or on written
/// buffers stays where it is.
pub(super) fn prefetch(mut list: Vec<UOp>) -> Vec<UOp> {
    while let Some(id) = list.iter().find_map(marked) {
        list = in_loop(&list, id);
    }
    list
}

/// Returns the number of the loop in which a load is prefetched.
fn marked(u: &UOp) -> Option<u32> {
    match u.arg() {
        Arg::LoadHint(hint) => hint.prefetch_in,
        _ => None,
    }
}

fn plain(u: &UOp) -> UOp {
    UOp::new(Op::Load, u.dtype(), u.src().iter().cloned().collect::<Src>(), Arg::None)
}

/// Returns true if the value of the load does not depend on when the load executes: its buffer is
/// read-only, and its index and mask depend on the loop alone, not on data.
fn is_movable(u: &UOp, range: &UOp, written: &FxHashSet<u64>) -> bool {
    let place = &u.src()[0];
    let data = |n: &UOp| matches!(n.op(), Op::Load | Op::DefineAcc | Op::Assign | Op::Barrier);
    let order = crate::ir::toposort(u.src());
    place.src()[0].op() == Op::DefineGlobal
        && !written.contains(&place.src()[0].id())
        && !order.iter().any(data)
        && order.contains(range)
}

/// Prefetches the loads of one loop.
fn in_loop(list: &[UOp], id: u32) -> Vec<UOp> {
    let begin = list.iter().position(|u| u.op() == Op::Range && u.range_id() == id);
    let end = begin
        .and_then(|b| list.iter().position(|u| u.op() == Op::EndRange && u.src()[0] == list[b]));
    let turns = begin.and_then(|b| list[b].src()[0].as_int());
    let written: FxHashSet<u64> =
        list.iter().filter(|u| u.op() == Op::Store).map(|u| u.src()[0].src()[0].id()).collect();
    let mut out: Vec<UOp> = Vec::with_capacity(list.len());
    let mut listed = IdSet::default();
    // The new form of each node.
    let mut map: FxHashMap<u64, UOp> = FxHashMap::default();
    let mut next_acc = list
        .iter()
        .filter_map(|u| if let Arg::Acc(n) = u.arg() { Some(n + 1) } else { None })
        .max()
        .unwrap_or(0);
    let (mut depth, mut keeps): (usize, Vec<(UOp, UOp)>) = (0, Vec::new());
    for (i, u) in list.iter().enumerate() {
        if let (true, Some(end), Some(turns)) = (Some(i) == begin, end, turns) {
            // Loads of the loop itself, not of a loop or conditional inside it.
            let mut ahead: Vec<&UOp> = Vec::new();
            for n in &list[i + 1..end] {
                match n.op() {
                    Op::Range | Op::If => depth += 1,
                    Op::EndRange | Op::EndIf => depth -= 1,
                    _ if depth == 0 && marked(n) == Some(id) && is_movable(n, u, &written) => {
                        ahead.push(n)
                    }
                    _ => {}
                }
            }
            let at = |load: &UOp, place: &UOp| {
                plain(load).substitute(&FxHashMap::from_iter([(u.clone(), place.clone())]))
            };
            let mut put = |value: &UOp, out: &mut Vec<UOp>| {
                for n in value.toposort() {
                    if n.op() != Op::Const && listed.insert(n.id()) {
                        out.push(n);
                    }
                }
            };
            let accs: Vec<UOp> = ahead
                .iter()
                .map(|load| {
                    let first = at(load, &UOp::constant(0i64, u.dtype()));
                    put(&first, &mut out);
                    next_acc += 1;
                    let acc = UOp::new(
                        Op::DefineAcc,
                        first.dtype(),
                        [first].to_src(),
                        Arg::Acc(next_acc - 1),
                    );
                    put(&acc, &mut out);
                    acc
                })
                .collect();
            put(u, &mut out);
            let one = UOp::constant(1i64, u.dtype());
            // The last iteration loads its own data again.
            let next = (u + &one).binary(Op::Min, UOp::constant(turns - 1, u.dtype()));
            for (load, acc) in ahead.into_iter().zip(accs) {
                let value = at(load, &next);
                put(&value, &mut out);
                map.insert(load.id(), acc.clone());
                keeps.push((acc, value));
            }
            continue;
        }
        if Some(i) == end {
            out.extend(keeps.iter().map(|(acc, value)| {
                UOp::new(Op::Assign, acc.dtype(), [acc.clone(), value.clone()].to_src(), Arg::None)
            }));
        }
        if map.contains_key(&u.id()) {
            continue;
        }
        let src: Src = u.src().iter().map(|s| map.get(&s.id()).unwrap_or(s).clone()).collect();
        let new = if marked(u) == Some(id) { plain(&u.with_src(src)) } else { u.with_src(src) };
        if new != *u {
            map.insert(u.id(), new.clone());
        }
        // A condition may open several regions; every other node is listed once.
        if matches!(u.op(), Op::If | Op::EndIf) || listed.insert(new.id()) {
            out.push(new);
        }
    }
    used(out)
}

/// Removes instructions whose value is not used.
fn used(list: Vec<UOp>) -> Vec<UOp> {
    let mut needed = IdSet::default();
    let mut kept: Vec<UOp> = Vec::with_capacity(list.len());
    for u in list.into_iter().rev() {
        let idle =
            u.op().is_alu() || matches!(u.op(), Op::Index | Op::Load | Op::Vectorize | Op::Gep);
        if idle && !needed.has(u.id()) {
            continue;
        }
        for s in u.src() {
            needed.insert(s.id());
        }
        kept.push(u);
    }
    kept.reverse();
    kept
}
