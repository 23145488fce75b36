//! The folder of the disk cache, as an open directory: every file is opened relative to it, without
//! following links, and checked after it is opened. Files of other users, or that others can write
//! to, are not read.
//!
//! Anybody who can write to the folder could replace it between a check and its use. So the
//! directory is checked once it is open, and its path is used again only for listing.

use super::hash::MAC_LEN;
use crate::os::{self, PrivateFolder};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The file with the secret.
pub(super) const SECRET: &CStr = c"secret";
/// The prefix of unfinished files.
pub(super) const NEW: &str = ".new-";

/// An open folder that only this user can access.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    dir: PrivateFolder,
    /// The key of the MACs of entries.
    pub(super) secret: [u8; MAC_LEN],
}

impl Folder {
    /// Opens a folder and its secret. The folder is created if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let dir = PrivateFolder::open(path)?;
        let mut folder = Folder { path: path.to_path_buf(), dir, secret: [0; MAC_LEN] };
        folder.secret = folder.read_secret().or_else(|_| folder.create_secret())?;
        Ok(folder)
    }

    fn read_secret(&self) -> io::Result<[u8; MAC_LEN]> {
        let mut file = self.read(SECRET)?;
        if !os::is_secret(&file)? {
            let why = "others can read the secret";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut secret = [0; MAC_LEN];
        file.read_exact(&mut secret)?;
        Ok(secret)
    }

    /// Creates the secret. If another process creates it first, that one is used.
    fn create_secret(&self) -> io::Result<[u8; MAC_LEN]> {
        let mut secret = [0; MAC_LEN];
        os::random(&mut secret)?;
        // A damaged secret, or one that others can read, is replaced, which invalidates all
        // entries.
        let usable = self
            .read(SECRET)
            .and_then(|f| Ok(f.metadata()?.len() == MAC_LEN as u64 && os::is_secret(&f)?))
            .unwrap_or(false);
        if !usable {
            let _ = self.remove(SECRET);
        }
        let name = c_name(&new_name())?;
        self.create(&name)?.write_all(&secret)?;
        let linked = self.dir.link(&name, SECRET);
        let _ = self.remove(&name);
        match linked {
            Ok(()) => Ok(secret),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.read_secret(),
            Err(e) => Err(e),
        }
    }

    /// Opens a file for reading, if it is a regular one of this user that nobody else can write to.
    pub(super) fn read(&self, name: &CStr) -> io::Result<File> {
        self.dir.read(name)
    }

    /// Creates a file that only this user can access.
    pub(super) fn create(&self, name: &CStr) -> io::Result<File> {
        self.dir.create(name)
    }

    /// Opens or creates a file that only this user can access.
    pub(super) fn update(&self, name: &CStr) -> io::Result<File> {
        self.dir.update(name)
    }

    /// Renames a file. A file of the new name is replaced.
    pub(super) fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &CStr) -> io::Result<()> {
        self.dir.remove(name)
    }
}

/// Returns a name as the system takes it.
pub(super) fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Returns a name that no other file has.
pub(super) fn new_name() -> String {
    format!("{NEW}{}", unique())
}

/// Part of a file name that no other process or thread uses.
pub(crate) fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos());
    format!("{}-{}-{nanos:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
