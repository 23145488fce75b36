//! RMSprop, Adagrad and Adadelta: steps scaled by the magnitude of past gradients. Formulas,
//! defaults and state names are PyTorch's.

use super::sgd::decayed;
use super::{Rule, Update, maximize};
use crate::error::Result;
use crate::tensor::Tensor;

/// A builder method that sets one number.
macro_rules! number {
    ($($name:ident { $($(#[$meta:meta])* $field:ident $example:literal;)* })*) => { $(
        impl $name { $(
            $(#[$meta])*
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).", stringify!($field), "(", $example, ").lr(), 0.1);")]
            /// ```
            pub fn $field(self, $field: f64) -> $name {
                $name { $field, ..self }
            }
        )* }
    )* };
}
pub(super) use number;

/// RMSprop (Hinton, 2012): divides by the root of a moving average of squared gradients.
#[derive(Clone, Debug)]
pub struct RMSprop {
    lr: f64,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
    maximize: bool,
}

impl RMSprop {
    /// Alpha 0.99, eps 1e-8, no momentum, no weight decay, not centered.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, RMSprop}};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], RMSprop::new(0.01))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!((x.item::<f32>()? - 0.9).abs() < 1e-5); // the root of the mean of squares is a tenth of the gradient
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> RMSprop {
        RMSprop {
            lr,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
    /// Subtracts the squared moving average of gradients, so that the divisor estimates the
    /// standard deviation.
    ///
    /// ```
    /// use picograd::nn::optim::{RMSprop, Rule};
    /// assert_eq!(RMSprop::new(0.1).centered().state(), ["square_avg", "grad_avg"]);
    /// ```
    pub fn centered(self) -> RMSprop {
        RMSprop { centered: true, ..self }
    }
}

number! {
    RMSprop {
        /// Sets the decay of the moving averages.
        alpha "0.9";
        /// Sets the number added to the root.
        eps "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay "0.1";
        /// Sets the momentum.
        momentum "0.9";
    }
    Adagrad {
        /// Sets the decay of the learning rate: in step `t` it is divided by `1 + (t -
        /// 1)·lr_decay`.
        lr_decay "0.01";
        /// Sets the number added to the root.
        eps "1e-6";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay "0.1";
        /// Sets the initial value of the sums of squares.
        initial_accumulator_value "0.5";
    }
    Adadelta {
        /// Sets the decay of the moving averages.
        rho "0.95";
        /// Sets the number added under both roots.
        eps "1e-5";
        /// Sets the L2 penalty: this fraction of the parameter is added to its gradient.
        weight_decay "0.1";
    }
}
maximize! { RMSprop: maximize; Adagrad: maximize; Adadelta: maximize; }

impl Rule for RMSprop {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
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

/// Adagrad (Duchi et al., 2011): divides by the root of the sum of all squared gradients.
#[derive(Clone, Debug)]
pub struct Adagrad {
    lr: f64,
    lr_decay: f64,
    weight_decay: f64,
    initial_accumulator_value: f64,
    eps: f64,
    maximize: bool,
}

impl Adagrad {
    /// No decay of the learning rate or the weights, sums from 0, eps 1e-10.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Adagrad, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Adagrad::new(0.25))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!((x.item::<f32>()? - 0.75).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> Adagrad {
        Adagrad {
            lr,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

impl Rule for Adagrad {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["sum"]
    }
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

/// Adadelta (Zeiler, 2012): scales by the root mean square of past steps over that of past
/// gradients.
#[derive(Clone, Debug)]
pub struct Adadelta {
    lr: f64,
    rho: f64,
    eps: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Adadelta {
    /// Rho 0.9, eps 1e-6, no weight decay. The usual learning rate is 1.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Adadelta, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Adadelta::new(1.0))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> Adadelta {
        Adadelta { lr, rho: 0.9, eps: 1e-6, weight_decay: 0.0, maximize: false }
    }
}

impl Rule for Adadelta {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.weight_decay)?;
        let [square, steps] = now.state else { unreachable!("two tensors of state") };
        square.assign((square * self.rho).try_add(grad.square() * (1.0 - self.rho))?)?;
        let step = (steps + self.eps).sqrt().try_div((square + self.eps).sqrt())?.try_mul(grad)?;
        steps.assign((steps * self.rho).try_add(step.square() * (1.0 - self.rho))?)?;
        now.param.try_sub(step.try_mul(now.lr)?)
    }
}
