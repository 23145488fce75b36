//! Running folds along an axis: sums, products, extremes of all elements up to each.
//!
//! A short axis is folded once for each element, over what comes before it. A long one is cut into blocks: each block is folded that way, the totals of the blocks
//! are scanned in turn, and what comes before a block is combined with it. So n elements cost n times the size of a block, and the error of a float sum grows with the
//! number of levels, not with n.

use super::create::iota;
use super::{Axes, Tensor, resolve_axis};
use crate::dtype::{DType, sum_acc};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Movement;

/// Elements in a block. An axis of two blocks or less is folded at once.
const BLOCK: usize = 64;

/// What is folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    Fold(Fold),
    LogSumExp,
}

impl Scan {
    /// What changes nothing.
    fn neutral(self, x: &Tensor) -> Tensor {
        let dtype = x.dtype();
        match self {
            Scan::Fold(Fold::Add) => x.literal(0),
            Scan::Fold(Fold::Mul) => x.literal(1),
            Scan::Fold(Fold::Max) => x.literal(dtype.min_value()),
            Scan::Fold(Fold::Min) => x.literal(dtype.max_value()),
            Scan::LogSumExp => x.literal(f64::NEG_INFINITY),
        }
    }
    /// Over the last axis.
    fn total(self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        match self {
            Scan::Fold(fold) => x.fold(op, fold, &Axes::from(-1)),
            Scan::LogSumExp => x.try_logsumexp(-1),
        }
    }
    fn combine(self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        match self {
            Scan::Fold(Fold::Add) => x.try_add(y),
            Scan::Fold(Fold::Mul) => x.try_mul(y),
            Scan::Fold(Fold::Max) => x.try_maximum(y),
            Scan::Fold(Fold::Min) => x.try_minimum(y),
            Scan::LogSumExp => x.try_logaddexp(y),
        }
    }
    /// Along the last of two axes.
    fn rows(self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        let (rows, n) = (x.dims()[0], x.dims()[1]);
        if n <= 2 * BLOCK {
            return self.prefixes(op, x);
        }
        let blocks = n.div_ceil(BLOCK);
        let filled = x.try_pad_with(&[(0, 0), (0, blocks * BLOCK - n)], self.neutral(x))?;
        let cut = filled.moved(Movement::reshape([rows, blocks, BLOCK]))?;
        // What comes before each block: nothing before the first.
        // Stored, so that a sum of blocks is not one long sum over all that is before.
        let before = self.rows(op, &self.total(op, &cut)?.narrow(1, 0, blocks - 1)?.contiguous())?;
        let inside = self.prefixes(op, &cut)?;
        let later = self.combine(&inside.narrow(1, 1, blocks)?, &before.try_unsqueeze(-1)?)?;
        let all = Tensor::try_cat(&[inside.narrow(1, 0, 1)?, later], 1)?;
        all.moved(Movement::reshape([rows, blocks * BLOCK]))?.narrow(1, 0, n)
    }
    /// The fold of what comes up to each element of the last axis, each by itself.
    fn prefixes(self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        let n = x.dims()[x.ndim() - 1];
        let up_to = iota(n).try_le(iota(n).try_unsqueeze(-1)?)?;
        self.total(op, &up_to.try_where_(x.try_unsqueeze(-2)?, self.neutral(x))?)
    }
    /// Along any axis.
    fn along(self, op: &'static str, x: &Tensor, axis: isize) -> Result<Tensor> {
        let at = resolve_axis(op, axis, &x.dims())? as isize;
        x.no_variables(op, [at as usize])?;
        let swapped = x.try_transpose(at, -1)?;
        let shape = swapped.dims();
        let rows = shape[..shape.len() - 1].iter().product();
        let flat = swapped.moved(Movement::reshape([rows, shape[shape.len() - 1]]))?;
        self.rows(op, &flat)?.moved(Movement::Reshape(shape))?.try_transpose(at, -1)
    }
}

/// A running extreme, and where it stands: the last of equals, as in PyTorch.
fn extremes(op: &'static str, x: &Tensor, axis: isize, fold: Fold) -> Result<(Tensor, Tensor)> {
    let at = resolve_axis(op, axis, &x.dims())?;
    // Computed once, so that all that follows sees the same numbers.
    let source = if x.requires_grad() { x.contiguous() } else { x.same() };
    let x = &source.detach();
    let values = Scan::Fold(fold).along(op, x, axis)?;
    let places = x.places(at)?;
    // An element that is the extreme so far sets a record; the place is that of the last record.
    let record = x.try_eq(&values)?;
    let record = if x.is_floating_point() { record.try_bitwise_or(x.isnan())? } else { record };
    let records = record.try_where_(places, 0)?;
    let place = Scan::Fold(Fold::Max).along(op, &records, axis)?;
    // With a gradient the values are read at their places, so that it goes there and nowhere else.
    let values = if source.requires_grad() { source.try_gather(axis, &place)? } else { values };
    Ok((values, place))
}

impl Tensor {
    fallible! {
        /// The sum of all elements up to each, along an axis, in the dtypes of [`sum`](Self::sum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2, 3], [4, 5, 6]]).cumsum(1).to_vec::<i32>()?, [1, 3, 6, 4, 9, 15]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cumsum | try_cumsum(&self, axis: isize) -> Tensor {
            self.running("cumsum", Fold::Add, axis)
        }

        /// The product of all elements up to each, along an axis, in the dtypes of [`sum`](Self::sum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3, 4]).cumprod(0).to_vec::<i32>()?, [1, 2, 6, 24]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cumprod | try_cumprod(&self, axis: isize) -> Tensor {
            self.running("cumprod", Fold::Mul, axis)
        }

        /// The greatest of all elements up to each, along an axis, and the place of it: the last of equals. NaN wins.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, places) = Tensor::new([1, 3, 2, 3]).cummax(0);
        /// assert_eq!(values.to_vec::<i32>()?, [1, 3, 3, 3]);
        /// assert_eq!(places.to_vec::<i32>()?, [0, 1, 1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cummax | try_cummax(&self, axis: isize) -> (Tensor, Tensor) {
            extremes("cummax", self, axis, Fold::Max)
        }

        /// The least of all elements up to each, as [`cummax`](Self::cummax) is the greatest.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([3, 1, 2]).cummin(0).0.to_vec::<i32>()?, [3, 1, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cummin | try_cummin(&self, axis: isize) -> (Tensor, Tensor) {
            extremes("cummin", self, axis, Fold::Min)
        }

        /// The logarithm of the sum of eˣ of all elements up to each, along an axis, without overflow.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1000.0f32, 1000.0]).logcumsumexp(0).to_vec::<f32>()?;
        /// assert!(x[0] == 1000.0 && (x[1] - 1000.0 - 2f32.ln()).abs() < 1e-4);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn logcumsumexp | try_logcumsumexp(&self, axis: isize) -> Tensor {
            Scan::LogSumExp.along("logcumsumexp", &self.as_wide_float(), axis)?.try_cast(self.as_float().dtype())
        }
    }

    fn running(&self, op: &'static str, fold: Fold, axis: isize) -> Result<Tensor> {
        let dtype: DType = self.dtype();
        let all = Scan::Fold(fold).along(op, &self.try_cast(sum_acc(dtype))?, axis)?;
        if dtype.is_float() { all.try_cast(dtype) } else { Ok(all) }
    }
}
