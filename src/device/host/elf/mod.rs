//! Loads a relocatable object (ELF64, x86-64 or arm64) into memory. The input is the output of a
//! compiler or an entry of the disk cache; the output is [`Code`], whose symbols can be called, or
//! an error.
//!
//! | file | contents |
//! |---|---|
//! | `parse` | the object's sections, symbols and relocations |
//! | `link` | symbols, stubs, slots |
//! | `x86_64`, `aarch64` | relocations |
//!
//! Invariants: no field of the object is trusted, so a malformed object is an error (running
//! damaged code is not prevented here: the disk cache verifies its entries). No page is ever
//! writable and executable: code is read-execute, constants are read-only, variables read-write.
//! Dropping the `Code` unmaps everything.
//!
//! This replaces a linker run and `dlopen`, which take as long as the compiler. Thread-local and
//! common symbols, constructors, indirect functions and other machines are errors.

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
mod link;
mod parse;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

use super::code::{Checked, Layout, Mapping};
use crate::error::{Error, Result};
use crate::os::page_bytes;
use link::{Linker, SLOT, STUB, SymbolAddress};
use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{SectionHeader, Sym};
use parse::{Object, Segment, segment_of};
use rustc_hash::FxHashMap;

/// Loaded machine code and its data.
#[derive(Debug)]
pub struct Code {
    map: Mapping,
    /// Offset and length of the code, without the stubs.
    text: (usize, usize),
    symbols: FxHashMap<String, usize>,
}

// SAFETY: after loading, code and constants are read-only. Only the object's code writes its
// variables, and calling it is unsafe: the caller ensures that threads do not race.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Loads an object.
    pub fn load(object: &[u8]) -> Result<Code> {
        load(object).map_err(|msg| Error::compile(format!("object: {msg}")))
    }

    /// Returns the address of a global symbol of the object. It is valid as long as the `Code`
    /// lives.
    pub fn symbol(&self, name: &str) -> Option<*const u8> {
        // SAFETY: the loader checked that the offset lies in the mapping (or one past a section's
        // end, which is in it as well).
        self.symbols.get(name).map(|&at| unsafe { self.map.base.add(at) }.as_ptr().cast_const())
    }

    /// Returns the machine code, for a disassembler.
    pub fn text(&self) -> &[u8] {
        let (at, len) = self.text;
        // SAFETY: the range is the code part of the mapping, which is readable and immutable.
        unsafe { std::slice::from_raw_parts(self.map.base.add(at).as_ptr(), len) }
    }
}

/// Offsets of sections and segments in the mapping.
struct SectionOffsets {
    /// Offset of each loaded section.
    sections: Vec<Option<usize>>,
    /// End of the code without stubs.
    text_end: usize,
    stubs: usize,
    code_end: usize,
    slots: usize,
    constants_end: usize,
    end: usize,
}

/// Assigns offsets: code and stubs, then constants and slots, then variables.
fn place_sections(object: &Object, bytes: usize) -> Checked<SectionOffsets> {
    let parts = object.sections.iter().map(segment_of).collect::<Checked<Vec<_>>>()?;
    // Every relocation may need a stub or a slot of its own; their number is bounded by the bytes
    // that hold them.
    let tables = object.sections.iter().filter(|s| s.sh_type(LE) == elf::SHT_RELA);
    let entries: u64 = tables
        .map(|s| s.sh_size(LE).min(bytes as u64) / 24)
        .sum::<u64>()
        .min(object.symbols.len() as u64);
    let mut sections = vec![None; parts.len()];
    let mut layout = Layout { end: 0 };
    let mut place_part = |part: Segment, layout: &mut Layout| {
        for ((section, at), of) in object.sections.iter().zip(&mut sections).zip(&parts) {
            if *of == Some(part) {
                *at = Some(layout.place(section.sh_size(LE), section.sh_addralign(LE))?);
            }
        }
        Ok::<_, String>(())
    };
    place_part(Segment::Code, &mut layout)?;
    let text_end = layout.end;
    let stubs = layout.place(entries * STUB as u64, STUB as u64)?;
    layout.end_segment();
    let code_end = layout.end;
    place_part(Segment::Constants, &mut layout)?;
    let slots = layout.place(entries * SLOT as u64, SLOT as u64)?;
    layout.end_segment();
    let constants_end = layout.end;
    place_part(Segment::Variables, &mut layout)?;
    layout.end_segment();
    Ok(SectionOffsets {
        sections,
        text_end,
        stubs,
        code_end,
        slots,
        constants_end,
        end: layout.end,
    })
}

fn load(bytes: &[u8]) -> Checked<Code> {
    let object = Object::parse(bytes)?;
    let placement = place_sections(&object, bytes.len())?;
    // One page more, so that a symbol at the end of the last section is an address of the mapping.
    let mut map = Mapping::new(placement.code_end, placement.end + page_bytes())?;
    // A jump between functions hits a breakpoint instruction on x86-64, and an undefined one, of
    // zeros, on arm64.
    if cfg!(target_arch = "x86_64") {
        map.bytes()[..placement.code_end].fill(0xcc);
    }
    for (section, at) in object.sections.iter().zip(&placement.sections) {
        if let (Some(at), true) = (at, section.sh_type(LE) != elf::SHT_NOBITS) {
            map.write(*at, object.data(section)?)?;
        }
    }
    let mut linker = Linker {
        object: &object,
        placed: &placement.sections,
        map,
        stubs: FxHashMap::default(),
        slots: FxHashMap::default(),
        next_stub: placement.stubs,
        next_slot: placement.slots,
    };
    relocate_all(&mut linker)?;
    let symbols = global_symbols(&linker)?;
    let mut map = linker.map;
    map.protect(placement.constants_end)?;
    Ok(Code { map, text: (0, placement.text_end), symbols })
}

/// Applies the relocations of every loaded section.
fn relocate_all(linker: &mut Linker) -> Checked<()> {
    let object = linker.object;
    for table in object.sections.iter() {
        if !matches!(table.sh_type(LE), elf::SHT_RELA | elf::SHT_REL) {
            continue;
        }
        let index = table.sh_info(LE) as usize;
        let target = object.sections.iter().nth(index);
        let target = target.ok_or("relocations of a section that does not exist")?;
        // Debug information is not loaded.
        let Some(target_at) = linker.placed[index] else { continue };
        if table.sh_type(LE) == elf::SHT_REL || target.sh_type(LE) == elf::SHT_NOBITS {
            return Err("relocations of a kind that this machine does not have".into());
        }
        for relocation in object.relocations(table)? {
            linker.relocate(relocation, target, target_at)?;
        }
    }
    Ok(())
}

/// Offsets of the global functions and variables that the object defines.
fn global_symbols(linker: &Linker) -> Checked<FxHashMap<String, usize>> {
    let mut symbols = FxHashMap::default();
    for symbol in linker.object.symbols.iter() {
        let global = matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK);
        let kind = matches!(symbol.st_type(), elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC);
        if !global || !kind || symbol.st_shndx(LE) == elf::SHN_UNDEF {
            continue;
        }
        if let SymbolAddress::Mapped(at) = linker.place(symbol)? {
            symbols.insert(linker.object.name(symbol)?.to_string(), at);
        }
    }
    Ok(symbols)
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
