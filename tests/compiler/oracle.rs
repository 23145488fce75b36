//! Oracles of the functions in f64, and the distance of an f32 value from them.

use picograd::math;
use picograd::math::Scalar;

/// A function of one argument with its name, implementation, oracle and error bound in ulp.
pub struct Unary {
    /// The name in `picograd::math`.
    pub name: &'static str,
    /// The function on `f32` values.
    pub run: fn(f32) -> f32,
    /// The oracle in f64, much more precise than f32.
    pub oracle: fn(f64) -> f64,
    /// The error bound in ulp.
    pub ulp: f64,
    /// The symmetry of the function: 1 if even, -1 if odd, 0 otherwise.
    pub mirror: f32,
}

macro_rules! unary {
    ($name:ident, $oracle:expr, $ulp:expr, $mirror:expr) => {
        Unary {
            name: stringify!($name),
            run: |x| math::$name(&Scalar::F32(x)).as_f32(),
            oracle: $oracle,
            ulp: $ulp,
            mirror: $mirror,
        }
    };
}

/// The functions of one argument.
pub const UNARY: &[Unary] = &[
    unary!(exp, f64::exp, 1.0, 0.0),
    unary!(exp2, f64::exp2, 1.0, 0.0),
    unary!(log, f64::ln, 1.0, 0.0),
    unary!(log2, f64::log2, 1.0, 0.0),
    unary!(sin, f64::sin, 1.0, -1.0),
    unary!(cos, f64::cos, 1.0, 1.0),
    unary!(tan, f64::tan, 3.0, -1.0),
    unary!(tanh, f64::tanh, 2.0, -1.0),
    unary!(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 2.0, 0.0),
    unary!(erf, erf, 3.0, -1.0),
    unary!(rsqrt, |x| 1.0 / x.sqrt(), 1.5, 0.0),
];

/// The error of `got` in units of the f32 spacing at `want`. Infinite if the class or the sign of a
/// zero is wrong.
pub fn ulp_error(got: f32, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // A value that rounds to infinity or zero counts as such, so that the class is checked exactly.
    if want.is_infinite() || got.is_infinite() {
        if got as f64 == want {
            return 0.0;
        }
        // Half a spacing above the largest float32 is where rounding gives infinity.
        let over = want.abs() / 2f64.powi(104) - 2f64.powi(24);
        let near = got.is_infinite() && got.is_sign_negative() == want.is_sign_negative();
        return if near && over >= -2.0 { (-over).max(0.0) } else { f64::INFINITY };
    }
    if got == 0.0 && want == 0.0 {
        return if got.is_sign_negative() == want.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    if got != 0.0 && (got < 0.0) != (want < 0.0) {
        return f64::INFINITY;
    }
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got as f64 - want).abs() * f64::from_bits(((23 - exponent + 1023) as u64) << 52)
}

/// The error function in f64: the series below 3, above it the continued fraction of the
/// complement.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 1e-5 {
        return std::f64::consts::FRAC_2_SQRT_PI * x * (1.0 - x * x / 3.0);
    }
    let y = if a < 3.0 {
        // 2/sqrt(pi) e^-a^2 sum of 2^n a^(2n+1) / (2n+1)!!: all terms are positive, so nothing
        // cancels.
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else if a < 6.0 {
        let fraction = (1..=60).rev().fold(a, |acc, k| a + 0.5 * k as f64 / acc);
        1.0 - 0.5 * std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() / fraction
    } else {
        if a.is_nan() { a } else { 1.0 }
    };
    y.copysign(x)
}

/// `pow` on `f32` values.
pub fn pow(x: f32, y: f32) -> f32 {
    math::pow(&Scalar::F32(x), &Scalar::F32(y)).as_f32()
}

/// Pairs for `pow`, a quarter each: arbitrary bits; results of any magnitude from any base; the
/// same from a base close to one; and integer exponents, half of them with a negative base.
pub struct Pairs(pub u64);

impl Iterator for Pairs {
    type Item = (f32, f32);
    fn next(&mut self) -> Option<(f32, f32)> {
        let bits = |s: &mut u64| {
            // The splitmix64 generator.
            *s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (*s ^ (*s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let (a, b) = (bits(&mut self.0), bits(&mut self.0));
        let any = f32::from_bits(a as u32);
        let size = (b >> 11) as f64 / (1u64 << 53) as f64 * 285.0 - 153.0;
        let aimed = |x: f32| (x, (size / (x as f64).log2()) as f32);
        Some(match a >> 62 {
            0 => (any, f32::from_bits(b as u32)),
            1 => aimed(any.abs()),
            2 => aimed(f32::from_bits(
                0x3f80_0000u32.wrapping_add_signed((a as i32) >> (a >> 32 & 31)),
            )),
            _ => {
                let (x, y) = aimed(any.abs());
                (x.copysign(any), y.round())
            }
        })
    }
}
