//! Adam and its variants: steps by the first moment of the gradients over the root of the second.

use super::declare::{rule, settings_of_rule, step_example};
use super::sgd::{decayed, length};
use super::{Rule, Update};
use crate::error::Result;
use crate::tensor::Tensor;

/// The moments, and the maximum of the second one with `amsgrad`.
const STATE: &[&str] = &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
/// `1 - βᵗ` of both moments.
const NUMBERS: &[&str] = &["exp_avg_part", "exp_avg_sq_part"];

/// Updates `1 - βᵗ` from its previous value, which avoids cancellation.
pub(super) fn advance_part(part: &Tensor, beta: f64) -> Result<()> {
    part.assign(part * beta + (1.0 - beta))
}

fn advance_parts(numbers: &[Tensor], betas: (f64, f64)) -> Result<()> {
    numbers.iter().zip([betas.0, betas.1]).try_for_each(|(part, beta)| advance_part(part, beta))
}

/// Updates the first and second moments.
pub(super) fn moments(
    now: &Update<'_>,
    grad: &Tensor,
    betas: (f64, f64),
) -> Result<(Tensor, Tensor)> {
    let [mean, square, ..] = now.state else { unreachable!("two tensors of state, or three") };
    mean.assign((mean * betas.0).try_add(grad * (1.0 - betas.0))?)?;
    square.assign((square * betas.1).try_add(grad.square() * (1.0 - betas.1))?)?;
    Ok((mean.clone(), square.clone()))
}

/// Returns the direction of a step: the first moment over the root of the second, with bias
/// correction.
fn direction(now: &Update<'_>, grad: &Tensor, betas: (f64, f64), eps: f64) -> Result<Tensor> {
    let (mean, mut square) = moments(now, grad, betas)?;
    let [mean_part, square_part] = now.numbers else { unreachable!("two numbers") };
    if let [_, _, greatest] = now.state {
        greatest.assign(greatest.try_maximum(&square)?)?;
        square = greatest.clone();
    }
    mean.try_div(mean_part)?.try_div(square.sqrt().try_div(square_part.sqrt())? + eps)
}

/// Returns the parameter minus `lr·weight_decay` of it.
pub(super) fn shrunk(now: &Update<'_>, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 {
        Ok(now.param.clone())
    } else {
        now.param.try_mul(1.0 - now.lr * weight_decay)
    }
}

rule! {
    /// Adam (Kingma and Ba, 2015). Weight decay is added to the gradient.
    Adam[betas] {
        /// Creates Adam with betas 0.9 and 0.999 and eps 1e-8, without weight decay.
        new;
        /// Sets the number added to the root, which avoids a division by zero.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the weight decay.
        weight_decay: f64 = 0.0, "0.1";
    }
    flags {
        /// Divides by the maximum of the second moment so far (Reddi et al., 2018), so that a step
        /// does not grow when gradients shrink.
        amsgrad;
    }
}

impl Rule for Adam {
    settings_of_rule!();
    fn state(&self) -> &'static [&'static str] {
        if self.amsgrad { STATE } else { &STATE[..2] }
    }
    fn numbers(&self) -> &'static [&'static str] {
        NUMBERS
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        advance_parts(numbers, self.betas)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        now.param.try_sub(direction(now, &grad, self.betas, self.eps)?.try_mul(now.lr)?)
    }
}

rule! {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): each step subtracts
    /// `lr·weight_decay` of the parameter.
    AdamW[betas] {
        /// Creates AdamW with betas 0.9 and 0.999 and eps 1e-8, and weight decay 0.01.
        new;
        /// Sets the number added to the root, which avoids a division by zero.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the weight decay.
        weight_decay: f64 = 0.01, "0.1";
    }
    flags {
        /// Divides by the maximum of the second moment so far (Reddi et al., 2018), so that a step
        /// does not grow when gradients shrink.
        amsgrad;
    }
}

impl Rule for AdamW {
    settings_of_rule!();
    fn state(&self) -> &'static [&'static str] {
        if self.amsgrad { STATE } else { &STATE[..2] }
    }
    fn numbers(&self) -> &'static [&'static str] {
        NUMBERS
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        advance_parts(numbers, self.betas)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let param = shrunk(now, self.weight_decay)?;
        param.try_sub(direction(now, now.grad, self.betas, self.eps)?.try_mul(now.lr)?)
    }
}

rule! {
    /// Adam with steps scaled by the ratio of the parameter's norm to the step's (You et al.,
    /// 2020), for large batches.
    LAMB[betas] {
        /// Creates LAMB with betas 0.9 and 0.999 and eps 1e-6, without weight decay.
        new;
        /// Sets the number added to the root, which avoids a division by zero.
        eps: f64 = 1e-6, "1e-6";
        /// Sets the weight decay.
        weight_decay: f64 = 0.0, "0.1";
    }
}

impl Rule for LAMB {
    settings_of_rule!("exp_avg" "exp_avg_sq");
    fn numbers(&self) -> &'static [&'static str] {
        NUMBERS
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        advance_parts(numbers, self.betas)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let step = direction(now, now.grad, self.betas, self.eps)?;
        let step = decayed(&step, now.param, self.weight_decay)?;
        let (param, size) = (length(now.param)?, length(&step)?);
        // The ratio is 1 if the parameter or the step is zero.
        let there = param.try_gt(0.0)?.try_bitwise_and(size.try_gt(0.0)?)?;
        let ratio = there.try_where_(param.try_div(size)?, 1.0)?;
        now.param.try_sub(step.try_mul(ratio.try_mul(now.lr)?)?)
    }
}
