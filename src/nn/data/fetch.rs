//! Files of published sets: where they are looked for, how they are told to be the right ones, and
//! how they are fetched.

use crate::device::download::{data_folder, download, sha256};
use crate::device::limits;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A published file.
pub(super) struct Remote {
    pub name: &'static str,
    /// Where it is, without its name.
    pub base: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
}

/// Where the files of a set are.
pub(super) struct Place {
    set: &'static str,
    pub folder: PathBuf,
    /// Is it ours, so that files may be fetched into it?
    cache: bool,
}

impl Place {
    /// The folder that was named, or else that of the set under `PICO_DATA`, or else under the
    /// user's cache folder.
    pub(super) fn new(set: &'static str, folder: Option<&Path>) -> Result<Place> {
        Ok(match folder {
            Some(folder) => Place { set, folder: folder.to_path_buf(), cache: false },
            None => Place { set, folder: data_folder()?.join(set), cache: true },
        })
    }

    /// The content of a file, which has the published checksum. Of `all` files of the set the error
    /// says where to get them.
    pub(super) fn bytes(&self, remote: &Remote, all: &[Remote]) -> Result<Vec<u8>> {
        if self.cache && !self.folder.join(remote.name).exists() {
            fetch(self.set, &self.folder, remote)?;
        }
        let found = get(self.set, &self.folder, remote)?;
        found.ok_or_else(|| {
            absent(self.set, &self.folder, all, &format!("{} is not there", remote.name))
        })
    }

    /// An error about the files that are there.
    pub(super) fn wrong(&self, msg: String) -> Error {
        Error::Format { at: self.folder.display().to_string(), msg }
    }
}

/// The content of a file, if it is there; it has the published checksum.
fn get(set: &str, folder: &Path, remote: &Remote) -> Result<Option<Vec<u8>>> {
    let path = folder.join(remote.name);
    let Ok(meta) = fs::metadata(&path) else { return Ok(None) };
    // A file of another length is not worth a look, whatever that length is.
    let found = if meta.len() == remote.bytes {
        let bytes =
            fs::read(&path).map_err(|e| Error::Io { path: path.clone(), msg: e.to_string() })?;
        let digest = sha256(&bytes);
        if digest == remote.sha256 {
            return Ok(Some(bytes));
        }
        format!("its SHA-256 is {digest}, and should be {}", remote.sha256)
    } else {
        format!("it has {} bytes, and should have {}", meta.len(), remote.bytes)
    };
    Err(Error::Format {
        at: path.display().to_string(),
        msg: format!(
            "not the {set} that was published: {found}; remove it to have it fetched anew"
        ),
    })
}

/// The error for files that are not there.
fn absent(set: &str, folder: &Path, remotes: &[Remote], why: &str) -> Error {
    let list: Vec<String> = remotes.iter().map(|r| format!("{}{}", r.base, r.name)).collect();
    Error::Data(format!(
        "{set}: {why}; fetch {} and put {} into {}",
        list.join(", "),
        if list.len() == 1 { "it" } else { "them" },
        folder.display()
    ))
}

/// Fetches a file, which takes its place once the checksum is right.
fn fetch(set: &str, folder: &Path, remote: &Remote) -> Result<()> {
    let url = format!("{}{}", remote.base, remote.name);
    eprintln!("fetching {url} ({:.1} MB)", remote.bytes as f64 / 1e6);
    let check = |part: &Path| match limits::read_file(part) {
        Ok(bytes) if sha256(&bytes) == remote.sha256 => Ok(()),
        Ok(bytes) => Err(format!("what was fetched, {} bytes, has another checksum", bytes.len())),
        Err(e) => Err(e.to_string()),
    };
    let done = download(&url, &folder.join(remote.name), remote.bytes, check);
    done.map_err(|why| absent(set, folder, std::slice::from_ref(remote), &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Server, TempDir, have_curl};

    #[test]
    fn a_fetched_file_is_checked_before_it_takes_its_place() {
        let dir = TempDir::new("fetch");
        let to = dir.path().join("to/set");
        let base: &'static str = Box::leak(Server::new().url("").into_boxed_str());
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let good = Remote { name: "abc", base, bytes: 3, sha256: right };
        assert_eq!(get("set", &to, &good).unwrap(), None);
        if have_curl() {
            fetch("set", &to, &good).unwrap();
            assert_eq!(get("set", &to, &good).unwrap().unwrap(), b"abc");
            fs::remove_file(to.join("abc")).unwrap();
        }
        for (bad, why) in [
            (
                Remote { name: "abc", base, bytes: 3, sha256: "00" },
                "what was fetched, 3 bytes, has another checksum",
            ),
            (Remote { name: "abc", base, bytes: 2, sha256: right }, "it cannot be fetched (curl: "),
            (Remote { name: "no", base, bytes: 30, sha256: right }, "404"),
            (Remote { name: "cut", base, bytes: 9, sha256: right }, "remaining"),
        ] {
            let e = fetch("set", &to, &bad).unwrap_err().to_string();
            assert!(e.contains("curl, which") || e.contains(why), "{e}");
            assert!(e.contains(base) && e.contains("to/set"), "{e}");
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "nothing is left behind");
        }
        for (content, why) in
            [("abd", "its SHA-256 is"), ("abcd", "it has 4 bytes, and should have 3")]
        {
            fs::write(to.join("abc"), content).unwrap();
            assert!(get("set", &to, &good).unwrap_err().to_string().contains(why));
        }
    }
}
