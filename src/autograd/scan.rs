//! Gradients of scans. All are made of suffix sums with weights,
//!
//! ```text
//! s[i] = g[i] + a[i+1]·g[i+1] + a[i+1]·a[i+2]·g[i+2] + …   along the last of two axes,
//! ```
//!
//! computed in blocks: O(n · BLOCK) work, no division (which would be wrong beside a zero), and
//! right to every order.

use super::spread;
use crate::dtype::DType;
use crate::ir::{Arg, Fold, Op, Src, UOp};
use crate::shape::{Dims, Movement};

/// Elements of a block, for which all pairs are looked at.
const BLOCK: usize = 16;

/// The gradient of a running sum: the running sum of the gradient from the other end.
pub(super) fn sums(u: &UOp, g: &UOp) -> UOp {
    let at = axis(u);
    let flip = |x: &UOp| x.moved(Movement::flip((0..x.shape().len()).map(|a| a == at)));
    flip(&flip(g).scanned(Fold::Add, at))
}

/// The gradient of a running product: what comes before an element times the suffix sum of what
/// comes after.
pub(super) fn products(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    if x.numel() == 0 {
        return g.clone();
    }
    let rows = Rows::of(x.shape(), axis(u));
    let (flat, up) = (rows.flat(x), rows.flat(g));
    let n = flat.shape()[1];
    let shifted =
        flat.scanned(Fold::Mul, 1).narrowed(1, 0..n - 1).moved(Movement::pad([(0, 0), (1, 0)]));
    let before = first(&flat).select(1.0, &shifted);
    rows.back(&(before * suffix_sums(&flat, &up)))
}

/// The gradient of a running extreme: every element gets the gradients of the results that are it.
pub(super) fn extremes(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    // Compared with the extremes of the very same value, and not with `u`, which may be stored from
    // an earlier plan and replaces only a node that equals it.
    let x = &x.materialized();
    let best = x.unary(Op::Detach).scanned(fold(u), axis(u));
    let is_best = x.equals(&best).or(x.differs(x));
    let place = spread(&iota(x.shape(), axis(u)), x.shape());
    routed(&is_best.select(&place, &place.const_like(0i64)).scanned(Fold::Max, axis(u)), g, axis(u))
}

/// The gradient by `x` of `y[i] = x[places[i]]` along an axis, where places ascend and none is
/// greater than `i`.
pub fn routed(places: &UOp, g: &UOp, axis: usize) -> UOp {
    if g.numel() == 0 {
        return g.clone();
    }
    let rows = Rows::of(g.shape(), axis);
    let (p, up) = (rows.flat(places), rows.flat(g));
    let n = p.shape()[1];
    let last = p.narrowed(1, 0..n - 1).moved(Movement::pad([(0, 0), (1, 0)]));
    let sums = suffix_sums(&p.equals(&last), &up);
    let here = spread(&iota(p.shape(), 1).cast(p.dtype()), p.shape());
    rows.back(&p.equals(&here).select(&sums, &up.const_like(0i64)))
}

/// Suffix sums of the last of two axes. Weights are numbers, or bools that say whether a sum goes
/// on.
fn suffix_sums(a: &UOp, g: &UOp) -> UOp {
    let (rows, n) = (g.shape()[0], g.shape()[1]);
    if n <= BLOCK {
        return inside(a, g).0;
    }
    let blocks = n.div_ceil(BLOCK);
    let cut = |x: &UOp| {
        let filled = x.moved(Movement::pad([(0, 0), (0, blocks * BLOCK - n)]));
        filled.moved(Movement::reshape([rows * blocks, BLOCK]))
    };
    // After the end there is nothing to add, whatever the weights are.
    let (weights, values) = (cut(a), cut(g));
    let (sums, through) = inside(&weights, &values);
    let start = |x: &UOp| x.narrowed(1, 0..1);
    // Of each block: its part of a sum that comes from before, and what is left of the sums after
    // it.
    let part = times(&start(&weights), &start(&sums)).moved(Movement::reshape([rows, blocks]));
    let left = product(&start(&weights), &start(&through)).moved(Movement::reshape([rows, blocks]));
    let left = left.narrowed(1, 0..blocks - 1).moved(Movement::pad([(0, 0), (1, 0)]));
    let after =
        suffix_sums(&left, &part).narrowed(1, 1..blocks).moved(Movement::pad([(0, 0), (0, 1)]));
    let after = spread(&after.moved(Movement::reshape([rows * blocks, 1])), sums.shape());
    let is_last = line(blocks).equals((blocks - 1) as i64);
    let is_last = spread(
        &is_last.moved(Movement::reshape([1, blocks, 1])),
        &Dims::from_slice(&[rows, blocks, BLOCK]),
    );
    let is_last = is_last.moved(Movement::reshape([rows * blocks, BLOCK]));
    let all = is_last.select(&sums, &(&sums + times(&through, &after)));
    all.moved(Movement::reshape([rows, blocks * BLOCK])).narrowed(1, 0..n)
}

/// Suffix sums of rows that are one block, and the weight of each element for what comes after its
/// row.
fn inside(a: &UOp, g: &UOp) -> (UOp, UOp) {
    let (rows, n) = (g.shape()[0], g.shape()[1]);
    let square = Dims::from_slice(&[rows, n, n]);
    let across = |x: &UOp| spread(&x.moved(Movement::reshape([rows, 1, n])), &square);
    let (from, to) = (spread(&iota(&square, 1), &square), spread(&iota(&square, 2), &square));
    let weights = from.lt(&to).select(across(a), &a.const_like(1i64)).scanned(Fold::Mul, 2);
    let terms = times(&weights, &across(g));
    let sums = to.lt(&from).select(g.const_like(0i64), &terms).reduced(Fold::Add, [2]);
    let through = weights.narrowed(2, n - 1..n);
    (sums.moved(Movement::reshape([rows, n])), through.moved(Movement::reshape([rows, n])))
}

/// A value times a weight.
fn times(weight: &UOp, value: &UOp) -> UOp {
    if weight.dtype().is_bool() {
        weight.select(value, &value.const_like(0i64))
    } else {
        weight * value
    }
}

/// Both weights, one after the other.
fn product(a: &UOp, b: &UOp) -> UOp {
    if a.dtype().is_bool() { a.and(b) } else { a * b }
}

/// Where an element is the first of its row.
fn first(rows: &UOp) -> UOp {
    spread(&iota(rows.shape(), 1).equals(0i64), rows.shape())
}

/// `0, 1, …` along an axis of a shape, of size one in all others.
fn iota(shape: &Dims, axis: usize) -> UOp {
    let along: Dims = (0..shape.len()).map(|a| if a == axis { shape[a] } else { 1 }).collect();
    line(shape[axis]).moved(Movement::Reshape(along))
}

/// `0, 1, …`, in a dtype that holds every place.
fn line(len: usize) -> UOp {
    let dtype = if i32::try_from(len).is_ok() { DType::I32 } else { DType::I64 };
    UOp::new(Op::Iota, dtype, Src::new(), Arg::Iota { len })
}

fn fold(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("not a scan: {u:?}"),
    }
}

fn axis(u: &UOp) -> usize {
    match u.arg() {
        Arg::Reduce { axes, .. } => axes[0],
        _ => panic!("not a scan: {u:?}"),
    }
}

/// A shape as rows along one of its axes.
struct Rows {
    /// The axes in the order in which that one is the last.
    order: Vec<usize>,
    turned: Dims,
    flat: [usize; 2],
}

impl Rows {
    fn of(shape: &Dims, axis: usize) -> Rows {
        let order: Vec<usize> = (0..shape.len()).filter(|a| *a != axis).chain([axis]).collect();
        let turned = order.iter().map(|&a| shape[a]).collect();
        let rows = shape.iter().product::<usize>() / shape[axis].max(1);
        Rows { order, turned, flat: [rows, shape[axis]] }
    }
    fn flat(&self, x: &UOp) -> UOp {
        x.moved(Movement::permute(self.order.iter().copied())).moved(Movement::reshape(self.flat))
    }
    fn back(&self, x: &UOp) -> UOp {
        let place = |a: usize| {
            self.order.iter().position(|&p| p == a).expect("a permutation has every axis")
        };
        x.moved(Movement::Reshape(self.turned.clone()))
            .moved(Movement::permute((0..self.order.len()).map(place)))
    }
}
