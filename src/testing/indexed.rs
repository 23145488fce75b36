//! Bounds of gathers and scatters. Updates of one element happen in order, so that they are as
//! exact as the operations.

use super::bounds::{Bound, BoundedValue, rounded};
use crate::dtype::Const;
use crate::ir::typed::Scatter;
use crate::ir::{UOp, eval};
use crate::reference::Value;

/// Returns the flat position in the table of each element of an index; none if it is out of range.
fn places(index: &Value, table: &[usize], axis: usize) -> Vec<Option<usize>> {
    let inner: usize = table[axis + 1..].iter().product();
    let (size, count) = (table[axis], index.shape[axis]);
    let at = |(i, c): (usize, &Const)| {
        let place = usize::try_from(c.as_i64()?).ok().filter(|p| *p < size)?;
        Some((i / (inner * count) * size + place) * inner + i % inner)
    };
    index.data.iter().enumerate().map(at).collect()
}

/// Returns the bounds of a gather: those of the elements that it reads.
pub(super) fn gather(u: &UOp, src: &[&BoundedValue]) -> Vec<Bound> {
    let axis = u.expect_gather().axis;
    let bound = |(i, p): (usize, &Option<usize>)| match (src[1].bounds[i], p) {
        (Bound::Exact, Some(p)) => src[0].bounds[*p],
        (Bound::Exact, None) => Bound::Exact,
        _ => Bound::Unknown,
    };
    places(&src[1].value, &src[0].value.shape, axis).iter().enumerate().map(bound).collect()
}

/// Returns the bounds of a scatter.
pub(super) fn scatter(u: &UOp, src: &[&BoundedValue]) -> Vec<Bound> {
    let Scatter { combine, axis, .. } = u.expect_scatter();
    if src[1].bounds.iter().any(|b| *b != Bound::Exact) {
        return vec![Bound::Unknown; src[0].bounds.len()];
    }
    let dtype = u.dtype();
    let wide = dtype.computed_in();
    let mut table = src[0].clone();
    for (i, p) in places(&src[1].value, &src[0].value.shape, axis).into_iter().enumerate() {
        let Some(p) = p else { continue };
        let Some(fold) = combine.fold() else {
            (table.bounds[p], table.value.data[p]) = (src[2].bounds[i], src[2].value.data[i]);
            continue;
        };
        table.bounds[p] =
            match (table.bounds[p], src[2].bounds[i], table.interval(p), src[2].interval(i)) {
                (Bound::Exact, Bound::Exact, ..) => Bound::Exact,
                (_, _, Some(x), Some(y)) => rounded(fold.op(), wide, &[x, y]),
                _ => Bound::Unknown,
            };
        table.value.data[p] = eval::fold(fold, wide, table.value.data[p], src[2].value.data[i]);
    }
    if wide == dtype {
        return table.bounds;
    }
    let narrow = |b: Bound| match b {
        Bound::Within(lo, hi) => super::bounds::cast(dtype, (lo, hi)),
        b => b,
    };
    table.bounds.into_iter().map(narrow).collect()
}
