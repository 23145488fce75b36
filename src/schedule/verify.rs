//! The verifier of stores over ranges, before they are kernels. `build_kernels` makes a kernel of
//! each group, which the verifier of kernels checks in full.
//!
//! **Invariant:** a store is computed in loops of its own, from scalar ops, reductions and loads of
//! buffers of the plan, and is inside its buffer.

use super::passes::State;
use crate::ir::{Group, Op, UOp, toposort};

/// Checks the stores of all groups, or before `fuse` those of all values.
pub(super) fn ranged(s: &State) -> Result<(), String> {
    let check = |buffer: usize, ranges: &[UOp], [index, value]: [&UOp; 2], mask: Option<&UOp>| {
        let parts = || [index, value].into_iter().chain(mask);
        expressions(s, parts()).and_then(|()| loops(parts(), ranges))?;
        let len = s.buffers.get(buffer).and_then(Option::as_ref).map_or(0, |b| b.len);
        let inside = index.vmin() >= 0 && index.vmax() < len as i128;
        rule(inside, "the index of a store is inside its buffer", index)
    };
    if s.groups.is_empty() {
        let mut stored = s.ranged.stored.iter();
        return stored
            .try_for_each(|s| check(s.buffer, &s.ranges, [&s.index, &s.value], s.update.as_ref()));
    }
    let mut stores = s.groups.iter().flat_map(|g| g.stores.iter().map(move |store| (g, store)));
    stores
        .try_for_each(|(g, s)| check(s.buffer, &g.ranges, [&s.index, &s.value], g.update.as_ref()))
}

/// Checks the nodes of expressions.
fn expressions<'a>(s: &State, parts: impl Iterator<Item = &'a UOp>) -> Result<(), String> {
    for u in toposort(parts) {
        let is_scalar = matches!(u.op(), Op::Const | Op::Var | Op::Range | Op::Index | Op::Load)
            || u.op().is_alu();
        match (u.as_param(), u.op()) {
            (Some(param), _) => {
                let known = s.buffers.get(param.slot).is_some_and(Option::is_some);
                rule(known, "a load reads a buffer of the plan", &u)?;
            }
            (None, Op::Reduce) => {
                let over_ranges = u.expect_reduce().axes.is_empty();
                rule(over_ranges, "a reduction is over ranges", &u)?;
            }
            (None, Op::Scan) => {
                rule(u.expect_scan().axes.is_empty(), "a scan is over a range", &u)?;
            }
            _ => {
                let fits = is_scalar && !u.op().is(Group::Mark);
                rule(fits, "the op is not allowed in stores over ranges", &u)?;
            }
        }
    }
    Ok(())
}

/// Checks that the open ranges of expressions are loops of their store.
fn loops<'a>(mut parts: impl Iterator<Item = &'a UOp>, ranges: &[UOp]) -> Result<(), String> {
    let is_loop = |id: u32| ranges.iter().any(|r| r.range_id() == id);
    parts.try_for_each(|u| {
        rule(u.ranges().iter().all(is_loop), "every open range is a loop of the store", u)
    })
}

fn rule(holds: bool, text: &str, u: &UOp) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("stores over ranges: {text}: {u:?}")) }
}
