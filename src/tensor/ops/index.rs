//! Indexing, `t.i((0, 1..3, .., NewAxis))`, and assignment through an index. Integers and ranges
//! become a view of shrink, flip and reshape, which can be inverted; index tensors and masks gather
//! from that view.

use super::advanced;
use crate::error::Result;
use crate::shape::{Dims, Ranges, SymInt};
use crate::tensor::broadcast::{Operand, broadcast_to};
use crate::tensor::{Tensor, variable};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Index that inserts an axis of size 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAxis;

/// Index of one axis.
#[derive(Clone, Debug)]
pub enum AxisIndex {
    /// One position; removes the axis. Negative values count from the end.
    Index(isize),
    /// Slice with a step. Bounds may be negative, or `None` for the ends of the axis. A negative
    /// step runs backwards from the last position.
    Slice {
        /// First position.
        start: Option<isize>,
        /// Position after the last.
        end: Option<isize>,
        /// Step, not zero.
        step: isize,
    },
    /// One symbolic position; removes the axis.
    SymIndex(SymInt),
    /// Slice with symbolic bounds, `None` for the ends of the axis.
    SymSlice {
        /// First position.
        start: Option<SymInt>,
        /// Position after the last.
        end: Option<SymInt>,
    },
    /// All axes that the other indices leave.
    Ellipsis,
    /// New axis of size 1.
    NewAxis,
    /// Positions from an integer tensor, or those where a bool tensor is true; a bool tensor
    /// indexes as many axes as it has.
    Tensor(Tensor),
}

/// Conversion to the index of one axis.
pub trait ToAxisIndex {
    /// Converts to an index.
    fn to_axis_index(self) -> AxisIndex;
}

/// Conversions by an expression of the value.
macro_rules! to_axis_index {
    ($($t:ty, |$x:ident| $index:expr;)*) => { $(
        impl ToAxisIndex for $t {
            fn to_axis_index(self) -> AxisIndex {
                let $x = self;
                $index
            }
        }
    )* };
}

macro_rules! from_ints {
    ($($t:ty)*) => { $( to_axis_index! {
        $t, |i| AxisIndex::Index(i as isize);
        Range<$t>, |r| slice(Some(r.start as isize), Some(r.end as isize));
        RangeInclusive<$t>, |r| slice(Some(*r.start() as isize), after(*r.end() as isize));
        RangeFrom<$t>, |r| slice(Some(r.start as isize), None);
        RangeTo<$t>, |r| slice(None, Some(r.end as isize));
        RangeToInclusive<$t>, |r| slice(None, after(r.end as isize));
    } )* };
}
from_ints! { i32 i64 isize usize }

macro_rules! from_bounds {
    ($($t:ty)*) => { $( to_axis_index! {
        $t, |at| AxisIndex::SymIndex(at + 0);
        Range<$t>, |r| symbolic(Some(r.start + 0), Some(r.end + 0));
        RangeInclusive<$t>, |r| symbolic(Some(r.start().clone() + 0), Some(r.end().clone() + 1));
        RangeFrom<$t>, |r| symbolic(Some(r.start + 0), None);
        RangeTo<$t>, |r| symbolic(None, Some(r.end + 0));
        RangeToInclusive<$t>, |r| symbolic(None, Some(r.end + 1));
    } )* };
}
from_bounds! { SymInt &SymInt }

to_axis_index! {
    RangeFull, |_all| AxisIndex::Ellipsis;
    NewAxis, |_axis| AxisIndex::NewAxis;
    AxisIndex, |index| index;
    Tensor, |t| AxisIndex::Tensor(t);
    &Tensor, |t| AxisIndex::Tensor(t.clone());
    Vec<i32>, |list| AxisIndex::Tensor(Tensor::new(list));
    Vec<i64>, |list| AxisIndex::Tensor(Tensor::new(list));
    Vec<bool>, |list| AxisIndex::Tensor(Tensor::new(list));
}
macro_rules! from_arrays {
    ($($t:ty)*) => { $(
        impl<const N: usize> ToAxisIndex for [$t; N] {
            fn to_axis_index(self) -> AxisIndex { AxisIndex::Tensor(Tensor::new(self)) }
        }
    )* };
}
from_arrays! { i32 i64 bool }

fn symbolic(start: Option<SymInt>, end: Option<SymInt>) -> AxisIndex {
    AxisIndex::SymSlice { start, end }
}

fn slice(start: Option<isize>, end: Option<isize>) -> AxisIndex {
    AxisIndex::Slice { start, end, step: 1 }
}

/// Exclusive end of an inclusive range; `None` for the end of the axis.
fn after(end: isize) -> Option<isize> {
    if end == -1 { None } else { Some(end.saturating_add(1)) }
}

/// Slice with a step: every `by`-th position of a range, from its first on, or for a negative `by`
/// from its last back. `step(.., -1)` reverses the axis.
///
/// ```
/// use picograd::{Tensor, tensor::step};
/// let x = Tensor::arange(0, 7, 1);
/// assert_eq!(x.i(step(1.., 2)).to_vec::<i32>()?, [1, 3, 5]);
/// assert_eq!(x.i(step(2..6, -2)).to_vec::<i32>()?, [5, 3]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn step(range: impl ToAxisIndex, by: isize) -> AxisIndex {
    match range.to_axis_index() {
        AxisIndex::Slice { start, end, .. } => AxisIndex::Slice { start, end, step: by },
        AxisIndex::Ellipsis => AxisIndex::Slice { start: None, end: None, step: by },
        other => other,
    }
}

/// One index, or a tuple or slice of indices.
pub trait Indices {
    /// Returns the indices in the order of axes.
    fn indices(self) -> Vec<AxisIndex>;
}
impl<P: ToAxisIndex> Indices for P {
    fn indices(self) -> Vec<AxisIndex> {
        vec![self.to_axis_index()]
    }
}
impl Indices for &[AxisIndex] {
    fn indices(self) -> Vec<AxisIndex> {
        self.to_vec()
    }
}
impl Indices for Vec<AxisIndex> {
    fn indices(self) -> Vec<AxisIndex> {
        self
    }
}
macro_rules! tuples {
    ($(($($p:ident)*))*) => { $(
        impl<$($p: ToAxisIndex),*> Indices for ($($p,)*) {
            #[allow(non_snake_case)]
            fn indices(self) -> Vec<AxisIndex> {
                let ($($p,)*) = self;
                vec![$($p.to_axis_index()),*]
            }
        }
    )* };
}
tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

/// Resolves a position that may count from the end of an axis.
pub(super) fn resolve_position(
    op: &'static str,
    shape: &[usize],
    axis: usize,
    index: isize,
) -> Result<usize> {
    let size = shape[axis] as isize;
    let place = if index < 0 { index.saturating_add(size) } else { index };
    if (0..size).contains(&place) {
        return Ok(place as usize);
    }
    wrong_index!(op, "index {index} is outside axis {axis} of {shape:?}, which has size {size}")
}

/// Resolves a range on an axis to positions.
fn resolve_slice(
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
        return wrong_index!(op, "a step of 0 on {}", here());
    }
    let place = |end: isize| if end < 0 { end + size } else { end };
    let text = |e: Option<isize>| e.map(|e| e.to_string()).unwrap_or_default();
    let (a, b) = (start.map_or(0, place), end.map_or(size, place));
    if a < 0 || b > size || a > b {
        return wrong_index!(op, "{}..{} is not within {}", text(start), text(end), here());
    }
    Ok((a as usize, b as usize))
}

impl Tensor {
    fallible! {
        /// Indexes the tensor with one index per axis, in a tuple: an integer (removes the axis), a
        /// range (`1..3`, `..=-2`, `2..`), a [`step`] of a range, `..` once for all axes that are
        /// not mentioned, or [`NewAxis`]. Negative values count from the end. Remaining axes are
        /// kept. Positions outside the tensor are an error. (Clippy considers a literal `1..-1`
        /// empty: allow `clippy::reversed_empty_ranges`, or write `1..n - 1`.)
        ///
        /// An integer tensor or a list `[2, 0]` gathers positions in any order; several of them
        /// broadcast together. Their axes replace the first indexed axis, or come first if other
        /// axes separate them, as in NumPy and PyTorch. A position outside the axis reads 0. A bool
        /// tensor selects where it is true, over as many axes as it has; it is computed at once,
        /// because the shape depends on it ([`masked_select`](Self::masked_select) is lazy).
        ///
        /// A bound variable is a symbolic position, and a range of them a symbolic slice, as in
        /// `x.i(..n)`; one kernel serves all values (`docs/symbolic.md`).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::NewAxis};
        /// let x = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
        /// assert_eq!(x.i((0, 1..3, -1)).to_vec::<i32>()?, [7, 11]);
        /// assert_eq!(x.i((.., NewAxis, 0..2)).shape(), [2, 3, 1, 2]);
        /// assert_eq!(x.i((1, [2, 0], 0)).to_vec::<i32>()?, [20, 12]);
        /// assert_eq!(x.i((.., [0, 1], [3, 0])).to_vec::<i32>()?, [3, 4, 15, 16]);
        /// assert_eq!(x.i(x.gt(20)).to_vec::<i32>()?, [21, 22, 23]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn i | try_i(&self, index: impl Indices) -> Tensor {
            let (whole, indices, _) = variable::apply_symbolic("i", self, index.indices())?;
            let view = parse_index("i", &whole, indices)?;
            let part = view.apply(&whole)?;
            if view.tensors.is_empty() {
                return Ok(part);
            }
            let indices = advanced::resolve_indices("i", &part, &view.tensors)?;
            advanced::gather_indices("i", &part, &indices)
        }
    }

    /// Assigns a value to the elements that [`i`](Self::i) selects, for every handle on the tensor.
    /// The value is broadcast and cast. If positions of an integer tensor repeat, the last value is
    /// kept; a position outside the axis is not written.
    ///
    /// The assignment is lazy, and tensors that were computed from this one before keep the old
    /// value. A mask is computed at once only if the value has an element for each position where
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
        let (whole, indices, taken) = variable::apply_symbolic("set", self, index.indices())?;
        let view = parse_index("set", &whole, indices)?;
        let value = self.cast_operand(value.into())?;
        let part = if view.tensors.is_empty() {
            broadcast_to("set", &value, &view.out)?
        } else {
            advanced::scatter_indices("set", &view.apply(&whole)?, &view.tensors, &value)?
        };
        if view.is_all() && taken.is_empty() {
            return self.assign(part);
        }
        let inside = Tensor::full((), true).try_expand(&view.out)?;
        let back = |part: &Tensor| variable::restore_slices("set", &view.invert(part)?, &taken);
        self.assign(back(&inside)?.try_where_(back(&part)?, self)?)
    }
}

/// View of the integers and ranges of an index, and the index tensors applied to it.
#[derive(Default)]
struct BasicIndex {
    /// Shape of the input.
    shape: Dims,
    ranges: Ranges,
    flips: Vec<bool>,
    steps: Dims,
    /// Shape of the view, including new axes.
    out: Dims,
    /// Index tensors with the first axis of the view that each of them indexes.
    tensors: Vec<(usize, Tensor)>,
}

/// Returns the number of axes that an index consumes.
pub(in crate::tensor) fn axes_consumed(p: &AxisIndex) -> usize {
    match p {
        AxisIndex::Index(_)
        | AxisIndex::Slice { .. }
        | AxisIndex::SymIndex(_)
        | AxisIndex::SymSlice { .. } => 1,
        AxisIndex::Tensor(t) if t.dtype().is_bool() => t.ndim(),
        AxisIndex::Tensor(_) => 1,
        AxisIndex::Ellipsis | AxisIndex::NewAxis => 0,
    }
}

fn parse_index(op: &'static str, x: &Tensor, indices: Vec<AxisIndex>) -> Result<BasicIndex> {
    let shape = x.dims();
    let (named, rank) = (indices.iter().map(axes_consumed).sum::<usize>(), shape.len());
    if named > rank {
        return wrong_index!(op, "{named} indices for {shape:?}, which has {rank} axes");
    }
    let rests = indices.iter().filter(|p| matches!(p, AxisIndex::Ellipsis)).count();
    if rests > 1 {
        return wrong_index!(
            op,
            "`..` appears {rests} times in an index of {shape:?}; expected at most once"
        );
    }
    let mut view = BasicIndex { shape, ..BasicIndex::default() };
    for p in indices {
        let axis = view.ranges.len();
        match p {
            AxisIndex::SymIndex(_) | AxisIndex::SymSlice { .. } => {
                unreachable!("`apply_symbolic` resolves symbolic indices")
            }
            AxisIndex::NewAxis => view.out.push(1),
            AxisIndex::Ellipsis => (0..rank - named).for_each(|_| view.keep_axis()),
            AxisIndex::Index(i) => {
                let place = resolve_position(op, &view.shape, axis, i)?;
                view.push((place, place + 1), false, 1);
            }
            AxisIndex::Slice { start, end, step } => {
                let range = resolve_slice(op, &view.shape, axis, start, end, step)?;
                view.push(range, step < 0, step.unsigned_abs());
                view.out.push((range.1 - range.0).div_ceil(step.unsigned_abs()));
            }
            AxisIndex::Tensor(t) => view.push_tensor(op, t, x.device().as_str())?,
        }
    }
    (view.ranges.len()..rank).for_each(|_| view.keep_axis());
    Ok(view)
}

impl BasicIndex {
    fn push(&mut self, range: (usize, usize), flip: bool, step: usize) {
        self.ranges.push(range);
        self.flips.push(flip);
        self.steps.push(step);
    }
    /// Adds an index tensor on the next axes, on the device of the indexed tensor: lists are
    /// created on the default device.
    fn push_tensor(&mut self, op: &'static str, t: Tensor, device: &str) -> Result<()> {
        let (axis, is_mask, dims) = (self.ranges.len(), t.dtype().is_bool(), t.dims());
        let n = if is_mask { dims.len() } else { 1 };
        let shape = &self.shape;
        if is_mask && dims[..] != shape[axis..axis + n] {
            return wrong_index!(op, "mask {dims:?} does not match {shape:?} from axis {axis} on");
        }
        let t = if t.device().as_str() == device { t } else { t.try_to(device)? };
        self.tensors.push((self.out.len(), t));
        (0..n).for_each(|_| self.keep_axis());
        Ok(())
    }
    /// Keeps the next axis.
    fn keep_axis(&mut self) {
        let size = self.shape[self.ranges.len()];
        self.push((0, size), false, 1);
        self.out.push(size);
    }
    /// Returns true if the view is the tensor itself.
    fn is_all(&self) -> bool {
        let full = |(i, r): (usize, &(usize, usize))| {
            *r == (0, self.shape[i]) && !self.flips[i] && self.steps[i] == 1
        };
        self.out == self.shape && self.ranges.iter().enumerate().all(full)
    }
    /// Applies the view.
    fn apply(&self, t: &Tensor) -> Result<Tensor> {
        let part = t.shrunk(self.ranges.clone())?.flipped(self.flips.iter().copied())?;
        strided(&part, &self.steps)?.shaped(self.out.clone())
    }
    /// Inverse of the view, with zeros outside it.
    fn invert(&self, part: &Tensor) -> Result<Tensor> {
        let sizes: Dims = self.ranges.iter().map(|r| r.1 - r.0).collect();
        let counts: Dims = sizes.iter().zip(&self.steps).map(|(n, &s)| n.div_ceil(s)).collect();
        let apart = part
            .shaped(counts.iter().flat_map(|&c| [c, 1]))?
            .padded(self.steps.iter().flat_map(|&s| [(0, 0), (0, s - 1)]))?
            .shaped(counts.iter().zip(&self.steps).map(|(c, s)| c * s))?
            .shrunk(sizes.iter().map(|&n| (0, n)))?;
        let around = self.ranges.iter().zip(&self.shape).map(|(r, n)| (r.0, n - r.1));
        apart.flipped(self.flips.iter().copied())?.padded(around)
    }
}

/// Returns every `steps[axis]`-th position of each axis, from the first on.
pub(super) fn strided(t: &Tensor, steps: &[usize]) -> Result<Tensor> {
    if steps.iter().all(|&s| s == 1) {
        return Ok(t.clone());
    }
    let dims = t.dims();
    let counts: Dims = dims.iter().zip(steps).map(|(n, &s)| n.div_ceil(s)).collect();
    t.padded((0..dims.len()).map(|i| (0, counts[i] * steps[i] - dims[i])))?
        .shaped(counts.iter().zip(steps).flat_map(|(&c, &s)| [c, s]))?
        .shrunk(counts.iter().flat_map(|&c| [(0, c), (0, 1)]))?
        .shaped(counts)
}
