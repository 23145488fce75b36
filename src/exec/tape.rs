//! A tape: kernels and copies that were run once, to be run again on other memory. In come steps
//! that name numbered slots; out comes a list that is ready, with the values that only live between
//! its steps in one piece of memory for each device.
//!
//! Kernels of the host are a list of functions with their addresses filled in. Those of a GPU with
//! graphs are one launch.

use super::bind::Needs;
use super::run::{BufferArg, run_copy, run_kernel};
use crate::compile::Compiled;
use crate::device::buffer::writing;
use crate::device::host::pool;
use crate::device::{
    Addresses, Buffer, Call, Counters, Device, Graph, HostFunction, Memory, MemoryRef, count_all,
};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::Launch;
use crate::schedule::memory::{self, Lifetime};
use crate::schedule::{PlannedMemory, Role, Values};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the memory of a slot is from.
#[derive(Clone)]
pub enum Slot {
    /// The caller's, at each run.
    Given,
    /// Made at each run; the caller's after it.
    Fresh {
        /// Where.
        device: DeviceName,
        /// Element dtype.
        dtype: DType,
        /// Elements.
        len: usize,
    },
    /// The tape's own, filled.
    Own(Buffer),
    /// Between steps.
    Temporary {
        /// Where.
        device: DeviceName,
        /// Bytes.
        bytes: usize,
    },
}

/// A place in the memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotRef {
    /// The slot.
    pub slot: usize,
    /// Bytes from its start.
    pub offset: usize,
}

/// One thing to run.
#[derive(Clone)]
pub enum TapeStep {
    /// A kernel.
    Kernel {
        /// Its program.
        compiled: Arc<Compiled>,
        /// Where it runs.
        device: DeviceName,
        /// Its arguments, by slot of the program.
        args: Vec<SlotRef>,
        /// Those of the arguments that it writes.
        writes: Vec<usize>,
    },
    /// A copy between devices.
    Copy {
        /// To here.
        to: SlotRef,
        /// From here.
        from: SlotRef,
        /// Element dtype.
        dtype: DType,
        /// Elements.
        len: usize,
    },
}

impl TapeStep {
    fn places(&self) -> Vec<SlotRef> {
        match self {
            TapeStep::Kernel { args, .. } => args.clone(),
            TapeStep::Copy { to, from, .. } => vec![*to, *from],
        }
    }
    fn writes(&self) -> Vec<SlotRef> {
        match self {
            TapeStep::Kernel { args, writes, .. } => writes.iter().map(|w| args[*w]).collect(),
            TapeStep::Copy { to, .. } => vec![*to],
        }
    }
}

/// Steps that are ready to be run again.
pub struct Tape {
    slots: Vec<Slot>,
    steps: Vec<TapeStep>,
    parts: Vec<Part>,
    memory: PlannedMemory,
    /// What each device does in the steps that are not run one by one; those count themselves.
    together: Vec<(DeviceName, Counters)>,
    /// The addresses of the host's kernels, one after the other; filled in at each run.
    addresses: Addresses,
    /// What the steps need of the memory of each slot, and the devices whose kernels use it.
    needs: Vec<(Needs, Vec<DeviceName>)>,
}

/// Steps that are run in one way.
enum Part {
    /// Kernels of the host.
    Host(Vec<Command>),
    /// Kernels of a GPU as one graph, with the places of all their arguments.
    Graph { graph: Box<dyn Graph>, places: Vec<SlotRef>, kernels: Vec<Arc<Compiled>> },
    /// One step after the other.
    Steps(std::ops::Range<usize>),
}

/// A kernel of the host.
struct Command {
    run: HostFunction,
    /// Its arguments in the list of addresses.
    first: usize,
    args: Vec<SlotRef>,
    threads: usize,
    /// Where what its device does is counted.
    device: usize,
}

impl Tape {
    /// Makes the steps ready. Without `graphs` those of a GPU are launched one by one.
    pub fn new(slots: Vec<Slot>, steps: Vec<TapeStep>, graphs: bool) -> Result<Tape> {
        let (slots, memory) = placed(slots, &steps)?;
        let needs = needs(slots.len(), &steps);
        let addresses = Addresses(Vec::new());
        let mut tape = Tape {
            slots,
            parts: Vec::new(),
            memory,
            together: Vec::new(),
            addresses,
            needs,
            steps,
        };
        let mut at = 0;
        while at < tape.steps.len() {
            at = tape.add_part(at, graphs)?;
        }
        Ok(tape)
    }

    /// Counts a kernel that is not run by itself, and says where.
    fn count_together(&mut self, device: &DeviceName, compiled: &Compiled) -> usize {
        let known = self.together.iter().position(|t| t.0 == *device);
        let at = known.unwrap_or_else(|| {
            self.together.push((device.clone(), Counters::default()));
            self.together.len() - 1
        });
        let did = &mut self.together[at].1;
        did.kernels += 1;
        did.flops += compiled.program.estimate.flops;
        did.bytes += compiled.program.estimate.bytes;
        at
    }

    /// Makes a part of the steps from `start` on, and returns where it ends.
    fn add_part(&mut self, start: usize, graphs: bool) -> Result<usize> {
        let entry = |s: &TapeStep| match s {
            TapeStep::Kernel { compiled, .. } => compiled.executable.entry(),
            TapeStep::Copy { .. } => None,
        };
        let mut commands = Vec::new();
        for i in start..self.steps.len() {
            let (Some(run), TapeStep::Kernel { compiled, device, args, .. }) =
                (entry(&self.steps[i]), self.steps[i].clone())
            else {
                break;
            };
            let (first, threads) = (self.addresses.0.len(), compiled.program.launch.threads);
            self.addresses.0.resize(first + args.len(), std::ptr::null_mut());
            commands.push(Command {
                run,
                first,
                args,
                threads,
                device: self.count_together(&device, &compiled),
            });
        }
        if !commands.is_empty() {
            let end = start + commands.len();
            self.parts.push(Part::Host(commands));
            return Ok(end);
        }
        if let TapeStep::Kernel { device, .. } = &self.steps[start]
            && graphs
        {
            let here =
                |s: &TapeStep| matches!(s, TapeStep::Kernel { device: d, .. } if d == device);
            let end = start + self.steps[start..].iter().take_while(|s| here(s)).count();
            let mut places: Vec<SlotRef> = Vec::new();
            let mut calls: Vec<Call> = Vec::new();
            let mut kernels: Vec<Arc<Compiled>> = Vec::new();
            for step in &self.steps[start..end] {
                let TapeStep::Kernel { compiled, args, writes, .. } = step else { continue };
                let first = places.len();
                places.extend(args);
                kernels.push(compiled.clone());
                calls.push(Call {
                    executable: &compiled.executable,
                    args: first..places.len(),
                    writes,
                });
            }
            let overlap = |a: usize, b: usize| self.meet(places[a], places[b]);
            if let Some(graph) = Device::named(device)?.backend().graph(&calls, &overlap)? {
                let device = device.clone();
                for kernel in &kernels {
                    self.count_together(&device, kernel);
                }
                self.parts.push(Part::Graph { graph, places, kernels });
                return Ok(end);
            }
        }
        match self.parts.last_mut() {
            Some(Part::Steps(range)) => range.end = start + 1,
            _ => self.parts.push(Part::Steps(start..start + 1)),
        }
        Ok(start + 1)
    }

    /// May two places be in the same memory? Temporaries are where they were put; of other slots
    /// only the caller knows, who keeps what is written apart.
    fn meet(&self, a: SlotRef, b: SlotRef) -> bool {
        let own = |at: SlotRef| match &self.slots[at.slot] {
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

    /// The memory of all slots for a run: `given` has that of the given ones, in their order.
    pub fn memory_for(&self, given: &[Buffer]) -> Result<Vec<Buffer>> {
        let mut given = given.iter();
        let mut buffers: Vec<Buffer> = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            buffers.push(match slot {
                Slot::Given => given.next().expect("memory for every given slot").clone(),
                Slot::Fresh { device, dtype, len } => Buffer::new(device, *dtype, *len)?,
                Slot::Own(buffer) => buffer.clone(),
                Slot::Temporary { .. } => unreachable!("temporaries have been placed"),
            });
        }
        Ok(buffers)
    }

    /// Runs everything on the memory of all slots, with these values of variables.
    pub fn run(&mut self, buffers: &[Buffer], values: &Values) -> Result<()> {
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
            return self.steps.iter().try_for_each(|s| run_step(s, buffers, values, debug));
        }
        // Graphs go on after they are started, so that only the host's kernels have a time.
        self.together.iter_mut().for_each(|t| t.1.time = Duration::ZERO);
        for part in &mut self.parts {
            match part {
                Part::Host(commands) => {
                    run_on_host(commands, &mut self.addresses, buffers, &mut self.together)?
                }
                Part::Graph { graph, places, kernels } => {
                    let places: Vec<MemoryRef> =
                        places.iter().map(|at| place(*at, buffers)).collect();
                    // SAFETY: the programs were captured from a run, and their memory was checked
                    // above.
                    unsafe { graph.launch(&places, &|i| launch(&kernels[i], values)) }?;
                }
                // These count themselves.
                Part::Steps(range) => self.steps[range.clone()]
                    .iter()
                    .try_for_each(|s| run_step(s, buffers, values, debug))?,
            }
        }
        count_all(&self.together);
        Ok(())
    }

    /// How many steps it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }
    /// What its values between steps take.
    pub fn memory(&self) -> PlannedMemory {
        self.memory
    }
    /// The slots that steps write.
    pub fn written(steps: &[TapeStep]) -> Vec<usize> {
        let mut slots: Vec<usize> =
            steps.iter().flat_map(TapeStep::writes).map(|at| at.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }
}

/// What steps need of the memory of each slot.
fn needs(slots: usize, steps: &[TapeStep]) -> Vec<(Needs, Vec<DeviceName>)> {
    let mut all: Vec<(Needs, Vec<DeviceName>)> = vec![Default::default(); slots];
    for step in steps {
        let TapeStep::Kernel { compiled, device, args, writes } = step else { continue };
        for (i, at) in args.iter().enumerate() {
            let arg = Needs::of(&compiled.program, i);
            let (needs, devices) = &mut all[at.slot];
            if !devices.contains(device) {
                devices.push(device.clone());
            }
            needs.bytes = needs.bytes.max(at.offset.saturating_add(arg.bytes));
            needs.written |= arg.written || writes.contains(&i);
        }
    }
    all
}

/// How a kernel is started with these values of variables.
fn launch(compiled: &Compiled, values: &Values) -> Launch {
    compiled.program.variables.launch(&compiled.program.launch, &|name| values.get(name))
}

fn place(at: SlotRef, buffers: &[Buffer]) -> MemoryRef<'_> {
    let place = buffers[at.slot].place();
    MemoryRef { offset: place.offset + at.offset, ..place }
}

fn run_step(step: &TapeStep, buffers: &[Buffer], values: &Values, debug: u8) -> Result<()> {
    match step {
        TapeStep::Kernel { compiled, device, args, .. } => {
            let memory: Vec<MemoryRef> = args.iter().map(|at| place(*at, buffers)).collect();
            // SAFETY: the program was captured from a run of the scheduler's, and `Tape::run` has
            // checked the memory.
            unsafe { run_kernel(compiled, device, &memory, &launch(compiled, values), debug) }
                .map(drop)
        }
        TapeStep::Copy { to, from, dtype, len } => {
            let arg = |at: &SlotRef| {
                let buffer = buffers[at.slot].bytes_from(at.offset, *dtype, *len);
                BufferArg { buffer, dtype: *dtype, len: *len, role: Role::Output }
            };
            run_copy(&arg(to), &arg(from), debug).map(drop)
        }
    }
}

/// Runs kernels of the host, and adds the time of each device to what it did. None runs where one
/// was given memory that is not the host's.
fn run_on_host(
    commands: &[Command],
    addresses: &mut Addresses,
    buffers: &[Buffer],
    together: &mut [(DeviceName, Counters)],
) -> Result<()> {
    for c in commands {
        for (address, at) in addresses.0[c.first..].iter_mut().zip(&c.args) {
            let MemoryRef { memory: Memory::Host(host), offset } = buffers[at.slot].place() else {
                let (device, buffer) = (&together[c.device].0, &buffers[at.slot]);
                return Err(Error::Device(format!(
                    "a kernel on {device} was given {buffer:?}, which is not memory of the host"
                )));
            };
            *address = host.ptr().wrapping_add(offset).wrapping_add(at.offset);
        }
    }
    let addresses = &*addresses;
    let mut start = Instant::now();
    for of_one in commands.chunk_by(|a, b| a.device == b.device) {
        // One task of the pool, so that all kernels find the float modes that they were made for.
        pool::run(1, &|_| {
            for c in of_one {
                // SAFETY: as for a kernel that is run by itself: every index was proven inside its
                // argument, whose memory is as long as when it was captured, or is guarded;
                // different shares write different elements.
                let share =
                    |i: usize| unsafe { (c.run)(addresses.from(c.first), i as libc::c_long) };
                if c.threads == 1 { share(0) } else { pool::run(c.threads, &share) }
            }
        });
        let end = Instant::now();
        together[of_one[0].device].1.time += end - start;
        start = end;
    }
    Ok(())
}

/// Gives temporaries their places: each device has one piece of memory, and values whose lives do
/// not meet share it.
fn placed(mut slots: Vec<Slot>, steps: &[TapeStep]) -> Result<(Vec<Slot>, PlannedMemory)> {
    // The first and the last step that names each slot.
    let mut named: Vec<Option<(usize, usize)>> = vec![None; slots.len()];
    for (i, step) in steps.iter().enumerate() {
        for at in step.places() {
            named[at.slot] = Some((named[at.slot].map_or(i, |n| n.0), i));
        }
    }
    let (mut numbers, mut lives) = (Vec::new(), Vec::new());
    for (i, slot) in slots.iter().enumerate() {
        let Slot::Temporary { device, bytes } = slot else { continue };
        let (first, last) = named[i].unwrap_or((0, 0));
        numbers.push(i);
        lives.push(Lifetime { bytes: *bytes, device: device.clone(), first, last });
    }
    let most =
        |device: &DeviceName| Device::named(device).map_or(usize::MAX, |d| d.target().buffer_bytes);
    let places = memory::plan(&lives, &most);
    let arena = |(bytes, device): &(usize, DeviceName)| Buffer::new(device, DType::U8, *bytes);
    let arenas: Vec<Buffer> = places.arenas.iter().map(arena).collect::<Result<_>>()?;
    for ((slot, life), (arena, offset)) in numbers.into_iter().zip(lives).zip(places.at) {
        slots[slot] = Slot::Own(arenas[arena].part(offset..offset + life.bytes));
    }
    Ok((slots, places.memory))
}
