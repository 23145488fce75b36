//! Piecewise activations with a threshold. NaN stays NaN.

use super::inverse::rounded;
use crate::dtype::DType;
use crate::tensor::Tensor;

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
        rounded(self, |x| {
            // x - tanh x = (x·cosh x - sinh x)/cosh x. Both series have terms of one sign, where
            // the difference itself would lose digits.
            let small = x.try_gt(-1.5)?.try_bitwise_and(x.try_lt(1.5)?)?;
            let near = small.try_where_(x, 0.0)?;
            let square = near.square();
            let terms = if x.dtype() == DType::F64 { 12 } else { 7 };
            let series = |scale: &dyn Fn(i32) -> f64| {
                let factorial = |n: i32| (1..=n).map(f64::from).product::<f64>();
                let term = |k: i32| scale(k) / factorial(2 * k + 1);
                (1..terms).rev().fold(x.literal(term(terms)), |p, k| p * &square + term(k))
            };
            let odd = series(&|k| f64::from(2 * k));
            let cosh = series(&|k| f64::from(2 * k + 1)) * &square + 1.0;
            let quotient = near.try_mul(square.try_mul(odd)?.try_div(cosh)?)?;
            small.try_where_(quotient, x.try_sub(x.tanh())?)
        })
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
