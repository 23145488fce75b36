//! Neural networks: modules, layers, optimizers and data.
//!
//! ```
//! use picograd::{Tensor, seq};
//! use picograd::nn::{Layer, Linear, Module};
//! let net = seq![Linear::new(2, 8), Tensor::tanh, Linear::new(8, 1)];
//! let y = net.forward(&Tensor::zeros([5, 2]));
//! assert_eq!((y.shape(), net.num_parameters()), (vec![5, 1], 33));
//! let saved = net.state_dict(); // "0.weight", "0.bias", "2.weight", "2.bias"
//! net.load_state_dict(&saved, true)?;
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! | item | contents |
//! |---|---|
//! | [`Module`], [`Layer`], [`Sequential`] | containers of parameters; maps from one tensor to another; chains of layers |
//! | [`Linear`], [`Embedding`] | linear layer, embedding table |
//! | [`Conv1d`], [`Conv2d`], [`Conv3d`] and their transposes | convolutions |
//! | [`Upsample`] | interpolation |
//! | [`WeightNorm`], [`SpectralNorm`] | weight normalization |
//! | [`MaxPool2d`], [`AvgPool2d`] and others | pooling |
//! | [`BatchNorm`], [`LayerNorm`], [`LayerNorm2d`], [`GroupNorm`], [`InstanceNorm`], [`RMSNorm`] | normalization |
//! | [`MultiHeadAttention`], [`TransformerBlock`] | attention |
//! | [`RNN`], [`GRU`], [`LSTM`] and their cells | recurrent layers |
//! | [`ReLU`], [`GELU`], [`Dropout`], [`Flatten`] and others | functions as layers |
//! | [`Ema`] | moving averages of parameters |
//! | [`init`] | weight initialization |
//! | [`optim`] | optimizers, gradient clipping, learning-rate schedules |
//! | [`io`](crate::io) | state dicts and files |
//! | [`data`] | datasets and loaders |
//!
//! Parameters have PyTorch's names, shapes and initialization, so that its state dicts load into
//! the same architecture. Losses are tensor methods, such as
//! [`Tensor::cross_entropy`](crate::Tensor::cross_entropy).

/// The text of an example for a generated layer: an input shape, and a property of the output.
macro_rules! forward_example {
    ($layer:ident $new:literal, $input:literal, $property:literal == $expected:literal) => {
        concat!(
            "use picograd::{Tensor, nn::{Layer, ",
            stringify!($layer),
            "}};\n",
            "let layer = ",
            stringify!($layer),
            "::new",
            $new,
            ";\n",
            "let y = layer.forward(&Tensor::zeros(",
            $input,
            "));\n",
            "assert_eq!(y.",
            $property,
            ", ",
            $expected,
            ");",
        )
    };
}

mod activation;
mod attention;
mod batch_norm;
mod conv;
pub mod data;
mod ema;
mod embedding;
pub mod init;
mod linear;
mod module;
mod norm;
pub mod optim;
mod parametrize;
mod pool;
mod rnn;
mod sequential;
mod summary;
mod upsample;

pub use activation::*;
pub use attention::{MultiHeadAttention, TransformerBlock};
pub use batch_norm::BatchNorm;
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use ema::Ema;
pub use embedding::Embedding;
pub use linear::Linear;
pub use module::{Mode, Module, Part, Visitor};
pub use norm::{GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm};
pub use parametrize::{SpectralNorm, WeightNorm, Weighted};
pub use picograd_derive::Module;
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use rnn::{GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell};
pub use sequential::{Func, IsFunction, IsLayer, Layer, Sequential, ToLayer};
pub use summary::Summary;
pub use upsample::{PerAxis, Upsample};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Returns the error of an input that a layer does not accept.
fn unexpected_input<T>(
    layer: &'static str,
    takes: impl std::fmt::Display,
    got: &Tensor,
) -> Result<T> {
    Err(Error::Shape { op: layer, msg: format!("expected {takes}, got {:?}", got.shape()) })
}

/// The examples of docs/data.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/data.md")]
pub struct DataPage;

/// The examples of docs/nn.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/nn.md")]
pub struct NetworksPage;
