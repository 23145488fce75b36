//! Layers without weights: activations, dropout, flattening. In a chain `Tensor::relu` is the same
//! as [`ReLU`]; the types are for fields and lists.

use super::{Layer, Mode, Module};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, autocast};

macro_rules! activations {
    ($($name:ident $method:ident;)*) => { $(
        #[doc = concat!("[`Tensor::", stringify!($method), "`] as a layer.")]
        #[derive(Module, Clone, Copy, Default, Debug)]
        pub struct $name;

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                Ok(x.$method())
            }
        }
    )* };
}
activations! {
    ReLU relu;
    ReLU6 relu6;
    SELU selu;
    GELU gelu;
    SiLU silu;
    Mish mish;
    Sigmoid sigmoid;
    LogSigmoid logsigmoid;
    Tanh tanh;
    Softsign softsign;
    Hardtanh hardtanh;
    Hardsigmoid hardsigmoid;
    Hardswish hardswish;
}

macro_rules! tuned {
    ($($name:ident $method:ident $what:literal $default:literal;)*) => { $(
        #[doc = concat!("[`Tensor::", stringify!($method), "`] as a layer, with its ", $what, "; ")]
        #[doc = concat!(stringify!($default), " by default.")]
        #[derive(Module, Clone, Copy, Debug)]
        pub struct $name(#[doc = concat!("The ", $what, ".")] pub f64);

        impl Default for $name {
            fn default() -> $name {
                $name($default)
            }
        }
        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                Ok(x.$method(self.0))
            }
        }
    )* };
}
tuned! {
    LeakyReLU leaky_relu "slope below zero" 0.01;
    ELU elu "scale below zero" 1.0;
    CELU celu "scale below zero" 1.0;
    Softplus softplus "steepness" 1.0;
}

macro_rules! along_axis {
    ($($name:ident $method:ident $try_method:ident;)*) => { $(
        #[doc = concat!("[`Tensor::", stringify!($method), "`] along an axis, as a layer.")]
        #[derive(Module, Clone, Copy, Debug)]
        pub struct $name(/** The axis; a negative one counts from the end. */ pub isize);

        impl Layer for $name {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$try_method(self.0)
            }
        }
    )* };
}
along_axis! {
    Softmax softmax try_softmax;
    LogSoftmax log_softmax try_log_softmax;
    Softmin softmin try_softmin;
}

/// The identity.
#[derive(Module, Clone, Copy, Default, Debug)]
pub struct Identity;

impl Layer for Identity {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

/// A relu with a learned slope for negative inputs, shared or per channel (axis 1), initially 0.25.
#[derive(Module)]
pub struct PReLU {
    /// The slopes, `[1]` or `[channels]`.
    pub weight: Tensor,
}

impl PReLU {
    /// Creates `slopes` slopes: one for all channels, or one per channel.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, PReLU};
    /// assert_eq!(
    ///     PReLU::new(1).forward(&Tensor::new([-4.0f32, 4.0])).to_vec::<f32>()?,
    ///     [-1.0, 4.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(slopes: usize) -> PReLU {
        PReLU { weight: Tensor::full([slopes], 0.25f32).as_param() }
    }
}

impl Layer for PReLU {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        let slopes = self.weight.numel();
        let channels = if x.ndim() > 1 { x.size(1) } else { 1 };
        if slopes != 1 && slopes != channels {
            return super::unexpected_input("PReLU", format_args!("[batch, {slopes}, …]"), x);
        }
        let shape: Vec<usize> = std::iter::once(slopes)
            .chain(std::iter::repeat_n(1, x.ndim().saturating_sub(2)))
            .collect();
        // PyTorch's autocast runs it in the narrow dtype.
        let (x, weight) =
            (autocast::narrow_layer(x), autocast::narrow_layer(&self.weight.try_reshape(shape)?));
        x.try_gt(0)?.try_where_(&x, x.try_mul(weight)?)
    }
}

/// Dropout (Srivastava et al., 2014): in training, zeroes each element with a probability and
/// scales the others, so that the mean is preserved. In evaluation it is the identity.
#[derive(Module, Debug)]
pub struct Dropout {
    p: f64,
    mode: Mode,
}

impl Dropout {
    /// Creates dropout with a probability. Panics if it is not between 0 and 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Dropout, Layer, Module};
    /// let layer = Dropout::new(0.5);
    /// let x = Tensor::ones([100]);
    /// assert!(layer.forward(&x).to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
    /// layer.eval();
    /// assert_eq!(layer.forward(&x).to_vec::<f32>()?, [1.0; 100]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[track_caller]
    pub fn new(p: f64) -> Dropout {
        assert!((0.0..=1.0).contains(&p), "Dropout: expected a probability, got {p}");
        Dropout { p, mode: Mode::default() }
    }
    /// Returns the effective probability: 0 in evaluation.
    pub(super) fn rate(&self) -> f64 {
        if self.mode.is_training() { self.p } else { 0.0 }
    }
}

impl Layer for Dropout {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        x.try_dropout(self.rate())
    }
}

/// Flattens the axes from `start` to `end`, both included; by default all but the first.
#[derive(Module, Clone, Copy, Debug)]
pub struct Flatten {
    start: isize,
    end: isize,
}

impl Flatten {
    /// Flattens all axes but the first, which is the batch.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Flatten, Layer};
    /// assert_eq!(Flatten::new().forward(&Tensor::zeros([2, 3, 4])).shape(), [2, 12]);
    /// ```
    pub fn new() -> Flatten {
        Flatten { start: 1, end: -1 }
    }
    /// Sets the axes to flatten.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Flatten, Layer};
    /// assert_eq!(Flatten::new().axes(0, 1).forward(&Tensor::zeros([2, 3, 4])).shape(), [6, 4]);
    /// ```
    pub fn axes(self, start: isize, end: isize) -> Flatten {
        Flatten { start, end }
    }
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new()
    }
}

impl Layer for Flatten {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() == 1 && self.start == 1 && self.end == -1 {
            return Err(Error::Shape {
                op: "Flatten",
                msg: format!("expected a batch axis and others, got {:?}", x.shape()),
            });
        }
        x.try_flatten(self.start, self.end)
    }
}
