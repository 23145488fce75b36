//! Memory of a WebGPU device: blocks of a [`Pool`](crate::device::allocator::Pool), and copies.
//!
//! Copies of WebGPU begin and end at multiples of four bytes. Partial words at either end are
//! merged with their old content.

use super::WebGpuContext;
use crate::device::allocator::{PooledBlock, check_range};
use crate::device::buffer::Remote;
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use wgpu::{BufferDescriptor, BufferUsages, MapMode};

/// Bytes of one read: each needs as much host-visible memory.
const READ_CHUNK_BYTES: usize = 64 << 20;
/// Copies begin and end at multiples of this.
const WORD: usize = 4;

/// Returns the whole words in a number of bytes, in bytes.
pub(super) fn whole_words(bytes: usize) -> usize {
    bytes / WORD * WORD
}

/// Memory of one buffer.
pub(super) struct WebGpuMemory {
    shared: Arc<WebGpuContext>,
    block: PooledBlock<wgpu::Buffer>,
}

/// Allocates memory. Free blocks are evicted before it fails.
pub(super) fn allocate(shared: &Arc<WebGpuContext>, len: usize) -> Result<WebGpuMemory> {
    let block = shared.pool.allocate(len, |size| {
        fresh(shared, size).map_err(|e| match e {
            wgpu::Error::OutOfMemory { .. } => None,
            e => Some(Error::Device(format!("{}: allocating {len} bytes: {e}", shared.name))),
        })
    })?;
    Ok(WebGpuMemory { shared: shared.clone(), block })
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

impl WebGpuMemory {
    /// Returns the memory itself, for a kernel of the same device.
    pub fn block(&self, shared: &Arc<WebGpuContext>) -> Option<&wgpu::Buffer> {
        Arc::ptr_eq(&self.shared, shared).then_some(&*self.block)
    }

    /// Reads whole words, in parts of bounded size.
    fn read_words(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let what = || "reading memory, or a kernel before it".to_string();
        let shared = &self.shared;
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let size = out.len().min(READ_CHUNK_BYTES) as u64;
        let staging = shared.checked(&what, || {
            shared.device.create_buffer(&BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        })?;
        for (i, part) in out.chunks_mut(READ_CHUNK_BYTES).enumerate() {
            let (from, bytes) = ((offset + i * READ_CHUNK_BYTES) as u64, part.len() as u64);
            shared.checked(&what, || {
                let mut encoder = shared.device.create_command_encoder(&Default::default());
                encoder.copy_buffer_to_buffer(&self.block, from, &staging, 0, bytes);
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
        for (i, part) in bytes.chunks(READ_CHUNK_BYTES).enumerate() {
            self.shared.checked(&what, || {
                self.shared.queue.write_buffer(
                    &self.block,
                    (at + i * READ_CHUNK_BYTES) as u64,
                    part,
                );
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
        if start < at || at + bytes.len() < self.block.len() {
            self.read_words(start, &mut word)?;
        }
        word[at - start..][..bytes.len()].copy_from_slice(bytes);
        self.write_words(start, &word)
    }
}

impl Remote for WebGpuMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        check_range(&(offset..offset + out.len()), self.block.len());
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
        check_range(&(offset..offset + bytes.len()), self.block.len());
        // Whole words are copied directly; the first and the last may be shared with other buffers.
        let head = (offset.next_multiple_of(WORD) - offset).min(bytes.len());
        let tail = head + (bytes.len() - head) / WORD * WORD;
        self.merge(offset, &bytes[..head])?;
        self.write_words(offset + head, &bytes[head..tail])?;
        self.merge(offset + tail, &bytes[tail..])
    }
    fn copy_from(&self, to: Range<usize>, from: &dyn Remote, from_offset: usize) -> Result<bool> {
        let Some(from) = from.downcast::<WebGpuMemory>() else { return Ok(false) };
        let Some(source) = from.block(&self.shared) else { return Ok(false) };
        let bytes = to.len();
        // Ranges of one block might overlap, and the last word may belong to another buffer unless
        // the memory ends there.
        let is_whole = bytes.is_multiple_of(WORD) || to.end == self.block.len();
        let is_aligned = [to.start, from_offset].iter().all(|at| at.is_multiple_of(WORD));
        if source == &*self.block || !is_aligned || !is_whole {
            return Ok(false);
        }
        check_range(&to, self.block.len());
        check_range(&(from_offset..from_offset + bytes), from.block.len());
        if bytes > 0 {
            let shared = &self.shared;
            shared.checked(&|| "copying memory".to_string(), || {
                let mut encoder = shared.device.create_command_encoder(&Default::default());
                let bytes = bytes.next_multiple_of(WORD) as u64;
                encoder.copy_buffer_to_buffer(
                    source,
                    from_offset as u64,
                    &self.block,
                    to.start as u64,
                    bytes,
                );
                shared.queue.submit([encoder.finish()]);
            })?;
        }
        Ok(true)
    }
}
