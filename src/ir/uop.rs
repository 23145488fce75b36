//! Accessors of a node, and constructors of the ops of tensor graphs and elementwise ops.
//! `kernel_nodes.rs` has the constructors of kernel ops.

use super::{Arg, DeviceName, Op, Slice, Src, UOp, typed};
use crate::dtype::{Const, DType};
use crate::shape::{Movement, SymInt};
use smallvec::SmallVec;
use std::sync::Arc;

impl UOp {
    /// Returns the operation.
    #[inline]
    pub fn op(&self) -> Op {
        self.node().op
    }
    /// Returns the dtype of the value.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.node().dtype
    }
    /// Returns the operands.
    #[inline]
    pub fn src(&self) -> &[UOp] {
        &self.node().src
    }
    /// Returns the payload.
    #[inline]
    pub fn arg(&self) -> &Arg {
        &self.node().arg
    }
    /// Returns the id of the node, unique in the process; older nodes have smaller ones.
    #[inline]
    pub fn id(&self) -> u64 {
        self.node().id
    }
    /// Returns a hash of the structure, the same in every process.
    #[inline]
    pub fn key(&self) -> u64 {
        self.node().key
    }
    /// Returns the node with other operands; itself if they are the same.
    pub fn with_src(&self, src: impl Into<Src>) -> UOp {
        let src = src.into();
        if src == self.node().src {
            self.clone()
        } else {
            UOp::new(self.op(), self.dtype(), src, self.arg().clone())
        }
    }
    /// Returns a node of the same op and payload, of another dtype and on other operands.
    pub(crate) fn retyped(&self, dtype: DType, src: impl Into<Src>) -> UOp {
        UOp::new(self.op(), dtype, src, self.arg().clone())
    }
    /// Returns the node with another payload.
    pub fn with_arg(&self, arg: Arg) -> UOp {
        UOp::new(self.op(), self.dtype(), self.node().src.clone(), arg)
    }
}

/// Panics because a node is not of the op that its position requires.
#[cold]
#[track_caller]
pub(super) fn unexpected(u: &UOp, op: Op) -> ! {
    panic!("expected a node of the op {op:?}, found {u:?}")
}

/// An operand of a binary op: a node, or a number that takes the dtype of the other operand.
pub trait IntoOperand {
    /// Returns the operand as a node of the dtype of `u`.
    fn into_operand(self, u: &UOp) -> UOp;
}
impl IntoOperand for UOp {
    fn into_operand(self, _: &UOp) -> UOp {
        self
    }
}
impl IntoOperand for &UOp {
    fn into_operand(self, _: &UOp) -> UOp {
        self.clone()
    }
}
macro_rules! like {
    ($($t:ty),*) => {
        $(impl IntoOperand for $t { fn into_operand(self, u: &UOp) -> UOp { u.const_like(self) } })*
    };
}
like!(i32, i64, usize, f32, f64, bool, Const);

impl UOp {
    /// Returns a literal. A vector dtype repeats the value in every lane.
    pub fn constant(value: impl Into<Const>, dtype: DType) -> UOp {
        let value = value.into();
        let from = match value {
            Const::Bool(_) => DType::BOOL,
            Const::Int(_) => DType::I64,
            Const::Float(_) => DType::F64,
        };
        // An integer of an unsigned dtype is given by its bits, which a cast would change.
        let value = if from == DType::I64 && dtype.is_int() {
            value.normalize(dtype.scalar())
        } else {
            value.cast(from, dtype.scalar())
        };
        UOp::literal(value, dtype)
    }
    /// Returns a literal of a value that is in the normal form of the dtype.
    pub(crate) fn literal(value: Const, dtype: DType) -> UOp {
        typed::Const::build(dtype, Arg::Const(value))
    }
    /// Returns the numbers `0, 1, … len-1` as a one-dimensional tensor.
    pub(crate) fn iota(len: usize, dtype: DType) -> UOp {
        typed::Iota::build(dtype, Arg::Iota { len })
    }
    /// Returns the input of this number of an abstracted tensor graph, of `len` elements.
    pub(crate) fn param(slot: usize, len: usize, dtype: DType, device: &DeviceName) -> UOp {
        typed::Param::build(dtype, Arg::Param { slot, len, device: device.clone() })
    }
    /// Returns a variable without a value.
    pub(crate) fn variable(name: Arc<str>, min: i64, max: i64, dtype: DType) -> UOp {
        typed::Var::build(dtype, Arg::Var { name, min, max })
    }
    /// Returns an integer of index arithmetic.
    pub fn int(value: i64) -> UOp {
        UOp::constant(value, DType::INDEX)
    }
    /// Returns a bool literal.
    pub fn truth(value: bool) -> UOp {
        UOp::constant(value, DType::BOOL)
    }
    /// Returns a literal of this node's dtype.
    pub fn const_like(&self, value: impl Into<Const>) -> UOp {
        UOp::constant(value, self.dtype())
    }
    /// Returns the literal's value.
    #[inline]
    pub fn as_const(&self) -> Option<Const> {
        match self.arg() {
            Arg::Const(c) if self.op() == Op::Const => Some(*c),
            _ => None,
        }
    }
    /// Returns the value of an integer or bool literal.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match self.arg() {
            Arg::Const(Const::Int(v)) => Some(*v),
            Arg::Const(Const::Bool(b)) => Some(*b as i64),
            _ => None,
        }
    }
    /// Returns true if the node is this integer or bool literal.
    #[inline]
    pub fn is_int(&self, v: i64) -> bool {
        self.as_int() == Some(v)
    }

    /// Returns an elementwise node of one operand.
    pub fn unary(&self, op: Op) -> UOp {
        self.with_op(op, Arg::None)
    }
    /// Returns a node of this operand and its dtype.
    fn with_op(&self, op: Op, arg: Arg) -> UOp {
        UOp::new(op, self.dtype(), [self.clone()].to_src(), arg)
    }
    /// Returns an elementwise node of two operands; comparisons give bools.
    pub fn binary(&self, op: Op, other: impl IntoOperand) -> UOp {
        let other = other.into_operand(self);
        let dtype = if op.is(super::Group::Comparison) {
            DType::BOOL.vec(self.dtype().lanes)
        } else {
            self.dtype()
        };
        UOp::new(op, dtype, [self.clone(), other].to_src(), Arg::None)
    }
    /// Returns `self ? x : y`.
    pub fn select(&self, x: impl IntoOperand, y: &UOp) -> UOp {
        let x = x.into_operand(y);
        typed::Where::build(y.dtype(), Arg::None, self.clone(), x, y.clone())
    }
    /// self·y+z with one rounding.
    pub fn fma(&self, y: &UOp, z: &UOp) -> UOp {
        typed::Fma::build(self.dtype(), Arg::None, self.clone(), y.clone(), z.clone())
    }
    /// Returns the value converted to a dtype; the node itself if it has it. The number of lanes
    /// stays.
    pub fn cast(&self, dtype: DType) -> UOp {
        self.converted(Op::Cast, dtype)
    }
    /// Returns the bits reinterpreted as another dtype; the node itself if it has it.
    pub fn bitcast(&self, dtype: DType) -> UOp {
        self.converted(Op::Bitcast, dtype)
    }
    fn converted(&self, op: Op, dtype: DType) -> UOp {
        let dtype = dtype.scalar().vec(self.dtype().lanes);
        if dtype == self.dtype() {
            return self.clone();
        }
        UOp::new(op, dtype, [self.clone()].to_src(), Arg::None)
    }
    /// Returns `self < other`.
    pub fn lt(&self, other: impl IntoOperand) -> UOp {
        self.binary(Op::Lt, other)
    }
    /// Returns `self >= other` for integers: `other < self + 1` cannot overflow when written as a
    /// negation.
    pub fn ge(&self, other: impl IntoOperand) -> UOp {
        self.lt(other).not()
    }
    /// Returns `self == other`.
    pub fn equals(&self, other: impl IntoOperand) -> UOp {
        self.binary(Op::Eq, other)
    }
    /// Returns `self != other`.
    pub fn differs(&self, other: impl IntoOperand) -> UOp {
        self.binary(Op::Ne, other)
    }
    /// Negation: bitwise, for bools logical.
    pub fn not(&self) -> UOp {
        let ones = if self.dtype().is_bool() { Const::Bool(true) } else { Const::Int(-1) };
        self.binary(Op::Xor, ones)
    }
    /// Bitwise or logical and.
    pub fn and(&self, other: impl IntoOperand) -> UOp {
        self.binary(Op::And, other)
    }
    /// Bitwise or logical or.
    pub fn or(&self, other: impl IntoOperand) -> UOp {
        self.binary(Op::Or, other)
    }
    /// Returns a movement op. The movement fits the shape.
    pub fn moved(&self, m: Movement) -> UOp {
        self.with_op(Op::of_movement(&m), Arg::Movement(Box::new(m)))
    }
    /// Returns the value stored in row-major order.
    pub(crate) fn contiguous(&self) -> UOp {
        self.with_op(Op::Contiguous, Arg::None)
    }
    /// Returns the value stored in row-major order on a device, on which it is computed.
    pub(crate) fn contiguous_on(&self, device: &DeviceName) -> UOp {
        self.with_op(Op::Contiguous, Arg::Device(device.clone()))
    }
    /// Returns the value as the parameter of this number.
    pub(crate) fn leaf(&self, number: u64) -> UOp {
        self.with_op(Op::Leaf, Arg::Leaf(number))
    }
    /// Returns the value on a device.
    pub fn copied(&self, device: &DeviceName) -> UOp {
        self.with_op(Op::Copy, Arg::Device(device.clone()))
    }
    /// Returns a copy of the value on a device, made after another value is computed.
    pub fn copied_after(&self, device: &DeviceName, after: &UOp) -> UOp {
        let src = [self.clone(), after.clone()].to_src();
        UOp::new(Op::Copy, self.dtype(), src, Arg::Device(device.clone()))
    }
    /// One value on several devices: sharded along an axis, or replicated.
    pub fn shards(parts: impl Into<Src>, devices: &DeviceName, axis: Option<usize>) -> UOp {
        let parts = parts.into();
        let arg = Arg::Shards { devices: devices.clone(), axis };
        UOp::new(Op::Shards, parts[0].dtype(), parts, arg)
    }
    /// Returns the elements `start..end` of an axis; the node itself if those are all.
    pub fn narrowed(&self, axis: usize, range: std::ops::Range<usize>) -> UOp {
        let shape = self.shape();
        if range == (0..shape[axis]) {
            return self.clone();
        }
        let keep =
            |(a, &n): (usize, &usize)| if a == axis { (range.start, range.end) } else { (0, n) };
        self.moved(Movement::shrink(shape.iter().enumerate().map(keep)))
    }
    /// Returns an interval of an axis with symbolic start and length. It is within the axis.
    pub fn sliced(&self, axis: usize, start: SymInt, len: SymInt) -> UOp {
        self.with_op(Op::Slice, Arg::Slice(Box::new(Slice { axis, start, len })))
    }
    /// Returns a symbolic integer as a node of an integer dtype.
    pub fn from_symint(bound: &SymInt, dtype: DType) -> UOp {
        let mut sum = UOp::constant(bound.plus(), dtype);
        for t in bound.terms() {
            let (name, min, max) = (t.variable.shared_name(), t.variable.min(), t.variable.max());
            let arg = match t.value {
                Some(value) => Arg::BoundVar { name, min, max, value },
                None => Arg::Var { name, min, max },
            };
            let variable = typed::Var::build(dtype, arg);
            let term = if t.times == 1 { variable } else { &variable * t.times };
            sum = if sum.is_int(0) { term } else { &sum + &term };
        }
        sum
    }
    /// Returns a reduction over axes of the tensor graph, ascending, which remain with size one.
    pub fn reduced(&self, fold: super::Fold, axes: impl IntoIterator<Item = usize>) -> UOp {
        let axes: SmallVec<[usize; 2]> = axes.into_iter().collect();
        if axes.is_empty() {
            return self.clone();
        }
        self.with_op(Op::Reduce, Arg::Reduce { fold, axes })
    }
    /// Returns an inclusive scan along an axis of the tensor graph.
    pub fn scanned(&self, fold: super::Fold, axis: usize) -> UOp {
        self.with_op(Op::Scan, Arg::Reduce { fold, axes: smallvec::smallvec![axis] })
    }
    /// Concatenates one or more tensors along an axis. Their shapes agree in all other axes.
    pub fn cat(parts: Src, axis: usize) -> UOp {
        if parts.len() == 1 {
            return parts[0].clone();
        }
        UOp::new(Op::Cat, parts[0].dtype(), parts, Arg::Cat { axis })
    }
    /// Gathers the elements at indices along an axis. The shapes agree in all other axes.
    pub fn gathered(&self, index: &UOp, axis: usize) -> UOp {
        typed::Gather::build(self.dtype(), Arg::Gather { axis }, self.clone(), index.clone())
    }
    /// Combines values into this tensor at indices along an axis, in order. The shapes of index and
    /// value agree with it in all other axes.
    pub fn scattered(&self, index: &UOp, value: &UOp, combine: super::Combine, axis: usize) -> UOp {
        let arg = Arg::Scatter { combine, axis };
        typed::Scatter::build(self.dtype(), arg, self.clone(), index.clone(), value.clone())
    }
}

/// Conversion of arrays to operand lists.
pub trait ToSrc {
    /// Returns the nodes as operands.
    fn to_src(self) -> Src;
}
impl<const N: usize> ToSrc for [UOp; N] {
    fn to_src(self) -> Src {
        let mut src = Src::new();
        self.into_iter().for_each(|u| src.push(u));
        src
    }
}

/// Declares operators of nodes, by value and by reference.
macro_rules! operators {
    ($($trait:ident $method:ident |$x:ident, $y:ident| $result:expr;)*) => { $(
        impl<R: IntoOperand> std::ops::$trait<R> for &UOp {
            type Output = UOp;
            fn $method(self, $y: R) -> UOp {
                let $x = self;
                $result
            }
        }
        impl<R: IntoOperand> std::ops::$trait<R> for UOp {
            type Output = UOp;
            fn $method(self, other: R) -> UOp {
                (&self).$method(other)
            }
        }
    )* };
}
operators! {
    Add add |x, y| x.binary(Op::Add, y);
    Mul mul |x, y| x.binary(Op::Mul, y);
    Rem rem |x, y| x.binary(Op::Mod, y);
    Shl shl |x, y| x.binary(Op::Shl, y);
    Shr shr |x, y| x.binary(Op::Shr, y);
    BitAnd bitand |x, y| x.binary(Op::And, y);
    BitOr bitor |x, y| x.binary(Op::Or, y);
    BitXor bitxor |x, y| x.binary(Op::Xor, y);
    // Float division for floats, floor division for integers.
    Div div |x, y| x.binary(if x.dtype().is_float() { Op::Div } else { Op::IDiv }, y);
    // The IR has no subtraction. `x + y * -1` rounds and wraps in the same way.
    Sub sub |x, y| x.binary(Op::Add, -y.into_operand(x));
}

impl std::ops::Neg for &UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        let minus_one = if self.dtype().is_float() { Const::Float(-1.0) } else { Const::Int(-1) };
        self.binary(Op::Mul, minus_one)
    }
}
impl std::ops::Neg for UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        -&self
    }
}
