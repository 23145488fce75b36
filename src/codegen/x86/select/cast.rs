//! Conversions, exactly as [`Const::cast`](crate::dtype::Const::cast) defines them.

use super::elementwise::like;
use super::emit::size;
use super::regions::in_vector;
use super::scalar::width;
use super::{Registers, Select, Value};
use crate::codegen::x86::inst::{Cond, R64, Row};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_int as p;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{Const, DType, Scalar};
use crate::ir::Op;
use regalloc2::VReg;

const TWO_31: f64 = 2147483648.0;
const TWO_32: f64 = 4294967296.0;
const TWO_63: f64 = 9223372036854775808.0;
const TWO_64: f64 = 18446744073709551616.0;

impl Select {
    /// Returns the value converted.
    pub(super) fn cast(&mut self, x: &Value, to: DType) -> Value {
        let from = x.dtype;
        if from == to {
            return x.clone();
        }
        if from.is_narrow_float() {
            let wide = self.decode(x);
            return self.op(Op::Cast, to, &[wide]);
        }
        if to.is_narrow_float() {
            return self.narrow(x, to);
        }
        if to.is_bool() {
            let zero = if from.is_float() { Const::Float(0.0) } else { Const::Int(0) };
            return self.test_constant(Op::Ne, x, zero);
        }
        if to.lanes == 1 {
            return self.scalar_cast(x, to);
        }
        if from.is_bool() {
            return self.mask_numbers(x, to);
        }
        let whole = match (from.is_float(), to.is_float()) {
            (false, false) => self.integers(x, to),
            (false, true) => self.floats_of(x, to),
            (true, true) => {
                let row = if to.scalar == Scalar::F64 { &f::CVTPS2PD } else { &f::CVTPD2PS };
                Some(self.convert(row, x, to))
            }
            (true, false) => self.saturate(x, to),
        };
        whole.unwrap_or_else(|| self.by_lanes(Op::Cast, to, std::slice::from_ref(x)))
    }

    fn scalar_cast(&mut self, x: &Value, to: DType) -> Value {
        match (x.dtype.is_float(), to.is_float()) {
            (false, false) => {
                if to.bits() == 64 {
                    let reg = self.wide(x);
                    return Value::general(reg, to);
                }
                let reg = self.reg(x);
                self.extended(reg, to)
            }
            (false, true) => self.scalar_to_float(x, to),
            (true, true) => {
                let row = if to.scalar == Scalar::F64 { &f::CVTPS2PD } else { &f::CVTPD2PS };
                let (form, a) = (self.form(16), self.regs(x));
                let reg = self.v(row, form, &[a[0]]);
                Value::vector([reg], to)
            }
            (true, false) => self.scalar_saturate(x, to),
        }
    }

    fn scalar_to_float(&mut self, x: &Value, to: DType) -> Value {
        let form = self.form(16);
        let double = usize::from(to.scalar == Scalar::F64);
        let upper = self.splat_constant(0, 1, form);
        let reg = match (x.dtype.scalar, self.isa.masks()) {
            (Scalar::U64, true) => {
                let reg = self.reg(x);
                self.v([&f::CVTUQ2SS, &f::CVTUQ2SD][double], form, &[upper, reg])
            }
            (Scalar::U64, false) => {
                // A number above 2^63 is halved, with its last bit in the one above, and doubled.
                let signed = x.clone().with(DType::I64);
                let half = self.with_constant(Op::Shr, x, 1);
                let last = self.with_constant(Op::And, x, 1);
                let half = self.binary(Op::Or, &half, &last).with(DType::I64);
                let big = self.test_constant(Op::Lt, &signed, 0);
                let fits = self.select(&big, &half, &signed);
                let number = self.op(Op::Cast, to, &[fits]);
                let doubled = self.binary(Op::Add, &number, &number);
                return self.select(&big, &doubled, &number);
            }
            (Scalar::I64 | Scalar::U32, _) => {
                let reg = self.wide(x);
                self.v([&f::CVTSQ2SS, &f::CVTSQ2SD][double], form, &[upper, reg])
            }
            _ => {
                let reg = self.reg(x);
                self.v([&f::CVTSI2SS, &f::CVTSI2SD][double], form, &[upper, reg])
            }
        };
        Value::vector([reg], to)
    }

    /// Rounds a scalar toward zero and saturates; NaN is 0. The instruction returns the least
    /// integer for what it cannot represent.
    fn scalar_saturate(&mut self, x: &Value, to: DType) -> Value {
        match to.scalar {
            Scalar::I32 | Scalar::I64 => {}
            Scalar::U64 => return self.scalar_to_u64(x),
            Scalar::U32 => {
                let whole = self.op(Op::Cast, DType::I64, std::slice::from_ref(x));
                let whole = self.clamped(&whole, to);
                return self.op(Op::Cast, to, &[whole]);
            }
            _ => {
                let whole = self.op(Op::Cast, DType::I32, std::slice::from_ref(x));
                let whole = self.clamped(&whole, to);
                return self.op(Op::Cast, to, &[whole]);
            }
        }
        let (form, limit) = (width(to), if to.scalar == Scalar::I32 { TWO_31 } else { TWO_63 });
        let truncated = self.truncated(x, to);
        let (greatest, zero) = (Value::constant(to.max_value(), to), Value::constant(0, to));
        let (greatest, zero) = (self.reg(&greatest), self.reg(&zero));
        let limit = Value::constant(limit, x.dtype);
        self.compare_flags(x, &limit);
        let whole = self.choose(Cond::Ae, form, greatest, truncated);
        self.compare_flags(x, x);
        let whole = self.choose(Cond::P, form, zero, whole);
        Value::general(whole, to)
    }

    /// Sets the flags by a comparison of scalar floats.
    fn compare_flags(&mut self, x: &Value, y: &Value) {
        let row = if x.dtype.scalar == Scalar::F64 { &f::UCOMISD } else { &f::UCOMISS };
        let (form, a, b) = (self.form(16), self.regs(x)[0], self.regs(y)[0]);
        self.flags(row, form, &[a, b], 0);
    }

    /// Returns a scalar float as an i32 or i64, rounded toward zero.
    fn truncated(&mut self, x: &Value, to: DType) -> VReg {
        let (form, a) = (self.form(16), self.regs(x)[0]);
        let row = match (x.dtype.scalar == Scalar::F64, to.bits() == 64) {
            (false, false) => &f::CVTTSS2SI,
            (false, true) => &f::CVTTSS2SQ,
            (true, false) => &f::CVTTSD2SI,
            (true, true) => &f::CVTTSD2SQ,
        };
        self.r(row, form, &[a], 0)
    }

    fn scalar_to_u64(&mut self, x: &Value) -> Value {
        let low = self.truncated(x, DType::I64);
        let shifted = self.with_constant(Op::Add, x, -TWO_63);
        let high = self.truncated(&shifted, DType::I64);
        let high = Value::general(high, DType::I64);
        let high = self.with_constant(Op::Xor, &high, i64::MIN);
        let (high, limit) = (self.reg(&high), Value::constant(TWO_63, x.dtype));
        self.compare_flags(x, &limit);
        let whole = self.choose(Cond::Ae, R64, high, low);
        let (greatest, limit) = (self.general_constant(-1), Value::constant(TWO_64, x.dtype));
        self.compare_flags(x, &limit);
        let whole = self.choose(Cond::Ae, R64, greatest, whole);
        let (zero, limit) = (self.general_constant(0), Value::constant(0.0, x.dtype));
        // "Below or equal" also holds for NaN.
        self.compare_flags(x, &limit);
        let whole = self.choose(Cond::Be, R64, zero, whole);
        Value::general(whole, DType::U64)
    }

    /// Limits integers to the values of a narrower dtype.
    fn clamped(&mut self, x: &Value, to: DType) -> Value {
        let bound = |c: Const| match c {
            Const::Int(v) => v,
            _ => unreachable!("an integer dtype has integer limits"),
        };
        let least = bound(to.scalar().min_value());
        let greatest = bound(to.scalar().max_value());
        let x = self.with_constant(Op::Max, x, least);
        self.with_constant(Op::Min, &x, greatest)
    }

    /// Applies an instruction that changes the size of elements to each register.
    pub(super) fn convert(&mut self, row: &'static Row, x: &Value, to: DType) -> Value {
        let regs = self.regs(x);
        let (from_form, _) = self.layout(x.dtype);
        let (form, count) = self.layout(to);
        let (before, after) = (size(x.dtype), size(to));
        let regs: Registers = if after > before {
            let bytes = form.bytes() * before / after;
            (0..count)
                .map(|i| {
                    let part = self.part(&regs, from_form, i * bytes, bytes);
                    self.v(row, form, &[part])
                })
                .collect()
        } else {
            let parts: Vec<VReg> = regs
                .iter()
                .map(|reg| match row.operands.ends_with('i') {
                    true => self.vi(row, from_form, &[*reg], 0),
                    false => self.v(row, from_form, &[*reg]),
                })
                .collect();
            self.joined(parts, from_form.bytes() * after / before, form)
        };
        Value::vector(regs, to)
    }

    /// Converts vectors of integers; none if there is no instruction for it.
    fn integers(&mut self, x: &Value, to: DType) -> Option<Value> {
        let (before, after) = (size(x.dtype), size(to));
        let (from_log, log) = (before.trailing_zeros(), after.trailing_zeros());
        if before == after {
            return Some(x.clone().with(to));
        }
        if after > before {
            if !self.isa.sse4() {
                return None;
            }
            let row = match (from_log, log, x.dtype.is_unsigned()) {
                (0, 1, false) => &p::PMOVSXBW,
                (0, 2, false) => &p::PMOVSXBD,
                (0, _, false) => &p::PMOVSXBQ,
                (1, 2, false) => &p::PMOVSXWD,
                (1, _, false) => &p::PMOVSXWQ,
                (_, _, false) => &p::PMOVSXDQ,
                (0, 1, true) => &p::PMOVZXBW,
                (0, 2, true) => &p::PMOVZXBD,
                (0, _, true) => &p::PMOVZXBQ,
                (1, 2, true) => &p::PMOVZXWD,
                (1, _, true) => &p::PMOVZXWQ,
                (_, _, true) => &p::PMOVZXDQ,
            };
            return Some(self.convert(row, x, to));
        }
        if self.isa.masks() {
            let row = match (from_log, log) {
                (1, _) => &p::PMOVWB,
                (2, 0) => &p::PMOVDB,
                (2, _) => &p::PMOVDW,
                (_, 0) => &p::PMOVQB,
                (_, 1) => &p::PMOVQW,
                _ => &p::PMOVQD,
            };
            return Some(self.convert(row, x, to));
        }
        if !self.isa.sse4() {
            return None;
        }
        // The low bytes of each element move to the front of its 16 bytes.
        let (form, _) = self.layout(x.dtype);
        let (regs, narrow) = (self.regs(x), self.form(16));
        let total = before * x.dtype.lanes as usize;
        let mut order = [0x80u8; 16];
        for i in 0..16 / before {
            for j in 0..after {
                order[i * after + j] = (i * before + j) as u8;
            }
        }
        let order = self.bytes_constant(&order, narrow);
        let parts = (0..total.div_ceil(16))
            .map(|i| {
                let part = self.part(&regs, form, 16 * i, 16);
                self.v(&m::PSHUFB, narrow, &[part, order])
            })
            .collect();
        let (form, _) = self.layout(to);
        Some(Value::vector(self.joined(parts, 16 * after / before, form), to))
    }

    /// Converts vectors of integers to floats; none if there is no instruction for it.
    fn floats_of(&mut self, x: &Value, to: DType) -> Option<Value> {
        let double = to.scalar == Scalar::F64;
        let ints = like(to, Scalar::I32);
        let masks = self.isa.masks();
        let row = match (x.dtype.scalar, double) {
            (Scalar::I32, false) => &f::CVTDQ2PS,
            (Scalar::I32, true) => &f::CVTDQ2PD,
            (Scalar::U32, false) if masks => &f::CVTUDQ2PS,
            (Scalar::U32, true) if masks => &f::CVTUDQ2PD,
            (Scalar::I64, false) if masks => &f::CVTQQ2PS,
            (Scalar::I64, true) if masks => &f::CVTQQ2PD,
            (Scalar::U64, false) if masks => &f::CVTUQQ2PS,
            (Scalar::U64, true) if masks => &f::CVTUQQ2PD,
            (Scalar::U32, false) => {
                // Both halves are exact, so that the sum is rounded once.
                let high = self.with_constant(Op::Shr, x, 16).with(ints);
                let low = self.with_constant(Op::And, x, 0xffff).with(ints);
                let (high, low) = (self.op(Op::Cast, to, &[high]), self.op(Op::Cast, to, &[low]));
                let high = self.with_constant(Op::Mul, &high, 65536.0);
                return Some(self.binary(Op::Add, &high, &low));
            }
            (Scalar::U32, true) => {
                let shifted = x.clone().with(ints);
                let shifted = self.with_constant(Op::Xor, &shifted, i64::from(i32::MIN));
                let shifted = self.op(Op::Cast, to, &[shifted]);
                return Some(self.with_constant(Op::Add, &shifted, TWO_31));
            }
            (Scalar::I64 | Scalar::U64, _) => return None,
            _ => {
                let x = self.op(Op::Cast, ints, std::slice::from_ref(x));
                return Some(self.op(Op::Cast, to, &[x]));
            }
        };
        Some(self.convert(row, x, to))
    }

    /// Rounds vectors toward zero and saturates; NaN is 0. None if there is no instruction for it.
    fn saturate(&mut self, x: &Value, to: DType) -> Option<Value> {
        let double = x.dtype.scalar == Scalar::F64;
        let masks = self.isa.masks();
        let ints = like(to, Scalar::I32);
        let (row, limit) = match (to.scalar, double) {
            (Scalar::I32, false) => (&f::CVTTPS2DQ, TWO_31),
            (Scalar::I32, true) => (&f::CVTTPD2DQ, TWO_31),
            (Scalar::U32, false) if masks => (&f::CVTTPS2UDQ, TWO_32),
            (Scalar::U32, true) if masks => (&f::CVTTPD2UDQ, TWO_32),
            (Scalar::I64, false) if masks => (&f::CVTTPS2QQ, TWO_63),
            (Scalar::I64, true) if masks => (&f::CVTTPD2QQ, TWO_63),
            (Scalar::U64, false) if masks => (&f::CVTTPS2UQQ, TWO_64),
            (Scalar::U64, true) if masks => (&f::CVTTPD2UQQ, TWO_64),
            (Scalar::U32 | Scalar::I64 | Scalar::U64, _) => return None,
            _ => {
                let whole = self.op(Op::Cast, ints, std::slice::from_ref(x));
                let whole = self.clamped(&whole, to);
                return Some(self.op(Op::Cast, to, &[whole]));
            }
        };
        let whole = self.convert(row, x, to);
        let zero = Value::constant(0, to);
        if to.is_unsigned() {
            // The instruction returns the greatest integer for what it cannot represent.
            let (nothing, bound) = (Value::constant(0.0, x.dtype), zero);
            let is_positive = self.test(Op::Lt, &nothing, x);
            return Some(self.select(&is_positive, &whole, &bound));
        }
        let is_below = self.test_constant(Op::Lt, x, limit);
        let greatest = Value::constant(to.scalar().max_value(), to);
        let whole = self.select(&is_below, &whole, &greatest);
        let is_number = self.test(Op::Eq, x, x);
        Some(self.select(&is_number, &whole, &zero))
    }

    /// Returns the bits as another dtype of the same width.
    pub(super) fn bitcast(&mut self, x: &Value, to: DType) -> Value {
        let from = x.dtype;
        if from.is_bool() || to.is_bool() {
            // A bool is a byte, also where the other dtype is a float of 8 bits.
            let byte = DType { scalar: Scalar::U8, lanes: to.lanes };
            return match (from.is_float(), to.is_float()) {
                (true, _) => {
                    let bits = self.bitcast(x, byte);
                    self.cast(&bits, to)
                }
                (_, true) => {
                    let bits = self.cast(x, byte);
                    self.bitcast(&bits, to)
                }
                _ => self.cast(x, to),
            };
        }
        if to.lanes > 1 {
            return match x.as_const() {
                Some(c) => Value::constant(c.bitcast(from.scalar(), to.scalar()), to),
                None => x.clone().with(to),
            };
        }
        let form = self.form(16);
        match (in_vector(from), in_vector(to)) {
            (true, true) => x.clone().with(to),
            (false, false) => {
                let reg = self.reg(x);
                self.extended(reg, to)
            }
            (true, false) => {
                let a = self.regs(x)[0];
                let row = if to.bits() == 64 { &m::MOVQ_R } else { &m::MOVD_R };
                let reg = self.r(row, form, &[a], 0);
                Value::general(reg, to)
            }
            (false, true) => {
                let a = self.reg(x);
                let row = if to.bits() == 64 { &m::MOVQ } else { &m::MOVD };
                let reg = self.v(row, form, &[a]);
                Value::vector([reg], to)
            }
        }
    }
}
