//! Sorting along an axis. In comes a tensor; out come its elements in order, and the places that they had.
//!
//! An axis is filled up to a power of two and goes through Batcher's bitonic network: each step compares every element with one partner, whose
//! place differs in known bits. A step is a flip and a choice, so it fuses; but each step that is fused doubles what an element is computed from, so the values
//! are stored on the way. The places travel with the values and break ties, which makes the order total: the sort is stable, and padding stays at the end.

use super::create::iota;
use super::{Tensor, resolve_axis, wrong_shape};
use crate::dtype::Const;
use crate::error::Result;
use crate::shape::Movement;

/// Steps in one kernel, by the number of elements. Three steps read eight elements for each and do 7 comparisons where 3 would do: that is less than
/// two launches up to about this many. For more, a step by itself has a kernel that depends on its bits alone, so that most are compiled once for all merges.
fn fused(numel: usize) -> usize {
    if numel <= 512 { 3 } else { 1 }
}

/// A step of the network: elements whose places differ in `bit`, and with `mirrored` in all bits below it too, are compared and the one that comes first goes
/// where the bit is 0.
#[derive(Clone, Copy)]
struct Step {
    bit: usize,
    mirrored: bool,
}

/// Rows of `2^bits` elements, with the place that each had.
struct Rows {
    values: Tensor,
    places: Tensor,
    bits: usize,
    descending: bool,
}

/// Whether `a` comes before `b`: NaN is greater than all numbers, and the places decide between equals.
fn before(a: (&Tensor, &Tensor), b: (&Tensor, &Tensor), descending: bool) -> Result<Tensor> {
    let (low, high) = if descending { (b.0, a.0) } else { (a.0, b.0) };
    let (mut less, mut equal) = (low.try_lt(high)?, low.try_eq(high)?);
    if low.is_floating_point() {
        let (x, y) = (low.isnan(), high.isnan());
        less = less.try_bitwise_or(y.try_bitwise_and(!&x)?)?;
        equal = equal.try_bitwise_or(x.try_bitwise_and(y)?)?;
    }
    less.try_bitwise_or(equal.try_bitwise_and(a.1.try_lt(b.1)?)?)
}

impl Rows {
    /// The axis filled up with what comes last, as rows.
    fn new(x: &Tensor, descending: bool) -> Result<Rows> {
        let (rows, n) = (x.dims()[0], x.dims()[1]);
        let bits = n.next_power_of_two().trailing_zeros() as usize;
        let last = match (descending, x.is_floating_point()) {
            (false, true) => Const::Float(f64::NAN),
            (false, false) => x.dtype().max_value(),
            (true, _) => x.dtype().min_value(),
        };
        let values = x.try_pad_with(&[(0, 0), (0, (1 << bits) - n)], x.literal(last))?;
        let places = x.as_much_of(x.with(iota(1 << bits).uop()).try_expand([rows, 1 << bits])?);
        Ok(Rows { values, places, bits, descending })
    }

    /// All the steps, some of them in each kernel.
    fn network(mut self, steps: &[Step]) -> Result<Rows> {
        for group in steps.chunks(fused(self.values.max_numel())) {
            self = self.group(group)?;
        }
        Ok(self)
    }

    /// A few steps. The axis is cut between all bits that they tell apart, so that each is a flip of whole axes.
    fn group(self, steps: &[Step]) -> Result<Rows> {
        let Rows { mut values, mut places, bits, descending } = self;
        let dims = values.dims();
        let mut cuts: Vec<usize> = steps.iter().flat_map(|s| [s.bit, s.bit + 1]).chain([0, bits]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        // Pieces of the place, the most significant first: the bits of each.
        let pieces: Vec<(usize, usize)> = cuts.windows(2).rev().map(|w| (w[0], w[1])).collect();
        let shape = || std::iter::once(dims[0]).chain(pieces.iter().map(|&(from, to)| 1 << (to - from)));
        values = values.moved(Movement::reshape(shape()))?;
        places = places.moved(Movement::reshape(shape()))?;
        for step in steps {
            let turned = |&(from, _): &(usize, usize)| if step.mirrored { from <= step.bit } else { from == step.bit };
            let flip = Movement::flip(std::iter::once(false).chain(pieces.iter().map(turned)));
            let (v, p) = (values.moved(flip.clone())?, places.moved(flip)?);
            let first = before((&v, &p), (&values, &places), descending)?;
            // Where the bit is 1 the element that comes second is wanted.
            let axis = |&(from, _): &(usize, usize)| if from == step.bit { 2 } else { 1 };
            let second = iota(2).moved(Movement::reshape(std::iter::once(1).chain(pieces.iter().map(axis))))?.try_eq(1)?;
            let exchange = first.try_bitwise_xor(second)?;
            values = exchange.try_where_(v, values)?;
            places = exchange.try_where_(p, places)?;
        }
        let stored = |t: Tensor| t.contiguous().moved(Movement::reshape([dims[0], dims[1]]));
        Ok(Rows { values: stored(values)?, places: stored(places)?, bits, descending })
    }

    /// Of each two sorted runs of `2^run` elements the first half, in the order that a merge takes: rows of half the length.
    fn first_of_two(self, run: usize) -> Result<Rows> {
        let (rows, pairs, size) = (self.values.dims()[0], 1 << (self.bits - run - 1), 1 << run);
        let half = |t: &Tensor, i: usize| {
            let part = t.moved(Movement::reshape([rows, pairs, 2, size]))?.slice_axis(2, i, i + 1)?;
            part.moved(Movement::reshape([rows, pairs * size]))
        };
        // The second run backwards: the best of one meets the worst of the other.
        let mirrored = |t: &Tensor| half(&t.moved(Movement::reshape([rows, 2 * pairs, size]))?.try_flip(2)?, 1);
        let (a, b) = ((half(&self.values, 0)?, half(&self.places, 0)?), (mirrored(&self.values)?, mirrored(&self.places)?));
        let other = before((&b.0, &b.1), (&a.0, &a.1), self.descending)?;
        let (values, places) = (other.try_where_(b.0, a.0)?, other.try_where_(b.1, a.1)?);
        Ok(Rows { values, places, bits: self.bits - 1, descending: self.descending })
    }

    fn shortened(&self, size: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.values.slice_axis(1, 0, size)?, self.places.slice_axis(1, 0, size)?))
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

/// The first `k` of an axis in order, and their places.
fn first(op: &'static str, x: &Tensor, k: Option<usize>, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
    let dims = x.dims();
    let at = resolve_axis(op, axis, &dims)?;
    x.no_variables(op, [at])?;
    let n = dims[at];
    let k = k.unwrap_or(n);
    if k > n {
        return wrong_shape(op, format!("the first {k} of axis {axis} of {dims:?}, which has {n}"));
    }
    let swapped = x.try_transpose(at as isize, -1)?;
    let mut shape = swapped.dims();
    let last = shape.len() - 1;
    let rows = shape[..last].iter().product::<usize>();
    let mut out = Rows::new(&swapped.moved(Movement::reshape([rows, n]))?, descending)?;
    // Runs just long enough to hold k; then the better half of each pair of runs, until there is one.
    let run = (k.max(1).next_power_of_two().trailing_zeros() as usize).min(out.bits);
    out = out.network(&sorting(run))?;
    while out.bits > run {
        out = out.first_of_two(run)?.network(&merging(run).collect::<Vec<_>>())?;
    }
    shape[last] = k;
    let back = |t: Tensor| t.moved(Movement::Reshape(shape.clone()))?.try_transpose(at as isize, -1);
    let (values, places) = out.shortened(k)?;
    Ok((back(values)?, back(places)?))
}

impl Tensor {
    fallible! {
        /// The elements along an axis in order, and the places that they had. Equal elements stay in their order (-0 equals 0), and NaN is greater than
        /// all numbers. The work is n·log²n.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, places) = Tensor::new([3, 1, 2, 1]).sort(0, false);
        /// assert_eq!(values.to_vec::<i32>()?, [1, 1, 2, 3]);
        /// assert_eq!(places.to_vec::<i32>()?, [1, 3, 2, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn sort | try_sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
            first("sort", self, None, axis, descending)
        }

        /// The places of the elements along an axis, in the order of [`sort`](Self::sort).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([0.5f32, -1.0, 2.0]).argsort(0, true).to_vec::<i32>()?, [2, 0, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn argsort | try_argsort(&self, axis: isize, descending: bool) -> Tensor {
            Ok(first("argsort", self, None, axis, descending)?.1)
        }

        /// The `k` greatest elements along an axis, or with `largest` false the least, and their places: the beginning of [`sort`](Self::sort), for less
        /// work. They come in order also if that is not asked for with `sorted`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, places) = Tensor::new([[1, 9, 4, 7]]).topk(2, -1, true, true);
        /// assert_eq!(values.to_vec::<i32>()?, [9, 7]);
        /// assert_eq!(places.to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn topk | try_topk(&self, k: usize, axis: isize, largest: bool, sorted: bool) -> (Tensor, Tensor) {
            let _ = sorted;
            first("topk", self, Some(k), axis, largest)
        }
    }
}
