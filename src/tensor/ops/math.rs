//! Elementwise functions of one tensor. Real functions convert integers and bools to `f32`;
//! rounding functions return integers unchanged.

use super::compensated::times;
use super::elementwise::pair;
use super::inverse::rounded_wide;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Op;
use crate::tensor::broadcast::Operand;
use crate::tensor::{Tensor, autocast};

/// Methods that apply one op to floats.
macro_rules! unary {
    ($($(#[$meta:meta])* $name:ident $op:ident;)*) => {
        impl Tensor { $(
            $(#[$meta])*
            pub fn $name(&self) -> Tensor {
                if let Some(x) = autocast::unary_wide(self, Op::$op) {
                    return x.$name();
                }
                let x = self.as_float();
                x.with_uop(x.uop().unary(Op::$op))
            }
        )* }
    };
}

unary! {
    /// Square root, correctly rounded. Negative elements give NaN.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([4.0f32, 2.25]).sqrt().to_vec::<f32>()?, [2.0, 1.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    sqrt Sqrt;
    /// Reciprocal square root.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([4.0f32]).rsqrt().to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    rsqrt Rsqrt;
    /// Exponential eˣ.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).exp();
    /// assert!(y.allclose(&Tensor::new([1.0, std::f32::consts::E]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    exp Exp;
    /// Exponential 2ˣ.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([3.0f32, -1.0]).exp2().to_vec::<f32>()?, [8.0, 0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    exp2 Exp2;
    /// Natural logarithm.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 0.0]).log().to_vec::<f32>()?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    log Log;
    /// Logarithm to base 2.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([8.0f32, 0.5]).log2().to_vec::<f32>()?, [3.0, -1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    log2 Log2;
    /// Sine, in radians.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32]).sin().to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    sin Sin;
    /// Cosine, in radians.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32]).cos().to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    cos Cos;
    /// Tangent, in radians.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([std::f32::consts::FRAC_PI_4]).tan();
    /// assert!(y.allclose(&Tensor::new([1.0f32]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    tan Tan;
    /// Hyperbolic tangent.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 100.0]).tanh().to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    tanh Tanh;
    /// Logistic function 1/(1+e⁻ˣ).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 100.0]).sigmoid().to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    sigmoid Sigmoid;
    /// Error function.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).erf();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 0.8427008]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    erf Erf;
}

impl Tensor {
    /// Converts integers and bools to `f32`.
    pub(super) fn as_float(&self) -> Tensor {
        if self.is_floating_point() { self.copy() } else { self.cast(DType::F32) }
    }
    /// Converts to the float dtype that sums accumulate in: at least `f32`.
    pub(super) fn as_wide_float(&self) -> Tensor {
        let x = self.as_float();
        if x.dtype().is_narrow_float() { x.cast(DType::F32) } else { x }
    }

    /// Exponential 10ˣ.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert!(((Tensor::new([2.0f32]).exp10() / 100.0).item::<f32>()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn exp10(&self) -> Tensor {
        let _operation = autocast::enter();
        let x = self.as_float();
        x.literal(10.0).pow(&x)
    }
    /// Logarithm to base 10.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert!((Tensor::new([1000.0f32]).log10().item::<f32>()? - 3.0).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn log10(&self) -> Tensor {
        rounded_wide(self, |x| Ok(x.log() / std::f64::consts::LN_10))
    }
    /// Hyperbolic cosine.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).cosh();
    /// assert!(y.allclose(&Tensor::new([1.0f32, 1.5430806]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn cosh(&self) -> Tensor {
        rounded_wide(self, |x| {
            let (big, e, tail) = half_exponential(x)?;
            // For |x| < 1 the gradient of the exponential form would cancel. The gradient of this
            // Taylor polynomial is that of sinh.
            let small = x.try_gt(-1)?.try_bitwise_and(x.try_lt(1)?)?;
            let square = small.try_where_(x, 0.0)?.square();
            let terms = if x.dtype() == DType::F64 { 9 } else { 5 };
            let step = |p: Tensor, k: i32| p * (&square / f64::from((2 * k - 1) * 2 * k)) + 1.0;
            let near = (1..=terms).rev().fold(x.literal(1.0), step);
            small.try_where_(near, big.try_where_(tail, &e * 0.5 + 0.5 / &e)?)
        })
    }
    /// Hyperbolic sine.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).sinh();
    /// assert!(y.allclose(&Tensor::new([0.0f32, 1.1752012]), 1e-5, 1e-5).item::<bool>()?);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn sinh(&self) -> Tensor {
        rounded_wide(self, |x| {
            let (big, e, tail) = half_exponential(x)?;
            let size = big.try_where_(tail, &e * 0.5 - 0.5 / &e)?;
            let far = x.try_lt(0)?.try_where_(-&size, size)?;
            // For |x| < 1 a Taylor polynomial avoids the cancellation of exponentials.
            let small = x.try_gt(-1)?.try_bitwise_and(x.try_lt(1)?)?;
            let near = small.try_where_(x, 0.0)?;
            let square = near.square();
            let terms = if x.dtype() == DType::F64 { 9 } else { 5 };
            let step = |p: Tensor, k: i32| p * (&square / f64::from(2 * k * (2 * k + 1))) + 1.0;
            let p = (1..=terms).rev().fold(x.literal(1.0), step);
            small.try_where_(near.try_mul(p)?, far)
        })
    }
    /// Square of each element.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([3, -4]).square().to_vec::<i32>()?, [9, 16]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn square(&self) -> Tensor {
        self * self
    }
    /// Reciprocal 1/x.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([4, -2]).reciprocal().to_vec::<f32>()?, [0.25, -0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reciprocal(&self) -> Tensor {
        if let Some(x) = autocast::plain_wide(self) {
            return x.reciprocal();
        }
        let x = self.as_float();
        x.literal(1.0) / x
    }
    /// Absolute value. The minimum of a signed integer dtype is returned unchanged.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([3, -4]).abs().to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn abs(&self) -> Tensor {
        if self.dtype().is_unsigned() || self.dtype().is_bool() {
            self.copy()
        } else {
            self.maximum(-self)
        }
    }
    /// Sign: -1, 0 or 1. NaN propagates.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([3, 0, -4]).sign().to_vec::<i32>()?, [1, 0, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn sign(&self) -> Tensor {
        if self.dtype().is_bool() {
            return self.copy();
        }
        let zero =
            if self.is_floating_point() { Operand::from(self.detach()) } else { Operand::from(0) };
        let below = if self.dtype().is_unsigned() { self.literal(0) } else { self.literal(-1) };
        self.gt(0).where_(1, self.lt(0).where_(below, zero))
    }

    /// Rounds toward zero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.7f32, -1.7]).trunc().to_vec::<f32>()?, [1.0, -1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn trunc(&self) -> Tensor {
        self.if_float(|x| x.with_uop(x.uop().unary(Op::Trunc)))
    }
    /// Rounds toward negative infinity.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.7f32, -1.7]).floor().to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn floor(&self) -> Tensor {
        self.if_float(|x| {
            let t = x.trunc();
            x.lt(&t).where_(&t - 1.0, &t)
        })
    }
    /// Rounds toward positive infinity.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.2f32, -1.2]).ceil().to_vec::<f32>()?, [2.0, -1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn ceil(&self) -> Tensor {
        self.if_float(|x| {
            let t = x.trunc();
            t.lt(x).where_(&t + 1.0, &t)
        })
    }
    /// Rounds to the nearest integer, ties to even.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.5f32, 1.5, -2.5, 2.6]).round();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0, -2.0, 3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn round(&self) -> Tensor {
        self.if_float(|x| {
            let t = x.trunc();
            let rest = (x - &t).abs();
            let half = &t * 0.5;
            let odd = half.ne(half.trunc());
            let away = rest.gt(0.5) | (rest.eq(0.5) & odd);
            away.where_(&t + x.lt(0).where_(x.literal(-1.0), 1.0), t)
        })
    }
    /// Applies a rounding function; integers are returned unchanged.
    fn if_float(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        if self.is_floating_point() { f(self) } else { self.copy() }
    }

    /// Returns true where the element is NaN.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, f32::NAN]).isnan().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn isnan(&self) -> Tensor {
        self.ne(self)
    }
    /// Returns true where the element is infinite.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, f32::NEG_INFINITY]).isinf();
    /// assert_eq!(y.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn isinf(&self) -> Tensor {
        if !self.is_floating_point() {
            return self.full_like(0).cast(DType::BOOL);
        }
        self.eq(f64::INFINITY) | self.eq(f64::NEG_INFINITY)
    }
    /// Returns true where the element is neither infinite nor NaN.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, f32::NAN, f32::INFINITY]).isfinite();
    /// assert_eq!(y.to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn isfinite(&self) -> Tensor {
        !(self.isinf() | self.isnan())
    }

    /// Returns true where the sign bit is set, which includes -0.0 and negative NaNs.
    pub(super) fn signbit(&self) -> Tensor {
        let bits = match self.dtype().bits() {
            8 => DType::I8,
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        };
        let x = if self.is_floating_point() { self.bitcast(bits) } else { self.copy() };
        x.lt(0)
    }

    fallible! {
        /// Limits elements to `min..=max`. NaN propagates with gradient 0. The gradient at a scalar
        /// bound is 0; an element equal to a tensor bound shares it, as in
        /// [`maximum`](Self::maximum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([-2, 0, 5]).clamp(-1, 3).to_vec::<i32>()?, [-1, 0, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn clamp | try_clamp(
            &self, min: impl Into<Operand>, max: impl Into<Operand>,
        ) -> Tensor {
            let clamped = self.clamped(min.into(), max.into())?;
            if !clamped.is_floating_point() {
                return Ok(clamped);
            }
            self.isnan().try_where_(clamped.detach(), &clamped)
        }

        /// Alias of [`clamp`](Self::clamp).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([-2, 5]).clip(0, 3).to_vec::<i32>()?, [0, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn clip | try_clip(&self, min: impl Into<Operand>, max: impl Into<Operand>) -> Tensor {
            self.try_clamp(min, max)
        }

        /// Linear interpolation from this (`weight` 0) to `end` (`weight` 1).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([0.0f32, 10.0]).lerp(&Tensor::new([4.0f32, 20.0]), 0.25);
        /// assert_eq!(y.to_vec::<f32>()?, [1.0, 12.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn lerp | try_lerp(&self, end: &Tensor, weight: impl Into<Operand>) -> Tensor {
            let weight: Operand = weight.into();
            let between = |x: &Tensor, end: &Tensor, weight: Operand| {
                end.try_sub(x)?.try_mul(weight)?.try_add(x)
            };
            let plain = between(self, end, weight.clone())?;
            if !plain.is_floating_point() || plain.dtype().bits() >= 32 {
                return Ok(plain);
            }
            let weight = match weight {
                Operand::Tensor(t) => t.as_wide_float().into(),
                scalar => scalar,
            };
            between(&self.as_wide_float(), &end.as_wide_float(), weight)?.try_cast(plain.dtype())
        }

        /// Magnitude of this with the sign of the other.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1.0f32, -2.0]).copysign(&Tensor::new([-0.0f32, 5.0]));
        /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn copysign | try_copysign(&self, other: &Tensor) -> Tensor {
            let size = self.as_float().abs();
            other.signbit().try_where_(-&size, &size)
        }

        /// log(eˣ + eʸ), computed without overflow.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert!((Tensor::new([0.0f32]).logaddexp(0.0).item::<f32>()? - 2f32.ln()).abs() < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn logaddexp | try_logaddexp(&self, other: impl Into<Operand>) -> Tensor {
            let p = pair("logaddexp", self.into(), other.into())?;
            let (x, y) = (p.x.as_wide_float(), p.y.as_wide_float());
            let gap = x.try_sub(&y)?.abs();
            // The difference of equal infinities is NaN.
            let gap = gap.isnan().try_where_(0.0, gap)?;
            let sum = x.try_maximum(&y)?.try_add((-gap).exp().log_one_plus())?;
            sum.try_cast(p.x.as_float().dtype())
        }

        /// Returns true where |self - other| ≤ `atol + rtol·|other|`. NaN is close to nothing;
        /// infinities are close to themselves.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1.0f32, 2.0]).isclose(&Tensor::new([1.000001f32, 2.1]), 1e-5, 0.0);
        /// assert_eq!(y.to_vec::<bool>()?, [true, false]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn isclose | try_isclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Tensor {
            let gap = self.as_float().try_sub(other.as_float())?.abs();
            let near = gap.try_le(other.as_float().abs() * rtol + atol)?;
            let finite = self.isfinite().try_bitwise_and(other.isfinite())?;
            near.try_bitwise_and(finite)?.try_bitwise_or(self.try_eq(other)?)
        }

        /// Returns true if [`isclose`](Self::isclose) holds for all elements.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1.0f32, 2.0]);
        /// assert!(x.allclose(&(&x + 1e-7), 1e-5, 1e-8).item::<bool>()?);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn allclose | try_allclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Tensor {
            self.try_isclose(other, rtol, atol)?.try_all(..)
        }
    }

    /// Limits elements to two bounds. The gradient at a scalar bound is 0.
    pub(super) fn clamped(&self, min: Operand, max: Operand) -> Result<Tensor> {
        let mut clamped = self.try_maximum(min.clone())?.try_minimum(max.clone())?;
        for bound in [min, max] {
            if matches!(bound, Operand::Scalar(..)) && clamped.is_floating_point() {
                clamped = self.try_eq(bound)?.try_where_(clamped.detach(), &clamped)?;
            }
        }
        Ok(clamped)
    }

    /// log(1+x) for x in 0..=1, corrected by the rounding error of 1+x.
    pub(super) fn log_one_plus(&self) -> Tensor {
        let u = self + 1.0;
        u.log() + (self - (&u - 1.0)) / &u
    }
}

/// Returns whether |x| > 80, e^|x| (scaled by e⁻⁶⁴ if so), and e^|x|/2 of the scaled case, which is
/// finite wherever the hyperbolic functions are.
fn half_exponential(x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let size = x.try_lt(0)?.try_where_(-x, x)?;
    let big = size.try_gt(80)?;
    let e = big.try_where_(&size - 64.0, &size)?.exp();
    let tail = times(&e, 64f64.exp() * 0.5)?;
    Ok((big, e, tail))
}
