//! The device of each node, and copies between devices. Input: outputs with their devices. Output:
//! the graph with a `Copy` where a value is used on another device than its own.

use super::assign_ranges::contiguous_memory;
use super::cost;
use crate::ir::{DeviceName, Group, Op, Src, UOp, rebuild_all, toposort};
use crate::target::ScheduleTuning;
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the device of each node: that of its inputs, or without inputs that of its user.
pub(super) fn devices_of(
    order: &[UOp],
    outputs: &[UOp],
    devices: &[DeviceName],
) -> FxHashMap<u64, DeviceName> {
    let mut map: FxHashMap<u64, DeviceName> = FxHashMap::default();
    for u in order {
        let under = || u.src().iter().find_map(|s| map.get(&s.id()));
        let here = u.own_device().or_else(under).cloned();
        map.extend(here.map(|d| (u.id(), d)));
    }
    for (o, d) in outputs.iter().zip(devices) {
        map.entry(o.id()).or_insert_with(|| d.clone());
    }
    for u in order.iter().rev() {
        if let Some(d) = map.get(&u.id()).cloned() {
            for s in u.src() {
                map.entry(s.id()).or_insert_with(|| d.clone());
            }
        }
    }
    map
}

/// Inserts copies where a node without inputs, which is computed on one device, has users on
/// another. A node that is never stored is computed in every user and needs no copy.
pub(super) fn insert_copies(
    outputs: &[UOp],
    devices: &[DeviceName],
    tuning: &ScheduleTuning,
) -> Vec<UOp> {
    let nodes = toposort(outputs);
    let device = devices_of(&nodes, outputs, devices);
    let inline = rematerialized(&nodes, outputs, tuning);
    let moved = |old: &UOp, new: &UOp, d: &DeviceName| {
        if device[&old.id()] == *d { new.clone() } else { new.copied(d) }
    };
    let rebuilt = rebuild_all(outputs, |u, src| {
        let here = &device[&u.id()];
        let src = u.src().iter().zip(src).map(|(old, new)| {
            let there = u.op() == Op::Copy || inline.contains(&old.id());
            if there { new.clone() } else { moved(old, new, here) }
        });
        Some(u.with_src(src.collect::<Src>()))
    });
    outputs.iter().zip(&rebuilt).zip(devices).map(|((old, new), d)| moved(old, new, d)).collect()
}

/// Returns the nodes without inputs that every user rematerializes, because they are cheap and
/// never stored.
fn rematerialized(nodes: &[UOp], outputs: &[UOp], tuning: &ScheduleTuning) -> FxHashSet<u64> {
    let copied = nodes.iter().filter(|u| u.op() == Op::Copy).map(UOp::operand);
    let stored: FxHashSet<u64> =
        outputs.iter().chain(copied).map(|u| contiguous_memory(u).0.id()).collect();
    let totals = cost::totals(nodes, &|_| false);
    let mut written: FxHashSet<u64> = FxHashSet::default();
    for u in nodes {
        let simple = matches!(u.op(), Op::Const | Op::Var | Op::Iota | Op::Slice)
            || u.op().is(Group::Movement)
            || u.op().is_alu();
        // Kernels use a literal as such even if it is also stored.
        let free = matches!(u.op(), Op::Const | Op::Var)
            || (!stored.contains(&u.id())
                && totals[&u.id()] <= tuning.free_work * u.numel() as f64);
        if simple && free && u.src().iter().all(|s| written.contains(&s.id())) {
            written.insert(u.id());
        }
    }
    written
}
