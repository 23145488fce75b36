//! Applies one Opt to a kernel: the checks that all Opts share. What each Opt does is in the file
//! of its family; `table.rs` names the function.

use super::{Kernel, Opt, OptOp};
use crate::error::{Error, Result};
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel::{accumulator_bytes, extent, is_of_chunk, is_symbolic, outer_reduce, tiles};
use crate::target::Target;

/// Maximum number of rounds through shared memory of a shared reduction. Structural: it follows
/// from `GpuTuning::reduce_round` and from workgroups of up to 1024 threads, of which the longest
/// case are 729 partial results, combined three at a time.
const ROUNDS: usize = 5;

/// The kernel graph after an Opt, or the reason why the Opt does not apply.
pub(super) type Applied = std::result::Result<UOp, String>;

/// An Opt that is to be applied to a kernel.
pub(super) struct OptRequest<'a> {
    pub kernel: &'a Kernel,
    pub opt: Opt,
    pub axes: Vec<UOp>,
    pub target: &'a Target,
}

impl OptRequest<'_> {
    /// Returns the axis of the Opt.
    pub fn axis(&self) -> std::result::Result<&UOp, String> {
        let (axis, count) = (self.opt.axis, self.axes.len());
        self.axes
            .get(axis)
            .ok_or_else(|| format!("there is no axis {axis}; the kernel has {count}"))
    }

    /// Returns the axis of the Opt, whose extent must be constant.
    pub fn constant_axis(&self) -> std::result::Result<&UOp, String> {
        let r = self.axis()?;
        if is_symbolic(r) { Err(self.symbolic(r)) } else { Ok(r) }
    }

    /// Returns the axis of the Opt in a kernel none of whose extents depends on a variable.
    pub fn axis_of_constants(&self) -> std::result::Result<&UOp, String> {
        let r = self.axis()?;
        match self.axes.iter().find(|a| is_symbolic(a) && !is_of_chunk(a)) {
            Some(symbolic) => Err(self.symbolic(symbolic)),
            None => Ok(r),
        }
    }

    fn symbolic(&self, r: &UOp) -> String {
        if is_of_chunk(r) {
            return "an axis whose last chunk is shorter cannot be split; THREAD goes after".into();
        }
        let bound = extent(r);
        format!("a symbolic axis cannot be split; PADTO pads it to its upper bound of {bound}")
    }

    /// Checks the kind of the axis.
    pub fn check_kind(&self, fits: bool, wanted: &str) -> std::result::Result<(), String> {
        let kind = self.axis()?.range_kind();
        match fits {
            true => Ok(()),
            false => Err(format!("axis {} is of kind {kind:?}, not {wanted}", self.opt.axis)),
        }
    }

    /// Returns the amount, 0 standing for the whole axis; it must divide the axis.
    pub fn divisor(&self) -> std::result::Result<usize, String> {
        let size = extent(self.axis()?);
        let amount = if self.opt.amount == 0 { size } else { self.opt.amount };
        if amount < 2 || !size.is_multiple_of(amount) {
            return Err(format!("an amount of {amount} does not divide the axis of {size}"));
        }
        Ok(amount)
    }

    /// Refuses the reduction loop that `REDUCE_OUTER` has moved.
    pub fn check_inner(&self, r: &UOp) -> std::result::Result<(), String> {
        match outer_reduce(&self.kernel.ast).as_ref() == Some(r) {
            true => Err(format!(
                "axis {} is outside output loops; SPLIT, UNROLL and PADTO go before REDUCE_OUTER",
                self.opt.axis
            )),
            false => Ok(()),
        }
    }

    /// Refuses kernels whose updates of memory must run in order.
    pub fn check_unordered(&self) -> std::result::Result<(), String> {
        let ordered = self.axes.iter().any(|r| r.range_kind() == AxisKind::Ordered);
        if ordered || self.kernel.has_indexed_store() {
            return Err("the kernel updates memory in order, so nothing in it is staged, stored \
                        for reuse or shared between threads"
                .into());
        }
        Ok(())
    }

    /// Returns the number of threads in a workgroup so far.
    pub fn threads(&self) -> usize {
        threads(&self.axes)
    }
}

fn threads(axes: &[UOp]) -> usize {
    axes.iter().filter(|r| r.range_kind().is_workgroup()).map(extent).product()
}

impl Kernel {
    /// Applies an Opt. One that does not apply is an error with the reason.
    pub fn apply(&self, opt: &Opt, target: &Target) -> Result<Kernel> {
        let refuse = |msg: String| Error::Opt { opt: opt.to_string(), msg };
        if let Some(last) = self.opts.iter().find(|o| o.op.is_last())
            && !opt.op.is_last()
        {
            let name = last.op.name();
            return Err(refuse(format!(
                "no other Opt may follow {name}: VECTORIZE and ORDER come last"
            )));
        }
        if self.has(OptOp::Reuse) && !opt.op.is_last() {
            let msg = "REUSE depends on how other Opts split the axes, so no other Opt may follow \
                       it but VECTORIZE";
            return Err(refuse(msg.into()));
        }
        let request = OptRequest { kernel: self, opt: *opt, axes: self.axes(), target };
        let ast = opt.op.function()(&request).map_err(refuse)?;
        let mut opts = self.opts.clone();
        opts.push(*opt);
        let next = Kernel { ast, opts };
        match next.shared_bytes(target) {
            Ok(bytes) if bytes <= target.shared_bytes => Ok(next),
            Ok(bytes) => Err(refuse(format!(
                "shared memory of {} bytes is too small for {bytes} bytes",
                target.shared_bytes
            ))),
            Err(msg) => Err(refuse(msg)),
        }
    }

    /// Applies Opts in order.
    pub fn apply_all(&self, opts: &[Opt], target: &Target) -> Result<Kernel> {
        opts.iter().try_fold(self.clone(), |k, o| k.apply(o, target))
    }

    /// Returns the bytes of shared memory that the kernel takes, or the reason why it cannot be
    /// built: tiles of staged loads, values stored for reuse, and a part for each thread and each
    /// copy of a shared reduction, in each round.
    fn shared_bytes(&self, target: &Target) -> std::result::Result<usize, String> {
        let mut total = accumulator_bytes(&self.ast)?;
        if self.has(OptOp::Stage) {
            let bytes = tiles(&self.ast, target)?.iter().map(|t| t.bytes()).collect::<Vec<_>>();
            total = bytes.into_iter().fold(total, usize::saturating_add);
        }
        if self.has(OptOp::Reuse) {
            let of = |u: &UOp| match u.arg() {
                Arg::Shared { len, .. } => len.saturating_mul(u.dtype().itemsize()),
                _ => 0,
            };
            total = self.ast.toposort().iter().map(of).fold(total, usize::saturating_add);
        }
        let axes = self.axes();
        let groups: Vec<&UOp> = axes.iter().filter(|a| a.range_kind() == AxisKind::Group).collect();
        if groups.is_empty() {
            return Ok(total);
        }
        let threads = threads(&axes);
        let bytes = |u: &UOp| {
            let copies: usize = axes
                .iter()
                .filter(|a| a.range_kind() == AxisKind::Upcast && u.uses_range(a.range_id()))
                .map(extent)
                .product();
            ROUNDS * u.dtype().itemsize().max(4) * threads * copies
        };
        let shared = |u: &&UOp| {
            u.op() == Op::Reduce && u.closed_ranges().iter().any(|r| groups.contains(&r))
        };
        Ok(self.ast.toposort().iter().filter(shared).map(bytes).fold(total, usize::saturating_add))
    }
}
