//! `log` and `log2`: x is split into 2^e and a factor between sqrt(1/2) and sqrt(2), whose
//! logarithm is a polynomial.

use super::{Val, horner};

/// The bits of the float32 nearest to sqrt(1/2).
const SQRT_HALF: u32 = 0x3f35_04f3;

/// (log(1 + f) - f) / f^2 between sqrt(1/2) and sqrt(2): `minimax.py log`, 0.07 * 2^-24 of the
/// logarithm.
const LOG: [f32; 9] = [
    -0.49999988,
    0.33333325,
    -0.25001612,
    0.20002016,
    -0.16608322,
    0.14180441,
    -0.13248456,
    0.12916344,
    -0.07622613,
];
/// (log2(1 + f) - f) / f on the same interval: `minimax.py log2`, 0.12 * 2^-24 of the logarithm.
const LOG2: [f32; 10] = [
    0.44269505,
    -0.7213475,
    0.4808965,
    -0.3606826,
    0.28861892,
    -0.23995152,
    0.20415375,
    -0.18825594,
    0.18688442,
    -0.11641441,
];

/// Returns the natural logarithm.
pub fn log<V: Val>(x: &V) -> V {
    let (e, m) = split(x);
    let f = m.sub(&x.f32(1.0));
    let near = f.mul(&f).fma(&horner(&f, &LOG), &f);
    // Where e is not zero its term is the larger one, so that one float32 for ln 2 costs 0.05 ulp
    // at most.
    limits(x, &e.fma(&x.f32(std::f32::consts::LN_2), &near))
}

/// Returns the logarithm to base two.
pub fn log2<V: Val>(x: &V) -> V {
    let (e, m) = split(x);
    let f = m.sub(&x.f32(1.0));
    limits(x, &e.add(&f.fma(&horner(&f, &LOG2), &f)))
}

/// Returns the floats `e` and `m` with `x = 2^e m` and `m` between sqrt(1/2) and sqrt(2), for a
/// finite x > 0.
pub(super) fn split<V: Val>(x: &V) -> (V, V) {
    // A subnormal is scaled into the normals; the subtraction that finds e takes the scale out
    // again.
    let tiny = x.lt(&x.f32(f32::MIN_POSITIVE));
    let bits = tiny.select(&x.mul(&x.f32(8_388_608.0)), x).bitcast_u32(); // 2^23
    let rel = bits.sub(&tiny.select(&x.u32(SQRT_HALF + (23 << 23)), &x.u32(SQRT_HALF)));
    let e = rel.bitcast_i32().shr(&x.i32(23)).to_f32();
    let m = rel.and(&x.u32(0x007f_ffff)).add(&x.u32(SQRT_HALF)).bitcast_f32();
    (e, m)
}

/// Returns `y`, or what the logarithm is where x is not a positive finite number.
fn limits<V: Val>(x: &V, y: &V) -> V {
    let zero = x.f32(0.0);
    let y = x.lt(&x.f32(f32::INFINITY)).select(y, x);
    let y = x.eq(&zero).select(&x.f32(f32::NEG_INFINITY), &y);
    x.lt(&zero).select(&x.f32(f32::NAN), &y)
}
