//! Memory that the host and the GPU share: blocks of a [`Pool`](crate::device::allocator::Pool),
//! and copies. The host waits for the GPU before it accesses memory.

use super::MetalContext;
use crate::device::allocator::{PooledBlock, check_range};
use crate::device::buffer::Remote;
use crate::error::Result;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLResourceOptions};
use std::ops::Range;
use std::sync::Arc;

/// A buffer of Metal.
pub(super) struct MetalBlock(Retained<ProtocolObject<dyn MTLBuffer>>);
// SAFETY: a buffer belongs to no thread; the executor orders accesses to its memory after the
// GPU's.
unsafe impl Send for MetalBlock {}
// SAFETY: as above.
unsafe impl Sync for MetalBlock {}

/// The memory of one buffer.
pub(super) struct MetalMemory {
    shared: Arc<MetalContext>,
    block: PooledBlock<MetalBlock>,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<MetalContext>, len: usize) -> Result<MetalMemory> {
    let options = MTLResourceOptions::StorageModeShared;
    let fresh =
        |size| shared.device.newBufferWithLength_options(size, options).map(MetalBlock).ok_or(None);
    Ok(MetalMemory { shared: shared.clone(), block: shared.pool.allocate(len, fresh)? })
}

impl MetalMemory {
    /// Returns the memory object, if the kernel is of the same device.
    pub fn block(&self, shared: &Arc<MetalContext>) -> Option<&ProtocolObject<dyn MTLBuffer>> {
        Arc::ptr_eq(&self.shared, shared).then(|| &*self.block.0)
    }

    /// Returns the address of a range of bytes, which must be inside, once the GPU has finished all
    /// launches.
    fn at(&self, offset: usize, bytes: usize) -> Result<*mut u8> {
        check_range(&(offset..offset + bytes), self.block.len());
        self.shared.finish()?;
        Ok(self.block.0.contents().as_ptr().cast::<u8>().wrapping_add(offset))
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
    /// Copies through the host, which can access the memory of every GPU.
    fn copy_from(&self, to: Range<usize>, from: &dyn Remote, from_offset: usize) -> Result<bool> {
        let Some(from) = from.downcast::<MetalMemory>() else { return Ok(false) };
        let bytes = to.len();
        let (to, from) = (self.at(to.start, bytes)?, from.at(from_offset, bytes)?);
        // SAFETY: the bytes are inside both blocks, which the GPUs are done with. They may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
        Ok(true)
    }
}
