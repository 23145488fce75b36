//! The passes of the scheduler, from an abstracted tensor graph to a plan, in the order of
//! [`passes`]. Each is a function on [`State`], which holds the results of the passes before it.

use super::cost::Costs;
use super::fuse::{self, KernelGroup};
use super::in_place::{self, InPlace};
use super::memory::{self, Placement};
use super::order::{self, Access};
use super::ranges::{self, RangeAssignment};
use super::reduce_simplify;
use super::shard::{self, Sharded};
use super::{
    BufferInfo, Command, KernelLimits, Layout, Output, Plan, Role, SlotRef, UNPLACED, cat, devices,
    limits, loops, prepare, text,
};
use crate::dtype::DType;
use crate::env;
use crate::ir::{self, Arg, DeviceName, Op, UOp, toposort};
use crate::pass::{self, Pass, PassInfo, PassTimes, Stage};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::ops::Range;

/// Returns the passes in order.
pub fn passes<'a>() -> [Pass<State<'a>>; 13] {
    pass::passes![
        shard: Tensor, |_| true, shard,
            "Splits graphs over several devices into one graph per device.";
        prepare: Tensor, |_| true, |s| s.outputs = prepare::prepare(&s.outputs),
            "Applies the rules on the tensor graph.";
        split_products: Tensor, |s| s.wide() > 0, split_products,
            "Splits long sums of products for devices that need many threads.";
        lower_cats: Tensor, |_| true, |s| s.outputs = cat::decide(std::mem::take(&mut s.outputs)),
            "Decides for each concatenation whether it is stored or computed element by element.";
        insert_copies: Tensor, |_| true, insert_copies,
            "Finds the device of each node, and inserts copies between devices.";
        assign_ranges: Ranged, |_| true, assign_ranges,
            "Gives every node ranges, decides what is stored, and numbers the buffers.";
        simplify_reduces: Ranged, |_| true, simplify_reduces,
            "Replaces reductions by loads or by shorter reductions.";
        limit_buffers: Ranged, |s| s.limits.iter().any(|l| !l.1.is_unlimited()), limit_buffers,
            "Splits kernels that read more buffers than their device allows.";
        fuse: Ranged, |_| true, fuse,
            "Merges stores that can share a loop nest.";
        in_place: Ranged, |_| true, in_place,
            "Writes outputs to the memory of donated inputs.";
        plan_loops: Ranged, |s| !s.ranged.customs.is_empty(), plan_loops,
            "Plans the bodies of loops.";
        order: Kernel, |_| true, order,
            "Orders kernels, copies and loops, and makes their commands.";
        plan_memory: Kernel, |_| true, plan_memory,
            "Places intermediates in arenas by their lifetimes.";
    ]
}

/// An abstracted graph to plan.
pub struct PlanRequest<'a> {
    /// The requested values.
    pub outputs: &'a [UOp],
    /// Device of each output.
    pub devices: &'a [DeviceName],
    /// For each shard of each output, the input whose memory may be donated to it.
    pub donated: &'a [Option<usize>],
    /// Number of inputs; their buffer numbers come first.
    pub inputs: usize,
    /// Returns the limits of kernels of a device.
    pub limits_of: &'a dyn Fn(&DeviceName) -> KernelLimits,
}

/// The state of a plan between passes.
pub struct State<'a> {
    request: &'a PlanRequest<'a>,
    /// Limits of the devices in the graph. Most plans have one device.
    limits: Vec<(DeviceName, KernelLimits)>,
    /// Outputs, one per shard, and their devices.
    outputs: Vec<UOp>,
    devices: Vec<DeviceName>,
    layouts: Vec<Option<Layout>>,
    /// All nodes of the graph in topological order, and the device of each.
    nodes: Vec<UOp>,
    device: FxHashMap<u64, DeviceName>,
    pub(super) ranged: RangeAssignment,
    /// The buffer of each output, and the elements of it.
    slots: Vec<Option<usize>>,
    parts: Vec<Option<Range<usize>>>,
    pub(super) buffers: Vec<Option<BufferInfo>>,
    pub(super) groups: Vec<KernelGroup>,
    pub(super) in_place: Vec<InPlace>,
    /// Commands of each loop, by the id of its node.
    pub(super) loops: FxHashMap<u64, Vec<Command>>,
    pub(super) commands: Vec<Command>,
    pub(super) placement: Placement,
}

/// Plans an abstracted graph.
pub fn plan(request: &PlanRequest) -> Plan {
    let mut state = State::new(request);
    let config = env::config().ok();
    let times = pass::run(&passes(), &mut state, &mut |pass, state| {
        config.iter().for_each(|config| pass::observe(config, pass, state))
    });
    state.into_plan(times)
}

/// The state of the scheduler as text before and after a pass. Tests and documents show passes by
/// it.
#[cfg(feature = "testing")]
pub struct PassTexts {
    /// The state before the pass, in the form of the pass before it.
    pub before: String,
    /// The state after the pass.
    pub after: String,
}

/// Runs the passes up to the named one on an abstracted graph, and returns the state around it;
/// `None` if there is no such pass.
#[cfg(feature = "testing")]
pub fn texts_of(pass: &str, request: &PlanRequest) -> Option<PassTexts> {
    let passes = passes();
    let at = passes.iter().position(|p| p.info.name == pass)?;
    let mut state = State::new(request);
    pass::run(&passes[..at], &mut state, &mut |_, _| {});
    let text = |state: &State, i: usize| pass::State::text(state, &passes[i].info);
    let before = text(&state, at.saturating_sub(1));
    pass::run(&passes[at..=at], &mut state, &mut |_, _| {});
    Some(PassTexts { before, after: text(&state, at) })
}

impl pass::State for State<'_> {
    fn nodes(&self, stage: Stage) -> Cow<'_, [UOp]> {
        match stage {
            Stage::Tensor => Cow::Borrowed(&self.outputs),
            Stage::Ranged => Cow::Owned(text::stores(self)),
            _ => {
                let programs = self.commands.iter().flat_map(Command::programs);
                Cow::Owned(programs.map(|p| p.0.clone()).filter(|p| p.op() == Op::Sink).collect())
            }
        }
    }

    fn text(&self, pass: &PassInfo) -> String {
        match pass.stage {
            Stage::Tensor => self.outputs.iter().map(ir::print).collect(),
            Stage::Kernel => self.commands.iter().map(|c| text::command(self, c)).collect(),
            _ => text::ranged(self),
        }
    }
}

impl<'a> State<'a> {
    fn new(request: &'a PlanRequest<'a>) -> State<'a> {
        State {
            request,
            limits: Vec::new(),
            outputs: request.outputs.to_vec(),
            devices: request.devices.to_vec(),
            layouts: Vec::new(),
            nodes: Vec::new(),
            device: FxHashMap::default(),
            ranged: RangeAssignment::default(),
            slots: Vec::new(),
            parts: Vec::new(),
            buffers: Vec::new(),
            groups: Vec::new(),
            in_place: Vec::new(),
            loops: FxHashMap::default(),
            commands: Vec::new(),
            placement: Placement::default(),
        }
    }

    /// Returns the threads that the devices of the outputs need; 0 if a few suffice.
    fn wide(&self) -> usize {
        self.devices.iter().map(|d| (self.request.limits_of)(d).wide).max().unwrap_or(0)
    }

    /// Returns the costs of the plan: those of the device of its first output.
    fn costs(&self) -> Costs {
        self.devices.first().map_or(Costs::FIXED, |d| (self.request.limits_of)(d).costs)
    }

    /// Returns the buffers that are read after the plan.
    fn kept(&self) -> FxHashSet<usize> {
        self.slots.iter().flatten().copied().collect()
    }

    fn limits(&self, device: &DeviceName) -> KernelLimits {
        self.limits.iter().find(|l| l.0 == *device).map_or(KernelLimits::ANY, |l| l.1)
    }

    /// Returns the bytes and the device of an intermediate; `None` for any other buffer.
    fn intermediate(&self, n: usize) -> Option<(usize, DeviceName)> {
        let info = self.buffers[n].as_ref().filter(|info| info.role == UNPLACED)?;
        Some((info.bytes(), info.device.clone()))
    }

    /// Returns a view of a whole buffer.
    fn slot_ref(&self, slot: usize) -> SlotRef {
        let info = self.buffers[slot].as_ref().expect("a command names buffers that exist");
        SlotRef { slot, offset: 0, dtype: info.dtype, len: info.len }
    }

    fn into_plan(self, times: PassTimes) -> Plan {
        let output = |(slot, part): (Option<usize>, Option<Range<usize>>)| {
            slot.map(|buffer| Output { buffer, part })
        };
        let unused = || BufferInfo {
            dtype: DType::VOID,
            len: 0,
            device: DeviceName::new(""),
            role: Role::Output,
        };
        Plan {
            commands: self.commands,
            buffers: self.buffers.into_iter().map(|b| b.unwrap_or_else(unused)).collect(),
            outputs: self.slots.into_iter().zip(self.parts).map(output).collect(),
            layouts: self.layouts,
            arenas: self.placement.arenas,
            memory: self.placement.memory,
            times,
        }
    }
}

fn shard(s: &mut State) {
    let Sharded { parts, devices, layouts } = shard::shard(&s.outputs, &s.devices);
    (s.outputs, s.devices, s.layouts) = (parts, devices, layouts);
}

fn split_products(s: &mut State) {
    s.outputs = prepare::split_products(&s.outputs, s.wide());
}

fn insert_copies(s: &mut State) {
    s.outputs = devices::insert_copies(std::mem::take(&mut s.outputs), &s.devices);
    s.nodes = toposort(s.outputs.iter());
    s.device = devices::devices_of(&s.nodes, &s.outputs, &s.devices);
    for device in s.device.values() {
        if !s.limits.iter().any(|l| l.0 == *device) {
            s.limits.push((device.clone(), (s.request.limits_of)(device)));
        }
    }
}

fn assign_ranges(s: &mut State) {
    let inputs = s.request.inputs;
    s.ranged = ranges::assign(&s.outputs, inputs, s.costs());
    for o in &s.outputs {
        let home = (o.numel() > 0).then(|| ranges::home(o));
        s.slots.push(home.as_ref().map(|h| s.ranged.numbers[&h.0.id()]));
        s.parts.push(home.and_then(|h| h.1));
    }
    let kept = s.kept();
    s.buffers = vec![None; s.ranged.count];
    for u in &s.nodes {
        let Some(&n) = s.ranged.numbers.get(&u.id()) else { continue };
        let role = match n {
            n if n < inputs => Role::Input(n),
            n if kept.contains(&n) => Role::Output,
            _ => UNPLACED,
        };
        let device = u.as_param().map_or_else(|| &s.device[&u.id()], |p| p.device).clone();
        s.buffers[n] = Some(BufferInfo { dtype: u.dtype(), len: u.numel(), device, role });
    }
    add_unread_outputs(s);
}

/// Adds buffers for outputs of custom kernels and loops that are written and not read.
fn add_unread_outputs(s: &mut State) {
    for k in &s.ranged.customs {
        let outputs: Vec<(DType, usize)> = match k.node.arg() {
            Arg::Loop(l) => {
                let carries = l.outputs().into_iter().take(l.carries);
                carries.map(|(dtype, shape)| (dtype, shape.iter().product())).collect()
            }
            _ => {
                let outputs = k.node.expect_kernel().kernel.outputs.iter();
                outputs.map(|(dtype, shape)| (*dtype, shape.iter().product())).collect()
            }
        };
        for (&n, (dtype, len)) in k.writes.iter().zip(outputs) {
            let device = || s.device[&k.node.id()].clone();
            let info = || BufferInfo { dtype, len, device: device(), role: UNPLACED };
            s.buffers[n].get_or_insert_with(info);
        }
    }
}

fn simplify_reduces(s: &mut State) {
    // Updates are simplified where they are built: their masks depend on the bounds of the
    // simplified index.
    for store in s.ranged.stored.iter_mut().filter(|store| store.update.is_none()) {
        store.value = reduce_simplify::simplify_reduces(&store.value);
    }
}

fn limit_buffers(s: &mut State) {
    let (mut ranged, mut buffers) = (std::mem::take(&mut s.ranged), std::mem::take(&mut s.buffers));
    let device_of = |u: &UOp| s.device[&u.id()].clone();
    limits::split(&mut ranged, &mut buffers, &device_of, &|d| s.limits(d));
    (s.ranged, s.buffers) = (ranged, buffers);
}

fn fuse(s: &mut State) {
    let device_of = |u: &UOp| s.device[&u.id()].clone();
    let fits = |a: &KernelGroup, b: &KernelGroup| s.limits(&a.device).takes(&s.buffers, [a, b]);
    s.groups = fuse::fuse(&s.ranged, &device_of, &s.kept(), &fits);
}

fn in_place(s: &mut State) {
    let (groups, donated) = (&mut s.groups, s.request.donated);
    s.in_place = in_place::donate_buffers(groups, &s.ranged, &mut s.slots, donated, &mut s.buffers);
    in_place::narrow(groups, &s.in_place);
}

fn plan_loops(s: &mut State) {
    let mut buffers = std::mem::take(&mut s.buffers);
    for k in &s.ranged.customs {
        if let Arg::Loop(l) = k.node.arg() {
            let (asked, device) = (loops::asked(&s.nodes, &k.node), &s.device[&k.node.id()]);
            let commands = loops::repeat(k, l, &asked, device, &mut buffers, &|d| s.limits(d));
            s.loops.insert(k.node.id(), commands);
        }
    }
    s.buffers = buffers;
}

fn order(s: &mut State) {
    let accesses: Vec<Access> = order::accesses(&s.groups, &s.ranged);
    let bytes = |n: usize| s.intermediate(n).map_or(0, |i| i.0);
    let order = order::order(&accesses, &s.in_place, &bytes);
    // Layers of a model often have the same kernel.
    let mut merged: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut commands = Vec::with_capacity(order.len());
    let copies = s.groups.len()..s.groups.len() + s.ranged.copies.len();
    for i in order {
        if i < copies.start {
            commands.extend(launch(s, &s.groups[i], &mut merged));
        } else if copies.contains(&i) {
            let (to, from, start) = s.ranged.copies[i - copies.start];
            let to = s.slot_ref(to);
            let from = SlotRef { slot: from, offset: start * to.dtype.itemsize(), ..to };
            commands.push(Command::Copy { to, from });
        } else {
            let k = &s.ranged.customs[i - copies.end];
            match k.node.arg() {
                Arg::Kernel(kernel) => commands.push(Command::Launch {
                    program: kernel.ast.clone(),
                    device: s.device[&k.node.id()].clone(),
                    args: k.writes.iter().chain(&k.reads).map(|n| s.slot_ref(*n)).collect(),
                    writes: written_args(&kernel.ast),
                }),
                _ => commands.extend(s.loops.remove(&k.node.id()).into_iter().flatten()),
            }
        }
    }
    s.commands = commands;
}

/// Returns the launch of a group. `None` for a group that writes nothing: its values are in place
/// already, or all of its updates are outside their table.
fn launch(s: &State, g: &KernelGroup, merged: &mut FxHashMap<UOp, UOp>) -> Option<Command> {
    if g.stores.is_empty() || g.update.as_ref().is_some_and(|mask| mask.is_int(0)) {
        return None;
    }
    let len_of = |n: usize| s.buffers[n].as_ref().map_or(0, |b| b.len);
    let (ast, slots) = fuse::finish(g, &len_of);
    let written = g.writes().collect::<FxHashSet<usize>>().len();
    Some(Command::Launch {
        program: merged.entry(ast).or_insert_with_key(fuse::merge_ranges).clone(),
        device: g.device.clone(),
        args: slots.into_iter().map(|n| s.slot_ref(n)).collect(),
        writes: (0..written).collect(),
    })
}

/// Returns the arguments that a custom kernel writes.
fn written_args(ast: &UOp) -> Vec<usize> {
    if let Arg::Source(source) = ast.arg() {
        return (0..source.outputs).collect();
    }
    let slot = |store: &UOp| store.expect_store().place.buffer.expect_define_global().slot;
    let mut writes: Vec<usize> = ast.src().iter().map(slot).collect();
    writes.sort_unstable();
    writes.dedup();
    writes
}

fn plan_memory(s: &mut State) {
    let (slots, placement) = memory::plan_slots(
        s.commands.iter().map(Command::slots),
        &|n| s.intermediate(n),
        &|device| s.limits(device).bytes,
    );
    let at: FxHashMap<usize, (usize, usize)> =
        slots.into_iter().zip(placement.at.iter().copied()).collect();
    for (slot, buffer) in s.buffers.iter_mut().enumerate() {
        let Some(info) = buffer.as_mut().filter(|info| info.role == UNPLACED) else { continue };
        match at.get(&slot) {
            Some(&(arena, offset)) => info.role = Role::Temporary { arena, offset },
            // It was fused into its only reader.
            None => *buffer = None,
        }
    }
    s.placement = placement;
}
