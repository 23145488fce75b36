//! Captured commands, run again on other memory. Input: commands over slots. Output: a plan that is
//! ready to run, with intermediates in one arena per device.
//!
//! Kernels of the host become a list of functions with their addresses filled in. Kernels of a GPU
//! with graphs become one graph launch.

use super::bind::Needs;
use super::bound::BoundCommand;
use super::launch::{counters_of, run_copy, run_kernel};
use crate::compile::Compiled;
use crate::device::buffer::writing;
use crate::device::host::pool;
use crate::device::{
    Addresses, Buffer, Counters, Device, Graph, GraphKernel, HostFunction, Memory, MemoryRef,
    count_all,
};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::Launch;
use crate::schedule::{Command, PlannedMemory, SlotRef, Values, plan_memory};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Origin of the memory of a slot.
#[derive(Clone)]
pub enum Slot {
    /// Given by the caller at each replay.
    Given,
    /// Allocated at each replay, for the caller.
    Fresh {
        /// Device whose memory it is in.
        device: DeviceName,
        /// Element dtype.
        dtype: DType,
        /// Number of elements.
        len: usize,
    },
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
    slots: Vec<Slot>,
    /// Launches and copies; loops are unrolled.
    commands: Vec<BoundCommand>,
    batches: Vec<Batch>,
    memory: PlannedMemory,
    /// Counters per device of the commands in batches, which are not counted one by one.
    batched: Vec<(DeviceName, Counters)>,
    /// Argument addresses of the host's kernels, filled in at each replay.
    addresses: Addresses,
    /// Requirements on the memory of each slot, and the devices whose kernels use it.
    needs: Vec<(Needs, Vec<DeviceName>)>,
}

/// Commands that run together.
enum Batch {
    /// Kernels of the host.
    Host(Vec<HostCall>),
    /// Kernels of a GPU as one graph, with the views of all their arguments.
    Graph { graph: Box<dyn Graph>, args: Vec<SlotRef>, kernels: Vec<Arc<Compiled>> },
    /// Commands that run one by one.
    Single(Range<usize>),
}

/// A kernel of the host.
struct HostCall {
    run: HostFunction,
    /// Position of its arguments in the list of addresses.
    first: usize,
    args: Vec<SlotRef>,
    threads: usize,
    /// Position of its device in the list of counters.
    device: usize,
}

impl ReplayPlan {
    /// Prepares commands for replay. Without `graphs` kernels of a GPU are launched one by one.
    pub fn new(slots: Vec<Slot>, commands: Vec<BoundCommand>, graphs: bool) -> Result<ReplayPlan> {
        let (slots, memory) = allocate(slots, &commands)?;
        let needs = needs(slots.len(), &commands);
        let mut plan = ReplayPlan {
            slots,
            batches: Vec::new(),
            memory,
            batched: Vec::new(),
            addresses: Addresses(Vec::new()),
            needs,
            commands,
        };
        let mut at = 0;
        while at < plan.commands.len() {
            at = plan.add_batch(at, graphs)?;
        }
        Ok(plan)
    }

    /// Adds a kernel to the counters of batches, and returns the position of its device there.
    fn count_batched(&mut self, device: &DeviceName, compiled: &Compiled) -> usize {
        let at = counters_of(&mut self.batched, device);
        let did = &mut self.batched[at].1;
        did.kernels += 1;
        did.flops += compiled.program.estimate.flops;
        did.bytes += compiled.program.estimate.bytes;
        at
    }

    /// Adds a batch of the commands from `start` on, and returns its end.
    fn add_batch(&mut self, start: usize, graphs: bool) -> Result<usize> {
        let end = self.add_host_batch(start);
        if end > start {
            return Ok(end);
        }
        if graphs && let Some(end) = self.add_graph(start)? {
            return Ok(end);
        }
        match self.batches.last_mut() {
            Some(Batch::Single(range)) => range.end = start + 1,
            _ => self.batches.push(Batch::Single(start..start + 1)),
        }
        Ok(start + 1)
    }

    /// Adds a batch of the host's kernels from `start` on, if there are any, and returns its end.
    fn add_host_batch(&mut self, start: usize) -> usize {
        let mut calls = Vec::new();
        for i in start..self.commands.len() {
            let Command::Launch { program, device, args, .. } = &self.commands[i] else { break };
            let Some(run) = program.executable.entry() else { break };
            let (program, device, args) = (program.clone(), device.clone(), args.clone());
            let (first, threads) = (self.addresses.0.len(), program.program.launch.threads);
            self.addresses.0.resize(first + args.len(), std::ptr::null_mut());
            let device = self.count_batched(&device, &program);
            calls.push(HostCall { run, first, args, threads, device });
        }
        let end = start + calls.len();
        if !calls.is_empty() {
            self.batches.push(Batch::Host(calls));
        }
        end
    }

    /// Adds a graph of the launches on one device from `start` on, and returns its end; `None` if
    /// the device has no graphs.
    fn add_graph(&mut self, start: usize) -> Result<Option<usize>> {
        let Command::Launch { device, .. } = &self.commands[start] else { return Ok(None) };
        let here =
            |c: &&BoundCommand| matches!(c, Command::Launch { device: d, .. } if d == device);
        let end = start + self.commands[start..].iter().take_while(here).count();
        let mut all: Vec<SlotRef> = Vec::new();
        let mut nodes: Vec<GraphKernel> = Vec::new();
        let mut kernels: Vec<Arc<Compiled>> = Vec::new();
        for command in &self.commands[start..end] {
            let Command::Launch { program, args, writes, .. } = command else { continue };
            let first = all.len();
            all.extend(args);
            kernels.push(program.clone());
            let args = first..all.len();
            nodes.push(GraphKernel { executable: &program.executable, args, writes });
        }
        let overlap = |a: usize, b: usize| self.may_overlap(&all[a], &all[b]);
        let Some(graph) = Device::named(device)?.backend().graph(&nodes, &overlap)? else {
            return Ok(None);
        };
        let device = device.clone();
        for kernel in &kernels {
            self.count_batched(&device, kernel);
        }
        self.batches.push(Batch::Graph { graph, args: all, kernels });
        Ok(Some(end))
    }

    /// Returns true if two views may share memory. Memory of the plan is compared; the caller
    /// guarantees that written slots of its own share none.
    fn may_overlap(&self, a: &SlotRef, b: &SlotRef) -> bool {
        let own = |r: &SlotRef| match &self.slots[r.slot] {
            Slot::Own(buffer) => Some(buffer.span()),
            _ => None,
        };
        match (own(a), own(b)) {
            (Some((block, x)), Some((other, y))) => {
                block == other && x.start < y.end && y.start < x.end
            }
            (None, None) => a.slot == b.slot,
            _ => false,
        }
    }

    /// Returns the memory of all slots for a replay: `given` has that of the given ones, in their
    /// order.
    pub fn memory_for(&self, given: &[Buffer]) -> Result<Vec<Buffer>> {
        let mut given = given.iter();
        let mut buffers: Vec<Buffer> = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            buffers.push(match slot {
                Slot::Given => given.next().expect("memory for every given slot").clone(),
                Slot::Fresh { device, dtype, len } => Buffer::new(device, *dtype, *len)?,
                Slot::Own(buffer) => buffer.clone(),
                Slot::Temporary { .. } => unreachable!("intermediates have memory"),
            });
        }
        Ok(buffers)
    }

    /// Runs all commands on the memory of all slots, with these values of variables.
    pub fn replay(&mut self, buffers: &[Buffer], values: &Values) -> Result<()> {
        let config = env::config()?;
        if buffers.len() != self.needs.len() {
            return Err(Error::Device(format!(
                "{} buffers for {} slots",
                buffers.len(),
                self.needs.len()
            )));
        }
        for (slot, (needs, buffer)) in self.needs.iter().zip(buffers).enumerate() {
            needs.1.iter().try_for_each(|device| needs.0.check(slot, device, buffer, 0))?;
        }
        let (debug, _alone) = (config.debug, writing());
        if config.times_kernels() {
            return self.commands.iter().try_for_each(|c| run_single(c, buffers, values, debug));
        }
        // A graph launch is asynchronous, so that only the host's kernels have a time.
        self.batched.iter_mut().for_each(|t| t.1.time = Duration::ZERO);
        for batch in &mut self.batches {
            match batch {
                Batch::Host(calls) => {
                    run_on_host(calls, &mut self.addresses, buffers, &mut self.batched)?
                }
                Batch::Graph { graph, args, kernels } => {
                    let places: Vec<MemoryRef> = args.iter().map(|r| place(r, buffers)).collect();
                    // SAFETY: the programs were captured from a run, and their memory was checked
                    // above.
                    unsafe { graph.launch(&places, &|i| launch(&kernels[i], values)) }?;
                }
                // These count themselves.
                Batch::Single(range) => self.commands[range.clone()]
                    .iter()
                    .try_for_each(|c| run_single(c, buffers, values, debug))?,
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

/// Returns the launch sizes of a kernel with these values of variables.
fn launch(compiled: &Compiled, values: &Values) -> Launch {
    compiled.program.variables.launch(&compiled.program.launch, &|name| values.get(name))
}

fn place<'a>(r: &SlotRef, buffers: &'a [Buffer]) -> MemoryRef<'a> {
    let place = buffers[r.slot].place();
    MemoryRef { offset: place.offset + r.offset, ..place }
}

fn run_single(
    command: &BoundCommand,
    buffers: &[Buffer],
    values: &Values,
    debug: u8,
) -> Result<()> {
    match command {
        Command::Launch { program, device, args, .. } => {
            let memory: Vec<MemoryRef> = args.iter().map(|r| place(r, buffers)).collect();
            // SAFETY: the program was captured from a run of a scheduled plan, and
            // `ReplayPlan::replay` has checked the memory.
            unsafe { run_kernel(program, device, &memory, &launch(program, values), debug) }
                .map(drop)
        }
        Command::Copy { to, from } => {
            let [to, from] =
                [to, from].map(|r| buffers[r.slot].bytes_from(r.offset, r.dtype, r.len));
            run_copy(&to, &from, debug).map(drop)
        }
        Command::Repeat(_) => unreachable!("a capture unrolls loops"),
    }
}

/// Runs kernels of the host, and adds the time of each device to its counters. None runs if one was
/// given memory that is not the host's.
fn run_on_host(
    calls: &[HostCall],
    addresses: &mut Addresses,
    buffers: &[Buffer],
    batched: &mut [(DeviceName, Counters)],
) -> Result<()> {
    for c in calls {
        for (address, r) in addresses.0[c.first..].iter_mut().zip(&c.args) {
            let MemoryRef { memory: Memory::Host(host), offset } = buffers[r.slot].place() else {
                let (device, buffer) = (&batched[c.device].0, &buffers[r.slot]);
                return Err(Error::Device(format!(
                    "a kernel on {device} was given {buffer:?}, which is not memory of the host"
                )));
            };
            *address = host.ptr().wrapping_add(offset).wrapping_add(r.offset);
        }
    }
    let addresses = &*addresses;
    let mut start = Instant::now();
    for of_one in calls.chunk_by(|a, b| a.device == b.device) {
        // One task of the pool, so that all kernels find the float modes that they were compiled
        // for.
        pool::run(1, &|_| {
            for c in of_one {
                // SAFETY: as for a single launch: every index was proven inside its argument, whose
                // memory is as long as when it was captured, or is masked; different shares write
                // different elements.
                let share =
                    |i: usize| unsafe { (c.run)(addresses.from(c.first), i as libc::c_long) };
                if c.threads == 1 { share(0) } else { pool::run(c.threads, &share) }
            }
        });
        let end = Instant::now();
        batched[of_one[0].device].1.time += end - start;
        start = end;
    }
    Ok(())
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
    // No command names the others, such as buffers of a loop that its last iteration does not need.
    for slot in &mut slots {
        if let Slot::Temporary { device, .. } = slot {
            *slot = Slot::Own(Buffer::new(device, DType::U8, 0)?);
        }
    }
    Ok((slots, placement.memory))
}
