//! What networks are made of and trained with.
//!
//! ```
//! use picograd::{
//!     Tensor,
//!     nn::{Layer, Linear, Module},
//!     seq,
//! };
//! let net = seq![Linear::new(2, 8), Tensor::tanh, Linear::new(8, 1)];
//! let y = net.forward(&Tensor::zeros([5, 2]));
//! assert_eq!((y.shape(), net.num_parameters()), (vec![5, 1], 33));
//! let saved = net.state_dict(); // "0.weight", "0.bias", "2.weight", "2.bias"
//! net.load_state_dict(&saved, true)?;
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! | part | what it holds |
//! |---|---|
//! | [`Module`], [`Layer`], [`Sequential`] | what has parameters; what takes one tensor to another; a chain of those |
//! | [`Linear`], [`Embedding`] | tables that are multiplied and looked up |
//! | [`Conv1d`], [`Conv2d`], [`Conv3d`] and their transposes | windows with weights |
//! | [`Upsample`] | other sizes of pictures |
//! | [`WeightNorm`], [`SpectralNorm`] | layers whose weights are normalised |
//! | [`MaxPool2d`], [`AvgPool2d`] and their kin | windows without |
//! | [`BatchNorm`], [`LayerNorm`], [`LayerNorm2d`], [`GroupNorm`], [`InstanceNorm`], [`RMSNorm`] | normalisation |
//! | [`MultiHeadAttention`], [`TransformerBlock`] | attention |
//! | [`RNN`], [`GRU`], [`LSTM`] and their cells | recurrence |
//! | [`ReLU`], [`GELU`], [`Dropout`], [`Flatten`] and their kin | functions as layers |
//! | [`Ema`] | running means of parameters |
//! | [`init`] | what weights start with |
//! | [`optim`] | optimizers, clipping, schedules of the learning rate |
//! | [`state`] | names with tensors, and files of them |
//! | [`data`] | samples, and batches of them |
//!
//! Parameters have PyTorch's names, shapes and starting distributions, so a state dict from there
//! loads into the same architecture here. Losses are methods of tensors, such as
//! [`Tensor::cross_entropy`](crate::Tensor::cross_entropy).

mod activation;
mod attention;
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
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use ema::Ema;
pub use embedding::Embedding;
pub use linear::Linear;
pub use module::{Mode, Module, Part, Visitor};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm};
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

/// The error of an input that a layer does not take.
fn unfit<T>(layer: &'static str, takes: impl std::fmt::Display, got: &Tensor) -> Result<T> {
    Err(Error::Shape { op: layer, msg: format!("takes {takes}, and was given {:?}", got.shape()) })
}

/// The examples of the page on data and state, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/data.md")]
pub struct DataPage;

/// The examples of the page on networks, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/nn.md")]
pub struct NetworksPage;
