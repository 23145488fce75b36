//! Ops without a vector form: operands go through temporary memory, lane by lane.
//!
//! ```text
//! before: op(x, y)                         of vectors
//! after:  store x, store y; for each lane: store op(load x[lane], load y[lane]); load
//! ```

use super::elementwise::like;
use super::emit::size;
use super::memory::Address;
use super::regions::in_vector;
use super::{Place, Registers, Select, Value};
use crate::codegen::math;
use crate::codegen::mir::Inst;
use crate::codegen::x86::inst::{R32, R64, Row};
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{DType, Scalar};
use crate::ir::Op;
use regalloc2::{Operand, PReg, RegClass};

/// An operand in temporary memory.
pub(super) struct Spilled {
    value: Value,
    place: Address,
    /// Bytes between lanes.
    stride: usize,
}

impl Spilled {
    /// Loads a lane.
    pub fn lane(&self, s: &mut Select, lane: usize) -> Value {
        let dtype = self.value.dtype.scalar();
        if let Some(c) = self.value.as_const() {
            return Value::constant(c, dtype);
        }
        let place = self.place.plus(lane * self.stride);
        if dtype.is_bool() {
            let byte = s.load_general(&g::MOVZX8, R32, place);
            let bit = s.r(&g::AND_I, R32, &[byte], 1);
            return Value::general(bit, dtype);
        }
        s.load_at(place, dtype)
    }
}

impl Select {
    /// Stores all registers of a vector. Returns the bytes between lanes.
    fn spill(&mut self, x: &Value, place: Address) -> usize {
        let lanes = x.dtype.lanes as usize;
        let (stride, regs): (usize, Registers) = match &x.place {
            Place::Mask { size, regs } => {
                let (size, (form, _)) = (*size, self.pieces(*size, lanes));
                let masks = regs.clone();
                if self.isa.masks() {
                    let rows: [&'static Row; 4] =
                        [&m::PMOVM2B, &m::PMOVM2W, &m::PMOVM2D, &m::PMOVM2Q];
                    let row = rows[size.trailing_zeros() as usize];
                    (size, self.each1(row, form, &masks))
                } else {
                    (size, masks)
                }
            }
            _ => (size(x.dtype), self.regs(x)),
        };
        let (form, _) = self.pieces(stride, lanes);
        for (i, reg) in regs.iter().enumerate() {
            let place = place.plus(i * form.bytes());
            self.store_register(&m::STORE_UPS, form, &[*reg], None, place, 0);
        }
        stride
    }

    /// Bytes of the registers of a vector in temporary memory.
    fn spilled_bytes(&self, x: &Value) -> usize {
        let held = match &x.place {
            Place::Const(_) => return 0,
            Place::Mask { size, .. } => *size,
            _ => size(x.dtype),
        };
        let (form, count) = self.pieces(held, x.dtype.lanes as usize);
        form.bytes() * count
    }

    /// Lets `f` compute the lanes of a vector in temporary memory from operands that are there.
    pub(super) fn with_lanes(
        &mut self,
        x: &[Value],
        dtype: DType,
        f: impl FnOnce(&mut Self, &[Spilled], Address),
    ) -> Value {
        let (form, count) = self.layout(dtype);
        let bytes: usize = x.iter().map(|x| self.spilled_bytes(x).next_multiple_of(64)).sum();
        self.with_temporary(bytes + form.bytes() * count, |s, start| {
            let mut at = start;
            let mut spilled = Vec::new();
            for value in x {
                let stride = if value.as_const().is_some() { 0 } else { s.spill(value, at) };
                spilled.push(Spilled { value: value.clone(), place: at, stride });
                at = at.plus(s.spilled_bytes(value).next_multiple_of(64));
            }
            f(s, &spilled, at);
            let regs: Registers = (0..count)
                .map(|i| s.load_vector(&m::MOVUPS, form, &[], at.plus(i * form.bytes())))
                .collect();
            if dtype.is_bool() {
                let bytes = Value::vector(regs, like(dtype, Scalar::U8));
                return s.test_constant(Op::Ne, &bytes, 0);
            }
            Value::vector(regs, dtype)
        })
    }

    /// Computes an op lane by lane.
    pub(super) fn by_lanes(&mut self, op: Op, dtype: DType, x: &[Value]) -> Value {
        self.with_lanes(x, dtype, |s, spilled, out| {
            for lane in 0..dtype.lanes as usize {
                let operands: Vec<Value> = spilled.iter().map(|x| x.lane(s, lane)).collect();
                let value = s.op(op, dtype.scalar(), &operands);
                s.store_at(out.plus(lane * size(dtype)), &value);
            }
        })
    }

    /// Calls a function for an op on scalar floats that has no instruction.
    pub(super) fn call_op(&mut self, op: Op, dtype: DType, x: &[Value]) -> Value {
        let (name, address) = math::function(op, dtype.scalar)
            .unwrap_or_else(|| unreachable!("{op:?} on {dtype} is decomposed"));
        let args: Vec<_> = x.iter().map(|x| self.regs(x)[0]).collect();
        let callee = self.pooled(&address.to_le_bytes());
        let result = self.float();
        let mut ops = vec![Operand::reg_fixed_def(result, vector_register(0))];
        let uses = args.iter().enumerate();
        ops.extend(uses.map(|(i, a)| Operand::reg_fixed_use(*a, vector_register(i))));
        let mut inst = Inst::new(&g::CALL, R64, ops);
        inst.callee = Some(name);
        inst.mem = Some(crate::codegen::mir::Mem {
            base: crate::codegen::mir::Base::Pool,
            scale: 0,
            disp: callee.disp,
            broadcast: false,
        });
        self.push(inst);
        debug_assert!(in_vector(dtype));
        Value::vector([result], dtype)
    }
}

/// Returns the vector register of a number.
fn vector_register(i: usize) -> PReg {
    PReg::new(i, RegClass::Float)
}
