//! The transcendental functions of float32, composed of primitive operations.
//!
//! The code has no branches and no tables in memory, and uses neither float64 nor 64-bit integers,
//! so that each backend can run it. It is generic over [`Val`]: on numbers ([`Scalar`]) it
//! computes, on IR nodes it builds a kernel expression. Both give the same bits if the backend
//! rounds each operation once, keeps subnormals, and neither reassociates nor contracts.
//!
//! `scripts/minimax.py` computes the coefficients. An error is in units of the float32 spacing at
//! the true value, subnormals included: the largest over all 2^32 inputs, for pow over 2^27 pairs,
//! measured by `examples/math_sweep.rs`. Operations are distinct nodes except constants and
//! bitcasts, counted by `tests/compiler/math.rs`. On targets that have `Ldexp`, exp, exp2 and pow
//! have five operations fewer, and the same bits.
//!
//! | function | error, ulp | operations |
//! |---|---|---|
//! | exp | 0.89 | 20 |
//! | exp2 | 0.88 | 19 |
//! | log | 0.92 | 27 |
//! | log2 | 0.98 | 27 |
//! | sin | 0.89 | 86 |
//! | cos | 0.96 | 86 |
//! | tan | 2.52 | 88, one a division |
//! | tanh | 1.59 | 26, one a division |
//! | sigmoid | 1.999 | 21, one a division |
//! | erf | 2.62 | 26 |
//! | rsqrt | 1.49 | a root and a division |
//! | pow | 1.54 | 100, one a division |

mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
#[cfg(feature = "testing")]
mod scalar;
mod trig;

pub use erf::erf;
pub use exp::{exp, exp2};
pub use hyperbolic::{sigmoid, tanh};
pub use log::{log, log2};
pub use pow::{pow, rsqrt};
#[cfg(feature = "testing")]
pub use scalar::Scalar;
pub use trig::{cos, sin, tan};

/// One lane of a kernel expression: a float32, an int32, a uint32 or a bool.
///
/// Both sides of a select are evaluated. Integers wrap, and both operands of a binary operation
/// have one dtype.
pub trait Val: Clone {
    /// Returns a float32 constant.
    fn f32(&self, v: f32) -> Self;
    /// Returns an int32 constant.
    fn i32(&self, v: i32) -> Self;
    /// Returns a uint32 constant.
    fn u32(&self, v: u32) -> Self;

    /// Returns the sum.
    fn add(&self, o: &Self) -> Self;
    /// Returns the difference.
    fn sub(&self, o: &Self) -> Self;
    /// Returns the product.
    fn mul(&self, o: &Self) -> Self;
    /// Returns the float32 quotient, rounded once.
    fn div(&self, o: &Self) -> Self;
    /// Returns the float32 `self * 2^n`, rounded once; none if it has to be computed by products.
    fn ldexp(&self, _n: &Self) -> Option<Self> {
        None
    }
    /// Returns the float32 `self * b + c`, rounded once.
    fn fma(&self, b: &Self, c: &Self) -> Self;
    /// Returns the float32 square root, rounded once.
    fn sqrt(&self) -> Self;
    /// Returns the float32 with the other sign.
    fn neg(&self) -> Self;
    /// Returns the float32 rounded towards zero to an integer.
    fn trunc(&self) -> Self;

    /// Returns `self < o`, a bool; false where either is NaN.
    fn lt(&self, o: &Self) -> Self;
    /// Returns `self == o`, a bool; false where either is NaN.
    fn eq(&self, o: &Self) -> Self;
    /// Returns `self != o`, a bool; true where either is NaN.
    fn ne(&self, o: &Self) -> Self;
    /// Logical and; bitwise for integers.
    fn and(&self, o: &Self) -> Self;
    /// Logical or; bitwise for integers.
    fn or(&self, o: &Self) -> Self;
    /// Logical exclusive or; bitwise for integers.
    fn xor(&self, o: &Self) -> Self;
    /// Left shift by `o`, which is less than 32.
    fn shl(&self, o: &Self) -> Self;
    /// Right shift by `o`, which is less than 32; arithmetic for int32.
    fn shr(&self, o: &Self) -> Self;
    /// Returns `a` where the bool `self` is true, else `b`.
    fn select(&self, a: &Self, b: &Self) -> Self;

    /// Returns the same bits as a float32.
    fn bitcast_f32(&self) -> Self;
    /// Returns the same bits as an int32.
    fn bitcast_i32(&self) -> Self;
    /// Returns the same bits as a uint32.
    fn bitcast_u32(&self) -> Self;
    /// Returns the nearest float32 to an integer.
    fn to_f32(&self) -> Self;
    /// Returns the float32 rounded towards zero to an int32, which holds it.
    fn to_i32(&self) -> Self;
}

/// Returns `coeffs[0] + x (coeffs[1] + x (...))`, one fma per step.
fn horner<V: Val>(x: &V, coeffs: &[f32]) -> V {
    let (last, rest) = coeffs.split_last().expect("a polynomial has a coefficient");
    rest.iter().rev().fold(x.f32(*last), |acc, c| acc.fma(x, &x.f32(*c)))
}

/// Returns the magnitude of a float32; NaN stays NaN.
fn abs<V: Val>(x: &V) -> V {
    x.bitcast_u32().and(&x.u32(0x7fff_ffff)).bitcast_f32()
}

/// Returns the non-negative float32 `mag` with the sign of `x`.
fn copy_sign<V: Val>(mag: &V, x: &V) -> V {
    mag.bitcast_u32().or(&x.bitcast_u32().and(&x.u32(0x8000_0000))).bitcast_f32()
}

/// Returns `x`, or `bound` where x is above it. NaN stays NaN, which a float max would not promise.
fn at_most<V: Val>(x: &V, bound: f32) -> V {
    let bound = x.f32(bound);
    bound.lt(x).select(&bound, x)
}

/// Returns `x`, or `bound` where x is below it; NaN stays NaN.
fn at_least<V: Val>(x: &V, bound: f32) -> V {
    let bound = x.f32(bound);
    x.lt(&bound).select(&bound, x)
}
