//! Pooling: one number from each window.

use super::conv::{Window, windows};
use super::{Axes, Sides, Spatial, Tensor, wrong_shape};
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
    pub fn new() -> Pool {
        Pool::default()
    }
    /// The distance between windows.
    pub fn stride(self, stride: impl Into<Spatial>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }
    /// Padding around: one number, one per axis, or `(before, after)` per axis. It never wins a maximum.
    pub fn padding(self, padding: impl Into<Sides>) -> Pool {
        Pool { padding: padding.into(), ..self }
    }
    /// The distance between the elements of a window.
    pub fn dilation(self, dilation: impl Into<Spatial>) -> Pool {
        Pool { dilation: dilation.into(), ..self }
    }
    /// Also a last window that hangs over the end.
    pub fn ceil_mode(self) -> Pool {
        Pool { ceil: true, ..self }
    }
    /// Means over what is inside alone, not over the padding.
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
            let x = if self.requires_grad() { self.settled() } else { self.clone() };
            let padded = x.try_pad_with(&both, self.literal(self.dtype().min_value()))?;
            windows("max_pool2d", &padded, &list)?.fold("max_pool2d", Fold::Max, &Axes::from([-1, -2]))
        }

        /// The mean of each window of the last two axes. Integers have a mean in `f32`.
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
