//! Masks: conjunctions of comparisons, and what they guard. A clause that follows from the others
//! goes, a contradiction makes the whole false, and an index that is only used where a mask holds
//! is simplified under it.

use crate::dtype::DType;
use crate::ir::{Arg, Op, Src, ToSrc, UOp};
use crate::rules;
use crate::symbolic::Linear;
use rustc_hash::FxHashMap;
use std::sync::Arc;

rules! {
    /// Exact rules on bool conjunctions of index comparisons.
    pub VALID |u, _cx: ()| {
        and_collect:  And(_, _) if u.dtype() == DType::BOOL      => conjunction(u);
        index_always: Index(..) if gate(u) == Some(true)         => u.with_src(u.src()[..2].iter().cloned().collect::<Src>());
        load_always:  Load(i, alt) if gate(i).is_none() && i.src().len() == 2 && alt.dtype() != DType::VOID => u.with_src([i.clone()].to_src());
        load_never:   Load(i, alt) if gate(i) == Some(false)     => alt;
        store_never:  Sink(..) if u.src().iter().any(is_never)   => u.with_src(u.src().iter().filter(|s| !is_never(s)).cloned().collect::<Src>());
    }
}

/// The condition of an index where it is a literal.
fn gate(index: &UOp) -> Option<bool> {
    index.src().get(2).and_then(UOp::as_int).map(|v| v != 0)
}

/// A store that never happens.
fn is_never(u: &UOp) -> bool {
    u.op() == Op::Store && gate(&u.src()[0]) == Some(false)
}

/// The clauses of a conjunction, in order.
pub fn clauses(u: &UOp) -> Vec<UOp> {
    let (mut out, mut stack) = (Vec::new(), vec![u]);
    while let Some(u) = stack.pop() {
        match (u.op(), u.src()) {
            (Op::And, [x, y]) if u.dtype().is_bool() => stack.extend([y, x]),
            _ => out.push(u.clone()),
        }
    }
    out
}

/// A clause as a bound on an expression: `(expr, is_upper, literal)` for `expr < literal` and `expr
/// >= literal`.
pub fn as_bound(u: &UOp) -> Option<(UOp, bool, i64)> {
    match (u.op(), u.src()) {
        (Op::Lt, [x, c]) if x.dtype() == DType::INDEX => Some((x.clone(), true, c.as_int()?)),
        (Op::Xor, [lt, one]) if lt.op() == Op::Lt && one.is_int(1) => {
            let (x, upper, c) = as_bound(lt)?;
            upper.then_some((x, false, c))
        }
        _ => None,
    }
}

fn conjunction(u: &UOp) -> Option<UOp> {
    let all = clauses(u);
    let mut kept: Vec<UOp> = Vec::new();
    // For each expression the tightest lower and upper literal, with the clause's place.
    let mut limits: FxHashMap<UOp, (Option<i64>, Option<i64>)> = FxHashMap::default();
    for c in &all {
        if let Some((x, upper, v)) = as_bound(c) {
            let slot = limits.entry(x).or_default();
            let side = if upper { &mut slot.1 } else { &mut slot.0 };
            *side = Some(side.map_or(v, |old| if upper { old.min(v) } else { old.max(v) }));
        }
    }
    if limits.values().any(|(lo, hi)| matches!((lo, hi), (Some(lo), Some(hi)) if lo >= hi)) {
        return Some(UOp::truth(false));
    }
    for c in all {
        let keep = match as_bound(&c) {
            Some((x, upper, v)) => {
                let (lo, hi) = limits[&x];
                (if upper { hi } else { lo }) == Some(v)
            }
            None => true,
        };
        if keep && !kept.contains(&c) {
            kept.push(c);
        }
    }
    kept.sort_by_cached_key(super::linear::rank);
    kept.into_iter().reduce(|a, b| a.and(&b))
}

/// The clauses of a mask, with those on remainders as bounds where they can be.
fn bounds(valid: &UOp) -> Vec<UOp> {
    let mut list = Vec::new();
    for c in clauses(valid) {
        match super::index::wrapped(&c) {
            Some(two) => list.extend(two),
            None => list.push(c),
        }
    }
    list
}

/// A mask whose clauses are each simplified where the others hold.
pub fn simplify_mask(valid: &UOp) -> UOp {
    let mut list = bounds(valid);
    for i in 0..list.len() {
        let others = list
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .map(|(_, c)| c.clone())
            .reduce(|a, b| a.and(&b));
        if let Some(others) = others {
            list[i] = simplify_under(&list[i], &others);
        }
    }
    list.into_iter().reduce(|a, b| a.and(&b)).map_or_else(|| valid.clone(), |v| super::simplify(&v))
}

/// `index` simplified where `valid` holds: an expression that a clause bounds is taken to lie
/// inside the bound.
pub fn simplify_under(index: &UOp, valid: &UOp) -> UOp {
    let mut limits: Vec<(UOp, i128, i128)> = Vec::new();
    for c in bounds(valid) {
        if let Some((x, upper, v)) = as_bound(&c) {
            let at = limits.iter().position(|(y, ..)| *y == x).unwrap_or_else(|| {
                limits.push((x.clone(), x.vmin(), x.vmax()));
                limits.len() - 1
            });
            let slot = &mut limits[at];
            if upper { slot.2 = slot.2.min(v as i128 - 1) } else { slot.1 = slot.1.max(v as i128) }
        }
    }
    let mut index = index.clone();
    for (i, (x, lo, hi)) in limits.into_iter().enumerate() {
        if lo > hi || x.op() == Op::Const {
            continue;
        }
        let (Ok(min), Ok(max)) = (i64::try_from(lo), i64::try_from(hi)) else { continue };
        // A space is in no name that a person gives, and if it is, the bounds must be the same too.
        let name: Arc<str> = format!("valid {i}").into();
        // A sum has been flattened into the index; it is found there by one of its terms, which is
        // the sum less the others. It is counted from its least value, so that what is left of a
        // division by it is not negative.
        let sum = x.op() == Op::Add;
        let Some(span) = max.checked_sub(min) else { continue };
        let (least, greatest) = if sum { (0, span) } else { (min, max) };
        let stand_in = UOp::new(
            Op::Var,
            DType::INDEX,
            crate::ir::Src::new(),
            Arg::Var { name, min: least, max: greatest },
        );
        let (term, value, again) = if sum {
            let Some((term, value)) = solve(&x, &(&stand_in + min)) else { continue };
            (term, value, &x - min)
        } else {
            (x.clone(), stand_in.clone(), x.clone())
        };
        let order = index.toposort();
        if order.contains(&stand_in) || !order.contains(&term) {
            continue;
        }
        let there = FxHashMap::from_iter([(term, value)]);
        let back = FxHashMap::from_iter([(stand_in, again)]);
        let tried = super::simplify(&index.substitute(&there));
        let tried = super::simplify(&tried.substitute(&back));
        // In terms of a sum an index can also get worse.
        if x.op() != Op::Add || weight(&tried.toposort()) < weight(&order) {
            index = tried;
        }
    }
    index
}

/// What an expression costs: divisions first, then nodes.
fn weight(order: &[UOp]) -> (usize, usize) {
    (order.iter().filter(|u| matches!(u.op(), Op::IDiv | Op::Mod)).count(), order.len())
}

/// The term of a sum that stands alone, and what it is if the sum is `value`.
fn solve(sum: &UOp, value: &UOp) -> Option<(UOp, UOp)> {
    let l = Linear::of(sum).filter(Linear::fits)?;
    let (term, k) =
        l.terms.iter().find(|(t, k)| matches!(k, 1 | -1) && t.op() == Op::Range)?.clone();
    let mut rest = l.clone();
    rest.add_term(&term, -k)?;
    rest.settle();
    // k·term + rest = value, and k is its own inverse.
    Some((term, (value + -rest.build()) * k))
}
