//! The six movement ops, as loops over the coordinates of the result.

use super::Value;
use crate::dtype::{Const, DType};
use crate::shape::{Dims, Movement};

/// Returns the tensor of `shape` whose element at each index is the element of `x` at the index
/// that `from` returns, or zero if it returns none.
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

/// Advances coordinates to the next ones in row-major order.
pub(super) fn step(at: &mut [usize], shape: &[usize]) {
    for axis in (0..shape.len()).rev() {
        at[axis] += 1;
        if at[axis] < shape[axis] {
            return;
        }
        at[axis] = 0;
    }
}

/// Returns the row-major position of coordinates.
pub(super) fn flat(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |position, (i, size)| position * size + i)
}

/// Returns the value after a movement op.
pub(super) fn moved(x: &Value, m: &Movement) -> Value {
    match m {
        Movement::Reshape(shape) => {
            Value { dtype: x.dtype, shape: shape.clone(), data: x.data.clone() }
        }
        Movement::Expand(shape) => expand(x, shape),
        Movement::Permute(axes) => permute(x, axes),
        Movement::Pad(padding) => pad(x, padding),
        Movement::Shrink(ranges) => shrink(x, ranges),
        Movement::Flip(flags) => flip(x, flags),
    }
}

/// Returns the value with some axes cut to an interval.
pub(super) fn narrow(x: &Value, range: impl Fn(usize) -> Option<(usize, usize)>) -> Value {
    let ranges: Vec<(usize, usize)> =
        x.shape.iter().enumerate().map(|(a, &n)| range(a).unwrap_or((0, n))).collect();
    shrink(x, &ranges)
}

fn expand(x: &Value, shape: &Dims) -> Value {
    gather(x, shape.clone(), |at| {
        Some(at.iter().zip(&x.shape).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect())
    })
}

fn permute(x: &Value, axes: &Dims) -> Value {
    gather(x, axes.iter().map(|&a| x.shape[a]).collect(), |at| {
        let mut place = Dims::from_elem(0, at.len());
        for (i, &axis) in axes.iter().enumerate() {
            place[axis] = at[i];
        }
        Some(place)
    })
}

fn pad(x: &Value, padding: &[(usize, usize)]) -> Value {
    let shape =
        x.shape.iter().zip(padding).map(|(size, (before, after))| before + size + after).collect();
    gather(x, shape, |at| {
        let inside =
            |axis: usize| at[axis].checked_sub(padding[axis].0).filter(|&i| i < x.shape[axis]);
        (0..at.len()).map(inside).collect()
    })
}

fn shrink(x: &Value, ranges: &[(usize, usize)]) -> Value {
    let shape = ranges.iter().map(|(start, end)| end - start).collect();
    gather(x, shape, |at| Some(at.iter().zip(ranges).map(|(i, (start, _))| i + start).collect()))
}

fn flip(x: &Value, flags: &[bool]) -> Value {
    gather(x, x.shape.clone(), |at| {
        let mirrored =
            |axis: usize| if flags[axis] { x.shape[axis] - 1 - at[axis] } else { at[axis] };
        Some((0..at.len()).map(mirrored).collect())
    })
}

/// Concatenates values along an axis.
pub(super) fn concatenated(parts: &[&Value], axis: usize) -> Value {
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
