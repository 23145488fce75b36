//! Pooling over windows of the last axes.

use super::conv::{Window, count_overflow, windows};
use super::create::iota;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Movement, checked_numel};
use crate::tensor::{Axes, Sides, Spatial, Tensor, for_op, keepdim};

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

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            stride: None,
            padding: 0.into(),
            dilation: 1.into(),
            ceil: false,
            count_padding: true,
            divisor: None,
        }
    }
}

impl Pool {
    /// Stride equal to the kernel, no padding, no dilation, no partial windows.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new()).to_vec::<f32>()?, [5.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> Pool {
        Pool::default()
    }
    /// Stride of the windows.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(
    ///     x.max_pool2d([1, 2], Pool::new().stride(1)).to_vec::<f32>()?,
    ///     [5.0, 5.0, 8.0, 8.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn stride(self, stride: impl Into<Spatial>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }
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
    pub fn padding(self, padding: impl Into<Sides>) -> Pool {
        Pool { padding: padding.into(), ..self }
    }
    /// Distance between the elements of a window.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new().dilation([1, 4])).to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn dilation(self, dilation: impl Into<Spatial>) -> Pool {
        Pool { dilation: dilation.into(), ..self }
    }
    /// Includes a last, partial window.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// assert_eq!(
    ///     x.max_pool2d([1, 2], Pool::new().ceil_mode()).to_vec::<f32>()?,
    ///     [5.0, 8.0, 3.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn ceil_mode(self) -> Pool {
        Pool { ceil: true, ..self }
    }
    /// Averages over elements of the input only, not over padding.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[1.0f32, 5.0, 2.0, 8.0, 3.0]]]);
    /// let how = || Pool::new().padding([(0, 0), (1, 0)]);
    /// assert_eq!(x.avg_pool2d([1, 2], how()).to_vec::<f32>()?, [0.5, 3.5, 5.5]);
    /// assert_eq!(
    ///     x.avg_pool2d([1, 2], how().exclude_padding()).to_vec::<f32>()?,
    ///     [1.0, 3.5, 5.5]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn exclude_padding(self) -> Pool {
        Pool { count_padding: false, ..self }
    }
    /// Divisor of the sum of a window, in place of its number of elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Pool};
    /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
    /// assert_eq!(x.avg_pool2d(2, Pool::new().divisor_override(2)).to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn divisor_override(self, divisor: usize) -> Pool {
        Pool { divisor: Some(divisor), ..self }
    }
}

/// Padding, additional padding for partial windows, and windows of the last axes.
struct Plan {
    padding: Vec<(usize, usize)>,
    overhang: Vec<(usize, usize)>,
    list: Vec<Window>,
}

/// Number of pooled axes: the length of the list, or two for a bare number, which requires `[N, C,
/// H, W]`.
pub(in crate::tensor) fn pooled_axes(
    op: &'static str,
    what: &str,
    sizes: &Spatial,
    dims: &[usize],
) -> Result<usize> {
    match sizes.rank() {
        None if dims.len() == 4 => Ok(2),
        None => wrong_shape!(
            op,
            "expected [N, C, H, W] for a {what} of one number, got {dims:?}; give a value for \
             each pooled axis: [k], [k, k] or [k, k, k]"
        ),
        Some(n @ 1..=3) if dims.len() >= n => Ok(n),
        Some(n @ 1..=3) => {
            wrong_shape!(op, "a {what} of {n} values requires {n} axes, got {dims:?}")
        }
        Some(n) => wrong_shape!(op, "expected a {what} of 1, 2 or 3 values, got {n}"),
    }
}

fn plan(op: &'static str, x: &Tensor, kernel: &Spatial, options: &Pool) -> Result<Plan> {
    let dims = x.dims();
    let n = pooled_axes(op, "kernel", kernel, &dims)?;
    let kernel = kernel.positive(op, "kernel", n)?;
    let stride = match &options.stride {
        Some(s) => s.positive(op, "stride", n)?,
        None => kernel.clone(),
    };
    let dilation = options.dilation.positive(op, "dilation", n)?;
    let padding = options.padding.resolve(op, n)?;
    let list: Vec<Window> = (0..n)
        .map(|i| Window { kernel: kernel[i], stride: stride[i], dilation: dilation[i] })
        .collect();
    let mut overhang = vec![(0, 0); n];
    for (i, w) in list.iter().enumerate() {
        let (before, after) = padding[i];
        let inside = before.saturating_add(dims[dims.len() - n + i]);
        let all = checked_numel(op, &[inside.saturating_add(after)])?;
        let whole = if options.ceil && all > 0 && all < w.span() { 0 } else { w.count(op, all)? };
        let covered = if whole == 0 { 0 } else { (whole - 1) * w.stride + w.span() };
        // A partial window has to start inside the input or its leading padding.
        let start = whole.saturating_mul(w.stride);
        if options.ceil && covered < all && start < inside {
            let Some(end) = start.checked_add(w.span()).filter(|&end| isize::try_from(end).is_ok())
            else {
                return count_overflow(op, *w, &dims);
            };
            overhang[i].1 = end - all;
        } else if whole == 0 {
            w.count(op, all)?;
        }
    }
    let full = |tail: Vec<(usize, usize)>| {
        std::iter::repeat_n((0, 0), dims.len() - n).chain(tail).collect()
    };
    Ok(Plan { padding: full(padding), overhang: full(overhang), list })
}

/// Windows over the last axes as `[…, outputs, kernel]`, and the index of each element in the
/// flattened pooled axes; padding has the index `count`.
pub(in crate::tensor) struct PoolWindows {
    pub(in crate::tensor) values: Tensor,
    pub(in crate::tensor) indices: Tensor,
    pub(in crate::tensor) axes: usize,
    pub(in crate::tensor) count: usize,
}

impl PoolWindows {
    /// Windows over a padded tensor.
    fn new(op: &'static str, x: &Tensor, plan: &Plan) -> Result<PoolWindows> {
        let both: Vec<_> =
            plan.padding.iter().zip(&plan.overhang).map(|(p, o)| (p.0, p.1 + o.1)).collect();
        let (dims, axes) = (x.dims(), plan.list.len());
        let padded = for_op(op, x.try_pad_with(&both, x.literal(x.dtype().min_value())))?;
        let lead = dims.len() - axes;
        let count = dims[lead..].iter().product();
        let indices = iota(count)
            .movement(Movement::reshape(dims[lead..].iter().copied()))?
            .try_pad_with(&both[lead..], count as i64)?;
        Ok(PoolWindows {
            values: windows(op, &padded, &plan.list)?,
            indices: windows(op, &indices, &plan.list)?,
            axes,
            count,
        })
    }
    fn kernel_axes(&self) -> Vec<isize> {
        (1..=self.axes as isize).map(|i| -i).collect()
    }
    /// Maximum of each window.
    fn max_value(&self, op: &'static str) -> Result<Tensor> {
        self.values.reduce_axes(op, Fold::Max, &Axes::from(self.kernel_axes()))
    }
    /// Index of the maximum of each window: the first of equals, or the first NaN.
    fn argmax(&self, op: &'static str) -> Result<Tensor> {
        let values = self.values.detach();
        let best = values.reduce_axes(op, Fold::Max, &keepdim(self.kernel_axes()))?;
        let is_best = values.try_eq(&best)?;
        let is_best = if values.is_floating_point() {
            is_best.try_bitwise_or(values.isnan())?
        } else {
            is_best
        };
        is_best.try_where_(&self.indices, self.count as i64)?.reduce_axes(
            op,
            Fold::Min,
            &Axes::from(self.kernel_axes()),
        )
    }
    /// Maximum of each window and its index. For gradients the value is read at the index, so that
    /// the gradient reaches one element only.
    pub(in crate::tensor) fn max_with_indices(&self, op: &'static str) -> Result<(Tensor, Tensor)> {
        let first = self.argmax(op)?;
        if !self.values.requires_grad() {
            return Ok((self.max_value(op)?, first));
        }
        let kept = first
            .dims()
            .iter()
            .copied()
            .chain(std::iter::repeat_n(1, self.axes))
            .collect::<Vec<usize>>();
        let here = self.indices.try_eq(first.movement(Movement::reshape(kept))?)?;
        // A window that lies in the padding has no element.
        let none = first.try_eq(self.count as i64)?;
        let read = here.try_where_(&self.values, self.values.literal(0))?.reduce_axes(
            op,
            Fold::Add,
            &Axes::from(self.kernel_axes()),
        )?;
        Ok((none.try_where_(self.values.literal(self.values.dtype().min_value()), read)?, first))
    }
    /// Maximum of each window, with the gradient of [`PoolWindows::max_with_indices`].
    pub(in crate::tensor) fn max(&self, op: &'static str) -> Result<Tensor> {
        if self.values.requires_grad() {
            Ok(self.max_with_indices(op)?.0)
        } else {
            self.max_value(op)
        }
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
        /// assert_eq!(
        ///     x.max_pool2d([3, 3], Pool::new().stride(1)).to_vec::<i32>()?,
        ///     [10, 11, 14, 15]
        /// );
        /// assert_eq!(
        ///     x.reshape([1, 2, 8]).max_pool2d([4], Pool::new()).to_vec::<i32>()?,
        ///     [3, 7, 11, 15]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d | try_max_pool2d(
            &self, kernel: impl Into<Spatial>, options: Pool,
        ) -> Tensor {
            const OP: &str = "max_pool2d";
            let plan = plan(OP, self, &kernel.into(), &options)?;
            PoolWindows::new(OP, &self.materialized(), &plan)?.max(OP)
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
            const OP: &str = "max_pool2d_with_indices";
            let plan = plan(OP, self, &kernel.into(), &options)?;
            PoolWindows::new(OP, &self.materialized(), &plan)?.max_with_indices(OP)
        }

        /// Inverse of [`max_pool2d_with_indices`](Self::max_pool2d_with_indices): scatters each
        /// element to its index, with zeros elsewhere. The default output size is the one that the
        /// windows cover.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, indices) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!(
        ///     values.max_unpool2d(&indices, 2, Pool::new(), None).to_vec::<i32>()?,
        ///     [0, 0, 7, 0]
        /// );
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
                return wrong_shape!(
                    OP,
                    "expected values and indices of one shape with two axes or more, got \
                     {dims:?} and {:?}",
                    indices.dims()
                );
            }
            let kernel = kernel.into().positive(OP, "kernel", 2)?;
            let stride = match &options.stride {
                Some(s) => s.positive(OP, "stride", 2)?,
                None => kernel.clone(),
            };
            let padding = options.padding.resolve(OP, 2)?;
            let (lead, plane) = dims.split_at(dims.len() - 2);
            let covered = |i: usize| {
                (plane[i].max(1) - 1).saturating_mul(stride[i]).saturating_add(kernel[i])
            };
            let size = match size {
                Some(size) => size,
                None => {
                    let inside = |i: usize| {
                        covered(i).checked_sub(padding[i].0.saturating_add(padding[i].1))
                    };
                    match (inside(0), inside(1)) {
                        (Some(rows), Some(cols)) => [rows, cols],
                        _ => {
                            return wrong_shape!(
                                OP,
                                "padding {padding:?} exceeds what windows of {kernel:?} cover of \
                                 {dims:?}"
                            );
                        }
                    }
                }
            };
            checked_numel(OP, &lead.iter().copied().chain(size).collect::<Vec<_>>())?;
            let flat = |t: &Tensor, sizes: &[usize]| {
                t.movement(Movement::reshape(
                    [lead.iter().product()].into_iter().chain(sizes.iter().copied()),
                ))
            };
            let (values, indices) =
                (flat(self, &[plane[0] * plane[1]])?, flat(indices, &[plane[0] * plane[1]])?);
            let empty = values.literal(0).try_expand([values.dims()[0], size[0] * size[1]])?;
            let all = for_op(OP, empty.try_scatter(1, &indices, &values))?;
            all.movement(Movement::reshape(lead.iter().copied().chain(size)))
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
            let Plan { padding, overhang, list } =
                plan("avg_pool2d", self, &kernel.into(), &options)?;
            let axes: Vec<isize> = (1..=list.len() as isize).map(|i| -i).collect();
            let sums = |t: &Tensor| {
                windows("avg_pool2d", t, &list)?.reduce_axes(
                    "avg_pool2d",
                    Fold::Add,
                    &Axes::from(&axes),
                )
            };
            let pad =
                |t: &Tensor, by: &[(usize, usize)]| t.movement(Movement::pad(by.iter().copied()));
            let x = self.as_wide_float();
            let sum =
                sums(&for_op("avg_pool2d", pad(&x, &padding).and_then(|p| pad(&p, &overhang)))?)?;
            let none = |by: &[(usize, usize)]| by.iter().all(|&p| p == (0, 0));
            let mean = if let Some(divisor) = options.divisor {
                if divisor == 0 {
                    return wrong_shape!("avg_pool2d", "the divisor must not be 0");
                }
                sum.try_div(divisor as f64)?
            } else if none(&overhang) && (options.count_padding || none(&padding)) {
                sum.try_div(list.iter().map(|w| w.kernel).product::<usize>() as f64)?
            } else {
                let ones = x.ones_like();
                let counted = if options.count_padding {
                    pad(&x, &padding)?.ones_like()
                } else {
                    pad(&ones, &padding)?
                };
                sum.try_div(sums(&pad(&counted, &overhang)?)?)?
            };
            mean.try_cast(self.as_float().dtype())
        }
    }
}
