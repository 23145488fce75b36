//! Nodes, handles, and the table of all nodes. Nodes are immutable and hash-consed: equal nodes are
//! the same node, and `==` compares pointers. The table does not own nodes: a graph is freed with
//! its last handle, without recursion.
//!
//! Handles are reference-counted. They are no `Arc`s because the compiler creates and drops
//! hundreds of thousands of nodes per second: without a weak count lookups are cheaper, an entry of
//! the table is two words, and the memory of freed nodes is reused.

use super::{Arg, LoadHint, Op};
use crate::dtype::DType;
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The operands of a node. Three are stored inline, the most of an elementwise op.
pub type Src = SmallVec<[UOp; 3]>;

/// A node. The order of the fields keeps those that walks read in one cache line.
#[repr(C)]
pub(super) struct Node {
    /// The number of handles. It becomes 0 only under the lock of the node's shard of the table, so
    /// that a node in the table is alive.
    handles: AtomicU64,
    pub(super) op: Op,
    pub(super) dtype: DType,
    /// The id of the node, in order of creation; unique for the life of the process.
    pub(super) id: u64,
    pub(super) src: Src,
    /// The structural key: a hash of op, dtype, payload and the keys of the operands. It is the
    /// same in every process.
    pub(super) key: u64,
    pub(super) arg: Arg,
    pub(super) facts: super::derive::Facts,
}

/// A handle of an interned node: eight bytes, cheap to clone. Handles of equal nodes are equal.
pub struct UOp(NonNull<Node>);

const fn shared<T: Send + Sync>() {}
const _: () = shared::<Node>();
// SAFETY: a handle is a shared reference that is counted with atomics; the node itself may be
// shared and sent, as the line above checks.
unsafe impl Send for UOp {}
// SAFETY: as above.
unsafe impl Sync for UOp {}

struct Entry {
    key: u64,
    node: NonNull<Node>,
}
// SAFETY: as for handles. An entry is only used under the lock of its part of the table.
unsafe impl Send for Entry {}

const SHARDS: usize = 64;
static TABLE: LazyLock<Vec<Mutex<HashTable<Entry>>>> =
    LazyLock::new(|| (0..SHARDS).map(|_| Mutex::default()).collect());
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

fn shard(key: u64) -> MutexGuard<'static, HashTable<Entry>> {
    // No user code runs under the lock, so that the table of a poisoned one is intact. The top
    // seven bits of the key are for the table, which distinguishes the entries of a group by them.
    TABLE[(key >> 48) as usize % SHARDS].lock().unwrap_or_else(|e| e.into_inner())
}

fn mix(h: u64, v: u64) -> u64 {
    let x = (h ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (x >> 32)
}

/// Hashes a payload. Keys determine the order of operands. Therefore the numbers of the variants of
/// kernels are fixed here, and the mark of vector lanes of a range is not part of its key.
fn hash_arg(arg: &Arg, hasher: &mut FxHasher) {
    let mut tagged = |tag: isize, fields: &dyn Fn(&mut FxHasher)| {
        hasher.write_isize(tag);
        fields(hasher);
    };
    match arg {
        Arg::LoadHint(LoadHint { stage_at: Some(id), prefetch_in: None }) => {
            tagged(24, &|h| id.hash(h))
        }
        Arg::LoadHint(LoadHint { stage_at: Some(id), .. }) => tagged(25, &|h| id.hash(h)),
        Arg::LoadHint(LoadHint { stage_at: None, prefetch_in }) => {
            tagged(26, &|h| prefetch_in.unwrap_or_default().hash(h))
        }
        Arg::Range { id, kind, .. } => tagged(27, &|h| (*id, *kind).hash(h)),
        Arg::Special { kind, dim, extent } => tagged(28, &|h| (*kind, *dim, *extent).hash(h)),
        Arg::Lanes(lanes) => tagged(29, &|h| lanes.hash(h)),
        Arg::Wmma { core, lanes } => tagged(30, &|h| (core, lanes).hash(h)),
        Arg::Shuffle(mask) => tagged(31, &|h| mask.hash(h)),
        _ => arg.hash(hasher),
    }
}

fn structural_key(op: Op, dtype: DType, src: &[UOp], arg: &Arg) -> u64 {
    let mut h = mix(op as u64, (dtype.scalar as u64) << 32 | dtype.lanes as u64);
    if !matches!(arg, Arg::None) {
        let mut hasher = FxHasher::default();
        hash_arg(arg, &mut hasher);
        h = mix(h, hasher.finish());
    }
    for s in src {
        h = mix(h, s.node().key);
    }
    h
}

impl UOp {
    /// Returns the node with these parts, which is created if it does not exist.
    pub fn new(op: Op, dtype: DType, src: impl Into<Src>, arg: Arg) -> UOp {
        let src = src.into();
        debug_assert!(op.takes(src.len()), "{op:?} does not take {} operands", src.len());
        let key = structural_key(op, dtype, &src, &arg);
        let mut table = shard(key);
        let found = table.find(key, |e| {
            if e.key != key {
                return false;
            }
            // SAFETY: nodes in the table are alive while the lock is held.
            let n = unsafe { e.node.as_ref() };
            n.op == op && n.dtype == dtype && n.src == src && n.arg == arg
        });
        if let Some(e) = found {
            let node = e.node;
            // SAFETY: as above. The node is in the table, so that the count is not 0.
            unsafe { node.as_ref() }.handles.fetch_add(1, Ordering::Relaxed);
            return UOp(node);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let node = allocate(Node {
            handles: AtomicU64::new(1),
            op,
            dtype,
            src,
            arg,
            key,
            id,
            facts: Default::default(),
        });
        table.insert_unique(key, Entry { key, node }, |e| e.key);
        UOp(node)
    }

    #[inline]
    pub(super) fn node(&self) -> &Node {
        // SAFETY: a node lives while there is a handle on it.
        unsafe { self.0.as_ref() }
    }

    /// Returns true if the graph has no users besides the caller, who has `handles` handles of the
    /// root. Handles in cached views do not count.
    pub(crate) fn has_no_other_user(&self, handles: u64) -> bool {
        // Nodes, and the number of their users that have been visited.
        let mut stack: Vec<(&UOp, u64)> = vec![(self, handles)];
        let mut seen: Vec<&UOp> = Vec::new();
        while let Some((u, parents)) = stack.pop() {
            let views = seen.iter().filter(|s| s.node().facts.view_of() == Some(u)).count() as u64;
            if u.node().handles.load(Ordering::Acquire) > parents + views {
                return false;
            }
            seen.push(u);
            stack.extend(u.src().iter().map(|s| (s, 1)));
        }
        true
    }

    /// Returns the number of handles of the node in all threads, including those of its users.
    pub(crate) fn handles(&self) -> u64 {
        self.node().handles.load(Ordering::Acquire)
    }

    /// Returns the nodes of which this node has handles: its operands, and the base of its cached
    /// view.
    pub(crate) fn referenced_nodes(&self) -> impl Iterator<Item = &UOp> {
        self.src().iter().chain(self.node().facts.view_of())
    }

    /// Returns the number of nodes that are alive in the process.
    pub fn live() -> usize {
        TABLE.iter().map(|t| t.lock().unwrap_or_else(|e| e.into_inner()).len()).sum()
    }

    /// Releases the handle unless it is the last one; true if it is the last.
    #[inline]
    fn is_last(&self) -> bool {
        let handles = &self.node().handles;
        let mut n = handles.load(Ordering::Relaxed);
        while n > 1 {
            // Accesses through this handle happen before the node is freed.
            match handles.compare_exchange_weak(n, n - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return false,
                Err(now) => n = now,
            }
        }
        true
    }
}

impl Clone for UOp {
    #[inline]
    fn clone(&self) -> UOp {
        self.node().handles.fetch_add(1, Ordering::Relaxed);
        UOp(self.0)
    }
}

impl Drop for UOp {
    #[inline]
    fn drop(&mut self) {
        if self.is_last() {
            free(self.0);
        }
    }
}

thread_local! {
    /// Nodes whose last handle was dropped inside [`free`] on this thread: a payload may hold a
    /// closure of user code, which may hold a tensor.
    static DEFERRED: RefCell<Option<Vec<NonNull<Node>>>> = const { RefCell::new(None) };
}

/// Ends a walk of [`free`], also if user code panics.
struct FreeWalk;

impl Drop for FreeWalk {
    fn drop(&mut self) {
        let _ = DEFERRED.try_with(|w| w.borrow_mut().take());
    }
}

/// Drops a handle that was the last one when it was checked, and frees the node if it still is.
/// Operands without other handles are freed in the same loop and not by nested drops.
fn free(last: NonNull<Node>) {
    let under_way = DEFERRED.try_with(|w| {
        let mut waiting = w.borrow_mut();
        match &mut *waiting {
            Some(list) => list.push(last),
            None => *waiting = Some(Vec::new()),
        }
        waiting.as_ref().is_some_and(|list| !list.is_empty())
    });
    if under_way == Ok(true) {
        return;
    }
    let _walk = under_way.is_ok().then_some(FreeWalk);
    let mut stack: SmallVec<[NonNull<Node>; 8]> = smallvec::smallvec![last];
    loop {
        let Some(node) = stack.pop() else {
            let more = DEFERRED
                .try_with(|w| w.borrow_mut().as_mut().map(std::mem::take))
                .ok()
                .flatten()
                .unwrap_or_default();
            if more.is_empty() {
                return;
            }
            stack.extend(more);
            continue;
        };
        {
            // SAFETY: the handle is not dropped yet.
            let n = unsafe { node.as_ref() };
            let mut table = shard(n.key);
            // New handles come from the table, which is locked, or from other handles, which count.
            if n.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
                continue;
            }
            if let Ok(e) = table.find_entry(n.key, |e| e.node == node) {
                e.remove();
            }
        }
        // SAFETY: there is no handle, and the node is not in the table, so that nothing else refers
        // to it; it was allocated by `allocate`.
        let Node { src, mut facts, arg, .. } = unsafe { take_node(node) };
        for u in src.into_iter().chain(facts.take_view()) {
            let u = ManuallyDrop::new(u);
            if u.is_last() {
                stack.push(u.0);
            }
        }
        drop((facts, arg));
    }
}

/// Maximum number of freed nodes whose memory a thread reuses.
const MAX_FREE_NODES: usize = 1 << 14;

/// The memory of freed nodes.
type FreeNodes = Vec<Box<MaybeUninit<Node>>>;

thread_local! {
    static FREE_NODES: RefCell<FreeNodes> = const { RefCell::new(Vec::new()) };
}

fn allocate(node: Node) -> NonNull<Node> {
    let kept = FREE_NODES.try_with(|m| m.borrow_mut().pop()).ok().flatten();
    let mut place = kept.unwrap_or_else(Box::new_uninit);
    place.write(node);
    NonNull::from(Box::leak(place)).cast()
}

/// Moves a node out of its memory, which is kept for another one.
///
/// # Safety
/// The pointer is from [`allocate`], and is not used afterwards.
unsafe fn take_node(node: NonNull<Node>) -> Node {
    // SAFETY: it is a leaked box with a node, and the caller is its only user. The node is moved
    // out once, and the box has the type of uninitialized memory.
    let (node, place) =
        unsafe { (node.read(), Box::from_raw(node.cast::<MaybeUninit<Node>>().as_ptr())) };
    // A thread that is being destroyed has no list.
    let _ = FREE_NODES.try_with(|m| {
        let mut kept = m.borrow_mut();
        if kept.len() < MAX_FREE_NODES {
            kept.push(place);
        }
    });
    node
}

impl PartialEq for UOp {
    #[inline]
    fn eq(&self, other: &UOp) -> bool {
        self.0 == other.0
    }
}
impl Eq for UOp {}
impl Hash for UOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.node().id)
    }
}
