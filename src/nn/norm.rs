//! Normalization layers: statistics over some axes, then a learned scale and shift.

use super::{Layer, Module, unexpected_input};
use crate::dtype::{DType, promote};
use crate::error::{Error, Result};
use crate::tensor::{Sizes, Tensor, autocast, or_panic};

pub(super) fn ones(n: usize) -> Option<Tensor> {
    Some(Tensor::ones([n]).as_param())
}
pub(super) fn zeros(n: usize) -> Option<Tensor> {
    Some(Tensor::zeros([n]).as_param())
}

/// Reshapes one value per channel to broadcast with `[batch, channels, …]`.
pub(super) fn per_channel(t: &Tensor, axes: usize) -> Result<Tensor> {
    let shape: Vec<usize> =
        t.shape().into_iter().chain(std::iter::repeat_n(1, axes.saturating_sub(2))).collect();
    t.try_reshape(shape)
}

/// Generates the setting of eps; the literals are arguments and an input of the example.
macro_rules! eps_setting {
    ($($name:ident $new:literal $input:literal;)*) => { $(
        impl $name {
            /// Sets the number added to the variance, or to the mean square.
            ///
            /// ```
            #[doc = concat!("use picograd::{Tensor, nn::{Layer, ", stringify!($name), "}};")]
            #[doc = concat!("let norm = ", stringify!($name), "::new", $new, ".eps(1e-3);")]
            #[doc = concat!("let y = norm.forward(&Tensor::zeros(", $input, "));")]
            /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
            /// # Ok::<(), picograd::Error>(())
            /// ```
            pub fn eps(self, eps: f64) -> $name {
                $name { eps, ..self }
            }
        }
    )* };
}
pub(super) use eps_setting;
eps_setting! {
    LayerNorm "(2)" "[1, 2]";
    LayerNorm2d "(2)" "[1, 2, 3, 3]";
    GroupNorm "(1, 2)" "[1, 2, 3]";
    InstanceNorm "(2)" "[1, 2, 3]";
    RMSNorm "(2)" "[1, 2]";
}

/// Generates the setting of scale and shift.
macro_rules! affine_setting {
    ($($name:ident $new:literal;)*) => { $(
        impl $name {
            /// Enables or disables scale and shift.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::", stringify!($name), ";")]
            #[doc = concat!("let norm = ", stringify!($name), "::new", $new, ".affine(false);")]
            /// assert!(norm.weight.is_none() && norm.bias.is_none());
            /// ```
            pub fn affine(self, affine: bool) -> $name {
                $name {
                    weight: self.weight.filter(|_| affine),
                    bias: self.bias.filter(|_| affine),
                    ..self
                }
            }
        }
    )* };
}
pub(super) use affine_setting;
affine_setting! { LayerNorm "(2)"; LayerNorm2d "(2)"; GroupNorm "(1, 2)"; }

/// The dtype of a normalization of narrow floats under autocast, as in PyTorch's lists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Autocast {
    /// `f32`: `layer_norm`, `group_norm` and `rms_norm` are in PyTorch's `f32` list.
    Wide,
    /// The dtype of the input: `batch_norm`, which `instance_norm` uses, is in no list.
    Kept,
}

/// Runs a normalization with its scale and shift in `f32` for narrower floats. The result is
/// rounded once, to the promoted dtype of input and parameters, or to that of autocast.
fn rounded_once(
    x: &Tensor,
    params: [&Option<Tensor>; 2],
    cast: Autocast,
    f: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let dtype = x.dtype();
    if !dtype.is_float() || dtype.bits() >= 32 {
        return f(x);
    }
    let out = match cast {
        Autocast::Wide if autocast::is_on() => DType::F32,
        Autocast::Kept if autocast::is_on() => dtype,
        _ => params.into_iter().flatten().fold(dtype, |d, p| promote(d, p.dtype())),
    };
    f(&x.try_cast(DType::F32)?)?.try_cast(out)
}

/// Applies the scale and the shift per channel, if present.
fn affine(x: &Tensor, weight: &Option<Tensor>, bias: &Option<Tensor>) -> Result<Tensor> {
    let mut x = x.clone();
    if let Some(w) = weight {
        x = x.try_mul(per_channel(w, x.ndim())?)?;
    }
    if let Some(b) = bias {
        x = x.try_add(per_channel(b, x.ndim())?)?;
    }
    Ok(x)
}

/// Layer normalization over the last axes (Ba et al., 2016).
#[derive(Module)]
pub struct LayerNorm {
    /// The scale of each element.
    pub weight: Option<Tensor>,
    /// The shift of each element.
    pub bias: Option<Tensor>,
    shape: Vec<usize>,
    eps: f64,
}

impl LayerNorm {
    /// Creates a norm over last axes of these sizes, with scale and shift and an eps of 1e-5.
    /// Panics if a size is negative.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, LayerNorm};
    /// let y = LayerNorm::new(3).forward(&Tensor::new([[1.0f32, 2.0, 3.0]])).to_vec::<f32>()?;
    /// assert!((y[0] + 1.2247).abs() < 1e-3 && y[1] == 0.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[track_caller]
    pub fn new(shape: impl Into<Sizes>) -> LayerNorm {
        let shape = or_panic(shape.into().shape("LayerNorm")).to_vec();
        LayerNorm {
            weight: Some(Tensor::ones(&shape).as_param()),
            bias: Some(Tensor::zeros(&shape).as_param()),
            shape,
            eps: 1e-5,
        }
    }
    /// Enables or disables the shift only.
    ///
    /// ```
    /// use picograd::nn::LayerNorm;
    /// let norm = LayerNorm::new(2).bias(false);
    /// assert!(norm.weight.is_some() && norm.bias.is_none());
    /// ```
    pub fn bias(self, bias: bool) -> LayerNorm {
        LayerNorm { bias: self.bias.filter(|_| bias), ..self }
    }
}

/// Returns the last axes of an input, if they have these sizes.
fn last_axes(layer: &'static str, x: &Tensor, shape: &[usize]) -> Result<Vec<isize>> {
    if !x.max_shape().ends_with(shape) {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        return unexpected_input(layer, format_args!("[…, {}]", sizes.join(", ")), x);
    }
    Ok((1..=shape.len() as isize).map(|a| -a).collect())
}

impl Layer for LayerNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        let axes = last_axes("LayerNorm", x, &self.shape)?;
        rounded_once(x, [&self.weight, &self.bias], Autocast::Wide, |x| {
            let mut y = x.try_layernorm(axes, self.eps)?;
            if let Some(w) = &self.weight {
                y = y.try_mul(w)?;
            }
            match &self.bias {
                Some(b) => y.try_add(b),
                None => Ok(y),
            }
        })
    }
}

/// [`LayerNorm`] over the channels of `[batch, channels, height, width]`, per position.
#[derive(Module)]
pub struct LayerNorm2d {
    /// The scale of each channel.
    pub weight: Option<Tensor>,
    /// The shift of each channel.
    pub bias: Option<Tensor>,
    channels: usize,
    eps: f64,
}

impl LayerNorm2d {
    /// Creates a norm over `channels` channels, with scale and shift and an eps of 1e-5.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, LayerNorm2d};
    /// assert_eq!(
    ///     LayerNorm2d::new(8).forward(&Tensor::ones([2, 8, 4, 4])).shape(),
    ///     [2, 8, 4, 4]
    /// );
    /// ```
    pub fn new(channels: usize) -> LayerNorm2d {
        LayerNorm2d { weight: ones(channels), bias: zeros(channels), channels, eps: 1e-5 }
    }
}

impl Layer for LayerNorm2d {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() != 4 || x.size(1) != self.channels {
            return unexpected_input(
                "LayerNorm2d",
                format_args!("[batch, {}, height, width]", self.channels),
                x,
            );
        }
        rounded_once(x, [&self.weight, &self.bias], Autocast::Wide, |x| {
            affine(&x.try_layernorm(1, self.eps)?, &self.weight, &self.bias)
        })
    }
}

/// Group normalization (Wu and He, 2018): normalizes each sample over groups of channels and all
/// positions.
#[derive(Module)]
pub struct GroupNorm {
    /// The scale of each channel.
    pub weight: Option<Tensor>,
    /// The shift of each channel.
    pub bias: Option<Tensor>,
    groups: usize,
    channels: usize,
    eps: f64,
}

impl GroupNorm {
    /// Creates a norm of `channels` channels in `groups` groups, with scale and shift and an eps of
    /// 1e-5. Panics if the channels are not divisible.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{GroupNorm, Layer};
    /// assert_eq!(
    ///     GroupNorm::new(2, 8).forward(&Tensor::ones([2, 8, 4, 4])).shape(),
    ///     [2, 8, 4, 4]
    /// );
    /// ```
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        assert!(
            groups > 0 && channels.is_multiple_of(groups),
            "GroupNorm: {channels} channels are not divisible by {groups} groups"
        );
        GroupNorm { weight: ones(channels), bias: zeros(channels), groups, channels, eps: 1e-5 }
    }
}

/// Normalizes each sample over groups of its channels and all positions.
fn by_groups(x: &Tensor, groups: usize, eps: f64) -> Result<Tensor> {
    let shape = x.max_shape();
    // Without channels there is nothing to group.
    let Some(inside) = shape[1..].iter().product::<usize>().checked_div(groups) else {
        return Ok(x.clone());
    };
    x.try_reshape([shape[0], groups, inside])?.try_layernorm(-1, eps)?.try_reshape(shape)
}

impl Layer for GroupNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() < 2 || x.size(1) != self.channels {
            return unexpected_input("GroupNorm", format_args!("[batch, {}, …]", self.channels), x);
        }
        rounded_once(x, [&self.weight, &self.bias], Autocast::Wide, |x| {
            affine(&by_groups(x, self.groups, self.eps)?, &self.weight, &self.bias)
        })
    }
}

/// Instance normalization (Ulyanov et al., 2016): normalizes each channel of each sample over all
/// positions, by default without scale and shift.
#[derive(Module)]
pub struct InstanceNorm {
    /// The scale of each channel.
    pub weight: Option<Tensor>,
    /// The shift of each channel.
    pub bias: Option<Tensor>,
    channels: usize,
    eps: f64,
}

impl InstanceNorm {
    /// Creates a norm over `channels` channels with an eps of 1e-5.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{InstanceNorm, Layer};
    /// let y = InstanceNorm::new(1).forward(&Tensor::new([[[1.0f32, 3.0]]])).to_vec::<f32>()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(channels: usize) -> InstanceNorm {
        InstanceNorm { weight: None, bias: None, channels, eps: 1e-5 }
    }
    /// Enables or disables scale and shift, and reinitializes them.
    ///
    /// ```
    /// use picograd::nn::InstanceNorm;
    /// assert!(
    ///     InstanceNorm::new(2).weight.is_none()
    ///         && InstanceNorm::new(2).affine(true).weight.is_some()
    /// );
    /// ```
    pub fn affine(self, affine: bool) -> InstanceNorm {
        let n = self.channels;
        InstanceNorm {
            weight: ones(n).filter(|_| affine),
            bias: zeros(n).filter(|_| affine),
            ..self
        }
    }
}

impl Layer for InstanceNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() < 3 || x.size(1) != self.channels {
            return unexpected_input(
                "InstanceNorm",
                format_args!("[batch, {}, length, …]", self.channels),
                x,
            );
        }
        if x.max_shape()[2..].iter().product::<usize>() == 1 {
            return Err(Error::Shape {
                op: "InstanceNorm",
                msg: format!("expected several positions per channel, got {:?}", x.shape()),
            });
        }
        rounded_once(x, [&self.weight, &self.bias], Autocast::Kept, |x| {
            affine(&by_groups(x, self.channels, self.eps)?, &self.weight, &self.bias)
        })
    }
}

/// Root-mean-square normalization over the last axis (Zhang and Sennrich, 2019), times a scale.
#[derive(Module)]
pub struct RMSNorm {
    /// The scale of each element.
    pub weight: Option<Tensor>,
    size: usize,
    eps: f64,
}

impl RMSNorm {
    /// Creates a norm over a last axis of this size, with a scale and the machine epsilon of `f32`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, RMSNorm};
    /// let y = RMSNorm::new(2).forward(&Tensor::new([[1.0f32, 7.0]])).to_vec::<f32>()?;
    /// assert!((y[0] - 0.2).abs() < 1e-5 && (y[1] - 1.4).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(size: usize) -> RMSNorm {
        RMSNorm { weight: ones(size), size, eps: f32::EPSILON as f64 }
    }
    /// Enables or disables the scale.
    ///
    /// ```
    /// use picograd::nn::RMSNorm;
    /// assert!(RMSNorm::new(2).affine(false).weight.is_none());
    /// ```
    pub fn affine(self, affine: bool) -> RMSNorm {
        RMSNorm { weight: self.weight.filter(|_| affine), ..self }
    }
}

impl Layer for RMSNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        let axes = last_axes("RMSNorm", x, &[self.size])?;
        rounded_once(x, [&self.weight, &None], Autocast::Wide, |x| {
            let y = x.try_rmsnorm(axes, self.eps)?;
            match &self.weight {
                Some(w) => y.try_mul(w),
                None => Ok(y),
            }
        })
    }
}
