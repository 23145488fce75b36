//! Makes copies and vectors of what the optimizer marked. After this pass there is no range of kind Upcast or Unroll.
//!
//! One such range of a nest may become vector lanes: where loads or stores run contiguously along it and no value depends on two of them.
//! The others are written out: each step with the range replaced by its number. Nodes that do not depend on the range stay one node, so what
//! copies share is computed once.

use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Fold, Op, Src, ToSrc, UOp, eval};
use crate::opt::extent;
use crate::opt::vector::{self, step};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// The pass.
pub fn expand(ast: &UOp, target: &Target) -> UOp {
    let mut ast = cut_to_lanes(ast, target);
    let vectors = choose_vectors(&ast, target);
    for r in marked(&ast) {
        if !vectors.contains(&r) {
            ast = simplify(&unroll(&ast, &r));
        }
    }
    for r in vectors {
        ast = simplify(&vectorize(&ast, &r));
    }
    ast
}

/// Ranges of kind Upcast or Unroll, by number.
fn marked(ast: &UOp) -> Vec<UOp> {
    let mut list: Vec<UOp> = ast
        .toposort()
        .into_iter()
        .filter(|u| u.op() == Op::Range && matches!(u.range_kind(), AxisKind::Upcast | AxisKind::Unroll))
        .collect();
    list.sort_by_key(|r| r.range_id());
    list
}

fn most_lanes(target: &Target) -> usize {
    (target.vector_bytes / 4).min(target.max_lanes as usize)
}

/// A range longer than a vector is cut, so that its inner part can be one.
fn cut_to_lanes(ast: &UOp, target: &Target) -> UOp {
    let lanes = most_lanes(target);
    let mut ast = ast.clone();
    if lanes < 2 {
        return ast;
    }
    for r in marked(&ast) {
        let size = extent(&r);
        if size > lanes && size.is_multiple_of(lanes) {
            let next = ast.toposort().iter().filter(|u| u.op() == Op::Range).map(|u| u.range_id() + 1).max().unwrap_or(0);
            let outer = UOp::range((size / lanes) as i64, r.range_id(), r.range_kind());
            let inner = UOp::range(lanes as i64, next, r.range_kind());
            ast = crate::opt::replace_range(&ast, &r, &(&outer * lanes as i64 + &inner), &[outer, inner]);
        }
    }
    ast
}

/// Ranges that become lanes: those that save the most first, and no two that meet in a value.
fn choose_vectors(ast: &UOp, target: &Target) -> Vec<UOp> {
    let order = ast.toposort();
    let accesses = vector::accesses(ast);
    let mut candidates: Vec<(f64, UOp)> = marked(ast)
        .into_iter()
        .filter(|r| extent(r).is_power_of_two() && extent(r) >= 2 && extent(r) <= most_lanes(target))
        .map(|r| (vector::gain(&accesses, &r), r))
        .filter(|(gain, _)| *gain > 0.0)
        .collect();
    candidates.sort_by(|(a, r), (b, s)| b.total_cmp(a).then(r.range_id().cmp(&s.range_id())));
    let mut chosen: Vec<UOp> = Vec::new();
    for (_, r) in candidates {
        // Inside the scope of one vector range nothing may be lanes of another: a reduce that closes `r` counts as its scope too.
        let meets = |other: &UOp| {
            order.iter().any(|u| {
                let closes = |x: &UOp| u.op() == Op::Reduce && u.src()[1..].contains(x);
                (u.uses_range(r.range_id()) || closes(&r)) && (u.uses_range(other.range_id()) || closes(other))
            })
        };
        if !chosen.iter().any(meets) {
            chosen.push(r);
        }
    }
    chosen
}

/// The expression at one step of a range.
fn at(u: &UOp, r: &UOp, i: usize) -> UOp {
    if !u.uses_range(r.range_id()) {
        return u.clone();
    }
    u.substitute(&FxHashMap::from_iter([(r.clone(), UOp::int(i as i64))]))
}

/// Writes out a range.
fn unroll(ast: &UOp, r: &UOp) -> UOp {
    let n = extent(r);
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in ast.toposort() {
        let src: Src = u.src().iter().map(|s| done[&s.id()].clone()).collect();
        let new = match u.op() {
            Op::Reduce if u.src()[1..].contains(r) => {
                let Arg::Reduce { fold, .. } = u.arg() else { panic!("a reduce without a payload: {u:?}") };
                let value = (0..n).map(|i| at(&src[0], r, i)).reduce(|a, b| a.binary(fold.op(), &b)).expect("at least one step");
                let rest: Src = std::iter::once(value.clone()).chain(src[1..].iter().filter(|s| *s != r).cloned()).collect();
                if rest.len() == 1 { started(*fold, value) } else { u.with_src(rest) }
            }
            Op::Sink => {
                let mut stores: Src = Src::new();
                for s in &src {
                    if s.src()[2..].contains(r) {
                        let open = s.with_src(s.src().iter().filter(|x| *x != r).cloned().collect::<Src>());
                        stores.extend((0..n).map(|i| at(&open, r, i)));
                    } else {
                        stores.push(s.clone());
                    }
                }
                u.with_src(stores)
            }
            _ => u.with_src(src),
        };
        done.insert(u.id(), new);
    }
    done[&ast.id()].clone()
}

/// Turns a range into lanes: whatever depends on it becomes a vector of all its steps.
fn vectorize(ast: &UOp, r: &UOp) -> UOp {
    let n = extent(r) as u16;
    let id = r.range_id();
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in ast.toposort() {
        let wide = u.uses_range(id);
        let old = |i: usize| -> &UOp { &u.src()[i] };
        let new_src = |done: &FxHashMap<u64, UOp>| -> Src { u.src().iter().map(|s| done[&s.id()].clone()).collect() };
        let splat = |s: &UOp| -> UOp {
            let d = &done[&s.id()];
            if d.dtype().lanes == n { d.clone() } else { d.splat(n) }
        };
        let new = match u.op() {
            Op::Range if u == *r => {
                UOp::new(Op::Vectorize, DType::INDEX.vec(n), (0..n).map(|i| UOp::int(i as i64)).collect::<Src>(), Arg::None)
            }
            // Places are handled by what accesses them.
            Op::Index if wide => u.clone(),
            Op::Load if wide => load(&u, r, n),
            Op::Store if u.src()[2..].contains(r) => {
                let value = splat(old(1));
                store(&u, r, n, &value)
            }
            Op::Reduce if u.src()[1..].contains(r) => {
                let Arg::Reduce { fold, .. } = u.arg() else { panic!("a reduce without a payload: {u:?}") };
                let body = splat(old(0));
                let rest: Src = std::iter::once(body.clone()).chain(u.src()[1..].iter().filter(|s| *s != r).cloned()).collect();
                if rest.len() == 1 {
                    started(*fold, across(*fold, &body))
                } else {
                    across(*fold, &UOp::new(Op::Reduce, u.dtype().vec(n), rest, u.arg().clone()))
                }
            }
            Op::Reduce if wide => {
                let src: Src = std::iter::once(splat(old(0))).chain(u.src()[1..].iter().cloned()).collect();
                UOp::new(Op::Reduce, u.dtype().vec(n), src, u.arg().clone())
            }
            op if wide && op.is_alu() => {
                let src: Src = u.src().iter().map(splat).collect();
                UOp::new(u.op(), u.dtype().vec(n), src, u.arg().clone())
            }
            Op::Sink => {
                let mut stores: Src = Src::new();
                for s in new_src(&done) {
                    // A store that had to be taken apart is a list of stores.
                    if s.op() == Op::Sink { stores.extend(s.src().iter().cloned()) } else { stores.push(s) }
                }
                u.with_src(stores)
            }
            _ => {
                assert!(!wide || u.op() == Op::Store, "lanes of {u:?} have no meaning");
                u.with_src(new_src(&done))
            }
        };
        done.insert(u.id(), new);
    }
    done[&ast.id()].clone()
}

/// One vector load where the index runs contiguously and the guard is the same for all lanes, else a load for each lane.
fn load(u: &UOp, r: &UOp, n: u16) -> UOp {
    let place = &u.src()[0];
    let guarded = place.src().get(2).is_some_and(|v| v.uses_range(r.range_id()));
    if !guarded && step(&place.src()[1], r) == Some(1) {
        let base = simplify(&at(place, r, 0));
        let mut src: Src = [base].to_src();
        src.extend(u.src()[1..].iter().map(|alt| alt.splat(n)));
        return UOp::new(Op::Load, u.dtype().vec(n), src, u.arg().clone());
    }
    UOp::new(Op::Vectorize, u.dtype().vec(n), (0..n).map(|i| simplify(&at(u, r, i as usize))).collect::<Src>(), Arg::None)
}

/// The same for stores; several come back as a `Sink`.
fn store(u: &UOp, r: &UOp, n: u16, value: &UOp) -> UOp {
    let place = &u.src()[0];
    let rest = || u.src()[2..].iter().filter(|x| *x != r).cloned();
    let guarded = place.src().get(2).is_some_and(|v| v.uses_range(r.range_id()));
    if !guarded && step(&place.src()[1], r) == Some(1) {
        let src: Src = [simplify(&at(place, r, 0)), value.clone()].into_iter().chain(rest()).collect();
        return u.with_src(src);
    }
    let lanes = (0..n).map(|i| {
        let src: Src = [simplify(&at(place, r, i as usize)), value.lane(i)].into_iter().chain(rest()).collect();
        u.with_src(src)
    });
    UOp::sink(lanes.collect::<Src>())
}

/// The value of a fold that is written out whole, as if it had started from the neutral element: a sum of nothing but -0 is +0. The extremes of two
/// values see to that themselves.
fn started(fold: Fold, value: UOp) -> UOp {
    if fold == Fold::Add { fold.of_one(&value) } else { value }
}

/// The lanes of a vector folded into one value, halves onto halves, so that the order is a balanced tree.
fn across(fold: Fold, v: &UOp) -> UOp {
    let mut lanes: Vec<UOp> = (0..v.dtype().lanes).map(|i| v.lane(i)).collect();
    while lanes.len() > 1 {
        let half = lanes.len() / 2;
        lanes = (0..half).map(|i| lanes[i].binary(fold.op(), &lanes[i + half])).collect();
    }
    debug_assert!(eval::fold(fold, v.dtype(), fold.identity(v.dtype()), fold.identity(v.dtype())) == fold.identity(v.dtype()));
    lanes.swap_remove(0)
}
