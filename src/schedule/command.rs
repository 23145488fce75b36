//! The one type for work that a device does: a launch, a copy, or a loop of both, over numbered
//! buffer slots. A plan has commands whose programs are kernels ([`UOp`]); a bound plan has the
//! same commands with compiled programs.

use super::plan_loops::Repeat;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{DeviceName, UOp};

/// A typed view of the memory of a buffer slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotRef {
    /// Number of the slot.
    pub slot: usize,
    /// Bytes from the start of the slot's memory.
    pub offset: usize,
    /// Element dtype.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
}

/// One unit of work. `P` is the program of a launch.
#[derive(Clone, Debug)]
pub enum Command<P = UOp> {
    /// One launch of a program.
    Launch {
        /// The kernel, or the program compiled from it.
        program: P,
        /// Device that runs it.
        device: DeviceName,
        /// Arguments in the order of the program's slots: outputs first.
        args: Vec<SlotRef>,
        /// Positions in `args` that the program writes.
        writes: Vec<usize>,
    },
    /// A copy, between devices or within one.
    Copy {
        /// Destination of the copy.
        to: SlotRef,
        /// Source, of the same dtype and length.
        from: SlotRef,
    },
    /// Commands that run several times on memory that depends on the iteration.
    Repeat(Box<Repeat<P>>),
}

impl<P> Command<P> {
    /// Returns the slots that the command reads or writes; a slot may occur twice.
    pub fn slots(&self) -> Vec<usize> {
        match self {
            Command::Launch { args, .. } => args.iter().map(|a| a.slot).collect(),
            Command::Copy { to, from } => vec![to.slot, from.slot],
            Command::Repeat(repeat) => repeat.writes.iter().chain(&repeat.reads).copied().collect(),
        }
    }

    /// Returns the slots that the command writes.
    pub fn written_slots(&self) -> Vec<usize> {
        match self {
            Command::Launch { args, writes, .. } => writes.iter().map(|i| args[*i].slot).collect(),
            Command::Copy { to, .. } => vec![to.slot],
            Command::Repeat(repeat) => repeat.writes.clone(),
        }
    }

    /// Returns program, device and arguments of a launch; `None` for another command.
    pub fn as_launch(&self) -> Option<(&P, &DeviceName, &[SlotRef])> {
        match self {
            Command::Launch { program, device, args, .. } => Some((program, device, args)),
            Command::Copy { .. } | Command::Repeat(_) => None,
        }
    }

    /// Returns the programs of the launches; those of a loop once.
    pub fn programs(&self) -> Vec<(&P, &DeviceName)> {
        match self {
            Command::Launch { program, device, .. } => vec![(program, device)],
            Command::Copy { .. } => Vec::new(),
            Command::Repeat(repeat) => repeat.body.iter().flat_map(Command::programs).collect(),
        }
    }

    /// Returns the same command with other programs.
    pub fn try_map<Q>(
        &self,
        program: &mut dyn FnMut(&P, &DeviceName) -> Result<Q>,
    ) -> Result<Command<Q>> {
        Ok(match self {
            Command::Launch { program: p, device, args, writes } => Command::Launch {
                program: program(p, device)?,
                device: device.clone(),
                args: args.clone(),
                writes: writes.clone(),
            },
            Command::Copy { to, from } => Command::Copy { to: *to, from: *from },
            Command::Repeat(repeat) => Command::Repeat(Box::new(repeat.try_map(program)?)),
        })
    }
}

impl<P: Clone> Command<P> {
    /// Returns the launches and copies of the command in order, with loops unrolled.
    pub fn unrolled(&self) -> Vec<Command<P>> {
        let mut all = Vec::new();
        self.unroll_into(&|r| r, &mut all);
        all
    }

    fn unroll_into(&self, outer: &dyn Fn(SlotRef) -> SlotRef, all: &mut Vec<Command<P>>) {
        match self {
            Command::Launch { program, device, args, writes } => all.push(Command::Launch {
                program: program.clone(),
                device: device.clone(),
                args: args.iter().map(|a| outer(*a)).collect(),
                writes: writes.clone(),
            }),
            Command::Copy { to, from } => {
                all.push(Command::Copy { to: outer(*to), from: outer(*from) })
            }
            Command::Repeat(repeat) => {
                for iteration in 0..repeat.count {
                    let inner = |r: SlotRef| outer(repeat.resolve(iteration, r));
                    repeat.body.iter().for_each(|c| c.unroll_into(&inner, all));
                }
            }
        }
    }
}
