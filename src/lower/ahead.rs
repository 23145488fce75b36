//! Loads one turn ahead: what a loop copies into local memory is loaded in the turn before, into registers, so that it is on its way while the threads compute.
//!
//! In comes a program whose loop begins with loads, waits, stores what was loaded, and waits again; out comes one that loads for the first turn before the loop and for
//! each next turn after the second wait. In the last turn that is what the turn itself had, once more, and nobody looks at it.

use crate::ir::{Arg, IdSet, Op, Src, ToSrc, UOp};
use rustc_hash::FxHashMap;

/// The program, with the loops of these numbers changed. A loop that is not of the form stays as it is.
pub fn load_ahead(mut uops: Vec<UOp>, loops: &[u32]) -> Vec<UOp> {
    for id in loops {
        if let Some(changed) = one(&uops, *id) {
            uops = changed;
        }
    }
    uops
}

/// A node with other operands.
fn with(u: &UOp, map: &FxHashMap<u64, UOp>) -> UOp {
    if !u.src().iter().any(|s| map.contains_key(&s.id())) {
        return u.clone();
    }
    u.with_src(u.src().iter().map(|s| map.get(&s.id()).unwrap_or(s).clone()).collect::<Src>())
}

fn one(uops: &[UOp], id: u32) -> Option<Vec<UOp>> {
    let start = uops.iter().position(|u| u.op() == Op::Range && u.range_id() == id)?;
    let turn = &uops[start];
    let end = uops.iter().position(|u| u.op() == Op::EndRange && u.src()[0] == *turn)?;
    let mut waits = (start..end).filter(|i| uops[*i].op() == Op::Barrier);
    let (first, second) = (waits.next()?, waits.next()?);
    let beginning = &uops[start + 1..first];
    let straight = |u: &UOp| !matches!(u.op(), Op::Range | Op::If | Op::Store | Op::Assign | Op::DefineAcc);
    let is_load = |u: &UOp| u.op() == Op::Load && u.src()[0].src()[0].op() == Op::DefineGlobal;
    let loads: Vec<&UOp> = beginning.iter().filter(|u| is_load(u)).collect();
    if loads.is_empty() || !beginning.iter().all(straight) {
        return None;
    }
    // What the loads are made of, of all that is computed in the loop before them.
    let mut needed = IdSet::default();
    for u in beginning.iter().rev() {
        if is_load(u) || needed.has(u.id()) {
            needed.insert(u.id());
            for s in u.src() {
                needed.insert(s.id());
            }
        }
    }
    let mut listed = IdSet::default();
    for u in uops {
        listed.insert(u.id());
    }
    // The loads of another turn, put down where `out` ends, in the order of the loads.
    let mut again = |out: &mut Vec<UOp>, turn_is: UOp| -> Vec<UOp> {
        let mut map: FxHashMap<u64, UOp> = FxHashMap::from_iter([(turn.id(), turn_is)]);
        for u in beginning.iter().filter(|u| needed.has(u.id())) {
            let new = with(u, &map);
            if listed.insert(new.id()) {
                out.push(new.clone());
            }
            map.insert(u.id(), new);
        }
        loads.iter().map(|l| map[&l.id()].clone()).collect()
    };
    let number = |u: &UOp| if let Arg::Acc(n) = u.arg() { Some(n + 1) } else { None };
    let next = uops.iter().filter_map(number).max().unwrap_or(0);
    let mut out: Vec<UOp> = uops[..start].to_vec();
    let zero = UOp::constant(0i64, turn.dtype());
    let held: Vec<UOp> = again(&mut out, zero)
        .into_iter()
        .zip(next..)
        .map(|(load, n)| UOp::new(Op::DefineAcc, load.dtype(), [load].to_src(), Arg::Acc(n)))
        .collect();
    out.extend(held.iter().cloned());
    out.push(turn.clone());
    let mut map: FxHashMap<u64, UOp> = loads.iter().map(|l| l.id()).zip(held.iter().cloned()).collect();
    for (i, u) in uops.iter().enumerate().take(end).skip(start + 1) {
        if map.contains_key(&u.id()) && is_load(u) {
            continue;
        }
        let new = with(u, &map);
        if new != *u {
            map.insert(u.id(), new.clone());
        }
        out.push(new);
        if i == second {
            let last = UOp::constant(turn.src()[0].vmax() as i64 - 1, turn.dtype());
            let sum = turn.binary(Op::Add, UOp::constant(1i64, turn.dtype()));
            let following = sum.binary(Op::Min, last);
            out.extend([sum, following.clone()]);
            let loaded = again(&mut out, following);
            out.extend(held.iter().zip(loaded).map(|(acc, v)| UOp::new(Op::Assign, acc.dtype(), [acc.clone(), v].to_src(), Arg::None)));
        }
    }
    out.extend(uops[end..].iter().map(|u| with(u, &map)));
    Some(out)
}
