//! Pages of machine code: offsets of its parts, and memory that is first written and then made
//! readable and executable. Of loaded objects, and of assembled kernels.
//!
//! **Invariant:** no page is ever writable and executable at once.

use crate::codegen::Assembled;
use crate::os::{self, Access, page_bytes};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The end of a step, or the reason why it failed.
pub(super) type Checked<T> = std::result::Result<T, String>;

/// Maximum bytes of a mapping: more than any kernel needs, and far below the 2 GiB that a 32-bit
/// displacement spans.
const MAX_BYTES: usize = 64 << 20;

/// Checks that this process may run machine code that it generates: some systems forbid pages that
/// were written to be executed. Checked once. An error is one sentence.
pub(in crate::device) fn check_execution() -> Checked<()> {
    static CHECKED: OnceLock<Checked<()>> = OnceLock::new();
    let check = || {
        let page = page_bytes();
        Mapping::new(page, page).and_then(|mut map| map.protect(page)).map_err(|why| {
            format!(
                "the system does not let this process run code that it generates: {why}; \
                 DEV=INTERP works without"
            )
        })
    };
    CHECKED.get_or_init(check).clone()
}

/// Assigns offsets in the mapping, in increasing order.
pub(super) struct Layout {
    pub(super) end: usize,
}

impl Layout {
    pub(super) fn place(&mut self, size: u64, align: u64) -> Checked<usize> {
        let align = usize::try_from(align.max(1))
            .ok()
            .filter(|a| a.is_power_of_two() && *a <= page_bytes());
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
        self.end = self.end.next_multiple_of(page_bytes());
    }
}

/// Private pages, unmapped on drop. Every write is bounds-checked.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    /// Bytes of code, whole pages.
    code: usize,
    len: usize,
}

impl Mapping {
    /// Maps `len` zeroed bytes, of which the first `code` bytes will be executable.
    pub(super) fn new(code: usize, len: usize) -> Checked<Mapping> {
        let base = os::map_code(code, len).map_err(|e| format!("no pages for code: {e}"))?;
        Ok(Mapping { base, code, len })
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

    pub(super) fn read(&mut self, at: usize, len: usize) -> Checked<&[u8]> {
        let end = at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes().get(at..end));
        bytes.ok_or_else(|| "a read past the end of the mapping".into())
    }

    pub(super) fn address(&self, at: usize) -> u64 {
        self.base.as_ptr() as u64 + at as u64
    }

    /// Makes the code executable, and the constants that follow it up to an offset read-only.
    pub(super) fn protect(&mut self, constants_end: usize) -> Checked<()> {
        let constants = constants_end - self.code;
        assert!(constants_end <= self.len && constants.is_multiple_of(page_bytes()));
        let failed = |e| format!("pages cannot be made executable: {e}");
        // SAFETY: both ranges are whole pages of this mapping, and no reference into it is alive.
        unsafe {
            os::finish_code(self.base, self.code).map_err(failed)?;
            if constants > 0 {
                os::protect(self.base.add(self.code), constants, Access::Read).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and goes away with the value that owns it.
        unsafe { os::unmap_code(self.base, self.len) };
    }
}

/// An assembled kernel in memory.
#[derive(Debug)]
pub struct NativeCode {
    map: Mapping,
    /// Bytes of the code.
    len: usize,
}

// SAFETY: after loading nothing writes to the pages.
unsafe impl Send for NativeCode {}
// SAFETY: as above.
unsafe impl Sync for NativeCode {}

impl NativeCode {
    /// Maps code executable and constants read-only.
    pub fn load(kernel: &Assembled) -> Checked<NativeCode> {
        let code = kernel.code.len().next_multiple_of(page_bytes());
        let end = (code + kernel.constants.len()).next_multiple_of(page_bytes());
        let mut map = Mapping::new(code, end)?;
        // A jump past the end hits a breakpoint instruction.
        map.bytes()[..code].fill(0xcc);
        map.write(0, &kernel.code_with_constants_at(code))?;
        map.write(code, &kernel.constants)?;
        map.protect(end)?;
        Ok(NativeCode { map, len: kernel.code.len() })
    }
    /// Returns the address of the entry. It is valid as long as the value lives.
    pub fn entry(&self) -> *const u8 {
        self.map.address(0) as *const u8
    }
    /// Returns the machine code.
    pub fn text(&self) -> &[u8] {
        // SAFETY: the range is the code part of the mapping, which is readable and immutable.
        unsafe { std::slice::from_raw_parts(self.map.base.as_ptr(), self.len) }
    }
}
