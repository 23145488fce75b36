//! Rewrites of the tensor graph before ranges are assigned.
//!
//! * A reduce of no elements becomes a literal; nested reduces of one kind become one.
//! * Narrow floats are reduced in f32, so that no later pass rounds a partial result, however it
//!   splits a reduce.
//! * A reduce with few outputs and long rows is split into two steps, so that it uses all threads.

use super::reduce_simplify::selects;
use super::{indexed, scan};
use crate::dtype::{Const, DType};
use crate::ir::{Fold, Op, ToSrc, UOp};
use crate::rewrite::Rules;
use crate::rewrite::rules;
use crate::shape::{Dims, Movement};
use crate::target::ScheduleTuning;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::LazyLock;

rules! {
    /// Rules on the tensor graph.
    pub PREPARE |u, cx: ScheduleTuning| {
        reduce_nothing: Reduce(x) if is_empty(x) && !is_empty(u)                        => full(u, identity(u));
        reduce_narrow:  Reduce(x) if is_rounded(u, x)                                   => in_f32(u, x);
        reduce_ones:    Reduce(x) if combines_ones(u, x) && !is_rounded(u, x)           => fold(u).of_one(x);
        reduce_reduce:  Reduce(x @ Reduce(y)) if is_plain(u, x) && fold(u) == fold(x)   => merge_reduces(u, x, y);
        reduce_split:   Reduce(x) if is_plain(u, x) && !(x.op() == Op::Reduce && fold(u) == fold(x)) => split(u, x, cx);
        scan_nothing:   Scan(x) if is_empty(x)                                          => x;
        scan_narrow:    Scan(x) if is_rounded(u, x)                                     => in_f32(u, x);
        scan_one:       Scan(x) if x.shape()[scan::axis(u)] == 1 && !is_empty(x) && !is_rounded(u, x) => fold(u).of_one(x);
        scan_blocks:    Scan(x) if !is_empty(x) && !is_rounded(u, x)                    => scan::in_blocks(u, x, cx);
        gather_sum:     Gather(x, index)                                                => indexed::summed(x, index, u.expect_gather().axis);
        scatter_nothing: Scatter(x, index, _) if is_empty(index) || is_empty(x)         => x;
        scatter_narrow: Scatter(x, index, _) if is_rounded(u, x) && !is_empty(index)    => indexed::in_f32(u);
        reshape_reshape: Reshape(Reshape(x))                                            => x.moved(Movement::Reshape(u.shape().clone()));
        reshape_same:   Reshape(x) if u.shape() == x.shape()                            => x;
        expand_same:    Expand(x) if u.shape() == x.shape()                             => x;
        permute_permute: Permute(x @ Permute(y))                                        => merge_permutes(u, x, y);
        where_twice:    Where(_, x, =x) if x.shape() == u.shape()                       => x;
        contiguous_contiguous: Contiguous(x @ Contiguous(_))                            => x;
        contiguous_view: Contiguous(x) if x.view().is_some_and(|(b, seen)| b.op() == Op::Contiguous && seen.is_contiguous()) => x;
    }
}

static RULES: LazyLock<Rules<ScheduleTuning>> = LazyLock::new(|| Rules::new(&[&PREPARE]));

/// Applies the rules to the outputs.
pub fn prepare(outputs: &[UOp], mut tuning: ScheduleTuning) -> Vec<UOp> {
    RULES.fixpoint_all(outputs, &mut tuning)
}

/// Returns the axes of a reduce.
pub(super) fn axes(u: &UOp) -> &[usize] {
    u.expect_reduce().axes
}

/// Returns the operation of a reduce or a scan.
pub fn fold(u: &UOp) -> Fold {
    u.as_scan().map_or_else(|| u.expect_reduce().fold, |scan| scan.fold)
}

fn identity(u: &UOp) -> Const {
    fold(u).identity(u.dtype())
}

/// Returns true for a float with too few digits to accumulate in.
fn is_narrow(u: &UOp) -> bool {
    u.dtype().is_narrow_float()
}

fn is_empty(u: &UOp) -> bool {
    u.shape().contains(&0)
}

/// Returns true if the op combines elements `x` of a narrow float, and so rounds.
fn is_rounded(u: &UOp, x: &UOp) -> bool {
    is_narrow(u) && !is_empty(x)
}

/// Returns true if a reduce combines single elements.
fn combines_ones(u: &UOp, x: &UOp) -> bool {
    axes(u).iter().all(|a| x.shape()[*a] == 1)
}

/// Returns true if no rule replaces the reduce by a simpler node.
fn is_plain(u: &UOp, x: &UOp) -> bool {
    is_empty(x) == is_empty(u) && !is_rounded(u, x) && !combines_ones(u, x)
}

/// Computes the reduce or scan in f32, and rounds once at the end.
fn in_f32(u: &UOp, x: &UOp) -> UOp {
    u.retyped(DType::F32, [x.cast(DType::F32)].to_src()).cast(u.dtype())
}

/// Returns a literal in the shape of `u`.
fn full(u: &UOp, value: Const) -> UOp {
    let one: Dims = u.shape().iter().map(|_| 1).collect();
    let scalar = UOp::literal(value, u.dtype());
    scalar.moved(Movement::Reshape(one)).moved(Movement::Expand(u.shape().clone()))
}

fn merge_reduces(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    let mut all: SmallVec<[usize; 2]> = axes(u).iter().chain(axes(x)).copied().collect();
    all.sort_unstable();
    all.dedup();
    y.reduced(fold(u), all)
}

fn merge_permutes(u: &UOp, x: &UOp, y: &UOp) -> Option<UOp> {
    let (Some(Movement::Permute(p)), Some(Movement::Permute(q))) =
        (u.arg().movement(), x.arg().movement())
    else {
        return None;
    };
    Some(y.moved(Movement::Permute(p.iter().map(|&a| q[a]).collect())))
}

/// Splits a reduce into two steps, if one alone would leave most threads idle.
fn split(u: &UOp, x: &UOp, tuning: &ScheduleTuning) -> Option<UOp> {
    let (outputs, row) = (u.numel(), x.numel().checked_div(u.numel().max(1))?);
    if row < tuning.split_row || outputs >= tuning.split_rows || outputs == 0 || selects(u) {
        return None;
    }
    // The longest reduced axis is split if possible; of equal ones the innermost, which was faster
    // on GPUs.
    let mut ways: SmallVec<[usize; 4]> =
        axes(u).iter().copied().filter(|a| x.extent(*a).is_none()).collect();
    ways.sort_by_key(|a| Reverse((x.shape()[*a], *a)));
    ways.into_iter().find_map(|axis| split_axis(u, x, axis, tuning))
}

/// Splits a reduce into two steps, the first over pieces of one axis. `None` if the axis is too
/// short.
fn split_axis(u: &UOp, x: &UOp, axis: usize, tuning: &ScheduleTuning) -> Option<UOp> {
    let size = x.shape()[axis];
    let ScheduleTuning { row_pieces, max_pieces, min_pieces, even_pieces, piece_vectors, .. } =
        *tuning;
    // Pieces along unit stride are whole vectors.
    let has_unit_stride = x.shape()[axis + 1..].iter().all(|n| *n == 1);
    let lanes = if has_unit_stride { tuning.piece_lanes } else { 1 };
    let most = (size / (piece_vectors * lanes)).min(max_pieces);
    let nearest = |ways: &mut dyn Iterator<Item = usize>| {
        ways.filter(|d| size / d >= piece_vectors).min_by_key(|d| d.abs_diff(row_pieces))
    };
    let even = most.div_ceil(2).max(min_pieces)..=even_pieces;
    if let Some(pieces) = nearest(&mut even.filter(|d| size.is_multiple_of(d * lanes))) {
        return Some(in_two_steps(u, x, axis, pieces));
    }
    if most < min_pieces || !x.extents().is_empty() {
        return nearest(&mut (min_pieces..=even_pieces).filter(|d| size.is_multiple_of(*d)))
            .map(|pieces| in_two_steps(u, x, axis, pieces));
    }
    // A length without a good divisor: all but a short remainder is split. One thread without lanes
    // would take twenty times as long.
    let left = |d: &usize| size % (d * lanes);
    let pieces = ((most * tuning.uneven_pieces_of_5 / 5).max(min_pieces)..=most)
        .min_by_key(|d| (left(d), d.abs_diff(row_pieces)))?;
    let end = size - left(&pieces);
    let part = |range| u.with_src([x.narrowed(axis, range)].to_src());
    Some(
        in_two_steps(u, &x.narrowed(axis, 0..end), axis, pieces)
            .binary(fold(u).op(), part(end..size)),
    )
}

/// Expresses `reduce(x)` as `reduce(contiguous(reduce(x split into pieces)))`.
pub(super) fn in_two_steps(u: &UOp, x: &UOp, axis: usize, pieces: usize) -> UOp {
    let mut split = x.shape().clone();
    split[axis] /= pieces;
    split.insert(axis, pieces);
    let inner = axes(u).iter().map(|&a| if a >= axis { a + 1 } else { a });
    let partial = x.moved(Movement::Reshape(split)).reduced(fold(u), inner);
    let stored = partial.contiguous();
    stored.reduced(fold(u), [axis]).moved(Movement::Reshape(u.shape().clone()))
}
