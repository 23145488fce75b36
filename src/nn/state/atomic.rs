//! Files that are written whole or not at all: into a temporary file beside the old one, which a rename then puts in its place.
//!
//! Whenever the process is killed, the file is the old one or the new one. What a kill can leave behind is the temporary file, whose name
//! begins with a dot and ends in `.tmp`.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The temporary file, removed unless it has taken its place.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a file through `content`. On an error of that or of the system the old file stays as it was.
pub(crate) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |e: io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
    // Behind a link it is the file that is exchanged, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let name = target.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}.{}.{nth}.tmp", name.to_string_lossy(), std::process::id()));
    let file = File::options().write(true).create_new(true).open(&temporary).map_err(failed)?;
    let mut guard = Temporary(Some(temporary.clone()));
    if let Ok(old) = fs::metadata(&target) {
        file.set_permissions(old.permissions()).map_err(failed)?;
    }
    let mut out = BufWriter::with_capacity(1 << 16, file);
    content(&mut out)?;
    // Written, then on the disk, then in its place: in this order no crash can show a name with half a content.
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    fs::rename(&temporary, &target).map_err(failed)?;
    guard.0 = None;
    // Until the folder is on the disk a crash of the machine may bring back the old file, which is whole too; so this may fail.
    let _ = File::open(folder).and_then(|f| f.sync_all());
    Ok(())
}
