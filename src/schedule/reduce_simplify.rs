//! Simplification of reduces before kernels are fused. A sum whose mask selects at most one
//! iteration is that value: a gather is a load at a computed index, not a loop. A sum ends where
//! its remaining values are zero. Nested sums become one.
//!
//! ```text
//! sum over j < n of (j == x[i] ? y[j] : 0)   =>   0 <= x[i] < n ? y[x[i]] : 0
//! ```
//!
//! These rules are not exact, so they are not in `symbolic`: a sum in another order rounds
//! differently, and a selected -0 stays -0. A shortened range keeps its id, so they run before
//! ranges get their final ids.

use crate::ir::typed::{Index, Load, Reduce, Where};
use crate::ir::{Arg, Fold, Group, Op, Src, ToSrc, UOp, dtype_bounds};
use crate::rewrite::Rules;
use crate::rewrite::rules;
use crate::symbolic::{clauses, simplify};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

rules! {
    /// Rules on stored values.
    pub REDUCE_SIMPLIFY |u, _cx: ()| {
        reduce_selected: Reduce(..) if is_sum(u) => selected(u);
        reduce_short:    Reduce(..) if is_sum(u) => shortened(u);
        reduce_nested:   Reduce(..) if is_sum(u) => nested(u);
        load_anyway:     Load(_, alt) if stays_inside(u)  => unmasked(u, alt);
    }
}

static RULES: LazyLock<Rules<()>> = LazyLock::new(|| Rules::new(&[&REDUCE_SIMPLIFY]));

/// Simplifies the reduces of a value.
pub fn reduce_simplify(value: &UOp) -> UOp {
    let mut value = simplify(value);
    loop {
        let short = RULES.fixpoint(&value, &mut ());
        if short == value {
            return value;
        }
        value = simplify(&short);
    }
}

fn is_sum(u: &UOp) -> bool {
    matches!(u.arg(), Arg::Reduce { fold: Fold::Add, .. }) && u.src().len() > 1
}

/// Replaces `sum over r of (r == e && c ? v : 0)`, where `e` does not depend on `r`, by `(0 <= e <
/// extent && c ? v : 0)` at `r = e`. The index is also clamped to the range, so that loads at it
/// are inside their buffers by its bounds alone.
fn selected(u: &UOp) -> Option<UOp> {
    let Reduce { body, ranges, .. } = u.as_reduce()?;
    // A cast of zero is zero.
    let mut casts = Vec::new();
    let mut choice = body;
    while choice.op() == Op::Cast {
        casts.push(choice.dtype());
        choice = choice.operand();
    }
    let Where { cond, x: value, y: zero, .. } = choice.as_where()?;
    if !is_zero(zero) {
        return None;
    }
    let all = clauses(cond);
    let (clause, range, place) = all.iter().enumerate().find_map(|(i, c)| {
        let (Op::Eq, [x, y]) = (c.op(), c.src()) else { return None };
        [(x, y), (y, x)].into_iter().find_map(|(side, place)| {
            let range = ranges.iter().find(|r| is_range(side, r))?;
            (!place.uses_range(range.range_id())).then(|| (i, range, place.clone()))
        })
    })?;
    let extent = range.expect_range().extent.as_int()?;
    // An extent above the maximum of the index dtype has no literal in it, and excludes nothing.
    let above = place.ge(0i64);
    let inside = if extent as i128 > dtype_bounds(place.dtype()).1 {
        above
    } else {
        place.lt(extent).and(&above)
    };
    let at = place.cast(range.dtype()).binary(Op::Max, 0i64).binary(Op::Min, extent - 1);
    let others = all.iter().enumerate().filter(|(i, _)| *i != clause).map(|(_, c)| c.clone());
    let mask = others.fold(inside, |a, b| a.and(&b));
    let mut picked =
        mask.select(value, zero).substitute(&FxHashMap::from_iter([(range.clone(), at)]));
    for dtype in casts.into_iter().rev() {
        picked = picked.cast(dtype);
    }
    let rest: Src = ranges.iter().filter(|r| *r != range).cloned().collect();
    if rest.is_empty() {
        return Some(picked);
    }
    let mut src: Src = smallvec::smallvec![picked];
    src.extend(rest);
    Some(u.with_src(src))
}

/// Returns true if a reduction of the tensor graph selects one element, as [`selected`] recognizes
/// it in a kernel: then it is a load and no loop.
pub fn selects(u: &UOp) -> bool {
    if !matches!(u.arg(), Arg::Reduce { fold: Fold::Add, axes } if axes.len() == 1) {
        return false;
    }
    let under = |u: &UOp, through: &dyn Fn(&UOp) -> bool| {
        let mut u = u.clone();
        while through(&u) {
            u = u.operand().clone();
        }
        u
    };
    let choice = under(u.operand(), &|u| u.op() == Op::Cast);
    let Some(Where { cond, y: zero, .. }) = choice.as_where() else { return false };
    let base = |u: &UOp| under(u, &|u| u.op().is(Group::Movement));
    let is_place =
        |u: &UOp| under(u, &|u| u.op().is(Group::Movement) || u.op() == Op::Cast).op() == Op::Iota;
    let compares = |c: &UOp| base(c).op() == Op::Eq && base(c).src().iter().any(is_place);
    is_zero(&base(zero)) && clauses(&base(cond)).iter().any(compares)
}

fn is_zero(u: &UOp) -> bool {
    u.as_const().is_some_and(|c| c.is_zero())
}

/// Returns true if `u` is the range's value, cast to integers that hold all of it.
fn is_range(u: &UOp, range: &UOp) -> bool {
    let mut x = u;
    while x.op() == Op::Cast
        && x.dtype().is_int()
        && x.operand().vmin() == x.vmin()
        && x.operand().vmax() == x.vmax()
    {
        x = x.operand();
    }
    x == range
}

/// Merges nested sums, also across a mask that does not depend on the inner ranges.
fn nested(u: &UOp) -> Option<UOp> {
    let Reduce { body, ranges, .. } = u.as_reduce()?;
    let (choice, inner) = match body.as_where() {
        Some(choice) if is_zero(choice.y) => (Some(choice), choice.x),
        Some(_) => return None,
        None => (None, body),
    };
    if inner.op() != Op::Reduce || inner.arg() != u.arg() {
        return None;
    }
    let Reduce { body: value, ranges: inside, .. } = inner.as_reduce()?;
    // A mask that itself sums over the inner ranges would close them twice.
    if choice.is_some_and(|c| c.cond.toposort().iter().any(|u| inside.contains(u))) {
        return None;
    }
    let value = choice.map_or_else(|| value.clone(), |c| c.cond.select(value, c.y));
    let mut src: Src = smallvec::smallvec![value];
    src.extend(ranges.iter().chain(inside).cloned());
    Some(u.with_src(src))
}

/// Shortens a range whose values are zero from some index on, because all loads there are masked.
fn shortened(u: &UOp) -> Option<UOp> {
    let Reduce { body, ranges, .. } = u.as_reduce()?;
    let order = body.toposort();
    for range in ranges {
        let id = range.range_id();
        // A symbolic extent is not shortened.
        let extent = range.expect_range().extent;
        if extent.as_int().is_none() {
            continue;
        }
        // The end of the indices that a mask admits.
        let bound = |mask: &UOp| {
            clauses(mask).iter().find_map(|c| match (c.op(), c.src()) {
                (Op::Lt, [x, n]) if x == range => n.as_int(),
                _ => None,
            })
        };
        let whole = body.as_where().filter(|c| is_zero(c.y)).and_then(|c| bound(c.cond));
        let places = || order.iter().filter(|v| v.op() == Op::Index && v.uses_range(id));
        let Some(end) =
            whole.or_else(|| places().filter_map(|v| v.expect_index().mask.and_then(bound)).max())
        else {
            continue;
        };
        if end < 1 || end as i128 >= extent.vmax() {
            continue;
        }
        // The alternative values of loads past the end, and the body with them.
        let masked: FxHashMap<UOp, UOp> = order
            .iter()
            .filter_map(|v| {
                let load = v.as_load()?;
                load.place.mask.and_then(bound)?;
                Some((v.clone(), load.alt?.clone()))
            })
            .collect();
        if whole.is_none() && !is_zero(&simplify(&body.substitute(&masked))) {
            continue;
        }
        let short = UOp::range(end, id, range.range_kind());
        let map = FxHashMap::from_iter([(range.clone(), short.clone())]);
        let mut src: Src = smallvec::smallvec![body.substitute(&map)];
        src.extend(ranges.iter().map(|r| if r == range { short.clone() } else { r.clone() }));
        return Some(u.with_src(src));
    }
    None
}

/// Returns true if a masked load stays inside its buffer even where the mask is false.
fn stays_inside(load: &UOp) -> bool {
    let Some(Load { place: Index { buffer, index, mask: Some(_), .. }, .. }) = load.as_load()
    else {
        return false;
    };
    let len = match buffer.arg() {
        Arg::Param { len, .. } => Some(*len),
        _ => buffer.memory_len(),
    };
    let (lo, hi) = index.bounds();
    len.is_some_and(|len| lo >= 0 && hi < len as i128)
}

/// Returns a choice between the load without its mask and the alternative value.
fn unmasked(load: &UOp, alt: &UOp) -> Option<UOp> {
    let place = load.as_load()?.place;
    let plain = load.with_src([place.node.unmasked()].to_src());
    Some(place.mask?.select(plain, alt))
}
