//! Turns ranges of kind Upcast or Unroll into vector lanes: whatever depends on such a range
//! becomes a vector of all its iterations. At most one range of a loop nest becomes lanes, because
//! no value can be a vector along two ranges; `unroll` handles the others.
//!
//! ```text
//! store(out[4*g + u], x[4*g + u] * 2)  closes u:Upcast of 4
//! =>
//! store(out[4*g], load.x4(x[4*g]) * splat(2))
//! ```

use super::fma::from_identity;
use crate::dtype::DType;
use crate::ir::typed::{Index, Load, Reduce, Store};
use crate::ir::{AxisKind, Fold, Op, Src, ToSrc, UOp};
use crate::kernel::{extent, index_stride, lane_mask, split_to_lanes};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Vectorizes the ranges that are marked as lanes. Lanes come before unrolling, because there are
/// fewer nodes before copies are made.
pub(super) fn vectorize(ast: &UOp, target: &Target) -> UOp {
    let (mut ast, inner) = split_to_lanes(ast, target);
    for r in inner.iter().map(|(_, r)| r).filter(|r| r.is_lanes()) {
        ast = simplify(&to_lanes(&ast, r, target));
    }
    ast
}

/// Returns the expression at one iteration of a range.
fn at(u: &UOp, r: &UOp, i: usize) -> UOp {
    if !u.uses_range(r.range_id()) {
        return u.clone();
    }
    u.substitute(&FxHashMap::from_iter([(r.clone(), UOp::int(i as i64))]))
}

/// Turns one range into lanes.
fn to_lanes(ast: &UOp, r: &UOp, target: &Target) -> UOp {
    let n = extent(r) as u16;
    let id = r.range_id();
    let splat = |d: &UOp| if d.dtype().lanes == n { d.clone() } else { d.splat(n) };
    ast.rebuild(|u, src| {
        let wide = u.uses_range(id);
        let vector = |src: Src| u.retyped(u.dtype().vec(n), src);
        Some(match u.op() {
            Op::Range if u == r => {
                UOp::vectorize((0..n).map(|i| UOp::int(i as i64)).collect::<Src>())
            }
            // Places are rewritten with the access that uses them.
            Op::Index if wide => u.clone(),
            Op::Load if wide => {
                // Barriers are already rewritten; place and alternative value are the original
                // nodes.
                let both = u.src().iter().zip(src);
                let src = both.map(|(old, new)| if old.dtype() == DType::VOID { new } else { old });
                load(&u.with_src(src.cloned().collect::<Src>()), r, n, target)
            }
            Op::Store if u.expect_store().ranges.contains(r) => {
                let [_, value, ..] = src else { unreachable!("a store has a value") };
                store(u.expect_store(), r, n, &splat(value), target)
            }
            Op::Reduce if u.expect_reduce().ranges.contains(r) => {
                let [body, ..] = src else { unreachable!("a reduction has a term") };
                reduce(u.expect_reduce(), r, splat(body), target)
            }
            // The ranges stay as they are.
            Op::Reduce | Op::Scan if wide => {
                let both = u.src().iter().zip(src);
                let term = |(old, new): (&UOp, &UOp)| {
                    if old == u.operand() { splat(new) } else { old.clone() }
                };
                vector(both.map(term).collect())
            }
            op if wide && op.is_alu() => vector(src.iter().map(splat).collect()),
            Op::Sink | Op::Barrier => {
                // A store that was split into lanes is a list of stores.
                let stores = |s: &UOp| match s.op() {
                    Op::Sink => s.src().to_vec(),
                    _ => vec![s.clone()],
                };
                u.with_src(src.iter().flat_map(stores).collect::<Src>())
            }
            _ => {
                assert!(!wide || u.op() == Op::Store, "vector lanes are not defined for {u:?}");
                return None;
            }
        })
    })
}

/// Builds a reduction whose term is a vector along a range that it closes: a vector accumulator,
/// then a reduction across its lanes.
fn reduce(old: Reduce, r: &UOp, body: UOp, target: &Target) -> UOp {
    let (u, fold) = (old.node, old.fold);
    let with = |dtype: DType, value: UOp, ranges: Vec<UOp>| {
        let src: Src = std::iter::once(value).chain(ranges).collect();
        u.retyped(dtype, src)
    };
    // Threads that share a reduction exchange scalars, not vectors.
    let (groups, own): (Vec<UOp>, Vec<UOp>) = old
        .ranges
        .iter()
        .filter(|s| *s != r)
        .cloned()
        .partition(|r| r.range_kind() == AxisKind::Group);
    let closed = own.is_empty() && groups.is_empty();
    let vector = if own.is_empty() { body } else { with(body.dtype(), body, own) };
    let value = horizontal_reduce(fold, &vector, target);
    match groups.is_empty() {
        true if closed => from_identity(fold, value),
        true => value,
        false => with(u.dtype(), value, groups),
    }
}

/// Returns true if neighbouring iterations of the range access adjacent elements under one mask.
pub(super) fn has_unit_stride(place: Index, r: &UOp) -> bool {
    !place.mask.is_some_and(|mask| mask.uses_range(r.range_id()))
        && index_stride(place.index, r) == Some(1)
}

/// Returns the place of a vector access where the index has unit stride and the mask is the same
/// for all lanes or, on targets that have them, a vector of bools.
fn vector_place(place: Index, r: &UOp, n: u16, target: &Target) -> Option<UOp> {
    if has_unit_stride(place, r) {
        return Some(simplify(&at(place.node, r, 0)));
    }
    let mask = place.mask.filter(|_| index_stride(place.index, r) == Some(1))?;
    let mask = lane_mask(mask, r, n).filter(|_| target.has_lane_masks())?;
    let start = simplify(&at(place.index, r, 0));
    Some(simplify(&UOp::masked_index(place.buffer, start, Some(simplify(&mask)))))
}

/// Builds one vector load where there is a place for it, else one load per lane.
fn load(u: &UOp, r: &UOp, n: u16, target: &Target) -> UOp {
    let Load { place, alt, after, .. } = u.expect_load();
    if let Some(place) = vector_place(place, r, n, target) {
        let alt = alt.filter(|_| place.expect_index().mask.is_some());
        let mut src: Src = [place].to_src();
        src.extend(alt.map(|alt| alt.splat(n)));
        src.extend(after.iter().cloned());
        return u.retyped(u.dtype().vec(n), src);
    }
    UOp::vectorize((0..n).map(|i| simplify(&at(u, r, i as usize))).collect::<Src>())
}

/// Builds one vector store where there is a place for it, else a `Sink` of one store per lane.
fn store(old: Store, r: &UOp, n: u16, value: &UOp, target: &Target) -> UOp {
    let with = |place: &UOp, value: UOp| {
        let rest = old.ranges.iter().filter(|x| *x != r).cloned();
        old.node.with_src([simplify(place), value].into_iter().chain(rest).collect::<Src>())
    };
    let place = old.place.node;
    if let Some(place) = vector_place(old.place, r, n, target) {
        return with(&place, value.clone());
    }
    let lanes = (0..n).map(|i| with(&at(place, r, i as usize), value.lane(i)));
    UOp::sink(lanes.collect::<Src>())
}

/// Reduces the lanes of a vector to a scalar (horizontal reduction) as a balanced tree of halves.
/// On a CPU the halves are combined as vectors.
fn horizontal_reduce(fold: Fold, v: &UOp, target: &Target) -> UOp {
    let mut v = v.clone();
    while !target.grid && v.dtype().lanes >= 4 {
        let half = v.dtype().lanes / 2;
        v = v.gep(0..half).binary(fold.op(), v.gep(half..2 * half));
    }
    let mut lanes: Vec<UOp> = (0..v.dtype().lanes).map(|i| v.lane(i)).collect();
    while lanes.len() > 1 {
        let half = lanes.len() / 2;
        lanes = (0..half).map(|i| lanes[i].binary(fold.op(), &lanes[i + half])).collect();
    }
    lanes.swap_remove(0)
}
