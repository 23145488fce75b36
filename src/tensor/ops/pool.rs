//! Pooling over windows of the last axes.

use super::conv::{Window, count_overflow, window_list, windows};
use super::create::iota;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, checked_numel};
use crate::tensor::{Sides, Spatial, Tensor, keepdim};

/// Options of pooling: `Pool::new().stride(2).padding(1)`.
#[derive(Clone)]
pub struct Pool {
    stride: Option<Spatial>,
    padding: Sides,
    dilation: Spatial,
    ceil: bool,
    count_padding: bool,
    divisor: Option<usize>,
}

setters! { Pool;
    /// Stride equal to the kernel, no padding, no dilation, no partial windows.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new()).to_vec::<f32>()?, [5.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = Pool {
        stride: None,
        padding: 0.into(),
        dilation: 1.into(),
        ceil: false,
        count_padding: true,
        divisor: None,
    };
    /// Stride of the windows.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// let y = x.max_pool2d([1, 2], Pool::new().stride(1));
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 5.0, 8.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    stride(stride: impl Into<Spatial>) stride = Some(stride.into());
    /// Padding: one number, one per axis, or `(before, after)` per axis. It is never selected as a
    /// maximum.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// let how = Pool::new().padding([0, 1]);
    /// assert_eq!(x.max_pool2d([1, 2], how).to_vec::<f32>()?, [1.0, 5.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    padding(padding: impl Into<Sides>) padding = padding.into();
    /// Distance between the elements of a window.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new().dilation([1, 4])).to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    dilation(dilation: impl Into<Spatial>) dilation = dilation.into();
    /// Includes a last, partial window, if less than a stride of it is outside the input with its
    /// padding, and if it starts inside the input or its leading padding.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new().ceil_mode()).to_vec::<f32>()?, [5.0, 8.0, 3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    ceil_mode() ceil = true;
    /// Averages over elements of the input only, not over padding.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// let how = Pool::new().padding([(0, 0), (1, 0)]).exclude_padding();
    /// assert_eq!(x.avg_pool2d([1, 2], how).to_vec::<f32>()?, [1.0, 3.5, 5.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    exclude_padding() count_padding = false;
    /// Divisor of the sum of a window, in place of its number of elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
    /// assert_eq!(x.avg_pool2d(2, Pool::new().divisor_override(2)).to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    divisor_override(divisor: usize) divisor = Some(divisor);
}

/// Padding, additional padding for partial windows, and windows of the last axes.
struct Plan {
    padding: Vec<(usize, usize)>,
    overhang: Vec<(usize, usize)>,
    list: Vec<Window>,
}

/// Returns the number of pooled axes: the length of the list, or two for a bare number, which
/// requires `[N, C, H, W]`.
pub(super) fn pooled_axes(what: &str, sizes: &Spatial, dims: &[usize]) -> Result<usize> {
    match sizes.rank() {
        None if dims.len() == 4 => Ok(2),
        None => shape_error!(
            "expected [N, C, H, W] for a {what} of one number, got {dims:?}; give a value for \
             each pooled axis: [k], [k, k] or [k, k, k]"
        ),
        Some(n @ 1..=3) if dims.len() >= n => Ok(n),
        Some(n @ 1..=3) => {
            shape_error!("a {what} of {n} values requires {n} axes, got {dims:?}")
        }
        Some(n) => shape_error!("expected a {what} of 1, 2 or 3 values, got {n}"),
    }
}

/// Stride of the windows: that of the options, or the kernel.
fn stride_of(options: &Pool, kernel: &[usize]) -> Result<Dims> {
    match &options.stride {
        Some(s) => s.positive("tensor", "stride", kernel.len()),
        None => Ok(kernel.into()),
    }
}

fn plan(x: &Tensor, kernel: &Spatial, options: &Pool) -> Result<Plan> {
    let dims = x.dims();
    let n = pooled_axes("kernel", kernel, &dims)?;
    let kernel = kernel.positive("tensor", "kernel", n)?;
    let stride = stride_of(options, &kernel)?;
    let list = window_list(&kernel, &stride, &options.dilation.positive("tensor", "dilation", n)?);
    let padding = options.padding.resolve("tensor", n)?;
    let mut overhang = vec![(0, 0); n];
    for (i, w) in list.iter().enumerate() {
        let (before, after) = padding[i];
        let size = dims[dims.len() - n + i];
        reject_shape!(size == 0, "a pooled axis of {dims:?} has no elements");
        let inside = before.saturating_add(size);
        let all = checked_numel("tensor", &[inside.saturating_add(after)])?;
        let span = w.span();
        let whole = if all < span { 0 } else { w.count(all)? };
        let covered = if whole == 0 { 0 } else { (whole - 1) * w.stride + span };
        // As PyTorch has it: the number of windows is `(all - span) / stride + 1`, rounded up, and
        // the last one starts inside the input or its leading padding.
        let start = whole.saturating_mul(w.stride);
        let rounds_up = covered < all && all.saturating_add(w.stride) > span;
        if options.ceil && rounds_up && start < inside {
            let end = start.checked_add(span).filter(|&end| isize::try_from(end).is_ok());
            let Some(end) = end else { return count_overflow(*w, &dims) };
            overhang[i].1 = end - all;
        } else if whole == 0 {
            w.count(all)?;
        }
    }
    let lead = vec![(0, 0); dims.len() - n];
    Ok(Plan { padding: [&lead[..], &padding].concat(), overhang: [lead, overhang].concat(), list })
}

/// Windows over the last axes as `[…, outputs, kernel]`, and the index of each element in the
/// flattened pooled axes; padding has the index `count`.
pub(super) struct PoolWindows {
    pub(super) values: Tensor,
    pub(super) indices: Tensor,
    pub(super) axes: usize,
    pub(super) count: usize,
}

/// Returns the last `n` axes.
fn last_axes(n: usize) -> Vec<isize> {
    (1..=n as isize).map(|i| -i).collect()
}

impl PoolWindows {
    /// Windows over a padded tensor.
    fn new(x: &Tensor, plan: &Plan) -> Result<PoolWindows> {
        let both: Vec<_> =
            plan.padding.iter().zip(&plan.overhang).map(|(p, o)| (p.0, p.1 + o.1)).collect();
        let (dims, axes) = (x.dims(), plan.list.len());
        let padded = x.ranked().try_pad_with(&both, x.literal(x.dtype().min_value()))?;
        let lead = dims.len() - axes;
        let count = dims[lead..].iter().product();
        let indices = iota(count).shaped(dims[lead..].iter().copied())?;
        let indices = indices.try_pad_with(&both[lead..], count as i64)?;
        let (values, indices) = (windows(&padded, &plan.list)?, windows(&indices, &plan.list)?);
        Ok(PoolWindows { values, indices, axes, count })
    }
    /// Maximum of each window.
    fn max_value(&self) -> Result<Tensor> {
        self.values.reduce_axes(Fold::Max, last_axes(self.axes))
    }
    /// Returns the index of the maximum of each window: the first of equals, or the first NaN.
    fn argmax(&self) -> Result<Tensor> {
        let values = self.values.detach();
        let best = values.reduce_axes(Fold::Max, keepdim(last_axes(self.axes)))?;
        let place = values.equals_or_nan(&best)?.try_where_(&self.indices, self.count as i64)?;
        place.reduce_axes(Fold::Min, last_axes(self.axes))
    }
    /// Maximum of each window and its index. For gradients the value is read at the index, so that
    /// the gradient reaches one element only.
    pub(super) fn max_with_indices(&self) -> Result<(Tensor, Tensor)> {
        let first = self.argmax()?;
        if !self.values.requires_grad() {
            return Ok((self.max_value()?, first));
        }
        let kept = [&first.dims()[..], &vec![1; self.axes]].concat();
        let here = self.indices.try_eq(first.shaped(kept)?)?;
        // A window that lies in the padding has no element.
        let none = first.try_eq(self.count as i64)?;
        let values = &self.values;
        let read = here.try_where_(values, values.literal(0))?;
        let read = read.reduce_axes(Fold::Add, last_axes(self.axes))?;
        Ok((none.try_where_(values.literal(values.dtype().min_value()), read)?, first))
    }
    /// Maximum of each window, with the gradient of [`PoolWindows::max_with_indices`].
    pub(super) fn max(&self) -> Result<Tensor> {
        if self.values.requires_grad() { Ok(self.max_with_indices()?.0) } else { self.max_value() }
    }
}

impl Tensor {
    fallible! {
        /// Maximum of each window over the last axes, as many as the kernel has values. A kernel of
        /// one number requires `[N, C, H, W]` and pools the last two axes. The gradient goes to the
        /// element that [`max_pool2d_with_indices`](Self::max_pool2d_with_indices) returns.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::arange(0, 16, 1).reshape([1, 1, 4, 4]);
        /// assert_eq!(x.max_pool2d(2, Pool::new()).to_vec::<i32>()?, [5, 7, 13, 15]);
        /// let y = x.max_pool2d([3, 3], Pool::new().stride(1));
        /// assert_eq!(y.to_vec::<i32>()?, [10, 11, 14, 15]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d | try_max_pool2d(
            &self, kernel: impl Into<Spatial>, options: Pool,
        ) -> Tensor {
            let plan = plan(self, &kernel.into(), &options)?;
            PoolWindows::new(self, &plan)?.max()
        }

        /// Maximum of each window, as [`max_pool2d`](Self::max_pool2d), and its index in the
        /// flattened pooled axes: the first of equals, or the first NaN.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, indices) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!((values.to_vec::<i32>()?, indices.to_vec::<i32>()?), (vec![7], vec![2]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d_with_indices | try_max_pool2d_with_indices(
            &self, kernel: impl Into<Spatial>, options: Pool,
        ) -> (Tensor, Tensor) {
            let plan = plan(self, &kernel.into(), &options)?;
            PoolWindows::new(self, &plan)?.max_with_indices()
        }

        /// Inverse of [`max_pool2d_with_indices`](Self::max_pool2d_with_indices): scatters each
        /// element to its index, with zeros elsewhere. The default output size is the one that the
        /// windows cover.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, indices) = x.max_pool2d_with_indices(2, Pool::new());
        /// let y = values.max_unpool2d(&indices, 2, Pool::new(), None);
        /// assert_eq!(y.to_vec::<i32>()?, [0, 0, 7, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_unpool2d | try_max_unpool2d(
            &self,
            indices: &Tensor,
            kernel: impl Into<Spatial>,
            options: Pool,
            size: Option<[usize; 2]>,
        ) -> Tensor {
            const OP: &str = "max_unpool2d";
            let dims = self.dims();
            if dims.len() < 2 || indices.dims() != dims {
                let other = indices.dims();
                return shape_error!(
                    "expected values and indices of one shape with two axes or more, got \
                     {dims:?} and {other:?}"
                );
            }
            let kernel = kernel.into().positive(OP, "kernel", 2)?;
            let stride = stride_of(&options, &kernel)?;
            let padding = options.padding.resolve(OP, 2)?;
            let (lead, plane) = dims.split_at(dims.len() - 2);
            let covered = |i: usize| {
                let all = (plane[i].max(1) - 1).saturating_mul(stride[i]).saturating_add(kernel[i]);
                all.checked_sub(padding[i].0.saturating_add(padding[i].1))
            };
            let Some([rows, cols]) = size.or_else(|| Some([covered(0)?, covered(1)?])) else {
                return shape_error!(
                    "padding {padding:?} exceeds what windows of {kernel:?} cover of {dims:?}"
                );
            };
            let out = [lead, &[rows, cols]].concat();
            checked_numel(OP, &out)?;
            let rest: usize = lead.iter().product();
            let flat = |t: &Tensor| t.shaped([rest, plane[0] * plane[1]]);
            let (values, indices) = (flat(self)?, flat(indices)?);
            let empty = values.literal(0).try_expand([rest, rows * cols])?;
            empty.try_scatter(1, &indices, &values)?.shaped(out)
        }

        /// Mean of each window over the last axes, as many as the kernel has values. A kernel of
        /// one number requires `[N, C, H, W]` and pools the last two axes. Integers are averaged in
        /// `f32`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
        /// assert_eq!(x.avg_pool2d(2, Pool::new()).to_vec::<f32>()?, [3.0]);
        /// assert_eq!(x.avg_pool2d([2], Pool::new()).to_vec::<f32>()?, [1.5, 4.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn avg_pool2d | try_avg_pool2d(
            &self, kernel: impl Into<Spatial>, options: Pool,
        ) -> Tensor {
            let Plan { padding, overhang, list } = plan(self, &kernel.into(), &options)?;
            let sums =
                |t: &Tensor| windows(t, &list)?.reduce_axes(Fold::Add, last_axes(list.len()));
            let x = self.as_wide_float();
            let sum = sums(&x.try_pad(&padding)?.try_pad(&overhang)?)?;
            let none = |by: &[(usize, usize)]| by.iter().all(|&p| p == (0, 0));
            let mean = if let Some(divisor) = options.divisor {
                reject_shape!(divisor == 0, "the divisor must not be 0");
                sum.try_div(divisor as f64)?
            } else if none(&overhang) && (options.count_padding || none(&padding)) {
                sum.try_div(list.iter().map(|w| w.kernel).product::<usize>() as f64)?
            } else {
                let counted = if options.count_padding {
                    x.try_pad(&padding)?.ones_like()
                } else {
                    x.ones_like().try_pad(&padding)?
                };
                sum.try_div(sums(&counted.try_pad(&overhang)?)?)?
            };
            mean.try_cast(self.as_float().dtype())
        }
    }
}
