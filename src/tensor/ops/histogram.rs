//! Distinct elements, counts and binary search. Counts are a `scatter_reduce` of ones; a search is
//! a sequence of `gather`s in one kernel.
//!
//! The result size of [`Tensor::unique`] and [`Tensor::bincount`] depends on values, so that they
//! compute their input at once, like [`Tensor::nonzero`].

use super::create::iota;
use super::gather::scatter_at;
use crate::device::{Device, limits};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Combine, Fold};
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::promote_operands;
use crate::tensor::{Scatter, Tensor};

/// Returns the number of elements of the sorted row before each value: `sorted` is `[rows, n]` or
/// `[1, n]`, and `values` is `[rows, m]`. With a `sorter`, of the shape of `sorted`, the elements
/// at its indices are sorted.
fn search(
    sorted: &Tensor,
    sorter: Option<&Tensor>,
    values: &Tensor,
    right: bool,
) -> Result<Tensor> {
    let (n, dims) = (sorted.dims()[1], values.dims());
    let mut found = values.with_uop(iota(1).uop()).try_mul(0)?.try_expand(&dims)?;
    if n == 0 {
        return Ok(found);
    }
    let sorted = sorted.try_expand([dims[0], n])?;
    let sorter = sorter.map(|s| s.try_expand([dims[0], n])).transpose()?;
    // A NaN in the sequence is greater than all numbers, as in `sort`; a NaN value goes to the end.
    let is_number = values.isnan().logical_not();
    let mut step = 1usize << n.ilog2();
    while step > 0 {
        let next = &found + step as i64;
        let mut at = (&next - 1).try_minimum(n - 1)?;
        if let Some(sorter) = &sorter {
            at = sorter.try_gather(1, &at)?;
        }
        let element = sorted.try_gather(1, &at)?;
        let before = if right { element.try_le(values)? } else { element.try_lt(values)? };
        let after = before.logical_not().try_bitwise_and(&is_number)?;
        let passed = after.logical_not().try_bitwise_and(next.try_le(n)?)?;
        found = passed.try_where_(next, found)?;
        step /= 2;
    }
    Ok(found)
}

/// Sequence and values as rows, and the shape of the result.
fn search_rows(sorted: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor, Dims)> {
    let (s, v) = (sorted.dims(), values.dims());
    let Some((&n, lead)) = s.split_last() else {
        return shape_error!("expected a sorted sequence of one axis or more, got []");
    };
    sorted.require_static("tensor", 0..s.len())?;
    values.require_static("tensor", 0..v.len())?;
    if lead.is_empty() {
        let flat = values.shaped([1, values.max_numel()])?;
        return Ok((sorted.shaped([1, n])?, flat, v));
    }
    let Some((&m, other)) = v.split_last().filter(|(_, other)| *other == lead) else {
        return shape_error!(
            "sequences {s:?} and values {v:?} differ before the last axis; expected equal sizes \
             or a sequence of one axis"
        );
    };
    let count = other.iter().product();
    Ok((sorted.shaped([count, n])?, values.shaped([count, m])?, v))
}

/// Checks the shape, the dtype and, in host memory, the indices of a sorter.
fn check_sorter(sorted: &Tensor, sorter: &Tensor) -> Result<()> {
    let (s, dims) = (sorted.dims(), sorter.dims());
    reject_shape!(dims != s, "expected a sorter of the shape of the sequences {s:?}, got {dims:?}");
    reject_dtype!(!sorter.dtype().is_int(), "expected an integer sorter, got {}", sorter.dtype());
    let n = s.last().copied().unwrap_or(0) as f64;
    match sorter.host_values().and_then(|all| all.into_iter().find(|i| *i < -n || *i >= n)) {
        Some(i) => {
            index_error!("index {i} of the sorter is outside a sequence of {n} elements")
        }
        None => Ok(()),
    }
}

/// Accumulation dtype of weights: `f32` for `f32` and on devices without `f64`, `f64` otherwise.
fn weight_dtype(weights: &Tensor) -> DType {
    let lacks = Device::named(weights.device()).is_ok_and(|d| d.target().lacks(DType::F64));
    if weights.dtype() == DType::F32 || lacks { DType::F32 } else { DType::F64 }
}

/// Counts the numbers below `bins` in a list of integers, or sums their weights.
fn counts(index: &Tensor, bins: usize, weights: &Tensor) -> Result<Tensor> {
    let zeros = weights.literal(0).try_expand([bins])?;
    zeros.try_scatter_reduce(0, index, weights, Scatter::Sum, true)
}

impl Tensor {
    fallible! {
        /// Distinct elements in ascending order, the index of each element among them, and their
        /// counts. NaNs are distinct. Without a `size` the tensor is computed at once to count
        /// them. With a `size` the results have that many elements, padded with 0, and stay lazy.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, inverse, counts) = Tensor::new([[3, 1], [3, 2]]).unique(None);
        /// assert_eq!(values.to_vec::<i32>()?, [1, 2, 3]);
        /// assert_eq!((inverse.shape(), counts.to_vec::<i32>()?), (vec![2, 2], vec![1, 1, 2]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn unique | try_unique(&self, size: Option<usize>) -> (Tensor, Tensor, Tensor) {
            let (dims, n) = (self.dims(), self.max_numel());
            self.require_static("unique", 0..dims.len())?;
            let flat = self.shaped([n])?;
            if n == 0 {
                let size = size.unwrap_or(0);
                let zeros = |t: &Tensor| t.literal(0).try_expand([size]);
                let whole = self.with_uop(iota(0).uop());
                return Ok((zeros(&flat)?, whole.shaped(dims)?, zeros(&whole)?));
            }
            let (sorted, order) = flat.detach().try_sort(0, false)?;
            // Stored once, because each result reads both.
            let (sorted, order) = (sorted.contiguous(), order.contiguous());
            let new = sorted
                .slice_axis(0, 1, n)?
                .try_ne(sorted.slice_axis(0, 0, n - 1)?)?
                .try_pad_with(&[(1, 0)], true)?;
            let firsts = new.nonzero_indices(size)?;
            let count = firsts.dims()[0];
            let rank = new.try_cast(DType::I32)?.try_cumsum(0)? - 1;
            let inverse =
                scatter_at("unique", &rank.zeros_like(), &order, &rank, Combine::SetDistinct, 0)?;
            // Position -1 is padding.
            let place = order.try_gather(0, &firsts.try_maximum(0)?)?;
            let values = flat.try_gather(0, &place)?;
            let values = firsts.try_ge(0)?.try_where_(values, self.literal(0))?;
            let counts = counts(&rank, count, &rank.ones_like())?;
            Ok((values, inverse.shaped(dims)?, counts))
        }

        /// Counts of the numbers 0, 1, … in a vector of nonnegative integers, or sums of their
        /// weights. Sums are `f32` for `f32` weights and on devices without `f64`, and `f64`
        /// otherwise. The result covers the largest number, and has at least `minlength` elements.
        /// The tensor is computed at once to find that number.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([0, 3, 1, 3]);
        /// assert_eq!(x.bincount(None, 0).to_vec::<i32>()?, [1, 1, 0, 2]);
        /// let weights = Tensor::new([0.5f32, 1.0, 2.0, 4.0]);
        /// assert_eq!(x.bincount(Some(&weights), 5).to_vec::<f32>()?, [0.5, 2.0, 0.0, 5.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bincount | try_bincount(
            &self, weights: Option<&Tensor>, minlength: usize,
        ) -> Tensor {
            const OP: &str = "bincount";
            let dims = self.dims();
            reject_shape!(dims.len() != 1, "expected one axis, got {dims:?}");
            self.require_static(OP, [0])?;
            reject_dtype!(!self.dtype().is_int(), "expected integers, got {}", self.dtype());
            if let Some(given) = weights.map(Tensor::dims).filter(|d| *d != dims) {
                return shape_error!("expected weights of the shape {dims:?}, got {given:?}");
            }
            // Checked before the numbers are computed: a broadcast constant may have more elements
            // than memory could hold.
            checked_numel(OP, &[minlength])?;
            limits::check(dims[0].saturating_mul(self.dtype().itemsize()))?;
            let mut bins = minlength;
            if dims[0] > 0 {
                let both = Tensor::try_stack(&[self.try_min(0)?, self.try_max(0)?], 0)?
                    .try_cast(DType::I64)?
                    .to_vec::<i64>()?;
                // Values beyond i64 are negative after the cast.
                if let Some(n) = both.iter().find(|&&n| n < 0 || n == i64::MAX) {
                    return index_error!("expected integers of at least 0, got {n}");
                }
                bins = bins.max(both[1] as usize + 1);
            }
            checked_numel(OP, &[bins])?;
            let one = || self.with_uop(iota(1).uop()).try_mul(0)?.try_add(1)?.try_expand(&dims);
            let weights = weights.map_or_else(one, |w| w.try_cast(weight_dtype(w)))?;
            counts(self, bins, &weights)
        }

        /// Counts of elements in `bins` intervals of equal width from `min` to `max`, as floats.
        /// Elements outside and NaN are not counted; `max` is in the last interval. If `min` equals
        /// `max` the range is that of the elements, which have to be finite: an error if they are
        /// in host memory, and not checked otherwise.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1.0f32, 2.0, 1.0, 4.0, 9.0]);
        /// assert_eq!(x.histc(4, 0.0, 4.0).to_vec::<f32>()?, [0.0, 2.0, 1.0, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn histc | try_histc(&self, bins: usize, min: f64, max: f64) -> Tensor {
            if bins == 0 || bins > i32::MAX as usize {
                return shape_error!("expected 1 to {} bins, got {bins}", i32::MAX);
            }
            if !(min.is_finite() && max.is_finite() && min <= max) {
                return shape_error!("expected a finite range with min <= max, got {min} to {max}");
            }
            let (n, dtype) = (self.max_numel(), self.as_float().dtype());
            let x = self.as_wide_float().detach().shaped([n])?;
            if n == 0 {
                return x.literal(0).try_expand([bins])?.try_cast(dtype);
            }
            let is_infinite = |values: Vec<f64>| values.iter().any(|v| !v.is_finite());
            if min == max && self.host_values().is_some_and(is_infinite) {
                return shape_error!(
                    "the range of the elements is not finite; give `min` and `max`"
                );
            }
            let (low, high) = if min == max {
                (x.try_min(0)?, x.try_max(0)?)
            } else {
                (x.literal(min), x.literal(max))
            };
            // A range without width is widened by 1 on both sides.
            let flat = low.try_eq(&high)?;
            let (low, high) =
                (flat.try_where_(&low - 1.0, &low)?, flat.try_where_(&high + 1.0, &high)?);
            let inside = x.try_ge(&low)?.try_bitwise_and(x.try_le(&high)?)?;
            let place = x.try_sub(&low)?.try_mul(bins as f64)?.try_div(high.try_sub(&low)?)?;
            let place =
                inside.try_where_(place, 0.0)?.try_cast(DType::I32)?.try_minimum(bins - 1)?;
            // Index `bins` is outside and writes nothing.
            let place = inside.try_where_(place, bins)?;
            counts(&place, bins, &place.ones_like())?.try_cast(dtype)
        }

        /// Insertion index of each value into this sorted sequence: before equal elements, or after
        /// them if `right`. A sequence of one axis serves values of any shape; otherwise all axes
        /// but the last have to match. NaN is inserted at the end, and a NaN in the sequence is
        /// greater than all numbers, as in [`sort`](Self::sort).
        ///
        /// A `sorter` holds the indices that sort the sequence along the last axis, as
        /// [`argsort`](Self::argsort) returns them. Negative ones count from the end. One outside
        /// the sequence is an error if the sorter is in host memory, and reads 0 otherwise.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let sorted = Tensor::new([1.0f32, 3.0, 3.0, 5.0]);
        /// let values = Tensor::new([[3.0f32, 6.0], [0.0, 4.0]]);
        /// assert_eq!(sorted.searchsorted(&values, false, None).to_vec::<i32>()?, [1, 4, 0, 3]);
        /// let (mixed, sorter) = (Tensor::new([3.0f32, 5.0, 1.0, 3.0]), Tensor::new([2, 0, 3, 1]));
        /// let y = mixed.searchsorted(&values, false, Some(&sorter));
        /// assert_eq!(y.to_vec::<i32>()?, [1, 4, 0, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn searchsorted | try_searchsorted(
            &self, values: &Tensor, right: bool, sorter: Option<&Tensor>,
        ) -> Tensor {
            let (sorted, values, shape) = search_rows(self, values)?;
            let sorter = match sorter {
                Some(sorter) => {
                    sorter.require_static("searchsorted", 0..sorter.ndim())?;
                    check_sorter(self, sorter)?;
                    Some(sorter.shaped(sorted.dims())?)
                }
                None => None,
            };
            search(&sorted.detach(), sorter.as_ref(), &values.detach(), right)?.shaped(shape)
        }

        /// Returns the index of the interval between sorted boundaries that contains each element.
        /// An element equal to a boundary is in the interval below it, or above if `right`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([3, 6, 0]);
        /// assert_eq!(x.bucketize(&Tensor::new([1, 3, 5]), false).to_vec::<i32>()?, [1, 3, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bucketize | try_bucketize(&self, boundaries: &Tensor, right: bool) -> Tensor {
            if boundaries.ndim() != 1 {
                let dims = boundaries.dims();
                return shape_error!("expected boundaries of one axis, got {dims:?}");
            }
            boundaries.try_searchsorted(self, right, None)
        }

        /// Returns true where the element occurs in another tensor. NaN does not.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// let y = x.isin(&Tensor::new([4, 1, 7]));
        /// assert_eq!(y.to_vec::<bool>()?, [true, false, false, true]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn isin | try_isin(&self, elements: &Tensor) -> Tensor {
            let m = elements.max_numel();
            elements.require_static("isin", 0..elements.ndim())?;
            let list = elements.shaped([m])?;
            if m <= 16 {
                // Few elements are compared with each.
                return self.try_unsqueeze(-1)?.try_eq(&list)?.reduce_axes(Fold::Max, -1);
            }
            self.require_static("isin", 0..self.ndim())?;
            let dtype = promote_operands(&[self.into(), elements.into()]);
            let (x, list) = (self.try_cast(dtype)?.detach(), list.try_cast(dtype)?.detach());
            let sorted = list.try_sort(0, false)?.0.contiguous();
            let flat = x.shaped([1, x.max_numel()])?;
            let row = sorted.shaped([1, m])?;
            let place = search(&row, None, &flat, false)?.try_minimum(m - 1)?;
            row.try_gather(1, &place)?.try_eq(flat)?.shaped(self.dims())
        }
    }
}
