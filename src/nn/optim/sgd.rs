//! Stochastic gradient descent, and LARS.

use super::{Rule, Update, maximize};
use crate::error::Result;
use crate::tensor::Tensor;

/// Stochastic gradient descent, optionally with momentum.
///
/// ```
/// use picograd::Tensor;
/// use picograd::nn::optim::{Optimizer, SGD};
/// let x = Tensor::new([1.0f32]).as_param();
/// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
/// x.square().sum(..).backward();
/// optimizer.step()?;
/// assert_eq!(x.item::<f32>()?, 0.5);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SGD {
    lr: f64,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
    maximize: bool,
}

impl SGD {
    /// Creates SGD without momentum at this learning rate.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> SGD {
        SGD {
            lr,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            maximize: false,
        }
    }
    /// Sets the momentum.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25).momentum(0.9))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(
    ///     optimizer.state_dict().require("state.0.momentum_buffer")?.to_vec::<f32>()?,
    ///     [2.0]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn momentum(self, momentum: f64) -> SGD {
        SGD { momentum, ..self }
    }
    /// Sets the dampening of gradients in the momentum, after the first step.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer =
    ///     Optimizer::new([x.clone()], SGD::new(0.25).momentum(0.9).dampening(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.5); // the first is whole
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn dampening(self, dampening: f64) -> SGD {
        SGD { dampening, ..self }
    }
    /// Enables Nesterov momentum (Sutskever et al., 2013).
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25).momentum(1.0).nesterov())?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.0); // twice the step of plain momentum
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn nesterov(self) -> SGD {
        SGD { nesterov: true, ..self }
    }
    /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25).weight_decay(2.0))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight_decay(self, weight_decay: f64) -> SGD {
        SGD { weight_decay, ..self }
    }
}

impl Rule for SGD {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }
    fn numbers(&self) -> &'static [&'static str] {
        // 0 before the first step, 1 after.
        if self.momentum == 0.0 || self.dampening == 0.0 { &[] } else { &["dampened", "started"] }
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        let [dampened, started] = numbers else { return Ok(()) };
        dampened.assign(started * self.dampening)?;
        // Not a literal, which would need another kernel than later steps.
        started.assign(started.try_maximum(1.0)?)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let mut direction = decayed(now.grad, now.param, self.weight_decay)?;
        if let [momentum] = now.state {
            let fresh = match now.numbers {
                [dampened, _] => direction.try_mul(1.0 - dampened)?,
                _ => direction.clone(),
            };
            momentum.assign((momentum * self.momentum).try_add(fresh)?)?;
            direction = if self.nesterov {
                direction.try_add(momentum * self.momentum)?
            } else {
                momentum.clone()
            };
        }
        now.param.try_sub(direction.try_mul(now.lr)?)
    }
}

maximize! { SGD: maximize; LARS: maximize; }

/// The gradient with the L2 penalty added.
pub(super) fn decayed(grad: &Tensor, param: &Tensor, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 { Ok(grad.clone()) } else { grad.try_add(param * weight_decay) }
}

/// The L2 norm of all elements, of rank 0.
pub(super) fn length(x: &Tensor) -> Result<Tensor> {
    Ok(x.square().try_sum(..)?.sqrt())
}

/// LARS (You et al., 2017): SGD with momentum whose steps are scaled by the ratio of the
/// parameter's norm to the gradient's, for large batches.
#[derive(Clone, Debug)]
pub struct LARS {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    maximize: bool,
    trust: f64,
}

impl LARS {
    /// Momentum 0.9, weight decay 1e-4, trust coefficient 0.001.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LARS, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], LARS::new(1.0))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> LARS {
        LARS {
            lr,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 1e-4,
            maximize: false,
            trust: 1e-3,
        }
    }
    /// Sets the momentum.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LARS, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], LARS::new(1.0).momentum(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn momentum(self, momentum: f64) -> LARS {
        LARS { momentum, ..self }
    }
    /// Enables Nesterov momentum.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LARS, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], LARS::new(1.0).nesterov())?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn nesterov(self) -> LARS {
        LARS { nesterov: true, ..self }
    }
    /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LARS, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], LARS::new(1.0).weight_decay(0.0))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight_decay(self, weight_decay: f64) -> LARS {
        LARS { weight_decay, ..self }
    }
    /// Sets the norm of a step relative to that of its parameter, before the learning rate.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LARS, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer =
    ///     Optimizer::new([x.clone()], LARS::new(1.0).weight_decay(0.0).trust_coefficient(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.5); // half of its length
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn trust_coefficient(self, trust: f64) -> LARS {
        LARS { trust, ..self }
    }
}

impl Rule for LARS {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let (param, grad) = (length(now.param)?, length(now.grad)?);
        let ratio = (&param * self.trust).try_div(grad.try_add(&param * self.weight_decay)?)?;
        // The ratio is 1 if the parameter or the gradient is zero.
        let ratio =
            param.try_gt(0.0)?.try_bitwise_and(grad.try_gt(0.0)?)?.try_where_(ratio, 1.0)?;
        let step =
            decayed(now.grad, now.param, self.weight_decay)?.try_mul(ratio.try_mul(now.lr)?)?;
        let [momentum] = now.state else { unreachable!("one tensor of state") };
        momentum.assign((momentum * self.momentum).try_add(&step)?)?;
        let step =
            if self.nesterov { step.try_add(momentum * self.momentum)? } else { momentum.clone() };
        now.param.try_sub(step)
    }
}
