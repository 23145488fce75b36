//! Simplification of masks, which are conjunctions of comparisons, and of indices under masks.
//! Clauses that follow from others are removed, contradictions are false, and an index under a mask
//! is simplified with the bounds that the mask implies.

use crate::dtype::DType;
use crate::ir::{Op, Src, ToSrc, UOp};
use crate::rewrite::rules;
use crate::symbolic::Linear;
use rustc_hash::FxHashMap;
use std::sync::Arc;

rules! {
    /// Exact rules on bool conjunctions of index comparisons.
    pub MASKS |u, _cx: ()| {
        and_collect:  And(_, _) if u.dtype() == DType::BOOL    => conjunction(u);
        index_always: Index(..) if literal_mask(u) == Some(true) => u.unmasked();
        load_always:  Load(i, alt) if needs_no_alt(i, alt) => u.with_src([i.clone()].to_src());
        load_never:   Load(i, alt) if literal_mask(i) == Some(false) => alt;
        store_never:  Sink(..) if u.src().iter().any(is_dead_store) => without_dead_stores(u);
    }
}

/// Returns the mask of an index if it is a literal.
fn literal_mask(index: &UOp) -> Option<bool> {
    index.as_index()?.mask.and_then(UOp::as_int).map(|v| v != 0)
}

/// Returns true if a load has an alternative value, but no mask.
fn needs_no_alt(index: &UOp, alt: &UOp) -> bool {
    index.as_index().is_some_and(|i| i.mask.is_none()) && alt.dtype() != DType::VOID
}

/// Returns a sink without the stores whose mask is false.
fn without_dead_stores(sink: &UOp) -> UOp {
    sink.with_src(sink.src().iter().filter(|s| !is_dead_store(s)).cloned().collect::<Src>())
}

/// Returns true if the mask of a store is false.
fn is_dead_store(u: &UOp) -> bool {
    u.as_store().is_some_and(|s| literal_mask(s.place.node) == Some(false))
}

/// Returns the clauses of a conjunction, from left to right.
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

/// Returns a clause as a bound of an expression: `(expr, is_upper, literal)` of `expr < literal` or
/// `expr >= literal`.
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
    // The tightest lower and upper literal of each expression.
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

/// Returns the clauses of a mask; clauses on remainders become bounds where possible.
fn bounds(mask: &UOp) -> Vec<UOp> {
    let mut list = Vec::new();
    for c in clauses(mask) {
        match super::index::wrapped(&c) {
            Some(two) => list.extend(two),
            None => list.push(c),
        }
    }
    list
}

/// Simplifies each clause of a mask under the others.
pub fn simplify_mask(mask: &UOp) -> UOp {
    let mut list = bounds(mask);
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
    list.into_iter().reduce(|a, b| a.and(&b)).map_or_else(|| mask.clone(), |m| super::simplify(&m))
}

/// Simplifies `index` under `mask`: an expression that a clause bounds lies within the bound.
pub fn simplify_under(index: &UOp, mask: &UOp) -> UOp {
    let mut limits: Vec<(UOp, i128, i128)> = Vec::new();
    for c in bounds(mask) {
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
        // The space avoids a clash with names of variables.
        let name: Arc<str> = format!("mask {i}").into();
        // A sum has been flattened into the index, so one of its terms is replaced by the sum minus
        // the other terms. The variable counts from the sum's minimum, which keeps remainders of
        // divisions nonnegative.
        let sum = x.op() == Op::Add;
        let Some(span) = max.checked_sub(min) else { continue };
        let (least, greatest) = if sum { (0, span) } else { (min, max) };
        let stand_in = UOp::variable(name, least, greatest, DType::INDEX);
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
        // Expressing an index by a sum may make it more expensive.
        if x.op() != Op::Add || weight(&tried.toposort()) < weight(&order) {
            index = tried;
        }
    }
    index
}

/// Returns the cost of an expression: the number of divisions, then of nodes.
fn weight(order: &[UOp]) -> (usize, usize) {
    (order.iter().filter(|u| matches!(u.op(), Op::IDiv | Op::Mod)).count(), order.len())
}

/// Solves `sum = value` for a range with coefficient 1 or -1: the range and its value.
fn solve(sum: &UOp, value: &UOp) -> Option<(UOp, UOp)> {
    let l = Linear::of(sum).filter(Linear::fits)?;
    let (term, k) =
        l.terms.iter().find(|(t, k)| matches!(k, 1 | -1) && t.op() == Op::Range)?.clone();
    let mut rest = l.clone();
    rest.add_term(&term, -k)?;
    rest.normalize();
    // k·term + rest = value, and k is its own inverse.
    Some((term, (value + -rest.build()) * k))
}
