//! Rewrites of the tensor graph before ranges are given: reduces over nothing become literals, nested reduces of one kind become one,
//! narrow floats are folded in f32 (so that no later pass, however it takes a reduce apart, rounds a partial result),
//! and a reduce with few outputs and a long row is done in two steps so that it can use the whole machine.

use crate::dtype::{Const, DType};
use crate::ir::{Arg, Fold, Op, ToSrc, UOp};
use crate::rewrite::Rules;
use crate::rules;
use crate::shape::{Dims, Movement};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Rows at least this long are split when there are few of them.
const SPLIT_ROW: usize = 1 << 15;
/// With this many rows there is work for everyone without a split.
const ENOUGH_ROWS: usize = 256;

rules! {
    /// Rules on the tensor graph.
    pub PREPARE |u, _cx: ()| {
        reduce_nothing: Reduce(x) if x.shape().contains(&0) && !u.shape().contains(&0)  => full(u, identity(u));
        reduce_narrow:  Reduce(x) if is_narrow(u) && !x.shape().contains(&0)            => in_f32(u, x);
        reduce_ones:    Reduce(x) if axes(u).iter().all(|a| x.shape()[*a] == 1)         => fold(u).of_one(x);
        reduce_reduce:  Reduce(x @ Reduce(y)) if fold(u) == fold(x)                     => joined(u, x, y);
        reduce_split:   Reduce(x)                                                       => split(u, x);
        reshape_reshape: Reshape(Reshape(x))                                            => x.moved(Movement::Reshape(u.shape().clone()));
        reshape_same:   Reshape(x) if u.shape() == x.shape()                            => x;
        expand_same:    Expand(x) if u.shape() == x.shape()                             => x;
        permute_permute: Permute(x @ Permute(y))                                        => permuted(u, x, y);
        contiguous_contiguous: Contiguous(x @ Contiguous(_))                            => x;
        contiguous_view: Contiguous(x) if x.view().is_some_and(|(b, seen)| b.op() == Op::Contiguous && seen.is_contiguous()) => x;
    }
}

static RULES: LazyLock<Rules<()>> = LazyLock::new(|| Rules::new(&[&PREPARE]));

/// The outputs after the rules.
pub fn prepare(outputs: &[UOp]) -> Vec<UOp> {
    RULES.fixpoint_all(outputs, &mut ())
}

fn axes(u: &UOp) -> &[usize] {
    match u.arg() {
        Arg::Reduce { axes, .. } => axes,
        _ => panic!("not a reduce: {u:?}"),
    }
}

fn fold(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("not a reduce: {u:?}"),
    }
}

fn identity(u: &UOp) -> Const {
    fold(u).identity(u.dtype())
}

/// Floats with too few digits to fold in.
fn is_narrow(u: &UOp) -> bool {
    u.dtype().is_float() && u.dtype().bits() < 32
}

/// The fold in f32, rounded once at the end.
fn in_f32(u: &UOp, x: &UOp) -> UOp {
    UOp::new(Op::Reduce, DType::F32, [x.cast(DType::F32)].to_src(), u.arg().clone()).cast(u.dtype())
}

/// A literal in the shape of `u`.
fn full(u: &UOp, value: Const) -> UOp {
    let one: Dims = u.shape().iter().map(|_| 1).collect();
    let scalar = UOp::new(Op::Const, u.dtype(), crate::ir::Src::new(), Arg::Const(value));
    scalar.moved(Movement::Reshape(one)).moved(Movement::Expand(u.shape().clone()))
}

fn joined(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    let mut all: SmallVec<[usize; 2]> = axes(u).iter().chain(axes(x)).copied().collect();
    all.sort_unstable();
    all.dedup();
    UOp::new(Op::Reduce, u.dtype(), [y.clone()].to_src(), Arg::Reduce { fold: fold(u), axes: all })
}

fn permuted(u: &UOp, x: &UOp, y: &UOp) -> Option<UOp> {
    let (Some(Movement::Permute(p)), Some(Movement::Permute(q))) = (u.arg().movement(), x.arg().movement()) else { return None };
    Some(y.moved(Movement::Permute(p.iter().map(|&a| q[a]).collect())))
}

/// `reduce(x)` as `reduce(store(reduce(x cut into pieces)))`, when one reduce alone would leave most of the machine idle.
fn split(u: &UOp, x: &UOp) -> Option<UOp> {
    let (outputs, row) = (u.numel(), x.numel().checked_div(u.numel().max(1))?);
    if row < SPLIT_ROW || outputs >= ENOUGH_ROWS || outputs == 0 || super::cost::selects(u) {
        return None;
    }
    // The longest reduced axis is cut; the number of pieces is the divisor nearest to 256.
    let axis = *axes(u).iter().max_by_key(|a| x.shape()[**a])?;
    let size = x.shape()[axis];
    let pieces = (8..=1024).filter(|d| size.is_multiple_of(*d) && size / d >= 8).min_by_key(|d| d.abs_diff(256))?;
    let mut cut = x.shape().clone();
    cut[axis] = size / pieces;
    cut.insert(axis, pieces);
    let inner: SmallVec<[usize; 2]> = axes(u).iter().map(|&a| if a >= axis { a + 1 } else { a }).collect();
    let partial = UOp::new(Op::Reduce, u.dtype(), [x.moved(Movement::Reshape(cut))].to_src(), Arg::Reduce { fold: fold(u), axes: inner });
    let stored = UOp::new(Op::Contiguous, u.dtype(), [partial].to_src(), Arg::None);
    let whole = UOp::new(Op::Reduce, u.dtype(), [stored].to_src(), Arg::Reduce { fold: fold(u), axes: smallvec::smallvec![axis] });
    Some(whole.moved(Movement::Reshape(u.shape().clone())))
}
