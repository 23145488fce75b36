//! Reductions and scans, in row-major order of the input.

use super::Value;
use super::movement::{flat, step};
use crate::ir::{Fold, eval};
use crate::shape::Dims;

/// Returns the reduction over the axes, which remain with size one. Over no element it is the
/// identity. Each result is rounded once.
pub(super) fn reduce(x: &Value, fold: Fold, axes: &[usize]) -> Value {
    let wide = x.dtype.computed_in();
    let shape: Dims = x
        .shape
        .iter()
        .enumerate()
        .map(|(axis, &size)| if axes.contains(&axis) { 1 } else { size })
        .collect();
    let numel: usize = shape.iter().product();
    let mut data = vec![fold.identity(x.dtype); numel];
    let mut at: Dims = x.shape.iter().map(|_| 0).collect();
    for &element in &x.data {
        let place: Dims = at
            .iter()
            .enumerate()
            .map(|(axis, &i)| if axes.contains(&axis) { 0 } else { i })
            .collect();
        let acc = &mut data[flat(&place, &shape)];
        *acc = eval::fold(fold, wide, *acc, element);
        step(&mut at, &x.shape);
    }
    data.iter_mut().for_each(|c| *c = c.cast(wide, x.dtype));
    Value { dtype: x.dtype, shape, data }
}

/// Returns the inclusive scan along an axis. Each result is rounded once.
pub(super) fn scan(x: &Value, fold: Fold, axis: usize) -> Value {
    let wide = x.dtype.computed_in();
    let (n, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product::<usize>());
    let mut data = x.data.clone();
    for start in (0..data.len()).filter(|i| i / inner.max(1) % n.max(1) == 0) {
        let mut acc = fold.identity(x.dtype);
        for i in (0..n).map(|i| start + i * inner) {
            acc = eval::fold(fold, wide, acc, data[i]);
            data[i] = acc.cast(wide, x.dtype);
        }
    }
    Value { dtype: x.dtype, shape: x.shape.clone(), data }
}
