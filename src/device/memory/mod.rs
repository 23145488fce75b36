//! Host memory for tensors. In: a length. Out: a [`HostBuffer`] aligned for any vector load, or
//! `Error::OutOfMemory`; no size aborts the process.
//!
//! A freed block is reused by the next buffer of its size class. Free blocks are limited in total,
//! and are all returned to the system before an allocation fails. Every byte is initialized (fresh
//! memory is zero), so that a buffer that was not requested as zeros holds old values but never
//! undefined ones.
//!
//! `GUARD=1` places each buffer against an inaccessible page, so that a kernel that reads or writes
//! out of bounds faults at once. Freed blocks are not reused then, so that a use after free faults
//! as well.

use super::allocator::Blocks;
use super::backend::lock;
use super::limits;
use crate::dtype::{Element, as_bytes};
use crate::env;
use crate::error::{Error, Result};
use crate::os::{self, Access, page_bytes};
use std::alloc::Layout;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The alignment of every buffer: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Larger blocks are mapped directly from the system: zero at no cost, aligned for huge pages, and
/// returned when freed.
const MMAP_THRESHOLD: usize = 1 << 20;

/// Maximum bytes of free blocks.
const MAX_CACHED_BYTES: usize = 1 << 30;

/// The fill of a buffer under `GUARD=1` that was not requested as zeros: NaN as floats, -1 as
/// integers, so that a read of an unwritten value shows.
const POISON: u8 = 0xff;

/// The fill between the end of a guarded buffer and its page, if the length is no multiple of the
/// alignment.
const CANARY: u8 = 0xc5;

/// Bytes of host memory, aligned to [`ALIGN`], freed when dropped.
///
/// Kernels write to it through [`ptr`](HostBuffer::ptr) while others hold a shared reference: it
/// behaves like a slice of cells. The contract is that the executor orders all accesses: two of
/// them overlap in time only when both read. The methods that make references of the bytes
/// are `unsafe`, or take the buffer by `&mut`, for this reason.
#[derive(Debug)]
pub struct HostBuffer {
    ptr: NonNull<u8>,
    len: usize,
    block: Option<Block>,
    owner: &'static Allocator,
    /// The owner of borrowed memory: it is never written, and is released with the buffer.
    borrowed: Option<Owner>,
}

/// The owner of borrowed memory.
struct Owner(#[expect(dead_code, reason = "it is held, not looked at")] Arc<dyn Any + Send + Sync>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("owner")
    }
}

// SAFETY: the buffer owns its memory, which is tied to no thread.
unsafe impl Send for HostBuffer {}
// SAFETY: a shared reference gives out a raw pointer, a length, and unsafe methods whose callers
// promise that accesses are ordered.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates a buffer of unspecified bytes.
    pub fn new(len: usize) -> Result<HostBuffer> {
        global().allocate(len, false)
    }

    /// Allocates a buffer of zeros.
    #[cfg(feature = "testing")]
    pub fn zeroed(len: usize) -> Result<HostBuffer> {
        global().allocate(len, true)
    }

    /// Wraps elements of the caller without a copy. They must not be written; see
    /// [`is_borrowed`](HostBuffer::is_borrowed).
    pub fn borrowed<T: Element>(elements: impl AsRef<[T]> + Send + Sync + 'static) -> HostBuffer {
        // The reference count keeps them at their address.
        let elements = Arc::new(elements);
        let bytes = as_bytes::<T>((*elements).as_ref());
        let (ptr, len) = (NonNull::from(bytes).cast(), bytes.len());
        HostBuffer { ptr, len, block: None, owner: global(), borrowed: Some(Owner(elements)) }
    }

    /// Returns true if the memory is borrowed and must not change.
    pub fn is_borrowed(&self) -> bool {
        self.borrowed.is_some()
    }

    /// Returns the first byte. Aligned, except for borrowed memory, and never null, also for an
    /// empty buffer.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Returns the length in bytes, as requested.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes.
    #[cfg(feature = "testing")]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes, for reading.
    ///
    /// # Safety
    /// Nothing may write to the buffer while the slice lives.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the block holds `len` initialized bytes for as long as the buffer lives; the
        // caller guarantees that nothing writes.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// Returns the bytes, for writing. The buffer is borrowed exclusively, so only pointers taken
    /// earlier have to be left alone meanwhile.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        assert!(!self.is_borrowed(), "borrowed memory is read-only");
        // SAFETY: as in `as_slice`; a kernel that still ran on the buffer would break the contract
        // of the type.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let overrun = block.overrun(self.ptr, self.len);
            self.owner.free(block, self.len);
            if overrun && !std::thread::panicking() {
                panic!("GUARD: something wrote past the end of a buffer of {} bytes", self.len);
            }
        }
    }
}

/// Bytes taken from the system: buffers in use, rounded up to size classes, and free blocks.
pub fn held_bytes() -> usize {
    global().state().held
}

/// Returns the maximum number of bytes that may be taken from the system: memory and swap of the
/// machine.
pub fn limit() -> usize {
    global().limit
}

/// Returns the bytes of the buffers in use, as requested.
#[cfg(feature = "testing")]
pub fn live_bytes() -> usize {
    global().state().live
}

/// Returns the maximum of [`live_bytes`] since the start or the last [`reset_peak`].
#[cfg(feature = "testing")]
pub fn peak_bytes() -> usize {
    global().state().peak
}

/// Resets [`peak_bytes`] to the current use.
#[cfg(feature = "testing")]
pub fn reset_peak() {
    let mut state = global().state();
    state.peak = state.live;
}

/// Returns true if each buffer is placed against an inaccessible page.
pub fn is_guarded() -> bool {
    global().guard
}

/// Returns all free blocks to the system.
pub fn clear_cache() {
    global().clear();
}

/// Returns the allocator of the process.
fn global() -> &'static Allocator {
    static GLOBAL: OnceLock<Allocator> = OnceLock::new();
    GLOBAL.get_or_init(|| {
        Allocator::new(
            system_bytes(),
            MAX_CACHED_BYTES,
            env::var("GUARD").is_some_and(|v| v == "1"),
        )
    })
}

/// Memory and swap of the machine. Where the kernel promises more than that (overcommit), using it
/// would end in a kill and not in an error.
fn system_bytes() -> usize {
    os::physical_bytes().unwrap_or(isize::MAX as usize)
}

/// Rounds a length up to its size class: eight classes between two powers of two, so that at most
/// an eighth is lost. The length is at most `isize::MAX`, so nothing overflows.
pub(in crate::device) fn size_class(len: usize) -> usize {
    let step = (len.next_power_of_two() / 16).max(ALIGN);
    let step = if len > MMAP_THRESHOLD { step.max(page_bytes()) } else { step };
    len.div_ceil(step) * step
}

/// The source of a block, to which it is returned.
#[derive(Debug)]
enum Origin {
    Heap,
    Pages,
    Guarded { map: NonNull<u8>, map_len: usize },
}

/// A block of memory from the system.
#[derive(Debug)]
struct Block {
    ptr: NonNull<u8>,
    size: usize,
    origin: Origin,
}

// SAFETY: a block owns its memory and has no ties to a thread.
unsafe impl Send for Block {}

impl Block {
    /// Zeroed memory of exactly this size, which is a size class.
    fn fresh(size: usize) -> Option<Block> {
        if size <= MMAP_THRESHOLD {
            let layout = Layout::from_size_align(size, ALIGN).ok()?;
            // SAFETY: the size of a class is never zero.
            let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
            return Some(Block { ptr, size, origin: Origin::Heap });
        }
        Some(Block { ptr: os::map_large(size).ok()?, size, origin: Origin::Pages })
    }

    /// Allocates `len` bytes whose end is against an inaccessible page, with another such page
    /// before the start.
    fn guarded(len: usize) -> Option<Block> {
        let size = len.checked_next_multiple_of(ALIGN)?;
        let body = size.checked_next_multiple_of(page_bytes())?;
        let map_len = body.checked_add(2 * page_bytes())?;
        let map = os::map(map_len, Access::None).ok()?;
        // SAFETY: the body is inside the mapping, one page from its start.
        let body_at = unsafe { map.add(page_bytes()) };
        // SAFETY: changes the protection of pages of the new mapping only.
        if unsafe { os::protect(body_at, body, Access::ReadWrite) }.is_err() {
            // SAFETY: the mapping is ours and nothing points to it yet.
            unsafe { os::unmap(map, map_len) };
            return None;
        }
        // SAFETY: `size` is at most `body`, so the block is in the accessible pages; the bytes
        // after `len` are part of it.
        let ptr = unsafe {
            let ptr = body_at.add(body - size);
            ptr.add(len).write_bytes(CANARY, size - len);
            ptr
        };
        Some(Block { ptr, size, origin: Origin::Guarded { map, map_len } })
    }

    /// Returns true if the bytes between the end of a guarded buffer and its page were written.
    fn overrun(&self, ptr: NonNull<u8>, len: usize) -> bool {
        match self.origin {
            Origin::Guarded { .. } => (len..self.size).any(|i| {
                // SAFETY: the bytes from `len` to `size` belong to the block and were filled when
                // it was allocated.
                unsafe { ptr.add(i).read() != CANARY }
            }),
            _ => false,
        }
    }

    fn release(self) {
        // SAFETY: the block came from the same source with the same size, and taking it by value
        // means that it is not used any more.
        unsafe {
            match self.origin {
                Origin::Heap => std::alloc::dealloc(
                    self.ptr.as_ptr(),
                    Layout::from_size_align_unchecked(self.size, ALIGN),
                ),
                Origin::Pages => os::unmap(self.ptr, self.size),
                Origin::Guarded { map, map_len } => os::unmap(map, map_len),
            }
        }
    }
}

/// The allocator of host memory.
#[derive(Debug)]
struct Allocator {
    state: Mutex<Blocks<Block>>,
    /// Maximum bytes taken from the system.
    limit: usize,
    max_cached: usize,
    guard: bool,
}

impl Allocator {
    fn new(limit: usize, max_cached: usize, guard: bool) -> Allocator {
        Allocator { state: Mutex::default(), limit, max_cached, guard }
    }

    fn state(&self) -> MutexGuard<'_, Blocks<Block>> {
        // Only numbers and queues change under the lock, none of it by code that panics midway.
        lock(&self.state)
    }

    fn allocate(&'static self, len: usize, zero: bool) -> Result<HostBuffer> {
        if len == 0 {
            let ptr = NonNull::without_provenance(
                std::num::NonZero::new(ALIGN).expect("the alignment is not zero"),
            );
            return Ok(HostBuffer { ptr, len, block: None, owner: self, borrowed: None });
        }
        if len > isize::MAX as usize {
            return Err(self.out_of_memory(len));
        }
        let size = if self.guard { len.div_ceil(ALIGN) * ALIGN } else { size_class(len) };
        let kept = self.state().take(size);
        let block = match kept {
            Some(block) => {
                if zero {
                    // SAFETY: the block is ours alone and has at least `len` bytes.
                    unsafe { block.ptr.write_bytes(0, len) };
                }
                block
            }
            None => {
                self.reserve(size).ok_or_else(|| self.out_of_memory(len))?;
                // Free blocks are returned before an allocation fails because of a limit.
                let within = limits::check(size).or_else(|_| {
                    self.clear();
                    limits::check(size.max(limits::RECHECK_BYTES))
                });
                if let Err(mut e) = within {
                    self.state().held -= size;
                    // A failed allocation is not held.
                    if let Error::OutOfMemory { held, .. } = &mut e {
                        *held = held.saturating_sub(size);
                    }
                    return Err(e);
                }
                let block = self.fresh(len, size).or_else(|| {
                    self.clear();
                    self.fresh(len, size)
                });
                let Some(block) = block else {
                    self.state().held -= size;
                    return Err(self.out_of_memory(len));
                };
                if self.guard && !zero {
                    // SAFETY: the block is ours alone and has at least `len` bytes.
                    unsafe { block.ptr.write_bytes(POISON, len) };
                }
                block
            }
        };
        let mut state = self.state();
        state.live += len;
        state.peak = state.peak.max(state.live);
        Ok(HostBuffer { ptr: block.ptr, len, block: Some(block), owner: self, borrowed: None })
    }

    fn fresh(&self, len: usize, size: usize) -> Option<Block> {
        if self.guard { Block::guarded(len) } else { Block::fresh(size) }
    }

    /// Counts the bytes as held, and evicts free blocks if they would exceed the limit.
    fn reserve(&self, size: usize) -> Option<()> {
        let (fits, spare) = self.state().reserve(size, self.limit);
        spare.into_iter().for_each(Block::release);
        fits.then_some(())
    }

    fn free(&self, block: Block, len: usize) {
        let mut state = self.state();
        state.live -= len;
        if self.guard || block.size > self.max_cached {
            state.held -= block.size;
            drop(state);
            return block.release();
        }
        let size = block.size;
        let spare = state.add_free(block, size, self.max_cached);
        drop(state);
        spare.into_iter().for_each(Block::release);
    }

    fn clear(&self) {
        let spare = self.state().shrink(0);
        spare.into_iter().for_each(Block::release);
    }

    fn out_of_memory(&self, asked: usize) -> Error {
        limits::out_of_memory(asked)
    }
}

#[cfg(test)]
mod tests;
