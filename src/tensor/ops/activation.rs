//! Activations: short compositions. Integers count as `f32`, as in every function of the reals, but
//! for the piecewise linear ones. Narrow floats are computed in `f32` and rounded once;
//! `docs/semantics.md` states the error bounds.

use super::compensated::{fma, gated, odd_cubic, product_by, times, times_normal_cdf};
use super::inverse::rounded;
use super::special::expm1;
use crate::error::Result;
use crate::tensor::{Tensor, autocast, or_panic};

impl Tensor {
    /// The element, or 0 below it. NaN stays, and so does -0.0. The gradient at 0 is 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 2.0]).relu().to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn relu(&self) -> Tensor {
        let _operation = autocast::enter();
        let y = self.lt(0).where_(0, self);
        // The gradient looks at the result alone, which is there anyway: the element itself is not
        // kept for it, and a result above 0 has a gradient whatever is computed again. NaN passes
        // it, as in PyTorch.
        if self.is_floating_point() { y.detach().ne(0).where_(self, y.detach()) } else { y }
    }
    /// Between 0 and 6.
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
    /// The element, times `slope` below 0; at 0 the gradient is `slope`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-2.0f32, 3.0]).leaky_relu(0.5).to_vec::<f32>()?, [-1.0, 3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| x.try_gt(0)?.try_where_(x, times(x, slope)?))
    }
    /// The element, and `alpha`·(eˣ-1) below 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 2.0]).elu(1.0).to_vec::<f32>()?;
    /// let expected = [(-1.0f32).exp() - 1.0, 2.0];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn elu(&self, alpha: f64) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| below_zero(x, x, |low| times(&expm1(low)?, alpha)))
    }
    /// The element, and `alpha`·(e^(x/alpha)-1) below 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-2.0f32, 2.0]).celu(2.0).to_vec::<f32>()?;
    /// let expected = [2.0 * ((-1.0f32).exp() - 1.0), 2.0];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn celu(&self, alpha: f64) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| below_zero(x, x, |low| times(&expm1(&times(low, 1.0 / alpha)?)?, alpha)))
    }
    /// The self-normalising [`elu`](Self::elu) of Klambauer and others (2017), with the constants
    /// from there.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32]).selu().to_vec::<f32>()?;
    /// let expected = [1.0507009];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn selu(&self) -> Tensor {
        let _operation = autocast::enter();
        const SCALE: f64 = 1.0507009873554805;
        const ALPHA: f64 = 1.6732632423543772;
        rounded(self, |x| {
            below_zero(x, &times(x, SCALE)?, |low| times(&expm1(low)?, SCALE * ALPHA))
        })
    }
    /// x·sigmoid(x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).silu().to_vec::<f32>()?;
    /// let expected = [0.0, 0.7310586];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn silu(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| gated(x, x, None))
    }
    /// Another name of [`silu`](Self::silu).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).swish().to_vec::<f32>()?;
    /// let expected = [0.0, 0.7310586];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn swish(&self) -> Tensor {
        let _operation = autocast::enter();
        self.silu()
    }
    /// x·Φ(x), with the error function. [`gelu_tanh`](Self::gelu_tanh) is the approximation.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 1.0]).gelu().to_vec::<f32>()?;
    /// let expected = [-0.15865526, 0.84134474];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gelu(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, times_normal_cdf)
    }
    /// The approximation of [`gelu`](Self::gelu) by a hyperbolic tangent (Hendrycks and Gimpel,
    /// 2016).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 1.0]).gelu_tanh().to_vec::<f32>()?;
    /// let expected = [-0.15880801, 0.841192];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gelu_tanh(&self) -> Tensor {
        let _operation = autocast::enter();
        // (1 + tanh(u))/2 = sigmoid(2u), and 2√(2/π) is the factor of x in 2u.
        const FACTOR: f64 = 1.5957691216057308;
        rounded(self, |x| {
            // Outside, the sigmoid is 0 or 1, and the cube must not overflow.
            let inside = x.try_gt(25)?.try_where_(25.0, x.try_lt(-25)?.try_where_(-25.0, x)?)?;
            let (z, low) = odd_cubic(&inside, FACTOR, FACTOR * 0.044715)?;
            gated(x, &z, Some(&low))
        })
    }
    /// x·sigmoid(1.702x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32]).quick_gelu().to_vec::<f32>()?;
    /// let expected = [0.8457957];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn quick_gelu(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| {
            // Outside, the sigmoid is 0 or 1; an infinity has no second part.
            let inside =
                x.try_gt(1000)?.try_where_(1000.0, x.try_lt(-1000)?.try_where_(-1000.0, x)?)?;
            let (z, low) = product_by(&inside, 1.702)?;
            gated(x, &z, Some(&low))
        })
    }
    /// log(1+e^(beta·x))/beta, without overflow.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1000.0]).softplus(1.0).to_vec::<f32>()?;
    /// let expected = [2f32.ln(), 1000.0];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn softplus(&self, beta: f64) -> Tensor {
        if let Some(x) = autocast::plain_wide(self) {
            return x.softplus(beta);
        }
        if beta == 1.0 {
            return rounded(self, |x| x.maximum(0.0).try_add((-x.abs()).exp().log_one_plus()));
        }
        rounded(self, |x| {
            let (z, low) = product_by(x, beta)?;
            // Scaled as in `gated`, since a quotient by a small beta may be normal where the
            // exponential is not.
            let far = z.try_lt(-32)?;
            let e = far.try_where_(&z + 64.0, -z.abs())?.exp();
            // Of an infinity there is no second part.
            let low = low.isfinite().try_where_(z.try_gt(0)?.try_where_(-&low, &low)?, 0.0)?;
            let e = e.try_add(e.try_mul(low)?)?;
            let tail = &e / beta * (-64f64).exp();
            far.try_where_(tail, x.maximum(0.0).try_add(e.log_one_plus() / beta)?)
        })
    }
    /// x·tanh(softplus(x)).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).mish().to_vec::<f32>()?;
    /// let expected = [0.0, 0.8650984];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn mish(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| {
            // tanh(log(1+e)) = n/(n+2) with n = e(e+2). Far below zero that is e, and is scaled as
            // in `gated`.
            let far = x.try_lt(-32)?;
            let e = far.try_where_(x + 64.0, x.try_gt(40)?.try_where_(40.0, x)?)?.exp();
            let n = fma(&e, &e, &(&e * 2.0))?;
            let tail = x.try_mul(&e)? * (-64f64).exp();
            far.try_where_(tail, x.try_mul(n.try_div(&n + 2.0)?)?)
        })
    }
    /// log(sigmoid(x)), without underflow.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, -1000.0]).logsigmoid().to_vec::<f32>()?;
    /// let expected = [-(2f32.ln()), -1000.0];
    /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-5));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn logsigmoid(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| Ok(-(-x).softplus(1.0)))
    }
    /// x/(1+|x|).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-1.0f32, 3.0]).softsign().to_vec::<f32>()?, [-0.5, 0.75]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn softsign(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| x.try_div(x.abs() + 1.0))
    }
    /// Between -1 and 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(
    ///     Tensor::new([-3.0f32, 0.5, 2.0]).hardtanh().to_vec::<f32>()?,
    ///     [-1.0, 0.5, 1.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardtanh(&self) -> Tensor {
        let _operation = autocast::enter();
        or_panic(self.clamped((-1).into(), 1.into()))
    }
    /// x/6+1/2, between 0 and 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(
    ///     Tensor::new([-4.0f32, 0.0, 4.0]).hardsigmoid().to_vec::<f32>()?,
    ///     [0.0, 0.5, 1.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardsigmoid(&self) -> Tensor {
        let _operation = autocast::enter();
        rounded(self, |x| Ok((x + 3.0).clamp(0, 6) / 6.0))
    }
    /// x·hardsigmoid(x). The gradient is 1 from 3 on and at NaN, and 0 up to -3.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(
    ///     Tensor::new([-4.0f32, 0.0, 4.0]).hardswish().to_vec::<f32>()?,
    ///     [0.0, 0.0, 4.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardswish(&self) -> Tensor {
        let _operation = autocast::enter();
        // From 3 on and at NaN it is the element itself, and so is its gradient.
        rounded(self, |x| {
            let is_low = x.try_lt(3)?;
            let low = is_low.try_where_(x, 0.0)?;
            is_low.try_where_(low.try_mul(low.hardsigmoid())?, x)
        })
    }
}

/// `low` of the elements that are not above zero, and `above` elsewhere, where NaN belongs: its
/// gradient is that of `above`, as in PyTorch.
fn below_zero(
    x: &Tensor,
    above: &Tensor,
    low: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let is_low = x.try_le(0)?;
    // Elsewhere 0, so that no exponential overflows beside a gradient of 0.
    let below = is_low.try_where_(x, 0.0)?;
    is_low.try_where_(low(&below)?, above)
}
