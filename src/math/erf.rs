//! `erf` as `1 - 2^-h(|x|)`, without a division and without a second path for small x.
//!
//! h is `a` times a polynomial, and 2^-h is `s (1 - w q)` with s a power of two, |w| <= 1/2 and q a
//! polynomial. The result is `(1 - s) + s w q`: for small x the first term is zero and the second
//! keeps its relative precision, for large x the error of h is weighted by 2^-h. Fitted with that
//! weight the polynomial of h is short, and no result is above one.

use super::exp::{EXP2, ROUND};
use super::{Val, abs, at_most, copy_sign, horner};

/// -log2(1 - erf(a)) / a for a <= 4, weighted by its effect on erf: `minimax.py erf`, 0.1 * 2^-24
/// of erf.
const RATE: [f32; 9] = [
    1.627907,
    0.91844743,
    0.14827916,
    -0.027639972,
    -0.00021836597,
    0.0023953833,
    -0.0009103486,
    0.00016984882,
    -1.3471476e-5,
];

/// (1 - 2^-w) / w: the coefficients of [`EXP2`] with alternating signs.
const EXP2_DOWN: [f32; 6] = [EXP2[0], -EXP2[1], EXP2[2], -EXP2[3], EXP2[4], -EXP2[5]];

/// Returns the error function.
pub fn erf<V: Val>(x: &V) -> V {
    let a = at_most(&abs(x), 4.0); // From 3.92 on the result is 1.
    let h = a.mul(&horner(&a, &RATE));
    // The sum holds -h rounded to an integer.
    let t = x.f32(ROUND).sub(&h);
    let w = h.add(&t.sub(&x.f32(ROUND)));
    let s = t.bitcast_u32().shl(&x.u32(23)).bitcast_f32();
    let y = s.mul(&w).fma(&horner(&w, &EXP2_DOWN), &x.f32(1.0).sub(&s));
    copy_sign(&y, x)
}
