//! The file of an entry. Its name is the key; it contains a format, a MAC, a kind, a device and the
//! value.
//!
//! ```text
//! "picograd" · format u8 · MAC [u8; 32] · kind u8 · length of the device's name u8 · name · value
//! ```
//!
//! The MAC is a keyed hash over the key and all that follows it. An entry with a wrong MAC was
//! damaged, or was not written by this user; its value is not used. The modification time of the
//! file is the time of the last use.

use super::folder::{Folder, NEW, c_name, new_name};
use super::hash::{MAC_LEN, mac};
use super::{CacheEntry, CacheKey, EntryKind};
use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 9] = b"picograd\x02";
const HEAD: usize = MAGIC.len() + MAC_LEN;
/// Maximum bytes of an entry that is written or read.
pub(super) const MAX_ENTRY_BYTES: u64 = 256 << 20;
/// The suffix of corrupt entries.
pub(super) const CORRUPT: &str = ".corrupt";
/// Minimum age of the recorded time of use before it is updated: updating it at each use would only
/// take time.
const MARK_AFTER: Duration = Duration::from_secs(3600);

/// The result of reading an entry.
pub(super) enum Found {
    Value(Vec<u8>),
    Nothing,
    /// It exists, and its MAC is wrong.
    Corrupt,
}

/// Returns the bytes of the file of an entry.
pub(super) fn size_of_entry(entry: &CacheEntry) -> u64 {
    (HEAD + 2 + entry.device.len().min(255) + entry.value.len()) as u64
}

/// Reads an entry, and marks it as used at a time.
pub(super) fn read(folder: &Folder, key: CacheKey, now: SystemTime) -> Found {
    let Ok(name) = c_name(&key.to_string()) else { return Found::Nothing };
    let mut file = match folder.read(&name) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Found::Nothing,
        // A link, or a file of another user.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return Found::Corrupt,
        Err(_) => return Found::Nothing,
    };
    let mut bytes = Vec::new();
    let Ok(meta) = file.metadata() else { return Found::Nothing };
    // No entry is that long, and the MAC can be checked only after reading all of it.
    if meta.len() > MAX_ENTRY_BYTES {
        rename_corrupt(folder, key);
        return Found::Corrupt;
    }
    if bytes.try_reserve_exact(meta.len() as usize).is_err()
        || (&mut file).take(meta.len()).read_to_end(&mut bytes).is_err()
    {
        return Found::Nothing;
    }
    let Some((_, _, value)) = opened(folder, key, &bytes) else {
        rename_corrupt(folder, key);
        return Found::Corrupt;
    };
    let start = bytes.len() - value.len();
    if meta.modified().is_ok_and(|t| now.duration_since(t).is_ok_and(|age| age > MARK_AFTER)) {
        // If it fails, the entry only appears less recently used.
        let _ = file.set_modified(now);
    }
    bytes.drain(..start);
    Found::Value(bytes)
}

/// Returns the kind, the device and the value of a file with a correct MAC.
fn opened<'a>(
    folder: &Folder,
    key: CacheKey,
    bytes: &'a [u8],
) -> Option<(EntryKind, &'a str, &'a [u8])> {
    let (stored, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<MAC_LEN>()?;
    let (kind, device) = parse_header(rest)?;
    let (head, value) = rest.split_at_checked(2 + device.len())?;
    // Compared in constant time.
    (mac(&folder.secret, key, head, value) == *stored).then_some((kind, device, value))
}

/// Returns the kind and the device, at the start of the authenticated part.
fn parse_header(rest: &[u8]) -> Option<(EntryKind, &str)> {
    let [kind, len, rest @ ..] = rest else { return None };
    let device = std::str::from_utf8(rest.get(..usize::from(*len))?).ok()?;
    Some((*EntryKind::ALL.get(usize::from(*kind))?, device))
}

/// Renames a corrupt entry, so that it can be inspected.
fn rename_corrupt(folder: &Folder, key: CacheKey) {
    if let (Ok(from), Ok(to)) = (c_name(&key.to_string()), c_name(&format!("{key}{CORRUPT}"))) {
        let _ = folder.rename(&from, &to);
    }
}

/// Writes an entry. A process that lists the folder between the creation of the new file and its
/// lock takes the file for an abandoned one and removes it; then the entry is written again.
pub(super) fn write(folder: &Folder, entry: &CacheEntry, now: SystemTime) -> io::Result<()> {
    const TRIES: usize = 8;
    let is_lost =
        |done: &io::Result<()>| matches!(done, Err(e) if e.kind() == io::ErrorKind::NotFound);
    let mut done = write_once(folder, entry, now);
    for _ in 1..TRIES {
        if !is_lost(&done) {
            break;
        }
        done = write_once(folder, entry, now);
    }
    done
}

/// Writes an entry into a new file, which then takes its name.
fn write_once(folder: &Folder, entry: &CacheEntry, now: SystemTime) -> io::Result<()> {
    let (new, name) = (c_name(&new_name())?, c_name(&entry.key.to_string())?);
    let mut file = folder.create(&new)?;
    // The lock ends with the process, which identifies unfinished files.
    let _ = file.try_lock();
    let device = entry.device.get(..entry.device.len().min(255)).unwrap_or_default();
    let head = [&[entry.kind as u8, device.len() as u8], device.as_bytes()].concat();
    let mac = mac(&folder.secret, entry.key, &head, entry.value);
    let mut put = || {
        file.write_all(&[MAGIC, mac.as_bytes().as_slice(), &head].concat())?;
        file.write_all(entry.value)?;
        file.set_modified(now)?;
        folder.rename(&new, &name)
    };
    let done = put();
    if done.is_err() {
        let _ = folder.remove(&new);
    }
    done
}

/// A file of the folder.
pub(super) struct Listed {
    /// The key; `None` for a corrupt entry.
    pub(super) key: Option<CacheKey>,
    pub(super) name: String,
    pub(super) used: SystemTime,
    pub(super) bytes: u64,
}

/// Returns the entries of a folder, and the corrupt ones. Unfinished files of killed processes are
/// deleted.
pub(super) fn list(folder: &Folder) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    for file in fs::read_dir(&folder.path)?.flatten() {
        let Ok(name) = file.file_name().into_string() else { continue };
        if name.starts_with(NEW) {
            remove_unfinished(folder, &name);
            continue;
        }
        let Ok(meta) = file.metadata() else { continue };
        let stem = name.strip_suffix(CORRUPT).unwrap_or(&name);
        let Some(key) = (stem.len() == 32).then(|| u128::from_str_radix(stem, 16).ok()).flatten()
        else {
            continue;
        };
        let key = (stem.len() == name.len()).then_some(CacheKey(key));
        found.push(Listed {
            key,
            name,
            used: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            bytes: meta.len(),
        });
    }
    Ok(found)
}

/// Deletes an unfinished file whose process has ended, so that its lock is free.
fn remove_unfinished(folder: &Folder, name: &str) {
    let Ok(name) = c_name(name) else { return };
    if folder.read(&name).is_ok_and(|file| file.try_lock().is_ok()) {
        let _ = folder.remove(&name);
    }
}

/// Returns the kind and the device of an entry.
pub(super) fn describe(folder: &Folder, name: &str) -> Option<(EntryKind, String)> {
    let mut file = folder.read(&c_name(name).ok()?).ok()?;
    file.seek(SeekFrom::Start(HEAD as u64)).ok()?;
    let mut rest = Vec::new();
    file.take(2 + 255).read_to_end(&mut rest).ok()?;
    parse_header(&rest).map(|(kind, device)| (kind, device.to_string()))
}
