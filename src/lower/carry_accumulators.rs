//! Carries the accumulators of a reduction loop outside output loops through memory. Input: a
//! kernel whose stores list the range of such a loop, without ranges of kind Upcast or Unroll.
//! Output: no store of a result lists it; the accumulators are set to the identity before the
//! loop, loaded and stored in each iteration, and loaded by the stores of the results after it.
//!
//! Where the only user of a reduction is a store whose place nothing else needs, the accumulator
//! is that element of the output. All others are in scratch memory of the thread.
//!
//! ```text
//! store(out[m], reduce(x) closes k, j) closes k, m
//! =>
//! a = store(out[p], 0) closes p
//! store(out[m], reduce(x) closes j, from load(out[m]) after a) closes k, m
//! ```

use crate::ir::typed::Load;
use crate::ir::{Arg, Op, Src, UOp, next_range};
use crate::kernel::{
    extent, loops_inside, loops_of_accumulator, next_shared, outer_reduce, reductions_over,
    store_for_accumulator,
};
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Builds the loads and stores of the accumulators of a kernel.
pub(super) fn carry_accumulators(ast: &UOp) -> UOp {
    let Some(outer) = outer_reduce(ast) else { return ast.clone() };
    let order = ast.toposort();
    let inside = loops_inside(ast, &outer);
    let mut next = next_range(&order);
    let accumulators = Accumulator::all(ast, &order, &outer, &inside);
    // The nest that sets the accumulators to the identity.
    let starts = fresh_ranges(&inside, &mut next);
    let first =
        UOp::barrier(accumulators.iter().map(|a| a.initialized(&starts, &outer)).collect::<Src>());
    let carried: Vec<UOp> = accumulators.iter().map(|a| a.updated(&outer, &first)).collect();
    let in_scratch = accumulators.iter().zip(&carried).filter(|(a, _)| a.output.is_none());
    let done = UOp::barrier(in_scratch.map(|(_, store)| store.clone()).collect::<Src>());
    let loads: FxHashMap<UOp, UOp> =
        accumulators.iter().map(|a| (a.reduce.clone(), a.loaded(&done))).collect();
    let mut results =
        Results { outer: &outer, loads, ranges: fresh_ranges(&inside, &mut next), next };
    let stores = ast.src().iter().map(|s| {
        let in_output = accumulators.iter().position(|a| a.output.as_ref() == Some(s));
        in_output.map_or_else(|| results.store(s), |i| carried[i].clone())
    });
    ast.with_src(stores.collect::<Src>())
}

/// Returns new ranges of the same extents.
fn fresh_ranges(ranges: &[UOp], next: &mut u32) -> FxHashMap<UOp, UOp> {
    let fresh = ranges.iter().map(|r| {
        *next += 1;
        (r.clone(), renumbered(r, *next - 1))
    });
    fresh.collect()
}

fn renumbered(r: &UOp, id: u32) -> UOp {
    UOp::range(r.expect_range().extent, id, r.range_kind())
}

/// The accumulators of a reduction.
struct Accumulator {
    reduce: UOp,
    /// The loops inside the reduction loop that it has an element for in each iteration.
    loops: Vec<UOp>,
    /// The element.
    place: UOp,
    /// The store of the kernel whose place it is, if it is in an output.
    output: Option<UOp>,
}

impl Accumulator {
    /// Returns the accumulators of all reductions over a loop. One without an element for each
    /// iteration of an output loop stays in registers.
    fn all(ast: &UOp, order: &[UOp], outer: &UOp, inside: &[UOp]) -> Vec<Accumulator> {
        let of = |u: &&UOp| {
            let loops = loops_of_accumulator(inside, u);
            let output = store_for_accumulator(ast, order, u);
            (!loops.is_empty()).then(|| ((*u).clone(), loops, output))
        };
        let found: Vec<(UOp, Vec<UOp>, Option<UOp>)> =
            reductions_over(order, outer).iter().filter_map(of).collect();
        let mut memory = next_shared(order);
        let mut list: Vec<Accumulator> = Vec::new();
        let mut done = vec![false; found.len()];
        for i in 0..found.len() {
            let (reduce, loops, output) = &found[i];
            if let Some(store) = output {
                let (place, output) = (store.expect_store().place.node.clone(), output.clone());
                list.push(Accumulator {
                    reduce: reduce.clone(),
                    loops: loops.clone(),
                    place,
                    output,
                });
                continue;
            }
            if done[i] {
                continue;
            }
            // Those with the same loops and dtype are adjacent.
            let alike = |j: &usize| {
                let (other, nest, output) = &found[*j];
                output.is_none() && nest == loops && other.dtype() == reduce.dtype()
            };
            let group: Vec<usize> = (i..found.len()).filter(alike).collect();
            let size = group.len() * reduce.dtype().lanes as usize;
            let len = loops.iter().map(extent).product::<usize>() * size;
            let array = UOp::define_shared(memory, len, reduce.dtype().scalar());
            memory += 1;
            let row = loops.iter().fold(UOp::int(0), |p, r| p * extent(r) as i64 + r);
            for (slot, j) in group.into_iter().enumerate() {
                done[j] = true;
                let at = &row * size as i64 + (slot * reduce.dtype().lanes as usize) as i64;
                let place = array.at(simplify(&at));
                let reduce = found[j].0.clone();
                list.push(Accumulator { reduce, loops: loops.clone(), place, output: None });
            }
        }
        list
    }

    /// Stores the identity. `starts` are the ranges of the nest that does so.
    fn initialized(&self, starts: &FxHashMap<UOp, UOp>, outer: &UOp) -> UOp {
        let u = &self.reduce;
        let identity = UOp::literal(u.expect_reduce().fold.identity(u.dtype()), u.dtype());
        let place = self.place.substitute(starts);
        let mut closes: Vec<UOp> = self.loops.iter().map(|r| starts[r].clone()).collect();
        // Again for each iteration of the loops outside.
        let outside = |r: &&UOp| {
            r.op() == Op::Range
                && *r != outer
                && u.uses_range(r.range_id())
                && !self.loops.contains(r)
        };
        let nodes = u.toposort();
        let outside: Src = nodes.iter().filter(outside).cloned().collect();
        if !outside.is_empty() {
            closes.push(UOp::barrier(outside));
        }
        place.store(identity, &closes)
    }

    /// Continues from the stored value, and stores the result.
    fn updated(&self, outer: &UOp, first: &UOp) -> UOp {
        let u = &self.reduce;
        let start = self.loaded(first).define_acc(0);
        let rest = u.src().iter().filter(|s| *s != outer).cloned();
        let value = u.with_src(rest.chain([start]).collect::<Src>());
        match &self.output {
            Some(store) => self.place.store(value, store.expect_store().ranges),
            None => {
                let closes: Vec<UOp> = std::iter::once(outer).chain(&self.loops).cloned().collect();
                self.place.store(value, &closes)
            }
        }
    }

    /// Loads the value after a barrier.
    fn loaded(&self, after: &UOp) -> UOp {
        Load::build(self.reduce.dtype(), Arg::None, self.place.clone(), None, [after.clone()])
    }
}

/// The stores of results, in a nest of their own after the reduction loop.
struct Results<'a> {
    outer: &'a UOp,
    /// The values of the reductions.
    loads: FxHashMap<UOp, UOp>,
    /// The ranges of the nest.
    ranges: FxHashMap<UOp, UOp>,
    /// The number of the next range.
    next: u32,
}

impl Results<'_> {
    /// Returns a store that loads what the reduction loop has stored.
    fn store(&mut self, s: &UOp) -> UOp {
        if !s.closed_ranges().contains(self.outer) {
            return s.substitute(&self.loads);
        }
        let s = s.with_src(s.src().iter().filter(|r| *r != self.outer).cloned().collect::<Src>());
        let s = s.substitute(&self.loads);
        // Loops of other reductions and copies may be in the reduction loop too.
        let uses = |u: &UOp| self.ranges.keys().any(|r| u.uses_range(r.range_id()));
        let order = s.toposort();
        let loaded: Vec<&UOp> = self.loads.values().collect();
        let kept = crate::ir::toposort(loaded.iter().flat_map(|l| l.expect_load().after));
        let is_new = |r: &&UOp| r.op() == Op::Range && !self.ranges.contains_key(r);
        let closed: Vec<UOp> = order
            .iter()
            .filter(|u| **u != s && uses(u) && !kept.contains(u))
            .flat_map(|u| u.closed_ranges().iter().filter(is_new).cloned().collect::<Vec<_>>())
            .collect();
        for r in closed {
            if !self.ranges.contains_key(&r) {
                self.ranges.insert(r.clone(), renumbered(&r, self.next));
                self.next += 1;
            }
        }
        self.rewritten(&s)
    }

    /// Replaces the ranges everywhere but in what is before the barrier of the reduction loop.
    fn rewritten(&self, s: &UOp) -> UOp {
        let before: Vec<UOp> =
            self.loads.values().flat_map(|l| l.expect_load().after.iter().cloned()).collect();
        let map: FxHashMap<UOp, UOp> = self
            .ranges
            .iter()
            .map(|(a, b)| (a.clone(), b.clone()))
            .chain(before.into_iter().map(|b| (b.clone(), b)))
            .collect();
        simplify(&s.substitute(&map))
    }
}
