//! Gradient clipping, between `backward` and the optimizer's step.

use crate::error::Result;
use crate::tensor::{Tensor, no_grad, realize_with_step};

/// Scales all gradients by one factor, so that their joint L2 norm is at most `max`. Returns the
/// norm before scaling; it is lazy, and the next step realizes it. Without gradients it is 0.
///
/// ```
/// use picograd::{Tensor, nn::optim::clip_grad_norm};
/// let x = Tensor::new([0.0f32, 0.0]).as_param();
/// (&x * Tensor::new([3.0f32, 4.0])).sum(..).backward();
/// let length = clip_grad_norm(&[x.clone()], 1.0)?;
/// let clipped = x.grad().unwrap().to_vec::<f32>()?;
/// assert!((clipped[0] - 0.6).abs() < 1e-5 && (clipped[1] - 0.8).abs() < 1e-5);
/// assert_eq!(length.item::<f32>()?, 5.0);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn clip_grad_norm(params: &[Tensor], max: f64) -> Result<Tensor> {
    no_grad(|| {
        let mut squares: Option<Tensor> = None;
        for grad in params.iter().filter_map(Tensor::grad) {
            let sum = grad
                .try_cast(super::optimizer::compute_dtype(grad.dtype()))?
                .square()
                .try_sum(..)?;
            squares = Some(match squares {
                Some(s) => s.try_add(sum)?,
                None => sum,
            });
        }
        let Some(squares) = squares else { return Ok(Tensor::zeros(())) };
        let length = squares.sqrt();
        realize_with_step(&length);
        // The small number avoids a division by zero.
        let factor = ((&length + 1e-6).reciprocal() * max).try_minimum(1.0)?;
        for p in params {
            if let Some(grad) = p.grad() {
                p.set_grad(Some(grad.try_mul(&factor)?.try_cast(grad.dtype())?));
            }
        }
        Ok(length)
    })
}

/// Clamps each element of each gradient to `-max..max`.
///
/// ```
/// use picograd::{Tensor, nn::optim::clip_grad_value};
/// let x = Tensor::new([0.0f32, 0.0]).as_param();
/// (&x * Tensor::new([3.0f32, -0.5])).sum(..).backward();
/// clip_grad_value(&[x.clone()], 1.0)?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, -0.5]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn clip_grad_value(params: &[Tensor], max: f64) -> Result<()> {
    no_grad(|| {
        for p in params {
            if let Some(grad) = p.grad() {
                p.set_grad(Some(grad.try_clamp(-max, max)?));
            }
        }
        Ok(())
    })
}
