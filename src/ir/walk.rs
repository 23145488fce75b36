//! Iterative traversals. Nothing here recurses, so depth is bounded by memory alone.

use super::{Arg, Group, IdSet, Op, Src, UOp};
use crate::shape::SymInt;
use rustc_hash::FxHashMap;
use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Nodes that walks, rewrites and the scheduler have visited on this thread: what a graph costs, as
/// a number that does not depend on the machine.
#[cfg(feature = "testing")]
pub fn visits() -> u64 {
    VISITS.get()
}

/// Counts visits of nodes.
#[inline]
pub(crate) fn visit(nodes: usize) {
    VISITS.set(VISITS.get() + nodes as u64);
}

/// Every node under the roots, operands before users, each once. The order depends on structure
/// alone.
pub fn toposort<'a>(roots: impl IntoIterator<Item = &'a UOp>) -> Vec<UOp> {
    toposort_until(roots, |_| false)
}

/// As [`toposort`], but does not look behind nodes where `stop` holds; those nodes themselves are
/// listed.
pub fn toposort_until<'a>(
    roots: impl IntoIterator<Item = &'a UOp>,
    stop: impl Fn(&UOp) -> bool,
) -> Vec<UOp> {
    let mut order = Vec::with_capacity(64);
    walk(roots, stop, |u| order.push(u.clone()));
    order
}

/// Calls `f` on every node under the roots in the order of [`toposort`].
pub(crate) fn walk<'a>(
    roots: impl IntoIterator<Item = &'a UOp>,
    stop: impl Fn(&UOp) -> bool,
    f: impl FnMut(&'a UOp),
) {
    walk_along(roots, |u| if stop(u) { &[] } else { u.src() }, f)
}

/// As [`walk`], but goes only to the operands that `along` names.
pub(crate) fn walk_along<'a>(
    roots: impl IntoIterator<Item = &'a UOp>,
    along: impl Fn(&'a UOp) -> &'a [UOp],
    mut f: impl FnMut(&'a UOp),
) {
    let mut seen = IdSet::default();
    // (node, operands that are still to visit)
    let mut stack: Vec<(&'a UOp, std::slice::Iter<'a, UOp>)> = Vec::with_capacity(32);
    let enter = |u: &'a UOp| (u, along(u).iter());
    let mut visits = 0;
    for root in roots {
        if !seen.insert(root.id()) {
            continue;
        }
        stack.push(enter(root));
        while let Some((u, operands)) = stack.last_mut() {
            match operands.next() {
                Some(s) if seen.insert(s.id()) => stack.push(enter(s)),
                Some(_) => {}
                None => {
                    visits += 1;
                    f(u);
                    stack.pop();
                }
            }
        }
    }
    visit(visits);
}

/// A number that no range among these nodes has.
pub(crate) fn next_range(nodes: &[UOp]) -> u32 {
    nodes.iter().filter(|u| u.op() == Op::Range).map(|u| u.range_id() + 1).max().unwrap_or(0)
}

impl UOp {
    /// Every node under this one, operands first, itself last.
    pub fn toposort(&self) -> Vec<UOp> {
        toposort([self])
    }

    /// The node under marks, which has its value.
    pub fn unmarked(&self) -> &UOp {
        let mut u = self;
        while u.op().is(Group::Mark) {
            u = &u.src()[0];
        }
        u
    }

    /// Rebuilds the graph bottom-up: `rebuild_all` of one root.
    ///
    /// ```
    /// use picograd::compiler::ir::{Op, UOp};
    ///
    /// // The graph with every literal doubled.
    /// let graph = UOp::int(3) + UOp::int(4);
    /// let doubled = graph.rebuild(|u, _| u.as_int().map(|v| UOp::int(2 * v)));
    /// assert_eq!(doubled, UOp::int(6) + UOp::int(8));
    /// ```
    pub fn rebuild(&self, f: impl FnMut(&UOp, &[UOp]) -> Option<UOp>) -> UOp {
        rebuild_all(std::slice::from_ref(self), f).pop().expect("one root in, one root out")
    }

    /// The graph with nodes replaced. Operands of a replacement are not visited.
    pub fn substitute(&self, map: &FxHashMap<UOp, UOp>) -> UOp {
        substitute_all(std::slice::from_ref(self), map).pop().expect("one root in, one root out")
    }
}

/// Rebuilds graphs bottom-up, sharing the work on common nodes. `f` is called once for each node,
/// operands first, with the operands that it has after the rebuild, and returns its replacement;
/// with `None` the node keeps its op and payload and gets the new operands.
pub fn rebuild_all(roots: &[UOp], f: impl FnMut(&UOp, &[UOp]) -> Option<UOp>) -> Vec<UOp> {
    rebuild_along(roots, UOp::src, f)
}

/// As [`rebuild_all`], but visits only the operands that `along` names.
fn rebuild_along<'a>(
    roots: &'a [UOp],
    along: impl Fn(&'a UOp) -> &'a [UOp],
    mut f: impl FnMut(&UOp, &[UOp]) -> Option<UOp>,
) -> Vec<UOp> {
    // Only nodes that change have an entry.
    let mut changed: FxHashMap<u64, UOp> = FxHashMap::default();
    let now = |changed: &FxHashMap<u64, UOp>, u: &UOp| changed.get(&u.id()).unwrap_or(u).clone();
    walk_along(roots, along, |u| {
        let new = if !changed.is_empty() && u.src().iter().any(|s| changed.contains_key(&s.id())) {
            let src: Src = u.src().iter().map(|s| now(&changed, s)).collect();
            f(u, &src).unwrap_or_else(|| u.with_src(src))
        } else {
            match f(u, u.src()) {
                Some(new) => new,
                None => return,
            }
        };
        if new != *u {
            changed.insert(u.id(), new);
        }
    });
    roots.iter().map(|r| now(&changed, r)).collect()
}

/// Calls `f` on every node that values of these are made of: what only gradients follow is left
/// out.
pub fn walk_values(roots: &[UOp], f: impl FnMut(&UOp)) {
    walk_along(roots, value_operands, f)
}

/// Graphs without the marks that are for gradients alone: what they compute, and nothing of how it
/// came about. `exchange` may name a node that takes another's place; it is asked once about each,
/// in topological order.
pub fn unmarked(roots: &[UOp], mut exchange: impl FnMut(&UOp) -> Option<UOp>) -> Vec<UOp> {
    rebuild_along(roots, value_operands, |u, src| {
        let new = exchange(u).or_else(|| u.op().is(Group::Mark).then(|| src[0].clone()));
        // A body has marks of its own.
        match u.arg() {
            Arg::Loop(l) => {
                let new = new.unwrap_or_else(|| u.with_src(src));
                Some(new.with_arg(Arg::Loop(l.unmarked().into())))
            }
            _ => new,
        }
    })
}

/// The operands that the value of a node is made of: of a mark the first alone.
fn value_operands(u: &UOp) -> &[UOp] {
    if u.op().is(Group::Mark) { &u.src()[..1] } else { u.src() }
}

/// Graphs with nodes replaced, sharing the work on common nodes. Operands of a replacement are not
/// visited.
pub fn substitute_all(roots: &[UOp], map: &FxHashMap<UOp, UOp>) -> Vec<UOp> {
    rebuild_along(
        roots,
        |u| if map.contains_key(u) { &[] } else { u.src() },
        |u, _| map.get(u).cloned(),
    )
}

/// Graphs with other symbolic bounds in their slices.
pub(crate) fn map_symints(roots: &[UOp], new: &dyn Fn(&SymInt) -> SymInt) -> Vec<UOp> {
    rebuild_all(roots, |u, src| {
        let part = u.as_slice()?.part;
        Some(src[0].sliced(part.axis, new(&part.start), new(&part.len)))
    })
}
