//! Names of what is stored: 128 bits over everything that an entry was made from.

/// The name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

impl Key {
    /// The key of some parts, in order, and of the version of picograd, so that no version is given what another made. Lengths are hashed along, so
    /// `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of(parts: &[&[u8]]) -> Key {
        Key::of_version(env!("CARGO_PKG_VERSION"), parts)
    }

    pub(super) fn of_version(version: &str, parts: &[&[u8]]) -> Key {
        let mut all = Vec::with_capacity(parts.iter().map(|p| p.len() + 8).sum());
        for part in std::iter::once(version.as_bytes()).chain(parts.iter().copied()) {
            all.extend_from_slice(&(part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
        Key(hash128(&all))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A 128-bit content hash: MurmurHash3 x64, seed 0, which has published vectors to test against. Chosen for its spread; it does not resist
/// somebody who looks for collisions, and need not: the folder is the user's own.
pub fn hash128(data: &[u8]) -> u128 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let stir1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let stir2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word = |b: &[u8]| b.iter().rev().fold(0u64, |w, &x| w << 8 | u64::from(x));
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        k ^ (k >> 33)
    };
    let (mut a, mut b) = (0u64, 0u64);
    let (blocks, tail) = data.as_chunks::<16>();
    for block in blocks {
        let v = u128::from_le_bytes(*block);
        a = (a ^ stir1(v as u64)).rotate_left(27).wrapping_add(b).wrapping_mul(5).wrapping_add(0x52dc_e729);
        b = (b ^ stir2((v >> 64) as u64)).rotate_left(31).wrapping_add(a).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    b ^= stir2(word(high));
    a ^= stir1(word(low));
    a ^= data.len() as u64;
    b ^= data.len() as u64;
    a = a.wrapping_add(b);
    b = b.wrapping_add(a);
    (a, b) = (finish(a), finish(b));
    a = a.wrapping_add(b);
    b = b.wrapping_add(a);
    u128::from(a) << 64 | u128::from(b)
}
