//! Statistics along axes: norms, NaN-ignoring reductions, counts, extremes with indices, and order
//! statistics.
//!
//! Selected elements are gathered at their index, which receives the gradient. Order statistics use
//! a stable sort, which puts NaN last.

use super::linalg::MAX_STEPS;
use super::movement::at_axis;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Dims;
use crate::tensor::broadcast::{Operand, broadcast_to};
use crate::tensor::{Axes, Tensor, keepdim, resolve_axis};

/// Interpolation of [`Tensor::quantile`] between two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quantile {
    /// Linear interpolation.
    #[default]
    Linear,
    /// Lower element.
    Lower,
    /// Higher element.
    Higher,
    /// Mean of both.
    Midpoint,
    /// Nearest element; ties take the even rank.
    Nearest,
}

/// One axis of a tensor, or the flattened tensor.
struct Line {
    x: Tensor,
    at: usize,
    /// Shape of a result with one element for the axis.
    out: Dims,
}

impl Line {
    fn new(x: &Tensor, axes: &Axes) -> Result<Line> {
        let dims = x.dims();
        let (list, keep) = axes.resolve("tensor", &dims)?;
        if list.len() != 1 && list.len() != dims.len() {
            return shape_error!("expected one axis or `..`, got {list:?} of {dims:?}");
        }
        x.require_static("tensor", list.iter().copied())?;
        let (x, at) =
            if list.len() == 1 { (x.copy(), list[0]) } else { (x.shaped([x.max_numel()])?, 0) };
        let sizes = dims.iter().enumerate();
        let out = sizes
            .filter(|(i, _)| keep || !list.contains(i))
            .map(|(i, &n)| if list.contains(&i) { 1 } else { n })
            .collect();
        Ok(Line { x, at, out })
    }
    fn size(&self) -> usize {
        self.x.dims()[self.at]
    }
    fn require_elements(&self) -> Result<()> {
        if self.size() == 0 {
            shape_error!("an axis of {:?} has no element to choose", self.x.dims())
        } else {
            Ok(())
        }
    }
    /// Returns the elements at one index per row, and the indices, in the shape of the result.
    fn gather_at(&self, index: &Tensor) -> Result<(Tensor, Tensor)> {
        let values = self.x.try_gather(self.at as isize, index)?;
        let out = |t: &Tensor| t.shaped(self.out.clone());
        Ok((out(&values)?, out(index)?))
    }
    /// Returns the indices of the elements in ascending order, NaN last, and the number of elements
    /// other than NaN.
    fn order(&self) -> Result<(Tensor, Tensor)> {
        let order = self.x.detach().try_argsort(self.at as isize, false)?;
        let numbers = self
            .x
            .isnan()
            .logical_not()
            .try_cast(DType::I32)?
            .reduce_axes(Fold::Add, keepdim(self.at))?;
        Ok((order, numbers))
    }
}

/// Maximum or minimum along an axis and its index.
fn extreme_with_index(x: &Tensor, axes: Axes, fold: Fold) -> Result<(Tensor, Tensor)> {
    let line = Line::new(x, &axes)?;
    line.require_elements()?;
    let (x, axis) = (line.x.detach(), keepdim(line.at));
    let index = if fold == Fold::Max { x.try_argmax(axis) } else { x.try_argmin(axis) };
    line.gather_at(&index?)
}

/// `p`-norm over axes of a wide float. The gradient is 0 where the norm is 0.
pub(super) fn p_norm(x: &Tensor, p: f64, axes: &Axes) -> Result<Tensor> {
    let (size, some) = (x.abs(), x.try_ne(0)?);
    match p {
        f64::INFINITY => return size.try_max(axes),
        f64::NEG_INFINITY => return size.try_min(axes),
        0.0 => return some.try_where_(x.literal(1.0), 0.0)?.reduce_axes(Fold::Add, axes),
        1.0 => return size.reduce_axes(Fold::Add, axes),
        _ => {}
    }
    let powers = if p == 2.0 {
        x.square()
    } else {
        // The gradient of a small power is infinite at 0.
        let zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
        some.try_where_(some.try_where_(size, 1.0)?.try_pow(p)?, zero)?
    };
    let sum = powers.reduce_axes(Fold::Add, axes)?;
    let some = sum.try_ne(0)?;
    let safe = some.try_where_(&sum, 1.0)?;
    let root = if p == 2.0 { safe.sqrt() } else { safe.try_pow(1.0 / p)? };
    // A negative power of 0 is infinite.
    some.try_where_(root, if p > 0.0 { 0.0 } else { f64::INFINITY })
}

/// Returns the elements at fractional ranks from 0 to the size minus 1, one per row.
fn interpolated(line: &Line, rank: &Tensor, interpolation: Quantile) -> Result<Tensor> {
    let (order, there) = line.order()?;
    let (at, last) = (line.at as isize, line.size() - 1);
    let low = rank.detach().floor();
    let index = |rank: &Tensor| rank.try_cast(DType::I32)?.try_maximum(0)?.try_minimum(last);
    // A row with NaN reads its last element in order, which is NaN.
    let whole = there.try_eq(line.size())?;
    let wide = line.x.as_wide_float();
    let read = |rank: &Tensor| {
        let place = whole.try_where_(index(rank)?, last)?;
        wide.try_gather(at, &order.try_gather(at, &place)?)
    };
    let share = rank.try_sub(&low)?;
    Ok(match interpolation {
        Quantile::Lower => read(&low)?,
        Quantile::Higher => read(&rank.detach().ceil())?,
        Quantile::Nearest => read(&rank.detach().round())?,
        Quantile::Linear | Quantile::Midpoint => {
            let (a, b) = (read(&low)?, read(&rank.detach().ceil())?);
            let share = if interpolation == Quantile::Midpoint {
                share.ne(0).try_where_(rank.literal(0.5), 0.0)?
            } else {
                share
            };
            // Starts at the nearer end, so that both ends are exact; equal ends may be infinite.
            let gap = a.try_eq(&b)?.try_where_(0.0, b.try_sub(&a)?)?;
            let near = a.try_add(gap.try_mul(&share)?)?;
            let far = b.try_sub(gap.try_mul(1.0 - &share)?)?;
            share.try_lt(0.5)?.try_where_(near, far)?
        }
    })
}

/// Largest finite number of a float dtype.
fn max_finite(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX as f64,
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7f7f_0000) as f64,
        DType::F8E5M2 => 57344.0,
        _ => 448.0,
    }
}

impl Tensor {
    fallible! {
        /// `p`-norm over axes: the `p`-th root of the sum of `p`-th powers of absolute values. 2 is
        /// the Euclidean norm, and the Frobenius norm over two axes; inf is the maximum, -inf the
        /// minimum, and 0 the number of nonzero elements. The gradient is 0 where the norm is 0.
        /// [`matrix_norm`](Self::matrix_norm) has induced norms.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[3.0f32, -4.0], [0.0, 5.0]]);
        /// assert_eq!(x.norm(2.0, -1).to_vec::<f32>()?, [5.0, 5.0]);
        /// assert_eq!(x.norm(f64::INFINITY, ..).item::<f32>()?, 5.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn norm | try_norm(&self, p: f64, axes: impl Into<Axes>) -> Tensor {
            in_wide_dtype!(self.try_norm(p, axes));
            reject_shape!(p.is_nan(), "expected a power, got NaN");
            p_norm(&self.as_wide_float(), p, &axes.into())?.try_cast(self.as_float().dtype())
        }

        /// Sum over axes, with NaN as 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1.0f32, f32::NAN, 2.0]).nansum(..).item::<f32>()?, 3.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nansum | try_nansum(&self, axes: impl Into<Axes>) -> Tensor {
            if !self.is_floating_point() {
                return self.try_sum(axes);
            }
            self.isnan().try_where_(0.0, self)?.try_sum(axes)
        }

        /// Mean over axes of the elements other than NaN; NaN if there is none.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1.0f32, f32::NAN, 2.0]).nanmean(..).item::<f32>()?, 1.5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nanmean | try_nanmean(&self, axes: impl Into<Axes>) -> Tensor {
            let (x, axes) = (self.as_wide_float(), axes.into());
            let missing = x.isnan();
            let sum = missing.try_where_(0.0, &x)?.reduce_axes(Fold::Add, &axes)?;
            let count =
                missing.logical_not().try_cast(DType::I32)?.reduce_axes(Fold::Add, &axes)?;
            sum.try_div(count.try_cast(x.dtype())?)?.try_cast(self.as_float().dtype())
        }

        /// Returns the number of nonzero elements over axes. NaN is nonzero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[0, 2], [3, 4]]).count_nonzero(1).to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn count_nonzero | try_count_nonzero(&self, axes: impl Into<Axes>) -> Tensor {
            self.nonzero_mask().try_sum(axes)
        }

        /// Maximum over axes, as [`max`](Self::max); equal elements share the gradient.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 5], [7, 2]]).amax(0).to_vec::<i32>()?, [7, 5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn amax | try_amax(&self, axes: impl Into<Axes>) -> Tensor {
            self.try_max(axes)
        }

        /// Minimum over axes, as [`min`](Self::min); equal elements share the gradient.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 5], [7, 2]]).amin(0).to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn amin | try_amin(&self, axes: impl Into<Axes>) -> Tensor {
            self.try_min(axes)
        }

        /// Maximum along an axis and its index, or with `..` of the flattened tensor. Ties give the
        /// first index; NaN propagates. The gradient goes to the element at the index.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, index) = Tensor::new([[1, 5, 5], [7, 2, 0]]).max_with_index(-1);
        /// assert_eq!((values.to_vec::<i32>()?, index.to_vec::<i32>()?), (vec![5, 7], vec![1, 0]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_with_index | try_max_with_index(
            &self, axis: impl Into<Axes>,
        ) -> (Tensor, Tensor) {
            extreme_with_index(self, axis.into(), Fold::Max)
        }

        /// Minimum along an axis and its index, as [`max_with_index`](Self::max_with_index).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, index) = Tensor::new([[1, 5, 5], [7, 2, 0]]).min_with_index(-1);
        /// assert_eq!((values.to_vec::<i32>()?, index.to_vec::<i32>()?), (vec![1, 0], vec![0, 2]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn min_with_index | try_min_with_index(
            &self, axis: impl Into<Axes>,
        ) -> (Tensor, Tensor) {
            extreme_with_index(self, axis.into(), Fold::Min)
        }

        /// Median along an axis and its index, or with `..` of the flattened tensor. For an even
        /// number of elements it is the lower of the middle two. A row with NaN gives its first
        /// NaN. The gradient goes to the element at the index.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (value, index) = Tensor::new([4.0f32, 1.0, 3.0, 2.0]).median(0);
        /// assert_eq!((value.item::<f32>()?, index.item::<i32>()?), (2.0, 3));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn median | try_median(&self, axis: impl Into<Axes>) -> (Tensor, Tensor) {
            let line = Line::new(self, &axis.into())?;
            line.require_elements()?;
            let (order, there) = line.order()?;
            let n = line.size();
            // The first NaN follows all numbers.
            let rank = there.try_eq(n)?.try_where_((n - 1) / 2, there)?;
            line.gather_at(&order.try_gather(line.at as isize, &rank)?)
        }

        /// `k`-th smallest element along an axis, counted from 1, and its index. NaN is greater
        /// than all numbers. The gradient goes to the element at the index.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (value, index) = Tensor::new([4, 1, 3, 2]).kthvalue(3, 0);
        /// assert_eq!((value.item::<i32>()?, index.item::<i32>()?), (3, 2));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn kthvalue | try_kthvalue(&self, k: usize, axis: impl Into<Axes>) -> (Tensor, Tensor) {
            let line = Line::new(self, &axis.into())?;
            let n = line.size();
            if k == 0 || k > n {
                return shape_error!("k is {k}, but the axis has size {n}; expected 1 to {n}");
            }
            let order = line.x.detach().try_topk(k, line.at as isize, false, true)?.1;
            line.gather_at(&order.slice_axis(line.at, k - 1, k)?)
        }

        /// Most frequent element along an axis, the smallest of equally frequent ones, and the
        /// index of its last occurrence. NaNs are distinct. The gradient goes to the element at the
        /// index.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (value, index) = Tensor::new([2, 3, 1, 3, 1]).mode(0);
        /// assert_eq!((value.item::<i32>()?, index.item::<i32>()?), (1, 4));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn mode | try_mode(&self, axis: impl Into<Axes>) -> (Tensor, Tensor) {
            let line = Line::new(self, &axis.into())?;
            line.require_elements()?;
            let (at, n) = (line.at, line.size());
            let (sorted, order) = line.x.detach().try_sort(at as isize, false)?;
            // Position of each element in its run of equals; the longest run ends at the first
            // maximum.
            let place = sorted.iota_along(at)?;
            let new = sorted.slice_axis(at, 1, n)?.try_ne(sorted.slice_axis(at, 0, n - 1)?)?;
            let sides: Vec<_> = at_axis(sorted.ndim(), at, (1, 0), (0, 0)).collect();
            let new = new.try_pad_with(&sides, true)?;
            let start = new.try_where_(&place, 0)?.try_cummax(at as isize)?.0;
            let end = place.try_sub(start)?.try_argmax(keepdim(at))?;
            line.gather_at(&order.try_gather(at as isize, &end)?)
        }

        /// Quantiles along an axis, or with `..` of the flattened tensor, for `q` from 0 to 1: the
        /// element of rank `q·(n-1)` in ascending order, interpolated as [`Quantile`] states. A
        /// list of `q` adds a leading axis. A row with NaN gives NaN. A `q` outside 0 to 1 is an
        /// error as a number and gives NaN in a tensor.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Quantile};
        /// let x = Tensor::new([[4.0f32, 1.0, 3.0, 2.0]]);
        /// assert_eq!(x.quantile(0.5, 1, Quantile::Linear).to_vec::<f32>()?, [2.5]);
        /// let both = x.quantile(Tensor::new([0.0f32, 1.0]), 1, Quantile::Lower);
        /// assert_eq!((both.shape(), both.to_vec::<f32>()?), (vec![2, 1], vec![1.0, 4.0]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn quantile | try_quantile(
            &self, q: impl Into<Operand>, axis: impl Into<Axes>, interpolation: Quantile,
        ) -> Tensor {
            let line = Line::new(self, &axis.into())?;
            line.require_elements()?;
            let wide = line.x.as_wide_float();
            let q = wide.cast_operand(q.into())?;
            if let Some(c) = q.uop().as_const() {
                let q = c.as_f64(wide.dtype());
                if !(0.0..=1.0).contains(&q) {
                    return index_error!("expected q from 0 to 1, got {q}");
                }
            }
            reject_shape!(q.ndim() > 1, "expected q as a number or a list, got {:?}", q.dims());
            // The quantiles replace the axis, which then becomes the first.
            let mut shape = wide.dims();
            let count = q.max_numel();
            shape[line.at] = count;
            let along = q.line_along(line.at, shape.len())?;
            let inside = along.try_ge(0.0)?.try_bitwise_and(along.try_le(1.0)?)?;
            let rank = inside.try_where_(&along, 0.0)?.try_mul((line.size() - 1) as f64)?;
            let rank = wide.match_extents(broadcast_to("quantile", &rank, &shape)?);
            let line = Line { x: wide, ..line };
            let values = interpolated(&line, &rank, interpolation)?;
            let values = inside.try_where_(values, f64::NAN)?;
            let values = values.try_movedim(line.at, 0)?;
            let front = if q.ndim() == 0 { None } else { Some(count) };
            values
                .shaped(front.into_iter().chain(line.out.iter().copied()))?
                .try_cast(self.as_float().dtype())
        }

        /// `n`-th differences of neighbours along an axis, after concatenating `prepend` and
        /// `append`. For bools it is exclusive or.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 4, 9, 16]);
        /// assert_eq!(x.diff(1, 0, None, None).to_vec::<i32>()?, [3, 5, 7]);
        /// assert_eq!(x.diff(1, 0, Some(&Tensor::new([0])), None).to_vec::<i32>()?, [1, 3, 5, 7]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn diff | try_diff(
            &self, n: usize, axis: isize, prepend: Option<&Tensor>, append: Option<&Tensor>,
        ) -> Tensor {
            let at = resolve_axis("diff", axis, &self.dims())?;
            if n == 0 {
                return Ok(self.copy());
            }
            let parts: Vec<Tensor> =
                prepend.into_iter().chain([self]).chain(append).cloned().collect();
            let mut x =
                if parts.len() == 1 { self.copy() } else { Tensor::try_cat(&parts, at as isize)? };
            x.require_static("diff", [at])?;
            let size = x.dims()[at];
            if n >= size {
                return x.slice_axis(at, 0, 0);
            }
            if n > MAX_STEPS {
                return shape_error!(
                    "n is {n}, but the graph has a node for each difference; expected at most \
                     {MAX_STEPS}"
                );
            }
            for left in (size - n..size).rev() {
                let (a, b) = (x.slice_axis(at, 0, left)?, x.slice_axis(at, 1, left + 1)?);
                x = if x.dtype().is_bool() { a.try_bitwise_xor(b)? } else { b.try_sub(a)? };
            }
            Ok(x)
        }

        /// Replaces NaN by `nan` and infinities by `posinf` and `neginf`, by default the largest
        /// and smallest finite numbers of the dtype. Replaced elements have gradient 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0]);
        /// let y = x.nan_to_num(0.5, Some(9.0), None);
        /// assert_eq!(y.to_vec::<f32>()?, [0.5, 9.0, f32::MIN, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nan_to_num | try_nan_to_num(
            &self, nan: f64, posinf: Option<f64>, neginf: Option<f64>,
        ) -> Tensor {
            if !self.is_floating_point() {
                return Ok(self.copy());
            }
            let most = max_finite(self.dtype());
            let (high, low) = (posinf.unwrap_or(most), neginf.unwrap_or(-most));
            let x = self.isnan().try_where_(self.literal(nan), self)?;
            let x = self.try_eq(f64::INFINITY)?.try_where_(self.literal(high), x)?;
            self.try_eq(f64::NEG_INFINITY)?.try_where_(self.literal(low), x)
        }
    }
}
