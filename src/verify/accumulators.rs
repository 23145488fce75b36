//! Bounds of integer accumulators, from what the loops of a program add to them. The scheduler
//! knows the bounds of a reduction and of a scan, and drops masks that they imply; in a program
//! only the accumulator is left of it.
//!
//! ```text
//! acc = 0; for i in 0..4 { acc = acc + (mask[i] as i32); … }   =>   0 <= acc <= 4
//! ```

use crate::ir::bounds::{fits, plus, product};
use crate::ir::typed::{Assign, Range, Where};
use crate::ir::{Bounds, Op, UOp};
use rustc_hash::FxHashMap;

/// What the assignments to an accumulator do.
#[derive(Clone, Copy)]
enum Effect {
    /// Each adds a value: the bounds of the total.
    Adds(Bounds),
    /// Each keeps the old value or takes another one: the bounds of all values.
    Takes(Bounds),
    Unknown,
}

struct Accumulator {
    /// The definition, and the values after each assignment.
    states: Vec<UOp>,
    /// The number of open ranges at the definition.
    depth: usize,
    effect: Effect,
}

/// Returns the bounds of the integer accumulators of a program, by their definitions and
/// assignments. Accumulators of which nothing is known are left out.
pub(super) fn accumulator_bounds(uops: &[UOp]) -> Vec<(UOp, Bounds)> {
    let mut all: FxHashMap<UOp, Accumulator> = FxHashMap::default();
    // The largest number of iterations of each open range.
    let mut open: Vec<i128> = Vec::new();
    for u in uops {
        match u.op() {
            Op::Range => {
                let Range { extent, .. } = u.expect_range();
                open.push(extent.vmax().max(0));
            }
            Op::EndRange => drop(open.pop()),
            Op::DefineAcc if u.dtype().is_int() && u.dtype().lanes == 1 => {
                let effect = Effect::Adds((0, 0));
                let acc = Accumulator { states: vec![u.clone()], depth: open.len(), effect };
                all.insert(u.clone(), acc);
            }
            Op::Assign => {
                let Assign { acc, value, .. } = u.expect_assign();
                let Some(known) = all.get_mut(acc) else { continue };
                let times = open[known.depth..].iter().fold(1i128, |n, t| n.saturating_mul(*t));
                known.effect = joined(known.effect, effect(value, &known.states), times);
                known.states.push(u.clone());
            }
            _ => {}
        }
    }
    let bounds = |(define, acc): (UOp, Accumulator)| {
        let first = define.operand().bounds();
        let bounds = match acc.effect {
            Effect::Adds((lo, hi)) => plus(first, (lo.min(0), hi.max(0))),
            Effect::Takes((lo, hi)) => (lo.min(first.0), hi.max(first.1)),
            Effect::Unknown => return None,
        };
        let states = acc.states.into_iter().map(move |state| (state, bounds));
        fits(bounds, define.dtype()).then_some(states)
    };
    all.into_iter().filter_map(bounds).flatten().collect()
}

/// Returns the effect of assigning a value, which is computed from the old one.
fn effect(value: &UOp, states: &[UOp]) -> Effect {
    let is_state = |u: &UOp| states.contains(u);
    let choices = match value.op() {
        Op::Max | Op::Min => value.src().to_vec(),
        Op::Where => {
            let Where { x, y, .. } = value.expect_where();
            vec![x.clone(), y.clone()]
        }
        _ => return added(value, &is_state),
    };
    let others = choices.iter().filter(|u| !is_state(u)).map(UOp::bounds);
    let hull = others.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    hull.map_or(Effect::Adds((0, 0)), Effect::Takes)
}

/// Returns the bounds of what a sum adds to the old value, which is one of its terms.
fn added(value: &UOp, is_state: &dyn Fn(&UOp) -> bool) -> Effect {
    let (mut total, mut found, mut terms) = ((0, 0), 0, vec![value]);
    while let Some(term) = terms.pop() {
        match term.as_binary() {
            _ if is_state(term) => found += 1,
            Some((x, y)) if term.op() == Op::Add => terms.extend([x, y]),
            _ => total = plus(total, term.bounds()),
        }
    }
    if found == 1 { Effect::Adds(total) } else { Effect::Unknown }
}

/// Returns both effects, of which the second one happens up to `times` times.
fn joined(before: Effect, next: Effect, times: i128) -> Effect {
    match (before, next) {
        (Effect::Adds(a), Effect::Adds((lo, hi))) => {
            // An assignment in a loop without iterations adds nothing.
            let some = product((lo.min(0), hi.max(0)), (times, times));
            Effect::Adds(plus(a, some))
        }
        (Effect::Adds((0, 0)), Effect::Takes(b)) => Effect::Takes(b),
        (Effect::Takes(a), Effect::Takes(b)) => Effect::Takes((a.0.min(b.0), a.1.max(b.1))),
        _ => Effect::Unknown,
    }
}
