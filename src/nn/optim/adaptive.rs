//! RMSprop, Adagrad and Adadelta: steps scaled by the magnitude of past gradients. Formulas,
//! defaults and state names are PyTorch's.

use super::declare::{rule, settings_of_rule, step_example};
use super::sgd::decayed;
use super::{Rule, Update};
use crate::error::Result;
use crate::tensor::Tensor;

rule! {
    /// RMSprop (Hinton, 2012): divides by the root of a moving average of squared gradients.
    RMSprop {
        /// Creates RMSprop with alpha 0.99 and eps 1e-8, without momentum and weight decay.
        new;
        /// Sets the decay of the moving averages.
        alpha: f64 = 0.99, "0.9";
        /// Sets the number added to the root.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 0.0, "0.1";
        /// Sets the momentum.
        momentum: f64 = 0.0, "0.9";
    }
    flags {
        /// Subtracts the squared moving average of gradients, so that the divisor estimates the
        /// standard deviation.
        centered;
    }
}

impl Rule for RMSprop {
    settings_of_rule!();
    fn state(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        let (square, rest) = now.state.split_first().expect("a mean of squares");
        square.assign((square * self.alpha).try_add(grad.square() * (1.0 - self.alpha))?)?;
        let mut spread = square.clone();
        if self.centered {
            let mean = rest.last().expect("a mean of gradients");
            mean.assign(mean.try_add(grad.try_sub(mean)? * (1.0 - self.alpha))?)?;
            spread = spread.try_sub(mean.square())?;
        }
        let mut step = grad.try_div(spread.sqrt() + self.eps)?;
        if self.momentum > 0.0 {
            let buffer = rest.first().expect("a momentum");
            buffer.assign((buffer * self.momentum).try_add(step)?)?;
            step = buffer.clone();
        }
        now.param.try_sub(step.try_mul(now.lr)?)
    }
}

rule! {
    /// Adagrad (Duchi et al., 2011): divides by the root of the sum of all squared gradients.
    Adagrad {
        /// Creates Adagrad with sums from 0 and eps 1e-10, without any decay.
        new;
        /// Sets the decay of the learning rate: in step `t` it is divided by
        /// `1 + (t - 1)·lr_decay`.
        lr_decay: f64 = 0.0, "0.01";
        /// Sets the number added to the root.
        eps: f64 = 1e-10, "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 0.0, "0.1";
        /// Sets the initial value of the sums of squares.
        initial_accumulator_value: f64 = 0.0, "0.5";
    }
}

impl Rule for Adagrad {
    settings_of_rule!("sum");
    fn initial(&self, _place: usize) -> f64 {
        self.initial_accumulator_value
    }
    fn numbers(&self) -> &'static [&'static str] {
        if self.lr_decay == 0.0 { &[] } else { &["step"] }
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        numbers.iter().try_for_each(|step| step.assign(step + 1.0))
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        let [sum] = now.state else { unreachable!("one tensor of state") };
        sum.assign(sum.try_add(grad.square())?)?;
        let lr = match now.numbers {
            [step] => now.lr.try_div((step - 1.0) * self.lr_decay + 1.0)?,
            _ => now.lr.clone(),
        };
        now.param.try_sub(grad.try_div(sum.sqrt() + self.eps)?.try_mul(lr)?)
    }
}

rule! {
    /// Adadelta (Zeiler, 2012): scales by the root mean square of past steps over that of past
    /// gradients.
    Adadelta {
        /// Creates Adadelta with rho 0.9 and eps 1e-6, without weight decay. The usual learning
        /// rate is 1.
        new;
        /// Sets the decay of the moving averages.
        rho: f64 = 0.9, "0.95";
        /// Sets the number added under both roots.
        eps: f64 = 1e-6, "1e-5";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 0.0, "0.1";
    }
}

impl Rule for Adadelta {
    settings_of_rule!("square_avg" "acc_delta");
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        let [square, steps] = now.state else { unreachable!("two tensors of state") };
        square.assign((square * self.rho).try_add(grad.square() * (1.0 - self.rho))?)?;
        let step = (steps + self.eps).sqrt().try_div((square + self.eps).sqrt())?.try_mul(grad)?;
        steps.assign((steps * self.rho).try_add(step.square() * (1.0 - self.rho))?)?;
        now.param.try_sub(step.try_mul(now.lr)?)
    }
}
