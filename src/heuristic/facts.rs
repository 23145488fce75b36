//! Facts about a kernel, derived once from its graph and passed to the policies.

use crate::ir::{Op, UOp};
use crate::kernel::{self, Access, extent};
use crate::opt::Kernel;
use std::cell::OnceCell;

/// A kernel with the facts that several policies use.
pub(super) struct KernelFacts {
    pub kernel: Kernel,
    /// The axes, in the order of [`Kernel::axes`].
    pub axes: Vec<UOp>,
    /// The reductions, operands first.
    pub reduces: Vec<UOp>,
    /// The reduction with the most iterations.
    pub main: Option<UOp>,
    accesses: OnceCell<Vec<Access>>,
}

impl KernelFacts {
    pub fn of(kernel: &Kernel) -> KernelFacts {
        let order = kernel.ast.toposort().into_iter();
        let reduces: Vec<UOp> = order.filter(|u| u.op() == Op::Reduce).collect();
        KernelFacts {
            kernel: kernel.clone(),
            axes: kernel.axes(),
            main: reduces.iter().max_by_key(|u| iterations(u)).cloned(),
            reduces,
            accesses: OnceCell::new(),
        }
    }

    /// Returns the loads and stores.
    pub fn accesses(&self) -> &[Access] {
        self.accesses.get_or_init(|| kernel::accesses(&self.kernel.ast).0)
    }
}

/// Returns the iterations of a reduction.
pub(super) fn iterations(reduce: &UOp) -> usize {
    reduce.closed_ranges().iter().map(extent).fold(1, usize::saturating_mul)
}
