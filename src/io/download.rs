//! Downloads: the folder that holds them, the transfer, and [`Tensor::from_url`].
//!
//! The transfer needs the feature `download`. Without it, files that are in the folder already are
//! found, and everything else is an error that names the feature.

use crate::device::files::temporary_beside;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum bytes of a download whose size is not known in advance.
pub(crate) const MAX_BYTES: u64 = 16 << 30;

impl Tensor {
    /// Downloads a file once and returns its bytes on `DISK`, as [`from_file`](Self::from_file)
    /// does. The file stays in the folder that `PICO_DATA` names and is not downloaded again.
    ///
    /// The scheme is `https`, `http` or `file`. A redirect from `https` to `http` is refused, and
    /// so is a file of more than 16 GiB. `https` and `http` need the feature `download` of this
    /// crate.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let path = std::env::temp_dir().join(format!("doc-url-{}.bin", std::process::id()));
    /// std::fs::write(&path, [1u8, 2, 3, 4]).unwrap();
    /// let bytes = Tensor::from_url(&format!("file://{}", path.display()))?;
    /// assert_eq!((bytes.device().as_str(), bytes.to_vec::<u8>()?), ("DISK", vec![1, 2, 3, 4]));
    /// assert!(Tensor::from_url("nowhere").is_err());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Tensor> {
        if let Some(path) = url.strip_prefix("file://") {
            return Tensor::from_file(path);
        }
        if !is_http(url) {
            return Err(Error::Data(format!(
                "from_url: {url:?} is not a URL; expected https://, http:// or file://"
            )));
        }
        Tensor::from_file(cached(url, &data_folder()?.join("downloads"))?)
    }
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// Returns the folder of downloads: `PICO_DATA`, or a folder in the user's cache folder.
pub(crate) fn data_folder() -> Result<PathBuf> {
    folder_from(&|name| crate::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
}

fn folder_from(get: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    get("PICO_DATA")
        .or_else(|| Some(get("XDG_CACHE_HOME").filter(|p| p.is_absolute())?.join("picograd-data")))
        .or_else(|| Some(get("LOCALAPPDATA").filter(|p| p.is_absolute())?.join("picograd-data")))
        .or_else(|| Some(get("HOME").filter(|p| p.is_absolute())?.join(".cache/picograd-data")))
        .ok_or_else(|| {
            Error::Data(
                "no folder for downloads: none of PICO_DATA, XDG_CACHE_HOME, LOCALAPPDATA and \
                 HOME is set"
                    .into(),
            )
        })
}

/// SHA-256 of bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Downloads at most `most` bytes to a temporary file, which replaces the target if it is complete
/// and `check` accepts it.
pub(crate) fn download(
    url: &str,
    target: &Path,
    most: u64,
    check: impl FnOnce(&Path) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    if !is_http(url) {
        return Err(format!("{url:?} does not begin with https:// or http://"));
    }
    let folder = target.parent().ok_or("the target has no folder")?;
    fs::create_dir_all(folder)
        .map_err(|e| format!("{} cannot be created ({e})", folder.display()))?;
    let mut part = temporary_beside(target).map_err(|e| e.to_string())?;
    transfer(url, most, &mut part)?;
    check(part.path())?;
    part.persist(target).map(drop).map_err(|e| e.error.to_string())
}

/// Copies the body of a response. The size is limited by what is received, not by what the server
/// declares.
#[cfg(feature = "download")]
fn transfer(url: &str, most: u64, out: &mut dyn std::io::Write) -> std::result::Result<(), String> {
    use std::io::Read;
    use std::time::Duration;
    let failed = |e: ureq::Error| format!("download failed ({e})");
    let too_long = || format!("the file is longer than the limit of {most} bytes");
    let agent = ureq::Agent::config_builder()
        // Only http and https are implemented, so a redirect cannot lead to a local file.
        .https_only(url.starts_with("https://"))
        .max_redirects(10)
        .tls_config(ureq::tls::TlsConfig::builder().root_certs(trusted_roots()).build())
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .build()
        .new_agent();
    let mut response = agent.get(url).call().map_err(failed)?;
    if response.body().content_length().is_some_and(|n| n > most) {
        return Err(too_long());
    }
    let body = response.body_mut().as_reader();
    match std::io::copy(&mut body.take(most.saturating_add(1)), out) {
        Ok(n) if n > most => Err(too_long()),
        Ok(_) => Ok(()),
        Err(e) => Err(format!("download failed ({e})")),
    }
}

/// Returns the root certificates of the system, which include those that its administrator added;
/// those of Mozilla on a system without any.
#[cfg(feature = "download")]
fn trusted_roots() -> ureq::tls::RootCerts {
    use ureq::tls::{Certificate, RootCerts};
    let system = rustls_native_certs::load_native_certs().certs;
    if system.is_empty() {
        return RootCerts::WebPki;
    }
    let roots = system.iter().map(|c| Certificate::from_der(c).to_owned());
    RootCerts::Specific(std::sync::Arc::new(roots.collect()))
}

/// Fails: the feature is off. The tests of this crate enable it; `.ci/run` checks this error in a
/// project without it.
#[cfg(not(feature = "download"))]
fn transfer(_: &str, _: u64, _: &mut dyn std::io::Write) -> std::result::Result<(), String> {
    Err("this build cannot download; enable the feature `download` of picograd".into())
}

/// Returns the file of a URL, downloaded into the folder unless it is there.
pub(crate) fn cached(url: &str, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(sha256(url.as_bytes()));
    if !path.exists() {
        download(url, &path, MAX_BYTES, |_| Ok(()))
            .map_err(|why| Error::Data(format!("{url}: {why}")))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{Server, TempDir};

    #[test]
    fn sha256_has_known_answers() {
        for (text, digest) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(sha256(text.as_bytes()), digest);
        }
        let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(sha256(&vec![b'a'; 1_000_000]), million);
    }

    #[test]
    fn folder_is_the_first_that_is_set() {
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
    #[cfg(feature = "download")]
    fn downloads_are_complete_or_leave_nothing() {
        let dir = TempDir::new("download");
        let server = Server::new();
        let get = |path: &str| {
            download(&server.url(path), &dir.path().join("to/file"), MAX_BYTES, |_| Ok(()))
        };
        let left = || fs::read_dir(dir.path().join("to")).unwrap().count();
        for (path, why) in [("absent", "404"), ("cut", "isconnected"), ("loop", "redirects")] {
            let e = get(path).unwrap_err();
            assert!(e.starts_with("download failed (") && e.contains(why), "{path}: {e}");
            assert_eq!(left(), 0, "{path} leaves nothing behind");
        }
        let refused =
            download("http://127.0.0.1:1/x", &dir.path().join("to/file"), MAX_BYTES, |_| Ok(()))
                .unwrap_err();
        assert!(refused.contains("refused"), "{refused}");
        let long =
            download(&server.url("abc"), &dir.path().join("to/file"), 2, |_| Ok(())).unwrap_err();
        assert!(long.contains("longer than the limit of 2 bytes"), "{long}");
        // No length is declared here.
        let long =
            download(&server.url("long"), &dir.path().join("to/file"), 2, |_| Ok(())).unwrap_err();
        assert!(long.contains("longer than the limit of 2 bytes"), "{long}");
        let local =
            download(&server.url("local"), &dir.path().join("to/file"), MAX_BYTES, |_| Ok(()))
                .unwrap_err();
        assert!(local.contains("download failed"), "{local}");
        for address in
            ["file:///etc/hostname", "ftp://127.0.0.1/x", "/etc/hostname", "HTTPS://x", ""]
        {
            let e =
                download(address, &dir.path().join("to/file"), MAX_BYTES, |_| Ok(())).unwrap_err();
            assert!(e.contains("does not begin with https:// or http://"), "{e}");
        }
        let wrong = download(&server.url("abc"), &dir.path().join("to/file"), MAX_BYTES, |_| {
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
    #[cfg(feature = "download")]
    fn url_is_downloaded_once() {
        let dir = TempDir::new("cached");
        let server = Server::new();
        let first = cached(&server.url("abc"), dir.path()).unwrap();
        assert_eq!(cached(&server.url("abc"), dir.path()).unwrap(), first);
        assert_eq!(server.asked(), 1);
        assert_ne!(cached(&server.url("moved"), dir.path()).unwrap(), first);
        let e = cached(&server.url("absent"), dir.path()).unwrap_err().to_string();
        assert!(e.contains("/absent: download failed") && e.contains("404"), "{e}");
        let empty = cached(&server.url("empty"), dir.path()).unwrap();
        assert_eq!(fs::read(empty).unwrap(), b"");
    }
}
