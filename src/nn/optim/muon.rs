//! Muon: momentum whose matrix is made orthogonal before it is a step.

use super::adam::shrunk;
use super::{Rule, Update, maximize};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Of the odd polynomial that brings singular values near to 1, chosen by its authors to be steep
/// at zero.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.775, 2.0315);

/// Momentum made nearly orthogonal by a few Newton-Schulz iterations (Jordan and others, 2024). It
/// is for the weights inside of a network, with two axes or more, where those after the first count
/// as one; biases, embeddings and the last layer go to [`AdamW`](super::AdamW) in a group of their
/// own.
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
    /// Momentum 0.95 after Nesterov, weight decay 0.1, five iterations.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Muon, Optimizer},
    /// };
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
    /// How much of the last directions stays.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Muon, Optimizer},
    /// };
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
    /// The gradient as it would be after the momentum's step, or as it is.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Muon, Optimizer},
    /// };
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
    /// Each step takes `lr·weight_decay` of the parameter off.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Muon, Optimizer},
    /// };
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
    /// How often the direction is brought nearer to an orthogonal matrix.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Muon, Optimizer},
    /// };
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
            "takes parameters of two axes or more, and was given {:?}; put it in a group with \
             another rule",
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
        // A tall matrix has fewer directions than rows, and its step is made as large as that of a
        // square one.
        let scale = (rows as f64 / cols as f64).max(1.0).sqrt();
        shrunk(now, self.weight_decay)?.try_sub(step.try_mul(now.lr * scale)?)
    }
}
