//! Adam and what came of it: steps by the mean of the gradients over the root of the mean of their
//! squares.

use super::sgd::{decayed, length};
use super::{Rule, Update, maximize};
use crate::error::Result;
use crate::tensor::Tensor;

/// What the three rules share.
#[derive(Clone, Debug)]
struct Moments {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    amsgrad: bool,
    maximize: bool,
}

impl Moments {
    /// The running means of gradients and of their squares, each as if it had not begun with zeros.
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        // 1 - βᵗ from its last value, without the cancellation of that difference.
        for (c, beta) in numbers.iter().zip([self.betas.0, self.betas.1]) {
            c.assign(c * beta + (1.0 - beta))?;
        }
        Ok(())
    }
    /// The direction of a step: one running mean over the root of the other.
    fn direction(&self, now: &Update<'_>, grad: &Tensor) -> Result<Tensor> {
        let [mean, square, greatest @ ..] = now.state else {
            unreachable!("two tensors of state, or three")
        };
        let [mean_part, square_part] = now.numbers else { unreachable!("two numbers") };
        let (b1, b2) = self.betas;
        mean.assign((mean * b1).try_add(grad * (1.0 - b1))?)?;
        square.assign((square * b2).try_add(grad.square() * (1.0 - b2))?)?;
        if let [greatest] = greatest {
            greatest.assign(greatest.try_maximum(square)?)?;
        }
        let root =
            greatest.first().unwrap_or(square).sqrt().try_div(square_part.sqrt())? + self.eps;
        mean.try_div(mean_part)?.try_div(root)
    }
}

const STATE: &[&str] = &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
const NUMBERS: &[&str] = &["exp_avg_part", "exp_avg_sq_part"];

macro_rules! settings {
    ($($name:ident)*) => { $(
        impl $name {
            /// How much stays of the running means of gradients and of their squares: 0.9 and 0.999 unless set.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).betas(0.8, 0.95).lr(), 0.1);")]
            /// ```
            pub fn betas(mut self, mean: f64, square: f64) -> $name {
                self.0.betas = (mean, square);
                self
            }
            /// What is added to the root, so that nothing is divided by zero.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).eps(1e-6).lr(), 0.1);")]
            /// ```
            pub fn eps(mut self, eps: f64) -> $name {
                self.0.eps = eps;
                self
            }
            /// How fast parameters go to zero by themselves.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).weight_decay(0.1).lr(), 0.1);")]
            /// ```
            pub fn weight_decay(mut self, weight_decay: f64) -> $name {
                self.0.weight_decay = weight_decay;
                self
            }
        }
    )* };
}
settings! { Adam AdamW LAMB }

macro_rules! amsgrad {
    ($($name:ident)*) => { $(
        impl $name {
            /// Divides by the greatest running mean of squares so far (Reddi and others, 2018), so that no step grows because gradients have become small.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(1e-3).amsgrad().state().len(), 3);")]
            /// ```
            pub fn amsgrad(mut self) -> $name {
                self.0.amsgrad = true;
                self
            }
        }
    )* };
}
amsgrad! { Adam AdamW }

maximize! { Adam: 0.maximize; AdamW: 0.maximize; LAMB: 0.maximize; }

/// What all rules on moments answer alike.
macro_rules! of_moments {
    () => {
        fn lr(&self) -> f64 {
            self.0.lr
        }
        fn maximizes(&self) -> bool {
            self.0.maximize
        }
        fn state(&self) -> &'static [&'static str] {
            if self.0.amsgrad { STATE } else { &STATE[..2] }
        }
        fn numbers(&self) -> &'static [&'static str] {
            NUMBERS
        }
        fn advance(&self, numbers: &[Tensor]) -> Result<()> {
            self.0.advance(numbers)
        }
    };
}

/// Adam (Kingma and Ba, 2015). Weight decay is added to the gradient.
#[derive(Clone, Debug)]
pub struct Adam(Moments);

impl Adam {
    /// Betas 0.9 and 0.999, eps 1e-8, no weight decay.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Adam, Optimizer},
    /// };
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Adam::new(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> Adam {
        Adam(Moments {
            lr,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
        })
    }
}

impl Rule for Adam {
    of_moments!();
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let grad = decayed(now.grad, now.param, self.0.weight_decay)?;
        now.param.try_sub(self.0.direction(now, &grad)?.try_mul(now.lr)?)
    }
}

/// Adam with a weight decay that is apart from the gradient (Loshchilov and Hutter, 2019): each
/// step takes `lr·weight_decay` of the parameter off.
#[derive(Clone, Debug)]
pub struct AdamW(Moments);

impl AdamW {
    /// Betas 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{AdamW, Optimizer},
    /// };
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], AdamW::new(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> AdamW {
        AdamW(Moments {
            lr,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            amsgrad: false,
            maximize: false,
        })
    }
}

impl Rule for AdamW {
    of_moments!();
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let param = shrunk(now, self.0.weight_decay)?;
        param.try_sub(self.0.direction(now, now.grad)?.try_mul(now.lr)?)
    }
}

/// The parameter less `lr·weight_decay` of it.
pub(super) fn shrunk(now: &Update<'_>, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 {
        Ok(now.param.clone())
    } else {
        now.param.try_mul(1.0 - now.lr * weight_decay)
    }
}

/// Adam with steps that are scaled by the ratio of a parameter's length to that of its step (You
/// and others, 2020), for large batches.
#[derive(Clone, Debug)]
pub struct LAMB(Moments);

impl LAMB {
    /// Betas 0.9 and 0.999, eps 1e-6, no weight decay.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{LAMB, Optimizer},
    /// };
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], LAMB::new(0.5))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> LAMB {
        LAMB(Moments {
            lr,
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
        })
    }
}

impl Rule for LAMB {
    of_moments!();
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let step = decayed(&self.0.direction(now, now.grad)?, now.param, self.0.weight_decay)?;
        let (param, size) = (length(now.param)?, length(&step)?);
        // A parameter or a step of zeros has no direction to go by.
        let there = param.try_gt(0.0)?.try_bitwise_and(size.try_gt(0.0)?)?;
        let ratio = there.try_where_(param.try_div(size)?, 1.0)?;
        now.param.try_sub(step.try_mul(ratio.try_mul(now.lr)?)?)
    }
}
