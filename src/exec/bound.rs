//! A bound plan: the commands of a plan with compiled programs and memory. Everything is compiled
//! and every argument checked before anything runs, so that an error leaves no memory half written.

use super::command::{self, BoundCommand};
use super::item::{BufferArg, ScheduleItem};
use super::memory::SlotMemory;
use super::schedule::Scheduled;
use crate::compile::{Compiled, planned};
use crate::device::buffer::lock_for_kernel;
use crate::device::{Buffer, Device};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::{DeviceName, UOp};
use crate::schedule::{Command, SlotRef, VariableValues};
use std::sync::Arc;
use std::time::Duration;

/// Compiled commands over memory.
pub(super) struct BoundPlan {
    pub(super) commands: Vec<BoundCommand>,
    /// Memory of the slots of the plan, then of buffers with the values of variables.
    memory: SlotMemory,
    values: Arc<VariableValues>,
}

impl BoundPlan {
    /// Compiles the commands of a plan and checks their arguments. With `unroll` loops become
    /// single launches; a loop whose kernels have variables always does.
    pub(super) fn new(scheduled: &Scheduled, unroll: bool) -> Result<BoundPlan> {
        let mut plan = BoundPlan {
            commands: Vec::with_capacity(scheduled.plan.commands.len()),
            memory: SlotMemory(scheduled.memory.0.clone()),
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
        plan.check()?;
        Ok(plan)
    }

    /// Binds one item, unchecked. The program of a kernel was compiled from it.
    pub(super) fn of_item(
        item: &ScheduleItem,
        compiled: Option<Arc<Compiled>>,
    ) -> Result<BoundPlan> {
        let view = |(slot, arg): (usize, &BufferArg)| {
            let (dtype, len) = (arg.buffer.dtype(), arg.buffer.size());
            SlotRef { slot, offset: 0, dtype, len }
        };
        match item {
            ScheduleItem::Kernel { buffers, device, values, .. } => {
                let Some(program) = compiled else {
                    let msg = "a kernel was not compiled before it was run";
                    return Err(Error::Device(msg.into()));
                };
                let args = buffers.iter().enumerate().map(view).collect();
                let (device, writes) = (device.clone(), program.program.writes.clone());
                let commands = vec![Command::Launch { program, device, args, writes }];
                let memory = SlotMemory(buffers.iter().map(|b| Some(b.buffer.clone())).collect());
                Ok(BoundPlan { commands, memory, values: values.clone() })
            }
            ScheduleItem::Copy { to, from, .. } => {
                let commands = vec![Command::Copy { to: view((0, to)), from: view((1, from)) }];
                let memory = SlotMemory([to, from].map(|a| Some(a.buffer.clone())).into());
                Ok(BoundPlan { commands, memory, values: Arc::default() })
            }
        }
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
                        self.memory.0.push(Some(buffer));
                        of_values.set_slot(self.memory.0.len() - 1);
                        self.memory.0.len() - 1
                    }
                };
                args.push(SlotRef { slot, offset: 0, dtype: DType::I32, len: names.len() });
            }
        }
        self.commands.push(command);
        Ok(())
    }

    /// Checks the arguments of all commands.
    pub(super) fn check(&self) -> Result<()> {
        command::check(&self.commands, &self.memory)
    }

    /// Runs the commands in order and returns their time.
    pub(super) fn run(&self) -> Result<Duration> {
        let debug = env::config()?.debug;
        let mut time = Duration::ZERO;
        for command in &self.commands {
            let _alone = lock_for_kernel();
            time += command::run(command, &self.memory, &self.values, debug)?;
        }
        Ok(time)
    }
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
        values: &VariableValues,
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
