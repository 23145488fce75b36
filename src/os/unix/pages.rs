//! Pages of memory, and pages of machine code.
//!
//! Linux, and macOS on x86-64, change the protection of code from read-write to read-execute once
//! it is complete. macOS on arm64 has `MAP_JIT` instead: each thread either writes to all pages of
//! machine code or executes them.

use crate::os::{Access, HUGE_PAGE};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// Returns the bytes of a page.
pub(crate) fn page_bytes() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: returns a number.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).unwrap_or(4096)
    })
}

fn flags_of(access: Access) -> libc::c_int {
    match access {
        Access::None => libc::PROT_NONE,
        Access::Read => libc::PROT_READ,
        Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    }
}

fn map_with(bytes: usize, protection: libc::c_int, more: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
    // SAFETY: a new anonymous mapping at an address of the system's choice overlaps no other
    // mapping.
    let p = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    match NonNull::new(p.cast()) {
        Some(base) if p != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps zeroed bytes, rounded up to pages.
pub(crate) fn map(bytes: usize, access: Access) -> io::Result<NonNull<u8>> {
    map_with(bytes, flags_of(access), 0)
}

/// Maps zeroed bytes that can be read and written, aligned for huge pages if they are as many.
pub(crate) fn map_large(bytes: usize) -> io::Result<NonNull<u8>> {
    if bytes < HUGE_PAGE {
        return map(bytes, Access::ReadWrite);
    }
    // Map one huge page more than needed, then unmap the parts before the first aligned address
    // and after the end.
    let total = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let map = map(total, Access::ReadWrite)?;
    let head = map.align_offset(HUGE_PAGE);
    // SAFETY: `head` is less than HUGE_PAGE, so `head + bytes` is within the mapping; the two cut
    // parts lie outside the result.
    unsafe {
        let start = map.add(head);
        unmap(map, head);
        unmap(start.add(bytes), total - head - bytes);
        // Advice only: without huge pages the memory works as well.
        #[cfg(target_os = "linux")]
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        Ok(start)
    }
}

/// Unmaps pages.
///
/// # Safety
/// The range is a whole mapping of this file that is no longer used.
pub(crate) unsafe fn unmap(p: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { libc::munmap(p.as_ptr().cast(), bytes) };
    }
}

/// Changes the access to pages.
///
/// # Safety
/// The range is whole pages of a mapping of this file, and no reference to them contradicts it.
pub(crate) unsafe fn protect(p: NonNull<u8>, bytes: usize, access: Access) -> io::Result<()> {
    // SAFETY: the caller upholds the contract of this function.
    match unsafe { libc::mprotect(p.as_ptr().cast(), bytes, flags_of(access)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(all(target_os = "macos", target_arch = "aarch64")))]
mod code {
    use super::*;

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
            match libc::mprotect(p.as_ptr().cast(), code, libc::PROT_READ | libc::PROT_EXEC) {
                0 => flush_instructions(p, code),
                _ => return Err(io::Error::last_os_error()),
            }
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

    /// Makes instructions that were written as data visible to instruction fetch.
    #[cfg(target_arch = "aarch64")]
    unsafe fn flush_instructions(p: NonNull<u8>, bytes: usize) {
        use std::arch::asm;
        let lines: u64;
        // SAFETY: reads the sizes of cache lines, which user code may.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) lines, options(nomem, nostack)) };
        let (data, code) = (4usize << (lines >> 16 & 15), 4usize << (lines & 15));
        let (from, to) = (p.as_ptr() as usize, p.as_ptr() as usize + bytes);
        // SAFETY: writes cache lines of readable pages back and invalidates instructions; no value
        // in memory changes.
        unsafe {
            for line in (from & !(data - 1)..to).step_by(data) {
                asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags));
            }
            asm!("dsb ish", options(nostack, preserves_flags));
            for line in (from & !(code - 1)..to).step_by(code) {
                asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags));
            }
            asm!("dsb ish", "isb", options(nostack, preserves_flags));
        }
    }

    /// Does nothing: instruction fetch of this architecture sees all writes.
    #[cfg(not(target_arch = "aarch64"))]
    unsafe fn flush_instructions(_: NonNull<u8>, _: usize) {}
}

#[cfg(all(target_os = "macos", target_arch = "aarch64"))]
mod code {
    use super::*;
    use std::ffi::c_void;

    unsafe extern "C" {
        fn sys_icache_invalidate(start: *mut c_void, bytes: usize);
    }

    /// Maps zeroed bytes, of which the first `code` bytes, whole pages, become executable by
    /// [`finish_code`]. Until then this thread can write to all of them, and runs no machine code
    /// of such mappings.
    pub(crate) fn map_code(code: usize, bytes: usize) -> io::Result<NonNull<u8>> {
        assert!(code <= bytes);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let base = map_with(bytes, all, libc::MAP_JIT)?;
        if code < bytes {
            // Data is ordinary memory, which replaces the end of the mapping.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let access = flags_of(Access::ReadWrite);
            // SAFETY: the range is the end of the new mapping, to which nothing points yet.
            let data = unsafe {
                libc::mmap(base.add(code).as_ptr().cast(), bytes - code, access, flags, -1, 0)
            };
            if data == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                // SAFETY: the mapping is ours and nothing points to it.
                unsafe { unmap(base, bytes) };
                return Err(error);
            }
        }
        // SAFETY: this thread writes the code now, and runs none before `finish_code`.
        unsafe { libc::pthread_jit_write_protect_np(0) };
        Ok(base)
    }

    /// Makes the first bytes of a mapping of [`map_code`] executable and no longer writable.
    ///
    /// # Safety
    /// The bytes are those that the mapping was made with, this thread mapped them, and no
    /// reference to them exists.
    pub(crate) unsafe fn finish_code(p: NonNull<u8>, code: usize) -> io::Result<()> {
        // SAFETY: as above.
        unsafe {
            libc::pthread_jit_write_protect_np(1);
            sys_icache_invalidate(p.as_ptr().cast(), code);
        }
        Ok(())
    }

    /// Unmaps a mapping of [`map_code`], finished or not.
    ///
    /// # Safety
    /// The mapping is whole and no longer used.
    pub(crate) unsafe fn unmap_code(p: NonNull<u8>, bytes: usize) {
        // SAFETY: as above; this thread writes no code any more.
        unsafe {
            libc::pthread_jit_write_protect_np(1);
            unmap(p, bytes);
        }
    }
}

pub(crate) use code::{finish_code, map_code, unmap_code};
