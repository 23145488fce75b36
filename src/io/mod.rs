//! State: names with tensors, and the files that keep them.
//!
//! | file | what it holds |
//! |---|---|
//! | `dict` | [`StateDict`]: tensors under dotted names, and how they are put into a model |
//! | `safetensors` | [`safe_load`] (nothing read before it is used) and [`safe_save`] |
//! | `npy`, `zip` | NumPy's [`npy_load`], [`npy_save`], [`npz_load`] and [`npz_save`] |
//!
//! Every loader takes any bytes whatever: what is not valid is an [`Error`](crate::Error) that says
//! what is wrong and where, and nothing is allocated on the word of a header alone.

pub(crate) mod download;
mod json;
mod npy;
mod safetensors;
mod state_dict;
pub(crate) mod zip;

use crate::dtype::DType;
use crate::shape::checked_numel;

pub use npy::{
    npy_load, npy_load_bytes, npy_save, npy_to_bytes, npz_load, npz_load_bytes, npz_save,
    npz_to_bytes,
};
pub use safetensors::{safe_load, safe_load_bytes, safe_load_metadata, safe_save, safe_to_bytes};
pub use state_dict::StateDict;

/// No array of a file has more axes: NumPy's limit, and far past any use.
const MOST_AXES: usize = 64;

/// How many elements a shape has, if they take exactly so many bytes.
pub(crate) fn elements(
    dtype: DType,
    shape: &[usize],
    bytes: usize,
) -> crate::Result<usize, String> {
    if shape.len() > MOST_AXES {
        return Err(format!("it has {} axes, and at most {MOST_AXES} are read", shape.len()));
    }
    let len = checked_numel("shape", shape).map_err(|e| e.to_string())?;
    if len.checked_mul(dtype.itemsize()) != Some(bytes) {
        return Err(format!(
            "{dtype} of shape {shape:?} does not take the {bytes} bytes that are there"
        ));
    }
    Ok(len)
}
