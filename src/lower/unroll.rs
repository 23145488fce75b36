//! Unrolls every range of kind Upcast or Unroll that did not become vector lanes. What depends on
//! such a range exists once per iteration, with the range replaced by its number; all other nodes
//! stay shared, so copies compute common subexpressions once.
//!
//! After this pass there is no range of kind Upcast or Unroll.
//!
//! ```text
//! store(out[2*g + u], x[2*g + u] + c)  closes u:Upcast of 2
//! =>
//! store(out[2*g], x[2*g] + c); store(out[2*g + 1], x[2*g + 1] + c)
//! ```

use super::fma::{are_products, combine, from_identity};
use crate::ir::typed::Reduce;
use crate::ir::{AxisKind, Op, Src, UOp};
use crate::kernel::{copied_ranges, extent};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// One number per unrolled range: an iteration of each, or a stride between copies.
type Steps = SmallVec<[usize; 6]>;

/// Unrolls all marked ranges of a kernel.
pub(super) fn unroll(ast: &UOp, target: &Target) -> UOp {
    let ranges = copied_ranges(ast);
    if ranges.is_empty() {
        return ast.clone();
    }
    let unroll = Unroll { start: ranges.iter().map(|_| 0).collect(), ranges, target };
    let order = ast.toposort();
    let mut done: FxHashMap<u64, Copies> =
        FxHashMap::with_capacity_and_hasher(order.len(), Default::default());
    for u in order {
        let copies = unroll.node(&u, &done);
        done.insert(u.id(), copies);
    }
    simplify(done[&ast.id()].at(&unroll.start))
}

/// The copies of a node, and their distance for one iteration of each range; 0 where the node does
/// not depend on the range.
struct Copies {
    nodes: SmallVec<[UOp; 1]>,
    strides: Steps,
}

impl Copies {
    /// Returns the copy at an iteration of each range.
    fn at(&self, steps: &[usize]) -> &UOp {
        &self.nodes[self.strides.iter().zip(steps).map(|(a, b)| a * b).sum::<usize>()]
    }
}

struct Unroll<'a> {
    ranges: Vec<UOp>,
    /// The first iteration of each range.
    start: Steps,
    target: &'a Target,
}

impl Unroll<'_> {
    /// Builds the copies of a node from those of its operands.
    fn node(&self, u: &UOp, done: &FxHashMap<u64, Copies>) -> Copies {
        let closes = |r: &UOp| match u.op() {
            Op::Reduce => u.expect_reduce().ranges.contains(r),
            Op::Store => u.expect_store().ranges.contains(r),
            _ => false,
        };
        let numbers = |f: &dyn Fn(&UOp) -> bool| -> Steps {
            (0..self.ranges.len()).filter(|&k| f(&self.ranges[k])).collect()
        };
        // The copies of a store remain separate stores; those of a reduction's term are combined.
        let open = numbers(&|r| u.uses_range(r.range_id()) || (u.op() == Op::Store && closes(r)));
        let closed = if u.op() == Op::Reduce { numbers(&closes) } else { Steps::new() };
        let count: usize = open.iter().map(|&k| extent(&self.ranges[k])).product();
        let mut nodes: SmallVec<[UOp; 1]> = SmallVec::with_capacity(count);
        let operands: SmallVec<[&Copies; 4]> = u.src().iter().map(|s| &done[&s.id()]).collect();
        if open.is_empty() && closed.is_empty() && !matches!(u.op(), Op::Sink | Op::Barrier) {
            let src = operands.iter().map(|s| s.at(&self.start).clone());
            nodes.push(u.with_src(src.collect::<Src>()));
        } else {
            self.each_step(&self.start, &open, |steps| {
                let now = |s: &&Copies| s.at(steps).clone();
                let new = match u.op() {
                    Op::Range if self.ranges.contains(u) => UOp::int(steps[open[0]] as i64),
                    Op::Reduce if !closed.is_empty() => {
                        match self.reduce(u, steps, &closed, operands[0], count) {
                            Reduced::Terms(node) => return nodes.push(node),
                            Reduced::Value(node) => node,
                        }
                    }
                    Op::Store => u.with_src(
                        u.src()
                            .iter()
                            .zip(&operands)
                            .filter(|(s, _)| !self.ranges.contains(s))
                            .map(|(_, s)| now(s))
                            .collect::<Src>(),
                    ),
                    Op::Sink | Op::Barrier => u.with_src(
                        operands.iter().flat_map(|s| s.nodes.iter().cloned()).collect::<Src>(),
                    ),
                    _ => u.with_src(operands.iter().map(now).collect::<Src>()),
                };
                // Simplified at once, so that users are built from the simple form.
                nodes.push(simplify(&new));
            });
        }
        let (mut strides, mut stride) = (self.start.clone(), 1);
        for &k in open.iter().rev() {
            strides[k] = stride;
            stride *= extent(&self.ranges[k]);
        }
        Copies { nodes, strides }
    }

    /// Combines the copies of a reduction's term over the ranges that it closes. `count` is the
    /// number of copies of the reduction itself.
    fn reduce(
        &self,
        u: &UOp,
        steps: &[usize],
        closed: &[usize],
        body: &Copies,
        count: usize,
    ) -> Reduced {
        let Reduce { fold, body: term, ranges, .. } = u.expect_reduce();
        let loops: Vec<UOp> = ranges.iter().filter(|s| !self.ranges.contains(s)).cloned().collect();
        let shared = loops.is_empty() || loops.iter().any(|r| r.range_kind() == AxisKind::Group);
        if !shared && (count >= self.target.tuning.many_accumulators || term.op() == Op::Wmma) {
            let mut terms: Vec<UOp> = Vec::new();
            self.each_step(steps, closed, |steps| terms.push(body.at(steps).clone()));
            // Terms that are the identity contribute nothing.
            let identity = Some(fold.identity(u.dtype()));
            terms.retain(|v| v.as_const() != identity);
            if !terms.is_empty() && are_products(fold, &terms, self.target) {
                let first = terms.remove(0);
                let src = std::iter::once(first).chain(loops).chain(terms);
                return Reduced::Terms(u.with_src(src.collect::<Src>()));
            }
        }
        let mut value: Option<UOp> = None;
        self.each_step(steps, closed, |steps| {
            let next = body.at(steps);
            value = Some(match value.take() {
                None => next.clone(),
                Some(v) => combine(fold, &v, next, self.target),
            });
        });
        let value = value.expect("a range has at least one iteration");
        Reduced::Value(match loops.is_empty() {
            true => from_identity(fold, value),
            false => u.with_src(std::iter::once(value).chain(loops).collect::<Src>()),
        })
    }

    /// Calls `f` for all iterations of some ranges, the last one fastest; the other ranges stay
    /// where `from` has them.
    fn each_step(&self, from: &[usize], some: &[usize], mut f: impl FnMut(&[usize])) {
        let mut steps: Steps = from.iter().copied().collect();
        some.iter().for_each(|&k| steps[k] = 0);
        loop {
            f(&steps);
            let last = |k: &&usize| steps[**k] + 1 < extent(&self.ranges[**k]);
            let Some(&k) = some.iter().rev().find(last) else { return };
            some.iter().filter(|&&j| j > k).for_each(|&j| steps[j] = 0);
            steps[k] += 1;
        }
    }
}

/// An unrolled reduction.
enum Reduced {
    /// A reduction with several terms per iteration, each added to the accumulator on its own.
    Terms(UOp),
    /// The combined value.
    Value(UOp),
}
