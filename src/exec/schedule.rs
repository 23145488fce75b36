//! Requests to plans with memory: plan, verify, print, allocate. `realize` binds and runs the plan.

use super::bind::Proof;
use super::bound::{BoundPlan, ValueBuffers};
use super::capture::{Capture, Event};
use super::item::{BufferArg, ScheduleItem};
use super::launch::micros;
use super::memory::SlotMemory;
use crate::compile::compile_together;
use crate::compile::pipeline::note_times;
use crate::device::memory::is_guarded;
use crate::device::{Buffer, Device, count_plan, profile};
use crate::dtype::DType;
use crate::env::{self, Config};
use crate::error::Result;
use crate::ir::{DeviceName, Op, StorageRef, UOp};
use crate::lower;
use crate::schedule::{
    self, Command, DeviceTraits, Output, Plan, PlannedGraph, Request, Role, SlotRef, VariableValues,
};
use std::sync::Arc;
use std::time::Instant;

/// Requests with their plan and its memory.
pub struct Scheduled {
    /// Commands of the plan with their memory, loops unrolled.
    pub items: Vec<ScheduleItem>,
    /// The buffer of each request, or of each shard; `None` without elements.
    pub outputs: Vec<Option<Buffer>>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// The planned graph: that of the requests with numbers in place of storages.
    pub graph: UOp,
    /// Input storages, by number.
    pub inputs: Vec<StorageRef>,
    /// Memory of the slots of the plan.
    pub(crate) memory: SlotMemory,
    /// Values of the graph's variables.
    pub values: Arc<VariableValues>,
}

/// Plans requests of an unchecked graph and allocates their memory. Nothing runs, but the items can
/// be run.
///
/// # Safety
/// As for [`Tensor::from_uop_unchecked`](crate::Tensor::from_uop_unchecked), for each node. The
/// content of the storages that requests name for reuse is dead.
#[cfg(feature = "testing")]
pub unsafe fn schedule_unchecked(requests: &[Request]) -> Result<Scheduled> {
    schedule(requests)
}

/// Plans requests, allocates their memory and lists the items. Nothing runs.
pub(crate) fn schedule(requests: &[Request]) -> Result<Scheduled> {
    let mut scheduled = planned(requests)?;
    scheduled.items = scheduled.items()?;
    Ok(scheduled)
}

/// Plans requests and allocates their memory.
fn planned(requests: &[Request]) -> Result<Scheduled> {
    let config = env::config()?;
    let start = Instant::now();
    let mut span = profile::span(|| "schedule".into());
    let PlannedGraph { plan, graph, inputs, values, hit } =
        schedule::schedule(requests, &device_traits)?;
    count_plan(hit);
    span.note("kernels", || plan.commands.len().into());
    span.note("cache", || if hit { "hit" } else { "miss" }.into());
    if !hit {
        note_times(&mut span, &plan.times);
    }
    drop(span);
    print_plan(config, &plan, hit, start);
    let memory = allocate(&plan, &inputs)?;
    let output = |o: &Output| {
        let whole = memory.buffer(o.buffer);
        o.part.clone().map_or(whole.clone(), |part| whole.part(part))
    };
    let outputs = plan.outputs.iter().map(|o| o.as_ref().map(output)).collect();
    Ok(Scheduled {
        items: Vec::new(),
        outputs,
        plan,
        graph,
        inputs,
        memory,
        values: Arc::new(values),
    })
}

/// Returns the traits of a device. A missing device is an error where it is used.
fn device_traits(name: &DeviceName) -> DeviceTraits {
    match Device::named(name) {
        Ok(device) => DeviceTraits::of(device.target()),
        Err(_) => DeviceTraits::UNKNOWN,
    }
}

fn print_plan(config: &Config, plan: &Plan, hit: bool, start: Instant) {
    if config.debug >= 1 && !plan.commands.is_empty() {
        let memory =
            if plan.memory.separate > 0 { format!(" | {}", plan.memory) } else { String::new() };
        eprintln!(
            "scheduled {:4} commands in {} | {}{memory}",
            plan.commands.len(),
            micros(start.elapsed()),
            if hit { "cache hit" } else { "cache miss" }
        );
    }
}

/// Allocates the slots of a plan.
fn allocate(plan: &Plan, inputs: &[StorageRef]) -> Result<SlotMemory> {
    let guarded = is_guarded();
    let arena = |(bytes, device): &(usize, DeviceName)| {
        Buffer::new(device, DType::U8, if guarded { 0 } else { *bytes })
    };
    let arenas: Vec<Buffer> = plan.arenas.iter().map(arena).collect::<Result<_>>()?;
    let allocated = plan.buffers.iter().map(|b| {
        if b.dtype == DType::VOID {
            return Ok(None);
        }
        Ok(Some(match b.role {
            Role::Input(i) => Buffer::of(&inputs[i]),
            Role::Temporary { arena, offset } if !guarded => {
                arenas[arena].bytes_from(offset, b.dtype, b.len)
            }
            // Guarded intermediates have memory of their own, so that a kernel that leaves one
            // faults.
            Role::Temporary { .. } | Role::Output | Role::Values => {
                Buffer::new(&b.device, b.dtype, b.len)?
            }
        }))
    });
    Ok(SlotMemory(allocated.collect::<Result<_>>()?))
}

impl Scheduled {
    /// Returns the commands of the plan as items, loops unrolled.
    fn items(&self) -> Result<Vec<ScheduleItem>> {
        let arg = |r: &SlotRef| BufferArg {
            buffer: self.memory.view(r).into_owned(),
            dtype: r.dtype,
            len: r.len,
            role: self.plan.buffers[r.slot].role.clone(),
        };
        let mut of_values = ValueBuffers::default();
        let mut item = |command: Command| match command {
            Command::Launch { program: ast, device, args, .. } => {
                let mut buffers: Vec<BufferArg> = args.iter().map(arg).collect();
                buffers.extend(self.values_of(&ast, &device, &mut of_values)?);
                let values = self.values.clone();
                let memory = buffers.iter().map(|b| &b.buffer);
                let proof = Proof::of_kernel(&ast, &device, memory, &values);
                Ok(ScheduleItem::Kernel { ast, buffers, device, values, proof })
            }
            Command::Copy { to, from } => {
                let (to, from) = (arg(&to), arg(&from));
                let proof = Proof::of_copy(&to.buffer, &from.buffer);
                Ok(ScheduleItem::Copy { to, from, proof })
            }
            Command::Repeat(_) => unreachable!("loops are unrolled"),
        };
        self.plan.commands.iter().flat_map(Command::unrolled).map(&mut item).collect()
    }

    /// Returns the last argument of a kernel with variables: their values.
    fn values_of(
        &self,
        ast: &UOp,
        device: &DeviceName,
        of_values: &mut ValueBuffers,
    ) -> Result<Option<BufferArg>> {
        if *self.values == VariableValues::default() || ast.op() != Op::Sink {
            return Ok(None);
        }
        let names = lower::names(ast);
        if names.is_empty() {
            return Ok(None);
        }
        let (buffer, _) = of_values.get(device, &names, &self.values)?;
        Ok(Some(BufferArg { buffer, dtype: DType::I32, len: names.len(), role: Role::Values }))
    }
}

/// Computes requests and returns their buffers with the plan; `None` without elements.
pub(crate) fn realize(requests: &[Request]) -> Result<(Vec<Option<Buffer>>, Arc<Plan>)> {
    let mut span = profile::span(|| "realize".into());
    let scheduled = planned(requests)?;
    span.note("steps", || scheduled.plan.commands.len().into());
    compile_together(scheduled.plan.kernels().into_iter().filter(|k| k.0.op() == Op::Sink))?;
    let unroll = Capture::records_runs() || env::config()?.times_kernels();
    let bound = BoundPlan::new(&scheduled, unroll)?;
    let running = profile::span(|| "run".into());
    if let Err(e) = bound.run() {
        // Donated memory may be half written: reading it from now on is an error instead of a wrong
        // value.
        let donated = requests.iter().flat_map(|r| &r.reuse).flatten();
        donated.for_each(|s| Buffer::of(s).overwritten());
        return Err(e);
    }
    drop(running);
    Capture::note(Event::Run { requests, scheduled: &scheduled, commands: bound.commands });
    Ok((scheduled.outputs, scheduled.plan))
}
