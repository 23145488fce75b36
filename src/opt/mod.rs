//! The optimizer's mechanism: a kernel and a list of [`Opt`]s. An `Opt` is one loop transformation
//! as data, which can be printed, stored and replayed. An Opt that does not apply is an error
//! value, never a panic. Which Opts are chosen is decided in `heuristic` and by the beam search.
//!
//! | file | contents |
//! |---|---|
//! | `table` | all Opts: names, operands, functions |
//! | `apply` | the checks that all Opts share |
//! | `split` | `UPCAST`, `UNROLL`, `THREAD`, `SPLIT` |
//! | `loops` | `SWAP`, `PADTO` |
//! | `workgroup` | `LOCAL`, `GROUP`, `GROUPTOP`, `ORDER`, `NOLOCALS` |
//! | `overlap`, `reduce_outer` | `OVERLAP`, `REDUCE_OUTER` |
//! | `stage`, `prefetch` | `STAGE`, `PREFETCH` |
//! | `tensor_core` | `TC` |
//! | `reuse` | `REUSE` |
//! | `vectorize` | `VECTORIZE` |

mod apply;
mod loops;
mod overlap;
mod prefetch;
mod reduce_outer;
pub mod reuse;
mod split;
mod stage;
mod table;
pub(crate) mod tensor_core;
mod vectorize;
mod workgroup;

pub use table::{Operands, Opt, OptOp, parse, show};

use crate::ir::{AxisKind, Op, UOp, toposort};
use crate::kernel;

/// A kernel with the Opts that were applied to it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The `Sink` of stores.
    pub ast: UOp,
    /// The Opts, in the order of their application.
    pub opts: Vec<Opt>,
}

impl Kernel {
    /// Returns a kernel as the scheduler made it.
    pub fn new(ast: UOp) -> Kernel {
        Kernel { ast, opts: Vec::new() }
    }

    /// Returns true if an Opt of this kind was applied.
    pub fn has(&self, op: OptOp) -> bool {
        self.opts.iter().any(|o| o.op == op)
    }

    /// Returns the kernel without the Opts that come last: `VECTORIZE` and `ORDER`.
    pub fn without_last(&self) -> Kernel {
        self.without_lanes().without_order()
    }

    /// Returns the kernel without its `ORDER` Opts.
    pub fn without_order(&self) -> Kernel {
        let opts = self.opts.iter().copied().filter(|o| o.op != OptOp::Order).collect();
        Kernel { ast: kernel::without_thread_order(&self.ast), opts }
    }

    /// Returns true if the index of a store depends on loaded values, as that of a scatter does.
    pub(crate) fn has_indexed_store(&self) -> bool {
        let indices = self.ast.src().iter().map(|s| s.expect_store().place.index);
        toposort(indices).iter().any(|u| u.op() == Op::Load)
    }

    /// Returns the axes: those of outputs in loop order, then those of reductions, outer first;
    /// sorted by kind in the order of [`AxisKind::ALL`].
    pub fn axes(&self) -> Vec<UOp> {
        kernel::axes(&self.ast)
    }

    /// Returns the position of the remaining part of an axis.
    pub(crate) fn axis_of(&self, r: &UOp) -> Option<usize> {
        let same = |x: &UOp| x.range_id() == r.range_id() && x.range_kind() == r.range_kind();
        self.axes().iter().position(same)
    }

    /// Returns the kinds and extents of the axes, as kernel names show them.
    pub fn sizes(&self) -> Vec<(AxisKind, usize)> {
        kernel::sizes(&self.ast)
    }

    /// Returns the name: `E_` for elementwise or `r_` for reduce, then the extents.
    pub fn name(&self) -> String {
        kernel::name(&self.ast)
    }

    /// Returns the name with each extent in the colour of its kind; `docs/debug.md` lists them.
    pub fn colored_name(&self) -> String {
        kernel::colored_name(&self.ast)
    }
}

/// Returns true if a range is an output axis that no Opt has given another kind.
pub(crate) fn is_output(r: &UOp) -> bool {
    matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop)
}
