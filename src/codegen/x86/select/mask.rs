//! Vectors of bools.

use super::elementwise::like;
use super::{Place, Registers, Select, Value};
use crate::codegen::x86::inst::{Form, R32, R64, Row};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{Const, Scalar};
use crate::ir::Op;
use regalloc2::VReg;

impl Select {
    /// Returns a vector of bools as masks of the lanes of a vector with elements of `size` bytes.
    pub fn mask_of(&mut self, x: &Value, size: usize) -> Registers {
        let lanes = x.dtype.lanes as usize;
        let (form, count) = self.pieces(size, lanes);
        match &x.place {
            Place::Const(c) => {
                let ones = c.is_true();
                let mask = if self.isa.masks() {
                    let bits = self.general_constant(if ones { -1 } else { 0 });
                    self.k(&m::KMOV_FROM_R, Form::Evex16, &[bits], 0)
                } else {
                    self.splat_constant(if ones { u64::MAX } else { 0 }, 8, form)
                };
                (0..count).map(|_| mask).collect()
            }
            Place::Mask { size: held, regs } if *held == size => regs.clone(),
            Place::Mask { size: held, regs } => {
                let (held, regs) = (*held, regs.clone());
                if self.isa.masks() {
                    self.regroup(&regs, held, size, lanes)
                } else {
                    let int = |size: usize| {
                        let scalars = [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64];
                        like(x.dtype, scalars[size.trailing_zeros() as usize])
                    };
                    let numbers = Value::vector(regs, int(held));
                    let numbers = self.op(Op::Cast, int(size), &[numbers]);
                    self.regs(&numbers)
                }
            }
            place => unreachable!("{place:?} is not a vector of bools"),
        }
    }

    /// Distributes the bits of mask registers over others.
    fn regroup(&mut self, masks: &[VReg], from: usize, to: usize, lanes: usize) -> Registers {
        let (form, count) = self.pieces(to, lanes);
        let (from_form, from_count) = self.pieces(from, lanes);
        if count == 1 && from_count == 1 {
            return masks.iter().copied().collect();
        }
        let (per, from_per) = (form.bytes() / to, from_form.bytes() / from);
        let mut regs = Registers::new();
        for i in 0..count {
            let first = i * per;
            let mut bits: Option<VReg> = None;
            let mut at = first;
            while at < (first + per).min(lanes) {
                let (piece, offset) = (at / from_per, at % from_per);
                let mut part = self.r(&m::KMOV_TO_R, Form::Evex16, &[masks[piece]], 0);
                // Bits beyond the lanes of a register are not those of any lane.
                part = match from_per {
                    32 => self.r(&g::LOAD, R32, &[part], 0),
                    0..32 => self.r(&g::AND_I, R32, &[part], (1 << from_per) - 1),
                    _ => part,
                };
                if offset > 0 {
                    part = self.r(&g::SHR_I, R64, &[part], offset as i64);
                }
                if at > first {
                    part = self.r(&g::SHL_I, R64, &[part], (at - first) as i64);
                }
                bits = Some(match bits {
                    Some(bits) => self.r(&g::OR, R64, &[bits, part], 0),
                    None => part,
                });
                at = (piece + 1) * from_per;
            }
            let bits = bits.expect("a register holds at least a lane");
            regs.push(self.k(&m::KMOV_FROM_R, Form::Evex16, &[bits], 0));
        }
        regs
    }

    /// Emits an op on vectors of bools, or a comparison of them.
    pub(super) fn mask_op(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        let dtype = x.dtype;
        let size = match (&x.place, &y.place) {
            (Place::Mask { size, .. }, _) | (_, Place::Mask { size, .. }) => *size,
            _ => 1,
        };
        let (a, b) = (self.mask_of(x, size), self.mask_of(y, size));
        let (form, _) = self.pieces(size, dtype.lanes as usize);
        let regs = if self.isa.masks() {
            let row: &'static Row = match op {
                Op::Add | Op::Or | Op::Max => &m::KOR,
                Op::Mul | Op::And | Op::Min => &m::KAND,
                Op::Xor | Op::Ne => &m::KXOR,
                Op::Eq => &m::KXNOR,
                _ => &m::KANDN,
            };
            let both = a.iter().zip(&b);
            both.map(|(a, b)| self.k(row, Form::Evex16, &[*a, *b], 0)).collect()
        } else {
            let row: &'static Row = match op {
                Op::Add | Op::Or | Op::Max => &f::ORPS,
                Op::Mul | Op::And | Op::Min => &f::ANDPS,
                Op::Xor | Op::Ne | Op::Eq => &f::XORPS,
                _ => &f::ANDNPS,
            };
            let regs = self.each2(row, form, &a, &b);
            if op == Op::Eq { self.inverted(form, &regs) } else { regs }
        };
        Value { place: Place::Mask { size, regs }, dtype }
    }

    /// Returns a vector of bools as bytes 0 and 1.
    pub fn mask_bytes(&mut self, x: &Value) -> Value {
        let dtype = like(x.dtype, Scalar::U8);
        if let Some(c) = x.as_const() {
            return Value::constant(Const::Int(i64::from(c.is_true())), dtype);
        }
        self.mask_numbers(x, dtype)
    }

    /// Returns a vector of bools as numbers 0 and 1.
    pub fn mask_numbers(&mut self, x: &Value, dtype: crate::dtype::DType) -> Value {
        let masks = self.mask_of(x, super::emit::size(dtype));
        let (yes, no) = if dtype.is_float() {
            (Value::constant(1.0, dtype), Value::constant(0.0, dtype))
        } else {
            (Value::constant(1, dtype), Value::constant(0, dtype))
        };
        self.choose_by_mask(&masks, &yes, &no)
    }
}
