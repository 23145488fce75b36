//! The order of kernels and copies.

use super::Step;
use super::kernels::{self, Group};
use super::ranges::{Ranged, UserKernel};
use super::reuse::TakeOver;
use crate::ir::{Arg, DeviceName, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// What runs in a plan.
pub enum Unit<'a> {
    /// A kernel.
    Group(&'a Group),
    /// A copy between devices.
    Copy {
        /// To this buffer.
        to: usize,
        /// From this one.
        from: usize,
        /// From this element on.
        start: usize,
    },
    /// A kernel of the user's.
    Custom(&'a UserKernel),
}

/// Kernels and copies, producers first; among those that are ready, in the order of the graph. `None` if take-overs make them wait for each other.
pub fn sequence<'a>(groups: &'a [Group], ranged: &'a Ranged, taken: &[TakeOver]) -> Option<Vec<Unit<'a>>> {
    let copies = ranged.copies.iter().map(|&(to, from, start)| Unit::Copy { to, from, start });
    let units: Vec<Unit> = groups.iter().map(Unit::Group).chain(copies).chain(ranged.customs.iter().map(Unit::Custom)).collect();
    let mut writer: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, u) in units.iter().enumerate() {
        match u {
            Unit::Group(g) => writer.extend(g.writes().map(|n| (n, i))),
            Unit::Copy { to, .. } => writer.extend([(*to, i)]),
            Unit::Custom(k) => writer.extend(k.writes.iter().map(|n| (*n, i))),
        }
    }
    let reads_old = |i: usize, n: usize| taken.iter().any(|t| t.input == n && (t.readers.contains(&i) || t.writer == i));
    let mut waits: Vec<FxHashSet<usize>> = units
        .iter()
        .enumerate()
        .map(|(i, u)| match u {
            Unit::Group(g) => g.reads.iter().filter(|n| !reads_old(i, **n)).filter_map(|n| writer.get(n)).copied().collect(),
            Unit::Copy { from, .. } => writer.get(from).copied().into_iter().collect(),
            Unit::Custom(k) => k.reads.iter().filter_map(|n| writer.get(n)).copied().collect(),
        })
        .collect();
    for t in taken {
        waits[t.writer].extend(t.readers.iter().copied());
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
    for (i, w) in waits.iter().enumerate() {
        w.iter().for_each(|&j| users[j].push(i));
    }
    let mut left: Vec<usize> = waits.iter().map(|w| w.len()).collect();
    let mut ready: BTreeSet<usize> = (0..units.len()).filter(|&i| left[i] == 0).collect();
    let mut order = Vec::with_capacity(units.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &j in &users[i] {
            left[j] -= 1;
            if left[j] == 0 {
                ready.insert(j);
            }
        }
    }
    let mut units: Vec<Option<Unit>> = units.into_iter().map(Some).collect();
    (order.len() == units.len()).then(|| order.into_iter().filter_map(|i| units[i].take()).collect())
}

/// The steps of a plan.
pub fn steps(groups: &[Group], ranged: &Ranged, taken: &[TakeOver], device_of: &dyn Fn(&UOp) -> DeviceName) -> Vec<Step> {
    let units = sequence(groups, ranged, taken).expect("the kernels of a graph form no circle");
    // The layers of a model are often the same kernels.
    let mut joined: FxHashMap<UOp, UOp> = FxHashMap::default();
    let step = |u: Unit| match u {
        Unit::Group(g) => {
            let (ast, buffers) = kernels::finish(g);
            let ast = joined.entry(ast).or_insert_with_key(kernels::joined).clone();
            Step::Kernel { ast, buffers, device: g.device.clone() }
        }
        Unit::Copy { to, from, start } => Step::Copy { to, from, start },
        Unit::Custom(k) => {
            let Arg::Kernel(kernel) = k.node.arg() else { panic!("a kernel without a body: {:?}", k.node) };
            let buffers = k.writes.iter().chain(&k.reads).copied().collect();
            Step::Kernel { ast: kernel.ast.clone(), buffers, device: device_of(&k.node) }
        }
    };
    units.into_iter().map(step).collect()
}
