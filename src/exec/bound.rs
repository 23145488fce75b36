//! A bound plan: the commands of a plan with compiled programs and memory. Everything is compiled
//! and every argument checked before anything runs, so that an error leaves no memory half written.

use super::bind::{bind_copy, check_arg, check_count};
use super::launch::{run_copy, run_kernel};
use super::repeat;
use super::schedule::Scheduled;
use crate::compile::{Compiled, planned};
use crate::device::buffer::writing;
use crate::device::{Buffer, Device, MemoryRef};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::{DeviceName, UOp};
use crate::schedule::{Command, SlotRef, Values};
use std::borrow::Cow;
use std::sync::Arc;

/// A command with its compiled program.
pub(crate) type BoundCommand = Command<Arc<Compiled>>;

/// Compiled commands over memory.
pub(super) struct BoundPlan {
    pub(super) commands: Vec<BoundCommand>,
    /// Memory of each slot of the plan, then of buffers with the values of variables. `None` for a
    /// slot that no command names.
    memory: Vec<Option<Buffer>>,
    values: Arc<Values>,
}

impl BoundPlan {
    /// Compiles the commands of a plan and checks their arguments. With `unroll` loops become
    /// single launches; a loop whose kernels have variables always does.
    pub(super) fn new(scheduled: &Scheduled, unroll: bool) -> Result<BoundPlan> {
        let mut plan = BoundPlan {
            commands: Vec::with_capacity(scheduled.plan.commands.len()),
            memory: scheduled.memory.clone(),
            values: scheduled.values.clone(),
        };
        let mut of_values = ValueBuffers::default();
        let mut compile = |ast: &UOp, device: &DeviceName| planned(ast, &Device::named(device)?);
        for command in &scheduled.plan.commands {
            let bound = command.try_map(&mut compile)?;
            let has_variables = |c: &BoundCommand| {
                c.programs().iter().any(|(p, _)| !p.program.variables.names.is_empty())
            };
            match &bound {
                Command::Repeat(_) if unroll || has_variables(&bound) => {
                    for command in bound.unrolled() {
                        plan.add(command, &mut of_values)?;
                    }
                }
                _ => plan.add(bound, &mut of_values)?,
            }
        }
        plan.commands.iter().try_for_each(|c| plan.check(c))?;
        Ok(plan)
    }

    /// Adds a command; the values of its variables become its last argument.
    fn add(&mut self, mut command: BoundCommand, of_values: &mut ValueBuffers) -> Result<()> {
        if let Command::Launch { program, device, args, .. } = &mut command {
            let names = &program.program.variables.names;
            if !names.is_empty() {
                let (buffer, known) = of_values.get(device, names, &self.values)?;
                let slot = match known {
                    Some(slot) => slot,
                    None => {
                        self.memory.push(Some(buffer));
                        of_values.set_slot(self.memory.len() - 1);
                        self.memory.len() - 1
                    }
                };
                args.push(SlotRef { slot, offset: 0, dtype: DType::I32, len: names.len() });
            }
        }
        self.commands.push(command);
        Ok(())
    }

    fn check(&self, command: &BoundCommand) -> Result<()> {
        match command {
            Command::Launch { program, device, args, .. } => {
                let program = &program.program;
                check_count(program, args.len())?;
                args.iter().enumerate().try_for_each(|(i, a)| {
                    check_arg(program, i, device, a, buffer(&self.memory, a.slot), a.offset)
                })
            }
            Command::Copy { to, from } => {
                bind_copy(&view(&self.memory, to), &view(&self.memory, from))
            }
            Command::Repeat(r) => repeat::check(r, &self.memory),
        }
    }

    /// Runs the commands in order.
    pub(super) fn run(&self) -> Result<()> {
        let debug = env::config()?.debug;
        for command in &self.commands {
            let _alone = writing();
            match command {
                Command::Launch { program: c, device, args, .. } => {
                    let places: Vec<MemoryRef> =
                        args.iter().map(|a| place(&self.memory, a)).collect();
                    let launch = c
                        .program
                        .variables
                        .launch(&c.program.launch, &|name| self.values.get(name));
                    // SAFETY: the scheduler made the kernel, so its indices are inside its
                    // arguments or masked, and `check` has compared those with their memory.
                    unsafe { run_kernel(c, device, &places, &launch, debug) }?;
                }
                Command::Copy { to, from } => {
                    run_copy(&view(&self.memory, to), &view(&self.memory, from), debug)?;
                }
                Command::Repeat(r) => repeat::run(r, &self.memory)?,
            }
        }
        Ok(())
    }
}

/// Returns the memory of a slot.
pub(super) fn buffer(memory: &[Option<Buffer>], slot: usize) -> &Buffer {
    memory[slot].as_ref().expect("a command names slots that have memory")
}

/// Returns the memory of a view.
pub(super) fn place<'a>(memory: &'a [Option<Buffer>], view: &SlotRef) -> MemoryRef<'a> {
    let place = buffer(memory, view.slot).place();
    MemoryRef { offset: place.offset + view.offset, ..place }
}

/// Returns a view as a buffer.
pub(super) fn view<'a>(memory: &'a [Option<Buffer>], view: &SlotRef) -> Cow<'a, Buffer> {
    let whole = buffer(memory, view.slot);
    if view.offset == 0 && (view.dtype, view.len) == (whole.dtype(), whole.size()) {
        return Cow::Borrowed(whole);
    }
    Cow::Owned(whole.bytes_from(view.offset, view.dtype, view.len))
}

/// Buffers with the values of variables, one per device and list of names.
#[derive(Default)]
pub(super) struct ValueBuffers(Vec<ValueBuffer>);

/// The values of named variables on a device, and the slot of the buffer if it has one.
struct ValueBuffer {
    device: DeviceName,
    names: Vec<Arc<str>>,
    buffer: Buffer,
    slot: Option<usize>,
}

impl ValueBuffers {
    /// Returns the buffer for these names, and its slot if it has one.
    pub(super) fn get(
        &mut self,
        device: &DeviceName,
        names: &[Arc<str>],
        values: &Values,
    ) -> Result<(Buffer, Option<usize>)> {
        let found = self.0.iter().find(|w| w.device == *device && w.names == names);
        if let Some(known) = found {
            return Ok((known.buffer.clone(), known.slot));
        }
        let value = |name: &Arc<str>| {
            values.get(name).and_then(|v| i32::try_from(v).ok()).map(i32::to_le_bytes)
        };
        let bytes: Option<Vec<[u8; 4]>> = names.iter().map(value).collect();
        let Some(bytes) = bytes else {
            return Err(Error::Device(format!(
                "a kernel needs values of 32 bits for its variables {names:?}"
            )));
        };
        let buffer = Buffer::from_bytes(device, DType::I32, &bytes.concat())?;
        self.0.push(ValueBuffer {
            device: device.clone(),
            names: names.to_vec(),
            buffer: buffer.clone(),
            slot: None,
        });
        Ok((buffer, None))
    }

    /// Sets the slot of the buffer that was added last.
    fn set_slot(&mut self, slot: usize) {
        if let Some(last) = self.0.last_mut() {
            last.slot = Some(slot);
        }
    }
}
