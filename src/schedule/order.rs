//! The order of kernels and copies.

use super::Step;
use super::fuse::{self, KernelGroup};
use super::in_place::InPlace;
use super::ranges::{RangeAssignment, UserKernel};
use crate::ir::{Arg, DeviceName, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// What runs in a plan.
pub enum Unit<'a> {
    /// A kernel.
    KernelGroup(&'a KernelGroup),
    /// A copy between devices.
    Copy {
        /// To this buffer.
        to: usize,
        /// From this one.
        from: usize,
        /// From this element on.
        start: usize,
    },
    /// A kernel of the user's, or a loop.
    Custom(&'a UserKernel),
}

impl Unit<'_> {
    fn reads(&self) -> Vec<usize> {
        match self {
            Unit::KernelGroup(g) => g.reads.iter().copied().collect(),
            Unit::Copy { from, .. } => vec![*from],
            Unit::Custom(k) => {
                k.reads.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect()
            }
        }
    }
    /// Buffers that hold something from here on, and not before.
    fn makes(&self) -> Vec<usize> {
        match self {
            Unit::KernelGroup(g) if g.update.is_some() => Vec::new(),
            _ => self.writes(),
        }
    }
    fn writes(&self) -> Vec<usize> {
        match self {
            Unit::KernelGroup(g) => g.writes().collect(),
            Unit::Copy { to, .. } => vec![*to],
            Unit::Custom(k) => k.writes.clone(),
        }
    }
}

/// What runs, and which of it waits for which.
struct Graph<'a> {
    units: Vec<Unit<'a>>,
    waits: Vec<FxHashSet<usize>>,
    users: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(groups: &'a [KernelGroup], ranged: &'a RangeAssignment, taken: &[InPlace]) -> Graph<'a> {
        let copies = ranged.copies.iter().map(|&(to, from, start)| Unit::Copy { to, from, start });
        let units: Vec<Unit> = groups
            .iter()
            .map(Unit::KernelGroup)
            .chain(copies)
            .chain(ranged.customs.iter().map(Unit::Custom))
            .collect();
        // Who makes a buffer, and who writes it last: updates come between that and all readers.
        // Several may make parts of one.
        let mut maker: FxHashMap<usize, Vec<usize>> =
            taken.iter().map(|t| (t.input, vec![t.writer])).collect();
        for (i, u) in units.iter().enumerate() {
            let made: BTreeSet<usize> = u.makes().into_iter().collect();
            made.into_iter().for_each(|n| {
                let all = maker.entry(n).or_default();
                if !all.contains(&i) {
                    all.push(i);
                }
            });
        }
        let mut updater: FxHashMap<usize, usize> = FxHashMap::default();
        for (i, u) in units.iter().enumerate().filter(|(_, u)| u.makes().is_empty()) {
            updater.extend(u.writes().into_iter().map(|n| (n, i)));
        }
        let writers = |i: usize, n: usize| -> Vec<usize> {
            match updater.get(&n) {
                Some(&w) if w != i => vec![w],
                _ => maker.get(&n).into_iter().flatten().copied().filter(|w| *w != i).collect(),
            }
        };
        let reads_old = |i: usize, n: usize| {
            taken.iter().any(|t| t.input == n && (t.readers.contains(&i) || t.writer == i))
        };
        let needs = |(i, u): (usize, &Unit)| {
            let new = u
                .reads()
                .into_iter()
                .filter(|n| !matches!(u, Unit::KernelGroup(_)) || !reads_old(i, *n));
            new.flat_map(|n| writers(i, n)).collect()
        };
        let mut waits: Vec<FxHashSet<usize>> = units.iter().enumerate().map(needs).collect();
        for (i, u) in units.iter().enumerate() {
            if let Unit::Copy { to, .. } = u {
                let after = ranged.waits.get(to).into_iter().flatten();
                waits[i].extend(after.flat_map(|&n| writers(i, n)));
            }
        }
        for t in taken {
            waits[t.writer].extend(t.readers.iter().copied());
        }
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
        for (i, w) in waits.iter().enumerate() {
            w.iter().for_each(|&j| users[j].push(i));
        }
        // Sets have an order of their own, which is not to be seen.
        users.iter_mut().for_each(|u| u.sort_unstable());
        Graph { units, waits, users }
    }

    /// Producers first; among those that are ready the least by a key, which `done` may change for
    /// others: it is told what comes next, and returns those with their keys.
    fn by<K: Ord + Copy>(
        &self,
        mut keys: Vec<K>,
        mut done: impl FnMut(usize) -> Vec<(usize, K)>,
    ) -> Vec<usize> {
        let mut left: Vec<usize> = self.waits.iter().map(|w| w.len()).collect();
        let mut ready: BTreeSet<(K, usize)> =
            (0..self.units.len()).filter(|&i| left[i] == 0).map(|i| (keys[i], i)).collect();
        let mut order = Vec::with_capacity(self.units.len());
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

    /// In the order of the graph as far as that can be. Some are missing if they wait for each
    /// other.
    fn plain(&self) -> Vec<usize> {
        self.by(vec![(); self.units.len()], |_| vec![])
    }

    /// What makes least new memory and frees most goes first, where `bytes` are those of values
    /// between units and 0 of all else.
    fn sparing(&self, bytes: &dyn Fn(usize) -> usize) -> Vec<usize> {
        let mut readers: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (i, u) in self.units.iter().enumerate() {
            u.reads()
                .into_iter()
                .filter(|n| bytes(*n) > 0)
                .for_each(|n| readers.entry(n).or_default().push(i));
        }
        let frees = |keys: &mut Vec<i64>, i: usize, n: usize| keys[i] -= bytes(n) as i64;
        let mut keys: Vec<i64> = self
            .units
            .iter()
            .map(|u| u.makes().into_iter().map(|n| bytes(n) as i64).sum())
            .collect();
        for (n, list) in &readers {
            if let [only] = list[..] {
                frees(&mut keys, only, *n);
            }
        }
        let mut now = keys.clone();
        self.by(keys, |i| {
            let mut changed = Vec::new();
            for n in self.units[i].reads() {
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

    /// The most bytes that live at one time in an order.
    fn most_at_once(&self, order: &[usize], bytes: &dyn Fn(usize) -> usize) -> usize {
        let mut last: FxHashMap<usize, usize> = FxHashMap::default();
        for (at, &i) in order.iter().enumerate() {
            last.extend(
                self.units[i].reads().into_iter().chain(self.units[i].writes()).map(|n| (n, at)),
            );
        }
        let (mut now, mut most) = (0, 0);
        for (at, &i) in order.iter().enumerate() {
            now += self.units[i].makes().into_iter().map(bytes).sum::<usize>();
            most = most.max(now);
            let named: BTreeSet<usize> =
                self.units[i].reads().into_iter().chain(self.units[i].writes()).collect();
            now -= named.into_iter().filter(|n| last[n] == at).map(bytes).sum::<usize>();
        }
        most
    }
}

/// Can kernels and copies run at all, or do take-overs make them wait for each other?
pub fn has_order(groups: &[KernelGroup], ranged: &RangeAssignment, taken: &[InPlace]) -> bool {
    let graph = Graph::new(groups, ranged, taken);
    graph.plain().len() == graph.units.len()
}

/// Kernels and copies, producers first. Of what may come next, the order of the graph says which,
/// or what saves memory if that is less in the end.
fn sequence<'a>(
    groups: &'a [KernelGroup],
    ranged: &'a RangeAssignment,
    taken: &[InPlace],
    bytes: &dyn Fn(usize) -> usize,
) -> Vec<Unit<'a>> {
    let graph = Graph::new(groups, ranged, taken);
    let plain = graph.plain();
    assert_eq!(plain.len(), graph.units.len(), "the kernels of a graph form no circle");
    let sparing = graph.sparing(bytes);
    let order = if graph.most_at_once(&sparing, bytes) < graph.most_at_once(&plain, bytes) {
        sparing
    } else {
        plain
    };
    let mut units: Vec<Option<Unit>> = graph.units.into_iter().map(Some).collect();
    order.into_iter().filter_map(|i| units[i].take()).collect()
}

/// How large buffers are, by number.
pub struct Sizes<'a> {
    /// Bytes of an intermediate; 0 of all else.
    pub bytes: &'a dyn Fn(usize) -> usize,
    /// Elements.
    pub len: &'a dyn Fn(usize) -> usize,
}

/// The steps of a plan. `loops` has those of each loop.
pub fn steps(
    groups: &[KernelGroup],
    ranged: &RangeAssignment,
    taken: &[InPlace],
    sizes: &Sizes,
    device_of: &dyn Fn(&UOp) -> DeviceName,
    loops: &FxHashMap<u64, Vec<Step>>,
) -> Vec<Step> {
    let units = sequence(groups, ranged, taken, sizes.bytes);
    // The layers of a model are often the same kernels.
    let mut joined: FxHashMap<UOp, UOp> = FxHashMap::default();
    let step = |u: Unit| match u {
        Unit::KernelGroup(g) => {
            let (ast, buffers) = fuse::finish(g, sizes.len);
            let ast = joined.entry(ast).or_insert_with_key(fuse::joined).clone();
            vec![Step::Kernel { ast, buffers, device: g.device.clone() }]
        }
        Unit::Copy { to, from, start } => vec![Step::Copy { to, from, start }],
        Unit::Custom(k) => match k.node.arg() {
            Arg::Kernel(kernel) => {
                let buffers = k.writes.iter().chain(&k.reads).copied().collect();
                vec![Step::Kernel { ast: kernel.ast.clone(), buffers, device: device_of(&k.node) }]
            }
            _ => loops[&k.node.id()].clone(),
        },
    };
    // What is where it should be already needs no kernel, and neither do updates that all lie
    // outside their table.
    let never = UOp::truth(false);
    let runs = |u: &Unit| !matches!(u, Unit::KernelGroup(g) if g.stores.is_empty() || g.update.as_ref() == Some(&never));
    units.into_iter().filter(runs).flat_map(step).collect()
}
