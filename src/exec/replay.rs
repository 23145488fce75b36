//! Captured commands, run again on other memory. Input: commands over slots. Output: a plan that is
//! ready to run, with intermediates in one arena per device.
//!
//! Kernels of the host become a list of functions with their addresses filled in. Kernels of a GPU
//! with graphs become one graph launch.

use super::bind::Needs;
use super::captured::BufferType;
use super::command::{self, BoundCommand, HostCalls};
use super::launch::counters_of;
use super::memory::SlotMemory;
use crate::compile::Compiled;
use crate::device::buffer::lock_for_kernel;
use crate::device::{
    Addresses, Buffer, Counters, Device, Graph, GraphKernel, MemoryRef, count_all,
};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::schedule::{Command, PlannedMemory, SlotRef, VariableValues, plan_memory};
use std::ops::Range;
use std::time::Duration;

/// Origin of the memory of a slot.
#[derive(Clone)]
pub enum Slot {
    /// Given by the caller at each replay.
    Given,
    /// Allocated at each replay, for the caller.
    Fresh(BufferType),
    /// Owned by the plan.
    Own(Buffer),
    /// An intermediate.
    Temporary {
        /// Device whose memory it is in.
        device: DeviceName,
        /// Size in bytes.
        bytes: usize,
    },
}

/// Bound commands that can be replayed.
pub struct ReplayPlan {
    /// Launches and copies; loops are unrolled.
    commands: Vec<BoundCommand>,
    batches: Vec<Batch>,
    /// Memory of all slots. Given and fresh slots have it while a [`Replay`] exists.
    slots: SlotMemory,
    /// Start of each slot in host memory, as [`SlotMemory::host_start`].
    starts: Addresses,
    /// Given slots, in their order.
    given: Vec<usize>,
    /// Slots that are allocated at each replay.
    fresh: Vec<(usize, BufferType)>,
    memory: PlannedMemory,
    /// Counters per device of the commands in batches, which are not counted one by one.
    batched: Vec<(DeviceName, Counters)>,
    /// Requirements on the memory of each slot, and the devices whose kernels use it.
    needs: Vec<(Needs, Vec<DeviceName>)>,
}

/// A plan with the memory of all slots. The plan gives up that of given and fresh slots when this
/// is dropped.
pub struct Replay<'a>(&'a mut ReplayPlan);

/// Consecutive commands that run together.
struct Batch {
    commands: Range<usize>,
    mode: BatchMode,
}

/// The way that the commands of a batch run.
enum BatchMode {
    /// Kernels of one device of the host, as calls of functions.
    Host(HostCalls),
    /// Kernels of a GPU, as one graph launch.
    Graph(Box<dyn Graph>),
    /// One by one.
    Single,
}

impl ReplayPlan {
    /// Prepares commands for replay. Without `graphs` kernels of a GPU are launched one by one.
    pub fn new(slots: Vec<Slot>, commands: Vec<BoundCommand>, graphs: bool) -> Result<ReplayPlan> {
        let (slots, memory) = allocate(slots, &commands)?;
        let needs = needs(slots.len(), &commands);
        let mut plan = ReplayPlan {
            batches: Vec::new(),
            starts: Addresses(vec![std::ptr::null_mut(); slots.len()]),
            slots: SlotMemory(vec![None; slots.len()]),
            given: Vec::new(),
            fresh: Vec::new(),
            memory,
            batched: Vec::new(),
            needs,
            commands,
        };
        for (i, slot) in slots.into_iter().enumerate() {
            match slot {
                Slot::Given => plan.given.push(i),
                Slot::Fresh(buffer_type) => plan.fresh.push((i, buffer_type)),
                Slot::Own(buffer) => plan.set(i, buffer)?,
                // No command names it, as a buffer that the last iteration of a loop does not need.
                Slot::Temporary { .. } => {}
            }
        }
        let mut at = 0;
        while at < plan.commands.len() {
            at = plan.add_batch(at, graphs)?;
        }
        Ok(plan)
    }

    /// Adds a batch of the commands from `start` on, and returns its end.
    fn add_batch(&mut self, start: usize, graphs: bool) -> Result<usize> {
        let device = self.commands[start].as_launch().map(|(_, device, _)| device);
        let of_one = |c: &&BoundCommand| {
            c.as_launch().is_some_and(|(_, d, _)| Some(d) == device) && command::is_on_host(c)
        };
        let end = start + self.commands[start..].iter().take_while(of_one).count();
        let (end, mode) = if end > start {
            (end, BatchMode::Host(HostCalls::new(&self.commands[start..end])))
        } else if graphs && let Some((end, graph)) = self.graph(start)? {
            (end, BatchMode::Graph(graph))
        } else if let Some(Batch { commands, mode: BatchMode::Single }) = self.batches.last_mut() {
            commands.end = start + 1;
            return Ok(start + 1);
        } else {
            (start + 1, BatchMode::Single)
        };
        if !matches!(mode, BatchMode::Single) {
            let batch = &self.commands[start..end];
            batch.iter().for_each(|c| command::add_counters(c, 1, &mut self.batched));
        }
        self.batches.push(Batch { commands: start..end, mode });
        Ok(end)
    }

    /// Returns a graph of the launches on one device from `start` on, with the end of the commands
    /// in it; `None` if the device has no graphs.
    fn graph(&self, start: usize) -> Result<Option<(usize, Box<dyn Graph>)>> {
        let Command::Launch { device, .. } = &self.commands[start] else { return Ok(None) };
        let (mut all, mut nodes): (Vec<SlotRef>, Vec<GraphKernel>) = Default::default();
        for command in &self.commands[start..] {
            match command {
                Command::Launch { program, device: d, args, writes } if d == device => {
                    let first = all.len();
                    all.extend(args);
                    let args = first..all.len();
                    nodes.push(GraphKernel { executable: &program.executable, args, writes });
                }
                _ => break,
            }
        }
        let overlap = |a: usize, b: usize| self.may_overlap(&all[a], &all[b]);
        let graph = Device::named(device)?.backend().graph(&nodes, &overlap)?;
        Ok(graph.map(|graph| (start + nodes.len(), graph)))
    }

    /// Returns true if two views may share memory. Memory that the plan owns is compared; the
    /// caller guarantees that the memory it passes for written slots does not overlap.
    fn may_overlap(&self, a: &SlotRef, b: &SlotRef) -> bool {
        let own = |r: &SlotRef| self.slots.0[r.slot].as_ref().map(Buffer::span);
        match (own(a), own(b)) {
            (Some((block, x)), Some((other, y))) => {
                block == other && x.start < y.end && y.start < x.end
            }
            (None, None) => a.slot == b.slot,
            _ => false,
        }
    }

    /// Sets the memory of a slot, which must have what the commands require.
    fn set(&mut self, slot: usize, buffer: Buffer) -> Result<()> {
        let (needs, devices) = &self.needs[slot];
        devices.iter().try_for_each(|d| needs.check(slot, d, &buffer, 0))?;
        self.starts.0[slot] = SlotMemory::host_start(&buffer);
        self.slots.0[slot] = Some(buffer);
        Ok(())
    }

    /// Prepares a replay: `given` has the memory of the given slots, in their order.
    pub fn bind(&mut self, given: &[Buffer]) -> Result<Replay<'_>> {
        let (buffers, slots) = (given.len(), self.given.len());
        if buffers != slots {
            return Err(Error::Device(format!("{buffers} buffers for {slots} slots")));
        }
        let replay = Replay(self);
        for (i, buffer) in given.iter().enumerate() {
            replay.0.set(replay.0.given[i], buffer.clone())?;
        }
        for i in 0..replay.0.fresh.len() {
            let (slot, BufferType { device, dtype, len }) = &replay.0.fresh[i];
            let (slot, buffer) = (*slot, Buffer::new(device, *dtype, *len)?);
            replay.0.set(slot, buffer)?;
        }
        Ok(replay)
    }

    /// Runs all commands with these values of variables.
    fn run(&mut self, values: &VariableValues) -> Result<()> {
        let config = env::config()?;
        let (debug, _alone) = (config.debug, lock_for_kernel());
        let (slots, starts) = (&self.slots, &self.starts);
        let single = |c: &BoundCommand| command::run(c, slots, values, debug).map(drop);
        if config.times_kernels() {
            return self.commands.iter().try_for_each(single);
        }
        // A graph launch is asynchronous, so that only the host's kernels have a time.
        self.batched.iter_mut().for_each(|t| t.1.time = Duration::ZERO);
        for Batch { commands, mode } in &mut self.batches {
            let commands = &self.commands[commands.clone()];
            match mode {
                BatchMode::Host(calls) => {
                    let time = calls.run(starts)?;
                    let at = counters_of(&mut self.batched, launch_of(&commands[0]).1);
                    self.batched[at].1.time += time;
                }
                BatchMode::Graph(graph) => {
                    let args = commands.iter().flat_map(|c| launch_of(c).2);
                    let places: Vec<MemoryRef> = args.map(|r| slots.place(r)).collect();
                    let launch = |i: usize| command::launch(launch_of(&commands[i]).0, values);
                    // SAFETY: the programs were captured from a run, and their memory was checked
                    // above.
                    unsafe { graph.launch(&places, &launch) }?;
                }
                // These count themselves.
                BatchMode::Single => commands.iter().try_for_each(single)?,
            }
        }
        count_all(&self.batched);
        Ok(())
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }
    /// Returns the memory of the intermediates.
    pub fn memory(&self) -> PlannedMemory {
        self.memory
    }
}

impl Replay<'_> {
    /// Runs all commands with these values of variables.
    pub fn run(&mut self, values: &VariableValues) -> Result<()> {
        self.0.run(values)
    }
    /// Returns the memory of all slots.
    pub fn slots(&self) -> &SlotMemory {
        &self.0.slots
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        let plan = &mut *self.0;
        let slots = plan.given.iter().copied().chain(plan.fresh.iter().map(|(slot, _)| *slot));
        slots.for_each(|slot| plan.slots.0[slot] = None);
    }
}

/// Returns the requirements of commands on the memory of each slot.
fn needs(slots: usize, commands: &[BoundCommand]) -> Vec<(Needs, Vec<DeviceName>)> {
    let mut all: Vec<(Needs, Vec<DeviceName>)> = vec![Default::default(); slots];
    for command in commands {
        let Command::Launch { program, device, args, writes } = command else { continue };
        for (i, r) in args.iter().enumerate() {
            let arg = Needs::of(&program.program, i);
            let (needs, devices) = &mut all[r.slot];
            if !devices.contains(device) {
                devices.push(device.clone());
            }
            needs.bytes = needs.bytes.max(r.offset.saturating_add(arg.bytes));
            needs.written |= arg.written || writes.contains(&i);
        }
    }
    all
}

/// Returns program, device and arguments of a command in a batch of kernels.
fn launch_of(command: &BoundCommand) -> (&Compiled, &DeviceName, &[SlotRef]) {
    let (program, device, args) = command.as_launch().expect("a batch of kernels has launches");
    (program, device, args)
}

/// Allocates arenas for intermediates: those with disjoint lifetimes share memory.
fn allocate(mut slots: Vec<Slot>, commands: &[BoundCommand]) -> Result<(Vec<Slot>, PlannedMemory)> {
    let bytes_of = |slot: usize| match &slots[slot] {
        Slot::Temporary { device, bytes } => Some((*bytes, device.clone())),
        _ => None,
    };
    let most =
        |device: &DeviceName| Device::named(device).map_or(usize::MAX, |d| d.target().buffer_bytes);
    let (placed, placement) =
        plan_memory::plan_slots(commands.iter().map(Command::slots), &bytes_of, &most);
    let arena = |(bytes, device): &(usize, DeviceName)| Buffer::new(device, DType::U8, *bytes);
    let arenas: Vec<Buffer> = placement.arenas.iter().map(arena).collect::<Result<_>>()?;
    for (slot, (arena, offset)) in placed.into_iter().zip(placement.at) {
        if let Slot::Temporary { bytes, .. } = slots[slot] {
            slots[slot] = Slot::Own(arenas[arena].part(offset..offset + bytes));
        }
    }
    Ok((slots, placement.memory))
}
