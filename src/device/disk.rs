//! DISK: the device of tensors in files. Copying one to another device reads its bytes by
//! positioned reads; until then it takes no memory. Kernels cannot run on `DISK`.
//!
//! Files are not mapped: access to a mapped page that a truncated file no longer has kills the
//! process by a signal. With positioned reads, a file that was truncated after it was opened is an
//! error. A file that is overwritten in place yields the new bytes. A file that is replaced by a
//! rename, as by `safe_save`, yields the old bytes, because the old file is still open.

use super::buffer::as_bools;
use super::limits;
use super::limits::zeroed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::os;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Bytes that are read per call of a driver. A multiple of every element size.
const CHUNK_BYTES: usize = 16 << 20;

/// The kind of device of tensors in files.
pub(super) const NAME: &str = "DISK";

/// Returns the name of the device of tensors in files.
pub fn device() -> DeviceName {
    DeviceName::new(NAME)
}

/// An open file.
pub struct DiskFile {
    path: PathBuf,
    file: File,
    len: usize,
}

impl DiskFile {
    /// Opens a file for reading.
    pub(crate) fn open(path: &Path) -> Result<DiskFile> {
        let (file, len) = limits::open_file(path)?;
        let len = usize::try_from(len).ok().filter(|l| *l <= isize::MAX as usize);
        let len = len.ok_or_else(|| limits::io_error(path, ErrorKind::FileTooLarge.into()))?;
        Ok(DiskFile { path: path.to_path_buf(), file, len })
    }

    /// Returns the length of the file when it was opened.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fills `out` with the bytes from `at` on. Kernels expect bools to be 0 or 1, so any other
    /// byte of a bool becomes 1.
    pub(crate) fn read(&self, at: usize, dtype: DType, out: &mut [u8]) -> Result<()> {
        self.check_range(at, out.len())?;
        os::read_exact_at(&self.file, out, at as u64).map_err(|e| self.failed(e))?;
        if dtype.is_bool() {
            as_bools(out);
        }
        Ok(())
    }

    /// Passes `bytes` bytes from `at` on to a driver, in pieces with their offsets from `at`.
    pub(crate) fn read_chunks(
        &self,
        at: usize,
        dtype: DType,
        bytes: usize,
        take: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_range(at, bytes)?;
        let mut piece = zeroed(bytes.min(CHUNK_BYTES))?;
        for from in (0..bytes).step_by(CHUNK_BYTES) {
            let piece = &mut piece[..CHUNK_BYTES.min(bytes - from)];
            self.read(at + from, dtype, piece)?;
            take(from, piece)?;
        }
        Ok(())
    }

    fn check_range(&self, at: usize, bytes: usize) -> Result<()> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::Io {
                path: self.path.clone(),
                msg: format!("{bytes} bytes at {at} are outside a file of {} bytes", self.len),
            }),
        }
    }

    fn failed(&self, e: std::io::Error) -> Error {
        let now = self.file.metadata().map_or(0, |m| m.len());
        let msg = if e.kind() == ErrorKind::UnexpectedEof {
            format!("the file was truncated to {now} bytes after it was opened with {}", self.len)
        } else {
            e.to_string()
        };
        Error::Io { path: self.path.clone(), msg }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::TempDir;
    use std::io::{Seek, Write};

    #[test]
    fn truncation_after_open_is_an_error() {
        let dir = TempDir::new("disk");
        let path = dir.path().join("a");
        let content: Vec<u8> = (0..CHUNK_BYTES + 5).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let m = DiskFile::open(&path).unwrap();
        let mut all = vec![0; content.len()];
        m.read(0, DType::U8, &mut all).unwrap();
        assert!(all == content);
        let mut flags = [9; 4];
        m.read(1, DType::BOOL, &mut flags).unwrap();
        assert_eq!(flags, [1; 4]);
        let handed = |at: usize, dtype: DType, bytes: usize| {
            let mut out = Vec::new();
            let taken = m.read_chunks(at, dtype, bytes, &mut |from, piece| {
                assert_eq!(from, out.len());
                out.extend_from_slice(piece);
                Ok(())
            });
            taken.map(|()| out)
        };
        assert!(handed(3, DType::U8, content.len() - 3).unwrap() == content[3..]);
        let flags = handed(0, DType::BOOL, content.len()).unwrap();
        assert!(flags.iter().zip(&content).all(|(f, c)| *f == (*c != 0) as u8));
        assert!(
            m.read(content.len(), DType::U8, &mut [0]).is_err()
                && m.read(usize::MAX, DType::U8, &mut [0]).is_err()
        );
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        let e = m.read(0, DType::U8, &mut all).unwrap_err().to_string();
        assert!(e.contains("truncated to 10 bytes"), "{e}");
        assert_eq!(handed(0, DType::U8, 20).unwrap_err().to_string(), e);
    }

    /// Another thread truncates and rewrites the file during reads: an error or valid bytes, and no
    /// signal.
    #[test]
    fn truncation_during_a_read_is_no_signal() {
        let dir = TempDir::new("disk-cut");
        let path = dir.path().join("a");
        let content = vec![7u8; 1 << 20];
        std::fs::write(&path, &content).unwrap();
        let m = DiskFile::open(&path).unwrap();
        let (mut errors, mut whole) = (0, 0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            let stopped = &stop;
            s.spawn(|| {
                let mut file = File::options().write(true).open(&path).unwrap();
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    file.set_len(100).unwrap();
                    std::thread::yield_now();
                    file.rewind().unwrap();
                    file.write_all(&content).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            let mut out = vec![0; content.len()];
            for _ in 0..300 {
                match m.read(0, DType::U8, &mut out) {
                    Ok(()) => whole += 1,
                    Err(e) => {
                        assert!(e.to_string().contains("was truncated"), "{e}");
                        errors += 1;
                    }
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(errors + whole, 300);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = TempDir::new("disk-bad");
        assert!(
            DiskFile::open(dir.path())
                .is_err_and(|e| e.to_string().contains("is not a regular file"))
        );
        assert!(DiskFile::open(&dir.path().join("absent")).is_err());
        let empty = dir.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        let m = DiskFile::open(&empty).unwrap();
        m.read(0, DType::U8, &mut []).unwrap();
        assert_eq!(m.len(), 0);
    }
}
