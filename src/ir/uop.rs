//! Accessors of a node, and constructors of the ops of tensor graphs and elementwise ops.
//! `kernel_nodes.rs` has the constructors of kernel ops.

use super::{Arg, Op, Slice, Src, UOp};
use crate::dtype::{Const, DType};
use crate::shape::{Movement, SymInt, checked_numel};
use smallvec::SmallVec;

impl UOp {
    /// The operation.
    #[inline]
    pub fn op(&self) -> Op {
        self.node().op
    }
    /// The dtype of the value.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.node().dtype
    }
    /// The operands.
    #[inline]
    pub fn src(&self) -> &[UOp] {
        &self.node().src
    }
    /// The payload.
    #[inline]
    pub fn arg(&self) -> &Arg {
        &self.node().arg
    }
    /// A number that is unique in the process; smaller for older nodes.
    #[inline]
    pub fn id(&self) -> u64 {
        self.node().id
    }
    /// A hash of the structure, the same in every process.
    #[inline]
    pub fn key(&self) -> u64 {
        self.node().key
    }
    /// The same node with other operands; itself if they are the same.
    pub fn with_src(&self, src: impl Into<Src>) -> UOp {
        let src = src.into();
        if src == self.node().src {
            self.clone()
        } else {
            UOp::new(self.op(), self.dtype(), src, self.arg().clone())
        }
    }
    /// The same node with another payload.
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

/// An operand beside a node: a node, or a number that takes the node's dtype.
pub trait Like {
    /// As a node of the dtype of `u`.
    fn like(self, u: &UOp) -> UOp;
}
impl Like for UOp {
    fn like(self, _: &UOp) -> UOp {
        self
    }
}
impl Like for &UOp {
    fn like(self, _: &UOp) -> UOp {
        self.clone()
    }
}
macro_rules! like {
    ($($t:ty),*) => {
        $(impl Like for $t { fn like(self, u: &UOp) -> UOp { u.const_like(self) } })*
    };
}
like!(i32, i64, usize, f32, f64, bool, Const);

impl UOp {
    /// A literal. Vectors of one repeated value are literals too.
    pub fn constant(value: impl Into<Const>, dtype: DType) -> UOp {
        let value = value.into();
        let from = match value {
            Const::Bool(_) => DType::BOOL,
            Const::Int(_) => DType::I64,
            Const::Float(_) => DType::F64,
        };
        // An integer literal of an unsigned dtype is its bit pattern, so it passes through;
        // everything else converts.
        let value = if from == DType::I64 && dtype.is_int() {
            value.normalize(dtype.scalar())
        } else {
            value.cast(from, dtype.scalar())
        };
        UOp::new(Op::Const, dtype, Src::new(), Arg::Const(value))
    }
    /// An integer of index arithmetic.
    pub fn int(value: i64) -> UOp {
        UOp::constant(value, DType::INDEX)
    }
    /// A bool literal.
    pub fn truth(value: bool) -> UOp {
        UOp::constant(value, DType::BOOL)
    }
    /// A literal of this node's dtype.
    pub fn const_like(&self, value: impl Into<Const>) -> UOp {
        UOp::constant(value, self.dtype())
    }
    /// The literal's value.
    #[inline]
    pub fn as_const(&self) -> Option<Const> {
        match self.arg() {
            Arg::Const(c) if self.op() == Op::Const => Some(*c),
            _ => None,
        }
    }
    /// The value of an integer or bool literal.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match self.arg() {
            Arg::Const(Const::Int(v)) => Some(*v),
            Arg::Const(Const::Bool(b)) => Some(*b as i64),
            _ => None,
        }
    }
    /// True if the node is this integer or bool literal.
    #[inline]
    pub fn is_int(&self, v: i64) -> bool {
        self.as_int() == Some(v)
    }

    /// An elementwise node of one operand.
    pub fn unary(&self, op: Op) -> UOp {
        UOp::new(op, self.dtype(), [self.clone()].to_src(), Arg::None)
    }
    /// An elementwise node of two operands; comparisons give bools.
    pub fn binary(&self, op: Op, other: impl Like) -> UOp {
        let other = other.like(self);
        let dtype = if op.is(super::Group::Comparison) {
            DType::BOOL.vec(self.dtype().lanes)
        } else {
            self.dtype()
        };
        UOp::new(op, dtype, [self.clone(), other].to_src(), Arg::None)
    }
    /// `self ? x : y`.
    pub fn select(&self, x: impl Like, y: &UOp) -> UOp {
        let x = x.like(y);
        UOp::new(Op::Where, y.dtype(), [self.clone(), x, y.clone()].to_src(), Arg::None)
    }
    /// self·y+z with one rounding.
    pub fn fma(&self, y: &UOp, z: &UOp) -> UOp {
        UOp::new(Op::Fma, self.dtype(), [self.clone(), y.clone(), z.clone()].to_src(), Arg::None)
    }
    /// Converted to a dtype; itself if it has it. The number of lanes stays.
    pub fn cast(&self, dtype: DType) -> UOp {
        let dtype = dtype.scalar().vec(self.dtype().lanes);
        if dtype == self.dtype() {
            self.clone()
        } else {
            UOp::new(Op::Cast, dtype, [self.clone()].to_src(), Arg::None)
        }
    }
    /// The same bits as another dtype.
    pub fn bitcast(&self, dtype: DType) -> UOp {
        let dtype = dtype.scalar().vec(self.dtype().lanes);
        if dtype == self.dtype() {
            self.clone()
        } else {
            UOp::new(Op::Bitcast, dtype, [self.clone()].to_src(), Arg::None)
        }
    }
    /// `self < other`.
    pub fn lt(&self, other: impl Like) -> UOp {
        self.binary(Op::Lt, other)
    }
    /// `self >= other` for integers: `other < self + 1` cannot overflow when written as a negation.
    pub fn ge(&self, other: impl Like) -> UOp {
        self.lt(other).not()
    }
    /// `self == other`.
    pub fn equals(&self, other: impl Like) -> UOp {
        self.binary(Op::Eq, other)
    }
    /// `self != other`.
    pub fn differs(&self, other: impl Like) -> UOp {
        self.binary(Op::Ne, other)
    }
    /// Bitwise, or for bools logical, negation.
    pub fn not(&self) -> UOp {
        if self.dtype().is_bool() {
            self.binary(Op::Xor, true)
        } else {
            self.binary(Op::Xor, -1i64)
        }
    }
    /// Bitwise or logical and.
    pub fn and(&self, other: impl Like) -> UOp {
        self.binary(Op::And, other)
    }
    /// Bitwise or logical or.
    pub fn or(&self, other: impl Like) -> UOp {
        self.binary(Op::Or, other)
    }
    /// A movement op, whose payload is known to fit.
    pub fn moved(&self, m: Movement) -> UOp {
        let op = match m {
            Movement::Reshape(_) => Op::Reshape,
            Movement::Expand(_) => Op::Expand,
            Movement::Permute(_) => Op::Permute,
            Movement::Pad(_) => Op::Pad,
            Movement::Shrink(_) => Op::Shrink,
            Movement::Flip(_) => Op::Flip,
        };
        UOp::new(op, self.dtype(), [self.clone()].to_src(), Arg::Movement(Box::new(m)))
    }
    /// The value on a device.
    pub fn copied(&self, device: &super::DeviceName) -> UOp {
        UOp::new(Op::Copy, self.dtype(), [self.clone()].to_src(), Arg::Device(device.clone()))
    }
    /// A copy of the value on a device, made after another value is computed.
    pub fn copied_after(&self, device: &super::DeviceName, after: &UOp) -> UOp {
        UOp::new(
            Op::Copy,
            self.dtype(),
            [self.clone(), after.clone()].to_src(),
            Arg::Device(device.clone()),
        )
    }
    /// One value on several devices: sharded along an axis, or replicated.
    pub fn shards(parts: impl Into<Src>, devices: &super::DeviceName, axis: Option<usize>) -> UOp {
        let parts = parts.into();
        UOp::new(
            Op::Shards,
            parts[0].dtype(),
            parts,
            Arg::Shards { devices: devices.clone(), axis },
        )
    }
    /// The elements `start..end` of an axis; the node itself if those are all.
    pub fn narrowed(&self, axis: usize, range: std::ops::Range<usize>) -> UOp {
        let shape = self.shape();
        if range == (0..shape[axis]) {
            return self.clone();
        }
        let keep =
            |(a, &n): (usize, &usize)| if a == axis { (range.start, range.end) } else { (0, n) };
        self.moved(Movement::shrink(shape.iter().enumerate().map(keep)))
    }
    /// An interval of an axis with symbolic start and length, which is known to fit.
    pub fn sliced(&self, axis: usize, start: SymInt, len: SymInt) -> UOp {
        UOp::new(
            Op::Slice,
            self.dtype(),
            [self.clone()].to_src(),
            Arg::Slice(Box::new(Slice { axis, start, len })),
        )
    }
    /// A symbolic integer as a node of an integer dtype.
    pub fn from_symint(bound: &SymInt, dtype: DType) -> UOp {
        let mut sum = UOp::constant(bound.plus(), dtype);
        for t in bound.terms() {
            let (name, min, max) = (t.variable.shared_name(), t.variable.min(), t.variable.max());
            let arg = match t.value {
                Some(value) => Arg::BoundVar { name, min, max, value },
                None => Arg::Var { name, min, max },
            };
            let variable = UOp::new(Op::Var, dtype, Src::new(), arg);
            let term = if t.times == 1 { variable } else { &variable * t.times };
            sum = if sum.is_int(0) { term } else { &sum + &term };
        }
        sum
    }
    /// A reduction over axes of the tensor graph, ascending, which remain with size one.
    pub fn reduced(&self, fold: super::Fold, axes: impl IntoIterator<Item = usize>) -> UOp {
        let axes: SmallVec<[usize; 2]> = axes.into_iter().collect();
        if axes.is_empty() {
            return self.clone();
        }
        UOp::new(Op::Reduce, self.dtype(), [self.clone()].to_src(), Arg::Reduce { fold, axes })
    }
    /// An inclusive scan along an axis of the tensor graph.
    pub fn scanned(&self, fold: super::Fold, axis: usize) -> UOp {
        UOp::new(
            Op::Scan,
            self.dtype(),
            [self.clone()].to_src(),
            Arg::Reduce { fold, axes: smallvec::smallvec![axis] },
        )
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
        UOp::new(
            Op::Gather,
            self.dtype(),
            [self.clone(), index.clone()].to_src(),
            Arg::Gather { axis },
        )
    }
    /// Combines values into this tensor at indices along an axis, in order. The shapes of index and
    /// value agree with it in all other axes.
    pub fn scattered(&self, index: &UOp, value: &UOp, combine: super::Combine, axis: usize) -> UOp {
        UOp::new(
            Op::Scatter,
            self.dtype(),
            [self.clone(), index.clone(), value.clone()].to_src(),
            Arg::Scatter { combine, axis },
        )
    }
}

/// Short arrays as operand lists.
pub trait ToSrc {
    /// As operands.
    fn to_src(self) -> Src;
}
impl<const N: usize> ToSrc for [UOp; N] {
    fn to_src(self) -> Src {
        let mut src = Src::new();
        self.into_iter().for_each(|u| src.push(u));
        src
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<R: Like> std::ops::$trait<R> for &UOp {
            type Output = UOp;
            fn $method(self, other: R) -> UOp { self.binary(Op::$op, other) }
        }
        impl<R: Like> std::ops::$trait<R> for UOp {
            type Output = UOp;
            fn $method(self, other: R) -> UOp { self.binary(Op::$op, other) }
        }
    )* };
}
operators!(
    Add add Add, Mul mul Mul, Rem rem Mod, Shl shl Shl, Shr shr Shr,
    BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor
);

impl<R: Like> std::ops::Div<R> for &UOp {
    type Output = UOp;
    /// Float division for floats, floor division for integers.
    fn div(self, other: R) -> UOp {
        self.binary(if self.dtype().is_float() { Op::Div } else { Op::IDiv }, other)
    }
}
impl<R: Like> std::ops::Div<R> for UOp {
    type Output = UOp;
    fn div(self, other: R) -> UOp {
        &self / other
    }
}
impl<R: Like> std::ops::Sub<R> for &UOp {
    type Output = UOp;
    /// There is no subtraction in the IR: `x - y` is `x + y * -1`, which rounds and wraps the same.
    fn sub(self, other: R) -> UOp {
        let other = other.like(self);
        self.binary(Op::Add, -&other)
    }
}
impl<R: Like> std::ops::Sub<R> for UOp {
    type Output = UOp;
    fn sub(self, other: R) -> UOp {
        &self - other
    }
}
impl std::ops::Neg for &UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        if self.dtype().is_float() {
            self.binary(Op::Mul, -1.0)
        } else {
            self.binary(Op::Mul, -1i64)
        }
    }
}
impl std::ops::Neg for UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        -&self
    }
}

/// Checks the operands of a `Cat`: one shape but for the axis, and no axis that ends at a variable.
pub(crate) fn fit_cat(axis: usize, src: &[UOp]) -> std::result::Result<(), String> {
    let first = src[0].shape();
    if axis >= first.len() {
        return Err(format!("axis {axis} of a tensor of rank {}", first.len()));
    }
    let alike = |s: &UOp| {
        s.shape().len() == first.len()
            && (0..first.len()).all(|a| a == axis || s.shape()[a] == first[a])
    };
    match src.iter().find(|s| !alike(s) || !s.extents().is_empty()) {
        Some(s) => Err(format!("{:?} beside {first:?} along axis {axis}", s.shape())),
        None => Ok(()),
    }
}

/// Checks the operands of a `Gather` or `Scatter`: one shape but for the axis, and index and value
/// of one shape.
pub(crate) fn fit_along(axis: usize, src: &[UOp]) -> std::result::Result<(), String> {
    let (table, index) = (&src[0], &src[1]);
    let rank = table.shape().len();
    if axis >= rank {
        return Err(format!("axis {axis} of a tensor of rank {rank}"));
    }
    let alike = |a: usize| {
        a == axis || (table.shape()[a] == index.shape()[a] && table.extent(a) == index.extent(a))
    };
    if index.shape().len() != rank || !(0..rank).all(alike) {
        return Err(format!(
            "an index of {:?} for {:?} along axis {axis}",
            index.shape(),
            table.shape()
        ));
    }
    // The scheduler makes a gather, also that of a scatter's gradient, a sum over all places for
    // each index.
    let places: Vec<usize> = index.shape().iter().chain([&table.shape()[axis]]).copied().collect();
    if checked_numel("gather", &places).is_err() {
        let (n, count) = (table.shape()[axis], index.shape());
        return Err(format!(
            "an index of {count:?} into {n} elements has more pairs of both than an index can \
             count"
        ));
    }
    match src.get(2) {
        Some(value) if value.shape() != index.shape() || value.extents() != index.extents() => {
            Err(format!("values of {:?} for an index of {:?}", value.shape(), index.shape()))
        }
        _ => Ok(()),
    }
}
