//! Loops that run without being written out. In come a loop of a plan and the memory of the plan's
//! buffers; out comes a loop whose programs are looked up, and whose arguments are checked, once
//! for all runs.
//!
//! A run of a small body takes less time than to bind it, so a launch does no more here than to
//! compute the addresses of its arguments and to call the program. Kernels of the host run as one
//! task of the pool.
//!
//! ```text
//! for run in 0..count { for kernel in body { addresses = start of buffer + offset in this run; kernel(addresses) } }
//! ```

use super::bind::{Needs, check_count, check_slot};
use super::run::{BufferArg, run_copy, run_kernel};
use crate::compile::{Compiled, planned};
use crate::device::buffer::writing;
use crate::device::host::pool;
use crate::device::{Addresses, Counters, Device, HostFunction, Memory, MemoryRef, count_all};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::DeviceName;
use crate::schedule::{Repeat, Role, Step};
use std::sync::Arc;
use std::time::Instant;

/// The memory of the buffers of the plan around a loop; none for one that no step names.
type Memories = [Option<BufferArg>];
/// From a buffer of a plan to one of the outermost plan, and the byte where it begins there.
type Resolve<'a> = &'a dyn Fn(usize) -> (usize, usize);

/// A loop that is ready to run.
pub(super) struct BoundLoop<'a> {
    repeat: &'a Repeat,
    steps: Vec<BoundStep<'a>>,
    /// Whether every step is a function of this process.
    on_host: bool,
}

/// A step of a run. Buffers are numbered as in the plan of the body.
enum BoundStep<'a> {
    Kernel {
        compiled: Arc<Compiled>,
        entry: Option<HostFunction>,
        device: &'a DeviceName,
        args: &'a [usize],
    },
    Copy {
        to: usize,
        from: usize,
        start: usize,
        dtype: DType,
        len: usize,
    },
    Loop(BoundLoop<'a>),
}

impl<'a> BoundLoop<'a> {
    /// Looks up the programs of a loop and checks its memory in all runs. `None` for a body whose
    /// kernels have variables: those take one more argument, and are written out.
    pub(super) fn new(repeat: &'a Repeat, memory: &Memories) -> Result<Option<BoundLoop<'a>>> {
        let Some(bound) = BoundLoop::with_programs(repeat)? else { return Ok(None) };
        bound.check(memory, &|n| vec![(n, 0)])?;
        Ok(Some(bound))
    }

    fn with_programs(repeat: &'a Repeat) -> Result<Option<BoundLoop<'a>>> {
        let (mut steps, mut on_host) = (Vec::with_capacity(repeat.plan.steps.len()), true);
        for step in &repeat.plan.steps {
            steps.push(match step {
                Step::Kernel { ast, buffers, device } => {
                    let compiled = planned(ast, &Device::named(device)?)?;
                    if !compiled.program.variables.names.is_empty() {
                        return Ok(None);
                    }
                    let entry = compiled.executable.entry();
                    on_host &= entry.is_some();
                    BoundStep::Kernel { compiled, entry, device, args: buffers }
                }
                Step::Copy { to, from, start } => {
                    let info = &repeat.plan.buffers[*to];
                    on_host = false;
                    BoundStep::Copy {
                        to: *to,
                        from: *from,
                        start: *start,
                        dtype: info.dtype,
                        len: info.len,
                    }
                }
                Step::Loop(inner) => match BoundLoop::with_programs(inner)? {
                    Some(inner) => {
                        on_host &= inner.on_host;
                        BoundStep::Loop(inner)
                    }
                    None => return Ok(None),
                },
            });
        }
        Ok(Some(BoundLoop { repeat, steps, on_host }))
    }

    /// Checks every argument where it is furthest from the start of its memory, as `bind` checks a
    /// single launch. `reach` is all memory that a buffer of the plan around the loop may be, and
    /// the last byte that it begins at.
    fn check(&self, memory: &Memories, reach: &dyn Fn(usize) -> Vec<(usize, usize)>) -> Result<()> {
        let inner = |n: usize| -> Vec<(usize, usize)> {
            let of_run = self.repeat.reach(n);
            of_run
                .into_iter()
                .flat_map(|(m, offset)| reach(m).into_iter().map(move |(b, at)| (b, at + offset)))
                .collect()
        };
        for step in &self.steps {
            match step {
                BoundStep::Kernel { compiled, device, args, .. } => {
                    let program = &compiled.program;
                    check_count(program, args.len())?;
                    for (slot, &n) in args.iter().enumerate() {
                        let dtype = self.repeat.plan.buffers[n].dtype;
                        inner(n).into_iter().try_for_each(|(b, at)| {
                            check_slot(program, slot, device, dtype, &of(memory, b).buffer, at)
                        })?;
                    }
                }
                // Whether the two overlap depends on the run, and is checked in each.
                BoundStep::Copy { to, from, start, dtype, len } => {
                    let bytes = |skip: usize, written| Needs {
                        bytes: (skip + len) * dtype.itemsize(),
                        written,
                    };
                    for (slot, n, needs) in
                        [(0, *to, bytes(0, true)), (1, *from, bytes(*start, false))]
                    {
                        for (b, at) in inner(n) {
                            let buffer = &of(memory, b).buffer;
                            needs.check(slot, buffer.device_name(), buffer, at)?;
                        }
                    }
                }
                BoundStep::Loop(l) => l.check(memory, &inner)?,
            }
        }
        Ok(())
    }

    /// Runs it. One thing runs at a time.
    pub(super) fn run(&self, memory: &Memories) -> Result<()> {
        let _alone = writing();
        if !self.on_host {
            return self.run_steps(memory, &|n| (n, 0));
        }
        let start_of = |b: &Option<BufferArg>| match b.as_ref().map(|b| b.buffer.place()) {
            Some(MemoryRef { memory: Memory::Host(h), offset }) => h.ptr().wrapping_add(offset),
            _ => std::ptr::null_mut(),
        };
        let starts = Addresses(memory.iter().map(start_of).collect());
        let start = Instant::now();
        // One task of the pool, so that all kernels find the float modes that they were made for.
        pool::run(1, &|_| self.run_on_host(&starts, &|n| (n, 0), &mut Addresses(Vec::new())));
        let time = start.elapsed();
        let mut did: Vec<(DeviceName, Counters)> = Vec::new();
        self.add_counters(1, &mut did);
        // One measurement for all: the time of the first device stands for the others, which are
        // the same CPU.
        did.iter_mut().take(1).for_each(|d| d.1.time = time);
        count_all(&did);
        Ok(())
    }

    fn run_on_host(&self, starts: &Addresses, outer: Resolve, addresses: &mut Addresses) {
        for run in 0..self.repeat.count {
            let inner = |n: usize| resolved(self.repeat, run, n, outer);
            for step in &self.steps {
                match step {
                    BoundStep::Kernel { compiled, entry: Some(entry), args, .. } => {
                        addresses.0.clear();
                        addresses.0.extend(args.iter().map(|&n| {
                            let (buffer, offset) = inner(n);
                            starts.0[buffer].wrapping_add(offset)
                        }));
                        let addresses = &*addresses;
                        // SAFETY: the scheduler made the kernel, so its indices are inside its
                        // arguments or masked, and `check` has compared those with their memory in
                        // all runs; different shares write different elements.
                        let share =
                            |i: usize| unsafe { entry(addresses.from(0), i as libc::c_long) };
                        let threads = compiled.program.launch.threads;
                        if threads == 1 { share(0) } else { pool::run(threads, &share) }
                    }
                    BoundStep::Loop(l) => l.run_on_host(starts, &inner, addresses),
                    BoundStep::Kernel { .. } | BoundStep::Copy { .. } => {
                        unreachable!("not a function of this process")
                    }
                }
            }
        }
    }

    /// Runs it on any device, one launch after the other.
    fn run_steps(&self, memory: &Memories, outer: Resolve) -> Result<()> {
        for run in 0..self.repeat.count {
            let inner = |n: usize| resolved(self.repeat, run, n, outer);
            for step in &self.steps {
                match step {
                    BoundStep::Kernel { compiled, device, args, .. } => {
                        let place = |n: &usize| {
                            let (buffer, offset) = inner(*n);
                            let place = of(memory, buffer).buffer.place();
                            MemoryRef { offset: place.offset + offset, ..place }
                        };
                        let places: Vec<MemoryRef> = args.iter().map(place).collect();
                        // SAFETY: as in `run_on_host`.
                        unsafe {
                            run_kernel(compiled, device, &places, &compiled.program.launch, 0)
                        }?;
                    }
                    BoundStep::Copy { to, from, start, dtype, len } => {
                        let arg = |n: usize, skip: usize| {
                            let (buffer, offset) = inner(n);
                            let buffer =
                                of(memory, buffer).buffer.bytes_from(offset + skip, *dtype, *len);
                            BufferArg { buffer, dtype: *dtype, len: *len, role: Role::Output }
                        };
                        run_copy(&arg(*to, 0), &arg(*from, start * dtype.itemsize()), 0)?;
                    }
                    BoundStep::Loop(l) => l.run_steps(memory, &inner)?,
                }
            }
        }
        Ok(())
    }

    /// Adds what `times` of this loop do, but for the time.
    fn add_counters(&self, times: usize, all: &mut Vec<(DeviceName, Counters)>) {
        let times = times * self.repeat.count;
        for step in &self.steps {
            match step {
                BoundStep::Kernel { compiled, device, .. } => {
                    let at = all.iter().position(|d| d.0 == **device).unwrap_or_else(|| {
                        all.push(((*device).clone(), Counters::default()));
                        all.len() - 1
                    });
                    let (did, e) = (&mut all[at].1, &compiled.program.estimate);
                    did.kernels += times as u64;
                    did.flops += e.flops * times as f64;
                    did.bytes += e.bytes * times as f64;
                }
                BoundStep::Loop(l) => l.add_counters(times, all),
                BoundStep::Copy { .. } => {}
            }
        }
    }
}

/// Where a buffer of a run is.
fn resolved(repeat: &Repeat, run: usize, n: usize, outer: Resolve) -> (usize, usize) {
    let (buffer, offset) = repeat.memory(run, n);
    let (outermost, start) = outer(buffer);
    (outermost, start + offset)
}

fn of(memory: &Memories, n: usize) -> &BufferArg {
    memory[n].as_ref().expect("a step names buffers that exist")
}
