//! Adaptive pooling: a given number of windows that cover an axis of any size. Window `i` of `n`
//! over `size` elements is `⌊i·size/n⌋ .. ⌈(i+1)·size/n⌉`, so that windows may differ in size and
//! overlap.

use super::create::{index_dtype, iota};
use super::movement::spliced;
use super::pool::{Pool, PoolWindows, pooled_axes};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, checked_numel, gcd};
use crate::tensor::{Spatial, Tensor};

/// Windows of one axis: `indices` is `[count, kernel]`, and `inside` masks those of the window.
struct AxisWindows {
    indices: Tensor,
    inside: Tensor,
    count: usize,
    kernel: usize,
}

impl AxisWindows {
    fn new(size: usize, count: usize) -> Result<AxisWindows> {
        // With a remainder one or both edges of a window split an element: edges are the multiples
        // of the greatest common divisor.
        let rest = size % count;
        let partial = match rest {
            0 => 0,
            _ if rest as i128 > gcd(rest as i128, count as i128) => 2,
            _ => 1,
        };
        let kernel = size / count + partial;
        // Edges are quotients of products, which may exceed 32 bits.
        let most = (count.saturating_add(1)).saturating_mul(size.saturating_add(1));
        checked_numel("tensor", &[most.max(count.saturating_mul(kernel))])?;
        let i = iota(count).try_cast(index_dtype(most))?.shaped([count, 1])?;
        let indices = (&i * size).try_idiv(count)?.try_add(iota(kernel))?;
        let end = ((&i + 1) * size + (count - 1)).try_idiv(count)?;
        let inside = indices.try_lt(end)?;
        Ok(AxisWindows { indices, inside, count, kernel })
    }
    /// Gathers the windows of an axis, which becomes `[count, kernel]`.
    fn read(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        let last = x.dims()[axis] - 1;
        let flat = self.indices.try_minimum(last)?.shaped([self.count * self.kernel])?;
        let read = x.try_index_select(axis as isize, &flat)?;
        read.shaped(spliced(&read.dims(), axis..axis + 1, &[self.count, self.kernel]))
    }
}

/// Adds trailing axes of size 1.
fn with_trailing_axes(t: &Tensor, count: usize) -> Result<Tensor> {
    t.shaped([&t.dims()[..], &vec![1; count]].concat())
}

/// Checks the numbers of windows and that the pooled axes are not empty.
fn counts(x: &Tensor, sizes: &Spatial) -> Result<Dims> {
    let dims = x.dims();
    let n = pooled_axes("list of sizes", sizes, &dims)?;
    let counts = sizes.positive("tensor", "sizes", n)?;
    let lead = dims.len() - n;
    if dims[lead..].contains(&0) {
        return shape_error!("{dims:?} has no element to pool along its last {n} axes");
    }
    x.require_static("tensor", lead..dims.len())?;
    Ok(counts)
}

/// Kernel of windows of equal size that do not overlap, if they are.
fn even(dims: &[usize], counts: &[usize]) -> Option<Vec<usize>> {
    let pairs = || dims[dims.len() - counts.len()..].iter().zip(counts);
    pairs()
        .all(|(size, count)| size.is_multiple_of(*count))
        .then(|| pairs().map(|(size, count)| size / count).collect())
}

impl Tensor {
    fallible! {
        /// Mean of a fixed number of windows along each of the last axes, as many as `sizes` has
        /// values. One number requires `[N, C, H, W]` and applies to both spatial axes. Integers
        /// are averaged in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0f32, 9.0, 1.0).reshape([1, 1, 3, 3]);
        /// assert_eq!(x.adaptive_avg_pool2d([2, 2]).to_vec::<f32>()?, [2.0, 3.0, 5.0, 6.0]);
        /// assert_eq!(x.adaptive_avg_pool2d([1]).to_vec::<f32>()?, [1.0, 4.0, 7.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn adaptive_avg_pool2d | try_adaptive_avg_pool2d(
            &self, sizes: impl Into<Spatial>,
        ) -> Tensor {
            let counts = counts(self, &sizes.into())?;
            let dims = self.dims();
            if let Some(kernel) = even(&dims, &counts) {
                return self.try_avg_pool2d(kernel, Pool::new());
            }
            let mut sum = self.as_wide_float();
            for (axis, &count) in (dims.len() - counts.len()..).zip(&counts) {
                let windows = AxisWindows::new(dims[axis], count)?;
                let behind = dims.len() - axis - 1;
                let read = windows.read(&sum, axis)?;
                // A selection, because elements outside a window may be infinite.
                let inside = with_trailing_axes(&windows.inside, behind)?.try_where_(&read, 0.0)?;
                let number = windows.inside.try_cast(sum.dtype())?.reduce_axes(Fold::Add, 1)?;
                sum = inside
                    .reduce_axes(Fold::Add, axis + 1)?
                    .try_div(with_trailing_axes(&number, behind)?)?;
            }
            sum.try_cast(self.as_float().dtype())
        }

        /// Maximum of a fixed number of windows along each of the last axes, as in
        /// [`adaptive_avg_pool2d`](Self::adaptive_avg_pool2d). NaN propagates; the gradient goes to
        /// the first of equals.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0, 9, 1).reshape([1, 1, 3, 3]);
        /// assert_eq!(x.adaptive_max_pool2d(2).to_vec::<i32>()?, [4, 5, 7, 8]);
        /// assert_eq!(x.adaptive_max_pool2d([1]).to_vec::<i32>()?, [2, 5, 8]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn adaptive_max_pool2d | try_adaptive_max_pool2d(
            &self, sizes: impl Into<Spatial>,
        ) -> Tensor {
            let counts = counts(self, &sizes.into())?;
            adaptive_windows(self, &counts)?.max()
        }
    }
}

/// Returns the elements of adaptive windows, with the minimum of the dtype outside a window.
fn adaptive_windows(x: &Tensor, counts: &[usize]) -> Result<PoolWindows> {
    let dims = x.dims();
    let (n, lead) = (counts.len(), dims.len() - counts.len());
    let count: usize = dims[lead..].iter().product();
    let mut values = x.ranked();
    let mut indices = iota(count).shaped(dims[lead..].iter().copied())?;
    // In reverse order, because each axis becomes two.
    for i in (0..n).rev() {
        let windows = AxisWindows::new(dims[lead + i], counts[i])?;
        let inside = with_trailing_axes(&windows.inside, 2 * (n - 1 - i))?;
        values = inside
            .try_where_(windows.read(&values, lead + i)?, x.literal(x.dtype().min_value()))?;
        indices = inside.try_where_(windows.read(&indices, i)?, count as i64)?;
    }
    let outputs_first = |t: &Tensor, from: usize| {
        let pairs = |second: usize| (0..n).map(move |i| from + 2 * i + second);
        t.permuted((0..from).chain(pairs(0)).chain(pairs(1)))
    };
    let (values, indices) = (outputs_first(&values, lead)?, outputs_first(&indices, 0)?);
    Ok(PoolWindows { values, indices, axes: n, count })
}
