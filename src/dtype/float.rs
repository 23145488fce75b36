//! Encoding and decoding of the small floats, from and to `f64`. Each value is rounded exactly
//! once, to the nearest, ties to even.
//!
//! Every value of a narrower float is an `f64`, so decoding is exact, and encoding straight from
//! `f64` cannot round twice. (Going through `f32`, as hardware conversions from `f64` to `f16` do,
//! can.) The bits of a NaN survive decoding and encoding; only [`round_f64`], which computes a
//! value, makes a NaN canonical.

use super::Scalar;

const F64_MANTISSA: u32 = 52;
const F64_SIGN: u64 = 1 << 63;
const F64_QUIET: u64 = 1 << 51;
const F64_INF: u64 = 0x7ff << F64_MANTISSA;
const F64_FRACTION: u64 = (1 << F64_MANTISSA) - 1;

/// The layout of a binary float of at most 16 bits below its sign bit.
#[derive(Copy, Clone)]
pub(super) struct Layout {
    /// Bits of exponent, and of mantissa.
    exponent: u32,
    mantissa: u32,
    /// True if the largest exponent is that of infinity and NaN, as in IEEE. If not, it is one of
    /// numbers, and the last code is the only NaN.
    has_inf: bool,
}

pub(super) const E4M3: Layout = Layout { exponent: 4, mantissa: 3, has_inf: false };
pub(super) const E5M2: Layout = Layout { exponent: 5, mantissa: 2, has_inf: true };
pub(super) const HALF: Layout = Layout { exponent: 5, mantissa: 10, has_inf: true };
pub(super) const BRAIN: Layout = Layout { exponent: 8, mantissa: 7, has_inf: true };

impl Layout {
    #[inline]
    const fn bias(self) -> i64 {
        (1 << (self.exponent - 1)) - 1
    }

    #[inline]
    const fn sign(self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    /// Returns the code that overflow goes to: infinity, or the NaN of a layout without one. Codes
    /// of numbers are in order and all lie below it.
    #[inline]
    const fn overflow(self) -> u64 {
        if self.has_inf { ((1 << self.exponent) - 1) << self.mantissa } else { self.sign() - 1 }
    }

    /// Returns the code of the nearest value, ties to even.
    #[inline(always)]
    pub(super) const fn encode(self, x: f64) -> u64 {
        let bits = x.to_bits();
        let magnitude = bits & !F64_SIGN;
        let sign = if bits & F64_SIGN != 0 { self.sign() } else { 0 };
        let drop = F64_MANTISSA - self.mantissa;
        if magnitude > F64_INF {
            // A NaN keeps the top of its payload, and stays a NaN if that is zero.
            let payload = (magnitude & F64_FRACTION) >> drop;
            let payload = if payload == 0 { 1 << (self.mantissa - 1) } else { payload };
            return sign | self.overflow() | payload;
        }
        let exponent = (magnitude >> F64_MANTISSA) as i64 - 1023;
        let below = 1 - self.bias() - exponent;
        let code = if below <= 0 {
            // A normal number: rebase the exponent and let rounding carry into it, which is right
            // because codes are in order.
            round_shift(magnitude - (((1023 - self.bias()) as u64) << F64_MANTISSA), drop)
        } else if below as u64 + drop as u64 > 53 {
            // Under half of the smallest subnormal.
            0
        } else {
            let significand = (magnitude & F64_FRACTION) | (1 << F64_MANTISSA);
            round_shift(significand, drop + below as u32)
        };
        sign | if code < self.overflow() { code } else { self.overflow() }
    }

    /// Returns the value of a code, exactly. Bits above the sign are ignored.
    #[inline(always)]
    pub(super) const fn decode(self, code: u64) -> f64 {
        let magnitude = code & (self.sign() - 1);
        let sign = if code & self.sign() != 0 { F64_SIGN } else { 0 };
        let raise = F64_MANTISSA - self.mantissa;
        let bits = if magnitude >= self.overflow() {
            // Infinity has an empty payload. The lone NaN of a layout without infinity becomes the
            // canonical one.
            if self.has_inf {
                F64_INF | ((magnitude - self.overflow()) << raise)
            } else {
                F64_INF | F64_QUIET
            }
        } else if magnitude >> self.mantissa == 0 {
            // A subnormal is a multiple of the smallest one, and the product of the two is exact.
            let least = f64::from_bits(
                ((1024 - self.bias() - self.mantissa as i64) as u64) << F64_MANTISSA,
            );
            (magnitude as f64 * least).to_bits()
        } else {
            (magnitude << raise) + (((1023 - self.bias()) as u64) << F64_MANTISSA)
        };
        f64::from_bits(sign | bits)
    }
}

/// Returns `x / 2^shift` rounded to the nearest integer, ties to even.
#[inline(always)]
const fn round_shift(x: u64, shift: u32) -> u64 {
    (x + (1 << (shift - 1)) - 1 + ((x >> shift) & 1)) >> shift
}

/// Returns the bits of the nearest `f32`. Not a plain `as`, because that may quiet a NaN.
#[inline]
pub(super) const fn encode_f32(x: f64) -> u32 {
    if x.is_nan() {
        let payload = (x.to_bits() >> 29) as u32 & 0x7f_ffff;
        let sign = (x.to_bits() >> 32) as u32 & 0x8000_0000;
        sign | 0x7f80_0000 | if payload == 0 { 0x40_0000 } else { payload }
    } else {
        (x as f32).to_bits()
    }
}

/// Returns the value of an `f32`'s bits. Not a plain `as`, because that may quiet a NaN.
#[inline]
pub(super) const fn decode_f32(bits: u32) -> f64 {
    let x = f32::from_bits(bits);
    if x.is_nan() {
        let sign = ((bits & 0x8000_0000) as u64) << 32;
        f64::from_bits(sign | F64_INF | ((bits & 0x7f_ffff) as u64) << 29)
    } else {
        x as f64
    }
}

const fn table(layout: Layout) -> [f64; 256] {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = layout.decode(code as u64);
        code += 1;
    }
    values
}

static E4M3_VALUES: [f64; 256] = table(E4M3);
static E5M2_VALUES: [f64; 256] = table(E5M2);

#[inline]
pub(super) fn decode_e4m3(code: u8) -> f64 {
    E4M3_VALUES[code as usize]
}

#[inline]
pub(super) fn decode_e5m2(code: u8) -> f64 {
    E5M2_VALUES[code as usize]
}

/// Returns the value of an `f8e4m3` code. Codes 0x7f and 0xff are NaN; there is no infinity.
#[inline]
pub fn f8e4m3_to_f32(code: u8) -> f32 {
    f32::from_bits(encode_f32(decode_e4m3(code)))
}

/// Returns the nearest `f8e4m3` code, ties to even. What rounds past 448, and infinity, becomes
/// NaN, as in PyTorch's `float8_e4m3fn`.
#[inline]
pub fn f32_to_f8e4m3(x: f32) -> u8 {
    E4M3.encode(decode_f32(x.to_bits())) as u8
}

/// Returns the value of an `f8e5m2` code, which is the upper byte of an IEEE half.
#[inline]
pub fn f8e5m2_to_f32(code: u8) -> f32 {
    f32::from_bits(encode_f32(decode_e5m2(code)))
}

/// Returns the nearest `f8e5m2` code, ties to even. What rounds past 57344 becomes infinity.
#[inline]
pub fn f32_to_f8e5m2(x: f32) -> u8 {
    E5M2.encode(decode_f32(x.to_bits())) as u8
}

/// Returns the value of the float type `to` that is nearest to `x`, ties to even, rounded once.
/// Overflow goes to infinity, for `f8e4m3` to NaN; every NaN becomes the canonical one. Panics if
/// `to` is not a float.
#[inline]
pub fn round_f64(x: f64, to: Scalar) -> f64 {
    let rounded = match to {
        Scalar::F64 => x,
        Scalar::F32 => x as f32 as f64,
        Scalar::F16 => HALF.decode(HALF.encode(x)),
        Scalar::BF16 => BRAIN.decode(BRAIN.encode(x)),
        Scalar::F8E4M3 => decode_e4m3(E4M3.encode(x) as u8),
        Scalar::F8E5M2 => decode_e5m2(E5M2.encode(x) as u8),
        _ => panic!("round_f64: {to} is not a float"),
    };
    if rounded.is_nan() { f64::NAN } else { rounded }
}
