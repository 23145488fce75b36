//! Pictures rearranged and sampled: channels to pixels and back, windows as columns and back, and
//! values at points of a grid. All but the sampling is movement; sampling reads elements with
//! `gather`.

use super::conv::{Window, windows};
use crate::dtype::{DType, sum_acc};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, Movement, checked_numel};
use crate::tensor::{Axes, Spatial, Tensor, for_op, wrong_shape};

/// What [`Tensor::grid_sample`] makes of the elements around a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridMode {
    /// Linear interpolation along each axis: bilinear, trilinear.
    #[default]
    Linear,
    /// The nearest element; of two equally near the one at the even index.
    Nearest,
    /// Cubic interpolation from four elements along each of two axes: bicubic, with the factor
    /// -0.75.
    Cubic,
}

/// What [`Tensor::grid_sample`] reads outside the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest element of the border.
    Border,
    /// The picture mirrored at its borders.
    Reflection,
}

/// How [`Tensor::grid_sample`] runs: `GridSample::new().padding(GridPadding::Border)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GridSample {
    mode: GridMode,
    padding: GridPadding,
    align_corners: bool,
}

impl GridSample {
    /// Linear interpolation, zeros outside, and -1 and 1 at the borders of the outermost elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GridSample};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let middle = x.grid_sample(&Tensor::new([[[[0.0f32, 0.0]]]]), GridSample::new());
    /// assert_eq!(middle.item::<f32>()?, 2.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> GridSample {
        GridSample::default()
    }
    /// What is made of the elements around a point.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     tensor::{GridMode, GridSample},
    /// };
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().mode(GridMode::Nearest);
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[0.4f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn mode(self, mode: GridMode) -> GridSample {
        GridSample { mode, ..self }
    }
    /// What is read outside the picture.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     tensor::{GridPadding, GridSample},
    /// };
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().padding(GridPadding::Border);
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[5.0f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn padding(self, padding: GridPadding) -> GridSample {
        GridSample { padding, ..self }
    }
    /// -1 and 1 at the centers of the outermost elements.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GridSample};
    /// let x = Tensor::new([[[[1.0f32, 3.0]]]]);
    /// let how = GridSample::new().align_corners();
    /// assert_eq!(x.grid_sample(&Tensor::new([[[[1.0f32, 0.0]]]]), how).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn align_corners(self) -> GridSample {
        GridSample { align_corners: true, ..self }
    }

    /// Where a coordinate from -1 to 1 lies on an axis, in elements from the center of the first.
    fn place(&self, at: &Tensor, size: usize) -> Tensor {
        let n = size as f64;
        if self.align_corners {
            (at + 1.0) * ((n - 1.0) / 2.0)
        } else {
            ((at + 1.0) * n - 1.0) * 0.5
        }
    }

    /// The place that is read for one that may be outside its axis.
    fn padded(&self, place: Tensor, size: usize) -> Result<Tensor> {
        let n = size as f64;
        match self.padding {
            GridPadding::Zeros => Ok(place),
            GridPadding::Border => on_axis(&place, n),
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
                on_axis(&back, n)
            }
        }
    }
}

/// The nearest index on an axis of `size` elements. NaN becomes the first, as in PyTorch.
fn on_axis(place: &Tensor, size: f64) -> Result<Tensor> {
    place.isnan().try_where_(0.0, place.try_clamp(0.0, size - 1.0)?)
}

/// The elements of `x`, `[batch, channels, plane]`, at a place of each axis, `[batch, points]`, and
/// 0 where one is outside its axis.
fn read(op: &'static str, x: &Tensor, sizes: &[usize], places: &[&Tensor]) -> Result<Tensor> {
    let mut flat: Option<Tensor> = None;
    let mut inside: Option<Tensor> = None;
    let wide = i32::try_from(sizes.iter().product::<usize>()).is_err();
    for (place, &size) in places.iter().zip(sizes) {
        let here = place.try_ge(0.0)?.try_bitwise_and(place.try_le((size - 1) as f64)?)?;
        let index =
            here.try_where_(*place, 0.0)?.try_cast(if wide { DType::I64 } else { DType::I32 })?;
        flat = Some(match flat {
            None => index,
            Some(f) => f.try_mul(size)?.try_add(index)?,
        });
        inside = Some(match inside {
            None => here,
            Some(i) => i.try_bitwise_and(here)?,
        });
    }
    let (flat, inside) = (flat.expect("an axis"), inside.expect("an axis"));
    let (dims, points) = (x.dims(), flat.dims()[1]);
    let index = flat.try_unsqueeze(1)?.try_expand([dims[0], dims[1], points])?;
    inside.try_unsqueeze(1)?.try_where_(for_op(op, x.try_gather(2, &index))?, x.literal(0))
}

/// Cubic interpolation at places of two axes, from the four elements around each.
fn cubic(
    op: &'static str,
    x: &Tensor,
    sizes: &[usize],
    places: &[Tensor],
    how: &GridSample,
) -> Result<Tensor> {
    let [y, across] = places else {
        return wrong_shape(
            op,
            format!("cubic interpolation is for two spatial axes, and there are {}", places.len()),
        );
    };
    let along = |place: &Tensor, size: usize| -> Result<Vec<(Tensor, Tensor)>> {
        let low = place.detach().floor();
        let weights = cubic_weights(&place.try_sub(&low)?)?;
        weights
            .into_iter()
            .enumerate()
            .map(|(i, w)| Ok((how.padded(&low + (i as f64 - 1.0), size)?, w)))
            .collect()
    };
    let (rows, columns) = (along(y, sizes[0])?, along(across, sizes[1])?);
    let mut sum: Option<Tensor> = None;
    for (row, by_row) in &rows {
        let mut line: Option<Tensor> = None;
        for (column, by_column) in &columns {
            let part = read(op, x, sizes, &[row, column])?.try_mul(by_column.try_unsqueeze(1)?)?;
            line = Some(line.map_or(Ok(part.clone()), |l| l.try_add(&part))?);
        }
        let part = line.expect("four elements").try_mul(by_row.try_unsqueeze(1)?)?;
        sum = Some(sum.map_or(Ok(part.clone()), |s| s.try_add(&part))?);
    }
    Ok(sum.expect("four rows"))
}

/// The weights of four elements for a point at `t` between the second and the third: Keys' kernel.
fn cubic_weights(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    // At a distance of 1 to 2, and of 0 to 1.
    let outer =
        |d: &Tensor| ((d * A - 5.0 * A).try_mul(d)? + 8.0 * A).try_mul(d).map(|p| p - 4.0 * A);
    let inner = |d: &Tensor| (d * (A + 2.0) - (A + 3.0)).try_mul(d)?.try_mul(d).map(|p| p + 1.0);
    let rest = 1.0 - t;
    Ok([outer(&(t + 1.0))?, inner(t)?, inner(&rest)?, outer(&(&rest + 1.0))?])
}

/// Windows as the columns of `[batch, channels · kernel, windows]` have them.
struct Blocks {
    list: Vec<Window>,
    padding: Vec<(usize, usize)>,
    counts: Dims,
}

impl Blocks {
    fn new(
        op: &'static str,
        sizes: &[usize],
        kernel: &Spatial,
        how: &crate::tensor::Conv,
    ) -> Result<Blocks> {
        let n = sizes.len();
        let kernel = kernel.positive(op, "kernel", n)?;
        let (list, padding) = (how.windows(op, &kernel)?, how.sides(op, n)?);
        let padded: Dims = (0..n)
            .map(|i| sizes[i].saturating_add(padding[i].0).saturating_add(padding[i].1))
            .collect();
        checked_numel(op, &padded)?;
        let counts = (0..n).map(|i| list[i].count(op, padded[i])).collect::<Result<Dims>>()?;
        Ok(Blocks { list, padding, counts })
    }
    fn kernel(&self) -> impl Iterator<Item = usize> + '_ {
        self.list.iter().map(|w| w.kernel)
    }
}

impl Tensor {
    fallible! {
        /// Channels as pixels: `[…, c·r², h, w]` becomes `[…, c, h·r, w·r]`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[[1]], [[2]], [[3]], [[4]]]);
        /// let y = x.pixel_shuffle(2);
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![1, 2, 2], vec![1, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pixel_shuffle | try_pixel_shuffle(&self, factor: usize) -> Tensor {
            const OP: &str = "pixel_shuffle";
            let dims = self.dims();
            let [lead @ .., c, h, w] = dims.as_slice() else {
                return wrong_shape(
                    OP,
                    format!("expected [… channels, rows, columns], got {dims:?}"),
                );
            };
            let square = factor.checked_mul(factor).unwrap_or(0);
            if square == 0 || c % square != 0 {
                return wrong_shape(
                    OP,
                    format!("{c} channels of {dims:?} do not divide into squares of {factor}"),
                );
            }
            let (n, r) = (lead.len(), factor);
            let with = |sizes: &[usize]| Movement::reshape(lead.iter().chain(sizes).copied());
            let apart = self.movement(with(&[c / square, r, r, *h, *w]))?;
            let order = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]);
            let sizes = [c / square, h.saturating_mul(r), w.saturating_mul(r)];
            apart.movement(Movement::permute(order))?.movement(with(&sizes))
        }

        /// The inverse of [`pixel_shuffle`](Self::pixel_shuffle): `[…, c, h·r, w·r]` becomes `[…,
        /// c·r², h, w]`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[[1, 2], [3, 4]]]);
        /// let y = x.pixel_unshuffle(2);
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![4, 1, 1], vec![1, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pixel_unshuffle | try_pixel_unshuffle(&self, factor: usize) -> Tensor {
            const OP: &str = "pixel_unshuffle";
            let dims = self.dims();
            let [lead @ .., c, h, w] = dims.as_slice() else {
                return wrong_shape(
                    OP,
                    format!("expected [… channels, rows, columns], got {dims:?}"),
                );
            };
            let (n, r) = (lead.len(), factor);
            if r == 0 || h % r != 0 || w % r != 0 {
                return wrong_shape(
                    OP,
                    format!("rows and columns of {dims:?} do not divide by {factor}"),
                );
            }
            let with = |sizes: &[usize]| Movement::reshape(lead.iter().chain(sizes).copied());
            let apart = self.movement(with(&[*c, h / r, r, w / r, r]))?;
            let order = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]);
            apart.movement(Movement::permute(order))?.movement(with(&[
                c.saturating_mul(r).saturating_mul(r),
                h / r,
                w / r,
            ]))
        }

        /// The windows of a convolution as columns: `[batch, channels, …]` becomes
        /// `[batch, channels · kernel, windows]`, PyTorch's `unfold` and `im2col`. Stride, padding
        /// and dilation are those of `how`; there are as many spatial axes as the tensor has after
        /// the first two.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let x = Tensor::new([[[[1, 2, 3], [4, 5, 6]]]]);
        /// let y = x.unfold2d([2, 2], Conv::new());
        /// assert_eq!(
        ///     (y.shape(), y.to_vec::<i32>()?),
        ///     (vec![1, 4, 2], vec![1, 2, 2, 3, 4, 5, 5, 6])
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn unfold2d | try_unfold2d(
            &self,
            kernel: impl Into<Spatial>,
            how: crate::tensor::Conv,
        ) -> Tensor {
            const OP: &str = "unfold2d";
            let (dims, kernel) = (self.dims(), kernel.into());
            // A kernel of two numbers is for two axes.
            if dims.len() == 3
                && kernel.positive(OP, "kernel", 2).is_ok()
                && kernel.positive(OP, "kernel", 1).is_err()
            {
                return self.try_unsqueeze(0)?.try_unfold2d(kernel, how)?.try_squeeze(0);
            }
            if dims.len() < 3 {
                return wrong_shape(OP, format!("expected [batch, channels, …], got {dims:?}"));
            }
            let blocks = Blocks::new(OP, &dims[2..], &kernel, &how)?;
            let padded = self.movement(Movement::pad(
                [(0, 0); 2].into_iter().chain(blocks.padding.iter().copied()),
            ))?;
            let n = blocks.list.len();
            let seen = windows(OP, &padded, &blocks.list)?.movement(Movement::permute(
                [0, 1].into_iter().chain(2 + n..2 + 2 * n).chain(2..2 + n),
            ))?;
            let rows = dims[1] * blocks.kernel().product::<usize>();
            seen.movement(Movement::reshape([dims[0], rows, blocks.counts.iter().product()]))
        }

        /// The inverse of [`unfold2d`](Self::unfold2d) but for windows that overlap, whose elements
        /// are added: `[batch, channels · kernel, windows]` becomes `[batch, channels, …]` with
        /// spatial axes of the given size, PyTorch's `fold` and `col2im`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let columns = Tensor::new([[[1, 2], [2, 3], [4, 5], [5, 6]]]);
        /// let y = columns.fold2d([2, 3], [2, 2], Conv::new());
        /// assert_eq!(y.to_vec::<i32>()?, [1, 4, 3, 4, 10, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn fold2d | try_fold2d(
            &self,
            size: impl Into<crate::tensor::Sizes>,
            kernel: impl Into<Spatial>,
            how: crate::tensor::Conv,
        ) -> Tensor {
            const OP: &str = "fold2d";
            let (dims, size) = (self.dims(), size.into().shape(OP)?);
            if size.is_empty() {
                return wrong_shape(OP, "a size of no axes");
            }
            if dims.len() == 2 {
                let sizes: Vec<isize> = size.iter().map(|&n| n as isize).collect();
                return self.try_unsqueeze(0)?.try_fold2d(sizes, kernel, how)?.try_squeeze(0);
            }
            let blocks = Blocks::new(OP, &size, &kernel.into(), &how)?;
            let (kernel, windows) =
                (blocks.kernel().product::<usize>(), blocks.counts.iter().product::<usize>());
            if dims.len() != 3 || !dims[1].is_multiple_of(kernel) || dims[2] != windows {
                let msg = format!(
                    "{dims:?} is not [batch, channels · {kernel}, {windows}], which windows of \
                     {size:?} are"
                );
                return wrong_shape(OP, msg);
            }
            let channels = dims[1] / kernel;
            checked_numel(
                OP,
                &[dims[0], channels].into_iter().chain(size.iter().copied()).collect::<Dims>(),
            )?;
            let dtype = self.dtype();
            let mut x = self.try_cast(if dtype.is_float() { sum_acc(dtype) } else { dtype })?;
            let n = blocks.list.len();
            x = x.movement(Movement::reshape(
                [dims[0], channels]
                    .into_iter()
                    .chain(blocks.kernel())
                    .chain(blocks.counts.iter().copied()),
            ))?;
            // [… kernel, count …] of each axis side by side, each with its elements where they
            // belong.
            x = x.movement(Movement::permute(
                [0, 1].into_iter().chain((0..n).flat_map(|i| [2 + i, 2 + n + i])),
            ))?;
            for i in 0..n {
                x = for_op(
                    OP,
                    spread(&x, 2 + 2 * i, blocks.list[i], size[i], blocks.padding[i].0),
                )?;
            }
            let kernels: Vec<usize> = (0..n).map(|i| 2 + 2 * i).collect();
            x.reduce_axes(OP, Fold::Add, &Axes::from(kernels))?.try_cast(dtype)
        }

        /// The values of pictures at points: of `[batch, channels, h, w]` and a grid `[batch, …,
        /// 2]` of points (x, y) the values `[batch, channels, …]`; x is a place along the last
        /// axis. With 3 spatial axes points are (x, y, z). Coordinates go from -1 at one border to
        /// 1 at the other. Both the picture and the grid have gradients. A NaN among the
        /// coordinates is the first place of its axis with the paddings of the border and of
        /// reflections. With zeros it is outside: the nearest element is 0, and linear
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
        pub fn grid_sample | try_grid_sample(&self, grid: &Tensor, how: GridSample) -> Tensor {
            const OP: &str = "grid_sample";
            let (dims, g) = (self.dims(), grid.dims());
            let n = dims.len().saturating_sub(2);
            if n == 0 || g.len() != dims.len() || g[0] != dims[0] || g[g.len() - 1] != n {
                return wrong_shape(
                    OP,
                    format!(
                        "pictures {dims:?} and a grid {g:?}; they are [batch, channels, …] and \
                         [batch, …, spatial axes]"
                    ),
                );
            }
            if dims[2..].contains(&0) {
                return wrong_shape(OP, format!("pictures {dims:?} have no element"));
            }
            let dtype =
                crate::tensor::broadcast::promote_operands(&[self.as_float().into(), grid.into()]);
            let wide = sum_acc(dtype);
            let points = g[1..g.len() - 1].iter().product::<usize>();
            let x = self.try_cast(wide)?.movement(Movement::reshape([
                dims[0],
                dims[1],
                dims[2..].iter().product(),
            ]))?;
            let grid = grid.try_cast(wide)?.movement(Movement::reshape([g[0], points, n]))?;
            let at = |axis: usize| {
                // The first number of a point is along the last axis.
                let along = grid
                    .slice_axis(2, n - 1 - axis, n - axis)?
                    .movement(Movement::reshape([g[0], points]))?;
                let place = how.place(&along, dims[2 + axis]);
                // Cubic interpolation pads each element that it reads.
                if how.mode == GridMode::Cubic {
                    Ok(place)
                } else {
                    how.padded(place, dims[2 + axis])
                }
            };
            let places = (0..n).map(at).collect::<Result<Vec<_>>>()?;
            let out = Movement::reshape(dims[..2].iter().chain(&g[1..g.len() - 1]).copied());
            if how.mode == GridMode::Nearest {
                let nearest: Vec<Tensor> = places.iter().map(|p| p.detach().round()).collect();
                let y = read(OP, &x, &dims[2..], &nearest.iter().collect::<Vec<_>>())?;
                return y.movement(out)?.try_cast(self.as_float().dtype());
            }
            if how.mode == GridMode::Cubic {
                return cubic(OP, &x, &dims[2..], &places, &how)?
                    .movement(out)?
                    .try_cast(self.as_float().dtype());
            }
            let low: Vec<Tensor> = places.iter().map(|p| p.detach().floor()).collect();
            let high: Vec<Tensor> = low.iter().map(|p| p + 1.0).collect();
            let mut sum: Option<Tensor> = None;
            for corner in 0..1usize << n {
                let upper = |i: usize| corner >> i & 1 == 1;
                let at: Vec<&Tensor> =
                    (0..n).map(|i| if upper(i) { &high[i] } else { &low[i] }).collect();
                let value = read(OP, &x, &dims[2..], &at)?;
                let share = |i: usize| {
                    if upper(i) { places[i].try_sub(&low[i]) } else { high[i].try_sub(&places[i]) }
                };
                let weight =
                    (1..n).try_fold(share(0)?, |w, i| w.try_mul(share(i)?))?.try_unsqueeze(1)?;
                let part = value.try_mul(&weight)?;
                sum = Some(match sum {
                    None => part,
                    Some(s) => s.try_add(part)?,
                });
            }
            sum.expect("a corner").movement(out)?.try_cast(self.as_float().dtype())
        }
    }
}

/// `[… kernel, count …]` as `[… kernel, size …]`: the element of window `i` at `k` of the kernel
/// comes to `i·stride + k·dilation - before`, and what is outside is cut off.
fn spread(x: &Tensor, axis: usize, w: Window, size: usize, before: usize) -> Result<Tensor> {
    let dims = x.dims();
    let (kernel, count) = (dims[axis], dims[axis + 1]);
    let with = |sizes: &[usize]| {
        Movement::reshape(dims[..axis].iter().chain(sizes).chain(&dims[axis + 2..]).copied())
    };
    let pad = |x: &Tensor, at: usize, by: usize| {
        x.movement(Movement::pad((0..x.ndim()).map(|i| if i == at { (0, by) } else { (0, 0) })))
    };
    // Distances to a second window or element say nothing where there is one.
    let (stride, dilation) =
        (if count == 1 { 1 } else { w.stride }, if kernel == 1 { 1 } else { w.dilation });
    // Zeros between the elements, and after them as many as all rows are moved, and one row more.
    let length = count * stride;
    let apart = pad(&x.movement(with(&[kernel, count, 1]))?, axis + 2, stride - 1)?
        .movement(with(&[kernel, length]))?;
    let row = (length + dilation * (kernel - 1)).max(before + size) + dilation;
    let rows = pad(&apart, axis + 1, row - length)?;
    // Cut into rows that are shorter by the dilation, row k begins k·dilation earlier, in the zeros
    // of the row before, and so its elements come k·dilation later.
    let flat =
        rows.movement(with(&[kernel * row]))?.slice_axis(axis, 0, kernel * (row - dilation))?;
    flat.movement(with(&[kernel, row - dilation]))?.slice_axis(axis + 1, before, before + size)
}
