//! `sin`, `cos` and `tan`: the argument is reduced to a quadrant and a rest of at most pi/4, and
//! both polynomials take the rest.
//!
//! There is one reduction for all sizes, the one of Payne and Hanek: x is an integer m of 24 bits
//! times a power of two, and of the bits of 2/pi times that power only a window matters, because
//! those above it make whole turns. A select between this and a cheaper one for small x would cost
//! more than it saves, because both sides of a select run. Integers carry the first 32 bits
//! of the window, exactly and modulo one turn; floats carry the product with the next 56, exactly
//! where it counts.

use std::array::from_fn;

use super::{Val, abs, horner};

/// (sin(r) - r) / r^3 in powers of r^2 for |r| <= 1: `minimax.py sin`, 0.006 * 2^-24.
const SIN: [f32; 4] = [-0.16666667, 0.008333354, -0.00019842385, 2.726271e-6];
/// (cos(r) - 1) / r^2 in powers of r^2 for |r| <= 1: `minimax.py cos`, 0.02 * 2^-24.
const COS: [f32; 4] = [-0.49999997, 0.041666415, -0.0013882116, 2.4072815e-5];

/// 25 zero bits, then the bits of 2/pi after its point. With x in [1, 2) a window of 32 bits at the
/// start has a unit of 2^-30 quadrants, so that the product with m wraps after four.
const TWO_OVER_PI: [u32; 7] =
    [0x0000_0051, 0x7cc1_b727, 0x220a_94fe, 0x13ab_e8fa, 0x9a6e_e06d, 0xb14a_cc9e, 0x21c8_20ff];

/// The unit 2^-32 of the first word of the window.
const UNIT: f32 = 1.0 / 4_294_967_296.0;
/// The float32 nearest to pi/2.
const HALF_PI_HI: f32 = std::f32::consts::FRAC_PI_2;
/// pi/2 - `HALF_PI_HI`.
const HALF_PI_LO: f32 = -4.371_139e-8;

/// |x| as `quadrant * pi/2 + hi + lo`.
struct Reduced<V> {
    /// A uint32, of which the lowest two bits count.
    quadrant: V,
    hi: V,
    lo: V,
}

/// Returns the sine.
pub fn sin<V: Val>(x: &V) -> V {
    let r = reduce(x);
    let (sin, cos) = sin_cos(&r);
    let sign = r.quadrant.shl(&x.u32(30)).xor(&x.bitcast_u32());
    finish(x, &odd(&r).select(&cos, &sin), &sign)
}

/// Returns the cosine.
pub fn cos<V: Val>(x: &V) -> V {
    let r = reduce(x);
    let (sin, cos) = sin_cos(&r);
    let sign = r.quadrant.add(&x.u32(1)).shl(&x.u32(30));
    finish(x, &odd(&r).select(&sin, &cos), &sign)
}

/// Returns the tangent.
pub fn tan<V: Val>(x: &V) -> V {
    let r = reduce(x);
    let (sin, cos) = sin_cos(&r);
    let odd = odd(&r);
    let sign = r.quadrant.shl(&x.u32(31)).xor(&x.bitcast_u32());
    finish(x, &odd.select(&cos, &sin).div(&odd.select(&sin, &cos)), &sign)
}

/// Returns true if |x| is closest to an odd multiple of pi/2, where sine and cosine are exchanged.
fn odd<V: Val>(r: &Reduced<V>) -> V {
    let q = &r.quadrant;
    q.and(&q.u32(1)).ne(&q.u32(0))
}

/// Returns `y` with its sign flipped by the top bit of `sign`, or NaN where x is not finite.
fn finish<V: Val>(x: &V, y: &V, sign: &V) -> V {
    let y = sign.and(&x.u32(0x8000_0000)).xor(&y.bitcast_u32()).bitcast_f32();
    abs(x).lt(&x.f32(f32::INFINITY)).select(&y, &x.f32(f32::NAN))
}

/// Returns the sine and the cosine of the rest.
fn sin_cos<V: Val>(r: &Reduced<V>) -> (V, V) {
    let z = r.hi.fma(&r.hi, &r.hi.mul(&r.lo.add(&r.lo)));
    let sin = r.hi.add(&r.hi.mul(&z).fma(&horner(&z, &SIN), &r.lo));
    let cos = z.fma(&horner(&z, &COS), &z.f32(1.0));
    (sin, cos)
}

/// Reduces |x|. Below 1 nothing is reduced: the polynomials reach that far, and the window would
/// not keep all bits of m.
fn reduce<V: Val>(x: &V) -> Reduced<V> {
    let a = abs(x);
    let bits = a.bitcast_u32();
    let fraction = bits.and(&x.u32(0x007f_ffff));
    let m = fraction.or(&x.u32(0x0080_0000));

    // The window starts at the exponent: by 64 bits, by 32 bits, and by less than 32.
    let e = bits.shr(&x.u32(23)).sub(&x.u32(127));
    let below_64 = a.lt(&x.f32(18_446_744_073_709_551_616.0)); // 2^64
    let w: [V; 5] =
        from_fn(|k| below_64.select(&x.u32(TWO_OVER_PI[k]), &x.u32(TWO_OVER_PI[k + 2])));
    let by_32 = e.and(&x.u32(32)).ne(&x.u32(0));
    let w: [V; 4] = from_fn(|k| by_32.select(&w[k + 1], &w[k]));
    let up = e.and(&x.u32(31));
    let down = up.xor(&x.u32(31));
    // A shift by 32 is not defined, so that the part from the next word moves by one and then by
    // the rest.
    let word = |k: usize| w[k].shl(&up).or(&w[k + 1].shr(&x.u32(1)).shr(&down));
    let (w0, w1, w2) = (word(0), word(1), word(2));

    // In units of 2^-30 quadrants, and then, without the quadrant, in units of 2^-32 as a float and
    // its rounding error.
    let turn = m.mul(&w0);
    let quadrant = turn.add(&x.u32(1 << 29)).shr(&x.u32(30));
    let rest = turn.shl(&x.u32(2)).bitcast_i32();
    let rest_hi = rest.to_f32();
    let rest_lo = rest.sub(&rest_hi.to_i32()).to_f32();

    // The same units: m * 2^-30 times the next 24 bits, exactly as a sum of two floats, and times
    // the 40 bits after those.
    let scaled = fraction.or(&x.u32((127 - 7) << 23)).bitcast_f32();
    let next = w1.and(&x.u32(0xffff_ff00)).to_f32();
    let after = w2.to_f32().fma(&x.f32(UNIT), &w1.and(&x.u32(0xff)).to_f32());
    let tail = scaled.mul(&next);
    let tail_lo = scaled.fma(&after, &scaled.fma(&next, &tail.neg()));

    let sum = rest_hi.add(&tail);
    let sum_lo = tail.sub(&sum.sub(&rest_hi)).add(&rest_lo.add(&tail_lo));

    let half_pi = x.f32(HALF_PI_HI * UNIT);
    let hi = sum.mul(&half_pi);
    let lo =
        sum_lo.fma(&half_pi, &sum.fma(&x.f32(HALF_PI_LO * UNIT), &sum.fma(&half_pi, &hi.neg())));

    let small = a.lt(&x.f32(1.0));
    Reduced {
        quadrant: small.select(&x.u32(0), &quadrant),
        hi: small.select(&a, &hi),
        lo: small.select(&x.f32(0.0), &lo),
    }
}
