//! Applies relocations: resolves symbols inside the object and in the libraries of the process, and
//! creates stubs and GOT slots for the latter.

use super::Checked;
use super::mapping::Mapping;
use super::parse::{Object, Relocation, Section, Symbol};
use crate::os;
use object::read::elf::{Rela, SectionHeader, Sym};
use object::{LittleEndian as LE, elf};
use rustc_hash::FxHashMap;
use std::ffi::CString;

/// `jmp *[rip + 0]`, followed by the target address.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
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

    /// Applies one relocation of a section that is loaded at `section_at`.
    pub(super) fn relocate(
        &mut self,
        r: &Relocation,
        section: &Section,
        section_at: usize,
    ) -> Checked<()> {
        let (offset, kind) = (r.r_offset(LE), r.r_type(LE, false));
        let width: u64 = if matches!(kind, elf::R_X86_64_64 | elf::R_X86_64_PC64) { 8 } else { 4 };
        if offset.checked_add(width).is_none_or(|end| end > section.sh_size(LE)) {
            return Err("a relocation lies outside its section".into());
        }
        let at = section_at + offset as usize;
        let from = self.map.address(at);
        let target = self.target(kind, r.r_sym(LE, false))?;
        let absolute = target.wrapping_add_signed(r.r_addend(LE));
        let relative = absolute.wrapping_sub(from).cast_signed();
        let too_far = |_| format!("relocation {} does not reach its target", kind.0);
        match kind {
            elf::R_X86_64_64 => self.map.write(at, &absolute.to_le_bytes()),
            elf::R_X86_64_PC64 => self.map.write(at, &relative.to_le_bytes()),
            elf::R_X86_64_32 => {
                self.map.write(at, &u32::try_from(absolute).map_err(too_far)?.to_le_bytes())
            }
            elf::R_X86_64_32S => {
                let value = i32::try_from(absolute.cast_signed()).map_err(too_far)?;
                self.map.write(at, &value.to_le_bytes())
            }
            _ => self.map.write(at, &i32::try_from(relative).map_err(too_far)?.to_le_bytes()),
        }
    }

    /// Returns the address that a relocation refers to: of the symbol, or of its stub or slot.
    fn target(&mut self, kind: elf::RelocationType, symbol: u32) -> Checked<u64> {
        let place = self.symbol(symbol)?;
        let address = match place {
            SymbolAddress::Mapped(at) => self.map.address(at),
            SymbolAddress::External(address) => address,
        };
        match (kind, place) {
            (elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_PC64, _)
            | (elf::R_X86_64_PC32 | elf::R_X86_64_PLT32, SymbolAddress::Mapped(_)) => Ok(address),
            // The function may be out of reach of a call, so the call goes to a stub nearby.
            (elf::R_X86_64_PLT32, SymbolAddress::External(address)) => {
                let stub = self.stub(symbol, address)?;
                Ok(self.map.address(stub))
            }
            (elf::R_X86_64_PC32, SymbolAddress::External(_)) => {
                Err("external data requires -fPIC".into())
            }
            (elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX, _) => {
                let slot = self.slot(symbol, address)?;
                Ok(self.map.address(slot))
            }
            (kind, _) => Err(format!("unknown relocation {}", kind.0)),
        }
    }
}
