//! Softmax family and normalizations. Narrow floats are computed in `f32` and rounded once.

use super::compensated::gated;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::{Axes, Tensor, keepdim, resolve_axis};

/// Power of a tensor, unchanged for 1.
fn power(x: Tensor, p: f64) -> Result<Tensor> {
    if p == 1.0 { Ok(x) } else { x.try_pow(p) }
}

impl Tensor {
    fallible! {
        /// Softmax along an axis, computed without overflow.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1000.0f32, 1000.0]]).softmax(-1).to_vec::<f32>()?, [0.5, 0.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn softmax | try_softmax(&self, axis: isize) -> Tensor {
            in_wide_dtype!(self.try_softmax(axis));
            let exp = self.max_shifted(axis)?.exp();
            let sum = exp.reduce_axes(Fold::Add, keepdim(axis))?;
            // One division per sum instead of one per element.
            exp.try_mul(sum.reciprocal())?.try_cast(self.as_float().dtype())
        }

        /// [`softmax`](Self::softmax) of the negated elements.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1.0f32, 1.0]).softmin(0).to_vec::<f32>()?, [0.5, 0.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn softmin | try_softmin(&self, axis: isize) -> Tensor {
            in_wide_dtype!(self.try_softmin(axis));
            self.as_float().try_neg()?.try_softmax(axis)
        }

        /// Logarithm of [`softmax`](Self::softmax), computed without underflow.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([0.0f32, 0.0]).log_softmax(0).to_vec::<f32>()?;
        /// let expected = [-(2f32.ln()), -(2f32.ln())];
        /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn log_softmax | try_log_softmax(&self, axis: isize) -> Tensor {
            in_wide_dtype!(self.try_log_softmax(axis));
            let x = self.max_shifted(axis)?;
            let sum = x.exp().reduce_axes(Fold::Add, keepdim(axis))?;
            x.try_sub(sum.log())?.try_cast(self.as_float().dtype())
        }

        /// Logarithm of the sum of exponentials over axes, computed without overflow. Over no
        /// elements it is -inf.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([0.0f32, 0.0]).logsumexp(0);
        /// assert!(y.allclose(&Tensor::new([2f32.ln()]), 1e-5, 1e-5).item::<bool>()?);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn logsumexp | try_logsumexp(&self, axes: impl Into<Axes>) -> Tensor {
            in_wide_dtype!(self.try_logsumexp(axes));
            let (axes, x) = (axes.into(), self.as_wide_float());
            let max = x.reduce_axes(Fold::Max, keepdim(axes.clone()))?.detach();
            // inf - inf is NaN.
            let max = max.isfinite().try_where_(&max, 0.0)?;
            let sum = x.try_sub(&max)?.exp().reduce_axes(Fold::Add, &axes)?;
            sum.log().try_add(max.reduce_axes(Fold::Max, &axes)?)?.try_cast(self.as_float().dtype())
        }

        /// Layer normalization over axes: `(x - mean)/√(var + eps)`, without an affine map.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1.0f32, 3.0]).layernorm(-1, 0.0);
        /// assert!(y.allclose(&Tensor::new([-1.0f32, 1.0]), 1e-5, 1e-5).item::<bool>()?);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn layernorm | try_layernorm(&self, axes: impl Into<Axes>, eps: f64) -> Tensor {
            in_wide_dtype!(self.try_layernorm(axes, eps));
            let axes = keepdim(axes);
            let x = self.as_wide_float();
            let centred = x.try_sub(x.wide_mean(&axes)?)?;
            let var = centred.square().wide_mean(&axes)?;
            centred.try_mul((var + eps).rsqrt())?.try_cast(self.as_float().dtype())
        }

        /// Root-mean-square normalization over axes: `x/√(mean(x²) + eps)`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([3.0f32, 3.0]).rmsnorm(-1, 0.0);
        /// assert!(y.allclose(&Tensor::new([1.0f32, 1.0]), 1e-5, 1e-5).item::<bool>()?);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn rmsnorm | try_rmsnorm(&self, axes: impl Into<Axes>, eps: f64) -> Tensor {
            in_wide_dtype!(self.try_rmsnorm(axes, eps));
            let x = self.as_wide_float();
            let mean = x.square().wide_mean(&keepdim(axes))?;
            x.try_mul((mean + eps).rsqrt())?.try_cast(self.as_float().dtype())
        }

        /// Batch normalization with given statistics: `(x - mean)·invstd·weight + bias` along axis
        /// 1. The four tensors have one element per channel, of shape `[channels]` or with axes of
        /// size 1.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (mean, invstd) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1.0f32, 0.5]));
        /// let x = Tensor::new([[3.0f32, 4.0]]);
        /// assert_eq!(x.batchnorm(None, None, &mean, &invstd).to_vec::<f32>()?, [2.0, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn batchnorm | try_batchnorm(
            &self, weight: Option<&Tensor>, bias: Option<&Tensor>, mean: &Tensor, invstd: &Tensor,
        ) -> Tensor {
            let dims = self.dims();
            reject_shape!(dims.len() < 2, "expected [batch, channels, …], got {dims:?}");
            let per_channel = |t: &Tensor| {
                let (given, channels) = (t.dims(), dims[1]);
                if t.numel() != channels {
                    return shape_error!(
                        "expected one element for each of the {channels} channels of {dims:?}, got \
                         {given:?}"
                    );
                }
                t.as_wide_float().line_along(0, dims.len() - 1)
            };
            let scale = match weight {
                Some(w) => per_channel(invstd)?.try_mul(per_channel(w)?)?,
                None => per_channel(invstd)?,
            };
            let mut x = self.as_wide_float().try_sub(per_channel(mean)?)?.try_mul(scale)?;
            if let Some(b) = bias {
                x = x.try_add(per_channel(b)?)?;
            }
            x.try_cast(self.as_float().dtype())
        }
    }

    /// Mean and variance per channel of `[batch, channels, …]`, with other axes kept at size 1, in
    /// the accumulation dtype.
    pub(crate) fn batch_stats(&self) -> Result<(Tensor, Tensor)> {
        let others: Vec<usize> = (0..self.ndim()).filter(|&axis| axis != 1).collect();
        let axes = keepdim(others);
        Ok((self.wide_mean(&axes)?, self.wide_var(&axes, 0)?))
    }

    fallible! {
        /// Divides by the `p`-norm along axes, or by `eps` if that is greater.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([[3.0f32, 4.0]]).normalize(2.0, 1, 1e-12);
        /// assert_eq!(y.to_vec::<f32>()?, [0.6, 0.8]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn normalize | try_normalize(&self, p: f64, axes: impl Into<Axes>, eps: f64) -> Tensor {
            in_wide_dtype!(self.try_normalize(p, axes, eps));
            let (x, axes) = (self.as_wide_float(), keepdim(axes));
            reject_shape!(p <= 0.0 || p.is_nan(), "expected a power above 0, got {p}");
            let norm = if p == f64::INFINITY {
                x.abs().try_max(axes)?
            } else {
                let powers = if p == 2.0 { x.square() } else { power(x.abs(), p)? };
                let sum = powers.reduce_axes(Fold::Add, &axes)?;
                // The gradient of the root at 0 is infinite.
                let some = sum.try_gt(0)?;
                let safe = some.try_where_(&sum, 1.0)?;
                let root = if p == 2.0 { safe.sqrt() } else { power(safe, 1.0 / p)? };
                some.try_where_(root, sum)?
            };
            x.try_div(norm.try_maximum(eps)?)?.try_cast(self.as_float().dtype())
        }

        /// Gated linear unit: the first half along an axis times the sigmoid of the second half.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([4.0f32, 6.0, 0.0, 0.0]).glu(0).to_vec::<f32>()?, [2.0, 3.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn glu | try_glu(&self, axis: isize) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("glu", axis, &dims)?;
            let n = dims[at];
            if !n.is_multiple_of(2) {
                return shape_error!("axis {axis} of {dims:?} has size {n}; expected an even size");
            }
            let x = self.as_wide_float();
            let y = gated(&x.slice_axis(at, 0, n / 2)?, &x.slice_axis(at, n / 2, n)?, None)?;
            y.try_cast(self.as_float().dtype())
        }
    }

    /// [`softmax`](Self::softmax) along the last axis. Rows that are -inf throughout give zeros
    /// with gradient 0.
    pub(super) fn masked_softmax(&self) -> Result<Tensor> {
        let x = self.as_wide_float();
        if x.max_numel() == 0 {
            return Ok(x);
        }
        let max = x.reduce_axes(Fold::Max, keepdim(-1))?.detach();
        let none = max.try_eq(f64::NEG_INFINITY)?;
        let exp = x.try_sub(none.try_where_(0.0, max)?)?.exp();
        let sum = exp.reduce_axes(Fold::Add, keepdim(-1))?;
        exp.try_mul(none.try_where_(1.0, sum)?.reciprocal())
    }

    /// Subtracts the maximum along an axis, in the accumulation dtype. The maximum cancels, so that
    /// it needs no gradient.
    fn max_shifted(&self, axis: isize) -> Result<Tensor> {
        let x = self.as_wide_float();
        if x.max_numel() == 0 {
            resolve_axis("softmax", axis, &x.dims())?;
            return Ok(x);
        }
        x.try_sub(x.reduce_axes(Fold::Max, keepdim(axis))?.detach())
    }
}
