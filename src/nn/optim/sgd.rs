//! Stochastic gradient descent, and LARS.

use super::declare::{rule, settings_of_rule, step_example};
use super::{Rule, Update};
use crate::error::Result;
use crate::tensor::Tensor;

rule! {
    /// Stochastic gradient descent, optionally with momentum.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, SGD}};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25).momentum(1.0).nesterov())?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.0); // twice the step of plain momentum
    /// # Ok::<(), picograd::Error>(())
    /// ```
    SGD {
        /// Creates SGD without momentum at this learning rate.
        new;
        /// Sets the momentum.
        momentum: f64 = 0.0, "0.9";
        /// Sets the dampening of gradients in the momentum, after the first step.
        dampening: f64 = 0.0, "0.5";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 0.0, "0.1";
    }
    flags {
        /// Enables Nesterov momentum (Sutskever et al., 2013).
        nesterov;
    }
}

impl Rule for SGD {
    settings_of_rule!();
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

/// Returns the gradient with the L2 penalty added.
pub(super) fn decayed(grad: &Tensor, param: &Tensor, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 { Ok(grad.clone()) } else { grad.try_add(param * weight_decay) }
}

/// Returns the L2 norm of all elements, of rank 0.
pub(super) fn length(x: &Tensor) -> Result<Tensor> {
    Ok(x.square().try_sum(..)?.sqrt())
}

rule! {
    /// LARS (You et al., 2017): SGD with momentum whose steps are scaled by the ratio of the
    /// parameter's norm to the gradient's, for large batches.
    LARS {
        /// Creates LARS with momentum 0.9, weight decay 1e-4 and trust coefficient 0.001.
        new;
        /// Sets the momentum.
        momentum: f64 = 0.9, "0.5";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 1e-4, "0.0";
        /// Sets the norm of a step relative to that of its parameter, before the learning rate.
        trust_coefficient: f64 = 1e-3, "0.5";
    }
    flags {
        /// Enables Nesterov momentum.
        nesterov;
    }
}

impl Rule for LARS {
    settings_of_rule!("momentum_buffer");
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let (param, grad) = (length(now.param)?, length(now.grad)?);
        let ratio =
            (&param * self.trust_coefficient).try_div(grad.try_add(&param * self.weight_decay)?)?;
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
