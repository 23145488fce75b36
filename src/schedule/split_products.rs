//! Long sums of products on devices that need many threads. Input: a tensor graph. Output: the
//! same, with each such sum split into partial sums, which are stored, and their sum.
//!
//! ```text
//! sum of 2048 products   =>   sum of 8 (contiguous(sum of 256 products))
//! ```
//!
//! A thread computes a tile of outputs, so that such sums are split with far more outputs than
//! others.

use super::prepare::{axes, fold, in_two_steps};
use crate::ir::{Fold, Group, Op, Src, UOp, rebuild_all};
use crate::target::ScheduleTuning;

/// Splits sums of products. `threads` is the number of threads that saturates the device.
pub fn split_products(outputs: &[UOp], threads: usize, tuning: &ScheduleTuning) -> Vec<UOp> {
    rebuild_all(outputs, |u, src| {
        let is_sum = u.op() == Op::Reduce && fold(u) == Fold::Add;
        let sum = is_sum.then(|| u.with_src(src.iter().cloned().collect::<Src>()))?;
        split_product(&sum, &src[0], threads, tuning)
    })
}

/// Splits a sum of products that has outputs for all threads, but not tiles of outputs.
fn split_product(u: &UOp, x: &UOp, threads: usize, tuning: &ScheduleTuning) -> Option<UOp> {
    let (outputs, row) = (u.numel(), x.numel().checked_div(u.numel().max(1))?);
    let tiles = (threads * tuning.product_tile).checked_div(outputs)?;
    let wanted = tiles.min(row / tuning.product_row);
    if wanted < tuning.min_product_parts || factor_reuse(x)? < tuning.product_uses {
        return None;
    }
    // The axis with the divisor nearest to the wanted number of pieces; of several the outermost,
    // so that accesses stay contiguous.
    let ways = axes(u)
        .iter()
        .filter(|a| x.extent(**a).is_none())
        .flat_map(|a| divisors(x.shape()[*a], 2 * wanted).map(move |n| (*a, n)));
    let (axis, pieces) = ways.filter(|w| w.1 > 1).min_by_key(|w| w.1.abs_diff(wanted))?;
    Some(in_two_steps(u, x, axis, pieces))
}

/// Returns the minimum number of products that an element of a factor is used in.
fn factor_reuse(x: &UOp) -> Option<usize> {
    let under = |u: &UOp, movement: bool| {
        let mut u = u.clone();
        while u.op() == Op::Cast || (movement && u.op().is(Group::Movement)) {
            u = u.operand().clone();
        }
        u
    };
    let product = under(x, false);
    let factors = product.as_mul()?;
    [factors.x, factors.y].iter().map(|f| x.numel() / under(f, true).numel().max(1)).min()
}

fn divisors(size: usize, most: usize) -> impl Iterator<Item = usize> {
    (1..=size.min(most)).filter(move |n| size.is_multiple_of(*n))
}
