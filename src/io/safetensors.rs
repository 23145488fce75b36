//! safetensors: an eight-byte length, a JSON header, then the bytes of all tensors without gaps.
//!
//! Loading reads only the header. The tensors are on the device `DISK`: parts of the open file that
//! take no memory until they are copied to another device. Sizes of a malformed file are checked
//! without overflow before any allocation.

use super::json::{Fields, Ignored, Object};
use super::{StateDict, elements};
use crate::device::{Buffer, disk, files, limits};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use serde_core::de::{DeserializeSeed, Error as _, MapAccess};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Maximum bytes of a header, by the format.
const MAX_HEADER: u64 = 100_000_000;

/// The format's name of each dtype.
const NAMES: [(&str, DType); 15] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("F8_E4M3", DType::F8E4M3),
    ("F8_E5M2", DType::F8E5M2),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::BOOL),
];

/// Loads the tensors of a file, in the order of its header, on `DISK`. The file stays open while
/// one of them is alive.
///
/// A bool is true if its byte is not zero.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, safe_load, safe_save};
/// let path = std::env::temp_dir().join(format!("doc-{}.safetensors", std::process::id()));
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// safe_save(&path, &state, &[("epoch", "3")])?;
///
/// let loaded = safe_load(&path)?; // reads only the header
/// let weight = loaded.require("weight")?;
/// assert_eq!(weight.device().as_str(), "DISK");
/// assert_eq!((weight.to("CPU") * 2.0).to_vec::<f32>()?, [2.0, 4.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn safe_load(path: impl AsRef<Path>) -> Result<StateDict> {
    let (file, header, start) = open(path.as_ref())?;
    let tensor = |e: Entry| {
        let part = file.part_of_file(start + e.at, e.dtype, e.len);
        Ok((e.name, Tensor::from_uop(part.node(), disk::device()).try_reshape(e.shape)?))
    };
    header.entries.into_iter().map(tensor).collect()
}

/// Loads the metadata of a file.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, safe_load_metadata, safe_save};
/// let path =
///     std::env::temp_dir().join(format!("doc-texts-{}.safetensors", std::process::id()));
/// safe_save(&path, &StateDict::new(), &[("epoch", "3")])?;
/// assert_eq!(safe_load_metadata(&path)?["epoch"], "3");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn safe_load_metadata(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>> {
    Ok(open(path.as_ref())?.1.metadata)
}

/// Loads the tensors of a file that is in memory, on the default device.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, safe_load_bytes, safe_to_bytes};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// let file = safe_to_bytes(&state, &[])?;
/// assert_eq!(safe_load_bytes(&file)?.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn safe_load_bytes(bytes: &[u8]) -> Result<StateDict> {
    let at = "safetensors";
    let header = bytes.get(8..8 + header_len(at, bytes.get(..8), bytes.len())?).unwrap_or_default();
    let data = &bytes[8 + header.len()..];
    let tensor = |e: Entry| {
        let part = &data[e.at..e.at + e.len * e.dtype.itemsize()];
        Ok((e.name, Tensor::try_from_bytes(part, e.dtype, e.shape)?))
    };
    parse(at, header, data.len())?.entries.into_iter().map(tensor).collect()
}

/// Computes the tensors and writes them to a file, with metadata. The file is replaced atomically:
/// after an error or a kill it is the old or the new one. Tensors on `DISK` of the old file keep
/// its bytes.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::{StateDict, safe_load, safe_save};
/// let path =
///     std::env::temp_dir().join(format!("doc-save-{}.safetensors", std::process::id()));
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// safe_save(&path, &state, &[])?;
/// assert_eq!(safe_load(&path)?.len(), 1);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn safe_save(
    path: impl AsRef<Path>,
    state: &StateDict,
    metadata: &[(&str, &str)],
) -> Result<()> {
    let plan = Layout::new(state, metadata)?;
    files::write(path.as_ref(), |out| plan.write(path.as_ref(), out))
}

/// Returns the bytes that [`safe_save`] writes.
///
/// ```
/// use picograd::{Tensor, io::{StateDict, safe_to_bytes}};
/// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
/// let file = safe_to_bytes(&state, &[])?;
/// assert_eq!(file.len() as u64 - 8 - 8, u64::from_le_bytes(file[..8].try_into().unwrap()));
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn safe_to_bytes(state: &StateDict, metadata: &[(&str, &str)]) -> Result<Vec<u8>> {
    let layout = Layout::new(state, metadata)?;
    let mut bytes =
        limits::vec(8 + layout.header.len() + layout.tensors.iter().map(|t| t.2).sum::<usize>())?;
    layout.write(Path::new("safetensors"), &mut bytes)?;
    Ok(bytes)
}

/// A validated tensor of the header: its bytes lie inside the data.
struct Entry {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// Byte offset from the start of the data.
    at: usize,
    /// Number of elements.
    len: usize,
}

struct Header {
    /// Bytes of data that follow the header.
    data: usize,
    entries: Vec<Entry>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Fields<'de> for Header {
    fn field<A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> Result<(), A::Error> {
        if name == "__metadata__" {
            return map.next_value_seed(Object(&mut self.metadata));
        }
        let mut info = Info::default();
        map.next_value_seed(Object(&mut info))?;
        let read = entry(name.clone(), info, self.data);
        self.entries.push(read.map_err(|msg| A::Error::custom(format!("tensor {name:?}: {msg}")))?);
        Ok(())
    }
}

fn wrong<T>(at: &str, msg: impl std::fmt::Display) -> Result<T> {
    Err(Error::Format { at: at.to_string(), msg: format!("not a valid safetensors file: {msg}") })
}

/// Returns the length of the header, which fits in a file of `len` bytes.
fn header_len(at: &str, first: Option<&[u8]>, len: usize) -> Result<usize> {
    let Some(first) = first.and_then(|b| b.first_chunk::<8>()) else {
        return wrong(at, format!("{len} bytes are too few"));
    };
    let header = u64::from_le_bytes(*first);
    if header > MAX_HEADER || header > len as u64 - 8 {
        return wrong(
            at,
            format!(
                "a header of {header} bytes in a file of {len}; at most {MAX_HEADER} are allowed"
            ),
        );
    }
    Ok(header as usize)
}

/// Opens a file. Returns it with its header and the offset of its data.
fn open(path: &Path) -> Result<(Buffer, Header, usize)> {
    let at = path.display().to_string();
    let file = Buffer::of_file(path)?;
    let first = file.part(0..file.size().min(8)).read()?;
    let len = header_len(&at, Some(&first), file.size())?;
    let header = parse(&at, &file.part(8..8 + len).read()?, file.size() - 8 - len)?;
    Ok((file, header, 8 + len))
}

fn parse(at: &str, header: &[u8], data: usize) -> Result<Header> {
    if header.first() != Some(&b'{') {
        return wrong(at, "the header does not begin with {");
    }
    let mut read = Header { data, entries: Vec::new(), metadata: BTreeMap::new() };
    let mut json = serde_json::Deserializer::from_slice(header);
    let done = Object(&mut read).deserialize(&mut json).and_then(|()| json.end());
    if let Err(e) = done {
        return wrong(at, format!("its header: {e}"));
    }
    let entries = &read.entries;
    // In the order of offsets, each tensor begins where the previous one ends.
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by_key(|e| (e.at, e.len));
    let mut end = 0;
    for e in order {
        if e.at != end {
            let what = if e.at < end { "overlaps the previous tensor" } else { "leaves a gap" };
            return wrong(
                at,
                format!(
                    "tensor {:?} {what}: it begins at byte {}, the previous one ends at {end}",
                    e.name, e.at
                ),
            );
        }
        end = e.at + e.len * e.dtype.itemsize();
    }
    if end != data {
        return wrong(at, format!("the tensors end at byte {end} of {data} bytes of data"));
    }
    Ok(read)
}

fn entry(name: String, info: Info, data: usize) -> Result<Entry, String> {
    let dtype = info.dtype.ok_or("no dtype")?;
    let (_, dtype) = *NAMES
        .iter()
        .find(|(n, _)| *n == dtype)
        .ok_or_else(|| format!("the dtype {dtype} is not supported"))?;
    let shape = info.shape.ok_or("no shape")?;
    let shape: Vec<usize> = shape
        .iter()
        .map(|&n| usize::try_from(n))
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let Some([start, end]) = info.offsets.as_deref() else {
        return Err("no data_offsets of two numbers".into());
    };
    let (start, end) = (*start, *end);
    if start > end || end > data as u64 {
        return Err(format!("the bytes {start}..{end} are not inside the {data} bytes of data"));
    }
    let len = elements(dtype, &shape, (end - start) as usize)?;
    Ok(Entry { name, dtype, shape, at: start as usize, len })
}

/// The header's description of one tensor.
#[derive(Default)]
struct Info {
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    offsets: Option<Vec<u64>>,
}

/// Fields that the format does not define are ignored.
impl<'de> Fields<'de> for Info {
    fn field<A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> Result<(), A::Error> {
        match name.as_str() {
            "dtype" => self.dtype = Some(map.next_value()?),
            "shape" => self.shape = Some(map.next_value()?),
            "data_offsets" => self.offsets = Some(map.next_value()?),
            _ => {
                map.next_value::<Ignored>()?;
            }
        }
        Ok(())
    }
}

/// A file to write: the header, and the tensors in the order of their bytes.
struct Layout<'a> {
    header: Vec<u8>,
    tensors: Vec<(&'a str, &'a Tensor, usize)>,
}

impl<'a> Layout<'a> {
    fn new(state: &'a StateDict, metadata: &[(&str, &str)]) -> Result<Layout<'a>> {
        let refused = |msg: String| Error::State(format!("safe_save: {msg}"));
        if state.get("__metadata__").is_some() {
            return Err(refused("the name __metadata__ is reserved by the format".into()));
        }
        // One realization for all tensors. Errors occur before the file is created.
        Tensor::realize_many(&state.iter().map(|(_, t)| t).collect::<Vec<_>>())?;
        let mut tensors: Vec<(&str, &Tensor, usize)> =
            state.iter().map(|(n, t)| (n.as_str(), t, 0)).collect();
        // Larger elements come first, which aligns each tensor to its element size.
        tensors.sort_by_key(|(_, t, _)| std::cmp::Reverse(t.element_size()));
        let mut offsets = BTreeMap::new();
        let mut end = 0;
        for (name, t, bytes) in &mut tensors {
            *bytes = t.nbytes();
            offsets.insert(*name, (end, end + *bytes));
            end += *bytes;
        }
        let texts: BTreeMap<&str, &str> = metadata.iter().copied().collect();
        if texts.len() != metadata.len() {
            return Err(refused("a name appears twice in the metadata".into()));
        }
        let mut parts = Vec::new();
        if !texts.is_empty() {
            parts.push(format!("\"__metadata__\":{}", json!(texts)));
        }
        for (name, t) in state {
            let dtype = NAMES
                .iter()
                .find(|(_, d)| *d == t.dtype())
                .ok_or_else(|| refused(format!("{name} has the unsupported dtype {}", t.dtype())))?
                .0;
            let (from, to) = offsets[name.as_str()];
            let info = json!({"dtype": dtype, "shape": t.shape(), "data_offsets": [from, to]});
            parts.push(format!("{}:{info}", Value::from(name.as_str())));
        }
        let mut header = format!("{{{}}}", parts.join(",")).into_bytes();
        // Pads the header so that the data is aligned to eight bytes.
        header.resize(header.len().next_multiple_of(8), b' ');
        if header.len() as u64 > MAX_HEADER {
            return Err(refused(format!(
                "a header of {} bytes; at most {MAX_HEADER} are allowed",
                header.len()
            )));
        }
        Ok(Layout { header, tensors })
    }

    fn write(&self, path: &Path, out: &mut dyn Write) -> Result<()> {
        let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
        out.write_all(&(self.header.len() as u64).to_le_bytes()).map_err(failed)?;
        out.write_all(&self.header).map_err(failed)?;
        for (name, tensor, bytes) in &self.tensors {
            let data = tensor.to_bytes()?;
            if data.len() != *bytes {
                return Err(Error::State(format!("safe_save: {name} changed during the save")));
            }
            out.write_all(&data).map_err(failed)?;
        }
        Ok(())
    }
}
