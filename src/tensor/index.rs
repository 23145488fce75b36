//! Indexing: `t.i((0, 1..3, .., NewAxis))`. In comes a tuple of picks, one per axis; out comes a view made of shrinks, flips and reshapes.

use super::Tensor;
use crate::error::{Error, Result};
use crate::shape::{Dims, Movement, Ranges};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// In an index, an axis of size 1 that was not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAxis;

/// What an index takes of one axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pick {
    /// One place; the axis is gone. Negative counts from the end.
    At(isize),
    /// A stretch, every `step`-th of it. Ends may be negative, and are open where `None`. With a negative step it runs backwards from its last place.
    Stretch {
        /// First place.
        start: Option<isize>,
        /// The place after the last.
        end: Option<isize>,
        /// Distance between places; not zero.
        step: isize,
    },
    /// Whatever axes the others leave.
    Rest,
    /// A new axis of size 1.
    New,
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

fn stretch(start: Option<isize>, end: Option<isize>) -> Pick {
    Pick::Stretch { start, end, step: 1 }
}

/// The open end of an inclusive range: past the last place there is none.
fn after(end: isize) -> Option<isize> {
    if end == -1 { None } else { Some(end + 1) }
}

/// Every `by`-th place of a range, from its first on, or with a negative `by` from its last back: `step(.., -1)` is the axis reversed.
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

fn outside<T>(msg: String) -> Result<T> {
    Err(Error::Index { op: "i", msg })
}

/// A stretch of an axis as a shrink, an optional flip, and a distance.
struct Cut {
    range: (usize, usize),
    flip: bool,
    by: usize,
}

fn cut(shape: &[usize], axis: usize, start: Option<isize>, end: Option<isize>, step: isize) -> Result<Cut> {
    let size = shape[axis] as isize;
    let here = || format!("axis {axis} of {shape:?}, which has size {size}");
    if step == 0 {
        return outside(format!("a step of 0 on {}", here()));
    }
    let place = |end: isize| if end < 0 { end + size } else { end };
    let text = |e: Option<isize>| e.map(|e| e.to_string()).unwrap_or_default();
    let written = || format!("{}..{}", text(start), text(end));
    let (a, b) = (start.map_or(0, place), end.map_or(size, place));
    if a < 0 || b > size || a > b {
        return outside(format!("{} is not within {}", written(), here()));
    }
    Ok(Cut { range: (a as usize, b as usize), flip: step < 0, by: step.unsigned_abs() })
}

impl Tensor {
    fallible! {
        /// A part of the tensor. Give one pick per axis, in a tuple: a number (the axis is gone), a range (`1..3`, `..=-2`, `2..`), a [`step`] of
        /// a range, `..` once for all axes that are not mentioned, [`NewAxis`] for a new one. Numbers may count from the end. Axes after the last
        /// pick are whole. What is outside the tensor is an error. (Clippy takes a literal `1..-1` for an empty range, not knowing that it counts
        /// from the end: allow `clippy::reversed_empty_ranges` there, or write `1..n - 1`.)
        ///
        /// ```
        /// use picograd::{Tensor, tensor::NewAxis};
        /// let x = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
        /// assert_eq!(x.i((0, 1..3, -1)).to_vec::<i32>()?, [7, 11]);
        /// assert_eq!(x.i((.., NewAxis, 0..2)).shape(), [2, 3, 1, 2]);
        /// let wrong = x.try_i((0, 3)).unwrap_err();
        /// assert_eq!(wrong.to_string(), "i: index 3 is outside axis 1 of [2, 3, 4], which has size 3");
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn i | try_i(&self, index: impl Indices) -> Tensor {
            pick(self, &index.picks())
        }
    }
}

fn pick(t: &Tensor, picks: &[Pick]) -> Result<Tensor> {
    let shape = t.dims();
    let named = picks.iter().filter(|p| matches!(p, Pick::At(_) | Pick::Stretch { .. })).count();
    let rests = picks.iter().filter(|p| **p == Pick::Rest).count();
    if named > shape.len() {
        return outside(format!("{named} axes picked of {shape:?}, which has {}", shape.len()));
    }
    if rests > 1 {
        return outside(format!("`..` stands {rests} times in an index of {shape:?}, and once is the most"));
    }
    let (mut ranges, mut flips, mut steps) = (Ranges::new(), Vec::new(), Dims::new());
    // The result's sizes: of each axis that stays, and 1 for each new one.
    let mut out = Dims::new();
    let whole = |axis: usize, ranges: &mut Ranges, flips: &mut Vec<bool>, steps: &mut Dims, out: &mut Dims| {
        ranges.push((0, shape[axis]));
        flips.push(false);
        steps.push(1);
        out.push(shape[axis]);
    };
    for p in picks {
        let axis = ranges.len();
        match *p {
            Pick::New => out.push(1),
            Pick::Rest => (axis..axis + shape.len() - named).for_each(|a| whole(a, &mut ranges, &mut flips, &mut steps, &mut out)),
            Pick::At(i) => {
                let size = shape[axis] as isize;
                let place = if i < 0 { i + size } else { i };
                if !(0..size).contains(&place) {
                    return outside(format!("index {i} is outside axis {axis} of {shape:?}, which has size {size}"));
                }
                ranges.push((place as usize, place as usize + 1));
                flips.push(false);
                steps.push(1);
            }
            Pick::Stretch { start, end, step } => {
                let c = cut(&shape, axis, start, end, step)?;
                out.push((c.range.1 - c.range.0).div_ceil(c.by));
                ranges.push(c.range);
                flips.push(c.flip);
                steps.push(c.by);
            }
        }
    }
    (ranges.len()..shape.len()).for_each(|a| whole(a, &mut ranges, &mut flips, &mut steps, &mut out));
    let part = t.moved(Movement::Shrink(ranges))?.moved(Movement::flip(flips))?;
    every(&part, &steps)?.moved(Movement::Reshape(out))
}

/// Every `steps[axis]`-th place of each axis, from the first on.
pub(super) fn every(t: &Tensor, steps: &[usize]) -> Result<Tensor> {
    if steps.iter().all(|&s| s == 1) {
        return Ok(t.clone());
    }
    let dims = t.dims();
    let counts: Dims = dims.iter().zip(steps).map(|(n, &s)| n.div_ceil(s)).collect();
    // Filled up to whole steps, cut into steps, and the first of each kept.
    t.moved(Movement::pad((0..dims.len()).map(|i| (0, counts[i] * steps[i] - dims[i]))))?
        .moved(Movement::reshape(counts.iter().zip(steps).flat_map(|(&c, &s)| [c, s])))?
        .moved(Movement::shrink(counts.iter().flat_map(|&c| [(0, c), (0, 1)])))?
        .moved(Movement::Reshape(counts))
}
