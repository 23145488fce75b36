//! Muon: orthogonalized momentum.

use super::adam::shrunk;
use super::{Rule, Update, maximize};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Coefficients of the odd polynomial that moves singular values toward 1, chosen by its authors to
/// be steep at zero.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.775, 2.0315);

/// Momentum orthogonalized by Newton-Schulz iterations (Jordan et al., 2024). For hidden weights of
/// rank 2 or higher, whose axes after the first are flattened; put biases, embeddings and the last
/// layer in a group with [`AdamW`](super::AdamW).
#[derive(Clone, Debug)]
pub struct Muon {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    iterations: usize,
    maximize: bool,
}

impl Muon {
    /// Nesterov momentum 0.95, weight decay 0.1, five iterations.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Muon, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Muon::new(0.1))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(lr: f64) -> Muon {
        Muon {
            lr,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            iterations: 5,
            maximize: false,
        }
    }
    /// Sets the momentum.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Muon, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Muon::new(0.1).momentum(0.9))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn momentum(self, momentum: f64) -> Muon {
        Muon { momentum, ..self }
    }
    /// Enables or disables Nesterov momentum.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Muon, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Muon::new(0.1).nesterov(false))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn nesterov(self, nesterov: bool) -> Muon {
        Muon { nesterov, ..self }
    }
    /// Sets the decoupled weight decay: each step subtracts `lr·weight_decay` of the parameter.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Muon, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Muon::new(0.1).weight_decay(0.0))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight_decay(self, weight_decay: f64) -> Muon {
        Muon { weight_decay, ..self }
    }
    /// Sets the number of Newton-Schulz iterations.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Muon, Optimizer};
    /// let x = Tensor::new([[1.0f32]]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], Muon::new(0.1).iterations(3))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert!(x.item::<f32>()? < 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn iterations(self, iterations: usize) -> Muon {
        Muon { iterations, ..self }
    }
}

maximize! { Muon: maximize; }

impl Rule for Muon {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn maximizes(&self) -> bool {
        self.maximize
    }
    fn state(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }
    fn check(&self, param: &Tensor) -> Result<()> {
        if param.ndim() >= 2 && param.numel() > 0 {
            return Ok(());
        }
        let msg = format!(
            "expected parameters of two axes or more, got {:?}; put it in a group with another \
             rule",
            param.shape()
        );
        Err(Error::Shape { op: "Muon", msg })
    }
    fn update(&self, now: &Update<'_>) -> Result<Tensor> {
        let [momentum] = now.state else { unreachable!("one tensor of state") };
        let part = 1.0 - self.momentum;
        momentum.assign((momentum * self.momentum).try_add(now.grad * part)?)?;
        let direction = if self.nesterov {
            (now.grad * part).try_add(momentum * self.momentum)?
        } else {
            momentum.clone()
        };
        let (rows, cols) = (direction.size(0), direction.numel() / direction.size(0));
        let matrix = direction.try_reshape([rows, cols])?;
        let step = matrix
            .try_newton_schulz(self.iterations, COEFFICIENTS, 1e-7)?
            .try_reshape(direction.shape())?;
        // The step of a tall matrix is scaled to the size of that of a square one.
        let scale = (rows as f64 / cols as f64).max(1.0).sqrt();
        shrunk(now, self.weight_decay)?.try_sub(step.try_mul(now.lr * scale)?)
    }
}
