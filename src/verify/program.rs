//! The linear program: a list in which every operand stands before its user and loops and guarded
//! regions nest.
//!
//! [`structure`] is what running it needs, [`program`] what every renderer may rely on besides:
//! nothing is left that lowering takes away.

use super::{
    Verdict, broken, elementwise, index, lanes, literal, memory, rule, shuffle, special, variable,
    wmma,
};
use crate::dtype::{DType, Scalar};
use crate::ir::{Arg, AxisKind, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

const INDICES: &[DType] = &[DType::INDEX, DType::I32, DType::I64];

/// Checks a linear program.
pub fn program(uops: &[UOp]) -> Result<(), String> {
    linear(uops)?;
    let unmarked = |u: &UOp| u.op() != Op::Load || *u.arg() == Arg::None;
    uops.iter()
        .try_for_each(|u| rule(unmarked(u), "a load stands where it is made", u))
        .map_err(|e| format!("program: {e}"))
}

/// Checks the result of `linearize`, in which loads still carry the marks of `prefetch`.
pub fn linear(uops: &[UOp]) -> Result<(), String> {
    structure(uops)?;
    // Literals need not be listed, so the dtypes of operands are looked at as well.
    uops.iter().try_for_each(lowered).map_err(|e| format!("program: {e}"))
}

/// Checks for ops and dtypes that lowering must have removed.
fn lowered(u: &UOp) -> Verdict {
    let int = |d: DType| d.scalar == Scalar::Index;
    rule(
        !int(u.dtype()) && !u.src().iter().any(|s| int(s.dtype())),
        "index arithmetic has been given a machine's integers",
        u,
    )?;
    rule(
        !matches!(u.op(), Op::IDiv | Op::Mod),
        "floor division has been lowered to the machine's",
        u,
    )?;
    if u.op() == Op::Range {
        let kind = u.range_kind();
        let left = matches!(
            kind,
            AxisKind::Upcast | AxisKind::Unroll | AxisKind::Global | AxisKind::Group
        );
        rule(!left, "a loop is of a kind that stays a loop", u)?;
    }
    let narrow =
        |d: DType| matches!(d.scalar, Scalar::F16 | Scalar::BF16 | Scalar::F8E4M3 | Scalar::F8E5M2);
    match u.op() {
        Op::Cast if narrow(u.dtype()) || narrow(u.operand().dtype()) => {
            let wide = if narrow(u.dtype()) { u.operand().dtype() } else { u.dtype() };
            rule(
                wide.scalar == Scalar::F32,
                "floats of 16 and 8 bits are converted to and from f32",
                u,
            )
        }
        Op::DefineAcc | Op::Assign => {
            let kept = u.src().last().is_some_and(|value| value.op() == Op::Load);
            rule(!narrow(u.dtype()) || kept, "floats of 16 and 8 bits are not accumulated", u)
        }
        Op::Load => {
            let staged = matches!(u.arg(), Arg::LoadHint(hint) if hint.stage_at.is_some());
            rule(!staged, "staged loads read shared memory", u)
        }
        op if op.is_alu() && op != Op::Bitcast && op != Op::Cast => rule(
            !narrow(u.dtype()) && !u.src().iter().any(|s| narrow(s.dtype())),
            "floats of 16 and 8 bits are not computed with",
            u,
        ),
        _ => Ok(()),
    }
}

/// Where each value was defined: the open regions, outermost first, at its place.
#[derive(Default)]
struct Scope {
    /// Regions open now.
    open: Vec<UOp>,
    /// For each listed node the innermost region around it.
    home: FxHashMap<u64, Option<u64>>,
}

impl Scope {
    /// True if the region in which the node was defined is still open.
    fn sees(&self, u: &UOp) -> bool {
        match self.home.get(&u.id()) {
            Some(Some(region)) => self.open.iter().any(|o| o.id() == *region),
            Some(None) => true,
            None => false,
        }
    }
}

/// Checks what running needs: order, nesting, scopes, dtypes, numbers.
pub(crate) fn structure(uops: &[UOp]) -> Verdict {
    check(uops).map_err(|e| format!("program: {e}"))
}

fn check(uops: &[UOp]) -> Verdict {
    let mut scope = Scope::default();
    let (mut slots, mut numbers) = (Vec::new(), FxHashSet::default());
    let mut dims = FxHashSet::default();
    for u in uops {
        rule(
            u.op().takes(u.src().len()),
            "an op takes as many operands as its line in the table has",
            u,
        )?;
        for s in u.src() {
            if s.op() == Op::Const {
                literal(s)?;
            } else {
                rule(scope.home.contains_key(&s.id()), "operands stand before their users", u)?;
            }
        }
        for (i, s) in values(u).iter().enumerate() {
            rule(gives(s, u, i), "an operand has a value of the sort that its user takes", u)?;
            // What an assignment left behind lives as long as its accumulator.
            let place = s.as_assign().map_or(s, |a| a.acc);
            rule(
                s.op() == Op::Const || scope.sees(place),
                "a value is not used outside the region that it is defined in",
                u,
            )?;
        }
        node(u)?;
        match u.op() {
            Op::Const if scope.home.contains_key(&u.id()) => {}
            _ => {
                // A counter lives in its own loop.
                let home =
                    if matches!(u.op(), Op::Range | Op::If) { Some(u) } else { scope.open.last() }
                        .map(|o| o.id());
                // A condition may guard several regions.
                let again = matches!(u.op(), Op::If | Op::EndIf);
                rule(
                    scope.home.insert(u.id(), home).is_none() || again,
                    "a node is listed once",
                    u,
                )?;
            }
        }
        let (kind, number) = match u.arg() {
            Arg::Acc(id) if u.op() == Op::DefineAcc => (0, *id),
            Arg::Shared { id, .. } => (1, *id),
            Arg::Range { id, .. } => (2, *id),
            _ => (3, 0),
        };
        rule(
            kind == 3 || numbers.insert((kind, number)),
            "a number belongs to one accumulator, one local memory or one range",
            u,
        )?;
        match (u.op(), u.arg()) {
            (Op::DefineGlobal, Arg::Global { slot, .. }) => slots.push((*slot, u)),
            (Op::Special, Arg::Special { kind, dim, .. }) => {
                rule(dims.insert((*kind, *dim)), "a launch dimension is read by one special", u)?;
            }
            (Op::Range | Op::If, _) => scope.open.push(u.clone()),
            (Op::EndRange | Op::EndIf, _) => {
                rule(
                    scope.open.pop().as_ref() == Some(u.operand()),
                    "the end of a region closes the innermost open one",
                    u,
                )?;
            }
            _ => {}
        }
    }
    if let Some(open) = scope.open.last() {
        return Err(broken("every region is closed", open));
    }
    slots.sort_by_key(|(slot, _)| *slot);
    for (i, (slot, u)) in slots.iter().enumerate() {
        rule(i == *slot, "slots are numbered from 0 without gaps, each once", u)?;
    }
    Ok(())
}

/// The operands whose value an item reads. The others only order.
fn values(u: &UOp) -> &[UOp] {
    let src = u.src();
    match u.op() {
        Op::Barrier => &[],
        Op::DefineAcc | Op::EndRange | Op::EndIf => &src[..1],
        Op::Load if src[0].src().len() == 3 => &src[..src.len().min(2)],
        Op::Load => &src[..1],
        Op::Store => &src[..2],
        _ => src,
    }
}

/// True if an operand is of the kind that its user takes at that position: memory, an element of
/// memory, a region or a value.
fn gives(s: &UOp, user: &UOp, place: usize) -> bool {
    match (user.op(), place) {
        (Op::Index, 0) => matches!(s.op(), Op::DefineGlobal | Op::DefineShared),
        (Op::Load | Op::Store, 0) => s.op() == Op::Index,
        (Op::EndRange, _) => s.op() == Op::Range,
        (Op::EndIf, _) => s.op() == Op::If,
        _ => {
            let leaf = matches!(
                s.op(),
                Op::Const | Op::Var | Op::Special | Op::Range | Op::DefineAcc | Op::Assign
            );
            leaf || s.op().is_alu()
                || matches!(s.op(), Op::Load | Op::Vectorize | Op::Gep | Op::Wmma | Op::Shuffle)
        }
    }
}

fn node(u: &UOp) -> Verdict {
    let src = u.src();
    let effect = matches!(u.op(), Op::Store | Op::Barrier | Op::EndRange | Op::If | Op::EndIf);
    rule(!effect || u.dtype() == DType::VOID, "an effect has no value", u)?;
    match u.op() {
        Op::Const => literal(u),
        Op::Var => {
            variable(u)?;
            rule(INDICES.contains(&u.dtype()), "a variable is an integer with bounds", u)
        }
        Op::DefineGlobal | Op::DefineShared => memory(u),
        Op::Special => {
            special(u)?;
            rule(INDICES.contains(&u.dtype()), "a special is of an index dtype", u)?;
            let one = !matches!(
                u.arg(),
                Arg::Special { kind: crate::ir::SpecialKind::Thread, dim: 1.., .. }
            );
            rule(one, "threads have one dimension", u)
        }
        Op::Range => {
            rule(matches!(u.arg(), Arg::Range { .. }), "a range has a number and a kind", u)?;
            rule(
                INDICES.contains(&u.dtype()) && src[0].dtype() == u.dtype(),
                "a range counts in the integer dtype of its extent",
                u,
            )
        }
        Op::EndRange => rule(src[0].op() == Op::Range, "the end of a loop names its range", u),
        Op::If => rule(src[0].dtype() == DType::BOOL, "the condition of an if is a bool", u),
        Op::EndIf => rule(src[0].op() == Op::If, "the end of a guarded region names its if", u),
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
        Op::Index => index(u, INDICES),
        Op::Load => {
            rule(src[0].op() == Op::Index, "a load is of an index", u)?;
            rule(
                u.dtype().scalar == src[0].dtype().scalar,
                "a load has the dtype of its buffer",
                u,
            )?;
            let gated = src[0].src().len() == 3;
            let alt = src.get(1).is_some_and(|a| a.dtype() == u.dtype());
            rule(
                !gated || alt,
                "a gated load has a value of its dtype for where it is not valid",
                u,
            )
        }
        Op::Store => {
            rule(src[0].op() == Op::Index, "a store is to an index", u)?;
            rule(
                src[0].src().len() == 2,
                "a gated store stands in an if, not at a gated index",
                u,
            )?;
            rule(
                src[1].dtype().scalar == src[0].dtype().scalar,
                "a stored value has the dtype of its buffer",
                u,
            )
        }
        Op::Barrier => Ok(()),
        Op::Vectorize | Op::Gep => lanes(u),
        Op::Shuffle => shuffle(u),
        Op::Wmma => {
            wmma(u)?;
            rule(src.len() == 3, "the registers of a product by a tensor core are written out", u)
        }
        op if op.is_alu() && op != Op::Detach => elementwise(u),
        _ => Err(broken("the op does not stand in a program", u)),
    }
}
