//! Bitonic sort networks. In come rows of integer keys, of which lesser ones come first; out come
//! the indices of the first keys in order.
//!
//! A row is padded to a power of two and goes through Batcher's bitonic network: each step compares
//! every element with one partner, whose index differs in known bits. A step is a flip and a
//! choice, so it fuses; but each fused step doubles what an element is computed from, so
//! intermediates are stored on the way. Indices travel with the keys and break ties, which makes
//! the order total: the sort is stable, and padding stays at the end.

use super::create::iota;
use crate::error::Result;
use crate::shape::Movement;
use crate::tensor::Tensor;

/// Steps in one kernel, by the number of elements. Three steps read eight elements for each and do
/// 7 comparisons where 3 would do: that is less than two launches up to about this many. For more,
/// a step by itself has a kernel that depends on its bits alone, so that most are compiled once for
/// all merges.
fn fused(numel: usize) -> usize {
    if numel <= 512 { 3 } else { 1 }
}

/// A step of the network: elements whose places differ in `bit`, and with `mirrored` in all bits
/// below it too, are compared and the one that comes first goes where the bit is 0.
#[derive(Clone, Copy)]
struct Step {
    bit: usize,
    mirrored: bool,
}

/// Rows of `2^bits` keys, with the index that each had.
struct Rows {
    keys: Tensor,
    places: Tensor,
    bits: usize,
}

/// A mask of the pairs in which `a` comes before `b`: indices decide between equal keys.
fn before(a: (&Tensor, &Tensor), b: (&Tensor, &Tensor)) -> Result<Tensor> {
    let ties = a.0.try_eq(b.0)?.try_bitwise_and(a.1.try_lt(b.1)?)?;
    a.0.try_lt(b.0)?.try_bitwise_or(ties)
}

impl Rows {
    /// The rows of keys, padded with the greatest key.
    fn new(keys: &Tensor) -> Result<Rows> {
        let (rows, n) = (keys.dims()[0], keys.dims()[1]);
        let bits = n.next_power_of_two().trailing_zeros() as usize;
        let last = keys.literal(keys.dtype().max_value());
        let padded = keys.try_pad_with(&[(0, 0), (0, (1 << bits) - n)], last)?;
        let places =
            keys.match_extents(keys.with_uop(iota(1 << bits).uop()).try_expand([rows, 1 << bits])?);
        Ok(Rows { keys: padded, places, bits })
    }

    /// All the steps, some of them in each kernel.
    fn network(mut self, steps: &[Step]) -> Result<Rows> {
        for group in steps.chunks(fused(self.keys.max_numel())) {
            self = self.group(group)?;
        }
        Ok(self)
    }

    /// A few steps. The axis is cut between all bits that they tell apart, so that each is a flip
    /// of whole axes.
    fn group(self, steps: &[Step]) -> Result<Rows> {
        let Rows { mut keys, mut places, bits } = self;
        let dims = keys.dims();
        let mut cuts: Vec<usize> =
            steps.iter().flat_map(|s| [s.bit, s.bit + 1]).chain([0, bits]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        // Pieces of the place, the most significant first: the bits of each.
        let pieces: Vec<(usize, usize)> = cuts.windows(2).rev().map(|w| (w[0], w[1])).collect();
        let shape =
            || std::iter::once(dims[0]).chain(pieces.iter().map(|&(from, to)| 1 << (to - from)));
        keys = keys.movement(Movement::reshape(shape()))?;
        places = places.movement(Movement::reshape(shape()))?;
        for step in steps {
            let turned = |&(from, _): &(usize, usize)| {
                if step.mirrored { from <= step.bit } else { from == step.bit }
            };
            let flip = Movement::flip(std::iter::once(false).chain(pieces.iter().map(turned)));
            let (k, p) = (keys.movement(flip.clone())?, places.movement(flip)?);
            let first = before((&k, &p), (&keys, &places))?;
            // Where the bit is 1 the element that comes second is wanted.
            let axis = |&(from, _): &(usize, usize)| if from == step.bit { 2 } else { 1 };
            let second = iota(2)
                .movement(Movement::reshape(std::iter::once(1).chain(pieces.iter().map(axis))))?
                .try_eq(1)?;
            let exchange = first.try_bitwise_xor(second)?;
            keys = exchange.try_where_(k, keys)?;
            places = exchange.try_where_(p, places)?;
        }
        let stored = |t: Tensor| t.contiguous().movement(Movement::reshape([dims[0], dims[1]]));
        Ok(Rows { keys: stored(keys)?, places: stored(places)?, bits })
    }

    /// Of each two sorted runs of `2^run` elements the first half, in the order that a merge takes:
    /// rows of half the length.
    fn first_of_two(self, run: usize) -> Result<Rows> {
        let (rows, pairs, size) = (self.keys.dims()[0], 1 << (self.bits - run - 1), 1 << run);
        let half = |t: &Tensor, i: usize| {
            let part =
                t.movement(Movement::reshape([rows, pairs, 2, size]))?.slice_axis(2, i, i + 1)?;
            part.movement(Movement::reshape([rows, pairs * size]))
        };
        // The second run backwards: the best of one meets the worst of the other.
        let mirrored = |t: &Tensor| {
            half(&t.movement(Movement::reshape([rows, 2 * pairs, size]))?.try_flip(2)?, 1)
        };
        let (a, b) = (
            (half(&self.keys, 0)?, half(&self.places, 0)?),
            (mirrored(&self.keys)?, mirrored(&self.places)?),
        );
        let other = before((&b.0, &b.1), (&a.0, &a.1))?;
        let (keys, places) = (other.try_where_(b.0, a.0)?, other.try_where_(b.1, a.1)?);
        Ok(Rows { keys, places, bits: self.bits - 1 })
    }
}

/// The steps that sort runs of `2^bits` elements.
fn sorting(bits: usize) -> Vec<Step> {
    let merge = |top: usize| std::iter::once(Step { bit: top, mirrored: true }).chain(merging(top));
    (0..bits).flat_map(merge).collect()
}

/// The steps that put a run of `2^bits` elements in order which first goes up and then down.
fn merging(bits: usize) -> impl Iterator<Item = Step> {
    (0..bits).rev().map(|bit| Step { bit, mirrored: false })
}

/// The indices of the first `k` of each row of keys, in order.
pub(in crate::tensor) fn first(keys: &Tensor, k: usize) -> Result<Tensor> {
    let mut rows = Rows::new(keys)?;
    // Runs just long enough to hold k; then the better half of each pair of runs, until there is
    // one.
    let run = (k.max(1).next_power_of_two().trailing_zeros() as usize).min(rows.bits);
    rows = rows.network(&sorting(run))?;
    while rows.bits > run {
        rows = rows.first_of_two(run)?.network(&merging(run).collect::<Vec<_>>())?;
    }
    rows.places.slice_axis(1, 0, k)
}
