//! Builds the expressions of kernels from inputs to outputs, from the uses that `ranges` has found.

use super::index::{flat, load};
use super::ranges::{
    Decided, IndexCache, PendingStore, RangeAssignment, Use, UserKernel, home, placeholder, whole,
};
use super::{cat, scan, scatter};
use crate::dtype::DType;
use crate::ir::{Arg, Group, Op, Src, ToSrc, UOp};
use crate::symbolic::{simplify, simplify_mask};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The buffers that are nearest under nodes, in ascending order.
fn computed_under(nodes: &[UOp], numbers: &FxHashMap<u64, usize>) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut seen: FxHashSet<u64> = FxHashSet::default();
    let mut open: Vec<&UOp> = nodes.iter().collect();
    while let Some(u) = open.pop() {
        match numbers.get(&u.id()) {
            Some(n) => found.push(*n),
            None => open.extend(u.src().iter().filter(|s| seen.insert(s.id()))),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
/// Builds expressions from inputs to outputs.
pub(super) fn build(
    order: &[UOp],
    inputs: usize,
    decided: Decided,
    moves: &mut IndexCache,
) -> RangeAssignment {
    let Decided { demands, next_range, stored, evaluated } = decided;
    let mut values: FxHashMap<(u64, usize), UOp> = FxHashMap::default();
    let mut out = RangeAssignment {
        stored: Vec::new(),
        copies: Vec::new(),
        waits: FxHashMap::default(),
        customs: Vec::new(),
        numbers: FxHashMap::default(),
        count: inputs,
        next_range,
    };
    let next = |out: &mut RangeAssignment| {
        out.count += 1;
        out.count - 1
    };
    let mut buffers: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in order {
        if u.numel() == 0 {
            // Nothing is ever read from it; what users need is a value of the dtype.
            for k in 0..demands.get(&u.id()).map_or(0, |d| d.len()) {
                values.insert((u.id(), k), UOp::constant(0i64, u.dtype()));
            }
            continue;
        }
        match u.op() {
            Op::Param => {
                let Arg::Param { slot, .. } = u.arg() else {
                    panic!("a parameter without a slot: {u:?}")
                };
                buffers.insert(u.id(), u.clone());
                out.numbers.insert(u.id(), *slot);
            }
            Op::Copy => {
                let number = next(&mut out);
                buffers.insert(u.id(), placeholder(u, number));
                out.numbers.insert(u.id(), number);
                let (source, part) = home(u.operand());
                let from = out.numbers[&source.id()];
                out.copies.push((number, from, part.map_or(0, |p| p.start)));
                if let [_, after @ ..] = u.src()
                    && !after.is_empty()
                {
                    let waits =
                        std::iter::once(from).chain(computed_under(after, &out.numbers)).collect();
                    out.waits.insert(number, waits);
                }
            }
            Op::Kernel | Op::Loop => {
                let count = match u.arg() {
                    Arg::Kernel(kernel) => kernel.outputs.len(),
                    Arg::Loop(l) => l.body.src().len(),
                    _ => panic!("a kernel without a body: {u:?}"),
                };
                let writes = (0..count).map(|_| next(&mut out)).collect();
                let reads = u.src().iter().map(|s| out.numbers[&whole(s).id()]).collect();
                out.customs.push(UserKernel { node: u.clone(), writes, reads });
            }
            Op::Output => {
                let Arg::Output(i) = u.arg() else { panic!("an output without a number: {u:?}") };
                let kernel = out
                    .customs
                    .iter()
                    .rev()
                    .find(|c| c.node == *u.operand())
                    .expect("a kernel comes before its outputs");
                let number = kernel.writes[*i];
                buffers.insert(u.id(), placeholder(u, number));
                out.numbers.insert(u.id(), number);
            }
            _ => {}
        }
        if let (Op::Scatter, Some(evals)) = (u.op(), evaluated.get(&u.id())) {
            let number = next(&mut out);
            let buffer = placeholder(u, number);
            let operand = |i: usize, d: usize, k: usize| {
                values[&(u.src()[i].id(), evals[d].operands[k])].clone()
            };
            let operands = [operand(0, 0, 0), operand(1, 1, 0), operand(2, 1, 1)];
            out.stored.extend(scatter::stored(u, number, &buffer, evals, operands));
            buffers.insert(u.id(), buffer);
            out.numbers.insert(u.id(), number);
        } else if let (Op::Cat, Some(evals)) = (u.op(), evaluated.get(&u.id())) {
            let number = next(&mut out);
            let operand = |i: usize, d: &Use| values[&(u.src()[i].id(), d.operands[0])].clone();
            out.stored.extend(cat::stored(u, number, evals, operand));
            buffers.insert(u.id(), placeholder(u, number));
            out.numbers.insert(u.id(), number);
        } else if let Some(evals) = evaluated.get(&u.id()) {
            for (k, d) in evals.iter().enumerate() {
                let value = expression(u, d, &values, moves);
                match stored.get(&u.id()) {
                    Some(ranges) => {
                        let number = next(&mut out);
                        buffers.insert(u.id(), placeholder(u, number));
                        out.numbers.insert(u.id(), number);
                        let index = flat(&d.at, u.shape());
                        out.stored.push(PendingStore {
                            node: u.clone(),
                            number,
                            ranges: ranges.clone(),
                            value,
                            index,
                            update: None,
                        });
                    }
                    None => drop(values.insert((u.id(), k), value)),
                }
            }
        }
        if matches!(u.op(), Op::Const | Op::Var) {
            for k in 0..demands.get(&u.id()).map_or(0, |d| d.len()) {
                values.insert((u.id(), k), u.clone());
            }
        } else if let Some(buffer) = buffers.get(&u.id()) {
            for (k, d) in demands.get(&u.id()).into_iter().flatten().enumerate() {
                let value = load(buffer, u.numel(), flat(&d.at, u.shape()), &d.valid);
                values.insert((u.id(), k), value);
            }
        }
    }
    out
}

/// The value of a node at one demand, from its operands' values.
fn expression(
    u: &UOp,
    d: &Use,
    values: &FxHashMap<(u64, usize), UOp>,
    moves: &mut IndexCache,
) -> UOp {
    let operand = |i: usize| values[&(u.src()[i].id(), d.operands[i])].clone();
    if u.op().is(Group::Movement) {
        let (x, _, valid) = moves.of(u, &d.at);
        let value = values[&(x.id(), d.operands[0])].clone();
        let valid = simplify_mask(&simplify(valid));
        // A guarded load is zero by itself where there is no element.
        let zero_there = value.as_load().is_some_and(|load| load.alt.is_some());
        return if valid.is_int(1) || zero_there {
            value
        } else {
            valid.select(&value, &UOp::constant(0i64, u.dtype()))
        };
    }
    match u.op() {
        Op::Const | Op::Var => u.clone(),
        Op::Iota => d.at[0].cast(u.dtype()),
        Op::Contiguous | Op::Slice => operand(0),
        Op::Scan => scan::expression(u, operand(0), &d.at),
        Op::Reduce => {
            let Arg::Reduce { fold, .. } = u.arg() else {
                panic!("a reduce without a payload: {u:?}")
            };
            if d.opened.is_empty() {
                return fold.of_one(&operand(0));
            }
            let mut src: Src = [operand(0)].to_src();
            src.extend(d.opened.iter().cloned());
            UOp::new(Op::Reduce, u.dtype(), src, Arg::Reduce { fold: *fold, axes: SmallVec::new() })
        }
        _ => {
            debug_assert!(u.op().is_alu() || u.dtype() == DType::VOID, "no expression for {u:?}");
            UOp::new(
                u.op(),
                u.dtype(),
                (0..u.src().len()).map(operand).collect::<Src>(),
                u.arg().clone(),
            )
        }
    }
}
