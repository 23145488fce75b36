//! NumPy's files: `.npy` is one array, `.npz` a zip archive of arrays.
//!
//! Numbers and bools of either byte order are read, in C or Fortran order. Arrays of Python objects
//! are refused: reading a pickle can run arbitrary code.

use super::zip::Writer;
use super::{StateDict, elements, zip};
use crate::device::{Buffer, Device, files, limits};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::io::{BufReader, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum bytes of a header. The header of the longest shape has about 1,400 bytes.
const MAX_HEADER: u64 = 1 << 20;

/// The format's name of each dtype, without the byte order.
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

/// Loads the array of a `.npy` file, on the default device.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{npy_load, npy_save};
/// let path = std::env::temp_dir().join(format!("doc-{}.npy", std::process::id()));
/// npy_save(&path, &Tensor::new([[1i16, 2], [3, 4]]))?;
/// assert_eq!(npy_load(&path)?.to_vec::<i16>()?, [1, 2, 3, 4]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_load(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let (file, len) = limits::open_file(path)?;
    parse(&path.display().to_string(), &mut BufReader::new(file), len)
}

/// Loads the array of a `.npy` file that is in memory.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{npy_load_bytes, npy_to_bytes};
/// let file = npy_to_bytes(&Tensor::new([1i16, 2]))?;
/// assert_eq!(npy_load_bytes(&file)?.to_vec::<i16>()?, [1, 2]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_load_bytes(bytes: &[u8]) -> Result<Tensor> {
    parse("npy", &mut &*bytes, bytes.len() as u64)
}

/// Computes a tensor and writes it to a `.npy` file, which is replaced atomically, as by
/// [`safe_save`](super::safe_save).
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{npy_load, npy_save};
/// let path = std::env::temp_dir().join(format!("doc-save-{}.npy", std::process::id()));
/// npy_save(&path, &Tensor::new([1i16, 2]))?;
/// assert_eq!(npy_load(&path)?.shape(), [2]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let (path, head, data) = (path.as_ref(), head(tensor)?, tensor.to_bytes()?);
    files::write(path, |out| {
        out.write_all(&head)
            .and_then(|()| out.write_all(&data))
            .map_err(|e| limits::io_error(path, e))
    })
}

/// Returns the bytes that [`npy_save`] writes.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::npy_to_bytes;
/// assert_eq!(npy_to_bytes(&Tensor::new([1i16, 2]))?[..6], *b"\x93NUMPY");
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npy_to_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let (head, data) = (head(tensor)?, tensor.to_bytes()?);
    let mut out = limits::vec(head.len() + data.len())?;
    out.extend(head);
    out.extend(data);
    Ok(out)
}

/// Returns the header of a `.npy` file, up to the elements.
fn head(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let Some((name, _)) = NAMES.iter().find(|(_, d)| *d == dtype) else {
        let msg = format!("NumPy has no {dtype}; cast to f32 first, or use safe_save");
        return Err(Error::DType { op: "npy_save", msg });
    };
    let order = if dtype.itemsize() == 1 { '|' } else { '<' };
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    // Python writes a tuple of one element with a comma.
    let comma = if sizes.len() == 1 { "," } else { "" };
    let text = format!(
        "{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        sizes.join(", ")
    );
    // Header and newline fill a multiple of 64 bytes, which aligns the data.
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
    Ok(out)
}

/// Loads the arrays of a `.npz` file by name, on the default device.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, npz_load, npz_save};
/// let path = std::env::temp_dir().join(format!("doc-load-{}.npz", std::process::id()));
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// npz_save(&path, &state, false)?;
/// assert_eq!(npz_load(&path)?.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_load(path: impl AsRef<Path>) -> Result<StateDict> {
    unpack(&path.as_ref().display().to_string(), &limits::read_file(path.as_ref())?)
}

/// Loads the arrays of a `.npz` file that is in memory.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, npz_load_bytes, npz_to_bytes};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// let file = npz_to_bytes(&state, true)?;
/// assert_eq!(npz_load_bytes(&file)?.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_load_bytes(bytes: &[u8]) -> Result<StateDict> {
    unpack("npz", bytes)
}

/// Computes tensors and writes them to a `.npz` file, which is replaced atomically. `compress`
/// deflates the arrays.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, npz_load, npz_save};
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

/// Returns the bytes that [`npz_save`] writes.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, npz_to_bytes};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// assert_eq!(npz_to_bytes(&state, false)?[..2], *b"PK");
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn npz_to_bytes(state: &StateDict, compress: bool) -> Result<Vec<u8>> {
    let mut bytes = limits::LimitedBuffer::default();
    pack(Path::new("npz"), state, compress, &mut bytes)?;
    Ok(bytes.0)
}

fn pack(path: &Path, state: &StateDict, compress: bool, out: &mut dyn Write) -> Result<()> {
    let failed = |e: std::io::Error| limits::io_error(path, e);
    let mut archive = Writer::new(out);
    for (name, tensor) in state {
        archive
            .add(&format!("{name}.npy"), [&head(tensor)?, &tensor.to_bytes()?], compress)
            .map_err(failed)?;
    }
    archive.finish().map_err(failed)
}

fn unpack(at: &str, bytes: &[u8]) -> Result<StateDict> {
    let mut state = StateDict::new();
    let entries = zip::entries(at, bytes)?;
    // The sum of the declared sizes is checked against the memory limits before inflating.
    limits::check(entries.iter().map(|e| e.size).fold(0, usize::saturating_add))?;
    for entry in entries {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_string();
        let mut content = entry.content();
        let array = parse(&format!("{at}: {}", entry.name), &mut content, entry.size as u64);
        // A wrong size or checksum of the entry is the better explanation of a malformed array.
        if matches!(array, Ok(_) | Err(Error::Format { .. })) {
            content.finish(at)?;
        }
        if state.insert(name, array?).is_some() {
            return Err(Error::Format {
                at: at.to_string(),
                msg: format!("{} appears twice", entry.name),
            });
        }
    }
    Ok(state)
}

/// Reads an array from a file of `size` bytes directly into the memory of its tensor.
fn parse(at: &str, from: &mut dyn Read, size: u64) -> Result<Tensor> {
    let wrong = |msg: String| Error::Format {
        at: at.to_string(),
        msg: format!("not a readable npy file: {msg}"),
    };
    let (text, left) = split(from, size).map_err(wrong)?;
    let head = header(&text).map_err(wrong)?;
    let bytes = usize::try_from(left).map_err(|e| wrong(e.to_string()))?;
    let len = elements(head.dtype, &head.shape, bytes).map_err(wrong)?;
    let device = Device::default_name();
    let buffer = Buffer::filled(&device, head.dtype, len, |out| {
        from.read_exact(out).map_err(|e| wrong(format!("its elements: {e}")))?;
        if head.big {
            out.chunks_exact_mut(head.dtype.itemsize()).for_each(<[u8]>::reverse);
        }
        Ok(())
    })?;
    let flat = Tensor::from_uop(buffer.node(), device);
    if !head.fortran {
        return flat.try_reshape(head.shape);
    }
    // In Fortran order the first axis has unit stride: the elements are those of the transpose.
    let axes: Vec<isize> = (0..head.shape.len() as isize).rev().collect();
    let reversed: Vec<usize> = head.shape.iter().rev().copied().collect();
    flat.try_reshape(reversed)?.try_permute(axes)
}

/// Returns the text of the header and the number of bytes after it.
fn split(from: &mut dyn Read, size: u64) -> Result<(String, u64), String> {
    fn take<const N: usize>(from: &mut dyn Read) -> Result<[u8; N], String> {
        let mut out = [0; N];
        from.read_exact(&mut out).map_err(|_| "it ends inside the header".to_string())?;
        Ok(out)
    }
    let magic: [u8; 6] = take(from).map_err(|_| "it does not begin with \\x93NUMPY")?;
    if magic != *MAGIC {
        return Err("it does not begin with \\x93NUMPY".into());
    }
    let version: [u8; 2] = take(from)?;
    let (len, before) = match version[0] {
        1 => (u64::from(u16::from_le_bytes(take(from)?)), 10),
        2 | 3 => (u64::from(u32::from_le_bytes(take(from)?)), 12),
        other => return Err(format!("version {other}; versions 1 to 3 are supported")),
    };
    let left = size.checked_sub(before + len).ok_or("it ends inside the header")?;
    if len > MAX_HEADER {
        return Err(format!("its header has {len} bytes, more than the limit of {MAX_HEADER}"));
    }
    let mut text = vec![0; len as usize];
    from.read_exact(&mut text).map_err(|_| "it ends inside the header")?;
    Ok((String::from_utf8(text).map_err(|_| "its header is not text")?, left))
}

struct Head {
    dtype: DType,
    big: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// Reads the Python literal `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn header(text: &str) -> Result<Head, String> {
    let inside = text
        .trim()
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'))
        .ok_or("its header is not a dict")?;
    let (mut kind, mut fortran, mut shape) = (None, None, None);
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or("its header has a key that is not a string")?;
        rest = after
            .trim_start()
            .strip_prefix(':')
            .ok_or_else(|| format!("no value for {key:?}"))?
            .trim_start();
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
                let (sizes, after) = tuple(rest)?;
                rest = after;
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

/// Splits off a tuple of sizes, such as `(2, 3)`.
fn tuple(text: &str) -> Result<(Vec<usize>, &str), String> {
    let (list, after) =
        text.strip_prefix('(').and_then(|r| r.split_once(')')).ok_or("its shape is not a tuple")?;
    // Python 2 wrote a long as 3L.
    let size = |s: &str| {
        let digits = s.trim().trim_end_matches('L');
        digits.parse::<usize>().map_err(|_| format!("its shape has the size {s:?}"))
    };
    let list = list.trim().trim_end_matches(',');
    let sizes = if list.is_empty() {
        Vec::new()
    } else {
        list.split(',').map(size).collect::<Result<_, _>>()?
    };
    Ok((sizes, after))
}

/// Splits off a string in single or double quotes, without escapes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Returns the dtype of a descr such as `<f4`, and whether it is big-endian.
fn dtype(kind: &str) -> Result<(DType, bool), String> {
    let (big, name) = match kind.split_at_checked(1) {
        Some(("<" | "|" | "=", name)) => (false, name),
        Some((">", name)) => (true, name),
        _ => (false, kind),
    };
    if name.starts_with('O') {
        return Err("it holds Python objects, which are pickled and could run any code; save it \
                    with a numeric dtype"
            .into());
    }
    let known = NAMES.iter().find(|(n, _)| *n == name).map(|(_, dtype)| (*dtype, big));
    known.ok_or_else(|| {
        format!(
            "the dtype {kind:?} is not supported; bools, integers and floats of 16 to 64 bits are"
        )
    })
}
