//! `exp` and `exp2`: the argument is split into an integer and a rest of at most one half, the rest
//! goes through a polynomial of degree 6, and the integer becomes two powers of two.
//!
//! Two powers, because one has no range from 2^-150 to 2^128. Their product also overflows to
//! infinity and rounds to subnormals, so that no result needs a select. Where a target has `Ldexp`,
//! it replaces the powers and gives the same bits.

use super::{Val, at_least, at_most, horner};

/// Adding 1.5 * 2^23 to a float below 2^21 in size leaves the nearest integer in the low bits of
/// the sum; this adds the bias of an exponent too, so that the sum moved up by 23 bits is that
/// power of two.
pub(super) const ROUND: f32 = 12_582_912.0 + 127.0;
/// The same with twice the bias, for [`scale`].
pub(super) const ROUND_TWICE: f32 = ROUND + 127.0;

/// 1 / ln 2.
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// The float32 nearest to ln 2. Its product with an integer up to 2^8 subtracts from x without
/// rounding, as one fma.
pub(super) const LN2_HI: f32 = std::f32::consts::LN_2;
/// ln 2 - `LN2_HI`.
pub(super) const LN2_LO: f32 = -1.904_654_3e-9;

/// (e^r - 1) / r for |r| <= ln 2 / 2: `minimax.py exp`, 0.05 * 2^-24.
pub(super) const EXP: [f32; 6] =
    [1.0, 0.49999994, 0.16666523, 0.041668292, 0.008368532, 0.0013818305];
/// (2^r - 1) / r for |r| <= 1/2: `minimax.py exp2`, 0.05 * 2^-24.
pub(super) const EXP2: [f32; 6] =
    [std::f32::consts::LN_2, 0.24022648, 0.0555036, 0.009618506, 0.0013390806, 0.00015326469];

/// Returns the natural exponential.
pub fn exp<V: Val>(x: &V) -> V {
    // Outside, the result is infinity or zero, and the exponent would overflow its field.
    let x = at_least(&at_most(x, 110.0), -110.0);
    let t = x.fma(&x.f32(LOG2_E), &x.f32(ROUND_TWICE));
    let n = t.sub(&x.f32(ROUND_TWICE));
    let r = n.fma(&x.f32(-LN2_LO), &n.fma(&x.f32(-LN2_HI), &x));
    scale(&horner(&r, &EXP).fma(&r, &x.f32(1.0)), &n, &t)
}

/// Two to the power of x.
pub fn exp2<V: Val>(x: &V) -> V {
    exp2_sum(x, None)
}

/// 2^(x + lo), where `lo` is small and has no effect if x is out of range.
pub(super) fn exp2_sum<V: Val>(x: &V, lo: Option<&V>) -> V {
    let x = at_least(&at_most(x, 160.0), -160.0);
    let t = x.add(&x.f32(ROUND_TWICE));
    let n = t.sub(&x.f32(ROUND_TWICE));
    let r = x.sub(&n);
    let r = lo.map_or(r.clone(), |lo| r.add(lo));
    scale(&horner(&r, &EXP2).fma(&r, &x.f32(1.0)), &n, &t)
}

/// Returns `p * 2^n`, rounded once, where the low 9 bits of `t` hold n + 254. Both halves of that
/// are exponents with their bias. The first of two products is exact, because p is near one.
fn scale<V: Val>(p: &V, n: &V, t: &V) -> V {
    if let Some(result) = p.ldexp(n) {
        return result;
    }
    let both = t.bitcast_u32();
    let half = both.shr(&t.u32(1));
    let power = |biased: &V| biased.shl(&t.u32(23)).bitcast_f32();
    p.mul(&power(&half)).mul(&power(&both.sub(&half)))
}
