//! CIFAR-10: colour images of 32 × 32 in ten classes, 50,000 for training and 10,000 for testing,
//! in the binary version.

use super::fetch::{Place, Remote};
use super::{Array, ArrayDataset, Split};
use crate::dtype::DType;
use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::Path;

/// A label, then the pixels: red, green, blue, each row by row.
const RECORD: usize = 1 + 3 * 32 * 32;
/// Records of each file of the set.
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
/// With a folder its files are read from there: the `.bin` files, in it or in
/// `cifar-10-batches-bin`, or the archive of them. Without one the archive is kept in the folder
/// that `PICO_DATA` names (see `docs/env.md`), and fetched into it by `curl` the first time. The
/// archive has the published SHA-256 or is refused; `.bin` files have to have the right length and
/// labels.
pub fn cifar10(folder: Option<&Path>, split: Split) -> Result<ArrayDataset> {
    let names = if split == Split::Train { &TRAIN[..] } else { &TEST };
    let place = Place::new("cifar-10", folder)?;
    let folders = [place.folder.clone(), place.folder.join("cifar-10-batches-bin")];
    let files: Vec<Vec<u8>> = match folders
        .iter()
        .find(|f| names.iter().all(|n| f.join(n).is_file()))
    {
        Some(folder) => names.iter().map(|n| read_whole(&folder.join(n))).collect::<Result<_>>()?,
        None => {
            let archive = place.bytes(&ARCHIVE, &[ARCHIVE])?;
            unpack(GzDecoder::new(archive.as_slice()), names, RECORD * PER_FILE)
                .map_err(|msg| place.wrong(msg))?
        }
    };
    parse(&place.folder.display().to_string(), &files.concat())
}

/// A `.bin` file of the set, whose length is looked at before it is read.
fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    let len = std::fs::metadata(path).map_err(failed)?.len();
    if len != (RECORD * PER_FILE) as u64 {
        let msg = format!("has {len} bytes, and should have {}", RECORD * PER_FILE);
        return Err(Error::Format { at: path.display().to_string(), msg });
    }
    std::fs::read(path).map_err(failed)
}

/// The images and labels of a `.bin` file of CIFAR-10 that is in memory.
pub fn cifar10_load_bytes(bytes: &[u8]) -> Result<ArrayDataset> {
    parse("cifar-10", bytes)
}

fn parse(at: &str, bytes: &[u8]) -> Result<ArrayDataset> {
    let wrong = |msg: String| Error::Format { at: at.to_string(), msg };
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return Err(wrong(format!("{} bytes are not whole records of {RECORD}", bytes.len())));
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

/// The files of these names in a tar archive, wherever in it they are, each of so many bytes.
fn unpack(mut tar: impl Read, names: &[&str], bytes: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut found: Vec<Option<Vec<u8>>> = vec![None; names.len()];
    let mut block = [0; 512];
    // It ends with a block of zeros, or just so.
    while tar.read_exact(&mut block).is_ok() && block[0] != 0 {
        let text = |range: std::ops::Range<usize>| {
            let field = &block[range];
            String::from_utf8_lossy(field.split(|b| *b == 0).next().unwrap_or_default())
                .trim()
                .to_string()
        };
        let (path, size) = (text(0..100), text(124..136));
        let size = u64::from_str_radix(&size, 8)
            .map_err(|_| format!("the archive gives {path} the size {size:?}"))?;
        let name = path.rsplit('/').next().unwrap_or_default();
        match names.iter().position(|n| *n == name) {
            Some(i) if size == bytes as u64 => {
                let mut content = Vec::new();
                tar.by_ref()
                    .take(size)
                    .read_to_end(&mut content)
                    .map_err(|e| format!("{path}: {e}"))?;
                if content.len() != bytes {
                    return Err(format!("the archive ends inside {path}"));
                }
                found[i] = Some(content);
            }
            Some(_) => return Err(format!("{path} has {size} bytes, and should have {bytes}")),
            None => drop(
                std::io::copy(&mut tar.by_ref().take(size), &mut std::io::sink())
                    .map_err(|e| format!("{path}: {e}"))?,
            ),
        }
        // Files fill whole blocks.
        let gap = size.next_multiple_of(512) - size;
        std::io::copy(&mut tar.by_ref().take(gap), &mut std::io::sink())
            .map_err(|e| e.to_string())?;
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

    /// A tar archive of these files.
    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, content) in files {
            let mut head = [0; 512];
            head[..name.len()].copy_from_slice(name.as_bytes());
            head[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            out.extend(head);
            out.extend(*content);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.resize(out.len() + 1024, 0);
        out
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
        assert!(
            unpack(archive.as_slice(), &["b.bin"], 699)
                .unwrap_err()
                .contains("700 bytes, and should have 699")
        );
        assert!(unpack(archive.as_slice(), &["c.bin"], 9).unwrap_err().contains("c.bin is not in"));
        let mut broken = archive.clone();
        broken[124..128].copy_from_slice(b"9xyz");
        assert!(unpack(broken.as_slice(), &["a.bin"], 700).unwrap_err().contains("the size"));
        assert!(
            unpack(&archive[..1700], &["b.bin"], 700)
                .unwrap_err()
                .contains("ends inside set/b.bin")
        );
    }
}
