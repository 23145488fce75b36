//! Runs plans: allocates, compiles, launches, copies, counts and shows.

use super::bind::{Proof, bind, bind_copy};
use super::record;
use super::repeat::BoundLoop;
use crate::compile::beam::{Beam, Tuned};
use crate::compile::{Compiled, beam, compile_together, compiled_with, planned};
use crate::device::limits::zeroed;
use crate::device::memory::is_guarded;
use crate::device::usage::Usage;
use crate::device::{Buffer, Counters, Device, Memory, MemoryRef, count, count_plan, profile};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{self, Arg, DeviceName, Op, StorageRef, UOp};
use crate::lower::{self, Launch};
use crate::opt::{Kernel, Opt};
use crate::schedule::{self, KernelLimits, Piece, Plan, Request, Role, Step, Values};
use crate::target::Target;
use crate::{env, verify};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A buffer as a kernel sees it. Temporaries share memory where their lives do not meet.
#[derive(Clone, Debug)]
pub struct BufferArg {
    /// The memory.
    pub buffer: Buffer,
    /// Element dtype.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// What it is for.
    pub role: Role,
}

/// One thing that realizing a tensor runs: a kernel with its buffers, or a copy.
#[derive(Clone)]
pub enum ScheduleItem {
    /// A kernel.
    Kernel {
        /// What it computes: the `Sink` of its stores.
        ast: UOp,
        /// Its arguments, by slot: outputs first.
        buffers: Vec<BufferArg>,
        /// Where it runs.
        device: DeviceName,
        /// The values of variables.
        values: Arc<Values>,
        /// What was planned. The item runs only while it is that.
        proof: Proof,
    },
    /// A copy between devices.
    Copy {
        /// To here.
        to: BufferArg,
        /// From here.
        from: BufferArg,
        /// What was planned. The item runs only while it is that.
        proof: Proof,
    },
}

impl fmt::Display for ScheduleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleItem::Kernel { ast, buffers, device, .. } => {
                let name = match ast.arg() {
                    Arg::Source(source) => source.entry.to_string(),
                    _ => Kernel::new(ast.clone()).name(),
                };
                writeln!(f, "kernel {name} on {device}")?;
                for (i, b) in buffers.iter().enumerate() {
                    writeln!(f, "  data{i}: {} × {}, {:?}", b.len, b.dtype, b.role)?;
                }
                f.write_str(&ir::print(ast))
            }
            ScheduleItem::Copy { to, from, .. } => {
                writeln!(
                    f,
                    "copy {} × {} from {} to {}",
                    to.len,
                    to.dtype,
                    from.buffer.device_name(),
                    to.buffer.device_name()
                )
            }
        }
    }
}

impl fmt::Debug for ScheduleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ScheduleItem {
    /// Checks that nothing was changed since the scheduler made it.
    fn is_as_planned(&self) -> Result<()> {
        match self {
            ScheduleItem::Kernel { ast, buffers, device, values, proof } => {
                proof.holds_for_kernel(ast, device, buffers.iter().map(|b| &b.buffer), values)
            }
            ScheduleItem::Copy { to, from, proof } => {
                proof.holds_for_copy(&to.buffer, &from.buffer)
            }
        }
    }

    /// Compiles what it needs.
    pub fn compile(&self) -> Result<ExecItem> {
        self.is_as_planned()?;
        Ok(ExecItem { item: self.clone(), compiled: self.program()? })
    }

    /// The program of a kernel; none for a copy.
    fn program(&self) -> Result<Option<Arc<Compiled>>> {
        match self {
            ScheduleItem::Kernel { ast, device, .. } => {
                planned(ast, &Device::named(device)?).map(Some)
            }
            ScheduleItem::Copy { .. } => Ok(None),
        }
    }

    /// Compiles a kernel with optimisations of the caller's choice. A list that does not fit the
    /// kernel or its device is an error that says why.
    ///
    /// ```
    /// use picograd::{Tensor, opt};
    /// let x = Tensor::ones([64, 64]).contiguous().realize()?.to("interp").realize()?;
    /// let item = (&x + 1.0).schedule()?.remove(0);
    /// let pinned = item.compile_with(&opt::parse("UPCAST:0:4")?)?;
    /// pinned.run()?;
    /// assert!(
    ///     item.compile_with(&opt::parse("UPCAST:9:4")?)
    ///         .err()
    ///         .unwrap()
    ///         .to_string()
    ///         .contains("there is no axis 9")
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn compile_with(&self, opts: &[Opt]) -> Result<ExecItem> {
        self.is_as_planned()?;
        let compiled = match self {
            ScheduleItem::Kernel { ast, device, .. } => {
                Some(compiled_with(ast, opts, &Device::named(device)?)?)
            }
            ScheduleItem::Copy { .. } if opts.is_empty() => None,
            ScheduleItem::Copy { .. } => {
                return Err(Error::Opt {
                    opt: crate::opt::show(opts),
                    msg: "a copy has no loops".into(),
                });
            }
        };
        Ok(ExecItem { item: self.clone(), compiled })
    }

    /// Searches for the fastest optimisations of a kernel by timing them on its device, whatever
    /// was found before. `None` where there is nothing to time: a copy, a kernel that is given as
    /// source, a device that runs nothing, or too little memory for the search.
    pub fn tune(&self, beam: Beam) -> Result<Option<Tuned>> {
        match self {
            ScheduleItem::Kernel { ast, device, .. } if ast.op() == Op::Sink => {
                self.is_as_planned()?;
                beam::tune(ast, &Device::named(device)?, beam)
            }
            _ => Ok(None),
        }
    }
}

/// A schedule item with its compiled program.
pub struct ExecItem {
    item: ScheduleItem,
    compiled: Option<Arc<Compiled>>,
}

impl ExecItem {
    /// The item with a program that was made from its kernel.
    pub(crate) fn with(item: ScheduleItem, compiled: Option<Arc<Compiled>>) -> ExecItem {
        ExecItem { item, compiled }
    }

    /// What to run on.
    pub fn item(&self) -> &ScheduleItem {
        &self.item
    }

    /// What to run; nothing for a copy.
    pub fn compiled(&self) -> Option<&Arc<Compiled>> {
        self.compiled.as_ref()
    }

    /// Checks that the item would run: it is as it was planned, and its buffers are what the
    /// program takes.
    pub fn check(&self) -> Result<()> {
        self.item.is_as_planned()?;
        self.bind().map(drop)
    }

    /// Runs it and returns the time that the device took. One item runs at a time.
    pub fn run(&self) -> Result<Duration> {
        self.item.is_as_planned()?;
        // SAFETY: the item is as the scheduler made it.
        unsafe { self.bind()?.run() }
    }

    /// The item with checked arguments.
    fn bind(&self) -> Result<BoundItem<'_>> {
        match (&self.item, &self.compiled) {
            (ScheduleItem::Kernel { buffers, device, values, .. }, Some(compiled)) => {
                let memory = bind(&compiled.program, device, buffers.iter().map(|b| &b.buffer))?;
                Ok(BoundItem::Kernel { compiled, device, memory, values })
            }
            (ScheduleItem::Copy { to, from, .. }, _) => {
                bind_copy(&to.buffer, &from.buffer, to.dtype, to.len)?;
                Ok(BoundItem::Copy { to, from })
            }
            _ => Err(Error::Device("a kernel was not compiled before it was run".into())),
        }
    }
}

/// A schedule item whose arguments were checked.
enum BoundItem<'a> {
    Kernel {
        compiled: &'a Compiled,
        device: &'a DeviceName,
        memory: Vec<MemoryRef<'a>>,
        values: &'a Values,
    },
    Copy {
        to: &'a BufferArg,
        from: &'a BufferArg,
    },
}

impl BoundItem<'_> {
    /// Runs the item and returns the time that the device took.
    ///
    /// # Safety
    /// The item is as the scheduler made it: its program was lowered from a kernel whose indices
    /// are inside its arguments or masked.
    unsafe fn run(&self) -> Result<Duration> {
        let _alone = crate::device::buffer::writing();
        let debug = env::config()?.debug;
        match self {
            BoundItem::Kernel { compiled: c, device, memory, values } => {
                let launch =
                    c.program.variables.launch(&c.program.launch, &|name| values.get(name));
                // SAFETY: the caller's promise, and `bind` has checked the arguments.
                unsafe { run_kernel(c, device, memory, &launch, debug) }
            }
            BoundItem::Copy { to, from } => run_copy(to, from, debug),
        }
    }
}

/// Runs a kernel on memory that was checked, counts and shows it.
///
/// # Safety
/// As for [`Executable::run`](crate::device::Executable::run): the memory was bound to this
/// program.
pub(super) unsafe fn run_kernel(
    c: &Compiled,
    device: &DeviceName,
    memory: &[MemoryRef],
    launch: &Launch,
    debug: u8,
) -> Result<Duration> {
    let watch = profile::watch();
    // SAFETY: the caller's promise.
    let time = unsafe { c.executable.run(memory, launch) }?;
    if let Some(watch) = watch {
        watch.kernel(device, &c.program.name, time, *launch, &c.program.estimate);
    }
    let e = c.program.estimate;
    let total = count(
        device,
        &Counters { kernels: 1, flops: e.flops, bytes: e.bytes, time, ..Counters::default() },
    );
    if debug >= 2 {
        show_kernel(device, c, memory.len(), time, total.kernels, total.time);
    }
    Ok(time)
}

/// Checks a copy, makes it, counts and shows it.
pub(super) fn run_copy(to: &BufferArg, from: &BufferArg, debug: u8) -> Result<Duration> {
    bind_copy(&to.buffer, &from.buffer, to.dtype, to.len)?;
    let (device, other, bytes) =
        (to.buffer.device_name(), from.buffer.device_name(), to.len * to.dtype.itemsize());
    let mut span = profile::span(|| "copy".into());
    span.note("bytes", || bytes.into());
    span.note("to", || device.as_str().into());
    span.note("from", || other.as_str().into());
    let (start, watch) = (Instant::now(), profile::watch());
    copy(to, from)?;
    // A copy inside a device may still be under way.
    if env::config()?.times_kernels() {
        Device::named(device)?.synchronize()?;
    }
    let time = start.elapsed();
    if let Some(watch) = watch {
        watch.copy(device, other, bytes);
    }
    let total = count(device, &Counters { copies: 1, ..Counters::default() });
    if debug >= 2 {
        let label = format!("copy {bytes} bytes, {device} <- {other}");
        eprintln!("*** {:8} {:4} {label:46} tm {}", "", total.copies, micros(time));
    }
    Ok(time)
}

/// Copies a whole buffer to another of the same dtype and length.
pub(crate) fn copy_buffer(to: &Buffer, from: &Buffer) -> Result<()> {
    let arg = |b: &Buffer| BufferArg {
        buffer: b.clone(),
        dtype: b.dtype(),
        len: b.size(),
        role: Role::Output,
    };
    let _alone = crate::device::buffer::writing();
    if to.size() != from.size() {
        return Err(Error::Device(format!("a copy of {from:?} to {to:?}: the lengths differ")));
    }
    run_copy(&arg(to), &arg(from), env::config()?.debug).map(drop)
}

/// Bytes that go through the host at a time between memories that it does not see. A multiple of
/// every element's size.
const PIECE: usize = 16 << 20;

fn copy(to: &BufferArg, from: &BufferArg) -> Result<()> {
    let bytes = to.len * to.dtype.itemsize();
    let (t, f) = (to.buffer.place(), from.buffer.place());
    match (t.memory, f.memory) {
        (Memory::Host(th), Memory::Host(fh)) => {
            assert!(
                t.offset + bytes <= th.len() && f.offset + bytes <= fh.len(),
                "a copy of {bytes} bytes leaves its buffers"
            );
            // SAFETY: both are at least that long, and a copy's memories are different ones.
            unsafe {
                std::ptr::copy_nonoverlapping(fh.ptr().add(f.offset), th.ptr().add(t.offset), bytes)
            };
            Ok(())
        }
        (Memory::Host(th), Memory::Disk(file)) => {
            assert!(t.offset + bytes <= th.len(), "a copy of {bytes} bytes leaves its buffer");
            // SAFETY: the memory is at least that long, and while a copy runs nobody else reads or
            // writes it.
            let out = unsafe { std::slice::from_raw_parts_mut(th.ptr().add(t.offset), bytes) };
            file.read(f.offset, to.dtype, out)
        }
        (Memory::Host(th), Memory::Remote(r)) => {
            assert!(t.offset + bytes <= th.len(), "a copy of {bytes} bytes leaves its buffer");
            // SAFETY: as above.
            r.read(f.offset, unsafe {
                std::slice::from_raw_parts_mut(th.ptr().add(t.offset), bytes)
            })
        }
        (Memory::Remote(r), Memory::Host(fh)) => {
            assert!(f.offset + bytes <= fh.len(), "a copy of {bytes} bytes leaves its buffer");
            // SAFETY: the memory is at least that long, and nobody writes to it while a copy runs.
            r.write(t.offset, unsafe { std::slice::from_raw_parts(fh.ptr().add(f.offset), bytes) })
        }
        (Memory::Remote(r), Memory::Remote(from))
            if r.copy_from(t.offset, &**from, f.offset, bytes)? =>
        {
            Ok(())
        }
        (Memory::Remote(r), Memory::Remote(from)) => {
            // Through the host, a piece at a time.
            let mut piece = zeroed(bytes.min(PIECE))?;
            for at in (0..bytes).step_by(PIECE) {
                let piece = &mut piece[..PIECE.min(bytes - at)];
                from.read(f.offset + at, piece)?;
                r.write(t.offset + at, piece)?;
            }
            Ok(())
        }
        (Memory::Remote(r), Memory::Disk(file)) => {
            file.hand_over(f.offset, to.dtype, bytes, &mut |at, piece| {
                r.write(t.offset + at, piece)
            })
        }
        (Memory::Disk(_), _) => Err(Error::Device("nothing is copied into a file".into())),
        (Memory::Null, _) => Ok(()),
        (_, Memory::Null) => {
            Err(Error::Device("NULL runs nothing, so there is nothing to copy from it".into()))
        }
    }
}

fn micros(t: Duration) -> String {
    let us = t.as_secs_f64() * 1e6;
    if us < 1e4 { format!("{us:8.2} us") } else { format!("{:8.2} ms", us / 1e3) }
}

fn show_kernel(
    device: &DeviceName,
    c: &Compiled,
    args: usize,
    time: Duration,
    number: u64,
    total: Duration,
) {
    let (name, color) = (&c.program.name, env::config().is_ok_and(|c| c.color));
    // Colours take no room on screen, so the padding is computed from the plain name.
    let shown = if color { &c.program.colored } else { name };
    let pad = " ".repeat(40usize.saturating_sub(name.len()));
    let (s, e) = (time.as_secs_f64().max(1e-9), c.program.estimate);
    let held = Usage::of(device).now().0 as f64 / 1e9;
    eprintln!(
        "*** {:8} {number:4} {shown}{pad} arg {args:2} mem {held:6.2} GB tm {}/{:9.2} ms ({:8.2} \
         GFLOPS {:7.1} GB/s)",
        device.as_str(),
        micros(time),
        total.as_secs_f64() * 1e3,
        e.flops / s / 1e9,
        e.bytes / s / 1e9
    );
}

/// Everything that requests need, ready to be run in order.
pub struct Scheduled {
    /// What to run.
    pub items: Vec<ScheduleItem>,
    /// The buffer of each request, or of each part of one over several devices; `None` where it
    /// has no element.
    pub outputs: Vec<Option<Buffer>>,
    /// The plan behind it.
    pub plan: Arc<Plan>,
    /// The graph that was planned: that of the requests with numbers in place of storages.
    pub graph: UOp,
    /// The storages, by number.
    pub inputs: Vec<StorageRef>,
    /// The memory of each buffer of the plan; none for one that no step names.
    pub memory: Vec<Option<BufferArg>>,
    /// The values of the graph's variables.
    pub values: Arc<Values>,
}

/// Plans requests of a graph that nobody has checked, and gives them memory. Nothing runs, but the
/// items can be run.
///
/// # Safety
/// As for [`Tensor::from_uop_unchecked`](crate::Tensor::from_uop_unchecked), for each node. Nobody
/// reads the storages that requests name for reuse.
pub unsafe fn schedule_unchecked(requests: &[Request]) -> Result<Scheduled> {
    schedule(requests)
}

/// Plans requests and gives them memory. Nothing runs.
pub(crate) fn schedule(requests: &[Request]) -> Result<Scheduled> {
    let mut scheduled = without_items(requests)?;
    scheduled.items = scheduled.items_of(&scheduled.plan.launches(), &mut Vec::new())?;
    Ok(scheduled)
}

/// Plans requests and gives them memory, without a list of what to run.
fn without_items(requests: &[Request]) -> Result<Scheduled> {
    let config = env::config()?;
    let start = Instant::now();
    let mut span = profile::span(|| "schedule".into());
    if config.verify {
        for node in
            ir::unmarked(&requests.iter().map(|r| r.node.clone()).collect::<Vec<_>>(), |_| None)
        {
            verify::tensor(&node).unwrap_or_else(|e| panic!("the tensor graph is broken: {e}"));
        }
    }
    // A device that is not there is an error where it is needed.
    let room = |name: &DeviceName| match Device::named(name) {
        Ok(device) => {
            let Target { max_buffers: buffers, buffer_bytes: bytes, wide, .. } = *device.target();
            KernelLimits { buffers, bytes, wide }
        }
        Err(_) => KernelLimits::ANY,
    };
    let schedule::PlannedGraph { plan, graph, inputs, values, hit } =
        schedule::schedule(requests, &room)?;
    count_plan(hit);
    span.note("kernels", || plan.steps.len().into());
    span.note("cache", || if hit { "hit" } else { "miss" }.into());
    drop(span);
    if config.debug >= 1 && !plan.steps.is_empty() {
        let kernels = plan.steps.len();
        let between =
            if plan.memory.separate > 0 { format!(" | {}", plan.memory) } else { String::new() };
        eprintln!(
            "scheduled {kernels:4} kernels in {} | {}{between}",
            micros(start.elapsed()),
            if hit { "cache hit" } else { "cache miss" }
        );
    }
    if config.verify && !hit {
        for (ast, _) in plan.kernels().into_iter().filter(|k| k.0.op() == Op::Sink) {
            verify::kernel(ast).unwrap_or_else(|e| {
                panic!("the scheduler made a broken kernel: {e}\n{}", ir::print(ast))
            });
        }
    }
    if config.print_after.as_deref() == Some("schedule") && !hit {
        for (ast, _) in plan.kernels() {
            eprintln!("; after schedule\n{}", ir::print(ast));
        }
    }
    let guarded = is_guarded();
    let arena = |(bytes, device): &(usize, DeviceName)| {
        Buffer::new(device, DType::U8, if guarded { 0 } else { *bytes })
    };
    let arenas: Vec<Buffer> = plan.arenas.iter().map(arena).collect::<Result<_>>()?;
    let mut made: Vec<Option<BufferArg>> = Vec::new();
    for b in &plan.buffers {
        let used = b.dtype != DType::VOID;
        made.push(if !used {
            None
        } else {
            let buffer = match b.role {
                Role::Input(i) => Buffer::of(&inputs[i]),
                // Each in memory of its own, so that a kernel that leaves it faults.
                Role::Temporary { .. } if guarded => Buffer::new(&b.device, b.dtype, b.len)?,
                Role::Temporary { arena, offset } => {
                    arenas[arena].bytes_from(offset, b.dtype, b.len)
                }
                Role::Output | Role::Values => Buffer::new(&b.device, b.dtype, b.len)?,
            };
            Some(BufferArg { buffer, dtype: b.dtype, len: b.len, role: b.role.clone() })
        });
    }
    let arg =
        |n: &usize| -> BufferArg { made[*n].clone().expect("a step names buffers that exist") };
    let output = |o: &schedule::Output| {
        let whole = arg(&o.buffer).buffer;
        o.part.clone().map_or(whole.clone(), |p| whole.part(p))
    };
    let outputs = plan.outputs.iter().map(|o| o.as_ref().map(output)).collect();
    Ok(Scheduled {
        items: Vec::new(),
        outputs,
        plan,
        graph,
        inputs,
        memory: made,
        values: Arc::new(values),
    })
}

/// The buffers with values of variables that were made: for each device and list of names.
type Written = Vec<(DeviceName, Vec<Arc<str>>, BufferArg)>;

impl Scheduled {
    /// The items of launches.
    fn items_of(
        &self,
        launches: &[schedule::Launch],
        written: &mut Written,
    ) -> Result<Vec<ScheduleItem>> {
        let piece = |p: &Piece| -> BufferArg {
            let whole = self.memory[p.buffer].clone().expect("a step names buffers that exist");
            if p.offset == 0 && (p.dtype, p.len) == (whole.dtype, whole.len) {
                return whole;
            }
            BufferArg {
                buffer: whole.buffer.bytes_from(p.offset, p.dtype, p.len),
                dtype: p.dtype,
                len: p.len,
                role: whole.role,
            }
        };
        let item = |launch: &schedule::Launch| match (launch.step, &launch.pieces[..]) {
            (Step::Kernel { ast, device, .. }, pieces) => {
                let mut buffers: Vec<BufferArg> = pieces.iter().map(piece).collect();
                buffers.extend(value_buffer(ast, device, &self.values, written)?);
                let proof =
                    Proof::of_kernel(ast, device, buffers.iter().map(|b| &b.buffer), &self.values);
                Ok(ScheduleItem::Kernel {
                    ast: ast.clone(),
                    buffers,
                    device: device.clone(),
                    values: self.values.clone(),
                    proof,
                })
            }
            (_, [to, from]) => {
                let (to, from) = (piece(to), piece(from));
                let proof = Proof::of_copy(&to.buffer, &from.buffer);
                Ok(ScheduleItem::Copy { to, from, proof })
            }
            (step, _) => panic!("a loop that was not written out: {step:?}"),
        };
        launches.iter().map(item).collect()
    }

    /// What to run, compiled and checked. Loops run as loops where nobody asks for each of their
    /// launches.
    fn jobs(&self, each: bool) -> Result<Vec<Job<'_>>> {
        let (mut jobs, mut written) = (Vec::with_capacity(self.plan.steps.len()), Written::new());
        for step in &self.plan.steps {
            if let Step::Loop(repeat) = step
                && !each
                && let Some(bound) = BoundLoop::new(repeat, &self.memory)?
            {
                jobs.push(Job::Loop(bound));
                continue;
            }
            for item in self.items_of(&self.plan.launches_of(step), &mut written)? {
                let compiled = item.program()?;
                jobs.push(Job::Item(ExecItem { item, compiled }));
            }
        }
        Ok(jobs)
    }
}

/// One thing that a realization runs.
enum Job<'a> {
    Item(ExecItem),
    Loop(BoundLoop<'a>),
}

/// The buffer with the values of a kernel's variables, its last argument: one for all kernels of a
/// device that have the same.
fn value_buffer(
    ast: &UOp,
    device: &DeviceName,
    values: &Values,
    written: &mut Written,
) -> Result<Option<BufferArg>> {
    if *values == Values::default() || ast.op() != Op::Sink {
        return Ok(None);
    }
    let names = lower::names(ast);
    if names.is_empty() {
        return Ok(None);
    }
    if let Some((.., buffer)) = written.iter().find(|w| w.0 == *device && w.1 == names) {
        return Ok(Some(buffer.clone()));
    }
    let value = |name: &Arc<str>| {
        values.get(name).and_then(|v| i32::try_from(v).ok()).map(i32::to_le_bytes)
    };
    let bytes: Option<Vec<[u8; 4]>> = names.iter().map(value).collect();
    let Some(bytes) = bytes else {
        return Err(Error::Device(format!(
            "a kernel has variables without a value of 32 bits among {names:?}"
        )));
    };
    let buffer = Buffer::from_bytes(device, DType::I32, &bytes.concat())?;
    let buffer = BufferArg { buffer, dtype: DType::I32, len: names.len(), role: Role::Values };
    written.push((device.clone(), names, buffer.clone()));
    Ok(Some(buffer))
}

/// Computes requests and returns their buffers with the plan that says what they are; `None` where
/// there is no element.
pub(crate) fn realize(requests: &[Request]) -> Result<(Vec<Option<Buffer>>, Arc<Plan>)> {
    let mut span = profile::span(|| "realize".into());
    let scheduled = without_items(requests)?;
    span.note("steps", || scheduled.plan.steps.len().into());
    // Everything is compiled before anything runs, so that an error leaves no memory half written.
    compile_together(scheduled.plan.kernels().into_iter().filter(|k| k.0.op() == Op::Sink))?;
    let jobs = scheduled.jobs(record::keeps_runs() || env::config()?.times_kernels())?;
    // Every argument is checked before anything runs, for the same reason.
    let bound = jobs
        .iter()
        .map(|job| if let Job::Item(item) = job { item.bind().map(Some) } else { Ok(None) });
    let bound = bound.collect::<Result<Vec<_>>>()?;
    let running = profile::span(|| "run".into());
    for (job, bound) in jobs.iter().zip(&bound) {
        let done = match (job, bound) {
            (Job::Loop(l), _) => l.run(&scheduled.memory),
            // SAFETY: the items were made above.
            (_, Some(item)) => unsafe { item.run() }.map(drop),
            _ => Ok(()),
        };
        if let Err(e) = done {
            // What was to be overwritten may be half written: whoever reads it from now on gets an
            // error instead of a wrong value.
            requests
                .iter()
                .flat_map(|r| &r.reuse)
                .flatten()
                .for_each(|s| Buffer::of(s).overwritten());
            return Err(e);
        }
    }
    drop((running, bound));
    let compiled = jobs
        .into_iter()
        .filter_map(|job| if let Job::Item(item) = job { Some(item.compiled) } else { None })
        .collect();
    record::note_run(requests, &scheduled, compiled);
    Ok((scheduled.outputs, scheduled.plan))
}
