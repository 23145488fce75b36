//! Activation functions. Integers are converted to `f32`, except by the piecewise linear ones.
//! Narrow floats are computed in `f32` and rounded once; `docs/semantics.md` states the error
//! bounds.

use super::compensated::{fma, gated, gelu_tanh, odd_cubic, product_by, times, times_normal_cdf};
use super::inverse::{rounded, rounded_wide, with_slope};
use super::special::expm1;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Arg, typed};
use crate::tensor::{Tensor, autocast, or_panic};

/// 2√(2/π): (1 + tanh(u))/2 = sigmoid(2u), and this is the factor of x in 2u.
const GELU_FACTOR: f64 = 1.5957691216057308;

/// Returns x limited to a size.
fn inside(x: &Tensor, most: f64) -> Result<Tensor> {
    x.try_gt(most)?.try_where_(most, x.try_lt(-most)?.try_where_(-most, x)?)
}

/// Returns the argument of the sigmoid of `gelu_tanh` with its rounding error.
fn gelu_argument(x: &Tensor) -> Result<(Tensor, Tensor)> {
    // Outside, the sigmoid is 0 or 1, and the cube could overflow.
    odd_cubic(&inside(x, 25.0)?, GELU_FACTOR, GELU_FACTOR * 0.044715)
}

impl Tensor {
    /// Rectified linear unit max(x, 0). NaN and -0.0 propagate; the gradient at 0 is 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 2.0]).relu().to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn relu(&self) -> Tensor {
        let _operation = autocast::enter();
        let x = self.detach();
        let y = x.lt(0).where_(0, &x);
        if !self.is_floating_point() {
            return y;
        }
        // NaN has gradient 1, as in PyTorch.
        let (y, origin) = (y.uop(), self.uop());
        self.with_uop(typed::Relu::build(y.dtype(), Arg::None, y, origin))
    }
    /// Elements limited to 0..=6.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 3.0, 9.0]).relu6().to_vec::<f32>()?, [0.0, 3.0, 6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn relu6(&self) -> Tensor {
        let _operation = autocast::enter();
        or_panic(self.clamped(0.into(), 6.into()))
    }
    /// Leaky ReLU: x above 0, `slope`·x elsewhere. The gradient at 0 is `slope`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-2.0f32, 3.0]).leaky_relu(0.5).to_vec::<f32>()?, [-1.0, 3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        rounded(self, |x| x.try_gt(0)?.try_where_(x, times(x, slope)?))
    }
    /// Exponential linear unit: x above 0, `alpha`·(eˣ-1) elsewhere.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 2.0]).elu(1.0);
    /// assert!(y.allclose(&Tensor::new([(-1.0f32).exp() - 1.0, 2.0]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn elu(&self, alpha: f64) -> Tensor {
        rounded(self, |x| select_nonpositive(x, x, |low| times(&expm1(low)?, alpha)))
    }
    /// Continuously differentiable ELU: x above 0, `alpha`·(e^(x/alpha)-1) elsewhere.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-2.0f32, 2.0]).celu(2.0).to_vec::<f32>()?;
    /// let expected = [2.0 * ((-1.0f32).exp() - 1.0), 2.0];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn celu(&self, alpha: f64) -> Tensor {
        rounded(self, |x| {
            select_nonpositive(x, x, |low| times(&expm1(&times(low, 1.0 / alpha)?)?, alpha))
        })
    }
    /// Scaled [`elu`](Self::elu) with the self-normalizing constants of Klambauer et al. (2017).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert!((Tensor::new([1.0f32]).selu().item::<f32>()? - 1.0507009).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn selu(&self) -> Tensor {
        const SCALE: f64 = 1.0507009873554805;
        const ALPHA: f64 = 1.6732632423543772;
        rounded(self, |x| {
            select_nonpositive(x, &times(x, SCALE)?, |low| times(&expm1(low)?, SCALE * ALPHA))
        })
    }
    /// Sigmoid linear unit x·sigmoid(x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).silu();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.7310586]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn silu(&self) -> Tensor {
        rounded(self, |x| gated(x, x, None))
    }
    /// Alias of [`silu`](Self::silu).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).swish();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.7310586]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn swish(&self) -> Tensor {
        let _operation = autocast::enter();
        self.silu()
    }
    /// Gaussian error linear unit x·Φ(x). [`gelu_tanh`](Self::gelu_tanh) is its approximation.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 1.0]).gelu();
    /// assert!(y.allclose(&Tensor::new([-0.15865526f32, 0.84134474]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gelu(&self) -> Tensor {
        rounded(self, times_normal_cdf)
    }
    /// Approximation of [`gelu`](Self::gelu) by a hyperbolic tangent (Hendrycks and Gimpel, 2016).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 1.0]).gelu_tanh();
    /// assert!(y.allclose(&Tensor::new([-0.15880801f32, 0.841192]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gelu_tanh(&self) -> Tensor {
        rounded(self, |x| {
            if x.dtype() != DType::F32 {
                let (z, low) = gelu_argument(x)?;
                return gated(x, &z, Some(&low));
            }
            // The derivative of x·s with s = sigmoid(z) is s + x·s·(1-s)·z'.
            with_slope(x, gelu_tanh, |x| {
                let (z, low) = gelu_argument(x)?;
                let s = gated(&x.literal(1.0), &z, Some(&low))?;
                let near = inside(x, 25.0)?;
                let rise = near.square() * (3.0 * 0.044715 * GELU_FACTOR) + GELU_FACTOR;
                s.try_mul(near.try_mul(1.0 - &s)?.try_mul(rise)? + 1.0)
            })
        })
    }
    /// Approximation of [`gelu`](Self::gelu) by x·sigmoid(1.702x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert!((Tensor::new([1.0f32]).quick_gelu().item::<f32>()? - 0.8457957).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn quick_gelu(&self) -> Tensor {
        rounded(self, |x| {
            // Outside, the sigmoid is 0 or 1. The low part of an infinity is NaN.
            let inside =
                x.try_gt(1000)?.try_where_(1000.0, x.try_lt(-1000)?.try_where_(-1000.0, x)?)?;
            let (z, low) = product_by(&inside, 1.702)?;
            gated(x, &z, Some(&low))
        })
    }
    /// Softplus log(1+e^(beta·x))/beta, computed without overflow.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1000.0]).softplus(1.0);
    /// assert!(y.allclose(&Tensor::new([2f32.ln(), 1000.0]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn softplus(&self, beta: f64) -> Tensor {
        rounded_wide(self, |x| {
            if beta == 1.0 {
                return x.maximum(0.0).try_add((-x.abs()).exp().log_one_plus());
            }
            let (z, low) = product_by(x, beta)?;
            // Scaled as in `gated`: the quotient by a small beta may be normal where the
            // exponential is not.
            let far = z.try_lt(-32)?;
            let e = far.try_where_(&z + 64.0, -z.abs())?.exp();
            // The low part of an infinity is NaN.
            let low = low.isfinite().try_where_(z.try_gt(0)?.try_where_(-&low, &low)?, 0.0)?;
            let e = e.try_add(e.try_mul(low)?)?;
            let tail = &e / beta * (-64f64).exp();
            far.try_where_(tail, x.maximum(0.0).try_add(e.log_one_plus() / beta)?)
        })
    }
    /// Mish x·tanh(softplus(x)).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).mish();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.8650984]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn mish(&self) -> Tensor {
        rounded(self, |x| {
            // tanh(log(1+e)) = n/(n+2) with n = e(e+2). For x < -32 that is e, scaled as in
            // `gated`.
            let far = x.try_lt(-32)?;
            let e = far.try_where_(x + 64.0, x.try_gt(40)?.try_where_(40.0, x)?)?.exp();
            let n = fma(&e, &e, &(&e * 2.0))?;
            let tail = x.try_mul(&e)? * (-64f64).exp();
            far.try_where_(tail, x.try_mul(n.try_div(&n + 2.0)?)?)
        })
    }
    /// log(sigmoid(x)), computed without underflow.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, -1000.0]).logsigmoid();
    /// assert!(y.allclose(&Tensor::new([-(2f32.ln()), -1000.0]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn logsigmoid(&self) -> Tensor {
        rounded(self, |x| Ok(-(-x).softplus(1.0)))
    }
    /// Softsign x/(1+|x|).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 3.0]).softsign().to_vec::<f32>()?, [-0.5, 0.75]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn softsign(&self) -> Tensor {
        rounded(self, |x| x.try_div(x.abs() + 1.0))
    }
    /// Elements limited to -1..=1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-3.0f32, 0.5, 2.0]).hardtanh().to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardtanh(&self) -> Tensor {
        let _operation = autocast::enter();
        or_panic(self.clamped((-1).into(), 1.into()))
    }
    /// Piecewise linear sigmoid: x/6+1/2, limited to 0..=1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-4.0f32, 0.0, 4.0]).hardsigmoid();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardsigmoid(&self) -> Tensor {
        rounded(self, |x| Ok((x + 3.0).clamp(0, 6) / 6.0))
    }
    /// x·hardsigmoid(x). The gradient is 1 for x ≥ 3 and NaN, and 0 for x ≤ -3.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-4.0f32, 0.0, 4.0]).hardswish().to_vec::<f32>()?, [0.0, 0.0, 4.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardswish(&self) -> Tensor {
        rounded(self, |x| {
            let is_low = x.try_lt(3)?;
            let low = is_low.try_where_(x, 0.0)?;
            is_low.try_where_(low.try_mul(low.hardsigmoid())?, x)
        })
    }
}

/// Selects `low` for elements up to 0 and `above` elsewhere. NaN takes the gradient of `above`, as
/// in PyTorch.
fn select_nonpositive(
    x: &Tensor,
    above: &Tensor,
    low: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let is_low = x.try_le(0)?;
    // 0 elsewhere, because an overflow times a gradient of 0 is NaN.
    let below = is_low.try_where_(x, 0.0)?;
    is_low.try_where_(low(&below)?, above)
}
