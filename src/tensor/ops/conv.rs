//! Sliding windows over the last axes, and convolution as a sum of products over them. Windows are
//! movement ops; none is stored.

use super::index::strided;
use super::matmul::sum_of_products;
use super::movement::{at_axis, spliced};
use super::winograd::{supports, winograd};
use crate::env;
use crate::error::Result;
use crate::shape::Dims;
use crate::tensor::broadcast::broadcast_to;
use crate::tensor::{Sides, Spatial, Tensor, autocast};

/// Windows along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    /// Elements in a window.
    pub(super) kernel: usize,
    /// Distance between windows.
    pub(super) stride: usize,
    /// Distance between the elements of a window.
    pub(super) dilation: usize,
}

impl Window {
    /// Distance from the first to the last element of a window, inclusive.
    pub(in crate::tensor) fn span(&self) -> usize {
        self.dilation.saturating_mul(self.kernel - 1).saturating_add(1)
    }
    /// Returns the number of windows that fit an axis.
    pub(super) fn count(&self, size: usize) -> Result<usize> {
        let span = self.span();
        match size.checked_sub(span) {
            Some(room) => Ok(room / self.stride + 1),
            None => shape_error!(
                "a window of {span} does not fit in an axis of {size}, padding included"
            ),
        }
    }
}

/// Windows over the last axes: `[… sizes]` becomes `[… counts, … kernels]`.
pub(super) fn windows(x: &Tensor, list: &[Window]) -> Result<Tensor> {
    let before = x.ndim() - list.len();
    let mut t = x.clone();
    // In reverse order, because each axis becomes two.
    for (i, w) in list.iter().enumerate().rev() {
        t = axis_windows(&t, before + i, *w)?;
    }
    let pairs = list.len();
    t.permuted(
        (0..before)
            .chain((0..pairs).map(|i| before + 2 * i))
            .chain((0..pairs).map(|i| before + 2 * i + 1)),
    )
}

/// Returns the error for windows with more elements than an index can count.
pub(super) fn count_overflow<T>(w: Window, dims: &[usize]) -> Result<T> {
    let Window { kernel, stride, dilation } = w;
    shape_error!(
        "windows of {kernel} with stride {stride} and dilation {dilation} over {dims:?} have more \
         elements than an index can count"
    )
}

/// Windows over one axis, which becomes two: `count` and `kernel`.
fn axis_windows(x: &Tensor, axis: usize, w: Window) -> Result<Tensor> {
    let dims = x.dims();
    let Window { kernel, stride, dilation } = w;
    if (kernel, stride) != (1, 1) {
        x.require_static("windows", [axis])?;
    }
    let count = w.count(dims[axis])?;
    // With one window the stride has no effect, and may exceed the axis.
    let stride = if count == 1 { stride.min(dims[axis]) } else { stride };
    let with = |sizes: &[usize]| spliced(&dims, axis..axis + 1, sizes);
    if kernel == 1 {
        let steps: Dims = at_axis(dims.len(), axis, stride, 1).collect();
        return strided(&x.slice_axis(axis, 0, (count - 1) * stride + 1)?, &steps)?
            .shaped(with(&[count, 1]));
    }
    if kernel <= stride && dilation == 1 {
        // Windows that do not overlap are a reshape without the gaps.
        return resize_axis(x, axis, count * stride)?.shaped(with(&[count, stride]))?.slice_axis(
            axis + 1,
            0,
            kernel,
        );
    }
    // Overlapping windows: the axis is tiled and reshaped to rows that are `dilation` longer than
    // it, so that each row starts `dilation` later. Row k, column c is element k·dilation + c,
    // which is inside the axis for all that are kept.
    let needed = dilation * (kernel - 1) + (count - 1) * stride + 1;
    let size = needed.max((count * stride).saturating_sub(dilation));
    let row = size.saturating_add(dilation);
    let laid = kernel
        .checked_mul(row)
        .and_then(|length| Some((length, length.div_ceil(size).checked_mul(size)?)));
    let Some((length, laid)) = laid else { return count_overflow(w, &dims) };
    resize_axis(x, axis, size)?
        .shaped(with(&[1, size]))?
        .expanded(with(&[laid / size, size]))?
        .shaped(with(&[laid]))?
        .slice_axis(axis, 0, length)?
        .shaped(with(&[kernel, row]))?
        .slice_axis(axis + 1, 0, count * stride)?
        .shaped(with(&[kernel, count, stride]))?
        .slice_axis(axis + 2, 0, 1)?
        .shaped(with(&[kernel, count]))?
        .try_transpose(axis as isize, axis as isize + 1)
}

/// Pads or shrinks an axis at its end.
pub(super) fn resize_axis(x: &Tensor, axis: usize, size: usize) -> Result<Tensor> {
    let old = x.dims()[axis];
    if size <= old { x.slice_axis(axis, 0, size) } else { x.padded_axis(axis, 0, size - old) }
}

/// Windows from lists of values per axis.
pub(super) fn window_list(kernel: &[usize], stride: &[usize], dilation: &[usize]) -> Vec<Window> {
    let lists = kernel.iter().zip(stride).zip(dilation);
    lists.map(|((&kernel, &stride), &dilation)| Window { kernel, stride, dilation }).collect()
}

/// Options of a convolution: `Conv::new().stride(2).padding(1).bias(&b)`.
#[derive(Clone)]
pub struct Conv {
    stride: Spatial,
    padding: Sides,
    dilation: Spatial,
    groups: usize,
    bias: Option<Tensor>,
    output_padding: Spatial,
    winograd: Option<bool>,
}

impl Conv {
    /// Replaces the bias, if there is one.
    fn with_bias(&self, bias: Tensor) -> Conv {
        Conv { bias: self.bias.as_ref().map(|_| bias), ..self.clone() }
    }

    /// Windows of a kernel, one per axis.
    pub(super) fn windows(&self, op: &'static str, kernel: &[usize]) -> Result<Vec<Window>> {
        let n = kernel.len();
        let stride = self.stride.positive(op, "stride", n)?;
        Ok(window_list(kernel, &stride, &self.dilation.positive(op, "dilation", n)?))
    }
    /// Padding before and after each of `n` axes.
    pub(super) fn sides(&self, op: &'static str, n: usize) -> Result<Vec<(usize, usize)>> {
        self.padding.resolve(op, n)
    }
}

setters! { Conv;
    /// Stride 1, no padding, no dilation, one group, no bias.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let y = Tensor::ones([1, 1, 5]).conv2d(&Tensor::ones([1, 1, 3]), Conv::new());
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 3.0, 3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = Conv {
        stride: 1.into(),
        padding: 0.into(),
        dilation: 1.into(),
        groups: 1,
        bias: None,
        output_padding: 0.into(),
        winograd: None,
    };
    /// Stride of the windows, for all spatial axes or for each.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::zeros([1, 1, 9, 9]), Tensor::zeros([1, 1, 3, 3]));
    /// assert_eq!(x.conv2d(&w, Conv::new().stride([2, 3])).shape(), [1, 1, 4, 3]);
    /// ```
    stride(stride: impl Into<Spatial>) stride = stride.into();
    /// Zero padding: one number, one per axis, or `(before, after)` per axis.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::zeros([1, 1, 9, 9]), Tensor::zeros([1, 1, 3, 3]));
    /// assert_eq!(x.conv2d(&w, Conv::new().padding(1)).shape(), [1, 1, 9, 9]);
    /// ```
    padding(padding: impl Into<Sides>) padding = padding.into();
    /// Distance between the elements of a window.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::zeros([1, 1, 9, 9]), Tensor::zeros([1, 1, 3, 3]));
    /// assert_eq!(x.conv2d(&w, Conv::new().dilation(3)).shape(), [1, 1, 3, 3]);
    /// ```
    dilation(dilation: impl Into<Spatial>) dilation = dilation.into();
    /// Number of groups of channels that are convolved separately.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::new([[[1.0f32], [10.0]]]), Tensor::ones([2, 1, 1]));
    /// assert_eq!(x.conv2d(&w, Conv::new().groups(2)).to_vec::<f32>()?, [1.0, 10.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    groups(groups: usize) groups = groups;
    /// Additional size at the end of each axis of [`Tensor::conv_transpose2d`]. It selects one of
    /// the output sizes that a strided convolution maps to the same input size.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::zeros([1, 1, 4, 4]), Tensor::zeros([1, 1, 3, 3]));
    /// let y = x.conv_transpose2d(&w, Conv::new().stride(2).output_padding(1));
    /// assert_eq!(y.shape(), [1, 1, 10, 10]);
    /// ```
    output_padding(output_padding: impl Into<Spatial>) output_padding = output_padding.into();
    /// Selects Winograd's method for 3 × 3 kernels with stride 1: a quarter of the products, at a
    /// loss of about two decimal digits in `f32`. The default is the environment variable `WINO`.
    /// Other kernels are not affected.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let (x, w) = (Tensor::ones([1, 1, 6, 6]), Tensor::ones([1, 1, 3, 3]));
    /// let y = x.conv2d(&w, Conv::new().winograd(true));
    /// assert!(y.to_vec::<f32>()?.iter().all(|v| (v - 9.0).abs() < 1e-4));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    winograd(on: bool) winograd = Some(on);
    /// Bias per output channel.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Conv};
    /// let y = Tensor::ones([1, 1, 2])
    ///     .conv2d(&Tensor::ones([1, 1, 1]), Conv::new().bias(&Tensor::new([0.5f32])));
    /// assert_eq!(y.to_vec::<f32>()?, [1.5, 1.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bias(bias: &Tensor) bias = Some(bias.clone());
}

impl Tensor {
    fallible! {
        /// Convolution (cross-correlation) of an input `[batch, channels, …]` with a weight
        /// `[outputs, channels / groups, …]`, over the spatial axes of the weight. An input without
        /// batch axis gives a result without it. Floats below 32 bits accumulate in `f32`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let x = Tensor::arange(0f32, 9.0, 1.0).reshape([1, 1, 3, 3]);
        /// let w = Tensor::ones([1, 1, 2, 2]);
        /// assert_eq!(x.conv2d(&w, Conv::new()).to_vec::<f32>()?, [8.0, 12.0, 20.0, 24.0]);
        /// assert_eq!(x.conv2d(&w, Conv::new().stride(2).padding(1)).shape(), [1, 1, 2, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn conv2d | try_conv2d(&self, weight: &Tensor, options: Conv) -> Tensor {
            if self.is_unbatched(weight) {
                return self.try_unsqueeze(0)?.try_conv2d(weight, options)?.try_squeeze(0);
            }
            match autocast::narrow([self, weight, options.bias.as_ref().unwrap_or(weight)]) {
                Some([x, w, b]) => conv(&x, &w, &options.with_bias(b)),
                None => conv(self, weight, &options),
            }
        }

        /// Transposed convolution: the adjoint of [`conv2d`](Self::conv2d) with the same stride,
        /// padding and dilation. The weight is `[channels, outputs / groups, …]`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Conv};
        /// let (x, w) = (Tensor::new([[[[1.0f32, 2.0], [3.0, 4.0]]]]), Tensor::ones([1, 1, 2, 2]));
        /// let y = x.conv_transpose2d(&w, Conv::new());
        /// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0, 10.0, 6.0, 3.0, 7.0, 4.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn conv_transpose2d | try_conv_transpose2d(
            &self, weight: &Tensor, options: Conv,
        ) -> Tensor {
            if self.is_unbatched(weight) {
                let y = self.try_unsqueeze(0)?.try_conv_transpose2d(weight, options)?;
                return y.try_squeeze(0);
            }
            match autocast::narrow([self, weight, options.bias.as_ref().unwrap_or(weight)]) {
                Some([x, w, b]) => conv_transpose(&x, &w, &options.with_bias(b)),
                None => conv_transpose(self, weight, &options),
            }
        }
    }

    /// Returns true if the input of a convolution has no batch axis.
    fn is_unbatched(&self, weight: &Tensor) -> bool {
        weight.ndim() >= 3 && self.ndim() + 1 == weight.ndim()
    }
}

/// Dilates an axis by the stride of a window, and pads it by the reach of the window minus the
/// padding, which may be negative. `None` if nothing is left.
fn dilate_axis(
    t: &Tensor,
    axis: usize,
    window: Window,
    (before, after): (usize, usize),
    extra: usize,
) -> Result<Option<Tensor>> {
    let dims = t.dims();
    let (size, reach) = (dims[axis], window.span() - 1);
    let Some(spaced) = size.checked_mul(window.stride) else {
        return count_overflow(window, &dims);
    };
    let with = |sizes: &[usize]| spliced(&dims, axis..axis + 1, sizes);
    let all = t
        .shaped(with(&[size, 1]))?
        .padded_axis(axis + 1, 0, window.stride - 1)?
        .shaped(with(&[spaced]))?
        .slice_axis(axis, 0, (size - 1) * window.stride + 1)?
        .padded_axis(axis, reach, reach.saturating_add(extra))?;
    let length = all.dims()[axis];
    if before.saturating_add(after).saturating_add(reach) >= length {
        return Ok(None);
    }
    Ok(Some(all.slice_axis(axis, before, length - after)?))
}

/// Checks the ranks of an input and a weight, and the number of channels.
fn check_channels(
    xs: &[usize],
    ws: &[usize],
    layout: &str,
    groups: usize,
    channels: usize,
) -> Result<()> {
    if ws.len() < 3 || xs.len() != ws.len() {
        return shape_error!(
            "expected [batch, channels, …] and {layout}, got input {xs:?} and weight {ws:?}"
        );
    }
    if groups == 0 || !ws[0].is_multiple_of(groups) || xs[1] != channels {
        let has = xs[1];
        return shape_error!(
            "input {xs:?} has {has} channels, and weight {ws:?} in {groups} groups takes {channels}"
        );
    }
    Ok(())
}

/// Convolves the input, dilated and padded with zeros, with the flipped weight.
fn conv_transpose(x: &Tensor, weight: &Tensor, options: &Conv) -> Result<Tensor> {
    const OP: &str = "conv_transpose2d";
    let (xs, ws, groups) = (x.dims(), weight.dims(), options.groups);
    let channels = ws.first().copied().unwrap_or(0);
    check_channels(&xs, &ws, "[channels, outputs / groups, …]", groups, channels)?;
    let n = ws.len() - 2;
    if ws[2..].contains(&0) || xs[2..].contains(&0) {
        return wrong_shape!(OP, "input {xs:?} or weight {ws:?} has an axis of size 0");
    }
    let list = options.windows(OP, &ws[2..])?;
    let extra = options.output_padding.resolve(OP, "output_padding", n)?;
    let padding = options.padding.resolve(OP, n)?;
    let mut t = x.clone();
    for (i, &window) in list.iter().enumerate() {
        let Window { stride, dilation, .. } = window;
        let (axis, extra, padding) = (i + 2, extra[i], padding[i]);
        if extra > 0 && extra >= stride.max(dilation) {
            return wrong_shape!(
                OP,
                "output padding {extra} is not less than the stride {stride} or the dilation \
                 {dilation}"
            );
        }
        let Some(padded) = dilate_axis(&t, axis, window, padding, extra)? else {
            return wrong_shape!(
                OP,
                "padding {padding:?} of input {xs:?}, weight {ws:?} leaves axis {axis} empty"
            );
        };
        t = padded;
    }
    // [groups, channels, outputs, …] to [groups · outputs, channels, …], with flipped kernels.
    let (channels, outputs) = (ws[0] / groups, ws[1]);
    let w = weight
        .shaped([&[groups, channels, outputs], &ws[2..]].concat())?
        .try_transpose(1, 2)?
        .shaped([&[groups * outputs, channels], &ws[2..]].concat())?
        .flipped((0..ws.len()).map(|a| a >= 2))?;
    let plain = Conv { stride: 1.into(), padding: 0.into(), ..options.clone() };
    conv(&t, &w, &plain)
}

fn conv(x: &Tensor, weight: &Tensor, options: &Conv) -> Result<Tensor> {
    const OP: &str = "conv2d";
    let (xs, ws, groups) = (x.dims(), weight.dims(), options.groups);
    let channels = ws.get(1).map_or(0, |c| c.saturating_mul(groups));
    check_channels(&xs, &ws, "[outputs, channels / groups, …]", groups, channels)?;
    let n = ws.len() - 2;
    if ws[2..].contains(&0) {
        return wrong_shape!(OP, "weight {ws:?} has an empty window");
    }
    let list = options.windows(OP, &ws[2..])?;
    let padding = options.padding.resolve(OP, n)?;
    let padded = x.padded([(0, 0), (0, 0)].into_iter().chain(padding))?;
    let wanted = match options.winograd {
        Some(on) => on,
        None => env::config()?.winograd,
    };
    let out = if wanted && supports(x, weight, &list) {
        winograd(&padded, weight, groups)?
    } else {
        direct_conv(&padded, weight, groups, &list)?
    };
    match &options.bias {
        None => Ok(out),
        Some(b) => out.try_add(broadcast_to(OP, b, &[ws[0]])?.line_along(0, n + 1)?),
    }
}

/// Convolution of a padded input as one sum of products over channels and windows.
fn direct_conv(x: &Tensor, weight: &Tensor, groups: usize, list: &[Window]) -> Result<Tensor> {
    let (xs, ws, n) = (x.dims(), weight.dims(), list.len());
    let patches = windows(x, list)?;
    // [batch, groups, 1, … counts, channels, … kernels]
    // · [groups, outputs, … 1, channels, … kernels]
    let (batch, channels, outputs) = (xs[0], ws[1], ws[0] / groups);
    let counts: Dims = patches.dims()[2..2 + n].into();
    let kernels = &ws[2..];
    let patches =
        patches
            .shaped([&[batch, groups, 1, channels], &counts[..], kernels].concat())?
            .permuted([0, 1, 2].into_iter().chain(4..4 + n).chain([3]).chain(4 + n..4 + 2 * n))?;
    let w = weight.shaped([&[groups, outputs], &vec![1; n][..], &[channels], kernels].concat())?;
    sum_of_products(&patches, &w, n + 1)?.shaped([&[batch, ws[0]], &counts[..]].concat())
}
