//! `pow` as `2^(y log2 x)`, and `rsqrt`. The product is up to 150, so that the logarithm needs
//! eight bits more than a float32 has: it is an unevaluated sum of two floats.

use super::exp::exp2_sum;
use super::log::split;
use super::{Val, abs, horner};

/// The float32 nearest to 2 / ln 2.
const TWO_LOG2_E_HI: f32 = 2.885_39;
/// 2 / ln 2 - `TWO_LOG2_E_HI`.
const TWO_LOG2_E_LO: f32 = 3.851_926e-8;
/// (2 atanh(s) - 2 s) / (s^3 ln 2) in powers of s^2 for |s| <= 0.0745: `minimax.py pow`, below
/// 2^-34 of the logarithm.
const ATANH: [f32; 3] = [0.9617967, 0.5770685, 0.4154508];
/// log2(5/4) to 16 bits after the point, so that its sum with an exponent is exact.
const LOG2_5_4_HI: f32 = 0.321_929_93;
/// log2(5/4) - `LOG2_5_4_HI`.
const LOG2_5_4_LO: f32 = -1.836_753_3e-6;
/// log2(3/4) to 16 bits after the point.
const LOG2_3_4_HI: f32 = -0.415_039_06;
/// log2(3/4) - `LOG2_3_4_HI`.
const LOG2_3_4_LO: f32 = 1.563_221_2e-6;

/// Returns the inverse of the square root: two operations that round once each, at most 1.5 ulp
/// together.
pub fn rsqrt<V: Val>(x: &V) -> V {
    x.f32(1.0).div(&x.sqrt())
}

/// x to the power of y, with the special cases of C99 and IEEE 754.
pub fn pow<V: Val>(x: &V, y: &V) -> V {
    let (zero, one, inf) = (x.f32(0.0), x.f32(1.0), x.f32(f32::INFINITY));
    let a = abs(x);
    let finite = a.lt(&inf);

    // Zero and infinity have an infinite logarithm, with which the products are right.
    let (hi, lo) = log2_pair(&a);
    let hi = a.eq(&zero).select(&x.f32(f32::NEG_INFINITY), &finite.select(&hi, &a));

    let p = hi.mul(y);
    let p_lo = lo.fma(y, &hi.fma(y, &p.neg()));
    // Out of range the low part may be NaN, and the result is infinity or zero without it.
    let p_lo = abs(&p).lt(&x.f32(160.0)).select(&p_lo, &zero);
    let size = exp2_sum(&p, Some(&p_lo));

    // An odd y keeps the sign of x. Every infinite y counts as even, as do all of 2^24 and above.
    let half = y.mul(&x.f32(0.5));
    let whole = y.trunc().eq(y);
    let odd = whole.and(&half.trunc().ne(&half));
    let sign = odd.select(&x.bitcast_u32().and(&x.u32(0x8000_0000)), &x.u32(0));
    let signed = size.bitcast_u32().xor(&sign).bitcast_f32();

    let rooted = whole.select(&zero, x).lt(&zero).and(&finite);
    let unit = y.eq(&zero).or(&x.eq(&one)).or(&x.eq(&x.f32(-1.0)).and(&abs(y).eq(&inf)));
    unit.select(&one, &rooted.select(&x.f32(f32::NAN), &signed))
}

/// log2 of a finite a > 0 as a float and a correction below its last place, together good to about
/// 2^-33 of the logarithm.
///
/// log2 of m is 2 atanh(s) / ln 2 at s = (m - 1) / (m + 1). A factor of 5/4 or 3/4 brings m so
/// close to one that the terms fall by more than 2^7 each, and then only the first needs two
/// floats.
fn log2_pair<V: Val>(a: &V) -> (V, V) {
    let (e, m) = split(a);
    let (low, high) = (m.lt(&a.f32(0.87)), a.f32(1.16).lt(&m));
    let pick =
        |l: f32, h: f32, mid: f32| low.select(&a.f32(l), &high.select(&a.f32(h), &a.f32(mid)));
    // Exact, because m times the factor has 26 bits and the difference loses the first two.
    let f = m.fma(&pick(1.25, 0.75, 1.0), &a.f32(-1.0));
    let base = e.add(&pick(-LOG2_5_4_HI, -LOG2_3_4_HI, 0.0));
    let base_lo = pick(-LOG2_5_4_LO, -LOG2_3_4_LO, 0.0);

    let two = a.f32(2.0);
    let den = f.add(&two);
    let den_lo = f.sub(&den.sub(&two));
    let inverse = a.f32(1.0).div(&den);
    let s = f.mul(&inverse);
    let minus_s = s.neg();
    let s_lo = minus_s.fma(&den_lo, &minus_s.fma(&den, &f)).mul(&inverse);

    let scale = a.f32(TWO_LOG2_E_HI);
    let z = s.mul(&s);
    let first = s.mul(&scale);
    let rest = s.fma(&scale, &first.neg());
    let rest = s.fma(&a.f32(TWO_LOG2_E_LO), &rest.add(&base_lo));
    let rest = s_lo.fma(&scale, &rest);
    let rest = s.mul(&z).fma(&horner(&z, &ATANH), &rest);

    let sum = base.add(&first);
    let sum_lo = base.sub(&sum).add(&first).add(&rest);
    let hi = sum.add(&sum_lo);
    let lo = sum_lo.sub(&hi.sub(&sum));
    (hi, lo)
}
