//! Floats, and vectors of numbers.

use super::elementwise::like;
use super::emit::size;
use super::regions::in_vector;
use super::{Place, Registers, Select, Value};
use crate::codegen::x86::inst::{Cond, Form, R32, R64, Row};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_int as p;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{Const, DType, Scalar};
use crate::ir::Op;
use regalloc2::VReg;

/// A row for f32 and one for f64.
type Pair = [&'static Row; 2];

/// Predicates of float comparisons.
const EQUAL: i64 = 0;
const LESS: i64 = 1;
const UNORDERED: i64 = 3;
const NOT_EQUAL: i64 = 4;
/// Rounding toward zero, without an exception.
const TOWARD_ZERO: i64 = 11;

impl Select {
    /// Applies an instruction on two operands to each register.
    pub fn each2(&mut self, row: &'static Row, form: Form, x: &[VReg], y: &[VReg]) -> Registers {
        x.iter().zip(y).map(|(x, y)| self.v(row, form, &[*x, *y])).collect()
    }
    /// Applies an instruction on one operand to each register.
    pub fn each1(&mut self, row: &'static Row, form: Form, x: &[VReg]) -> Registers {
        x.iter().map(|x| self.v(row, form, &[*x])).collect()
    }

    /// Emits an op on floats; none if there is no instruction for it.
    pub(super) fn float_op(&mut self, op: Op, dtype: DType, x: &[Value]) -> Option<Value> {
        let (form, _) = self.layout(dtype);
        let double = usize::from(dtype.scalar == Scalar::F64);
        let scalar = dtype.lanes == 1;
        let rows: Pair = match op {
            Op::Mul if x.iter().any(|x| x.as_const() == Some(Const::Float(-1.0))) => {
                let other = usize::from(x[0].as_const().is_some());
                return Some(self.negate_float(&x[other]));
            }
            Op::Add => [&f::ADDPS, &f::ADDPD],
            Op::Mul => [&f::MULPS, &f::MULPD],
            Op::Div if scalar => [&f::DIVSS, &f::DIVSD],
            Op::Div => [&f::DIVPS, &f::DIVPD],
            Op::Sqrt => {
                let a = self.regs(&x[0]);
                let regs = if scalar {
                    let row = [&f::SQRTSS, &f::SQRTSD][double];
                    [self.v(row, form, &[a[0], a[0]])].into_iter().collect()
                } else {
                    self.each1([&f::SQRTPS, &f::SQRTPD][double], form, &a)
                };
                return Some(Value::vector(regs, dtype));
            }
            Op::Trunc => {
                let row = [&f::ROUNDPS, &f::ROUNDPD][double];
                if !self.isa.sse4() {
                    return None;
                }
                let a = self.regs(&x[0]);
                let regs: Registers =
                    a.iter().map(|a| self.vi(row, form, &[*a], TOWARD_ZERO)).collect();
                return Some(Value::vector(regs, dtype));
            }
            Op::Fma => {
                let row = [&f::FMADD231PS, &f::FMADD231PD][double];
                if !row.has(form) {
                    return None;
                }
                let [a, b, c] = [&x[0], &x[1], &x[2]].map(|x| self.regs(x));
                let regs: Registers =
                    (0..a.len()).map(|i| self.accumulate(row, form, c[i], &[a[i], b[i]])).collect();
                return Some(Value::vector(regs, dtype));
            }
            Op::Ldexp if self.isa.masks() => [&f::SCALEFPS, &f::SCALEFPD],
            Op::Max | Op::Min => {
                return Some(self.float_extreme(op, dtype, &x[0], &x[1], false));
            }
            _ => return None,
        };
        let (a, b) = (self.regs(&x[0]), self.regs(&x[1]));
        Some(Value::vector(self.each2(rows[double], form, &a, &b), dtype))
    }

    /// Flips the sign.
    pub fn negate_float(&mut self, x: &Value) -> Value {
        let (form, _) = self.layout(x.dtype);
        let a = self.regs(x);
        let bits = size(x.dtype) as u32 * 8;
        let sign = self.splat_constant(1 << (bits - 1), size(x.dtype), form);
        let regs: Registers = a.iter().map(|a| self.v(&f::XORPS, form, &[*a, sign])).collect();
        Value::vector(regs, x.dtype)
    }

    /// Emits the instruction for a maximum or minimum. It returns the second operand if one is NaN
    /// or both are zeros.
    pub(super) fn plain_extreme(&mut self, op: Op, dtype: DType, x: &Value, y: &Value) -> Value {
        let (form, _) = self.layout(dtype);
        let double = usize::from(dtype.scalar == Scalar::F64);
        let row = match op {
            Op::Max => [&f::MAXPS, &f::MAXPD][double],
            _ => [&f::MINPS, &f::MINPD][double],
        };
        let (a, b) = (self.regs(x), self.regs(y));
        Value::vector(self.each2(row, form, &a, &b), dtype)
    }

    /// Emits the maximum or minimum: a NaN in the first operand is put back, and adding +0 makes a
    /// zero result +0, unless the sign of a zero has no effect.
    pub(super) fn float_extreme(
        &mut self,
        op: Op,
        dtype: DType,
        x: &Value,
        y: &Value,
        any_zero: bool,
    ) -> Value {
        // A literal comes first: unless it is NaN, the test of it is dropped.
        let (x, y) = if y.as_const().is_some() { (y, x) } else { (x, y) };
        let mut best = self.plain_extreme(op, dtype, x, y);
        let is_number = matches!(x.as_const(), Some(Const::Float(v)) if !v.is_nan());
        if !is_number {
            let nan = self.float_masks(UNORDERED, x, x);
            best = self.choose_by_mask(&nan, x, &best);
        }
        if any_zero { best } else { self.with_constant(Op::Add, &best, 0.0) }
    }

    /// Returns the masks of a comparison of floats in vector registers, also of a scalar.
    fn float_masks(&mut self, predicate: i64, x: &Value, y: &Value) -> Registers {
        let (form, _) = self.layout(x.dtype);
        let double = usize::from(x.dtype.scalar == Scalar::F64);
        let (a, b) = (self.regs(x), self.regs(y));
        let both = a.iter().zip(&b);
        if self.isa.masks() {
            let row = [&f::KCMPPS, &f::KCMPPD][double];
            both.map(|(a, b)| self.k(row, form, &[*a, *b], predicate)).collect()
        } else {
            let row = [&f::CMPPS, &f::CMPPD][double];
            both.map(|(a, b)| self.vi(row, form, &[*a, *b], predicate)).collect()
        }
    }

    /// Selects lanes by masks of the size of the elements.
    pub(super) fn choose_by_mask(&mut self, masks: &[VReg], yes: &Value, no: &Value) -> Value {
        let (form, _) = self.layout(yes.dtype);
        let bytes = size(yes.dtype);
        let (yes_regs, no_regs) = (self.regs(yes), self.regs(no));
        let mut regs = Registers::new();
        for (i, mask) in masks.iter().enumerate() {
            let (yes, no, mask) = (yes_regs[i], no_regs[i], *mask);
            regs.push(if self.isa.masks() {
                let row = [&m::KBLENDB, &m::KBLENDW, &m::KBLENDPS, &m::KBLENDPD]
                    [bytes.trailing_zeros() as usize];
                self.blend(row, form, mask, yes, no)
            } else if self.isa.avx() {
                let row = if bytes >= 4 { &m::BLENDVPS } else { &m::BLENDVB };
                self.v(row, form, &[no, yes, mask])
            } else {
                let kept = self.v(&f::ANDPS, form, &[mask, yes]);
                let others = self.v(&f::ANDNPS, form, &[mask, no]);
                self.v(&f::ORPS, form, &[kept, others])
            });
        }
        Value::vector(regs, yes.dtype)
    }

    /// Selects one of two values, lane by lane if the condition has lanes.
    pub(super) fn choose_lanes(&mut self, condition: &Value, yes: &Value, no: &Value) -> Value {
        let dtype = yes.dtype;
        if let Some(c) = condition.as_const() {
            return if c.is_true() { yes.clone() } else { no.clone() };
        }
        if condition.dtype.lanes == 1 && !in_vector(dtype) {
            return self.choose_general(condition, yes, no);
        }
        let every;
        let condition = if condition.dtype.lanes < dtype.lanes {
            every = self.broadcast(condition, like(dtype, Scalar::Bool));
            &every
        } else {
            condition
        };
        if dtype.is_bool() {
            let kept = self.mask_op(Op::And, condition, yes);
            let not = self.mask_op(Op::Eq, condition, &Value::constant(false, dtype));
            let others = self.mask_op(Op::And, &not, no);
            return self.mask_op(Op::Or, &kept, &others);
        }
        let masks = if condition.dtype.lanes == 1 {
            [self.scalar_mask(condition, size(dtype))].into_iter().collect()
        } else {
            self.mask_of(condition, size(dtype))
        };
        self.choose_by_mask(&masks, yes, no)
    }

    /// Returns a mask of the lowest lane, of a size in bytes, for a scalar bool.
    pub(super) fn scalar_mask(&mut self, condition: &Value, size: usize) -> VReg {
        let reg = self.reg(condition);
        if self.isa.masks() {
            return self.k(&m::KMOV_FROM_R, Form::Evex16, &[reg], 0);
        }
        let form = self.form(16);
        let (row, width) = if size == 8 { (&m::MOVQ, R64) } else { (&m::MOVD, R32) };
        let ones = self.r(&g::NEG, width, &[reg], 0);
        self.v(row, form, &[ones])
    }

    /// Compares numbers; none if there is no instruction for it.
    pub(super) fn compare(&mut self, op: Op, dtype: DType, x: &Value, y: &Value) -> Option<Value> {
        let from = x.dtype;
        if from.is_bool() {
            return Some(self.mask_op(op, x, y));
        }
        if from.lanes == 1 {
            return Some(self.compare_scalar_floats(op, x, y));
        }
        let regs = if from.is_float() && !from.is_narrow_float() {
            let predicate = match op {
                Op::Lt => LESS,
                Op::Eq => EQUAL,
                _ => NOT_EQUAL,
            };
            self.float_masks(predicate, x, y)
        } else {
            self.integer_masks(op, x, y)?
        };
        Some(Value { place: Place::Mask { size: size(from), regs }, dtype })
    }

    fn compare_scalar_floats(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let form = self.form(16);
        let row = if x.dtype.scalar == Scalar::F64 { &f::UCOMISD } else { &f::UCOMISS };
        let (a, b) = (self.regs(x)[0], self.regs(y)[0]);
        let reg = if op == Op::Lt {
            // "Above" is false where a NaN is involved.
            self.flags(row, form, &[b, a], 0);
            self.set(Cond::A)
        } else {
            self.flags(row, form, &[a, b], 0);
            let (cond, ordered, join) = if op == Op::Eq {
                (Cond::E, Cond::Np, &g::AND)
            } else {
                (Cond::Ne, Cond::P, &g::OR)
            };
            let (first, second) = (self.set(cond), self.set(ordered));
            self.r(join, R32, &[first, second], 0)
        };
        Value::general(reg, DType::BOOL)
    }

    /// Returns the masks of a comparison of integers.
    fn integer_masks(&mut self, op: Op, x: &Value, y: &Value) -> Option<Registers> {
        let (form, _) = self.layout(x.dtype);
        let log = size(x.dtype).trailing_zeros() as usize;
        let unsigned = !x.dtype.is_signed_int();
        if self.isa.masks() {
            let rows: [&'static Row; 4] = if unsigned {
                [&p::KPCMPUB, &p::KPCMPUW, &p::KPCMPUD, &p::KPCMPUQ]
            } else {
                [&p::KPCMPB, &p::KPCMPW, &p::KPCMPD, &p::KPCMPQ]
            };
            let predicate = match op {
                Op::Lt => LESS,
                Op::Eq => EQUAL,
                _ => NOT_EQUAL,
            };
            let (a, b) = (self.regs(x), self.regs(y));
            let both = a.iter().zip(&b);
            return Some(
                both.map(|(a, b)| self.k(rows[log], form, &[*a, *b], predicate)).collect(),
            );
        }
        if log == 3 && !self.isa.sse4() {
            return None;
        }
        if op != Op::Lt {
            let row = [&p::PCMPEQB, &p::PCMPEQW, &p::PCMPEQD, &p::PCMPEQQ][log];
            let (a, b) = (self.regs(x), self.regs(y));
            let equal = self.each2(row, form, &a, &b);
            return Some(if op == Op::Eq { equal } else { self.inverted(form, &equal) });
        }
        let (mut x, mut y) = (x.clone(), y.clone());
        if unsigned {
            // Without their highest bit unsigned numbers are in the order of signed ones.
            let bits = 8 * size(x.dtype) as u32;
            let signed = like(x.dtype, [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64][log]);
            let least = i64::MIN >> (64 - bits);
            let flip = |s: &mut Self, v: Value| {
                let v = s.bitcast(&v, signed);
                s.with_constant(Op::Xor, &v, least)
            };
            (x, y) = (flip(self, x), flip(self, y));
        }
        let row = [&p::PCMPGTB, &p::PCMPGTW, &p::PCMPGTD, &p::PCMPGTQ][log];
        let (a, b) = (self.regs(&x), self.regs(&y));
        Some(self.each2(row, form, &b, &a))
    }

    /// Returns vectors with every bit inverted.
    pub(super) fn inverted(&mut self, form: Form, x: &[VReg]) -> Registers {
        let ones = self.splat_constant(u64::MAX, 8, form);
        x.iter().map(|x| self.v(&f::XORPS, form, &[*x, ones])).collect()
    }

    /// Emits an op on integers; none if there is no instruction for it.
    pub(super) fn integer_op(&mut self, op: Op, dtype: DType, x: &[Value]) -> Option<Value> {
        let (form, _) = self.layout(dtype);
        let log = size(dtype).trailing_zeros() as usize;
        let unsigned = dtype.is_unsigned();
        if matches!(op, Op::Shl | Op::Shr) {
            return self.vector_shift(op, dtype, x);
        }
        let row: &'static Row = match op {
            Op::Add => [&p::PADDB, &p::PADDW, &p::PADDD, &p::PADDQ][log],
            Op::And => &p::PAND,
            Op::Or => &p::POR,
            Op::Xor => &p::PXOR,
            Op::Mul => match log {
                1 => &p::PMULLW,
                2 if self.isa.sse4() => &p::PMULLD,
                3 if self.isa.masks() => &p::PMULLQ,
                _ => return None,
            },
            Op::Max | Op::Min => return Some(self.integer_extreme(op, unsigned, &x[0], &x[1])),
            _ => return None,
        };
        let (a, b) = (self.regs(&x[0]), self.regs(&x[1]));
        Some(Value::vector(self.each2(row, form, &a, &b), dtype))
    }

    fn integer_extreme(&mut self, op: Op, unsigned: bool, x: &Value, y: &Value) -> Value {
        let (form, _) = self.layout(x.dtype);
        let log = size(x.dtype).trailing_zeros() as usize;
        let rows: [&'static Row; 4] = match (op == Op::Max, unsigned) {
            (true, true) => [&p::PMAXUB, &p::PMAXUW, &p::PMAXUD, &p::PMAXUQ],
            (true, false) => [&p::PMAXSB, &p::PMAXSW, &p::PMAXSD, &p::PMAXSQ],
            (false, true) => [&p::PMINUB, &p::PMINUW, &p::PMINUD, &p::PMINUQ],
            (false, false) => [&p::PMINSB, &p::PMINSW, &p::PMINSD, &p::PMINSQ],
        };
        // SSE2 has two of them, AVX-512 those of 64 bits.
        let early = matches!((log, unsigned), (0, true) | (1, false));
        let has = if log == 3 { self.isa.masks() } else { early || self.isa.sse4() };
        if has {
            let (a, b) = (self.regs(x), self.regs(y));
            return Value::vector(self.each2(rows[log], form, &a, &b), x.dtype);
        }
        let less = self.test(Op::Lt, x, y);
        if op == Op::Max { self.select(&less, y, x) } else { self.select(&less, x, y) }
    }

    fn vector_shift(&mut self, op: Op, dtype: DType, x: &[Value]) -> Option<Value> {
        let (form, _) = self.layout(dtype);
        let log = size(dtype).trailing_zeros() as usize;
        let kind = match (op, dtype.is_signed_int()) {
            (Op::Shl, _) => 0,
            (_, false) => 1,
            (_, true) => 2,
        };
        if let Some(count) = x[1].as_int() {
            let row: &'static Row = match (kind, log) {
                (0, 1) => &p::PSLLW_I,
                (0, 2) => &p::PSLLD_I,
                (0, 3) => &p::PSLLQ_I,
                (1, 1) => &p::PSRLW_I,
                (1, 2) => &p::PSRLD_I,
                (1, 3) => &p::PSRLQ_I,
                (2, 1) => &p::PSRAW_I,
                (2, 2) => &p::PSRAD_I,
                (2, 3) if self.isa.masks() => &p::PSRAQ_I,
                _ => return None,
            };
            let count = count & (i64::from(dtype.bits()) - 1);
            let a = self.regs(&x[0]);
            let regs: Registers = a.iter().map(|a| self.vi(row, form, &[*a], count)).collect();
            return Some(Value::vector(regs, dtype));
        }
        let row: &'static Row = match (kind, log) {
            (0, 1) => &p::PSLLVW,
            (0, 2) => &p::PSLLVD,
            (0, 3) => &p::PSLLVQ,
            (1, 1) => &p::PSRLVW,
            (1, 2) => &p::PSRLVD,
            (1, 3) => &p::PSRLVQ,
            (2, 1) => &p::PSRAVW,
            (2, 2) => &p::PSRAVD,
            (2, 3) => &p::PSRAVQ,
            _ => return None,
        };
        if !row.has(form) {
            return None;
        }
        let (a, b) = (self.regs(&x[0]), self.regs(&x[1]));
        Some(Value::vector(self.each2(row, form, &a, &b), dtype))
    }
}
