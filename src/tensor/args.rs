//! What methods take: lists of sizes, axes to fold, values per spatial axis. Each is a small struct
//! that many Rust types convert into, so that `[2, -1]`, `&shape`, `vec![2, 3]` and `5` all read
//! well at a call.

use super::{Tensor, resolve_axis, wrong_shape};
use crate::error::{Error, Result};
use crate::shape::{Dims, SymInt, checked_numel};
use smallvec::SmallVec;
use std::ops::RangeFull;

/// An integer that can be a size or an axis.
pub trait Int: Copy {
    /// As a signed size.
    fn int(self) -> isize;
}
macro_rules! int {
    ($($t:ty)*) => { $(impl Int for $t { fn int(self) -> isize { self as isize } })* };
}
int! { i32 i64 isize u32 u64 usize }

/// A list of sizes or axes: `[2, 3]`, `&[2, -1]`, a slice, a `Vec`, one number, or `()` for none.
/// What `-1` means is the method's to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(pub SmallVec<[isize; 4]>);

/// Lets whatever can be a list of integers become a struct, by way of a list of `isize`.
macro_rules! from_lists {
    ($name:ident, $make:expr) => {
        from_lists!($name, $make, $make);
    };
    ($name:ident, $make:expr, $one:expr) => {
        impl From<()> for $name {
            fn from(_: ()) -> $name {
                ($make)(SmallVec::new())
            }
        }
        impl<T: Int> From<T> for $name {
            fn from(one: T) -> $name {
                ($one)(smallvec::smallvec![one.int()])
            }
        }
        impl<T: Int> From<&[T]> for $name {
            fn from(list: &[T]) -> $name {
                ($make)(list.iter().map(|n| n.int()).collect())
            }
        }
        impl<T: Int, const N: usize> From<[T; N]> for $name {
            fn from(list: [T; N]) -> $name {
                $name::from(list.as_slice())
            }
        }
        impl<T: Int, const N: usize> From<&[T; N]> for $name {
            fn from(list: &[T; N]) -> $name {
                $name::from(list.as_slice())
            }
        }
        impl<T: Int> From<Vec<T>> for $name {
            fn from(list: Vec<T>) -> $name {
                $name::from(list.as_slice())
            }
        }
        impl<T: Int> From<&Vec<T>> for $name {
            fn from(list: &Vec<T>) -> $name {
                $name::from(list.as_slice())
            }
        }
        impl From<&Dims> for $name {
            fn from(list: &Dims) -> $name {
                $name::from(list.as_slice())
            }
        }
    };
}
from_lists! { Sizes, Sizes }

impl Sizes {
    /// As sizes, none of them negative and all together countable.
    pub(crate) fn shape(&self, op: &'static str) -> Result<Dims> {
        let sizes: Option<Dims> = self.0.iter().map(|&n| usize::try_from(n).ok()).collect();
        let Some(sizes) = sizes else {
            return wrong_shape(op, format!("{:?} has a negative size", self.0));
        };
        checked_numel(op, &sizes)?;
        Ok(sizes)
    }
    /// As the sizes of `numel` elements, with one `-1` standing for what is left.
    pub(super) fn infer(&self, op: &'static str, from: &[usize]) -> Result<Dims> {
        let open = self.0.iter().filter(|&&n| n == -1).count();
        if open == 0 {
            return self.shape(op);
        }
        if open > 1 {
            return wrong_shape(
                op,
                format!("{:?} leaves {open} sizes open; one -1 can be inferred", self.0),
            );
        }
        let known = Sizes(self.0.iter().copied().filter(|&n| n != -1).collect()).shape(op)?;
        let (numel, rest) = (checked_numel(op, from)?, checked_numel(op, &known)?);
        if rest == 0 || !numel.is_multiple_of(rest) {
            return wrong_shape(
                op,
                format!("{from:?} has {numel} elements, which do not divide into {:?}", self.0),
            );
        }
        Ok(self.0.iter().map(|&n| if n == -1 { numel / rest } else { n as usize }).collect())
    }
    /// As axes of a shape, each once.
    pub(super) fn axes(&self, op: &'static str, shape: &[usize]) -> Result<Dims> {
        let mut axes = Dims::new();
        for &axis in &self.0 {
            let resolved = resolve_axis(op, axis, shape)?;
            if axes.contains(&resolved) {
                return wrong_shape(
                    op,
                    format!("axis {axis} is repeated in {:?} for {shape:?}", self.0),
                );
            }
            axes.push(resolved);
        }
        Ok(axes)
    }
}

/// The sizes of a tensor, which may be variables: whatever [`Sizes`] takes, a bound variable, or a
/// tuple of numbers and bound variables.
///
/// ```
/// use picograd::{Tensor, Variable};
/// let n = Variable::new("n", 1, 8)?.bind(3)?;
/// let x = Tensor::ones((&n, 4));
/// assert_eq!(
///     (x.shape(), x.max_shape(), x.sum(..).item::<f32>()?),
///     (vec![3, 4], vec![8, 4], 12.0)
/// );
/// assert_eq!(x.reshape((&n, 2, -1)).shape(), [3, 2, 2]);
/// assert_eq!(Tensor::new([7]).expand(&n + 1).to_vec::<i32>()?, [7; 4]);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The greatest sizes.
    sizes: Sizes,
    /// Axes whose sizes are variables.
    bounds: Vec<(usize, SymInt)>,
}

from_lists! { Shape, |list| Shape { sizes: Sizes(list), bounds: Vec::new() } }

impl From<Sizes> for Shape {
    fn from(sizes: Sizes) -> Shape {
        Shape { sizes, bounds: Vec::new() }
    }
}
impl From<&SymInt> for Shape {
    fn from(bound: &SymInt) -> Shape {
        Shape::from((bound,))
    }
}
impl From<SymInt> for Shape {
    fn from(bound: SymInt) -> Shape {
        Shape::from((bound,))
    }
}

/// One size of a [`Shape`]: a number, or a variable.
pub enum Size {
    /// A number; what -1 means is the method's to say.
    Number(isize),
    /// A bound variable, or a sum of some.
    SymInt(SymInt),
}
impl<T: Int> From<T> for Size {
    fn from(n: T) -> Size {
        Size::Number(n.int())
    }
}
impl From<&SymInt> for Size {
    fn from(bound: &SymInt) -> Size {
        Size::SymInt(bound.clone())
    }
}
impl From<SymInt> for Size {
    fn from(bound: SymInt) -> Size {
        Size::SymInt(bound)
    }
}

impl FromIterator<Size> for Shape {
    fn from_iter<I: IntoIterator<Item = Size>>(sizes: I) -> Shape {
        let mut shape = Shape::from(());
        for (axis, size) in sizes.into_iter().enumerate() {
            shape.sizes.0.push(match &size {
                Size::Number(n) => *n,
                // One that is out of bounds is said to be where it is cut.
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
    /// The greatest sizes; -1 is where the method has to say what it means. A sum of variables that
    /// can be no size is an error.
    pub(super) fn sizes(&self, op: &'static str) -> Result<&Sizes> {
        self.bounds.iter().try_for_each(|(_, bound)| bound.check(op))?;
        Ok(&self.sizes)
    }
    /// A tensor of the greatest sizes, cut to the variables. An axis that is not to be cut has to
    /// be of that variable already.
    pub(super) fn cut(
        &self,
        op: &'static str,
        whole: Tensor,
        may_cut: impl Fn(usize) -> bool,
    ) -> Result<Tensor> {
        let mut t = whole;
        for (axis, bound) in &self.bounds {
            let now = t.uop().extent(*axis).cloned();
            t = match now {
                Some(extent) if extent == *bound => t,
                // A variable that can be one number only is that number.
                None if (bound.min(), bound.max())
                    == (t.dims()[*axis] as i64, t.dims()[*axis] as i64) =>
                {
                    t
                }
                None if may_cut(*axis) => t.part(op, *axis, SymInt::number(0), bound.clone())?,
                other => {
                    let size = other.unwrap_or(SymInt::number(t.dims()[*axis] as i64));
                    return wrong_shape(
                        op,
                        format!("axis {axis} would have the size {bound}, and has {size}"),
                    );
                }
            };
        }
        Ok(t)
    }
}

/// Axes to fold: `..` for all, one number, or a list; negative ones count from the end. [`keepdim`]
/// keeps them with size 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axes {
    /// `None` is all.
    list: Option<Sizes>,
    keep: bool,
}

from_lists! { Axes, |list| Axes { list: Some(Sizes(list)), keep: false } }
impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Axes {
        Axes { list: None, keep: false }
    }
}

/// The same axes, which stay with size 1 after the fold.
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
    /// The axes of a shape, ascending, and whether they stay.
    pub(super) fn resolve(&self, op: &'static str, shape: &[usize]) -> Result<(Dims, bool)> {
        let (mut axes, keep) = self.in_order(op, shape)?;
        axes.sort_unstable();
        Ok((axes, keep))
    }
    /// The axes of a shape in the order in which they were given, and whether they stay.
    pub(super) fn in_order(&self, op: &'static str, shape: &[usize]) -> Result<(Dims, bool)> {
        let axes = match &self.list {
            // A tensor without axes counts as one of one element.
            Some(list) if shape.is_empty() && matches!(list.0[..], [0 | -1]) => Dims::new(),
            None => (0..shape.len()).collect(),
            Some(list) => list.axes(op, shape)?,
        };
        Ok((axes, self.keep))
    }
}

/// A number per spatial axis, or one for all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spatial {
    list: Sizes,
    /// Given as one number and not as a list.
    bare: bool,
}

from_lists! { Spatial, |list| Spatial { list: Sizes(list), bare: false }, |one| Spatial { list: Sizes(one), bare: true } }

impl Spatial {
    /// The length of the list; `None` for a bare number, which stands for any.
    pub(crate) fn rank(&self) -> Option<usize> {
        (!self.bare).then_some(self.list.0.len())
    }
    /// One number for each of `n` axes.
    pub(crate) fn resolve(&self, op: &'static str, what: &str, n: usize) -> Result<Dims> {
        let list = self.list.shape(op)?;
        match list.len() {
            1 => Ok(Dims::from_elem(list[0], n)),
            len if len == n => Ok(list),
            len => {
                wrong_shape(op, format!("{what} {list:?} has {len} values for {n} spatial axes"))
            }
        }
    }
    /// As [`Spatial::resolve`], where zero makes no sense.
    pub(crate) fn positive(&self, op: &'static str, what: &str, n: usize) -> Result<Dims> {
        let list = self.resolve(op, what, n)?;
        if list.contains(&0) {
            wrong_shape(op, format!("{what} {list:?} has a zero"))
        } else {
            Ok(list)
        }
    }
}

/// Padding of the spatial axes: one number for all sides, one per axis, or `(before, after)` per
/// axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sides(Vec<(usize, usize)>);

impl From<usize> for Sides {
    fn from(n: usize) -> Sides {
        Sides(vec![(n, n)])
    }
}
impl<const N: usize> From<[usize; N]> for Sides {
    fn from(list: [usize; N]) -> Sides {
        Sides(list.iter().map(|&n| (n, n)).collect())
    }
}
impl<const N: usize> From<[(usize, usize); N]> for Sides {
    fn from(list: [(usize, usize); N]) -> Sides {
        Sides(list.to_vec())
    }
}
impl From<&[(usize, usize)]> for Sides {
    fn from(list: &[(usize, usize)]) -> Sides {
        Sides(list.to_vec())
    }
}

impl Sides {
    /// `(before, after)` for each of `n` axes.
    pub(crate) fn resolve(&self, op: &'static str, n: usize) -> Result<Vec<(usize, usize)>> {
        match self.0.len() {
            1 => Ok(vec![self.0[0]; n]),
            len if len == n => Ok(self.0.clone()),
            len => Err(Error::Shape {
                op,
                msg: format!("padding {:?} has {len} values for {n} spatial axes", self.0),
            }),
        }
    }
}
