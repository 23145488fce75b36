//! Convolutions and their transposes, as layers.

use super::{Layer, Module, init, unfit};
use crate::error::Result;
use crate::tensor::{Conv, Sides, Spatial, Tensor, or_panic};

/// What an input of so many spatial axes looks like.
fn shape_of(channels: usize, axes: usize) -> String {
    format!("[batch, {channels}, {}]", ["length", "height, width"][axes - 1])
}

macro_rules! convolutions {
    ($($(#[$meta:meta])* $name:ident $axes:literal;)*) => { $(
        $(#[$meta])*
        #[derive(Module)]
        pub struct $name {
            /// `[outputs, inputs / groups, …]`.
            pub weight: Tensor,
            /// `[outputs]`.
            pub bias: Option<Tensor>,
            stride: Spatial,
            padding: Sides,
            dilation: Spatial,
            groups: usize,
        }

        impl $name {
            /// From `inputs` to `outputs` channels through windows of a size, one number for all spatial axes or one for each: stride 1, no
            /// padding, one group, a bias. Panics if the kernel has a zero or another number of axes.
            #[track_caller]
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<Spatial>) -> $name {
                let kernel = or_panic(kernel.into().positive(stringify!($name), "kernel", $axes));
                $name { stride: 1.into(), padding: 0.into(), dilation: 1.into(), groups: 1, weight: Tensor::zeros(()), bias: None }
                    .with_weights(inputs, outputs, &kernel, true)
            }
            fn with_weights(self, inputs: usize, outputs: usize, kernel: &[usize], bias: bool) -> $name {
                let fan = inputs * kernel.iter().product::<usize>();
                let shape: Vec<usize> = [outputs, inputs].iter().chain(kernel).copied().collect();
                let weight = init::default_weight(shape, fan).as_param();
                $name { weight, bias: bias.then(|| init::default_weight([outputs], fan).as_param()), ..self }
            }
            /// The distance between windows.
            pub fn stride(self, stride: impl Into<Spatial>) -> $name {
                $name { stride: stride.into(), ..self }
            }
            /// Zeros around: one number, one per axis, or `(before, after)` per axis.
            pub fn padding(self, padding: impl Into<Sides>) -> $name {
                $name { padding: padding.into(), ..self }
            }
            /// The distance between the elements of a window.
            pub fn dilation(self, dilation: impl Into<Spatial>) -> $name {
                $name { dilation: dilation.into(), ..self }
            }
            /// The channels cut into groups that do not see each other; the weights start anew. Panics if the channels do not divide.
            #[track_caller]
            pub fn groups(self, groups: usize) -> $name {
                let shape = self.weight.shape();
                let (inputs, outputs) = (shape[1] * self.groups, shape[0]);
                let divides = groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups);
                assert!(divides, concat!(stringify!($name), ": {} to {} channels do not divide into {} groups"), inputs, outputs, groups);
                let bias = self.bias.is_some();
                $name { groups, ..self }.with_weights(inputs / groups, outputs, &shape[2..], bias)
            }
            /// With or without a bias.
            pub fn bias(self, bias: bool) -> $name {
                $name { bias: self.bias.filter(|_| bias), ..self }
            }
        }

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                let inputs = self.weight.size(1) * self.groups;
                if x.ndim() != $axes + 2 || x.size(1) != inputs {
                    return unfit(stringify!($name), shape_of(inputs, $axes), x);
                }
                let how = Conv::new().stride(self.stride.clone()).padding(self.padding.clone()).dilation(self.dilation.clone()).groups(self.groups);
                x.try_conv2d(&self.weight, self.bias.iter().fold(how, Conv::bias))
            }
        }
    )* };
}

convolutions! {
    /// A convolution of `[batch, channels, length]`. Weight and bias start evenly over ±1/√(inputs / groups · window).
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Conv1d, Layer}};
    /// let layer = Conv1d::new(2, 4, 3).stride(2).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 2, 10])).shape(), [8, 4, 5]);
    /// ```
    Conv1d 1;
    /// A convolution of `[batch, channels, height, width]`. Weight and bias start evenly over ±1/√(inputs / groups · window).
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Conv2d, Layer}};
    /// let layer = Conv2d::new(3, 16, [3, 5]).padding([1, 2]).bias(false);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 3, 32, 32])).shape(), [8, 16, 32, 32]);
    /// let wrong = layer.try_forward(&Tensor::zeros([8, 1, 32, 32])).unwrap_err();
    /// assert_eq!(wrong.to_string(), "Conv2d: takes [batch, 3, height, width], and was given [8, 1, 32, 32]");
    /// ```
    Conv2d 2;
}
