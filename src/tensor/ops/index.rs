//! Indexing: `t.i((0, 1..3, .., NewAxis))`, and assignment through an index. In comes a tuple of
//! picks, one per axis. Numbers and ranges are a view made of shrinks, flips and reshapes, which
//! can be undone; lists and tensors of indices, and masks, choose from what that leaves.

use super::advanced;
use crate::error::{Error, Result};
use crate::shape::{Dims, Movement, Ranges, SymInt};
use crate::tensor::broadcast::{Operand, broadcast_to};
use crate::tensor::{Tensor, variable};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// In an index, an axis of size 1 that was not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAxis;

/// What an index takes of one axis.
#[derive(Clone, Debug)]
pub enum Pick {
    /// One place; the axis is gone. Negative counts from the end.
    At(isize),
    /// A stretch, every `step`-th of it. Ends may be negative, and are open where `None`. With a
    /// negative step it runs backwards from its last place.
    Stretch {
        /// First place.
        start: Option<isize>,
        /// The place after the last.
        end: Option<isize>,
        /// Distance between places; not zero.
        step: isize,
    },
    /// One place that a variable is; the axis is gone.
    Place(SymInt),
    /// A stretch that variables say, open at an end where `None`.
    Part {
        /// First place.
        start: Option<SymInt>,
        /// The place after the last.
        end: Option<SymInt>,
    },
    /// Whatever axes the others leave.
    Rest,
    /// A new axis of size 1.
    New,
    /// The places that a tensor of integers names, or where a tensor of bools is true; one of bools
    /// takes as many axes as it has.
    Tensor(Tensor),
}

/// Whatever can pick from one axis.
pub trait ToPick {
    /// As a pick.
    fn to_pick(self) -> Pick;
}

macro_rules! from_ints {
    ($($t:ty)*) => { $(
        impl ToPick for $t {
            fn to_pick(self) -> Pick { Pick::At(self as isize) }
        }
        impl ToPick for Range<$t> {
            fn to_pick(self) -> Pick { stretch(Some(self.start as isize), Some(self.end as isize)) }
        }
        impl ToPick for RangeInclusive<$t> {
            fn to_pick(self) -> Pick { stretch(Some(*self.start() as isize), after(*self.end() as isize)) }
        }
        impl ToPick for RangeFrom<$t> {
            fn to_pick(self) -> Pick { stretch(Some(self.start as isize), None) }
        }
        impl ToPick for RangeTo<$t> {
            fn to_pick(self) -> Pick { stretch(None, Some(self.end as isize)) }
        }
        impl ToPick for RangeToInclusive<$t> {
            fn to_pick(self) -> Pick { stretch(None, after(self.end as isize)) }
        }
    )* };
}
from_ints! { i32 i64 isize usize }

macro_rules! from_bounds {
    ($($t:ty)*) => { $(
        impl ToPick for $t {
            fn to_pick(self) -> Pick { Pick::Place(self + 0) }
        }
        impl ToPick for Range<$t> {
            fn to_pick(self) -> Pick { Pick::Part { start: Some(self.start + 0), end: Some(self.end + 0) } }
        }
        impl ToPick for RangeInclusive<$t> {
            fn to_pick(self) -> Pick { Pick::Part { start: Some(self.start().clone() + 0), end: Some(self.end().clone() + 1) } }
        }
        impl ToPick for RangeFrom<$t> {
            fn to_pick(self) -> Pick { Pick::Part { start: Some(self.start + 0), end: None } }
        }
        impl ToPick for RangeTo<$t> {
            fn to_pick(self) -> Pick { Pick::Part { start: None, end: Some(self.end + 0) } }
        }
        impl ToPick for RangeToInclusive<$t> {
            fn to_pick(self) -> Pick { Pick::Part { start: None, end: Some(self.end + 1) } }
        }
    )* };
}
from_bounds! { SymInt &SymInt }

impl ToPick for RangeFull {
    fn to_pick(self) -> Pick {
        Pick::Rest
    }
}
impl ToPick for NewAxis {
    fn to_pick(self) -> Pick {
        Pick::New
    }
}

impl ToPick for Pick {
    fn to_pick(self) -> Pick {
        self
    }
}
impl ToPick for Tensor {
    fn to_pick(self) -> Pick {
        Pick::Tensor(self)
    }
}
impl ToPick for &Tensor {
    fn to_pick(self) -> Pick {
        Pick::Tensor(self.clone())
    }
}
macro_rules! from_lists_of_places {
    ($($t:ty)*) => { $(
        impl<const N: usize> ToPick for [$t; N] {
            fn to_pick(self) -> Pick { Pick::Tensor(Tensor::new(self)) }
        }
        impl ToPick for Vec<$t> {
            fn to_pick(self) -> Pick { Pick::Tensor(Tensor::new(self)) }
        }
    )* };
}
from_lists_of_places! { i32 i64 bool }

fn stretch(start: Option<isize>, end: Option<isize>) -> Pick {
    Pick::Stretch { start, end, step: 1 }
}

/// The open end of an inclusive range: past the last place there is none.
fn after(end: isize) -> Option<isize> {
    if end == -1 { None } else { Some(end + 1) }
}

/// Every `by`-th place of a range, from its first on, or with a negative `by` from its last back:
/// `step(.., -1)` is the axis reversed.
///
/// ```
/// use picograd::{Tensor, tensor::step};
/// let x = Tensor::arange(0, 7, 1);
/// assert_eq!(x.i(step(1.., 2)).to_vec::<i32>()?, [1, 3, 5]);
/// assert_eq!(x.i(step(2..6, -2)).to_vec::<i32>()?, [5, 3]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn step(range: impl ToPick, by: isize) -> Pick {
    match range.to_pick() {
        Pick::Stretch { start, end, .. } => Pick::Stretch { start, end, step: by },
        Pick::Rest => Pick::Stretch { start: None, end: None, step: by },
        other => other,
    }
}

/// One pick, or a tuple or slice of picks.
pub trait Indices {
    /// In order of axes.
    fn picks(self) -> Vec<Pick>;
}
impl<P: ToPick> Indices for P {
    fn picks(self) -> Vec<Pick> {
        vec![self.to_pick()]
    }
}
impl Indices for &[Pick] {
    fn picks(self) -> Vec<Pick> {
        self.to_vec()
    }
}
impl Indices for Vec<Pick> {
    fn picks(self) -> Vec<Pick> {
        self
    }
}
macro_rules! tuples {
    ($(($($p:ident)*))*) => { $(
        impl<$($p: ToPick),*> Indices for ($($p,)*) {
            #[allow(non_snake_case)]
            fn picks(self) -> Vec<Pick> {
                let ($($p,)*) = self;
                vec![$($p.to_pick()),*]
            }
        }
    )* };
}
tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

fn outside<T>(op: &'static str, msg: String) -> Result<T> {
    Err(Error::Index { op, msg })
}

/// The places that a range of an axis spans.
fn stretch_of(
    op: &'static str,
    shape: &[usize],
    axis: usize,
    start: Option<isize>,
    end: Option<isize>,
    step: isize,
) -> Result<(usize, usize)> {
    let size = shape[axis] as isize;
    let here = || format!("axis {axis} of {shape:?}, which has size {size}");
    if step == 0 {
        return outside(op, format!("a step of 0 on {}", here()));
    }
    let place = |end: isize| if end < 0 { end + size } else { end };
    let text = |e: Option<isize>| e.map(|e| e.to_string()).unwrap_or_default();
    let (a, b) = (start.map_or(0, place), end.map_or(size, place));
    if a < 0 || b > size || a > b {
        return outside(op, format!("{}..{} is not within {}", text(start), text(end), here()));
    }
    Ok((a as usize, b as usize))
}

impl Tensor {
    fallible! {
        /// A part of the tensor. Give one pick per axis, in a tuple: a number (the axis is gone), a
        /// range (`1..3`, `..=-2`, `2..`), a [`step`] of a range, `..` once for all axes that are
        /// not mentioned, [`NewAxis`] for a new one. Numbers may count from the end. Axes after the
        /// last pick are whole. What is outside the tensor is an error. (Clippy takes a literal
        /// `1..-1` for an empty range, not knowing that it counts from the end: allow
        /// `clippy::reversed_empty_ranges` there, or write `1..n - 1`.)
        ///
        /// A tensor of integers, or a list `[2, 0]`, picks places in any order; several of them
        /// broadcast together and go along their axes in step. Their axes come where the first of
        /// them stands, or in front if other axes of the result lie between them, as in PyTorch. A
        /// place outside the axis is not an error but reads 0. A tensor of bools picks where it is
        /// true, over as many axes as it has; since the shape depends on it, it is computed at once
        /// ([`masked_select`](Self::masked_select) is lazy).
        ///
        /// A bound variable picks a place, and ranges of them a part, as in `x.i(..n)`; one kernel
        /// serves all values (`docs/symbolic.md`).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::NewAxis};
        /// let x = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
        /// assert_eq!(x.i((0, 1..3, -1)).to_vec::<i32>()?, [7, 11]);
        /// assert_eq!(x.i((.., NewAxis, 0..2)).shape(), [2, 3, 1, 2]);
        /// let wrong = x.try_i((0, 3)).unwrap_err();
        /// assert_eq!(
        ///     wrong.to_string(),
        ///     "i: index 3 is outside axis 1 of [2, 3, 4], which has size 3"
        /// );
        ///
        /// assert_eq!(x.i((1, [2, 0], 0)).to_vec::<i32>()?, [20, 12]);
        /// assert_eq!(x.i((.., [0, 1], [3, 0])).to_vec::<i32>()?, [3, 4, 15, 16]);
        /// assert_eq!(x.i(x.gt(20)).to_vec::<i32>()?, [21, 22, 23]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn i | try_i(&self, index: impl Indices) -> Tensor {
            let (whole, picks, _) = variable::cut("i", self, index.picks())?;
            let cut = pick("i", &whole, picks)?;
            let part = cut.apply(&whole)?;
            if cut.places.is_empty() {
                Ok(part)
            } else {
                advanced::read("i", &part, &advanced::places_of("i", &part, &cut.places)?)
            }
        }
    }

    /// Puts a value in the place of the part that [`i`](Self::i) would give, for every handle on
    /// the tensor; the rest stays. The value is broadcast to the part and cast. Where places of a
    /// tensor of integers come twice, the last one's value stays; a place outside the axis is not
    /// written.
    ///
    /// It is an assignment, so it is lazy, and tensors that were made from this one before keep the
    /// old value. A mask is computed at once only if the value has an element for each place where
    /// it is true.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::full([2, 3], 0);
    /// x.set((0, 1..), 5)?;
    /// x.set((1, [2, 0]), Tensor::new([7, 8]))?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 5, 5, 8, 0, 7]);
    /// x.set(x.gt(5), -1)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 5, 5, -1, 0, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn set(&self, index: impl Indices, value: impl Into<Operand>) -> Result<()> {
        let (whole, picks, taken) = variable::cut("set", self, index.picks())?;
        let cut = pick("set", &whole, picks)?;
        let value = self.cast_operand(value.into())?;
        let part = if cut.places.is_empty() {
            broadcast_to("set", &value, &cut.out)?
        } else {
            advanced::written("set", &cut.apply(&whole)?, &cut.places, &value)?
        };
        if cut.is_all() && taken.is_empty() {
            return self.assign(part);
        }
        let inside = Tensor::full((), true).try_expand(&cut.out)?;
        let back = |part: &Tensor| variable::restore_slices("set", &cut.undo(part)?, &taken);
        self.assign(back(&inside)?.try_where_(back(&part)?, self)?)
    }
}

/// The view that the numbers and ranges of an index make, and the tensors that choose from it.
struct Cut {
    /// The shape before.
    shape: Dims,
    ranges: Ranges,
    flips: Vec<bool>,
    steps: Dims,
    /// The result's sizes: of each axis that stays, and 1 for each new one.
    out: Dims,
    /// The first axis of the result that each tensor takes.
    places: Vec<(usize, Tensor)>,
}

/// How many axes a pick takes.
pub(in crate::tensor) fn takes(p: &Pick) -> usize {
    match p {
        Pick::At(_) | Pick::Stretch { .. } | Pick::Place(_) | Pick::Part { .. } => 1,
        Pick::Tensor(t) if t.dtype().is_bool() => t.ndim(),
        Pick::Tensor(_) => 1,
        Pick::Rest | Pick::New => 0,
    }
}

fn pick(op: &'static str, x: &Tensor, picks: Vec<Pick>) -> Result<Cut> {
    let shape = &x.dims();
    let named: usize = picks.iter().map(takes).sum();
    let rests = picks.iter().filter(|p| matches!(p, Pick::Rest)).count();
    if named > shape.len() {
        return outside(op, format!("{named} axes picked of {shape:?}, which has {}", shape.len()));
    }
    if rests > 1 {
        return outside(
            op,
            format!("`..` stands {rests} times in an index of {shape:?}, and once is the most"),
        );
    }
    let mut cut = Cut {
        shape: shape.clone(),
        ranges: Ranges::new(),
        flips: Vec::new(),
        steps: Dims::new(),
        out: Dims::new(),
        places: Vec::new(),
    };
    for p in picks {
        let axis = cut.ranges.len();
        match p {
            Pick::Place(_) | Pick::Part { .. } => {
                return outside(
                    op,
                    format!("variables in an index of {shape:?} are resolved before"),
                );
            }
            Pick::New => cut.out.push(1),
            Pick::Rest => (0..shape.len() - named).for_each(|_| cut.whole()),
            Pick::At(i) => {
                let size = shape[axis] as isize;
                let place = if i < 0 { i + size } else { i };
                if !(0..size).contains(&place) {
                    return outside(
                        op,
                        format!(
                            "index {i} is outside axis {axis} of {shape:?}, which has size {size}"
                        ),
                    );
                }
                cut.push((place as usize, place as usize + 1), false, 1);
            }
            Pick::Stretch { start, end, step } => {
                let range = stretch_of(op, shape, axis, start, end, step)?;
                cut.push(range, step < 0, step.unsigned_abs());
                cut.out.push((range.1 - range.0).div_ceil(step.unsigned_abs()));
            }
            Pick::Tensor(t) => {
                let n = takes(&Pick::Tensor(t.clone()));
                if t.dtype().is_bool() && t.dims()[..] != shape[axis..axis + n] {
                    return outside(
                        op,
                        format!(
                            "a mask of {:?} on the axes of {:?} from {axis} on",
                            t.dims(),
                            shape
                        ),
                    );
                }
                // Lists are made on the default device, and places may come from anywhere.
                let t = if t.device() == x.device() { t } else { t.try_to(x.device().as_str())? };
                cut.places.push((cut.out.len(), t));
                (0..n).for_each(|_| cut.whole());
            }
        }
    }
    (cut.ranges.len()..shape.len()).for_each(|_| cut.whole());
    Ok(cut)
}

impl Cut {
    fn push(&mut self, range: (usize, usize), flip: bool, step: usize) {
        self.ranges.push(range);
        self.flips.push(flip);
        self.steps.push(step);
    }
    /// The next axis as it is.
    fn whole(&mut self) {
        let size = self.shape[self.ranges.len()];
        self.push((0, size), false, 1);
        self.out.push(size);
    }
    /// Is the view the whole tensor as it is?
    fn is_all(&self) -> bool {
        let full = |(i, r): (usize, &(usize, usize))| {
            *r == (0, self.shape[i]) && !self.flips[i] && self.steps[i] == 1
        };
        self.out == self.shape && self.ranges.iter().enumerate().all(full)
    }
    /// The view.
    fn apply(&self, t: &Tensor) -> Result<Tensor> {
        let part = t
            .movement(Movement::Shrink(self.ranges.clone()))?
            .movement(Movement::flip(self.flips.iter().copied()))?;
        every(&part, &self.steps)?.movement(Movement::Reshape(self.out.clone()))
    }
    /// What is in the view, back where it was, and zeros elsewhere.
    fn undo(&self, part: &Tensor) -> Result<Tensor> {
        let sizes: Dims = self.ranges.iter().map(|r| r.1 - r.0).collect();
        let counts: Dims = sizes.iter().zip(&self.steps).map(|(n, &s)| n.div_ceil(s)).collect();
        let apart = part
            .movement(Movement::reshape(counts.iter().flat_map(|&c| [c, 1])))?
            .movement(Movement::pad(self.steps.iter().flat_map(|&s| [(0, 0), (0, s - 1)])))?
            .movement(Movement::reshape(counts.iter().zip(&self.steps).map(|(c, s)| c * s)))?
            .movement(Movement::shrink(sizes.iter().map(|&n| (0, n))))?;
        let around = self.ranges.iter().zip(&self.shape).map(|(r, n)| (r.0, n - r.1));
        apart.movement(Movement::flip(self.flips.iter().copied()))?.movement(Movement::pad(around))
    }
}

/// Every `steps[axis]`-th place of each axis, from the first on.
pub(in crate::tensor) fn every(t: &Tensor, steps: &[usize]) -> Result<Tensor> {
    if steps.iter().all(|&s| s == 1) {
        return Ok(t.clone());
    }
    let dims = t.dims();
    let counts: Dims = dims.iter().zip(steps).map(|(n, &s)| n.div_ceil(s)).collect();
    // Filled up to whole steps, cut into steps, and the first of each kept.
    t.movement(Movement::pad((0..dims.len()).map(|i| (0, counts[i] * steps[i] - dims[i]))))?
        .movement(Movement::reshape(counts.iter().zip(steps).flat_map(|(&c, &s)| [c, s])))?
        .movement(Movement::shrink(counts.iter().flat_map(|&c| [(0, c), (0, 1)])))?
        .movement(Movement::Reshape(counts))
}
