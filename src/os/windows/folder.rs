//! A folder of this user. Windows opens files by path only; each one is checked after it is opened.
//! Permissions are inherited from the folder above, which is the user's own unless `PICO_CACHE`
//! names another, and are not checked.

use std::ffi::{CStr, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use windows_sys::Win32::Foundation::{GENERIC_READ, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    EqualSid, GetTokenInformation, OWNER_SECURITY_INFORMATION, PSID, TOKEN_INFORMATION_CLASS,
    TOKEN_QUERY, TokenOwner, TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_WRITE_ATTRIBUTES,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// A folder of this user.
#[derive(Debug)]
pub(crate) struct PrivateFolder(PathBuf);

fn permission_denied(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Returns true if an identity of this process, its user or the owner of what it creates, is equal
/// to another one.
///
/// # Safety
/// `other` points to an identity.
unsafe fn is_ours(other: PSID) -> io::Result<bool> {
    let mut token: HANDLE = null_mut();
    // SAFETY: the call writes one handle, which is new and has no other owner.
    let token = unsafe {
        if OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &mut token) == 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedHandle::from_raw_handle(token)
    };
    let is_equal = |class: TOKEN_INFORMATION_CLASS| {
        // Aligned for the struct, which begins with a pointer to the identity behind it; an
        // identity has at most 68 bytes.
        let mut buffer = [0u64; 32];
        let (at, bytes) = (buffer.as_mut_ptr().cast::<c_void>(), size_of_val(&buffer) as u32);
        let mut used = 0;
        // SAFETY: the call writes at most the given number of bytes; then both point to identities.
        unsafe {
            GetTokenInformation(token.as_raw_handle(), class, at, bytes, &mut used) != 0
                && EqualSid(*at.cast::<PSID>(), other) != 0
        }
    };
    Ok(is_equal(TokenUser) || is_equal(TokenOwner))
}

/// Checks that a file or folder belongs to this user.
fn check_owner(file: &File) -> io::Result<()> {
    let (mut owner, mut descriptor) = (null_mut(), null_mut());
    // SAFETY: the handle is open for reading; the call writes two pointers, of which the second is
    // freed after the last use of the first.
    unsafe {
        let status = GetSecurityInfo(
            file.as_raw_handle(),
            SE_FILE_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &mut owner,
            null_mut(),
            null_mut(),
            null_mut(),
            &mut descriptor,
        );
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status.cast_signed()));
        }
        // A file system without owners, such as FAT, gives none.
        let ours = if owner.is_null() { Ok(false) } else { is_ours(owner) };
        LocalFree(descriptor);
        if ours? { Ok(()) } else { Err(permission_denied("it belongs to another user")) }
    }
}

/// Returns true: who can read a file is inherited from its folder, and not checked.
pub(crate) fn is_secret(_: &File) -> io::Result<bool> {
    Ok(true)
}

impl PrivateFolder {
    /// Opens a folder, which is created if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<PrivateFolder> {
        super::create_private_folders(path)?;
        let folder =
            File::options().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)?;
        if !folder.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        check_owner(&folder)?;
        Ok(PrivateFolder(std::path::absolute(path)?))
    }

    fn path(&self, name: &CStr) -> io::Result<PathBuf> {
        Ok(self.0.join(name.to_str().map_err(|_| ErrorKind::InvalidInput)?))
    }

    /// Opens a file, if it is a regular one of this user.
    fn open_file(&self, name: &CStr, options: &mut OpenOptions) -> io::Result<File> {
        let file = options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(self.path(name)?)?;
        if !file.metadata()?.is_file() {
            return Err(permission_denied("it is not a regular file"));
        }
        check_owner(&file)?;
        Ok(file)
    }

    /// Opens a file for reading, if it is a regular one of this user. Its time can be set.
    pub(crate) fn read(&self, name: &CStr) -> io::Result<File> {
        self.open_file(name, File::options().access_mode(GENERIC_READ | FILE_WRITE_ATTRIBUTES))
    }

    /// Creates a file.
    pub(crate) fn create(&self, name: &CStr) -> io::Result<File> {
        File::options().write(true).create_new(true).open(self.path(name)?)
    }

    /// Opens or creates a file.
    pub(crate) fn update(&self, name: &CStr) -> io::Result<File> {
        self.open_file(name, File::options().read(true).write(true).create(true))
    }

    /// Gives a file a second name. An error if there is a file of this name.
    pub(crate) fn link(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        fs::hard_link(self.path(from)?, self.path(to)?)
    }

    /// Renames a file. A file of the new name is replaced.
    pub(crate) fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        fs::rename(self.path(from)?, self.path(to)?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &CStr) -> io::Result<()> {
        fs::remove_file(self.path(name)?)
    }
}
