//! State dicts, file formats and downloads.
//!
//! | file | contents |
//! |---|---|
//! | `state_dict` | [`StateDict`]: tensors by dotted name, and loading them into a model |
//! | `safetensors`, `json` | [`safe_load`] (lazy) and [`safe_save`] |
//! | `npy`, `zip` | NumPy's [`npy_load`], [`npy_save`], [`npz_load`] and [`npz_save`] |
//! | `download` | [`Tensor::from_url`](crate::Tensor::from_url), the folder of downloads |
//!
//! Loaders trust no file: malformed input is an [`Error`](crate::Error) that says what is wrong and
//! where, and allocations are limited by the bytes of the file, not by what its header declares.

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

/// Maximum number of axes of an array in a file: NumPy's limit.
const MAX_AXES: usize = 64;

/// Returns the number of elements of a shape. An error unless they take exactly `bytes` bytes.
pub(crate) fn elements(
    dtype: DType,
    shape: &[usize],
    bytes: usize,
) -> crate::Result<usize, String> {
    if shape.len() > MAX_AXES {
        return Err(format!("{} axes; at most {MAX_AXES} are supported", shape.len()));
    }
    let len = checked_numel("shape", shape).map_err(|e| e.to_string())?;
    if len.checked_mul(dtype.itemsize()) != Some(bytes) {
        return Err(format!("{dtype} of shape {shape:?} does not take the {bytes} bytes given"));
    }
    Ok(len)
}
