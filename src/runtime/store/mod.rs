//! The store on disk: compiled programs and tuned optimisations, kept between processes. In comes a [`Key`] made of everything that decides what would be
//! made; out come the bytes that were made before, or nothing.
//!
//! It is one file, `store.redb`, in a private folder, open only while a batch is read or written: a plan's kernels are looked up together and, where they
//! are new, written together.
//!
//! The store can only help. A folder that is missing, read-only, full or not ours, or a file that another process does not let go of, means that kernels
//! are compiled anew, never an error. What is read is checked: each value has a checksum over itself and its key. A file that makes no sense, or that
//! another version made otherwise, is set aside with a warning, and a new one begun. A process that is killed at any moment leaves a whole file.
//!
//! Values are code that will run, so a folder that other users can write to is not used.
//!
//! Kernels are compiled several in one text, and looked up one by one: a program is a small entry that names an object and the function in it.

mod file;
mod hash;
mod tables;
mod unsynced;

pub use hash::{Key, hash128};

use file::{ABOUT, Done, Place, Trouble, trouble};
use redb::ReadableTable;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;
use tables::{Reader, Row, Tables, mark, read_program, size_of_entry};

/// The name of the file.
const FILE: &str = "store.redb";
/// What the store may hold in MiB, where `PICO_CACHE_SIZE` does not say. At some 10 kB a kernel this is fifty thousand kernels.
pub const DEFAULT_SIZE: u64 = 512;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A compiled kernel: which object it is in, and under which name.
    Program = 0,
    /// What a compiler made.
    Object = 1,
    /// What a compiler said about its version.
    Compiler = 2,
    /// Optimisations that a search has found.
    Opts = 3,
}

impl Kind {
    /// All of them, by number.
    pub const ALL: [Kind; 4] = [Kind::Program, Kind::Object, Kind::Compiler, Kind::Opts];
    /// What belongs to compiled programs.
    pub const PROGRAMS: [Kind; 3] = [Kind::Program, Kind::Object, Kind::Compiler];
}

/// Something to keep.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// The device that it is for, for people.
    pub device: &'a str,
    /// Its bytes.
    pub value: &'a [u8],
}

/// A compiled kernel that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The object that it is in. Kernels that were compiled together share one.
    pub object: Arc<Vec<u8>>,
    /// Its name there.
    pub symbol: String,
}

/// An object with the kernels in it: the key and the name of each.
#[derive(Debug)]
pub struct Made {
    /// What the compiler made.
    pub object: Vec<u8>,
    /// The key of each kernel in it, and its name there.
    pub kernels: Vec<(Key, String)>,
}

/// What the store did in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found an entry.
    pub hits: usize,
    /// Lookups that found none.
    pub misses: usize,
    /// Entries that did not agree with their checksum.
    pub corrupt: usize,
    /// Entries that could not be written.
    pub failed_writes: usize,
}

/// What the store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of all entries.
    pub bytes: u64,
    /// Bytes of the file, which also has room for more.
    pub file_bytes: u64,
    /// How many entries there are of a kind for a device, and their bytes.
    pub entries: BTreeMap<(Kind, String), (usize, u64)>,
}

impl Contents {
    /// How many entries of these kinds there are, and their bytes.
    pub fn of(&self, kinds: &[Kind]) -> (usize, u64) {
        let of_kinds = self.entries.iter().filter(|((kind, _), _)| kinds.contains(kind));
        of_kinds.fold((0, 0), |(n, bytes), (_, (m, more))| (n + m, bytes + more))
    }
}

/// The store of the process: where the environment says, see [`Store::from_env`].
pub fn global() -> &'static Store {
    static GLOBAL: OnceLock<Store> = OnceLock::new();
    GLOBAL.get_or_init(|| Store::from_env(&|name| std::env::var(name).ok()))
}

/// A store in a folder, or none at all.
#[derive(Debug)]
pub struct Store {
    place: Option<Place>,
    off: Option<String>,
    limit: u64,
    /// Threads of this process take turns, and do not wait for each other's lock on the file.
    turn: Mutex<()>,
    /// Added to the time, for tests.
    later: AtomicU64,
    hits: AtomicUsize,
    misses: AtomicUsize,
    corrupt: AtomicUsize,
    failed: AtomicUsize,
}

impl Store {
    /// In the folder that `PICO_CACHE` names (empty, `0` and `off` mean none), else `picograd` under `XDG_CACHE_HOME` or `HOME/.cache`; of the size that
    /// `PICO_CACHE_SIZE` says.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Store {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let store = match env("PICO_CACHE") {
            Some(s) if matches!(s.trim(), "" | "0" | "off") => Store::none("PICO_CACHE turns it off"),
            Some(s) => Store::at(Path::new(&s)),
            None => match absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))) {
                Some(base) => Store::at(&base.join("picograd")),
                None => Store::none("neither PICO_CACHE, XDG_CACHE_HOME nor HOME names a folder"),
            },
        };
        // A size that makes no sense is an error of the settings, which say so.
        let size = env("PICO_CACHE_SIZE").and_then(|s| s.trim().parse::<u64>().ok()).unwrap_or(DEFAULT_SIZE);
        Store { limit: size.saturating_mul(1 << 20), ..store }
    }

    /// A store in this folder, which is created where it is missing; none where that fails or where others can write to it.
    pub fn at(dir: &Path) -> Store {
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
            Ok(()) => Store { place: Some(Place::new(dir.join(FILE))), off: None, ..Store::none("") },
            Err(why) => Store::none(&format!("{}: {why}", dir.display())),
        }
    }

    fn none(why: &str) -> Store {
        Store {
            place: None,
            off: Some(why.into()),
            limit: DEFAULT_SIZE << 20,
            turn: Mutex::default(),
            later: AtomicU64::default(),
            hits: AtomicUsize::default(),
            misses: AtomicUsize::default(),
            corrupt: AtomicUsize::default(),
            failed: AtomicUsize::default(),
        }
    }

    /// The folder, where there is one.
    pub fn dir(&self) -> Option<&Path> {
        self.place.as_ref()?.path.parent()
    }

    /// The file, where there is a folder for it.
    pub fn path(&self) -> Option<&Path> {
        Some(&self.place.as_ref()?.path)
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
    pub fn get(&self, keys: &[Key]) -> Vec<Option<Vec<u8>>> {
        self.look_up(keys.len(), |reader| keys.iter().map(|key| reader.get(*key)).collect())
    }

    /// The compiled kernels of keys, or nothing for those that it does not have.
    pub fn programs(&self, keys: &[Key]) -> Vec<Option<Kept>> {
        self.look_up(keys.len(), |reader| {
            let mut objects: BTreeMap<Key, Option<Arc<Vec<u8>>>> = BTreeMap::new();
            let mut kept = |key: Key| -> Done<Option<Kept>> {
                let Some((object, symbol)) = reader.get(key)?.as_deref().and_then(read_program) else { return Ok(None) };
                let object = match objects.get(&object) {
                    Some(known) => known.clone(),
                    None => objects.entry(object).or_insert(reader.get(object)?.map(Arc::new)).clone(),
                };
                Ok(object.map(|object| Kept { object, symbol }))
            };
            keys.iter().map(|key| kept(*key)).collect()
        })
    }

    /// Keeps compiled kernels. A failure is counted and forgotten.
    pub fn put_programs(&self, device: &str, made: &[Made]) {
        let names: Vec<Key> = made.iter().map(|m| Key(hash128(&m.object))).collect();
        let rows: Vec<(Key, Vec<u8>)> = made
            .iter()
            .zip(&names)
            .flat_map(|(m, name)| m.kernels.iter().map(|(key, symbol)| (*key, [&name.0.to_le_bytes(), symbol.as_bytes()].concat())))
            .collect();
        let objects = made.iter().zip(&names).map(|(m, key)| Entry { key: *key, kind: Kind::Object, device, value: &m.object });
        let programs = rows.iter().map(|(key, value)| Entry { key: *key, kind: Kind::Program, device, value });
        self.put(&objects.chain(programs).collect::<Vec<_>>());
    }

    /// Keeps values; what was there under their keys is replaced. A failure is counted and forgotten.
    pub fn put(&self, entries: &[Entry]) {
        let Some(place) = self.place.as_ref().filter(|_| !entries.is_empty()) else { return };
        let (small, large): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|e| size_of_entry(e.value) <= self.limit);
        self.failed.fetch_add(large.len(), Ordering::Relaxed);
        let _turn = self.turn();
        let now = self.now();
        let done = place.write(|t| {
            let mut tables = Tables::open(t)?;
            small.iter().try_for_each(|e| tables.insert(e, now))?;
            tables.make_room(self.limit)?;
            tables.close()
        });
        if done.is_err() {
            self.failed.fetch_add(small.len(), Ordering::Relaxed);
        }
        // Pages that are free are used again, so this happens only after much was deleted at once.
        if fs::metadata(&place.path).is_ok_and(|m| m.len() > self.limit.saturating_mul(2).saturating_add(16 << 20)) {
            let _ = place.compact();
        }
    }

    /// Deletes the entries of these kinds and returns how many there were and their bytes, or says why it cannot.
    pub fn clear(&self, kinds: &[Kind]) -> std::result::Result<(usize, u64), String> {
        let Some(place) = &self.place else { return Ok((0, 0)) };
        let _turn = self.turn();
        if !place.path.exists() {
            return Ok((0, 0));
        }
        let delete = place.write(|t| {
            let mut tables = Tables::open(t)?;
            let rows = tables.rows()?;
            let gone: Vec<&Row> = rows.iter().filter(|r| Kind::ALL.get(r.kind as usize).is_none_or(|k| kinds.contains(k))).collect();
            gone.iter().try_for_each(|row| tables.remove(row.key))?;
            tables.close()?;
            Ok((gone.len(), gone.iter().map(|r| r.bytes).sum()))
        });
        let deleted = delete.map_err(explain)?;
        // What is deleted is deleted; a file that another process opens meanwhile shrinks the next time.
        let _ = place.compact();
        if kinds == Kind::ALL {
            let _ = fs::remove_file(place.path.with_file_name(format!("{FILE}.corrupt")));
        }
        Ok(deleted)
    }

    /// What it holds, or why that cannot be said.
    pub fn contents(&self) -> std::result::Result<Contents, String> {
        let Some(place) = &self.place else { return Ok(Contents::default()) };
        let _turn = self.turn();
        let read = place.read(|t| {
            let mut found = Contents::default();
            for row in t.open_table(ABOUT).map_err(trouble)?.iter().map_err(trouble)? {
                let (_, about) = row.map_err(trouble)?;
                let (_, bytes, kind, device) = about.value();
                let Some(kind) = Kind::ALL.get(kind as usize) else { continue };
                let sum = found.entries.entry((*kind, device.to_string())).or_default();
                *sum = (sum.0 + 1, sum.1 + bytes);
                found.bytes += bytes;
            }
            Ok(found)
        });
        let mut found = match read {
            Err(Trouble::Absent) => return Ok(Contents::default()),
            read => read.map_err(explain)?,
        };
        found.file_bytes = fs::metadata(&place.path).map_or(0, |m| m.len());
        Ok(found)
    }

    /// What was done in this process.
    pub fn stats(&self) -> Stats {
        Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            failed_writes: self.failed.load(Ordering::Relaxed),
        }
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn now(&self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs()) + self.later.load(Ordering::Relaxed)
    }

    /// Looks up so many things in one state of the store.
    fn look_up<T>(&self, count: usize, f: impl Fn(&mut Reader) -> Done<Vec<Option<T>>>) -> Vec<Option<T>> {
        let nothing = || (0..count).map(|_| None).collect::<Vec<Option<T>>>();
        let Some(place) = self.place.as_ref().filter(|_| count > 0) else { return nothing() };
        let _turn = self.turn();
        let now = self.now();
        let read = place.read(|t| {
            let mut reader = Reader { transaction: t, now, stale: Vec::new(), corrupt: 0 };
            let found = f(&mut reader)?;
            Ok((found, reader.stale, reader.corrupt))
        });
        let (found, stale, corrupt) = read.unwrap_or_else(|_| (nothing(), Vec::new(), 0));
        let hits = found.iter().flatten().count();
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(count - hits, Ordering::Relaxed);
        self.corrupt.fetch_add(corrupt, Ordering::Relaxed);
        if !stale.is_empty() {
            // Where it fails they are a little older than they might be.
            let _ = place.write(|t| {
                let mut about = t.open_table(ABOUT).map_err(trouble)?;
                stale.iter().try_for_each(|key| mark(&mut about, *key, now))
            });
        }
        found
    }
}

fn explain(trouble: Trouble) -> String {
    match trouble {
        Trouble::Busy => "another process is using it; try again".into(),
        Trouble::Absent => "it is not there".into(),
        Trouble::Refused(why) | Trouble::Corrupt(why) => why,
    }
}

#[cfg(test)]
mod tests;
