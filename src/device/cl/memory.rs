//! Memory of an OpenCL device: blocks of a [`Pool`](crate::device::allocator::Pool), and copies.

use super::api::{Owned, check};
use super::{ClContext, api};
use crate::device::allocator::{PooledBlock, check_range};
use crate::device::buffer::Remote;
use crate::error::{Error, Result};
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The memory of one buffer.
pub(super) struct ClMemory {
    shared: Arc<ClContext>,
    block: PooledBlock<Owned>,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<ClContext>, len: usize) -> Result<ClMemory> {
    let block = shared.pool.allocate(len, |size| fresh(shared, size))?;
    Ok(ClMemory { shared: shared.clone(), block })
}

fn fresh(shared: &ClContext, size: usize) -> Result<Owned, Option<Error>> {
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
        .map_err(|e| (!api::OUT_OF_MEMORY.contains(&status)).then_some(e))
}

impl ClMemory {
    /// Returns the memory object, if the kernel is of the same device.
    pub fn handle(&self, shared: &Arc<ClContext>) -> Option<api::Handle> {
        Arc::ptr_eq(&self.shared, shared).then_some(self.block.handle)
    }
}

impl Remote for ClMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        check_range(&(offset..offset + out.len()), self.block.len());
        if out.is_empty() {
            return Ok(());
        }
        let (queue, memory, at) =
            (self.shared.queue.handle, self.block.handle, out.as_mut_ptr().cast());
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
        check_range(&(offset..offset + bytes.len()), self.block.len());
        if bytes.is_empty() {
            return Ok(());
        }
        let (queue, memory, at) =
            (self.shared.queue.handle, self.block.handle, bytes.as_ptr().cast());
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
    fn copy_from(&self, to: Range<usize>, from: &dyn Remote, from_offset: usize) -> Result<bool> {
        let Some(from) = from.downcast::<ClMemory>() else { return Ok(false) };
        let Some(source) = from.handle(&self.shared) else { return Ok(false) };
        // Ranges of one block might overlap.
        if source == self.block.handle {
            return Ok(false);
        }
        let bytes = to.len();
        check_range(&to, self.block.len());
        check_range(&(from_offset..from_offset + bytes), from.block.len());
        if bytes > 0 {
            let (queue, target) = (self.shared.queue.handle, self.block.handle);
            // SAFETY: the bytes are inside both memories, which are of the queue's context and
            // different ones.
            let status = unsafe {
                (self.shared.api.clEnqueueCopyBuffer)(
                    queue,
                    source,
                    target,
                    from_offset,
                    to.start,
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
}
