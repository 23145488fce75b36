//! Sums over the rows of a matrix in memory, such as a vector times a matrix of weights `[in, out]`
//! or the sum of columns. Every element is read once, and a chunk of a row is contiguous. So the
//! rows are read in order, and a few of them at a time are added to results that stay in the L1
//! cache (axpy form).
//!
//! ```text
//! y[n] = sum x[k] * w[k, n]  ->  for k by 8 { for n by 64 { y[n] += x[k] * w[k, n] + ... } }
//! ```

use super::super::facts::KernelFacts;
use super::super::{power_of_two_divisor, unit_stride_output};
use super::chunks::chunks;
use crate::ir::typed::Reduce;
use crate::ir::{Op, UOp};
use crate::kernel::{extent, is_symbolic, stride};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Returns the kernel whose reduction loop over rows is outside the loop over columns.
pub(super) fn row_sums(facts: &KernelFacts, target: &Target) -> Option<Kernel> {
    let (tuning, lanes) = (&target.tuning.cpu, target.vector_bytes / 4);
    let [main] = facts.reduces.as_slice() else { return None };
    let Reduce { body, ranges: [row], .. } = main.as_reduce()? else { return None };
    let column = &facts.axes[unit_stride_output(&facts.kernel)?];
    let alone = facts.axes.iter().filter(|r| is_output(r)).count() == 1;
    if !alone || !is_output(column) || is_symbolic(column) || is_symbolic(row) || lanes < 2 {
        return None;
    }
    if !reads_rows(body, row, column, target) {
        return None;
    }
    let width = power_of_two_divisor(extent(column), lanes * tuning.row_sum_vectors)?;
    let rows = power_of_two_divisor(extent(row), tuning.row_sum_rows)?;
    let most = extent(column) / tuning.row_sum_columns;
    if width < lanes || rows < 2 || extent(row) == rows || most < 2 {
        return None;
    }
    let mut k = facts.kernel.apply(&Opt::new(OptOp::Upcast, 0, width), target).ok()?;
    chunks(&mut k, most, target);
    let axis = k.axis_of(row)?;
    k = k.apply(&Opt::new(OptOp::Split, axis, rows), target).ok()?;
    k = k.apply(&Opt::new(OptOp::Unroll, axis + 1, rows), target).ok()?;
    let outer = k.axis_of(column)?;
    k.apply(&Opt::new(OptOp::ReduceOuter, k.axis_of(row)?, outer), target).ok()
}

/// Returns true if the loads that depend on the columns are contiguous along them, far apart from
/// row to row, and together do not fit in the L2 cache.
fn reads_rows(body: &UOp, row: &UOp, column: &UOp, target: &Target) -> bool {
    let order = body.toposort();
    let of_matrix = |u: &&UOp| {
        u.op() == Op::Load && u.uses_range(column.range_id()) && u.uses_range(row.range_id())
    };
    let loads: Vec<&UOp> = order.iter().filter(of_matrix).collect();
    let far = target.tuning.cpu.row_sum_columns as i64 / 2;
    let is_row = |u: &&UOp| {
        let masked = u.expect_load().place.mask.is_some();
        !masked && stride(u, column) == Some(1) && stride(u, row).is_some_and(|s| s.abs() >= far)
    };
    let bytes = |u: &&UOp| extent(row) * extent(column) * u.dtype().itemsize();
    !loads.is_empty()
        && loads.iter().all(is_row)
        && loads.iter().map(bytes).sum::<usize>() >= target.machine.cache_bytes[1]
}
