//! Keys of entries, and the MAC of each entry: hashes by BLAKE3.

/// The name of an entry: 128 bits over everything that it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(pub u128);

impl CacheKey {
    /// Returns the key of some parts, in order, and of the version of picograd, so that versions do
    /// not share entries. Lengths are hashed too, so that `["ab", "c"]` and `["a", "bc"]` differ.
    pub fn of(parts: &[&[u8]]) -> CacheKey {
        CacheKey::of_version(env!("CARGO_PKG_VERSION"), parts)
    }

    pub(super) fn of_version(version: &str, parts: &[&[u8]]) -> CacheKey {
        let mut hasher = blake3::Hasher::new();
        for part in std::iter::once(version.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        CacheKey(first_128(&hasher.finalize()))
    }
}

impl std::fmt::Display for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Returns a 128-bit content hash.
pub fn hash128(data: &[u8]) -> u128 {
    first_128(&blake3::hash(data))
}

fn first_128(hash: &blake3::Hash) -> u128 {
    hash.as_bytes().first_chunk().map_or(0, |b| u128::from_le_bytes(*b))
}

/// Bytes of a secret, and of a MAC.
pub(super) const MAC_LEN: usize = blake3::OUT_LEN;

/// Computes the MAC (keyed hash) of an entry. Only a process that knows the secret can.
pub(super) fn mac(
    secret: &[u8; MAC_LEN],
    key: CacheKey,
    about: &[u8],
    value: &[u8],
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher
        .update(&key.0.to_le_bytes())
        .update(&(about.len() as u64).to_le_bytes())
        .update(about)
        .update(value);
    hasher.finalize()
}
