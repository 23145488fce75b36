//! Sources that a compiler rejected, saved so that the error can name a file to look at.

use super::CacheKey;
use super::folder::unique;
use crate::os;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Rejected sources that the cache folder holds at most.
pub(crate) const MAX_FAILED: usize = 50;

/// Saves a rejected source in the cache folder, or in the temporary folder if there is none. `None`
/// if both fail.
pub(crate) fn save_failed_source(
    src: &str,
    name: &str,
    extension: &str,
    cache: Option<&Path>,
) -> Option<PathBuf> {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect();
    let in_cache = cache.and_then(|dir| {
        let dir = dir.join("failed");
        os::create_private_folders(&dir).ok()?;
        delete_oldest(&dir);
        let file = dir.join(format!("{name}-{}{extension}", CacheKey::of(&[src.as_bytes()])));
        fs::write(&file, src).ok()?;
        Some(file)
    });
    in_cache.or_else(|| {
        let (mut file, path) =
            create_unique(&std::env::temp_dir(), &format!("picograd-{name}"), extension).ok()?;
        file.write_all(src.as_bytes()).ok()?;
        Some(path)
    })
}

/// Deletes the oldest rejected sources once there are [`MAX_FAILED`].
fn delete_oldest(dir: &Path) {
    let Ok(list) = fs::read_dir(dir) else { return };
    let mut files: Vec<_> = list
        .flatten()
        .filter_map(|f| Some((f.metadata().ok()?.modified().ok()?, f.path())))
        .collect();
    if files.len() >= MAX_FAILED {
        files.sort();
        for (_, path) in &files[..=files.len() - MAX_FAILED] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Creates a new file with a unique name that only its owner can read.
pub(crate) fn create_unique(
    dir: &Path,
    stem: &str,
    extension: &str,
) -> std::io::Result<(File, PathBuf)> {
    let path = dir.join(format!("{stem}-{}{extension}", unique()));
    let mut options = File::options();
    let file = os::make_private(options.read(true).write(true).create_new(true)).open(&path)?;
    Ok((file, path))
}
