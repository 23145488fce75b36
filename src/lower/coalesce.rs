//! Joins loads of adjacent addresses into one vector load, and stores likewise. The candidates are
//! the copies that `unroll` made of a load. The pass runs on GPUs, which pay for every load
//! instruction; a CPU broadcasts scalars from memory at no extra cost.
//!
//! ```text
//! load(x[4*i]), load(x[4*i + 1])  =>  v = load.x2(x[4*i]); v.lane(0), v.lane(1)
//! ```

use crate::ir::typed::{Index, Load};
use crate::ir::{Arg, Op, Src, ToSrc, UOp};
use crate::symbolic::{Linear, simplify};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Loads or stores of one buffer whose indices differ by constants: the place of one of them, the
/// common part of the index, and each access with its constant.
struct Group {
    place: UOp,
    shared: Linear,
    list: Vec<(i64, UOp)>,
}

/// Splits a place into its buffer, the linear part of its index and the constant; `None` if it is
/// masked or its index is not linear.
fn split_place(place: Index) -> Option<(UOp, Linear, i64)> {
    let Index { buffer, index, mask: None, .. } = place else { return None };
    let mut linear = Linear::of(index)?;
    let at = std::mem::take(&mut linear.constant);
    Some((buffer.clone(), linear, at))
}

/// Returns how many accesses from the front are adjacent and aligned to their number, which a
/// vector access requires.
fn adjacent(rest: &[(i64, UOp)], shared: &Linear, most: usize) -> usize {
    let at = rest[0].0;
    let fits = |n: &usize| {
        let adjacent =
            rest.len() >= *n && rest[..*n].iter().enumerate().all(|(i, l)| l.0 == at + i as i64);
        adjacent && shared.terms.iter().map(|t| t.1).chain([at]).all(|k| k % *n as i64 == 0)
    };
    [8, 4, 2].into_iter().find(|n| *n <= most && fits(n)).unwrap_or(1)
}

/// Returns the place of a vector access that begins at the constant `at`.
fn first(place: &UOp, shared: &Linear, at: i64) -> UOp {
    let index = simplify(&Linear { terms: shared.terms.clone(), constant: at }.build());
    place.with_src([place.expect_index().buffer.clone(), index].to_src())
}

/// Joins adjacent loads of a kernel, and its stores if it has tensor-core fragments: there the
/// elements of a thread are separate stores from the beginning, so that no range of them could
/// become lanes.
pub(super) fn coalesce(ast: &UOp, fragments: bool, target: &Target) -> UOp {
    let ast = join_loads(ast, target);
    if fragments { join_stores(&ast, target) } else { ast }
}

/// Joins adjacent loads.
fn join_loads(ast: &UOp, target: &Target) -> UOp {
    let (ast, staged) = join(ast, Op::DefineGlobal, target);
    // Loads of a staged tile depend on the loads that fill it, so they are joined second.
    if staged { join(&ast, Op::DefineShared, target).0 } else { ast }
}

/// Joins the loads from one kind of memory, and returns whether there are any from shared memory.
fn join(ast: &UOp, memory: Op, target: &Target) -> (UOp, bool) {
    let mut staged = false;
    // By buffer and by all of the index but its constant.
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<(UOp, Option<UOp>, UOp, Arg), usize> = FxHashMap::default();
    for u in ast.toposort() {
        let Some(Load { place, alt: None, after, .. }) = u.as_load() else { continue };
        if u.dtype().lanes > 1 || place.mask.is_some() {
            continue;
        }
        staged |= place.buffer.op() == Op::DefineShared;
        if place.buffer.op() != memory {
            continue;
        }
        let Some((buffer, linear, at)) = split_place(place) else { continue };
        let group = *known
            .entry((buffer, after.first().cloned(), linear.build(), u.arg().clone()))
            .or_insert_with(|| {
                groups.push(Group { place: place.node.clone(), shared: linear, list: Vec::new() });
                groups.len() - 1
            });
        groups[group].list.push((at, u));
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for Group { place, shared, list: mut loads } in groups {
        loads.sort_by_key(|l| l.0);
        let dtype = loads[0].1.dtype();
        let most = target.access_lanes(dtype);
        let mut rest = loads.as_slice();
        while let Some((at, _)) = rest.first() {
            let n = adjacent(rest, &shared, most);
            if n > 1 {
                let mut src: Src = rest[0].1.src().iter().cloned().collect();
                src[0] = first(&place, &shared, *at);
                let vector = UOp::new(Op::Load, dtype.vec(n as u16), src, rest[0].1.arg().clone());
                map.extend(
                    rest[..n].iter().enumerate().map(|(i, l)| (l.1.clone(), vector.lane(i as u16))),
                );
            }
            rest = &rest[n..];
        }
    }
    (if map.is_empty() { ast.clone() } else { ast.substitute(&map) }, staged)
}

/// Joins adjacent stores.
fn join_stores(ast: &UOp, target: &Target) -> UOp {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<(UOp, UOp, Src), usize> = FxHashMap::default();
    let mut stores: Src = Src::new();
    for u in ast.src() {
        let scalar = u.as_store().filter(|store| store.value.dtype().lanes == 1);
        let split = scalar.and_then(|store| Some((store, split_place(store.place)?)));
        let Some((store, (buffer, linear, at))) = split else {
            stores.push(u.clone());
            continue;
        };
        let ends: Src = store.ranges.iter().cloned().collect();
        let group = *known.entry((buffer, linear.build(), ends)).or_insert_with(|| {
            groups.push(Group {
                place: store.place.node.clone(),
                shared: linear,
                list: Vec::new(),
            });
            groups.len() - 1
        });
        groups[group].list.push((at, u.clone()));
    }
    for Group { place, shared, mut list } in groups {
        list.sort_by_key(|l| l.0);
        let dtype = place.dtype();
        let most = target.access_lanes(dtype);
        let mut rest = list.as_slice();
        while let Some((at, store)) = rest.first() {
            let n = adjacent(rest, &shared, most);
            if n == 1 {
                stores.push(store.clone());
            } else {
                let values: Src =
                    rest[..n].iter().map(|l| l.1.expect_store().value.clone()).collect();
                let vector = UOp::new(Op::Vectorize, dtype.vec(n as u16), values, Arg::None);
                let src = [first(&place, &shared, *at), vector]
                    .into_iter()
                    .chain(store.expect_store().ranges.iter().cloned());
                stores.push(store.with_src(src.collect::<Src>()));
            }
            rest = &rest[n..];
        }
    }
    ast.with_src(stores)
}
