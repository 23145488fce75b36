//! The processor as the CPUID instruction describes it: vendor, family, model, and data caches.
//! In: the registers that CPUID returns. Out: [`Description`], without what they do not contain.

use crate::target::Vendor;

/// The registers `eax`, `ebx`, `ecx`, `edx`.
type Registers = [u32; 4];

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Description {
    pub vendor: Vendor,
    pub family: u32,
    pub model: u32,
    /// The data caches L1 to L3.
    pub caches: [Option<Cache>; 3],
}

/// A cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cache {
    pub bytes: usize,
    pub line_bytes: usize,
    /// Logical processors that share it.
    pub sharers: usize,
}

/// Returns the description of the processor that runs this; none where there is no CPUID.
pub(super) fn read() -> Option<Description> {
    leaf(0, 0)?;
    Some(Description::of(&|number, index| leaf(number, index).unwrap_or_default()))
}

/// Returns a leaf of the processor; none where there is no CPUID.
#[cfg(target_arch = "x86_64")]
fn leaf(number: u32, index: u32) -> Option<Registers> {
    let r = std::arch::x86_64::__cpuid_count(number, index);
    Some([r.eax, r.ebx, r.ecx, r.edx])
}
#[cfg(not(target_arch = "x86_64"))]
fn leaf(_: u32, _: u32) -> Option<Registers> {
    None
}

impl Description {
    /// Reads the leaves of a processor; `leaf` takes the number of a leaf and an index.
    fn of(leaf: &dyn Fn(u32, u32) -> Registers) -> Description {
        let [highest, ebx, ecx, edx] = leaf(0, 0);
        let vendor = match [ebx, edx, ecx].map(u32::to_le_bytes).as_flattened() {
            b"GenuineIntel" => Vendor::Intel,
            b"AuthenticAMD" => Vendor::Amd,
            _ => Vendor::Other,
        };
        let (family, model) = family_and_model(leaf(1, 0)[0]);
        // Both leaves have the same form.
        let of_caches = match vendor {
            Vendor::Amd if leaf(0x8000_0000, 0)[0] >= 0x8000_001d => Some(0x8000_001d),
            Vendor::Intel if highest >= 4 => Some(4),
            _ => None,
        };
        let mut caches = [None; 3];
        for index in 0..16 {
            let Some((level, cache)) = of_caches.and_then(|n| cache(leaf(n, index))) else { break };
            if let (Some(cache), Some(slot)) = (cache, caches.get_mut(level.wrapping_sub(1))) {
                *slot = Some(cache);
            }
        }
        Description { vendor, family, model, caches }
    }
}

/// Returns the family and the model of the signature in leaf 1.
fn family_and_model(signature: u32) -> (u32, u32) {
    let field = |shift: u32, bits: u32| signature >> shift & ((1 << bits) - 1);
    let (family, model) = (field(8, 4), field(4, 4));
    let extended = if family == 15 { family + field(20, 8) } else { family };
    (extended, if matches!(family, 6 | 15) { field(16, 4) << 4 | model } else { model })
}

/// Returns the level of a cache, and the cache if it holds data. `None` ends the list.
fn cache([eax, ebx, ecx, _]: Registers) -> Option<(usize, Option<Cache>)> {
    let kind = eax & 31;
    let level = eax as usize >> 5 & 7;
    let line_bytes = (ebx as usize & 0xfff) + 1;
    let (partitions, ways) = ((ebx as usize >> 12 & 0x3ff) + 1, (ebx as usize >> 22) + 1);
    let cache = Cache {
        bytes: ways * partitions * line_bytes * (ecx as usize + 1),
        line_bytes,
        sharers: (eax as usize >> 14 & 0xfff) + 1,
    };
    // Kind 1 is a data cache, 2 an instruction cache, 3 a unified cache.
    (kind != 0).then_some((level, matches!(kind, 1 | 3).then_some(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leaves of a virtual machine with two cores of a Zen 4 server.
    fn zen4(leaf: u32, index: u32) -> Registers {
        match (leaf, index) {
            (0, _) => [0x1c, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
            (1, _) => [0x00a1_0f11, 0, 0, 0],
            (0x8000_0000, _) => [0x8000_0021, 0, 0, 0],
            (0x8000_001d, 0) => [0x121, 0x01c0_003f, 0x3f, 0],
            (0x8000_001d, 1) => [0x122, 0x01c0_003f, 0x3f, 0],
            (0x8000_001d, 2) => [0x143, 0x01c0_003f, 0x7ff, 2],
            (0x8000_001d, 3) => [0x4163, 0x03c0_003f, 0x7fff, 1],
            _ => [0; 4],
        }
    }

    /// Those of a Sapphire Rapids server, whose L3 128 processors share.
    fn sapphire_rapids(leaf: u32, index: u32) -> Registers {
        match (leaf, index) {
            (0, _) => [0x20, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            (1, _) => [0x0008_06f8, 0, 0, 0],
            (4, 0) => [0x121, 0x02c0_003f, 0x3f, 0],
            (4, 1) => [0x122, 0x01c0_003f, 0x3f, 0],
            (4, 2) => [0x143, 0x03c0_003f, 0x7ff, 0],
            (4, 3) => [0x1f_c163, 0x0380_003f, 0x1_bfff, 4],
            _ => [0; 4],
        }
    }

    #[test]
    fn caches_of_both_vendors_are_read() {
        let found = Description::of(&zen4);
        assert_eq!((found.vendor, found.family, found.model), (Vendor::Amd, 0x19, 0x11));
        let bytes = |d: Description| d.caches.map(|c| c.map_or(0, |c| c.bytes));
        assert_eq!(bytes(found), [32 << 10, 1 << 20, 32 << 20]);
        assert_eq!(found.caches.map(|c| c.unwrap().sharers), [1, 1, 2]);
        let found = Description::of(&sapphire_rapids);
        assert_eq!((found.vendor, found.family, found.model), (Vendor::Intel, 6, 143));
        assert_eq!(bytes(found), [48 << 10, 2 << 20, 105 << 20]);
        assert_eq!(found.caches[2].unwrap().sharers, 128);
        assert!(found.caches.iter().all(|c| c.unwrap().line_bytes == 64));
    }

    #[test]
    fn other_vendors_have_no_caches() {
        let found = Description::of(&|_, _| [0; 4]);
        assert_eq!((found.vendor, found.caches), (Vendor::Other, [None; 3]));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn this_processor_has_a_family() {
        assert!(read().unwrap().family > 0);
    }
}
