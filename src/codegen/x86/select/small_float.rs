//! Floats of 16 and 8 bits: by integer arithmetic, except f16 from and to f32 where there is an
//! instruction.

use super::elementwise::like;
use super::{Select, Value};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{DType, Scalar};
use crate::ir::Op;
use crate::render::facts::layout;

impl Select {
    /// Returns small floats as f32.
    pub(super) fn decode(&mut self, x: &Value) -> Value {
        let small = x.dtype;
        let (f32s, u32s) = (like(small, Scalar::F32), like(small, Scalar::U32));
        let codes = like(small, if small.bits() == 16 { Scalar::U16 } else { Scalar::U8 });
        if small.scalar == Scalar::F16 && self.isa.avx() {
            if small.lanes > 1 {
                return self.convert(&f::CVTPH2PS, x, f32s);
            }
            let (form, code) = (self.form(16), self.reg(x));
            let code = self.v(&m::MOVD, form, &[code]);
            let number = self.v(&f::CVTPH2PS, form, &[code]);
            return Value::vector([number], f32s);
        }
        let u = self.bitcast(x, codes);
        let u = self.op(Op::Cast, u32s, &[u]);
        if small.scalar == Scalar::BF16 {
            let upper = self.with_constant(Op::Shl, &u, 16);
            return self.bitcast(&upper, f32s);
        }
        // A code moved to the place of a float's exponent and mantissa lacks only the difference of
        // the biases. A subnormal gets the exponent of the least normal number, which is then taken
        // off again: both steps are exact.
        let l = layout(small.scalar);
        let rebase = i64::from(127 - l.bias) << 23;
        let least = u32::from(128 - l.bias as u8) << 23;
        let m = self.with_constant(Op::And, &u, (1i64 << (l.bits - 1)) - 1);
        let moved = self.with_constant(Op::Shl, &m, i64::from(23 - l.mantissa));
        let n = self.with_constant(Op::Add, &moved, rebase);
        let raised = self.with_constant(Op::Or, &moved, i64::from(least));
        let raised = self.bitcast(&raised, f32s);
        let lifted = self.with_constant(Op::Add, &raised, -f64::from(f32::from_bits(least)));
        let lifted = self.bitcast(&lifted, u32s);
        let subnormal = self.test_constant(Op::Lt, &m, 1i64 << l.mantissa);
        let number = self.select(&subnormal, &lifted, &n);
        let special = if l.has_inf {
            self.with_constant(Op::Add, &n, rebase)
        } else {
            Value::constant(0x7fc0_0000i64, u32s)
        };
        let below = self.test_constant(Op::Lt, &m, l.over as i64);
        let magnitude = self.select(&below, &number, &special);
        let sign = self.with_constant(Op::And, &u, 1i64 << (l.bits - 1));
        let sign = self.with_constant(Op::Shl, &sign, i64::from(32 - l.bits));
        let whole = self.binary(Op::Or, &magnitude, &sign);
        self.bitcast(&whole, f32s)
    }

    /// Returns numbers that are not small as small floats, rounded once.
    pub(super) fn narrow(&mut self, x: &Value, to: DType) -> Value {
        let from = x.dtype;
        let (f32s, f64s) = (like(from, Scalar::F32), like(from, Scalar::F64));
        match from.scalar {
            Scalar::F32 if to.scalar == Scalar::F16 && self.isa.avx() => {
                if to.lanes > 1 {
                    return self.convert(&f::CVTPS2PH, x, to);
                }
                let (form, number) = (self.form(16), self.regs(x)[0]);
                let code = self.vi(&f::CVTPS2PH, form, &[number], 0);
                let code = self.r(&m::MOVD_R, form, &[code], 0);
                self.extended(code, to)
            }
            Scalar::F32 | Scalar::F64 => self.encode(x, to),
            // Up to 16 bits an integer is exactly an f32, up to 32 bits exactly an f64.
            _ if from.is_bool() || from.bits() <= 16 => {
                let x = self.op(Op::Cast, f32s, std::slice::from_ref(x));
                self.narrow(&x, to)
            }
            _ if from.bits() == 32 => {
                let x = self.op(Op::Cast, f64s, std::slice::from_ref(x));
                self.encode(&x, to)
            }
            _ => {
                let x = self.round_to_odd(x);
                self.encode(&x, to)
            }
        }
    }

    /// Returns f32 or f64 as small floats, to the nearest, ties to even.
    fn encode(&mut self, x: &Value, to: DType) -> Value {
        let wide = x.dtype;
        let double = wide.scalar == Scalar::F64;
        let (mantissa, bias, width) = if double { (52u32, 1023u32, 64u32) } else { (23, 127, 32) };
        let work = like(wide, if double { Scalar::U64 } else { Scalar::U32 });
        let l = layout(to.scalar);
        let drop = mantissa - l.mantissa;
        let u = self.bitcast(x, work);
        let m = self.with_constant(Op::And, &u, ((1u64 << (width - 1)) - 1) as i64);
        let last = self.with_constant(Op::Shr, &m, i64::from(drop));
        let last = self.with_constant(Op::And, &last, 1);
        // Codes are in the order of their values, so rounding may carry into the exponent.
        let rebase = u64::from(bias - l.bias) << mantissa;
        let half = ((1u64 << (drop - 1)) - 1).wrapping_sub(rebase);
        let up = self.with_constant(Op::Add, &m, half as i64);
        let up = self.binary(Op::Add, &up, &last);
        let mut r = self.with_constant(Op::Shr, &up, i64::from(drop));
        let over = Value::constant(l.over as i64, work);
        if rebase > 0 {
            // A subnormal is rounded by adding the power of two whose last place is that of the
            // least subnormal.
            let magic = u64::from(bias + 1 + mantissa - l.bias - l.mantissa) << mantissa;
            let value =
                if double { f64::from_bits(magic) } else { f32::from_bits(magic as u32) as f64 };
            let positive = self.bitcast(&m, wide);
            let lifted = self.with_constant(Op::Add, &positive, value);
            let lifted = self.bitcast(&lifted, work);
            let code = self.with_constant(Op::Add, &lifted, (magic as i64).wrapping_neg());
            let least = u64::from(bias - l.bias + 1) << mantissa;
            let subnormal = self.test_constant(Op::Lt, &m, least as i64);
            r = self.select(&subnormal, &code, &r);
            let is_over = self.test(Op::Lt, &over, &r);
            r = self.select(&is_over, &over, &r);
        }
        let infinity = Value::constant((u64::from(2 * bias + 1) << mantissa) as i64, work);
        let nan = self.test(Op::Lt, &infinity, &m);
        let code = Value::constant((l.over | 1 << (l.mantissa - 1)) as i64, work);
        let kept = self.select(&nan, &code, &r);
        let sign = self.with_constant(Op::Shr, &u, i64::from(width - l.bits));
        let sign = self.with_constant(Op::And, &sign, 1i64 << (l.bits - 1));
        let code = self.binary(Op::Or, &kept, &sign);
        let codes = like(to, if to.bits() == 16 { Scalar::U16 } else { Scalar::U8 });
        let code = self.op(Op::Cast, codes, &[code]);
        self.bitcast(&code, to)
    }

    /// Returns 64-bit integers as f64 that round to any small float as the integers themselves
    /// would: of more than 53 bits the low 11 are dropped, and the last remaining bit is set if one
    /// of them was (round to odd).
    fn round_to_odd(&mut self, x: &Value) -> Value {
        let from = x.dtype;
        let (u64s, i64s) = (like(from, Scalar::U64), like(from, Scalar::I64));
        let f64s = like(from, Scalar::F64);
        let zero = Value::constant(0, u64s);
        let u = self.bitcast(x, u64s);
        let negative = if from.is_unsigned() {
            Value::constant(false, like(from, Scalar::Bool))
        } else {
            let signed = self.bitcast(x, i64s);
            self.test_constant(Op::Lt, &signed, 0)
        };
        let flipped = self.with_constant(Op::Xor, &u, -1);
        let turned = self.with_constant(Op::Add, &flipped, 1);
        let m = self.select(&negative, &turned, &u);
        let low = self.with_constant(Op::And, &m, 0x7ff);
        let low = self.test(Op::Ne, &low, &zero);
        let last = self.select(&low, &Value::constant(0x800, u64s), &zero);
        let kept = self.with_constant(Op::And, &m, !0x7ffi64);
        let kept = self.binary(Op::Or, &kept, &last);
        let limit = Value::constant((1i64 << 53) - 1, u64s);
        let long = self.test(Op::Lt, &limit, &m);
        let m = self.select(&long, &kept, &m);
        let number = self.op(Op::Cast, f64s, &[m]);
        let minus = self.with_constant(Op::Mul, &number, -1.0);
        self.select(&negative, &minus, &number)
    }
}
