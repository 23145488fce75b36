//! The folder of the disk cache, as an open directory: every file is opened relative to it, without
//! following links, and checked after it is opened. Files of other users, or that others can write
//! to, are not read.
//!
//! Anybody who can write to the folder could replace it between a check and its use. So the
//! directory is checked once it is open, and its path is used again only for listing.

use super::hash::MAC_LEN;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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
    dir: OwnedFd,
    /// The key of the MACs of entries.
    pub(super) secret: [u8; MAC_LEN],
}

fn permission_denied(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Checks that a file belongs to this user, and that nobody else can write to it.
fn check_private(meta: &fs::Metadata) -> io::Result<()> {
    // SAFETY: asks for a number.
    if meta.uid() != unsafe { libc::geteuid() } {
        return Err(permission_denied("it belongs to another user"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(permission_denied("other users can write to it"));
    }
    Ok(())
}

impl Folder {
    /// Opens a folder and its secret. The folder is created if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // A link to a folder is followed: the owner of the folder matters.
        let dir = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
        check_private(&dir.metadata()?)?;
        let mut folder = Folder { path: path.to_path_buf(), dir: dir.into(), secret: [0; MAC_LEN] };
        folder.secret = folder.read_secret().or_else(|_| folder.create_secret())?;
        Ok(folder)
    }

    fn read_secret(&self) -> io::Result<[u8; MAC_LEN]> {
        let mut file = self.read(SECRET)?;
        if file.metadata()?.mode() & 0o077 != 0 {
            return Err(permission_denied("others can read the secret"));
        }
        let mut secret = [0; MAC_LEN];
        file.read_exact(&mut secret)?;
        Ok(secret)
    }

    /// Creates the secret. If another process creates it first, that one is used.
    fn create_secret(&self) -> io::Result<[u8; MAC_LEN]> {
        let mut secret = [0; MAC_LEN];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        // A damaged secret, or one that others can read, is replaced, which invalidates all
        // entries.
        let usable = self
            .read(SECRET)
            .and_then(|f| f.metadata())
            .is_ok_and(|m| m.len() == MAC_LEN as u64 && m.mode() & 0o077 == 0);
        if !usable {
            let _ = self.remove(SECRET);
        }
        let name = c_name(&new_name())?;
        self.create(&name)?.write_all(&secret)?;
        // SAFETY: the names end in null bytes, and the directory is open.
        let linked =
            unsafe { libc::linkat(self.fd(), name.as_ptr(), self.fd(), SECRET.as_ptr(), 0) };
        let error = io::Error::last_os_error();
        let _ = self.remove(&name);
        match linked {
            0 => Ok(secret),
            _ if error.kind() == io::ErrorKind::AlreadyExists => self.read_secret(),
            _ => Err(error),
        }
    }

    fn fd(&self) -> libc::c_int {
        self.dir.as_raw_fd()
    }

    fn open_at(&self, name: &CStr, flags: libc::c_int) -> io::Result<File> {
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the name ends in a null byte, and the directory is open.
        let fd = unsafe { libc::openat(self.fd(), name.as_ptr(), flags, 0o600 as libc::c_uint) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    /// Opens a file for reading, if it is a regular one of this user that nobody else can write to.
    pub(super) fn read(&self, name: &CStr) -> io::Result<File> {
        let file = self.open_at(name, libc::O_RDONLY)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(permission_denied("it is not a regular file"));
        }
        check_private(&meta)?;
        Ok(file)
    }

    /// Creates a file that only this user can access.
    pub(super) fn create(&self, name: &CStr) -> io::Result<File> {
        self.open_at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens or creates a file that only this user can access.
    pub(super) fn update(&self, name: &CStr) -> io::Result<File> {
        let file = self.open_at(name, libc::O_RDWR | libc::O_CREAT)?;
        check_private(&file.metadata()?)?;
        Ok(file)
    }

    pub(super) fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        // SAFETY: the names end in null bytes, and the directory is open.
        match unsafe { libc::renameat(self.fd(), from.as_ptr(), self.fd(), to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn remove(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: the name ends in a null byte, and the directory is open.
        match unsafe { libc::unlinkat(self.fd(), name.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
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
