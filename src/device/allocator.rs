//! Bookkeeping of a caching allocator: bytes held, and free lists by size. Evicted blocks are
//! returned to the caller, which frees them outside the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// Bytes and free blocks of one memory.
#[derive(Debug)]
pub(in crate::device) struct Blocks<B> {
    /// Bytes taken from the system: blocks in use and free blocks.
    pub held: usize,
    /// Bytes of the buffers in use, as requested.
    pub live: usize,
    /// The most that `live` has been.
    pub peak: usize,
    /// Bytes of free blocks.
    pub cached: usize,
    frees: u64,
    /// Free blocks by size, the least recently freed in front, each with the sequence number of its
    /// free.
    pub kept: BTreeMap<usize, VecDeque<(u64, B)>>,
}

impl<B> Default for Blocks<B> {
    fn default() -> Blocks<B> {
        Blocks { held: 0, live: 0, peak: 0, cached: 0, frees: 0, kept: BTreeMap::new() }
    }
}

impl<B> Blocks<B> {
    /// Takes a free block of this size.
    pub fn take(&mut self, size: usize) -> Option<B> {
        let blocks = self.kept.get_mut(&size)?;
        // The last one freed is the most likely to be in a cache.
        let (_, block) = blocks.pop_back()?;
        if blocks.is_empty() {
            self.kept.remove(&size);
        }
        self.cached -= size;
        Some(block)
    }

    /// Adds a freed block to the free list, and evicts the least recently freed ones above `most`
    /// bytes.
    pub fn keep(&mut self, block: B, size: usize, most: usize) -> Vec<B> {
        self.frees += 1;
        self.cached += size;
        self.kept.entry(size).or_default().push_back((self.frees, block));
        self.shrink(most)
    }

    /// Evicts the least recently freed blocks until at most `most` bytes are free.
    pub fn shrink(&mut self, most: usize) -> Vec<B> {
        let mut out = Vec::new();
        while self.cached > most {
            let oldest = self.kept.iter().filter_map(|(&size, q)| Some((q.front()?.0, size))).min();
            let Some((size, (_, block))) =
                oldest.and_then(|(_, size)| Some((size, self.kept.get_mut(&size)?.pop_front()?)))
            else {
                break;
            };
            if self.kept.get(&size).is_some_and(VecDeque::is_empty) {
                self.kept.remove(&size);
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

/// Takes a free block of this size, or allocates one. If that fails, free blocks of other sizes are
/// evicted first; then the error is returned, or `None` if the limit would be exceeded.
pub(in crate::device) fn provide<B, E>(
    blocks: &Mutex<Blocks<B>>,
    size: usize,
    limit: usize,
    fresh: impl Fn() -> Result<B, E>,
) -> Result<B, Option<E>> {
    // Only numbers and queues change under the lock, none of it by code that panics midway.
    let lock = || blocks.lock().unwrap_or_else(|e| e.into_inner());
    let kept = lock().take(size);
    if let Some(block) = kept {
        return Ok(block);
    }
    let (fits, spare) = lock().reserve(size, limit);
    drop(spare);
    if !fits {
        return Err(None);
    }
    let again = |_| {
        let spare = lock().shrink(0);
        drop(spare);
        fresh()
    };
    fresh().or_else(again).map_err(|e| {
        lock().held -= size;
        Some(e)
    })
}
