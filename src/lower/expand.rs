//! Makes copies and vectors of what the optimizer marked. After this pass there is no range of kind
//! Upcast or Unroll.
//!
//! One such range of a nest may become vector lanes: where that saves accesses or operations, and
//! no value depends on two of them. The others are written out: each step with the range replaced
//! by its number. Nodes that do not depend on the range stay one node, so what copies share is
//! computed once.

use super::loads::{join_loads, join_stores};
use super::tensor_core;
use crate::dtype::{DType, Scalar};
use crate::ir::{Arg, AxisKind, Fold, Op, Src, ToSrc, UOp, next_range};
use crate::kernel::{self, step};
use crate::kernel::{extent, masked_term};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The pass. `products` says whether some are by tensor cores.
pub fn expand(ast: &UOp, products: bool, target: &Target) -> UOp {
    let written = if products { tensor_core::write_out(ast) } else { ast.clone() };
    let mut ast = cut_to_lanes(&written, target);
    // Lanes first: there is less to do before copies are made.
    for r in choose_vectors(&ast, target) {
        ast = simplify(&vectorize(&ast, &r, target));
    }
    let rest = marked(&ast);
    if !rest.is_empty() {
        ast = simplify(&unroll(&ast, &rest, target));
    }
    if target.grid {
        ast = join_loads(&ast, target);
    }
    if products { join_stores(&ast, target) } else { ast }
}

/// Ranges of kind Upcast or Unroll, by number.
fn marked(ast: &UOp) -> Vec<UOp> {
    let mut list: Vec<UOp> = ast
        .toposort()
        .into_iter()
        .filter(|u| {
            u.op() == Op::Range && matches!(u.range_kind(), AxisKind::Upcast | AxisKind::Unroll)
        })
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
            let next = next_range(&ast.toposort());
            let outer = UOp::range((size / lanes) as i64, r.range_id(), r.range_kind());
            let inner = UOp::range(lanes as i64, next, r.range_kind());
            ast = crate::kernel::replace_range(
                &ast,
                &r,
                &(&outer * lanes as i64 + &inner),
                &[outer, inner],
            );
        }
    }
    ast
}

/// Ranges that become lanes: those that save the most first, and no two that meet in a value.
fn choose_vectors(ast: &UOp, target: &Target) -> Vec<UOp> {
    let order = ast.toposort();
    let accesses = kernel::accesses(ast);
    let mut candidates: Vec<(f64, UOp)> = marked(ast)
        .into_iter()
        .filter(|r| !order.iter().any(|u| u.op() == Op::Wmma && u.uses_range(r.range_id())))
        .filter(|r| {
            !(target.grid && r.range_kind() == AxisKind::Unroll && closes_many_sums(&order, r))
        })
        .filter(|r| {
            extent(r).is_power_of_two() && extent(r) >= 2 && extent(r) <= most_lanes(target)
        })
        .map(|r| (kernel::gain(&accesses, &r), r))
        .filter(|(gain, _)| *gain > 0.0)
        .collect();
    candidates.sort_by(|(a, r), (b, s)| b.total_cmp(a).then(r.range_id().cmp(&s.range_id())));
    let mut chosen: Vec<UOp> = Vec::new();
    for (_, r) in candidates {
        // Inside the scope of one vector range nothing may be lanes of another: a reduce that
        // closes `r` counts as its scope too.
        let meets = |other: &UOp| {
            order.iter().any(|u| {
                let closes = |x: &UOp| u.op() == Op::Reduce && u.src()[1..].contains(x);
                (u.uses_range(r.range_id()) || closes(&r))
                    && (u.uses_range(other.range_id()) || closes(other))
            })
        };
        if !chosen.iter().any(meets) {
            chosen.push(r);
        }
    }
    chosen
}

/// Is the range one of a reduce of which there are several copies? Lanes of it would be so many
/// sums each, for loads that are joined without them.
fn closes_many_sums(order: &[UOp], r: &UOp) -> bool {
    let copies = |u: &UOp| -> usize {
        let upcast = |x: &&UOp| {
            x.op() == Op::Range && x.range_kind() == AxisKind::Upcast && u.uses_range(x.range_id())
        };
        order.iter().filter(upcast).map(extent).product()
    };
    order.iter().any(|u| u.op() == Op::Reduce && u.src()[1..].contains(r) && copies(u) >= MANY_SUMS)
}

/// The expression at one step of a range.
fn at(u: &UOp, r: &UOp, i: usize) -> UOp {
    if !u.uses_range(r.range_id()) {
        return u.clone();
    }
    u.substitute(&FxHashMap::from_iter([(r.clone(), UOp::int(i as i64))]))
}

/// A node written out: its copies, and how far apart they are for a step of each range; 0 where it
/// does not depend on the range.
struct Copies {
    nodes: SmallVec<[UOp; 1]>,
    strides: SmallVec<[usize; 6]>,
}

impl Copies {
    /// The copy at these steps of the ranges.
    fn at(&self, steps: &[usize]) -> &UOp {
        &self.nodes[self.strides.iter().zip(steps).map(|(a, b)| a * b).sum::<usize>()]
    }
}

/// All steps of some of the ranges, the last one fastest; the other ranges stand where `from` has
/// them.
fn each_step(from: &[usize], ranges: &[UOp], some: &[usize], mut f: impl FnMut(&[usize])) {
    let mut steps: SmallVec<[usize; 6]> = from.iter().copied().collect();
    some.iter().for_each(|&k| steps[k] = 0);
    loop {
        f(&steps);
        let Some(&k) = some.iter().rev().find(|&&k| steps[k] + 1 < extent(&ranges[k])) else {
            return;
        };
        some.iter().filter(|&&j| j > k).for_each(|&j| steps[j] = 0);
        steps[k] += 1;
    }
}

/// From so many sums on, each is added to step by step: others are enough to be busy with while one
/// is waited for. A sum on its own gets what several steps add up to.
const MANY_SUMS: usize = 8;

/// Writes ranges out: what depends on some of them is there once for each of their steps.
fn unroll(ast: &UOp, ranges: &[UOp], target: &Target) -> UOp {
    let start: SmallVec<[usize; 6]> = ranges.iter().map(|_| 0).collect();
    let is_marked = |s: &UOp| ranges.contains(s);
    let order = ast.toposort();
    let mut done: FxHashMap<u64, Copies> =
        FxHashMap::with_capacity_and_hasher(order.len(), Default::default());
    for u in order {
        let closes = |r: &UOp| match u.op() {
            Op::Reduce => u.src()[1..].contains(r),
            Op::Store => u.src()[2..].contains(r),
            _ => false,
        };
        let numbers = |f: &dyn Fn(&UOp) -> bool| -> SmallVec<[usize; 6]> {
            (0..ranges.len()).filter(|&k| f(&ranges[k])).collect()
        };
        // The copies of a store stand beside each other; those of what a reduce folds become one
        // value.
        let open = numbers(&|r| u.uses_range(r.range_id()) || (u.op() == Op::Store && closes(r)));
        let closed = if u.op() == Op::Reduce { numbers(&closes) } else { SmallVec::new() };
        let copies: usize = open.iter().map(|&k| extent(&ranges[k])).product();
        let mut nodes: SmallVec<[UOp; 1]> = SmallVec::with_capacity(copies);
        let operands: SmallVec<[&Copies; 4]> = u.src().iter().map(|s| &done[&s.id()]).collect();
        if open.is_empty() && closed.is_empty() && !matches!(u.op(), Op::Sink | Op::Barrier) {
            nodes.push(u.with_src(operands.iter().map(|s| s.at(&start).clone()).collect::<Src>()));
        } else {
            each_step(&start, ranges, &open, |steps| {
                let now = |s: &&Copies| s.at(steps).clone();
                let new = match u.op() {
                    Op::Range if is_marked(&u) => UOp::int(steps[open[0]] as i64),
                    Op::Reduce if !closed.is_empty() => {
                        let Arg::Reduce { fold, .. } = u.arg() else {
                            panic!("a reduce without a payload: {u:?}")
                        };
                        let ranges_left: Vec<UOp> =
                            u.src()[1..].iter().filter(|s| !is_marked(s)).cloned().collect();
                        let shared = ranges_left.is_empty()
                            || ranges_left.iter().any(|r| r.range_kind() == AxisKind::Group);
                        if !shared && (copies >= MANY_SUMS || u.src()[0].op() == Op::Wmma) {
                            let mut values: Vec<UOp> = Vec::new();
                            each_step(steps, ranges, &closed, |steps| {
                                values.push(operands[0].at(steps).clone())
                            });
                            // Steps that are known to change nothing are left out.
                            let neutral = Some(fold.identity(u.dtype()));
                            values.retain(|v| v.as_const() != neutral);
                            if !values.is_empty() && are_products(*fold, &values, target) {
                                let first = values.remove(0);
                                let src = std::iter::once(first).chain(ranges_left).chain(values);
                                nodes.push(u.with_src(src.collect::<Src>()));
                                return;
                            }
                        }
                        let mut value: Option<UOp> = None;
                        each_step(steps, ranges, &closed, |steps| {
                            let next = operands[0].at(steps);
                            value = Some(value.take().map_or_else(
                                || next.clone(),
                                |v| fold_one(*fold, &v, next, target),
                            ));
                        });
                        let value = value.expect("at least one step");
                        match ranges_left.is_empty() {
                            true => started(*fold, value),
                            false => u.with_src(
                                std::iter::once(value).chain(ranges_left).collect::<Src>(),
                            ),
                        }
                    }
                    Op::Store => u.with_src(
                        u.src()
                            .iter()
                            .zip(&operands)
                            .filter(|(s, _)| !is_marked(s))
                            .map(|(_, s)| now(s))
                            .collect::<Src>(),
                    ),
                    Op::Sink | Op::Barrier => u.with_src(
                        operands.iter().flat_map(|s| s.nodes.iter().cloned()).collect::<Src>(),
                    ),
                    _ => u.with_src(operands.iter().map(now).collect::<Src>()),
                };
                // At once, so that users are made of the simple form.
                nodes.push(simplify(&new));
            });
        }
        let mut strides: SmallVec<[usize; 6]> = start.clone();
        let mut stride = 1;
        for &k in open.iter().rev() {
            strides[k] = stride;
            stride *= extent(&ranges[k]);
        }
        drop(operands);
        done.insert(u.id(), Copies { nodes, strides });
    }
    done[&ast.id()].at(&start).clone()
}

/// Turns a range into lanes: whatever depends on it becomes a vector of all its steps.
fn vectorize(ast: &UOp, r: &UOp, target: &Target) -> UOp {
    let n = extent(r) as u16;
    let id = r.range_id();
    let order = ast.toposort();
    let mut done: FxHashMap<u64, UOp> =
        FxHashMap::with_capacity_and_hasher(order.len(), Default::default());
    for u in order {
        let wide = u.uses_range(id);
        let old = |i: usize| -> &UOp { &u.src()[i] };
        let new_src = |done: &FxHashMap<u64, UOp>| -> Src {
            u.src().iter().map(|s| done[&s.id()].clone()).collect()
        };
        let splat = |s: &UOp| -> UOp {
            let d = &done[&s.id()];
            if d.dtype().lanes == n { d.clone() } else { d.splat(n) }
        };
        let new = match u.op() {
            Op::Range if u == *r => UOp::new(
                Op::Vectorize,
                DType::INDEX.vec(n),
                (0..n).map(|i| UOp::int(i as i64)).collect::<Src>(),
                Arg::None,
            ),
            // Places are handled by what accesses them.
            Op::Index if wide => u.clone(),
            Op::Load if wide => {
                // What it waits for is there in its new form; the place and what stands in for it
                // are of the old one.
                let src = u.src().iter().map(|s| {
                    if s.dtype() == DType::VOID { done[&s.id()].clone() } else { s.clone() }
                });
                load(&u.with_src(src.collect::<Src>()), r, n)
            }
            Op::Store if u.src()[2..].contains(r) => {
                let value = splat(old(1));
                store(&u, r, n, &value)
            }
            Op::Reduce if u.src()[1..].contains(r) => {
                let Arg::Reduce { fold, .. } = u.arg() else {
                    panic!("a reduce without a payload: {u:?}")
                };
                let body = splat(old(0));
                let rest: Src = std::iter::once(body.clone())
                    .chain(u.src()[1..].iter().filter(|s| *s != r).cloned())
                    .collect();
                // Threads that share a reduce pass on one value each, not a vector.
                let (groups, own): (Vec<UOp>, Vec<UOp>) =
                    rest[1..].iter().cloned().partition(|r| r.range_kind() == AxisKind::Group);
                let value = if own.is_empty() {
                    across(*fold, &body, target)
                } else {
                    across(
                        *fold,
                        &UOp::new(
                            Op::Reduce,
                            u.dtype().vec(n),
                            std::iter::once(body).chain(own).collect::<Src>(),
                            u.arg().clone(),
                        ),
                        target,
                    )
                };
                match groups.as_slice() {
                    [] if rest.len() == 1 => started(*fold, value),
                    [] => value,
                    _ => UOp::new(
                        Op::Reduce,
                        u.dtype(),
                        std::iter::once(value).chain(groups).collect::<Src>(),
                        u.arg().clone(),
                    ),
                }
            }
            Op::Reduce if wide => {
                let src: Src =
                    std::iter::once(splat(old(0))).chain(u.src()[1..].iter().cloned()).collect();
                UOp::new(Op::Reduce, u.dtype().vec(n), src, u.arg().clone())
            }
            Op::Scan if wide => UOp::new(
                Op::Scan,
                u.dtype().vec(n),
                [splat(old(0)), old(1).clone()].to_src(),
                u.arg().clone(),
            ),
            op if wide && op.is_alu() => {
                let src: Src = u.src().iter().map(splat).collect();
                UOp::new(u.op(), u.dtype().vec(n), src, u.arg().clone())
            }
            Op::Sink | Op::Barrier => {
                let mut stores: Src = Src::new();
                for s in new_src(&done) {
                    // A store that had to be taken apart is a list of stores.
                    if s.op() == Op::Sink {
                        stores.extend(s.src().iter().cloned())
                    } else {
                        stores.push(s)
                    }
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

/// One vector load where the index runs contiguously and the guard is the same for all lanes, else
/// a load for each lane.
fn load(u: &UOp, r: &UOp, n: u16) -> UOp {
    let place = &u.src()[0];
    let guarded = place.src().get(2).is_some_and(|v| v.uses_range(r.range_id()));
    if !guarded && step(&place.src()[1], r) == Some(1) {
        let base = simplify(&at(place, r, 0));
        let mut src: Src = [base].to_src();
        src.extend(
            u.src()[1..]
                .iter()
                .map(|alt| if alt.dtype() == DType::VOID { alt.clone() } else { alt.splat(n) }),
        );
        return UOp::new(Op::Load, u.dtype().vec(n), src, u.arg().clone());
    }
    UOp::new(
        Op::Vectorize,
        u.dtype().vec(n),
        (0..n).map(|i| simplify(&at(u, r, i as usize))).collect::<Src>(),
        Arg::None,
    )
}

/// The same for stores; several come back as a `Sink`.
fn store(u: &UOp, r: &UOp, n: u16, value: &UOp) -> UOp {
    let place = &u.src()[0];
    let rest = || u.src()[2..].iter().filter(|x| *x != r).cloned();
    let guarded = place.src().get(2).is_some_and(|v| v.uses_range(r.range_id()));
    if !guarded && step(&place.src()[1], r) == Some(1) {
        let src: Src =
            [simplify(&at(place, r, 0)), value.clone()].into_iter().chain(rest()).collect();
        return u.with_src(src);
    }
    let lanes = (0..n).map(|i| {
        let src: Src = [simplify(&at(place, r, i as usize)), value.lane(i)]
            .into_iter()
            .chain(rest())
            .collect();
        u.with_src(src)
    });
    UOp::sink(lanes.collect::<Src>())
}

/// A fold and one value more. A product is added to a sum with one rounding, where that costs
/// nothing.
fn fold_one(fold: Fold, value: &UOp, next: &UOp, target: &Target) -> UOp {
    match is_product(fold, next, target) {
        true => add_product(next, value),
        false => value.binary(fold.op(), next),
    }
}

/// Are these products that a fold adds up, all of them or all under one condition?
fn are_products(fold: Fold, values: &[UOp], target: &Target) -> bool {
    let gated = masked_term(fold, &values[0]);
    values.iter().all(|v| match (&gated, masked_term(fold, v)) {
        (Some((first, _)), Some((condition, value))) => {
            *first == condition && is_product(fold, &value, target)
        }
        (None, _) => is_product(fold, v, target),
        _ => false,
    })
}

/// Is this a product that a fold adds up, of a type in which that is one instruction?
pub(super) fn is_product(fold: Fold, u: &UOp, target: &Target) -> bool {
    let float = || {
        target.fma
            && matches!(u.dtype().scalar, Scalar::F32 | Scalar::F64)
            && target.computes(u.dtype())
    };
    fold == Fold::Add
        && match u.op() {
            Op::Mul => float(),
            // Nothing was added to it yet.
            Op::Wmma => u.src()[2].op() == Op::Const,
            _ => false,
        }
}

/// Such a product and a sum, in that instruction.
pub(super) fn add_product(product: &UOp, sum: &UOp) -> UOp {
    let [x, y] = [&product.src()[0], &product.src()[1]];
    match product.op() {
        Op::Wmma => product.with_src([x.clone(), y.clone(), sum.clone()].to_src()),
        _ => x.fma(y, sum),
    }
}

/// The value of a fold that is written out whole, as if it had started from the neutral element: a
/// sum of nothing but -0 is +0. The extremes of two values see to that themselves.
fn started(fold: Fold, value: UOp) -> UOp {
    if fold == Fold::Add { fold.of_one(&value) } else { value }
}

/// The lanes of a vector folded into one value, halves onto halves, so that the order is a balanced
/// tree. A CPU folds the halves as vectors.
fn across(fold: Fold, v: &UOp, target: &Target) -> UOp {
    let mut v = v.clone();
    while !target.grid && v.dtype().lanes >= 4 {
        let half = v.dtype().lanes / 2;
        let part = |from: u16| {
            UOp::new(
                Op::Gep,
                v.dtype().scalar().vec(half),
                [v.clone()].to_src(),
                Arg::Lanes((from..from + half).collect()),
            )
        };
        v = part(0).binary(fold.op(), part(half));
    }
    let mut lanes: Vec<UOp> = (0..v.dtype().lanes).map(|i| v.lane(i)).collect();
    while lanes.len() > 1 {
        let half = lanes.len() / 2;
        lanes = (0..half).map(|i| lanes[i].binary(fold.op(), &lanes[i + half])).collect();
    }
    lanes.swap_remove(0)
}
