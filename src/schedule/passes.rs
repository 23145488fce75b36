//! The passes of the scheduler, from an abstracted tensor graph to a plan, in the order of
//! [`passes`]. Each is a function on [`State`], which holds the results of the passes before it.

use super::assign_ranges::{self, RangeAssignment};
use super::build_kernels::{self, Built};
use super::fuse::{self, KernelGroup};
use super::in_place::{self, InPlace};
use super::insert_copies::{self, devices_of};
use super::order::{self, CommandAccess};
use super::plan_memory::{self, Placement};
use super::shard::{self, Sharded};
use super::{
    BufferInfo, Command, DeviceTraits, KernelLimits, Layout, Output, Plan, Role, SlotRef, UNPLACED,
};
use super::{
    hint_stores, limit_buffers, lower_cats, narrow, plan_loops, prepare, read_stored,
    reduce_simplify, split_products, text, verify,
};
use crate::dtype::DType;
use crate::env;
use crate::ir::{self, Arg, DeviceName, Op, UOp, toposort};
use crate::pass::{self, Pass, PassInfo, PassTimes, Stage};
use crate::target::ScheduleTuning;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::ops::Range;

/// Returns the passes in order.
pub fn passes<'a>() -> [Pass<State<'a>>; 17] {
    pass::passes![
        shard: Tensor, |s| s.markers.shards, shard,
            "Splits graphs over several devices into one graph per device.";
        read_stored: Tensor, |s| s.markers.contiguous,
            |s| s.outputs = read_stored::read_stored(&s.outputs),
            "Lets all users of a value that is stored, and could be rounded differently, read it.";
        prepare: Tensor, |_| true, |s| s.outputs = prepare::prepare(&s.outputs, s.tuning()),
            "Applies the rules on the tensor graph.";
        split_products: Tensor, |s| s.markers.reduces && s.threads() > 0, split_products,
            "Splits long sums of products for devices that need many threads.";
        lower_cats: Tensor, |s| s.markers.cats,
            |s| s.outputs = lower_cats::lower_cats(&s.outputs, &s.tuning()),
            "Decides for each concatenation whether it is stored or computed element by element.";
        insert_copies: Tensor, |s| s.markers.devices,
            |s| s.outputs = insert_copies::insert_copies(&s.outputs, &s.devices, &s.tuning()),
            "Inserts copies between devices.";
        assign_ranges: Ranged, |_| true, assign_ranges,
            "Gives every node ranges, decides what is stored, and assigns buffer ids.";
        reduce_simplify: Ranged, |s| !s.ranged.stored.is_empty(), reduce_simplify,
            "Replaces reductions by loads or by shorter reductions.";
        limit_buffers: Ranged, |s| s.traits.iter().any(|t| !t.1.limits.is_unlimited()),
            limit_buffers,
            "Splits kernels that read more buffers than their device allows.";
        fuse: Ranged, |s| !s.ranged.stored.is_empty(), fuse,
            "Merges stores that can share a loop nest.";
        in_place: Ranged, |s| s.request.donated.iter().any(Option::is_some), in_place,
            "Writes outputs to the memory of donated inputs.";
        narrow: Ranged, |s| !s.in_place.is_empty(), |s| narrow::narrow(&mut s.groups, &s.in_place),
            "Narrows kernels that change a part of a donated buffer to that part.";
        plan_loops: Ranged, |s| s.ranged.customs.iter().any(|k| k.node.op() == Op::Loop),
            plan_loops,
            "Plans the bodies of loops.";
        build_kernels: Kernel, |s| !s.groups.is_empty(), build_kernels,
            "Makes the kernel of each group, and merges ranges that are one flat index.";
        order: Kernel, |_| true, order,
            "Orders kernels, copies and loops.";
        hint_stores: Kernel, |s| s.traits.iter().any(|t| t.1.nontemporal.is_some()), hint_stores,
            "Marks the stores of large outputs that are not read again soon.";
        plan_memory: Kernel, |s| s.buffers.iter().flatten().any(|b| b.role == UNPLACED),
            plan_memory,
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
    /// Returns the traits of a device.
    pub traits_of: &'a dyn Fn(&DeviceName) -> DeviceTraits,
}

/// Properties of a tensor graph that make passes run.
#[derive(Clone, Copy, Debug, Default)]
struct Markers {
    /// Sharded values, or outputs on several devices.
    shards: bool,
    /// More than one device.
    devices: bool,
    /// Values that are stored on request.
    contiguous: bool,
    /// Reductions, also those that scans and gathers become.
    reduces: bool,
    /// Nodes that concatenate tensors.
    cats: bool,
}

impl Markers {
    /// Collects the markers of a graph in one walk.
    fn of(outputs: &[UOp], devices: &[DeviceName]) -> Markers {
        let order = toposort(outputs);
        let mut first: Option<&DeviceName> = None;
        let mut differs = |d| *first.get_or_insert(d) != d;
        let mut markers = Markers {
            shards: devices.iter().any(DeviceName::is_multi_device),
            ..Markers::default()
        };
        for d in devices {
            markers.devices |= differs(d);
        }
        for u in &order {
            if let Arg::Param { device, .. } | Arg::Device(device) = u.arg() {
                markers.devices |= differs(device);
            }
            match u.op() {
                Op::Shards => markers.shards = true,
                Op::Contiguous => markers.contiguous = true,
                Op::Reduce | Op::Scan | Op::Gather => markers.reduces = true,
                Op::Cat => markers.cats = true,
                _ => {}
            }
        }
        markers
    }
}

/// The state of a plan between passes.
pub struct State<'a> {
    request: &'a PlanRequest<'a>,
    markers: Markers,
    /// Traits of the devices in the graph. Most plans have one device.
    traits: Vec<(DeviceName, DeviceTraits)>,
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
    /// The launch of each group; `None` for one that writes nothing.
    launches: Vec<Option<Command>>,
    /// All commands in order.
    pub(super) commands: Vec<Command>,
    pub(super) placement: Placement,
}

/// Plans an abstracted graph.
pub fn plan(request: &PlanRequest) -> Plan {
    let config = env::config().ok();
    if config.is_some_and(|c| c.verify)
        && let Err(e) = crate::verify::tensor(&UOp::sink(request.outputs.to_vec()))
    {
        panic!("the tensor graph is invalid: {e}");
    }
    let mut state = State::new(request);
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
    let verified = |pass: &PassInfo, state: &dyn pass::State| {
        state.verify(pass).unwrap_or_else(|e| panic!("after {}: {e}", pass.name))
    };
    pass::run(&passes[..at], &mut state, &mut |pass, state| verified(pass, state));
    let text = |state: &State, i: usize| pass::State::text(state, &passes[i].info);
    let before = text(&state, at.saturating_sub(1));
    pass::run(&passes[at..=at], &mut state, &mut |pass, state| verified(pass, state));
    Some(PassTexts { before, after: text(&state, at) })
}

impl pass::State for State<'_> {
    fn nodes(&self, stage: Stage) -> Cow<'_, [UOp]> {
        match stage {
            Stage::Tensor => Cow::Borrowed(&self.outputs),
            Stage::Ranged => Cow::Owned(text::stores(self)),
            _ => {
                let programs = self.all_commands().flat_map(Command::programs);
                Cow::Owned(programs.map(|p| p.0.clone()).filter(|p| p.op() == Op::Sink).collect())
            }
        }
    }

    fn verify(&self, pass: &PassInfo) -> Result<(), String> {
        match pass.stage {
            Stage::Tensor => crate::verify::tensor(&UOp::sink(self.outputs.clone())),
            Stage::Ranged => verify::ranged(self),
            stage => stage.verify(&self.nodes(stage)),
        }
    }

    fn text(&self, pass: &PassInfo) -> String {
        match pass.stage {
            Stage::Tensor => self.outputs.iter().map(ir::print).collect(),
            Stage::Kernel => self.all_commands().map(|c| text::command(self, c)).collect(),
            _ => text::ranged(self),
        }
    }
}

impl<'a> State<'a> {
    fn new(request: &'a PlanRequest<'a>) -> State<'a> {
        State {
            request,
            markers: Markers::of(request.outputs, request.devices),
            traits: Vec::new(),
            outputs: request.outputs.to_vec(),
            devices: request.devices.to_vec(),
            layouts: vec![None; request.outputs.len()],
            nodes: Vec::new(),
            device: FxHashMap::default(),
            ranged: RangeAssignment::default(),
            slots: Vec::new(),
            parts: Vec::new(),
            buffers: Vec::new(),
            groups: Vec::new(),
            in_place: Vec::new(),
            loops: FxHashMap::default(),
            launches: Vec::new(),
            commands: Vec::new(),
            placement: Placement::default(),
        }
    }

    /// Returns the commands: in order, or before `order` the launches.
    fn all_commands(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().chain(self.launches.iter().flatten())
    }

    /// Returns the number of threads that saturate the devices of the outputs; 0 for CPUs.
    fn threads(&self) -> usize {
        self.devices.iter().map(|d| (self.request.traits_of)(d).threads).max().unwrap_or(0)
    }

    /// Returns the traits that the plan is made for: those of the device of its first output.
    fn main_traits(&self) -> DeviceTraits {
        self.devices.first().map_or(DeviceTraits::UNKNOWN, |d| (self.request.traits_of)(d))
    }

    /// Returns the thresholds of the plan.
    fn tuning(&self) -> ScheduleTuning {
        self.main_traits().costs.tuning
    }

    /// Returns the buffers that are read after the plan.
    fn live_out(&self) -> FxHashSet<usize> {
        self.slots.iter().flatten().copied().collect()
    }

    fn limits(&self, device: &DeviceName) -> KernelLimits {
        let traits = self.traits.iter().find(|t| t.0 == *device);
        traits.map_or(KernelLimits::UNLIMITED, |t| t.1.limits)
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
    let Sharded { shards, devices, layouts } = shard::shard(&s.outputs, &s.devices);
    s.markers = Markers::of(&shards, &devices);
    (s.outputs, s.devices, s.layouts) = (shards, devices, layouts);
}

fn split_products(s: &mut State) {
    s.outputs = split_products::split_products(&s.outputs, s.threads(), &s.tuning());
}

fn assign_ranges(s: &mut State) {
    s.nodes = toposort(s.outputs.iter());
    s.device = devices_of(&s.nodes, &s.outputs, &s.devices);
    for device in s.device.values() {
        if !s.traits.iter().any(|t| t.0 == *device) {
            s.traits.push((device.clone(), (s.request.traits_of)(device)));
        }
    }
    let inputs = s.request.inputs;
    s.ranged = assign_ranges::assign(&s.outputs, inputs, s.main_traits().costs);
    for o in &s.outputs {
        let home = (o.numel() > 0).then(|| assign_ranges::contiguous_memory(o));
        s.slots.push(home.as_ref().map(|h| s.ranged.buffer_ids[&h.0.id()]));
        s.parts.push(home.and_then(|h| h.1));
    }
    let live_out = s.live_out();
    s.buffers = vec![None; s.ranged.count];
    for u in &s.nodes {
        let Some(&n) = s.ranged.buffer_ids.get(&u.id()) else { continue };
        let role = match n {
            n if n < inputs => Role::Input(n),
            n if live_out.contains(&n) => Role::Output,
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

fn reduce_simplify(s: &mut State) {
    // Updates are simplified where they are built: their masks depend on the bounds of the
    // simplified index.
    for store in s.ranged.stored.iter_mut().filter(|store| store.update.is_none()) {
        store.value = reduce_simplify::reduce_simplify(&store.value);
    }
}

fn limit_buffers(s: &mut State) {
    let (mut ranged, mut buffers) = (std::mem::take(&mut s.ranged), std::mem::take(&mut s.buffers));
    let device_of = |u: &UOp| s.device[&u.id()].clone();
    limit_buffers::limit_buffers(&mut ranged, &mut buffers, &device_of, &|d| s.limits(d));
    (s.ranged, s.buffers) = (ranged, buffers);
}

fn fuse(s: &mut State) {
    let device_of = |u: &UOp| s.device[&u.id()].clone();
    let fits = |a: &KernelGroup, b: &KernelGroup| s.limits(&a.device).fits(&s.buffers, [a, b]);
    s.groups = fuse::fuse(&s.ranged, &device_of, &s.live_out(), &fits);
}

fn in_place(s: &mut State) {
    let (groups, donated) = (&mut s.groups, s.request.donated);
    s.in_place = in_place::donate_buffers(groups, &s.ranged, &mut s.slots, donated, &mut s.buffers);
}

fn plan_loops(s: &mut State) {
    let mut buffers = std::mem::take(&mut s.buffers);
    for k in &s.ranged.customs {
        if let Arg::Loop(l) = k.node.arg() {
            let (used_outputs, device) =
                (plan_loops::used_outputs(&s.nodes, &k.node), &s.device[&k.node.id()]);
            let traits_of = s.request.traits_of;
            let commands = plan_loops::repeat(k, l, &used_outputs, device, &mut buffers, traits_of);
            s.loops.insert(k.node.id(), commands);
        }
    }
    s.buffers = buffers;
}

fn build_kernels(s: &mut State) {
    let mut built = Built::default();
    s.launches = s.groups.iter().map(|g| launch(s, g, &mut built)).collect();
}

/// Returns the launch of a group. `None` for a group that writes nothing: its values are in place
/// already, or all of its updates are outside their table.
fn launch(s: &State, g: &KernelGroup, built: &mut Built) -> Option<Command> {
    if g.stores.is_empty() || g.update.as_ref().is_some_and(|mask| mask.is_int(0)) {
        return None;
    }
    let len_of = |n: usize| s.buffers[n].as_ref().map_or(0, |b| b.len);
    let (program, slots) = build_kernels::build_kernel(g, &len_of, built);
    let written = g.writes().collect::<FxHashSet<usize>>().len();
    Some(Command::Launch {
        program,
        device: g.device.clone(),
        args: slots.into_iter().map(|n| s.slot_ref(n)).collect(),
        writes: (0..written).collect(),
    })
}

fn order(s: &mut State) {
    let accesses: Vec<CommandAccess> = order::accesses(&s.groups, &s.ranged);
    let bytes = |n: usize| s.intermediate(n).map_or(0, |i| i.0);
    let order = order::order(&accesses, &s.in_place, &bytes);
    let mut launches = std::mem::take(&mut s.launches);
    let mut commands = Vec::with_capacity(order.len());
    let copies = s.groups.len()..s.groups.len() + s.ranged.copies.len();
    for i in order {
        if i < copies.start {
            commands.extend(launches[i].take());
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

fn hint_stores(s: &mut State) {
    let traits = &s.traits;
    let sizes = |d: &DeviceName| traits.iter().find(|t| t.0 == *d)?.1.nontemporal;
    hint_stores::hint_stores(&mut s.commands, &s.buffers, &sizes);
}

fn plan_memory(s: &mut State) {
    let (slots, placement) = plan_memory::plan_slots(
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
