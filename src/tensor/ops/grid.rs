//! Images: pixel shuffle, unfolding and folding of windows, and sampling on a grid. All but the
//! sampling are movement ops; sampling is a gather.

use super::conv::{Window, windows};
use super::create::index_dtype;
use super::movement::spliced;
use crate::dtype::sum_acc;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::promote_operands;
use crate::tensor::{Conv, Sizes, Spatial, Tensor};

/// Interpolation of [`Tensor::grid_sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridMode {
    /// Linear interpolation along each axis: bilinear, trilinear.
    #[default]
    Linear,
    /// Nearest element; ties take the even index.
    Nearest,
    /// Bicubic interpolation with the coefficient -0.75, for two spatial axes.
    Cubic,
}

/// Padding of [`Tensor::grid_sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridPadding {
    /// Zeros outside.
    #[default]
    Zeros,
    /// Nearest element of the border.
    Border,
    /// Reflection at the borders.
    Reflection,
}

/// Options of [`Tensor::grid_sample`]: `GridSample::new().padding(GridPadding::Border)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GridSample {
    mode: GridMode,
    padding: GridPadding,
    align_corners: bool,
}

impl GridSample {
    /// Converts a coordinate from -1..=1 to a position on an axis, from the center of the first
    /// element.
    fn position(&self, at: &Tensor, size: usize) -> Tensor {
        let n = size as f64;
        if self.align_corners {
            (at + 1.0) * ((n - 1.0) / 2.0)
        } else {
            ((at + 1.0) * n - 1.0) * 0.5
        }
    }

    /// Applies the padding to a position that may be outside its axis.
    fn padded(&self, place: Tensor, size: usize) -> Result<Tensor> {
        let n = size as f64;
        match self.padding {
            GridPadding::Zeros => Ok(place),
            GridPadding::Border => clamp_to_axis(&place, n),
            GridPadding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
                if span == 0.0 {
                    return Ok(place.zeros_like());
                }
                let away = (place - low).abs();
                let turns = away.detach().try_div(span)?.floor();
                let rest = away.try_sub(&turns * span)?;
                let odd = (&turns * 0.5).floor().try_mul(2.0)?.try_ne(&turns)?;
                let back = odd.try_where_(span - &rest, &rest)? + low;
                clamp_to_axis(&back, n)
            }
        }
    }
}

setters! { GridSample;
    /// Linear interpolation, zero padding, with -1 and 1 at the borders of the outermost elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GridSample};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let middle = x.grid_sample(&Tensor::new([[[[0.0f32, 0.0]]]]), GridSample::new());
    /// assert_eq!(middle.item::<f32>()?, 2.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new;
    /// Sets the interpolation.
    ///
    /// ```
    /// use picograd::tensor::{GridMode, GridSample, Tensor};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().mode(GridMode::Nearest);
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[0.4f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    mode(mode: GridMode) mode = mode;
    /// Sets the padding.
    ///
    /// ```
    /// use picograd::tensor::{GridPadding, GridSample, Tensor};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().padding(GridPadding::Border);
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[5.0f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    padding(padding: GridPadding) padding = padding;
    /// Places -1 and 1 at the centers of the outermost elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GridSample};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().align_corners();
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[1.0f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    align_corners() align_corners = true;
}

/// Limits a position to an axis of `size` elements. NaN becomes the first, as in PyTorch.
fn clamp_to_axis(place: &Tensor, size: f64) -> Result<Tensor> {
    place.isnan().try_where_(0.0, place.try_clamp(0.0, size - 1.0)?)
}

/// Images as `[batch, channels, plane]`, with the sizes of the spatial axes.
struct Images<'a> {
    x: Tensor,
    sizes: &'a [usize],
}

/// Sum of tensors, at least one.
fn sum_all(parts: impl IntoIterator<Item = Result<Tensor>>) -> Result<Tensor> {
    parts.into_iter().reduce(|a, b| a?.try_add(b?)).expect("a tensor at least")
}

impl Images<'_> {
    /// Gathers elements at positions along each axis, `[batch, points]`; 0 outside.
    fn gather(&self, positions: &[&Tensor]) -> Result<Tensor> {
        let dtype = index_dtype(self.sizes.iter().product::<usize>());
        let mut all: Option<(Tensor, Tensor)> = None;
        for (place, &size) in positions.iter().zip(self.sizes) {
            let here = place.try_ge(0.0)?.try_bitwise_and(place.try_le((size - 1) as f64)?)?;
            let index = here.try_where_(*place, 0.0)?.try_cast(dtype)?;
            all = Some(match all {
                None => (index, here),
                Some((f, i)) => (f.try_mul(size)?.try_add(index)?, i.try_bitwise_and(here)?),
            });
        }
        let (flat, inside) = all.expect("an axis");
        let (dims, points) = (self.x.dims(), flat.dims()[1]);
        let index = flat.try_unsqueeze(1)?.try_expand([dims[0], dims[1], points])?;
        inside.try_unsqueeze(1)?.try_where_(self.x.try_gather(2, &index)?, self.x.literal(0))
    }

    /// Linear interpolation along each axis, from the elements around each position.
    fn linear(&self, positions: &[Tensor]) -> Result<Tensor> {
        let n = self.sizes.len();
        let low: Vec<Tensor> = positions.iter().map(|p| p.detach().floor()).collect();
        let high: Vec<Tensor> = low.iter().map(|p| p + 1.0).collect();
        sum_all((0..1usize << n).map(|corner| {
            let upper = |i: usize| corner >> i & 1 == 1;
            let at: Vec<&Tensor> =
                (0..n).map(|i| if upper(i) { &high[i] } else { &low[i] }).collect();
            let value = self.gather(&at)?;
            let share = |i: usize| {
                if upper(i) {
                    positions[i].try_sub(&low[i])
                } else {
                    high[i].try_sub(&positions[i])
                }
            };
            let weight = (1..n).try_fold(share(0)?, |w, i| w.try_mul(share(i)?))?;
            value.try_mul(weight.try_unsqueeze(1)?)
        }))
    }

    /// Bicubic interpolation from the 16 elements around each position.
    fn cubic(&self, positions: &[Tensor], options: &GridSample) -> Result<Tensor> {
        let [y, across] = positions else {
            let n = positions.len();
            return shape_error!("cubic interpolation requires two spatial axes, got {n}");
        };
        let along = |place: &Tensor, size: usize| -> Result<Vec<(Tensor, Tensor)>> {
            let low = place.detach().floor();
            let weights = cubic_weights(&place.try_sub(&low)?)?.into_iter().enumerate();
            let tap = |(i, w): (usize, Tensor)| {
                Ok((options.padded(&low + (i as f64 - 1.0), size)?, w.try_unsqueeze(1)?))
            };
            weights.map(tap).collect()
        };
        let (rows, columns) = (along(y, self.sizes[0])?, along(across, self.sizes[1])?);
        sum_all(rows.iter().map(|(row, by_row)| {
            let part = |(at, by): &(Tensor, Tensor)| self.gather(&[row, at])?.try_mul(by);
            sum_all(columns.iter().map(part))?.try_mul(by_row)
        }))
    }
}

/// Weights of four elements for a point at `t` between the second and the third: Keys' kernel.
fn cubic_weights(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    // At a distance of 1 to 2, and of 0 to 1.
    let outer =
        |d: &Tensor| ((d * A - 5.0 * A).try_mul(d)? + 8.0 * A).try_mul(d).map(|p| p - 4.0 * A);
    let inner = |d: &Tensor| (d * (A + 2.0) - (A + 3.0)).try_mul(d)?.try_mul(d).map(|p| p + 1.0);
    let rest = 1.0 - t;
    Ok([outer(&(t + 1.0))?, inner(t)?, inner(&rest)?, outer(&(&rest + 1.0))?])
}

/// Windows of `[batch, channels · kernel, windows]`.
struct Blocks {
    list: Vec<Window>,
    padding: Vec<(usize, usize)>,
    counts: Dims,
}

impl Blocks {
    fn new(sizes: &[usize], kernel: &Spatial, options: &Conv) -> Result<Blocks> {
        let n = sizes.len();
        let kernel = kernel.positive("tensor", "kernel", n)?;
        let (list, padding) = (options.windows("tensor", &kernel)?, options.sides("tensor", n)?);
        let padded: Dims = (0..n)
            .map(|i| sizes[i].saturating_add(padding[i].0).saturating_add(padding[i].1))
            .collect();
        checked_numel("tensor", &padded)?;
        let counts = list.iter().zip(&padded).map(|(w, &n)| w.count(n)).collect::<Result<_>>()?;
        Ok(Blocks { list, padding, counts })
    }
    fn kernel(&self) -> impl Iterator<Item = usize> + '_ {
        self.list.iter().map(|w| w.kernel)
    }
}

impl Tensor {
    fallible! {
        /// Rearranges channels to pixels: `[…, c·r², h, w]` becomes `[…, c, h·r, w·r]`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[[1]], [[2]], [[3]], [[4]]]);
        /// let y = x.pixel_shuffle(2);
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![1, 2, 2], vec![1, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pixel_shuffle | try_pixel_shuffle(&self, factor: usize) -> Tensor {
            let dims = self.dims();
            let [lead @ .., c, h, w] = dims.as_slice() else {
                return shape_error!("expected [… channels, rows, columns], got {dims:?}");
            };
            let square = factor.checked_mul(factor).unwrap_or(0);
            if square == 0 || c % square != 0 {
                return shape_error!("{c} channels of {dims:?} are not a multiple of {factor}²");
            }
            let (n, r) = (lead.len(), factor);
            let with = |sizes: &[usize]| [lead, sizes].concat();
            let order = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]);
            self.shaped(with(&[c / square, r, r, *h, *w]))?.permuted(order)?.shaped(with(&[
                c / square,
                h.saturating_mul(r),
                w.saturating_mul(r),
            ]))
        }

        /// Inverse of [`pixel_shuffle`](Self::pixel_shuffle): `[…, c, h·r, w·r]` becomes `[…, c·r²,
        /// h, w]`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[[1, 2], [3, 4]]]);
        /// let y = x.pixel_unshuffle(2);
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![4, 1, 1], vec![1, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pixel_unshuffle | try_pixel_unshuffle(&self, factor: usize) -> Tensor {
            let dims = self.dims();
            let [lead @ .., c, h, w] = dims.as_slice() else {
                return shape_error!("expected [… channels, rows, columns], got {dims:?}");
            };
            let (n, r) = (lead.len(), factor);
            if r == 0 || h % r != 0 || w % r != 0 {
                return shape_error!("rows and columns of {dims:?} are not multiples of {factor}");
            }
            let with = |sizes: &[usize]| [lead, sizes].concat();
            let order = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]);
            self.shaped(with(&[*c, h / r, r, w / r, r]))?.permuted(order)?.shaped(with(&[
                c.saturating_mul(r).saturating_mul(r),
                h / r,
                w / r,
            ]))
        }

        /// Extracts the windows of a convolution as columns: `[batch, channels, …]` becomes
        /// `[batch, channels · kernel, windows]`, as `unfold` of PyTorch (im2col). Stride, padding
        /// and dilation are those of `options`; all axes after the first two are spatial.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let x = Tensor::new([[[[1, 2, 3], [4, 5, 6]]]]);
        /// let y = x.unfold2d([2, 2], Conv::new());
        /// assert_eq!(y.to_vec::<i32>()?, [1, 2, 2, 3, 4, 5, 5, 6]); // [1, 4, 2]
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn unfold2d | try_unfold2d(&self, kernel: impl Into<Spatial>, options: Conv) -> Tensor {
            let (dims, kernel) = (self.dims(), kernel.into());
            // A kernel of two numbers requires two axes.
            if dims.len() == 3
                && kernel.positive("unfold2d", "kernel", 2).is_ok()
                && kernel.positive("unfold2d", "kernel", 1).is_err()
            {
                return self.try_unsqueeze(0)?.try_unfold2d(kernel, options)?.try_squeeze(0);
            }
            reject_shape!(dims.len() < 3, "expected [batch, channels, …], got {dims:?}");
            let blocks = Blocks::new(&dims[2..], &kernel, &options)?;
            let padded =
                self.padded([(0, 0); 2].into_iter().chain(blocks.padding.iter().copied()))?;
            let n = blocks.list.len();
            let order = [0, 1].into_iter().chain(2 + n..2 + 2 * n).chain(2..2 + n);
            let seen = windows(&padded, &blocks.list)?.permuted(order)?;
            let rows = dims[1] * blocks.kernel().product::<usize>();
            seen.shaped([dims[0], rows, blocks.counts.iter().product()])
        }

        /// Adjoint of [`unfold2d`](Self::unfold2d), which sums overlapping windows: `[batch,
        /// channels · kernel, windows]` becomes `[batch, channels, …]` with spatial axes of the
        /// given size, as `fold` of PyTorch (col2im).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let columns = Tensor::new([[[1, 2], [2, 3], [4, 5], [5, 6]]]);
        /// let y = columns.fold2d([2, 3], [2, 2], Conv::new());
        /// assert_eq!(y.to_vec::<i32>()?, [1, 4, 3, 4, 10, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn fold2d | try_fold2d(
            &self, size: impl Into<Sizes>, kernel: impl Into<Spatial>, options: Conv,
        ) -> Tensor {
            let (dims, size) = (self.dims(), size.into().shape("fold2d")?);
            reject_shape!(size.is_empty(), "expected one spatial size or more, got none");
            if dims.len() == 2 {
                let sizes: Vec<isize> = size.iter().map(|&n| n as isize).collect();
                return self.try_unsqueeze(0)?.try_fold2d(sizes, kernel, options)?.try_squeeze(0);
            }
            let blocks = Blocks::new(&size, &kernel.into(), &options)?;
            let (kernel, windows) =
                (blocks.kernel().product::<usize>(), blocks.counts.iter().product::<usize>());
            if dims.len() != 3 || !dims[1].is_multiple_of(kernel) || dims[2] != windows {
                return shape_error!(
                    "expected [batch, channels · {kernel}, {windows}] for windows of {size:?}, \
                     got {dims:?}"
                );
            }
            let channels = dims[1] / kernel;
            checked_numel("fold2d", &[&[dims[0], channels], &size[..]].concat())?;
            let dtype = self.dtype();
            let mut x = self.try_cast(if dtype.is_float() { sum_acc(dtype) } else { dtype })?;
            let n = blocks.list.len();
            let kernels: Dims = blocks.kernel().collect();
            x = x.shaped([&[dims[0], channels], &kernels[..], &blocks.counts].concat())?;
            // Axes as pairs [kernel, count], each of which becomes the spatial axis.
            x = x.permuted([0, 1].into_iter().chain((0..n).flat_map(|i| [2 + i, 2 + n + i])))?;
            for i in 0..n {
                x = scatter_windows(&x, 2 + 2 * i, blocks.list[i], size[i], blocks.padding[i].0)?;
            }
            let kernels: Vec<usize> = (0..n).map(|i| 2 + 2 * i).collect();
            x.reduce_axes(Fold::Add, kernels)?.try_cast(dtype)
        }

        /// Samples images at points: for `[batch, channels, h, w]` and a grid `[batch, …, 2]` of
        /// points (x, y) it returns `[batch, channels, …]`; x is along the last axis. With three
        /// spatial axes points are (x, y, z). Coordinates range from -1 to 1 over an axis. Both the
        /// images and the grid have gradients. A NaN coordinate reads the first element with border
        /// or reflection padding. With zeros it is outside: the nearest element is 0, and linear
        /// interpolation gives NaN. Cubic interpolation always gives NaN.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::GridSample};
        /// let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 4.0]]]]);
        /// let grid = Tensor::new([[[[-0.5f32, -0.5], [0.0, 0.0]]]]);
        /// let y = x.grid_sample(&grid, GridSample::new());
        /// assert_eq!((y.shape(), y.to_vec::<f32>()?), (vec![1, 1, 1, 2], vec![1.0, 2.5]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn grid_sample | try_grid_sample(&self, grid: &Tensor, options: GridSample) -> Tensor {
            let (dims, g) = (self.dims(), grid.dims());
            let n = dims.len().saturating_sub(2);
            if n == 0 || g.len() != dims.len() || g[0] != dims[0] || g[g.len() - 1] != n {
                return shape_error!(
                    "expected images [batch, channels, …] and a grid [batch, …, spatial axes], \
                     got {dims:?} and {g:?}"
                );
            }
            reject_shape!(dims[2..].contains(&0), "images {dims:?} are empty");
            let wide = sum_acc(promote_operands(&[self.as_float().into(), grid.into()]));
            let (sizes, inner) = (&dims[2..], &g[1..g.len() - 1]);
            let points = inner.iter().product::<usize>();
            let x = self.try_cast(wide)?.shaped([dims[0], dims[1], sizes.iter().product()])?;
            let grid = grid.try_cast(wide)?.shaped([g[0], points, n])?;
            let at = |axis: usize| {
                // The first coordinate of a point is along the last axis.
                let along = grid.slice_axis(2, n - 1 - axis, n - axis)?.shaped([g[0], points])?;
                let place = options.position(&along, sizes[axis]);
                // Cubic interpolation pads each element that it reads.
                if options.mode == GridMode::Cubic {
                    Ok(place)
                } else {
                    options.padded(place, sizes[axis])
                }
            };
            let positions = (0..n).map(at).collect::<Result<Vec<_>>>()?;
            let images = Images { x, sizes };
            let y = match options.mode {
                GridMode::Nearest => {
                    let nearest: Vec<Tensor> =
                        positions.iter().map(|p| p.detach().round()).collect();
                    images.gather(&nearest.iter().collect::<Vec<_>>())?
                }
                GridMode::Linear => images.linear(&positions)?,
                GridMode::Cubic => images.cubic(&positions, &options)?,
            };
            y.shaped([&dims[..2], inner].concat())?.try_cast(self.as_float().dtype())
        }
    }
}

/// Scatters `[… kernel, count …]` to `[… kernel, size …]`: element `k` of window `i` goes to
/// `i·stride + k·dilation - before`, and what is outside is removed.
fn scatter_windows(
    x: &Tensor,
    axis: usize,
    w: Window,
    size: usize,
    before: usize,
) -> Result<Tensor> {
    let dims = x.dims();
    let (kernel, count) = (dims[axis], dims[axis + 1]);
    let with = |sizes: &[usize]| spliced(&dims, axis..axis + 2, sizes);
    // With one window or one element the distance has no effect.
    let (stride, dilation) =
        (if count == 1 { 1 } else { w.stride }, if kernel == 1 { 1 } else { w.dilation });
    // Dilates by the stride, then pads by the shift of all rows and one row more.
    let length = count * stride;
    let row = (length + dilation * (kernel - 1)).max(before + size) + dilation;
    let rows = x
        .shaped(with(&[kernel, count, 1]))?
        .padded_axis(axis + 2, 0, stride - 1)?
        .shaped(with(&[kernel, length]))?
        .padded_axis(axis + 1, 0, row - length)?;
    // Reshaped to rows that are shorter by the dilation, row k starts k·dilation earlier, in the
    // padding of the row before, so that its elements move k·dilation later.
    rows.shaped(with(&[kernel * row]))?
        .slice_axis(axis, 0, kernel * (row - dilation))?
        .shaped(with(&[kernel, row - dilation]))?
        .slice_axis(axis + 1, before, before + size)
}
