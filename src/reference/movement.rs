//! The six movement ops as loops over the coordinates of the result, each saying where its element
//! comes from.

use super::Value;
use crate::dtype::{Const, DType};
use crate::shape::Dims;

/// The result of `shape` whose element at each place is the input's element at the place that
/// `from` gives, or zero where it gives none.
fn gather(x: &Value, shape: Dims, from: impl Fn(&[usize]) -> Option<Dims>) -> Value {
    let zero = Const::Int(0).cast(DType::I64, x.dtype);
    let numel: usize = shape.iter().product();
    let mut at: Dims = shape.iter().map(|_| 0).collect();
    let mut data = Vec::with_capacity(numel);
    for _ in 0..numel {
        data.push(from(&at).map_or(zero, |place| x.data[flat(&place, &x.shape)]));
        step(&mut at, &shape);
    }
    Value { dtype: x.dtype, shape, data }
}

/// The next coordinates in row-major order.
pub(super) fn step(at: &mut [usize], shape: &[usize]) {
    for axis in (0..shape.len()).rev() {
        at[axis] += 1;
        if at[axis] < shape[axis] {
            return;
        }
        at[axis] = 0;
    }
}

/// The row-major position of coordinates.
pub(super) fn flat(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |position, (i, size)| position * size + i)
}

pub(super) fn reshape(x: &Value, shape: &Dims) -> Value {
    Value { dtype: x.dtype, shape: shape.clone(), data: x.data.clone() }
}

pub(super) fn expand(x: &Value, shape: &Dims) -> Value {
    gather(x, shape.clone(), |at| {
        Some(at.iter().zip(&x.shape).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect())
    })
}

pub(super) fn permute(x: &Value, axes: &Dims) -> Value {
    gather(x, axes.iter().map(|&a| x.shape[a]).collect(), |at| {
        let mut place = Dims::from_elem(0, at.len());
        for (i, &axis) in axes.iter().enumerate() {
            place[axis] = at[i];
        }
        Some(place)
    })
}

pub(super) fn pad(x: &Value, padding: &[(usize, usize)]) -> Value {
    let shape =
        x.shape.iter().zip(padding).map(|(size, (before, after))| before + size + after).collect();
    gather(x, shape, |at| {
        let inside =
            |axis: usize| at[axis].checked_sub(padding[axis].0).filter(|&i| i < x.shape[axis]);
        (0..at.len()).map(inside).collect()
    })
}

pub(super) fn shrink(x: &Value, ranges: &[(usize, usize)]) -> Value {
    let shape = ranges.iter().map(|(start, end)| end - start).collect();
    gather(x, shape, |at| Some(at.iter().zip(ranges).map(|(i, (start, _))| i + start).collect()))
}

pub(super) fn flip(x: &Value, flags: &[bool]) -> Value {
    gather(x, x.shape.clone(), |at| {
        let mirrored =
            |axis: usize| if flags[axis] { x.shape[axis] - 1 - at[axis] } else { at[axis] };
        Some((0..at.len()).map(mirrored).collect())
    })
}

/// Values one after the other along an axis.
pub(super) fn joined(parts: &[&Value], axis: usize) -> Value {
    let mut shape = parts[0].shape.clone();
    shape[axis] = parts.iter().map(|p| p.shape[axis]).sum();
    let rows: usize = shape[..axis].iter().product();
    let row = |p: &Value, r: usize| {
        let len: usize = p.shape[axis..].iter().product();
        p.data[r * len..(r + 1) * len].to_vec()
    };
    let data = (0..rows).flat_map(|r| parts.iter().flat_map(move |p| row(p, r))).collect();
    Value { dtype: parts[0].dtype, shape, data }
}
