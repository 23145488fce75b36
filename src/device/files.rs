//! Files that are written whole or not at all: into a temporary file beside the old one, which a
//! rename then puts in its place.
//!
//! Whenever the process is killed, the file is the old one or the new one. What a kill can leave
//! behind is the temporary file, whose name is `.NAME.PROCESS.UNIQUE.tmp`. A process holds a lock
//! on its temporary file, which ends with the process, so the next file that is written to the same
//! place removes those without one at once.

use super::build::unique;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a temporary file was not written to when its process counts as gone, on a file system
/// without locks.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A file that is yet to take its place; it is removed unless it has.
pub(crate) struct Temporary {
    path: PathBuf,
    target: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Temporary {
    /// A new file beside the target. What processes that are gone have left there is removed.
    pub(crate) fn beside(target: &Path) -> io::Result<(Temporary, File)> {
        let name =
            target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let folder = folder_of(target);
        remove_left(folder, &name);
        loop {
            // Processes of other machines may have the same number.
            let path = folder.join(format!(".{name}.{}.{}.tmp", std::process::id(), unique()));
            let file = File::options().write(true).create_new(true).open(&path)?;
            // Without locks the age has to do. Who cleans up between the two lines has taken the
            // file away.
            let _ = file.lock();
            if file.metadata()?.nlink() == 0 {
                continue;
            }
            let lock = file.try_clone()?;
            return Ok((Temporary { path, target: target.to_path_buf(), _lock: lock }, file));
        }
    }
    /// Where it is until then.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    /// Puts it in its place.
    pub(crate) fn take_place(self) -> io::Result<()> {
        fs::rename(&self.path, &self.target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Where it has taken its place there is nothing under this name.
        let _ = fs::remove_file(&self.path);
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes temporary files of a name whose processes are gone. That it cannot is no reason to fail.
fn remove_left(folder: &Path, name: &str) {
    let Ok(list) = fs::read_dir(folder) else { return };
    for entry in list.flatten() {
        let file = entry.file_name();
        let number = |s: &str| s.parse::<u32>().ok();
        let process = file.to_str().and_then(|f| {
            f.strip_prefix('.')?.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")
        });
        let ours = process.and_then(|rest| number(rest.split_once('.')?.0)).is_some();
        if ours && entry.file_type().is_ok_and(|t| t.is_file()) && is_left(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the process that made a temporary file is gone: nobody holds its lock.
fn is_left(entry: &fs::DirEntry) -> bool {
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(entry.path());
    let Ok(file) = opened else { return false };
    match file.try_lock() {
        // The lock is let go after the file is removed: who made it in this moment sees that it is
        // gone and makes another.
        Ok(()) => {
            let _ = fs::remove_file(entry.path());
            true
        }
        Err(fs::TryLockError::WouldBlock) => false,
        Err(fs::TryLockError::Error(_)) => {
            let age =
                entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            age.is_some_and(|age| age > DAY)
        }
    }
}

/// Why [`write`] would not work, if that can be told now.
pub(crate) fn why_not(path: &Path) -> Option<String> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if target.is_dir() {
        return Some("it is a folder".into());
    }
    Temporary::beside(&target).err().map(|e| e.to_string())
}

/// Writes a file through `content`. On an error of that or of the system the old file stays as it
/// was.
pub(crate) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |e: io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    // Behind a link it is the file that is exchanged, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let (temporary, file) = Temporary::beside(&target).map_err(failed)?;
    if let Ok(old) = fs::metadata(&target) {
        file.set_permissions(old.permissions()).map_err(failed)?;
    }
    let mut out = BufWriter::with_capacity(1 << 16, file);
    content(&mut out)?;
    // Written, then on the disk, then in its place: in this order no crash can show a name with
    // half a content.
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    temporary.take_place().map_err(failed)?;
    // Until the folder is on the disk a crash of the machine may bring back the old file, which is
    // whole too; so this may fail.
    let _ = File::open(folder_of(&target)).and_then(|f| f.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::TempDir;

    #[test]
    fn what_dead_processes_left_is_removed_at_once() {
        let dir = TempDir::new("left");
        let path = dir.path().join("model");
        let own = std::process::id();
        let plant = |name: String| File::create(dir.path().join(name)).unwrap();
        for left in [format!(".model.{}.0.tmp", u32::MAX), format!(".model.{own}.999999.tmp")] {
            plant(left);
        }
        for stays in [".model.x.0.tmp", ".other.1.0.tmp", "model.1.0.tmp", ".model.tmp"] {
            plant(stays.to_string());
        }
        // Somebody is still writing this one, and this is no file.
        let busy = plant(format!(".model.{}.7.tmp", u32::MAX));
        busy.lock().unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join(".model.1.8.tmp")).unwrap();
        write(&path, |out| out.write_all(b"new").map_err(|e| Error::Data(e.to_string()))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let busy = format!(".model.{}.7.tmp", u32::MAX);
        let mut expected = vec![
            ".model.x.0.tmp",
            ".other.1.0.tmp",
            "model.1.0.tmp",
            ".model.tmp",
            "model",
            ".model.1.8.tmp",
            &busy,
        ];
        expected.sort();
        assert_eq!(names, expected);
    }

    /// Writers of one name, each of which cleans up after the others.
    #[test]
    fn who_cleans_up_takes_nothing_from_who_writes() {
        let dir = TempDir::new("writers");
        let path = dir.path().join("model");
        std::thread::scope(|s| {
            for n in 0..4u8 {
                let path = &path;
                s.spawn(move || {
                    for _ in 0..50 {
                        write(path, |out| {
                            out.write_all(&[n; 100]).map_err(|e| Error::Data(e.to_string()))
                        })
                        .unwrap();
                        let got = fs::read(path).unwrap();
                        assert!(got.len() == 100 && got.iter().all(|b| *b == got[0]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_content_that_fails_leaves_nothing() {
        let dir = TempDir::new("failed");
        let wrong = write(&dir.path().join("model"), |_| Err(Error::Data("no".into())));
        assert!(wrong.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
