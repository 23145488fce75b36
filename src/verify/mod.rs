//! Verifiers: which ops, operands and payloads each stage allows, one file per stage, and a proof
//! that a program stays inside its buffers.
//!
//! A verifier takes the result of a pass. Its error names the rule that is broken and the node.
//! Verifiers run after every pass in tests and debug builds, and with `SPEC=1` in others. They read
//! structure and derived facts only, and change nothing.

mod accumulators;
mod bounds;
mod kernel;
mod program;
mod tensor;
#[cfg(test)]
mod tests;

pub use bounds::{in_bounds, is_proven_inside, kernel_in_bounds};
pub use kernel::kernel;
pub(crate) use program::structure;
pub use program::{linear, program};
pub use tensor::tensor;

use crate::dtype::{DType, Scalar};
use crate::ir::typed::{Assign, Index, Store, Where, Wmma};
use crate::ir::{Arg, AxisKind, Fragment, Group, Op, UOp};

/// Maximum number of threads of a warp.
const MAX_WARP: usize = 64;

/// The dtypes of indices and loop counters.
const INDICES: &[DType] = &[DType::INDEX, DType::I32, DType::I64];

/// The result of a verifier; the error names the broken rule and the node.
type Verdict = Result<(), String>;

/// Returns the error of a broken rule.
fn broken(rule: &str, u: &UOp) -> String {
    format!("violated rule: {rule}: {u:?}")
}

/// Fails with the rule and the node unless the rule holds.
fn rule(holds: bool, text: &str, u: &UOp) -> Verdict {
    if holds { Ok(()) } else { Err(broken(text, u)) }
}

/// Checks the number of operands and the kind of the payload against the table of ops. The other
/// rules rely on both.
fn declared(u: &UOp) -> Verdict {
    rule(
        u.op().takes(u.src().len()),
        "an op has the number of operands that the table of ops declares",
        u,
    )?;
    rule(u.arg().is_valid_for(u.op()), "an op has the payload that the table of ops declares", u)
}

/// Returns true if memory can hold elements of the dtype.
fn storable(dtype: DType) -> bool {
    dtype.lanes == 1 && !matches!(dtype.scalar, Scalar::Void | Scalar::Index)
}

/// Checks the dtypes of an elementwise op: of the operands, of the result, and that the op exists
/// for them.
fn elementwise(u: &UOp) -> Verdict {
    let (op, dtype, src) = (u.op(), u.dtype(), u.src());
    rule(
        dtype != DType::VOID && src.iter().all(|s| s.dtype().scalar != Scalar::Void),
        "an elementwise op computes on values",
        u,
    )?;
    rule(
        src.iter().all(|s| s.dtype().lanes == dtype.lanes),
        "operands have the number of lanes of the result",
        u,
    )?;
    // The last operand: the others may have another dtype, such as a condition.
    let on = src.last().map_or(dtype, UOp::dtype);
    match op {
        Op::Cast => return Ok(()),
        Op::Bitcast => return rule(on.bits() == dtype.bits(), "a bitcast keeps the width", u),
        Op::Where => {
            let Where { cond, x, y, .. } = u.expect_where();
            rule(cond.dtype().is_bool(), "the condition of a where is a bool", u)?;
            rule(
                x.dtype() == dtype && y.dtype() == dtype,
                "both values of a where have the dtype of the result",
                u,
            )?;
        }
        _ => {
            rule(src.iter().all(|s| s.dtype() == on), "operands have one dtype", u)?;
            if op.is(Group::Comparison) {
                rule(dtype.is_bool(), "the result of a comparison is a bool", u)?;
            } else {
                rule(on == dtype, "the result has the dtype of the operands", u)?;
            }
        }
    }
    takes_dtype(u, on)
}

/// Checks that the table of ops has the op for the dtype.
fn takes_dtype(u: &UOp, on: DType) -> Verdict {
    let takes = u.op().on();
    if takes.has(on) { Ok(()) } else { Err(broken(&format!("the op is for {}", takes.name()), u)) }
}

/// Checks a literal: its value is in the normal form of its dtype.
fn literal(u: &UOp) -> Verdict {
    let Some(l) = u.as_literal() else { return Err(broken("a literal has a value", u)) };
    rule(u.dtype() != DType::VOID, "a literal has a dtype", u)?;
    rule(l.value.normalize(u.dtype().scalar()) == l.value, "a literal is a value of its dtype", u)
}

/// Checks a variable without a value.
fn variable(u: &UOp) -> Verdict {
    let Arg::Var { min, max, .. } = u.arg() else {
        return Err(broken("a variable of a plan has no value", u));
    };
    let scalar = u.dtype().is_int() && u.dtype().lanes == 1;
    rule(scalar && bounds_of_variable(*min, *max), "a variable is an integer with bounds", u)
}

/// Returns true for the bounds that [`Variable`](crate::Variable) accepts: kernels read it as
/// `i32`.
fn bounds_of_variable(min: i64, max: i64) -> bool {
    0 <= min && min <= max && max <= i64::from(i32::MAX)
}

/// Checks the rules that kernels and programs share. Number of operands and payload are right.
fn common(u: &UOp) -> Verdict {
    match u.op() {
        Op::Const => literal(u),
        Op::Var => variable(u),
        Op::DefineGlobal | Op::DefineShared => {
            rule(storable(u.dtype()), "memory has the dtype of one element", u)
        }
        Op::Special => {
            let scalar = u.dtype().is_int() && u.dtype().lanes == 1;
            let dim = u.as_special().is_some_and(|s| s.dim < 3);
            rule(dim && scalar, "a special is an integer of dimension 0 to 2", u)
        }
        Op::Range => rule(
            INDICES.contains(&u.dtype()) && u.expect_range().extent.dtype() == u.dtype(),
            "a range counts in the integer dtype of its extent",
            u,
        ),
        Op::EndRange => rule(u.as_end_range().is_some(), "the end of a loop names its range", u),
        Op::Index => index(u),
        Op::Load => {
            let Some(load) = u.as_load() else { return Err(broken("a load reads an index", u)) };
            let fits = u.dtype().scalar == load.place.node.dtype().scalar;
            rule(fits, "a load has the dtype of its buffer", u)?;
            masked_lanes(u, load.place, u.dtype().lanes)
        }
        Op::Store => {
            let Some(Store { place, value, .. }) = u.as_store() else {
                return Err(broken("a store writes to an index", u));
            };
            let fits = value.dtype().scalar == place.node.dtype().scalar;
            rule(fits, "a stored value has the dtype of its buffer", u)?;
            masked_lanes(u, place, value.dtype().lanes)
        }
        Op::DefineAcc => rule(
            u.expect_define_acc().init.dtype() == u.dtype() && u.dtype() != DType::VOID,
            "an accumulator has the dtype of its initial value",
            u,
        ),
        Op::Assign => {
            let Assign { acc, value, .. } = u.expect_assign();
            rule(acc.op() == Op::DefineAcc, "an assignment is to an accumulator", u)?;
            let fits = acc.dtype() == u.dtype() && value.dtype() == u.dtype();
            rule(fits, "an assigned value has the dtype of its accumulator", u)
        }
        Op::Vectorize | Op::Gep => lanes(u),
        Op::Wmma => wmma(u),
        Op::Shuffle => shuffle(u),
        op if op.is_alu() && op != Op::Detach => elementwise(u),
        _ => Err(broken("the op is not allowed in this stage", u)),
    }
}

/// Checks a vector of scalars or of shorter vectors, or selected lanes of a vector.
fn lanes(u: &UOp) -> Verdict {
    let count = u.dtype().lanes as usize;
    let Some(gep) = u.as_gep() else {
        let scalar = u.dtype().scalar();
        let lanes = u.src().iter().map(|s| s.dtype().lanes as usize).sum::<usize>();
        rule(lanes == count, "a vector has the lanes of its operands", u)?;
        let fits = u.src().iter().all(|s| s.dtype().scalar() == scalar);
        return rule(fits, "the operands of a vector have its dtype", u);
    };
    let from = gep.x.dtype();
    let fits = gep.lanes.len() == count && from.scalar == u.dtype().scalar;
    rule(fits, "selected lanes have the dtype of the result", u)?;
    rule(gep.lanes.iter().all(|p| *p < from.lanes), "selected lanes are lanes of the vector", u)
}

/// Checks a tensor-core product: each thread holds the lanes of the three matrices that the core
/// prescribes.
fn wmma(u: &UOp) -> Verdict {
    let Wmma { core, a, b, c, ranges, .. } = u.expect_wmma();
    let of = |scalar: Scalar, f: &Fragment| {
        let fragment = DType { scalar, lanes: f.registers() as u16 };
        if ranges.is_empty() { fragment } else { fragment.scalar() }
    };
    let sum = DType { scalar: core.output, lanes: core.c.registers() as u16 };
    let right = a.dtype() == of(core.input, &core.a)
        && b.dtype() == of(core.input, &core.b)
        && c.dtype() == sum
        && u.dtype() == sum;
    rule(right, "the operands of a tensor-core product are the fragments of its core", u)?;
    let registers =
        ranges.iter().all(|r| r.op() == Op::Range && r.range_kind() == AxisKind::Upcast);
    rule(
        registers && [0, 2].contains(&ranges.len()),
        "a tensor-core product closes the two ranges of its registers",
        u,
    )
}

/// Checks a warp shuffle.
fn shuffle(u: &UOp) -> Verdict {
    let s = u.expect_shuffle();
    let other = (1..MAX_WARP).contains(&s.bits);
    rule(other, "a shuffle reads from another thread of the same warp", u)?;
    let keeps = u.dtype() == s.x.dtype() && u.dtype() != DType::VOID;
    rule(keeps, "a shuffle keeps the dtype", u)
}

/// Checks that the mask of an access is one bool for all of its lanes, or one per lane.
fn masked_lanes(u: &UOp, place: Index, lanes: u16) -> Verdict {
    let fits = place.mask.is_none_or(|m| m.dtype().lanes == 1 || m.dtype().lanes == lanes);
    rule(fits, "a mask has one lane, or one for each lane of the access", u)
}

/// Checks an element of memory.
fn index(u: &UOp) -> Verdict {
    let [buffer, index, mask @ ..] = u.src() else { unreachable!("the arity was checked") };
    rule(mask.len() <= 1, "an index has a buffer, an element and at most a mask", u)?;
    let memory = matches!(buffer.op(), Op::DefineGlobal | Op::DefineShared);
    rule(memory, "an index is of global or shared memory", u)?;
    rule(INDICES.contains(&index.dtype()), "an index is an integer scalar", u)?;
    rule(u.dtype() == buffer.dtype(), "an index has the dtype of its buffer", u)?;
    rule(mask.iter().all(|m| m.dtype().is_bool()), "the mask of an index is a bool", u)
}
