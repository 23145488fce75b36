//! The disk cache of compiled objects. In comes a [`Key`] made of everything that decides what the compiler would produce; out come the
//! object's bytes, or nothing.
//!
//! The cache can only help: a folder that is missing, read-only, full or not ours means that kernels are compiled anew, never an error.
//! An entry says its own format, key, length and checksum; one that does not agree with itself is deleted and counts as absent. Entries are
//! written aside, synced and renamed, so that a process that is killed, or eight that write the same key, leave whole files only.
//!
//! Entries are code that will run, so a folder that other users can write to is not used.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const MAGIC: [u8; 8] = *b"PICOOBJ\n";
const FORMAT: u32 = 1;
/// Magic, format, key, length; then the checksum of these and of the payload.
const HEAD: usize = 8 + 4 + 16 + 8;
const PAYLOAD: usize = HEAD + 16;
/// No kernel comes near this; a file that does is not ours.
const MOST_ENTRY: u64 = 256 << 20;
/// What the folder may hold. At some 10 kB a kernel this is fifty thousand kernels.
const MOST_TOTAL: u64 = 512 << 20;
/// How many writes of this process come between two looks at the size of the folder.
const LOOK_EVERY: usize = 256;
/// Files of a writer that was killed are swept away after this time; no writer takes as long.
const STALE: Duration = Duration::from_secs(3600);
/// A hit marks an entry as used when its mark is older than this; more often would only cost.
const MARK_AFTER: Duration = Duration::from_secs(3600);

/// The name of an object: 128 bits over everything that it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

impl Key {
    /// The key of some parts, in order. Lengths are hashed along, so `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of(parts: &[&[u8]]) -> Key {
        let mut all = Vec::with_capacity(parts.iter().map(|p| p.len() + 8).sum());
        for part in parts {
            all.extend_from_slice(&(part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
        Key(hash128(&all))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A 128-bit content hash: MurmurHash3 x64, seed 0, which has published vectors to test against. Chosen for its spread; it does not resist
/// somebody who looks for collisions, and need not: the folder is the user's own.
pub fn hash128(data: &[u8]) -> u128 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let stir1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let stir2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word = |b: &[u8]| b.iter().rev().fold(0u64, |w, &x| w << 8 | u64::from(x));
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        k ^ (k >> 33)
    };
    let (mut a, mut b) = (0u64, 0u64);
    let (blocks, tail) = data.as_chunks::<16>();
    for block in blocks {
        let v = u128::from_le_bytes(*block);
        a = (a ^ stir1(v as u64)).rotate_left(27).wrapping_add(b).wrapping_mul(5).wrapping_add(0x52dc_e729);
        b = (b ^ stir2((v >> 64) as u64)).rotate_left(31).wrapping_add(a).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    b ^= stir2(word(high));
    a ^= stir1(word(low));
    a ^= data.len() as u64;
    b ^= data.len() as u64;
    a = a.wrapping_add(b);
    b = b.wrapping_add(a);
    (a, b) = (finish(a), finish(b));
    a = a.wrapping_add(b);
    b = b.wrapping_add(a);
    u128::from(a) << 64 | u128::from(b)
}

/// What the cache holds, and what it did in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries on disk.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Lookups that found an entry.
    pub hits: usize,
    /// Lookups that found none.
    pub misses: usize,
    /// Entries that did not agree with themselves and were deleted.
    pub corrupt: usize,
    /// Writes that failed.
    pub failed_writes: usize,
}

/// The object of a key, where the cache of the process has it.
pub fn get(key: Key) -> Option<Vec<u8>> {
    global().get(key)
}

/// Keeps an object in the cache of the process.
pub fn put(key: Key, object: &[u8]) {
    global().put(key, object)
}

/// Forgets one object, where it turned out to be of no use.
pub fn remove(key: Key) {
    global().remove(key)
}

/// Deletes all entries of the cache of the process.
pub fn clear() {
    global().clear()
}

/// What the cache of the process holds and did. Reads the folder.
pub fn stats() -> Stats {
    global().stats()
}

/// The cache of the process: where the environment says, see [`Cache::from_env`].
pub fn global() -> &'static Cache {
    static GLOBAL: OnceLock<Cache> = OnceLock::new();
    GLOBAL.get_or_init(|| Cache::from_env(&|name| std::env::var(name).ok()))
}

/// A folder of objects, or nothing at all.
#[derive(Debug)]
pub struct Cache {
    dir: Option<PathBuf>,
    off: Option<String>,
    limit: u64,
    writes: AtomicUsize,
    hits: AtomicUsize,
    misses: AtomicUsize,
    corrupt: AtomicUsize,
    failed: AtomicUsize,
}

impl Cache {
    /// The folder that `PICO_CACHE` names (empty, `0` and `off` mean none), else `picograd` under `XDG_CACHE_HOME` or `HOME/.cache`.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Cache {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
        match env("PICO_CACHE") {
            Some(s) if matches!(s.trim(), "" | "0" | "off") => Cache::none("PICO_CACHE turns it off"),
            Some(s) => Cache::at(Path::new(&s)),
            None => match absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))) {
                Some(base) => Cache::at(&base.join("picograd")),
                None => Cache::none("neither PICO_CACHE, XDG_CACHE_HOME nor HOME names a folder"),
            },
        }
    }

    /// A cache in this folder, which is created where it is missing; no cache where that fails or where others can write to it.
    pub fn at(dir: &Path) -> Cache {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let checked = made.and_then(|()| fs::metadata(dir)).map_err(|e| e.to_string()).and_then(|m| {
            // SAFETY: asks for a number.
            let us = unsafe { libc::geteuid() };
            match m.uid() == us && m.mode() & 0o002 == 0 {
                true => Ok(()),
                false => Err("other users can write to it".to_string()),
            }
        });
        match checked {
            Ok(()) => Cache { dir: Some(dir.to_path_buf()), off: None, ..Cache::none("") },
            Err(why) => Cache::none(&format!("{}: {why}", dir.display())),
        }
    }

    fn none(why: &str) -> Cache {
        let zero = || AtomicUsize::new(0);
        Cache {
            dir: None,
            off: Some(why.into()),
            limit: MOST_TOTAL,
            writes: zero(),
            hits: zero(),
            misses: zero(),
            corrupt: zero(),
            failed: zero(),
        }
    }

    /// The folder, where there is one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Why there is no cache, for a warning; `None` where there is one.
    pub fn why_off(&self) -> Option<&str> {
        self.off.as_deref()
    }

    fn entry(&self, key: Key) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{key}.obj")))
    }

    /// The object of a key, whole and checked, or nothing.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let path = self.entry(key)?;
        let found = File::open(&path).and_then(|mut file| {
            let meta = file.metadata()?;
            let mut bytes = Vec::new();
            if meta.len() <= MOST_ENTRY {
                // The length is the file's own and bounded, but memory may be short: then the kernel is compiled anew.
                bytes.try_reserve_exact(meta.len() as usize)?;
                (&mut file).take(MOST_ENTRY).read_to_end(&mut bytes)?;
            }
            Ok((file, meta, bytes))
        });
        let Ok((file, meta, mut bytes)) = found else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if !entry_is_whole(&bytes, key) {
            let _ = fs::remove_file(&path);
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now();
        if meta.modified().ok().and_then(|t| now.duration_since(t).ok()).is_some_and(|age| age > MARK_AFTER) {
            let _ = file.set_modified(now);
        }
        bytes.drain(..PAYLOAD);
        Some(bytes)
    }

    /// Keeps an object. A failure is counted and forgotten.
    pub fn put(&self, key: Key, object: &[u8]) {
        let Some(path) = self.entry(key) else { return };
        if self.write(&path, key, object).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            self.sweep();
        }
    }

    fn write(&self, path: &Path, key: Key, object: &[u8]) -> std::io::Result<()> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if object.len() as u64 + PAYLOAD as u64 > MOST_ENTRY {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos());
        let aside = path.with_file_name(format!(".new-{}-{nth}-{nanos}", std::process::id()));
        let write = || {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
            let head = head(key, object.len() as u64);
            file.write_all(&head)?;
            file.write_all(&checksum(&head, object).to_le_bytes())?;
            file.write_all(object)?;
            file.sync_all()?;
            fs::rename(&aside, path)
        };
        let done = write();
        if done.is_err() {
            let _ = fs::remove_file(&aside);
        }
        done
    }

    /// Forgets one object.
    pub fn remove(&self, key: Key) {
        if let Some(path) = self.entry(key) {
            let _ = fs::remove_file(path);
        }
    }

    /// Deletes all entries. Other files in the folder are left alone.
    pub fn clear(&self) {
        for file in self.files() {
            let _ = fs::remove_file(&file.path);
        }
    }

    /// What the folder holds, and what was done in this process.
    pub fn stats(&self) -> Stats {
        let files = self.files();
        let entries = files.iter().filter(|f| f.entry);
        Stats {
            entries: entries.clone().count(),
            bytes: entries.map(|f| f.size).sum(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            failed_writes: self.failed.load(Ordering::Relaxed),
        }
    }

    /// The files of the cache: entries, and files being written.
    fn files(&self) -> Vec<CacheFile> {
        let Some(dir) = &self.dir else {
            return Vec::new();
        };
        let Ok(list) = fs::read_dir(dir) else {
            return Vec::new();
        };
        list.flatten()
            .filter_map(|item| {
                let name = item.file_name();
                let name = name.to_str()?;
                let entry = name.strip_suffix(".obj").is_some_and(|n| n.len() == 32 && n.bytes().all(|b| b.is_ascii_hexdigit()));
                if !entry && !name.starts_with(".new-") {
                    return None;
                }
                let meta = item.metadata().ok().filter(|m| m.is_file())?;
                Some(CacheFile { path: item.path(), entry, size: meta.len(), used: meta.modified().ok()? })
            })
            .collect()
    }

    /// Deletes what killed writers left behind and, where the folder is over its size, the longest unused entries. Another process that does
    /// the same at the same time only finds some files gone already.
    fn sweep(&self) {
        let mut files = self.files();
        let now = SystemTime::now();
        for file in files.extract_if(.., |f| !f.entry) {
            if now.duration_since(file.used).is_ok_and(|age| age > STALE) {
                let _ = fs::remove_file(&file.path);
            }
        }
        let mut total: u64 = files.iter().map(|f| f.size).sum();
        if total <= self.limit {
            return;
        }
        files.sort_by_key(|f| f.used);
        for file in files {
            // Down to four fifths, so that the next write does not begin the same work again.
            if total <= self.limit / 5 * 4 {
                break;
            }
            let _ = fs::remove_file(&file.path);
            total -= file.size;
        }
    }
}

struct CacheFile {
    path: PathBuf,
    entry: bool,
    size: u64,
    used: SystemTime,
}

fn head(key: Key, len: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..28].copy_from_slice(&key.0.to_le_bytes());
    head[28..].copy_from_slice(&len.to_le_bytes());
    head
}

fn checksum(head: &[u8], payload: &[u8]) -> u128 {
    // A second round keeps the sum apart from a plain hash of the payload, and puts the head under it.
    Key::of(&[head, &hash128(payload).to_le_bytes()]).0
}

fn entry_is_whole(bytes: &[u8], key: Key) -> bool {
    let Some((start, payload)) = bytes.split_at_checked(PAYLOAD) else {
        return false;
    };
    let (found, sum) = start.split_at(HEAD);
    found == head(key, payload.len() as u64) && sum == checksum(found, payload).to_le_bytes()
}

#[cfg(test)]
#[path = "objcache_tests.rs"]
mod tests;
