//! Reductions over axes: `x.sum(..)` over all, `x.sum(-1)` over one, `x.sum([0, 1])` over several;
//! `x.sum(keepdim(-1))` keeps reduced axes with size 1.

use crate::dtype::sum_acc;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, SymInt};
use crate::tensor::broadcast::Operand;
use crate::tensor::{Axes, Tensor, keepdim};

/// Combines tensors from left to right.
fn combine_tensors(
    op: &'static str,
    tensors: &[&Tensor],
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let Some((first, rest)) = tensors.split_first() else {
        return wrong_shape!(op, "expected one tensor or more, got none");
    };
    rest.iter().try_fold(first.copy(), |x, y| f(&x, y))
}

/// Square root of a variance, with gradient 0 at 0, where that of the root is infinite.
fn std_from_var(var: &Tensor) -> Result<Tensor> {
    let none = var.try_eq(0)?;
    none.try_where_(0.0, none.try_where_(1.0, var)?.sqrt())
}

impl Tensor {
    fallible! {
        /// Sum over axes. Bools and integers below 32 bits accumulate in 32 bits and return that
        /// dtype; narrow floats accumulate in `f32` and are rounded once. The sum of no elements is
        /// 0.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::keepdim};
        /// let x = Tensor::new([[1, 2, 3], [4, 5, 6]]);
        /// assert_eq!(x.sum(0).to_vec::<i32>()?, [5, 7, 9]);
        /// assert_eq!(x.sum(keepdim(-1)).shape(), [2, 1]);
        /// assert_eq!(x.sum(..).item::<i32>()?, 21);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn sum | try_sum(&self, axes: impl Into<Axes>) -> Tensor {
            in_wide_dtype!(self.try_sum(axes));
            self.accumulate(Fold::Add, axes)
        }

        /// Product over axes, in the dtypes of [`sum`](Self::sum). The product of no elements is 1.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).prod(1).to_vec::<i32>()?, [2, 12]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn prod | try_prod(&self, axes: impl Into<Axes>) -> Tensor {
            in_wide_dtype!(self.try_prod(axes));
            self.accumulate(Fold::Mul, axes)
        }

        /// Maximum over axes. NaN propagates; an axis of size 0 is an error.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [4, 3]]).max(1).to_vec::<i32>()?, [2, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max | try_max(&self, axes: impl Into<Axes>) -> Tensor {
            self.min_max(Fold::Max, axes)
        }

        /// Minimum over axes. NaN propagates; an axis of size 0 is an error.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [4, 3]]).min(1).to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn min | try_min(&self, axes: impl Into<Axes>) -> Tensor {
            self.min_max(Fold::Min, axes)
        }

        /// Mean over axes. Integers are averaged in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [4, 6]]).mean(1).to_vec::<f32>()?, [1.5, 5.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn mean | try_mean(&self, axes: impl Into<Axes>) -> Tensor {
            self.wide_mean(&axes.into())?.try_cast(self.as_float().dtype())
        }

        /// Variance over axes: the sum of squared deviations from the mean, divided by `n -
        /// correction`. A correction of 1 gives the unbiased estimate (Bessel's correction).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1.0f32, 2.0, 3.0]).var(.., 1).item::<f32>()?, 1.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn var | try_var(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
            self.wide_var(&axes.into(), correction)?.try_cast(self.as_float().dtype())
        }

        /// Standard deviation over axes: the square root of [`var`](Self::var). Its gradient at 0
        /// is 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1.0f32, 5.0]).std(0, 0).to_vec::<f32>()?, [2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn std | try_std(&self, axes: impl Into<Axes>, correction: usize) -> Tensor {
            std_from_var(&self.wide_var(&axes.into(), correction)?)?
                .try_cast(self.as_float().dtype())
        }

        /// Pair of [`var`](Self::var) and [`mean`](Self::mean).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (var, mean) = Tensor::new([1.0f32, 2.0, 3.0]).var_mean(.., 1);
        /// assert_eq!((var.item::<f32>()?, mean.item::<f32>()?), (1.0, 2.0));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn var_mean | try_var_mean(
            &self, axes: impl Into<Axes>, correction: usize,
        ) -> (Tensor, Tensor) {
            let axes = axes.into();
            Ok((self.try_var(axes.clone(), correction)?, self.try_mean(axes)?))
        }

        /// Pair of [`std`](Self::std) and [`mean`](Self::mean).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (std, mean) = Tensor::new([1.0f32, 5.0]).std_mean(.., 0);
        /// assert_eq!((std.item::<f32>()?, mean.item::<f32>()?), (2.0, 3.0));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn std_mean | try_std_mean(
            &self, axes: impl Into<Axes>, correction: usize,
        ) -> (Tensor, Tensor) {
            let axes = axes.into();
            Ok((self.try_std(axes.clone(), correction)?, self.try_mean(axes)?))
        }

        /// Elementwise sum of several tensors, with broadcasting and promotion.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]);
        /// assert_eq!(Tensor::usum(&[&x, &x, &Tensor::from(10)]).to_vec::<i32>()?, [12, 14]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn usum | try_usum(tensors: &[&Tensor]) -> Tensor {
            combine_tensors("usum", tensors, |x, y| x.try_add(y))
        }

        /// Elementwise product of several tensors, with broadcasting and promotion.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]);
        /// assert_eq!(Tensor::uprod(&[&x, &x, &Tensor::from(10)]).to_vec::<i32>()?, [10, 40]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn uprod | try_uprod(tensors: &[&Tensor]) -> Tensor {
            combine_tensors("uprod", tensors, |x, y| x.try_mul(y))
        }

        /// True where any element over axes is nonzero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[0, 2], [0, 0]]).any(1).to_vec::<bool>()?, [true, false]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn any | try_any(&self, axes: impl Into<Axes>) -> Tensor {
            self.nonzero_mask().reduce_axes(Fold::Max, axes)
        }

        /// True where all elements over axes are nonzero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [0, 3]]).all(1).to_vec::<bool>()?, [true, false]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn all | try_all(&self, axes: impl Into<Axes>) -> Tensor {
            self.nonzero_mask().reduce_axes(Fold::Min, axes)
        }

        /// Index of the maximum along one axis, or with `..` in the flattened tensor. Ties give the
        /// first index; NaN counts as the maximum.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 3, 3], [5, 0, 2]]).argmax(-1).to_vec::<i32>()?, [1, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn argmax | try_argmax(&self, axis: impl Into<Axes>) -> Tensor {
            self.arg_extreme(Fold::Max, axis)
        }

        /// Index of the minimum along one axis, or with `..` in the flattened tensor. Ties give the
        /// first index; NaN counts as the minimum.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[4, 1, 1], [0, 5, 2]]).argmin(-1).to_vec::<i32>()?, [1, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn argmin | try_argmin(&self, axis: impl Into<Axes>) -> Tensor {
            self.arg_extreme(Fold::Min, axis)
        }
    }

    /// Reduces in the tensor's own dtype.
    pub(super) fn reduce_axes(&self, fold: Fold, axes: impl Into<Axes>) -> Result<Tensor> {
        let dims = self.dims();
        let (axes, keep) = axes.into().resolve("reduce", &dims)?;
        let folded = if axes.is_empty() {
            self.copy()
        } else {
            self.with_uop(self.uop().reduced(fold, axes.iter().copied()))
        };
        if keep {
            return Ok(folded);
        }
        folded.shaped((0..dims.len()).filter(|a| !axes.contains(a)).map(|a| dims[a]))
    }

    fn accumulate(&self, fold: Fold, axes: impl Into<Axes>) -> Result<Tensor> {
        let dtype = self.dtype();
        let folded = self.try_cast(sum_acc(dtype))?.reduce_axes(fold, axes)?;
        if dtype.is_float() { folded.try_cast(dtype) } else { Ok(folded) }
    }

    fn min_max(&self, fold: Fold, axes: impl Into<Axes>) -> Result<Tensor> {
        let (dims, axes) = (self.dims(), axes.into());
        let (list, _) = axes.resolve("reduce", &dims)?;
        if let Some(axis) = list.iter().find(|&&axis| dims[axis] == 0) {
            return shape_error!("axis {axis} of {dims:?} has no element to choose");
        }
        self.reduce_axes(fold, axes)
    }

    /// The value of which a method selects elements by rank: extremes with their indices, or the
    /// sorted order. Several kernels read it: comparisons, reductions, and reads at the selected
    /// indices. A value that they could round differently is stored once.
    pub(super) fn ranked(&self) -> Tensor {
        self.with_uop(self.uop().materialized())
    }

    /// Mean in the accumulation dtype.
    pub(super) fn wide_mean(&self, axes: &Axes) -> Result<Tensor> {
        self.as_wide_float().reduce_axes(Fold::Add, axes)?.try_div(self.count(axes, 0)?)
    }

    pub(super) fn wide_var(&self, axes: &Axes, correction: usize) -> Result<Tensor> {
        let count = self.count(axes, correction)?;
        let mean = self.wide_mean(&keepdim(axes))?;
        let squares = self.as_wide_float().try_sub(mean)?.square();
        squares.reduce_axes(Fold::Add, axes)?.try_div(count)
    }

    /// Number of reduced elements minus `less`, at least 0. With symbolic dimensions it is a
    /// tensor.
    pub(super) fn count(&self, axes: impl Into<Axes>, less: usize) -> Result<Operand> {
        let (dims, uop) = (self.dims(), self.uop());
        let axes = axes.into().resolve("reduce", &dims)?.0;
        let extents: Vec<&SymInt> = axes.iter().filter_map(|&a| uop.extent(a)).collect();
        let number: usize =
            axes.iter().filter(|&&a| uop.extent(a).is_none()).map(|&a| dims[a]).product();
        let Some((first, rest)) = extents.split_first() else {
            return Ok((number.saturating_sub(less) as f64).into());
        };
        let float = |b: &SymInt| Tensor::from(b).try_cast(self.as_wide_float().dtype());
        let some = rest.iter().try_fold(float(first)?, |n, b| n.try_mul(float(b)?))?;
        let count = some.try_mul(number as f64)?.try_sub(less as f64)?;
        Ok(count.try_maximum(0.0)?.into())
    }

    fn arg_extreme(&self, fold: Fold, axis: impl Into<Axes>) -> Result<Tensor> {
        let (dims, axis) = (self.dims(), axis.into());
        let (axes, keep) = axis.resolve("reduce", &dims)?;
        if axes.len() != 1 {
            if axes.len() != dims.len() {
                return shape_error!("expected one axis or `..`, got {axes:?} of {dims:?}");
            }
            let place = self.try_reshape([self.max_numel()])?.arg_extreme(fold, 0)?;
            return if keep { place.shaped(Dims::from_elem(1, dims.len())) } else { Ok(place) };
        }
        let at = axes[0];
        let x = self.ranked();
        // Detached, this node differs from a reduction by the caller, whose stored value may come
        // from an earlier plan.
        let best = x.detach().min_max(fold, keepdim(at))?;
        let place = x.equals_or_nan(&best)?.try_where_(x.iota_along(at)?, dims[at] as i64)?;
        place.reduce_axes(Fold::Min, axis)
    }

    /// True where elements are equal to an extreme, or NaN: a NaN is an extreme and equals nothing.
    pub(super) fn equals_or_nan(&self, extreme: &Tensor) -> Result<Tensor> {
        let equal = self.try_eq(extreme)?;
        if self.is_floating_point() { equal.try_bitwise_or(self.isnan()) } else { Ok(equal) }
    }
}
