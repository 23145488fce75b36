//! Files of published datasets: the folder they are in, their checksums, and their download.

use crate::device::limits;
use crate::error::{Error, Result};
use crate::io::download::{data_folder, download, sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// A published file.
pub(super) struct Remote {
    pub name: &'static str,
    /// URL without the file name.
    pub base: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
}

/// The folder that holds the files of a dataset.
pub(super) struct DatasetFolder {
    set: &'static str,
    pub folder: PathBuf,
    /// True for the cache folder, into which missing files are downloaded.
    cache: bool,
}

impl DatasetFolder {
    /// Returns the given folder, or the dataset's folder under `PICO_DATA` or the user's cache
    /// folder.
    pub(super) fn new(set: &'static str, folder: Option<&Path>) -> Result<DatasetFolder> {
        Ok(match folder {
            Some(folder) => DatasetFolder { set, folder: folder.to_path_buf(), cache: false },
            None => DatasetFolder { set, folder: data_folder()?.join(set), cache: true },
        })
    }

    /// Returns the content of a file, whose checksum is the published one. The error lists the URLs
    /// of `all` files of the dataset.
    pub(super) fn bytes(&self, remote: &Remote, all: &[Remote]) -> Result<Vec<u8>> {
        if self.cache && !self.folder.join(remote.name).exists() {
            fetch(self.set, &self.folder, remote)?;
        }
        let found = get(self.set, &self.folder, remote)?;
        found.ok_or_else(|| {
            absent(self.set, &self.folder, all, &format!("{} is missing", remote.name))
        })
    }

    /// Returns an error about the files of the folder.
    pub(super) fn wrong(&self, msg: String) -> Error {
        Error::Format { at: self.folder.display().to_string(), msg }
    }
}

/// Returns the content of a file with the published checksum; `None` if there is no file.
fn get(set: &str, folder: &Path, remote: &Remote) -> Result<Option<Vec<u8>>> {
    let path = folder.join(remote.name);
    let Ok(meta) = fs::metadata(&path) else { return Ok(None) };
    // A file of another length is refused without reading it.
    let found = if meta.len() == remote.bytes {
        let bytes = limits::read_file(&path)?;
        let digest = sha256(&bytes);
        if digest == remote.sha256 {
            return Ok(Some(bytes));
        }
        format!("its SHA-256 is {digest}, expected {}", remote.sha256)
    } else {
        format!("it has {} bytes, expected {}", meta.len(), remote.bytes)
    };
    Err(Error::Format {
        at: path.display().to_string(),
        msg: format!("not the published file of {set}: {found}; remove it to download it again"),
    })
}

/// Returns the error for missing files.
fn absent(set: &str, folder: &Path, remotes: &[Remote], why: &str) -> Error {
    let list: Vec<String> = remotes.iter().map(|r| format!("{}{}", r.base, r.name)).collect();
    Error::Data(format!(
        "{set}: {why}; download {} and put {} into {}",
        list.join(", "),
        if list.len() == 1 { "it" } else { "them" },
        folder.display()
    ))
}

/// Downloads a file, which replaces the target if its checksum is the published one.
fn fetch(set: &str, folder: &Path, remote: &Remote) -> Result<()> {
    let url = format!("{}{}", remote.base, remote.name);
    if cfg!(feature = "download") {
        eprintln!("downloading {url} ({:.1} MB)", remote.bytes as f64 / 1e6);
    }
    let check = |part: &Path| match limits::read_file(part) {
        Ok(bytes) if sha256(&bytes) == remote.sha256 => Ok(()),
        Ok(bytes) => Err(format!("the {} bytes downloaded have another checksum", bytes.len())),
        Err(e) => Err(e.to_string()),
    };
    let done = download(&url, &folder.join(remote.name), remote.bytes, check);
    done.map_err(|why| absent(set, folder, std::slice::from_ref(remote), &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Server, TempDir};

    #[test]
    fn downloaded_file_is_checked_before_it_replaces_the_target() {
        let dir = TempDir::new("fetch");
        let to = dir.path().join("to/set");
        let base: &'static str = Box::leak(Server::new().url("").into_boxed_str());
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let good = Remote { name: "abc", base, bytes: 3, sha256: right };
        assert_eq!(get("set", &to, &good).unwrap(), None);
        if cfg!(feature = "download") {
            fetch("set", &to, &good).unwrap();
            assert_eq!(get("set", &to, &good).unwrap().unwrap(), b"abc");
            fs::remove_file(to.join("abc")).unwrap();
        }
        for (bad, why) in [
            (
                Remote { name: "abc", base, bytes: 3, sha256: "00" },
                "the 3 bytes downloaded have another checksum",
            ),
            (Remote { name: "abc", base, bytes: 2, sha256: right }, "the limit of 2 bytes"),
            (Remote { name: "no", base, bytes: 30, sha256: right }, "404"),
            (Remote { name: "cut", base, bytes: 9, sha256: right }, "download failed"),
        ] {
            let e = fetch("set", &to, &bad).unwrap_err().to_string();
            let why = if cfg!(feature = "download") { why } else { "the feature `download`" };
            assert!(e.contains(why), "{e}");
            assert!(e.contains(base) && e.contains("to/set"), "{e}");
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "no file remains");
        }
        for (content, why) in [("abd", "its SHA-256 is"), ("abcd", "it has 4 bytes, expected 3")] {
            fs::write(to.join("abc"), content).unwrap();
            assert!(get("set", &to, &good).unwrap_err().to_string().contains(why));
        }
    }
}
