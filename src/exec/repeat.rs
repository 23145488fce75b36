//! Loops that run without being unrolled: programs are compiled and arguments checked once for all
//! iterations.
//!
//! An iteration of a small body takes less time than binding it, so a launch does no more than
//! compute the addresses of its arguments and call the program. Kernels of the host run as one task
//! of the thread pool.
//!
//! ```text
//! for i in 0..count:
//!     for kernel in body:
//!         kernel(start of slot + offset in iteration i, for each argument)
//! ```

use super::bind::{Needs, check_arg, check_count};
use super::bound::{BoundCommand, buffer, place, view};
use super::launch::{counters_of, run_copy, run_kernel};
use crate::compile::Compiled;
use crate::device::host::pool;
use crate::device::{Addresses, Buffer, Counters, Memory, MemoryRef, count_all};
use crate::error::Result;
use crate::ir::DeviceName;
use crate::schedule::{Command, Repeat, SlotRef};
use std::sync::Arc;
use std::time::Instant;

type BoundRepeat = Repeat<Arc<Compiled>>;
/// Maps a view of a body slot to a view of a slot of the outermost plan.
type Resolve<'a> = &'a dyn Fn(SlotRef) -> SlotRef;

/// Checks the arguments of a loop in all iterations.
pub(super) fn check(repeat: &BoundRepeat, memory: &[Option<Buffer>]) -> Result<()> {
    check_reach(repeat, memory, &|slot| vec![(slot, 0)])
}

/// Checks every argument at its largest offset. `reach` returns the slots of the outermost plan
/// that a slot around the loop may be, with the largest offset in each.
fn check_reach(
    repeat: &BoundRepeat,
    memory: &[Option<Buffer>],
    reach: &dyn Fn(usize) -> Vec<(usize, usize)>,
) -> Result<()> {
    let inner = |slot: usize| -> Vec<(usize, usize)> {
        let around = repeat.reach(slot).into_iter();
        around.flat_map(|(n, by)| reach(n).into_iter().map(move |(m, at)| (m, at + by))).collect()
    };
    for command in &repeat.body {
        match command {
            Command::Launch { program, device, args, .. } => {
                let program = &program.program;
                check_count(program, args.len())?;
                for (i, arg) in args.iter().enumerate() {
                    for (slot, at) in inner(arg.slot) {
                        let memory = buffer(memory, slot);
                        check_arg(program, i, device, arg, memory, at + arg.offset)?;
                    }
                }
            }
            // Whether the two overlap depends on the iteration, and is checked in each.
            Command::Copy { to, from } => {
                for (i, view, written) in [(0, to, true), (1, from, false)] {
                    let needs = Needs { bytes: view.len * view.dtype.itemsize(), written };
                    for (slot, at) in inner(view.slot) {
                        let memory = buffer(memory, slot);
                        needs.check(i, memory.device_name(), memory, at + view.offset)?;
                    }
                }
            }
            Command::Repeat(r) => check_reach(r, memory, &inner)?,
        }
    }
    Ok(())
}

/// Runs a loop that was checked.
pub(super) fn run(repeat: &BoundRepeat, memory: &[Option<Buffer>]) -> Result<()> {
    if !repeat.body.iter().all(is_on_host) {
        return run_commands(repeat, memory, &|r| r);
    }
    let start_of = |b: &Option<Buffer>| match b.as_ref().map(Buffer::place) {
        Some(MemoryRef { memory: Memory::Host(h), offset }) => h.ptr().wrapping_add(offset),
        _ => std::ptr::null_mut(),
    };
    let starts = Addresses(memory.iter().map(start_of).collect());
    let start = Instant::now();
    // One task of the pool, so that all kernels run in the float modes that they were compiled for.
    pool::run(1, &|_| run_on_host(repeat, &starts, &|r| r, &mut Addresses(Vec::new())));
    let time = start.elapsed();
    let mut did: Vec<(DeviceName, Counters)> = Vec::new();
    add_counters(repeat, 1, &mut did);
    // One measurement for all: the devices of the host are the same CPU.
    did.iter_mut().take(1).for_each(|d| d.1.time = time);
    count_all(&did);
    Ok(())
}

/// Returns true if the command runs as a function of this process.
fn is_on_host(command: &BoundCommand) -> bool {
    match command {
        Command::Launch { program, .. } => program.executable.entry().is_some(),
        Command::Copy { .. } => false,
        Command::Repeat(r) => r.body.iter().all(is_on_host),
    }
}

fn run_on_host(
    repeat: &BoundRepeat,
    starts: &Addresses,
    outer: Resolve,
    addresses: &mut Addresses,
) {
    for i in 0..repeat.count {
        let inner = |r: SlotRef| outer(repeat.resolve(i, r));
        for command in &repeat.body {
            match command {
                Command::Launch { program, args, .. } => {
                    let entry = program.executable.entry().expect("a function of this process");
                    addresses.0.clear();
                    addresses.0.extend(args.iter().map(|arg| {
                        let SlotRef { slot, offset, .. } = inner(*arg);
                        starts.0[slot].wrapping_add(offset)
                    }));
                    let addresses = &*addresses;
                    // SAFETY: the scheduler made the kernel, so its indices are inside its
                    // arguments or masked, and `check` has compared those with their memory in all
                    // iterations; different shares write different elements.
                    let share = |i: usize| unsafe { entry(addresses.from(0), i as libc::c_long) };
                    let threads = program.program.launch.threads;
                    if threads == 1 { share(0) } else { pool::run(threads, &share) }
                }
                Command::Repeat(r) => run_on_host(r, starts, &inner, addresses),
                Command::Copy { .. } => unreachable!("not a function of this process"),
            }
        }
    }
}

/// Runs a loop on any device, one launch after the other.
fn run_commands(repeat: &BoundRepeat, memory: &[Option<Buffer>], outer: Resolve) -> Result<()> {
    for i in 0..repeat.count {
        let inner = |r: SlotRef| outer(repeat.resolve(i, r));
        for command in &repeat.body {
            match command {
                Command::Launch { program, device, args, .. } => {
                    let places: Vec<MemoryRef> =
                        args.iter().map(|arg| place(memory, &inner(*arg))).collect();
                    // SAFETY: as in `run_on_host`.
                    unsafe { run_kernel(program, device, &places, &program.program.launch, 0) }?;
                }
                Command::Copy { to, from } => {
                    let [to, from] = [to, from].map(|r| view(memory, &inner(*r)));
                    run_copy(&to, &from, 0)?;
                }
                Command::Repeat(r) => run_commands(r, memory, &inner)?,
            }
        }
    }
    Ok(())
}

/// Adds the counters of `times` runs of a loop, without the time.
fn add_counters(repeat: &BoundRepeat, times: usize, all: &mut Vec<(DeviceName, Counters)>) {
    let times = times * repeat.count;
    for command in &repeat.body {
        match command {
            Command::Launch { program, device, .. } => {
                let at = counters_of(all, device);
                let (did, e) = (&mut all[at].1, &program.program.estimate);
                did.kernels += times as u64;
                did.flops += e.flops * times as f64;
                did.bytes += e.bytes * times as f64;
            }
            Command::Repeat(r) => add_counters(r, times, all),
            Command::Copy { .. } => {}
        }
    }
}
