//! The tables of the store: values with their checksums, what is known about each, and the sum of all sizes.

use super::file::{ABOUT, Done, STATE, VALUES, trouble};
use super::{Entry, Key, hash128};
use redb::{ReadTransaction, ReadableTable, Table};

/// Entries used again within this many seconds are not marked as used again; that would only cost.
const MARK_AFTER: u64 = 3600;
/// What an entry takes beside its value, about.
const OVERHEAD: u64 = 96;
/// Bytes of a checksum, which stands before a value.
const SUM: usize = 16;

/// A state of the store that is being read.
pub(super) struct Reader<'a> {
    pub(super) transaction: &'a ReadTransaction,
    pub(super) now: u64,
    /// What was used, and not for a while before.
    pub(super) stale: Vec<Key>,
    pub(super) corrupt: usize,
}

impl Reader<'_> {
    pub(super) fn get(&mut self, key: Key) -> Done<Option<Vec<u8>>> {
        let values = self.transaction.open_table(VALUES).map_err(trouble)?;
        let Some(row) = values.get(key.0).map_err(trouble)? else { return Ok(None) };
        let Some(value) = checked(key, row.value()) else {
            self.corrupt += 1;
            return Ok(None);
        };
        let about = self.transaction.open_table(ABOUT).map_err(trouble)?;
        let used = about.get(key.0).map_err(trouble)?.map_or(0, |a| a.value().0);
        if self.now.saturating_sub(used) > MARK_AFTER {
            self.stale.push(key);
        }
        Ok(Some(value.to_vec()))
    }
}

/// What the tables say about an entry.
pub(super) struct Row {
    pub(super) key: Key,
    used: u64,
    pub(super) bytes: u64,
    pub(super) kind: u8,
}

/// The tables, being changed.
pub(super) struct Tables<'t> {
    values: Table<'t, u128, &'static [u8]>,
    about: Table<'t, u128, (u64, u64, u8, &'static str)>,
    state: Table<'t, &'static str, u64>,
    bytes: u64,
}

impl<'t> Tables<'t> {
    pub(super) fn open(t: &'t redb::WriteTransaction) -> Done<Tables<'t>> {
        let state = t.open_table(STATE).map_err(trouble)?;
        let bytes = state.get("bytes").map_err(trouble)?.map_or(0, |b| b.value());
        Ok(Tables { values: t.open_table(VALUES).map_err(trouble)?, about: t.open_table(ABOUT).map_err(trouble)?, state, bytes })
    }

    pub(super) fn insert(&mut self, entry: &Entry, now: u64) -> Done<()> {
        let row = [&checksum(entry.key, entry.value)[..], entry.value].concat();
        let bytes = size_of_entry(entry.value);
        self.values.insert(entry.key.0, &row[..]).map_err(trouble)?;
        let old = self.about.insert(entry.key.0, (now, bytes, entry.kind as u8, entry.device)).map_err(trouble)?;
        self.bytes = self.bytes.saturating_sub(old.map_or(0, |o| o.value().1)) + bytes;
        Ok(())
    }

    pub(super) fn remove(&mut self, key: Key) -> Done<()> {
        self.values.remove(key.0).map_err(trouble)?;
        let old = self.about.remove(key.0).map_err(trouble)?;
        self.bytes = self.bytes.saturating_sub(old.map_or(0, |o| o.value().1));
        Ok(())
    }

    pub(super) fn rows(&self) -> Done<Vec<Row>> {
        let mut rows = Vec::new();
        for row in self.about.iter().map_err(trouble)? {
            let (key, about) = row.map_err(trouble)?;
            let (used, bytes, kind, _) = about.value();
            rows.push(Row { key: Key(key.value()), used, bytes, kind });
        }
        Ok(rows)
    }

    /// Where there is more than the limit, deletes what was not used for longest, down to four fifths, so that the next write does not begin the same
    /// work again.
    pub(super) fn make_room(&mut self, limit: u64) -> Done<()> {
        if self.bytes <= limit {
            return Ok(());
        }
        let mut rows = self.rows()?;
        rows.sort_by_key(|r| (r.used, r.key));
        for row in rows {
            if self.bytes <= limit / 5 * 4 {
                break;
            }
            self.remove(row.key)?;
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> Done<()> {
        self.state.insert("bytes", self.bytes).map(drop).map_err(trouble)
    }
}

/// Notes that an entry was used now.
pub(super) fn mark(about: &mut Table<u128, (u64, u64, u8, &'static str)>, key: Key, now: u64) -> Done<()> {
    let old = about.get(key.0).map_err(trouble)?.map(|a| {
        let (_, bytes, kind, device) = a.value();
        (bytes, kind, device.to_string())
    });
    if let Some((bytes, kind, device)) = old {
        about.insert(key.0, (now, bytes, kind, device.as_str())).map_err(trouble)?;
    }
    Ok(())
}

pub(super) fn size_of_entry(value: &[u8]) -> u64 {
    value.len() as u64 + OVERHEAD
}

pub(super) fn checksum(key: Key, value: &[u8]) -> [u8; SUM] {
    // A second round keeps the sum apart from a plain hash of the value, and puts the key under it.
    hash128(&[key.0.to_le_bytes(), hash128(value).to_le_bytes()].concat()).to_le_bytes()
}

/// The value of a row, where it agrees with its checksum.
fn checked(key: Key, row: &[u8]) -> Option<&[u8]> {
    let (sum, value) = row.split_at_checked(SUM)?;
    (sum == checksum(key, value)).then_some(value)
}

/// The object and the name that an entry of a program names.
pub(super) fn read_program(value: &[u8]) -> Option<(Key, String)> {
    let (object, symbol) = value.split_first_chunk::<16>()?;
    Some((Key(u128::from_le_bytes(*object)), String::from_utf8(symbol.to_vec()).ok()?))
}
