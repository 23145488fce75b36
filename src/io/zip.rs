//! The subset of zip that npz needs: stored and deflated entries, with 64-bit sizes. Encryption and
//! multi-disk archives are not supported.
//!
//! Reading trusts no length: entries lie inside the file and together take no more bytes than it
//! has, the directory hides none of them and has the names that precede the contents, and inflated
//! data is limited by the declared size.

use crate::device::limits::LimitedBuffer;
use crate::error::{Error, Result};
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use std::io::{Read, Write};

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const END64_AT: u32 = 0x0706_4b50;
const ENTRY: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Largest compression ratio of deflate.
pub(crate) const MAX_RATIO: u64 = 1032;

/// One file of an archive.
pub(super) struct Entry<'a> {
    pub name: String,
    /// Bytes in the archive, possibly deflated.
    data: &'a [u8],
    method: u16,
    crc: u32,
    /// Declared size of the content.
    pub size: usize,
}

/// Reads little-endian numbers; `None` at the end of the bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }
}

/// Returns the archive from an offset on.
fn from(bytes: &[u8], at: u64) -> Option<Fields<'_>> {
    Some(Fields(bytes.get(usize::try_from(at).ok()?..)?))
}

/// Reads the entries of an archive, in the order of its directory.
pub(super) fn entries<'a>(at: &str, bytes: &'a [u8]) -> Result<Vec<Entry<'a>>> {
    let wrong = |msg: &str| Error::Format {
        at: at.to_string(),
        msg: format!("not a valid zip archive: {msg}"),
    };
    let (count, start, end) = directory(bytes).ok_or_else(|| wrong("no directory"))?;
    let inside = || bytes.get(usize::try_from(start).ok()?..end);
    let mut fields = Fields(inside().ok_or_else(|| wrong("its directory lies outside the file"))?);
    let mut out: Vec<Entry> = Vec::new();
    let mut remaining = bytes.len();
    for _ in 0..count {
        let e = entry(bytes, &mut fields)
            .ok_or_else(|| wrong("an entry of the directory lies outside the file"))?;
        let e = e.map_err(|msg| wrong(&msg))?;
        remaining =
            remaining.checked_sub(e.data.len()).ok_or_else(|| wrong("its entries overlap"))?;
        out.push(e);
    }
    // A directory that declares fewer entries than it contains would hide the others.
    if !fields.0.is_empty() || (count == 0 && end != 0) {
        return Err(wrong(&format!("its directory declares {count} entries and contains more")));
    }
    Ok(out)
}

/// Returns the number of entries, and the start and end of the directory.
fn directory(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    // A comment of at most 64 KiB follows the end record.
    let first = bytes.len().checked_sub(22)?;
    let end = (first.saturating_sub(0xffff)..=first)
        .rev()
        .find(|&i| bytes[i..].starts_with(&END.to_le_bytes()))?;
    let mut f = Fields(&bytes[end + 10..]);
    let (count, _size, start) = (f.u16()?, f.u32()?, f.u32()?);
    // Python writes a 64-bit record even if the numbers fit in 32 bits.
    let locator =
        end.checked_sub(20).filter(|&at| bytes[at..].starts_with(&END64_AT.to_le_bytes()));
    let Some(locator) = locator else { return Some((count.into(), start.into(), end)) };
    let end = Fields(&bytes[locator + 8..]).u64()?;
    let mut f = from(bytes, end)?;
    if f.u32()? != END64 {
        return None;
    }
    // The record ends at its locator; no entry can hide between them.
    if end.checked_add(12)?.checked_add(f.u64()?)? != locator as u64 {
        return None;
    }
    f.take(20)?;
    let (count, _size, start) = (f.u64()?, f.u64()?, f.u64()?);
    Some((count, start, usize::try_from(end).ok()?))
}

/// Reads the next entry of the directory: `None` if it lies outside the file, an error if it cannot
/// be read.
fn entry<'a>(bytes: &'a [u8], f: &mut Fields<'a>) -> Option<Result<Entry<'a>, String>> {
    if f.u32()? != ENTRY {
        return None;
    }
    f.take(4)?;
    let (flags, method, _time, crc) = (f.u16()?, f.u16()?, f.u32()?, f.u32()?);
    let (packed, size) = (f.u32()?, f.u32()?);
    let (name, extra, comment) = (f.u16()?, f.u16()?, f.u16()?);
    f.take(8)?;
    let local = f.u32()?;
    let name = f.take(name.into())?;
    let mut extra = Fields(f.take(extra.into())?);
    f.take(comment.into())?;
    let (mut packed, mut size, mut local) = (u64::from(packed), u64::from(size), u64::from(local));
    while let (Some(kind), Some(len)) = (extra.u16(), extra.u16()) {
        let mut field = Fields(extra.take(len.into())?);
        if kind == 1 {
            // The 64-bit record has the numbers that do not fit in 32 bits, in this order.
            for n in [&mut size, &mut packed, &mut local] {
                if *n == u64::from(u32::MAX) {
                    *n = field.u64()?;
                }
            }
        }
    }
    let mut at = from(bytes, local)?;
    if at.u32()? != LOCAL {
        return None;
    }
    at.take(22)?;
    let (name_len, extra_len) = (at.u16()?, at.u16()?);
    let local_name = at.take(name_len.into())?;
    at.take(extra_len.into())?;
    let data = at.take(usize::try_from(packed).ok()?)?;
    let entry = checked(name, data, flags, method, crc, size);
    // No checksum covers the names; both of them would have to be damaged alike.
    Some(entry.and_then(|e| match local_name == name {
        true => Ok(e),
        false => Err(format!("{} has another name before its content", e.name)),
    }))
}

fn checked<'a>(
    name: &[u8],
    data: &'a [u8],
    flags: u16,
    method: u16,
    crc: u32,
    size: u64,
) -> Result<Entry<'a>, String> {
    let name = String::from_utf8(name.to_vec()).map_err(|_| "a name is not UTF-8".to_string())?;
    if flags & 1 != 0 {
        return Err(format!("{name} is encrypted"));
    }
    let fits = match method {
        STORED => size == data.len() as u64,
        DEFLATED => size <= (data.len() as u64).saturating_mul(MAX_RATIO),
        other => {
            return Err(format!(
                "{name} uses compression method {other}; only stored and deflated entries are \
                 supported"
            ));
        }
    };
    if !fits {
        return Err(format!(
            "{name} cannot have {size} bytes: it takes {} in the archive",
            data.len()
        ));
    }
    Ok(Entry { name, data, method, crc, size: usize::try_from(size).map_err(|e| e.to_string())? })
}

impl<'a> Entry<'a> {
    /// Returns the content as a stream. [`Content::finish`] checks its size and checksum.
    pub(super) fn content(&self) -> Content<'_> {
        let from: Box<dyn Read + 'a> = if self.method == STORED {
            Box::new(self.data)
        } else {
            Box::new(DeflateDecoder::new(self.data))
        };
        Content { entry: self, from, crc: flate2::Crc::new(), read: 0 }
    }
}

/// A stream of the content of an entry, limited to the declared size.
pub(super) struct Content<'e> {
    entry: &'e Entry<'e>,
    from: Box<dyn Read + 'e>,
    crc: flate2::Crc,
    read: usize,
}

impl Read for Content<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(self.entry.size - self.read);
        if most == 0 {
            return Ok(0);
        }
        let n = self.from.read(&mut out[..most])?;
        self.crc.update(&out[..n]);
        self.read += n;
        Ok(n)
    }
}

impl Content<'_> {
    /// Reads the rest, then checks size and checksum.
    pub(super) fn finish(mut self, at: &str) -> Result<()> {
        let Entry { name, size, crc, .. } = self.entry;
        let wrong =
            |msg: String| Err(Error::Format { at: at.to_string(), msg: format!("{name}: {msg}") });
        let rest = std::io::copy(&mut self, &mut std::io::sink());
        match rest.and_then(|_| self.from.read(&mut [0])) {
            Err(e) => return wrong(format!("invalid deflate stream: {e}")),
            Ok(more) if self.read != *size || more != 0 => {
                return wrong(format!("its content does not have the declared {size} bytes"));
            }
            Ok(_) => {}
        }
        if self.crc.sum() != *crc {
            return wrong("its checksum is wrong".into());
        }
        Ok(())
    }
}

fn crc(parts: [&[u8]; 2]) -> u32 {
    let mut crc = flate2::Crc::new();
    parts.iter().for_each(|bytes| crc.update(bytes));
    crc.sum()
}

/// Writes an archive, entry by entry. All entries have the same date, so that equal contents give
/// equal archives.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    at: u64,
    count: u64,
    directory: Vec<u8>,
    /// Numbers from this value on are written as 64-bit fields. Tests lower it.
    long: u64,
}

/// 1 January 1980, the first date of the format.
const DATE: u32 = 0x0021_0000;

impl Writer<'_> {
    pub(super) fn new(out: &mut dyn Write) -> Writer<'_> {
        Writer { out, at: 0, count: 0, directory: Vec::new(), long: u32::MAX.into() }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Returns the 32-bit field of a number: the number, or the mark that a 64-bit field follows.
    fn short(&self, n: u64) -> [u8; 4] {
        if n >= self.long { [0xff; 4] } else { (n as u32).to_le_bytes() }
    }

    /// Returns the 64-bit record of the numbers that do not fit.
    fn extra(&self, numbers: &[u64]) -> Vec<u8> {
        let long: Vec<u8> =
            numbers.iter().filter(|n| **n >= self.long).flat_map(|n| n.to_le_bytes()).collect();
        let head = [1u16.to_le_bytes(), (long.len() as u16).to_le_bytes()].concat();
        if long.is_empty() { long } else { [head, long].concat() }
    }

    /// Adds a file with the concatenation of two slices as content.
    pub(super) fn add(
        &mut self,
        name: &str,
        content: [&[u8]; 2],
        compress: bool,
    ) -> std::io::Result<()> {
        let mut packed = LimitedBuffer::default();
        if compress {
            let mut encoder =
                DeflateEncoder::new(content[0].chain(content[1]), Compression::default());
            std::io::copy(&mut encoder, &mut packed)?;
        }
        let (method, data) =
            if compress { (DEFLATED, [packed.0.as_slice(), &[]]) } else { (STORED, content) };
        let name_len = u16::try_from(name.len())
            .map_err(|_| std::io::Error::other("a name of more than 65535 bytes"))?;
        let len = |parts: [&[u8]; 2]| (parts[0].len() + parts[1].len()) as u64;
        let (size, packed_size, local) = (len(content), len(data), self.at);
        // By the format, the 64-bit record of a local header has both sizes.
        let both = size.max(packed_size) >= self.long;
        let version: u16 = if both || local >= self.long { 45 } else { 20 };
        // Flag 11: the name is UTF-8.
        let mut common =
            [version.to_le_bytes(), 0x0800u16.to_le_bytes(), method.to_le_bytes()].concat();
        common.extend(DATE.to_le_bytes());
        common.extend(crc(content).to_le_bytes());
        let sizes = if both { [[0xff; 4]; 2] } else { [self.short(packed_size), self.short(size)] };
        let sizes64 =
            [&[1, 0, 16, 0][..], &size.to_le_bytes(), &packed_size.to_le_bytes()].concat();
        let local_extra = if both { sizes64 } else { Vec::new() };
        self.put(&LOCAL.to_le_bytes())?;
        self.put(&common)?;
        self.put(&sizes.concat())?;
        self.put(&name_len.to_le_bytes())?;
        self.put(&(local_extra.len() as u16).to_le_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&local_extra)?;
        self.put(data[0])?;
        self.put(data[1])?;

        let extra = self.extra(&[size, packed_size, local]);
        let mut d = ENTRY.to_le_bytes().to_vec();
        d.extend(version.to_le_bytes());
        d.extend(common);
        d.extend([self.short(packed_size), self.short(size)].concat());
        d.extend(name_len.to_le_bytes());
        d.extend((extra.len() as u16).to_le_bytes());
        // Comment length, disk number, attributes.
        d.extend([0; 10]);
        d.extend(self.short(local));
        d.extend(name.as_bytes());
        d.extend(extra);
        self.directory.extend(d);
        self.count += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> std::io::Result<()> {
        let (start, size, count) = (self.at, self.directory.len() as u64, self.count);
        let directory = std::mem::take(&mut self.directory);
        self.put(&directory)?;
        if count >= 0xffff || start.max(size) >= self.long {
            let end64 = self.at;
            self.put(&END64.to_le_bytes())?;
            self.put(&44u64.to_le_bytes())?;
            self.put(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
            for n in [count, count, size, start] {
                self.put(&n.to_le_bytes())?;
            }
            self.put(&END64_AT.to_le_bytes())?;
            self.put(&0u32.to_le_bytes())?;
            self.put(&end64.to_le_bytes())?;
            self.put(&1u32.to_le_bytes())?;
        }
        let count = u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
        let (size, start) = (self.short(size), self.short(start));
        self.put(&END.to_le_bytes())?;
        self.put(&[0; 4])?;
        self.put(&[count, count].concat())?;
        self.put(&[size, start].concat())?;
        self.put(&[0; 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entry: &Entry) -> Vec<u8> {
        let (mut content, mut out) = (entry.content(), Vec::new());
        content.read_to_end(&mut out).unwrap();
        content.finish("x").unwrap();
        out
    }

    /// A low limit writes 64-bit records for small archives.
    #[test]
    fn archives_with_64_bit_records_are_written_and_read() {
        for long in [0, 40, 150, u64::from(u32::MAX)] {
            let mut bytes = Vec::new();
            let mut w = Writer { long, ..Writer::new(&mut bytes) };
            let files = [
                ("a", vec![1; 100]),
                ("empty", vec![]),
                ("long", (0..=255).collect()),
                ("z", vec![7; 39]),
            ];
            files
                .iter()
                .for_each(|(name, content)| w.add(name, [content, &[]], name.len() == 4).unwrap());
            w.finish().unwrap();
            let read: Vec<(String, Vec<u8>)> =
                entries("x", &bytes).unwrap().iter().map(|e| (e.name.clone(), read(e))).collect();
            assert_eq!(
                read,
                files.map(|(n, c)| (n.to_string(), c)),
                "64-bit fields from {long} on"
            );
            if let Some(out) = std::env::var_os("KEEP_STATE") {
                std::fs::write(std::path::Path::new(&out).join(format!("{long}.zip")), &bytes)
                    .unwrap();
            }
        }
    }
}
