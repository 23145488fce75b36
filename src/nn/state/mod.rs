//! State: names with tensors, and the files that keep them.
//!
//! | file | what it holds |
//! |---|---|
//! | `dict` | [`StateDict`]: tensors under dotted names, and how they are put into a model |
//! | `safetensors` | [`safe_load`] (mapped, nothing read before it is used) and [`safe_save`] |
//! | `npy`, `zip` | NumPy's [`npy_load`], [`npy_save`], [`npz_load`] and [`npz_save`] |
//! | `atomic` | files that are exchanged whole |
//!
//! Every loader takes any bytes whatever: what is not valid is an [`Error`](crate::Error) that says what is wrong and where, and nothing is
//! allocated on the word of a header alone.

pub(crate) mod atomic;
mod dict;
mod safetensors;

pub use dict::StateDict;
pub use safetensors::{safe_load, safe_load_bytes, safe_load_metadata, safe_save, safe_to_bytes};
