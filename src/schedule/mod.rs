//! The scheduler: a tensor graph in, an ordered list of kernels and copies with a memory plan out.
//!
//! The graph is first abstracted: buffers become numbered parameters. Two steps of a training loop then have the same graph, so the plan of
//! the first serves all others from a cache.

mod cache;
mod cost;
mod kernels;
mod memory;
mod prepare;
mod ranges;

pub use cache::{cache_len, clear_cache};
pub use prepare::PREPARE;

use crate::dtype::DType;
use crate::ir::{Arg, DeviceName, Op, Src, StorageRef, UOp, substitute_all, toposort};
use kernels::Group;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// A buffer of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferInfo {
    /// Element dtype.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// Where.
    pub device: DeviceName,
    /// What it is for.
    pub role: Role,
}

/// What a buffer of a plan is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// The i-th input.
    Input(usize),
    /// A result, in memory of its own.
    Output,
    /// A value between kernels, in this block of the memory plan.
    Temporary(usize),
}

/// One thing to run.
#[derive(Clone, Debug)]
pub enum Step {
    /// A kernel, with the buffer of each argument slot.
    Kernel {
        /// The kernel.
        ast: UOp,
        /// Buffer numbers by slot.
        buffers: Vec<usize>,
        /// Where it runs.
        device: DeviceName,
    },
    /// A copy between devices.
    Copy {
        /// To this buffer.
        to: usize,
        /// From this one.
        from: usize,
    },
}

impl Step {
    /// Buffers that the step reads.
    fn reads(&self) -> Vec<usize> {
        match self {
            Step::Copy { from, .. } => vec![*from],
            Step::Kernel { ast, buffers, .. } => {
                let order = ast.toposort();
                order.iter().filter(|u| u.op() == Op::Load).map(|u| buffers[slot_of(&u.src()[0].src()[0])]).collect()
            }
        }
    }
    /// Buffers that it writes.
    fn writes(&self) -> Vec<usize> {
        match self {
            Step::Copy { to, .. } => vec![*to],
            Step::Kernel { ast, buffers, .. } => ast.src().iter().map(|s| buffers[slot_of(&s.src()[0].src()[0])]).collect(),
        }
    }
}

fn slot_of(u: &UOp) -> usize {
    match u.arg() {
        Arg::Global { slot, .. } => *slot,
        _ => panic!("not a kernel argument: {u:?}"),
    }
}

/// What to run for a graph, apart from the buffers that it runs on.
#[derive(Debug)]
pub struct Plan {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Every buffer that a step names.
    pub buffers: Vec<BufferInfo>,
    /// The buffer of each output; `None` for one without elements.
    pub outputs: Vec<Option<usize>>,
    /// Bytes and device of each block of temporaries.
    pub blocks: Vec<(usize, DeviceName)>,
}

/// An output that is asked for: its node, its device, and the input whose memory it may take over if that is safe.
#[derive(Clone)]
pub struct Request {
    /// The value.
    pub node: UOp,
    /// Where a value that needs no input is computed.
    pub device: DeviceName,
    /// Storage that nobody will read after this run, and that the output would like to live in.
    pub reuse: Option<StorageRef>,
}

/// The plan for the requests and the storages that are its inputs, from the cache if the same graph was planned before. The flag says so.
pub fn schedule(requests: &[Request]) -> (Arc<Plan>, Vec<StorageRef>, bool) {
    let (nodes, inputs) = abstracted(requests);
    let reuse: Vec<Option<usize>> = requests.iter().map(|r| r.reuse.as_ref().and_then(|s| inputs.iter().position(|i| i == s))).collect();
    let devices: Vec<DeviceName> = requests.iter().map(|r| r.device.clone()).collect();
    let key = cache::Key { sink: UOp::sink(nodes.iter().cloned().collect::<Src>()), devices, reuse };
    let (plan, hit) = cache::get_or_insert(key, |key| plan(&nodes, &key.devices, &key.reuse, inputs.len()));
    (plan, inputs, hit)
}

/// The graph with its buffers replaced by parameters, numbered in order of first use.
fn abstracted(requests: &[Request]) -> (Vec<UOp>, Vec<StorageRef>) {
    let nodes: Vec<UOp> = requests.iter().map(|r| r.node.clone()).collect();
    let mut inputs = Vec::new();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in toposort(nodes.iter()) {
        if let Arg::Storage(s) = u.arg() {
            let arg = Arg::Param { slot: inputs.len(), len: s.storage.len(), device: s.storage.device().clone() };
            map.insert(u.clone(), UOp::new(Op::Param, u.dtype(), Src::new(), arg));
            inputs.push(s.clone());
        }
    }
    (substitute_all(&nodes, &map), inputs)
}

/// Plans an abstracted graph.
pub fn plan(outputs: &[UOp], devices: &[DeviceName], reuse: &[Option<usize>], inputs: usize) -> Plan {
    let outputs = prepare::prepare(outputs);
    let order = toposort(outputs.iter());
    let device = devices_of(&order, &outputs, devices);
    let ranged = ranges::assign(&outputs, inputs);
    let output_number = |o: &UOp| -> Option<usize> { (o.numel() > 0).then(|| ranged.numbers[&ranges::peel(o).id()]) };
    let numbers: Vec<Option<usize>> = outputs.iter().map(output_number).collect();
    let keep: FxHashSet<usize> = numbers.iter().flatten().copied().collect();
    let mut groups = kernels::group(&ranged, &|u| device[&u.id()].clone(), &keep);

    let mut buffers: Vec<Option<BufferInfo>> = vec![None; inputs + ranged.stored.len() + ranged.copies.len()];
    for u in &order {
        if let Some(&n) = ranged.numbers.get(&u.id()) {
            let role = if n < inputs {
                Role::Input(n)
            } else if keep.contains(&n) {
                Role::Output
            } else {
                Role::Temporary(0)
            };
            let device = match u.arg() {
                Arg::Param { device, .. } => device.clone(),
                _ => device[&u.id()].clone(),
            };
            buffers[n] = Some(BufferInfo { dtype: u.dtype(), len: u.numel(), device, role });
        }
    }
    let mut numbers = numbers;
    let taken = take_over(&mut groups, &ranged, &mut numbers, reuse, &buffers);
    let steps = ordered(&groups, &ranged, &taken);
    let (buffers, blocks) = place(&steps, buffers, inputs);
    Plan { steps, buffers, outputs: numbers, blocks }
}

/// Where each node is computed: where its inputs are; without inputs, where its user is.
fn devices_of(order: &[UOp], outputs: &[UOp], devices: &[DeviceName]) -> FxHashMap<u64, DeviceName> {
    let mut map: FxHashMap<u64, DeviceName> = FxHashMap::default();
    for u in order {
        let d = match u.arg() {
            Arg::Param { device, .. } | Arg::Device(device) => Some(device.clone()),
            _ => u.src().iter().find_map(|s| map.get(&s.id()).cloned()),
        };
        if let Some(d) = d {
            map.insert(u.id(), d);
        }
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

/// An input whose memory an output takes over. After that both go by one number, so it is noted here who reads which.
struct Taken {
    /// The input's number, now also the output's.
    input: usize,
    /// The group that writes the output.
    writer: usize,
    /// Groups that read the input, and so come before the writer; all others that name the number read the output.
    before: Vec<usize>,
}

/// Lets outputs take over the memory of inputs where no value that is still needed is lost: the writer reads the old value only at the
/// index that it writes, and everyone else who reads it can come before. Returns what the order of kernels must respect.
fn take_over(
    groups: &mut [Group],
    ranged: &ranges::Ranged,
    numbers: &mut [Option<usize>],
    reuse: &[Option<usize>],
    buffers: &[Option<BufferInfo>],
) -> Vec<Taken> {
    let mut taken: Vec<Taken> = Vec::new();
    for o in 0..numbers.len() {
        let (Some(number), Some(input)) = (numbers[o], reuse.get(o).copied().flatten()) else { continue };
        let fits = matches!((&buffers[number], &buffers[input]), (Some(a), Some(b)) if a.dtype == b.dtype && a.len == b.len && a.device == b.device && a.role == Role::Output);
        let Some(g) = groups.iter().position(|g| g.writes().any(|n| n == number)) else { continue };
        if !fits || taken.iter().any(|t| t.input == input) || numbers.iter().filter(|n| **n == Some(number)).count() > 1 {
            continue;
        }
        // An input that is itself an output must keep its value.
        if numbers.contains(&Some(input)) || ranged.copies.iter().any(|c| c.2 == input || c.2 == number) {
            continue;
        }
        let index = groups[g].stores.iter().find(|s| s.0 == number).map(|s| s.1.clone()).expect("written there");
        let values: Vec<&UOp> = groups[g].stores.iter().map(|s| &s.2).collect();
        let same_place = toposort(values.iter().copied())
            .iter()
            .filter(|u| u.op() == Op::Load && kernels::loaded(u) == input)
            .all(|u| u.src()[0].src()[1] == index);
        // A reduce around the load, or a store of the same value at other iterations, would read what was already overwritten.
        let inside_reduce = toposort(values.iter().copied())
            .iter()
            .filter(|u| u.op() == Op::Reduce)
            .any(|r| r.src()[0].toposort().iter().any(|u| u.op() == Op::Load && kernels::loaded(u) == input));
        if !same_place || inside_reduce {
            continue;
        }
        // Other readers must run before: none of them may need, directly or not, what this group or anything after it writes.
        let mut after: FxHashSet<usize> = groups[g].writes().collect();
        loop {
            let n = after.len();
            for h in groups.iter() {
                if h.reads.iter().any(|r| after.contains(r)) {
                    after.extend(h.writes());
                }
            }
            for (to, _, from) in &ranged.copies {
                if after.contains(from) {
                    after.insert(*to);
                }
            }
            if after.len() == n {
                break;
            }
        }
        let late = groups.iter().enumerate().any(|(i, h)| i != g && h.reads.contains(&input) && h.reads.iter().any(|r| after.contains(r)));
        // Two take-overs could order groups in a circle; only independent ones are granted.
        let tangled =
            taken.iter().any(|t| t.writer != g && (groups[g].reads.contains(&t.input) || groups[t.writer].reads.contains(&input)));
        if late || tangled {
            continue;
        }
        let before = (0..groups.len()).filter(|&i| i != g && groups[i].reads.contains(&input)).collect();
        rename(groups, number, input);
        numbers[o] = Some(input);
        taken.push(Taken { input, writer: g, before });
    }
    taken
}

/// Every mention of a buffer becomes one of another of the same size.
fn rename(groups: &mut [Group], from: usize, to: usize) {
    for g in groups {
        for s in &mut g.stores {
            if s.0 == from {
                s.0 = to;
            }
            let map: FxHashMap<UOp, UOp> =
                s.2.toposort()
                    .into_iter()
                    .filter_map(|u| match u.arg() {
                        Arg::Param { slot, len, device } if *slot == from => {
                            let arg = Arg::Param { slot: to, len: *len, device: device.clone() };
                            Some((u.clone(), u.with_arg(arg)))
                        }
                        _ => None,
                    })
                    .collect();
            s.2 = s.2.substitute(&map);
        }
        if g.reads.remove(&from) {
            g.reads.insert(to);
        }
    }
}

/// Kernels and copies, producers first; among those that are ready, in the order of the graph.
fn ordered(groups: &[Group], ranged: &ranges::Ranged, taken: &[Taken]) -> Vec<Step> {
    enum Unit<'a> {
        Group(&'a Group),
        Copy(usize, usize),
    }
    let units: Vec<Unit> = groups.iter().map(Unit::Group).chain(ranged.copies.iter().map(|(to, _, from)| Unit::Copy(*to, *from))).collect();
    let mut writer: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, u) in units.iter().enumerate() {
        match u {
            Unit::Group(g) => writer.extend(g.writes().map(|n| (n, i))),
            Unit::Copy(to, _) => writer.extend([(*to, i)]),
        }
    }
    let old = |i: usize, n: usize| taken.iter().any(|t| t.input == n && t.before.contains(&i));
    let mut waits: Vec<FxHashSet<usize>> = units
        .iter()
        .enumerate()
        .map(|(i, u)| match u {
            Unit::Group(g) => g.reads.iter().filter(|n| !old(i, **n)).filter_map(|n| writer.get(n)).copied().filter(|w| *w != i).collect(),
            Unit::Copy(_, from) => writer.get(from).copied().into_iter().collect(),
        })
        .collect();
    for t in taken {
        waits[t.writer].extend(t.before.iter().copied());
    }
    let mut done = vec![false; units.len()];
    let mut steps = Vec::new();
    while steps.len() < units.len() {
        let next =
            (0..units.len()).find(|&i| !done[i] && waits[i].iter().all(|w| done[*w])).expect("the kernels of a graph form no circle");
        done[next] = true;
        steps.push(match &units[next] {
            Unit::Group(g) => {
                let (ast, buffers) = kernels::finish(g);
                Step::Kernel { ast, buffers, device: g.device.clone() }
            }
            Unit::Copy(to, from) => Step::Copy { to: *to, from: *from },
        });
    }
    steps
}

/// Numbers the buffers that are in use and places the temporaries.
fn place(steps: &[Step], buffers: Vec<Option<BufferInfo>>, inputs: usize) -> (Vec<BufferInfo>, Vec<(usize, DeviceName)>) {
    let mut lives: Vec<memory::Lifetime> = Vec::new();
    let mut life_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, step) in steps.iter().enumerate() {
        for n in step.writes().into_iter().chain(step.reads()) {
            let Some(info) = &buffers[n] else { continue };
            if n < inputs || info.role == Role::Output {
                continue;
            }
            let size = info.len * info.dtype.itemsize();
            let l = *life_of.entry(n).or_insert_with(|| {
                lives.push(memory::Lifetime { size, device: info.device.clone(), first: i, last: i });
                lives.len() - 1
            });
            lives[l].last = i;
        }
    }
    let (places, blocks) = memory::plan(&lives);
    let none = BufferInfo { dtype: DType::VOID, len: 0, device: DeviceName::new(""), role: Role::Output };
    let buffers = buffers
        .into_iter()
        .enumerate()
        .map(|(n, b)| {
            let mut b = b.unwrap_or_else(|| none.clone());
            match (&b.role, life_of.get(&n)) {
                (Role::Temporary(_), Some(l)) => b.role = Role::Temporary(places[*l]),
                // It was merged into its reader, and nobody else wants it.
                (Role::Temporary(_), None) => return none.clone(),
                _ => {}
            }
            b
        })
        .collect();
    (buffers, blocks)
}
