//! Batch normalization and its running statistics.

use super::norm::{affine_setting, eps_setting, ones, per_channel, zeros};
use super::{Layer, Mode, Module, unexpected_input};
use crate::error::Result;
use crate::tensor::{Tensor, autocast, no_grad, realize_with_step};

/// Batch normalization per channel over the batch and all positions (Ioffe and Szegedy, 2015), for
/// `[batch, channels]` and `[batch, channels, …]` of any rank. In training it uses the statistics
/// of the batch and updates running statistics, which evaluation uses.
#[derive(Module)]
pub struct BatchNorm {
    /// The scale of each channel.
    pub weight: Option<Tensor>,
    /// The shift of each channel.
    pub bias: Option<Tensor>,
    /// The running mean of each channel.
    pub running_mean: Option<Tensor>,
    /// The running variance of each channel, as an estimate of the population variance.
    pub running_var: Option<Tensor>,
    /// Number of batches in the running statistics.
    pub num_batches_tracked: Option<Tensor>,
    features: usize,
    eps: f64,
    momentum: Option<f64>,
    mode: Mode,
}

eps_setting! { BatchNorm "(2)" "[4, 2]"; }
affine_setting! { BatchNorm "(2)"; }

impl BatchNorm {
    /// Creates a norm over `features` channels with scale and shift, an eps of 1e-5 and a momentum
    /// of 0.1.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{BatchNorm, Layer, Module}};
    /// let norm = BatchNorm::new(2);
    /// let x = Tensor::new([[1.0f32, 10.0], [3.0, 30.0]]);
    /// let y = norm.forward(&x).to_vec::<f32>()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 1.0).abs() < 1e-4);
    /// norm.eval();
    /// let mean = norm.running_mean.as_ref().unwrap().to_vec::<f32>()?;
    /// // A tenth of the way from 0.
    /// assert!((mean[0] - 0.2).abs() < 1e-6 && (mean[1] - 2.0).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
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
    /// Sets the weight of a batch in the running statistics; `None` uses the cumulative mean over
    /// all batches.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{BatchNorm, Layer};
    /// let norm = BatchNorm::new(1).momentum(1.0);
    /// norm.forward(&Tensor::new([[1.0f32], [3.0]])).realize()?;
    /// assert_eq!(norm.running_mean.unwrap().to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn momentum(self, momentum: impl Into<Option<f64>>) -> BatchNorm {
        BatchNorm { momentum: momentum.into(), ..self }
    }
    /// Enables or disables running statistics. Without them, evaluation uses batch statistics too.
    ///
    /// ```
    /// use picograd::nn::BatchNorm;
    /// assert!(BatchNorm::new(1).track_running_stats(false).running_mean.is_none());
    /// ```
    pub fn track_running_stats(self, track: bool) -> BatchNorm {
        /// From this number of features on, memory is allocated when values are requested, where an
        /// error can be returned.
        const MANY: usize = 1 << 20;
        let n = self.features;
        // In memory, not literals, so that the second step runs the kernels of the first.
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

    /// Updates the running statistics with those of a batch of `n` elements per channel.
    fn track(&self, mean: &Tensor, var: &Tensor, n: usize) -> Result<()> {
        let (Some(running_mean), Some(running_var), Some(count)) =
            (&self.running_mean, &self.running_var, &self.num_batches_tracked)
        else {
            return Ok(());
        };
        // Without an optimizer step in between, the statistics of the last batch are realized now;
        // otherwise every batch would stay alive.
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
            return unexpected_input("BatchNorm", format_args!("[batch, {n}, …]"), x);
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
                        return unexpected_input(
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
