//! Joins loads of adjacent addresses into one vector load, and stores likewise. The candidates are
//! the copies that `unroll` made of a load. The pass runs on GPUs, which pay for every load
//! instruction; a CPU broadcasts scalars from memory at no extra cost.
//!
//! ```text
//! load(x[4*i]), load(x[4*i + 1])  =>  v = load.x2(x[4*i]); v.lane(0), v.lane(1)
//! ```

use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Op, Src, UOp};
use crate::symbolic::{Linear, simplify};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Loads or stores of one buffer whose indices differ by constants: the place of one of them, the
/// common part of the index, and each access with its constant.
pub(super) struct AccessGroup {
    pub place: UOp,
    pub shared: Linear,
    pub list: Vec<(i64, UOp)>,
}

/// AccessGroups of accesses in the order in which they were found, by keys.
pub(super) struct AccessGroups<K> {
    pub list: Vec<AccessGroup>,
    known: FxHashMap<K, usize>,
}

impl<K: std::hash::Hash + Eq> AccessGroups<K> {
    pub fn new() -> AccessGroups<K> {
        AccessGroups { list: Vec::new(), known: FxHashMap::default() }
    }

    /// Adds an access at a place whose index is `shared` plus the constant `at`.
    pub fn add(&mut self, key: K, place: Index, shared: Linear, at: i64, access: UOp) {
        let group = *self.known.entry(key).or_insert_with(|| {
            self.list.push(AccessGroup { place: place.node.clone(), shared, list: Vec::new() });
            self.list.len() - 1
        });
        self.list[group].list.push((at, access));
    }
}

impl AccessGroup {
    /// Returns runs of adjacent accesses, each as long as a vector access may be. The list is
    /// sorted.
    fn runs(&self, target: &Target) -> Vec<&[(i64, UOp)]> {
        let most = target.access_lanes(self.place.dtype());
        let (mut rest, mut runs) = (self.list.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (run, others) = rest.split_at(adjacent(rest, &self.shared, most));
            runs.push(run);
            rest = others;
        }
        runs
    }

    /// Returns the place of a vector access that begins at the constant `at`.
    pub fn vector_place(&self, at: i64) -> UOp {
        let index = simplify(&Linear { terms: self.shared.terms.clone(), constant: at }.build());
        let Index { buffer, mask, .. } = self.place.expect_index();
        UOp::masked_index(buffer, index, mask.cloned())
    }
}

/// Splits a place into its buffer, the linear part of its index and the constant; `None` if its
/// index is not linear.
pub(super) fn split_place(place: Index) -> Option<(UOp, Linear, i64)> {
    let mut linear = Linear::of(place.index)?;
    let at = std::mem::take(&mut linear.constant);
    Some((place.buffer.clone(), linear, at))
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
    let mut groups = AccessGroups::new();
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
        let key = (buffer, after.first().cloned(), linear.build(), u.arg().clone());
        groups.add(key, place, linear, at, u.clone());
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for mut group in groups.list {
        group.list.sort_by_key(|l| l.0);
        for run in group.runs(target).into_iter().filter(|run| run.len() > 1) {
            let (at, load) = &run[0];
            let mut src: Src = load.src().iter().cloned().collect();
            src[0] = group.vector_place(*at);
            let dtype = load.dtype().vec(run.len() as u16);
            let vector = load.retyped(dtype, src);
            map.extend(run.iter().zip(0..).map(|(l, i)| (l.1.clone(), vector.lane(i))));
        }
    }
    (if map.is_empty() { ast.clone() } else { ast.substitute(&map) }, staged)
}

/// Joins adjacent stores.
fn join_stores(ast: &UOp, target: &Target) -> UOp {
    let mut groups = AccessGroups::new();
    let mut stores: Src = Src::new();
    for u in ast.src() {
        let is_scalar =
            |store: &Store| store.value.dtype().lanes == 1 && store.place.mask.is_none();
        let scalar = u.as_store().filter(is_scalar);
        let split = scalar.and_then(|store| Some((store, split_place(store.place)?)));
        let Some((store, (buffer, linear, at))) = split else {
            stores.push(u.clone());
            continue;
        };
        let ranges: Src = store.ranges.iter().cloned().collect();
        groups.add((buffer, linear.build(), ranges), store.place, linear, at, u.clone());
    }
    for mut group in groups.list {
        group.list.sort_by_key(|l| l.0);
        for run in group.runs(target) {
            let (at, store) = &run[0];
            if run.len() == 1 {
                stores.push(store.clone());
                continue;
            }
            let values: Src = run.iter().map(|l| l.1.expect_store().value.clone()).collect();
            let place = group.vector_place(*at);
            stores.push(place.store(UOp::vectorize(values), store.expect_store().ranges));
        }
    }
    ast.with_src(stores)
}
