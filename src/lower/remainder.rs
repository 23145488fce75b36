//! The remainder of floats, exactly, from operations that every target has.
//!
//! Long division on the significands: with `x = m·2^e` and `y = n·2^f`, `1 ≤ m, n < 2`, the
//! remainder of `m·2^(e-f)` by `n` is computed `DIGITS` binary digits at a time. `r ← r·2^c -
//! trunc(r·2^c / n)·n`, where `c` is `DIGITS` or the rest of `e - f`. Every `r` is a multiple
//! of the last digit of `n` and below `n` in size, so the fused multiply-add is exact. A quotient
//! that was rounded up to an integer leaves a negative `r`, which later steps continue with and the
//! end corrects. There are as many steps as the widest difference of exponents needs, and no
//! branch, so that vectors compute it.

use crate::dtype::{DType, Scalar};
use crate::ir::{Op, UOp};

/// The layout of a float: binary digits of the significand, bias of the exponent, and the integer
/// of the same width.
struct Layout {
    digits: i64,
    bias: i64,
    bits: DType,
}

const F32: Layout = Layout { digits: 24, bias: 127, bits: DType::U32 };
const F64: Layout = Layout { digits: 53, bias: 1023, bits: DType::U64 };

impl Layout {
    fn constant(&self, x: &UOp, v: i64) -> UOp {
        UOp::constant(v, self.bits.vec(x.dtype().lanes))
    }
    /// Splits a positive number into a significand between 1 and 2 and a biased exponent. A
    /// subnormal is scaled to a normal number first.
    fn split(&self, size: &UOp) -> (UOp, UOp) {
        let stored = self.digits - 1;
        let least = size.const_like(2f64.powi(1 - self.bias as i32));
        let tiny = size.lt(&least);
        let scaled = tiny.select(size * 2f64.powi(stored as i32), size);
        let bits = scaled.bitcast(self.bits);
        let exponent = &bits >> &self.constant(size, stored);
        let fraction = bits.and(self.constant(size, (1 << stored) - 1));
        let significand =
            fraction.or(self.constant(size, self.bias << stored)).bitcast(size.dtype().scalar());
        // One more than the smallest that a subnormal can have, so that no exponent is negative.
        let exponent = tiny.select(&exponent, &(&exponent + &self.constant(size, stored)));
        (significand, exponent)
    }
    /// Returns two to a power between -bias and bias, given with the bias.
    fn power(&self, x: &UOp, biased: &UOp) -> UOp {
        (biased << &self.constant(x, self.digits - 1)).bitcast(x.dtype().scalar())
    }
}

/// Returns `x - floor(x/y)·y` for floats of 32 or 64 bits. A zero has the divisor's sign. NaN where
/// `x` is not finite or `y` is zero or NaN. By an infinite `y` it is `x`, or `y` where the signs
/// differ.
pub fn remainder(x: &UOp, y: &UOp) -> UOp {
    let layout = match x.dtype().scalar {
        Scalar::F32 => F32,
        Scalar::F64 => F64,
        // The remainder of narrower floats is one of them, or is rounded once.
        _ => return x.cast(DType::F32).binary(Op::Mod, y.cast(DType::F32)).cast(x.dtype()),
    };
    let top = 1i64 << if layout.digits == 24 { 31 } else { 63 };
    let size = |v: &UOp| {
        v.bitcast(layout.bits)
            .and(layout.constant(x, !top & if layout.digits == 24 { 0xffff_ffff } else { -1 }))
            .bitcast(x.dtype())
    };
    let (a, b) = (size(x), size(y));
    let ((m, e), (n, f)) = (layout.split(&a), layout.split(&b));
    // The number of remaining digits of the quotient; a number below the divisor is its own
    // remainder.
    let below = a.lt(&b);
    let mut left = below.select(layout.constant(x, 0), &(&e - &f));
    // Exponents go from 1 (the smallest number) to 2·bias + digits - 1.
    let most = 2 * layout.bias + layout.digits - 2;
    let step = layout.digits;
    let reduce = |r: &UOp| UOp::fma(&-r.binary(Op::Div, &n).unary(Op::Trunc), &n, r);
    let mut r = reduce(&m);
    for _ in 0..(most + step - 1) / step {
        let limit = layout.constant(x, step);
        let count = left.lt(&limit).select(&left, &limit);
        r = reduce(&(&r * layout.power(x, &(&count + &layout.constant(x, layout.bias)))));
        left = &left - &count;
    }
    // One divisor back, if a quotient was rounded up.
    let r = r.lt(0i64).select(&r + &n, &r);
    // Scaled to the divisor's exponent by two factors, since one cannot be as small as a subnormal
    // needs.
    let stored = layout.constant(x, layout.digits - 1);
    let least = layout.constant(x, layout.digits);
    let normal = f.lt(&least).not();
    let up = normal.select(&(&f - &stored), &layout.constant(x, 1));
    let down = normal.select(
        layout.constant(x, layout.bias),
        &(&f + &layout.constant(x, layout.bias - (layout.digits))),
    );
    let scaled = &r * layout.power(x, &down) * layout.power(x, &up);
    let rest = below.select(&a, &scaled);
    let negative = |v: &UOp| v.lt(0i64);
    let zero = x.const_like(0i64);
    // The complement to the divisor if the signs differ, and with the divisor's sign.
    let toward = rest.equals(&zero).not().and(negative(x).differs(negative(y)));
    let found = toward.select(&b - &rest, &rest);
    let sign = y.bitcast(layout.bits).and(layout.constant(x, top));
    let signed = found.bitcast(layout.bits).or(&sign).bitcast(x.dtype().scalar());
    // `x - x` is zero if `x` is finite, and else NaN; `0/y` is zero if `y` is neither zero nor NaN.
    let wrong = (x + &-x + zero.binary(Op::Div, y)).equals(&zero).not();
    wrong.select(x.const_like(f64::NAN), &signed)
}
