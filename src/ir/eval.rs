//! Elementwise ops on single values, as `docs/semantics.md` defines them. The reference evaluator,
//! the interpreter and constant folding call these functions, so that they agree; the other devices
//! are tested against them.

#[cfg(feature = "testing")]
use super::Arg;
use super::{Fold, Op, UOp};
use crate::dtype::{Const, DType, Fma, Scalar, trigonometry};
#[cfg(feature = "testing")]
use rustc_hash::FxHashMap;

unsafe extern "C" {
    /// The C library's error function; Rust's own library has none.
    safe fn erf(x: f64) -> f64;
}

/// Returns the result of an elementwise op of result dtype `dtype` on values `x`, which have the
/// dtypes `from`. Floats narrower than 64 bits are computed in f32 (transcendental ops in f64) and
/// rounded once.
pub fn alu(op: Op, dtype: DType, from: DType, x: &[Const]) -> Const {
    let dtype = dtype.scalar();
    let from = from.scalar();
    match op {
        Op::Cast => x[0].cast(from, dtype),
        Op::Bitcast => x[0].bitcast(from, dtype),
        Op::Where => {
            if x[0].is_true() {
                x[1]
            } else {
                x[2]
            }
        }
        Op::Detach => x[0],
        Op::Lt | Op::Eq | Op::Ne => Const::Bool(compare(op, from, x[0], x[1])),
        _ if dtype.is_float() => Const::Float(float(op, dtype.scalar, x)),
        _ if dtype.is_bool() => {
            Const::Bool(boolean(op, x[0].is_true(), x.get(1).is_some_and(|c| c.is_true())))
        }
        _ => Const::Int(integer(op, dtype, int(x[0]), x.get(1).map_or(0, |c| int(*c)))),
    }
}

/// Combines two values of a dtype by the operation of a reduction.
#[cfg(feature = "testing")]
pub fn fold(fold: Fold, dtype: DType, a: Const, b: Const) -> Const {
    alu(fold.op(), dtype, dtype, &[a, b])
}

impl Fold {
    /// Returns the elementwise op that combines two values.
    pub const fn op(self) -> Op {
        match self {
            Fold::Add => Op::Add,
            Fold::Mul => Op::Mul,
            Fold::Max => Op::Max,
            Fold::Min => Op::Min,
        }
    }
    /// Returns the reduction of a single value. It is the value, except that a float -0 becomes +0
    /// in a sum, which starts from +0, and in both extremes.
    pub fn of_one(self, x: &UOp) -> UOp {
        if x.dtype().is_float() && self != Fold::Mul {
            x.binary(Op::Add, x.const_like(0.0))
        } else {
            x.clone()
        }
    }
    /// Returns the identity of the operation, which is the result over no element.
    pub fn identity(self, dtype: DType) -> Const {
        let dtype = dtype.scalar();
        match self {
            Fold::Add => Const::Int(0).cast(DType::I64, dtype),
            Fold::Mul => Const::Int(1).cast(DType::I64, dtype),
            Fold::Max => dtype.min_value(),
            Fold::Min => dtype.max_value(),
        }
    }
}

fn int(c: Const) -> i64 {
    c.as_i64().expect("integer operand")
}

fn compare(op: Op, from: DType, a: Const, b: Const) -> bool {
    if from.is_float() {
        let (a, b) = (a.as_f64(from), b.as_f64(from));
        return match op {
            Op::Lt => a < b,
            Op::Eq => a == b,
            _ => a != b,
        };
    }
    let (a, b) = (int(a), int(b));
    match op {
        Op::Lt if from.scalar == Scalar::U64 => (a as u64) < b as u64,
        Op::Lt => a < b,
        Op::Eq => a == b,
        _ => a != b,
    }
}

fn boolean(op: Op, a: bool, b: bool) -> bool {
    match op {
        Op::Add | Op::Or | Op::Max => a | b,
        Op::Mul | Op::And | Op::Min => a & b,
        Op::Xor => a ^ b,
        _ => panic!("{op:?} is not an op of bools"),
    }
}

/// Computes an op of integers, which are given sign- or zero-extended to 64 bits, u64 by its bits.
fn integer(op: Op, dtype: DType, a: i64, b: i64) -> i64 {
    let bits = dtype.bits();
    let unsigned64 = dtype.scalar == Scalar::U64;
    let is_past = b as u64 >= bits as u64;
    let raw = match op {
        Op::Add => a.wrapping_add(b),
        Op::Mul => a.wrapping_mul(b),
        Op::IDiv | Op::Mod | Op::CDiv | Op::CMod if b == 0 => 0,
        Op::IDiv | Op::CDiv if unsigned64 => ((a as u64) / (b as u64)) as i64,
        Op::Mod | Op::CMod if unsigned64 => ((a as u64) % (b as u64)) as i64,
        Op::CDiv => a.wrapping_div(b),
        Op::CMod => a.wrapping_rem(b),
        Op::IDiv => {
            let q = a.wrapping_div(b);
            // Toward minus infinity: one less if the signs differ and there is a remainder.
            if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
        }
        Op::Mod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
        Op::Max if unsigned64 => (a as u64).max(b as u64) as i64,
        Op::Min if unsigned64 => (a as u64).min(b as u64) as i64,
        Op::Max => a.max(b),
        Op::Min => a.min(b),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        // A shift by the width or more, or by a negative number, shifts all bits out.
        Op::Shl => {
            if is_past {
                0
            } else {
                a << b
            }
        }
        Op::Shr if dtype.is_unsigned() => {
            if is_past {
                0
            } else {
                ((a as u64) >> b) as i64
            }
        }
        Op::Shr => a >> if is_past { bits as i64 - 1 } else { b },
        Op::Pow => integer_power(a, b, dtype.is_unsigned()),
        _ => panic!("{op:?} is not an op of integers"),
    };
    match Const::Int(raw).normalize(dtype) {
        Const::Int(v) => v,
        _ => unreachable!("an integer dtype has an integer normal form"),
    }
}

/// Returns `a` to the power `b`. A negative exponent gives 1/a^-b rounded toward zero, which is 0
/// for all bases but 1 and -1.
fn integer_power(a: i64, b: i64, unsigned: bool) -> i64 {
    if b < 0 && !unsigned {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut base, mut e) = (1i64, a, b as u64);
    while e > 0 {
        if e & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    result
}

fn float(op: Op, scalar: Scalar, x: &[Const]) -> f64 {
    let get = |i: usize| match x[i] {
        Const::Float(v) => v,
        c => panic!("{op:?} of floats got {c:?}"),
    };
    let (a, b) = (get(0), if x.len() > 1 { get(1) } else { 0.0 });
    // Ops that hardware rounds correctly are computed in the dtype itself, or in f32 for narrower
    // ones: computing them in f64 would round twice.
    let wide = scalar == Scalar::F64;
    let narrow = |v: f32| v as f64;
    let exact = match op {
        Op::Add if wide => a + b,
        Op::Add => narrow(a as f32 + b as f32),
        Op::Mul if wide => a * b,
        Op::Mul => narrow(a as f32 * b as f32),
        Op::Div if wide => a / b,
        Op::Div => narrow(a as f32 / b as f32),
        Op::Sqrt if wide => a.sqrt(),
        Op::Sqrt => narrow((a as f32).sqrt()),
        Op::Fma if wide => a.fma(b, get(2)),
        Op::Fma => narrow((a as f32).fma(b as f32, get(2) as f32)),
        Op::Trunc => a.trunc(),
        Op::Ldexp => ldexp(a, b),
        Op::Mod => remainder(a, b, scalar),
        // NaN propagates. Adding +0 turns a zero into +0, so that the order of operands does not
        // matter.
        Op::Max => (if a > b || a.is_nan() { a } else { b }) + 0.0,
        Op::Min => (if a < b || a.is_nan() { a } else { b }) + 0.0,
        Op::Rsqrt => 1.0 / a.sqrt(),
        Op::Exp => a.exp(),
        Op::Exp2 => a.exp2(),
        Op::Log => a.ln(),
        Op::Log2 => a.log2(),
        Op::Sin => trigonometry::sin(a),
        Op::Cos => trigonometry::cos(a),
        Op::Tan => trigonometry::tan(a),
        Op::Tanh => a.tanh(),
        Op::Sigmoid => 1.0 / (1.0 + (-a).exp()),
        Op::Erf => erf(a),
        Op::Pow => a.powf(b),
        _ => panic!("{op:?} is not an op of floats"),
    };
    crate::dtype::round_f64(exact, scalar)
}

/// Returns `x·2^⌊n⌋`, rounded once. An infinite `n` counts as the largest finite one.
pub(crate) fn ldexp(x: f64, n: f64) -> f64 {
    if x.is_nan() || n.is_nan() {
        return f64::NAN;
    }
    // Any number that is not zero overflows or becomes zero at the limits.
    let (mut x, mut n) = (x, n.floor().clamp(-2200.0, 2200.0) as i32);
    while n > 1023 {
        (x, n) = (x * 2f64.powi(1023), n - 1023);
    }
    while n < -1022 {
        // A product below the normal numbers has less than half of the least number at the end, so
        // that rounding it here does not matter.
        (x, n) = (x * 2f64.powi(53 - 1022), n + 1022 - 53);
    }
    x * f64::from_bits(((n + 1023) as u64) << 52)
}

/// Returns the remainder of floor division. It is exact, except for one rounding if the divisor is
/// added to a remainder of the other sign. A zero has the divisor's sign.
fn remainder(a: f64, b: f64, scalar: Scalar) -> f64 {
    let rest = a % b;
    if rest == 0.0 {
        return 0f64.copysign(b);
    }
    if (rest < 0.0) == (b < 0.0) || rest.is_nan() {
        return rest;
    }
    // Narrow floats are computed in f32: an f64 sum would be rounded twice.
    if scalar == Scalar::F64 { rest + b } else { (rest as f32 + b as f32) as f64 }
}

/// Returns the value of an expression without memory, given values for its leaves (ranges,
/// variables, specials). Scalars only.
#[cfg(feature = "testing")]
pub fn eval(u: &UOp, leaves: &FxHashMap<UOp, Const>) -> Const {
    let mut values: FxHashMap<u64, Const> = FxHashMap::default();
    for n in u.toposort() {
        let value = match (leaves.get(&n), n.arg()) {
            (Some(v), _) => *v,
            (None, Arg::Const(c)) => *c,
            (None, _) if n.op().is_alu() => {
                let args: smallvec::SmallVec<[Const; 3]> =
                    n.src().iter().map(|s| values[&s.id()]).collect();
                alu(n.op(), n.dtype(), n.operand_dtype(), &args)
            }
            _ => panic!("no value for {n:?}"),
        };
        values.insert(n.id(), value);
    }
    values[&u.id()]
}
