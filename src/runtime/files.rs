//! Files that are written whole or not at all: into a temporary file beside the old one, which a rename then puts in its place.
//!
//! Whenever the process is killed, the file is the old one or the new one. What a kill can leave behind is the temporary file, whose name is
//! `.NAME.PROCESS.UNIQUE.tmp`; the next file that is written to the same place removes it.

use super::build::unique;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a temporary file was not written to when its process counts as gone, on a system that does not say which processes there are.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The same where it does: a folder may be shared with another machine, whose processes are not known here.
const HOUR: Duration = Duration::from_secs(3600);

/// A file that is yet to take its place; it is removed unless it has.
pub(crate) struct Temporary {
    path: PathBuf,
    target: PathBuf,
}

impl Temporary {
    /// A new file beside the target. What processes that are gone have left there is removed.
    pub(crate) fn beside(target: &Path) -> io::Result<(Temporary, File)> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let folder = folder_of(target);
        remove_left(folder, &name);
        // Processes of other machines may have the same number.
        let path = folder.join(format!(".{name}.{}.{}.tmp", std::process::id(), unique()));
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok((Temporary { path, target: target.to_path_buf() }, file))
    }
    /// Where to write.
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
        let process = file.to_str().and_then(|f| f.strip_prefix('.')?.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp"));
        let Some(process) = process.and_then(|rest| number(rest.split_once('.')?.0)) else { continue };
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok()).unwrap_or_default();
        let known = cfg!(target_os = "linux") && Path::new("/proc/self").exists();
        let gone = if known { age > HOUR && !Path::new(&format!("/proc/{process}")).exists() } else { age > DAY };
        if gone {
            let _ = fs::remove_file(entry.path());
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

/// Writes a file through `content`. On an error of that or of the system the old file stays as it was.
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
    // Written, then on the disk, then in its place: in this order no crash can show a name with half a content.
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    temporary.take_place().map_err(failed)?;
    // Until the folder is on the disk a crash of the machine may bring back the old file, which is whole too; so this may fail.
    let _ = File::open(folder_of(&target)).and_then(|f| f.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::TempDir;
    use std::time::SystemTime;

    #[test]
    fn what_dead_processes_left_is_removed() {
        let dir = TempDir::new("left");
        let path = dir.path().join("model");
        // No process of this system has so high a number.
        let (dead, own) = (u32::MAX, std::process::id());
        let long_ago = SystemTime::now() - 2 * DAY;
        let plant = |name: String, when: SystemTime| {
            File::create(dir.path().join(name)).unwrap().set_modified(when).unwrap();
        };
        plant(format!(".model.{dead}.0.tmp"), long_ago);
        for stays in [".model.x.0.tmp", ".other.1.0.tmp", "model.1.0.tmp", ".model.tmp"] {
            plant(stays.to_string(), long_ago);
        }
        plant(format!(".model.{dead}.7.tmp"), SystemTime::now());
        if cfg!(target_os = "linux") {
            plant(format!(".model.{own}.999999.tmp"), long_ago);
        }
        write(&path, |out| out.write_all(b"new").map_err(|e| Error::Data(e.to_string()))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mut names: Vec<String> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut expected =
            vec![".model.x.0.tmp".into(), ".other.1.0.tmp".into(), "model.1.0.tmp".into(), ".model.tmp".into(), "model".into()];
        expected.push(format!(".model.{dead}.7.tmp"));
        if cfg!(target_os = "linux") {
            expected.push(format!(".model.{own}.999999.tmp"));
        }
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_content_that_fails_leaves_nothing() {
        let dir = TempDir::new("failed");
        let wrong = write(&dir.path().join("model"), |_| Err(Error::Data("no".into())));
        assert!(wrong.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
