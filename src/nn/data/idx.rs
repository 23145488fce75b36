//! IDX, the format of MNIST: a dtype, a shape and big-endian numbers; plain or gzipped.

use super::Array;
use crate::device::limits;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::elements;
use crate::io::zip::MAX_RATIO;
use crate::shape::checked_numel;
use flate2::read::MultiGzDecoder;
use std::io::Read;
use std::path::Path;

/// Loads the array of an IDX file. Gzip is detected by its magic number.
///
/// ```
/// use picograd::nn::data::idx_load;
/// let path = std::env::temp_dir().join(format!("doc-load-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 0x08, 1, 0, 0, 0, 3, 7, 8, 9]).unwrap(); // u8, one axis, [3]
/// assert_eq!(idx_load(&path)?.bytes(), [7, 8, 9]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn idx_load(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    let bytes = limits::read_file(path)?;
    parse(&path.display().to_string(), &bytes)
}

/// Loads the array of an IDX file that is in memory.
///
/// ```
/// use picograd::nn::data::idx_load_bytes;
/// let file = [0, 0, 0x08, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]; // u8, two axes, [1, 3]
/// let array = idx_load_bytes(&file)?;
/// assert_eq!((array.shape(), array.bytes()), (&[1, 3][..], &[7, 8, 9][..]));
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn idx_load_bytes(bytes: &[u8]) -> Result<Array> {
    parse("idx", bytes)
}

pub(super) fn parse(at: &str, bytes: &[u8]) -> Result<Array> {
    let wrong = |msg: String| Error::Format {
        at: at.to_string(),
        msg: format!("not a valid IDX file: {msg}"),
    };
    if bytes.starts_with(&[0x1f, 0x8b]) {
        read(&mut MultiGzDecoder::new(bytes), (bytes.len() as u64).saturating_mul(MAX_RATIO))
            .map_err(wrong)
    } else {
        read(&mut &*bytes, bytes.len() as u64).map_err(wrong)
    }
}

/// Reads an array from a stream of at most `max_bytes` bytes.
fn read(from: &mut dyn Read, max_bytes: u64) -> Result<Array, String> {
    let mut head = [0; 4];
    from.read_exact(&mut head).map_err(|e| format!("its header: {e}"))?;
    let [0, 0, kind, axes] = head else { return Err("it does not begin with two zeros".into()) };
    let dtype = match kind {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0b => DType::I16,
        0x0c => DType::I32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        other => return Err(format!("unknown dtype {other:#04x}")),
    };
    let mut shape = vec![0usize; axes.into()];
    for size in &mut shape {
        let mut n = [0; 4];
        from.read_exact(&mut n).map_err(|e| format!("its sizes: {e}"))?;
        *size = u32::from_be_bytes(n) as usize;
    }
    let len = checked_numel("idx", &shape).map_err(|e| e.to_string())?;
    let bytes = len.checked_mul(dtype.itemsize()).filter(|b| *b as u64 <= max_bytes);
    let bytes =
        bytes.ok_or_else(|| format!("{dtype} of shape {shape:?} is larger than the file"))?;
    let mut data = limits::vec(bytes + 1).map_err(|e| e.to_string())?;
    from.take(bytes as u64 + 1).read_to_end(&mut data).map_err(|e| format!("its numbers: {e}"))?;
    elements(dtype, &shape, data.len())?;
    if dtype.itemsize() > 1 {
        data.chunks_exact_mut(dtype.itemsize()).for_each(<[u8]>::reverse);
    }
    Array::from_bytes(data, dtype, &shape).map_err(|e| e.to_string())
}
