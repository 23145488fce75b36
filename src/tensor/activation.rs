//! Activations: short compositions. Integers count as `f32`, as in every function of the reals, but for the piecewise linear ones.

use super::{Tensor, autocast};

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
        // The gradient looks at the result, which is there anyway, and so the element itself is not kept for it.
        if self.is_floating_point() { y.gt(0).where_(&y, y.detach()) } else { y }
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
        self.clamp(0, 6)
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
        let x = self.as_float();
        x.gt(0).where_(&x, &x * slope)
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
        let x = self.as_float();
        x.gt(0).where_(&x, x.exp_minus_one() * alpha)
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
        let x = self.as_float();
        x.gt(0).where_(&x, (&x / alpha).exp_minus_one() * alpha)
    }
    /// The self-normalising [`elu`](Self::elu) of Klambauer and others (2017), with the constants from there.
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
        self.elu(1.6732632423543772) * 1.0507009873554805
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
        self * self.sigmoid()
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
        let x = self.as_float();
        &x * 0.5 * ((&x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)
    }
    /// The approximation of [`gelu`](Self::gelu) by a hyperbolic tangent (Hendrycks and Gimpel, 2016).
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
        let x = self.as_float();
        // √(2/π)
        let inner = (&x + x.pow(3) * 0.044715) * 0.7978845608028654;
        &x * 0.5 * (inner.tanh() + 1.0)
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
        self * (self * 1.702).sigmoid()
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
        let x = self.as_float() * beta;
        (x.maximum(0.0) + (-x.abs()).exp().log_one_plus()) / beta
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
        self * self.softplus(1.0).tanh()
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
        -(-self.as_float()).softplus(1.0)
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
        let x = self.as_float();
        &x / (x.abs() + 1.0)
    }
    /// Between -1 and 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-3.0f32, 0.5, 2.0]).hardtanh().to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardtanh(&self) -> Tensor {
        let _operation = autocast::enter();
        self.clamp(-1, 1)
    }
    /// x/6+1/2, between 0 and 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-4.0f32, 0.0, 4.0]).hardsigmoid().to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardsigmoid(&self) -> Tensor {
        let _operation = autocast::enter();
        (self.as_float() + 3.0).relu6() / 6.0
    }
    /// x·hardsigmoid(x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-4.0f32, 0.0, 4.0]).hardswish().to_vec::<f32>()?, [0.0, 0.0, 4.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardswish(&self) -> Tensor {
        let _operation = autocast::enter();
        self * self.hardsigmoid()
    }

    /// eˣ-1 for x up to 0; above, as at 0. By the hyperbolic tangent, which is exact near zero where a difference is not.
    fn exp_minus_one(&self) -> Tensor {
        // A choice and not a minimum, whose gradient at 0 is that of both sides.
        let t = (self.gt(0).where_(0.0, self) * 0.5).tanh();
        &t * 2.0 / (1.0 - &t)
    }
}
