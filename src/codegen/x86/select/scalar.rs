//! Integers and bools in general registers.

use super::{Place, Select, Value};
use crate::codegen::x86::inst::{Cond, Form, R32, R64, Row};
use crate::codegen::x86::rows_general as g;
use crate::dtype::{Const, DType};
use crate::ir::{Group, Op};
use regalloc2::{Operand, PReg, RegClass, VReg};

/// Returns the form of arithmetic on a dtype.
pub(super) fn width(dtype: DType) -> Form {
    if dtype.bits() == 64 { R64 } else { R32 }
}

impl Select {
    /// Returns all 64 bits of an integer: those of a narrower one are extended.
    pub fn wide(&mut self, x: &Value) -> VReg {
        match x.place {
            Place::General { reg, wide: true } => reg,
            Place::Const(_) => self.reg(x),
            _ => {
                let reg = self.reg(x);
                if x.dtype.is_unsigned() || x.dtype.is_bool() {
                    // A move of 32 bits clears the others.
                    self.r(&g::LOAD, R32, &[reg], 0)
                } else {
                    self.r(&g::MOVSXD, R64, &[reg], 0)
                }
            }
        }
    }

    /// Restores the form of integers of 8 and 16 bits after arithmetic in 32.
    pub fn extended(&mut self, reg: VReg, dtype: DType) -> Value {
        let unsigned = dtype.is_unsigned() || dtype.is_narrow_float();
        let row: Option<&'static Row> = match (dtype.bits(), unsigned) {
            _ if dtype.is_bool() => None,
            (8, true) => Some(&g::MOVZX8),
            (8, false) => Some(&g::MOVSX8),
            (16, true) => Some(&g::MOVZX16),
            (16, false) => Some(&g::MOVSX16),
            _ => None,
        };
        let reg = row.map_or(reg, |row| self.r(row, R32, &[reg], 0));
        Value::general(reg, dtype)
    }

    /// Emits an op on scalars that are all in general registers.
    pub fn scalar_op(&mut self, op: Op, dtype: DType, x: &[Value]) -> Value {
        let from = x[0].dtype;
        if op.is(Group::Comparison) {
            return self.scalar_compare(op, &x[0], &x[1]);
        }
        if dtype.is_bool() {
            return self.bool_op(op, &x[0], &x[1]);
        }
        match op {
            Op::Max | Op::Min => self.scalar_extreme(op, &x[0], &x[1]),
            Op::CDiv | Op::CMod => {
                self.divide(op, x[0].clone(), x[1].clone(), dtype, from.is_unsigned())
            }
            Op::Shl | Op::Shr => self.scalar_shift(op, &x[0], &x[1]),
            _ => self.arithmetic(op, dtype, &x[0], &x[1]),
        }
    }

    fn bool_op(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let (row, row_i): (&'static Row, &'static Row) = match op {
            Op::Add | Op::Or | Op::Max => (&g::OR, &g::OR_I),
            Op::Xor => (&g::XOR, &g::XOR_I),
            _ => (&g::AND, &g::AND_I),
        };
        let (x, y) = if x.as_const().is_some() { (y, x) } else { (x, y) };
        let a = self.reg(x);
        let reg = match y.as_const() {
            Some(c) => self.r(row_i, R32, &[a], i64::from(c.is_true())),
            None => {
                let b = self.reg(y);
                self.r(row, R32, &[a, b], 0)
            }
        };
        Value::general(reg, x.dtype)
    }

    fn arithmetic(&mut self, op: Op, dtype: DType, x: &Value, y: &Value) -> Value {
        let (rows, rows_i): (&'static Row, &'static Row) = match op {
            Op::Add => (&g::ADD, &g::ADD_I),
            Op::Mul => (&g::IMUL, &g::IMUL_I),
            Op::And => (&g::AND, &g::AND_I),
            Op::Or => (&g::OR, &g::OR_I),
            Op::Xor => (&g::XOR, &g::XOR_I),
            _ => unreachable!("{op:?} is not an op of integers after lowering"),
        };
        let (x, y) = if x.as_const().is_some() { (y, x) } else { (x, y) };
        let form = width(dtype);
        let a = self.reg(x);
        let immediate = y.as_int().and_then(|v| match form {
            R32 => Some(i64::from(v as i32)),
            _ => i32::try_from(v).ok().map(i64::from),
        });
        let reg = match immediate {
            Some(v) if op == Op::Mul && v > 0 && v.count_ones() == 1 => {
                self.r(&g::SHL_I, form, &[a], i64::from(v.trailing_zeros()))
            }
            Some(v) => self.r(rows_i, form, &[a], v),
            None => {
                let b = self.reg(y);
                self.r(rows, form, &[a, b], 0)
            }
        };
        match op {
            Op::Add | Op::Mul => self.extended(reg, dtype),
            // Both operands are extended, so that the result is.
            _ => Value::general(reg, dtype),
        }
    }

    /// Sets the flags by a comparison of two integers.
    pub fn compare_general(&mut self, x: &Value, y: &Value) {
        let form = width(x.dtype);
        let a = self.reg(x);
        let immediate = y.as_int().and_then(|v| match form {
            R32 => Some(i64::from(v as i32)),
            _ => i32::try_from(v).ok().map(i64::from),
        });
        match immediate {
            Some(0) => self.flags(&g::TEST, form, &[a, a], 0),
            Some(v) => self.flags(&g::CMP_I, form, &[a], v),
            None => {
                let b = self.reg(y);
                self.flags(&g::CMP, form, &[a, b], 0);
            }
        }
    }

    fn scalar_compare(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let is_signed = x.dtype.is_signed_int();
        let cond = match op {
            Op::Lt if is_signed => Cond::L,
            Op::Lt => Cond::B,
            Op::Eq => Cond::E,
            _ => Cond::Ne,
        };
        self.compare_general(x, y);
        let reg = self.set(cond);
        Value::general(reg, DType::BOOL)
    }

    fn scalar_extreme(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let cond = match (op == Op::Max, x.dtype.is_signed_int()) {
            (true, true) => Cond::G,
            (true, false) => Cond::A,
            (false, true) => Cond::L,
            (false, false) => Cond::B,
        };
        let (a, b) = (self.reg(x), self.reg(y));
        let form = width(x.dtype);
        self.flags(&g::CMP, form, &[a, b], 0);
        let reg = self.choose(cond, form, a, b);
        Value::general(reg, x.dtype)
    }

    /// Emits a shift. Lowering ensures that the count is below the width.
    fn scalar_shift(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let (dtype, form) = (x.dtype, width(x.dtype));
        let is_signed = dtype.is_signed_int();
        let a = self.reg(x);
        let reg = match y.as_int() {
            Some(count) => {
                let row = match op {
                    Op::Shl => &g::SHL_I,
                    _ if is_signed => &g::SAR_I,
                    _ => &g::SHR_I,
                };
                self.r(row, form, &[a], count & (i64::from(dtype.bits()) - 1))
            }
            None => {
                let mut count = self.reg(y);
                if dtype.bits() < 32 {
                    count = self.r(&g::AND_I, R32, &[count], i64::from(dtype.bits()) - 1);
                }
                self.shift_by(op, is_signed, form, a, count)
            }
        };
        if op == Op::Shl { self.extended(reg, dtype) } else { Value::general(reg, dtype) }
    }

    fn shift_by(&mut self, op: Op, is_signed: bool, form: Form, x: VReg, count: VReg) -> VReg {
        if self.isa.avx() {
            let row = match op {
                Op::Shl => &g::SHLX,
                _ if is_signed => &g::SARX,
                _ => &g::SHRX,
            };
            return self.r(row, form, &[x, count], 0);
        }
        let row = match op {
            Op::Shl => &g::SHL_CL,
            _ if is_signed => &g::SAR_CL,
            _ => &g::SHR_CL,
        };
        let def = self.int();
        let rcx = PReg::new(1, RegClass::Int);
        let ops = [
            Operand::reg_reuse_def(def, 1),
            Operand::reg_use(x),
            Operand::reg_fixed_use(count, rcx),
        ];
        self.push(crate::codegen::mir::Inst::new(row, form, ops));
        def
    }

    /// Selects one of two scalars in general registers.
    pub fn choose_general(&mut self, condition: &Value, yes: &Value, no: &Value) -> Value {
        let form = width(yes.dtype);
        let (c, yes_reg, no_reg) = (self.reg(condition), self.reg(yes), self.reg(no));
        self.flags(&g::TEST, R32, &[c, c], 0);
        let reg = self.choose(Cond::Ne, form, yes_reg, no_reg);
        Value::general(reg, yes.dtype)
    }

    /// Returns 0 minus an integer.
    pub fn negated(&mut self, x: &Value) -> Value {
        if let Some(Const::Int(v)) = x.as_const() {
            return Value::constant(v.wrapping_neg(), x.dtype);
        }
        let form = width(x.dtype);
        let a = self.reg(x);
        let reg = self.r(&g::NEG, form, &[a], 0);
        self.extended(reg, x.dtype)
    }
}
