//! Division of scalar integers toward zero. The divisor is not 0, and the quotient does not
//! overflow: lowering ensures both.

use super::scalar::width;
use super::{Select, Value};
use crate::codegen::mir::Inst;
use crate::codegen::x86::inst::{R32, R64};
use crate::codegen::x86::rows_general as g;
use crate::dtype::DType;
use crate::ir::Op;
use regalloc2::{Operand, PReg, RegClass, VReg};

const RAX: PReg = PReg::new(0, RegClass::Int);
const RDX: PReg = PReg::new(2, RegClass::Int);

impl Select {
    /// Emits a quotient or a remainder. `is_positive` says that the dividend is not negative.
    pub fn divide(&mut self, op: Op, x: Value, y: Value, dtype: DType, is_positive: bool) -> Value {
        if let Some(by) = y.as_int().filter(|by| *by > 0 && is_positive)
            && let Some(quotient) = self.quotient(&x, by, dtype)
        {
            if op == Op::CDiv {
                return quotient;
            }
            let product = self.with_constant(Op::Mul, &quotient, by);
            let minus = self.negated(&product);
            return self.binary(Op::Add, &x, &minus);
        }
        let form = width(dtype);
        let unsigned = dtype.is_unsigned();
        let (a, b) = (self.reg(&x), self.reg(&y));
        let high = self.int();
        let defined = Operand::reg_fixed_def(high, RDX);
        if unsigned {
            self.push(Inst::new(&g::MOV_I, R32, [defined]));
        } else {
            self.push(Inst::new(&g::CDQ, form, [defined, Operand::reg_fixed_use(a, RAX)]));
        }
        let (quotient, rest) = (self.int(), self.int());
        let row = if unsigned { &g::DIV } else { &g::IDIV };
        let ops = [
            Operand::reg_use(b),
            Operand::reg_fixed_use(a, RAX),
            Operand::reg_fixed_use(high, RDX),
            Operand::reg_fixed_def(quotient, RAX),
            Operand::reg_fixed_def(rest, RDX),
        ];
        self.push(Inst::new(row, form, ops));
        let reg = if op == Op::CDiv { quotient } else { rest };
        self.extended(reg, dtype)
    }

    /// Returns the quotient of a number from 0 on by a constant: a shift, or the product with the
    /// reciprocal. With L = ⌈log₂ d⌉ and m = ⌈2^(31+L) / d⌉ the error m·d − 2^(31+L) is below 2^L,
    /// so that m·x >> (31+L) is exact for x < 2^31, and m·x < 2^63.
    fn quotient(&mut self, x: &Value, by: i64, dtype: DType) -> Option<Value> {
        let form = width(dtype);
        if by.count_ones() == 1 {
            let a = self.reg(x);
            let reg = self.r(&g::SHR_I, form, &[a], i64::from(by.trailing_zeros()));
            return Some(Value::general(reg, dtype));
        }
        if dtype.bits() == 64 || (dtype.is_unsigned() && dtype.bits() == 32) || by >= 1 << 31 {
            return None;
        }
        let a: VReg = self.wide(x);
        let log = 64 - (by - 1).leading_zeros();
        let reciprocal = (1u64 << (31 + log)).div_ceil(by as u64);
        let factor = self.general_constant(reciprocal as i64);
        let product = self.r(&g::IMUL, R64, &[a, factor], 0);
        let reg = self.r(&g::SHR_I, R64, &[product], i64::from(31 + log));
        // The quotient is not negative, and all 64 bits are known.
        let place = super::Place::General { reg, wide: true };
        Some(Value { place, dtype })
    }
}
