//! The verifier of kernels. A kernel is a sink of stores, whose values are expressions over ranges,
//! loads and reductions. The rules hold from the scheduler to the last pass before `linearize`;
//! nodes that these passes introduce (launch dimensions, shared memory, accumulators, vectors) are
//! therefore allowed.

use super::{Verdict, broken, common, declared, rule};
use crate::dtype::DType;
use crate::ir::typed::{Load, Reduce, Scan, Store};
use crate::ir::{Arg, AxisKind, Group, Op, UOp};
use rustc_hash::FxHashSet;

/// Checks a kernel.
pub fn kernel(root: &UOp) -> Result<(), String> {
    check(root).map_err(|e| format!("kernel: {e}"))
}

fn check(root: &UOp) -> Verdict {
    rule(
        root.op() == Op::Sink && root.dtype() == DType::VOID,
        "the root of a kernel is a sink",
        root,
    )?;
    for s in root.src() {
        rule(s.op().is(Group::Effect), "the operands of the sink of a kernel are stores", s)?;
    }
    let mut numbers: FxHashSet<(Op, usize)> = FxHashSet::default();
    for u in root.toposort() {
        rule(u.op() != Op::Sink || u == *root, "only the root is a sink", &u)?;
        declared(&u)?;
        node(&u)?;
        let number = match u.arg() {
            Arg::Range { id, .. } | Arg::Shared { id, .. } => Some(*id as usize),
            Arg::Global { slot, .. } => Some(*slot),
            _ => None,
        };
        rule(
            number.is_none_or(|n| numbers.insert((u.op(), n))),
            "a number belongs to one range, one slot or one shared memory",
            &u,
        )?;
    }
    thread_order(root)?;
    // Not a rule of the scan itself, which does not know the store that closes its range.
    for Store { node: s, value, ranges, .. } in root.src().iter().filter_map(UOp::as_store) {
        let last = ranges.iter().rfind(|r| r.op() == Op::Range);
        let in_order = ranges.iter().filter_map(UOp::as_range).any(|r| r.kind == AxisKind::Ordered);
        let order = if in_order { value.toposort() } else { Vec::new() };
        let inner = order.iter().filter_map(UOp::as_scan).all(|s| s.ranges.first() == last);
        rule(inner, "the range of a scan is the innermost that its store closes", s)?;
    }
    for s in root.src() {
        if let Some(id) = s.ranges().iter().next() {
            let rule = format!(
                "every range is closed by a store or a reduction above its users (range {id} is \
                 not)"
            );
            return Err(broken(&rule, s));
        }
    }
    Ok(())
}

/// Checks that an order of threads has each range of threads once.
fn thread_order(root: &UOp) -> Verdict {
    let Arg::ThreadOrder(order) = root.arg() else { return Ok(()) };
    let ranges = root.toposort();
    let ranges = ranges.iter().filter_map(UOp::as_range);
    let mut threads: Vec<u32> = ranges.filter(|r| r.kind.is_workgroup()).map(|r| r.id).collect();
    let mut listed = order.to_vec();
    threads.sort_unstable();
    listed.sort_unstable();
    rule(listed == threads, "the order of threads has each range of threads once", root)
}

fn node(u: &UOp) -> Verdict {
    match u.op() {
        Op::Sink => Ok(()),
        Op::Reduce => reduction(u, &u.expect_reduce()),
        Op::Scan => scan(u, &u.expect_scan()),
        Op::Barrier => rule(u.dtype() == DType::VOID, "a barrier has no value", u),
        Op::EndRange => {
            common(u)?;
            rule(u.dtype() == DType::VOID, "the end of a loop has no value", u)
        }
        Op::Load => {
            common(u)?;
            let Load { place, alt, .. } = u.expect_load();
            let fits = place.mask.is_none() || alt.is_none_or(|a| a.dtype() == u.dtype());
            rule(fits, "the alternative value of a masked load has its dtype", u)
        }
        Op::Store => {
            common(u)?;
            rule(u.dtype() == DType::VOID, "a store has no value", u)?;
            let closes = |r: &UOp| r.op() == Op::Range || r.dtype() == DType::VOID;
            rule(u.expect_store().ranges.iter().all(closes), "a store closes ranges", u)
        }
        _ => common(u),
    }
}

fn reduction(u: &UOp, r: &Reduce<'_>) -> Verdict {
    rule(r.axes.is_empty(), "a reduction of a kernel has ranges and no axes", u)?;
    let (dtype, body) = (u.dtype(), r.body.dtype());
    let fits = dtype.scalar == body.scalar && body.lanes.is_multiple_of(dtype.lanes);
    rule(fits && dtype != DType::VOID, "a reduction keeps the dtype", u)?;
    let fits = |s: &UOp| match s.as_range() {
        Some(range) => range.kind.is_reduce(),
        None => s.dtype() == body,
    };
    rule(
        r.ranges.iter().all(fits),
        "a reduction is over ranges of a reduction kind, and further values have its dtype",
        u,
    )
}

fn scan(u: &UOp, s: &Scan<'_>) -> Verdict {
    let along =
        matches!(s.ranges, [r] if r.as_range().is_some_and(|r| r.kind == AxisKind::Ordered));
    rule(s.axes.is_empty() && along, "a scan of a kernel is along one ordered range", u)?;
    rule(u.dtype() == s.body.dtype() && u.dtype() != DType::VOID, "a scan keeps the dtype", u)
}
