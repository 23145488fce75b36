//! Exponential moving averages of parameters, which often generalize better than the parameters.

use super::Module;
use crate::error::{Error, Result};
use crate::io::StateDict;
use crate::tensor::{Tensor, no_grad};

/// An exponential moving average of the parameters of a module: after each step `average·decay +
/// parameter·(1 - decay)`. The first update copies the parameters. Buffers, such as running
/// statistics, are copied at each update.
///
/// ```
/// use picograd::Tensor;
/// use picograd::nn::{Ema, Layer, Linear};
/// let layer = Linear::new(1, 1).bias(false);
/// layer.weight.assign(1.0)?;
/// let ema = Ema::new(&layer, 0.75)?;
/// ema.update()?;
/// layer.weight.assign(3.0)?;
/// ema.update()?;
/// let y = ema.with(|| layer.forward(&Tensor::ones([1, 1])).item::<f32>())??;
/// assert_eq!((y, layer.weight.item::<f32>()?), (1.5, 3.0));
/// # Ok::<(), picograd::Error>(())
/// ```
pub struct Ema {
    /// Per tensor: its name, the tensor of the module, its average.
    tensors: Vec<(String, Tensor, Tensor)>,
    decay: f64,
    updates: Tensor,
}

impl Ema {
    /// Creates averages with the current parameters. The decay is between 0 and 1.
    ///
    /// ```
    /// use picograd::nn::{Ema, Linear};
    /// assert!(Ema::new(&Linear::new(2, 3), 1.5).is_err());
    /// ```
    pub fn new(module: &impl Module, decay: f64) -> Result<Ema> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(Error::State(format!("Ema: expected a decay from 0 to 1, got {decay}")));
        }
        let mut all = module.named_parameters();
        all.extend(module.named_buffers());
        Tensor::realize_many(&all.iter().map(|(_, t)| t).collect::<Vec<_>>())?;
        let tensors: Vec<_> =
            all.into_iter().map(|(name, t)| (name, t.clone(), t.detach())).collect();
        // Averages have their own memory, which updates overwrite.
        let ema = Ema { tensors, decay, updates: Tensor::new([0i64]).reshape(()) };
        for (_, _, average) in &ema.tensors {
            average.assign(average.copy().contiguous())?;
        }
        Ok(ema)
    }
    /// Updates the averages; call it after a step of the optimizer. A [`Jit`](crate::Jit) can
    /// capture it.
    ///
    /// ```
    /// use picograd::nn::{Ema, Linear, Module};
    /// let layer = Linear::new(2, 3);
    /// let ema = Ema::new(&layer, 0.999)?;
    /// ema.update()?;
    /// assert_eq!(ema.state_dict().require("n_averaged")?.item::<i64>()?, 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn update(&self) -> Result<()> {
        no_grad(|| {
            // 0 at the first update.
            let kept = self.updates.try_gt(0)?.try_where_(self.decay, 0.0)?;
            for (_, now, average) in &self.tensors {
                if !now.is_param() {
                    average.assign(now.detach())?;
                    continue;
                }
                let wide =
                    if now.dtype() == crate::DType::F64 { now.dtype() } else { crate::DType::F32 };
                let (p, kept) =
                    (now.try_cast(wide)?, kept.try_cast(wide)?.try_to(now.device().as_str())?);
                let moved = average.try_cast(wide)?.try_sub(&p)?.try_mul(kept)?.try_add(p)?;
                average.assign(moved.try_cast(now.dtype())?)?;
            }
            self.updates.assign(self.updates.copy() + 1)
        })?;
        Tensor::realize_many(
            &self.tensors.iter().map(|t| &t.2).chain([&self.updates]).collect::<Vec<_>>(),
        )
    }
    /// Runs a function with the averages in the module, and restores the parameters and buffers
    /// afterwards, also if it panics.
    ///
    /// ```
    /// use picograd::nn::{Ema, Linear, Module};
    /// let layer = Linear::new(2, 3);
    /// let ema = Ema::new(&layer, 0.999)?;
    /// let saved = ema.with(|| layer.state_dict())?;
    /// assert_eq!(saved.len(), 2);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        struct Restore(Vec<(Tensor, Tensor)>);
        impl Drop for Restore {
            fn drop(&mut self) {
                for (t, before) in &self.0 {
                    // Shape, dtype and device are unchanged, so that the assignment succeeds.
                    let _ = t.assign(before);
                }
            }
        }
        let restore =
            Restore(self.tensors.iter().map(|(_, t, _)| (t.clone(), t.detach())).collect());
        self.copy_to_module()?;
        let result = f();
        drop(restore);
        Ok(result)
    }
    /// Copies the averages into the module permanently.
    ///
    /// ```
    /// use picograd::nn::{Ema, Linear};
    /// let layer = Linear::new(1, 1).bias(false);
    /// layer.weight.assign(1.0)?;
    /// let ema = Ema::new(&layer, 0.5)?;
    /// layer.weight.assign(3.0)?;
    /// ema.copy_to_module()?;
    /// assert_eq!(layer.weight.item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn copy_to_module(&self) -> Result<()> {
        self.tensors.iter().try_for_each(|(_, t, average)| t.assign(average.copy()))
    }
    fn named(&self) -> Vec<(String, Tensor)> {
        let all = self
            .tensors
            .iter()
            .map(|(name, _, average)| (format!("module.{name}"), average.clone()));
        std::iter::once(("n_averaged".to_string(), self.updates.clone())).chain(all).collect()
    }
    /// Returns the averages under `module.` and their names, and the number of updates, as in the
    /// state dict of PyTorch's `AveragedModel`.
    ///
    /// ```
    /// use picograd::nn::{Ema, Linear};
    /// let ema = Ema::new(&Linear::new(2, 3), 0.999)?;
    /// assert!(ema.state_dict().get("module.weight").is_some());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn state_dict(&self) -> StateDict {
        self.named().into_iter().map(|(name, t)| (name, t.detach())).collect()
    }
    /// Loads a state. On a mismatch the error names it and nothing changes.
    ///
    /// ```
    /// use picograd::{io::StateDict, nn::{Ema, Linear}};
    /// let ema = Ema::new(&Linear::new(2, 3), 0.999)?;
    /// assert!(ema.load_state_dict(&StateDict::new()).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        state.load_into(&self.named(), true)
    }
}
