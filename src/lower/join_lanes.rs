//! Joins the scalar loads that make a vector into vector loads along another axis, and the scalar
//! stores of lanes of vectors into vector stores, for targets without workgroups. Scalar loads that
//! are broadcast stay, because a CPU broadcasts from memory at no extra cost.
//!
//! Input: a kernel after `unroll`. Output: the same values, where a vector of scalar loads is a
//! vector of lanes, which `transpose_vectors` replaces. A vector load begins at an element that is
//! loaded and ends at one, so that it is inside the buffer where the scalar loads are. Elements
//! between them, of loads with a stride of up to four elements, are loaded and not used.
//!
//! ```text
//! vectorize(load(x[i]), load(x[i + 64])), vectorize(load(x[i + 1]), load(x[i + 65]))
//! =>
//! v = load.x2(x[i]); w = load.x2(x[i + 64])
//! vectorize(v.lane(0), w.lane(0)), vectorize(v.lane(1), w.lane(1))
//! ```

use super::coalesce::{AccessGroup, AccessGroups, split_place};
use crate::ir::typed::{Load, Store};
use crate::ir::{Op, Src, UOp};
use crate::kernel::{MAX_JOINED_STRIDE, max_lanes};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Joins the accesses of a kernel.
pub(super) fn join_lanes(ast: &UOp, target: &Target) -> UOp {
    let most = max_lanes(target);
    if most < 2 {
        return ast.clone();
    }
    let ast = join_stores(ast, most);
    let (ast, staged) = join_loads(&ast, Op::DefineGlobal, most);
    // Loads of a staged tile depend on the loads that fill it, so they are joined second.
    if staged { join_loads(&ast, Op::DefineShared, most).0 } else { ast }
}

/// Joins the loads from one kind of memory, and returns whether there are any from shared memory.
fn join_loads(ast: &UOp, memory: Op, most: usize) -> (UOp, bool) {
    let mut staged = false;
    let mut groups = AccessGroups::new();
    let mut seen = FxHashSet::default();
    for vector in ast.toposort().iter().filter(|u| is_gathered(u)) {
        for u in vector.src() {
            let Load { place, alt, after, .. } = u.expect_load();
            staged |= place.buffer.op() == Op::DefineShared;
            if place.buffer.op() != memory || !seen.insert(u.id()) {
                continue;
            }
            let Some((buffer, linear, at)) = split_place(place) else { continue };
            let rest: Src = after.iter().chain(alt).chain(place.mask).cloned().collect();
            let key = (buffer, rest, linear.build(), u.arg().clone());
            groups.add(key, place, linear, at, u.clone());
        }
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for mut group in groups.list {
        group.list.sort_by_key(|l| l.0);
        for segment in segments(&group) {
            join_segment(&group, segment, most, &mut map);
        }
    }
    (if map.is_empty() { ast.clone() } else { ast.substitute(&map) }, staged)
}

/// Returns true for a vector made of different scalar loads.
fn is_gathered(u: &UOp) -> bool {
    u.op() == Op::Vectorize
        && u.src().iter().all(|s| s.op() == Op::Load && s.dtype().lanes == 1)
        && u.src().iter().any(|s| s != u.operand())
}

/// Splits the accesses of a group where the distance of two neighbours is large.
fn segments(group: &AccessGroup) -> impl Iterator<Item = &[(i64, UOp)]> {
    group.list.chunk_by(|a, b| b.0.abs_diff(a.0) <= MAX_JOINED_STRIDE)
}

/// Adds the vector loads that cover a segment to the map, if they are fewer than half of the loads.
fn join_segment(
    group: &AccessGroup,
    segment: &[(i64, UOp)],
    most: usize,
    map: &mut FxHashMap<UOp, UOp>,
) {
    let (first, last) = (segment[0].0, segment[segment.len() - 1].0);
    let span = (last - first + 1) as usize;
    let is_dense = span == segment.len();
    let mut starts: Vec<(i64, usize)> = Vec::new();
    let mut rest = segment;
    while let Some((at, _)) = rest.first() {
        // Adjacent loads are covered once; elsewhere the last vector may overlap the one before.
        let left = if is_dense { (last - at + 1) as usize } else { span };
        let lanes = 1 << left.min(most).ilog2();
        let start = (*at).min(last - lanes as i64 + 1);
        starts.push((start, lanes));
        rest = &rest[rest.partition_point(|l| l.0 < start + lanes as i64)..];
    }
    if starts.len() * 2 > segment.len() {
        return;
    }
    let mut rest = segment;
    for (start, lanes) in starts {
        let (covered, others) = rest.split_at(rest.partition_point(|l| l.0 < start + lanes as i64));
        rest = others;
        let Some((_, load)) = covered.first().filter(|_| lanes > 1) else { continue };
        let mut src: Src = load.src().iter().cloned().collect();
        src[0] = group.vector_place(start);
        if let Some(alt) = load.expect_load().alt {
            src[1] = alt.splat(lanes as u16);
        }
        let vector = load.retyped(load.dtype().vec(lanes as u16), src);
        map.extend(covered.iter().map(|(at, l)| (l.clone(), vector.lane((at - start) as u16))));
    }
}

/// Joins adjacent stores of lanes of vectors.
fn join_stores(ast: &UOp, most: usize) -> UOp {
    ast.rebuild(|u, src| match u.op() {
        Op::Sink | Op::Barrier => join_list(src, most).map(|stores| u.with_src(stores)),
        _ => None,
    })
}

/// Returns a list of stores with the joined ones at its end; `None` if none are joined.
fn join_list(list: &[UOp], most: usize) -> Option<Src> {
    let mut groups = AccessGroups::new();
    let mut stores: Src = Src::new();
    for u in list {
        let lane = |s: &Store| s.value.dtype().lanes == 1 && s.value.op() == Op::Gep;
        let split = u.as_store().filter(lane).and_then(|s| Some((s, split_place(s.place)?)));
        let Some((store, (buffer, linear, at))) = split else {
            stores.push(u.clone());
            continue;
        };
        let rest: Src = store.ranges.iter().chain(store.place.mask).cloned().collect();
        groups.add((buffer, linear.build(), rest), store.place, linear, at, u.clone());
    }
    let before = list.len();
    for mut group in groups.list {
        group.list.sort_by_key(|l| l.0);
        for run in group.list.chunk_by(|a, b| b.0 == a.0 + 1) {
            let mut rest = run;
            while let [(at, store), ..] = rest {
                let (joined, others) = rest.split_at(1 << rest.len().min(most).ilog2());
                rest = others;
                if joined.len() == 1 {
                    stores.push(store.clone());
                    continue;
                }
                let value = |s: &(i64, UOp)| s.1.expect_store().value.clone();
                let values = UOp::vectorize(joined.iter().map(value).collect::<Src>());
                let place = group.vector_place(*at);
                let rest = store.expect_store().ranges.iter().cloned();
                let src: Src = [place, values].into_iter().chain(rest).collect();
                stores.push(store.with_src(src));
            }
        }
    }
    (stores.len() < before).then_some(stores)
}
