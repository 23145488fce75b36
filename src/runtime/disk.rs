//! DISK: a file as memory. Its bytes are mapped, read-only, and read when they are copied to a device; until then a tensor of a file takes no
//! memory. Kernels cannot run here.
//!
//! A mapped page that its file no longer has is a signal that ends the process. So the length of the file is looked at again before every
//! mebibyte of a copy (16 of them, where a driver copies), and a file that has shrunk is an error. What is left is a file that is cut off in the
//! moment between that look and the copy of those bytes. A file that is overwritten in place gives the new bytes; one that is replaced by a rename, as
//! `safe_save` does, keeps the old ones, because the mapping holds on to the old file.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Bytes that are copied between two looks at the length of the file.
const STEP: usize = 1 << 20;

/// The same where a driver copies them: several of the pieces that it copies at a time. A multiple of every element's size.
const DRIVER_STEP: usize = 16 << 20;

/// The name of the device that tensors of files are on.
pub fn device() -> DeviceName {
    DeviceName::new("DISK")
}

/// A mapped file.
pub struct Mapping {
    path: PathBuf,
    file: File,
    /// Dangling where there are no bytes: nothing of no length can be mapped.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only and tied to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; reading it from several threads at once is fine.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a whole file.
    pub fn open(path: &Path) -> Result<Mapping> {
        let io = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
        // Looked at before it is opened: opening a pipe waits for a writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(Error::Io { path: path.to_path_buf(), msg: "is not a file".into() });
        }
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let len =
            usize::try_from(len).ok().filter(|l| *l <= isize::MAX as usize).ok_or_else(|| io(std::io::ErrorKind::FileTooLarge.into()))?;
        let start = if len == 0 { NonNull::dangling() } else { map(&file, len).ok_or_else(|| io(std::io::Error::last_os_error()))? };
        Ok(Mapping { path: path.to_path_buf(), file, start, len })
    }

    /// Bytes of the file when it was mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Was the file empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the bytes from `at` on. A bool is 0 or 1 for every kernel, so any other byte of one becomes 1.
    pub fn read(&self, at: usize, dtype: DType, out: &mut [u8]) -> Result<()> {
        self.inside(at, out.len());
        for (i, part) in out.chunks_mut(STEP).enumerate() {
            self.check()?;
            // SAFETY: the range is inside the mapping, whose pages the file has, as was just checked.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at + i * STEP), part.as_mut_ptr(), part.len()) };
            if dtype.is_bool() {
                part.iter_mut().for_each(|b| *b = (*b != 0) as u8);
            }
        }
        Ok(())
    }

    /// Hands `bytes` bytes from `at` on to a driver, a piece after the other with its distance from `at`, as they lie in the mapping: they are not copied here, but for
    /// bools, which become 0 or 1.
    pub fn hand_over(&self, at: usize, dtype: DType, bytes: usize, take: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        self.inside(at, bytes);
        let step = if dtype.is_bool() { STEP } else { DRIVER_STEP };
        let mut flags = vec![0; if dtype.is_bool() { step.min(bytes) } else { 0 }];
        for from in (0..bytes).step_by(step) {
            let len = step.min(bytes - from);
            if dtype.is_bool() {
                self.read(at + from, dtype, &mut flags[..len])?;
                take(from, &flags[..len])?;
                continue;
            }
            self.check()?;
            // SAFETY: the range is inside the mapping, whose pages the file has, as was just checked. It is only copied: where somebody writes to the file meanwhile,
            // old and new bytes are equally right.
            take(from, unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at + from), len) })?;
        }
        Ok(())
    }

    fn inside(&self, at: usize, bytes: usize) {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.len), "{bytes} bytes at {at} leave a mapping of {}", self.len);
    }

    /// Is the file still as long as the mapping?
    fn check(&self) -> Result<()> {
        let now = self.file.metadata().map_err(|e| Error::Io { path: self.path.clone(), msg: e.to_string() })?.len();
        if now < self.len as u64 {
            let msg = format!("the file has been cut to {now} bytes since it was opened with {}", self.len);
            return Err(Error::Io { path: self.path.clone(), msg });
        }
        Ok(())
    }
}

fn map(file: &File, len: usize) -> Option<NonNull<u8>> {
    use std::os::fd::AsRawFd;
    // SAFETY: a new read-only mapping at an address of the system's choice touches no memory of ours.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if p == libc::MAP_FAILED { None } else { NonNull::new(p.cast()) }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the range is the one that was mapped, and nobody reads it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::TempDir;

    #[test]
    fn a_mapping_reads_its_file_and_notices_when_it_shrinks() {
        let dir = TempDir::new("disk");
        let path = dir.path().join("a");
        let content: Vec<u8> = (0..3 * STEP + 5).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let m = Mapping::open(&path).unwrap();
        let mut all = vec![0; content.len()];
        m.read(0, DType::U8, &mut all).unwrap();
        assert!(all == content);
        let mut flags = [9; 4];
        m.read(1, DType::BOOL, &mut flags).unwrap();
        assert_eq!(flags, [1; 4]);
        let handed = |at: usize, dtype: DType, bytes: usize| {
            let mut out = Vec::new();
            let taken = m.hand_over(at, dtype, bytes, &mut |from, piece| {
                assert_eq!(from, out.len());
                out.extend_from_slice(piece);
                Ok(())
            });
            taken.map(|()| out)
        };
        assert!(handed(3, DType::U8, content.len() - 3).unwrap() == content[3..]);
        let flags = handed(0, DType::BOOL, content.len()).unwrap();
        assert!(flags.iter().zip(&content).all(|(f, c)| *f == (*c != 0) as u8));
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        let e = m.read(0, DType::U8, &mut all).unwrap_err().to_string();
        assert!(e.contains("cut to 10 bytes"), "{e}");
        assert_eq!(handed(0, DType::U8, 20).unwrap_err().to_string(), e);
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let dir = TempDir::new("disk-bad");
        assert!(Mapping::open(dir.path()).is_err_and(|e| e.to_string().contains("is not a file")));
        assert!(Mapping::open(&dir.path().join("absent")).is_err());
        let empty = dir.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        let m = Mapping::open(&empty).unwrap();
        m.read(0, DType::U8, &mut []).unwrap();
        assert!(m.is_empty());
    }
}
