//! Functions of the operating system for Windows on x86-64.

mod folder;
mod fork;
mod pages;

pub(crate) use folder::{PrivateFolder, is_secret};
pub(crate) use fork::{CAN_FORK, Fork};
pub(crate) use pages::{
    finish_code, map, map_code, map_large, page_bytes, protect, unmap, unmap_code,
};

use super::MachineMemory;
use std::ffi::{CStr, OsString, c_void};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::windows::ffi::OsStringExt;
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_STANDARD_INFO, FileStandardInfo,
    GetFileInformationByHandleEx,
};
use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo, GetStdHandle, STD_ERROR_HANDLE,
};
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
    GetModuleFileNameW, GetModuleHandleExW,
};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

/// Fills a buffer from an offset of a file.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_read(&mut bytes[done..], at + done as u64) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => done += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns what identifies the content of a file without reading it: size and times.
pub(crate) fn file_identity(meta: &Metadata) -> String {
    format!("{} {} {}", meta.file_size(), meta.last_write_time(), meta.creation_time())
}

/// Returns true if a file can be run as a program. Windows decides that by name when it is run.
pub(crate) fn is_program(meta: &Metadata) -> bool {
    meta.is_file()
}

/// Returns true if the open file has no name any more.
pub(crate) fn is_removed(file: &File) -> io::Result<bool> {
    // SAFETY: the struct is plain numbers, for which zero is valid.
    let mut info: FILE_STANDARD_INFO = unsafe { std::mem::zeroed() };
    let size = size_of::<FILE_STANDARD_INFO>() as u32;
    let out = (&raw mut info).cast::<c_void>();
    // SAFETY: the handle is open, and the call writes the one struct of this class.
    match unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), FileStandardInfo, out, size) }
    {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(info.DeletePending || info.NumberOfLinks == 0),
    }
}

/// Opens a file for reading. A link is opened itself.
pub(crate) fn open_no_follow(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)
}

/// Leaves the permissions to the folder, from which Windows inherits them.
pub(crate) fn make_private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a folder and missing ones above it. Windows inherits their permissions.
pub(crate) fn create_private_folders(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Creates a folder. An error if it exists. Windows inherits its permissions.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

/// Returns the permissions of new files: none, because Windows inherits them.
pub(crate) fn new_file_permissions() -> Option<Permissions> {
    None
}

/// Fills a buffer with random bytes for a secret.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let (algorithm, flags) = (std::ptr::null_mut(), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
    // SAFETY: the call fills the buffer of this length.
    match unsafe { BCryptGenRandom(algorithm, bytes.as_mut_ptr(), len, flags) } {
        0 => Ok(()),
        status => Err(io::Error::other(format!("BCryptGenRandom returned {status:#x}"))),
    }
}

/// Creates a file in memory: Windows has none.
pub(crate) fn memory_file() -> Option<File> {
    None
}

fn memory_status() -> Option<MEMORYSTATUSEX> {
    // SAFETY: the struct is plain numbers, for which zero is valid.
    let mut status: MEMORYSTATUSEX = unsafe { std::mem::zeroed() };
    status.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
    // SAFETY: the struct has the length that it names.
    (unsafe { GlobalMemoryStatusEx(&mut status) } != 0).then_some(status)
}

/// Returns memory and page files of the machine. `None` if the system does not tell.
pub(crate) fn physical_bytes() -> Option<usize> {
    usize::try_from(memory_status()?.ullTotalPageFile).ok()
}

/// Returns the memory of the machine. `None` if the system does not tell.
pub(crate) fn machine_memory() -> Option<MachineMemory> {
    let status = memory_status()?;
    Some(MachineMemory { available: status.ullAvailPageFile, total: status.ullTotalPhys })
}

/// Returns the limit of this process's address space: Windows has none.
pub(crate) fn address_space() -> Option<(u64, u64)> {
    None
}

/// Returns the columns of the terminal of stderr; `None` if it is not a terminal.
pub(crate) fn terminal_columns() -> Option<usize> {
    // SAFETY: the struct is plain numbers, for which zero is valid.
    let mut info: CONSOLE_SCREEN_BUFFER_INFO = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes the one struct, and fails if the handle is no terminal.
    let known = unsafe { GetConsoleScreenBufferInfo(GetStdHandle(STD_ERROR_HANDLE), &mut info) };
    let columns = i32::from(info.srWindow.Right) - i32::from(info.srWindow.Left) + 1;
    (known != 0).then(|| usize::try_from(columns).unwrap_or(80))
}

/// Returns the file of the library that an address belongs to.
pub(crate) fn library_of(address: *const c_void) -> Option<PathBuf> {
    let flags =
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    let mut module = std::ptr::null_mut();
    let mut name = vec![0u16; 1 << 15];
    // SAFETY: the address is only looked up; the calls write one handle and at most the given
    // number of characters.
    let len = unsafe {
        if GetModuleHandleExW(flags, address.cast(), &mut module) == 0 {
            return None;
        }
        GetModuleFileNameW(module, name.as_mut_ptr(), name.len() as u32)
    };
    (len > 0).then(|| PathBuf::from(OsString::from_wide(&name[..len as usize])))
}

/// Returns the address of a library function that machine code of this loader can call: none, as
/// the functions of Windows have another calling convention.
pub(crate) fn library_function(_: &CStr) -> Option<u64> {
    None
}

/// Does nothing: Windows has no process groups that can be ended.
pub(crate) fn own_group(_: &mut Command) {}

/// Ends a child. Its own child processes go on.
pub(crate) fn kill_group(child: &mut Child) {
    let _ = child.kill();
}

/// Describes how a process ended.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    status.code().map_or("no exit code".into(), |code| format!("exit code {code:#x}"))
}

/// Returns no mask: the number of CPUs that the standard library returns respects it.
pub(crate) fn affinity() -> Option<Vec<usize>> {
    None
}
