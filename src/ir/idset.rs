//! A set of node ids as words of 64 bits. Consecutive nodes have adjacent ids, so that the set of a
//! graph of a hundred thousand nodes fits in the L1 cache, which a hash set of ids does not.

/// A set of node ids.
#[derive(Default)]
pub(crate) struct IdSet {
    /// The index of a block of 64 ids plus one, and a bit for each of its ids; zeros in a free
    /// slot. The number of slots is a power of two.
    slots: Vec<(u64, u64)>,
    blocks: usize,
}

impl IdSet {
    /// Returns the slot of a block, or the free slot for it. At least half of the slots are free.
    #[inline]
    fn slot(&self, block: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.slots[at].0 != 0 && self.slots[at].0 != block + 1 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns true if the id is a member.
    #[inline]
    pub(crate) fn has(&self, id: u64) -> bool {
        self.blocks > 0 && self.slots[self.slot(id / 64)].1 >> (id % 64) & 1 == 1
    }

    /// Adds an id; true if it was not a member.
    #[inline]
    pub(crate) fn insert(&mut self, id: u64) -> bool {
        if self.slots.len() < 2 * (self.blocks + 1) {
            self.grow();
        }
        let at = self.slot(id / 64);
        let (block, bits) = &mut self.slots[at];
        self.blocks += (*block == 0) as usize;
        *block = id / 64 + 1;
        let new = *bits >> (id % 64) & 1 == 0;
        *bits |= 1 << (id % 64);
        new
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 4).max(16);
        for (block, bits) in std::mem::replace(&mut self.slots, vec![(0, 0); size]) {
            if block != 0 {
                let at = self.slot(block - 1);
                self.slots[at] = (block, bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_members_of_a_hash_set() {
        let (mut set, mut model) = (IdSet::default(), std::collections::HashSet::new());
        let mut x = 1u64;
        for i in 0..20_000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let id = if i % 3 == 0 { x >> (40 + i % 20) } else { i };
            assert_eq!(set.has(id), model.contains(&id));
            assert_eq!(set.insert(id), model.insert(id));
        }
        assert!((0..30_000).all(|id| set.has(id) == model.contains(&id)));
    }
}
