//! Files of published sets: where they are looked for, how they are told to be the right ones, and how they are fetched.

use super::sha256::sha256;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// The folder that was named, or else that of the set under `PICO_DATA`, or else under the user's cache folder.
    pub(super) fn new(set: &'static str, folder: Option<&Path>) -> Result<Place> {
        let get = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Ok(match folder {
            Some(folder) => Place { set, folder: folder.to_path_buf(), cache: false },
            None => Place { set, folder: cache_of(set, &get)?, cache: true },
        })
    }

    /// The content of a file, which has the published checksum. Of `all` files of the set the error says where to get them.
    pub(super) fn bytes(&self, remote: &Remote, all: &[Remote]) -> Result<Vec<u8>> {
        if self.cache && !self.folder.join(remote.name).exists() {
            fetch(self.set, &self.folder, remote)?;
        }
        let found = get(self.set, &self.folder, remote)?;
        found.ok_or_else(|| absent(self.set, &self.folder, all, &format!("{} is not there", remote.name)))
    }

    /// An error about the files that are there.
    pub(super) fn wrong(&self, msg: String) -> Error {
        Error::Format { at: self.folder.display().to_string(), msg }
    }
}

/// The folder of a set that nobody named.
fn cache_of(set: &str, get: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    let root = get("PICO_DATA")
        .or_else(|| Some(get("XDG_CACHE_HOME").filter(|p| p.is_absolute())?.join("picograd-data")))
        .or_else(|| Some(get("HOME").filter(|p| p.is_absolute())?.join(".cache/picograd-data")));
    let none = || Error::Data(format!("{set}: neither PICO_DATA, XDG_CACHE_HOME nor HOME names a folder for its files"));
    Ok(root.ok_or_else(none)?.join(set))
}

/// The content of a file, if it is there; it has the published checksum.
fn get(set: &str, folder: &Path, remote: &Remote) -> Result<Option<Vec<u8>>> {
    let path = folder.join(remote.name);
    let Ok(meta) = fs::metadata(&path) else { return Ok(None) };
    // A file of another length is not worth a look, whatever that length is.
    let found = if meta.len() == remote.bytes {
        let bytes = fs::read(&path).map_err(|e| Error::Io { path: path.clone(), msg: e.to_string() })?;
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
        msg: format!("not the {set} that was published: {found}; remove it to have it fetched anew"),
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

/// Fetches a file with the `curl` program: beside its place first, and to it once the checksum is right.
fn fetch(set: &str, folder: &Path, remote: &Remote) -> Result<()> {
    let failed = |why: String| absent(set, folder, std::slice::from_ref(remote), &why);
    fs::create_dir_all(folder).map_err(|e| Error::Io { path: folder.to_path_buf(), msg: e.to_string() })?;
    let part = folder.join(format!(".{}.{}.part", remote.name, std::process::id()));
    let url = format!("{}{}", remote.base, remote.name);
    eprintln!("fetching {url} ({:.1} MB)", remote.bytes as f64 / 1e6);
    let limit = remote.bytes.to_string();
    let run = Command::new("curl")
        .args([
            "--fail",
            "--location",
            "--silent",
            "--show-error",
            "--connect-timeout",
            "20",
            "--max-time",
            "1800",
            "--max-filesize",
            &limit,
        ])
        .arg("--output")
        .arg(&part)
        .arg(&url)
        .stdin(Stdio::null())
        .output();
    let outcome = match run {
        Err(e) => Err(format!("curl, which fetches files, cannot be run ({e})")),
        Ok(done) if !done.status.success() => Err(format!("it cannot be fetched ({})", String::from_utf8_lossy(&done.stderr).trim())),
        Ok(_) => match fs::read(&part) {
            Ok(bytes) if sha256(&bytes) == remote.sha256 => fs::rename(&part, folder.join(remote.name)).map_err(|e| e.to_string()),
            Ok(bytes) => Err(format!("what was fetched, {} bytes, has another checksum", bytes.len())),
            Err(e) => Err(e.to_string()),
        },
    };
    outcome.map_err(|why| {
        let _ = fs::remove_file(&part);
        failed(why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_one_that_was_named() {
        let of = |pairs: &[(&str, &str)]| {
            cache_of("mnist", &|n| pairs.iter().find(|p| p.0 == n).map(|p| PathBuf::from(p.1))).map(|p| p.display().to_string())
        };
        assert_eq!(of(&[("PICO_DATA", "sets"), ("HOME", "/h")]).unwrap(), "sets/mnist");
        assert_eq!(of(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/picograd-data/mnist");
        assert_eq!(of(&[("HOME", "/h")]).unwrap(), "/h/.cache/picograd-data/mnist");
        assert!(of(&[]).unwrap_err().to_string().contains("PICO_DATA"));
    }

    /// A file of the host stands for the network: curl reads `file://` too.
    #[test]
    fn a_fetched_file_is_checked_before_it_takes_its_place() {
        let dir = crate::runtime::testing::TempDir::new("fetch");
        let (from, to) = (dir.path().join("from"), dir.path().join("to/set"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("abc"), "abc").unwrap();
        let base: &'static str = Box::leak(format!("file://{}/", from.display()).into_boxed_str());
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let good = Remote { name: "abc", base, bytes: 3, sha256: right };
        assert_eq!(get("set", &to, &good).unwrap(), None);
        if Command::new("curl").arg("--version").output().is_ok_and(|o| o.status.success()) {
            fetch("set", &to, &good).unwrap();
            assert_eq!(get("set", &to, &good).unwrap().unwrap(), b"abc");
            fs::remove_file(to.join("abc")).unwrap();
        }
        for (bad, why) in [
            (Remote { name: "abc", base, bytes: 3, sha256: "00" }, "checksum"),
            (Remote { name: "no", base, bytes: 3, sha256: right }, "fetched"),
        ] {
            let e = fetch("set", &to, &bad).unwrap_err().to_string();
            assert!(e.contains("curl, which") || e.contains(why), "{e}");
            assert!(e.contains(base) && e.contains("to/set"), "{e}");
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "nothing is left behind");
        }
        for (content, why) in [("abd", "its SHA-256 is"), ("abcd", "it has 4 bytes, and should have 3")] {
            fs::write(to.join("abc"), content).unwrap();
            assert!(get("set", &to, &good).unwrap_err().to_string().contains(why));
        }
    }
}
