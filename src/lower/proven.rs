//! Custom kernels. Input: an unoptimized kernel. Output: the same kernel, in which the mask of each
//! load and store implies that the access is inside its buffer, or the reason why it is rejected.
//!
//! **Invariant:** the proof uses the access alone: its index and its mask, not an enclosing
//! condition. Splitting a range makes some masks literal and drops them, and drops the conditional
//! around an unrolled reduction. An implication holds for every value of the ranges, so it also
//! holds for each of the copies.
//!
//! ```text
//! table[data[r]] where r != 0                    ; the mask does not bound data[r]
//! =>
//! table[data[r]] where r != 0 and data[r] >= 0 and data[r] < 4
//! ```

use super::{lower, mask_bounds};
use crate::ir::{AxisKind, IdSet, Op, UOp};
use crate::kernel::outer_reduce;
use crate::target::Target;
use crate::verify;

/// Adds the bounds of each buffer to the masks of its loads, or returns the reason why the kernel
/// could fault or leave its buffers.
pub fn proven(ast: &UOp) -> Result<UOp, String> {
    check_unoptimized(ast)?;
    ast.toposort().iter().filter(|u| u.op() == Op::Range).try_for_each(range)?;
    indices_are_inputs(ast)?;
    let ast = mask_bounds::mask_bounds(ast);
    verify::kernel_in_bounds(&ast)?;
    let plain = lower(&ast, &Target::interp(), &mut |_, _| {});
    verify::program(&plain.uops).and_then(|()| verify::in_bounds(&plain.uops))?;
    Ok(ast)
}

/// Checks that a kernel is well formed and has no node that only Opts and lowering make.
pub fn check_unoptimized(ast: &UOp) -> Result<(), String> {
    verify::kernel(ast)?;
    if let Some(r) = outer_reduce(ast) {
        return Err(format!("the range of a reduction is not one that a store closes: {r:?}"));
    }
    ast.toposort().iter().try_for_each(node)
}

/// Checks that a node is one that the scheduler makes. Opts and lowering introduce the others, and
/// prove their preconditions: that the divisor of a `CDiv` is not zero, that all threads reach a
/// barrier.
fn node(u: &UOp) -> Result<(), String> {
    let known = matches!(
        u.op(),
        Op::Const
            | Op::Var
            | Op::DefineGlobal
            | Op::Range
            | Op::Index
            | Op::Load
            | Op::Store
            | Op::Reduce
            | Op::Scan
            | Op::Sink
    );
    if !(known || u.op().is_alu()) || matches!(u.op(), Op::CDiv | Op::CMod) || u.dtype().lanes != 1
    {
        return Err(format!("{:?} is not allowed in an unoptimized kernel: {u:?}", u.op()));
    }
    if u.as_load().is_some_and(|load| load.place.mask.is_some() && load.alt.is_none()) {
        return Err(format!(
            "a masked load needs an alternative value for where the mask is false: {u:?}"
        ));
    }
    Ok(())
}

/// Checks that a range is one that the scheduler makes: no thread or lane, and of an extent that is
/// known at the launch.
fn range(u: &UOp) -> Result<(), String> {
    if !matches!(
        u.range_kind(),
        AxisKind::Global | AxisKind::Loop | AxisKind::Ordered | AxisKind::Reduce
    ) {
        return Err(format!(
            "a range of the kind {:?} is not allowed in an unoptimized kernel: {u:?}",
            u.range_kind()
        ));
    }
    let computed = |x: &UOp| matches!(x.op(), Op::Load | Op::Reduce | Op::Scan | Op::Range);
    if u.expect_range().extent.toposort().iter().any(computed) {
        return Err(format!(
            "expected a range whose extent is a literal or computed from variables: {u:?}"
        ));
    }
    Ok(())
}

/// Checks that indices and masks are not computed from buffers that the kernel stores to. Otherwise
/// a store of another thread could change an index after its mask was tested.
fn indices_are_inputs(ast: &UOp) -> Result<(), String> {
    let stored: Vec<&UOp> =
        ast.src().iter().filter_map(|s| s.as_store().map(|store| store.place.buffer)).collect();
    // Nodes that depend on a load from a buffer that is stored to. Operands come before users.
    let mut changing = IdSet::default();
    for u in ast.toposort() {
        let loads = u.as_load().is_some_and(|load| stored.contains(&load.place.buffer));
        let is_changing = |s: &UOp| changing.has(s.id());
        if u.as_index().is_some_and(|at| is_changing(at.index) || at.mask.is_some_and(is_changing))
        {
            return Err(format!(
                "an index or a mask is computed from a buffer that the kernel stores to: {u:?}"
            ));
        }
        if loads || u.src().iter().any(is_changing) {
            changing.insert(u.id());
        }
    }
    Ok(())
}
