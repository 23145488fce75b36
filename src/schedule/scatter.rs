//! Writes at indices. A scatter is two stores to one buffer: the base, over the axes of the table,
//! and the updates, over the axes of the index. The indexed axis of the updates is an ordered loop,
//! so that updates of one element happen in order; updates at different positions of the other axes
//! never write the same element. Updates with distinct indices (`SetDistinct`) need no order.
//!
//! Before: `Scatter(base[n, m], index[k, m], value[k, m]) {combine=Add axis=0}`. After:
//!
//! ```text
//! for i in n, j in m:            out[i, j] = base[i, j]
//! for u in k (ordered), j in m:  if 0 <= index[u, j] < n: out[index[u, j], j] += value[u, j]
//! ```

use super::assign_ranges::{PendingStore, Use, Walk};
use super::index::{flat, load};
use super::reduce_simplify::{reduce_simplify, selects};
use crate::dtype::DType;
use crate::ir::typed::Scatter;
use crate::ir::{AxisKind, Combine, Op, UOp};
use crate::symbolic::simplify;

/// Adds the uses of the operands: of the base in the first evaluation, of index and value in that
/// of the updates, which is added.
pub(super) fn propagate(u: &UOp, evals: &mut Vec<Use>, walk: &mut Walk) {
    let Scatter { base, index, value, combine, axis: along, .. } = u.expect_scatter();
    let k = walk.add_use_at(base, &evals[0]);
    evals[0].operands.push(k);
    let is_ordered = |axis: usize| axis == along && combine != Combine::SetDistinct;
    let kind = |axis| if is_ordered(axis) { AxisKind::Ordered } else { AxisKind::Global };
    let (at, ranges) = walk.axis_ranges(index, kind);
    let mut updates = walk.new_kernel_use(at, &ranges, index.numel());
    for x in [index, value] {
        let k = walk.add_use_at(x, &updates);
        updates.operands.push(k);
    }
    evals.push(updates);
}

/// Returns true if a value that the updates of a scatter use is stored before them. The ordered
/// loop has one thread and no tiles, so a value of more than `most` work for each element gets a
/// kernel.
pub(super) fn stores_before_updates(u: &UOp, uses: &[Use], each: f64, most: f64) -> bool {
    let in_order = |d: &Use| d.loops.iter().any(|r| r.range_kind() == AxisKind::Ordered);
    let heavy = if u.op() == Op::Reduce { !selects(u) } else { each > most };
    heavy && uses.iter().any(in_order)
}

/// Returns the two stores. The operands are the values of base, index and value at their
/// evaluations.
pub(super) fn stored(
    u: &UOp,
    buffer_id: usize,
    buffer: &UOp,
    evals: &[Use],
    [base, index, value]: [UOp; 3],
) -> [PendingStore; 2] {
    let Scatter { combine, axis, .. } = u.expect_scatter();
    let (table, updates) = (&evals[0], &evals[1]);
    let ranges = |d: &Use| d.loops.to_vec();
    let first = PendingStore {
        node: u.clone(),
        buffer: buffer_id,
        ranges: ranges(table),
        value: base,
        index: flat(&table.at, u.shape()),
        update: None,
    };
    let place = reduce_simplify(&index);
    let size = u.shape()[axis] as i128;
    // An index outside the axis writes nothing. It is also clamped, so that the load of the update
    // is inside the buffer by its bounds alone.
    let (mut inside, mut clamped) = (UOp::truth(true), place.clone());
    if place.vmin() < 0 {
        (inside, clamped) = (place.ge(0i64), clamped.binary(Op::Max, 0i64));
    }
    if place.vmax() >= size {
        clamped = clamped.binary(Op::Min, size as i64 - 1);
        // An index that could leave the axis at both ends is inside if clamping does not change it:
        // one comparison per update.
        inside = if place.vmin() < 0 { place.equals(&clamped) } else { place.lt(size as i64) };
    }
    if let Some(extent) = u.extent(axis) {
        inside = inside.and(place.cast(DType::INDEX).lt(UOp::from_symint(extent, DType::INDEX)));
    }
    let inside = simplify(&inside);
    let mut at = updates.at.clone();
    at[axis] = clamped.cast(DType::INDEX);
    let at = flat(&at, u.shape());
    let value = reduce_simplify(&value);
    let value = match combine.fold() {
        None => value,
        Some(fold) => {
            load(buffer, u.numel(), at.clone(), &UOp::truth(true)).binary(fold.op(), value)
        }
    };
    let second = PendingStore {
        node: u.clone(),
        buffer: buffer_id,
        ranges: ranges(updates),
        value,
        index: at,
        update: Some(inside),
    };
    [first, second]
}
