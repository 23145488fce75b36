//! Gather and scatter, element by element in row-major order of the index.

use super::Value;
use super::movement::{flat, step};
use crate::dtype::{Const, DType};
use crate::ir::{Combine, eval};
use crate::shape::Dims;

/// Returns the value of an element of an index, if it is within an axis of `size`.
fn place(index: &Value, i: usize, size: usize) -> Option<usize> {
    let Const::Int(at) = index.data[i] else { panic!("an index of {}", index.dtype) };
    // A `u64` is stored as its bits; one that is negative as `i64` is out of range.
    usize::try_from(at).ok().filter(|at| *at < size)
}

/// Returns the elements at indices below `size` along an axis; 0 for an index out of range.
pub(super) fn gather(x: &Value, index: &Value, axis: usize, size: usize) -> Value {
    let mut at: Dims = index.shape.iter().map(|_| 0).collect();
    let zero = Const::Int(0).cast(DType::I64, x.dtype);
    let mut data = Vec::with_capacity(index.data.len());
    for i in 0..index.data.len() {
        let mut from = at.clone();
        data.push(place(index, i, size).map_or(zero, |p| {
            from[axis] = p;
            x.data[flat(&from, &x.shape)]
        }));
        step(&mut at, &index.shape);
    }
    Value { dtype: x.dtype, shape: index.shape.clone(), data }
}

/// Returns the base with values combined into it at indices along an axis. The runtime size of the
/// axis is `count` in the index and `size` in the base. Each result is rounded once.
pub(super) fn scatter(
    src: &[&Value],
    combine: Combine,
    axis: usize,
    size: usize,
    count: usize,
) -> Value {
    let [base, index, value] = src else { panic!("a scatter of {} operands", src.len()) };
    let wide = base.dtype.computed_in();
    let mut data = base.data.clone();
    let mut at: Dims = index.shape.iter().map(|_| 0).collect();
    for i in 0..index.data.len() {
        if at[axis] < count
            && let Some(p) = place(index, i, size)
        {
            let mut to = at.clone();
            to[axis] = p;
            let old = &mut data[flat(&to, &base.shape)];
            *old = combine
                .fold()
                .map_or(value.data[i], |fold| eval::fold(fold, wide, *old, value.data[i]));
        }
        step(&mut at, &index.shape);
    }
    data.iter_mut().for_each(|c| *c = c.cast(wide, base.dtype));
    Value { dtype: base.dtype, shape: base.shape.clone(), data }
}
