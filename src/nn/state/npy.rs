//! NumPy's files: `.npy` is one array, `.npz` a zip archive of them.
//!
//! Numbers and bools of either byte order, in C or Fortran order, are read. Arrays of Python objects are refused: they are pickles, and
//! reading a pickle runs whatever code it names.

use super::zip::{self, Writer};
use super::{StateDict, elements};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::runtime::files;
use crate::tensor::Tensor;
use std::io::Write;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

/// What the format calls each dtype, without the byte order.
const NAMES: [(&str, DType); 12] = [
    ("b1", DType::BOOL),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

/// The array of a `.npy` file, on the default device.
///
/// ```
/// use picograd::{Tensor, nn::state::{npy_load, npy_save}};
/// let path = std::env::temp_dir().join(format!("doc-{}.npy", std::process::id()));
/// npy_save(&path, &Tensor::new([[1i16, 2], [3, 4]]))?;
/// assert_eq!(npy_load(&path)?.to_vec::<i16>()?, [1, 2, 3, 4]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_load(path: impl AsRef<Path>) -> Result<Tensor> {
    parse(&path.as_ref().display().to_string(), &read(path.as_ref())?)
}

/// The array of a `.npy` file that is in memory.
///
/// ```
/// use picograd::{Tensor, nn::state::{npy_load_bytes, npy_to_bytes}};
/// let file = npy_to_bytes(&Tensor::new([1i16, 2]))?;
/// assert_eq!(npy_load_bytes(&file)?.to_vec::<i16>()?, [1, 2]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_load_bytes(bytes: &[u8]) -> Result<Tensor> {
    parse("npy", bytes)
}

/// Computes a tensor and writes it to a `.npy` file. An old file is exchanged whole, as by [`safe_save`](super::safe_save).
///
/// ```
/// use picograd::{Tensor, nn::state::{npy_load, npy_save}};
/// let path = std::env::temp_dir().join(format!("doc-save-{}.npy", std::process::id()));
/// npy_save(&path, &Tensor::new([1i16, 2]))?;
/// assert_eq!(npy_load(&path)?.shape(), [2]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let bytes = npy_to_bytes(tensor)?;
    let failed = |e: std::io::Error| Error::Io { path: path.as_ref().to_path_buf(), msg: e.to_string() };
    files::write(path.as_ref(), |out| out.write_all(&bytes).map_err(failed))
}

/// What [`npy_save`] writes, in memory.
///
/// ```
/// use picograd::{Tensor, nn::state::npy_to_bytes};
/// assert_eq!(npy_to_bytes(&Tensor::new([1i16, 2]))?[..6], *b"\x93NUMPY");
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let Some((name, _)) = NAMES.iter().find(|(_, d)| *d == dtype) else {
        let msg = format!("NumPy has no {dtype}; cast to f32 first, or write safetensors");
        return Err(Error::DType { op: "npy_save", msg });
    };
    let order = if dtype.itemsize() == 1 { '|' } else { '<' };
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    // A tuple of one element has a comma in it.
    let comma = if sizes.len() == 1 { "," } else { "" };
    let text = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    // With its end of line the header fills whole lines of 64 bytes, so that the data is aligned.
    let wide = text.len() + 11 > usize::from(u16::MAX);
    let before = if wide { 12 } else { 10 };
    let len = (before + text.len() + 1).next_multiple_of(64) - before;
    let mut out = MAGIC.to_vec();
    if wide {
        out.extend([2, 0]);
        out.extend((len as u32).to_le_bytes());
    } else {
        out.extend([1, 0]);
        out.extend((len as u16).to_le_bytes());
    }
    out.extend(format!("{text:<width$}\n", width = len - 1).bytes());
    out.extend(tensor.to_bytes()?);
    Ok(out)
}

/// The arrays of a `.npz` file by name, on the default device.
///
/// ```
/// use picograd::{Tensor, nn::state::{StateDict, npz_load, npz_save}};
/// let path = std::env::temp_dir().join(format!("doc-load-{}.npz", std::process::id()));
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// npz_save(&path, &state, false)?;
/// assert_eq!(npz_load(&path)?.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_load(path: impl AsRef<Path>) -> Result<StateDict> {
    unpack(&path.as_ref().display().to_string(), &read(path.as_ref())?)
}

/// The arrays of a `.npz` file that is in memory.
///
/// ```
/// use picograd::{Tensor, nn::state::{StateDict, npz_load_bytes, npz_to_bytes}};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// let file = npz_to_bytes(&state, true)?;
/// assert_eq!(npz_load_bytes(&file)?.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_load_bytes(bytes: &[u8]) -> Result<StateDict> {
    unpack("npz", bytes)
}

/// Computes tensors and writes them to a `.npz` file, deflated if asked. An old file is exchanged whole.
///
/// ```
/// use picograd::{Tensor, nn::state::{StateDict, npz_load, npz_save}};
/// let path = std::env::temp_dir().join(format!("doc-save-{}.npz", std::process::id()));
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// npz_save(&path, &state, true)?;
/// assert_eq!(npz_load(&path)?.len(), 1);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_save(path: impl AsRef<Path>, state: &StateDict, compress: bool) -> Result<()> {
    Tensor::realize_many(&state.iter().map(|(_, t)| t).collect::<Vec<_>>())?;
    files::write(path.as_ref(), |out| pack(path.as_ref(), state, compress, out))
}

/// What [`npz_save`] writes, in memory.
///
/// ```
/// use picograd::{Tensor, nn::state::{StateDict, npz_to_bytes}};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// assert_eq!(npz_to_bytes(&state, false)?[..2], *b"PK");
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_to_bytes(state: &StateDict, compress: bool) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pack(Path::new("npz"), state, compress, &mut bytes)?;
    Ok(bytes)
}

fn pack(path: &Path, state: &StateDict, compress: bool, out: &mut dyn Write) -> Result<()> {
    let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    let mut archive = Writer::new(out);
    for (name, tensor) in state {
        archive.add(&format!("{name}.npy"), &npy_to_bytes(tensor)?, compress).map_err(failed)?;
    }
    archive.finish().map_err(failed)
}

fn unpack(at: &str, bytes: &[u8]) -> Result<StateDict> {
    let mut state = StateDict::new();
    for entry in zip::entries(at, bytes)? {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_string();
        let array = parse(&format!("{at}: {}", entry.name), &entry.read(at)?)?;
        if state.insert(name, array).is_some() {
            return Err(Error::Format { at: at.to_string(), msg: format!("{} is there twice", entry.name) });
        }
    }
    Ok(state)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::Io { path: path.to_path_buf(), msg: e.to_string() })
}

fn parse(at: &str, bytes: &[u8]) -> Result<Tensor> {
    let wrong = |msg: String| Error::Format { at: at.to_string(), msg: format!("not a readable npy file: {msg}") };
    let (text, data) = split(bytes).map_err(wrong)?;
    let head = header(text).map_err(wrong)?;
    elements(head.dtype, &head.shape, data.len()).map_err(wrong)?;
    let mut data = data.to_vec();
    if head.big {
        data.chunks_exact_mut(head.dtype.itemsize()).for_each(<[u8]>::reverse);
    }
    if head.dtype.is_bool() {
        data.iter_mut().for_each(|b| *b = (*b != 0) as u8);
    }
    if !head.fortran {
        return Tensor::try_from_bytes(&data, head.dtype, head.shape);
    }
    // The first axis runs fastest: these are the elements of the array with its axes in reverse.
    let axes: Vec<isize> = (0..head.shape.len() as isize).rev().collect();
    let reversed: Vec<usize> = head.shape.iter().rev().copied().collect();
    Tensor::try_from_bytes(&data, head.dtype, reversed)?.try_permute(axes)
}

/// The header's text and what follows it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "it ends in the middle of the header".to_string();
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin with \\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (len, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
        other => return Err(format!("its version is {other}, and 1 to 3 are known")),
    }
    .ok_or_else(cut)?;
    let (text, data) = rest.split_at_checked(len).ok_or_else(cut)?;
    Ok((std::str::from_utf8(text).map_err(|_| "its header is not text")?, data))
}

struct Head {
    dtype: DType,
    big: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// Reads the Python literal `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn header(text: &str) -> Result<Head, String> {
    let inside = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or("its header is not a dict")?;
    let (mut kind, mut fortran, mut shape) = (None, None, None);
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or("its header has a key that is not a string")?;
        rest = after.trim_start().strip_prefix(':').ok_or_else(|| format!("there is no value for {key:?}"))?.trim_start();
        let twice = match key {
            "descr" => {
                if rest.starts_with('[') {
                    return Err("records of several fields are not supported".into());
                }
                let (value, after) = quoted(rest).ok_or("its descr is not a string")?;
                rest = after;
                kind.replace(value).is_some()
            }
            "fortran_order" => {
                let (value, after) = match (rest.strip_prefix("True"), rest.strip_prefix("False")) {
                    (Some(after), _) => (true, after),
                    (_, Some(after)) => (false, after),
                    _ => return Err("its fortran_order is neither True nor False".into()),
                };
                rest = after;
                fortran.replace(value).is_some()
            }
            "shape" => {
                let (list, after) = rest.strip_prefix('(').and_then(|r| r.split_once(')')).ok_or("its shape is not a tuple")?;
                rest = after;
                // Old versions of Python wrote a long as 3L.
                let size = |s: &str| s.trim().trim_end_matches('L').parse::<usize>().map_err(|_| format!("its shape has the size {s:?}"));
                let list = list.trim().trim_end_matches(',');
                let sizes = if list.is_empty() { Vec::new() } else { list.split(',').map(size).collect::<Result<_, _>>()? };
                shape.replace(sizes).is_some()
            }
            other => return Err(format!("its header has the unknown key {other:?}")),
        };
        if twice {
            return Err(format!("its header has {key:?} twice"));
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err("its header has no comma between two values".into()),
        };
    }
    let kind = kind.ok_or("its header has no descr")?;
    let (dtype, big) = dtype(kind)?;
    let fortran = fortran.ok_or("its header has no fortran_order")?;
    Ok(Head { dtype, big, fortran, shape: shape.ok_or("its header has no shape")? })
}

/// A string in either quotes, without escapes, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// The dtype of a descr such as `<f4`, and whether its bytes are in reverse.
fn dtype(kind: &str) -> Result<(DType, bool), String> {
    let (big, name) = match kind.split_at_checked(1) {
        Some(("<" | "|" | "=", name)) => (false, name),
        Some((">", name)) => (true, name),
        _ => (false, kind),
    };
    if name.starts_with('O') {
        return Err("it holds Python objects, which are pickled and could run any code; save it with a numeric dtype".into());
    }
    let known = NAMES.iter().find(|(n, _)| *n == name).map(|(_, dtype)| (*dtype, big));
    known.ok_or_else(|| format!("the dtype {kind:?} is not supported; bools, integers and floats of 16 to 64 bits are"))
}
