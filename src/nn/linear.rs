//! The fully connected layer.

use super::{Layer, Module, Weighted, init, unexpected_input};
use crate::error::Result;
use crate::tensor::Tensor;

/// `x·Wᵀ + b` over the last axis: `[…, inputs]` becomes `[…, outputs]`. Weight and bias are
/// initialized uniformly over ±1/√inputs.
#[derive(Module)]
pub struct Linear {
    /// The weight, `[outputs, inputs]`.
    pub weight: Tensor,
    /// The bias, `[outputs]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// Creates a layer with a bias.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Linear};
    /// let layer = Linear::new(3, 2);
    /// assert_eq!(layer.forward(&Tensor::zeros([7, 5, 3])).shape(), [7, 5, 2]);
    /// let wrong = layer.try_forward(&Tensor::zeros([7, 4])).unwrap_err();
    /// assert_eq!(wrong.to_string(), "Linear: expected […, 3], got [7, 4]");
    /// ```
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        Linear {
            weight: init::default_weight([outputs, inputs], inputs).as_param(),
            bias: Some(init::default_weight([outputs], inputs).as_param()),
        }
    }
    /// Enables or disables the bias.
    ///
    /// ```
    /// use picograd::nn::Linear;
    /// assert!(Linear::new(3, 2).bias(false).bias.is_none());
    /// ```
    pub fn bias(self, bias: bool) -> Linear {
        Linear { bias: self.bias.filter(|_| bias), ..self }
    }
}

impl Layer for Linear {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(&self.weight, x)
    }
}

impl Weighted for Linear {
    fn weight(&self) -> &Tensor {
        &self.weight
    }
    fn forward_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor> {
        let inputs = self.weight.size(-1);
        if x.max_shape().last() != Some(&inputs) {
            return unexpected_input("Linear", format_args!("[…, {inputs}]"), x);
        }
        x.try_linear(weight, self.bias.as_ref())
    }
}
