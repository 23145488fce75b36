//! Cubic and antialiasing filters of [`Tensor::interpolate`]: resizes one axis of a tensor of wide
//! floats.
//!
//! Coordinates are integer fractions, so that neighbours and weights are exact at every size.

use super::create::{index_dtype, iota};
use super::gather::select_at;
use super::movement::spliced;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::checked_numel;
use crate::tensor::{Tensor, keepdim};

/// Weight of an element by its distance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    /// 1 at distance 0, 0 from 1 on.
    Triangle,
    /// Keys' cubic with the coefficient -0.5, 0 from 2 on.
    Cubic,
}

impl Filter {
    fn support(self) -> f64 {
        if self == Filter::Triangle { 1.0 } else { 2.0 }
    }
    fn weight(self, distance: &Tensor) -> Result<Tensor> {
        let t = distance.abs();
        match self {
            Filter::Triangle => (1.0 - t).try_maximum(0.0),
            Filter::Cubic => {
                let outer = t.try_lt(2.0)?.try_where_(far(&t, -0.5), 0.0)?;
                t.try_lt(1.0)?.try_where_(near(&t, -0.5), outer)
            }
        }
    }
}

/// Weight of the cubic up to distance 1.
fn near(t: &Tensor, a: f64) -> Tensor {
    (t * (a + 2.0) - (a + 3.0)) * t * t + 1.0
}

/// Weight of the cubic at distance 1 to 2.
fn far(t: &Tensor, a: f64) -> Tensor {
    ((t * a - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
}

/// Gathers `count` elements of an axis for each output, from the indices `first` on. The axis
/// becomes `[size, count]`. Indices beyond the ends read the outermost element.
fn taps(x: &Tensor, axis: usize, first: &Tensor, count: usize) -> Result<Tensor> {
    let (dims, size) = (x.dims(), first.dims()[0]);
    let n = dims[axis];
    checked_numel("interpolate", &[&dims[..], &[size, count]].concat())?;
    let index = first.try_unsqueeze(1)?.try_add(iota(count).try_cast(first.dtype())?)?;
    let index = index.try_maximum(0)?.try_minimum(n - 1)?.try_reshape([size * count])?;
    let taken = select_at("interpolate", x, &index, axis)?;
    taken.try_unflatten(axis as isize, [size, count])
}

/// Sum of elements times weights of `[size, count]`.
fn weighted(x: &Tensor, axis: usize, taps: &Tensor, weights: &Tensor) -> Result<Tensor> {
    taps.try_mul(plane_along(weights, axis, x.ndim() + 1)?)?.reduce_axes(Fold::Add, axis + 1)
}

/// Reshapes a matrix to lie along two of `rank` axes.
fn plane_along(t: &Tensor, axis: usize, rank: usize) -> Result<Tensor> {
    t.shaped(spliced(&vec![1; rank], axis..axis + 2, &t.dims()))
}

/// Scale of coordinates as a fraction: `(2i + 1)·a - 2·b·h` over `2·b`, with `h` a half or 0.
fn coordinate_scale(n: usize, size: usize, align: bool) -> (usize, usize) {
    match (align, size) {
        (false, _) => (n, size),
        (true, 0 | 1) => (0, 1),
        (true, _) => (n - 1, size - 1),
    }
}

/// Returns `0 … size-1` in a dtype that holds the products of coordinates.
fn counter(n: usize, size: usize) -> Result<Tensor> {
    iota(size).try_cast(index_dtype(4 * (n + 1) as i128 * (size + 1) as i128))
}

/// Resizes one axis by the cubic through four neighbours.
pub(super) fn cubic(x: &Tensor, axis: usize, size: usize, align: bool) -> Result<Tensor> {
    let n = x.dims()[axis];
    let (a, b) = coordinate_scale(n, size, align);
    let i = counter(n, size)?;
    let (above, below) = if align { (i * a, b) } else { ((i * 2 + 1) * a - b, 2 * b) };
    let first = above.try_idiv(below)?;
    let t = above.try_modulo(below)?.try_cast(x.dtype())?.try_div(below as f64)?;
    let u = 1.0 - &t;
    let (near, far) = (|t: &Tensor| near(t, -0.75), |t: &Tensor| far(&(t + 1.0), -0.75));
    let weights = Tensor::try_stack(&[far(&t), near(&t), near(&u), far(&u)], 1)?;
    weighted(x, axis, &taps(x, axis, &(first - 1), 4)?, &weights)
}

/// Resizes one axis by the weighted mean within the filter's support.
pub(super) fn antialiased(
    x: &Tensor,
    axis: usize,
    size: usize,
    align: bool,
    filter: Filter,
) -> Result<Tensor> {
    let n = x.dims()[axis];
    let (a, b) = coordinate_scale(n, size, align);
    let scale = (a as f64 / b as f64).max(1.0);
    let support = filter.support() * scale;
    // The center is (2i + 1)·a / 2b: its integer part, and the fraction as a float.
    let above = (counter(n, size)? * 2 + 1) * a;
    let whole = above.try_idiv(2 * b)?;
    let part = above.try_modulo(2 * b)?.try_cast(x.dtype())?.try_div((2 * b) as f64)?;
    let from = |offset: f64| whole.try_add((&part + offset).floor().try_cast(whole.dtype())?);
    let first = from(0.5 - support)?.try_maximum(0)?;
    let end = from(0.5 + support)?.try_minimum(n)?;
    let count = (support.ceil() as usize).saturating_mul(2).saturating_add(1).min(n);
    let index = first.try_unsqueeze(1)?.try_add(iota(count).try_cast(first.dtype())?)?;
    let inside = index.try_lt(end.try_unsqueeze(1)?)?;
    // The difference of integers first, which is small and exact.
    let distance = index
        .try_sub(whole.try_unsqueeze(1)?)?
        .try_cast(x.dtype())?
        .try_sub(part.try_unsqueeze(1)?)?
        + 0.5;
    let weights = inside.try_where_(filter.weight(&(distance / scale))?, 0.0)?;
    // An element at the end of the support has weight 0.
    let inside = weights.try_ne(0.0)?;
    let total = weights.reduce_axes(Fold::Add, keepdim(1))?;
    let weights = weights.try_div(total)?;
    let inside = plane_along(&inside, axis, x.ndim() + 1)?;
    // Selected, because elements of weight 0 may be infinite.
    let taps = inside.try_where_(taps(x, axis, &first, count)?, 0.0)?;
    weighted(x, axis, &taps, &weights)
}
