//! The file of the store: how it is opened for a moment, made anew, and set aside.
//!
//! redb gives a file to one writer or to several readers at a time, so nobody keeps it open. Whoever finds it taken waits a little and then goes on
//! without. A new file is made under another name and appears whole; one that cannot be read is renamed, with a warning, so that it can be looked at.

use super::unsynced::Unsynced;
use redb::{
    Builder, Database, Durability, Error, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What our tables are like. Another number means that another version of picograd made them otherwise.
pub(super) const FORMAT: u64 = 1;
/// Key to checksum and value.
pub(super) const VALUES: TableDefinition<u128, &[u8]> = TableDefinition::new("values");
/// Key to the time of its last use in seconds, its size, the number of its kind, and what it is for.
pub(super) const ABOUT: TableDefinition<u128, (u64, u64, u8, &str)> = TableDefinition::new("about");
/// Facts of the whole: [`FORMAT`] and the size of all entries.
pub(super) const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");

/// How long to wait for another process. A batch takes some milliseconds.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// What a killed process left unfinished is swept away after this time.
const STALE: Duration = Duration::from_secs(3600);
/// Memory for pages while the file is open. It is open for one batch.
const PAGES: usize = 64 << 20;

/// Why the store did not do what was asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another process has the file, and does not let go of it.
    Busy,
    /// There is no file.
    Absent,
    /// The system refuses: the disk is full, or may not be written to.
    Refused(String),
    /// What is in the file is no store of ours, or a broken one.
    Corrupt(String),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Trouble {
        match e {
            Error::DatabaseAlreadyOpen => Trouble::Busy,
            Error::Io(e) => match e.kind() {
                ErrorKind::NotFound => Trouble::Absent,
                // The file is shorter than it says, or does not begin as it should.
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Trouble::Corrupt(e.to_string()),
                _ => Trouble::Refused(e.to_string()),
            },
            Error::PreviousIo | Error::LockPoisoned(_) | Error::Unsupported | Error::DatabaseClosed => Trouble::Refused(e.to_string()),
            e => Trouble::Corrupt(e.to_string()),
        }
    }
}

/// The result of a step on the file.
pub(super) type Done<T> = std::result::Result<T, Trouble>;

/// Turns the many error types of redb into one. For `map_err`.
pub(super) fn trouble(e: impl Into<Error>) -> Trouble {
    e.into().into()
}

/// The place of the file.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Was it waited for in vain the last time? Who holds it that long may hold it for ever, and is not waited for again.
    in_vain: AtomicBool,
}

impl Place {
    pub(super) fn new(path: PathBuf) -> Place {
        Place { path, in_vain: AtomicBool::new(false) }
    }

    /// Reads a state of the store that does not change meanwhile.
    pub(super) fn read<T>(&self, mut f: impl FnMut(&ReadTransaction) -> Done<T>) -> Done<T> {
        self.guarded(false, || {
            let mut read = |t: std::result::Result<ReadTransaction, redb::TransactionError>| {
                let t = t.map_err(trouble)?;
                check_format(&t.open_table(STATE).map_err(trouble)?)?;
                f(&t)
            };
            match self.patiently(|| self.readable()) {
                Ok(db) => read(db.begin_read()),
                // Its last writer was killed. A writer puts it in order.
                Err(Trouble::Corrupt(_)) => {
                    let db = self.patiently(|| self.writable())?;
                    read(db.begin_read())
                }
                Err(other) => Err(other),
            }
        })
    }

    /// Changes the store, all at once or not at all.
    pub(super) fn write<T>(&self, mut f: impl FnMut(&WriteTransaction) -> Done<T>) -> Done<T> {
        self.guarded(true, || {
            let db = self.patiently(|| self.writable())?;
            let mut t = db.begin_write().map_err(trouble)?;
            // Closing the file makes it last. A process that is killed before loses its last batch and nothing else.
            t.set_durability(Durability::None).map_err(trouble)?;
            check_format(&t.open_table(STATE).map_err(trouble)?)?;
            let value = f(&t)?;
            t.commit().map_err(trouble)?;
            Ok(value)
        })
    }

    /// Gives the system back what the file does not need.
    pub(super) fn compact(&self) -> Done<()> {
        self.guarded(true, || {
            let mut db = self.patiently(|| self.writable())?;
            db.compact().map(drop).map_err(trouble)
        })
    }

    /// Does something with the file. Where there is none a writer makes one; where it is broken it is set aside.
    fn guarded<T>(&self, write: bool, mut f: impl FnMut() -> Done<T>) -> Done<T> {
        let mut attempt = || {
            let before = self.identity();
            // A page that was damaged so that it makes no sense can also end in a panic.
            let done = catch_unwind(AssertUnwindSafe(&mut f)).unwrap_or_else(|_| Err(Trouble::Corrupt("a page makes no sense".into())));
            if let Err(Trouble::Corrupt(why)) = &done {
                // Not where another process has put a new one there meanwhile.
                if before.is_some() && before == self.identity() && !self.set_aside(why) {
                    return Err(Trouble::Refused(format!("{}: {why}", self.path.display())));
                }
                return Err(Trouble::Absent);
            }
            done
        };
        match attempt() {
            Err(Trouble::Absent) if write => {
                self.create()?;
                attempt()
            }
            done => done,
        }
    }

    /// Tries again for a while where another process has the file.
    fn patiently<T>(&self, open: impl Fn() -> Done<T>) -> Done<T> {
        let start = Instant::now();
        let patience = if self.in_vain.load(Ordering::Relaxed) { PAUSE } else { PATIENCE };
        loop {
            let done = open();
            let busy = matches!(done, Err(Trouble::Busy));
            if !busy || start.elapsed() >= patience {
                self.in_vain.store(busy, Ordering::Relaxed);
                return done;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn readable(&self) -> Done<ReadOnlyDatabase> {
        Builder::new().set_cache_size(PAGES).open_read_only(&self.path).map_err(trouble)
    }

    fn writable(&self) -> Done<Database> {
        let file = File::options().read(true).write(true).open(&self.path).map_err(Error::Io)?;
        database(file)
    }

    /// What tells this file from another of its name.
    fn identity(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.path).ok().map(|m| (m.dev(), m.ino()))
    }

    /// Makes an empty store, whole before it has its name. Another process may be first.
    fn create(&self) -> Done<()> {
        let refused = |e: std::io::Error| Trouble::Refused(e.to_string());
        let dir = self.path.parent().unwrap_or(Path::new("."));
        sweep(dir);
        let aside = dir.join(format!(".new-{}", crate::runtime::build::unique()));
        let make = || -> Done<()> {
            let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&aside).map_err(refused)?;
            let db = database(file)?;
            let t = db.begin_write().map_err(trouble)?;
            t.open_table(VALUES).map_err(trouble)?;
            t.open_table(ABOUT).map_err(trouble)?;
            t.open_table(STATE).map_err(trouble)?.insert("format", FORMAT).map_err(trouble)?;
            t.commit().map_err(trouble)?;
            drop(db);
            match fs::hard_link(&aside, &self.path) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(refused(e)),
                _ => Ok(()),
            }
        };
        let made = make();
        let _ = fs::remove_file(&aside);
        made
    }

    /// Renames a file that is of no use, and says so. `false` where that cannot be done.
    fn set_aside(&self, why: &str) -> bool {
        let mut to = self.path.clone().into_os_string();
        to.push(".corrupt");
        let done = fs::rename(&self.path, &to).is_ok();
        if done {
            eprintln!(
                "picograd: the cache {} cannot be used: {why}\nit is set aside as {}, and a new one is begun",
                self.path.display(),
                Path::new(&to).display()
            );
        }
        done
    }
}

/// A store in a file, for writing.
fn database(file: File) -> Done<Database> {
    let file = Unsynced::new(file).map_err(trouble)?;
    Builder::new().set_cache_size(PAGES).create_with_backend(file).map_err(trouble)
}

fn check_format(state: &impl ReadableTable<&'static str, u64>) -> Done<()> {
    match state.get("format").map_err(trouble)?.map(|v| v.value()) {
        Some(FORMAT) => Ok(()),
        Some(n) => Err(Trouble::Corrupt(format!("it is of format {n}, and this version of picograd uses {FORMAT}"))),
        None => Err(Trouble::Corrupt("it does not say its format".into())),
    }
}

/// Deletes what killed processes left unfinished.
fn sweep(dir: &Path) {
    let Ok(list) = fs::read_dir(dir) else { return };
    for file in list.flatten().filter(|f| f.file_name().to_str().is_some_and(|n| n.starts_with(".new-"))) {
        let old = |t: SystemTime| t.elapsed().is_ok_and(|age| age > STALE);
        if file.metadata().and_then(|m| m.modified()).is_ok_and(old) {
            let _ = fs::remove_file(file.path());
        }
    }
}
