//! Elementwise ops on raw lanes. A lane is the bits that [`Const::to_bits`] stores a value as,
//! zeros above, in a `u64`.
//!
//! `ir::eval::alu` is the definition. Ops that dominate the time of loops have a function here that
//! works on raw lanes; all others use the definition. A test compares the two over ops, dtypes and
//! edge values, bit for bit.

use crate::dtype::{Const, DType, Fma, Scalar};
use crate::ir::{Op, eval};

/// An elementwise op over as many lanes as the result has. Operands that the op does not take are
/// not read.
pub(super) type LaneFn = fn(&mut [u64], &[u64], &[u64], &[u64]);

// Indices instead of zips: iterators are several calls per lane in builds with little inlining,
// such as those of tests.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn map1(out: &mut [u64], a: &[u64], f: impl Fn(u64) -> u64) {
    for i in 0..out.len() {
        out[i] = f(a[i]);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn map2(out: &mut [u64], a: &[u64], b: &[u64], f: impl Fn(u64, u64) -> u64) {
    for i in 0..out.len() {
        out[i] = f(a[i], b[i]);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn map3(out: &mut [u64], a: &[u64], b: &[u64], c: &[u64], f: impl Fn(u64, u64, u64) -> u64) {
    for i in 0..out.len() {
        out[i] = f(a[i], b[i], c[i]);
    }
}

/// Returns the bits of a computed float: every NaN is the canonical one.
#[inline(always)]
fn bits32(x: f32) -> u64 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() as u64 }
}
#[inline(always)]
fn bits64(x: f64) -> u64 {
    if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() }
}
#[inline(always)]
fn f32_of(x: u64) -> f32 {
    f32::from_bits(x as u32)
}
#[inline(always)]
fn f64_of(x: u64) -> f64 {
    f64::from_bits(x)
}

/// Ops on an integer type `$t` whose lanes are the bits of `$u`. A result of a comparison is a bool
/// lane.
macro_rules! int_ops {
    ($name:ident, $t:ty, $u:ty) => {
        fn $name(op: Op) -> Option<LaneFn> {
            const BITS: u64 = <$t>::BITS as u64;
            Some(match op {
                Op::Add => {
                    |o, a, b, _| map2(o, a, b, |x, y| (x as $t).wrapping_add(y as $t) as $u as u64)
                }
                Op::Mul => {
                    |o, a, b, _| map2(o, a, b, |x, y| (x as $t).wrapping_mul(y as $t) as $u as u64)
                }
                Op::CDiv => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        if y == 0 { 0 } else { (x as $t).wrapping_div(y as $t) as $u as u64 }
                    })
                },
                Op::CMod => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        if y == 0 { 0 } else { (x as $t).wrapping_rem(y as $t) as $u as u64 }
                    })
                },
                Op::Max => |o, a, b, _| map2(o, a, b, |x, y| (x as $t).max(y as $t) as $u as u64),
                Op::Min => |o, a, b, _| map2(o, a, b, |x, y| (x as $t).min(y as $t) as $u as u64),
                Op::Lt => |o, a, b, _| map2(o, a, b, |x, y| ((x as $t) < (y as $t)) as u64),
                // A negative count is, as an unsigned number, past every width.
                Op::Shl => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        let n = y as $t as i64 as u64;
                        if n < BITS { ((x as $t) << n) as $u as u64 } else { 0 }
                    })
                },
                Op::Shr => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        let n = y as $t as i64 as u64;
                        // A larger count leaves the sign, or zero for an unsigned number; two
                        // shifts compute both.
                        if n < BITS {
                            ((x as $t) >> n) as $u as u64
                        } else {
                            ((x as $t) >> (BITS - 1) >> 1) as $u as u64
                        }
                    })
                },
                _ => return bit_ops(op),
            })
        }
    };
}
int_ops!(on_i8, i8, u8);
int_ops!(on_i16, i16, u16);
int_ops!(on_i32, i32, u32);
int_ops!(on_i64, i64, u64);
int_ops!(on_u8, u8, u8);
int_ops!(on_u16, u16, u16);
int_ops!(on_u32, u32, u32);
int_ops!(on_u64, u64, u64);

/// Ops that are the same for signed and unsigned integers and bools.
fn bit_ops(op: Op) -> Option<LaneFn> {
    Some(match op {
        Op::And => |o, a, b, _| map2(o, a, b, |x, y| x & y),
        Op::Or => |o, a, b, _| map2(o, a, b, |x, y| x | y),
        Op::Xor => |o, a, b, _| map2(o, a, b, |x, y| x ^ y),
        Op::Eq => |o, a, b, _| map2(o, a, b, |x, y| (x == y) as u64),
        Op::Ne => |o, a, b, _| map2(o, a, b, |x, y| (x != y) as u64),
        _ => return None,
    })
}

fn on_bool(op: Op) -> Option<LaneFn> {
    match op {
        Op::Add | Op::Max => bit_ops(Op::Or),
        Op::Mul | Op::Min => bit_ops(Op::And),
        Op::Lt => Some(|o, a, b, _| map2(o, a, b, |x, y| (x < y) as u64)),
        _ => bit_ops(op),
    }
}

macro_rules! float_ops {
    ($name:ident, $of:ident, $bits:ident) => {
        fn $name(op: Op) -> Option<LaneFn> {
            Some(match op {
                Op::Add => |o, a, b, _| map2(o, a, b, |x, y| $bits($of(x) + $of(y))),
                Op::Mul => |o, a, b, _| map2(o, a, b, |x, y| $bits($of(x) * $of(y))),
                Op::Div => |o, a, b, _| map2(o, a, b, |x, y| $bits($of(x) / $of(y))),
                Op::Fma => {
                    |o, a, b, c| map3(o, a, b, c, |x, y, z| $bits($of(x).fma($of(y), $of(z))))
                }
                Op::Sqrt => |o, a, _, _| map1(o, a, |x| $bits($of(x).sqrt())),
                Op::Trunc => |o, a, _, _| map1(o, a, |x| $bits($of(x).trunc())),
                // The product is exact in f64 or far below the least f32.
                Op::Ldexp => |o, a, b, _| {
                    map2(o, a, b, |x, n| {
                        let (x, n) = ($of(x), $of(n));
                        $bits(eval::ldexp(x.into(), n.into()) as _)
                    })
                },
                Op::Max => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        let (x, y) = ($of(x), $of(y));
                        $bits((if x > y || x.is_nan() { x } else { y }) + 0.0)
                    })
                },
                Op::Min => |o, a, b, _| {
                    map2(o, a, b, |x, y| {
                        let (x, y) = ($of(x), $of(y));
                        $bits((if x < y || x.is_nan() { x } else { y }) + 0.0)
                    })
                },
                Op::Lt => |o, a, b, _| map2(o, a, b, |x, y| ($of(x) < $of(y)) as u64),
                Op::Eq => |o, a, b, _| map2(o, a, b, |x, y| ($of(x) == $of(y)) as u64),
                Op::Ne => |o, a, b, _| map2(o, a, b, |x, y| ($of(x) != $of(y)) as u64),
                _ => return None,
            })
        }
    };
}
float_ops!(on_f32, f32_of, bits32);
float_ops!(on_f64, f64_of, bits64);

/// Casts from a float to each dtype.
macro_rules! from_float {
    ($name:ident, $of:ident) => {
        fn $name(to: Scalar) -> Option<LaneFn> {
            Some(match to {
                Scalar::Bool => |o, a, _, _| map1(o, a, |x| ($of(x) != 0.0) as u64),
                Scalar::I8 => |o, a, _, _| map1(o, a, |x| $of(x) as i8 as u8 as u64),
                Scalar::I16 => |o, a, _, _| map1(o, a, |x| $of(x) as i16 as u16 as u64),
                Scalar::I32 => |o, a, _, _| map1(o, a, |x| $of(x) as i32 as u32 as u64),
                Scalar::I64 | Scalar::Index => |o, a, _, _| map1(o, a, |x| $of(x) as i64 as u64),
                Scalar::U8 => |o, a, _, _| map1(o, a, |x| $of(x) as u8 as u64),
                Scalar::U16 => |o, a, _, _| map1(o, a, |x| $of(x) as u16 as u64),
                Scalar::U32 => |o, a, _, _| map1(o, a, |x| $of(x) as u32 as u64),
                Scalar::U64 => |o, a, _, _| map1(o, a, |x| $of(x) as u64),
                Scalar::F32 => |o, a, _, _| map1(o, a, |x| bits32($of(x) as f32)),
                Scalar::F64 => |o, a, _, _| map1(o, a, |x| bits64($of(x) as f64)),
                _ => return None,
            })
        }
    };
}
from_float!(from_f32, f32_of);
from_float!(from_f64, f64_of);

/// Casts from the integer `$t` to each dtype.
macro_rules! from_int {
    ($name:ident, $t:ty) => {
        fn $name(to: Scalar) -> Option<LaneFn> {
            Some(match to {
                Scalar::Bool => |o, a, _, _| map1(o, a, |x| (x != 0) as u64),
                Scalar::I8 | Scalar::U8 => |o, a, _, _| map1(o, a, |x| x as $t as u8 as u64),
                Scalar::I16 | Scalar::U16 => |o, a, _, _| map1(o, a, |x| x as $t as u16 as u64),
                Scalar::I32 | Scalar::U32 => |o, a, _, _| map1(o, a, |x| x as $t as u32 as u64),
                Scalar::I64 | Scalar::U64 | Scalar::Index => {
                    |o, a, _, _| map1(o, a, |x| x as $t as u64)
                }
                Scalar::F32 => |o, a, _, _| map1(o, a, |x| (x as $t as f32).to_bits() as u64),
                Scalar::F64 => |o, a, _, _| map1(o, a, |x| (x as $t as f64).to_bits()),
                _ => return None,
            })
        }
    };
}
from_int!(from_i8, i8);
from_int!(from_i16, i16);
from_int!(from_i32, i32);
from_int!(from_i64, i64);
from_int!(from_unsigned, u64);

fn cast(from: Scalar, to: Scalar) -> Option<LaneFn> {
    match from {
        Scalar::I8 => from_i8(to),
        Scalar::I16 => from_i16(to),
        Scalar::I32 => from_i32(to),
        Scalar::I64 | Scalar::Index => from_i64(to),
        // Zeros above the width, so the lane is the number.
        Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => from_unsigned(to),
        Scalar::F32 => from_f32(to),
        Scalar::F64 => from_f64(to),
        _ => None,
    }
}

/// Returns the specialized function of an op for these dtypes of result and first operand, if any.
pub(super) fn fast(op: Op, dtype: DType, from: DType) -> Option<LaneFn> {
    match op {
        Op::Where => Some(|o, a, b, c| map3(o, a, b, c, |x, y, z| if x != 0 { y } else { z })),
        Op::Cast => cast(from.scalar, dtype.scalar),
        Op::Bitcast if dtype.is_bool() => Some(|o, a, _, _| map1(o, a, |x| (x != 0) as u64)),
        Op::Bitcast | Op::Detach => Some(|o, a, _, _| map1(o, a, |x| x)),
        _ => match from.scalar {
            Scalar::Bool => on_bool(op),
            Scalar::I8 => on_i8(op),
            Scalar::I16 => on_i16(op),
            Scalar::I32 => on_i32(op),
            Scalar::I64 | Scalar::Index => on_i64(op),
            Scalar::U8 => on_u8(op),
            Scalar::U16 => on_u16(op),
            Scalar::U32 => on_u32(op),
            Scalar::U64 => on_u64(op),
            Scalar::F32 => on_f32(op),
            Scalar::F64 => on_f64(op),
            _ => None,
        },
    }
}

/// Evaluates an op by its definition; `from` are the dtypes of the operands.
pub(super) fn slow(
    op: Op,
    dtype: DType,
    from: [DType; 3],
    arity: usize,
    out: &mut [u64],
    src: [&[u64]; 3],
) {
    let mut x = [Const::Bool(false); 3];
    for (i, o) in out.iter_mut().enumerate() {
        for k in 0..arity {
            x[k] = Const::from_bits(src[k][i], from[k]);
        }
        *o = eval::alu(op, dtype, from[0], &x[..arity]).to_bits(dtype.scalar());
    }
}
