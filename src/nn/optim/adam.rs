//! Adam and its variants: steps by the first moment of the gradients over the root of the second.

use super::sgd::{decayed, length};
use super::{Rule, Update, maximize};
use crate::error::Result;
use crate::tensor::Tensor;

/// Settings that the three rules share.
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
    /// The first and second moments of the gradients, with bias correction.
    fn advance(&self, numbers: &[Tensor]) -> Result<()> {
        // 1 - βᵗ from its previous value, which avoids cancellation.
        for (c, beta) in numbers.iter().zip([self.betas.0, self.betas.1]) {
            c.assign(c * beta + (1.0 - beta))?;
        }
        Ok(())
    }
    /// The direction of a step: the first moment over the root of the second.
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
            /// Sets the decay of the first and second moments: 0.9 and 0.999 by default.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).betas(0.8, 0.95).lr(), 0.1);")]
            /// ```
            pub fn betas(mut self, mean: f64, square: f64) -> $name {
                self.0.betas = (mean, square);
                self
            }
            /// Sets the number added to the root, which avoids a division by zero.
            ///
            /// ```
            #[doc = concat!("use picograd::nn::optim::{", stringify!($name), ", Rule};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).eps(1e-6).lr(), 0.1);")]
            /// ```
            pub fn eps(mut self, eps: f64) -> $name {
                self.0.eps = eps;
                self
            }
            /// Sets the weight decay.
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
            /// Divides by the maximum of the second moment so far (Reddi et al., 2018), so that a
            /// step does not grow when gradients shrink.
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

/// Generates the methods that these rules share.
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
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Adam, Optimizer};
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

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): each step subtracts
/// `lr·weight_decay` of the parameter.
#[derive(Clone, Debug)]
pub struct AdamW(Moments);

impl AdamW {
    /// Betas 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{AdamW, Optimizer};
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

/// The parameter minus `lr·weight_decay` of it.
pub(super) fn shrunk(now: &Update<'_>, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 {
        Ok(now.param.clone())
    } else {
        now.param.try_mul(1.0 - now.lr * weight_decay)
    }
}

/// Adam with steps scaled by the ratio of the parameter's norm to the step's (You et al., 2020),
/// for large batches.
#[derive(Clone, Debug)]
pub struct LAMB(Moments);

impl LAMB {
    /// Betas 0.9 and 0.999, eps 1e-6, no weight decay.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{LAMB, Optimizer};
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
        // The ratio is 1 if the parameter or the step is zero.
        let there = param.try_gt(0.0)?.try_bitwise_and(size.try_gt(0.0)?)?;
        let ratio = there.try_where_(param.try_div(size)?, 1.0)?;
        now.param.try_sub(step.try_mul(ratio.try_mul(now.lr)?)?)
    }
}
