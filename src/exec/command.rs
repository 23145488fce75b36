//! Commands on memory: their checks, and their runs, one by one or as one task of the host.
//!
//! A loop runs without being unrolled: its programs are compiled and its arguments checked once for
//! all iterations. An iteration of a small body takes less time than binding it, so a launch on the
//! host does no more than compute the addresses of its arguments and call the program.
//!
//! ```text
//! for i in 0..count:
//!     for kernel in body:
//!         kernel(start of slot + offset in iteration i, for each argument)
//! ```

use super::bind::{Needs, bind_copy, check_arg, check_count};
use super::launch::{counters_of, run_copy, run_kernel};
use super::memory::SlotMemory;
use crate::compile::Compiled;
use crate::device::backend::HostFunction;
use crate::device::host::pool;
use crate::device::host::scratch::Scratch;
use crate::device::{Addresses, Counters, MemoryRef, count_all};
use crate::error::Result;
use crate::ir::DeviceName;
use crate::lower::Launch;
use crate::schedule::{Command, Repeat, SlotRef, VariableValues};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A command with its compiled program.
pub(crate) type BoundCommand = Command<Arc<Compiled>>;

/// Maps a view of a slot of a loop's body to a view of a slot of the outermost plan.
type Resolve<'a> = &'a (dyn Fn(SlotRef) -> SlotRef + Sync);

/// Checks the arguments of commands, those of loops in all iterations.
pub(super) fn check(commands: &[BoundCommand], memory: &SlotMemory) -> Result<()> {
    commands.iter().try_for_each(|command| match command {
        Command::Copy { to, from } => bind_copy(&memory.view(to), &memory.view(from)),
        _ => check_reach(slice::from_ref(command), memory, &|slot| vec![(slot, 0)]),
    })
}

/// Checks every argument at its largest offset. `possible_slots` returns the slots of the outermost
/// plan that a slot of the commands can map to, with the largest offset in each.
fn check_reach(
    commands: &[BoundCommand],
    memory: &SlotMemory,
    possible_slots: &dyn Fn(usize) -> Vec<(usize, usize)>,
) -> Result<()> {
    for command in commands {
        match command {
            Command::Launch { program, device, args, .. } => {
                let program = &program.program;
                check_count(program, args.len())?;
                for (i, arg) in args.iter().enumerate() {
                    for (slot, at) in possible_slots(arg.slot) {
                        let buffer = memory.buffer(slot);
                        check_arg(program, i, device, arg, buffer, at + arg.offset)?;
                    }
                }
            }
            // Whether the two overlap depends on the iteration, and is checked in each.
            Command::Copy { to, from } => {
                for (i, view, written) in [(0, to, true), (1, from, false)] {
                    let needs = Needs { bytes: view.len * view.dtype.itemsize(), written };
                    for (slot, at) in possible_slots(view.slot) {
                        let buffer = memory.buffer(slot);
                        needs.check(i, buffer.device_name(), buffer, at + view.offset)?;
                    }
                }
            }
            Command::Repeat(repeat) => check_reach(&repeat.body, memory, &|slot| {
                let of_body = repeat.possible_slots(slot).into_iter();
                of_body
                    .flat_map(|(n, by)| {
                        possible_slots(n).into_iter().map(move |(m, at)| (m, at + by))
                    })
                    .collect()
            })?,
        }
    }
    Ok(())
}

/// Returns the launch sizes of a kernel with these values of variables.
pub(super) fn launch(compiled: &Compiled, values: &VariableValues) -> Launch {
    compiled.program.variables.launch(&compiled.program.launch, &|name| values.get(name))
}

/// Runs a command whose arguments were checked, and returns its time.
pub(super) fn run(
    command: &BoundCommand,
    memory: &SlotMemory,
    values: &VariableValues,
    debug: u8,
) -> Result<Duration> {
    run_resolved(command, memory, values, debug, &|view| view)
}

fn run_resolved(
    command: &BoundCommand,
    memory: &SlotMemory,
    values: &VariableValues,
    debug: u8,
    outer: Resolve,
) -> Result<Duration> {
    match command {
        Command::Launch { program, device, args, .. } => {
            let places: Vec<MemoryRef> = args.iter().map(|a| memory.place(&outer(*a))).collect();
            // SAFETY: the scheduler made the kernel, so its indices are inside its arguments or
            // masked, and those were compared with their memory: by `check` in all iterations, or
            // by `ReplayPlan::run`.
            unsafe { run_kernel(program, device, &places, &launch(program, values), debug) }
        }
        Command::Copy { to, from } => {
            let [to, from] = [to, from].map(|r| memory.view(&outer(*r)));
            run_copy(&to, &from, debug)
        }
        Command::Repeat(_) if is_on_host(command) => {
            let time = run_on_host(slice::from_ref(command), &memory.host_starts(), outer)?;
            let mut did: Vec<(DeviceName, Counters)> = Vec::new();
            add_counters(command, 1, &mut did);
            // One measurement for all: the devices of the host are the same CPU.
            did.iter_mut().take(1).for_each(|d| d.1.time = time);
            count_all(&did);
            Ok(time)
        }
        Command::Repeat(repeat) => {
            let mut time = Duration::ZERO;
            for i in 0..repeat.count {
                for command in &repeat.body {
                    time += run_resolved(command, memory, values, 0, &inner(repeat, i, outer))?;
                }
            }
            Ok(time)
        }
    }
}

/// Returns the map of views of a body's slots in an iteration.
fn inner<'a>(
    repeat: &'a Repeat<Arc<Compiled>>,
    iteration: usize,
    outer: Resolve<'a>,
) -> impl Fn(SlotRef) -> SlotRef + Sync + 'a {
    move |view| outer(repeat.resolve(iteration, view))
}

/// Returns true if the command runs as a function of this process.
pub(super) fn is_on_host(command: &BoundCommand) -> bool {
    match command {
        Command::Launch { program, .. } => program.executable.entry().is_some(),
        Command::Copy { .. } => false,
        Command::Repeat(r) => r.body.iter().all(is_on_host),
    }
}

/// Runs commands that are functions of this process, uncounted, and returns their time. They are
/// one task of the thread pool, so that all kernels find the float modes that they were compiled
/// for.
pub(super) fn run_on_host(
    commands: &[BoundCommand],
    starts: &Addresses,
    outer: Resolve,
) -> Result<Duration> {
    let (bytes, chunks) = scratch_needs(commands);
    let scratch = Scratch::new(bytes, chunks)?;
    let start = Instant::now();
    pool::run(1, &|_, _| {
        call_in_order(commands, starts, outer, &scratch, &mut Addresses(Vec::new()))
    });
    Ok(start.elapsed())
}

/// Returns the scratch memory of commands, of which one runs at a time: the most bytes of a thread,
/// and the most chunks of a kernel.
fn scratch_needs(commands: &[BoundCommand]) -> (usize, usize) {
    let needs = commands.iter().map(|command| match command {
        // Kernels without scratch memory count too: their threads take a block as well.
        Command::Launch { program, .. } => {
            (program.program.launch.scratch, program.program.launch.chunks)
        }
        Command::Repeat(r) => scratch_needs(&r.body),
        Command::Copy { .. } => (0, 1),
    });
    needs.fold((0, 1), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

fn call_in_order(
    commands: &[BoundCommand],
    starts: &Addresses,
    outer: Resolve,
    scratch: &Scratch,
    addresses: &mut Addresses,
) {
    for command in commands {
        match command {
            Command::Launch { program, args, .. } => {
                let entry = program.executable.entry().expect("a function of this process");
                addresses.0.clear();
                addresses.0.extend(args.iter().map(|arg| {
                    let SlotRef { slot, offset, .. } = outer(*arg);
                    starts.0[slot].wrapping_add(offset)
                }));
                let addresses = &*addresses;
                // SAFETY: as in `run_resolved`, and `Needs::check` has found host memory; different
                // chunks write different elements. The block of the thread is as large as that of
                // any kernel of the commands.
                let chunk = |i: usize, thread: usize| unsafe {
                    entry(addresses.from(0), i as i64, scratch.of(thread))
                };
                let chunks = program.program.launch.chunks;
                if chunks == 1 { chunk(0, 0) } else { pool::run(chunks, &chunk) }
            }
            Command::Repeat(r) => (0..r.count).for_each(|i| {
                call_in_order(&r.body, starts, &inner(r, i, outer), scratch, addresses)
            }),
            Command::Copy { .. } => unreachable!("not a function of this process"),
        }
    }
}

/// Launches of one device of the host as a flat list, so that a replay follows no pointers to
/// compiled programs: 0.041 µs per launch in place of 0.046, for a chain of 100 small kernels.
pub(super) struct HostCalls {
    calls: Vec<HostCall>,
    /// The arguments of all calls.
    args: Vec<SlotRef>,
    addresses: Addresses,
    /// The scratch memory of one run, for all calls: bytes of a thread, and most chunks.
    scratch: (usize, usize),
}

struct HostCall {
    entry: HostFunction,
    /// Position of its arguments in the list.
    first: usize,
    chunks: usize,
}

impl HostCalls {
    /// Returns the calls of launches, whose programs must outlive them.
    pub(super) fn new(commands: &[BoundCommand]) -> HostCalls {
        let (mut calls, mut all) = (Vec::with_capacity(commands.len()), Vec::new());
        for (program, _, args) in commands.iter().filter_map(Command::as_launch) {
            let entry = program.executable.entry().expect("a function of this process");
            let chunks = program.program.launch.chunks;
            calls.push(HostCall { entry, first: all.len(), chunks });
            all.extend_from_slice(args);
        }
        let addresses = Addresses(vec![std::ptr::null_mut(); all.len()]);
        HostCalls { calls, args: all, addresses, scratch: scratch_needs(commands) }
    }

    /// Runs the calls on the memory of the slots, uncounted, and returns their time.
    pub(super) fn run(&mut self, starts: &Addresses) -> Result<Duration> {
        let scratch = Scratch::new(self.scratch.0, self.scratch.1)?;
        let start = Instant::now();
        for (address, arg) in self.addresses.0.iter_mut().zip(&self.args) {
            *address = starts.0[arg.slot].wrapping_add(arg.offset);
        }
        let (calls, addresses) = (&self.calls, &self.addresses);
        pool::run(1, &|_, _| {
            for &HostCall { entry, first, chunks } in calls {
                // SAFETY: as in `call_in_order`.
                let chunk = |i: usize, thread: usize| unsafe {
                    entry(addresses.from(first), i as i64, scratch.of(thread))
                };
                if chunks == 1 { chunk(0, 0) } else { pool::run(chunks, &chunk) }
            }
        });
        Ok(start.elapsed())
    }
}

/// Adds the counters of `times` runs of a command on the host, without the time.
pub(super) fn add_counters(
    command: &BoundCommand,
    times: usize,
    all: &mut Vec<(DeviceName, Counters)>,
) {
    match command {
        Command::Launch { program, device, .. } => {
            let at = counters_of(all, device);
            let (did, e) = (&mut all[at].1, &program.program.estimate);
            did.kernels += times as u64;
            did.flops += e.flops * times as f64;
            did.bytes += e.bytes * times as f64;
        }
        Command::Repeat(r) => r.body.iter().for_each(|c| add_counters(c, times * r.count, all)),
        Command::Copy { .. } => {}
    }
}
