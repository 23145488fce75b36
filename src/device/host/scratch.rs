//! Scratch memory of the threads that run a CPU kernel. Input: the bytes that a thread needs.
//! Output: a block for each thread of the pool, or `Error::OutOfMemory` before the kernel starts.
//!
//! The blocks of a launch are one allocation, which the allocator keeps for the next launch: after
//! the first one, a launch takes a free block and maps nothing. An allocation of more than a few
//! pages is rounded up to huge pages, so that a packed panel takes one entry of the TLB in place of
//! a hundred.

use super::pool;
use crate::device::memory::{HostBuffer, is_guarded};
use crate::error::Result;
use crate::kernel::SCRATCH_ALIGN;
use crate::os::HUGE_PAGE;

/// Bytes of a thread from which on the allocation is rounded up to huge pages.
const MIN_HUGE: usize = 64 << 10;

/// The scratch memory of the threads of a launch.
#[derive(Default)]
pub struct Scratch {
    /// One buffer for all threads; with `GUARD=1` one for each, against an inaccessible page.
    buffers: Vec<HostBuffer>,
    /// Distance between the blocks of two threads in one buffer.
    stride: usize,
}

impl Scratch {
    /// Allocates the memory of a launch of this many chunks, `bytes` for each thread.
    pub fn new(bytes: usize, chunks: usize) -> Result<Scratch> {
        if bytes == 0 {
            return Ok(Scratch::default());
        }
        let threads = if chunks > 1 { pool::threads() } else { 1 };
        Scratch::allocate(bytes, threads, is_guarded())
    }

    fn allocate(bytes: usize, threads: usize, guard: bool) -> Result<Scratch> {
        if guard {
            let buffers = (0..threads).map(|_| HostBuffer::new(bytes)).collect::<Result<_>>()?;
            return Ok(Scratch { buffers, stride: 0 });
        }
        // An odd number of lines, so that equal places of two blocks are in different sets of a
        // cache that both threads use.
        let stride = (bytes.div_ceil(SCRATCH_ALIGN) | 1).saturating_mul(SCRATCH_ALIGN);
        let total = stride.saturating_mul(threads);
        let page = if bytes >= MIN_HUGE { HUGE_PAGE } else { SCRATCH_ALIGN };
        let total = total.checked_next_multiple_of(page).unwrap_or(usize::MAX);
        Ok(Scratch { buffers: vec![HostBuffer::new(total)?], stride })
    }

    /// Returns the block of a thread, by its number in the job; null if the kernels need none.
    pub fn of(&self, thread: usize) -> *mut u8 {
        match &self.buffers[..] {
            [] => std::ptr::null_mut(),
            [all] if self.stride > 0 => {
                let at = thread * self.stride;
                assert!(at + self.stride <= all.len(), "there is no thread {thread}");
                all.ptr().wrapping_add(at)
            }
            each => each[thread].ptr(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn blocks_are_disjoint_and_aligned() {
        for (bytes, threads, guard) in
            [(1, 3, false), (100, 1, false), (70_000, 5, false), (4096, 2, true), (65, 2, true)]
        {
            let scratch = Scratch::allocate(bytes, threads, guard).unwrap();
            let mut starts: Vec<usize> =
                (0..threads).map(|thread| scratch.of(thread).addr()).collect();
            starts.sort_unstable();
            assert!(starts.iter().all(|at| at.is_multiple_of(SCRATCH_ALIGN)));
            assert!(starts.windows(2).all(|w| w[0] + bytes <= w[1]), "{starts:x?}");
            for thread in 0..threads {
                // SAFETY: the block has this many bytes and nothing else uses it.
                unsafe { scratch.of(thread).write_bytes(1, bytes) };
            }
        }
        assert!(Scratch::new(0, 8).unwrap().of(7).is_null());
    }

    #[test]
    fn too_much_memory_is_an_error() {
        for bytes in [1 << 46, usize::MAX / 3, usize::MAX] {
            let e = Scratch::allocate(bytes, 2, false).err().unwrap();
            assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
        }
    }
}
