//! Updates of a part of a donated buffer, such as an assignment to a slice. Input: kernels and the
//! buffers that they write in place. Output: kernels whose loops reach only the elements that
//! change. A value that is read and written back unchanged has no store.
//!
//! ```text
//! a[i] = i < 4 ? x[i] : a[i] over i < 8   =>   a[i] = x[i] over i < 4
//! ```

use super::fuse::{self, BufferStore, KernelGroup};
use super::in_place::InPlace;
use crate::ir::typed::Where;
use crate::ir::{AxisKind, Op, UOp};
use crate::symbolic::{Linear, as_bound, clauses, simplify};
use rustc_hash::FxHashMap;

/// Narrows the loops of a kernel that changes only a part of a donated buffer, as an assignment to
/// a slice does, to that part.
pub fn narrow(groups: &mut [KernelGroup], donated: &[InPlace]) {
    for (i, g) in groups.iter_mut().enumerate().filter(|(_, g)| g.update.is_none()) {
        let in_place = |number: usize| donated.iter().any(|d| d.writer == i && d.input == number);
        // A value that is read and written back unchanged needs no store.
        g.stores.retain(|s| !(in_place(s.buffer) && is_unchanged(s, &s.value)));
        let in_order = g.ranges.iter().any(|r| r.range_kind() == AxisKind::Ordered);
        if in_order || g.stores.is_empty() || !g.stores.iter().all(|s| in_place(s.buffer)) {
            continue;
        }
        let parts: Vec<Option<(UOp, Subrange)>> =
            g.stores.iter().map(|s| written_subrange(s, &g.ranges)).collect();
        let Some(Some((_, part))) = parts.first().cloned() else { continue };
        if !parts.iter().all(|p| p.as_ref().is_some_and(|p| p.1 == part)) {
            continue;
        }
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut ranges = Vec::new();
        for (r, (start, len)) in g.ranges.iter().zip(&part) {
            let inner = UOp::range(len, r.range_id(), r.range_kind());
            map.insert(r.clone(), if len.is_int(1) { start.clone() } else { start + &inner });
            if !len.is_int(1) {
                ranges.push(inner);
            }
        }
        g.ranges = ranges;
        for (s, p) in g.stores.iter_mut().zip(parts) {
            let value = p.expect("every store has a part").0;
            s.index = simplify(&s.index.substitute(&map));
            s.value = simplify(&value.substitute(&map));
        }
        g.refresh();
    }
}

/// For each range of a kernel, the first iteration that writes and the number of iterations.
type Subrange = Vec<(UOp, UOp)>;

/// Returns the new value of a store and the part that it changes, if the part is a box within the
/// ranges and all other elements keep the old value.
fn written_subrange(store: &BufferStore, ranges: &[UOp]) -> Option<(UOp, Subrange)> {
    let Where { cond: mask, x: yes, y: no, .. } = store.value.as_where()?;
    let is_unchanged = |u: &UOp| is_unchanged(store, u);
    // If the operands of the select are exchanged, a mask of a single clause is negated.
    let (new, negated) = if is_unchanged(no) { (yes, false) } else { (no, true) };
    let inside = conjuncts(mask);
    if (negated && (!is_unchanged(yes) || inside.len() > 1)) || inside.is_empty() {
        return None;
    }
    let mut bounds: Vec<(Option<Linear>, Option<Linear>)> = vec![(None, None); ranges.len()];
    for clause in inside {
        // `r + a < limit` or `r + a >= limit`, where no range is in `a`.
        let (sum, is_upper, limit) = as_bound(&clause)?;
        let is_upper = is_upper != negated;
        let sum = Linear::of(&sum)?;
        let at = ranges.iter().position(|r| sum.coefficient(r) == 1)?;
        let mut bound = Linear { terms: vec![], constant: limit };
        bound.add_scaled(&sum, -1)?;
        bound.add_term(&ranges[at], 1)?;
        bound.normalize();
        let is_fixed =
            |t: &UOp| t.ranges().is_empty() && !t.toposort().iter().any(|u| u.op() == Op::Load);
        if !bound.terms.iter().all(|(t, _)| is_fixed(t)) {
            return None;
        }
        let side = if is_upper { &mut bounds[at].1 } else { &mut bounds[at].0 };
        // Masks are simplified: of two that remain neither is known to be the tighter one.
        if side.replace(bound).is_some() {
            return None;
        }
    }
    let part = ranges.iter().zip(bounds).map(|(r, (start, end))| {
        let start = start.unwrap_or(Linear { terms: vec![], constant: 0 });
        let extent = r.expect_range().extent;
        let end = end.or_else(|| Linear::of(extent))?;
        let mut len = end.clone();
        len.add_scaled(&start, -1)?;
        len.normalize();
        // A symbolic length is accepted only for the complete range.
        let fixed = len.terms.is_empty()
            && len.constant > 0
            && start.bounds().0 >= 0
            && end.bounds().1 <= extent.vmin();
        let whole = start.terms.is_empty() && start.constant == 0 && end == Linear::of(extent)?;
        (fixed || whole).then(|| (start.build(), len.build()))
    });
    Some((new.clone(), part.collect::<Option<_>>()?))
}

/// Returns true if a value is an unmasked load of the element that the store writes.
fn is_unchanged(store: &BufferStore, u: &UOp) -> bool {
    u.as_load().is_some_and(|load| {
        fuse::loaded(u) == store.buffer
            && load.place.mask.is_none()
            && *load.place.index == store.index
    })
}

/// Returns the clauses of a conjunction, also of one in the form `a ? b : false`.
fn conjuncts(u: &UOp) -> Vec<UOp> {
    let split = |clause: UOp| match clause.as_where() {
        Some(Where { cond, x, y, .. }) if y.is_int(0) => [conjuncts(cond), conjuncts(x)].concat(),
        _ => vec![clause],
    };
    clauses(u).into_iter().flat_map(split).collect()
}
