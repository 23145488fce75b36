//! Pooling layers over one, two and three axes.

use super::{Layer, Module, unexpected_input};
use crate::error::Result;
use crate::tensor::{Pool, Sides, Spatial, Tensor};

/// An example that shows the last size of a pooled `[1, 1, 8, 8, 8]`.
macro_rules! size_example {
    ($name:ident $new:literal, $size:literal) => {
        forward_example!($name $new, "[1, 1, 8, 8, 8]", "size(-1)" == $size)
    };
}

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
            /// Creates a pool with windows of a size, without overlap or padding.
            ///
            /// ```
            #[doc = size_example!($name "(2)", "4")]
            /// ```
            pub fn new(kernel: impl Into<Spatial>) -> $name {
                $name { how: Pool::new(), kernel: kernel.into() }
            }
            /// Sets the stride between windows.
            ///
            /// ```
            #[doc = size_example!($name "(2).stride(1)", "7")]
            /// ```
            pub fn stride(self, stride: impl Into<Spatial>) -> $name {
                $name { how: self.how.stride(stride), ..self }
            }
            /// Sets the padding. It never wins a maximum, and counts as zeros in a mean.
            ///
            /// ```
            #[doc = size_example!($name "(2).padding(1)", "5")]
            /// ```
            pub fn padding(self, padding: impl Into<Sides>) -> $name {
                $name { how: self.how.padding(padding), ..self }
            }
            /// Sets the dilation between the elements of a window.
            ///
            /// ```
            #[doc = size_example!($name "(2).dilation(7)", "1")]
            /// ```
            pub fn dilation(self, dilation: impl Into<Spatial>) -> $name {
                $name { how: self.how.dilation(dilation), ..self }
            }
            /// Adds a last window that extends past the end.
            ///
            /// ```
            #[doc = size_example!($name "(3).ceil_mode()", "3")]
            /// ```
            pub fn ceil_mode(self) -> $name {
                $name { how: self.how.ceil_mode(), ..self }
            }
        }

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                if x.ndim() < $axes + 1 {
                    return unexpected_input(stringify!($name), LAYOUTS[$axes - 1], x);
                }
                let kernel = self.kernel.positive(stringify!($name), "kernel", $axes)?;
                x.$method(&kernel, self.how.clone())
            }
        }
    )* };
}

/// The expected inputs of layers over one, two and three axes.
const LAYOUTS: [&str; 3] = [
    "[…, channels, length]",
    "[…, channels, height, width]",
    "[…, channels, depth, height, width]",
];

pools! {
    /// Max pooling over the last axis.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Layer, MaxPool1d}};
    /// let x = Tensor::new([[[1, 5, 2, 3]]]);
    /// assert_eq!(MaxPool1d::new(2).forward(&x).to_vec::<i32>()?, [5, 3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    MaxPool1d 1 try_max_pool2d;
    /// Max pooling over the last two axes.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Layer, MaxPool2d}};
    /// let pool = MaxPool2d::new(3).stride(2).padding(1);
    /// assert_eq!(pool.forward(&Tensor::zeros([1, 4, 8, 8])).shape(), [1, 4, 4, 4]);
    /// ```
    MaxPool2d 2 try_max_pool2d;
    /// Max pooling over the last three axes.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Layer, MaxPool3d}};
    /// let x = Tensor::zeros([1, 3, 4, 8, 8]);
    /// assert_eq!(MaxPool3d::new(2).forward(&x).shape(), [1, 3, 2, 4, 4]);
    /// ```
    MaxPool3d 3 try_max_pool2d;
    /// Average pooling over the last axis.
    AvgPool1d 1 try_avg_pool2d;
    /// Average pooling over the last two axes.
    AvgPool2d 2 try_avg_pool2d;
    /// Average pooling over the last three axes.
    AvgPool3d 3 try_avg_pool2d;
}

macro_rules! averages {
    ($($name:ident)*) => { $(
        impl $name {
            /// Excludes padding from the mean, as PyTorch's `count_include_pad=False`.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("let pool = ", stringify!($name), "::new(2).padding(1);")]
            /// let means = pool.exclude_padding().forward(&Tensor::ones([1, 1, 2, 2, 2]));
            /// assert!(means.to_vec::<f32>()?.iter().all(|&m| m == 1.0));
            /// # Ok::<(), picograd::Error>(())
            /// ```
            pub fn exclude_padding(self) -> $name {
                $name { how: self.how.exclude_padding(), ..self }
            }
            /// Sets the divisor of a window's sum, instead of its number of elements.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("let pool = ", stringify!($name), "::new(1).divisor_override(2);")]
            /// assert_eq!(pool.forward(&Tensor::ones([1, 1, 1, 1, 1])).to_vec::<f32>()?, [0.5]);
            /// # Ok::<(), picograd::Error>(())
            /// ```
            pub fn divisor_override(self, divisor: usize) -> $name {
                $name { how: self.how.divisor_override(divisor), ..self }
            }
        }
    )* };
}

averages! { AvgPool1d AvgPool2d AvgPool3d }

macro_rules! adaptive_pools {
    ($($(#[$meta:meta])* $name:ident $axes:literal $method:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Module)]
        pub struct $name {
            sizes: Spatial,
        }

        impl $name {
            /// Sets the number of windows: one number for all axes, or one per axis.
            ///
            /// ```
            #[doc = size_example!($name "(3)", "3")]
            /// ```
            pub fn new(sizes: impl Into<Spatial>) -> $name {
                $name { sizes: sizes.into() }
            }
        }

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                if x.ndim() < $axes + 1 {
                    return unexpected_input(stringify!($name), LAYOUTS[$axes - 1], x);
                }
                x.$method(&self.sizes.positive(stringify!($name), "sizes", $axes)?)
            }
        }
    )* };
}

adaptive_pools! {
    /// Adaptive average pooling: a fixed number of windows covers the last axis.
    AdaptiveAvgPool1d 1 try_adaptive_avg_pool2d;
    /// Adaptive average pooling: a fixed number of windows covers the last two axes.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{AdaptiveAvgPool2d, Layer}};
    /// let x = Tensor::arange(0f32, 9.0, 1.0).reshape([1, 1, 3, 3]);
    /// assert_eq!(AdaptiveAvgPool2d::new(1).forward(&x).to_vec::<f32>()?, [4.0]);
    /// assert_eq!(AdaptiveAvgPool2d::new(2).forward(&x).to_vec::<f32>()?, [2.0, 3.0, 5.0, 6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    AdaptiveAvgPool2d 2 try_adaptive_avg_pool2d;
    /// Adaptive average pooling: a fixed number of windows covers the last three axes.
    AdaptiveAvgPool3d 3 try_adaptive_avg_pool2d;
    /// Adaptive max pooling: a fixed number of windows covers the last axis.
    AdaptiveMaxPool1d 1 try_adaptive_max_pool2d;
    /// Adaptive max pooling: a fixed number of windows covers the last two axes.
    AdaptiveMaxPool2d 2 try_adaptive_max_pool2d;
    /// Adaptive max pooling: a fixed number of windows covers the last three axes.
    AdaptiveMaxPool3d 3 try_adaptive_max_pool2d;
}
