//! Applies relocations: resolves symbols inside the object and in the libraries of the process, and
//! creates stubs and GOT slots for the latter.

#[cfg(target_arch = "aarch64")]
use super::aarch64 as machine;
use super::parse::{Object, Relocation, Section, Symbol};
#[cfg(not(target_arch = "aarch64"))]
use super::x86_64 as machine;
use crate::device::host::code::{Checked, Mapping};
use crate::os;
use object::elf::RelocationType;
use object::read::elf::{Rela, SectionHeader, Sym};
use object::{LittleEndian as LE, elf};
use rustc_hash::FxHashMap;
use std::ffi::CString;

/// Bytes of a stub, a jump to a function outside the mapping.
pub(super) const STUB: usize = 16;
/// Bytes of a slot, the address of a symbol.
pub(super) const SLOT: usize = 8;

/// Address of a symbol.
#[derive(Clone, Copy)]
pub(super) enum SymbolAddress {
    /// Offset in the mapping.
    Mapped(usize),
    /// Absolute address outside the mapping.
    External(u64),
}

/// The target of a relocation whose symbol is outside the mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum External {
    /// The symbol.
    Address,
    /// A stub that jumps to the function, which may be out of reach of a call.
    Stub,
    /// A slot that holds the address, also if the symbol is in the mapping.
    Slot,
    /// Nothing: the instruction reaches symbols of the mapping only.
    OutOfReach,
}

/// A relocation, with the addresses of what it changes and of what it refers to.
pub(super) struct Relocate {
    pub(super) kind: RelocationType,
    /// The bytes that it changes: on arm64, instructions with other fields.
    #[cfg_attr(not(any(target_arch = "aarch64", test)), expect(dead_code))]
    pub(super) old: u64,
    pub(super) from: u64,
    pub(super) target: u64,
    pub(super) addend: i64,
}

/// State of relocation: the object, the offsets of its sections, and the stubs and slots so far.
pub(super) struct Linker<'a> {
    pub(super) object: &'a Object<'a>,
    /// Offset of each loaded section in the mapping.
    pub(super) placed: &'a [Option<usize>],
    pub(super) map: Mapping,
    pub(super) stubs: FxHashMap<u32, usize>,
    pub(super) slots: FxHashMap<u32, usize>,
    pub(super) next_stub: usize,
    pub(super) next_slot: usize,
}

impl Linker<'_> {
    fn symbol(&self, index: u32) -> Checked<SymbolAddress> {
        if index == 0 {
            return Ok(SymbolAddress::External(0));
        }
        let symbol = self.object.symbol(index)?;
        if symbol.st_shndx(LE) != elf::SHN_UNDEF {
            return self.place(symbol);
        }
        let name = self.object.name(symbol)?;
        let external = CString::new(name).ok().and_then(|name| os::library_function(&name));
        match external {
            Some(address) => Ok(SymbolAddress::External(address)),
            // A weak symbol may be absent; its users compare it with null.
            None if symbol.st_bind() == elf::STB_WEAK => Ok(SymbolAddress::External(0)),
            None => {
                Err(format!("undefined symbol `{name}`: no library of this process defines it"))
            }
        }
    }

    /// Returns the place of a symbol that the object defines.
    pub(super) fn place(&self, symbol: &Symbol) -> Checked<SymbolAddress> {
        if matches!(symbol.st_type(), elf::STT_TLS | elf::STT_GNU_IFUNC) {
            return Err("thread-local symbols and indirect functions are not supported".into());
        }
        let value = symbol.st_value(LE);
        match symbol.st_shndx(LE) {
            elf::SHN_ABS => Ok(SymbolAddress::External(value)),
            elf::SHN_COMMON => {
                Err("common symbols are not supported: compile with -fno-common".into())
            }
            elf::SymbolSection(index) => {
                let section = self.object.sections.iter().nth(index.into());
                let section = section.ok_or("a symbol in a section that does not exist")?;
                let at = self.placed[usize::from(index)]
                    .ok_or("a symbol in a section that is not loaded")?;
                if value > section.sh_size(LE) {
                    return Err("a symbol lies outside its section".into());
                }
                Ok(SymbolAddress::Mapped(at + value as usize))
            }
        }
    }

    fn stub(&mut self, index: u32, address: u64) -> Checked<usize> {
        if let Some(&at) = self.stubs.get(&index) {
            return Ok(at);
        }
        let at = self.next_stub;
        self.map.write(at, &machine::stub(address))?;
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

    /// Applies one relocation of a section that is loaded at `section_at`.
    pub(super) fn relocate(
        &mut self,
        r: &Relocation,
        section: &Section,
        section_at: usize,
    ) -> Checked<()> {
        let (offset, kind) = (r.r_offset(LE), r.r_type(LE, false));
        let width = machine::width(kind);
        if offset.checked_add(width as u64).is_none_or(|end| end > section.sh_size(LE)) {
            return Err("a relocation lies outside its section".into());
        }
        let at = section_at + offset as usize;
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.map.read(at, width)?);
        let new = machine::relocated(&Relocate {
            kind,
            old: u64::from_le_bytes(bytes),
            from: self.map.address(at),
            target: self.target(kind, r.r_sym(LE, false))?,
            addend: r.r_addend(LE),
        })?;
        self.map.write(at, &new.to_le_bytes()[..width])
    }

    /// Returns the address that a relocation refers to: of the symbol, or of its stub or slot.
    fn target(&mut self, kind: RelocationType, symbol: u32) -> Checked<u64> {
        let place = self.symbol(symbol)?;
        let address = match place {
            SymbolAddress::Mapped(at) => self.map.address(at),
            SymbolAddress::External(address) => address,
        };
        match (machine::external(kind)?, place) {
            (External::Slot, _) => {
                let slot = self.slot(symbol, address)?;
                Ok(self.map.address(slot))
            }
            (External::Stub, SymbolAddress::External(address)) => {
                let stub = self.stub(symbol, address)?;
                Ok(self.map.address(stub))
            }
            (External::OutOfReach, SymbolAddress::External(_)) => {
                Err("external data requires -fPIC".into())
            }
            _ => Ok(address),
        }
    }
}
