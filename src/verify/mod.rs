//! Which ops may stand where: one file per stage, and a proof that a program stays inside its
//! buffers.
//!
//! Each verifier takes what a pass made and says which rule it breaks and at which node. They run
//! after every pass in tests and debug builds, and elsewhere when asked for. They read only
//! structure and derived facts, and change nothing.

mod bounds;
mod kernel;
mod program;
mod tensor;
#[cfg(test)]
mod tests;

pub use bounds::{in_bounds, kernel_in_bounds, shown_inside};
pub use kernel::kernel;
pub(crate) use program::structure;
pub use program::{linear, program};
pub use tensor::tensor;

use crate::dtype::{DType, Scalar};
use crate::ir::{Arg, AxisKind, Fragment, Group, Op, OpSet, UOp};

/// Threads of the widest warp that there is.
const MOST_LANES: usize = 64;

/// The result of a verifier; the error names the broken rule and the node.
type Verdict = Result<(), String>;

/// A rule, its node, and what is wrong.
fn broken(rule: &str, u: &UOp) -> String {
    format!("{rule}: {u:?}")
}

/// Fails with the rule and the node unless the rule holds.
fn rule(holds: bool, text: &str, u: &UOp) -> Verdict {
    if holds { Ok(()) } else { Err(broken(text, u)) }
}

/// True if memory can hold elements of the dtype.
fn storable(dtype: DType) -> bool {
    dtype.lanes == 1 && !matches!(dtype.scalar, Scalar::Void | Scalar::Index)
}

/// Ops that only floats have.
const FLOAT_ONLY: OpSet = OpSet::of(Op::Sqrt)
    .or(OpSet::of(Op::Trunc))
    .or(OpSet::of(Op::Div))
    .or(OpSet::of(Op::Fma))
    .or(Group::Transcendental.set());
/// Ops that only integers have.
const INT_ONLY: OpSet = OpSet::of(Op::IDiv)
    .or(OpSet::of(Op::CDiv))
    .or(OpSet::of(Op::CMod))
    .or(OpSet::of(Op::Shl))
    .or(OpSet::of(Op::Shr));
/// Ops on bits, which floats do not have.
const BITS_ONLY: OpSet = OpSet::of(Op::And).or(OpSet::of(Op::Or)).or(OpSet::of(Op::Xor));

/// The dtypes of an elementwise op: those of its operands among each other and with the result, and
/// whether they have the op at all.
fn elementwise(u: &UOp) -> Verdict {
    let (op, dtype, src) = (u.op(), u.dtype(), u.src());
    rule(op.takes(src.len()), "an op takes as many operands as its line in the table has", u)?;
    rule(*u.arg() == Arg::None, "an elementwise op has no payload", u)?;
    rule(
        dtype != DType::VOID && src.iter().all(|s| s.dtype().scalar != Scalar::Void),
        "an elementwise op computes on values",
        u,
    )?;
    rule(
        src.iter().all(|s| s.dtype().lanes == dtype.lanes),
        "operands have as many lanes as the result",
        u,
    )?;
    let on = src[src.len() - 1].dtype();
    match op {
        Op::Cast => return Ok(()),
        Op::Bitcast => return rule(on.bits() == dtype.bits(), "a bitcast keeps the width", u),
        Op::Where => {
            rule(src[0].dtype().is_bool(), "the condition of a where is a bool", u)?;
            rule(
                src[1].dtype() == on && on == dtype,
                "both sides of a where have the dtype of the result",
                u,
            )?;
        }
        _ => {
            rule(src.iter().all(|s| s.dtype() == on), "operands have one dtype", u)?;
            if op.is(Group::Comparison) {
                rule(dtype.is_bool(), "a comparison gives a bool", u)?;
            } else {
                rule(on == dtype, "the result has the dtype of the operands", u)?;
            }
        }
    }
    refuses(op, on).map_or(Ok(()), |what| Err(broken(&format!("the op is for {what}"), u)))
}

/// What an elementwise op wants its operands to be, where it has no meaning for those of a dtype.
pub(crate) fn refuses(op: Op, on: DType) -> Option<&'static str> {
    // A power of integers is the one op of the transcendental family that they have.
    if FLOAT_ONLY.has(op) && !on.is_float() && !(op == Op::Pow && on.is_int()) {
        return Some("floats");
    }
    if INT_ONLY.has(op) && !on.is_int() {
        return Some("integers");
    }
    if op == Op::Mod && on.is_bool() {
        return Some("numbers");
    }
    (BITS_ONLY.has(op) && on.is_float()).then_some("integers and bools")
}

/// A literal: its value is in the normal form of its dtype.
fn literal(u: &UOp) -> Verdict {
    match u.arg() {
        Arg::Const(c) => {
            rule(u.dtype() != DType::VOID, "a literal has a dtype", u)?;
            rule(c.normalize(u.dtype().scalar()) == *c, "a literal is a value of its dtype", u)
        }
        _ => Err(broken("a literal has a value", u)),
    }
}

/// A variable: an integer between its bounds, which are not negative and fit in the 32 bits that
/// kernels read.
fn variable(u: &UOp) -> Verdict {
    match u.arg() {
        Arg::Var { min, max, .. } => rule(
            u.dtype().is_int() && u.dtype().lanes == 1 && bounds_of_variable(*min, *max),
            "a variable is an integer with bounds",
            u,
        ),
        _ => Err(broken("a variable has a name and bounds", u)),
    }
}

/// Bounds that [`Variable`](crate::Variable) accepts: a launch writes its value as `i32`.
fn bounds_of_variable(min: i64, max: i64) -> bool {
    0 <= min && min <= max && max <= i64::from(i32::MAX)
}

/// A vector of scalars, or lanes picked from one.
fn lanes(u: &UOp) -> Verdict {
    match (u.op(), u.arg()) {
        (Op::Vectorize, Arg::None) => {
            let scalar = u.dtype().scalar();
            rule(
                u.src().len() == u.dtype().lanes as usize,
                "a vector has as many operands as lanes",
                u,
            )?;
            rule(
                u.src().iter().all(|s| s.dtype() == scalar),
                "the lanes of a vector are scalars of its dtype",
                u,
            )
        }
        (Op::Gep, Arg::Lanes(picks)) => {
            let from = u.operand().dtype();
            rule(
                picks.len() == u.dtype().lanes as usize && from.scalar == u.dtype().scalar,
                "picked lanes have the dtype of the result",
                u,
            )?;
            rule(picks.iter().all(|p| *p < from.lanes), "picked lanes are lanes of the vector", u)
        }
        _ => Err(broken("a vector op has the payload of its op", u)),
    }
}

/// A product by a tensor core: each thread has as many lanes of the three matrices as the core
/// says.
fn wmma(u: &UOp) -> Verdict {
    let Arg::Wmma { core, .. } = u.arg() else {
        return Err(broken("a product by a tensor core names it", u));
    };
    let of = |scalar: Scalar, f: &Fragment| DType { scalar, lanes: f.registers() as u16 };
    let [a, b, c] = [of(core.input, &core.a), of(core.input, &core.b), of(core.output, &core.c)];
    let (matrices, ranges) = u.src().split_at(3);
    let (a, b) = if ranges.is_empty() { (a, b) } else { (a.scalar(), b.scalar()) };
    let right = matrices.iter().map(UOp::dtype).eq([a, b, c]) && u.dtype() == c;
    rule(right, "the lanes of a product by a tensor core are what each thread holds", u)?;
    let registers =
        ranges.iter().all(|r| r.op() == Op::Range && r.range_kind() == AxisKind::Upcast);
    rule(
        registers && [0, 2].contains(&ranges.len()),
        "a product by a tensor core closes the two ranges of its registers",
        u,
    )
}

/// A value of another thread of the warp.
fn shuffle(u: &UOp) -> Verdict {
    let Arg::Shuffle(bits) = u.arg() else {
        return Err(broken("a shuffle says which thread it reads from", u));
    };
    rule(
        (1..MOST_LANES).contains(bits),
        "a shuffle reads from another thread of the same warp",
        u,
    )?;
    rule(
        u.dtype() == u.operand().dtype() && u.dtype() != DType::VOID,
        "a shuffle keeps the dtype",
        u,
    )
}

/// An element of memory, with an index of one of these dtypes.
fn index(u: &UOp, dtypes: &[DType]) -> Verdict {
    let src = u.src();
    rule(
        (2..=3).contains(&src.len()) && *u.arg() == Arg::None,
        "an index has a buffer, an element and at most a condition",
        u,
    )?;
    rule(
        matches!(src[0].op(), Op::DefineGlobal | Op::DefineShared),
        "an index is of global or local memory",
        u,
    )?;
    rule(dtypes.contains(&src[1].dtype()), "an index is an integer scalar", u)?;
    rule(u.dtype() == src[0].dtype(), "an index has the dtype of its buffer", u)?;
    rule(src.len() < 3 || src[2].dtype() == DType::BOOL, "the condition of an index is a bool", u)
}

/// A kernel's argument or its local memory.
fn memory(u: &UOp) -> Verdict {
    let right = matches!(
        (u.op(), u.arg()),
        (Op::DefineGlobal, Arg::Global { .. }) | (Op::DefineShared, Arg::Shared { .. })
    );
    rule(right, "memory has a number and a length", u)?;
    rule(storable(u.dtype()), "memory has the dtype of one element", u)
}

/// A launch dimension.
fn special(u: &UOp) -> Verdict {
    match u.arg() {
        Arg::Special { dim, .. } => rule(
            *dim < 3 && u.dtype().is_int() && u.dtype().lanes == 1,
            "a special is an integer of dimension 0 to 2",
            u,
        ),
        _ => Err(broken("a special names a launch dimension", u)),
    }
}
