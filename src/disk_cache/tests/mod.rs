//! Tests of the disk cache: stored values are found (`entries`), damage is harmless (`damage`), the
//! folder and its size (`folder`), and many processes that write at once or are killed
//! (`processes`). Shared here: caches with known values.

mod damage;
mod entries;
mod folder;
mod processes;

use crate::device::testing::{Random, TempDir};
use crate::disk_cache::*;
use std::fs;

pub(super) fn put(cache: &DiskCache, key: CacheKey, value: &[u8]) {
    cache.put(&[CacheEntry { key, kind: EntryKind::Compiler, device: "TEST", value }]);
}

pub(super) fn get(cache: &DiskCache, key: CacheKey) -> Option<Vec<u8>> {
    cache.get(&[key]).remove(0)
}

pub(super) fn path_of(cache: &DiskCache, key: CacheKey) -> PathBuf {
    cache.dir().unwrap().join(key.to_string())
}

pub(super) fn entries(cache: &DiskCache) -> usize {
    cache.contents().unwrap().of(&EntryKind::ALL).0
}

/// Fills a cache with distinguishable values.
pub(super) fn filled(dir: &Path) -> DiskCache {
    let cache = DiskCache::at(dir);
    let values: Vec<(CacheKey, Vec<u8>)> = (0..20).map(|n| (key(n), value(n))).collect();
    let entries: Vec<CacheEntry> = values
        .iter()
        .map(|(k, v)| CacheEntry { key: *k, kind: EntryKind::Object, device: "TEST", value: v })
        .collect();
    cache.put(&entries);
    cache
}

/// Returns the n-th key of the tests below.
pub(super) fn key(n: u64) -> CacheKey {
    CacheKey::of(&[&n.to_le_bytes()])
}

/// Returns the value of the n-th key.
pub(super) fn value(n: u64) -> Vec<u8> {
    let mut random = Random(n);
    (0..(n as usize * 37) % 3000).map(|_| random.next() as u8).collect()
}

/// Returns every value that is found is the right one. Returns how many were found.
pub(super) fn right(cache: &DiskCache, count: u64) -> usize {
    let found = cache.get(&(0..count).map(key).collect::<Vec<_>>());
    found
        .into_iter()
        .enumerate()
        .filter_map(|(n, v)| Some((n, v?)))
        .map(|(n, v)| assert_eq!(v, value(n as u64)))
        .count()
}
