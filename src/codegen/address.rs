//! Addresses: indices as sums of terms, and the accesses that share a stride. In: a linear program.
//! Out: the sum of each index, and what each innermost loop adds to its pointers.
//!
//! ```text
//! index         4096·r0 + 64·r1 + x + 3       a sum, split at the nodes that cannot overflow
//! pointer       buffer + 4·(4096·r0 + 64·r1)  one per buffer and terms, advanced by each loop
//! index         x, scaled by 4
//! displacement  4·3
//! ```
//!
//! **Invariant:** a sum has the value of its index in all 64 bits.

use crate::ir::{Op, UOp};
use crate::render::facts;
use crate::symbolic::Linear;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// The addresses of a program.
pub(super) struct Addresses {
    /// Nodes that cannot overflow.
    exact: FxHashSet<u64>,
    sums: FxHashMap<u64, Rc<Linear>>,
    /// The loops without a loop inside.
    leaves: FxHashSet<u64>,
    /// How many pointers would advance by a number of bytes, by innermost loop.
    strides: FxHashMap<(u64, i64), FxHashSet<u64>>,
    /// Sums and products that only indices use: they need no code of their own.
    unused: FxHashSet<u64>,
}

impl Addresses {
    /// Finds the addresses of a program. `bytes` returns the size of an element of a buffer.
    pub fn new(uops: &[UOp], bytes: impl Fn(&UOp) -> i64) -> Addresses {
        let mut all = Addresses {
            exact: facts::address_integers(uops),
            sums: FxHashMap::default(),
            leaves: FxHashSet::default(),
            strides: FxHashMap::default(),
            unused: FxHashSet::default(),
        };
        let mut open: Vec<&UOp> = Vec::new();
        for u in uops {
            match u.op() {
                Op::Range => {
                    for around in &open {
                        all.leaves.remove(&around.id());
                    }
                    all.leaves.insert(u.id());
                    open.push(u);
                }
                Op::EndRange => {
                    open.pop();
                }
                Op::Load | Op::Store => {
                    let [place, ..] = u.src() else { continue };
                    let [buffer, index, ..] = place.src() else { continue };
                    let sum = all.sum(index);
                    let of = open.iter().rev().map(|r| (r, sum.coefficient(r)));
                    if let Some((range, by)) = of.into_iter().find(|(_, by)| *by != 0) {
                        let group = prefix(buffer, &sum.terms);
                        let stride = (range.id(), by.wrapping_mul(bytes(buffer)));
                        all.strides.entry(stride).or_default().insert(group);
                    }
                }
                _ => {}
            }
        }
        all.unused = all.only_in_sums(uops);
        all
    }

    /// Returns the sum of an index.
    pub fn sum(&mut self, index: &UOp) -> Rc<Linear> {
        if let Some(sum) = self.sums.get(&index.id()) {
            return sum.clone();
        }
        let sum = Rc::new(
            self.split(index)
                .unwrap_or_else(|| Linear { terms: vec![(index.clone(), 1)], constant: 0 }),
        );
        self.sums.insert(index.id(), sum.clone());
        sum
    }

    /// Returns true if a node cannot overflow.
    pub fn is_exact(&self, u: &UOp) -> bool {
        self.exact.contains(&u.id())
    }
    /// Returns true if a node is only a part of sums.
    pub fn is_unused(&self, u: &UOp) -> bool {
        self.unused.contains(&u.id())
    }
    /// Returns true if a loop has no loop inside.
    pub fn is_leaf(&self, range: &UOp) -> bool {
        self.leaves.contains(&range.id())
    }
    /// Returns true if several pointers would advance by these bytes in a loop.
    pub fn is_shared(&self, range: &UOp, bytes: i64) -> bool {
        self.strides.get(&(range.id(), bytes)).is_some_and(|groups| groups.len() > 1)
    }

    /// Returns true if a sum is split at this node: a sum, or a product with a constant.
    fn is_split(&self, u: &UOp) -> bool {
        match (u.op(), u.src()) {
            (Op::Add, _) => self.is_exact(u),
            (Op::Mul, [_, by]) => self.is_exact(u) && by.as_int().is_some(),
            _ => false,
        }
    }

    fn split(&self, index: &UOp) -> Option<Linear> {
        let mut sum = Linear::from(0);
        let mut rest = vec![(index, 1i64)];
        while let Some((u, factor)) = rest.pop() {
            match (u.as_int(), u.src()) {
                (Some(value), _) => {
                    sum.constant = sum.constant.checked_add(value.checked_mul(factor)?)?;
                }
                (_, [x, y]) if self.is_split(u) && u.op() == Op::Add => {
                    rest.extend([(x, factor), (y, factor)]);
                }
                (_, [x, by]) if self.is_split(u) => {
                    rest.push((x, factor.checked_mul(by.as_int()?)?));
                }
                _ => sum.add_term(u, factor)?,
            }
        }
        sum.normalize();
        Some(sum)
    }

    /// Returns the sums and products that only indices of loads and stores use.
    fn only_in_sums(&self, uops: &[UOp]) -> FxHashSet<u64> {
        let mut unused: FxHashSet<u64> =
            uops.iter().filter(|u| self.is_split(u)).map(UOp::id).collect();
        for u in uops.iter().rev() {
            let src = match u.op() {
                // The index is a sum, the mask is a value.
                Op::Index => u.src().get(2..).unwrap_or_default(),
                _ if unused.contains(&u.id()) => continue,
                _ => u.src(),
            };
            for used in src {
                unused.remove(&used.id());
            }
        }
        unused
    }
}

/// Returns the number of a buffer and terms of an index.
pub(super) fn prefix(buffer: &UOp, terms: &[(UOp, i64)]) -> u64 {
    let mut hasher = FxHasher::default();
    buffer.id().hash(&mut hasher);
    for (term, factor) in terms {
        (term.id(), factor).hash(&mut hasher);
    }
    hasher.finish()
}
