//! Index from nodes to their users, up to the live tensors. With it a realization costs its own
//! graph and the graphs that contain it, independent of the number of other live tensors.
//!
//! An op only adds its result to a list. The next realization that needs the index adds the graphs
//! of the listed tensors that are still alive, each node once. The index holds no node and no
//! tensor. Entries of dropped nodes lead to no live tensor; they are removed when the index has
//! doubled in size.

use super::realize::lock;
use super::{Inner, Tensor};
use crate::ir::{Arg, IdSet, Src, UOp, visit};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Number of lists of tensors that are not indexed yet: several, so that threads do not wait for
/// each other.
const LISTS: usize = 16;
static FRESH: [Mutex<Fresh>; LISTS] =
    [const { Mutex::new(Fresh { tensors: Vec::new(), sweep_at: 1024 }) }; LISTS];
static INDEX: Mutex<Option<Index>> = Mutex::new(None);

/// Number of threads that have read or created the node of a tensor.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LIST: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::SeqCst) % LISTS);
}

/// Counts this thread among those that may hold nodes of tensors.
pub(super) fn note_thread() {
    let _ = LIST.try_with(|_| ());
}

/// Returns true if more than one thread has held nodes of tensors.
pub(super) fn is_threaded() -> bool {
    THREADS.load(Ordering::SeqCst) > 1
}

/// Tensors to index, each with true if it is new and false if its node was replaced.
struct Fresh {
    tensors: Vec<(Weak<Inner>, bool)>,
    sweep_at: usize,
}

#[derive(Default)]
struct Index {
    nodes: FxHashMap<u64, Users>,
    /// Nodes of the content of a memory, by the memory and its version.
    buffers: FxHashMap<(u64, u64), SmallVec<[u64; 1]>>,
    /// All tensors, in the order of creation.
    all: Vec<Weak<Inner>>,
    sweep_at: usize,
}

#[derive(Default)]
struct Users {
    nodes: SmallVec<[u64; 2]>,
    /// Tensors whose current or earlier node it is.
    tensors: SmallVec<[Weak<Inner>; 1]>,
}

/// Queues a tensor for the index: a new one, or one with a new node.
pub(super) fn note(t: &Tensor, new: bool) {
    let list = LIST.try_with(Cell::get).unwrap_or(0);
    let mut fresh = lock(&FRESH[list]);
    if fresh.tensors.len() >= fresh.sweep_at {
        fresh.tensors.retain(|w| w.0.strong_count() > 0);
        fresh.sweep_at = (fresh.tensors.len() * 2).max(1024);
    }
    fresh.tensors.push((Arc::downgrade(&t.0), new));
}

impl Index {
    /// Adds the queued tensors.
    fn update(&mut self, upgraded: &mut Vec<Tensor>) {
        let before = upgraded.len();
        for list in &FRESH {
            for (weak, new) in std::mem::take(&mut lock(list).tensors) {
                let Some(inner) = weak.upgrade() else { continue };
                upgraded.push(Tensor(inner));
                if new {
                    self.all.push(weak);
                }
            }
        }
        for t in &upgraded[before..] {
            self.add(t);
        }
        if self.nodes.len() > self.sweep_at.max(4096) {
            self.all.retain(|w| w.strong_count() > 0);
            (self.nodes, self.buffers) = Default::default();
            let live: Vec<Tensor> = self.all.iter().filter_map(Weak::upgrade).map(Tensor).collect();
            live.iter().for_each(|t| self.add(t));
            upgraded.extend(live);
            self.sweep_at = self.nodes.len() * 2;
        }
    }

    fn add(&mut self, t: &Tensor) {
        let root = t.raw();
        let (known, mut visits) = (self.nodes.contains_key(&root.id()), 1);
        let tensors = &mut self.nodes.entry(root.id()).or_default().tensors;
        if !tensors.iter().any(|w| std::ptr::eq(w.as_ptr(), Arc::as_ptr(&t.0))) {
            tensors.push(Arc::downgrade(&t.0));
        }
        let mut open = if known { vec![] } else { vec![&root] };
        while let Some(u) = open.pop() {
            visits += 1;
            if let Arg::Storage(s) = u.arg() {
                self.buffers.entry((s.storage.memory_id(), s.version)).or_default().push(u.id());
            }
            for s in u.src() {
                let users = self.nodes.entry(s.id()).or_insert_with(|| {
                    open.push(s);
                    Users::default()
                });
                users.nodes.push(u.id());
            }
        }
        visit(visits);
    }

    /// Nodes and everything that is computed from them.
    fn region(&self, nodes: impl Iterator<Item = u64>) -> Region {
        let (mut ids, mut list) = (IdSet::default(), Vec::new());
        let mut open: Vec<u64> = nodes.filter(|n| ids.insert(*n)).collect();
        while let Some(n) = open.pop() {
            list.push(n);
            let users = self.nodes.get(&n).into_iter().flat_map(|u| &u.nodes);
            open.extend(users.filter(|u| ids.insert(**u)));
        }
        visit(list.len());
        let mut tensors = Vec::new();
        for n in list {
            let held = self.nodes.get(&n).into_iter().flat_map(|u| &u.tensors);
            let held = held.filter_map(Weak::upgrade).map(Tensor);
            let with_node = held.map(|t| (t.raw(), t)).filter(|(u, _)| u.id() == n);
            tensors.extend(with_node.map(|(u, t)| (t, u)));
        }
        Region { ids, tensors }
    }
}

/// Set of nodes with everything that is computed from them.
pub(super) struct Region {
    ids: IdSet,
    /// Live tensors in the region, with their nodes.
    pub(super) tensors: Vec<(Tensor, UOp)>,
}

/// Reads the updated index. Upgraded tensors are dropped after the lock is released, because
/// dropping the last handle on a tensor may run a user's destructors.
fn with_index<T>(f: impl FnOnce(&Index) -> T) -> T {
    let mut upgraded = Vec::new();
    let mut index = lock(&INDEX);
    let index_now = index.get_or_insert_default();
    index_now.update(&mut upgraded);
    let found = f(index_now);
    drop(index);
    found
}

/// Returns all live tensors, in the order of creation.
pub(super) fn live() -> Vec<Tensor> {
    with_index(|index| index.all.iter().filter_map(Weak::upgrade).map(Tensor).collect())
}

/// Tensors and nodes that contain the given nodes.
pub(super) fn region<'a>(nodes: impl IntoIterator<Item = &'a UOp>) -> Region {
    with_index(|index| index.region(nodes.into_iter().map(UOp::id)))
}

/// Tensors and nodes that read the given contents, each a memory and a version.
pub(super) fn readers(contents: impl Iterator<Item = (u64, u64)>) -> Region {
    with_index(|index| {
        index.region(contents.filter_map(|c| index.buffers.get(&c)).flatten().copied())
    })
}

impl Region {
    /// Calls `f` on the nodes of the region below the roots, operands before users. The operands of
    /// a node where `stop` holds are not visited.
    pub(super) fn walk<'a>(
        &self,
        roots: impl IntoIterator<Item = &'a UOp>,
        stop: impl Fn(&UOp) -> bool,
        mut f: impl FnMut(&'a UOp),
    ) {
        let (mut seen, mut visits) = (IdSet::default(), 0);
        let mut enter = |u: &UOp| self.ids.has(u.id()) && seen.insert(u.id());
        for root in roots {
            let mut stack: Vec<(&'a UOp, std::slice::Iter<'a, UOp>)> = Vec::new();
            let operands = |u: &'a UOp| if stop(u) { [].iter() } else { u.src().iter() };
            if enter(root) {
                stack.push((root, operands(root)));
            }
            while let Some((u, rest)) = stack.last_mut() {
                match rest.next() {
                    Some(s) if enter(s) => stack.push((s, operands(s))),
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

    /// Replaces nodes of the region in graphs. Replacements are not visited.
    pub(super) fn substitute(&self, roots: &[UOp], map: &FxHashMap<UOp, UOp>) -> Vec<UOp> {
        let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
        self.walk(
            roots,
            |u| map.contains_key(u),
            |u| changed(u, &mut done, |u, _| map.get(u).cloned()),
        );
        roots.iter().map(|r| done.get(&r.id()).unwrap_or(r).clone()).collect()
    }

    /// Rebuilds the nodes of the region below the roots, operands before users; returns the changed
    /// ones. `f` gets a node and its copy with changed operands.
    pub(super) fn rebuilt<'a>(
        &self,
        roots: impl IntoIterator<Item = &'a UOp>,
        f: impl Fn(&UOp, UOp) -> Option<UOp>,
    ) -> FxHashMap<u64, UOp> {
        let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
        self.walk(roots, |_| false, |u| changed(u, &mut done, &f));
        done
    }
}

/// Records the replacement of a node: the result of `f`, or its copy with changed operands.
fn changed(u: &UOp, done: &mut FxHashMap<u64, UOp>, f: impl Fn(&UOp, UOp) -> Option<UOp>) {
    let over = if u.src().iter().any(|s| done.contains_key(&s.id())) {
        let src = u.src().iter().map(|s| done.get(&s.id()).unwrap_or(s).clone());
        u.with_src(src.collect::<Src>())
    } else {
        u.clone()
    };
    let new = f(u, over.clone()).unwrap_or(over);
    if new != *u {
        done.insert(u.id(), new);
    }
}
