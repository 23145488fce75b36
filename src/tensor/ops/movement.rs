//! Movement ops: reshape, permute, expand, pad, shrink, flip, and the methods composed of them.

use super::conv::{Window, windows};
use crate::error::{Error, Result};
use crate::shape::{Dims, Movement};
use crate::tensor::broadcast::{Operand, broadcast_to};
use crate::tensor::{Axes, Shape, Sizes, Tensor, resolve_axis};
use std::ops::Range;

/// Returns the sizes in which those of the axes in `range` are replaced.
pub(super) fn spliced(dims: &[usize], range: Range<usize>, sizes: &[usize]) -> Dims {
    dims[..range.start].iter().chain(sizes).chain(&dims[range.end..]).copied().collect()
}

/// Returns `value` for one axis, and `other` for each other axis.
pub(super) fn at_axis<T: Copy>(
    rank: usize,
    axis: usize,
    value: T,
    other: T,
) -> impl Iterator<Item = T> {
    (0..rank).map(move |i| if i == axis { value } else { other })
}

/// Methods for movement ops with resolved arguments.
macro_rules! resolved {
    ($($name:ident $op:ident $item:ty;)*) => {
        impl Tensor { $(
            pub(in crate::tensor) fn $name(
                &self, to: impl IntoIterator<Item = $item>,
            ) -> Result<Tensor> {
                self.movement(Movement::$op(to))
            }
        )* }
    };
}
resolved! {
    shaped reshape usize;
    expanded expand usize;
    permuted permute usize;
    padded pad (usize, usize);
    shrunk shrink (usize, usize);
    flipped flip bool;
}

impl Tensor {
    /// Pads one axis with zeros.
    pub(in crate::tensor) fn padded_axis(
        &self,
        axis: usize,
        before: usize,
        after: usize,
    ) -> Result<Tensor> {
        self.padded(at_axis(self.ndim(), axis, (before, after), (0, 0)))
    }
    /// Keeps `start..end` of one axis.
    pub(in crate::tensor) fn slice_axis(
        &self,
        axis: usize,
        start: usize,
        end: usize,
    ) -> Result<Tensor> {
        let ranges = self.dims().into_iter().enumerate();
        self.shrunk(ranges.map(|(i, n)| if i == axis { (start, end) } else { (0, n) }))
    }
    /// Reshapes a list to lie along one of `rank` axes.
    pub(in crate::tensor) fn line_along(&self, axis: usize, rank: usize) -> Result<Tensor> {
        self.shaped(at_axis(rank, axis, self.max_numel(), 1))
    }
}

impl Tensor {
    fallible! {
        /// Reshapes to the given sizes, in row-major order. One size may be -1 and is inferred.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0, 6, 1);
        /// assert_eq!(x.reshape([2, -1]).shape(), [2, 3]);
        /// ```
        pub fn reshape | try_reshape(&self, shape: impl Into<Shape>) -> Tensor {
            let shape = shape.into();
            let full = self.shaped(shape.sizes("reshape")?.infer("reshape", &self.dims())?)?;
            shape.slice_symbolic("reshape", full, |_| false)
        }

        /// Alias of [`reshape`](Self::reshape).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2]]).view([2, 1]).to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn view | try_view(&self, shape: impl Into<Shape>) -> Tensor {
            self.try_reshape(shape)
        }

        /// Broadcasts axes of size 1 to the given sizes and adds leading axes. -1 keeps a size.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([[1], [2]]).expand([-1, 3]);
        /// assert_eq!(y.to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn expand | try_expand(&self, shape: impl Into<Shape>) -> Tensor {
            let (shape, from) = (shape.into(), self.dims());
            let sizes = &shape.sizes("expand")?.0;
            let new = sizes.len().saturating_sub(from.len());
            let kept = |(i, &n): (usize, &isize)| {
                if n == -1 && i >= new { from[i - new] as isize } else { n }
            };
            let full = Sizes(sizes.iter().enumerate().map(kept).collect()).shape("expand")?;
            let full = broadcast_to("expand", self, &full)?;
            shape.slice_symbolic("expand", full, |i| i < new || from[i - new] == 1)
        }

        /// Permutes the axes: axis `i` of the result is axis `axes[i]` of the input.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).permute([-1, 0, 1]).shape(), [4, 2, 3]);
        /// ```
        pub fn permute | try_permute(&self, axes: impl Into<Sizes>) -> Tensor {
            self.permuted(axes.into().axes("permute", &self.dims())?)
        }

        /// Swaps two axes.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).transpose(0, -1).shape(), [4, 3, 2]);
        /// ```
        pub fn transpose | try_transpose(&self, a: isize, b: isize) -> Tensor {
            let dims = self.dims();
            let mut axes: Dims = (0..dims.len()).collect();
            axes.swap(resolve_axis("transpose", a, &dims)?, resolve_axis("transpose", b, &dims)?);
            self.permuted(axes)
        }

        /// Transposes a matrix. Tensors of rank 0 and 1 are returned unchanged.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).t().to_vec::<i32>()?, [1, 3, 2, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn t | try_t(&self) -> Tensor {
            if self.ndim() > 2 {
                let dims = self.dims();
                return shape_error!(
                    "expected two axes at most, got {dims:?}; use transpose(a, b)"
                );
            }
            self.permuted((0..self.ndim()).rev())
        }

        /// Pads each axis with `(before, after)` zeros.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([[1, 2]]).pad(&[(0, 1), (1, 0)]);
        /// assert_eq!(y.to_vec::<i32>()?, [0, 1, 2, 0, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad | try_pad(&self, padding: &[(usize, usize)]) -> Tensor {
            self.padded(padding.iter().copied())
        }

        /// Pads each axis with `(before, after)` copies of a value, which is cast to this tensor's
        /// dtype.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1, 2]).pad_with(&[(1, 2)], 9);
        /// assert_eq!(y.to_vec::<i32>()?, [9, 1, 2, 9, 9]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad_with | try_pad_with(
            &self, padding: &[(usize, usize)], value: impl Into<Operand>,
        ) -> Tensor {
            let padded = self.try_pad(padding)?;
            if padding.iter().all(|&p| p == (0, 0)) {
                return Ok(padded);
            }
            let inside = self.match_extents(Tensor::full((), true).try_expand(&self.dims())?);
            inside.try_pad(padding)?.try_where_(padded, value)?.try_cast(self.dtype())
        }

        /// Keeps `start..end` of each axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3, 4]).shrink(&[(1, 3)]).to_vec::<i32>()?, [2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn shrink | try_shrink(&self, ranges: &[(usize, usize)]) -> Tensor {
            self.shrunk(ranges.iter().copied())
        }

        /// Reverses axes; `..` reverses all.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).flip(-1).to_vec::<i32>()?, [2, 1, 4, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn flip | try_flip(&self, axes: impl Into<Axes>) -> Tensor {
            let dims = self.dims();
            let (axes, _) = axes.into().resolve("flip", &dims)?;
            self.flipped((0..dims.len()).map(|axis| axes.contains(&axis)))
        }

        /// Removes the given axes of size 1, or with `..` all of them. A given axis of another size
        /// is kept.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::zeros([1, 3, 1]);
        /// assert_eq!((x.squeeze(..).shape(), x.squeeze(0).shape()), (vec![3], vec![3, 1]));
        /// ```
        pub fn squeeze | try_squeeze(&self, axes: impl Into<Axes>) -> Tensor {
            let dims = self.dims();
            let (axes, _) = axes.into().resolve("squeeze", &dims)?;
            let kept =
                dims.iter().enumerate().filter(|&(axis, &size)| size != 1 || !axes.contains(&axis));
            self.shaped(kept.map(|(_, &size)| size))
        }

        /// Inserts an axis of size 1 at `axis` of the result.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3]).unsqueeze(-1).shape(), [2, 3, 1]);
        /// ```
        pub fn unsqueeze | try_unsqueeze(&self, axis: isize) -> Tensor {
            let mut dims = self.dims();
            // The result has one more axis, so `axis` may also be the rank of the input.
            let wider: Dims = dims.iter().copied().chain([1]).collect();
            let at = resolve_axis("unsqueeze", axis, &wider).map_err(|_| Error::Index {
                op: "unsqueeze",
                msg: format!(
                    "axis {axis} is outside the result of {dims:?}, whose axes are {}..={}",
                    -(wider.len() as isize),
                    dims.len()
                ),
            })?;
            dims.insert(at, 1);
            self.shaped(dims)
        }

        /// Flattens the axes `start` to `end`, inclusive, into one.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).flatten(1, -1).shape(), [2, 12]);
        /// ```
        pub fn flatten | try_flatten(&self, start: isize, end: isize) -> Tensor {
            let dims = self.dims();
            if dims.is_empty() {
                return self.shaped([1]);
            }
            let at = |axis: isize| resolve_axis("flatten", axis, &dims);
            let (a, b) = (at(start)?, at(end)?);
            reject_shape!(a > b, "expected start <= end, got axes {start} to {end} of {dims:?}");
            self.shaped(spliced(&dims, a..b + 1, &[dims[a..=b].iter().product()]))
        }

        /// Splits one axis into several. One size may be -1 and is inferred.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 12]).unflatten(1, [3, -1]).shape(), [2, 3, 4]);
        /// ```
        pub fn unflatten | try_unflatten(&self, axis: isize, sizes: impl Into<Sizes>) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("unflatten", axis, &dims)?;
            let sizes = sizes.into().infer("unflatten", &dims[at..=at])?;
            if sizes.iter().product::<usize>() != dims[at] {
                let size = dims[at];
                return shape_error!(
                    "axis {axis} of {dims:?} has size {size}, which is not {sizes:?}"
                );
            }
            self.shaped(spliced(&dims, at..at + 1, &sizes))
        }

        /// Rolls elements cyclically along axes, with one shift for each. Without axes, `()`, the
        /// flattened tensor is rolled.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3]).roll(1, 0).to_vec::<i32>()?, [3, 1, 2]);
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.roll([1, 1], [0, 1]).to_vec::<i32>()?, [4, 3, 2, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn roll | try_roll(&self, shifts: impl Into<Sizes>, axes: impl Into<Sizes>) -> Tensor {
            let (shifts, axes, dims) = (shifts.into().0, axes.into().0, self.dims());
            if axes.is_empty() && shifts.len() == 1 {
                let flat = self.shaped([self.max_numel()])?;
                return flat.try_roll(shifts[0], 0)?.shaped(dims);
            }
            if shifts.len() != axes.len() {
                return shape_error!("expected a shift for each axis of {axes:?}, got {shifts:?}");
            }
            let mut x = self.copy();
            for (&shift, &axis) in shifts.iter().zip(&axes) {
                x = x.roll_axis(shift, resolve_axis("roll", axis, &dims)?)?;
            }
            Ok(x)
        }

        /// Diagonal of the axes `a` and `b`, as the last axis of the result. A positive `offset`
        /// selects a diagonal above the main one, a negative offset one below it.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2, 3], [4, 5, 6]]);
        /// assert_eq!(x.diagonal(0, 0, 1).to_vec::<i32>()?, [1, 5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn diagonal | try_diagonal(&self, offset: isize, a: isize, b: isize) -> Tensor {
            let dims = self.dims();
            let (a, b) = (resolve_axis("diagonal", a, &dims)?, resolve_axis("diagonal", b, &dims)?);
            reject_shape!(a == b, "expected two axes of {dims:?}, got {a} twice");
            let others = (0..dims.len()).filter(|&i| i != a && i != b);
            let rest: Dims = others.clone().map(|i| dims[i]).collect();
            let (down, right) = (
                offset.min(0).unsigned_abs().min(dims[a]),
                offset.max(0).unsigned_abs().min(dims[b]),
            );
            let n = (dims[a] - down).min(dims[b] - right);
            let lead = rest.len();
            let with = |sizes: &[usize]| [&rest[..], sizes].concat();
            let square = self.permuted(others.chain([a, b]))?.slice_axis(lead, down, down + n)?;
            let square = square.slice_axis(lead + 1, right, right + n)?;
            if n == 0 {
                return square.shaped(with(&[0]));
            }
            // Padded to rows of `n + 1` elements, the diagonal of an `n` × `n` matrix is column 0.
            let flat = square.shaped(with(&[n * n]))?.padded_axis(lead, 0, n)?;
            flat.shaped(with(&[n, n + 1]))?.slice_axis(lead + 1, 0, 1)?.shaped(with(&[n]))
        }

        /// Builds a diagonal matrix from a vector, or extracts the diagonal of a matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]).diag();
        /// assert_eq!(x.to_vec::<i32>()?, [1, 0, 0, 2]);
        /// assert_eq!(x.diag().to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn diag | try_diag(&self) -> Tensor {
            let n = match self.dims()[..] {
                [n] => n,
                [_, _] => return self.try_diagonal(0, 0, 1),
                _ => {
                    return shape_error!("expected one or two axes, got {:?}", self.dims());
                }
            };
            let wide = self.try_unsqueeze(-1)?.padded_axis(1, 0, n)?.shaped([n * (n + 1)])?;
            wide.slice_axis(0, 0, n * n)?.shaped([n, n])
        }

        /// Sliding windows of `size` elements along an axis, with stride `step`. The axis then
        /// counts the windows; a new last axis holds their elements.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0, 5, 1).unfold(0, 3, 2);
        /// assert_eq!((x.shape(), x.to_vec::<i32>()?), (vec![2, 3], vec![0, 1, 2, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn unfold | try_unfold(&self, axis: isize, size: usize, step: usize) -> Tensor {
            let at = resolve_axis("unfold", axis, &self.dims())?;
            if size == 0 || step == 0 {
                return shape_error!("expected a size and a step above 0, got {size} and {step}");
            }
            let last = self.ndim() - 1;
            let order = (0..=last).filter(|&i| i != at).chain([at]);
            let window = Window { kernel: size, stride: step, dilation: 1 };
            windows(&self.permuted(order)?, &[window])?
                .permuted((0..at).chain([last]).chain(at..last).chain([last + 1]))
        }

        /// Pads the end of each axis with zeros to the given sizes; -1 keeps a size.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2]]).pad_to([2, -1]).to_vec::<i32>()?, [1, 2, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad_to | try_pad_to(&self, shape: impl Into<Sizes>) -> Tensor {
            let (dims, to) = (self.dims(), self.resolve_sizes("pad_to", &shape.into())?);
            if dims.iter().zip(&to).any(|(n, m)| n > m) {
                return shape_error!("expected sizes of at least {dims:?}, got {to:?}");
            }
            self.padded(dims.iter().zip(&to).map(|(n, m)| (0, m - n)))
        }

        /// Shrinks each axis to its first elements, as many as the given sizes; -1 keeps a size.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).shrink_to([-1, 1]).to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn shrink_to | try_shrink_to(&self, shape: impl Into<Shape>) -> Tensor {
            let shape = shape.into();
            let to = self.resolve_sizes("shrink_to", shape.sizes("shrink_to")?)?;
            let part = self.shrunk(to.iter().map(|&m| (0, m)))?;
            shape.slice_symbolic("shrink_to", part, |_| true)
        }
    }

    /// Rolls along one axis.
    fn roll_axis(&self, shift: isize, at: usize) -> Result<Tensor> {
        let dims = self.dims();
        let size = dims[at];
        self.require_static("roll", [at])?;
        if size == 0 {
            return Ok(self.copy());
        }
        // A slice of the tensor repeated twice along the axis.
        let start = (size - shift.rem_euclid(size as isize) as usize) % size;
        self.shaped(spliced(&dims, at..at, &[1]))?
            .expanded(spliced(&dims, at..at, &[2]))?
            .try_flatten(at as isize, at as isize + 1)?
            .slice_axis(at, start, start + size)
    }

    /// Resolves target sizes, where -1 keeps that of the axis.
    fn resolve_sizes(&self, op: &'static str, shape: &Sizes) -> Result<Dims> {
        let (dims, given) = (self.dims(), &shape.0);
        if given.len() != dims.len() {
            return wrong_shape!(op, "expected a size for each axis of {dims:?}, got {given:?}");
        }
        let kept = |(&n, &own): (&isize, &usize)| if n == -1 { own as isize } else { n };
        Sizes(given.iter().zip(&dims).map(kept).collect()).shape(op)
    }
}
