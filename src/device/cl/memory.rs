//! Memory of an OpenCL device. A freed block is reused by the next buffer of its size: the queue is
//! in order, so that pending work on the block runs first.

use super::api::{Owned, check};
use super::{ClContext, api};
use crate::device::allocator::{Blocks, provide};
use crate::device::buffer::Remote;
use crate::device::memory::class;
use crate::error::{Error, Result};
use std::any::Any;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes of free blocks at most; less on a device with less than four times that.
const KEEP: usize = 1 << 30;

/// The blocks of a device.
pub(super) struct ClPool {
    blocks: Mutex<Blocks<Owned>>,
    limit: usize,
}

impl ClPool {
    /// For a device with so much memory.
    pub fn new(limit: usize) -> ClPool {
        ClPool { blocks: Mutex::default(), limit }
    }
    fn blocks(&self) -> MutexGuard<'_, Blocks<Owned>> {
        // Only numbers and queues change under the lock, none of it by code that panics midway.
        self.blocks.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Bytes of blocks, in use and free.
    pub fn held(&self) -> usize {
        self.blocks().held
    }
    /// Bytes that it may have at most.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Bytes of blocks in use, and of free blocks.
    #[cfg(test)]
    pub fn bytes(&self) -> (usize, usize) {
        let blocks = self.blocks();
        (blocks.held - blocks.cached, blocks.cached)
    }
}

/// Memory of one buffer.
pub(super) struct ClMemory {
    shared: Arc<ClContext>,
    /// Taken out when it is dropped.
    block: Option<Owned>,
    /// Bytes as requested, and of the block.
    len: usize,
    size: usize,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<ClContext>, len: usize) -> Result<ClMemory> {
    let pool = &shared.pool;
    let full =
        || Error::OutOfMemory { device: shared.name.clone(), asked: len, held: pool.blocks().held };
    if len > pool.limit {
        return Err(full());
    }
    let size = class(len.max(1));
    let memory = |block| ClMemory { shared: shared.clone(), block: Some(block), len, size };
    provide(&pool.blocks, size, pool.limit, || fresh(shared, size)).map(memory).map_err(|status| {
        match status {
            Some(status) if !api::OUT_OF_MEMORY.contains(&status) => {
                api::failed("allocating memory", status)
            }
            _ => full(),
        }
    })
}

fn fresh(shared: &ClContext, size: usize) -> std::result::Result<Owned, i32> {
    let mut status = 0;
    // SAFETY: the context is alive, and no host memory is passed.
    let handle = unsafe {
        (shared.api.clCreateBuffer)(
            shared.context.handle,
            api::MEM_READ_WRITE,
            size,
            null_mut(),
            &mut status,
        )
    };
    Owned::new("allocating memory", (handle, status), shared.api.clReleaseMemObject)
        .map_err(|_| status)
}

impl Drop for ClMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let pool = &self.shared.pool;
            let spare = pool.blocks().keep(block, self.size, KEEP.min(pool.limit / 4));
            drop(spare);
        }
    }
}

impl ClMemory {
    /// The memory itself, for a kernel of the same device.
    pub fn handle(&self, shared: &Arc<ClContext>) -> Option<api::Handle> {
        Arc::ptr_eq(&self.shared, shared).then(|| self.whole())
    }
    fn whole(&self) -> api::Handle {
        self.block.as_ref().map_or(null_mut(), |b| b.handle)
    }
    fn inside(&self, offset: usize, bytes: usize) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.len),
            "{bytes} bytes from {offset} on leave a buffer of {}",
            self.len
        );
    }
}

impl Remote for ClMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inside(offset, out.len());
        if out.is_empty() {
            return Ok(());
        }
        let (queue, memory, at) = (self.shared.queue.handle, self.whole(), out.as_mut_ptr().cast());
        // SAFETY: the bytes are inside the memory and inside `out`, which is ours until the call
        // returns, and then it is filled.
        let status = unsafe {
            (self.shared.api.clEnqueueReadBuffer)(
                queue,
                memory,
                api::BLOCKING,
                offset,
                out.len(),
                at,
                0,
                null(),
                null_mut(),
            )
        };
        check("reading memory, or a kernel before it", status)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.inside(offset, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        let (queue, memory, at) = (self.shared.queue.handle, self.whole(), bytes.as_ptr().cast());
        // SAFETY: the bytes are inside the memory, and those of the host are read before the call
        // returns.
        let status = unsafe {
            (self.shared.api.clEnqueueWriteBuffer)(
                queue,
                memory,
                api::BLOCKING,
                offset,
                bytes.len(),
                at,
                0,
                null(),
                null_mut(),
            )
        };
        check("writing memory, or a kernel before it", status)
    }
    fn copy_from(
        &self,
        offset: usize,
        from: &dyn Remote,
        from_offset: usize,
        bytes: usize,
    ) -> Result<bool> {
        let Some(from) = from.as_any().downcast_ref::<ClMemory>() else { return Ok(false) };
        let Some(source) = from.handle(&self.shared) else { return Ok(false) };
        // Parts of one block might overlap.
        if source == self.whole() {
            return Ok(false);
        }
        self.inside(offset, bytes);
        from.inside(from_offset, bytes);
        if bytes > 0 {
            let (queue, target) = (self.shared.queue.handle, self.whole());
            // SAFETY: the bytes are inside both memories, which are of the queue's context and
            // different ones.
            let status = unsafe {
                (self.shared.api.clEnqueueCopyBuffer)(
                    queue,
                    source,
                    target,
                    from_offset,
                    offset,
                    bytes,
                    0,
                    null(),
                    null_mut(),
                )
            };
            check("copying memory", status)?;
            self.shared.flush()?;
        }
        Ok(true)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
