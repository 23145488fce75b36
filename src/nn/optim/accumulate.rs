//! Gradient accumulation over several small batches.

use super::Optimizer;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, take_step_list};

/// Accumulates the gradients of several batches, so that a step equals that of one large batch with
/// the memory of a small one.
///
/// ```
/// use picograd::Tensor;
/// use picograd::nn::optim::{Accumulate, Optimizer, SGD};
/// let w = Tensor::new([0.0f32]).as_param();
/// let mut optimizer = Optimizer::new([w.clone()], SGD::new(1.0))?;
/// let mut accumulate = Accumulate::new(2)?;
/// for x in [1.0f32, 3.0, 5.0, 7.0] {
///     let loss = (&w * x).sum(..);
///     if accumulate.backward(&loss, &optimizer)? {
///         optimizer.step()?;
///     }
/// }
/// assert_eq!(w.item::<f32>()?, -(1.0 + 3.0) / 2.0 - (5.0 + 7.0) / 2.0);
/// # Ok::<(), picograd::Error>(())
/// ```
pub struct Accumulate {
    batches: usize,
    done: usize,
}

impl Accumulate {
    /// Creates an accumulator of `batches` batches per step; 0 is an error.
    ///
    /// ```
    /// use picograd::nn::optim::Accumulate;
    /// assert!(Accumulate::new(0).is_err());
    /// ```
    pub fn new(batches: usize) -> Result<Accumulate> {
        if batches == 0 {
            return Err(Error::State(
                "Accumulate: expected at least one batch per step, got 0".into(),
            ));
        }
        Ok(Accumulate { batches, done: 0 })
    }
    /// Adds the gradients of a loss (a mean over its batch) divided by the number of batches, and
    /// realizes them, so that nothing of the batch stays alive. Returns true for the last batch of
    /// a step. A loss that a [`GradScaler`](super::GradScaler) scaled works too.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Accumulate, Optimizer, SGD};
    /// let w = Tensor::new([2.0f32]).as_param();
    /// let optimizer = Optimizer::new([w.clone()], SGD::new(1.0))?;
    /// let mut accumulate = Accumulate::new(2)?;
    /// assert!(!accumulate.backward(&w.square().sum(..), &optimizer)?);
    /// assert!(accumulate.backward(&w.square().sum(..), &optimizer)?);
    /// assert_eq!(w.grad().unwrap().item::<f32>()?, 4.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn backward(&mut self, loss: &Tensor, optimizer: &Optimizer) -> Result<bool> {
        loss.try_div(self.batches as f64)?.try_backward()?;
        let grads: Vec<Tensor> = optimizer
            .parameters()
            .iter()
            .filter_map(Tensor::grad)
            .chain(take_step_list())
            .collect();
        Tensor::realize_many(&grads.iter().chain([loss]).collect::<Vec<_>>())?;
        self.done = (self.done + 1) % self.batches;
        Ok(self.done == 0)
    }
    /// Returns true if a step is incomplete. At the end of the data, step with these gradients or
    /// drop them with [`Optimizer::zero_grad`] and [`reset`](Self::reset).
    ///
    /// ```
    /// use picograd::nn::optim::Accumulate;
    /// assert!(!Accumulate::new(4)?.is_pending());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn is_pending(&self) -> bool {
        self.done > 0
    }
    /// Starts a new step.
    ///
    /// ```
    /// use picograd::nn::optim::Accumulate;
    /// let mut accumulate = Accumulate::new(4)?;
    /// accumulate.reset();
    /// assert!(!accumulate.is_pending());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reset(&mut self) {
        self.done = 0;
    }
}
