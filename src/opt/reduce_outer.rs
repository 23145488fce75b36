//! `REDUCE_OUTER`: a reduction loop is moved outside an output loop. Its accumulators are carried
//! through memory: each iteration of the loop continues with the values of the one before. The
//! terms are combined in the same order, so no bit of a result changes.
//!
//! The range of the loop is listed by the stores, at its place in the nest; the pass
//! `carry_accumulators` of lowering builds the loads and stores of the accumulators.
//!
//! ```text
//! REDUCE_OUTER:2:1    store(out[n, m], reduce(x) closes k, j) closes n, m
//!                 ->  store(out[n, m], reduce(x) closes k, j) closes n, k, m
//! ```

use super::apply::{Applied, OptRequest};
use super::is_output;
use crate::dtype::DType;
use crate::ir::{AxisKind, Op, Src, UOp, toposort};
use crate::kernel::{outer_reduce, reductions_over};

/// Applies `REDUCE_OUTER`.
pub(super) fn reduce_outer(q: &OptRequest) -> Applied {
    q.check_unordered()?;
    if q.target.grid {
        return Err("the loops of a target with workgroups have no order".into());
    }
    let (ast, r) = (&q.kernel.ast, q.constant_axis()?);
    q.check_kind(r.range_kind() == AxisKind::Reduce, "a reduction axis")?;
    if outer_reduce(ast).is_some() {
        return Err("another reduction loop is outside output loops already".into());
    }
    let Some(other) = q.axes.get(q.opt.amount) else {
        return Err(format!("there is no axis {}; the kernel has {}", q.opt.amount, q.axes.len()));
    };
    if !is_output(other) {
        return Err(format!("axis {} is not an output loop", q.opt.amount));
    }
    let order = ast.toposort();
    let reductions = reductions_over(&order, r);
    check_reductions(ast, &order, &reductions)?;
    let depends = |s: &UOp| {
        let nodes = s.toposort();
        reductions.iter().any(|u| nodes.contains(u))
    };
    if ast.src().iter().any(|s| depends(s) && !s.closed_ranges().contains(other)) {
        return Err(format!("axis {} is not a loop of every result", q.opt.amount));
    }
    let with_loop = |s: &UOp| {
        let both = |x: &UOp| if x == other { vec![r.clone(), x.clone()] } else { vec![x.clone()] };
        let (values, ranges) = s.values_and_ranges();
        s.with_src(values.iter().cloned().chain(ranges.iter().flat_map(both)).collect::<Src>())
    };
    Ok(ast.with_src(ast.src().iter().map(with_loop).collect::<Src>()))
}

/// Checks that the accumulators of reductions can be carried through memory.
fn check_reductions(ast: &UOp, order: &[UOp], reductions: &[&UOp]) -> Result<(), String> {
    let outputs = || ast.src().iter().flat_map(|s| s.closed_ranges());
    let places = order.iter().filter_map(UOp::as_index);
    let indices = toposort(places.flat_map(|p| std::iter::once(p.index).chain(p.mask)));
    for u in reductions {
        let inner = u.expect_reduce().values().cloned().collect::<Vec<_>>();
        if toposort(&inner).iter().any(|x| reductions.contains(&x)) {
            return Err("a reduction over the loop depends on another one".into());
        }
        let is_output = |id: u32| outputs().any(|r| r.range_id() == id);
        if u.ranges().iter().any(|id| !is_output(id)) {
            return Err("the reduction is inside another one".into());
        }
        if indices.contains(u) {
            return Err("an index depends on the reduction".into());
        }
        let wide = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64];
        if !wide.contains(&u.dtype()) {
            return Err(format!("an accumulator of {} is not carried through memory", u.dtype()));
        }
    }
    if order.iter().any(|u| u.op() == Op::Reduce && !reductions.contains(&u)) {
        return Err("the kernel has a reduction over other loops".into());
    }
    match order.iter().any(|u| u.op() == Op::Scan) {
        true => Err("the kernel has a scan".into()),
        false => Ok(()),
    }
}
