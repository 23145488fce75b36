//! A folder that only this user can write to, as an open directory: every file is opened relative
//! to it, without following links, and checked after it is opened.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// An open folder of this user.
#[derive(Debug)]
pub(crate) struct PrivateFolder(OwnedFd);

fn permission_denied(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Checks that a file belongs to this user, and that nobody else can write to it.
fn check_private(meta: &Metadata) -> io::Result<()> {
    // SAFETY: asks for a number.
    if meta.uid() != unsafe { libc::geteuid() } {
        return Err(permission_denied("it belongs to another user"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(permission_denied("other users can write to it"));
    }
    Ok(())
}

/// Returns true if nobody else can read a file.
pub(crate) fn is_secret(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.mode() & 0o077 == 0)
}

/// Converts the result of a system call that returns 0 or an error.
fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl PrivateFolder {
    /// Opens a folder, which is created if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<PrivateFolder> {
        super::create_private_folders(path)?;
        // A link to a folder is followed: the owner of the folder matters.
        let dir = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
        check_private(&dir.metadata()?)?;
        Ok(PrivateFolder(dir.into()))
    }

    fn fd(&self) -> libc::c_int {
        self.0.as_raw_fd()
    }

    fn open_at(&self, name: &CStr, flags: libc::c_int) -> io::Result<File> {
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the name ends in a null byte, and the directory is open.
        let fd = unsafe { libc::openat(self.fd(), name.as_ptr(), flags, 0o600 as libc::c_uint) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            let is_link = error.raw_os_error() == Some(libc::ELOOP);
            return Err(if is_link { permission_denied("it is a link") } else { error });
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    /// Opens a file for reading, if it is a regular one of this user that nobody else can write to.
    pub(crate) fn read(&self, name: &CStr) -> io::Result<File> {
        let file = self.open_at(name, libc::O_RDONLY)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(permission_denied("it is not a regular file"));
        }
        check_private(&meta)?;
        Ok(file)
    }

    /// Creates a file that only this user can access.
    pub(crate) fn create(&self, name: &CStr) -> io::Result<File> {
        self.open_at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens or creates a file that only this user can access.
    pub(crate) fn update(&self, name: &CStr) -> io::Result<File> {
        let file = self.open_at(name, libc::O_RDWR | libc::O_CREAT)?;
        check_private(&file.metadata()?)?;
        Ok(file)
    }

    /// Gives a file a second name. An error if there is a file of this name.
    pub(crate) fn link(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        // SAFETY: the names end in null bytes, and the directory is open.
        done(unsafe { libc::linkat(self.fd(), from.as_ptr(), self.fd(), to.as_ptr(), 0) })
    }

    /// Renames a file. A file of the new name is replaced.
    pub(crate) fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        // SAFETY: the names end in null bytes, and the directory is open.
        done(unsafe { libc::renameat(self.fd(), from.as_ptr(), self.fd(), to.as_ptr()) })
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: the name ends in a null byte, and the directory is open.
        done(unsafe { libc::unlinkat(self.fd(), name.as_ptr(), 0) })
    }
}
