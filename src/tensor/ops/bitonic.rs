//! Bitonic sorting network: the indices of the first keys of each row, in ascending order.
//!
//! A row is padded to a power of two and goes through Batcher's bitonic network: each step compares
//! every element with one partner, whose index differs in known bits. A step is a flip and a
//! selection, so that it fuses; but each fused step doubles the inputs of an element, so that
//! intermediates are stored in between. Indices accompany the keys and break ties, which makes the
//! sort stable and keeps padding at the end.

use super::create::iota;
use crate::error::Result;
use crate::shape::Movement;
use crate::tensor::Tensor;

/// Steps per kernel, by the number of elements. Three fused steps read eight elements for each and
/// take 7 comparisons instead of 3, which is cheaper than two launches up to about this many.
/// Beyond, the kernel of a single step depends only on its bits, so that most are compiled once for
/// all merges.
fn steps_per_kernel(numel: usize) -> usize {
    if numel <= 512 { 3 } else { 1 }
}

/// Step of the network: compares elements whose positions differ in `bit`, and with `mirrored` in
/// all bits below it, and moves the first of them where the bit is 0.
#[derive(Clone, Copy)]
struct Step {
    bit: usize,
    mirrored: bool,
}

/// Rows of `2^bits` keys with their original indices.
struct Rows {
    keys: Tensor,
    indices: Tensor,
    bits: usize,
}

/// Mask of the pairs in which `a` precedes `b`; indices break ties.
fn carry_stack(a: (&Tensor, &Tensor), b: (&Tensor, &Tensor)) -> Result<Tensor> {
    let ties = a.0.try_eq(b.0)?.try_bitwise_and(a.1.try_lt(b.1)?)?;
    a.0.try_lt(b.0)?.try_bitwise_or(ties)
}

impl Rows {
    /// Rows of keys, padded with the largest key.
    fn new(keys: &Tensor) -> Result<Rows> {
        let (rows, n) = (keys.dims()[0], keys.dims()[1]);
        let bits = n.next_power_of_two().trailing_zeros() as usize;
        let last = keys.literal(keys.dtype().max_value());
        let padded = keys.try_pad_with(&[(0, 0), (0, (1 << bits) - n)], last)?;
        let indices =
            keys.match_extents(keys.with_uop(iota(1 << bits).uop()).try_expand([rows, 1 << bits])?);
        Ok(Rows { keys: padded, indices, bits })
    }

    /// Applies all steps, several per kernel.
    fn network(mut self, steps: &[Step]) -> Result<Rows> {
        for group in steps.chunks(steps_per_kernel(self.keys.max_numel())) {
            self = self.group(group)?;
        }
        Ok(self)
    }

    /// Applies a few steps. The axis is split at all bits that they use, so that each is a flip of
    /// whole axes.
    fn group(self, steps: &[Step]) -> Result<Rows> {
        let Rows { mut keys, mut indices, bits } = self;
        let dims = keys.dims();
        let mut cuts: Vec<usize> =
            steps.iter().flat_map(|s| [s.bit, s.bit + 1]).chain([0, bits]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        // Bit ranges of the position, most significant first.
        let pieces: Vec<(usize, usize)> = cuts.windows(2).rev().map(|w| (w[0], w[1])).collect();
        let shape =
            || std::iter::once(dims[0]).chain(pieces.iter().map(|&(from, to)| 1 << (to - from)));
        keys = keys.shaped(shape())?;
        indices = indices.shaped(shape())?;
        for step in steps {
            let turned = |&(from, _): &(usize, usize)| {
                if step.mirrored { from <= step.bit } else { from == step.bit }
            };
            let flip = Movement::flip(std::iter::once(false).chain(pieces.iter().map(turned)));
            let (k, p) = (keys.movement(flip.clone())?, indices.movement(flip)?);
            let first = carry_stack((&k, &p), (&keys, &indices))?;
            // Where the bit is 1 the second element is kept.
            let axis = |&(from, _): &(usize, usize)| if from == step.bit { 2 } else { 1 };
            let second =
                iota(2).shaped(std::iter::once(1).chain(pieces.iter().map(axis)))?.try_eq(1)?;
            let exchange = first.try_bitwise_xor(second)?;
            keys = exchange.try_where_(k, keys)?;
            indices = exchange.try_where_(p, indices)?;
        }
        let stored = |t: Tensor| t.contiguous().shaped([dims[0], dims[1]]);
        Ok(Rows { keys: stored(keys)?, indices: stored(indices)?, bits })
    }

    /// First half of each two sorted runs of `2^run` elements, as a bitonic sequence: rows of half
    /// the length.
    fn first_half(self, run: usize) -> Result<Rows> {
        let (rows, pairs, size) = (self.keys.dims()[0], 1 << (self.bits - run - 1), 1 << run);
        let half = |t: &Tensor, i: usize| {
            let part = t.shaped([rows, pairs, 2, size])?.slice_axis(2, i, i + 1)?;
            part.shaped([rows, pairs * size])
        };
        // The second run is reversed: its last element meets the first of the other.
        let mirrored = |t: &Tensor| half(&t.shaped([rows, 2 * pairs, size])?.try_flip(2)?, 1);
        let (a, b) = (
            (half(&self.keys, 0)?, half(&self.indices, 0)?),
            (mirrored(&self.keys)?, mirrored(&self.indices)?),
        );
        let other = carry_stack((&b.0, &b.1), (&a.0, &a.1))?;
        let (keys, indices) = (other.try_where_(b.0, a.0)?, other.try_where_(b.1, a.1)?);
        Ok(Rows { keys, indices, bits: self.bits - 1 })
    }
}

/// Steps that sort runs of `2^bits` elements.
fn sorting(bits: usize) -> Vec<Step> {
    let merge = |top: usize| std::iter::once(Step { bit: top, mirrored: true }).chain(merging(top));
    (0..bits).flat_map(merge).collect()
}

/// Steps that sort a bitonic run of `2^bits` elements.
fn merging(bits: usize) -> impl Iterator<Item = Step> {
    (0..bits).rev().map(|bit| Step { bit, mirrored: false })
}

/// Returns the indices of the first `k` keys of each row, in order.
pub(super) fn sort_first(keys: &Tensor, k: usize) -> Result<Tensor> {
    let mut rows = Rows::new(keys)?;
    // Sorts runs that are just long enough to hold k, then keeps the first half of each pair of
    // runs until one is left.
    let run = (k.max(1).next_power_of_two().trailing_zeros() as usize).min(rows.bits);
    rows = rows.network(&sorting(run))?;
    while rows.bits > run {
        rows = rows.first_half(run)?.network(&merging(run).collect::<Vec<_>>())?;
    }
    rows.indices.slice_axis(1, 0, k)
}
