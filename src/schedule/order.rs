//! The order of commands. Input: the buffers that each command reads and writes. Output: a
//! topological order, the one of the graph unless another has a lower peak memory.

use super::assign_ranges::{CustomNode, RangeAssignment};
use super::fuse::KernelGroup;
use super::in_place::InPlace;
use super::plan_memory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Buffers that a command of a plan reads and writes.
pub struct CommandAccess {
    /// Buffers that it reads, each once.
    pub reads: Vec<usize>,
    /// Buffers that it writes.
    pub writes: Vec<usize>,
    /// True if it changes part of a buffer that another command has written.
    pub updates: bool,
    /// Buffers that it does not read, but whose writers it waits for.
    pub after: Vec<usize>,
}

impl CommandAccess {
    /// Returns the buffers that have no content before the command.
    fn creates(&self) -> &[usize] {
        if self.updates { &[] } else { &self.writes }
    }
}

/// Returns the accesses of kernels, copies and custom kernels, in this order.
pub fn accesses(groups: &[KernelGroup], ranged: &RangeAssignment) -> Vec<CommandAccess> {
    let of_group = |g: &KernelGroup| CommandAccess {
        reads: g.reads.iter().copied().collect(),
        writes: g.writes().collect(),
        updates: g.update.is_some(),
        after: Vec::new(),
    };
    let of_copy = |&(to, from, _): &(usize, usize, usize)| CommandAccess {
        reads: vec![from],
        writes: vec![to],
        updates: false,
        after: ranged.waits.get(&to).cloned().unwrap_or_default(),
    };
    let of_custom = |k: &CustomNode| CommandAccess {
        reads: k.reads.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect(),
        writes: k.writes.clone(),
        updates: false,
        after: Vec::new(),
    };
    groups
        .iter()
        .map(of_group)
        .chain(ranged.copies.iter().map(of_copy))
        .chain(ranged.customs.iter().map(of_custom))
        .collect()
}

/// Commands and their dependencies.
struct Graph<'a> {
    commands: &'a [CommandAccess],
    waits: Vec<FxHashSet<usize>>,
    users: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(commands: &'a [CommandAccess], in_place: &[InPlace]) -> Graph<'a> {
        // The creators of a buffer, and its last writer: updates come between creators and readers.
        // Several commands may create parts of one buffer.
        let mut creators: FxHashMap<usize, Vec<usize>> =
            in_place.iter().map(|t| (t.input, vec![t.writer])).collect();
        let mut updater: FxHashMap<usize, usize> = FxHashMap::default();
        for (i, u) in commands.iter().enumerate() {
            for n in u.creates() {
                let all = creators.entry(*n).or_default();
                if !all.contains(&i) {
                    all.push(i);
                }
            }
            if u.creates().is_empty() {
                updater.extend(u.writes.iter().map(|n| (*n, i)));
            }
        }
        let writers = |i: usize, n: usize| -> Vec<usize> {
            match updater.get(&n) {
                Some(&w) if w != i => vec![w],
                _ => creators.get(&n).into_iter().flatten().copied().filter(|w| *w != i).collect(),
            }
        };
        let reads_old = |i: usize, n: usize| {
            in_place.iter().any(|t| t.input == n && (t.readers.contains(&i) || t.writer == i))
        };
        let needs = |(i, u): (usize, &CommandAccess)| {
            let new = u.reads.iter().filter(|n| !reads_old(i, **n));
            new.chain(&u.after).flat_map(|n| writers(i, *n)).collect()
        };
        let mut waits: Vec<FxHashSet<usize>> = commands.iter().enumerate().map(needs).collect();
        for t in in_place {
            waits[t.writer].extend(t.readers.iter().copied());
        }
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); commands.len()];
        for (i, w) in waits.iter().enumerate() {
            w.iter().for_each(|&j| users[j].push(i));
        }
        // The order of a hash set must not reach the plan.
        users.iter_mut().for_each(|u| u.sort_unstable());
        Graph { commands, waits, users }
    }

    /// Returns a topological order: of the ready commands, the one with the least key comes first.
    /// `done` is called with each chosen command and returns the keys that changed.
    fn order_by_key<K: Ord + Copy>(
        &self,
        mut keys: Vec<K>,
        mut done: impl FnMut(usize) -> Vec<(usize, K)>,
    ) -> Vec<usize> {
        let mut left: Vec<usize> = self.waits.iter().map(|w| w.len()).collect();
        let mut ready: BTreeSet<(K, usize)> =
            (0..self.commands.len()).filter(|&i| left[i] == 0).map(|i| (keys[i], i)).collect();
        let mut order = Vec::with_capacity(self.commands.len());
        while let Some((_, i)) = ready.pop_first() {
            order.push(i);
            for (j, key) in done(i) {
                if ready.remove(&(keys[j], j)) {
                    ready.insert((key, j));
                }
                keys[j] = key;
            }
            for &j in &self.users[i] {
                left[j] -= 1;
                if left[j] == 0 {
                    ready.insert((keys[j], j));
                }
            }
        }
        order
    }

    /// Returns the order of the graph as far as dependencies allow. Commands of a cycle are
    /// missing.
    fn in_graph_order(&self) -> Vec<usize> {
        self.order_by_key(vec![(); self.commands.len()], |_| vec![])
    }

    /// Returns the order in which the command that allocates least and frees most comes first.
    /// `bytes` is the size of an intermediate, and 0 for any other buffer.
    fn least_memory_first(&self, bytes: &dyn Fn(usize) -> usize) -> Vec<usize> {
        let mut readers: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (i, u) in self.commands.iter().enumerate() {
            u.reads
                .iter()
                .filter(|n| bytes(**n) > 0)
                .for_each(|n| readers.entry(*n).or_default().push(i));
        }
        let frees = |keys: &mut Vec<i64>, i: usize, n: usize| keys[i] -= bytes(n) as i64;
        let mut keys: Vec<i64> = self
            .commands
            .iter()
            .map(|u| u.creates().iter().map(|n| bytes(*n) as i64).sum())
            .collect();
        for (n, list) in &readers {
            if let [only] = list[..] {
                frees(&mut keys, only, *n);
            }
        }
        let mut now = keys.clone();
        self.order_by_key(keys, |i| {
            let mut changed = Vec::new();
            for &n in &self.commands[i].reads {
                let Some(list) = readers.get_mut(&n) else { continue };
                list.retain(|j| *j != i);
                // The last reader that is left frees it.
                if let [last] = list[..] {
                    frees(&mut now, last, n);
                    changed.push((last, now[last]));
                }
            }
            changed
        })
    }

    /// Returns the peak bytes of intermediates in an order.
    fn peak(&self, order: &[usize], bytes: &dyn Fn(usize) -> usize) -> usize {
        let slots = |i: &usize| {
            let CommandAccess { reads, writes, .. } = &self.commands[*i];
            writes.iter().chain(reads).copied()
        };
        let spans = plan_memory::spans(order.iter().map(slots));
        plan_memory::peak(spans.iter().map(|(n, span)| (*span, bytes(*n))))
    }
}

/// Returns true if the commands have an order: buffers written in place may make them wait for each
/// other.
pub fn has_order(commands: &[CommandAccess], in_place: &[InPlace]) -> bool {
    Graph::new(commands, in_place).in_graph_order().len() == commands.len()
}

/// Returns the order of commands, producers first. `bytes` is the size of an intermediate, and 0
/// for any other buffer.
pub fn order(
    commands: &[CommandAccess],
    in_place: &[InPlace],
    bytes: &dyn Fn(usize) -> usize,
) -> Vec<usize> {
    let graph = Graph::new(commands, in_place);
    let plain = graph.in_graph_order();
    assert_eq!(plain.len(), commands.len(), "order: the commands of a plan form a cycle");
    let sparing = graph.least_memory_first(bytes);
    if graph.peak(&sparing, bytes) < graph.peak(&plain, bytes) { sparing } else { plain }
}
