//! Inverse trigonometric and hyperbolic functions, and log1p: accurate near zero and at the ends of
//! their range, with finite gradients wherever the true gradient is finite. Narrow floats are
//! computed in `f32` and rounded once.

use super::elementwise::pair;
use super::special::polynomial;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Tensor, autocast, or_panic};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// (atan(t)/t - 1)/t² as a polynomial in t² for |t| ≤ √2-1, interpolated at Chebyshev nodes. The
/// relative error of atan is 2.4e-9.
const ATAN_F32: [f64; 5] = [
    -0.33333331760434554,
    0.1999954031495797,
    -0.14263949753605723,
    0.10743668324830098,
    -0.06451718869358958,
];
/// Same polynomial with a relative error of 4.7e-18.
const ATAN_F64: [f64; 11] = [
    -0.3333333333333333,
    0.19999999999995516,
    -0.14285714284665682,
    0.11111111015187018,
    -0.0909090457530649,
    0.07692183125376892,
    -0.06664510525508936,
    0.05858140904866328,
    -0.050854078345894844,
    0.03923044778479309,
    -0.019175404711104935,
];

/// Applies a function in wide floats and rounds to the float dtype of `x`.
pub(super) fn rounded(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Tensor {
    let _operation = autocast::enter();
    or_panic(f(&x.as_wide_float()).and_then(|y| y.try_cast(x.as_float().dtype())))
}

/// [`rounded`], with a result in `f32` where autocast requires it.
pub(super) fn rounded_wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Tensor {
    match autocast::plain_wide(x) {
        Some(x) => rounded(&x, f),
        None => rounded(x, f),
    }
}

/// Applies a function with a given derivative. That of its pieces would be NaN where an infinite
/// slope is multiplied by 0.
pub(super) fn with_slope(
    x: &Tensor,
    f: impl FnOnce(&Tensor) -> Result<Tensor>,
    slope: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    Tensor::call(&[x], |x| f(&x[0]), move |g, x| Ok(vec![g.try_mul(slope(&x[0])?)?]))
}

/// Sign: -1 or 1.
fn side(x: &Tensor) -> Result<Tensor> {
    x.try_lt(0)?.try_where_(x.literal(-1.0), x.literal(1.0))
}

fn atan(x: &Tensor) -> Result<Tensor> {
    let s = side(x)?;
    let size = x.try_mul(&s)?;
    let small = size.try_le(std::f64::consts::SQRT_2 - 1.0)?;
    let big = size.try_gt(std::f64::consts::SQRT_2 + 1.0)?;
    // A branch that is not taken divides by 1, so that its gradient is 0 and not NaN.
    let middle = small.try_bitwise_or(&big)?.try_where_(&s, x)?;
    let turned = middle.try_sub(&s)?.try_div(middle.try_mul(&s)? + 1.0)?;
    let inverse = x.literal(-1.0).try_div(big.try_where_(x, 1.0)?)?;
    let t = small.try_where_(x, big.try_where_(inverse, turned)?)?;
    let coefficients: &[f64] = if x.dtype() == DType::F64 { &ATAN_F64 } else { &ATAN_F32 };
    let z = t.square();
    // A product keeps -0.
    let part = &t * (&z * polynomial(&z, coefficients) + 1.0);
    let base = big.try_where_(x.literal(FRAC_PI_2), x.literal(FRAC_PI_4))?.try_mul(s)?;
    small.try_where_(&part, base.try_add(&part)?)
}

/// log(1+x), corrected by the rounding error of 1+x.
fn log1p(x: &Tensor) -> Result<Tensor> {
    let u = x + 1.0;
    // At -1 and infinity there is no rounding error, and the divisor would be 0 or infinite.
    let usual = u.isfinite().try_bitwise_and(u.try_ne(0)?)?;
    let lost = x.try_sub(&u - 1.0)?.try_div(usual.try_where_(&u, 1.0)?)?;
    let sum = u.log().try_add(usual.try_where_(lost, 0.0)?)?;
    // Adding 0 would turn -0 into 0.
    x.try_eq(0)?.try_where_(x, sum)
}

impl Tensor {
    /// log(1+x), accurate near zero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1e-10f32, -1.0]).log1p();
    /// assert_eq!(y.to_vec::<f32>()?, [1e-10, f32::NEG_INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn log1p(&self) -> Tensor {
        rounded_wide(self, log1p)
    }
    /// Inverse tangent, in radians from -π/2 to π/2.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, f32::NEG_INFINITY]).atan().to_vec::<f32>()?;
    /// assert_eq!(x, [std::f32::consts::FRAC_PI_4, -std::f32::consts::FRAC_PI_2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn atan(&self) -> Tensor {
        rounded(self, atan)
    }
    /// Inverse sine, in radians from -π/2 to π/2; NaN outside -1..=1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, 0.0]).asin();
    /// assert_eq!(y.to_vec::<f32>()?, [std::f32::consts::FRAC_PI_2, 0.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn asin(&self) -> Tensor {
        // Tangent of half the angle. (1-x)(1+x) is accurate near 1, where 1-x² cancels.
        rounded_wide(self, |x| {
            let angle = |x: &Tensor| Ok(atan(&(x / (((1.0 - x) * (x + 1.0)).sqrt() + 1.0)))? * 2.0);
            with_slope(x, angle, |x| Ok(((1.0 - x) * (x + 1.0)).rsqrt()))
        })
    }
    /// Inverse cosine, in radians from 0 to π; NaN outside -1..=1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, -1.0]).acos();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, std::f32::consts::PI]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn acos(&self) -> Tensor {
        rounded_wide(self, |x| {
            let angle = |x: &Tensor| Ok(atan(&((1.0 - x) / (x + 1.0)).sqrt())? * 2.0);
            with_slope(x, angle, |x| Ok(-((1.0 - x) * (x + 1.0)).rsqrt()))
        })
    }
    /// Inverse hyperbolic sine.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1e-20f32, 0.0]).asinh().to_vec::<f32>()?, [1e-20, 0.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn asinh(&self) -> Tensor {
        rounded(self, |x| {
            let s = side(x)?;
            let size = x.try_mul(&s)?;
            // Beyond this the square could overflow, and adding 1 has no effect.
            let big = size.try_gt(1e9)?;
            let near = big.try_where_(1.0, &size)?;
            let square = near.square();
            let short = log1p(&(&near + &square / ((&square + 1.0).sqrt() + 1.0)))?;
            let long = big.try_where_(&size, 1.0)?.log() + LN_2;
            x.try_eq(0)?.try_where_(x, big.try_where_(long, short)?.try_mul(s)?)
        })
    }
    /// Inverse hyperbolic cosine; NaN below 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, f32::INFINITY]).acosh();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn acosh(&self) -> Tensor {
        rounded(self, |x| {
            let big = x.try_gt(1e9)?;
            let near = big.try_where_(2.0, x)?;
            let over = &near - 1.0;
            // Two roots, because the product is positive below -1.
            let short = log1p(&(&over + over.sqrt() * (&near + 1.0).sqrt()))?;
            big.try_where_(big.try_where_(x, 1.0)?.log() + LN_2, short)
        })
    }
    /// Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 1.0]).atanh().to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn atanh(&self) -> Tensor {
        rounded(self, |x| x.try_eq(0)?.try_where_(x, (log1p(x)? - log1p(&-x)?) * 0.5))
    }

    fallible! {
        /// Angle of the point (other, self), in radians from -π to π. Signs of zeros count, as in
        /// C.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (y, x) = (Tensor::new([1.0f32, 0.0]), Tensor::new([0.0f32, -1.0]));
        /// let z = y.atan2(&x);
        /// assert_eq!(z.to_vec::<f32>()?, [std::f32::consts::FRAC_PI_2, std::f32::consts::PI]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn atan2 | try_atan2(&self, other: &Tensor) -> Tensor {
            let pair = pair("atan2", self.into(), other.into())?;
            let (y, x) = (pair.x.as_wide_float(), pair.y.as_wide_float());
            let sign = |t: &Tensor| t.signbit().try_where_(t.literal(-1.0), t.literal(1.0));
            let (sy, sx) = (sign(&y)?, sign(&x)?);
            let (ay, ax) = (y.try_mul(&sy)?, x.try_mul(&sx)?);
            // Smaller over larger magnitude; 0 for two zeros, 1 for two infinities.
            let steep = ax.try_lt(&ay)?;
            let (low, high) = (steep.try_where_(&ax, &ay)?, steep.try_where_(&ay, &ax)?);
            // At the origin both gradients are 0.
            let origin = high.try_eq(0)?.try_bitwise_and(low.try_eq(0)?)?;
            let ratio = origin.try_where_(0.0, &low)?.try_div(origin.try_where_(1.0, &high)?)?;
            let ratio = low.isinf().try_bitwise_and(high.isinf())?.try_where_(1.0, ratio)?;
            let angle = atan(&ratio)?;
            let angle = steep.try_where_(FRAC_PI_2 - &angle, &angle)?;
            let angle = sx.try_lt(0)?.try_where_(PI - &angle, &angle)?;
            angle.try_mul(sy)?.try_cast(pair.x.as_float().dtype())
        }
    }
}
