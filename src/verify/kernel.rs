//! A kernel: a sink of stores, whose values are expressions over ranges, loads and reduces. It
//! holds from the scheduler to the last pass before the list is made, so what those passes bring in
//! (launch dimensions, local memory, accumulators, vectors) may stand here too.

use super::{
    Verdict, broken, elementwise, index, lanes, literal, memory, rule, shuffle, special, variable,
    wmma,
};
use crate::dtype::DType;
use crate::ir::typed::Store;
use crate::ir::{Arg, AxisKind, Op, UOp};
use rustc_hash::FxHashMap;

const INDICES: &[DType] = &[DType::INDEX, DType::I32, DType::I64];

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
    rule(
        matches!(root.arg(), Arg::None | Arg::ThreadOrder(_)),
        "the sink of a kernel has no payload but the order of its threads",
        root,
    )?;
    for s in root.src() {
        rule(
            matches!(s.op(), Op::Store | Op::EndRange | Op::Barrier),
            "the sink of a kernel gathers stores",
            s,
        )?;
    }
    let mut ranges: FxHashMap<u32, UOp> = FxHashMap::default();
    let mut slots: FxHashMap<usize, UOp> = FxHashMap::default();
    let mut locals: FxHashMap<u32, UOp> = FxHashMap::default();
    for u in root.toposort() {
        rule(u.op() != Op::Sink || u == *root, "only the root is a sink", &u)?;
        rule(
            u.op().takes(u.src().len()),
            "an op takes as many operands as its line in the table has",
            &u,
        )?;
        node(&u)?;
        let first = match u.arg() {
            Arg::Range { id, .. } => ranges.insert(*id, u.clone()).is_none(),
            Arg::Global { slot, .. } => slots.insert(*slot, u.clone()).is_none(),
            Arg::Shared { id, .. } => locals.insert(*id, u.clone()).is_none(),
            _ => true,
        };
        rule(first, "a number belongs to one range, one slot or one local memory", &u)?;
    }
    if let Arg::ThreadOrder(order) = root.arg() {
        let is_thread = |u: &&UOp| u.range_kind().is_workgroup();
        let mut threads: Vec<u32> = ranges.values().filter(is_thread).map(UOp::range_id).collect();
        let mut listed = order.to_vec();
        threads.sort_unstable();
        listed.sort_unstable();
        rule(listed == threads, "the order of threads has each range of threads once", root)?;
    }
    // Checked here, because a node does not know what closes its ranges.
    for Store { node: s, value, ranges, .. } in root.src().iter().filter_map(UOp::as_store) {
        let last = ranges.iter().rfind(|r| r.op() == Op::Range);
        let in_order = ranges.iter().filter_map(UOp::as_range).any(|r| r.kind == AxisKind::Ordered);
        let order = if in_order { value.toposort() } else { Vec::new() };
        let inner = order.iter().filter_map(UOp::as_scan).all(|s| s.ranges.first() == last);
        rule(inner, "the range of a scan is the innermost that its store closes", s)?;
    }
    for s in root.src() {
        if let Some(id) = s.ranges().iter().next() {
            return Err(broken(
                &format!(
                    "every range is closed by a store or a reduce above its users (range {id} is \
                     not)"
                ),
                s,
            ));
        }
    }
    Ok(())
}

fn node(u: &UOp) -> Verdict {
    let src = u.src();
    match u.op() {
        Op::Const => literal(u),
        Op::Var => variable(u),
        Op::Sink => Ok(()),
        Op::DefineGlobal | Op::DefineShared => memory(u),
        Op::Special => special(u),
        Op::Range => {
            rule(matches!(u.arg(), Arg::Range { .. }), "a range has a number and a kind", u)?;
            rule(
                INDICES.contains(&u.dtype()) && src[0].dtype() == u.dtype(),
                "a range counts in the integer dtype of its extent",
                u,
            )
        }
        Op::EndRange => rule(
            src[0].op() == Op::Range && u.dtype() == DType::VOID,
            "the end of a range names it",
            u,
        ),
        Op::Index => index(u, INDICES),
        Op::Load => {
            rule(src[0].op() == Op::Index, "a load is of an index", u)?;
            rule(
                u.dtype().scalar == src[0].dtype().scalar,
                "a load has the dtype of its buffer",
                u,
            )?;
            let alt = src.get(1).filter(|s| src[0].src().len() == 3 && s.dtype() != DType::VOID);
            rule(
                alt.is_none_or(|a| a.dtype() == u.dtype()),
                "what a load gives where its index is not valid has its dtype",
                u,
            )
        }
        Op::Store => {
            rule(
                src[0].op() == Op::Index && u.dtype() == DType::VOID,
                "a store is to an index and has no value",
                u,
            )?;
            rule(
                src[1].dtype().scalar == src[0].dtype().scalar,
                "a stored value has the dtype of its buffer",
                u,
            )?;
            rule(
                src[2..].iter().all(|r| r.op() == Op::Range || r.dtype() == DType::VOID),
                "a store closes ranges",
                u,
            )
        }
        Op::Reduce => {
            let Arg::Reduce { axes, .. } = u.arg() else {
                return Err(broken("a reduce has a fold", u));
            };
            rule(axes.is_empty(), "a reduce of a kernel has ranges and no axes", u)?;
            let fits = u.dtype().scalar == src[0].dtype().scalar
                && src[0].dtype().lanes.is_multiple_of(u.dtype().lanes);
            rule(fits && u.dtype() != DType::VOID, "a reduce keeps the dtype", u)?;
            let fits = |r: &UOp| {
                if r.op() == Op::Range {
                    r.range_kind().is_reduce()
                } else {
                    r.dtype() == src[0].dtype()
                }
            };
            rule(
                src[1..].iter().all(fits),
                "a reduce is over ranges of a reduce kind, and what else it folds at each step \
                 has its dtype",
                u,
            )
        }
        Op::Scan => {
            let Arg::Reduce { axes, .. } = u.arg() else {
                return Err(broken("a scan has a fold", u));
            };
            let along =
                matches!(src, [_, r] if r.op() == Op::Range && r.range_kind() == AxisKind::Ordered);
            rule(axes.is_empty() && along, "a scan of a kernel is along one ordered range", u)?;
            rule(
                u.dtype() == src[0].dtype() && u.dtype() != DType::VOID,
                "a scan keeps the dtype",
                u,
            )
        }
        Op::DefineAcc => {
            rule(matches!(u.arg(), Arg::Acc(_)), "an accumulator has a number", u)?;
            rule(
                src[0].dtype() == u.dtype() && u.dtype() != DType::VOID,
                "an accumulator has the dtype of its first value",
                u,
            )
        }
        Op::Assign => {
            rule(src[0].op() == Op::DefineAcc, "an assignment is to an accumulator", u)?;
            rule(
                src.iter().all(|s| s.dtype() == u.dtype()),
                "an assigned value has the dtype of its accumulator",
                u,
            )
        }
        Op::Barrier => rule(u.dtype() == DType::VOID, "a barrier has no value", u),
        Op::Vectorize | Op::Gep => lanes(u),
        Op::Wmma => wmma(u),
        Op::Shuffle => shuffle(u),
        Op::Detach => Err(broken("the op does not stand in a kernel", u)),
        op if op.is_alu() => elementwise(u),
        _ => Err(broken("the op does not stand in a kernel", u)),
    }
}
