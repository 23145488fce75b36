//! Optimizers, update rules and learning-rate schedules.
//!
//! An [`Optimizer`] holds groups of parameters, each with a [`Rule`]: [`SGD`], [`Adam`], [`AdamW`],
//! [`NAdam`], [`RAdam`], [`Adamax`], [`RMSprop`], [`Adagrad`], [`Adadelta`], [`LAMB`], [`LARS`],
//! [`Muon`], or a custom one. A step realizes all updates together, so that parameters of one shape
//! share a kernel.
//!
//! ```
//! use picograd::nn::{Layer, Linear, Module};
//! use picograd::nn::optim::{Adam, Optimizer};
//! use picograd::tensor::{Reduction, Tensor};
//! Tensor::manual_seed(0);
//! let net = Linear::new(1, 1);
//! let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.1))?;
//! let x = Tensor::new([[0.0f32], [1.0], [2.0]]);
//! let y = &x * 3.0 + 1.0;
//! for _ in 0..150 {
//!     let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
//!     loss.backward();
//!     optimizer.step()?;
//! }
//! assert!((net.weight.item::<f32>()? - 3.0).abs() < 0.1);
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `sgd`, `adam`, `nadam`, `adaptive`, `muon` | update rules |
//! | `declare` | the macro that declares the settings of a rule |
//! | `lbfgs`, `line_search` | a quasi-Newton optimizer |
//! | `clip` | gradient clipping |
//! | `accumulate`, `scaler` | gradient accumulation and scaling |
//! | `optimizer` | groups of parameters and their steps |
//! | `schedule`, `plateau` | learning-rate schedules |

mod accumulate;
mod adam;
mod adaptive;
mod clip;
mod declare;
mod lbfgs;
mod line_search;
mod muon;
mod nadam;
mod optimizer;
mod plateau;
mod scaler;
mod schedule;
mod sgd;

pub use accumulate::Accumulate;
pub use adam::{Adam, AdamW, LAMB};
pub use adaptive::{Adadelta, Adagrad, RMSprop};
pub use clip::{clip_grad_norm, clip_grad_value};
pub use lbfgs::LBFGS;
pub use muon::Muon;
pub use nadam::{Adamax, NAdam, RAdam};
pub use optimizer::Optimizer;
pub use plateau::Plateau;
pub use scaler::GradScaler;
pub use schedule::{
    Constant, Cosine, Exponential, MultiStep, OneCycle, Ramp, Schedule, Scheduler, Step, Then,
};
pub use sgd::{LARS, SGD};

use crate::error::Result;
use crate::tensor::Tensor;

/// The update rule of a parameter. Settings are plain numbers that are the same in every step;
/// values that change between steps are tensors, so that every step runs the same kernels.
///
/// ```
/// use picograd::{Result, Tensor};
/// use picograd::nn::optim::{Optimizer, Rule, Update};
///
/// /// Steps of one size, whatever the size of the gradient.
/// struct Signs(f64);
///
/// impl Rule for Signs {
///     fn lr(&self) -> f64 {
///         self.0
///     }
///     fn state(&self) -> &'static [&'static str] {
///         &[]
///     }
///     fn update(&self, now: &Update) -> Result<Tensor> {
///         now.param.try_sub(now.grad.sign().try_mul(now.lr)?)
///     }
/// }
///
/// let x = Tensor::new([3.0f32, -4.0]).as_param();
/// let mut optimizer = Optimizer::new([x.clone()], Signs(0.5))?;
/// x.square().sum(..).backward();
/// optimizer.step()?;
/// assert_eq!(x.to_vec::<f32>()?, [2.5, -3.5]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub trait Rule: Send + Sync {
    /// Returns the initial learning rate.
    fn lr(&self) -> f64;
    /// Returns the names of the state tensors of each parameter. They have its shape and start as
    /// zeros, or as [`initial`](Self::initial) says.
    fn state(&self) -> &'static [&'static str];
    /// Returns the names of the scalar state that depends only on the number of updates of a
    /// parameter. It starts as zeros; parameters of a group with equally many updates share it.
    fn numbers(&self) -> &'static [&'static str] {
        &[]
    }
    /// Returns the initial value of a tensor of [`state`](Self::state), by its index.
    fn initial(&self, _place: usize) -> f64 {
        0.0
    }
    /// Returns true if steps ascend the gradient: each gradient is negated before the rule sees it.
    fn maximizes(&self) -> bool {
        false
    }
    /// Returns an error if the rule does not support a parameter.
    fn check(&self, _param: &Tensor) -> Result<()> {
        Ok(())
    }
    /// Updates the scalar state at the start of each update.
    fn advance(&self, _numbers: &[Tensor]) -> Result<()> {
        Ok(())
    }
    /// Computes the new value of a parameter and assigns its state.
    fn update(&self, now: &Update<'_>) -> Result<Tensor>;
}

/// The inputs of a [`Rule`] for one parameter in one step, in `f32`, or in `f64` for `f64`
/// parameters.
pub struct Update<'a> {
    /// The value of the parameter.
    pub param: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The learning rate, of rank 0.
    pub lr: &'a Tensor,
    /// The tensors that [`Rule::state`] names, in order.
    pub state: &'a [Tensor],
    /// The numbers that [`Rule::numbers`] names, in order, already updated.
    pub numbers: &'a [Tensor],
}
