//! NAdam, RAdam and Adamax. Formulas, defaults and state names are PyTorch's.

use super::adam::shrunk;
use super::adaptive::number;
use super::sgd::decayed;
use super::{Rule, Update, maximize};
use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! betas {
    ($($name:ident)*) => { $(
        impl $name {
            /// Sets the decay of the moments: 0.9 and 0.999 by default.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).betas(0.8, 0.95).lr(), 0.1);")]
            /// ```
            pub fn betas(self, mean: f64, square: f64) -> $name {
                $name { betas: (mean, square), ..self }
            }
        }
    )* };
}
betas! { NAdam RAdam Adamax }

macro_rules! decoupled {
    ($($name:ident)*) => { $(
        impl $name {
            /// Uses decoupled weight decay: each step subtracts `lr·weight_decay` of the parameter.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("let rule = ", stringify!($name), "::new(0.1).weight_decay(0.01).decoupled_weight_decay();")]
            /// assert_eq!(rule.lr(), 0.1);
            /// ```
            pub fn decoupled_weight_decay(self) -> $name {
                $name { decoupled: true, ..self }
            }
            /// The parameter and the gradient after weight decay.
            fn decay(&self, now: &Update<'_>) -> Result<(Tensor, Tensor)> {
                match self.decoupled {
                    true => Ok((shrunk(now, self.weight_decay)?, now.grad.clone())),
                    false => Ok((now.param.clone(), decayed(now.grad, now.param, self.weight_decay)?)),
                }
            }
        }
    )* };
}
decoupled! { NAdam RAdam }

number! {
    NAdam {
        /// Sets the number added to the root.
        eps "1e-6";
        /// Sets the weight decay.
        weight_decay "0.1";
        /// Sets the decay of the momentum schedule.
        momentum_decay "0.01";
    }
    RAdam {
        /// Sets the number added to the root.
        eps "1e-6";
        /// Sets the weight decay.
        weight_decay "0.1";
    }
    Adamax {
        /// Sets the number added to the magnitude of a gradient.
        eps "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay "0.1";
    }
}
maximize! { NAdam: maximize; RAdam: maximize; Adamax: maximize; }

/// Updates the first and second moments.
fn moments(now: &Update<'_>, grad: &Tensor, betas: (f64, f64)) -> Result<(Tensor, Tensor)> {
    let [mean, square] = now.state else { unreachable!("two tensors of state") };
    mean.assign((mean * betas.0).try_add(grad * (1.0 - betas.0))?)?;
    square.assign((square * betas.1).try_add(grad.square() * (1.0 - betas.1))?)?;
    Ok((mean.clone(), square.clone()))
}

/// `1 - βᵗ` from its previous value, which avoids cancellation.
fn advance_part(part: &Tensor, beta: f64) -> Result<()> {
    part.assign(part * beta + (1.0 - beta))
}

/// Adam with Nesterov momentum (Dozat, 2016).
#[derive(Clone, Debug)]
pub struct NAdam {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    momentum_decay: f64,
    decoupled: bool,
    maximize: bool,
}

impl NAdam {
    /// Betas 0.9 and 0.999, eps 1e-8, momentum decay 0.004, no weight decay.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{NAdam, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], NAdam::new(0.1))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> NAdam {
        let (betas, eps, momentum_decay) = ((0.9, 0.999), 1e-8, 4e-3);
        NAdam {
            lr,
            betas,
            eps,
            weight_decay: 0.0,
            momentum_decay,
            decoupled: false,
            maximize: false,
        }
    }
    /// The factor of the momentum schedule per step.
    fn rate(&self) -> f64 {
        0.96f64.powf(self.momentum_decay)
    }
    /// The momentum after the fraction `warm` of its warm-up.
    fn momentum(&self, warm: &Tensor) -> Tensor {
        (warm + 1.0) * (0.5 * self.betas.0)
    }
}

impl Rule for NAdam {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }
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
        let (param, grad) = self.decay(now)?;
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

/// Rectified Adam (Liu et al., 2020): the first steps use momentum only, until the variance can be
/// estimated.
#[derive(Clone, Debug)]
pub struct RAdam {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    maximize: bool,
}

impl RAdam {
    /// Betas 0.9 and 0.999, eps 1e-8, no weight decay.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, RAdam};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], RAdam::new(0.1))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!((x.item::<f32>()? - 0.8).abs() < 1e-6); // the first step is the gradient's
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> RAdam {
        RAdam {
            lr,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            maximize: false,
        }
    }
}

impl Rule for RAdam {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }
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
        let (param, grad) = self.decay(now)?;
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

/// Adamax (Kingma and Ba, 2015): Adam with the infinity norm of recent gradients instead of the
/// second moment.
#[derive(Clone, Debug)]
pub struct Adamax {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Adamax {
    /// Betas 0.9 and 0.999, eps 1e-8, no weight decay.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Adamax, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Adamax::new(0.1))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!((x.item::<f32>()? - 0.9).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> Adamax {
        Adamax { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, maximize: false }
    }
}

impl Rule for Adamax {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }
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
