//! Maxima and minima of floats whose zero is fixed later. The instruction returns its second
//! operand if one operand is NaN or both are zeros. NaN in the second operand wins by itself; the
//! first is tested. A zero of either sign is good enough for another maximum or minimum, so that
//! only the last one of a chain adds +0; in a reduction that is done after the loop.
//!
//! ```text
//! before:  acc = max(acc, x) in a loop
//! after:   m = maxps x, acc; acc = blend(x is NaN, x, m) in the loop, acc + 0 after it
//! ```

use crate::ir::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What is fixed later.
#[derive(Default)]
pub(super) struct Extremes {
    /// Nodes whose zero may have either sign.
    nodes: FxHashSet<u64>,
    /// Accumulators whose zero is fixed after the loop.
    accs: FxHashSet<u32>,
}

/// The uses of a maximum, or of an accumulator inside the loops that change it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uses {
    /// Only by maxima and minima, and by assignments to an accumulator.
    Extremes,
    Others,
}

fn is_extreme(u: &UOp) -> bool {
    matches!(u.op(), Op::Max | Op::Min) && u.dtype().is_float()
}

impl Extremes {
    /// Finds the nodes of a program.
    pub fn new(uops: &[UOp]) -> Extremes {
        if !uops.iter().any(is_extreme) {
            return Extremes::default();
        }
        let accs = accumulators(uops);
        let mut uses: FxHashMap<u64, Uses> = FxHashMap::default();
        for u in uops {
            for x in u.src().iter().filter(|x| is_extreme(x)) {
                let into = match u.op() {
                    Op::Assign => super::accumulator(u).is_some_and(|acc| accs.contains(&acc)),
                    _ => is_extreme(u),
                };
                let of = uses.entry(x.id()).or_insert(Uses::Extremes);
                if !into {
                    *of = Uses::Others;
                }
            }
        }
        let nodes = uses.into_iter().filter(|(_, uses)| *uses == Uses::Extremes);
        Extremes { nodes: nodes.map(|(id, _)| id).collect(), accs }
    }

    /// Returns true if the zero of a node may have either sign.
    pub fn is_deferred(&self, u: &UOp) -> bool {
        self.nodes.contains(&u.id())
    }
    /// Returns true if the zero of an accumulator is fixed after its loop.
    pub fn is_fixed_after(&self, acc: u32) -> bool {
        self.accs.contains(&acc)
    }
}

/// An accumulator.
struct Acc {
    /// The number of open loops around its definition.
    depth: usize,
    /// The outermost loop that changes it, while that is open.
    inside: bool,
    assigned: bool,
    is_chain: bool,
}

/// Returns the accumulators that are assigned maxima and minima in loops alone, and that nothing
/// else reads there.
fn accumulators(uops: &[UOp]) -> FxHashSet<u32> {
    let mut found: FxHashMap<u32, Acc> = FxHashMap::default();
    let mut changed: FxHashMap<u64, FxHashSet<u32>> = FxHashMap::default();
    let mut open: Vec<u64> = Vec::new();
    for u in uops {
        match u.op() {
            Op::Range => open.push(u.id()),
            Op::EndRange => {
                open.pop();
            }
            Op::Assign => {
                let Some(acc) = super::accumulator(u) else { continue };
                for range in &open {
                    changed.entry(*range).or_default().insert(acc);
                }
            }
            _ => {}
        }
    }
    open.clear();
    for u in uops {
        match u.op() {
            Op::Range => open.push(u.id()),
            Op::EndRange => {
                open.pop();
            }
            _ => {}
        }
        if let (Op::DefineAcc, Some(acc)) = (u.op(), super::accumulator(u)) {
            let depth = open.len();
            let is_chain = u.dtype().is_float();
            found.insert(acc, Acc { depth, inside: false, assigned: false, is_chain });
            continue;
        }
        let changes = |acc: u32, depth: usize| {
            let loops = open.get(depth..).unwrap_or_default();
            loops.iter().any(|r| changed.get(r).is_some_and(|set| set.contains(&acc)))
        };
        for (i, x) in u.src().iter().enumerate() {
            let Some(number) = super::accumulator(x) else { continue };
            let Some(acc) = found.get_mut(&number) else { continue };
            acc.inside = changes(number, acc.depth);
            if u.op() == Op::Assign && i == 0 {
                // The value comes second.
                acc.assigned = true;
                acc.is_chain &= acc.inside && u.src().get(1).is_some_and(is_extreme);
            } else if acc.inside {
                acc.is_chain &= is_extreme(u);
            }
        }
    }
    let chains = found.into_iter().filter(|(_, acc)| acc.assigned && acc.is_chain);
    chains.map(|(number, _)| number).collect()
}
