//! Gathers. A sum over a range of values of which a comparison with the range lets at most one through is that one value: a load at a computed
//! place in place of a loop over all places.

use crate::ir::{Arg, Fold, Op, Src, UOp};
use crate::rules;
use crate::symbolic::clauses;
use rustc_hash::FxHashMap;

rules! {
    /// Exact rules on the reduces of a kernel.
    pub SELECT |u, _cx: ()| {
        reduce_selected: Reduce(..) if matches!(u.arg(), Arg::Reduce { fold: Fold::Add, .. }) => selected(u);
    }
}

/// `sum over r of (r == e && c ? v : 0)`, where `e` does not depend on `r`, is `(0 <= e < extent && c ? v : 0)` at `r = e`. The place is also
/// clamped to the range, so that whatever is read at it is inside its buffer by its bounds alone, whether it is used or not.
fn selected(u: &UOp) -> Option<UOp> {
    let (body, ranges) = u.src().split_first()?;
    // The zero of a sum stays zero through casts.
    let mut casts = Vec::new();
    let mut choice = body;
    while choice.op() == Op::Cast {
        casts.push(choice.dtype());
        choice = &choice.src()[0];
    }
    let (Op::Where, [condition, value, zero]) = (choice.op(), choice.src()) else { return None };
    if !zero.as_const().is_some_and(|c| c.is_zero()) {
        return None;
    }
    let all = clauses(condition);
    let (clause, range, place) = all.iter().enumerate().find_map(|(i, c)| {
        let (Op::Eq, [x, y]) = (c.op(), c.src()) else { return None };
        [(x, y), (y, x)].into_iter().find_map(|(side, place)| {
            let range = ranges.iter().find(|r| is_range(side, r))?;
            (!place.uses_range(range.range_id())).then(|| (i, range, place.clone()))
        })
    })?;
    let extent = range.src()[0].as_int()?;
    let inside = place.lt(extent).and(place.ge(0i64));
    let at = place.cast(range.dtype()).binary(Op::Max, 0i64).binary(Op::Min, extent - 1);
    let others = all.iter().enumerate().filter(|(i, _)| *i != clause).map(|(_, c)| c.clone());
    let condition = others.fold(inside, |a, b| a.and(&b));
    let mut picked = condition.select(value, zero).substitute(&FxHashMap::from_iter([(range.clone(), at)]));
    for dtype in casts.into_iter().rev() {
        picked = picked.cast(dtype);
    }
    let rest: Src = ranges.iter().filter(|r| *r != range).cloned().collect();
    if rest.is_empty() {
        return Some(picked);
    }
    let mut src: Src = smallvec::smallvec![picked];
    src.extend(rest);
    Some(u.with_src(src))
}

/// Is it the range's value, as integers of a dtype that can hold all of it?
fn is_range(u: &UOp, range: &UOp) -> bool {
    let mut x = u;
    while x.op() == Op::Cast && x.dtype().is_int() && x.src()[0].vmin() == x.vmin() && x.src()[0].vmax() == x.vmax() {
        x = &x.src()[0];
    }
    x == range
}
