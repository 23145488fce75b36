//! Writes at indices. A scatter is two stores to one buffer: the base, over the axes of the table,
//! and the updates, over the axes of the index. The axis along which indices are places is a loop
//! of kind `Ordered`, so that updates of one element happen one after the other, in order; updates
//! of different positions along the other axes never meet. Updates that are said to have distinct
//! places (`SetDistinct`) need no order.
//!
//! Before: `Scatter(base[n, m], index[k, m], value[k, m]) {combine=Add axis=0}`. After:
//!
//! ```text
//! for i in n, j in m:            out[i, j] = base[i, j]
//! for u in k (ordered), j in m:  if 0 <= index[u, j] < n: out[index[u, j], j] += value[u, j]
//! ```

use super::cost;
use super::index::{flat, load};
use super::ranges::{Indices, PendingStore, Use, Walk};
use super::reduce_simplify::simplify_reduces;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Combine, Op, UOp};
use crate::symbolic::simplify;

fn payload(u: &UOp) -> (Combine, usize) {
    match u.arg() {
        Arg::Scatter { combine, axis } => (*combine, *axis),
        _ => panic!("not a scatter: {u:?}"),
    }
}

/// Passes the evaluation of the base on to it, and adds the one of the updates.
pub(super) fn propagate(u: &UOp, evals: &mut Vec<Use>, walk: &mut Walk) {
    let (combine, along) = payload(u);
    let [base, index, value] = u.src() else { panic!("a scatter without operands: {u:?}") };
    let k = walk.demand_at(base, &evals[0]);
    evals[0].operands.push(k);
    let mut ranges = Vec::new();
    let at: Indices = (0..index.shape().len())
        .map(|axis| {
            if index.shape()[axis] == 1 {
                return UOp::int(0);
            }
            let kind = if axis == along && combine != Combine::SetDistinct {
                AxisKind::Ordered
            } else {
                AxisKind::Global
            };
            ranges.push(walk.range(index, axis, kind));
            ranges[ranges.len() - 1].clone()
        })
        .collect();
    let mut updates = walk.own(at, &ranges, index.numel());
    for x in [index, value] {
        let k = walk.demand_at(x, &updates);
        updates.operands.push(k);
    }
    evals.push(updates);
}

/// True if a value that the updates of a scatter use is stored before them. The ordered loop has
/// one thread and no tiles, so a value of more than `most` work for each element gets a kernel.
pub(super) fn stores(u: &UOp, demands: &[Use], each: f64, most: f64) -> bool {
    let in_order = |d: &Use| d.loops.iter().any(|r| r.range_kind() == AxisKind::Ordered);
    let heavy = if u.op() == Op::Reduce { !cost::selects(u) } else { each > most };
    heavy && demands.iter().any(in_order)
}

/// The two stores. The operands are the values of base, index and value at their evaluations.
pub(super) fn stored(
    u: &UOp,
    number: usize,
    buffer: &UOp,
    evals: &[Use],
    [base, index, value]: [UOp; 3],
) -> [PendingStore; 2] {
    let (combine, axis) = payload(u);
    let (table, updates) = (&evals[0], &evals[1]);
    let ranges = |d: &Use| d.loops.to_vec();
    let first = PendingStore {
        node: u.clone(),
        number,
        ranges: ranges(table),
        value: base,
        index: flat(&table.at, u.shape()),
        update: None,
    };
    let place = simplify_reduces(&index);
    let size = u.shape()[axis] as i128;
    // Outside the axis nothing is written. The place is also clamped to it, so that what is read
    // there is inside the buffer by its bounds alone.
    let (mut inside, mut clamped) = (UOp::truth(true), place.clone());
    if place.vmin() < 0 {
        (inside, clamped) = (place.ge(0i64), clamped.binary(Op::Max, 0i64));
    }
    if place.vmax() >= size {
        clamped = clamped.binary(Op::Min, size as i64 - 1);
        // What could leave the axis at both ends is inside where clamping changes nothing: one
        // comparison for each update.
        inside = if place.vmin() < 0 { place.equals(&clamped) } else { place.lt(size as i64) };
    }
    if let Some(extent) = u.extent(axis) {
        inside = inside.and(place.cast(DType::INDEX).lt(UOp::from_symint(extent, DType::INDEX)));
    }
    let inside = simplify(&inside);
    let mut at = updates.at.clone();
    at[axis] = clamped.cast(DType::INDEX);
    let at = flat(&at, u.shape());
    let value = simplify_reduces(&value);
    let value = match combine.fold() {
        None => value,
        Some(fold) => {
            load(buffer, u.numel(), at.clone(), &UOp::truth(true)).binary(fold.op(), value)
        }
    };
    let second = PendingStore {
        node: u.clone(),
        number,
        ranges: ranges(updates),
        value,
        index: at,
        update: Some(inside),
    };
    [first, second]
}
