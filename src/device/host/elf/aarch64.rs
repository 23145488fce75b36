//! Relocations of arm64. Most change a field of an instruction; the other bits stay.

use super::Checked;
use super::link::{External, Relocate};
use object::elf::{self, RelocationType};

/// `ldr x16, [pc, #8]`, then `br x16`, followed by the target address. x16 is free for this between
/// a call and its function.
const JUMP: [u32; 2] = [0x5800_0050, 0xd61f_0200];

/// Returns how a relocation refers to its symbol; an error for unknown ones.
pub(super) fn external(kind: RelocationType) -> Checked<External> {
    match kind {
        elf::R_AARCH64_ABS64
        | elf::R_AARCH64_ABS32
        | elf::R_AARCH64_PREL64
        | elf::R_AARCH64_PREL32 => Ok(External::Address),
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => Ok(External::Stub),
        elf::R_AARCH64_ADR_GOT_PAGE | elf::R_AARCH64_LD64_GOT_LO12_NC => Ok(External::Slot),
        elf::R_AARCH64_ADR_PREL_PG_HI21
        | elf::R_AARCH64_ADR_PREL_PG_HI21_NC
        | elf::R_AARCH64_ADR_PREL_LO21
        | elf::R_AARCH64_LD_PREL_LO19
        | elf::R_AARCH64_CONDBR19
        | elf::R_AARCH64_TSTBR14 => Ok(External::OutOfReach),
        kind if low_bits(kind).is_some() => Ok(External::OutOfReach),
        kind => Err(format!("unknown relocation {}", kind.0)),
    }
}

/// Returns the unit, as a power of two, in which an instruction holds the low 12 bits of an
/// address.
fn low_bits(kind: RelocationType) -> Option<u32> {
    match kind {
        elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => Some(0),
        elf::R_AARCH64_LDST16_ABS_LO12_NC => Some(1),
        elf::R_AARCH64_LDST32_ABS_LO12_NC => Some(2),
        elf::R_AARCH64_LDST64_ABS_LO12_NC | elf::R_AARCH64_LD64_GOT_LO12_NC => Some(3),
        elf::R_AARCH64_LDST128_ABS_LO12_NC => Some(4),
        _ => None,
    }
}

/// Returns the number of bytes that a relocation changes.
pub(super) fn width(kind: RelocationType) -> usize {
    if matches!(kind, elf::R_AARCH64_ABS64 | elf::R_AARCH64_PREL64) { 8 } else { 4 }
}

/// Replaces `bits` bits of an instruction from bit `at` on.
fn with_field(instruction: u64, at: u32, bits: u32, value: u64) -> u64 {
    let mask = (1 << bits) - 1;
    instruction & !(mask << at) | (value & mask) << at
}

/// Returns the new bytes of a relocation.
pub(super) fn relocated(r: &Relocate) -> Checked<u64> {
    let absolute = r.target.wrapping_add_signed(r.addend);
    let relative = absolute.wrapping_sub(r.from).cast_signed();
    let too_far = || format!("relocation {} does not reach its target", r.kind.0);
    let in_range = |value: i64, bits: u32| {
        let half = 1i64 << (bits - 1);
        if (-half..half).contains(&value) { Ok(value.cast_unsigned()) } else { Err(too_far()) }
    };
    // A field in units of instructions.
    let branch = |at: u32, bits: u32| {
        if relative % 4 != 0 {
            return Err(too_far());
        }
        Ok(with_field(r.old, at, bits, in_range(relative / 4, bits)?))
    };
    // The two fields of `adr` and `adrp`.
    let adr = |value: i64| {
        let value = in_range(value, 21)?;
        Ok(with_field(with_field(r.old, 29, 2, value), 5, 19, value >> 2))
    };
    let pages = (absolute >> 12).cast_signed() - (r.from >> 12).cast_signed();
    match r.kind {
        elf::R_AARCH64_ABS64 => Ok(absolute),
        elf::R_AARCH64_PREL64 => Ok(relative.cast_unsigned()),
        elf::R_AARCH64_ABS32 => u32::try_from(absolute).map(u64::from).map_err(|_| too_far()),
        elf::R_AARCH64_PREL32 => Ok(in_range(relative, 32)? & u64::from(u32::MAX)),
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => branch(0, 26),
        elf::R_AARCH64_CONDBR19 | elf::R_AARCH64_LD_PREL_LO19 => branch(5, 19),
        elf::R_AARCH64_TSTBR14 => branch(5, 14),
        elf::R_AARCH64_ADR_PREL_LO21 => adr(relative),
        elf::R_AARCH64_ADR_PREL_PG_HI21
        | elf::R_AARCH64_ADR_PREL_PG_HI21_NC
        | elf::R_AARCH64_ADR_GOT_PAGE => adr(pages),
        kind => {
            let unit = low_bits(kind).ok_or_else(|| format!("unknown relocation {}", kind.0))?;
            let low = absolute & 0xfff;
            if !low.is_multiple_of(1 << unit) {
                return Err(format!("relocation {} refers to an unaligned address", kind.0));
            }
            Ok(with_field(r.old, 10, 12, low >> unit))
        }
    }
}

/// Returns a jump to an address anywhere.
pub(super) fn stub(address: u64) -> [u8; super::link::STUB] {
    let mut bytes = [0; super::link::STUB];
    bytes[..4].copy_from_slice(&JUMP[0].to_le_bytes());
    bytes[4..8].copy_from_slice(&JUMP[1].to_le_bytes());
    bytes[8..].copy_from_slice(&address.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(kind: RelocationType, old: u64, from: u64, target: u64) -> Checked<u64> {
        relocated(&Relocate { kind, old, from, target, addend: 0 })
    }

    #[test]
    fn fields_are_those_of_the_instruction_set() {
        // `bl`, `adrp x0`, `add x0, x0, #0`, `ldr q1, [x0]`, `ldr x0, [x0]`, `b.eq`, `tbz w0, #0`.
        let (bl, adrp, add, ldr_q, ldr_x) =
            (0x9400_0000, 0x9000_0000, 0x9100_0000, 0x3dc0_0001, 0xf940_0000);
        assert_eq!(apply(elf::R_AARCH64_CALL26, bl, 0x1000, 0x1010), Ok(0x9400_0004));
        assert_eq!(apply(elf::R_AARCH64_CALL26, bl, 0x1010, 0x1000), Ok(0x97ff_fffc));
        let page = elf::R_AARCH64_ADR_PREL_PG_HI21;
        assert_eq!(apply(page, adrp, 0x1ffc, 0x6004), Ok(0xb000_0020));
        assert_eq!(apply(page, adrp, 0x6ffc, 0x1004), Ok(0xf0ff_ffc0));
        let low = elf::R_AARCH64_ADD_ABS_LO12_NC;
        assert_eq!(apply(low, add, 0, 0x6123), Ok(0x9104_8c00));
        assert_eq!(apply(elf::R_AARCH64_LDST128_ABS_LO12_NC, ldr_q, 0, 0x6120), Ok(0x3dc0_4801));
        assert_eq!(apply(elf::R_AARCH64_LD64_GOT_LO12_NC, ldr_x, 0, 0x6128), Ok(0xf940_9400));
        assert_eq!(apply(elf::R_AARCH64_CONDBR19, 0x5400_0000, 8, 0), Ok(0x54ff_ffc0));
        assert_eq!(apply(elf::R_AARCH64_TSTBR14, 0x3600_0000, 0, 8), Ok(0x3600_0040));
        assert_eq!(apply(elf::R_AARCH64_ADR_PREL_LO21, 0x1000_0000, 0, 5), Ok(0x3000_0020));
        assert_eq!(apply(elf::R_AARCH64_PREL32, 7, 8, 4), Ok(0xffff_fffc));
        let jump = stub(0x1122_3344_5566_7788);
        assert_eq!(jump[..4], 0x5800_0050u32.to_le_bytes());
        assert_eq!(jump[8..], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!([elf::R_AARCH64_PREL32, elf::R_AARCH64_ABS64].map(width), [4, 8]);
        // Other bits of the instruction stay.
        assert_eq!(apply(low, 0x9100_03ff, 0, 0x6001), Ok(0x9100_07ff));
    }

    #[test]
    fn targets_out_of_reach_are_errors() {
        for (kind, target) in [
            (elf::R_AARCH64_CALL26, 1 << 27),
            (elf::R_AARCH64_CALL26, 2),
            (elf::R_AARCH64_CONDBR19, 1 << 20),
            (elf::R_AARCH64_TSTBR14, 1 << 15),
            (elf::R_AARCH64_ADR_PREL_PG_HI21, 1 << 32),
            (elf::R_AARCH64_ABS32, 1 << 32),
            (elf::R_AARCH64_PREL32, 1 << 31),
        ] {
            assert!(apply(kind, 0, 0, target).unwrap_err().contains("does not reach"), "{kind:?}");
        }
        let unaligned = apply(elf::R_AARCH64_LDST64_ABS_LO12_NC, 0, 0, 4);
        assert!(unaligned.unwrap_err().contains("unaligned"));
        assert!(external(elf::R_AARCH64_P32_COPY).is_err());
    }
}
