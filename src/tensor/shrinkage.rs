//! Piecewise activations with a threshold. NaN stays NaN.

use super::Tensor;

impl Tensor {
    /// The element moved toward zero by `lambda`, and zero within that distance of it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([-2.0f32, 0.25, 1.0]);
    /// assert_eq!(x.softshrink(0.5).to_vec::<f32>()?, [-1.5, 0.0, 0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn softshrink(&self, lambda: f64) -> Tensor {
        let x = self.as_float();
        let inside = x.abs().le(lambda);
        inside.where_(0.0, x.gt(0).where_(&x - lambda, &x + lambda))
    }
    /// The element, or zero if its absolute value is `lambda` at most.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([-2.0f32, 0.25, 1.0]);
    /// assert_eq!(x.hardshrink(0.5).to_vec::<f32>()?, [-2.0, 0.0, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn hardshrink(&self, lambda: f64) -> Tensor {
        let x = self.as_float();
        x.abs().le(lambda).where_(0.0, &x)
    }
    /// The element less its hyperbolic tangent.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 20.0]).tanhshrink().to_vec::<f32>()?, [0.0, 19.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn tanhshrink(&self) -> Tensor {
        let x = self.as_wide_float();
        (&x - x.tanh()).cast(self.as_float().dtype())
    }
    /// The element where it is above a threshold, a value elsewhere.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([-2.0f32, 0.25, 1.0]);
    /// assert_eq!(x.threshold(0.5, 9.0).to_vec::<f32>()?, [9.0, 9.0, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn threshold(&self, threshold: f64, value: f64) -> Tensor {
        let x = self.as_float();
        x.le(threshold).where_(value, &x)
    }
}
