//! Relocations of x86-64.

use super::Checked;
use super::link::{External, Relocate};
use object::elf::{self, RelocationType};

/// `jmp *[rip + 0]`, followed by the target address.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// Returns how a relocation refers to its symbol; an error for unknown ones.
pub(super) fn external(kind: RelocationType) -> Checked<External> {
    match kind {
        elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_PC64 => {
            Ok(External::Address)
        }
        elf::R_X86_64_PC32 => Ok(External::OutOfReach),
        elf::R_X86_64_PLT32 => Ok(External::Stub),
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
            Ok(External::Slot)
        }
        kind => Err(format!("unknown relocation {}", kind.0)),
    }
}

/// Returns the number of bytes that a relocation changes.
pub(super) fn width(kind: RelocationType) -> usize {
    if matches!(kind, elf::R_X86_64_64 | elf::R_X86_64_PC64) { 8 } else { 4 }
}

/// Returns the new bytes of a relocation, whose old bytes are not used.
pub(super) fn relocated(r: &Relocate) -> Checked<u64> {
    let absolute = r.target.wrapping_add_signed(r.addend);
    let relative = absolute.wrapping_sub(r.from).cast_signed();
    let too_far = |_| format!("relocation {} does not reach its target", r.kind.0);
    match r.kind {
        elf::R_X86_64_64 => Ok(absolute),
        elf::R_X86_64_PC64 => Ok(relative.cast_unsigned()),
        elf::R_X86_64_32 => u32::try_from(absolute).map(u64::from).map_err(too_far),
        elf::R_X86_64_32S => {
            let value = i32::try_from(absolute.cast_signed()).map_err(too_far)?;
            Ok(u64::from(value.cast_unsigned()))
        }
        _ => Ok(u64::from(i32::try_from(relative).map_err(too_far)?.cast_unsigned())),
    }
}

/// Returns a jump to an address anywhere.
pub(super) fn stub(address: u64) -> [u8; super::link::STUB] {
    let mut bytes = [0xcc; super::link::STUB];
    bytes[..6].copy_from_slice(&JUMP);
    bytes[6..14].copy_from_slice(&address.to_le_bytes());
    bytes
}
