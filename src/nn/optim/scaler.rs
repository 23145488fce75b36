//! Gradient scaling, so that small gradients do not underflow in `f16`.

use super::Optimizer;
use super::optimizer::{exact, number};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::StateDict;
use crate::tensor::{Tensor, no_grad, realize_with_step};

/// Scales a loss, so that gradients in narrow floats do not underflow, and unscales them before the
/// step. A step with non-finite gradients is skipped and the scale is reduced; after enough other
/// steps it grows. The device decides, and nothing is read on the host.
///
/// ```
/// use picograd::{DType, Tensor, autocast};
/// use picograd::nn::{Layer, Linear, Module};
/// use picograd::nn::optim::{GradScaler, Optimizer, SGD};
/// use picograd::tensor::Reduction;
/// let net = Linear::new(3, 2);
/// let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.1))?;
/// let mut scaler = GradScaler::new();
/// let (x, y) = (Tensor::ones([4, 3]), Tensor::zeros([4, 2]));
/// for _ in 0..2 {
///     let loss = autocast(DType::F16, || net.forward(&x).mse_loss(&y, Reduction::Mean));
///     scaler.scale(&loss)?.backward();
///     scaler.step(&mut optimizer)?;
///     scaler.update()?;
/// }
/// assert_eq!(scaler.get_scale()?, 65536.0);
/// # Ok::<(), picograd::Error>(())
/// ```
///
/// If parameters of a group have different numbers of updates and the rule depends on them, the
/// host decides; inside a [`Jit`](crate::Jit) that is an error.
pub struct GradScaler {
    scale: Tensor,
    tracker: Tensor,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    enabled: bool,
    /// The checked optimizers since the last update.
    found: Vec<Found>,
}

/// The check of the gradients of an optimizer: whether one is infinite or NaN.
struct Found {
    optimizer: usize,
    any: Tensor,
    stepped: bool,
}

/// Generates builder methods, with a value for the example.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $ty:ty, $value:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// ```
        /// use picograd::nn::optim::GradScaler;
        #[doc = concat!("let scaler = GradScaler::new().", stringify!($name), "(", $value, ");")]
        #[doc = concat!("let stored = scaler.state_dict().require(\"", stringify!($name), "\")?")]
        #[doc = concat!("    .item::<", stringify!($ty), ">()?;")]
        #[doc = concat!("assert_eq!(stored, ", $value, ");")]
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn $name(self, $name: $ty) -> GradScaler {
            GradScaler { $name, ..self }
        }
    )* };
}

impl Default for GradScaler {
    fn default() -> GradScaler {
        GradScaler::new()
    }
}

impl GradScaler {
    /// Creates a scaler with a scale of 65536, which doubles after 2000 steps and is halved after
    /// a skipped step.
    ///
    /// ```
    /// use picograd::nn::optim::GradScaler;
    /// assert_eq!(GradScaler::new().get_scale()?, 65536.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> GradScaler {
        GradScaler {
            scale: Tensor::new([65536f32]).reshape(()),
            tracker: Tensor::new([0i32]).reshape(()),
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
            found: Vec::new(),
        }
    }
    /// Sets the initial scale.
    ///
    /// ```
    /// use picograd::nn::optim::GradScaler;
    /// assert_eq!(GradScaler::new().init_scale(8.0).get_scale()?, 8.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn init_scale(self, scale: f64) -> GradScaler {
        GradScaler { scale: Tensor::new([scale as f32]).reshape(()), ..self }
    }
    settings! {
        /// Sets the growth factor of the scale.
        growth_factor: f64, "4.0";
        /// Sets the factor of the scale after a skipped step.
        backoff_factor: f64, "0.25";
        /// Sets the number of steps without a skipped one after which the scale grows.
        growth_interval: u64, "100";
    }
    /// Enables or disables scaling. Disabled, losses are unchanged and every step is made.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::GradScaler};
    /// let scaler = GradScaler::new().enabled(false);
    /// assert_eq!(scaler.scale(&Tensor::new([2.0f32]))?.item::<f32>()?, 2.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn enabled(self, enabled: bool) -> GradScaler {
        GradScaler { enabled, ..self }
    }

    /// Multiplies the loss by the scale, in `f32` or wider.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::GradScaler};
    /// let loss = GradScaler::new().init_scale(4.0).scale(&Tensor::new([2.0f32]))?;
    /// assert_eq!(loss.item::<f32>()?, 8.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        if !self.enabled {
            return Ok(loss.clone());
        }
        loss.try_mul(self.scale.detach().try_to(loss.device().as_str())?)
    }

    /// Divides the gradients of an optimizer by the scale, for reading or clipping before
    /// [`step`](Self::step), which otherwise does it. Calling it twice before an update is an
    /// error.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{GradScaler, Optimizer, SGD};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.1))?;
    /// let mut scaler = GradScaler::new();
    /// scaler.scale(&x.square().sum(..))?.backward();
    /// scaler.unscale_(&optimizer)?;
    /// assert_eq!(x.grad().unwrap().item::<f32>()?, 6.0);
    /// assert!(scaler.unscale_(&optimizer).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn unscale_(&mut self, optimizer: &Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let key = key(optimizer);
        if self.found.iter().any(|f| f.optimizer == key) {
            return state("unscale_() was already called for this optimizer since update()");
        }
        let any = no_grad(|| {
            let mut finite: Option<Tensor> = None;
            for p in optimizer.parameters() {
                let Some(grad) = p.grad() else { continue };
                let inverse = self.scale.try_to(grad.device().as_str())?.reciprocal();
                let wide = grad
                    .try_cast(super::optimizer::compute_dtype(grad.dtype()))?
                    .try_mul(inverse)?;
                let ok = wide.isfinite().try_all(..)?.try_to(self.scale.device().as_str())?;
                finite = Some(match finite {
                    Some(f) => f.try_bitwise_and(ok)?,
                    None => ok,
                });
                p.set_grad(Some(wide.try_cast(grad.dtype())?));
            }
            match finite {
                Some(f) => f.try_eq(false),
                None => Tensor::new([false]).try_reshape(()),
            }
        })?;
        self.found.push(Found { optimizer: key, any, stepped: false });
        Ok(())
    }

    /// Runs the optimizer's step unless a gradient is infinite or NaN; then only the gradients are
    /// cleared.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{GradScaler, Optimizer, SGD};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.1))?;
    /// let mut scaler = GradScaler::new();
    /// scaler.scale(&(x.square() * f32::INFINITY).sum(..))?.backward();
    /// scaler.step(&mut optimizer)?;
    /// scaler.update()?;
    /// assert_eq!((x.item::<f32>()?, scaler.get_scale()?), (3.0, 32768.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn step(&mut self, optimizer: &mut Optimizer) -> Result<()> {
        if !self.enabled {
            return optimizer.step();
        }
        let key = key(optimizer);
        if self.found.iter().all(|f| f.optimizer != key) {
            self.unscale_(optimizer)?;
        }
        let Some(found) = self.found.iter_mut().find(|f| f.optimizer == key) else {
            unreachable!("it was unscaled")
        };
        if found.stepped {
            return state("step() was already called for this optimizer since update()");
        }
        found.stepped = true;
        realize_with_step(&found.any);
        optimizer.step_unless(Some(&found.any))
    }

    /// Updates the scale after the steps of all optimizers. Without any step it is an error.
    ///
    /// ```
    /// use picograd::nn::optim::GradScaler;
    /// assert!(GradScaler::new().update().is_err());
    /// ```
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let mut all = self.found.iter().map(|f| f.any.clone());
        let Some(first) = all.next() else {
            return state("update() requires a step() since the last update()");
        };
        no_grad(|| {
            let found = all.try_fold(first, |a, b| a.try_bitwise_or(b))?;
            let count = self.tracker.copy() + 1;
            let due = count.try_eq(self.growth_interval)?;
            let grown = &self.scale * self.growth_factor;
            let may_grow = due.try_bitwise_and(grown.isfinite())?;
            let kept = may_grow.try_where_(grown, &self.scale)?;
            self.tracker.assign(found.try_bitwise_or(due)?.try_where_(0, count)?)?;
            self.scale.assign(found.try_where_(&self.scale * self.backoff_factor, kept)?)
        })?;
        self.found.clear();
        Tensor::realize_many(&[&self.scale, &self.tracker])
    }

    /// Returns the scale, read from the device.
    ///
    /// ```
    /// use picograd::nn::optim::GradScaler;
    /// assert_eq!(GradScaler::new().enabled(false).get_scale()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn get_scale(&self) -> Result<f64> {
        if self.enabled { Ok(self.scale.item::<f32>()? as f64) } else { Ok(1.0) }
    }

    /// Returns the scale, its factors, and the number of steps since its last change, under
    /// PyTorch's names.
    ///
    /// ```
    /// use picograd::nn::optim::GradScaler;
    /// let mut other = GradScaler::new();
    /// other.load_state_dict(&GradScaler::new().init_scale(8.0).state_dict())?;
    /// assert_eq!(other.get_scale()?, 8.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn state_dict(&self) -> StateDict {
        StateDict::from_iter([
            ("scale", self.scale.detach()),
            ("growth_factor", exact(self.growth_factor)),
            ("backoff_factor", exact(self.backoff_factor)),
            ("growth_interval", Tensor::new([self.growth_interval]).reshape(())),
            ("_growth_tracker", self.tracker.detach()),
        ])
    }

    /// Loads a state. On a mismatch nothing changes.
    ///
    /// ```
    /// use picograd::{io::StateDict, nn::optim::GradScaler};
    /// assert!(GradScaler::new().load_state_dict(&StateDict::new()).is_err());
    /// ```
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let (growth, backoff) = (exact(0.0), exact(0.0));
        let interval = Tensor::new([0u64]).reshape(());
        let (scale, tracker) =
            (number(0.0, DType::F32, &Device::default_name())?, Tensor::new([0i32]).reshape(()));
        let targets = [
            ("scale".to_string(), scale.clone()),
            ("growth_factor".into(), growth.clone()),
            ("backoff_factor".into(), backoff.clone()),
            ("growth_interval".into(), interval.clone()),
            ("_growth_tracker".into(), tracker.clone()),
        ];
        state.load_into(&targets, true)?;
        let (growth, backoff, interval) = (growth.item()?, backoff.item()?, interval.item()?);
        self.scale.assign(scale.try_to(self.scale.device().as_str())?)?;
        self.tracker.assign(tracker.try_to(self.tracker.device().as_str())?)?;
        (self.growth_factor, self.backoff_factor, self.growth_interval) =
            (growth, backoff, interval);
        Tensor::realize_many(&[&self.scale, &self.tracker])
    }
}

/// Returns the identity of an optimizer: its first parameter, which no other one has.
fn key(optimizer: &Optimizer) -> usize {
    optimizer.parameters().first().map_or(0, Tensor::id)
}

fn state<T>(msg: &str) -> Result<T> {
    Err(Error::State(format!("GradScaler: {msg}")))
}
