//! Memory that the host and the GPU share. A freed block is reused by the next buffer of its size:
//! the queue is in order, so that pending work on the block runs first, and the host waits before
//! it accesses memory.

use super::{MetalContext, locked};
use crate::device::allocator::{Blocks, provide};
use crate::device::buffer::Remote;
use crate::device::memory::class;
use crate::error::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLResourceOptions};
use std::any::Any;
use std::sync::{Arc, Mutex};

/// Bytes of free blocks at most; less on a device with less than four times that.
const KEEP: usize = 1 << 30;

/// Metal's own memory.
struct Block(Retained<ProtocolObject<dyn MTLBuffer>>);
// SAFETY: a buffer belongs to no thread; the executor orders accesses to its memory after the
// GPU's.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// The blocks of a device.
pub(super) struct MetalPool {
    blocks: Mutex<Blocks<Block>>,
    /// Bytes of the largest buffer, and of all together.
    largest: usize,
    limit: usize,
}

impl MetalPool {
    /// A pool for a device with these limits of bytes per buffer and in total.
    pub fn new(largest: usize, limit: usize) -> MetalPool {
        MetalPool { blocks: Mutex::default(), largest, limit }
    }
    /// Bytes of blocks, in use and free.
    pub fn held(&self) -> usize {
        locked(&self.blocks).held
    }
    /// Bytes that it may have at most.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Memory of one buffer.
pub(super) struct MetalMemory {
    shared: Arc<MetalContext>,
    /// Taken out when it is dropped.
    block: Option<Block>,
    /// Bytes as requested, and of the block.
    len: usize,
    size: usize,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<MetalContext>, len: usize) -> Result<MetalMemory> {
    let pool = &shared.pool;
    let full = || Error::OutOfMemory {
        device: shared.name.clone(),
        asked: len,
        held: locked(&pool.blocks).held,
    };
    if len > pool.largest {
        return Err(full());
    }
    let size = class(len.max(1)).min(pool.largest);
    let fresh = || {
        shared
            .device
            .newBufferWithLength_options(size, MTLResourceOptions::StorageModeShared)
            .map(Block)
            .ok_or(())
    };
    let block = provide(&pool.blocks, size, pool.limit, fresh).map_err(|_| full())?;
    Ok(MetalMemory { shared: shared.clone(), block: Some(block), len, size })
}

impl Drop for MetalMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let pool = &self.shared.pool;
            let spare = locked(&pool.blocks).keep(block, self.size, KEEP.min(pool.limit / 4));
            drop(spare);
        }
    }
}

impl MetalMemory {
    /// The memory itself, for a kernel of the same device.
    pub fn block(&self, shared: &Arc<MetalContext>) -> Option<&ProtocolObject<dyn MTLBuffer>> {
        if Arc::ptr_eq(&self.shared, shared) { self.block.as_ref().map(|b| &*b.0) } else { None }
    }

    /// The address of a range of bytes, which must be inside, once the GPU has finished all
    /// launches.
    fn at(&self, offset: usize, bytes: usize) -> Result<*mut u8> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.len),
            "{bytes} bytes from {offset} on leave a buffer of {}",
            self.len
        );
        self.shared.finish()?;
        let block = self.block.as_ref().expect("it is taken out by the drop alone");
        Ok(block.0.contents().as_ptr().cast::<u8>().wrapping_add(offset))
    }
}

impl Remote for MetalMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = self.at(offset, out.len())?;
        // SAFETY: the bytes are inside the block, the GPU has finished, and nothing writes while a
        // buffer is read.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the bytes are inside the block, the GPU has finished, and nothing else accesses
        // them during the write.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }
    /// The host sees the memory of every GPU, so that one copy does.
    fn copy_from(
        &self,
        offset: usize,
        from: &dyn Remote,
        from_offset: usize,
        bytes: usize,
    ) -> Result<bool> {
        let Some(from) = from.as_any().downcast_ref::<MetalMemory>() else { return Ok(false) };
        let (to, from) = (self.at(offset, bytes)?, from.at(from_offset, bytes)?);
        // SAFETY: the bytes are inside both blocks, which the GPUs are done with. They may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
        Ok(true)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
