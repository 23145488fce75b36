//! Pooling: one number from each window.

use super::conv::{Window, windows};
use super::create::iota;
use super::{Axes, Sides, Spatial, Tensor, keepdim, wrong_shape};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Movement;

/// How pooling runs: `Pool::new().stride(2).padding(1)`.
#[derive(Clone)]
pub struct Pool {
    stride: Option<Spatial>,
    padding: Sides,
    dilation: Spatial,
    ceil: bool,
    count_padding: bool,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { stride: None, padding: 0.into(), dilation: 1.into(), ceil: false, count_padding: true }
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
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new().stride(1)).to_vec::<f32>()?, [5.0, 5.0, 8.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn stride(self, stride: impl Into<Spatial>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }
    /// Padding around: one number, one per axis, or `(before, after)` per axis. It never wins a maximum.
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
    /// assert_eq!(x.max_pool2d([1, 2], Pool::new().ceil_mode()).to_vec::<f32>()?, [5.0, 8.0, 3.0]);
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
    /// assert_eq!(x.avg_pool2d([1, 2], how().exclude_padding()).to_vec::<f32>()?, [1.0, 3.5, 5.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn exclude_padding(self) -> Pool {
        Pool { count_padding: false, ..self }
    }
}

/// Where the windows lie: padding as asked for, what hangs over the end beyond it, and the windows.
struct Plan {
    padding: Vec<(usize, usize)>,
    overhang: Vec<(usize, usize)>,
    list: Vec<Window>,
}

fn plan(op: &'static str, x: &Tensor, kernel: &Spatial, how: &Pool) -> Result<Plan> {
    let dims = x.dims();
    let n = 2;
    if dims.len() < n {
        return wrong_shape(op, format!("takes {n} axes or more, and was given {dims:?}"));
    }
    let kernel = kernel.positive(op, "kernel", n)?;
    let stride = match &how.stride {
        Some(s) => s.positive(op, "stride", n)?,
        None => kernel.clone(),
    };
    let dilation = how.dilation.positive(op, "dilation", n)?;
    let padding = how.padding.resolve(op, n)?;
    let list: Vec<Window> = (0..n).map(|i| Window { kernel: kernel[i], stride: stride[i], dilation: dilation[i] }).collect();
    let mut overhang = vec![(0, 0); n];
    for (i, w) in list.iter().enumerate() {
        let (before, after) = padding[i];
        let inside = before + dims[dims.len() - n + i];
        let whole = w.count(op, inside + after)?;
        // One window more, if it starts on something that is there.
        if how.ceil && whole * w.stride < inside {
            overhang[i].1 = (whole * w.stride + w.span()).saturating_sub(inside + after);
        }
    }
    let full = |tail: Vec<(usize, usize)>| std::iter::repeat_n((0, 0), dims.len() - n).chain(tail).collect();
    Ok(Plan { padding: full(padding), overhang: full(overhang), list })
}

impl Tensor {
    fallible! {
        /// The greatest element of each window of the last two axes.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::arange(0, 16, 1).reshape([1, 1, 4, 4]);
        /// assert_eq!(x.max_pool2d(2, Pool::new()).to_vec::<i32>()?, [5, 7, 13, 15]);
        /// assert_eq!(x.max_pool2d([3, 3], Pool::new().stride(1)).to_vec::<i32>()?, [10, 11, 14, 15]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d | try_max_pool2d(&self, kernel: impl Into<Spatial>, how: Pool) -> Tensor {
            let Plan { padding, overhang, list } = plan("max_pool2d", self, &kernel.into(), &how)?;
            let both: Vec<_> = padding.iter().zip(&overhang).map(|(p, o)| (p.0, p.1 + o.1)).collect();
            let padded = self.try_pad_with(&both, self.literal(self.dtype().min_value()))?;
            windows("max_pool2d", &padded, &list)?.fold("max_pool2d", Fold::Max, &Axes::from([-1, -2]))
        }

        /// The greatest element of each window of the last two axes, as [`max_pool2d`](Self::max_pool2d) gives it, and its place in the plane, counted in row-major
        /// order: the first of equals.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, places) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i32>()?), (vec![7], vec![2]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_pool2d_with_indices | try_max_pool2d_with_indices(&self, kernel: impl Into<Spatial>, how: Pool) -> (Tensor, Tensor) {
            const OP: &str = "max_pool2d_with_indices";
            let Plan { padding, overhang, list } = plan(OP, self, &kernel.into(), &how)?;
            let both: Vec<_> = padding.iter().zip(&overhang).map(|(p, o)| (p.0, p.1 + o.1)).collect();
            let padded = self.materialized().try_pad_with(&both, self.literal(self.dtype().min_value()))?;
            let seen = windows(OP, &padded, &list)?;
            let values = seen.fold(OP, Fold::Max, &keepdim([-1, -2]))?;
            let dims = self.dims();
            let (rows, cols) = (dims[dims.len() - 2], dims[dims.len() - 1]);
            // A place in the padding is past all others, so it is never the first.
            let places = iota(rows * cols).try_reshape([rows, cols])?.try_pad_with(&both[dims.len() - 2..], (rows * cols) as i64)?;
            let is_best = seen.try_eq(&values)?;
            let is_best = if self.is_floating_point() { is_best.try_bitwise_or(seen.isnan())? } else { is_best };
            let first = is_best.try_where_(windows(OP, &places, &list)?, (rows * cols) as i64)?.fold(OP, Fold::Min, &Axes::from([-1, -2]))?;
            let n = values.ndim() - 2;
            Ok((values.moved(Movement::reshape(values.dims()[..n].iter().copied()))?, first))
        }

        /// The inverse of [`max_pool2d_with_indices`](Self::max_pool2d_with_indices): each element at its place in a plane, and zeros elsewhere. The size of the plane is
        /// given, or is that of which the windows cover everything.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1, 5], [7, 2]]]]);
        /// let (values, places) = x.max_pool2d_with_indices(2, Pool::new());
        /// assert_eq!(values.max_unpool2d(&places, 2, Pool::new(), None).to_vec::<i32>()?, [0, 0, 7, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn max_unpool2d | try_max_unpool2d(&self, indices: &Tensor, kernel: impl Into<Spatial>, how: Pool, size: Option<[usize; 2]>) -> Tensor {
            const OP: &str = "max_unpool2d";
            let dims = self.dims();
            if dims.len() < 2 || indices.dims() != dims {
                return wrong_shape(OP, format!("values {dims:?} and places {:?} must be alike, with two axes or more", indices.dims()));
            }
            let kernel = kernel.into().positive(OP, "kernel", 2)?;
            let stride = match &how.stride {
                Some(s) => s.positive(OP, "stride", 2)?,
                None => kernel.clone(),
            };
            let padding = how.padding.resolve(OP, 2)?;
            let (lead, plane) = dims.split_at(dims.len() - 2);
            let covered = |i: usize| (plane[i].max(1) - 1) * stride[i] + kernel[i];
            let size = match size {
                Some(size) => size,
                None => {
                    let inside = |i: usize| covered(i).checked_sub(padding[i].0 + padding[i].1);
                    match (inside(0), inside(1)) {
                        (Some(rows), Some(cols)) => [rows, cols],
                        _ => return wrong_shape(OP, format!("padding {padding:?} is more than what windows of {kernel:?} cover of {dims:?}")),
                    }
                }
            };
            let flat = |t: &Tensor, sizes: &[usize]| t.moved(Movement::reshape([lead.iter().product()].into_iter().chain(sizes.iter().copied())));
            let (values, places) = (flat(self, &[plane[0] * plane[1]])?, flat(indices, &[plane[0] * plane[1]])?);
            let empty = values.literal(0).try_expand([values.dims()[0], size[0] * size[1]])?;
            let all = empty.try_scatter(1, &places, &values)?;
            all.moved(Movement::reshape(lead.iter().copied().chain(size)))
        }

        /// The mean of each window of the last two axes. Integers have a mean in `f32`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Pool};
        /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
        /// assert_eq!(x.avg_pool2d(2, Pool::new()).to_vec::<f32>()?, [3.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn avg_pool2d | try_avg_pool2d(&self, kernel: impl Into<Spatial>, how: Pool) -> Tensor {
            let Plan { padding, overhang, list } = plan("avg_pool2d", self, &kernel.into(), &how)?;
            let sums = |t: &Tensor| windows("avg_pool2d", t, &list)?.fold("avg_pool2d", Fold::Add, &Axes::from([-1, -2]));
            let pad = |t: &Tensor, by: &[(usize, usize)]| t.moved(Movement::pad(by.iter().copied()));
            let x = self.as_wide_float();
            let sum = sums(&pad(&pad(&x, &padding)?, &overhang)?)?;
            let none = |by: &[(usize, usize)]| by.iter().all(|&p| p == (0, 0));
            let mean = if none(&overhang) && (how.count_padding || none(&padding)) {
                sum.try_div(list.iter().map(|w| w.kernel).product::<usize>() as f64)?
            } else {
                let ones = x.ones_like();
                let counted = if how.count_padding { pad(&x, &padding)?.ones_like() } else { pad(&ones, &padding)? };
                sum.try_div(sums(&pad(&counted, &overhang)?)?)?
            };
            mean.try_cast(self.as_float().dtype())
        }
    }
}
