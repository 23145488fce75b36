//! NAdam, RAdam and Adamax. Formulas, defaults and state names are PyTorch's.

use super::adam::{advance_part, moments, shrunk};
use super::declare::{rule, settings_of_rule, step_example};
use super::sgd::decayed;
use super::{Rule, Update};
use crate::error::Result;
use crate::tensor::Tensor;

/// Returns the parameter and the gradient after weight decay.
fn with_decay(now: &Update<'_>, weight_decay: f64, decoupled: bool) -> Result<(Tensor, Tensor)> {
    match decoupled {
        true => Ok((shrunk(now, weight_decay)?, now.grad.clone())),
        false => Ok((now.param.clone(), decayed(now.grad, now.param, weight_decay)?)),
    }
}

rule! {
    /// Adam with Nesterov momentum (Dozat, 2016).
    NAdam[betas] {
        /// Creates NAdam with betas 0.9 and 0.999, eps 1e-8 and momentum decay 0.004, without
        /// weight decay.
        new;
        /// Sets the number added to the root.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the weight decay.
        weight_decay: f64 = 0.0, "0.1";
        /// Sets the decay of the momentum schedule.
        momentum_decay: f64 = 4e-3, "0.01";
    }
    flags {
        /// Uses decoupled weight decay: each step subtracts `lr·weight_decay` of the parameter.
        decoupled_weight_decay;
    }
}

impl NAdam {
    /// Returns the factor of the momentum schedule per step.
    fn rate(&self) -> f64 {
        0.96f64.powf(self.momentum_decay)
    }
    /// Returns the momentum after the fraction `warm` of its warm-up.
    fn momentum(&self, warm: &Tensor) -> Tensor {
        (warm + 1.0) * (0.5 * self.betas.0)
    }
}

impl Rule for NAdam {
    settings_of_rule!("exp_avg" "exp_avg_sq");
    fn numbers(&self) -> &'static [&'static str] {
        // 1 - 0.96^(t·decay), 1 less the product of all momenta, 1 - β₂ᵗ.
        &["warm_up_part", "mu_product_part", "exp_avg_sq_part"]
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        let [warm, product, square] = numbers else { unreachable!("three numbers") };
        advance_part(warm, self.rate())?;
        let mu = self.momentum(warm);
        product.assign(product.try_mul(&mu)?.try_add(1.0 - mu)?)?;
        advance_part(square, self.betas.1)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let (param, grad) = with_decay(now, self.weight_decay, self.decoupled_weight_decay)?;
        let (mean, square) = moments(now, &grad, self.betas)?;
        let [warm, product, square_part] = now.numbers else { unreachable!("three numbers") };
        let (mu, next) =
            (self.momentum(warm), self.momentum(&(warm * self.rate() + (1.0 - self.rate()))));
        let of_grad = (1.0 - &mu).try_div(product)?;
        // 1 less the product with the next momentum.
        let next_part = product.try_mul(&next)?.try_add(1.0 - &next)?;
        let of_mean = next.try_div(next_part)?;
        let root = square.try_div(square_part)?.sqrt() + self.eps;
        let step = grad.try_mul(of_grad)?.try_add(mean.try_mul(of_mean)?)?.try_div(root)?;
        param.try_sub(step.try_mul(now.lr)?)
    }
}

rule! {
    /// Rectified Adam (Liu et al., 2020): the first steps use momentum only, until the variance can
    /// be estimated.
    RAdam[betas] {
        /// Creates RAdam with betas 0.9 and 0.999 and eps 1e-8, without weight decay.
        new;
        /// Sets the number added to the root.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the weight decay.
        weight_decay: f64 = 0.0, "0.1";
    }
    flags {
        /// Uses decoupled weight decay: each step subtracts `lr·weight_decay` of the parameter.
        decoupled_weight_decay;
    }
}

impl Rule for RAdam {
    settings_of_rule!("exp_avg" "exp_avg_sq");
    fn numbers(&self) -> &'static [&'static str] {
        // 1 - β₁ᵗ, and with β = β₂ the sums 1 + β + … + βᵗ⁻¹ and 1 + 2β + … + tβᵗ⁻¹.
        &["exp_avg_part", "powers", "weighted_powers"]
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        let [mean, powers, weighted] = numbers else { unreachable!("three numbers") };
        advance_part(mean, self.betas.0)?;
        powers.assign(powers * self.betas.1 + 1.0)?;
        weighted.assign((weighted * self.betas.1).try_add(powers)?)
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let (param, grad) = with_decay(now, self.weight_decay, self.decoupled_weight_decay)?;
        let (mean, square) = moments(now, &grad, self.betas)?;
        let [mean_part, powers, weighted] = now.numbers else { unreachable!("three numbers") };
        let mean = mean.try_div(mean_part)?;
        // ρₜ = ρ∞ - 2tβᵗ/(1 - βᵗ) is twice the quotient of the sums, minus 1; the difference would
        // cancel.
        let rho = weighted.try_div(powers)? * 2.0 - 1.0;
        let most = 2.0 / (1.0 - self.betas.1) - 1.0;
        let enough = rho.try_gt(5.0)?;
        // Replaces an unused value by one with a real root.
        let rho = enough.try_where_(rho, 6.0)?;
        let rectified = ((&rho - 4.0) * (&rho - 2.0) * (most / ((most - 4.0) * (most - 2.0))))
            .try_div(&rho)?
            .sqrt();
        let square_part = powers * (1.0 - self.betas.1);
        let adapted = square_part.sqrt().try_mul(rectified)?.try_div(square.sqrt() + self.eps)?;
        let step = mean.try_mul(enough.try_where_(adapted, 1.0)?)?;
        param.try_sub(step.try_mul(now.lr)?)
    }
}

rule! {
    /// Adamax (Kingma and Ba, 2015): Adam with the infinity norm of recent gradients instead of the
    /// second moment.
    Adamax[betas] {
        /// Creates Adamax with betas 0.9 and 0.999 and eps 1e-8, without weight decay.
        new;
        /// Sets the number added to the magnitude of a gradient.
        eps: f64 = 1e-8, "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay: f64 = 0.0, "0.1";
    }
}

impl Rule for Adamax {
    settings_of_rule!("exp_avg" "exp_inf");
    fn numbers(&self) -> &'static [&'static str] {
        &["exp_avg_part"]
    }
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        numbers.iter().try_for_each(|part| advance_part(part, self.betas.0))
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        let ([mean, greatest], [mean_part]) = (now.state, now.numbers) else {
            unreachable!("two tensors of state and a number")
        };
        mean.assign((mean * self.betas.0).try_add(&grad * (1.0 - self.betas.0))?)?;
        greatest.assign((greatest * self.betas.1).try_maximum(grad.abs() + self.eps)?)?;
        now.param.try_sub(mean.try_div(greatest)?.try_mul(now.lr.try_div(mean_part)?)?)
    }
}
