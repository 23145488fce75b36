//! `SWAP` and `PADTO`: the order and the extents of loops.

use super::apply::{Applied, OptRequest};
use super::is_output;
use crate::ir::{AxisKind, Src, UOp};
use crate::kernel::{extent, is_symbolic, pad_range};

/// Maximum factor by which padding extends an axis. Structural: it bounds the wasted work of any
/// list; what pays off is in `Tuning`.
const MAX_PADDING: usize = 4;

/// Applies `SWAP`.
pub(super) fn swap(q: &OptRequest) -> Applied {
    let r = q.axis()?;
    let Some(other) = q.axes.get(q.opt.amount) else {
        return Err(format!("there is no axis {}; the kernel has {}", q.opt.amount, q.axes.len()));
    };
    if !is_output(r) || other.range_kind() != r.range_kind() || other == r {
        return Err("only two different output loops of one kind can be interchanged".into());
    }
    Ok(interchanged(&q.kernel.ast, r, other))
}

fn interchanged(ast: &UOp, a: &UOp, b: &UOp) -> UOp {
    let other = |r: &UOp| match r {
        r if r == a => b.clone(),
        r if r == b => a.clone(),
        r => r.clone(),
    };
    let of_store = |s: &UOp| {
        let (values, ranges) = s.values_and_ranges();
        s.with_src(values.iter().cloned().chain(ranges.iter().map(other)).collect::<Src>())
    };
    ast.with_src(ast.src().iter().map(of_store).collect::<Src>())
}

/// Applies `PADTO`.
pub(super) fn pad_to(q: &OptRequest) -> Applied {
    let r = q.axis()?;
    let is_loop = is_output(r) || r.range_kind() == AxisKind::Reduce;
    q.check_kind(is_loop, "an output or reduction axis")?;
    q.check_inner(r)?;
    let size = extent(r);
    let amount = if q.opt.amount == 0 { size } else { q.opt.amount };
    if amount < 2 || (size.is_multiple_of(amount) && !is_symbolic(r)) {
        return Err(format!("the axis of {size} needs no padding to a multiple of {amount}"));
    }
    let padded = size.div_ceil(amount) * amount;
    if padded > size * MAX_PADDING {
        return Err(format!(
            "padding the axis of {size} to {padded} exceeds a factor of {MAX_PADDING}"
        ));
    }
    Ok(pad_range(&q.kernel.ast, r, padded))
}
