//! The optimizer: a kernel and a list of [`Opt`]s. An `Opt` is data, printable and replayable;
//! applying one splits a range of the kernel or gives it another kind, and nothing else. One that
//! does not fit is an error value, never a panic.

mod actions;
mod apply;
mod gated;
mod grid;
mod heuristic;
mod packed;
mod product;
pub mod reuse;
mod stage;
mod tensor_core;
mod tile;

pub use actions::actions;
pub use heuristic::heuristic;

use crate::error::{Error, Result};
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel::{self, extent, is_symbolic, masked_term, next_shared};
use crate::target::Target;
use std::fmt;
use std::str::FromStr;

/// What an optimisation does to an axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum OptOp {
    /// Several outputs at a time in one thread.
    Upcast,
    /// Several steps of a reduce at a time.
    Unroll,
    /// Part of an output axis becomes threads of a workgroup.
    Local,
    /// Part of a reduce is shared by threads of a workgroup, which take steps in turn.
    Group,
    /// As `Group`, but each thread takes one run of steps.
    GroupTop,
    /// An output axis is divided between the threads of the CPU's pool.
    Thread,
    /// Two output loops change places: `amount` is the other axis.
    Swap,
    /// The axis is made a multiple of `amount`; what is past its end is guarded.
    PadTo,
    /// A loop becomes two, the inner one of `amount` steps.
    Split,
    /// What is loaded from argument `amount` below the loop is copied at the loop: into memory of
    /// the workgroup, or in the order of use into memory of the thread.
    Stage,
    /// Products along a reduce axis are made by tensor cores: `amount` is which of the ways in
    /// which that can be done.
    Tc,
    /// What is loaded in the loop of a reduce is loaded a turn ahead, and kept in registers.
    Prefetch,
    /// What a reduce computes and a later loop needs again is kept in memory of the thread, where
    /// that costs less than to compute it twice.
    Reuse,
    /// No workgroup threads in this kernel from here on.
    NoLocals,
}

impl OptOp {
    /// All of them.
    pub const ALL: [OptOp; 14] = [
        OptOp::Upcast,
        OptOp::Unroll,
        OptOp::Local,
        OptOp::Group,
        OptOp::GroupTop,
        OptOp::Thread,
        OptOp::Swap,
        OptOp::PadTo,
        OptOp::Split,
        OptOp::Stage,
        OptOp::Tc,
        OptOp::Prefetch,
        OptOp::Reuse,
        OptOp::NoLocals,
    ];
    /// The name in text.
    pub const fn name(self) -> &'static str {
        match self {
            OptOp::Upcast => "UPCAST",
            OptOp::Unroll => "UNROLL",
            OptOp::Local => "LOCAL",
            OptOp::Group => "GROUP",
            OptOp::GroupTop => "GROUPTOP",
            OptOp::Thread => "THREAD",
            OptOp::Swap => "SWAP",
            OptOp::PadTo => "PADTO",
            OptOp::Split => "SPLIT",
            OptOp::Stage => "STAGE",
            OptOp::Tc => "TC",
            OptOp::Prefetch => "PREFETCH",
            OptOp::Reuse => "REUSE",
            OptOp::NoLocals => "NOLOCALS",
        }
    }
}

/// One optimisation: what, on which axis of [`Kernel::axes`], by how much.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Opt {
    /// What.
    pub op: OptOp,
    /// The axis, by its place in the kernel's list at the time.
    pub axis: usize,
    /// How much; 0 stands for the whole axis where that makes sense.
    pub amount: usize,
}

impl Opt {
    /// An optimisation.
    pub const fn new(op: OptOp, axis: usize, amount: usize) -> Opt {
        Opt { op, axis, amount }
    }
}

/// `UPCAST:1:4`.
impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.op.name(), self.axis, self.amount)
    }
}

impl FromStr for Opt {
    type Err = Error;
    fn from_str(s: &str) -> Result<Opt> {
        let bad = || Error::Opt {
            opt: s.to_string(),
            msg: "expected NAME:axis:amount, as in UPCAST:1:4".into(),
        };
        let mut parts = s.split(':');
        let name = parts.next().ok_or_else(bad)?;
        let op = *OptOp::ALL.iter().find(|o| o.name() == name).ok_or_else(bad)?;
        let mut number = || parts.next().and_then(|p| p.parse().ok()).ok_or_else(bad);
        let opt = Opt { op, axis: number()?, amount: number()? };
        if parts.next().is_some() { Err(bad()) } else { Ok(opt) }
    }
}

/// A list as text: `UPCAST:1:4 THREAD:0:2`, and nothing for no optimisation.
pub fn show(opts: &[Opt]) -> String {
    opts.iter().map(Opt::to_string).collect::<Vec<_>>().join(" ")
}

/// A list from text, as [`show`] writes it.
///
/// ```
/// use picograd::opt;
/// let opts = opt::parse("UPCAST:0:4  THREAD:0:2")?;
/// assert_eq!(opt::show(&opts), "UPCAST:0:4 THREAD:0:2");
/// assert!(
///     opt::parse("UPCAST:0:4,THREAD:0:2")
///         .unwrap_err()
///         .to_string()
///         .contains("NAME:axis:amount")
/// );
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Opt>> {
    text.split_whitespace().map(str::parse).collect()
}

/// Is a range an axis of outputs that no optimisation has given another kind?
fn is_output(r: &UOp) -> bool {
    matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop)
}

/// The place of what is left of an axis.
fn axis_of(k: &Kernel, r: &UOp) -> Option<usize> {
    k.axes().iter().position(|x| x.range_id() == r.range_id() && x.range_kind() == r.range_kind())
}

/// The argument that a load is from.
fn slot(load: &UOp) -> Option<usize> {
    if let Arg::Global { slot, .. } = load.src()[0].src()[0].arg() { Some(*slot) } else { None }
}

/// A kernel with the optimisations that were applied to it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The `Sink` of stores.
    pub ast: UOp,
    /// What was applied, in order.
    pub opts: Vec<Opt>,
    /// May workgroup threads still be made?
    pub locals: bool,
}

impl Kernel {
    /// A kernel as the scheduler made it.
    pub fn new(ast: UOp) -> Kernel {
        Kernel { ast, opts: Vec::new(), locals: true }
    }

    /// Whether the index of a store is computed from loaded values, as that of a scatter is.
    pub(crate) fn writes_at_indices(&self) -> bool {
        let loads = |s: &UOp| s.src()[0].src()[1].toposort().iter().any(|u| u.op() == Op::Load);
        self.ast.src().iter().any(loads)
    }

    /// The axes: those of outputs in loop order, then those of reduces, outer first; sorted by kind
    /// in the order of [`AxisKind::ALL`].
    pub fn axes(&self) -> Vec<UOp> {
        kernel::axes(&self.ast)
    }

    /// Applies optimisations in order.
    pub fn apply_all(&self, opts: &[Opt], target: &Target) -> Result<Kernel> {
        opts.iter().try_fold(self.clone(), |k, o| k.apply(o, target))
    }

    /// The sizes of the axes, as kernel names show them, with their kinds.
    pub fn sizes(&self) -> Vec<(AxisKind, usize)> {
        kernel::sizes(&self.ast)
    }

    /// `E_` for elementwise or `r_` for reduce, then the sizes.
    pub fn name(&self) -> String {
        kernel::name(&self.ast)
    }

    /// The name with each size in the colour of its kind; `docs/debug.md` lists them.
    pub fn colored_name(&self) -> String {
        kernel::colored_name(&self.ast)
    }
}

/// How much of a range may be cut off: all of it, or nothing where a variable says how long it is.
pub(crate) fn cut(r: &UOp) -> usize {
    if is_symbolic(r) { 1 } else { extent(r) }
}
