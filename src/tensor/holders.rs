//! Which live tensors hold which nodes: an index from nodes to their users, up to the tensors. With
//! it a realization costs what its own graph and the graphs that contain it cost, however many
//! other tensors are alive.
//!
//! An op adds its result to a list and nothing else. The next realization that needs the index adds
//! the graphs of those tensors that are still alive, each node once. The index holds no node and no
//! tensor: entries of nodes that are gone lead to no live tensor, and are swept out when it has
//! doubled.

use super::realize::lock;
use super::{Inner, Tensor};
use crate::ir::{Arg, IdSet, UOp, visit};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Lists of tensors that the index does not know yet, a few so that threads do not wait for each
/// other.
const LISTS: usize = 16;
static FRESH: [Mutex<Fresh>; LISTS] =
    [const { Mutex::new(Fresh { tensors: Vec::new(), sweep_at: 1024 }) }; LISTS];
static INDEX: Mutex<Option<Index>> = Mutex::new(None);

/// Threads that have read the node of a tensor, or made one.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LIST: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::SeqCst) % LISTS);
}

/// Counts this thread among those that may hold nodes of tensors.
pub(super) fn note_thread() {
    let _ = LIST.try_with(|_| ());
}

/// True if more than one thread has held nodes of tensors.
pub(super) fn is_threaded() -> bool {
    THREADS.load(Ordering::SeqCst) > 1
}

/// Tensors to index, each with whether it is new or has another node than before.
struct Fresh {
    tensors: Vec<(Weak<Inner>, bool)>,
    sweep_at: usize,
}

#[derive(Default)]
struct Index {
    nodes: FxHashMap<u64, Users>,
    /// The nodes of the content of a memory, by the memory and its version.
    buffers: FxHashMap<(u64, u64), SmallVec<[u64; 1]>>,
    /// All tensors, in the order of their making.
    all: Vec<Weak<Inner>>,
    sweep_at: usize,
}

#[derive(Default)]
struct Users {
    nodes: SmallVec<[u64; 2]>,
    /// Tensors whose node it is, or was.
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
    /// Adds what has been made since.
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

    /// Nodes and all that is made of them.
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
            let held =
                self.nodes.get(&n).into_iter().flat_map(|u| &u.tensors).filter_map(Weak::upgrade);
            tensors.extend(
                held.map(Tensor)
                    .map(|t| (t.raw(), t))
                    .filter(|(u, _)| u.id() == n)
                    .map(|(node, tensor)| (tensor, node)),
            );
        }
        Region { ids, tensors }
    }
}

/// Nodes with all that is made of them.
pub(super) struct Region {
    ids: IdSet,
    /// The live tensors among it, with their nodes.
    pub(super) tensors: Vec<(Tensor, UOp)>,
}

/// Asks the index. What the function has upgraded is dropped after the lock: the last handle on a
/// tensor may run the user's code.
fn with_index<T>(f: impl FnOnce(&Index) -> T) -> T {
    let mut upgraded = Vec::new();
    let mut index = lock(&INDEX);
    let index_now = index.get_or_insert_default();
    index_now.update(&mut upgraded);
    let found = f(index_now);
    drop(index);
    found
}

/// All live tensors, in the order of their making.
pub(super) fn live() -> Vec<Tensor> {
    with_index(|index| index.all.iter().filter_map(Weak::upgrade).map(Tensor).collect())
}

/// The tensors and nodes that contain nodes.
pub(super) fn region<'a>(nodes: impl IntoIterator<Item = &'a UOp>) -> Region {
    with_index(|index| index.region(nodes.into_iter().map(UOp::id)))
}

/// The tensors and nodes that read contents, each given by memory and version.
pub(super) fn readers(contents: impl Iterator<Item = (u64, u64)>) -> Region {
    with_index(|index| {
        index.region(contents.filter_map(|c| index.buffers.get(&c)).flatten().copied())
    })
}

impl Region {
    /// Calls `f` on the nodes of the region under these, users after operands. `f` is not called on
    /// what lies behind a node where `stop` holds.
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

    /// Graphs with nodes of the region exchanged. A replacement is not looked into.
    pub(super) fn substitute(&self, roots: &[UOp], map: &FxHashMap<UOp, UOp>) -> Vec<UOp> {
        let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
        self.walk(
            roots,
            |u| map.contains_key(u),
            |u| changed(u, &mut done, |u, _| map.get(u).cloned()),
        );
        roots.iter().map(|r| done.get(&r.id()).unwrap_or(r).clone()).collect()
    }

    /// The nodes of the region under these that change, operands before users: `f` is given a node,
    /// and the node over its changed operands.
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

/// Notes what a node becomes: what `f` says, or the node over its changed operands.
fn changed(u: &UOp, done: &mut FxHashMap<u64, UOp>, f: impl Fn(&UOp, UOp) -> Option<UOp>) {
    let over = match u.src().iter().any(|s| done.contains_key(&s.id())) {
        true => u.with_src(
            u.src()
                .iter()
                .map(|s| done.get(&s.id()).unwrap_or(s).clone())
                .collect::<crate::ir::Src>(),
        ),
        false => u.clone(),
    };
    let new = f(u, over.clone()).unwrap_or(over);
    if new != *u {
        done.insert(u.id(), new);
    }
}
