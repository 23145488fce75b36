//! Pages of memory, and pages of machine code. Windows frees a mapping only as a whole, and has
//! huge pages only for privileged users.

use crate::os::Access;
use std::io;
use std::ptr::{NonNull, null};
use std::sync::OnceLock;
use windows_sys::Win32::System::Diagnostics::Debug::FlushInstructionCache;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_NOACCESS, PAGE_PROTECTION_FLAGS,
    PAGE_READONLY, PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualProtect,
};
use windows_sys::Win32::System::SystemInformation::{GetSystemInfo, SYSTEM_INFO};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Returns the bytes of a page.
pub(crate) fn page_bytes() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: the struct is numbers and pointers, for which zero is valid; the call fills it.
        let info = unsafe {
            let mut info: SYSTEM_INFO = std::mem::zeroed();
            GetSystemInfo(&mut info);
            info
        };
        usize::try_from(info.dwPageSize).ok().filter(|n| n.is_power_of_two()).unwrap_or(4096)
    })
}

fn flags_of(access: Access) -> PAGE_PROTECTION_FLAGS {
    match access {
        Access::None => PAGE_NOACCESS,
        Access::Read => PAGE_READONLY,
        Access::ReadWrite => PAGE_READWRITE,
    }
}

/// Maps zeroed bytes, rounded up to pages.
pub(crate) fn map(bytes: usize, access: Access) -> io::Result<NonNull<u8>> {
    // SAFETY: new pages at an address of the system's choice overlap no others.
    let p = unsafe { VirtualAlloc(null(), bytes, MEM_RESERVE | MEM_COMMIT, flags_of(access)) };
    NonNull::new(p.cast()).ok_or_else(io::Error::last_os_error)
}

/// Maps zeroed bytes that can be read and written.
pub(crate) fn map_large(bytes: usize) -> io::Result<NonNull<u8>> {
    map(bytes, Access::ReadWrite)
}

/// Unmaps pages.
///
/// # Safety
/// The range is a whole mapping of this file that is no longer used.
pub(crate) unsafe fn unmap(p: NonNull<u8>, _bytes: usize) {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { VirtualFree(p.as_ptr().cast(), 0, MEM_RELEASE) };
}

unsafe fn protect_with(
    p: NonNull<u8>,
    bytes: usize,
    flags: PAGE_PROTECTION_FLAGS,
) -> io::Result<()> {
    let mut before = 0;
    // SAFETY: the range is whole pages of a mapping, as the caller guarantees.
    match unsafe { VirtualProtect(p.as_ptr().cast(), bytes, flags, &mut before) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Changes the access to pages.
///
/// # Safety
/// The range is whole pages of a mapping of this file, and no reference to them contradicts it.
pub(crate) unsafe fn protect(p: NonNull<u8>, bytes: usize, access: Access) -> io::Result<()> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { protect_with(p, bytes, flags_of(access)) }
}

/// Maps zeroed bytes, of which the first `code` bytes, whole pages, become executable by
/// [`finish_code`]. Until then this thread can write to all of them.
pub(crate) fn map_code(code: usize, bytes: usize) -> io::Result<NonNull<u8>> {
    assert!(code <= bytes);
    map(bytes, Access::ReadWrite)
}

/// Makes the first bytes of a mapping of [`map_code`] executable and no longer writable.
///
/// # Safety
/// The bytes are those that the mapping was made with, and no reference to them exists.
pub(crate) unsafe fn finish_code(p: NonNull<u8>, code: usize) -> io::Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe {
        protect_with(p, code, PAGE_EXECUTE_READ)?;
        FlushInstructionCache(GetCurrentProcess(), p.as_ptr().cast(), code);
    }
    Ok(())
}

/// Unmaps a mapping of [`map_code`], finished or not.
///
/// # Safety
/// The mapping is whole and no longer used.
pub(crate) unsafe fn unmap_code(p: NonNull<u8>, bytes: usize) {
    // SAFETY: as above.
    unsafe { unmap(p, bytes) }
}
