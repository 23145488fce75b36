//! Sets of ranges: a bit for the id of each.

use smallvec::SmallVec;

/// The ids of the ranges that a value depends on.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct RangeSet(SmallVec<[u64; 2]>);

impl RangeSet {
    /// Returns true if the range of this id is a member.
    pub fn has(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|w| w >> (id % 64) & 1 == 1)
    }
    /// Adds a range.
    pub fn insert(&mut self, id: u32) {
        let word = id as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (id % 64);
    }
    /// Removes a range.
    pub fn remove(&mut self, id: u32) {
        if let Some(w) = self.0.get_mut(id as usize / 64) {
            *w &= !(1 << (id % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
    /// Adds all members of another set.
    pub fn union(&mut self, other: &RangeSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
    /// Returns true if the sets have a range in common.
    pub fn meets(&self, other: &RangeSet) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }
    /// Returns true if the set has no member.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
    /// Returns the ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = |w: u64| {
            std::iter::successors((w != 0).then_some(w), |w| Some(w & (w - 1)).filter(|w| *w != 0))
                .map(u64::trailing_zeros)
        };
        self.0.iter().enumerate().flat_map(move |(i, w)| bits(*w).map(move |b| i as u32 * 64 + b))
    }
}
