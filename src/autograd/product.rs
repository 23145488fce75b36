//! The gradient of a product over axes. `g·u/x` would divide by zero, and its own gradient would be
//! wrong if a factor is zero. Therefore the product is computed by a tree of pairwise
//! multiplications, whose gradients of every order are right.

use super::{broadcast_to, inverse};
use crate::dtype::DType;
use crate::ir::UOp;
use crate::shape::Movement;

/// Returns the gradient of `x` from the gradient `g` of its product `u`.
pub fn product(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    let axes = u.expect_reduce().axes;
    let shape = x.shape();
    let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<usize> = kept.iter().chain(axes.iter()).copied().collect();
    let rows: usize = kept.iter().map(|&a| shape[a]).product();
    let len: usize = axes.iter().map(|&a| shape[a]).product();
    if rows * len == 0 {
        return x.const_like(0i64);
    }
    let turned = x.moved(Movement::permute(order.iter().copied()));
    let turned_shape = turned.shape().clone();
    // Rows, padded with ones to a power of two.
    let full = len.next_power_of_two();
    let filled = turned
        .moved(Movement::reshape([rows, len]))
        .moved(Movement::pad([(0, 0), (0, full - len)]));
    let place = UOp::iota(full, DType::I64).moved(Movement::reshape([1, full]));
    let inside = broadcast_to(&place.lt(len as i64), filled.shape());
    let mut levels = vec![inside.select(&filled, &x.const_like(1i64))];
    let half = |t: &UOp, which: usize| {
        let n = t.shape()[1] / 2;
        let pairs = t.moved(Movement::reshape([rows, n, 2]));
        pairs.narrowed(2, which..which + 1).moved(Movement::reshape([rows, n]))
    };
    while levels[levels.len() - 1].shape()[1] > 2 {
        let top = &levels[levels.len() - 1];
        levels.push(half(top, 0) * half(top, 1));
    }
    // Down the tree: the gradient of each of a pair is that of the product times the other.
    let mut grad = g.moved(Movement::reshape([rows, 1]));
    for level in levels.iter().rev().filter(|l| l.shape()[1] > 1) {
        let n = level.shape()[1] / 2;
        let part = |which: usize| {
            let part = (&grad * half(level, 1 - which)).moved(Movement::reshape([rows, n, 1]));
            part.moved(Movement::pad([(0, 0), (0, 0), (which, 1 - which)]))
        };
        grad = (part(0) + part(1)).moved(Movement::reshape([rows, 2 * n]));
    }
    grad.moved(Movement::shrink([(0, rows), (0, len)]))
        .moved(Movement::Reshape(turned_shape))
        .moved(Movement::Permute(inverse(&order)))
}
