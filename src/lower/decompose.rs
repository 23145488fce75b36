//! Expresses ops that a target lacks in ops that it has. After this pass there is no IDiv or Mod,
//! no shift whose count may exceed the width, no arithmetic on floats that the target only stores,
//! no arithmetic on bools but logic, and no transcendental op that the target lacks.

use super::ldexp;
use super::remainder::remainder;
use super::transcendental::{self, integer_power};
use crate::dtype::{DType, Scalar};
use crate::ir::{Group, Op, Src, UOp};
use crate::rewrite::Rules;
use crate::rewrite::rules;
use crate::target::Target;
use std::sync::LazyLock;

rules! {
    /// Rules that need to know the target.
    pub DECOMPOSE |u, target: Target| {
        bool_add:        Add(x, y) if u.dtype().is_bool()                        => x.or(y);
        bool_mul:        Mul(x, y) if u.dtype().is_bool()                        => x.and(y);
        bool_max:        Max(x, y) if u.dtype().is_bool()                        => x.or(y);
        bool_min:        Min(x, y) if u.dtype().is_bool()                        => x.and(y);
        bool_lt:         Lt(x, y) if x.dtype().is_bool()                         => x.not().and(y);
        bool_eq:         Eq(x, y) if x.dtype().is_bool()                         => (x ^ y).not();
        bool_ne:         Ne(x, y) if x.dtype().is_bool()                         => x ^ y;
        cast_to_bool:    Cast(x) if u.dtype().is_bool()                          => x.differs(zero(x));
        small_unary:     {Unary}(x) if is_small(u, target)                       => in_f32(u, &[x]);
        small_binary:    {Binary}(x, y) if is_small(u, target)                   => in_f32(u, &[x, y]);
        small_compare:   {Comparison}(x, y) if is_small(x, target)               => x.cast(DType::F32).binary(u.op(), y.cast(DType::F32));
        small_where:     Where(c, x, y) if is_small(u, target)                   => c.select(x.cast(DType::F32), &y.cast(DType::F32)).cast(u.dtype());
        small_fma:       Fma(x, y, z) if is_small(u, target)                     => in_f32(u, &[x, y, z]);
        small_from_wide: Cast(x) if is_small(u, target) && is_wide(x)            => odd_f32(x).cast(u.dtype());
        small_from_int:  Cast(x) if is_small(u, target) && !is_wide(x) && !x.dtype().is_float() => x.cast(DType::F32).cast(u.dtype());
        small_to_other:  Cast(x) if is_small(x, target) && !u.dtype().is_bool() && u.dtype().scalar() != DType::F32 => x.cast(DType::F32).cast(u.dtype());
        pow_int:         Pow(..) if u.dtype().is_int()                           => integer_power(u);
        math_unary:      {Unary}(..) if is_written_out(u, target)                => transcendental::decompose(u, target);
        math_pow:        Pow(..) if u.dtype().is_float() && is_written_out(u, target) => transcendental::decompose(u, target);
        ldexp_limits:    Ldexp(..) if target.has(Op::Ldexp, u.dtype()) && ldexp::may_be_infinite(u) => ldexp::with_limits(u);
        ldexp_products:  Ldexp(..) if !is_small(u, target) && !target.has(Op::Ldexp, u.dtype()) => ldexp::decompose(u);
        idiv_machine:    IDiv(x, y)                                              => divide(x, y, true);
        mod_float:       Mod(x, y) if u.dtype().is_float() && !is_small(u, target) => remainder(x, y);
        mod_machine:     Mod(x, y) if !u.dtype().is_float()                      => divide(x, y, false);
        shl_guard:       Shl(x, y) if !in_width(y)                               => shift(u, x, y);
        shr_guard:       Shr(x, y) if !in_width(y)                               => shift(u, x, y);
    }
}

static RULES: LazyLock<Rules<Target>> = LazyLock::new(|| Rules::new(&[&DECOMPOSE]));

/// Decomposes the ops of a kernel.
pub fn decompose(ast: &UOp, target: &Target) -> UOp {
    crate::symbolic::simplify(&RULES.fixpoint(ast, &mut target.clone()))
}

fn zero(x: &UOp) -> UOp {
    x.const_like(0i64)
}

/// Returns true for a float that the target stores but does not compute in.
fn is_small(u: &UOp, target: &Target) -> bool {
    u.dtype().is_float() && !target.computes(u.dtype())
}

/// Returns true for a transcendental function that the target lacks in a dtype that it computes in.
fn is_written_out(u: &UOp, target: &Target) -> bool {
    let lacks = u.op().is(Group::Transcendental) && !target.has(u.op(), u.dtype());
    lacks && !is_small(u, target)
}

/// Returns true for dtypes with more significant bits than f32.
fn is_wide(x: &UOp) -> bool {
    matches!(
        x.dtype().scalar,
        Scalar::F64 | Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64 | Scalar::Index
    )
}

fn in_f32(u: &UOp, x: &[&UOp]) -> Option<UOp> {
    if u.op().is(Group::Comparison) {
        return None;
    }
    let src: Src = x.iter().map(|x| x.cast(DType::F32)).collect();
    Some(u.retyped(DType::F32.vec(u.dtype().lanes), src).cast(u.dtype()))
}

/// Rounds a wide value to f32 by round-to-odd: rounding the result once more gives what rounding
/// the value once would.
fn odd_f32(x: &UOp) -> UOp {
    let lanes = x.dtype().lanes;
    let near = x.cast(DType::F32);
    let back = near.cast(x.dtype());
    let bits = near.bitcast(DType::U32);
    let even = bits.and(1i64).equals(0i64);
    let magnitude = |v: &UOp| if v.dtype().is_float() { v.binary(Op::Max, -v) } else { v.clone() };
    // For integers the sign determines the direction in which the bits grow.
    let grew = if x.dtype().is_float() {
        magnitude(x).lt(magnitude(&back))
    } else {
        let negative = x.lt(zero(x));
        negative.select(back.lt(x), &x.lt(&back))
    };
    let one = UOp::constant(1i64, DType::U32.vec(lanes));
    let moved = grew.select(&bits - &one, &(&bits + &one));
    back.differs(x).and(&even).select(&moved, &bits).bitcast(DType::F32)
}

/// Expresses floor division or remainder by machine division, which rounds toward zero and traps on
/// zero and overflow.
fn divide(x: &UOp, y: &UOp, quotient: bool) -> UOp {
    let machine = |op: Op, y: &UOp| x.binary(op, y);
    if x.vmin() >= 0 && y.vmin() > 0 {
        return machine(if quotient { Op::CDiv } else { Op::CMod }, y);
    }
    // An index that can be negative is increased by a multiple of the divisor, which shifts the
    // quotient and keeps the remainder.
    if let (true, Some(c)) = (x.dtype() == DType::INDEX, y.as_int().filter(|c| *c > 0)) {
        let steps = (-x.vmin() + c as i128 - 1) / c as i128;
        if let (Ok(steps), Ok(by), Ok(_)) = (
            i64::try_from(steps),
            i64::try_from(steps * c as i128),
            i64::try_from(x.vmax() + steps * c as i128),
        ) {
            let up = x + by;
            return if quotient { up.binary(Op::CDiv, y) + -steps } else { up.binary(Op::CMod, y) };
        }
    }
    let none = y.equals(0i64);
    let mut safe = none.select(1i64, y);
    let result = if x.dtype().is_unsigned() {
        machine(if quotient { Op::CDiv } else { Op::CMod }, &safe)
    } else {
        // The minimum divided by -1 overflows; divided by 1 it has the same wrapped quotient and
        // remainder.
        let least = x.const_like(x.dtype().scalar().min_value());
        safe = safe.equals(-1i64).and(x.equals(&least)).select(1i64, &safe);
        let remainder = machine(Op::CMod, &safe);
        // With a positive divisor the sign of the remainder suffices, and the bounds proof follows
        // it.
        let round_down = if y.vmin() > 0 {
            remainder.lt(0i64)
        } else {
            remainder.differs(0i64).and(remainder.lt(0i64).differs(safe.lt(0i64)))
        };
        if quotient {
            let q = machine(Op::CDiv, &safe);
            round_down.select(&q + -1i64, &q)
        } else {
            round_down.select(&remainder + &safe, &remainder)
        }
    };
    if y.vmin() > 0 || y.vmax() < 0 { result } else { none.select(zero(x), &result) }
}

fn in_width(y: &UOp) -> bool {
    y.vmin() >= 0 && y.vmax() < y.dtype().bits() as i128
}

fn shift(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    let bits = u.dtype().bits() as i64;
    let top = x.const_like(bits - 1);
    let inside =
        if u.dtype().is_unsigned() { y.lt(bits) } else { y.lt(0i64).not().and(y.lt(bits)) };
    // The count is reduced modulo the width, so that the machine shift is always in range.
    let count = y.and(bits - 1);
    let past = if u.op() == Op::Shr && !u.dtype().is_unsigned() {
        x.binary(Op::Shr, top)
    } else {
        zero(x)
    };
    inside.select(x.binary(u.op(), count), &past)
}
