//! `Ldexp` for targets without the instruction: x times powers of two whose product is 2^n. As many
//! as are needed for the range of n, so that only the last product rounds.

use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Op, UOp};

/// An interval of floats; NaN is not considered.
type Interval = (f64, f64);
const EVERYTHING: Interval = (f64::NEG_INFINITY, f64::INFINITY);

/// The numbers of a float dtype.
struct Format {
    /// Bits of the fraction.
    fraction: i64,
    /// The exponents of the least normal number and of the largest power of two.
    exponents: (f64, f64),
    /// An exponent at which every number but zero overflows, and underflows if it is negative.
    limit: f64,
    bits: DType,
}

impl Format {
    fn of(dtype: DType) -> Format {
        if dtype.scalar == Scalar::F64 {
            Format {
                fraction: 52,
                exponents: (-1022.0, 1023.0),
                limit: 2200.0,
                bits: DType::U64.vec(dtype.lanes),
            }
        } else {
            Format {
                fraction: 23,
                exponents: (-126.0, 127.0),
                limit: 300.0,
                bits: DType::U32.vec(dtype.lanes),
            }
        }
    }

    /// Returns 2^n for an integral `n` in the range of exponents. The sum leaves the biased
    /// exponent in the low bits.
    fn power(&self, n: &UOp) -> UOp {
        let round = 1.5 * (1i64 << self.fraction) as f64 + self.exponents.1;
        let biased = (n + round).bitcast(self.bits.scalar());
        (&biased << biased.const_like(self.fraction)).bitcast(n.dtype().scalar())
    }
}

/// Returns the interval of values of a float expression, from its `limit` outermost nodes.
fn interval(u: &UOp, limit: &mut usize) -> Interval {
    if *limit == 0 {
        return EVERYTHING;
    }
    *limit -= 1;
    let mut of = |x: &UOp| interval(x, limit);
    match (u.op(), u.src()) {
        (Op::Const, _) => match u.as_const() {
            Some(Const::Float(v)) if !v.is_nan() => (v, v),
            _ => EVERYTHING,
        },
        (Op::Cast, [x]) if !x.dtype().is_float() => (x.vmin() as f64, x.vmax() as f64),
        (Op::Where, [c, x, y]) => {
            let (x, y) = (refined(of(x), x, c, true), refined(of(y), y, c, false));
            (x.0.min(y.0), x.1.max(y.1))
        }
        (Op::Add, [x, y]) => sum(of(x), of(y)),
        (Op::Mul, [x, y]) if x == y => {
            let (low, high) = of(x);
            let most = low.abs().max(high.abs());
            rounded((0.0, most * most))
        }
        (Op::Mul, [x, y]) => product(of(x), of(y)),
        (Op::Fma, [x, y, z]) => {
            let xy = product(of(x), of(y));
            sum(xy, of(z))
        }
        _ => EVERYTHING,
    }
}

/// Returns the interval of `x` where the condition is true or false. A comparison with NaN is
/// false, and intervals do not consider NaN.
fn refined((low, high): Interval, x: &UOp, condition: &UOp, holds: bool) -> Interval {
    let (Op::Lt, [a, b]) = (condition.op(), condition.src()) else { return (low, high) };
    match (a.as_const(), b.as_const()) {
        (Some(Const::Float(a)), _) if b == x && holds => (low.max(a), high),
        (Some(Const::Float(a)), _) if b == x => (low, high.min(a)),
        (_, Some(Const::Float(b))) if a == x && holds => (low, high.min(b)),
        (_, Some(Const::Float(b))) if a == x => (low.max(b), high),
        _ => (low, high),
    }
}

/// Widens an interval by a rounding error. Large numbers count as infinite, since they
/// might overflow.
fn rounded((low, high): Interval) -> Interval {
    let slack = low.abs().max(high.abs()) * 2f64.powi(-24) + 1e-40;
    let is_large = |v: f64| v.is_nan() || v.abs() > 1e30;
    let low = if is_large(low) { f64::NEG_INFINITY } else { low - slack };
    (low, if is_large(high) { f64::INFINITY } else { high + slack })
}

fn sum(x: Interval, y: Interval) -> Interval {
    rounded((x.0 + y.0, x.1 + y.1))
}

fn product(x: Interval, y: Interval) -> Interval {
    if [x, y].iter().any(|v| v.0.is_infinite() || v.1.is_infinite()) {
        return EVERYTHING;
    }
    let corners = [x.0 * y.0, x.0 * y.1, x.1 * y.0, x.1 * y.1];
    rounded(
        corners
            .into_iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v))),
    )
}

fn interval_of(u: &UOp) -> Interval {
    interval(u, &mut 64)
}

/// Returns true for a float expression whose values are integral or NaN.
fn is_integral(u: &UOp) -> bool {
    let whole = (1u64 << Format::of(u.dtype()).fraction) as f64;
    match (u.op(), u.src()) {
        (Op::Const, _) => matches!(u.as_const(), Some(Const::Float(v)) if v == v.floor()),
        (Op::Cast, [x]) => !x.dtype().is_float(),
        (Op::Trunc, _) => true,
        (Op::Add, [x, y]) => match y.as_const() {
            Some(_) => is_integral(y) && is_integral(x),
            None => interval_of(u).0 >= whole,
        },
        _ => interval_of(u).0 >= whole,
    }
}

/// Returns `n` rounded toward minus infinity.
fn floor(n: &UOp) -> UOp {
    if is_integral(n) {
        return n.clone();
    }
    let whole = n.unary(Op::Trunc);
    n.lt(&whole).select(&whole + -1.0, &whole)
}

/// Returns `n` between the limits. NaN stays NaN.
fn limited(n: &UOp, low: f64, high: f64) -> UOp {
    let n = n.const_like(high).lt(n).select(n.const_like(high), n);
    n.lt(n.const_like(low)).select(n.const_like(low), &n)
}

/// Returns true if an infinite `n` has to be replaced by a finite one for the instruction, which
/// takes infinities for limits: its result of NaN and an infinity is no NaN.
pub(super) fn may_be_infinite(u: &UOp) -> bool {
    let (low, high) = interval_of(u.expect_ldexp().n);
    low.is_infinite() || high.is_infinite()
}

/// Returns the `Ldexp` with a finite exponent.
pub(super) fn with_limits(u: &UOp) -> UOp {
    let (x, n) = (u.expect_ldexp().x, u.expect_ldexp().n);
    let limit = Format::of(u.dtype()).limit;
    x.binary(Op::Ldexp, limited(n, -limit, limit))
}

/// Expresses an `Ldexp` of f32 or f64 in multiplications.
pub(super) fn decompose(u: &UOp) -> UOp {
    let (x, n) = (u.expect_ldexp().x, u.expect_ldexp().n);
    let format = Format::of(u.dtype());
    let (least, most) = format.exponents;
    let (low, high) = interval_of(n);
    // Zero has the bits of a power, unlike NaN.
    let is_number = n.equals(n);
    let number = is_number.select(n, &n.const_like(0.0));
    let product = if low >= least && high <= most {
        x * format.power(&floor(&number))
    } else {
        let mut rest = floor(&limited(&number, -format.limit, format.limit));
        let mut product = x.clone();
        // A product below the normal numbers has less than half of the least number at the end,
        // so that rounding it does not matter.
        let step = least + (format.fraction + 1) as f64;
        for _ in 0..2 {
            let over = rest.const_like(most).lt(&rest);
            let part = over.select(rest.const_like(most), &rest);
            let part = rest.lt(rest.const_like(least)).select(part.const_like(step), &part);
            product = &product * format.power(&part);
            rest = &rest - &part;
        }
        product * format.power(&rest)
    };
    is_number.select(&product, n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_clamps_and_arithmetic() {
        let x = UOp::define_global(0, 1, DType::F32).at(0).load();
        assert_eq!(interval_of(&x), EVERYTHING);
        let clamped = limited(&x, -110.0, 100.0);
        assert_eq!(interval_of(&clamped), (-110.0, 100.0));
        let t = clamped.fma(&x.const_like(2.0), &x.const_like(12_582_912.0));
        assert!(is_integral(&t) && is_integral(&(&t + -12_582_912.0)));
        assert!(!is_integral(&clamped) && !is_integral(&(&x + 1.0)));
        let (low, high) = interval_of(&(&clamped * &clamped));
        assert!((-1.0..=0.0).contains(&low) && (12_100.0..12_200.0).contains(&high));
        assert!(interval_of(&(&clamped * (&clamped + 1.0))).0 <= -11_000.0);
        assert_eq!(interval_of(&(&clamped * &x)), EVERYTHING);
    }
}
