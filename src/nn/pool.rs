//! Pooling as layers.

use super::{Layer, Module, unfit};
use crate::error::Result;
use crate::tensor::{Pool, Sides, Spatial, Tensor, or_panic};

macro_rules! pools {
    ($($(#[$meta:meta])* $name:ident $axes:literal $method:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Module)]
        pub struct $name {
            #[module(skip)]
            how: Pool,
            kernel: Spatial,
        }

        impl $name {
            /// Windows of a size, side by side, without padding.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(2).forward(&Tensor::zeros([1, 1, 8, 8])).size(-1), 4);")]
            /// ```
            pub fn new(kernel: impl Into<Spatial>) -> $name {
                $name { how: Pool::new(), kernel: kernel.into() }
            }
            /// The distance between windows.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(2).stride(1).forward(&Tensor::zeros([1, 1, 8, 8])).size(-1), 7);")]
            /// ```
            pub fn stride(self, stride: impl Into<Spatial>) -> $name {
                $name { how: self.how.stride(widened(stride.into(), $axes)), ..self }
            }
            /// Padding around. It never wins a maximum, and counts as zeros in a mean.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(2).padding(1).forward(&Tensor::zeros([1, 1, 8, 8])).size(-1), 5);")]
            /// ```
            pub fn padding(self, padding: impl Into<Sides>) -> $name {
                let padding = or_panic(padding.into().resolve(stringify!($name), $axes));
                let all: Vec<(usize, usize)> = std::iter::repeat_n((0, 0), 2 - $axes).chain(padding).collect();
                $name { how: self.how.padding(all.as_slice()), ..self }
            }
            /// The distance between the elements of a window.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(2).dilation(7).forward(&Tensor::zeros([1, 1, 8, 8])).size(-1), 1);")]
            /// ```
            pub fn dilation(self, dilation: impl Into<Spatial>) -> $name {
                $name { how: self.how.dilation(widened(dilation.into(), $axes)), ..self }
            }
            /// Also a last window that hangs over the end.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(3).ceil_mode().forward(&Tensor::zeros([1, 1, 8, 8])).size(-1), 3);")]
            /// ```
            pub fn ceil_mode(self) -> $name {
                $name { how: self.how.ceil_mode(), ..self }
            }
        }

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                if x.ndim() < $axes + 1 {
                    return unfit(stringify!($name), ["[…, channels, length]", "[…, channels, height, width]"][$axes - 1], x);
                }
                let kernel = self.kernel.positive(stringify!($name), "kernel", $axes)?;
                if $axes == 2 {
                    return x.$method(&kernel, self.how.clone());
                }
                x.try_unsqueeze(-2)?.$method([1, kernel[0]], self.how.clone())?.try_squeeze(-2)
            }
        }
    )* };
}

/// With a 1 in front for the axis that one spatial axis lacks to two.
#[track_caller]
fn widened(values: Spatial, axes: usize) -> Spatial {
    if axes == 2 {
        return values;
    }
    Spatial::from([1, or_panic(values.resolve("pool", "values", 1))[0]])
}

pools! {
    /// The greatest element of each window of the last axis.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Layer, MaxPool1d}};
    /// let x = Tensor::new([[[1, 5, 2, 3]]]);
    /// assert_eq!(MaxPool1d::new(2).forward(&x).to_vec::<i32>()?, [5, 3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    MaxPool1d 1 try_max_pool2d;
    /// The greatest element of each window of the last two axes.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Layer, MaxPool2d}};
    /// assert_eq!(MaxPool2d::new(3).stride(2).padding(1).forward(&Tensor::zeros([1, 4, 8, 8])).shape(), [1, 4, 4, 4]);
    /// ```
    MaxPool2d 2 try_max_pool2d;
    /// The mean of each window of the last axis.
    AvgPool1d 1 try_avg_pool2d;
    /// The mean of each window of the last two axes.
    AvgPool2d 2 try_avg_pool2d;
}

/// The means of windows that are cut so that a fixed number of them, side by side, covers the last two axes, whatever their sizes.
///
/// ```
/// use picograd::{Tensor, nn::{AdaptiveAvgPool2d, Layer}};
/// let x = Tensor::arange(0f32, 9.0, 1.0).reshape([1, 1, 3, 3]);
/// assert_eq!(AdaptiveAvgPool2d::new(1).forward(&x).to_vec::<f32>()?, [4.0]);
/// assert_eq!(AdaptiveAvgPool2d::new(2).forward(&x).to_vec::<f32>()?, [2.0, 3.0, 5.0, 6.0]);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Module)]
pub struct AdaptiveAvgPool2d {
    sizes: Spatial,
}

impl AdaptiveAvgPool2d {
    /// So many windows along both axes, or along each.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{AdaptiveAvgPool2d, Layer}};
    /// assert_eq!(AdaptiveAvgPool2d::new([1, 2]).forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 1, 2]);
    /// ```
    pub fn new(sizes: impl Into<Spatial>) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d { sizes: sizes.into() }
    }
}

impl Layer for AdaptiveAvgPool2d {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        let sizes = self.sizes.positive("AdaptiveAvgPool2d", "sizes", 2)?;
        let shape = x.max_shape();
        let [.., height, width] = shape[..] else { return unfit("AdaptiveAvgPool2d", "[…, channels, height, width]", x) };
        if height == 0 || width == 0 {
            return unfit("AdaptiveAvgPool2d", "an input with height and width", x);
        }
        if height.is_multiple_of(sizes[0]) && width.is_multiple_of(sizes[1]) {
            return x.try_avg_pool2d([height / sizes[0], width / sizes[1]], Pool::new());
        }
        // Windows of uneven sizes that may overlap: each axis times a matrix of shares.
        let (rows, cols) = (shares(height, sizes[0]), shares(width, sizes[1]));
        rows.cast(x.dtype()).try_matmul(x)?.try_matmul(&cols.cast(x.dtype()).try_t()?)
    }
}

/// `[windows, size]`: what each element adds to the mean of each window, which covers from ⌊i·size/windows⌋ to ⌈(i+1)·size/windows⌉.
fn shares(size: usize, windows: usize) -> Tensor {
    let mut matrix = vec![0f32; windows * size];
    for (i, row) in matrix.chunks_exact_mut(size).enumerate() {
        let (start, end) = (i * size / windows, ((i + 1) * size).div_ceil(windows));
        row[start..end].fill(1.0 / (end - start) as f32);
    }
    Tensor::from_vec(matrix, [windows, size])
}
