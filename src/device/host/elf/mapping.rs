//! Memory of loaded objects: offsets for sections, and the pages that hold them.

use super::Checked;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Maximum bytes of a mapping: more than any kernel needs, and far below the 2 GiB that a 32-bit
/// displacement spans.
const MAX_BYTES: usize = 64 << 20;

/// Assigns offsets in the mapping, in increasing order.
pub(super) struct Layout {
    pub(super) end: usize,
}

impl Layout {
    pub(super) fn place(&mut self, size: u64, align: u64) -> Checked<usize> {
        let align =
            usize::try_from(align.max(1)).ok().filter(|a| a.is_power_of_two() && *a <= page());
        let align = align.ok_or("an alignment is not a power of two, or above a page")?;
        let at = self.end.next_multiple_of(align);
        let end = usize::try_from(size)
            .ok()
            .and_then(|size| at.checked_add(size))
            .filter(|&end| end <= MAX_BYTES);
        self.end = end.ok_or_else(|| format!("larger than {MAX_BYTES} bytes"))?;
        Ok(at)
    }

    /// Ends a segment: the next one begins on a page of its own.
    pub(super) fn end_segment(&mut self) {
        self.end = self.end.next_multiple_of(page());
    }
}

/// Returns the bytes of a page.
pub(super) fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: returns a number.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).unwrap_or(4096)
    })
}

/// Private pages, unmapped on drop. Every write is bounds-checked.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    pub(super) fn new(len: usize) -> Checked<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the system's choice overlaps no other
        // memory.
        let p = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        match NonNull::new(p.cast()) {
            Some(base) if p != libc::MAP_FAILED => Ok(Mapping { base, len }),
            _ => Err(format!("no memory for it: {}", std::io::Error::last_os_error())),
        }
    }

    /// Returns the bytes, for writing. Valid only before the first `protect`.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, is zeroed by the system and ours alone; `load`
        // protects it only after its last write.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> Checked<()> {
        let end = at.checked_add(bytes.len());
        let place = end
            .and_then(|end| self.bytes().get_mut(at..end))
            .ok_or("a write past the end of the mapping")?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn address(&self, at: usize) -> u64 {
        self.base.as_ptr() as u64 + at as u64
    }

    pub(super) fn protect(&self, from: usize, to: usize, protection: i32) -> Checked<()> {
        if from == to {
            return Ok(());
        }
        assert!(
            from < to && to <= self.len && from.is_multiple_of(page()) && to.is_multiple_of(page())
        );
        // SAFETY: the range is whole pages of this mapping, and no reference into it is alive.
        match unsafe { libc::mprotect(self.base.add(from).as_ptr().cast(), to - from, protection) }
        {
            0 => Ok(()),
            _ => Err(format!("its pages cannot be protected: {}", std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and goes away with the value that owns it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
