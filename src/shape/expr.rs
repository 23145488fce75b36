//! Index expressions of views and movement ops.
//!
//! Input: expressions of the index of an element after movement ops. Output: expressions of the
//! index before them, and the mask under which the element exists. The type of expressions is
//! generic ([`IndexExpr`]).
//!
//! Sums are lists of terms with bounds until they become expressions, so that only the terms that
//! need it are divided: `(i·6 + j) / 3` becomes `i·2 + j/3`, and `(i·3 + j) % 6` with `j < 3`
//! becomes `(i%2)·3 + j`. Dividends are not negative where the mask is true, so that truncating and
//! floor division agree.

use super::compose::{MergeRule, axes_of};
use super::{Movement, ShapeTracker, gcd};
use smallvec::SmallVec;

/// An integer or boolean expression of indices. `i64` is one for known indices, with booleans 0 and
/// 1.
pub trait IndexExpr: Clone {
    /// Returns a constant.
    fn int(value: i64) -> Self;
    /// Returns the sum of two integers.
    fn add(&self, other: &Self) -> Self;
    /// Returns an integer times a constant.
    fn mul(&self, factor: i64) -> Self;
    /// Returns an integer divided by a positive constant, rounded down.
    fn div(&self, divisor: i64) -> Self;
    /// Returns the remainder of [`IndexExpr::div`], from 0 up to the divisor.
    fn modulo(&self, divisor: i64) -> Self;
    /// Returns true if an integer is at least a constant.
    fn ge(&self, bound: i64) -> Self;
    /// Returns true if an integer is below a constant.
    fn lt(&self, bound: i64) -> Self;
    /// Returns the conjunction of two booleans.
    fn and(&self, other: &Self) -> Self;
    /// Returns the boolean true.
    fn truth() -> Self;
}

// These wrap, because an index under a false mask may have any value.
impl IndexExpr for i64 {
    fn int(value: i64) -> Self {
        value
    }
    fn add(&self, other: &Self) -> Self {
        self.wrapping_add(*other)
    }
    fn mul(&self, factor: i64) -> Self {
        self.wrapping_mul(factor)
    }
    fn div(&self, divisor: i64) -> Self {
        self.div_euclid(divisor)
    }
    fn modulo(&self, divisor: i64) -> Self {
        self.rem_euclid(divisor)
    }
    fn ge(&self, bound: i64) -> Self {
        (*self >= bound) as i64
    }
    fn lt(&self, bound: i64) -> Self {
        (*self < bound) as i64
    }
    fn and(&self, other: &Self) -> Self {
        self & other
    }
    fn truth() -> Self {
        1
    }
}

/// An expression times a stride, with bounds of the expression where the mask is true.
#[derive(Clone)]
struct Term<E> {
    /// The number of the expression: terms with the same number have the same one.
    name: usize,
    expr: E,
    stride: i128,
    least: i128,
    most: i128,
}

/// A constant and a sum of terms, coarsest first.
#[derive(Clone)]
struct Sum<E> {
    constant: i128,
    terms: SmallVec<[Term<E>; 4]>,
}

/// The generator of the numbers of expressions.
#[derive(Default)]
struct Names(usize);

impl Names {
    fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }
}

impl<E: IndexExpr> Sum<E> {
    fn constant(constant: i128) -> Self {
        let terms = SmallVec::new();
        Sum { constant, terms }
    }

    /// Adds an expression with inclusive bounds; one of a single value becomes a constant.
    fn push(&mut self, name: usize, expr: E, stride: i128, (least, most): (i128, i128)) {
        if least == most {
            self.constant += stride * least;
            return;
        }
        if let Some(term) = self.terms.iter_mut().find(|t| t.name == name) {
            term.stride += stride;
            return;
        }
        self.terms.push(Term { name, expr, stride, least, most });
    }

    fn add_scaled(&mut self, other: &Sum<E>, factor: i128) {
        self.constant += other.constant * factor;
        for t in &other.terms {
            self.push(t.name, t.expr.clone(), t.stride * factor, (t.least, t.most));
        }
    }

    fn bounds(&self) -> (i128, i128) {
        self.terms.iter().fold((self.constant, self.constant), |(least, most), t| {
            let (a, b) = (t.stride * t.least, t.stride * t.most);
            (least + a.min(b), most + a.max(b))
        })
    }

    /// Returns the expression of the sum. A constant outside `i64` is only possible under a false
    /// mask, so it may wrap.
    fn build(&self) -> E {
        let mut sum: Option<E> = None;
        for t in self.terms.iter().filter(|t| t.stride != 0) {
            let scaled = if t.stride == 1 { t.expr.clone() } else { t.expr.mul(t.stride as i64) };
            sum = Some(match sum {
                None => scaled,
                Some(sum) => sum.add(&scaled),
            });
        }
        match sum {
            Some(sum) if self.constant == 0 => sum,
            Some(sum) => sum.add(&E::int(self.constant as i64)),
            None => E::int(self.constant as i64),
        }
    }

    /// Splits the sum into `divisor·quotient + rest`, where `rest` is not negative.
    fn split(&self, divisor: i128) -> (Sum<E>, Sum<E>) {
        let (mut quotient, mut rest) = (Sum::constant(0), Sum::constant(self.constant));
        for t in &self.terms {
            if t.stride % divisor == 0 {
                quotient.terms.push(Term { stride: t.stride / divisor, ..t.clone() });
            } else {
                rest.terms.push(t.clone());
            }
        }
        let least = rest.bounds().0;
        quotient.constant = least.div_euclid(divisor);
        rest.constant -= quotient.constant * divisor;
        (quotient, rest)
    }

    /// Returns a divisor of `divisor`, its multiples in the sum and the rest, such that the rest is
    /// below it and does not carry into the multiples.
    fn split_part(&self, divisor: i128) -> Option<(i128, Sum<E>, Sum<E>)> {
        let parts = self.terms.iter().map(|t| gcd(divisor, t.stride).abs());
        parts.filter(|&part| part > 1).find_map(|part| {
            let (multiples, rest) = self.split(part);
            (rest.bounds().1 < part).then_some((part, multiples, rest))
        })
    }

    fn div(&self, divisor: i128, names: &mut Names) -> Sum<E> {
        let (mut quotient, rest) = self.split(divisor);
        let (least, most) = rest.bounds();
        if most < divisor {
            return quotient;
        }
        if let Some((part, multiples, _)) = rest.split_part(divisor) {
            quotient.add_scaled(&multiples.div(divisor / part, names), 1);
        } else {
            let expr = rest.build().div(divisor as i64);
            quotient.push(names.next(), expr, 1, (least / divisor, most / divisor));
        }
        quotient
    }

    fn modulo(&self, divisor: i128, names: &mut Names) -> Sum<E> {
        let (_, rest) = self.split(divisor);
        if rest.bounds().1 < divisor {
            return rest;
        }
        if let Some((part, multiples, fine)) = rest.split_part(divisor) {
            let mut result = Sum::constant(0);
            result.add_scaled(&multiples.modulo(divisor / part, names), part);
            result.add_scaled(&fine, 1);
            return result;
        }
        let mut result = Sum::constant(0);
        result.push(names.next(), rest.build().modulo(divisor as i64), 1, (0, divisor - 1));
        result
    }

    /// Returns the coordinates of this position in a row-major array of these nonzero sizes. The
    /// first one needs no remainder, because the position is in the array where the mask is true.
    fn digits(&self, sizes: &[i128], names: &mut Names) -> SmallVec<[Sum<E>; 4]> {
        let mut digits: SmallVec<[Sum<E>; 4]> = SmallVec::new();
        let mut step: i128 = sizes.iter().product();
        for (i, &size) in sizes.iter().enumerate() {
            step /= size;
            // The remainder first, because it removes coarse terms from the division.
            let within = if i == 0 { self.clone() } else { self.modulo(step * size, names) };
            digits.push(if step == 1 { within } else { within.div(step, names) });
        }
        digits
    }
}

/// A mask while it is built; none is true.
struct Mask<E>(Option<E>);

impl<E: IndexExpr> Mask<E> {
    fn require(&mut self, condition: E) {
        self.0 = Some(match self.0.take() {
            None => condition,
            Some(so_far) => so_far.and(&condition),
        });
    }

    fn build(self) -> E {
        self.0.unwrap_or_else(E::truth)
    }
}

impl ShapeTracker {
    /// Returns the flat index in the base of the element at `index`, and the mask. Where the mask
    /// is false the flat index may be out of range.
    ///
    /// ```
    /// use picograd::compiler::shape::{Movement, ShapeTracker};
    /// let st = ShapeTracker::new(&[2, 3]).apply(&Movement::pad([(0, 0), (1, 0)]))?;
    /// assert_eq!(st.expr(&[1i64, 2]), (4, 1));
    /// assert_eq!(st.expr(&[1i64, 0]).1, 0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    ///
    /// # Panics
    /// The rank of `index` is not that of the shape.
    pub fn expr<E: IndexExpr>(&self, index: &[E]) -> (E, E) {
        let (given, shape) = (index.len(), self.shape());
        assert_eq!(given, shape.len(), "an index of rank {given} for {shape:?}");
        let mut names = Names::default();
        let mut mask = Mask(None);
        let mut flat = Sum::constant(0);
        for (depth, view) in self.views().iter().rev().enumerate() {
            if view.maps_nothing() {
                // Without elements the mask is false.
                return (E::int(0), E::int(0).lt(0));
            }
            if depth == 0 {
                flat = Sum::constant(view.offset() as i128);
                for (axis, &(lo, hi)) in view.unmasked_ranges().iter().enumerate() {
                    if lo > 0 {
                        mask.require(index[axis].ge(lo as i64));
                    }
                    if hi < view.shape()[axis] {
                        mask.require(index[axis].lt(hi as i64));
                    }
                    let stride = view.strides()[axis] as i128;
                    if stride != 0 {
                        flat.push(
                            names.next(),
                            index[axis].clone(),
                            stride,
                            (lo as i128, hi as i128 - 1),
                        );
                    }
                }
                continue;
            }
            let (axes, offset) = axes_of(view, MergeRule::Masked);
            let sizes: SmallVec<[i128; 4]> = axes.iter().map(|a| a.size).collect();
            let coords = flat.digits(&sizes, &mut names);
            flat = Sum::constant(offset);
            for (axis, coord) in axes.iter().zip(&coords) {
                if axis.lo > 0 {
                    mask.require(coord.build().ge(axis.lo as i64));
                }
                if axis.hi < axis.size {
                    mask.require(coord.build().lt(axis.hi as i64));
                }
                if axis.stride != 0 {
                    flat.add_scaled(coord, axis.stride);
                }
            }
        }
        (flat.build(), mask.build())
    }
}

/// Returns the index before `movement` of the element at `out_index` after it, and the mask. Where
/// the mask is false the index may be out of range. `movement` must apply to `in_shape`.
///
/// ```
/// use picograd::shape::{Movement, movement_index};
/// let (index, valid) =
///     movement_index(&Movement::reshape([2, 2, 3]), &[4, 3], &[1i64, 0, 2]);
/// assert_eq!((index.as_slice(), valid), ([2, 2].as_slice(), 1));
/// ```
///
/// # Panics
/// The rank of `out_index` is not that of the result of the op.
pub fn movement_index<E: IndexExpr>(
    movement: &Movement,
    in_shape: &[usize],
    out_index: &[E],
) -> (SmallVec<[E; 4]>, E) {
    let rank = match movement {
        Movement::Reshape(new) => new.len(),
        _ => in_shape.len(),
    };
    let given = out_index.len();
    assert_eq!(given, rank, "{movement} of {in_shape:?}: an index of rank {given}");
    let mut mask = Mask(None);
    let in_index = match movement {
        Movement::Reshape(new) => reshape_index(in_shape, new, out_index),
        Movement::Expand(_) => {
            let per_axis = in_shape.iter().zip(out_index);
            per_axis.map(|(&size, i)| if size == 1 { E::int(0) } else { i.clone() }).collect()
        }
        Movement::Permute(axes) => {
            let mut in_index = SmallVec::from_elem(E::int(0), rank);
            for (&axis, i) in axes.iter().zip(out_index) {
                in_index[axis] = i.clone();
            }
            in_index
        }
        Movement::Pad(padding) => {
            let mut in_index = SmallVec::with_capacity(rank);
            for (axis, (&(before, after), i)) in padding.iter().zip(out_index).enumerate() {
                if before > 0 {
                    mask.require(i.ge(before as i64));
                }
                if after > 0 {
                    mask.require(i.lt((before + in_shape[axis]) as i64));
                }
                in_index.push(shifted(i, -(before as i64)));
            }
            in_index
        }
        Movement::Shrink(ranges) => {
            let per_axis = ranges.iter().zip(out_index);
            per_axis.map(|(&(start, _), i)| shifted(i, start as i64)).collect()
        }
        Movement::Flip(flags) => {
            let per_axis = flags.iter().zip(in_shape).zip(out_index);
            per_axis
                .map(
                    |((&flip, &size), i)| {
                        if flip { shifted(&i.mul(-1), size as i64 - 1) } else { i.clone() }
                    },
                )
                .collect()
        }
    };
    (in_index, mask.build())
}

fn shifted<E: IndexExpr>(index: &E, by: i64) -> E {
    if by == 0 { index.clone() } else { index.add(&E::int(by)) }
}

/// Returns the index of a reshape: axes are matched in the shortest groups of equal size, and only
/// groups of several axes are flattened and split.
fn reshape_index<E: IndexExpr>(
    in_shape: &[usize],
    out_shape: &[usize],
    out_index: &[E],
) -> SmallVec<[E; 4]> {
    let mut in_index = SmallVec::from_elem(E::int(0), in_shape.len());
    if in_shape.contains(&0) || out_shape.contains(&0) {
        return in_index;
    }
    let long = |shape: &[usize]| -> SmallVec<[usize; 4]> {
        (0..shape.len()).filter(|&a| shape[a] != 1).collect()
    };
    let (ins, outs) = (long(in_shape), long(out_shape));
    let mut names = Names::default();
    let (mut i, mut o) = (0, 0);
    while i < ins.len() {
        let (first_in, first_out) = (i, o);
        let (mut in_size, mut out_size) = (in_shape[ins[i]], out_shape[outs[o]]);
        (i, o) = (i + 1, o + 1);
        while in_size != out_size {
            if in_size < out_size {
                in_size *= in_shape[ins[i]];
                i += 1;
            } else {
                out_size *= out_shape[outs[o]];
                o += 1;
            }
        }
        let mut flat = Sum::constant(0);
        let mut step = out_size as i128;
        for &axis in &outs[first_out..o] {
            let size = out_shape[axis] as i128;
            step /= size;
            flat.push(names.next(), out_index[axis].clone(), step, (0, size - 1));
        }
        let group = &ins[first_in..i];
        let sizes: SmallVec<[i128; 4]> = group.iter().map(|&a| in_shape[a] as i128).collect();
        for (&axis, digit) in group.iter().zip(flat.digits(&sizes, &mut names)) {
            in_index[axis] = digit.build();
        }
    }
    in_index
}
