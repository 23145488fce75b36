//! Files from the network: the folder that they are kept in, and how they are fetched. The `curl`
//! program does it, so there is no network code here.

use super::files::temporary_beside;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of what is fetched: `PICO_DATA`, or one in the user's cache folder.
pub(crate) fn data_folder() -> Result<PathBuf> {
    folder_from(&|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
}

fn folder_from(get: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    get("PICO_DATA")
        .or_else(|| Some(get("XDG_CACHE_HOME").filter(|p| p.is_absolute())?.join("picograd-data")))
        .or_else(|| Some(get("HOME").filter(|p| p.is_absolute())?.join(".cache/picograd-data")))
        .ok_or_else(|| {
            Error::Data(
                "neither PICO_DATA, XDG_CACHE_HOME nor HOME names a folder for what is fetched"
                    .into(),
            )
        })
}

/// SHA-256 of bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that an address may give at most, where nobody says how many it has.
pub(crate) const MOST: u64 = 16 << 30;

/// Fetches a file: beside its place first, and to it once all of it is there and `check` has
/// nothing against it. The error says why not.
pub(crate) fn download(
    url: &str,
    target: &Path,
    most: u64,
    check: impl FnOnce(&Path) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    // A redirect may not lead to files of this machine, nor from https to http.
    let schemes = if url.starts_with("https://") {
        "=https"
    } else if url.starts_with("http://") {
        "=http,https"
    } else {
        return Err(format!(
            "{url:?} is no address that is fetched; it begins with https:// or http://"
        ));
    };
    let folder = target.parent().ok_or("its place has no folder")?;
    fs::create_dir_all(folder).map_err(|e| format!("{} cannot be made ({e})", folder.display()))?;
    let mut part = temporary_beside(target).map_err(|e| e.to_string())?;
    let mut curl = Command::new("curl");
    // An address is meant as it is written. What stands still for a minute is given up.
    curl.args([
        "--disable",
        "--fail",
        "--location",
        "--silent",
        "--show-error",
        "--globoff",
        "--connect-timeout",
        "20",
    ]);
    curl.args(["--proto", schemes, "--proto-redir", schemes, "--max-redirs", "10"]);
    curl.args(["--speed-limit", "1", "--speed-time", "60", "--max-filesize", &most.to_string()]);
    curl.arg("--").arg(url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut curl =
        curl.spawn().map_err(|e| format!("curl, which fetches files, cannot be run ({e})"))?;
    // Curl looks at the length that a server declares; what really comes is counted here.
    let copied = curl
        .stdout
        .take()
        .map_or(Ok(0), |out| io::copy(&mut out.take(most.saturating_add(1)), &mut part));
    if !matches!(copied, Ok(n) if n <= most) {
        let _ = curl.kill();
    }
    let done = curl.wait_with_output().map_err(|e| e.to_string())?;
    if copied.map_err(|e| e.to_string())? > most {
        return Err(format!("it is longer than the {most} bytes that are fetched at most"));
    }
    if !done.status.success() {
        return Err(format!(
            "it cannot be fetched ({})",
            String::from_utf8_lossy(&done.stderr).trim()
        ));
    }
    check(part.path())?;
    part.persist(target).map(drop).map_err(|e| e.error.to_string())
}

/// The file of an address, fetched into the folder unless it is there already.
pub(crate) fn cached(url: &str, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(sha256(url.as_bytes()));
    if !path.exists() {
        download(url, &path, MOST, |_| Ok(()))
            .map_err(|why| Error::Data(format!("{url}: {why}")))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Server, TempDir, have_curl};

    #[test]
    fn sha256_has_known_answers() {
        for (text, digest) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            assert_eq!(sha256(text.as_bytes()), digest);
        }
    }

    #[test]
    fn the_folder_is_the_one_that_was_named() {
        let of = |pairs: &[(&str, &str)]| {
            folder_from(&|n| pairs.iter().find(|p| p.0 == n).map(|p| PathBuf::from(p.1)))
                .map(|p| p.display().to_string())
        };
        assert_eq!(of(&[("PICO_DATA", "sets"), ("HOME", "/h")]).unwrap(), "sets");
        assert_eq!(of(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/picograd-data");
        assert_eq!(of(&[("HOME", "/h")]).unwrap(), "/h/.cache/picograd-data");
        assert!(of(&[]).unwrap_err().to_string().contains("PICO_DATA"));
    }

    #[test]
    fn files_come_over_the_network_whole_or_not_at_all() {
        if !have_curl() {
            return;
        }
        let dir = TempDir::new("download");
        let server = Server::new();
        let get =
            |path: &str| download(&server.url(path), &dir.path().join("to/file"), MOST, |_| Ok(()));
        let left = || fs::read_dir(dir.path().join("to")).unwrap().count();
        for (path, why) in [("absent", "404"), ("cut", "remaining"), ("loop", "redirects")] {
            let e = get(path).unwrap_err();
            assert!(
                e.starts_with("it cannot be fetched (curl: ") && e.contains(why),
                "{path}: {e}"
            );
            assert_eq!(left(), 0, "{path} leaves nothing behind");
        }
        let refused =
            download("http://127.0.0.1:1/x", &dir.path().join("to/file"), MOST, |_| Ok(()))
                .unwrap_err();
        assert!(refused.contains("connect"), "{refused}");
        let long =
            download(&server.url("abc"), &dir.path().join("to/file"), 2, |_| Ok(())).unwrap_err();
        assert!(
            long.contains("Maximum file size exceeded") || long.contains("longer than the 2 bytes"),
            "{long}"
        );
        // No length is declared here.
        let long =
            download(&server.url("long"), &dir.path().join("to/file"), 2, |_| Ok(())).unwrap_err();
        assert!(
            long.contains("longer than the 2 bytes") || long.contains("Maximum file size exceeded"),
            "{long}"
        );
        let local = download(&server.url("local"), &dir.path().join("to/file"), MOST, |_| Ok(()))
            .unwrap_err();
        assert!(local.contains("it cannot be fetched"), "{local}");
        for address in
            ["file:///etc/hostname", "ftp://127.0.0.1/x", "/etc/hostname", "HTTPS://x", ""]
        {
            let e = download(address, &dir.path().join("to/file"), MOST, |_| Ok(())).unwrap_err();
            assert!(e.contains("is no address that is fetched"), "{e}");
        }
        let wrong = download(&server.url("abc"), &dir.path().join("to/file"), MOST, |_| {
            Err("another file".into())
        })
        .unwrap_err();
        assert_eq!(wrong, "another file");
        assert_eq!(left(), 0);
        for path in ["abc", "moved"] {
            get(path).unwrap();
            assert_eq!(fs::read(dir.path().join("to/file")).unwrap(), b"abc");
            assert_eq!(left(), 1);
        }
    }

    #[test]
    fn an_address_is_fetched_once() {
        if !have_curl() {
            return;
        }
        let dir = TempDir::new("cached");
        let server = Server::new();
        let first = cached(&server.url("abc"), dir.path()).unwrap();
        assert_eq!(cached(&server.url("abc"), dir.path()).unwrap(), first);
        assert_eq!(server.asked(), 1);
        assert_ne!(cached(&server.url("moved"), dir.path()).unwrap(), first);
        let e = cached(&server.url("absent"), dir.path()).unwrap_err().to_string();
        assert!(e.contains("/absent: it cannot be fetched") && e.contains("404"), "{e}");
        let empty = cached(&server.url("empty"), dir.path()).unwrap();
        assert_eq!(fs::read(empty).unwrap(), b"");
    }
}
