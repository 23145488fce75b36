//! The pattern of a matrix product, which the strategies of CPUs and GPUs share.

use super::facts::KernelFacts;
use super::{argument, unit_stride_output};
use crate::ir::typed::Reduce;
use crate::ir::{Fold, Op, UOp};
use crate::kernel::extent;
use crate::opt::is_output;

/// A sum of products of two loads, of which one does not depend on the rows of the output and the
/// other not on its columns.
pub(super) struct MatmulPattern {
    /// The output axis with unit stride.
    pub column: UOp,
    /// The longest output axis that the load of the columns does not depend on.
    pub row: UOp,
    /// The reduction axis.
    pub inner: UOp,
    /// The load that depends on the row.
    pub left: UOp,
    /// The load that depends on the column.
    pub right: UOp,
}

impl MatmulPattern {
    pub fn of(facts: &KernelFacts) -> Option<MatmulPattern> {
        let [main] = facts.reduces.as_slice() else { return None };
        let Reduce { body, ranges: [inner], fold: Fold::Add, .. } = main.as_reduce()? else {
            return None;
        };
        let order = body.toposort();
        let loads: Vec<&UOp> = order.iter().filter(|u| u.op() == Op::Load).collect();
        let [a, b] = loads.as_slice() else { return None };
        // Masks are those of convolutions, which have other shapes.
        let is_masked = |l: &UOp| l.expect_load().place.mask.is_some();
        if loads.iter().any(|l| is_masked(l) || !l.uses_range(inner.range_id()))
            || argument(a) == argument(b)
        {
            return None;
        }
        let axes = &facts.axes;
        let column = axes[unit_stride_output(&facts.kernel)?].clone();
        let (left, right) = match (a.uses_range(column.range_id()), b.uses_range(column.range_id()))
        {
            (false, true) => (a, b),
            (true, false) => (b, a),
            _ => return None,
        };
        let is_row = |r: &&UOp| {
            is_output(r) && left.uses_range(r.range_id()) && !right.uses_range(r.range_id())
        };
        let row = axes.iter().filter(is_row).max_by_key(|r| extent(r))?.clone();
        Some(MatmulPattern {
            column,
            row,
            inner: inner.clone(),
            left: (*left).clone(),
            right: (*right).clone(),
        })
    }
}
