//! Iterative walks and rebuilds of graphs, without recursion.

use super::{Arg, DeviceName, Group, IdSet, Op, Src, UOp};
use crate::shape::SymInt;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of nodes that walks, rewrites and the scheduler have visited on this thread:
/// a measure of cost that does not depend on the machine.
#[cfg(feature = "testing")]
pub fn visits() -> u64 {
    VISITS.get()
}

/// Counts visits of nodes.
#[inline]
pub(crate) fn visit(nodes: usize) {
    VISITS.set(VISITS.get() + nodes as u64);
}

/// Returns every node under the roots, operands before users, each once. The order depends on
/// structure alone.
pub fn toposort<'a>(roots: impl IntoIterator<Item = &'a UOp>) -> Vec<UOp> {
    toposort_until(roots, |_| false)
}

/// As [`toposort`], but does not visit the operands of nodes for which `stop` is true.
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

/// As [`walk`], but visits only the operands that `along` returns.
pub(crate) fn walk_along<'a>(
    roots: impl IntoIterator<Item = &'a UOp>,
    along: impl Fn(&'a UOp) -> &'a [UOp],
    mut f: impl FnMut(&'a UOp),
) {
    let mut seen = IdSet::default();
    // Nodes, and their operands that are not visited yet.
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

/// Returns the ids of the nodes that `is` selects, and of those that depend on one. Operands come
/// first.
pub(crate) fn dependents<'a>(
    order: impl IntoIterator<Item = &'a UOp>,
    is: impl Fn(&UOp) -> bool,
) -> FxHashSet<u64> {
    let mut set = FxHashSet::default();
    for u in order {
        if is(u) || u.src().iter().any(|s| set.contains(&s.id())) {
            set.insert(u.id());
        }
    }
    set
}

/// Returns a range id that none of these nodes uses.
pub(crate) fn next_range(nodes: &[UOp]) -> u32 {
    nodes.iter().filter(|u| u.op() == Op::Range).map(|u| u.range_id() + 1).max().unwrap_or(0)
}

impl UOp {
    /// Returns every node under this one, operands first, itself last.
    pub fn toposort(&self) -> Vec<UOp> {
        toposort([self])
    }

    /// Returns the device that the payload names: that of memory, of a copy, of shards.
    pub(crate) fn own_device(&self) -> Option<&DeviceName> {
        match self.arg() {
            Arg::Storage(s) => Some(s.storage.device()),
            Arg::Device(device)
            | Arg::Param { device, .. }
            | Arg::Shards { devices: device, .. } => Some(device),
            _ => None,
        }
    }

    /// Returns true if the graph reads memory or is stored on a device, and is therefore bound to
    /// one.
    pub(crate) fn has_data(&self) -> bool {
        self.toposort().iter().any(|u| u.own_device().is_some())
    }

    /// Returns the node under marks, which has the same value.
    pub fn unmarked(&self) -> &UOp {
        self.follow_operands(|op| op.is(Group::Mark))
    }

    /// Returns the node that is reached by following first operands while `through` is true for the
    /// op.
    pub(crate) fn follow_operands(&self, through: impl Fn(Op) -> bool) -> &UOp {
        let mut u = self;
        while through(u.op()) {
            u = u.operand();
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

    /// Returns the graph with nodes replaced. Operands of a replacement are not visited.
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

/// As [`rebuild_all`], but visits only the operands that `along` returns.
fn rebuild_along<'a>(
    roots: &'a [UOp],
    along: impl Fn(&'a UOp) -> &'a [UOp],
    mut f: impl FnMut(&UOp, &[UOp]) -> Option<UOp>,
) -> Vec<UOp> {
    // The replacements of nodes that change.
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

/// Calls `f` on every node that the values of the roots depend on, without the operands of marks
/// that only gradients follow.
pub fn walk_values(roots: &[UOp], f: impl FnMut(&UOp)) {
    walk_along(roots, value_operands, f)
}

/// Graphs without marks, which are for gradients alone. `replace` may return a replacement of a
/// node; it is called once for each, in topological order.
pub fn unmarked(roots: &[UOp], mut replace: impl FnMut(&UOp) -> Option<UOp>) -> Vec<UOp> {
    rebuild_along(roots, value_operands, |u, src| {
        let new = replace(u).or_else(|| u.op().is(Group::Mark).then(|| src[0].clone()));
        // The body of a loop has its own marks.
        match u.arg() {
            Arg::Loop(l) => {
                let new = new.unwrap_or_else(|| u.with_src(src));
                Some(new.with_arg(Arg::Loop(l.unmarked().into())))
            }
            _ => new,
        }
    })
}

/// Returns the operands that the value of a node depends on: of a mark the first.
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

/// Graphs with the symbolic starts and lengths of their slices replaced.
pub(crate) fn map_symints(roots: &[UOp], new: &dyn Fn(&SymInt) -> SymInt) -> Vec<UOp> {
    rebuild_all(roots, |u, src| {
        let part = u.as_slice()?.part;
        Some(src[0].sliced(part.axis, new(&part.start), new(&part.len)))
    })
}
