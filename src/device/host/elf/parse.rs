//! Parses a relocatable object with the `object` crate. No field is trusted: a malformed object is
//! an error.

use crate::device::host::code::Checked;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, Rela64, SectionHeader64, Sym64};
use object::read::SymbolIndex;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, SymbolTable};
use std::env::consts::ARCH;

type Header = FileHeader64<LE>;
pub(super) type Section = SectionHeader64<LE>;
pub(super) type Symbol = Sym64<LE>;
pub(super) type Relocation = Rela64<LE>;

/// The segments of the mapping, by the protection of their pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Segment {
    Code,
    Constants,
    Variables,
}

/// A parsed object, before any section is placed.
pub(super) struct Object<'a> {
    bytes: &'a [u8],
    pub(super) sections: SectionTable<'a, Header>,
    pub(super) symbols: SymbolTable<'a, Header>,
}

fn text(e: object::Error) -> String {
    e.to_string()
}

impl<'a> Object<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Checked<Object<'a>> {
        if bytes.len() < size_of::<Header>() {
            return Err(format!("{} bytes are not an object file", bytes.len()));
        }
        let header = Header::parse(bytes)
            .ok()
            .filter(|h| h.is_little_endian())
            .ok_or("not 64-bit little-endian ELF")?;
        if header.e_type(LE) != elf::ET_REL {
            return Err("not relocatable".into());
        }
        let machine = match header.e_machine(LE) {
            elf::EM_X86_64 => "x86_64",
            elf::EM_AARCH64 => "aarch64",
            other => return Err(format!("compiled for the unsupported machine {}", other.0)),
        };
        if machine != ARCH {
            return Err(format!("compiled for {machine}, and this machine is {ARCH}"));
        }
        let sections = header.sections(LE, bytes).map_err(text)?;
        let symbols = sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(text)?;
        let object = Object { bytes, sections, symbols };
        let table = object.sections.section(object.symbols.section()).map_err(text)?;
        object.check_entry_size::<Symbol>(table)?;
        Ok(object)
    }

    fn check_entry_size<T>(&self, table: &Section) -> Checked<()> {
        let size = table.sh_entsize(LE);
        if size == size_of::<T>() as u64 {
            Ok(())
        } else {
            Err(format!("table entries of {size} bytes instead of {}", size_of::<T>()))
        }
    }

    pub(super) fn name(&self, symbol: &Symbol) -> Checked<&'a str> {
        let name = self.symbols.symbol_name(LE, symbol).map_err(text)?;
        std::str::from_utf8(name).map_err(|_| "a symbol name is not UTF-8".into())
    }

    pub(super) fn symbol(&self, index: u32) -> Checked<&'a Symbol> {
        self.symbols.symbol(SymbolIndex(index as usize)).map_err(text)
    }

    /// Returns the bytes of a section; none for a section of zeros.
    pub(super) fn data(&self, section: &Section) -> Checked<&'a [u8]> {
        section.data(LE, self.bytes).map_err(text)
    }

    /// Returns the entries of a relocation table, which must refer to the symbols of the object.
    pub(super) fn relocations(&self, table: &Section) -> Checked<&'a [Relocation]> {
        self.check_entry_size::<Relocation>(table)?;
        let (list, symbols) = table
            .rela(LE, self.bytes)
            .map_err(text)?
            .ok_or("a relocation section without entries")?;
        if symbols != self.symbols.section() {
            return Err("a relocation table refers to another symbol table".into());
        }
        Ok(list)
    }
}

/// Returns the part of the mapping that holds a section; `None` if the section is not loaded.
pub(super) fn segment_of(section: &Section) -> Checked<Option<Segment>> {
    let has = |flag: elf::SectionFlags| section.sh_flags(LE).0 & flag.0 != 0;
    if !has(elf::SHF_ALLOC) {
        return Ok(None);
    }
    if has(elf::SHF_TLS) {
        return Err("thread-local variables are not supported".into());
    }
    match section.sh_type(LE) {
        elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY => {
            Err("constructors are not supported".into())
        }
        _ if has(elf::SHF_EXECINSTR) && has(elf::SHF_WRITE) => {
            Err("a section is writable and executable".into())
        }
        _ if has(elf::SHF_EXECINSTR) => Ok(Some(Segment::Code)),
        _ if has(elf::SHF_WRITE) => Ok(Some(Segment::Variables)),
        _ => Ok(Some(Segment::Constants)),
    }
}
