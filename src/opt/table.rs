//! The table of Opts: names, operands and functions. Parsing and printing are derived from it.

use super::apply::{Applied, OptRequest};
use super::{
    loops, overlap, prefetch, reduce_outer, reuse, split, stage, tensor_core, vectorize, workgroup,
};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The numbers that an Opt takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operands {
    /// No number: the Opt concerns the whole kernel.
    None,
    /// An axis.
    Axis,
    /// An axis and an amount.
    AxisAmount,
}

macro_rules! opts {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $operands:ident $apply:path;)+) => {
        /// A kind of loop transformation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum OptOp {
            $($(#[doc = $doc])+ $name,)+
        }

        impl OptOp {
            /// All Opts, in the order of the table.
            pub const ALL: &[OptOp] = &[$(OptOp::$name),+];
            /// Returns the name in text.
            pub const fn name(self) -> &'static str {
                match self { $(OptOp::$name => $text,)+ }
            }
            /// Returns the numbers that the Opt takes.
            pub const fn operands(self) -> Operands {
                match self { $(OptOp::$name => Operands::$operands,)+ }
            }
            /// Returns true for the Opts that come last, because they change no axis. The
            /// heuristic completes a list that has none of a kind.
            pub const fn is_last(self) -> bool {
                matches!(self, OptOp::Vectorize | OptOp::Order)
            }
            /// Returns the function that applies the Opt.
            pub(super) fn function(self) -> fn(&OptRequest) -> Applied {
                match self { $(OptOp::$name => $apply,)+ }
            }
        }
    };
}

opts! {
    /// Computes `amount` outputs along an output axis in one thread.
    Upcast "UPCAST" AxisAmount split::upcast;
    /// Unrolls a reduction axis by `amount`.
    Unroll "UNROLL" AxisAmount split::unroll;
    /// Makes part of an output axis threads of a workgroup.
    Local "LOCAL" AxisAmount workgroup::local;
    /// Shares a reduction between threads of a workgroup, which take interleaved iterations.
    Group "GROUP" AxisAmount workgroup::group;
    /// Shares a reduction between threads of a workgroup, each of which takes a contiguous block.
    GroupTop "GROUPTOP" AxisAmount workgroup::group_top;
    /// Partitions an output axis into up to `amount` chunks, which the threads of a CPU claim; the
    /// last ones may be shorter.
    Thread "THREAD" AxisAmount split::thread;
    /// Interchanges two output loops; `amount` is the other axis.
    Swap "SWAP" AxisAmount loops::swap;
    /// Pads an axis to a multiple of `amount`; accesses past its end are masked.
    PadTo "PADTO" AxisAmount loops::pad_to;
    /// Covers an output axis with tiles of `amount`, the last of which overlaps the one before it.
    Overlap "OVERLAP" AxisAmount overlap::overlap;
    /// Splits a loop into two, the inner one of `amount` iterations.
    Split "SPLIT" AxisAmount split::split_loop;
    /// Moves a reduction loop outside the output loop `amount`; its accumulators are carried
    /// through memory.
    ReduceOuter "REDUCE_OUTER" AxisAmount reduce_outer::reduce_outer;
    /// Copies the tile that is loaded from argument `amount` below the loop, at the loop: to shared
    /// memory, or on a CPU to scratch memory of the thread.
    Stage "STAGE" AxisAmount stage::stage;
    /// Computes sums of products along a reduction axis on tensor cores; `amount` selects one of
    /// the possible mappings to a core.
    Tc "TC" AxisAmount tensor_core::tensor_core;
    /// Prefetches the next iteration's loads of a reduction loop into registers.
    Prefetch "PREFETCH" Axis prefetch::prefetch;
    /// Stores values that a reduction computes and a later loop over the same row uses.
    Reuse "REUSE" None reuse::reuse_values;
    /// Makes an axis of `UPCAST` or `UNROLL` vector lanes.
    Vectorize "VECTORIZE" Axis vectorize::vectorize;
    /// Moves an axis of workgroup threads to the position `amount` of their order. The threads
    /// along the last axis of the order are adjacent.
    Order "ORDER" AxisAmount workgroup::order;
    /// Forbids workgroup threads in later Opts.
    NoLocals "NOLOCALS" None workgroup::no_locals;
}

/// One loop transformation: the kind, the axis of [`Kernel::axes`](super::Kernel::axes) and the
/// amount.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Opt {
    /// The kind.
    pub op: OptOp,
    /// The position in the kernel's axes at that moment; 0 if the Opt takes no axis.
    pub axis: usize,
    /// The amount; 0 is the whole axis for Opts that divide an axis, and unused for Opts without
    /// one.
    pub amount: usize,
}

impl Opt {
    /// Returns an Opt of an axis and an amount.
    pub const fn new(op: OptOp, axis: usize, amount: usize) -> Opt {
        Opt { op, axis, amount }
    }
    /// Returns an Opt of an axis.
    pub const fn of_axis(op: OptOp, axis: usize) -> Opt {
        Opt::new(op, axis, 0)
    }
    /// Returns an Opt of the whole kernel.
    pub const fn of_kernel(op: OptOp) -> Opt {
        Opt::new(op, 0, 0)
    }
}

/// Prints `UPCAST:1:4`, `PREFETCH:3` or `REUSE`.
impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        match self.op.operands() {
            Operands::None => Ok(()),
            Operands::Axis => write!(f, ":{}", self.axis),
            Operands::AxisAmount => write!(f, ":{}:{}", self.axis, self.amount),
        }
    }
}

impl FromStr for Opt {
    type Err = Error;
    fn from_str(s: &str) -> Result<Opt> {
        let bad = |form: &str| Error::Opt {
            opt: s.to_string(),
            msg: format!("expected {form}, as in UPCAST:1:4"),
        };
        let mut parts = s.split(':');
        let name = parts.next().unwrap_or_default();
        let known = OptOp::ALL.iter().find(|o| o.name() == name);
        let op = *known.ok_or_else(|| bad("NAME:axis:amount with a name of docs/opts.md"))?;
        let (form, wanted) = match op.operands() {
            Operands::None => ("no number", 0),
            Operands::Axis => ("NAME:axis", 1),
            Operands::AxisAmount => ("NAME:axis:amount", 2),
        };
        let numbers: Vec<usize> =
            parts.map(|p| p.parse().map_err(|_| bad(form))).collect::<Result<_>>()?;
        // Lists that were stored before some Opts lost unused numbers have zeros there.
        let missing = numbers.len() < wanted;
        if missing || numbers.len() > 2 || numbers.iter().skip(wanted).any(|n| *n != 0) {
            return Err(bad(form));
        }
        let number = |i: usize| numbers.get(i).copied().unwrap_or(0);
        Ok(Opt { op, axis: number(0), amount: number(1) })
    }
}

/// Prints a list: `UPCAST:1:4 THREAD:0:2`, and the empty text for no Opt.
pub fn show(opts: &[Opt]) -> String {
    opts.iter().map(Opt::to_string).collect::<Vec<_>>().join(" ")
}

/// Parses a list, as [`show`] prints it.
///
/// ```
/// use picograd::compiler::opt;
/// let opts = opt::parse("UPCAST:0:4  THREAD:0:2 REUSE")?;
/// assert_eq!(opt::show(&opts), "UPCAST:0:4 THREAD:0:2 REUSE");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_parsed_as_it_is_printed() {
        for op in OptOp::ALL {
            let opt = match op.operands() {
                Operands::None => Opt::of_kernel(*op),
                Operands::Axis => Opt::new(*op, 3, 0),
                Operands::AxisAmount => Opt::new(*op, 1, 4),
            };
            assert_eq!(opt.to_string().parse::<Opt>().unwrap(), opt);
        }
    }

    #[test]
    fn unused_numbers_are_zero() {
        assert_eq!("REUSE:0:0".parse::<Opt>().unwrap(), Opt::of_kernel(OptOp::Reuse));
        assert_eq!("PREFETCH:3:0".parse::<Opt>().unwrap(), Opt::new(OptOp::Prefetch, 3, 0));
        for text in ["REUSE:1", "PREFETCH", "PREFETCH:3:1", "PREFETCH:3:0:0"] {
            assert!(text.parse::<Opt>().is_err(), "{text}");
        }
    }
}
