//! Caching allocators: [`Blocks`] counts bytes and has the free lists by size, [`Pool`] is the
//! allocator of a device behind a driver. Evicted blocks are freed outside the lock.

use super::backend::{SystemMemory, lock};
use super::memory::size_class;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex};

/// Bytes and free blocks of one memory.
#[derive(Debug)]
pub(in crate::device) struct Blocks<B> {
    /// Bytes taken from the system: blocks in use and free blocks.
    pub held: usize,
    /// Bytes of the buffers in use, as requested.
    pub live: usize,
    /// Maximum of `live` so far.
    pub peak: usize,
    /// Bytes of free blocks.
    pub cached: usize,
    frees: u64,
    /// Free blocks by size, the least recently freed in front, each with the sequence number of its
    /// free.
    pub free_lists: BTreeMap<usize, VecDeque<(u64, B)>>,
}

impl<B> Default for Blocks<B> {
    fn default() -> Blocks<B> {
        Blocks { held: 0, live: 0, peak: 0, cached: 0, frees: 0, free_lists: BTreeMap::new() }
    }
}

impl<B> Blocks<B> {
    /// Takes a free block of this size.
    pub fn take(&mut self, size: usize) -> Option<B> {
        let blocks = self.free_lists.get_mut(&size)?;
        // The last one freed is the most likely to be in a cache.
        let (_, block) = blocks.pop_back()?;
        if blocks.is_empty() {
            self.free_lists.remove(&size);
        }
        self.cached -= size;
        Some(block)
    }

    /// Adds a freed block to the free list, and evicts the least recently freed ones above `most`
    /// bytes.
    pub fn add_free(&mut self, block: B, size: usize, most: usize) -> Vec<B> {
        self.frees += 1;
        self.cached += size;
        self.free_lists.entry(size).or_default().push_back((self.frees, block));
        self.shrink(most)
    }

    /// Evicts the least recently freed blocks until at most `most` bytes are free.
    pub fn shrink(&mut self, most: usize) -> Vec<B> {
        let mut out = Vec::new();
        while self.cached > most {
            let oldest =
                self.free_lists.iter().filter_map(|(&size, q)| Some((q.front()?.0, size))).min();
            let Some((size, (_, block))) = oldest
                .and_then(|(_, size)| Some((size, self.free_lists.get_mut(&size)?.pop_front()?)))
            else {
                break;
            };
            if self.free_lists.get(&size).is_some_and(VecDeque::is_empty) {
                self.free_lists.remove(&size);
            }
            self.cached -= size;
            self.held -= size;
            out.push(block);
        }
        out
    }

    /// Counts bytes as held if they stay within the limit, and evicts free blocks if they would
    /// not.
    pub fn reserve(&mut self, size: usize, limit: usize) -> (bool, Vec<B>) {
        let free = limit.saturating_sub(self.held);
        let spare = if size > free {
            self.shrink(self.cached.saturating_sub(size - free))
        } else {
            Vec::new()
        };
        let held = self.held.checked_add(size).filter(|held| *held <= limit);
        self.held = held.unwrap_or(self.held);
        (held.is_some(), spare)
    }
}

/// Maximum bytes of free blocks of a [`Pool`]; less on a device with less than four times that.
const POOL_CACHE: usize = 1 << 30;

/// The caching allocator of a device whose driver allocates blocks `B`. A freed block is reused by
/// the next buffer of its size class. Queues are in order, so that pending work on the block runs
/// first.
pub(in crate::device) struct Pool<B> {
    /// The device in errors.
    device: String,
    blocks: Mutex<Blocks<B>>,
    /// Bytes of the largest buffer.
    largest: usize,
    /// Maximum bytes of all blocks, if known.
    limit: Option<usize>,
}

impl<B> Pool<B> {
    /// Returns a pool for a device with these limits of bytes per buffer and in total.
    pub fn new(device: &str, largest: usize, limit: Option<usize>) -> Arc<Pool<B>> {
        let (device, largest) = (device.to_string(), largest.min(isize::MAX as usize));
        Arc::new(Pool { device, blocks: Mutex::default(), largest, limit })
    }

    /// Returns the bytes of blocks, in use and free, and their limit.
    pub fn memory(&self) -> SystemMemory {
        SystemMemory { held: lock(&self.blocks).held, limit: self.limit }
    }

    /// Returns the bytes of blocks in use, and of free blocks.
    #[cfg(test)]
    pub fn bytes(&self) -> (usize, usize) {
        let blocks = lock(&self.blocks);
        (blocks.held - blocks.cached, blocks.cached)
    }

    /// Takes a free block for `len` bytes, or allocates one by `fresh`, which receives its size and
    /// fails with `None` if the device is out of memory. If it fails, all free blocks are evicted,
    /// and it is called again.
    pub fn allocate(
        self: &Arc<Self>,
        len: usize,
        fresh: impl Fn(usize) -> Result<B, Option<Error>>,
    ) -> Result<PooledBlock<B>> {
        let full = || Error::OutOfMemory {
            device: self.device.clone(),
            asked: len,
            held: lock(&self.blocks).held,
        };
        if len > self.largest {
            return Err(full());
        }
        let size = size_class(len.max(1)).min(self.largest);
        let block = |block| PooledBlock { pool: self.clone(), block: Some(block), len, size };
        let free = lock(&self.blocks).take(size);
        if let Some(free) = free {
            return Ok(block(free));
        }
        let (fits, evicted) = lock(&self.blocks).reserve(size, self.limit.unwrap_or(usize::MAX));
        drop(evicted);
        if !fits {
            return Err(full());
        }
        let again = |_| {
            let evicted = lock(&self.blocks).shrink(0);
            drop(evicted);
            fresh(size)
        };
        fresh(size).or_else(again).map(block).map_err(|e| {
            lock(&self.blocks).held -= size;
            e.unwrap_or_else(full)
        })
    }
}

/// A block of a [`Pool`], which becomes a free block when it is dropped.
pub(in crate::device) struct PooledBlock<B> {
    pool: Arc<Pool<B>>,
    /// `None` only while it is dropped.
    block: Option<B>,
    /// Bytes as requested.
    len: usize,
    /// Bytes of the block.
    size: usize,
}

impl<B> PooledBlock<B> {
    /// Bytes as requested.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl<B> Deref for PooledBlock<B> {
    type Target = B;
    fn deref(&self) -> &B {
        self.block.as_ref().expect("only drop takes the block")
    }
}

impl<B> Drop for PooledBlock<B> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let most = POOL_CACHE.min(self.pool.limit.unwrap_or(usize::MAX) / 4);
            let evicted = lock(&self.pool.blocks).add_free(block, self.size, most);
            drop(evicted);
        }
    }
}

/// Panics unless a range of bytes is inside a buffer of `len` bytes.
pub(in crate::device) fn check_range(range: &Range<usize>, len: usize) {
    assert!(
        range.start <= range.end && range.end <= len,
        "the bytes {range:?} are not inside a buffer of {len}"
    );
}
