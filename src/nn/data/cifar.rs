//! CIFAR-10: color images of 32 × 32 pixels in ten classes, 50,000 for training and 10,000 for
//! testing, from the binary version.

use super::fetch::{DatasetFolder, Remote};
use super::{Array, ArrayDataset, Split};
use crate::device::limits;
use crate::dtype::DType;
use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::Path;

/// Bytes of a record: the label, then the red, green and blue planes, row by row.
const RECORD: usize = 1 + 3 * 32 * 32;
/// Records per file.
const PER_FILE: usize = 10_000;

const ARCHIVE: Remote = Remote {
    name: "cifar-10-binary.tar.gz",
    base: "https://www.cs.toronto.edu/~kriz/",
    bytes: 170_052_171,
    sha256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
};

const TRAIN: [&str; 5] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
];
const TEST: [&str; 1] = ["test_batch.bin"];

/// CIFAR-10, as images `[n, 3, 32, 32]` and labels `[n]`, both u8.
///
/// With a folder, the files are read from there: the `.bin` files, in it or in its folder
/// `cifar-10-batches-bin`, or the archive. Without one, the archive is downloaded once into the
/// folder that `PICO_DATA` names (see `docs/env.md`), which needs the feature `download`. An
/// archive without the published SHA-256 is refused, and so are `.bin` files of another length or
/// with labels above 9.
pub fn cifar10(folder: Option<&Path>, split: Split) -> Result<ArrayDataset> {
    let names = if split == Split::Train { &TRAIN[..] } else { &TEST };
    let place = DatasetFolder::new("cifar-10", folder)?;
    let folders = [place.folder.clone(), place.folder.join("cifar-10-batches-bin")];
    let files: Vec<Vec<u8>> = match folders
        .iter()
        .find(|f| names.iter().all(|n| f.join(n).is_file()))
    {
        Some(folder) => names.iter().map(|n| read_bin(&folder.join(n))).collect::<Result<_>>()?,
        None => {
            let archive = place.bytes(&ARCHIVE, &[ARCHIVE])?;
            unpack(GzDecoder::new(archive.as_slice()), names, RECORD * PER_FILE)
                .map_err(|msg| place.wrong(msg))?
        }
    };
    parse(&place.folder.display().to_string(), &files.concat())
}

/// Reads a `.bin` file. The length is checked first.
fn read_bin(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    let len = std::fs::metadata(path).map_err(failed)?.len();
    if len != (RECORD * PER_FILE) as u64 {
        let msg = format!("has {len} bytes, expected {}", RECORD * PER_FILE);
        return Err(Error::Format { at: path.display().to_string(), msg });
    }
    std::fs::read(path).map_err(failed)
}

/// Reads the images and labels of a `.bin` file that is in memory.
pub fn cifar10_load_bytes(bytes: &[u8]) -> Result<ArrayDataset> {
    parse("cifar-10", bytes)
}

fn parse(at: &str, bytes: &[u8]) -> Result<ArrayDataset> {
    let wrong = |msg: String| Error::Format { at: at.to_string(), msg };
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return Err(wrong(format!(
            "{} bytes are not a multiple of the record size {RECORD}",
            bytes.len()
        )));
    }
    if let Some((i, r)) = records.iter().enumerate().find(|(_, r)| r[0] > 9) {
        return Err(wrong(format!("record {i} has the label {}; labels are 0 to 9", r[0])));
    }
    let labels: Vec<u8> = records.iter().map(|r| r[0]).collect();
    let mut images = Vec::with_capacity(records.len() * (RECORD - 1));
    records.iter().for_each(|r| images.extend_from_slice(&r[1..]));
    let images = Array::from_bytes(images, DType::U8, &[records.len(), 3, 32, 32])?;
    ArrayDataset::new(vec![images, Array::from_bytes(labels, DType::U8, &[records.len()])?])
}

/// Extracts the files of these names from a tar archive, in any of its folders. Each must have
/// `bytes` bytes.
fn unpack(tar: impl Read, names: &[&str], bytes: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut found: Vec<Option<Vec<u8>>> = vec![None; names.len()];
    let failed = |e: std::io::Error| format!("cannot read the archive: {e}");
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some(i) = names.iter().position(|n| *n == name) else { continue };
        if entry.size() != bytes as u64 {
            return Err(format!("{path} has {} bytes, expected {bytes}", entry.size()));
        }
        let mut content = limits::vec(bytes).map_err(|e| e.to_string())?;
        entry.read_to_end(&mut content).map_err(|e| format!("{path}: {e}"))?;
        if content.len() != bytes {
            return Err(format!("the archive ends inside {path}"));
        }
        found[i] = Some(content);
    }
    let missing: Vec<&str> =
        names.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(n, _)| *n).collect();
    if missing.is_empty() {
        Ok(found.into_iter().flatten().collect())
    } else {
        Err(format!("{} is not in the archive", missing.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tar archive of these files.
    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            out.append_data(&mut header, name, *content).unwrap();
        }
        out.into_inner().unwrap()
    }

    #[test]
    fn files_are_found_in_an_archive() {
        let archive = tar(&[
            ("set/readme.html", b"hello"),
            ("set/b.bin", &[2; 700]),
            ("set/a.bin", &[1; 700]),
        ]);
        assert_eq!(
            unpack(archive.as_slice(), &["a.bin", "b.bin"], 700).unwrap(),
            [vec![1; 700], vec![2; 700]]
        );
        let refused = |bytes: &[u8], name: &str, len: usize, why: &str| {
            let e = unpack(bytes, &[name], len).unwrap_err();
            assert!(e.contains(why), "{e:?} does not say {why:?}");
        };
        refused(&archive, "b.bin", 699, "700 bytes, expected 699");
        refused(&archive, "c.bin", 9, "c.bin is not in");
        let mut broken = archive.clone();
        broken[124..128].copy_from_slice(b"9xyz");
        refused(&broken, "a.bin", 700, "cannot read the archive");
        refused(&archive[..1700], "b.bin", 700, "ends inside set/b.bin");
    }
}
