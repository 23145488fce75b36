//! Memory of a WebGPU device. A freed block is reused by the next buffer of its size: the queue is
//! in order, so that pending work on the block runs first.
//!
//! Copies of WebGPU begin and end at multiples of four bytes. Partial words at either end are
//! merged with their old content.

use super::{WebGpuContext, locked};
use crate::device::allocator::{Blocks, provide};
use crate::device::buffer::Remote;
use crate::device::memory::class;
use crate::error::{Error, Result};
use std::any::Any;
use std::sync::{Arc, Mutex};
use wgpu::{BufferDescriptor, BufferUsages, MapMode};

/// Bytes of free blocks at most.
const KEEP: usize = 1 << 30;
/// Bytes of one read: each needs as much host-visible memory.
const AT_ONCE: usize = 64 << 20;
/// Copies begin and end at multiples of this.
const WORD: usize = 4;

/// The blocks of a device.
pub(super) struct WebGpuPool {
    blocks: Mutex<Blocks<wgpu::Buffer>>,
    /// Bytes of the largest buffer.
    largest: usize,
}

impl WebGpuPool {
    /// A pool for a device with this limit of bytes per buffer.
    pub fn new(largest: usize) -> WebGpuPool {
        WebGpuPool { blocks: Mutex::default(), largest }
    }
    /// Bytes of blocks, in use and free.
    pub fn held(&self) -> usize {
        locked(&self.blocks).held
    }
}

/// Memory of one buffer.
pub(super) struct WebGpuMemory {
    shared: Arc<WebGpuContext>,
    /// Taken out when it is dropped.
    block: Option<wgpu::Buffer>,
    /// Bytes as requested, and of the block.
    len: usize,
    size: usize,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<WebGpuContext>, len: usize) -> Result<WebGpuMemory> {
    let pool = &shared.pool;
    let full = || Error::OutOfMemory {
        device: shared.name.clone(),
        asked: len,
        held: locked(&pool.blocks).held,
    };
    // A read may end inside a word, which is allocated as a whole.
    let size = if len > isize::MAX as usize {
        usize::MAX
    } else {
        class(len.max(1)).min(pool.largest / WORD * WORD).max(len)
    };
    if size > pool.largest {
        return Err(full());
    }
    let memory = |block| WebGpuMemory { shared: shared.clone(), block: Some(block), len, size };
    // Adapters do not report the size of their memory.
    provide(&pool.blocks, size, usize::MAX, || fresh(shared, size)).map(memory).map_err(|e| match e
    {
        Some(e) if !matches!(e, wgpu::Error::OutOfMemory { .. }) => {
            Error::Device(format!("{}: allocating {len} bytes: {e}", shared.name))
        }
        _ => full(),
    })
}

fn fresh(shared: &WebGpuContext, size: usize) -> std::result::Result<wgpu::Buffer, wgpu::Error> {
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    shared.caught(|| {
        shared.device.create_buffer(&BufferDescriptor {
            label: None,
            size: size.next_multiple_of(WORD) as u64,
            usage,
            mapped_at_creation: false,
        })
    })
}

impl Drop for WebGpuMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let spare = locked(&self.shared.pool.blocks).keep(block, self.size, KEEP);
            drop(spare);
        }
    }
}

impl WebGpuMemory {
    /// The memory itself, for a kernel of the same device.
    pub fn block(&self, shared: &Arc<WebGpuContext>) -> Option<&wgpu::Buffer> {
        if Arc::ptr_eq(&self.shared, shared) { self.block.as_ref() } else { None }
    }
    fn whole(&self) -> &wgpu::Buffer {
        self.block.as_ref().expect("it is taken out by the drop alone")
    }
    fn inside(&self, offset: usize, bytes: usize) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.len),
            "{bytes} bytes from {offset} on leave a buffer of {}",
            self.len
        );
    }

    /// Reads whole words, in parts of bounded size.
    fn read_words(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let what = || "reading memory, or a kernel before it".to_string();
        let shared = &self.shared;
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let size = out.len().min(AT_ONCE) as u64;
        let staging = shared.checked(&what, || {
            shared.device.create_buffer(&BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        })?;
        for (i, part) in out.chunks_mut(AT_ONCE).enumerate() {
            let (from, bytes) = ((offset + i * AT_ONCE) as u64, part.len() as u64);
            shared.checked(&what, || {
                let mut encoder = shared.device.create_command_encoder(&Default::default());
                encoder.copy_buffer_to_buffer(self.whole(), from, &staging, 0, bytes);
                shared.queue.submit([encoder.finish()]);
                staging.map_async(MapMode::Read, ..bytes, |_| ());
            })?;
            shared.finish(&what)?;
            let mapped = staging
                .get_mapped_range(..bytes)
                .map_err(|e| Error::Device(format!("{}: {}: {e}", shared.name, what())))?;
            part.copy_from_slice(&mapped);
            drop(mapped);
            staging.unmap();
        }
        Ok(())
    }

    /// Writes whole words.
    fn write_words(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let what = || "writing memory, or a kernel before it".to_string();
        // The queue keeps the written bytes until they are submitted.
        for (i, part) in bytes.chunks(AT_ONCE).enumerate() {
            self.shared.checked(&what, || {
                self.shared.queue.write_buffer(self.whole(), (at + i * AT_ONCE) as u64, part);
                self.shared.queue.submit([]);
            })?;
        }
        Ok(())
    }

    /// Writes some bytes of one word.
    fn merge(&self, at: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, mut word) = (at / WORD * WORD, [0; WORD]);
        // Past the last byte there is nothing to preserve.
        if start < at || at + bytes.len() < self.len {
            self.read_words(start, &mut word)?;
        }
        word[at - start..][..bytes.len()].copy_from_slice(bytes);
        self.write_words(start, &word)
    }
}

impl Remote for WebGpuMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inside(offset, out.len());
        if out.is_empty() {
            return Ok(());
        }
        let (start, end) = (offset / WORD * WORD, (offset + out.len()).next_multiple_of(WORD));
        if (start, end) == (offset, offset + out.len()) {
            return self.read_words(offset, out);
        }
        let mut words = crate::device::limits::zeroed(end - start)?;
        self.read_words(start, &mut words)?;
        out.copy_from_slice(&words[offset - start..][..out.len()]);
        Ok(())
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.inside(offset, bytes.len());
        // Whole words are copied directly; the first and the last may be shared with other buffers.
        let head = (offset.next_multiple_of(WORD) - offset).min(bytes.len());
        let tail = head + (bytes.len() - head) / WORD * WORD;
        self.merge(offset, &bytes[..head])?;
        self.write_words(offset + head, &bytes[head..tail])?;
        self.merge(offset + tail, &bytes[tail..])
    }
    fn copy_from(
        &self,
        offset: usize,
        from: &dyn Remote,
        from_offset: usize,
        bytes: usize,
    ) -> Result<bool> {
        let Some(from) = from.as_any().downcast_ref::<WebGpuMemory>() else { return Ok(false) };
        let Some(source) = from.block(&self.shared) else { return Ok(false) };
        // Ranges of one block might overlap, and the last word may belong to another buffer unless
        // the memory ends there.
        let whole = bytes.is_multiple_of(WORD) || offset + bytes == self.len;
        if source == self.whole()
            || !offset.is_multiple_of(WORD)
            || !from_offset.is_multiple_of(WORD)
            || !whole
        {
            return Ok(false);
        }
        self.inside(offset, bytes);
        from.inside(from_offset, bytes);
        if bytes > 0 {
            let shared = &self.shared;
            shared.checked(&|| "copying memory".to_string(), || {
                let mut encoder = shared.device.create_command_encoder(&Default::default());
                let bytes = bytes.next_multiple_of(WORD) as u64;
                encoder.copy_buffer_to_buffer(
                    source,
                    from_offset as u64,
                    self.whole(),
                    offset as u64,
                    bytes,
                );
                shared.queue.submit([encoder.finish()]);
            })?;
        }
        Ok(true)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
