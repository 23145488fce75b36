//! The disk cache: compiled programs and tuned Opts between processes. In: a [`CacheKey`] of
//! everything that determines the result. Out: the bytes that an earlier process stored, or
//! nothing.
//!
//! Every entry is a file in a private folder, named by its key and written whole: processes share
//! the folder without waiting for each other, one that is killed leaves nothing half written, and a
//! damaged file is one entry that is absent.
//!
//! The cache never causes an error. If its folder is missing, read-only, full or owned by another
//! user, kernels are compiled again.
//!
//! Values are code that will run, so that only entries of this user are read: a folder or a file of
//! another user, or that others can write to, is rejected, links are not followed, and each entry
//! has a MAC whose key only the user can read. Entries with a wrong MAC are renamed and counted as
//! corrupt.
//!
//! Several kernels are compiled in one module, and looked up one by one: the entry of a kernel
//! contains the object if no other kernel is in it, and otherwise the key of the object's entry.

mod entry;
pub(crate) mod failed;
mod folder;
mod hash;

pub(crate) use failed::{create_unique, save_failed_source};
pub(crate) use folder::unique;
pub use hash::{CacheKey, hash128};

use crate::env;
use entry::{Found, Listed, size_of_entry};
use folder::{Folder, c_name};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

/// The file that counts the writes that were lost, of all processes.
const FAILED_WRITES_FILE: &std::ffi::CStr = c"lost-writes";
/// Files of earlier versions, which are not read any more.
const LEGACY_FILES: [&str; 2] = ["store.redb", "store.redb.corrupt"];
/// The size limit in MiB without `PICO_CACHE_SIZE`: at 10 kB per kernel, fifty thousand kernels.
pub const DEFAULT_SIZE: u64 = 512;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// A compiled kernel: which object it is in, and under which name.
    Program = 0,
    /// The object of a module.
    Object = 1,
    /// The version output of a compiler.
    Compiler = 2,
    /// The Opts that a beam search has found.
    Opts = 3,
}

impl EntryKind {
    /// All kinds, by number.
    pub const ALL: [EntryKind; 4] =
        [EntryKind::Program, EntryKind::Object, EntryKind::Compiler, EntryKind::Opts];
    /// The kinds of compiled programs.
    pub const PROGRAMS: [EntryKind; 3] =
        [EntryKind::Program, EntryKind::Object, EntryKind::Compiler];
}

/// An entry to store.
#[derive(Debug, Clone, Copy)]
pub struct CacheEntry<'a> {
    /// Its name.
    pub key: CacheKey,
    /// Its kind.
    pub kind: EntryKind,
    /// Its device, shown to users.
    pub device: &'a str,
    /// Its bytes.
    pub value: &'a [u8],
}

/// A compiled kernel of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedProgram {
    /// The object that it is in. Kernels that were compiled together share one.
    pub object: Arc<Vec<u8>>,
    /// Its name there.
    pub symbol: String,
}

/// An object with the kernels in it: the key and the name of each.
#[derive(Debug)]
pub struct CompiledObject {
    /// The compiled object.
    pub object: Vec<u8>,
    /// The key of each kernel in it, and its name there.
    pub kernels: Vec<(CacheKey, String)>,
}

/// Lookups and writes of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCacheStats {
    /// Lookups that found an entry.
    pub hits: usize,
    /// Lookups that found none.
    pub misses: usize,
    /// Entries with a wrong MAC: damaged, or written by another user.
    pub corrupt: usize,
    /// Entries that could not be written, as on a full disk.
    pub failed_writes: usize,
}

/// The entries of the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskCacheContents {
    /// Bytes of all entries.
    pub bytes: u64,
    /// Corrupt files: damaged, or written by another user.
    pub corrupt: usize,
    /// Entries that could not be written since the folder was cleared, by all processes.
    pub failed_writes: u64,
    /// The number of entries of a kind for a device, and their bytes.
    pub entries: BTreeMap<(EntryKind, String), (usize, u64)>,
}

impl DiskCacheContents {
    /// Returns the number of entries of these kinds, and their bytes.
    pub fn of(&self, kinds: &[EntryKind]) -> (usize, u64) {
        let of_kinds = self.entries.iter().filter(|((kind, _), _)| kinds.contains(kind));
        of_kinds.fold((0, 0), |(n, bytes), (_, (m, more))| (n + m, bytes + more))
    }
}

/// Returns the cache of the process, as configured by the environment; see [`DiskCache::from_env`].
pub fn global() -> &'static DiskCache {
    static GLOBAL: OnceLock<DiskCache> = OnceLock::new();
    GLOBAL.get_or_init(|| DiskCache::from_env(&env::var))
}

/// A disk cache, which may be off.
#[derive(Debug)]
pub struct DiskCache {
    folder: Option<Folder>,
    off: Option<String>,
    limit: u64,
    /// Bytes of all entries as far as this process knows; `None` before the first count.
    bytes: Mutex<Option<u64>>,
    /// Added to the time, for tests.
    test_clock_offset: AtomicU64,
    hits: AtomicUsize,
    misses: AtomicUsize,
    corrupt: AtomicUsize,
    failed: AtomicUsize,
}

impl DiskCache {
    /// Opens the cache in the folder that `PICO_CACHE` names (empty, `0` and `off` mean none), else
    /// in `picograd` under `XDG_CACHE_HOME`, `LOCALAPPDATA` (Windows) or `HOME/.cache`, with the
    /// size limit `PICO_CACHE_SIZE`.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> DiskCache {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let cache = match env("PICO_CACHE") {
            Some(s) if matches!(s.trim(), "" | "0" | "off") => {
                DiskCache::none("PICO_CACHE turns it off")
            }
            Some(s) => DiskCache::at(Path::new(&s)),
            None => match absolute("XDG_CACHE_HOME")
                .or_else(|| absolute("LOCALAPPDATA"))
                .or_else(|| Some(absolute("HOME")?.join(".cache")))
            {
                Some(base) => DiskCache::at(&base.join("picograd")),
                None => DiskCache::none(
                    "none of PICO_CACHE, XDG_CACHE_HOME, LOCALAPPDATA and HOME is a folder",
                ),
            },
        };
        // An invalid size is reported by the settings.
        let size = env("PICO_CACHE_SIZE")
            .and_then(|s| s.trim().parse::<u64>().ok())
            .unwrap_or(DEFAULT_SIZE);
        DiskCache { limit: size.saturating_mul(1 << 20), ..cache }
    }

    /// Opens a cache in this folder, which is created if it is missing; none if that fails, or if
    /// others can access it.
    pub fn at(dir: &Path) -> DiskCache {
        match Folder::open(dir) {
            Ok(folder) => DiskCache { folder: Some(folder), off: None, ..DiskCache::none("") },
            Err(why) => DiskCache::none(&format!("{}: {why}", dir.display())),
        }
    }

    fn none(why: &str) -> DiskCache {
        DiskCache {
            folder: None,
            off: Some(why.into()),
            limit: DEFAULT_SIZE << 20,
            bytes: Mutex::default(),
            test_clock_offset: AtomicU64::default(),
            hits: AtomicUsize::default(),
            misses: AtomicUsize::default(),
            corrupt: AtomicUsize::default(),
            failed: AtomicUsize::default(),
        }
    }

    /// Returns the folder, if there is one.
    pub fn dir(&self) -> Option<&Path> {
        Some(&self.folder.as_ref()?.path)
    }

    /// Why there is no cache; `None` if there is one.
    pub fn disabled_reason(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Returns the size limit in bytes. Beyond it, the least recently used entries are deleted.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the verified value of each key; `None` where there is no entry.
    pub fn get(&self, keys: &[CacheKey]) -> Vec<Option<Vec<u8>>> {
        let Some(folder) = &self.folder else { return keys.iter().map(|_| None).collect() };
        let now = self.now();
        keys.iter().map(|key| self.counted(self.read(folder, *key, now))).collect()
    }

    /// Returns the compiled kernel of each key; `None` where there is no entry.
    pub fn programs(&self, keys: &[CacheKey]) -> Vec<Option<CachedProgram>> {
        let Some(folder) = &self.folder else { return keys.iter().map(|_| None).collect() };
        let now = self.now();
        let mut objects: BTreeMap<CacheKey, Option<Arc<Vec<u8>>>> = BTreeMap::new();
        let mut cached = |key: CacheKey| -> Option<CachedProgram> {
            let (symbol, object) = read_program(self.read(folder, key, now)?)?;
            let object = match object {
                Object::Inline(object) => Some(Arc::new(object)),
                Object::ByKey(name) => objects
                    .entry(name)
                    .or_insert_with(|| self.read(folder, name, now).map(Arc::new))
                    .clone(),
            };
            Some(CachedProgram { object: object?, symbol })
        };
        keys.iter().map(|key| self.counted(cached(*key))).collect()
    }

    fn read(&self, folder: &Folder, key: CacheKey, now: SystemTime) -> Option<Vec<u8>> {
        match entry::read(folder, key, now) {
            Found::Value(value) => Some(value),
            Found::Nothing => None,
            Found::Corrupt => {
                self.corrupt.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    fn counted<T>(&self, found: Option<T>) -> Option<T> {
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Stores compiled kernels. A failure is counted and otherwise ignored.
    pub(crate) fn put_programs(&self, device: &str, made: &[CompiledObject]) {
        if self.folder.is_none() {
            return;
        }
        let mut objects: Vec<(CacheKey, &[u8])> = Vec::new();
        let mut programs: Vec<(CacheKey, Vec<u8>)> = Vec::new();
        for m in made {
            if let [(key, symbol)] = &m.kernels[..] {
                programs.push((*key, program(symbol, 1, &m.object)));
                continue;
            }
            let name = CacheKey(hash128(&m.object));
            objects.push((name, &m.object));
            programs.extend(
                m.kernels
                    .iter()
                    .map(|(key, symbol)| (*key, program(symbol, 0, &name.0.to_le_bytes()))),
            );
        }
        let objects = objects.iter().map(|(key, value)| (key, EntryKind::Object, *value));
        let programs = programs.iter().map(|(key, value)| (key, EntryKind::Program, &value[..]));
        let entry =
            |(key, kind, value): (&CacheKey, _, _)| CacheEntry { key: *key, kind, device, value };
        self.put(&objects.chain(programs).map(entry).collect::<Vec<_>>());
    }

    /// Stores values without checks.
    ///
    /// # Safety
    /// Programs and objects are machine code that later processes run: they must be what the
    /// compiler of the device makes of the text of their key.
    #[cfg(feature = "testing")]
    pub unsafe fn put_unchecked(&self, entries: &[CacheEntry]) {
        self.put(entries);
    }

    /// Stores values, and replaces those of the same keys. A failure is counted and otherwise
    /// ignored.
    pub(crate) fn put(&self, entries: &[CacheEntry]) {
        let Some(folder) = self.folder.as_ref().filter(|_| !entries.is_empty()) else { return };
        let now = self.now();
        let mut lost = 0;
        let mut bytes = self.bytes.lock().unwrap_or_else(|e| e.into_inner());
        let mut sum = bytes.unwrap_or_else(|| total(folder));
        for e in entries {
            let done = size_of_entry(e) <= self.limit.min(entry::MAX_ENTRY_BYTES)
                && entry::write(folder, e, now).is_ok();
            if done {
                sum += size_of_entry(e);
            } else {
                lost += 1;
            }
        }
        // Entries of other processes, and those that were replaced, are counted when this limit is
        // reached.
        if sum > self.limit {
            sum = evict(folder, self.limit);
        }
        *bytes = Some(sum);
        drop(bytes);
        if lost > 0 {
            self.failed.fetch_add(lost, Ordering::Relaxed);
            let _ = add_failed_writes(folder, lost as u64);
        }
    }

    /// Deletes the entries of these kinds, and returns their number and bytes, or why it cannot.
    pub fn clear(&self, kinds: &[EntryKind]) -> std::result::Result<(usize, u64), String> {
        let Some(folder) = &self.folder else { return Ok((0, 0)) };
        let all = EntryKind::ALL.iter().all(|k| kinds.contains(k));
        let mut deleted = (0, 0);
        for file in entry::list(folder).map_err(|e| e.to_string())? {
            let kind = file.key.and_then(|_| entry::describe(folder, &file.name)).map(|d| d.0);
            if !kind.map_or(all, |k| kinds.contains(&k)) {
                continue;
            }
            c_name(&file.name)
                .and_then(|n| folder.remove(&n))
                .map_err(|e| format!("{}: {e}", file.name))?;
            if kind.is_some() {
                deleted = (deleted.0 + 1, deleted.1 + file.bytes);
            }
        }
        if all {
            let _ = folder.remove(FAILED_WRITES_FILE);
        }
        *self.bytes.lock().unwrap_or_else(|e| e.into_inner()) = None;
        Ok(deleted)
    }

    /// Returns the entries of the cache, or why they cannot be read.
    pub fn contents(&self) -> std::result::Result<DiskCacheContents, String> {
        let Some(folder) = &self.folder else { return Ok(DiskCacheContents::default()) };
        let mut found = DiskCacheContents {
            failed_writes: total_failed_writes(folder),
            ..DiskCacheContents::default()
        };
        for file in entry::list(folder).map_err(|e| e.to_string())? {
            let Some((kind, device)) = file.key.and_then(|_| entry::describe(folder, &file.name))
            else {
                found.corrupt += 1;
                continue;
            };
            let sum = found.entries.entry((kind, device)).or_default();
            *sum = (sum.0 + 1, sum.1 + file.bytes);
            found.bytes += file.bytes;
        }
        Ok(found)
    }

    /// Lookups and writes of this process.
    pub fn stats(&self) -> DiskCacheStats {
        DiskCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            failed_writes: self.failed.load(Ordering::Relaxed),
        }
    }

    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.test_clock_offset.load(Ordering::Relaxed))
    }
}

/// Returns the bytes of all entries. Files of earlier versions are deleted.
fn total(folder: &Folder) -> u64 {
    for name in LEGACY_FILES {
        let _ = c_name(name).and_then(|n| folder.remove(&n));
    }
    entry::list(folder).map_or(0, |list| list.iter().map(|f| f.bytes).sum())
}

/// If the limit is exceeded, deletes the least recently used entries down to four fifths of it, so
/// that the next write does not evict again. Returns the remaining bytes.
fn evict(folder: &Folder, limit: u64) -> u64 {
    let Ok(mut list) = entry::list(folder) else { return 0 };
    let mut bytes: u64 = list.iter().map(|f| f.bytes).sum();
    if bytes <= limit {
        return bytes;
    }
    // Corrupt files are deleted first.
    list.sort_by(|a: &Listed, b: &Listed| {
        (a.key.is_some(), a.used, &a.name).cmp(&(b.key.is_some(), b.used, &b.name))
    });
    for file in list {
        if bytes <= limit / 5 * 4 {
            break;
        }
        if c_name(&file.name).and_then(|n| folder.remove(&n)).is_ok() {
            bytes -= file.bytes;
        }
    }
    bytes
}

/// Returns the writes that were lost, of all processes.
fn total_failed_writes(folder: &Folder) -> u64 {
    let text = folder.read(FAILED_WRITES_FILE).and_then(|mut f| {
        let mut text = String::new();
        f.read_to_string(&mut text).map(|_| text)
    });
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

/// Counts failed writes. On a full disk a few bytes can often still be written; if not, the count
/// is lost.
fn add_failed_writes(folder: &Folder, more: u64) -> io::Result<()> {
    let mut file = folder.update(FAILED_WRITES_FILE)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let sum = text.trim().parse::<u64>().unwrap_or(0).saturating_add(more);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{sum:020}").as_bytes())
}

/// The location of a program's object.
enum Object {
    Inline(Vec<u8>),
    ByKey(CacheKey),
}

/// Encodes a program: whether the object or its key follows, the name of the function, and the
/// object or key.
fn program(symbol: &str, inside: u8, object: &[u8]) -> Vec<u8> {
    [&[inside][..], &(symbol.len() as u32).to_le_bytes(), symbol.as_bytes(), object].concat()
}

/// Decodes a program to the name of the function and the object.
fn read_program(mut value: Vec<u8>) -> Option<(String, Object)> {
    let (head, rest) = value.split_first_chunk::<5>()?;
    let (symbol, object) =
        rest.split_at_checked(u32::from_le_bytes(*head.last_chunk()?) as usize)?;
    let symbol = String::from_utf8(symbol.to_vec()).ok()?;
    let start = value.len() - object.len();
    match head[0] {
        0 => Some((symbol, Object::ByKey(CacheKey(u128::from_le_bytes(object.try_into().ok()?))))),
        1 => {
            value.drain(..start);
            Some((symbol, Object::Inline(value)))
        }
        _ => None,
    }
}

// Modes, owners and links of files.
#[cfg(all(test, unix))]
mod tests;
