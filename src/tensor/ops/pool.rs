//! Pooling: one number from each window.

use super::conv::{Window, beyond_count, windows};
use super::create::iota;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Movement, checked_numel};
use crate::tensor::{Axes, Sides, Spatial, Tensor, for_op, keepdim, wrong_shape};

/// How pooling runs: `Pool::new().stride(2).padding(1)`.
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
    /// A stride of the kernel's size, no padding, no dilation, only whole windows.
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
    /// The distance between windows.
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
    /// Padding around: one number, one per axis, or `(before, after)` per axis. It never wins a
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
    /// The distance between the elements of a window.
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
    /// Also a last window that hangs over the end.
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
    /// Means over what is inside alone, not over the padding.
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
    /// What the sum of a window is divided by in a mean, in place of the number of its elements.
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

/// Where the windows of the last axes lie: padding as asked for, what hangs over the end beyond it,
/// and the windows.
struct Plan {
    padding: Vec<(usize, usize)>,
    overhang: Vec<(usize, usize)>,
    list: Vec<Window>,
}

/// The number of pooled axes: that of the values of a list, or two for a bare number, which says
/// nothing about them and so takes `[N, C, H, W]` alone.
pub(in crate::tensor) fn pooled_axes(
    op: &'static str,
    what: &str,
    sizes: &Spatial,
    dims: &[usize],
) -> Result<usize> {
    match sizes.rank() {
        None if dims.len() == 4 => Ok(2),
        None => wrong_shape(
            op,
            format!(
                "{dims:?} is no [N, C, H, W]; a {what} with a value for each pooled axis says \
                 which they are: [k], [k, k] or [k, k, k]"
            ),
        ),
        Some(n @ 1..=3) if dims.len() >= n => Ok(n),
        Some(n @ 1..=3) => wrong_shape(
            op,
            format!("a {what} of {n} values pools {n} axes, and {dims:?} has fewer"),
        ),
        Some(n) => wrong_shape(op, format!("a {what} has 1, 2 or 3 values, and this one has {n}")),
    }
}

fn plan(op: &'static str, x: &Tensor, kernel: &Spatial, how: &Pool) -> Result<Plan> {
    let dims = x.dims();
    let n = pooled_axes(op, "kernel", kernel, &dims)?;
    let kernel = kernel.positive(op, "kernel", n)?;
    let stride = match &how.stride {
        Some(s) => s.positive(op, "stride", n)?,
        None => kernel.clone(),
    };
    let dilation = how.dilation.positive(op, "dilation", n)?;
    let padding = how.padding.resolve(op, n)?;
    let list: Vec<Window> = (0..n)
        .map(|i| Window { kernel: kernel[i], stride: stride[i], dilation: dilation[i] })
        .collect();
    let mut overhang = vec![(0, 0); n];
    for (i, w) in list.iter().enumerate() {
        let (before, after) = padding[i];
        let inside = before.saturating_add(dims[dims.len() - n + i]);
        let all = checked_numel(op, &[inside.saturating_add(after)])?;
        // What is left over after the last whole window, or what the first one lacks.
        let whole = if how.ceil && all > 0 && all < w.span() { 0 } else { w.count(op, all)? };
        let covered = if whole == 0 { 0 } else { (whole - 1) * w.stride + w.span() };
        // One window more for what is left over, if it starts on something that is there.
        let start = whole.saturating_mul(w.stride);
        if how.ceil && covered < all && start < inside {
            let Some(end) = start.checked_add(w.span()).filter(|&end| isize::try_from(end).is_ok())
            else {
                return beyond_count(op, *w, &dims);
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

/// Windows over the last axes of a tensor as `[…, outputs, kernel]`, and the place of each of their
/// elements in the pooled axes, counted in row-major order; for what is no element of the tensor,
/// the number of places.
pub(in crate::tensor) struct Seen {
    pub(in crate::tensor) values: Tensor,
    pub(in crate::tensor) places: Tensor,
    pub(in crate::tensor) axes: usize,
    pub(in crate::tensor) count: usize,
}

impl Seen {
    /// Windows over a tensor with padding.
    fn new(op: &'static str, x: &Tensor, plan: &Plan) -> Result<Seen> {
        let both: Vec<_> =
            plan.padding.iter().zip(&plan.overhang).map(|(p, o)| (p.0, p.1 + o.1)).collect();
        let (dims, axes) = (x.dims(), plan.list.len());
        let padded = for_op(op, x.try_pad_with(&both, x.literal(x.dtype().min_value())))?;
        let lead = dims.len() - axes;
        let count = dims[lead..].iter().product();
        let places = iota(count)
            .movement(Movement::reshape(dims[lead..].iter().copied()))?
            .try_pad_with(&both[lead..], count as i64)?;
        Ok(Seen {
            values: windows(op, &padded, &plan.list)?,
            places: windows(op, &places, &plan.list)?,
            axes,
            count,
        })
    }
    fn kernel_axes(&self) -> Vec<isize> {
        (1..=self.axes as isize).map(|i| -i).collect()
    }
    /// The greatest of each window.
    fn max(&self, op: &'static str) -> Result<Tensor> {
        self.values.fold(op, Fold::Max, &Axes::from(self.kernel_axes()))
    }
    /// The place of the greatest of each window: the first of equals, and of NaNs, which win.
    fn first(&self, op: &'static str) -> Result<Tensor> {
        let values = self.values.detach();
        let best = values.fold(op, Fold::Max, &keepdim(self.kernel_axes()))?;
        let is_best = values.try_eq(&best)?;
        let is_best = if values.is_floating_point() {
            is_best.try_bitwise_or(values.isnan())?
        } else {
            is_best
        };
        is_best.try_where_(&self.places, self.count as i64)?.fold(
            op,
            Fold::Min,
            &Axes::from(self.kernel_axes()),
        )
    }
    /// The greatest of each window and its place. With a gradient the value is read at the place,
    /// so that the gradient goes there and nowhere else.
    pub(in crate::tensor) fn best(&self, op: &'static str) -> Result<(Tensor, Tensor)> {
        let first = self.first(op)?;
        if !self.values.requires_grad() {
            return Ok((self.max(op)?, first));
        }
        let kept = first
            .dims()
            .iter()
            .copied()
            .chain(std::iter::repeat_n(1, self.axes))
            .collect::<Vec<usize>>();
        let here = self.places.try_eq(first.movement(Movement::reshape(kept))?)?;
        // Without an element, as in a window that lies in the padding, the value is that of no
        // element.
        let none = first.try_eq(self.count as i64)?;
        let read = here.try_where_(&self.values, self.values.literal(0))?.fold(
            op,
            Fold::Add,
            &Axes::from(self.kernel_axes()),
        )?;
        Ok((none.try_where_(self.values.literal(self.values.dtype().min_value()), read)?, first))
    }
    /// The greatest of each window.
    pub(in crate::tensor) fn greatest(&self, op: &'static str) -> Result<Tensor> {
        if self.values.requires_grad() { Ok(self.best(op)?.0) } else { self.max(op) }
    }
}

impl Tensor {
    fallible! {
        /// The greatest element of each window of the last axes: as many as the kernel has values.
        /// A kernel of one number is for `[N, C, H, W]` and pools the last two. The gradient goes
        /// to the element that [`max_pool2d_with_indices`](Self::max_pool2d_with_indices) names.
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
            &self,
            kernel: impl Into<Spatial>,
            how: Pool,
        ) -> Tensor {
            const OP: &str = "max_pool2d";
            let plan = plan(OP, self, &kernel.into(), &how)?;
            Seen::new(OP, &self.materialized(), &plan)?.greatest(OP)
        }

        /// The greatest element of each window, as [`max_pool2d`](Self::max_pool2d) gives it, and
        /// its place in the pooled axes, counted in row-major order: the first of equals, and the
        /// first NaN where there is one.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, places) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i32>()?), (vec![7], vec![2]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d_with_indices | try_max_pool2d_with_indices(
            &self,
            kernel: impl Into<Spatial>,
            how: Pool,
        ) -> (Tensor, Tensor) {
            const OP: &str = "max_pool2d_with_indices";
            let plan = plan(OP, self, &kernel.into(), &how)?;
            Seen::new(OP, &self.materialized(), &plan)?.best(OP)
        }

        /// The inverse of [`max_pool2d_with_indices`](Self::max_pool2d_with_indices): each element
        /// at its place in a plane, and zeros elsewhere. The size of the plane is given, or is that
        /// of which the windows cover everything.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, places) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!(
        ///     values.max_unpool2d(&places, 2, Pool::new(), None).to_vec::<i32>()?,
        ///     [0, 0, 7, 0]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_unpool2d | try_max_unpool2d(
            &self,
            indices: &Tensor,
            kernel: impl Into<Spatial>,
            how: Pool,
            size: Option<[usize; 2]>,
        ) -> Tensor {
            const OP: &str = "max_unpool2d";
            let dims = self.dims();
            if dims.len() < 2 || indices.dims() != dims {
                return wrong_shape(
                    OP,
                    format!(
                        "values {dims:?} and places {:?} must be alike, with two axes or more",
                        indices.dims()
                    ),
                );
            }
            let kernel = kernel.into().positive(OP, "kernel", 2)?;
            let stride = match &how.stride {
                Some(s) => s.positive(OP, "stride", 2)?,
                None => kernel.clone(),
            };
            let padding = how.padding.resolve(OP, 2)?;
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
                            return wrong_shape(
                                OP,
                                format!(
                                    "padding {padding:?} is more than what windows of {kernel:?} \
                                     cover of {dims:?}"
                                ),
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
            let (values, places) =
                (flat(self, &[plane[0] * plane[1]])?, flat(indices, &[plane[0] * plane[1]])?);
            let empty = values.literal(0).try_expand([values.dims()[0], size[0] * size[1]])?;
            let all = for_op(OP, empty.try_scatter(1, &places, &values))?;
            all.movement(Movement::reshape(lead.iter().copied().chain(size)))
        }

        /// The mean of each window of the last axes: as many as the kernel has values. A kernel of
        /// one number is for `[N, C, H, W]` and pools the last two. Integers have a mean in `f32`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
        /// assert_eq!(x.avg_pool2d(2, Pool::new()).to_vec::<f32>()?, [3.0]);
        /// assert_eq!(x.avg_pool2d([2], Pool::new()).to_vec::<f32>()?, [1.5, 4.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn avg_pool2d | try_avg_pool2d(
            &self,
            kernel: impl Into<Spatial>,
            how: Pool,
        ) -> Tensor {
            let Plan { padding, overhang, list } = plan("avg_pool2d", self, &kernel.into(), &how)?;
            let axes: Vec<isize> = (1..=list.len() as isize).map(|i| -i).collect();
            let sums = |t: &Tensor| {
                windows("avg_pool2d", t, &list)?.fold("avg_pool2d", Fold::Add, &Axes::from(&axes))
            };
            let pad =
                |t: &Tensor, by: &[(usize, usize)]| t.movement(Movement::pad(by.iter().copied()));
            let x = self.as_wide_float();
            let sum =
                sums(&for_op("avg_pool2d", pad(&x, &padding).and_then(|p| pad(&p, &overhang)))?)?;
            let none = |by: &[(usize, usize)]| by.iter().all(|&p| p == (0, 0));
            let mean = if let Some(divisor) = how.divisor {
                if divisor == 0 {
                    return wrong_shape("avg_pool2d", "a divisor of 0");
                }
                sum.try_div(divisor as f64)?
            } else if none(&overhang) && (how.count_padding || none(&padding)) {
                sum.try_div(list.iter().map(|w| w.kernel).product::<usize>() as f64)?
            } else {
                let ones = x.ones_like();
                let counted = if how.count_padding {
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
