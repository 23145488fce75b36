//! Cumulative reductions along an axis: sum, product, maximum, minimum, log-sum-exp.
//!
//! Sums, products and extremes are `Scan` nodes, which the scheduler splits into blocks. A
//! cumulative extreme and its index come from one scan of keys that hold both. `logcumsumexp` has
//! no scan in the IR: a short axis is reduced once per prefix, and a long one is split into blocks,
//! whose totals are scanned recursively.

use super::create::iota;
use crate::autograd::monotone_gather_gradient;
use crate::device::Device;
use crate::dtype::{DType, Scalar, sum_acc};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Dims;
use crate::tensor::{Tensor, resolve_axis};

/// Elements per block of `logcumsumexp`. An axis of at most two blocks is reduced per prefix.
const BLOCK: usize = 8;

/// Cumulative log-sum-exp along the last of two axes.
fn log_cumsum(x: &Tensor) -> Result<Tensor> {
    let (rows, n) = (x.dims()[0], x.dims()[1]);
    if n <= 2 * BLOCK {
        return log_cumsum_direct(x);
    }
    let blocks = n.div_ceil(BLOCK);
    let filled = x.try_pad_with(&[(0, 0), (0, blocks * BLOCK - n)], f64::NEG_INFINITY)?;
    let cut = filled.shaped([rows, blocks, BLOCK])?;
    // Totals before each block, stored so that they are not rematerialized as one long sum.
    let before = log_cumsum(&cut.try_logsumexp(-1)?.slice_axis(1, 0, blocks - 1)?.contiguous())?;
    let inside = log_cumsum_direct(&cut)?.contiguous();
    let before = before.try_pad_with(&[(0, 0), (1, 0)], f64::NEG_INFINITY)?;
    let all = inside.try_logaddexp(before.try_unsqueeze(-1)?)?;
    all.shaped([rows, blocks * BLOCK])?.slice_axis(1, 0, n)
}

/// Cumulative log-sum-exp with one reduction per prefix.
fn log_cumsum_direct(x: &Tensor) -> Result<Tensor> {
    let n = x.dims()[x.ndim() - 1];
    let up_to = iota(n).try_le(iota(n).try_unsqueeze(-1)?)?;
    up_to.try_where_(x.try_unsqueeze(-2)?, x.literal(f64::NEG_INFINITY))?.try_logsumexp(-1)
}

/// Cumulative extreme and its index: the last of equals, as in PyTorch. Gradients go to the
/// indices.
fn cumulative_extreme(
    op: &'static str,
    x: &Tensor,
    axis: isize,
    fold: Fold,
) -> Result<(Tensor, Tensor)> {
    if crate::tensor::is_scalar_axis(axis, &x.dims()) {
        return Ok((x.copy(), x.with_uop(iota(1).uop()).shaped(Dims::new())?));
    }
    let at = resolve_axis(op, axis, &x.dims())?;
    x.require_static(op, [at])?;
    let wide =
        Device::named(x.device()).map_or(true, |d| d.target().arithmetic.contains(&Scalar::U64));
    let short = i32::try_from(x.dims()[at]).is_ok();
    let (values, places) = match x.dtype().bits() <= 32 && wide && short {
        true => by_keys(&x.detach(), at, fold)?,
        false => by_records(&x.detach(), at, fold)?,
    };
    let of = places.clone();
    let values = Tensor::call(
        &[x],
        |_| Ok(values),
        move |g, _| Ok(vec![g.with_uop(monotone_gather_gradient(&of.uop(), &g.uop(), at))]),
    )?;
    Ok((values, places))
}

/// Values and indices from one cumulative maximum of keys: the value in the upper half, as an
/// integer of the same order, and the index in the lower.
fn by_keys(x: &Tensor, axis: usize, fold: Fold) -> Result<(Tensor, Tensor)> {
    let dtype = x.dtype();
    let float = dtype.is_float();
    let least = fold == Fold::Min;
    let sign = 1u64 << 31;
    // Floats: -0 becomes 0; the bits of negative numbers are inverted; NaN is the largest key.
    let order = if float {
        let x = x.try_cast(DType::F32)? + 0.0;
        let bits = x.try_bitcast(DType::U32)?;
        let negative = bits.try_ge(sign)?;
        let order = bits.try_bitwise_xor(
            negative.try_where_(bits.literal(u32::MAX as u64), bits.literal(sign))?,
        )?;
        let order = if least { order.try_bitwise_xor(u32::MAX as u64)? } else { order };
        x.isnan().try_where_(order.literal(u32::MAX as u64), order)?
    } else {
        let bits = if dtype.is_unsigned() || dtype.is_bool() {
            x.try_cast(DType::U32)?
        } else {
            x.try_cast(DType::I32)?.try_bitcast(DType::U32)?.try_bitwise_xor(sign)?
        };
        if least { bits.try_bitwise_xor(u32::MAX as u64)? } else { bits }
    };
    let keys = order
        .try_cast(DType::U64)?
        .try_lshift(32)?
        .try_bitwise_or(x.iota_along(axis)?.try_cast(DType::U64)?)?;
    let best = keys.with_uop(keys.uop().scanned(Fold::Max, axis));
    let places = best.try_bitwise_and(u32::MAX as u64)?.try_cast(DType::I32)?;
    let order = best.try_rshift(32)?.try_cast(DType::U32)?;
    let turned = if least { order.try_bitwise_xor(u32::MAX as u64)? } else { order.clone() };
    let values = if float {
        let negative = turned.try_lt(sign)?;
        let bits = turned.try_bitwise_xor(
            negative.try_where_(turned.literal(u32::MAX as u64), turned.literal(sign))?,
        )?;
        let number = bits.try_bitcast(DType::F32)?;
        order
            .try_eq(u32::MAX as u64)?
            .try_where_(number.literal(f64::NAN), number)?
            .try_cast(dtype)?
    } else if dtype.is_unsigned() || dtype.is_bool() {
        turned.try_cast(dtype)?
    } else {
        turned.try_bitwise_xor(sign)?.try_bitcast(DType::I32)?.try_cast(dtype)?
    };
    Ok((values, places))
}

/// Values and indices of dtypes that leave no bits for an index: the index is that of the last
/// element that equals the cumulative extreme.
fn by_records(x: &Tensor, axis: usize, fold: Fold) -> Result<(Tensor, Tensor)> {
    // Stored, so that the compared value is the scanned one.
    let x = x.contiguous();
    let values = x.with_uop(x.uop().scanned(fold, axis)).contiguous();
    let record = x.try_eq(&values)?;
    let record = if x.is_floating_point() { record.try_bitwise_or(x.isnan())? } else { record };
    let records = record.try_where_(x.iota_along(axis)?, 0)?;
    let places = records.with_uop(records.uop().scanned(Fold::Max, axis));
    Ok((values, places))
}

impl Tensor {
    fallible! {
        /// Cumulative sum along an axis, in the dtypes of [`sum`](Self::sum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([[1, 2, 3], [4, 5, 6]]).cumsum(1);
        /// assert_eq!(y.to_vec::<i32>()?, [1, 3, 6, 4, 9, 15]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cumsum | try_cumsum(&self, axis: isize) -> Tensor {
            in_wide_dtype!(self.try_cumsum(axis));
            self.accumulate_scan("cumsum", Fold::Add, axis)
        }

        /// Cumulative product along an axis, in the dtypes of [`sum`](Self::sum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3, 4]).cumprod(0).to_vec::<i32>()?, [1, 2, 6, 24]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cumprod | try_cumprod(&self, axis: isize) -> Tensor {
            in_wide_dtype!(self.try_cumprod(axis));
            self.accumulate_scan("cumprod", Fold::Mul, axis)
        }

        /// Cumulative maximum along an axis and its index, the last of equals. NaN propagates.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, places) = Tensor::new([1, 3, 2, 3]).cummax(0);
        /// assert_eq!(values.to_vec::<i32>()?, [1, 3, 3, 3]);
        /// assert_eq!(places.to_vec::<i32>()?, [0, 1, 1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cummax | try_cummax(&self, axis: isize) -> (Tensor, Tensor) {
            cumulative_extreme("cummax", self, axis, Fold::Max)
        }

        /// Cumulative minimum along an axis and its index, the last of equals. NaN propagates.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([3, 1, 2]).cummin(0).0.to_vec::<i32>()?, [3, 1, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cummin | try_cummin(&self, axis: isize) -> (Tensor, Tensor) {
            cumulative_extreme("cummin", self, axis, Fold::Min)
        }

        /// Cumulative log-sum-exp along an axis, computed without overflow.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1000.0f32, 1000.0]).logcumsumexp(0).to_vec::<f32>()?;
        /// assert!(x[0] == 1000.0 && (x[1] - 1000.0 - 2f32.ln()).abs() < 1e-4);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn logcumsumexp | try_logcumsumexp(&self, axis: isize) -> Tensor {
            let x = self.as_wide_float();
            if crate::tensor::is_scalar_axis(axis, &x.dims()) {
                return Ok(self.as_float());
            }
            let at = resolve_axis("logcumsumexp", axis, &x.dims())? as isize;
            x.require_static("logcumsumexp", [at as usize])?;
            let dtype = self.as_float().dtype();
            if x.numel() == 0 {
                return x.try_cast(dtype);
            }
            let swapped = x.try_transpose(at, -1)?;
            let shape = swapped.dims();
            let rows = shape[..shape.len() - 1].iter().product();
            let flat = swapped.shaped([rows, shape[shape.len() - 1]])?;
            log_cumsum(&flat)?.shaped(shape)?.try_transpose(at, -1)?.try_cast(dtype)
        }
    }

    fn accumulate_scan(&self, op: &'static str, fold: Fold, axis: isize) -> Result<Tensor> {
        let dtype: DType = self.dtype();
        let all = self.try_cast(sum_acc(dtype))?.prefix_scan(op, fold, axis)?;
        if dtype.is_float() { all.try_cast(dtype) } else { Ok(all) }
    }

    /// Inclusive scan along an axis, in the dtype of this tensor.
    pub(super) fn prefix_scan(&self, op: &'static str, fold: Fold, axis: isize) -> Result<Tensor> {
        if crate::tensor::is_scalar_axis(axis, &self.dims()) {
            return Ok(self.copy());
        }
        let at = resolve_axis(op, axis, &self.dims())?;
        self.require_static(op, [at])?;
        Ok(self.with_uop(self.uop().scanned(fold, at)))
    }
}
