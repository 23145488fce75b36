//! Normalisation layers: statistics over some axes, then a scale and a shift that are learned.

use super::{Layer, Mode, Module, unfit};
use crate::dtype::{DType, promote};
use crate::error::{Error, Result};
use crate::tensor::{Sizes, Tensor, autocast, no_grad, or_panic, realize_with_step};

fn ones(n: usize) -> Option<Tensor> {
    Some(Tensor::ones([n]).as_param())
}
fn zeros(n: usize) -> Option<Tensor> {
    Some(Tensor::zeros([n]).as_param())
}

/// One number per channel, to go with `[batch, channels, …]`.
fn per_channel(t: &Tensor, axes: usize) -> Result<Tensor> {
    let shape: Vec<usize> =
        t.shape().into_iter().chain(std::iter::repeat_n(1, axes.saturating_sub(2))).collect();
    t.try_reshape(shape)
}

/// The dtype of a normalisation of narrow floats under autocast, as in PyTorch's lists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Autocast {
    /// `f32`: `layer_norm`, `group_norm` and `rms_norm` are in the list of `f32`.
    Wide,
    /// That of the input: `batch_norm`, which `instance_norm` is made of, is in no list.
    Kept,
}

/// Runs a normalisation, and the scale and shift after it, in `f32` for narrower floats. The result
/// is rounded once, to the dtype that the input and the parameters make, or to that of autocast.
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

/// Scaled and shifted per channel, where there is a scale and a shift.
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

/// Normalisation per channel over the batch and all places (Ioffe and Szegedy, 2015), for `[batch,
/// channels]` and `[batch, channels, …]` of any rank. In training the statistics are those of the
/// batch, and running means of them are kept, which take over in evaluation.
///
/// ```
/// use picograd::{Tensor, nn::{BatchNorm, Layer, Module}};
/// let norm = BatchNorm::new(2);
/// let x = Tensor::new([[1.0f32, 10.0], [3.0, 30.0]]);
/// let y = norm.forward(&x).to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 1.0).abs() < 1e-4);
/// norm.eval();
/// let mean = norm.running_mean.as_ref().unwrap().to_vec::<f32>()?;
/// assert!((mean[0] - 0.2).abs() < 1e-6 && (mean[1] - 2.0).abs() < 1e-6); // a tenth of the way from 0
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Module)]
pub struct BatchNorm {
    /// The scale of each channel.
    pub weight: Option<Tensor>,
    /// The shift of each channel.
    pub bias: Option<Tensor>,
    /// The running mean of each channel.
    pub running_mean: Option<Tensor>,
    /// The running variance of each channel, an estimate for the population.
    pub running_var: Option<Tensor>,
    /// How many batches the running statistics have seen.
    pub num_batches_tracked: Option<Tensor>,
    features: usize,
    eps: f64,
    momentum: Option<f64>,
    mode: Mode,
}

impl BatchNorm {
    /// Over so many channels, with scale and shift, an eps of 1e-5 and running statistics that go a
    /// tenth of the way with each batch.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{BatchNorm, Layer},
    /// };
    /// assert_eq!(BatchNorm::new(2).forward(&Tensor::zeros([4, 2])).shape(), [4, 2]);
    /// ```
    pub fn new(features: usize) -> BatchNorm {
        let mode = Mode::default();
        let (weight, bias) = (ones(features), zeros(features));
        let none = BatchNorm {
            weight,
            bias,
            running_mean: None,
            running_var: None,
            num_batches_tracked: None,
            features,
            eps: 1e-5,
            momentum: Some(0.1),
            mode,
        };
        none.track_running_stats(true)
    }
    /// What is added to the variance.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{BatchNorm, Layer},
    /// };
    /// let y = BatchNorm::new(2).eps(1e-3).forward(&Tensor::zeros([4, 2]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> BatchNorm {
        BatchNorm { eps, ..self }
    }
    /// How far the running statistics go toward those of a batch; `None` makes them the plain mean
    /// over all batches.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{BatchNorm, Layer},
    /// };
    /// let norm = BatchNorm::new(1).momentum(1.0);
    /// norm.forward(&Tensor::new([[1.0f32], [3.0]])).realize()?;
    /// assert_eq!(norm.running_mean.unwrap().to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn momentum(self, momentum: impl Into<Option<f64>>) -> BatchNorm {
        BatchNorm { momentum: momentum.into(), ..self }
    }
    /// With or without scale and shift.
    ///
    /// ```
    /// use picograd::nn::BatchNorm;
    /// assert!(BatchNorm::new(2).affine(false).weight.is_none());
    /// ```
    pub fn affine(self, affine: bool) -> BatchNorm {
        BatchNorm {
            weight: self.weight.filter(|_| affine),
            bias: self.bias.filter(|_| affine),
            ..self
        }
    }
    /// With or without running statistics. Without, evaluation takes those of the batch too.
    ///
    /// ```
    /// use picograd::nn::BatchNorm;
    /// assert!(BatchNorm::new(1).track_running_stats(false).running_mean.is_none());
    /// ```
    pub fn track_running_stats(self, track: bool) -> BatchNorm {
        /// Features from which on memory is asked for when the numbers are, where there is an error
        /// to return.
        const MANY: usize = 1 << 20;
        let n = self.features;
        // Numbers in memory, not literals: the second step then runs the kernels of the first.
        let made = |value: f32| {
            if n < MANY {
                Tensor::from_vec(vec![value; n], [n])
            } else {
                Tensor::full([n], value).contiguous()
            }
        };
        let stored = |value: f32| track.then(|| made(value));
        let count = track.then(|| Tensor::new([0i64]).reshape(()));
        BatchNorm {
            running_mean: stored(0.0),
            running_var: stored(1.0),
            num_batches_tracked: count,
            ..self
        }
    }

    /// Moves the running statistics toward those of a batch of `n` elements per channel.
    fn track(&self, mean: &Tensor, var: &Tensor, n: usize) -> Result<()> {
        let (Some(running_mean), Some(running_var), Some(count)) =
            (&self.running_mean, &self.running_var, &self.num_batches_tracked)
        else {
            return Ok(());
        };
        // Without an optimizer's step between, the last batch's are computed now; otherwise every
        // batch would be held.
        Tensor::realize_many(&[running_mean, running_var, count])?;
        no_grad(|| {
            count.assign(count.try_add(1)?)?;
            let population = var.detach() * (n as f64 / (n as f64 - 1.0));
            for (running, batch) in [(running_mean, mean.detach()), (running_var, population)] {
                let apart = batch.try_reshape([self.features])?.try_sub(running)?;
                let step = match self.momentum {
                    Some(m) => apart * m,
                    None => apart.try_div(count)?,
                };
                running.assign(running.try_add(step)?)?;
                realize_with_step(running);
            }
            realize_with_step(count);
            Ok(())
        })
    }
}

impl Layer for BatchNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        let n = self.features;
        if x.ndim() < 2 || x.size(1) != n {
            return unfit("BatchNorm", format_args!("[batch, {n}, …]"), x);
        }
        let (mean, var) = match (&self.running_mean, &self.running_var) {
            (Some(mean), Some(var)) if !self.mode.is_training() => {
                (per_channel(mean, x.ndim())?, per_channel(var, x.ndim())?)
            }
            _ => {
                let (mean, var) = x.batch_stats()?;
                if self.mode.is_training() {
                    x.require_static("BatchNorm in training", 0..x.ndim())?;
                    let each = x.numel() / n.max(1);
                    if each < 2 {
                        return unfit(
                            "BatchNorm",
                            "two elements or more per channel in training",
                            x,
                        );
                    }
                    self.track(&mean, &var, each)?;
                }
                (mean, var)
            }
        };
        let y = x.try_batchnorm(
            self.weight.as_ref(),
            self.bias.as_ref(),
            &mean,
            &(var + self.eps).rsqrt(),
        )?;
        if autocast::is_on() { y.try_cast(x.dtype()) } else { Ok(y) }
    }
}

/// Normalisation over the last axes (Ba and others, 2016).
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::{Layer, LayerNorm},
/// };
/// let y = LayerNorm::new(3).forward(&Tensor::new([[1.0f32, 2.0, 3.0]])).to_vec::<f32>()?;
/// assert!((y[0] + 1.2247).abs() < 1e-3 && y[1] == 0.0);
/// # Ok::<(), picograd::Error>(())
/// ```
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
    /// Over the last axes, which have these sizes; with scale and shift, and an eps of 1e-5. Panics
    /// if a size is negative.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, LayerNorm},
    /// };
    /// assert_eq!(LayerNorm::new(2).forward(&Tensor::zeros([1, 2])).shape(), [1, 2]);
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
    /// What is added to the variance.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, LayerNorm},
    /// };
    /// let y = LayerNorm::new(2).eps(1e-3).forward(&Tensor::zeros([1, 2]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }
    /// With or without scale and shift.
    ///
    /// ```
    /// use picograd::nn::LayerNorm;
    /// assert!(LayerNorm::new(2).affine(false).weight.is_none());
    /// ```
    pub fn affine(self, affine: bool) -> LayerNorm {
        LayerNorm { weight: self.weight.filter(|_| affine), ..self }.bias(affine)
    }
    /// With or without the shift alone.
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

/// The last axes of an input, if they have these sizes.
fn last_axes(layer: &'static str, x: &Tensor, shape: &[usize]) -> Result<Vec<isize>> {
    if !x.max_shape().ends_with(shape) {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        return unfit(layer, format_args!("[…, {}]", sizes.join(", ")), x);
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

/// [`LayerNorm`] over the channels of `[batch, channels, height, width]`, at each place by itself.
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::{Layer, LayerNorm2d},
/// };
/// assert_eq!(
///     LayerNorm2d::new(8).forward(&Tensor::ones([2, 8, 4, 4])).shape(),
///     [2, 8, 4, 4]
/// );
/// ```
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
    /// Over so many channels, with scale and shift, and an eps of 1e-5.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, LayerNorm2d},
    /// };
    /// assert_eq!(
    ///     LayerNorm2d::new(2).forward(&Tensor::zeros([1, 2, 3, 3])).shape(),
    ///     [1, 2, 3, 3]
    /// );
    /// ```
    pub fn new(channels: usize) -> LayerNorm2d {
        LayerNorm2d { weight: ones(channels), bias: zeros(channels), channels, eps: 1e-5 }
    }
    /// What is added to the variance.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, LayerNorm2d},
    /// };
    /// let y = LayerNorm2d::new(2).eps(1e-3).forward(&Tensor::zeros([1, 2, 3, 3]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> LayerNorm2d {
        LayerNorm2d { eps, ..self }
    }
    /// With or without scale and shift.
    ///
    /// ```
    /// use picograd::nn::LayerNorm2d;
    /// assert!(LayerNorm2d::new(2).affine(false).weight.is_none());
    /// ```
    pub fn affine(self, affine: bool) -> LayerNorm2d {
        LayerNorm2d {
            weight: self.weight.filter(|_| affine),
            bias: self.bias.filter(|_| affine),
            ..self
        }
    }
}

impl Layer for LayerNorm2d {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() != 4 || x.size(1) != self.channels {
            return unfit(
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

/// Normalisation of each sample over groups of channels and all places (Wu and He, 2018).
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::{GroupNorm, Layer},
/// };
/// assert_eq!(
///     GroupNorm::new(2, 8).forward(&Tensor::ones([2, 8, 4, 4])).shape(),
///     [2, 8, 4, 4]
/// );
/// ```
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
    /// `channels` in so many groups, with scale and shift, and an eps of 1e-5. Panics if they do
    /// not divide.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{GroupNorm, Layer},
    /// };
    /// assert_eq!(GroupNorm::new(1, 2).forward(&Tensor::zeros([1, 2, 3])).shape(), [1, 2, 3]);
    /// ```
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        assert!(
            groups > 0 && channels.is_multiple_of(groups),
            "GroupNorm: {channels} channels do not divide into {groups} groups"
        );
        GroupNorm { weight: ones(channels), bias: zeros(channels), groups, channels, eps: 1e-5 }
    }
    /// What is added to the variance.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{GroupNorm, Layer},
    /// };
    /// let y = GroupNorm::new(1, 2).eps(1e-3).forward(&Tensor::zeros([1, 2, 3]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
    }
    /// With or without scale and shift.
    ///
    /// ```
    /// use picograd::nn::GroupNorm;
    /// assert!(GroupNorm::new(1, 2).affine(false).weight.is_none());
    /// ```
    pub fn affine(self, affine: bool) -> GroupNorm {
        GroupNorm {
            weight: self.weight.filter(|_| affine),
            bias: self.bias.filter(|_| affine),
            ..self
        }
    }
}

/// Each sample normalised over groups of its channels and all places.
fn by_groups(x: &Tensor, groups: usize, eps: f64) -> Result<Tensor> {
    let shape = x.max_shape();
    // Without a channel there is nothing to divide among groups.
    let Some(inside) = shape[1..].iter().product::<usize>().checked_div(groups) else {
        return Ok(x.clone());
    };
    x.try_reshape([shape[0], groups, inside])?.try_layernorm(-1, eps)?.try_reshape(shape)
}

impl Layer for GroupNorm {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() < 2 || x.size(1) != self.channels {
            return unfit("GroupNorm", format_args!("[batch, {}, …]", self.channels), x);
        }
        rounded_once(x, [&self.weight, &self.bias], Autocast::Wide, |x| {
            affine(&by_groups(x, self.groups, self.eps)?, &self.weight, &self.bias)
        })
    }
}

/// Normalisation of each channel of each sample over all places (Ulyanov and others, 2016), without
/// scale and shift unless they are asked for.
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::{InstanceNorm, Layer},
/// };
/// let y = InstanceNorm::new(1).forward(&Tensor::new([[[1.0f32, 3.0]]])).to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
/// # Ok::<(), picograd::Error>(())
/// ```
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
    /// Over so many channels, with an eps of 1e-5.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{InstanceNorm, Layer},
    /// };
    /// assert_eq!(InstanceNorm::new(2).forward(&Tensor::zeros([1, 2, 3])).shape(), [1, 2, 3]);
    /// ```
    pub fn new(channels: usize) -> InstanceNorm {
        InstanceNorm { weight: None, bias: None, channels, eps: 1e-5 }
    }
    /// What is added to the variance.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{InstanceNorm, Layer},
    /// };
    /// let y = InstanceNorm::new(2).eps(1e-3).forward(&Tensor::zeros([1, 2, 3]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> InstanceNorm {
        InstanceNorm { eps, ..self }
    }
    /// With or without scale and shift, which start anew.
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
            return unfit("InstanceNorm", format_args!("[batch, {}, length, …]", self.channels), x);
        }
        if x.max_shape()[2..].iter().product::<usize>() == 1 {
            return Err(Error::Shape {
                op: "InstanceNorm",
                msg: format!("{:?} has one place per channel, which is its own mean", x.shape()),
            });
        }
        rounded_once(x, [&self.weight, &self.bias], Autocast::Kept, |x| {
            affine(&by_groups(x, self.channels, self.eps)?, &self.weight, &self.bias)
        })
    }
}

/// The elements over the root of their mean square along the last axis (Zhang and Sennrich, 2019),
/// times a scale.
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::{Layer, RMSNorm},
/// };
/// let y = RMSNorm::new(2).forward(&Tensor::new([[1.0f32, 7.0]])).to_vec::<f32>()?;
/// assert!((y[0] - 0.2).abs() < 1e-5 && (y[1] - 1.4).abs() < 1e-5);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Module)]
pub struct RMSNorm {
    /// The scale of each element.
    pub weight: Option<Tensor>,
    size: usize,
    eps: f64,
}

impl RMSNorm {
    /// Over a last axis of this size, with a scale, and the eps of `f32`.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, RMSNorm},
    /// };
    /// assert_eq!(RMSNorm::new(2).forward(&Tensor::zeros([1, 2])).shape(), [1, 2]);
    /// ```
    pub fn new(size: usize) -> RMSNorm {
        RMSNorm { weight: ones(size), size, eps: f32::EPSILON as f64 }
    }
    /// What is added to the mean square.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::{Layer, RMSNorm},
    /// };
    /// let y = RMSNorm::new(2).eps(1e-3).forward(&Tensor::zeros([1, 2]));
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> RMSNorm {
        RMSNorm { eps, ..self }
    }
    /// With or without the scale.
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
