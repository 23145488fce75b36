//! Fused multiply-add of host numbers, rounded once on every system. Windows with the GNU runtime
//! computes `mul_add` in the precision of x87 registers, with two roundings; there, the instruction
//! is used if the CPU has it, and integer arithmetic otherwise.

/// A float with a fused multiply-add.
pub(crate) trait Fma {
    /// Returns `self * y + z`, rounded once.
    fn fma(self, y: Self, z: Self) -> Self;
}

#[cfg(not(all(windows, target_env = "gnu")))]
mod system {
    impl super::Fma for f32 {
        #[inline(always)]
        fn fma(self, y: f32, z: f32) -> f32 {
            self.mul_add(y, z)
        }
    }

    impl super::Fma for f64 {
        #[inline(always)]
        fn fma(self, y: f64, z: f64) -> f64 {
            self.mul_add(y, z)
        }
    }
}

#[cfg(all(windows, target_env = "gnu"))]
mod system {
    use super::exact;

    #[target_feature(enable = "fma")]
    fn f32_by_instruction(x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }

    #[target_feature(enable = "fma")]
    fn f64_by_instruction(x: f64, y: f64, z: f64) -> f64 {
        x.mul_add(y, z)
    }

    impl super::Fma for f32 {
        fn fma(self, y: f32, z: f32) -> f32 {
            if std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the CPU has the instruction.
                unsafe { f32_by_instruction(self, y, z) }
            } else {
                exact::f32(self, y, z)
            }
        }
    }

    impl super::Fma for f64 {
        fn fma(self, y: f64, z: f64) -> f64 {
            if std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the CPU has the instruction.
                unsafe { f64_by_instruction(self, y, z) }
            } else {
                exact::f64(self, y, z)
            }
        }
    }
}

#[cfg(any(test, all(windows, target_env = "gnu")))]
mod exact {
    /// The product of two `f32` is exact in `f64`. The sum is rounded to odd, so that rounding it
    /// again to `f32` gives the same as rounding the exact sum.
    pub(super) fn f32(x: f32, y: f32, z: f32) -> f32 {
        let (product, z) = (f64::from(x) * f64::from(y), f64::from(z));
        let sum = product + z;
        // The error of the sum, exactly.
        let part = sum - product;
        let error = (product - (sum - part)) + (z - part);
        if !sum.is_finite() || error == 0.0 || sum.to_bits() & 1 == 1 {
            return sum as f32;
        }
        let outward = (error > 0.0) == (sum > 0.0);
        let bits = if outward { sum.to_bits() + 1 } else { sum.to_bits() - 1 };
        f64::from_bits(bits) as f32
    }

    /// A number as `mantissa · 2^exponent`, with the top bit of the mantissa at bit 125.
    fn parts(x: f64) -> (u128, i32) {
        let (bits, field) = (x.to_bits() & ((1 << 52) - 1), (x.to_bits() >> 52 & 0x7ff) as i32);
        let mantissa = if field == 0 { bits } else { bits | 1 << 52 };
        normalized(u128::from(mantissa), field.max(1) - 1075)
    }

    fn normalized(mantissa: u128, exponent: i32) -> (u128, i32) {
        let shift = mantissa.leading_zeros() as i32 - 2;
        let moved = if shift < 0 { mantissa >> -shift } else { mantissa << shift };
        (moved, exponent - shift)
    }

    /// Shifts right, and keeps in the lowest bit whether a bit was lost.
    fn shifted(mantissa: u128, by: i32) -> u128 {
        match by {
            0 => mantissa,
            1..=127 => mantissa >> by | u128::from(mantissa << (128 - by) != 0),
            _ => 1,
        }
    }

    /// Adds the exact product to `z` in 126 bits, of which 53 remain: the bits that the smaller
    /// number loses below them only decide whether the sum is a tie.
    pub(super) fn f64(x: f64, y: f64, z: f64) -> f64 {
        if !x.is_finite() || !y.is_finite() || x == 0.0 || y == 0.0 {
            return x * y + z;
        }
        // The product may overflow to an infinity of the other sign.
        if !z.is_finite() {
            return z;
        }
        if z == 0.0 {
            return x * y;
        }
        let is_negative = x.is_sign_negative() != y.is_sign_negative();
        let ((a, ea), (b, eb)) = (parts(x), parts(y));
        // 53 bits each, so that the product is exact.
        let (product, product_exponent) = normalized((a >> 73) * (b >> 73), ea + eb + 146);
        let (addend, addend_exponent) = parts(z);
        let exponent = product_exponent.max(addend_exponent);
        let product = shifted(product, exponent - product_exponent);
        let addend = shifted(addend, exponent - addend_exponent);
        let (sum, is_negative) = if is_negative == z.is_sign_negative() {
            (product + addend, is_negative)
        } else if product >= addend {
            (product - addend, is_negative)
        } else {
            (addend - product, z.is_sign_negative())
        };
        match sum {
            0 => 0.0,
            _ if is_negative => -rounded(sum, exponent),
            _ => rounded(sum, exponent),
        }
    }

    /// Rounds `sum · 2^exponent` to the nearest number, ties to even.
    fn rounded(sum: u128, exponent: i32) -> f64 {
        let bits = 128 - sum.leading_zeros() as i32;
        // The exponent of the last bit of the result.
        let mut last = (exponent + bits - 53).max(-1074);
        let mut mantissa = match last - exponent {
            by @ ..=0 => (sum << -by) as u64,
            by @ 1..=127 => {
                let (kept, lost) = ((sum >> by) as u64, sum << (128 - by));
                let half = 1 << 127;
                kept + u64::from(lost > half || lost == half && kept & 1 == 1)
            }
            _ => 0,
        };
        if mantissa == 1 << 53 {
            (mantissa, last) = (mantissa >> 1, last + 1);
        }
        match last + 1075 {
            _ if mantissa < 1 << 52 => f64::from_bits(mantissa),
            field @ 1..=2046 => f64::from_bits((field as u64) << 52 | mantissa & ((1 << 52) - 1)),
            _ => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all magnitudes, with many sums that cancel or are ties.
    fn cases() -> impl Iterator<Item = [u64; 3]> {
        let mut state = 7u64;
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state ^ state >> 29
        };
        (0..300_000).map(move |_| [next(), next(), next()])
    }

    /// Compares integer arithmetic with the instruction, or with the C library.
    #[test]
    fn results_are_rounded_once() {
        let same64 = |x: f64, y: f64, z: f64| {
            let (want, got) = (x.fma(y, z), exact::f64(x, y, z));
            let same = want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan();
            assert!(same, "{x:e} * {y:e} + {z:e}: {got:e}, expected {want:e}");
        };
        let same32 = |x: f32, y: f32, z: f32| {
            let (want, got) = (x.fma(y, z), exact::f32(x, y, z));
            let same = want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan();
            assert!(same, "{x:e} * {y:e} + {z:e}: {got:e}, expected {want:e}");
        };
        for [a, b, c] in cases() {
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            same64(x, y, z);
            // Near the product, far below it, subnormal, few bits.
            same64(x, y, -(x * y));
            same64(x, y, f64::from_bits((x * y).to_bits() ^ c >> 40));
            same64(x, y, x * y * f64::from_bits((1023 - c % 120) << 52 | c >> 63 << 63));
            let few = |n: u64| f64::from_bits(n & 0x801f_f800_0000_0000 | (960 + n % 128) << 52);
            same64(few(a), few(b), few(c));
            same64(x, f64::from_bits(b & !(0x7ff << 52) | 300 << 52), f64::from_bits(c >> 12));
            let [x, y, z] = [a, b, c].map(|n| f32::from_bits(n as u32));
            same32(x, y, z);
            same32(x, y, -(x * y));
            same32(x, y, f32::from_bits((x * y).to_bits() ^ (c >> 50) as u32));
            same32(few(a) as f32, few(b) as f32, few(c) as f32);
            same32(
                x,
                f32::from_bits(b as u32 & !(0xff << 23) | 40 << 23),
                f32::from_bits(c as u32 >> 9),
            );
        }
        for special in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, 5e-324] {
            for other in [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NAN, f64::MAX, 5e-324] {
                for third in [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::MAX, -5e-324] {
                    same64(special, other, third);
                    same32(special as f32, other as f32, third as f32);
                }
            }
        }
    }
}
