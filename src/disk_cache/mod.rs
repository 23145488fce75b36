//! The store on disk: compiled programs and tuned optimisations, kept between processes. In comes a
//! [`CacheKey`] made of everything that decides what would be made; out come the bytes that were made
//! before, or nothing.
//!
//! Every entry is a file in a private folder, named by its key and written whole: processes share
//! the folder without waiting for each other, one that is killed leaves nothing half written, and a
//! damaged file is one entry that is absent.
//!
//! The store can only help. A folder that is missing, read-only, full or not ours means that
//! kernels are compiled anew, never an error.
//!
//! Values are code that will run, so only what this user wrote is read: a folder or a file that
//! belongs to somebody else, or that others can write to, is refused, links are not followed, and
//! each entry is sealed by a keyed hash whose secret only the user can read. What is not sealed by
//! it is set aside and counted.
//!
//! Kernels are compiled several in one text, and looked up one by one: a program holds its object
//! where it is alone in it, and names it otherwise.

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
const LOST: &std::ffi::CStr = c"lost-writes";
/// What earlier versions kept, which nobody reads any more.
const OLD: [&str; 2] = ["store.redb", "store.redb.corrupt"];
/// What the store may hold in MiB, where `PICO_CACHE_SIZE` does not say. At some 10 kB a kernel
/// this is fifty thousand kernels.
pub const DEFAULT_SIZE: u64 = 512;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// A compiled kernel: which object it is in, and under which name.
    Program = 0,
    /// What a compiler made.
    Object = 1,
    /// What a compiler said about its version.
    Compiler = 2,
    /// Optimisations that a search has found.
    Opts = 3,
}

impl EntryKind {
    /// All of them, by number.
    pub const ALL: [EntryKind; 4] =
        [EntryKind::Program, EntryKind::Object, EntryKind::Compiler, EntryKind::Opts];
    /// What belongs to compiled programs.
    pub const PROGRAMS: [EntryKind; 3] =
        [EntryKind::Program, EntryKind::Object, EntryKind::Compiler];
}

/// Something to keep.
#[derive(Debug, Clone, Copy)]
pub struct CacheEntry<'a> {
    /// Its name.
    pub key: CacheKey,
    /// What it is.
    pub kind: EntryKind,
    /// The device that it is for, for people.
    pub device: &'a str,
    /// Its bytes.
    pub value: &'a [u8],
}

/// A compiled kernel that was kept.
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
    /// What the compiler made.
    pub object: Vec<u8>,
    /// The key of each kernel in it, and its name there.
    pub kernels: Vec<(CacheKey, String)>,
}

/// What the store did in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCacheStats {
    /// Lookups that found an entry.
    pub hits: usize,
    /// Lookups that found none.
    pub misses: usize,
    /// Entries that were not sealed by us: damaged, or written by somebody else.
    pub corrupt: usize,
    /// Entries that could not be written, as on a full disk.
    pub failed_writes: usize,
}

/// What the store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskCacheContents {
    /// Bytes of all entries.
    pub bytes: u64,
    /// Files that were set aside because they were damaged or not ours.
    pub corrupt: usize,
    /// Entries that could not be written since the folder was cleared, by all processes.
    pub lost_writes: u64,
    /// How many entries there are of a kind for a device, and their bytes.
    pub entries: BTreeMap<(EntryKind, String), (usize, u64)>,
}

impl DiskCacheContents {
    /// How many entries of these kinds there are, and their bytes.
    pub fn of(&self, kinds: &[EntryKind]) -> (usize, u64) {
        let of_kinds = self.entries.iter().filter(|((kind, _), _)| kinds.contains(kind));
        of_kinds.fold((0, 0), |(n, bytes), (_, (m, more))| (n + m, bytes + more))
    }
}

/// The store of the process: where the environment says, see [`DiskCache::from_env`].
pub fn global() -> &'static DiskCache {
    static GLOBAL: OnceLock<DiskCache> = OnceLock::new();
    GLOBAL.get_or_init(|| DiskCache::from_env(&env::var))
}

/// A store in a folder, or none at all.
#[derive(Debug)]
pub struct DiskCache {
    folder: Option<Folder>,
    off: Option<String>,
    limit: u64,
    /// Bytes of all entries as far as this process knows; none where it has not looked yet.
    bytes: Mutex<Option<u64>>,
    /// Added to the time, for tests.
    later: AtomicU64,
    hits: AtomicUsize,
    misses: AtomicUsize,
    corrupt: AtomicUsize,
    failed: AtomicUsize,
}

impl DiskCache {
    /// In the folder that `PICO_CACHE` names (empty, `0` and `off` mean none), else `picograd`
    /// under `XDG_CACHE_HOME` or `HOME/.cache`; of the size that `PICO_CACHE_SIZE` says.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> DiskCache {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let store = match env("PICO_CACHE") {
            Some(s) if matches!(s.trim(), "" | "0" | "off") => {
                DiskCache::none("PICO_CACHE turns it off")
            }
            Some(s) => DiskCache::at(Path::new(&s)),
            None => match absolute("XDG_CACHE_HOME")
                .or_else(|| Some(absolute("HOME")?.join(".cache")))
            {
                Some(base) => DiskCache::at(&base.join("picograd")),
                None => {
                    DiskCache::none("neither PICO_CACHE, XDG_CACHE_HOME nor HOME names a folder")
                }
            },
        };
        // A size that makes no sense is an error of the settings, which say so.
        let size = env("PICO_CACHE_SIZE")
            .and_then(|s| s.trim().parse::<u64>().ok())
            .unwrap_or(DEFAULT_SIZE);
        DiskCache { limit: size.saturating_mul(1 << 20), ..store }
    }

    /// A store in this folder, which is created where it is missing; none where that fails, or
    /// where it is not ours alone.
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
            later: AtomicU64::default(),
            hits: AtomicUsize::default(),
            misses: AtomicUsize::default(),
            corrupt: AtomicUsize::default(),
            failed: AtomicUsize::default(),
        }
    }

    /// The folder, where there is one.
    pub fn dir(&self) -> Option<&Path> {
        Some(&self.folder.as_ref()?.path)
    }

    /// Why there is no store, for a warning; `None` where there is one.
    pub fn why_off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    /// Bytes that it may hold. Past this, what was not used for longest goes first.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The values of keys, whole and checked, or nothing for those that it does not have.
    pub fn get(&self, keys: &[CacheKey]) -> Vec<Option<Vec<u8>>> {
        let Some(folder) = &self.folder else { return keys.iter().map(|_| None).collect() };
        let now = self.now();
        keys.iter().map(|key| self.counted(self.read(folder, *key, now))).collect()
    }

    /// The compiled kernels of keys, or nothing for those that it does not have.
    pub fn programs(&self, keys: &[CacheKey]) -> Vec<Option<CachedProgram>> {
        let Some(folder) = &self.folder else { return keys.iter().map(|_| None).collect() };
        let now = self.now();
        let mut objects: BTreeMap<CacheKey, Option<Arc<Vec<u8>>>> = BTreeMap::new();
        let mut kept = |key: CacheKey| -> Option<CachedProgram> {
            let (symbol, object) = read_program(self.read(folder, key, now)?)?;
            let object = match object {
                Object::Inside(object) => Some(Arc::new(object)),
                Object::Named(name) => objects
                    .entry(name)
                    .or_insert_with(|| self.read(folder, name, now).map(Arc::new))
                    .clone(),
            };
            Some(CachedProgram { object: object?, symbol })
        };
        keys.iter().map(|key| self.counted(kept(*key))).collect()
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

    /// Keeps compiled kernels. A failure is counted and forgotten.
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
        let objects = objects.iter().map(|(key, value)| CacheEntry {
            key: *key,
            kind: EntryKind::Object,
            device,
            value,
        });
        let programs = programs.iter().map(|(key, value)| CacheEntry {
            key: *key,
            kind: EntryKind::Program,
            device,
            value,
        });
        self.put(&objects.chain(programs).collect::<Vec<_>>());
    }

    /// Keeps values that nobody has checked.
    ///
    /// # Safety
    /// Programs and objects are machine code that later processes run: they are what the compiler
    /// of the device makes of the text that their key is of.
    pub unsafe fn put_unchecked(&self, entries: &[CacheEntry]) {
        self.put(entries);
    }

    /// Keeps values; what was there under their keys is replaced. A failure is counted and
    /// forgotten.
    pub(crate) fn put(&self, entries: &[CacheEntry]) {
        let Some(folder) = self.folder.as_ref().filter(|_| !entries.is_empty()) else { return };
        let now = self.now();
        let mut lost = 0;
        let mut bytes = self.bytes.lock().unwrap_or_else(|e| e.into_inner());
        let mut sum = bytes.unwrap_or_else(|| total(folder));
        for e in entries {
            let done = size_of_entry(e) <= self.limit.min(entry::MOST_BYTES)
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
            sum = make_room(folder, self.limit);
        }
        *bytes = Some(sum);
        drop(bytes);
        if lost > 0 {
            self.failed.fetch_add(lost, Ordering::Relaxed);
            let _ = add_lost(folder, lost as u64);
        }
    }

    /// Deletes the entries of these kinds and returns how many there were and their bytes, or says
    /// why it cannot.
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
            let _ = folder.remove(LOST);
        }
        *self.bytes.lock().unwrap_or_else(|e| e.into_inner()) = None;
        Ok(deleted)
    }

    /// What it holds, or why that cannot be said.
    pub fn contents(&self) -> std::result::Result<DiskCacheContents, String> {
        let Some(folder) = &self.folder else { return Ok(DiskCacheContents::default()) };
        let mut found =
            DiskCacheContents { lost_writes: lost(folder), ..DiskCacheContents::default() };
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

    /// What was done in this process.
    pub fn stats(&self) -> DiskCacheStats {
        DiskCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            failed_writes: self.failed.load(Ordering::Relaxed),
        }
    }

    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.later.load(Ordering::Relaxed))
    }
}

/// The bytes of all entries. What an earlier version left is deleted.
fn total(folder: &Folder) -> u64 {
    for name in OLD {
        let _ = c_name(name).and_then(|n| folder.remove(&n));
    }
    entry::list(folder).map_or(0, |list| list.iter().map(|f| f.bytes).sum())
}

/// Where there is more than the limit, deletes what was not used for longest, down to four fifths,
/// so that the next write does not begin the same work again. Returns the bytes that are left.
fn make_room(folder: &Folder, limit: u64) -> u64 {
    let Ok(mut list) = entry::list(folder) else { return 0 };
    let mut bytes: u64 = list.iter().map(|f| f.bytes).sum();
    if bytes <= limit {
        return bytes;
    }
    // What was set aside goes first.
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

/// The writes that were lost, of all processes.
fn lost(folder: &Folder) -> u64 {
    let text = folder.read(LOST).and_then(|mut f| {
        let mut text = String::new();
        f.read_to_string(&mut text).map(|_| text)
    });
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

/// Counts writes that were lost. On a full disk a few bytes can often still be written, and nothing
/// is owed where not.
fn add_lost(folder: &Folder, more: u64) -> io::Result<()> {
    let mut file = folder.update(LOST)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let sum = text.trim().parse::<u64>().unwrap_or(0).saturating_add(more);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{sum:020}").as_bytes())
}

/// Where the object of a program is.
enum Object {
    Inside(Vec<u8>),
    Named(CacheKey),
}

/// The value of a program: whether the object follows or its name, the name of the function, and
/// that.
fn program(symbol: &str, inside: u8, object: &[u8]) -> Vec<u8> {
    [&[inside][..], &(symbol.len() as u32).to_le_bytes(), symbol.as_bytes(), object].concat()
}

/// The function and the object that an entry of a program names.
fn read_program(mut value: Vec<u8>) -> Option<(String, Object)> {
    let (head, rest) = value.split_first_chunk::<5>()?;
    let (symbol, object) =
        rest.split_at_checked(u32::from_le_bytes(*head.last_chunk()?) as usize)?;
    let symbol = String::from_utf8(symbol.to_vec()).ok()?;
    let start = value.len() - object.len();
    match head[0] {
        0 => Some((symbol, Object::Named(CacheKey(u128::from_le_bytes(object.try_into().ok()?))))),
        1 => {
            value.drain(..start);
            Some((symbol, Object::Inside(value)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
