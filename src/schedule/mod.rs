//! The scheduler: a tensor graph in, an ordered list of kernels and copies with a memory plan out.
//!
//! The graph is first abstracted: buffers become numbered parameters. Two steps of a training loop
//! then have the same graph, so the plan of the first serves all others from a cache.

mod cache;
mod cat;
mod cost;
mod fuse;
mod in_place;
mod indexed;
mod limits;
mod loops;
pub mod memory;
mod order;
mod prepare;
mod ranges;
mod reduce_simplify;
mod scan;
mod scatter;
mod shard;
mod variables;

pub use cache::{cache_len, clear_cache};
pub use fuse::MERGE_RANGES;
pub use limits::KernelLimits;
pub use loops::{Launch, Piece, Repeat};
pub use memory::PlannedMemory;
pub use prepare::PREPARE;
pub use reduce_simplify::SIMPLIFY_REDUCES;
pub use shard::{Layout, even, layout};
pub use variables::Values;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{
    Arg, DeviceName, Group, Op, Src, StorageRef, UOp, map_symints, toposort, unmarked,
};
use crate::shape::SymInt;
use memory::Places;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The names of the scheduler's passes, in order.
pub const PASSES: [&str; 4] = ["prepare", "ranges", "kernels", "order"];

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
    /// A value between kernels, in the memory plan.
    Temporary {
        /// The number of its arena.
        arena: usize,
        /// The byte where it begins there.
        offset: usize,
    },
    /// The values of a kernel's variables. No plan has it: it is made for a run.
    Values,
}

/// A value between kernels that has no place yet.
const UNPLACED: Role = Role::Temporary { arena: 0, offset: 0 };

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
        /// From this element of it on.
        start: usize,
    },
    /// A plan that is run several times.
    Loop(Box<Repeat>),
}

impl Step {
    /// Buffers that the step reads.
    fn reads(&self) -> Vec<usize> {
        match self {
            Step::Copy { from, .. } => vec![*from],
            Step::Loop(repeat) => repeat.reads.clone(),
            Step::Kernel { ast, buffers, .. } => {
                if let Arg::Source(source) = ast.arg() {
                    return buffers[source.outputs..].to_vec();
                }
                let order = ast.toposort();
                order
                    .iter()
                    .filter(|u| u.op() == Op::Load)
                    .map(|u| buffers[slot_of(&u.src()[0].src()[0])])
                    .collect()
            }
        }
    }
    /// Buffers that it writes.
    pub fn writes(&self) -> Vec<usize> {
        match self {
            Step::Copy { to, .. } => vec![*to],
            Step::Loop(repeat) => repeat.writes.clone(),
            Step::Kernel { ast, buffers, .. } => match ast.arg() {
                Arg::Source(source) => buffers[..source.outputs].to_vec(),
                _ => ast.src().iter().map(|s| buffers[slot_of(&s.src()[0].src()[0])]).collect(),
            },
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
#[derive(Clone, Debug)]
pub struct Plan {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Every buffer that a step names.
    pub buffers: Vec<BufferInfo>,
    /// Where each output is, or each part of one over several devices; `None` for one without
    /// elements.
    pub outputs: Vec<Option<Output>>,
    /// For each request over several devices, how its parts lie.
    pub layouts: Vec<Option<Layout>>,
    /// Bytes and device of each arena of temporaries.
    pub arenas: Vec<(usize, DeviceName)>,
    /// What temporaries take.
    pub memory: PlannedMemory,
    /// The time that each pass took when the plan was made.
    pub times: [Duration; 4],
}

/// Where an output is.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its buffer.
    pub buffer: usize,
    /// The part of the buffer that it is, where it is not the whole.
    pub part: Option<Range<usize>>,
}

/// An output that is asked for: its node, its device, and the input whose memory it may take over
/// if that is safe.
#[derive(Clone)]
pub struct Request {
    /// The value.
    pub node: UOp,
    /// Where a value that needs no input is computed.
    pub device: DeviceName,
    /// Storage that nobody will read after this run, and that the output would like to live in:
    /// for each of its parts, or none at all.
    pub reuse: Vec<Option<StorageRef>>,
}

/// A plan for requests.
pub struct PlannedGraph {
    /// The plan.
    pub plan: Arc<Plan>,
    /// What was planned: the graph with numbers in place of storages.
    pub graph: UOp,
    /// The storages that are its inputs, by number.
    pub inputs: Vec<StorageRef>,
    /// The values of its variables.
    pub values: Values,
    /// Was the same graph planned before?
    pub hit: bool,
}

/// The plan for the requests, from the cache if the same graph was planned before. `room` says what
/// a kernel of a device may have, which does not change.
pub fn schedule(
    requests: &[Request],
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) -> Result<PlannedGraph> {
    let (nodes, inputs, values) = abstracted(requests)?;
    let number =
        |s: &Option<StorageRef>| s.as_ref().and_then(|s| inputs.iter().position(|i| i == s));
    // An entry for each part, so that a list says what belongs to whom.
    let parts = |r: &Request| {
        (0..r.device.each().len()).map(|i| r.reuse.get(i).and_then(number)).collect::<Vec<_>>()
    };
    let reuse: Vec<Option<usize>> = requests.iter().flat_map(parts).collect();
    let devices: Vec<DeviceName> = requests.iter().map(|r| r.device.clone()).collect();
    let graph = UOp::sink(nodes.iter().cloned().collect::<Src>());
    let key = cache::Key { sink: graph.clone(), devices, reuse };
    let (plan, hit) =
        cache::get_or_insert(key, |key| plan(&nodes, &key.devices, &key.reuse, inputs.len(), room));
    Ok(PlannedGraph { plan, graph, inputs, values, hit })
}

/// The graph without marks for gradients, with its buffers replaced by parameters, numbered in
/// order of first use, and its variables without their values.
fn abstracted(requests: &[Request]) -> Result<(Vec<UOp>, Vec<StorageRef>, Values)> {
    let mut inputs = Vec::new();
    let mut values = Values::default();
    let mut wrong = None;
    let nodes: Vec<UOp> = requests.iter().map(|r| r.node.clone()).collect();
    let nodes = unmarked(&nodes, |u| {
        match u.arg() {
            Arg::BoundVar { name, min, max, value: v } => {
                wrong = wrong.take().or(values.insert(name, (*min, *max), *v).err());
                return Some(u.with_arg(Arg::Var { name: name.clone(), min: *min, max: *max }));
            }
            Arg::Slice(part) => {
                wrong = wrong.take().or(values
                    .insert_symint(&part.start)
                    .and(values.insert_symint(&part.len))
                    .err());
                return None;
            }
            _ => {}
        }
        let Arg::Storage(s) = u.arg() else { return None };
        inputs.push(s.clone());
        Some(parameter(inputs.len() - 1, u.dtype(), s.storage.len(), s.storage.device()))
    });
    match wrong {
        Some(e) => Err(e),
        None if values == Values::default() => Ok((nodes, inputs, values)),
        None => Ok((map_symints(&nodes, &SymInt::unbound), inputs, values)),
    }
}

/// Slots whose parameters are remembered: enough for the widest layers, few enough to hold.
const REMEMBERED: usize = 1024;

thread_local! {
    /// The parameter that each slot had last. Most plans have the same parameters as the one before, and a
    /// comparison is five times cheaper than interning.
    static PARAMETERS: RefCell<Vec<UOp>> = const { RefCell::new(Vec::new()) };
}

/// The parameter of a slot.
fn parameter(slot: usize, dtype: DType, len: usize, device: &DeviceName) -> UOp {
    let is_same = |u: &UOp| {
        u.dtype() == dtype
            && matches!(u.arg(), Arg::Param { len: l, device: d, .. } if *l == len && d == device)
    };
    let make =
        || UOp::new(Op::Param, dtype, Src::new(), Arg::Param { slot, len, device: device.clone() });
    PARAMETERS.with_borrow_mut(|known| match known.get_mut(slot) {
        Some(u) if is_same(u) => u.clone(),
        Some(u) => {
            *u = make();
            u.clone()
        }
        None => {
            let u = make();
            if slot == known.len() && slot < REMEMBERED {
                known.push(u.clone());
            }
            u
        }
    })
}

/// Plans an abstracted graph. `reuse` has an entry for each part of each output.
pub fn plan(
    outputs: &[UOp],
    devices: &[DeviceName],
    reuse: &[Option<usize>],
    inputs: usize,
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) -> Plan {
    let mut clock = Instant::now();
    let mut lap = || std::mem::replace(&mut clock, Instant::now()).elapsed();
    let shard::Sharded { parts, devices, layouts } = shard::shard(outputs, devices);
    let wide = devices.iter().map(|d| room(d).wide).max().unwrap_or(0);
    let outputs = bridged(cat::decide(prepare::prepare(&parts, wide)), &devices);
    let preparing = lap();
    let nodes = toposort(outputs.iter());
    let device = devices_of(&nodes, &outputs, &devices);
    let mut ranged = ranges::assign(&outputs, inputs);
    let ranging = lap();
    let homes: Vec<Option<(UOp, Option<Range<usize>>)>> =
        outputs.iter().map(|o| (o.numel() > 0).then(|| ranges::home(o))).collect();
    let numbers: Vec<Option<usize>> =
        homes.iter().map(|h| h.as_ref().map(|h| ranged.numbers[&h.0.id()])).collect();
    let keep: FxHashSet<usize> = numbers.iter().flatten().copied().collect();
    let mut buffers: Vec<Option<BufferInfo>> = vec![None; ranged.count];
    for u in &nodes {
        if let Some(&n) = ranged.numbers.get(&u.id()) {
            let role = if n < inputs {
                Role::Input(n)
            } else if keep.contains(&n) {
                Role::Output
            } else {
                UNPLACED
            };
            let device = match u.arg() {
                Arg::Param { device, .. } => device.clone(),
                _ => device[&u.id()].clone(),
            };
            buffers[n] = Some(BufferInfo { dtype: u.dtype(), len: u.numel(), device, role });
        }
    }
    // A kernel of the user's writes also what nobody asks for.
    let mut loops: FxHashMap<u64, Vec<Step>> = FxHashMap::default();
    for k in &ranged.customs {
        if let Arg::Loop(l) = k.node.arg() {
            for (i, &n) in k.writes.iter().enumerate().take(l.carries) {
                let (dtype, len) = (l.body.src()[i].dtype(), l.body.src()[i].numel());
                let spare = || BufferInfo {
                    dtype,
                    len,
                    device: device[&k.node.id()].clone(),
                    role: UNPLACED,
                };
                buffers[n].get_or_insert_with(spare);
            }
            continue;
        }
        let Arg::Kernel(kernel) = k.node.arg() else {
            panic!("a kernel without a body: {:?}", k.node)
        };
        for (&n, (dtype, shape)) in k.writes.iter().zip(&kernel.outputs) {
            let device = device[&k.node.id()].clone();
            let spare = || BufferInfo {
                dtype: *dtype,
                len: shape.iter().product(),
                device,
                role: UNPLACED,
            };
            buffers[n].get_or_insert_with(spare);
        }
    }
    let device_of = |u: &UOp| device[&u.id()].clone();
    // There are few devices, and most plans have one.
    let mut rooms: Vec<(&DeviceName, KernelLimits)> = Vec::new();
    for d in device.values() {
        if !rooms.iter().any(|r| r.0 == d) {
            rooms.push((d, room(d)));
        }
    }
    let room = |d: &DeviceName| rooms.iter().find(|r| r.0 == d).map_or(KernelLimits::ANY, |r| r.1);
    if rooms.iter().any(|r| r.1 != KernelLimits::ANY) {
        limits::split(&mut ranged, &mut buffers, &device_of, &room);
    }
    let fits =
        |a: &fuse::KernelGroup, b: &fuse::KernelGroup| room(&a.device).takes(&buffers, [a, b]);
    let mut groups = fuse::fuse(&ranged, &device_of, &keep, &fits);
    let grouping = lap();
    let mut numbers = numbers;
    let taken = in_place::donate_buffers(&mut groups, &ranged, &mut numbers, reuse, &mut buffers);
    in_place::narrow(&mut groups, &taken);
    for k in &ranged.customs {
        if let Arg::Loop(l) = k.node.arg() {
            let asked = loops::asked(&nodes, &k.node);
            loops.insert(
                k.node.id(),
                loops::repeat(k, l, &asked, &device_of(&k.node), &mut buffers, &room),
            );
        }
    }
    let between = |n: usize| match &buffers[n] {
        Some(info) if info.role == UNPLACED => info.len * info.dtype.itemsize(),
        _ => 0,
    };
    let len_of = |n: usize| buffers[n].as_ref().map_or(0, |b| b.len);
    let steps = order::steps(
        &groups,
        &ranged,
        &taken,
        &order::Sizes { bytes: &between, len: &len_of },
        &device_of,
        &loops,
    );
    let (buffers, Places { arenas, memory, .. }) = place(&steps, buffers, &|d| room(d).bytes);
    let outputs = numbers
        .iter()
        .zip(homes)
        .map(|(n, h)| n.map(|buffer| Output { buffer, part: h.and_then(|h| h.1) }))
        .collect();
    Plan {
        steps,
        buffers,
        outputs,
        layouts,
        arenas,
        memory,
        times: [preparing, ranging, grouping, lap()],
    }
}

/// Where each node is computed: where its inputs are; without inputs, where its user is.
fn devices_of(
    order: &[UOp],
    outputs: &[UOp],
    devices: &[DeviceName],
) -> FxHashMap<u64, DeviceName> {
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

/// The outputs with copies where a node without inputs, which is computed on one device, has users
/// on another. What is never stored is written out in every user and needs none.
fn bridged(outputs: Vec<UOp>, devices: &[DeviceName]) -> Vec<UOp> {
    let nodes = toposort(outputs.iter());
    let device = devices_of(&nodes, &outputs, devices);
    if device.values().chain(devices).is_sorted_by(|a, b| a == b) {
        return outputs;
    }
    let written = written_out(&nodes, &outputs);
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in &nodes {
        let here = &device[&u.id()];
        let src = u.src().iter().map(|s| {
            let there = u.op() == Op::Copy || written.contains(&s.id()) || device[&s.id()] == *here;
            if there { done[&s.id()].clone() } else { done[&s.id()].copied(here) }
        });
        done.insert(u.id(), u.with_src(src.collect::<Src>()));
    }
    let asked = outputs.iter().zip(devices);
    asked
        .map(
            |(o, d)| {
                if device[&o.id()] == *d { done[&o.id()].clone() } else { done[&o.id()].copied(d) }
            },
        )
        .collect()
}

/// What is computed from nothing wherever it is used, because it costs next to nothing and nobody
/// asks for it in memory.
fn written_out(nodes: &[UOp], outputs: &[UOp]) -> FxHashSet<u64> {
    let copied = nodes.iter().filter(|u| u.op() == Op::Copy).map(|u| &u.src()[0]);
    let stored: FxHashSet<u64> =
        outputs.iter().chain(copied).map(|u| ranges::home(u).0.id()).collect();
    let totals = cost::totals(nodes, &|_| false);
    let mut written: FxHashSet<u64> = FxHashSet::default();
    for u in nodes {
        let simple = matches!(u.op(), Op::Const | Op::Var | Op::Iota | Op::Slice)
            || u.op().is(Group::Movement)
            || u.op().is_alu();
        // A literal in memory is a literal in kernels all the same.
        let free = matches!(u.op(), Op::Const | Op::Var)
            || (!stored.contains(&u.id()) && totals[&u.id()] <= cost::FREE * u.numel() as f64);
        if simple && free && u.src().iter().all(|s| written.contains(&s.id())) {
            written.insert(u.id());
        }
    }
    written
}

/// Numbers the buffers that are in use and places the temporaries. `most` says how long an arena of
/// a device may be.
fn place(
    steps: &[Step],
    buffers: Vec<Option<BufferInfo>>,
    most: &dyn Fn(&DeviceName) -> usize,
) -> (Vec<BufferInfo>, Places) {
    let mut lives: Vec<memory::Lifetime> = Vec::new();
    let mut life_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, step) in steps.iter().enumerate() {
        for n in step.writes().into_iter().chain(step.reads()) {
            let Some(info) = buffers[n].as_ref().filter(|b| b.role == UNPLACED) else { continue };
            let bytes = info.len * info.dtype.itemsize();
            let l = *life_of.entry(n).or_insert_with(|| {
                lives.push(memory::Lifetime {
                    bytes,
                    device: info.device.clone(),
                    first: i,
                    last: i,
                });
                lives.len() - 1
            });
            lives[l].last = i;
        }
    }
    let places = memory::plan(&lives, most);
    let none =
        BufferInfo { dtype: DType::VOID, len: 0, device: DeviceName::new(""), role: Role::Output };
    let buffers = buffers
        .into_iter()
        .enumerate()
        .map(|(n, b)| {
            let mut b = b.unwrap_or_else(|| none.clone());
            if b.role == UNPLACED {
                // One without a life was merged into its reader, and nobody else wants it.
                let Some(l) = life_of.get(&n) else { return none.clone() };
                let (arena, offset) = places.at[*l];
                b.role = Role::Temporary { arena, offset };
            }
            b
        })
        .collect();
    (buffers, places)
}
