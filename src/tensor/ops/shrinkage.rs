//! Activation functions with a threshold. NaN propagates.

use super::inverse::rounded;
use crate::dtype::DType;
use crate::tensor::Tensor;

impl Tensor {
    /// Soft shrinkage: moves elements toward zero by `lambda`, and zeroes those within it.
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
    /// Hard shrinkage: zeroes elements with an absolute value of at most `lambda`.
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
    /// x - tanh(x).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 20.0]).tanhshrink().to_vec::<f32>()?, [0.0, 19.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn tanhshrink(&self) -> Tensor {
        rounded(self, |x| {
            // x - tanh x = (x·cosh x - sinh x)/cosh x. Both series have terms of one sign, where
            // the difference would cancel.
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
    /// Elements above a threshold, and a value elsewhere.
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
