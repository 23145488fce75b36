//! Compensated arithmetic for composite functions: products with their rounding error, constants of
//! twice the precision, and the normal distribution function.
//!
//! Everything is computed in `f32` or `f64`. Corrections are detached: the gradient is that of the
//! uncorrected expression.

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Op;
use crate::tensor::Tensor;

/// Returns `x·y + z`, rounded once.
pub(super) fn fma(x: &Tensor, y: &Tensor, z: &Tensor) -> Result<Tensor> {
    x.try_alu(Op::Fma, &[y, z])
}

/// Polynomial Σ c·t^k with one rounding per term.
fn polynomial(t: &Tensor, coefficients: &[f64]) -> Result<Tensor> {
    let (last, rest) = coefficients.split_last().expect("a polynomial");
    rest.iter().rev().try_fold(t.literal(*last), |p, &c| fma(&p, t, &t.literal(c)))
}

/// Splits a constant into a value of the dtype, rounded toward zero, and the remainder. Both have
/// one sign, so that products with zeros and infinities add up correctly.
fn split(c: f64, dtype: DType) -> (f64, f64) {
    if dtype == DType::F64 || !c.is_finite() {
        return (c, 0.0);
    }
    let near = c as f32;
    let high = if (near as f64).abs() > c.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
        as f64;
    (high, (c - high) as f32 as f64)
}

/// Returns `x·y` as rounded value and detached rounding error.
pub(in crate::tensor) fn product(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    let high = x.try_mul(y)?;
    let low = fma(&x.detach(), &y.detach(), &-high.detach())?;
    Ok((high, low))
}

/// Returns `c·x` as rounded value and detached rounding error, including that of `c`.
pub(super) fn product_by(x: &Tensor, c: f64) -> Result<(Tensor, Tensor)> {
    let (near, rest) = split(c, x.dtype());
    let (high, low) = product(x, &x.literal(near))?;
    let low = if rest == 0.0 { low } else { low.try_add(x.detach() * rest)? };
    Ok((high, low))
}

/// Returns `c·x` with `c` in twice the precision of the dtype.
pub(super) fn times(x: &Tensor, c: f64) -> Result<Tensor> {
    let (near, rest) = split(c, x.dtype());
    if rest == 0.0 { Ok(x * near) } else { fma(x, &x.literal(near), &(x * rest)) }
}

/// Sum and its rounding error.
fn sum(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    let high = x.try_add(y)?;
    let part = high.try_sub(x)?;
    let low = x.try_sub(high.try_sub(&part)?)?.try_add(y.try_sub(part)?)?;
    Ok((high, low))
}

/// Returns `x·(a + b·x²)` as rounded value and detached rounding error.
pub(super) fn odd_cubic(x: &Tensor, a: f64, b: f64) -> Result<(Tensor, Tensor)> {
    let d = x.detach();
    let (square, square_low) = product(x, x)?;
    let (term, term_low) = product_by(&square, b)?;
    let (a_near, a_rest) = split(a, x.dtype());
    let (factor, factor_low) = sum(&d.literal(a_near), &term.detach())?;
    let low = factor_low.try_add(term_low)?.try_add(&square_low * b)? + a_rest;
    let (_, high_low) = product(&d, &factor)?;
    let low = high_low.try_add(d.try_mul(low)?)?;
    // Same value as `high`, but differentiable.
    Ok((x.try_mul(term + a_near)?, low))
}

/// Returns `x·sigmoid(z)` for a `z` with a small second part. Below -32 the exponential is scaled
/// by e⁶⁴, so that it is not subnormal where the product is normal.
pub(super) fn gated(x: &Tensor, z: &Tensor, low: Option<&Tensor>) -> Result<Tensor> {
    let far = z.try_lt(-32)?;
    let e = far.try_where_(z + 64.0, -z)?.exp();
    let e = match low {
        Some(low) => e.try_add(e.try_mul(far.try_where_(low, -low)?)?)?,
        None => e,
    };
    let tail = x.try_mul(&e)? * (-64f64).exp();
    far.try_where_(tail, x.try_div(e + 1.0)?)
}

/// (2^r - 1)/r for |r| ≤ 1/2, as in `math::exp`, after which r is multiplied and 1 is added.
const EXP2_F32: [f64; 7] =
    [1.0, std::f64::consts::LN_2, 0.24022648, 0.0555036, 0.009618506, 0.0013390806, 0.00015326469];

/// Returns `x·sigmoid(2u)` with u = √(2/π)·(x + 0.044715·x³) of f32, as x/(1 + 2^w) with one
/// exponential and one division: error 2.1 ulp.
///
/// w = x·q is at most 158 in size, and its rounding error must be far below one. So the rounding
/// error of q is computed, and the integer part of w is subtracted before the product is rounded.
/// Numerator and denominator are scaled by 2^32, so that the denominator does not overflow where
/// the result is not zero yet. The result has no gradient.
pub(super) fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    const A: f64 = -1.595_769_121_605_730_8 * std::f64::consts::LOG2_E;
    const B: f64 = A * 0.044715;
    const ROUND: f64 = 12_582_912.0;
    // Three bits fewer, so that q - a is exact.
    let a = f32::from_bits((A as f32).to_bits() & !7) as f64;
    let (b, x) = (B as f32 as f64, &x.detach());
    let [a_low, b_low] = [A - a, B - b].map(|low| x.literal(low));
    let (a, b) = (x.literal(a), x.literal(b));
    // Below, the result is zero; above, it is x.
    let most = 6.0;
    let low = x.try_lt(-10.88)?;
    let near = x.try_gt(most)?.try_where_(most, low.try_where_(-10.88, x)?)?;
    let (square, square_low) = product(&near, &near)?;
    let q = fma(&square, &b, &a)?;
    let q_low = fma(&square, &b, &a.try_sub(&q)?)?;
    let q_low = fma(&square_low, &b, &fma(&square, &b_low, &a_low)?)?.try_add(q_low)?;
    let t = near.try_mul(&q)? + ROUND;
    let rest = fma(&near, &q_low, &fma(&near, &q, &(ROUND - &t))?)?;
    let power = polynomial(&rest, &EXP2_F32)?.try_alu(Op::Ldexp, &[&(&t - (ROUND + 32.0))])?;
    let scale = 2f64.powi(-32);
    let quotient = near.try_div(power + scale)?;
    // NaN at minus infinity, as the product with zero.
    let y = fma(&quotient, &x.literal(scale), &(x * 0.0))?;
    x.try_gt(most)?.try_where_(x, y)
}

/// e^(a²/2)·Φ(-a)·(a+3) in powers of (a-3)/(a+3) for 0 ≤ a ≤ 14.6: error 0.6·2⁻²⁴, and exactly 1.5
/// at -1, where a is 0.
const MILLS_F32: [f64; 11] = [
    0.7290837,
    -0.509332,
    0.23001702,
    -0.04726263,
    -0.010457738,
    0.0069703306,
    0.0010119546,
    -0.0010388083,
    -0.0002331032,
    0.0001398189,
    5.4856453e-5,
];
/// e^(a²/2)·Φ(-a)·(a+4) in powers of (a-4)/(a+4) for 0 ≤ a ≤ 39: error 0.02·2⁻⁵³.
const MILLS_F64: [f64; 25] = [
    0.7552851304157515,
    -0.6078966419718921,
    0.3871374007422147,
    -0.1865218579596591,
    0.06039657489092848,
    -0.0075401889666698646,
    -0.003479692367213871,
    0.0016308184567884964,
    0.00013334431031895714,
    -0.00023109492905674939,
    -1.9082440578349825e-06,
    3.514465846058948e-05,
    7.166034781620243e-07,
    -5.920097557843902e-06,
    -6.295187486480713e-07,
    1.0214305802198112e-06,
    2.7147808004606394e-07,
    -1.5486089819029548e-07,
    -8.503176423887897e-08,
    1.3265265479142894e-08,
    1.936859510682702e-08,
    1.8783271205780417e-09,
    -2.4444282769347265e-09,
    -7.044970942727731e-10,
    -3.963073382417368e-12,
];

/// Constant `1/√(2π)`.
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

/// Returns `x·Φ(x)` with the standard normal distribution function Φ. The lower tail keeps its
/// relative precision, which `(1 + erf)/2` loses.
pub(super) fn times_normal_cdf(x: &Tensor) -> Result<Tensor> {
    let below = x.try_lt(0)?;
    let size = below.try_where_(-x, x)?;
    // Beyond 40 Φ is 0 or 1 in both dtypes, and the square could overflow.
    let a = size.try_gt(40)?.try_where_(40.0, size)?;
    let (square, low) = product(&a, &a)?;
    let e = (&square * -0.5).exp();
    let e = e.try_sub(e.detach().try_mul(low * 0.5)?)?;
    let (k, coefficients): (f64, &[f64]) =
        if x.dtype() == DType::F64 { (4.0, &MILLS_F64) } else { (3.0, &MILLS_F32) };
    let over = &a + k;
    let t = (&a - k).try_div(&over)?;
    let ratio = polynomial(&t, coefficients)?.try_div(over)?;
    // In this order no product is subnormal before the result is.
    let far =
        below.try_where_(x.try_mul(&e)?.try_mul(&ratio)?, x.try_mul(1.0 - e.try_mul(&ratio)?)?)?;
    // Near zero the Taylor series of Φ rounds less: 1/2 + x/√(2π)·Σ (-x²/2)ⁿ/(n!·(2n+1)).
    let small = x.try_lt(0.7)?.try_bitwise_and(x.try_gt(-0.7)?)?;
    let near = small.try_where_(x, 0.0)?;
    let half = near.square() * -0.5;
    let terms = if x.dtype() == DType::F64 { 13 } else { 6 };
    let mut scale = FRAC_1_SQRT_2PI;
    let series: Vec<f64> = (0..=terms)
        .map(|n| {
            scale /= f64::from(n.max(1));
            scale / f64::from(2 * n + 1)
        })
        .collect();
    let p = polynomial(&half, &series)?;
    small.try_where_(near.try_mul(fma(&near, &p, &x.literal(0.5))?)?, far)
}
