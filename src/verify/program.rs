//! The verifier of linear programs: lists in which every operand precedes its users, and loops and
//! conditional regions nest.
//!
//! [`structure`] checks the rules that running a program requires, [`program`] also those that
//! renderers rely on: lowering has removed every op and dtype that they do not know.

use super::{INDICES, Verdict, broken, common, declared, literal, rule};
use crate::dtype::{DType, Scalar};
use crate::ir::typed::Load;
use crate::ir::{Arg, AxisKind, Group, Op, SpecialKind, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Checks a linear program.
pub fn program(uops: &[UOp]) -> Result<(), String> {
    linear(uops)?;
    let unhinted = |u: &UOp| u.op() != Op::Load || *u.arg() == Arg::None;
    uops.iter()
        .try_for_each(|u| rule(unhinted(u), "`prefetch` has removed the hints of loads", u))
        .map_err(|e| format!("program: {e}"))
}

/// Checks the result of `linearize`, in which loads still have hints for `prefetch`.
pub fn linear(uops: &[UOp]) -> Result<(), String> {
    structure(uops)?;
    // Literals need not be listed, so `lowered` also checks the dtypes of operands.
    uops.iter().try_for_each(lowered).map_err(|e| format!("program: {e}"))
}

/// Checks for ops and dtypes that lowering must have removed.
fn lowered(u: &UOp) -> Verdict {
    let int = |d: DType| d.scalar == Scalar::Index;
    rule(
        !int(u.dtype()) && !u.src().iter().any(|s| int(s.dtype())),
        "index arithmetic is lowered to machine integers before this stage",
        u,
    )?;
    rule(
        !matches!(u.op(), Op::IDiv | Op::Mod),
        "floor division is lowered to machine division before this stage",
        u,
    )?;
    if u.op() == Op::Range {
        let kind = u.range_kind();
        let left = matches!(
            kind,
            AxisKind::Upcast | AxisKind::Unroll | AxisKind::Global | AxisKind::Group
        );
        rule(!left, "a loop of a program is of a kind that lowering keeps", u)?;
    }
    match u.op() {
        Op::Cast if u.dtype().is_narrow_float() || u.operand().dtype().is_narrow_float() => {
            let is_from = !u.dtype().is_narrow_float();
            let wide = if is_from { u.dtype() } else { u.operand().dtype() };
            rule(
                wide.scalar == Scalar::F32,
                "floats of 16 and 8 bits are converted only to and from f32",
                u,
            )
        }
        Op::DefineAcc | Op::Assign => {
            let kept = u.src().last().is_some_and(|value| value.op() == Op::Load);
            let wide = !u.dtype().is_narrow_float();
            rule(wide || kept, "floats of 16 and 8 bits are not accumulated", u)
        }
        Op::Load => {
            let staged = matches!(u.arg(), Arg::LoadHint(hint) if hint.stage_at.is_some());
            rule(!staged, "`stage` has replaced loads of tiles by loads of shared memory", u)
        }
        op if op.is_alu() && op != Op::Bitcast && op != Op::Cast => rule(
            !u.dtype().is_narrow_float() && !u.src().iter().any(|s| s.dtype().is_narrow_float()),
            "floats of 16 and 8 bits are computed in f32",
            u,
        ),
        _ => Ok(()),
    }
}

/// The regions of a program while it is checked.
#[derive(Default)]
struct Scope {
    /// The open regions, outermost first.
    open: Vec<UOp>,
    /// The innermost region around each listed node.
    home: FxHashMap<u64, Option<u64>>,
}

impl Scope {
    /// Returns true if the region in which the node was defined is still open.
    fn sees(&self, u: &UOp) -> bool {
        match self.home.get(&u.id()) {
            Some(Some(region)) => self.open.iter().any(|o| o.id() == *region),
            Some(None) => true,
            None => false,
        }
    }

    /// Checks that the operands are listed, of the right kind, and in an open region.
    fn operands(&self, u: &UOp) -> Verdict {
        for s in u.src() {
            if s.op() == Op::Const {
                literal(s)?;
            } else {
                rule(self.home.contains_key(&s.id()), "operands are listed before their users", u)?;
            }
        }
        for (i, s) in values(u).iter().enumerate() {
            rule(takes(u, i, s), "an operand is of the kind that its user takes", u)?;
            // The value of an assignment lives as long as its accumulator.
            let place = s.as_assign().map_or(s, |a| a.acc);
            rule(
                s.op() == Op::Const || self.sees(place),
                "a value is not used outside the region that it is defined in",
                u,
            )?;
        }
        Ok(())
    }

    /// Records the region of a node, which is listed once.
    fn define(&mut self, u: &UOp) -> Verdict {
        if u.op() == Op::Const && self.home.contains_key(&u.id()) {
            return Ok(());
        }
        // A loop counter is defined in its own loop.
        let region = if matches!(u.op(), Op::Range | Op::If) { Some(u) } else { self.open.last() };
        let region = region.map(UOp::id);
        // Several regions may have the same condition.
        let again = matches!(u.op(), Op::If | Op::EndIf);
        let first = self.home.insert(u.id(), region).is_none();
        rule(first || again, "a node is listed once", u)
    }
}

/// Checks the rules that running requires: order, nesting, scopes, dtypes, numbers.
pub(crate) fn structure(uops: &[UOp]) -> Verdict {
    check(uops).map_err(|e| format!("program: {e}"))
}

fn check(uops: &[UOp]) -> Verdict {
    let mut scope = Scope::default();
    let mut numbers = FxHashSet::default();
    for u in uops {
        declared(u)?;
        scope.operands(u)?;
        node(u)?;
        scope.define(u)?;
        if let Some(number) = number(u) {
            rule(
                numbers.insert(number),
                "a number belongs to one accumulator, one shared memory, one range or one launch \
                 dimension",
                u,
            )?;
        }
        match u.op() {
            Op::Range | Op::If => scope.open.push(u.clone()),
            Op::EndRange | Op::EndIf => rule(
                scope.open.pop().as_ref() == Some(u.operand()),
                "the end of a region closes the innermost open one",
                u,
            )?,
            _ => {}
        }
    }
    if let Some(open) = scope.open.last() {
        return Err(broken("every region is closed", open));
    }
    let mut slots: Vec<(usize, &UOp)> =
        uops.iter().filter_map(|u| Some((u.as_define_global()?.slot, u))).collect();
    slots.sort_by_key(|(slot, _)| *slot);
    for (i, (slot, u)) in slots.iter().enumerate() {
        rule(i == *slot, "slots are numbered from 0 without gaps, each once", u)?;
    }
    Ok(())
}

/// Returns the number of a node that no other node of its op may have.
fn number(u: &UOp) -> Option<(Op, usize, usize)> {
    match u.arg() {
        Arg::Acc(id) if u.op() == Op::DefineAcc => Some((u.op(), 0, *id as usize)),
        Arg::Shared { id, .. } | Arg::Range { id, .. } => Some((u.op(), 0, *id as usize)),
        Arg::Special { kind, dim, .. } => Some((u.op(), *kind as usize, *dim as usize)),
        _ => None,
    }
}

/// Returns the operands that a node reads. The others only order.
fn values(u: &UOp) -> &[UOp] {
    let masked = |u: &UOp| u.as_load().is_some_and(|l| l.place.mask.is_some() && l.alt.is_some());
    let read = match u.op() {
        Op::Barrier => 0,
        Op::DefineAcc | Op::EndRange | Op::EndIf => 1,
        Op::Load => 1 + usize::from(masked(u)),
        Op::Store => 2,
        _ => u.src().len(),
    };
    u.src().split_at(read).0
}

/// Returns true if a node takes operands of this kind at that position: memory, an element of
/// memory, a region or a value.
fn takes(user: &UOp, position: usize, s: &UOp) -> bool {
    match (user.op(), position) {
        (Op::Index, 0) => matches!(s.op(), Op::DefineGlobal | Op::DefineShared),
        (Op::Load | Op::Store, 0) => s.op() == Op::Index,
        (Op::EndRange, _) => s.op() == Op::Range,
        (Op::EndIf, _) => s.op() == Op::If,
        _ => match s.op() {
            Op::Const | Op::Var | Op::Special | Op::Range | Op::DefineAcc | Op::Assign => true,
            Op::Load | Op::Vectorize | Op::Gep | Op::Wmma | Op::Shuffle => true,
            op => op.is_alu(),
        },
    }
}

/// Checks one instruction. Its operands are of the kind that it takes.
fn node(u: &UOp) -> Verdict {
    let effect = u.op().is(Group::Effect);
    rule(!effect || u.dtype() == DType::VOID, "an effect has no value", u)?;
    match u.op() {
        Op::Barrier => return Ok(()),
        Op::If => {
            return rule(
                u.expect_if().cond.dtype() == DType::BOOL,
                "the condition of an if is a bool",
                u,
            );
        }
        Op::EndIf => {
            return rule(
                u.operand().op() == Op::If,
                "the end of a conditional region names its if",
                u,
            );
        }
        _ => common(u)?,
    }
    match u.op() {
        Op::Var => rule(INDICES.contains(&u.dtype()), "a variable is an integer with bounds", u),
        Op::Special => {
            rule(INDICES.contains(&u.dtype()), "a special is of an index dtype", u)?;
            let s = u.expect_special();
            let fits = s.kind != SpecialKind::Thread || s.dim == 0;
            rule(fits, "the grid of CPU threads has one dimension", u)
        }
        Op::Load => {
            let Load { place, alt, .. } = u.expect_load();
            let fits = place.mask.is_none() || alt.is_some_and(|a| a.dtype() == u.dtype());
            rule(fits, "a masked load has an alternative value of its dtype", u)
        }
        Op::Store => rule(
            u.expect_store().place.mask.is_none_or(|m| m.dtype().lanes > 1),
            "a masked store is inside an if, and its index has no mask but one of lanes",
            u,
        ),
        Op::Wmma => rule(
            u.expect_wmma().ranges.is_empty(),
            "the registers of a tensor-core product are written out",
            u,
        ),
        _ => Ok(()),
    }
}
