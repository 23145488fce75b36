//! Muon: orthogonalized momentum.

use super::adam::shrunk;
use super::declare::{rule, settings_of_rule, step_example};
use super::{Rule, Update};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Coefficients of the odd polynomial that moves singular values toward 1, chosen by its authors to
/// be steep at zero.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.775, 2.0315);

rule! {
    /// Momentum orthogonalized by Newton-Schulz iterations (Jordan et al., 2024). For hidden
    /// weights of rank 2 or higher, whose axes after the first are flattened; put biases,
    /// embeddings and the last layer in a group with [`AdamW`](super::AdamW).
    Muon {
        /// Creates Muon with Nesterov momentum 0.95, weight decay 0.1 and five iterations.
        new;
        /// Sets the momentum.
        momentum: f64 = 0.95, "0.9";
        /// Enables or disables Nesterov momentum.
        nesterov: bool = true, "false";
        /// Sets the decoupled weight decay: each step subtracts `lr·weight_decay` of the parameter.
        weight_decay: f64 = 0.1, "0.0";
        /// Sets the number of Newton-Schulz iterations.
        iterations: usize = 5, "3";
    }
}

impl Rule for Muon {
    settings_of_rule!("momentum_buffer");
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
        // Scales the step of a tall matrix to the norm of the step of a square one.
        let scale = (rows as f64 / cols as f64).max(1.0).sqrt();
        shrunk(now, self.weight_decay)?.try_sub(step.try_mul(now.lr * scale)?)
    }
}
