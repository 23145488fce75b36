//! Iterative traversals. Nothing here recurses, so depth is bounded by memory alone.

use super::{IdMap, UOp};
use rustc_hash::FxHashMap;

/// Every node under the roots, operands before users, each once. The order depends on structure alone.
pub fn toposort<'a>(roots: impl IntoIterator<Item = &'a UOp>) -> Vec<UOp> {
    toposort_until(roots, |_| false)
}

/// As [`toposort`], but does not look behind nodes where `stop` holds; those nodes themselves are listed.
pub fn toposort_until<'a>(roots: impl IntoIterator<Item = &'a UOp>, stop: impl Fn(&UOp) -> bool) -> Vec<UOp> {
    let mut order = Vec::new();
    let mut seen: IdMap<()> = IdMap::new();
    // (node, index of the next operand to visit)
    let mut stack: Vec<(&UOp, usize)> = Vec::new();
    for root in roots {
        if !seen.insert(root.id(), ()) {
            continue;
        }
        stack.push((root, 0));
        while let Some((u, next)) = stack.last_mut() {
            let u: &'a UOp = u;
            if *next < u.src().len() && !(*next == 0 && stop(u)) {
                let s = &u.src()[*next];
                *next += 1;
                if seen.insert(s.id(), ()) {
                    stack.push((s, 0));
                }
            } else {
                order.push(u.clone());
                stack.pop();
            }
        }
    }
    order
}

/// The users of each node under the roots, in topological order of the users.
pub fn users(order: &[UOp]) -> FxHashMap<UOp, Vec<UOp>> {
    let mut map: FxHashMap<UOp, Vec<UOp>> = FxHashMap::default();
    for u in order {
        for s in u.src() {
            let v = map.entry(s.clone()).or_default();
            if v.last() != Some(u) {
                v.push(u.clone());
            }
        }
    }
    map
}

impl UOp {
    /// Every node under this one, operands first, itself last.
    pub fn toposort(&self) -> Vec<UOp> {
        toposort([self])
    }

    /// This graph with nodes exchanged. A replacement is not looked into.
    pub fn substitute(&self, map: &FxHashMap<UOp, UOp>) -> UOp {
        substitute_all(std::slice::from_ref(self), map).pop().expect("one root in, one root out")
    }
}

/// Several graphs with nodes exchanged, sharing the work on what they share.
pub fn substitute_all(roots: &[UOp], map: &FxHashMap<UOp, UOp>) -> Vec<UOp> {
    let order = toposort_until(roots, |u| map.contains_key(u));
    // What changed, and into what.
    let mut done: IdMap<Option<UOp>> = IdMap::new();
    let now = |done: &IdMap<Option<UOp>>, u: &UOp| done.get(u.id()).and_then(Clone::clone).unwrap_or_else(|| u.clone());
    for u in &order {
        if let Some(new) = map.get(u) {
            done.insert(u.id(), Some(new.clone()));
        } else if u.src().iter().any(|s| done.get(s.id()).is_some()) {
            let new = u.with_src(u.src().iter().map(|s| now(&done, s)).collect::<super::Src>());
            done.insert(u.id(), Some(new));
        }
    }
    roots.iter().map(|r| now(&done, r)).collect()
}
