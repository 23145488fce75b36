//! Locks of a realization that writes memory in place. It takes the requests of a run, some with
//! donated buffers, and removes the donations whose old content another thread may still read.
//!
//! Invariant: every node that reads the old content of memory is held by a tensor that the index of
//! holders knows, or by a handle that is counted here.

use super::Tensor;
use super::holders::{self, Region};
use super::realize::{lock, stand_in};
use crate::device::Buffer;
use crate::ir::UOp;
use crate::schedule::Request;
use rustc_hash::FxHashMap;
use std::sync::{Arc, RwLockWriteGuard};

/// Locks on the tensors of a run that writes memory in place. They are held from the decision that
/// nothing reads the old content until the tensors have their new values. Another thread that takes
/// the node of a locked tensor waits. A thread that took the node before, and has not created a
/// tensor from it yet, is detected by its handle: the run then writes new memory.
#[derive(Default)]
pub(super) struct Locked<'a> {
    /// By [`Tensor::id`].
    guards: FxHashMap<usize, (&'a Tensor, RwLockWriteGuard<'a, UOp>)>,
    /// Old nodes of tensors. They are dropped after the locks are released, because a drop may run
    /// a user's destructors.
    exchanged: Vec<UOp>,
}

impl<'a> Locked<'a> {
    /// Locks the tensors of these nodes, or removes the donated buffers from the requests.
    /// `readers` are the readers of the memory that could be donated.
    pub(super) fn new(
        tensors: &[&'a Tensor],
        nodes: &[UOp],
        requests: &mut [Request],
        kept: &[UOp],
        readers: Option<Region>,
    ) -> Locked<'a> {
        let mut locked = Locked::default();
        let donates = requests.iter().any(|r| r.reuse.iter().any(Option::is_some));
        let Some(readers) = readers.filter(|_| donates) else { return locked };
        for t in tensors {
            locked
                .guards
                .entry(t.id())
                .or_insert_with(|| (*t, t.0.uop.write().unwrap_or_else(|e| e.into_inner())));
        }
        // Another thread may have assigned meanwhile.
        let unchanged =
            tensors.iter().zip(nodes).all(|(t, node)| *locked.guards[&t.id()].1 == *node);
        // With a single thread all handles belong to its tensors.
        if !unchanged
            || (holders::is_threaded() && !locked.has_all_handles(nodes, requests, kept, &readers))
        {
            requests.iter_mut().for_each(|r| r.reuse.iter_mut().for_each(|s| *s = None));
            locked.guards.clear();
        }
        locked
    }

    /// Returns true if this run has all handles on the memory that it writes and on the nodes that
    /// read it.
    fn has_all_handles(
        &self,
        nodes: &[UOp],
        requests: &[Request],
        kept: &[UOp],
        readers: &Region,
    ) -> bool {
        let mut of_nodes: FxHashMap<u64, u64> = FxHashMap::default();
        let of_requests = requests.iter().map(|r| &r.node);
        let of_tensors = readers.tensors.iter().map(|(_, u)| u);
        let guarded = self.guards.values().map(|(_, u)| &**u);
        let of_run = nodes.iter().chain(kept).chain(of_requests).chain(of_tensors).chain(guarded);
        of_run.for_each(|u| *of_nodes.entry(u.id()).or_default() += 1);
        let mut visited = Vec::new();
        let visit = |u| {
            UOp::referenced_nodes(u).for_each(|s| *of_nodes.entry(s.id()).or_default() += 1);
            visited.push(u);
        };
        readers.walk(nodes, |_| false, visit);
        let mut of_storages: FxHashMap<u64, usize> = FxHashMap::default();
        let mut count = |id: u64| *of_storages.entry(id).or_default() += 1;
        let donated = || requests.iter().flat_map(|r| r.reuse.iter().flatten());
        donated()
            .chain(visited.iter().filter_map(|u| u.arg().storage()))
            .for_each(|s| count(s.storage.id()));
        self.guards.values().for_each(|(t, _)| {
            lock(&t.0.reusable_storage).iter().for_each(|s| count(s.storage.id()))
        });
        let alone = |s: &crate::ir::StorageRef| {
            Arc::strong_count(&s.storage) <= of_storages[&s.storage.id()]
        };
        visited.iter().all(|u| u.handles() <= of_nodes.get(&u.id()).copied().unwrap_or(0))
            && donated().all(|s| alone(s) && Buffer::of(s).is_unshared(usize::MAX))
    }

    /// Sets the values of the locked tensors and unlocks them. Returns the nodes of all tensors.
    pub(super) fn exchange(
        mut self,
        tensors: &[&Tensor],
        nodes: Vec<UOp>,
        values: &[UOp],
    ) -> Vec<UOp> {
        let mut now = nodes;
        for ((t, node), value) in tensors.iter().zip(&mut now).zip(values) {
            if let Some((_, guard)) = self.guards.get_mut(&t.id()) {
                *node = stand_in(node, value);
                self.exchanged.push(std::mem::replace(&mut **guard, node.clone()));
            }
        }
        now
    }
}
