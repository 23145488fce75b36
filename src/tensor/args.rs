//! Argument types: sizes, axes, values per spatial axis. Many Rust types convert into each, such as
//! `[2, -1]`, `&shape`, `vec![2, 3]` and `5`.

use super::{Tensor, resolve_axis};
use crate::error::Result;
use crate::shape::{Dims, SymInt, checked_numel};
use smallvec::SmallVec;
use std::ops::RangeFull;

/// Integer type of sizes and axes.
pub trait Int: Copy {
    /// Converts to `isize`.
    fn int(self) -> isize;
}
macro_rules! int {
    ($($t:ty)*) => { $(impl Int for $t { fn int(self) -> isize { self as isize } })* };
}
int! { i32 i64 isize u32 u64 usize }

/// List of sizes or axes: `[2, 3]`, `&[2, -1]`, a slice, a `Vec`, one number, or `()` for none. The
/// meaning of `-1` depends on the method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(pub SmallVec<[isize; 4]>);

/// Implements conversions from lists of integers, by a function of the list, and of one integer.
macro_rules! from_lists {
    ($name:ident, $make:expr) => {
        from_lists!($name, $make, $make);
    };
    ($name:ident, $make:expr, $one:expr) => {
        conversions! { $name:
            () (), |_none| ($make)(SmallVec::new());
            (<T: Int>) T, |one| ($one)(smallvec::smallvec![one.int()]);
            (<T: Int>) &[T], |list| ($make)(list.iter().map(|n| n.int()).collect());
            (<T: Int, const N: usize>) [T; N], |list| $name::from(list.as_slice());
            (<T: Int, const N: usize>) &[T; N], |list| $name::from(list.as_slice());
            (<T: Int>) Vec<T>, |list| $name::from(list.as_slice());
            (<T: Int>) &Vec<T>, |list| $name::from(list.as_slice());
            () &Dims, |list| $name::from(list.as_slice());
        }
    };
}
from_lists! { Sizes, Sizes }

impl Sizes {
    /// Resolves sizes; negative ones, and more elements than an index can count, are an error.
    pub(crate) fn shape(&self, op: &'static str) -> Result<Dims> {
        let sizes: Option<Dims> = self.0.iter().map(|&n| usize::try_from(n).ok()).collect();
        let Some(sizes) = sizes else {
            return wrong_shape!(op, "{:?} has a negative size", self.0);
        };
        checked_numel(op, &sizes)?;
        Ok(sizes)
    }
    /// Resolves the sizes of a reshape, with at most one inferred `-1`.
    pub(super) fn infer(&self, op: &'static str, from: &[usize]) -> Result<Dims> {
        let (given, open) = (&self.0, self.0.iter().filter(|&&n| n == -1).count());
        if open == 0 {
            return self.shape(op);
        }
        if open > 1 {
            return wrong_shape!(op, "{given:?} leaves {open} sizes open; one -1 can be inferred");
        }
        let known = Sizes(self.0.iter().copied().filter(|&n| n != -1).collect()).shape(op)?;
        let (numel, rest) = (checked_numel(op, from)?, checked_numel(op, &known)?);
        if rest == 0 || !numel.is_multiple_of(rest) {
            return wrong_shape!(
                op,
                "{from:?} has {numel} elements, which do not divide into {given:?}"
            );
        }
        Ok(self.0.iter().map(|&n| if n == -1 { numel / rest } else { n as usize }).collect())
    }
    /// Resolves axes of a shape; duplicates are an error.
    pub(super) fn axes(&self, op: &'static str, shape: &[usize]) -> Result<Dims> {
        let mut axes = Dims::new();
        for &axis in &self.0 {
            let resolved = resolve_axis(op, axis, shape)?;
            if axes.contains(&resolved) {
                return wrong_shape!(op, "axis {axis} is repeated in {:?} for {shape:?}", self.0);
            }
            axes.push(resolved);
        }
        Ok(axes)
    }
}

/// Sizes of a tensor, which may be symbolic: anything that converts to [`Sizes`], a bound variable,
/// or a tuple of numbers and bound variables.
///
/// ```
/// use picograd::{Tensor, Variable};
/// let n = Variable::new("n", 1, 8)?.bind(3)?;
/// let x = Tensor::ones((&n, 4));
/// assert_eq!((x.shape(), x.max_shape()), (vec![3, 4], vec![8, 4]));
/// assert_eq!(x.reshape((&n, 2, -1)).shape(), [3, 2, 2]);
/// assert_eq!(Tensor::new([7]).expand(&n + 1).to_vec::<i32>()?, [7; 4]);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Upper bounds of the sizes.
    sizes: Sizes,
    /// Axes with symbolic sizes.
    bounds: Vec<(usize, SymInt)>,
}

from_lists! { Shape, |list| Shape { sizes: Sizes(list), bounds: Vec::new() } }

conversions! { Shape:
    () Sizes, |sizes| Shape { sizes, bounds: Vec::new() };
    () &SymInt, |bound| Shape::from((bound,));
    () SymInt, |bound| Shape::from((bound,));
}

/// One size of a [`Shape`].
pub enum Size {
    /// Number; the meaning of -1 depends on the method.
    Number(isize),
    /// Bound variable, or an expression of bound variables.
    SymInt(SymInt),
}
conversions! { Size:
    (<T: Int>) T, |n| Size::Number(n.int());
    () &SymInt, |bound| Size::SymInt(bound.clone());
    () SymInt, |bound| Size::SymInt(bound);
}

impl FromIterator<Size> for Shape {
    fn from_iter<I: IntoIterator<Item = Size>>(sizes: I) -> Shape {
        let mut shape = Shape::from(());
        for (axis, size) in sizes.into_iter().enumerate() {
            shape.sizes.0.push(match &size {
                Size::Number(n) => *n,
                // `sizes` reports values that are out of bounds.
                Size::SymInt(b) => isize::try_from(b.max().max(0)).unwrap_or(isize::MAX),
            });
            if let Size::SymInt(b) = size {
                shape.bounds.push((axis, b));
            }
        }
        shape
    }
}

macro_rules! shapes_of_tuples {
    ($($t:ident $i:tt),*) => {
        impl<$($t: Into<Size>),*> From<($($t,)*)> for Shape {
            fn from(sizes: ($($t,)*)) -> Shape {
                [$(sizes.$i.into()),*].into_iter().collect()
            }
        }
    };
}
shapes_of_tuples!(A 0);
shapes_of_tuples!(A 0, B 1);
shapes_of_tuples!(A 0, B 1, C 2);
shapes_of_tuples!(A 0, B 1, C 2, D 3);
shapes_of_tuples!(A 0, B 1, C 2, D 3, E 4);
shapes_of_tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

impl Shape {
    /// Upper bounds of the sizes, with -1 unresolved. A symbolic size that may be negative is an
    /// error.
    pub(super) fn sizes(&self, op: &'static str) -> Result<&Sizes> {
        self.bounds.iter().try_for_each(|(_, bound)| bound.check(op))?;
        Ok(&self.sizes)
    }
    /// Slices a tensor of the upper bounds to the symbolic sizes. An axis that may not be sliced
    /// has to have that symbolic size already.
    pub(super) fn slice_symbolic(
        &self,
        op: &'static str,
        whole: Tensor,
        may_slice: impl Fn(usize) -> bool,
    ) -> Result<Tensor> {
        let mut t = whole;
        for (axis, bound) in &self.bounds {
            let size = t.dims()[*axis] as i64;
            t = match t.uop().extent(*axis).cloned() {
                Some(extent) if extent == *bound => t,
                // A variable with a single value is that number.
                None if (bound.min(), bound.max()) == (size, size) => t,
                None if may_slice(*axis) => {
                    t.slice_symbolic(op, *axis, SymInt::number(0), bound.clone())?
                }
                other => {
                    let size = other.unwrap_or(SymInt::number(size));
                    return wrong_shape!(op, "expected size {bound} along axis {axis}, got {size}");
                }
            };
        }
        Ok(t)
    }
}

/// Axes of a reduction: `..` for all, one number, or a list; negative ones count from the end.
/// [`keepdim`] keeps them with size 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axes {
    /// `None` for all axes.
    list: Option<Sizes>,
    keep: bool,
}

from_lists! { Axes, |list| Axes { list: Some(Sizes(list)), keep: false } }
conversions! { Axes:
    () &Axes, |axes| axes.clone();
    () RangeFull, |_all| Axes { list: None, keep: false };
}

/// Keeps reduced axes with size 1.
///
/// ```
/// use picograd::{Tensor, tensor::keepdim};
/// let x = Tensor::ones([2, 3]);
/// assert_eq!(x.sum(-1).shape(), [2]);
/// assert_eq!(x.sum(keepdim(-1)).shape(), [2, 1]);
/// assert!(x.sum(..).shape().is_empty());
/// ```
pub fn keepdim(axes: impl Into<Axes>) -> Axes {
    Axes { keep: true, ..axes.into() }
}

impl Axes {
    /// Returns the axes in ascending order, and whether they are kept.
    pub(super) fn resolve(&self, op: &'static str, shape: &[usize]) -> Result<(Dims, bool)> {
        let (mut axes, keep) = self.in_given_order(op, shape)?;
        axes.sort_unstable();
        Ok((axes, keep))
    }
    /// Returns the axes in the given order, and whether they are kept.
    pub(super) fn in_given_order(&self, op: &'static str, shape: &[usize]) -> Result<(Dims, bool)> {
        let axes = match &self.list {
            // A scalar has one implicit axis, as in PyTorch.
            Some(list) if shape.is_empty() && matches!(list.0[..], [0 | -1]) => Dims::new(),
            None => (0..shape.len()).collect(),
            Some(list) => list.axes(op, shape)?,
        };
        Ok((axes, self.keep))
    }
}

/// Number per spatial axis, or one number for all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spatial {
    list: Sizes,
    /// True for one number that is not in a list.
    bare: bool,
}

from_lists! {
    Spatial,
    |list| Spatial { list: Sizes(list), bare: false },
    |one| Spatial { list: Sizes(one), bare: true }
}

impl Spatial {
    /// Returns the length of the list; `None` for a bare number.
    pub(crate) fn rank(&self) -> Option<usize> {
        (!self.bare).then_some(self.list.0.len())
    }
    /// Resolves one number for each of `n` axes.
    pub(crate) fn resolve(&self, op: &'static str, what: &str, n: usize) -> Result<Dims> {
        let list = self.list.shape(op)?;
        match list.len() {
            1 => Ok(Dims::from_elem(list[0], n)),
            len if len == n => Ok(list),
            len => {
                wrong_shape!(op, "{what} {list:?} has {len} values for {n} spatial axes")
            }
        }
    }
    /// [`Spatial::resolve`], where 0 is an error.
    pub(crate) fn positive(&self, op: &'static str, what: &str, n: usize) -> Result<Dims> {
        let list = self.resolve(op, what, n)?;
        if list.contains(&0) { wrong_shape!(op, "{what} {list:?} has a zero") } else { Ok(list) }
    }
}

/// Padding of spatial axes: one number for all sides, one per axis, or `(before, after)` per axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sides(Vec<(usize, usize)>);

conversions! { Sides:
    () usize, |n| Sides(vec![(n, n)]);
    (<const N: usize>) [usize; N], |list| Sides(list.iter().map(|&n| (n, n)).collect());
    (<const N: usize>) [(usize, usize); N], |list| Sides(list.to_vec());
    () &[(usize, usize)], |list| Sides(list.to_vec());
}

impl Sides {
    /// Resolves `(before, after)` for each of `n` axes.
    pub(crate) fn resolve(&self, op: &'static str, n: usize) -> Result<Vec<(usize, usize)>> {
        match self.0.len() {
            1 => Ok(vec![self.0[0]; n]),
            len if len == n => Ok(self.0.clone()),
            len => wrong_shape!(op, "padding {:?} has {len} values for {n} spatial axes", self.0),
        }
    }
}
