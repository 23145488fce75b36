//! Analysis before rendering: which values are written in place, which integers are index
//! arithmetic, and which arguments are written.

use crate::dtype::Const;
use crate::ir::typed::{Index, Load, Store, Wmma};
use crate::ir::{Op, UOp};
use crate::render::facts::address_integers;
use rustc_hash::{FxHashMap, FxHashSet};

/// The decisions, by node id.
#[derive(Default)]
pub(super) struct Plan {
    /// Values with one use in the same straight line of code, which no assignment in between can
    /// change.
    pub inline: FxHashSet<u64>,
    /// Single lanes and negations, which are as short as a name if their operand has one, and may
    /// then be written any number of times.
    pub short: FxHashSet<u64>,
    /// Integers that only serve addresses and loop bounds, and are computed from launch positions
    /// and loop counters alone: they cannot overflow.
    pub index: FxHashSet<u64>,
    /// Vectors that a tensor core takes a matrix from.
    pub fragments: FxHashSet<u64>,
    /// Buffers that are stored to.
    pub stored: FxHashSet<u64>,
    /// Values that read an accumulator, themselves or through a value that is written inside them.
    pub reads_acc: FxHashSet<u64>,
}

/// Returns the operands whose values a node writes into its text. An index is transparent: it is
/// part of the text of its loads and stores.
pub(super) fn value_operands(u: &UOp) -> impl Iterator<Item = &UOp> {
    let transparent =
        matches!(u.op(), Op::Index | Op::EndRange | Op::EndIf | Op::Barrier | Op::Sink);
    let (operands, others): (&[UOp], [Option<&UOp>; 3]) = if transparent {
        (&[], [None; 3])
    } else if let Some(Load { place: Index { index, mask, .. }, alt, .. }) = u.as_load() {
        (&[], [Some(index), mask, alt.filter(|_| mask.is_some())])
    } else if let Some(Store { place, value, .. }) = u.as_store() {
        (&[], [Some(place.index), Some(value), place.mask])
    } else if let Some(acc) = u.as_define_acc() {
        (&[], [Some(acc.init), None, None])
    } else if let Some(assign) = u.as_assign() {
        (&[], [Some(assign.value), None, None])
    } else {
        (u.src(), [None; 3])
    };
    operands.iter().chain(others.into_iter().flatten())
}

impl Plan {
    pub fn new(uops: &[UOp]) -> Plan {
        let mut plan = Plan { index: address_integers(uops), ..Plan::default() };
        plan.find_inline(uops);
        for Wmma { a, b, .. } in uops.iter().filter_map(UOp::as_wmma) {
            plan.fragments.extend([a.id(), b.id()]);
        }
        plan.stored.extend(uops.iter().filter_map(UOp::as_store).map(|s| s.place.buffer.id()));
        plan
    }

    /// Finds the values with one use in the same basic block, with no change of an accumulator that
    /// they read in between. Two counters number the blocks and the changes.
    fn find_inline(&mut self, uops: &[UOp]) {
        let mut last_use: FxHashMap<u64, (usize, [usize; 2])> = FxHashMap::default();
        let mut defined: Vec<[usize; 2]> = Vec::with_capacity(uops.len());
        let mut counters = [0, 0];
        for u in uops {
            for operand in value_operands(u) {
                let (count, at) = last_use.entry(operand.id()).or_default();
                (*count, *at) = (*count + 1, counters);
            }
            match u.op() {
                Op::Range | Op::EndRange | Op::If | Op::EndIf => counters[0] += 1,
                Op::DefineAcc | Op::Assign => counters[1] += 1,
                _ => {}
            }
            defined.push(counters);
        }
        for (u, at) in uops.iter().zip(defined) {
            let reads = value_operands(u).any(|s| {
                matches!(s.op(), Op::DefineAcc | Op::Assign)
                    || (self.inline.contains(&s.id()) && self.reads_acc.contains(&s.id()))
            });
            if reads {
                self.reads_acc.insert(u.id());
            }
            if !u.op().is_alu() && !matches!(u.op(), Op::Vectorize | Op::Gep) {
                continue;
            }
            let once = last_use.get(&u.id()).is_some_and(|(count, used)| {
                *count == 1 && used[0] == at[0] && (!reads || used[1] == at[1])
            });
            if once {
                self.inline.insert(u.id());
            } else if !reads
                && last_use.contains_key(&u.id())
                && (is_negation(u) || (u.op() == Op::Gep && u.dtype().lanes == 1))
            {
                self.short.insert(u.id());
            }
        }
    }
}

/// Returns true for `x * -1`, which is written `-x`.
fn is_negation(u: &UOp) -> bool {
    let minus_one =
        |s: &UOp| s.as_const().is_some_and(|c| c == Const::Int(-1).normalize(s.dtype().scalar()));
    u.as_mul().is_some_and(|m| !u.dtype().is_bool() && minus_one(m.y))
}
