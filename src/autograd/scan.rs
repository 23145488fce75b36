//! Gradients of scans, by weighted suffix sums along the last of two axes:
//!
//! ```text
//! s[i] = g[i] + a[i+1]·g[i+1] + a[i+1]·a[i+2]·g[i+2] + …
//! ```
//!
//! They are computed in blocks with O(n · BLOCK) work and without division, which would be wrong if
//! a factor is zero. Gradients of every order are right.

use super::{broadcast_to, inverse, iota, iota_vector};
use crate::ir::{Fold, Op, UOp};
use crate::shape::{Dims, Movement};

/// The number of elements of a block, of which all pairs are computed.
const BLOCK: usize = 16;

/// Returns the gradient of a cumulative sum: the cumulative sum of `g` from the other end.
pub(super) fn sums(u: &UOp, g: &UOp) -> UOp {
    let at = axis(u);
    let flip = |x: &UOp| x.moved(Movement::flip((0..x.shape().len()).map(|a| a == at)));
    flip(&flip(g).scanned(Fold::Add, at))
}

/// Returns the gradient of a cumulative product: the product before an element times the suffix sum
/// after it.
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

/// Returns the gradient of a cumulative maximum or minimum: for each element the sum of `g` over
/// the results that it determines.
pub(super) fn extremes(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    // Compared with the extremes of the same value and not with `u`, which an earlier plan may have
    // stored; a stored value replaces only an equal node.
    let x = &x.materialized();
    let best = x.unary(Op::Detach).scanned(u.expect_scan().fold, axis(u));
    let is_best = x.equals(&best).or(x.differs(x));
    let place = broadcast_to(&iota(x.shape(), axis(u)), x.shape());
    monotone_gather_gradient(
        &is_best.select(&place, &place.const_like(0i64)).scanned(Fold::Max, axis(u)),
        g,
        axis(u),
    )
}

/// Returns the gradient by `x` of `y[i] = x[places[i]]` along an axis. Places ascend, and
/// `places[i] <= i`.
pub fn monotone_gather_gradient(places: &UOp, g: &UOp, axis: usize) -> UOp {
    if g.numel() == 0 {
        return g.clone();
    }
    let rows = Rows::of(g.shape(), axis);
    let (p, up) = (rows.flat(places), rows.flat(g));
    let n = p.shape()[1];
    let last = p.narrowed(1, 0..n - 1).moved(Movement::pad([(0, 0), (1, 0)]));
    let sums = suffix_sums(&p.equals(&last), &up);
    let here = broadcast_to(&iota(p.shape(), 1).cast(p.dtype()), p.shape());
    rows.back(&p.equals(&here).select(&sums, &up.const_like(0i64)))
}

/// Suffix sums along the last of two axes. Weights are numbers, or bools that are false where a sum
/// ends.
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
    // The padding adds zeros, whatever the weights are.
    let (weights, values) = (cut(a), cut(g));
    let (sums, through) = inside(&weights, &values);
    let start = |x: &UOp| x.narrowed(1, 0..1);
    // For each block the part of a sum that comes from before it, and the weight of the sums after
    // it.
    let part = times(&start(&weights), &start(&sums)).moved(Movement::reshape([rows, blocks]));
    let left = product(&start(&weights), &start(&through)).moved(Movement::reshape([rows, blocks]));
    let left = left.narrowed(1, 0..blocks - 1).moved(Movement::pad([(0, 0), (1, 0)]));
    let after =
        suffix_sums(&left, &part).narrowed(1, 1..blocks).moved(Movement::pad([(0, 0), (0, 1)]));
    let after = broadcast_to(&after.moved(Movement::reshape([rows * blocks, 1])), sums.shape());
    let is_last = iota_vector(blocks).equals((blocks - 1) as i64);
    let is_last = broadcast_to(
        &is_last.moved(Movement::reshape([1, blocks, 1])),
        &Dims::from_slice(&[rows, blocks, BLOCK]),
    );
    let is_last = is_last.moved(Movement::reshape([rows * blocks, BLOCK]));
    let all = is_last.select(&sums, &(&sums + times(&through, &after)));
    all.moved(Movement::reshape([rows, blocks * BLOCK])).narrowed(1, 0..n)
}

/// Suffix sums of rows that are one block, and for each element the weight of the sums after its
/// row.
fn inside(a: &UOp, g: &UOp) -> (UOp, UOp) {
    let (rows, n) = (g.shape()[0], g.shape()[1]);
    let square = Dims::from_slice(&[rows, n, n]);
    let across = |x: &UOp| broadcast_to(&x.moved(Movement::reshape([rows, 1, n])), &square);
    let (from, to) =
        (broadcast_to(&iota(&square, 1), &square), broadcast_to(&iota(&square, 2), &square));
    let weights = from.lt(&to).select(across(a), &a.const_like(1i64)).scanned(Fold::Mul, 2);
    let terms = times(&weights, &across(g));
    let sums = to.lt(&from).select(g.const_like(0i64), &terms).reduced(Fold::Add, [2]);
    let through = weights.narrowed(2, n - 1..n);
    (sums.moved(Movement::reshape([rows, n])), through.moved(Movement::reshape([rows, n])))
}

/// Returns a value times a weight.
fn times(weight: &UOp, value: &UOp) -> UOp {
    if weight.dtype().is_bool() {
        weight.select(value, &value.const_like(0i64))
    } else {
        weight * value
    }
}

/// Returns the product of two weights.
fn product(a: &UOp, b: &UOp) -> UOp {
    if a.dtype().is_bool() { a.and(b) } else { a * b }
}

/// Returns the mask of the first element of each row.
fn first(rows: &UOp) -> UOp {
    broadcast_to(&iota(rows.shape(), 1).equals(0i64), rows.shape())
}

fn axis(u: &UOp) -> usize {
    u.expect_scan().axes[0]
}

/// The view of a shape as rows along one of its axes.
struct Rows {
    /// The axes in the order in which that axis is the last.
    order: Vec<usize>,
    permuted: Dims,
    flat: [usize; 2],
}

impl Rows {
    fn of(shape: &Dims, axis: usize) -> Rows {
        let order: Vec<usize> = (0..shape.len()).filter(|a| *a != axis).chain([axis]).collect();
        let permuted = order.iter().map(|&a| shape[a]).collect();
        let rows = shape.iter().product::<usize>() / shape[axis].max(1);
        Rows { order, permuted, flat: [rows, shape[axis]] }
    }
    fn flat(&self, x: &UOp) -> UOp {
        x.moved(Movement::permute(self.order.iter().copied())).moved(Movement::reshape(self.flat))
    }
    fn back(&self, x: &UOp) -> UOp {
        x.moved(Movement::Reshape(self.permuted.clone()))
            .moved(Movement::Permute(inverse(&self.order)))
    }
}
