//! `sigmoid` and `tanh`: one division each by 1 + e^a, where `a` is never negative.
//!
//! e^a is `s (1 + r q)` with s a power of two, r at most ln 2 / 2 in size and q a polynomial, as in
//! `exp`. Its product is not rounded on its own: the sum with one takes the parts, which keeps the
//! rounding errors to those of the sum and the division.

use super::exp::{EXP, LN2_HI, LN2_LO, LOG2_E, ROUND};
use super::{Val, abs, at_most, copy_sign, horner};

/// 2^-32, by which the sum in [`sigmoid`] is scaled so that it cannot overflow before its inverse
/// underflows.
const SCALE: f32 = 1.0 / 4_294_967_296.0;
/// [`ROUND`] for an exponent that includes [`SCALE`].
const ROUND_SCALED: f32 = ROUND - 32.0;

/// (e^(2r) - 1) / r: the coefficients of [`EXP`] times powers of two, which is exact.
const EXP_TWICE: [f32; 6] =
    [2.0 * EXP[0], 4.0 * EXP[1], 8.0 * EXP[2], 16.0 * EXP[3], 32.0 * EXP[4], 64.0 * EXP[5]];
/// (tanh(a) - a) / a^3 in powers of a^2 for a <= 0.55: `minimax.py tanh`, 0.6 * 2^-24 of tanh.
const TANH: [f32; 4] = [-0.33332947, 0.13320729, -0.05267201, 0.016437879];

/// Returns `1 / (1 + e^-x)`.
pub fn sigmoid<V: Val>(x: &V) -> V {
    let (one, unit) = (x.f32(1.0), x.f32(SCALE));
    let a = at_most(&abs(x), 105.0); // From about 104 on the result is 0 or 1.
    let t = a.fma(&x.f32(LOG2_E), &x.f32(ROUND_SCALED));
    let n = t.sub(&x.f32(ROUND_SCALED));
    let r = n.fma(&x.f32(-LN2_LO), &n.fma(&x.f32(-LN2_HI), &a));
    let s = t.bitcast_u32().shl(&x.u32(23)).bitcast_f32();
    let sum = s.mul(&r).fma(&horner(&r, &EXP), &unit).add(&s);
    let y = one.div(&sum).mul(&unit);
    x.lt(&x.f32(0.0)).select(&y, &one.sub(&y))
}

/// Returns the hyperbolic tangent: a polynomial where it is below 1/2, and `1 - 2 / (1 + e^2a)`
/// above, where the spacing is wider.
pub fn tanh<V: Val>(x: &V) -> V {
    let one = x.f32(1.0);
    let a = at_most(&abs(x), 10.0); // From 9.02 on the result is 1.
    let t = a.fma(&x.f32(2.0 * LOG2_E), &x.f32(ROUND));
    let n = t.sub(&x.f32(ROUND));
    // Without the low part of ln 2: where n is large enough for it to matter, the quotient is too
    // small.
    let r = n.fma(&x.f32(-0.5 * LN2_HI), &a);
    let s = t.bitcast_u32().shl(&x.u32(23)).bitcast_f32();
    let sum = s.fma(&horner(&r, &EXP_TWICE).fma(&r, &one), &one);
    let large = one.sub(&x.f32(2.0).div(&sum));

    let z = a.mul(&a);
    let small = a.mul(&z).fma(&horner(&z, &TANH), &a);
    copy_sign(&a.lt(&x.f32(0.55)).select(&small, &large), x)
}
