//! Loads a relocatable object (ELF64, x86-64) into memory. In come the bytes that a compiler wrote,
//! or that the disk kept; out comes [`Code`], whose symbols can be called, or an error.
//!
//! What holds: no field of the object is trusted, so a damaged one is an error and never a fault of
//! the loader (running it is another matter: the cache checks sums before). No page is ever
//! writable and executable: code is read and execute, constants read, and variables read and write.
//! All of it is unmapped when the `Code` is dropped.
//!
//! The linker and `dlopen` that this replaces cost as much again as the compiler. Left out on
//! purpose, each with an error: thread-local and common symbols, constructors, indirect functions,
//! other machines.

use crate::error::{Error, Result};
use rustc_hash::FxHashMap;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// More than any kernel needs. Also keeps every distance inside the mapping far below the 2 GiB
/// that a 32-bit displacement spans.
const MOST_BYTES: usize = 64 << 20;
/// `jmp *[rip + 0]`; the address to go to follows.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const STUB: usize = 16;
const SLOT: usize = 8;

const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHT_REL: u32 = 9;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHF_TLS: u64 = 0x400;

/// Loaded machine code and its data.
#[derive(Debug)]
pub struct Code {
    map: Mapping,
    /// Where the code begins and how long it is, without the jumps to outside functions.
    text: (usize, usize),
    symbols: FxHashMap<String, usize>,
}

// SAFETY: after loading, code and constants are read-only. Variables of the object are writable,
// but only by its code, and calling that is unsafe already: the caller answers for what two threads
// do in it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Loads an object.
    pub fn load(object: &[u8]) -> Result<Code> {
        load(object)
            .map_err(|msg| Error::Compile { msg: format!("object: {msg}"), source_at: None })
    }

    /// The address of a global symbol of the object. It is valid as long as the `Code` lives.
    pub fn symbol(&self, name: &str) -> Option<*const u8> {
        // SAFETY: the loader checked that the offset lies in the mapping (or one past a section's
        // end, which is in it as well).
        self.symbols.get(name).map(|&at| unsafe { self.map.base.add(at) }.as_ptr().cast_const())
    }

    /// The machine code, for a disassembler.
    pub fn text(&self) -> &[u8] {
        let (at, len) = self.text;
        // SAFETY: the range is the code part of the mapping, which is readable and does not change
        // any more.
        unsafe { std::slice::from_raw_parts(self.map.base.add(at).as_ptr(), len) }
    }
}

type Checked<T> = std::result::Result<T, String>;

/// The three parts of the mapping, by what their pages may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Code,
    Constants,
    Variables,
}

#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
    /// Its place in the mapping, where it has one.
    at: Option<usize>,
}

/// Reads numbers out of the object; every read is checked.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&self, at: u64, len: u64) -> Checked<&'a [u8]> {
        let end = at.checked_add(len).ok_or("a length wraps around")?;
        let range = usize::try_from(at).ok().zip(usize::try_from(end).ok());
        range
            .and_then(|(at, end)| self.0.get(at..end))
            .ok_or_else(|| format!("bytes {at} to {end} lie past its end ({})", self.0.len()))
    }

    fn array<const N: usize>(&self, at: u64) -> Checked<[u8; N]> {
        Ok(self.bytes(at, N as u64)?.try_into().expect("the slice has this length"))
    }

    fn u16(&self, at: u64) -> Checked<u16> {
        Ok(u16::from_le_bytes(self.array(at)?))
    }

    fn u32(&self, at: u64) -> Checked<u32> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    fn u64(&self, at: u64) -> Checked<u64> {
        Ok(u64::from_le_bytes(self.array(at)?))
    }
}

#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    binding: u8,
    kind: u8,
    section: u16,
    value: u64,
}

/// A parsed object, before anything is placed.
struct Object<'a> {
    bytes: Reader<'a>,
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
    names: &'a [u8],
    /// Which section the symbols are in; relocations must refer to it.
    symbol_section: usize,
}

impl<'a> Object<'a> {
    fn parse(bytes: &'a [u8]) -> Checked<Object<'a>> {
        let r = Reader(bytes);
        let ident: [u8; 16] =
            r.array(0).map_err(|_| format!("{} bytes are no object", bytes.len()))?;
        if ident[..4] != *b"\x7fELF" {
            return Err("not in the ELF format".into());
        }
        if ident[4..7] != [2, 1, 1] {
            return Err("not 64-bit little-endian ELF".into());
        }
        if r.u16(0x10)? != 1 {
            return Err("not relocatable".into());
        }
        match r.u16(0x12)? {
            62 if cfg!(target_arch = "x86_64") => (),
            62 => return Err("made for x86-64, which this machine is not".into()),
            183 => {
                return Err("made for arm64, which this loader does not know yet; DEV=INTERP \
                            works everywhere"
                    .into());
            }
            other => {
                return Err(format!("made for machine {other}, which this loader does not know"));
            }
        }
        let (table, count) = (r.u64(0x28)?, r.u16(0x3c)?);
        if r.u16(0x3a)? != 64 || count == 0 {
            return Err("no table of sections".into());
        }
        r.bytes(table, u64::from(count) * 64)?;
        let sections = (0..u64::from(count))
            .map(|i| Section::parse(&r, table + i * 64))
            .collect::<Checked<Vec<_>>>()?;
        let symbol_section =
            sections.iter().position(|s| s.kind == SHT_SYMTAB).ok_or("no symbols")?;
        let table = sections[symbol_section];
        if table.entry_size != 24 {
            return Err("symbols of an unknown size".into());
        }
        let raw = r.bytes(table.offset, table.size)?.chunks_exact(24);
        let symbols = raw
            .map(|e| {
                let e = Reader(e);
                let [info] = e.array(4)?;
                Ok(Symbol {
                    name: e.u32(0)?,
                    binding: info >> 4,
                    kind: info & 15,
                    section: e.u16(6)?,
                    value: e.u64(8)?,
                })
            })
            .collect::<Checked<Vec<_>>>()?;
        let names =
            sections.get(table.link as usize).ok_or("the names of the symbols are missing")?;
        let names = r.bytes(names.offset, names.size)?;
        Ok(Object { bytes: r, sections, symbols, names, symbol_section })
    }

    fn name(&self, symbol: &Symbol) -> Checked<&'a str> {
        let rest = self
            .names
            .get(symbol.name as usize..)
            .ok_or("a name lies outside the table of names")?;
        let end = rest.iter().position(|&b| b == 0).ok_or("a name has no end")?;
        std::str::from_utf8(&rest[..end]).map_err(|_| "a name is not text".into())
    }
}

impl Section {
    fn parse(r: &Reader, at: u64) -> Checked<Section> {
        Ok(Section {
            kind: r.u32(at + 4)?,
            flags: r.u64(at + 8)?,
            offset: r.u64(at + 0x18)?,
            size: r.u64(at + 0x20)?,
            link: r.u32(at + 0x28)?,
            info: r.u32(at + 0x2c)?,
            align: r.u64(at + 0x30)?,
            entry_size: r.u64(at + 0x38)?,
            at: None,
        })
    }

    /// The part of the mapping that the section goes to; `None` where it is not loaded.
    fn part(&self) -> Checked<Option<Part>> {
        if self.flags & SHF_ALLOC == 0 {
            return Ok(None);
        }
        if self.flags & SHF_TLS != 0 {
            return Err("thread-local variables are not supported".into());
        }
        match self.kind {
            14..=16 => Err("constructors are not supported".into()),
            _ if self.flags & SHF_EXECINSTR != 0 && self.flags & SHF_WRITE != 0 => {
                Err("a section is writable and executable".into())
            }
            _ if self.flags & SHF_EXECINSTR != 0 => Ok(Some(Part::Code)),
            _ if self.flags & SHF_WRITE != 0 => Ok(Some(Part::Variables)),
            _ => Ok(Some(Part::Constants)),
        }
    }
}

/// Hands out places in the mapping, from its start on.
struct Layout {
    end: usize,
}

impl Layout {
    fn place(&mut self, size: u64, align: u64) -> Checked<usize> {
        let align =
            usize::try_from(align.max(1)).ok().filter(|a| a.is_power_of_two() && *a <= page());
        let align = align.ok_or("an alignment is no power of two or above a page")?;
        let at = self.end.next_multiple_of(align);
        let end = usize::try_from(size)
            .ok()
            .and_then(|size| at.checked_add(size))
            .filter(|&end| end <= MOST_BYTES);
        self.end = end.ok_or_else(|| format!("larger than {MOST_BYTES} bytes"))?;
        Ok(at)
    }

    /// Ends a part: the next one begins on a page of its own.
    fn turn_page(&mut self) {
        self.end = self.end.next_multiple_of(page());
    }
}

fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: asks for a number.
    *PAGE.get_or_init(|| {
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    })
}

/// Pages of our own, unmapped on drop. Every write goes through a bounds check.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> Checked<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the system's choice touches no memory of
        // ours.
        let p = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        match NonNull::new(p.cast()) {
            Some(base) if p != libc::MAP_FAILED => Ok(Mapping { base, len }),
            _ => Err(format!("no memory for it: {}", std::io::Error::last_os_error())),
        }
    }

    /// The bytes, for writing; only while the pages are writable, which is before the first
    /// `protect`.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, is zeroed by the system and ours alone; `load`
        // protects it only after its last write.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Checked<()> {
        let end = at.checked_add(bytes.len());
        let place = end
            .and_then(|end| self.bytes().get_mut(at..end))
            .ok_or("a write past the end of the mapping")?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn address(&self, at: usize) -> u64 {
        self.base.as_ptr() as u64 + at as u64
    }

    fn protect(&self, from: usize, to: usize, protection: i32) -> Checked<()> {
        if from == to {
            return Ok(());
        }
        assert!(
            from < to && to <= self.len && from.is_multiple_of(page()) && to.is_multiple_of(page())
        );
        // SAFETY: the range is whole pages of this mapping, and no reference into it is alive.
        match unsafe { libc::mprotect(self.base.add(from).as_ptr().cast(), to - from, protection) }
        {
            0 => Ok(()),
            _ => Err(format!("its pages cannot be protected: {}", std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and goes away with the value that owns it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Where a symbol is.
#[derive(Clone, Copy)]
enum Place {
    /// At this offset in the mapping.
    Here(usize),
    /// At this address, outside of the mapping.
    Outside(u64),
}

/// What the relocations need: the object, its places, and the stubs and slots for outside symbols.
struct Linker<'a> {
    object: &'a Object<'a>,
    map: Mapping,
    stubs: FxHashMap<u32, usize>,
    slots: FxHashMap<u32, usize>,
    next_stub: usize,
    next_slot: usize,
}

impl Linker<'_> {
    fn symbol(&self, index: u32) -> Checked<Place> {
        let symbol = self
            .object
            .symbols
            .get(index as usize)
            .ok_or("a relocation to a symbol that does not exist")?;
        match symbol.section {
            0 if index == 0 => Ok(Place::Outside(0)),
            0 => {
                let name = self.object.name(symbol)?;
                match outside(name) {
                    Some(address) => Ok(Place::Outside(address)),
                    // A weak symbol may be absent; its users test it for null.
                    None if symbol.binding == 2 => Ok(Place::Outside(0)),
                    None => Err(format!("no library of this process has `{name}`")),
                }
            }
            _ => place(self.object, symbol),
        }
    }

    fn stub(&mut self, index: u32, address: u64) -> Checked<usize> {
        if let Some(&at) = self.stubs.get(&index) {
            return Ok(at);
        }
        let at = self.next_stub;
        self.map.write(at, &JUMP)?;
        self.map.write(at + JUMP.len(), &address.to_le_bytes())?;
        self.next_stub += STUB;
        self.stubs.insert(index, at);
        Ok(at)
    }

    fn slot(&mut self, index: u32, address: u64) -> Checked<usize> {
        if let Some(&at) = self.slots.get(&index) {
            return Ok(at);
        }
        let at = self.next_slot;
        self.map.write(at, &address.to_le_bytes())?;
        self.next_slot += SLOT;
        self.slots.insert(index, at);
        Ok(at)
    }

    fn relocate(&mut self, r: &Relocation, section: &Section, section_at: usize) -> Checked<()> {
        let width: u64 = if matches!(r.kind, 1 | 24) { 8 } else { 4 };
        if r.offset.checked_add(width).is_none_or(|end| end > section.size) {
            return Err("a relocation lies outside its section".into());
        }
        let at = section_at + r.offset as usize;
        let from = self.map.address(at);
        let place = self.symbol(r.symbol)?;
        let address = match place {
            Place::Here(at) => self.map.address(at),
            Place::Outside(address) => address,
        };
        let target = match (r.kind, place) {
            (1 | 10 | 11 | 24, _) | (2 | 4, Place::Here(_)) => address,
            // The function may be farther away than a call reaches, so the call goes to a jump
            // nearby.
            (4, Place::Outside(address)) => {
                let stub = self.stub(r.symbol, address)?;
                self.map.address(stub)
            }
            (2, Place::Outside(_)) => return Err("outside data without -fPIC".into()),
            (9 | 41 | 42, _) => {
                let slot = self.slot(r.symbol, address)?;
                self.map.address(slot)
            }
            (kind, _) => return Err(format!("unknown relocation {kind}")),
        };
        let absolute = target.wrapping_add_signed(r.addend);
        let relative = absolute.wrapping_sub(from).cast_signed();
        let too_far = |_| format!("relocation {} does not reach its target", r.kind);
        match r.kind {
            1 => self.map.write(at, &absolute.to_le_bytes()),
            24 => self.map.write(at, &relative.to_le_bytes()),
            10 => self.map.write(at, &u32::try_from(absolute).map_err(too_far)?.to_le_bytes()),
            11 => self
                .map
                .write(at, &i32::try_from(absolute.cast_signed()).map_err(too_far)?.to_le_bytes()),
            _ => self.map.write(at, &i32::try_from(relative).map_err(too_far)?.to_le_bytes()),
        }
    }
}

struct Relocation {
    offset: u64,
    kind: u32,
    symbol: u32,
    addend: i64,
}

/// The place of a symbol that the object defines.
fn place(object: &Object, symbol: &Symbol) -> Checked<Place> {
    if matches!(symbol.kind, 6 | 10) {
        return Err("thread-local symbols and indirect functions are not supported".into());
    }
    match symbol.section {
        0xfff1 => Ok(Place::Outside(symbol.value)),
        0xfff2 => Err("common symbols are not supported: compile with -fno-common".into()),
        index => {
            let section = object
                .sections
                .get(usize::from(index))
                .ok_or("a symbol in a section that does not exist")?;
            let at = section.at.ok_or("a symbol in a section that is not loaded")?;
            if symbol.value > section.size {
                return Err("a symbol lies outside its section".into());
            }
            Ok(Place::Here(at + symbol.value as usize))
        }
    }
}

/// The address of a function of the C library, of the maths library or of the compiler's own
/// helpers.
fn outside(name: &str) -> Option<u64> {
    static MORE: OnceLock<Vec<usize>> = OnceLock::new();
    let name = CString::new(name).ok()?;
    // The two are usually in the process already, but nothing obliges the linker to keep a library
    // that the binary does not call.
    let more = MORE.get_or_init(|| {
        let files = [c"libm.so.6", c"libgcc_s.so.1"];
        // SAFETY: opens system libraries, whose initialisers are harmless; the handles are kept for
        // the life of the process.
        files
                .iter()
                .map(|f| unsafe { libc::dlopen(f.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
                    as usize)
                .collect()
    });
    let handles = std::iter::once(libc::RTLD_DEFAULT)
        .chain(more.iter().filter(|h| **h != 0).map(|h| *h as *mut libc::c_void));
    // SAFETY: the handles are the default one or open; the name ends in a null byte.
    handles.map(|h| unsafe { libc::dlsym(h, name.as_ptr()) } as u64).find(|&p| p != 0)
}

fn relocations<'a>(
    object: &'a Object,
    table: &Section,
) -> Checked<impl Iterator<Item = Checked<Relocation>> + use<'a>> {
    if table.entry_size != 24 || table.link as usize != object.symbol_section {
        return Err("a table of relocations that does not belong".into());
    }
    let raw = object.bytes.bytes(table.offset, table.size)?.chunks_exact(24);
    Ok(raw.map(|e| {
        let e = Reader(e);
        let info = e.u64(8)?;
        let addend = e.u64(16)?.cast_signed();
        Ok(Relocation { offset: e.u64(0)?, kind: info as u32, symbol: (info >> 32) as u32, addend })
    }))
}

fn load(bytes: &[u8]) -> Checked<Code> {
    let mut object = Object::parse(bytes)?;
    let parts = object.sections.iter().map(Section::part).collect::<Checked<Vec<_>>>()?;
    // Every relocation could need a stub or a slot of its own; their number is bounded by the bytes
    // that hold them.
    let tables = object.sections.iter().filter(|s| s.kind == SHT_RELA);
    let entries: u64 = tables
        .map(|s| s.size.min(bytes.len() as u64) / 24)
        .sum::<u64>()
        .min(object.symbols.len() as u64);

    let mut layout = Layout { end: 0 };
    let mut place_part = |part: Part, layout: &mut Layout| {
        for (section, _) in
            object.sections.iter_mut().zip(&parts).filter(|(_, p)| **p == Some(part))
        {
            section.at = Some(layout.place(section.size, section.align)?);
        }
        Ok::<_, String>(())
    };
    place_part(Part::Code, &mut layout)?;
    let text = (0, layout.end);
    let stubs = layout.place(entries * STUB as u64, STUB as u64)?;
    layout.turn_page();
    let code_end = layout.end;
    place_part(Part::Constants, &mut layout)?;
    let slots = layout.place(entries * SLOT as u64, SLOT as u64)?;
    layout.turn_page();
    let constants_end = layout.end;
    place_part(Part::Variables, &mut layout)?;
    layout.turn_page();

    // One page more, so that a symbol at the very end of the last section is still an address of
    // the mapping.
    let mut map = Mapping::new(layout.end + page())?;
    // What lies between functions is never meant to run: a jump there should stop.
    map.bytes()[..code_end].fill(0xcc);
    for section in &object.sections {
        if let (Some(at), true) = (section.at, section.kind != SHT_NOBITS) {
            map.write(at, object.bytes.bytes(section.offset, section.size)?)?;
        }
    }

    let (stub_map, slot_map) = (FxHashMap::default(), FxHashMap::default());
    let mut linker = Linker {
        object: &object,
        map,
        stubs: stub_map,
        slots: slot_map,
        next_stub: stubs,
        next_slot: slots,
    };
    for table in object.sections.iter().filter(|s| matches!(s.kind, SHT_RELA | SHT_REL)) {
        let target = object
            .sections
            .get(table.info as usize)
            .ok_or("relocations of a section that does not exist")?;
        // Debug information is not loaded, so neither is what points into it.
        let Some(target_at) = target.at else { continue };
        if table.kind == SHT_REL || target.kind == SHT_NOBITS {
            return Err("relocations of a kind that this machine does not have".into());
        }
        for relocation in relocations(&object, table)? {
            linker.relocate(&relocation?, target, target_at)?;
        }
    }

    let mut symbols = FxHashMap::default();
    for symbol in object
        .symbols
        .iter()
        .filter(|s| matches!(s.binding, 1 | 2) && s.section != 0 && s.kind <= 2)
    {
        if let Place::Here(at) = place(&object, symbol)? {
            symbols.insert(object.name(symbol)?.to_string(), at);
        }
    }
    let map = linker.map;
    map.protect(0, code_end, libc::PROT_READ | libc::PROT_EXEC)?;
    map.protect(code_end, constants_end, libc::PROT_READ)?;
    Ok(Code { map, text, symbols })
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests;
