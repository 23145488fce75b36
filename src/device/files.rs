//! Atomic file writes: the content goes to a temporary file beside the target, which a rename then
//! replaces.
//!
//! Whenever the process is killed, the target holds the old or the new content. A kill can leave
//! the temporary file behind, whose name is `.NAME.PROCESS.RANDOM.tmp`. A process holds a lock on
//! its temporary file, which the system releases when the process ends; the next write to the same
//! target removes temporary files without a lock.

use crate::error::{Error, Result};
use crate::os;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;

/// Age at which a temporary file counts as abandoned, on a file system without locks.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Creates a locked temporary file beside the target, and removes abandoned ones. The file is
/// deleted on drop; [`NamedTempFile::persist`] moves it to the target.
pub(crate) fn temporary_beside(target: &Path) -> io::Result<NamedTempFile> {
    let name =
        target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let folder = folder_of(target);
    remove_abandoned(folder, &name);
    loop {
        let prefix = format!(".{name}.{}.", std::process::id());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // The permissions of `File::create`, which are not those of temporary files.
        if let Some(permissions) = os::new_file_permissions() {
            builder.permissions(permissions);
        }
        let file = builder.tempfile_in(folder)?;
        // Where locks are not supported, `ABANDONED_AFTER` protects the file. Another process
        // may have removed it before the lock was taken.
        let _ = file.as_file().lock();
        if !os::is_removed(file.as_file())? {
            return Ok(file);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes temporary files of a name whose processes have ended. Failing to is not an error.
fn remove_abandoned(folder: &Path, name: &str) {
    let Ok(list) = fs::read_dir(folder) else { return };
    for entry in list.flatten() {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|f| {
            f.strip_prefix('.')?.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")
        });
        let ours = rest.and_then(|r| r.split_once('.')?.0.parse::<u32>().ok()).is_some();
        if ours && entry.file_type().is_ok_and(|t| t.is_file()) {
            remove_if_abandoned(&entry);
        }
    }
}

/// Removes a temporary file that no process has locked.
fn remove_if_abandoned(entry: &fs::DirEntry) {
    let Ok(file) = os::open_no_follow(&entry.path()) else { return };
    let abandoned = match file.try_lock() {
        Ok(()) => true,
        Err(fs::TryLockError::WouldBlock) => false,
        Err(fs::TryLockError::Error(_)) => {
            let age =
                entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            age.is_some_and(|age| age > ABANDONED_AFTER)
        }
    };
    // The lock is held until the file is removed: a process that created it in this moment gets the
    // lock afterwards, sees no link, and creates another.
    if abandoned {
        let _ = fs::remove_file(entry.path());
    }
}

/// Returns the reason why [`write`] would fail, if one can be found in advance.
pub(crate) fn write_obstacle(path: &Path) -> Option<String> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if target.is_dir() {
        return Some("it is a folder".into());
    }
    temporary_beside(&target).err().map(|e| e.to_string())
}

/// Writes a file through `content`. An error of `content` or of the system leaves the old file
/// unchanged.
pub(crate) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |e: io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    // Replaces the file that a symbolic link names, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let temporary = temporary_beside(&target).map_err(failed)?;
    let file = temporary.as_file();
    if let Ok(old) = fs::metadata(&target) {
        file.set_permissions(old.permissions()).map_err(failed)?;
    }
    let mut out = BufWriter::with_capacity(1 << 16, file);
    content(&mut out)?;
    out.flush().map_err(failed)?;
    drop(out);
    // The content reaches the disk before the rename does: no crash shows a partial file.
    file.sync_all().map_err(failed)?;
    temporary.persist(&target).map_err(|e| failed(e.error))?;
    // Before the folder is on the disk, a crash may bring back the old file, which is complete;
    // therefore a failure here is not an error.
    let _ = File::open(folder_of(&target)).and_then(|f| f.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::TempDir;
    #[cfg(unix)]
    use std::fs::Permissions;
    #[cfg(unix)]
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_of_dead_processes_are_removed() {
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
        // The first is still being written, the second is not a regular file.
        let busy = plant(format!(".model.{}.7.tmp", u32::MAX));
        busy.lock().unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("nowhere", dir.path().join(".model.1.8.tmp")).unwrap();
        #[cfg(windows)]
        fs::create_dir(dir.path().join(".model.1.8.tmp")).unwrap();
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

    /// Concurrent writers of one target, each of which removes abandoned files.
    #[test]
    fn cleanup_spares_files_that_are_being_written() {
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
    fn failing_content_leaves_no_file() {
        let dir = TempDir::new("failed");
        let wrong = write(&dir.path().join("model"), |_| Err(Error::Data("no".into())));
        assert!(wrong.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_the_old_file_or_of_a_new_one() {
        let dir = TempDir::new("permissions");
        let mode =
            |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        let save = |name: &str| write(&dir.path().join(name), |_| Ok(())).unwrap();
        File::create(dir.path().join("plain")).unwrap();
        save("new");
        assert_eq!(mode("new"), mode("plain"));
        fs::set_permissions(dir.path().join("new"), Permissions::from_mode(0o604)).unwrap();
        save("new");
        assert_eq!(mode("new"), 0o604);
    }
}
