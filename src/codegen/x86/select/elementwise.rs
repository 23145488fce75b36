//! Elementwise ops on values of any kind. An op on constants is folded; one that has no vector form
//! is computed lane by lane.

use super::regions::in_vector;
use super::{Place, Select, Value};
use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Group, Op, UOp, eval};

/// Returns a dtype with as many lanes as another.
pub(super) fn like(dtype: DType, scalar: Scalar) -> DType {
    DType { scalar, lanes: dtype.lanes }
}

impl Select {
    /// Emits an elementwise op whose result has this dtype.
    pub fn op(&mut self, op: Op, dtype: DType, x: &[Value]) -> Value {
        if let Some(value) = folded(op, dtype, x) {
            return value;
        }
        match op {
            Op::Detach => return x[0].clone(),
            Op::Cast => return self.cast(&x[0], dtype),
            Op::Bitcast => return self.bitcast(&x[0], dtype),
            Op::Where => return self.choose_lanes(&x[0], &x[1], &x[2]),
            _ => {}
        }
        let from = x[0].dtype;
        if dtype.lanes == 1 && !in_vector(from) {
            return self.scalar_op(op, dtype, x);
        }
        let whole = if op.is(Group::Comparison) {
            self.compare(op, dtype, &x[0], &x[1])
        } else if dtype.is_bool() {
            Some(self.mask_op(op, &x[0], &x[1]))
        } else if dtype.is_float() {
            self.float_op(op, dtype, x)
        } else {
            self.integer_op(op, dtype, x)
        };
        match whole {
            Some(value) => value,
            None if dtype.lanes == 1 => self.call_op(op, dtype, x),
            None => self.by_lanes(op, dtype, x),
        }
    }

    /// Emits an op on two operands whose dtype is that of the result.
    pub fn binary(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        self.op(op, x.dtype, &[x.clone(), y.clone()])
    }
    /// Emits an op on a value and a constant of its dtype.
    pub fn with_constant(&mut self, op: Op, x: &Value, y: impl Into<Const>) -> Value {
        let y = Value::constant(y, x.dtype);
        self.op(op, x.dtype, &[x.clone(), y])
    }
    /// Emits a comparison.
    pub fn test(&mut self, op: Op, x: &Value, y: &Value) -> Value {
        self.op(op, like(x.dtype, Scalar::Bool), &[x.clone(), y.clone()])
    }
    /// Emits a comparison with a constant.
    pub fn test_constant(&mut self, op: Op, x: &Value, y: impl Into<Const>) -> Value {
        let y = Value::constant(y, x.dtype);
        self.test(op, x, &y)
    }
    /// Emits a select.
    pub fn select(&mut self, condition: &Value, yes: &Value, no: &Value) -> Value {
        self.op(Op::Where, yes.dtype, &[condition.clone(), yes.clone(), no.clone()])
    }

    /// Emits arithmetic on integers that do not overflow, in 64 bits.
    pub(super) fn address_arithmetic(&mut self, u: &UOp, x: &[Value]) -> Option<Value> {
        let op = u.op();
        let wide = DType::I64;
        let is_simple = matches!(op, Op::Add | Op::Mul | Op::Max | Op::Min) && u.dtype().lanes == 1;
        if !is_simple || !u.dtype().is_signed_int() {
            return None;
        }
        let operands: Vec<Value> = x
            .iter()
            .map(|x| match x.place {
                Place::Const(_) => x.clone().with(wide),
                _ => {
                    let reg = self.wide(x);
                    Value::general(reg, wide)
                }
            })
            .collect();
        Some(self.op(op, wide, &operands).with(u.dtype()))
    }
}

/// Returns the result of an op on constants.
fn folded(op: Op, dtype: DType, x: &[Value]) -> Option<Value> {
    let values: Option<smallvec::SmallVec<[Const; 3]>> = x.iter().map(Value::as_const).collect();
    let is_division = matches!(op, Op::CDiv | Op::CMod);
    let values = values.filter(|_| !is_division)?;
    let value = eval::alu(op, dtype, x[0].dtype, &values);
    Some(Value { place: Place::Const(value), dtype })
}
