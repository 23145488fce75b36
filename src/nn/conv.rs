//! Convolution and transposed-convolution layers.

use super::{Layer, Module, Weighted, init, unexpected_input};
use crate::error::Result;
use crate::tensor::{Conv, Sides, Spatial, Tensor, or_panic};

/// Returns the expected input shape for a number of spatial axes.
fn shape_of(channels: usize, axes: usize) -> String {
    format!(
        "[batch, {channels}, {}]",
        ["length", "height, width", "depth, height, width"][axes - 1]
    )
}

/// Initializes weight and bias uniformly over ±1/√fan. The fan is the second size of the weight
/// times its window.
fn weights(
    sizes: [usize; 2],
    kernel: &[usize],
    outputs: usize,
    bias: bool,
) -> (Tensor, Option<Tensor>) {
    let fan = sizes[1] * kernel.iter().product::<usize>();
    (
        init::default_weight([&sizes, kernel].concat(), fan).as_param(),
        bias.then(|| init::default_weight([outputs], fan).as_param()),
    )
}

/// Panics if the channels do not divide into the groups.
#[track_caller]
fn assert_divides(layer: &str, [inputs, outputs]: [usize; 2], groups: usize) {
    let divides = groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups);
    assert!(divides, "{layer}: {inputs} and {outputs} channels are not divisible by {groups}");
}

/// The axis of a weight with the output channels, from the meaning of its first axis.
macro_rules! output_axis {
    (outputs) => {
        0
    };
    (inputs) => {
        1
    };
}

/// An example that shows a property of a new layer.
macro_rules! weight_example {
    ($name:ident $new:literal, $property:literal) => {
        concat!(
            "use picograd::nn::",
            stringify!($name),
            ";\n",
            "let layer = ",
            stringify!($name),
            "::new",
            $new,
            ";\n",
            "assert_eq!(layer.",
            $property,
            ");",
        )
    };
}

/// Generates the layers of a number of spatial axes. The sizes of a weight before its window are
/// those after the name, the second of them divided by the groups.
macro_rules! convolutions {
    ($(
        $(#[$meta:meta])*
        $name:ident $axes:literal [$first:ident, $second:ident] $method:ident;
    )*) => { $(
        $(#[$meta])*
        #[derive(Module)]
        pub struct $name {
            #[doc = concat!("`[", stringify!($first), ", ", stringify!($second), " / groups, …]`.")]
            pub weight: Tensor,
            /// The bias, `[outputs]`.
            pub bias: Option<Tensor>,
            inputs: usize,
            outputs: usize,
            #[module(skip)]
            how: Conv,
        }

        impl $name {
            /// Creates a layer from `inputs` to `outputs` channels with a window of one size, or
            /// one size per spatial axis: stride 1, no padding, one group, a bias. Panics if the
            /// kernel has a zero or another number of axes.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5)", "weight.numel() % (3 * 8 * 5), 0")]
            /// ```
            #[track_caller]
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<Spatial>) -> $name {
                let kernel = or_panic(kernel.into().positive(stringify!($name), "kernel", $axes));
                let (weight, how) = (Tensor::zeros(()), Conv::new());
                $name { weight, bias: None, inputs, outputs, how }.initialized(&kernel, 1, true)
            }
            /// Initializes the weights of `groups` groups.
            fn initialized(self, kernel: &[usize], groups: usize, bias: bool) -> $name {
                let sizes = [self.$first, self.$second / groups];
                let (weight, bias) = weights(sizes, kernel, self.outputs, bias);
                $name { weight, bias, ..self }
            }
            /// Sets the stride between windows.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5).stride(2)", "weight.size(-1), 5")]
            /// ```
            pub fn stride(self, stride: impl Into<Spatial>) -> $name {
                $name { how: self.how.stride(stride), ..self }
            }
            /// Sets the zero padding: one number, one per axis, or `(before, after)` per axis.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5).padding(2)", "weight.size(-1), 5")]
            /// ```
            pub fn padding(self, padding: impl Into<Sides>) -> $name {
                $name { how: self.how.padding(padding), ..self }
            }
            /// Sets the dilation between the elements of a window.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5).dilation(2)", "weight.size(-1), 5")]
            /// ```
            pub fn dilation(self, dilation: impl Into<Spatial>) -> $name {
                $name { how: self.how.dilation(dilation), ..self }
            }
            /// Splits the channels into independent groups and reinitializes the weights. Panics if
            /// the channels are not divisible.
            ///
            /// ```
            #[doc = weight_example!($name "(4, 4, 5).groups(2)", "weight.size(1), 2")]
            /// ```
            #[track_caller]
            pub fn groups(self, groups: usize) -> $name {
                assert_divides(stringify!($name), [self.inputs, self.outputs], groups);
                let (shape, bias) = (self.weight.shape(), self.bias.is_some());
                let layer = $name { how: self.how.groups(groups), ..self };
                layer.initialized(&shape[2..], groups, bias)
            }
            /// Enables or disables the bias.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5).bias(false)", "bias.map(|b| b.numel()), None")]
            /// ```
            pub fn bias(self, bias: bool) -> $name {
                $name { bias: self.bias.filter(|_| bias), ..self }
            }
        }

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                self.forward_with(&self.weight, x)
            }
        }

        impl Weighted for $name {
            const OUTPUT_AXIS: usize = output_axis!($first);
            fn weight(&self) -> &Tensor {
                &self.weight
            }
            fn forward_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor> {
                // A sample may have no batch axis.
                let rank = x.ndim();
                let has_axes = rank == $axes + 1 || rank == $axes + 2;
                if !has_axes || x.size(rank as isize - $axes - 1) != self.inputs {
                    return unexpected_input(stringify!($name), shape_of(self.inputs, $axes), x);
                }
                x.$method(weight, self.bias.iter().fold(self.how.clone(), Conv::bias))
            }
        }
    )* };
}

convolutions! {
    /// A convolution of `[batch, channels, length]`. Weight and bias are initialized uniformly over
    /// ±1/√(inputs / groups · window).
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Conv1d, Layer}};
    /// let layer = Conv1d::new(2, 4, 3).stride(2).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 2, 10])).shape(), [8, 4, 5]);
    /// ```
    Conv1d 1 [outputs, inputs] try_conv2d;
    /// A convolution of `[batch, channels, height, width]`. Weight and bias are initialized
    /// uniformly over ±1/√(inputs / groups · window).
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Conv2d, Layer}};
    /// let layer = Conv2d::new(3, 16, [3, 5]).padding([1, 2]).bias(false);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 3, 32, 32])).shape(), [8, 16, 32, 32]);
    /// let wrong = layer.try_forward(&Tensor::zeros([8, 1, 32, 32])).unwrap_err();
    /// let why = "Conv2d: expected [batch, 3, height, width], got [8, 1, 32, 32]";
    /// assert_eq!(wrong.to_string(), why);
    /// ```
    Conv2d 2 [outputs, inputs] try_conv2d;
    /// A convolution of `[batch, channels, depth, height, width]`. Weight and bias are initialized
    /// uniformly over ±1/√(inputs / groups · window).
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Conv3d, Layer}};
    /// let layer = Conv3d::new(2, 4, [3, 3, 1]).padding([1, 1, 0]);
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 2, 5, 6, 7])).shape(), [1, 4, 5, 6, 7]);
    /// ```
    Conv3d 3 [outputs, inputs] try_conv2d;
    /// The transpose of a [`Conv1d`], over `[batch, channels, length]`; upsamples where the
    /// convolution downsamples.
    ConvTranspose1d 1 [inputs, outputs] try_conv_transpose2d;
    /// The transpose of a [`Conv2d`], over `[batch, channels, height, width]`; upsamples where the
    /// convolution downsamples.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{ConvTranspose2d, Layer}};
    /// let layer = ConvTranspose2d::new(16, 3, 4).stride(2).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 16, 7, 7])).shape(), [8, 3, 14, 14]);
    /// ```
    ConvTranspose2d 2 [inputs, outputs] try_conv_transpose2d;
    /// The transpose of a [`Conv3d`], over `[batch, channels, depth, height, width]`.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{ConvTranspose3d, Layer}};
    /// let layer = ConvTranspose3d::new(4, 2, 2).stride(2);
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 4, 2, 3, 4])).shape(), [1, 2, 4, 6, 8]);
    /// ```
    ConvTranspose3d 3 [inputs, outputs] try_conv_transpose2d;
}

macro_rules! output_padding {
    ($($name:ident)*) => { $(
        impl $name {
            /// Adds elements at the end of each axis. A strided convolution maps several input
            /// sizes to one output size; this selects the input size.
            ///
            /// ```
            #[doc = weight_example!($name "(3, 8, 5).output_padding(1)", "weight.size(-1), 5")]
            /// ```
            pub fn output_padding(self, output_padding: impl Into<Spatial>) -> $name {
                $name { how: self.how.output_padding(output_padding), ..self }
            }
        }
    )* };
}
output_padding! { ConvTranspose1d ConvTranspose2d ConvTranspose3d }
