//! Constructors of the ops of kernels and linear programs, and typed views of groups of ops.

use super::{Arg, AxisKind, Fold, Group, IntoOperand, Op, SpecialKind, Src, ToSrc, UOp, typed};
use crate::dtype::DType;
use crate::shape;
use smallvec::SmallVec;

impl UOp {
    /// Returns a kernel argument of `len` elements.
    pub fn define_global(slot: usize, len: usize, dtype: DType) -> UOp {
        typed::DefineGlobal::build(dtype, Arg::Global { slot, len })
    }
    /// Shared memory of `len` elements.
    pub fn define_shared(id: u32, len: usize, dtype: DType) -> UOp {
        typed::DefineShared::build(dtype, Arg::Shared { id, len })
    }
    /// Returns a loop axis of `extent` iterations.
    pub fn range(extent: impl IntoOperand, id: u32, kind: AxisKind) -> UOp {
        let extent = extent.into_operand(&UOp::int(0));
        let arg = Arg::Range { id, kind, lanes: false };
        typed::Range::build(extent.dtype(), arg, extent)
    }
    /// Returns a coordinate of the launch grid.
    pub fn special(kind: SpecialKind, dim: u8, extent: usize, dtype: DType) -> UOp {
        typed::Special::build(dtype, Arg::Special { kind, dim, extent })
    }
    /// Returns an element of a buffer of a kernel, to be [loaded](Self::load) or
    /// [stored](Self::store) to.
    pub fn at(&self, index: impl IntoOperand) -> UOp {
        UOp::masked_index(self, index, None)
    }
    /// Returns the element `buffer[index]`, accessed only where the mask is true, if there is one.
    pub fn masked_index(buffer: &UOp, index: impl IntoOperand, mask: Option<UOp>) -> UOp {
        let index = index.into_operand(&UOp::int(0));
        typed::Index::build(buffer.dtype(), Arg::None, buffer.clone(), index, mask)
    }
    /// Returns the element at an index, without a mask.
    pub fn unmasked(&self) -> UOp {
        let index = self.expect_index();
        self.with_src([index.buffer.clone(), index.index.clone()].to_src())
    }
    /// Reads the element at an index.
    pub fn load(&self) -> UOp {
        typed::Load::build(self.dtype(), Arg::None, self.clone(), None, [])
    }
    /// Reads the element at a masked index; `alt` where the mask is false.
    pub fn load_or(&self, alt: &UOp) -> UOp {
        typed::Load::build(alt.dtype(), Arg::None, self.clone(), Some(alt.clone()), [])
    }
    /// Reads the element at an index after another node is executed, such as a barrier.
    pub fn load_after(&self, after: &UOp) -> UOp {
        typed::Load::build(self.dtype(), Arg::None, self.clone(), None, [after.clone()])
    }
    /// Writes the value to an index, in each iteration of the ranges.
    pub fn store(&self, value: impl IntoOperand, ranges: &[UOp]) -> UOp {
        let (value, ranges) = (value.into_operand(self), ranges.iter().cloned());
        typed::Store::build(DType::VOID, Arg::None, self.clone(), value, ranges)
    }
    /// Returns true for a store that bypasses the caches, or may in a kernel.
    pub fn is_nontemporal(&self) -> bool {
        matches!(self.arg(), Arg::StoreHint { nontemporal: true })
    }
    /// Returns a reduction of a kernel's value over ranges of a reduction kind.
    pub fn fold(&self, fold: Fold, ranges: &[UOp]) -> UOp {
        let arg = Arg::Reduce { fold, axes: SmallVec::new() };
        typed::Reduce::build(self.dtype(), arg, self.clone(), ranges.iter().cloned())
    }
    /// Returns an accumulator with this initial value.
    pub(crate) fn define_acc(&self, number: u32) -> UOp {
        typed::DefineAcc::build(self.dtype(), Arg::Acc(number), self.clone(), [])
    }
    /// Returns the value of the thread whose number differs in these bits.
    pub(crate) fn shuffle(&self, bits: usize) -> UOp {
        typed::Shuffle::build(self.dtype(), Arg::Shuffle(bits), self.clone())
    }
    /// Opens a region that is executed where this condition is true.
    pub(crate) fn open_if(&self) -> UOp {
        typed::If::build(DType::VOID, Arg::None, self.clone())
    }
    /// Closes the conditional region that this node opens.
    pub(crate) fn end_if(&self) -> UOp {
        typed::EndIf::build(DType::VOID, Arg::None, self.clone())
    }
    /// Lanes of a vector.
    pub(crate) fn gep(&self, lanes: impl IntoIterator<Item = u16>) -> UOp {
        let lanes: SmallVec<_> = lanes.into_iter().collect();
        let dtype = self.dtype().scalar().vec(lanes.len() as u16);
        typed::Gep::build(dtype, Arg::Lanes(lanes), self.clone())
    }
    /// Assigns a value to this accumulator.
    pub fn assign(&self, value: &UOp) -> UOp {
        typed::Assign::build(self.dtype(), Arg::None, self.clone(), value.clone())
    }
    /// Ends the loop of this range.
    pub fn end_range(&self) -> UOp {
        typed::EndRange::build(DType::VOID, Arg::None, self.clone())
    }
    /// Returns a barrier of the workgroup, after these nodes.
    pub fn barrier(before: impl Into<Src>) -> UOp {
        UOp::new(Op::Barrier, DType::VOID, before, Arg::None)
    }
    /// Returns the stores of a kernel, or the outputs of a tensor graph.
    pub fn sink(effects: impl Into<Src>) -> UOp {
        UOp::new(Op::Sink, DType::VOID, effects, Arg::None)
    }
    /// Returns a vector of scalars of one dtype, or the concatenation of vectors.
    pub fn vectorize(lanes: impl Into<Src>) -> UOp {
        let lanes = lanes.into();
        let count = lanes.iter().map(|s| s.dtype().lanes).sum();
        UOp::new(Op::Vectorize, lanes[0].dtype().scalar().vec(count), lanes, Arg::None)
    }
    /// Returns a vector with this value in every lane.
    pub fn splat(&self, lanes: u16) -> UOp {
        if lanes == 1 {
            return self.clone();
        }
        match self.as_const() {
            Some(c) => UOp::literal(c, self.dtype().vec(lanes)),
            None => UOp::vectorize(smallvec::smallvec![self.clone(); lanes as usize] as Src),
        }
    }
    /// Returns a lane of a vector; a scalar is its own lane.
    pub fn lane(&self, i: u16) -> UOp {
        if self.dtype().lanes == 1 {
            return self.clone();
        }
        match self.op() {
            Op::Const => self.retyped(self.dtype().scalar(), Src::new()),
            Op::Vectorize => {
                let (operand, lane) = self.operand_of_lane(i);
                operand.lane(lane)
            }
            _ => self.gep([i]),
        }
    }
    /// Returns the operands of a concatenation of two vectors of one dtype, which two-source
    /// shuffles pick lanes of.
    pub fn as_vector_pair(&self) -> Option<[&UOp; 2]> {
        let [a, b] = self.as_vectorize()?.lanes else { return None };
        (a.dtype().lanes > 1 && a.dtype() == b.dtype()).then_some([a, b])
    }
    /// Returns the operand of a `Vectorize` that has a lane, and which lane of the operand it is.
    pub fn operand_of_lane(&self, i: u16) -> (&UOp, u16) {
        let mut left = i;
        for s in self.src() {
            if left < s.dtype().lanes {
                return (s, left);
            }
            left -= s.dtype().lanes;
        }
        unreachable!("a vector has its lanes")
    }
    /// Returns the id of a range.
    #[track_caller]
    pub fn range_id(&self) -> u32 {
        self.expect_range().id
    }
    /// Returns true for a range that becomes vector lanes.
    pub fn is_lanes(&self) -> bool {
        matches!(self.arg(), Arg::Range { lanes: true, .. })
    }
    /// Returns the range with or without the mark of vector lanes.
    pub fn with_lanes(&self, lanes: bool) -> UOp {
        self.with_arg(Arg::Range { id: self.range_id(), kind: self.range_kind(), lanes })
    }
    /// Returns the kind of a range.
    #[track_caller]
    pub fn range_kind(&self) -> AxisKind {
        self.expect_range().kind
    }
}

/// A movement op: its operand and its payload.
#[derive(Clone, Copy)]
pub struct Moved<'a> {
    /// The operand.
    pub x: &'a UOp,
    /// The change of indices.
    pub movement: &'a shape::Movement,
}

/// The place and the vector lanes of a load or a store.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// The element that is accessed; with several lanes the first one.
    pub place: super::typed::Index<'a>,
    /// The number of adjacent elements.
    pub lanes: u16,
}

/// Typed views of groups of ops.
impl UOp {
    /// Returns the operands of a [`Binary`](Group::Binary) op.
    #[inline]
    pub fn as_binary(&self) -> Option<(&UOp, &UOp)> {
        match self.src() {
            [x, y] if self.op().is(Group::Binary) => Some((x, y)),
            _ => None,
        }
    }
    /// Returns the operands of a binary op.
    ///
    /// # Panics
    /// The node is not a binary op.
    #[inline]
    #[track_caller]
    pub fn expect_binary(&self) -> (&UOp, &UOp) {
        match self.as_binary() {
            Some(operands) => operands,
            None => panic!("expected a binary op, found {self:?}"),
        }
    }
    /// Returns the dtype that an elementwise op computes on: that of its operands, and of a `Where`
    /// that of its values.
    #[inline]
    pub fn operand_dtype(&self) -> DType {
        if self.op() == Op::Where { self.dtype() } else { self.operand().dtype() }
    }
    /// Returns the operand and the payload of a movement op.
    #[inline]
    pub fn as_movement(&self) -> Option<Moved<'_>> {
        match (self.src(), self.arg()) {
            ([x], Arg::Movement(movement)) => Some(Moved { x, movement }),
            _ => None,
        }
    }
    /// Returns the access of a load or a store.
    #[inline]
    pub fn as_access(&self) -> Option<Access<'_>> {
        match self.op() {
            Op::Load => {
                self.as_load().map(|l| Access { place: l.place, lanes: self.dtype().lanes })
            }
            Op::Store => {
                self.as_store().map(|s| Access { place: s.place, lanes: s.value.dtype().lanes })
            }
            _ => None,
        }
    }
    /// Returns the access of a load or a store.
    ///
    /// # Panics
    /// The node is neither.
    #[inline]
    #[track_caller]
    pub fn expect_access(&self) -> Access<'_> {
        match self.as_access() {
            Some(access) => access,
            None => panic!("expected a load or a store, found {self:?}"),
        }
    }
    /// Returns the operands of a store or a reduction of a kernel: values, and the ranges that it
    /// closes. Other nodes close no range.
    #[inline]
    pub fn values_and_ranges(&self) -> (&[UOp], &[UOp]) {
        let values = match self.op() {
            Op::Store => 2,
            Op::Reduce => 1,
            _ => self.src().len(),
        };
        self.src().split_at(values)
    }
    /// Returns the ranges that a store or a reduction of a kernel closes; none of another node.
    #[inline]
    pub fn closed_ranges(&self) -> &[UOp] {
        self.values_and_ranges().1
    }
    /// Returns the single operand, or the first of several: of a movement op, a mark, a cast, a
    /// reduction, a copy.
    ///
    /// # Panics
    /// The node has no operand.
    #[inline]
    #[track_caller]
    pub fn operand(&self) -> &UOp {
        match self.src() {
            [x, ..] => x,
            [] => panic!("{self:?} has no operand"),
        }
    }
    /// Returns the number of elements of the memory that this node defines, global or shared.
    #[inline]
    pub fn memory_len(&self) -> Option<usize> {
        match self.arg() {
            Arg::Global { len, .. } | Arg::Shared { len, .. } => Some(*len),
            _ => None,
        }
    }
}

impl<'a> super::typed::Reduce<'a> {
    /// Returns the values that are combined in each iteration: the body, and in an unrolled
    /// reduction the bodies of further iterations.
    pub fn values(&self) -> impl Iterator<Item = &'a UOp> {
        let is_term = |r: &&UOp| !matches!(r.op(), Op::Range | Op::DefineAcc);
        std::iter::once(self.body).chain(self.ranges.iter().filter(is_term))
    }
}
