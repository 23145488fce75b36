//! Reads and writes at indices in random graphs: how they grow, and between which limits their
//! results lie. Updates of one element happen in order, so they are as exact as the operations that
//! they are made of.

use super::bounds::{Bound, Traced, rounded};
use crate::dtype::{Const, DType};
use crate::ir::{Arg, Combine, UOp, eval};
use crate::reference::Value;

/// The flat place in the table that each element of an index names.
fn places(index: &Value, table: &[usize], axis: usize) -> Vec<Option<usize>> {
    let inner: usize = table[axis + 1..].iter().product();
    let (size, count) = (table[axis], index.shape[axis]);
    let at = |(i, c): (usize, &Const)| {
        let place = usize::try_from(c.as_i64()?).ok().filter(|p| *p < size)?;
        Some((i / (inner * count) * size + place) * inner + i % inner)
    };
    index.data.iter().enumerate().map(at).collect()
}

/// The limits of what is read: those of the elements.
pub(super) fn gather(u: &UOp, src: &[&Traced]) -> Vec<Bound> {
    let Arg::Gather { axis } = u.arg() else { panic!("not a gather: {u:?}") };
    let bound = |(i, p): (usize, &Option<usize>)| match (src[1].bounds[i], p) {
        (Bound::Exact, Some(p)) => src[0].bounds[*p],
        (Bound::Exact, None) => Bound::Exact,
        _ => Bound::Unknown,
    };
    places(&src[1].value, &src[0].value.shape, *axis).iter().enumerate().map(bound).collect()
}

/// The limits of a table after its updates.
pub(super) fn scatter(u: &UOp, src: &[&Traced]) -> Vec<Bound> {
    let Arg::Scatter { combine, axis } = u.arg() else { panic!("not a scatter: {u:?}") };
    if src[1].bounds.iter().any(|b| *b != Bound::Exact) {
        return vec![Bound::Unknown; src[0].bounds.len()];
    }
    let dtype = u.dtype();
    let wide = if dtype.is_float() && dtype.bits() < 32 { DType::F32 } else { dtype };
    let mut table = src[0].clone();
    for (i, p) in places(&src[1].value, &src[0].value.shape, *axis).into_iter().enumerate() {
        let Some(p) = p else { continue };
        let fold = match combine {
            Combine::Set | Combine::SetDistinct => {
                (table.bounds[p], table.value.data[p]) = (src[2].bounds[i], src[2].value.data[i]);
                continue;
            }
            _ => combine.fold().expect("all others are folds"),
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
