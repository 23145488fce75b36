//! The commands of a schedule as a user sees them ([`Tensor::schedule`](crate::Tensor::schedule)):
//! each with its memory, to be printed, compiled with other Opts, timed and run.

use super::bind::Proof;
use super::bound::BoundPlan;
use crate::compile::beam::{self, Beam, Tuned};
use crate::compile::{Compiled, compiled_with, planned};
use crate::device::{Buffer, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{self, Arg, DeviceName, Op, UOp};
use crate::opt::{Kernel, Opt};
use crate::schedule::{Role, VariableValues};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An argument of a kernel. Intermediates with disjoint lifetimes share memory.
#[derive(Clone, Debug)]
pub struct BufferArg {
    /// The memory.
    pub buffer: Buffer,
    /// Element dtype.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// Purpose of the buffer.
    pub role: Role,
}

/// One command of a schedule with its memory: a kernel or a copy.
#[derive(Clone)]
pub enum ScheduleItem {
    /// A kernel.
    Kernel {
        /// The kernel: a `Sink` of stores, or source text.
        ast: UOp,
        /// Arguments by slot: outputs first.
        buffers: Vec<BufferArg>,
        /// Device that runs it.
        device: DeviceName,
        /// Values of variables.
        values: Arc<VariableValues>,
        /// The item as planned. A changed item does not run.
        proof: Proof,
    },
    /// A copy between devices.
    Copy {
        /// Destination of the copy.
        to: BufferArg,
        /// Source of the copy.
        from: BufferArg,
        /// The item as planned. A changed item does not run.
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
    /// Checks that nothing was changed since planning.
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

    /// Compiles the kernel, with the Opts of the heuristic or the search.
    pub fn compile(&self) -> Result<ExecItem> {
        self.is_as_planned()?;
        ExecItem::with(self.clone(), self.program()?)
    }

    /// Returns the program of a kernel; `None` for a copy.
    fn program(&self) -> Result<Option<Arc<Compiled>>> {
        match self {
            ScheduleItem::Kernel { ast, device, .. } => {
                planned(ast, &Device::named(device)?).map(Some)
            }
            ScheduleItem::Copy { .. } => Ok(None),
        }
    }

    /// Compiles the kernel with given Opts. A list that does not fit the kernel or its device is an
    /// error.
    ///
    /// ```
    /// use picograd::{Tensor, compiler::opt};
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
        ExecItem::with(self.clone(), compiled)
    }

    /// Searches for the fastest Opts of a kernel by timing them on its device, without the disk
    /// cache. `None` without anything to time: for a copy, a kernel given as source, the device
    /// `NULL`, or too little memory for the search.
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

/// A schedule item with its compiled program, ready to run.
pub struct ExecItem {
    item: ScheduleItem,
    /// The one command of the item with its memory.
    plan: BoundPlan,
}

impl ExecItem {
    /// Makes an item with a program that was compiled from its kernel; `None` for a copy.
    pub(crate) fn with(item: ScheduleItem, compiled: Option<Arc<Compiled>>) -> Result<ExecItem> {
        let plan = BoundPlan::of_item(&item, compiled)?;
        Ok(ExecItem { item, plan })
    }

    /// Returns the schedule item.
    pub fn item(&self) -> &ScheduleItem {
        &self.item
    }

    /// Returns the program; `None` for a copy.
    pub fn compiled(&self) -> Option<&Arc<Compiled>> {
        self.plan.commands[0].as_launch().map(|(program, ..)| program)
    }

    /// Checks that the item can run: it is as planned, and its buffers fit the program.
    pub fn check(&self) -> Result<()> {
        self.item.is_as_planned()?;
        self.plan.check()
    }

    /// Runs the item and returns the time that the device took. One item runs at a time.
    pub fn run(&self) -> Result<Duration> {
        self.check()?;
        self.plan.run()
    }
}
