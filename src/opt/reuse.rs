//! `REUSE`: values that a reduction computes and a later loop over the same row uses again, such as
//! the exponentials of a softmax, which are summed and then scaled. Where a value costs more to
//! compute than to store and load, the loop of the reduction stores it and the later loop loads it.
//!
//! It is stored in the output that the later loop computes from it, if the dtypes are equal: that
//! memory is written anyway, and its latency is hidden where there is much to compute. Otherwise,
//! and if the output is stored past the caches, it is in scratch memory of the thread.
//!
//! Only `VECTORIZE` and `ORDER` may follow it. However other Opts split the ranges, two values are
//! equal if they are the same expression after the position in one loop is substituted by that in
//! the other, so that the result has the same bits.

use super::OptOp;
use super::apply::{Applied, OptRequest};
use crate::dtype::DType;
use crate::ir::typed::Index;
use crate::ir::{AxisKind, Op, Src, ToSrc, UOp, toposort, toposort_until};
use crate::kernel::{self, expanded_cost, extent, has_unit_stride_load, is_symbolic, next_shared};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// A value that is stored, and its later uses.
struct Reused {
    /// The value in the loop of the reduction.
    value: UOp,
    /// The ranges of the reduction.
    ranges: Vec<UOp>,
    /// The value in later loops, each with the ranges that correspond to those of the reduction.
    later_uses: Vec<(UOp, Vec<UOp>)>,
}

/// A kernel that stores values for reuse.
pub struct ReuseKernel {
    /// The kernel.
    pub ast: UOp,
    /// Bytes that are live at once, in scratch memory and in outputs.
    pub bytes: usize,
}

/// Applies `REUSE`.
pub(super) fn reuse_values(q: &OptRequest) -> Applied {
    q.check_unordered()?;
    if q.kernel.has(OptOp::Overlap) {
        return Err("two threads may compute the rows of overlapping tiles, and both would store \
                    values in the same output"
            .into());
    }
    if q.kernel.has(OptOp::ReduceOuter) {
        return Err("the accumulators of REDUCE_OUTER are carried through memory already".into());
    }
    let built = reuse(&q.kernel.ast, q.target).map(|r| r.ast);
    built.ok_or_else(|| {
        "no value of a reduction that a later loop uses costs more to compute than to store".into()
    })
}

/// Returns the kernel that stores the values that are worth it; none if there is no such value.
pub fn reuse(ast: &UOp, target: &Target) -> Option<ReuseKernel> {
    // Threads of a workgroup have no memory of their own that is large enough.
    if target.grid || kernel::outer_reduce(ast).is_some() {
        return None;
    }
    let mut kernel = ReuseKernel { ast: ast.clone(), bytes: 0 };
    // A stored value may be part of another one, so they are stored one by one.
    while let Some(reused) = find_reused(&kernel.ast, target.tuning.cpu.reuse_work) {
        kernel = reused.build(&kernel);
    }
    (kernel.bytes > 0).then_some(kernel)
}

/// Returns the cost of an operation, in simple operations.
fn weight(u: &UOp) -> usize {
    match expanded_cost(u).unwrap_or(u.op().reuse_cost()) as usize {
        // Simple index arithmetic is computed in any case.
        1 if u.dtype() == DType::INDEX => 0,
        cost => cost,
    }
}

fn is_loop(r: &UOp) -> bool {
    matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop | AxisKind::Reduce)
}

fn size(ranges: &[UOp]) -> usize {
    ranges.iter().map(extent).fold(1, usize::saturating_mul)
}

fn uses(u: &UOp, ranges: &[UOp]) -> bool {
    ranges.iter().any(|r| u.uses_range(r.range_id()))
}

/// Returns the position in a nest of ranges, the last one fastest.
fn position(ranges: &[UOp]) -> UOp {
    ranges.iter().fold(UOp::int(0), |p, r| p * extent(r) as i64 + r)
}

/// Returns the first value that takes at least `work` operations and is used again.
fn find_reused(ast: &UOp, work: usize) -> Option<Reused> {
    let order = ast.toposort();
    let (mut present, mut in_indices): (Option<FxHashSet<u64>>, Option<FxHashSet<u64>>) =
        (None, None);
    for reduce in order.iter().filter(|u| u.op() == Op::Reduce) {
        let ranges: Vec<UOp> = reduce.closed_ranges().to_vec();
        // The nodes that are computed in each iteration, operands first.
        let mut steps = toposort_until([reduce.operand()], |u| !uses(u, &ranges));
        steps.retain(|u| uses(u, &ranges));
        // Inside the loop of another reduction it would be computed again in each iteration.
        let nested = order.iter().any(|u| {
            u.op() == Op::Reduce
                && u.closed_ranges().iter().any(|r| reduce.uses_range(r.range_id()))
        });
        if nested || !ranges.iter().any(is_loop) || steps.iter().map(weight).sum::<usize>() < work {
            continue;
        }
        let present = present.get_or_insert_with(|| order.iter().map(UOp::id).collect());
        // A vector load computes its index per lane, so an index cannot wait for a store.
        let in_indices = in_indices.get_or_insert_with(|| {
            let places = order.iter().filter_map(UOp::as_load).map(|l| l.place);
            toposort(places.flat_map(|p| std::iter::once(p.index).chain(p.mask)))
                .iter()
                .map(UOp::id)
                .collect()
        });
        let inside: FxHashSet<u64> = reduce.toposort().iter().map(UOp::id).collect();
        let mut found: Option<Reused> = None;
        for nest in nests(&order, reduce)
            .into_iter()
            .filter(|n| have_equal_length(n, &ranges) && n.iter().any(is_loop))
        {
            let moved = substituted(&steps, &ranges, &nest);
            let is_again = |m: &UOp| {
                present.contains(&m.id())
                    && !inside.contains(&m.id())
                    && !in_indices.contains(&m.id())
            };
            let same = |u: &UOp| moved.get(&u.id()).filter(|m| is_again(m));
            // The largest value that is computed again, and for all nests the same one.
            let candidates =
                steps.iter().rev().filter(|u| found.as_ref().is_none_or(|r| r.value == **u));
            let mut both = candidates.filter_map(|u| Some((u, same(u)?.clone())));
            let Some((value, again)) = both.find(|(u, _)| is_profitable(u, &ranges, work)) else {
                continue;
            };
            let reused = found.get_or_insert_with(|| Reused {
                value: value.clone(),
                ranges: ranges.clone(),
                later_uses: Vec::new(),
            });
            reused.later_uses.push((again, nest));
        }
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns true if two nests have equally many iterations, symbolic extents included.
fn have_equal_length(a: &[UOp], b: &[UOp]) -> bool {
    let bounds =
        |list: &[UOp]| list.iter().map(|r| r.expect_range().extent.id()).collect::<Vec<_>>();
    if a.iter().chain(b).any(is_symbolic) { bounds(a) == bounds(b) } else { size(a) == size(b) }
}

/// Returns true if a value takes at least `work` operations in each iteration.
fn is_profitable(u: &UOp, ranges: &[UOp], work: usize) -> bool {
    let computed = u.op().is_alu() && u.dtype() != DType::INDEX && !u.dtype().is_bool();
    computed
        && toposort_until([u], |u| !uses(u, ranges))
            .iter()
            .filter(|u| uses(u, ranges))
            .map(weight)
            .sum::<usize>()
            >= work
}

/// Returns the nests over which a value of the reduction may be used again: the ranges of a store
/// that the reduction does not depend on.
fn nests(order: &[UOp], reduce: &UOp) -> Vec<Vec<UOp>> {
    let stores = || order.last().into_iter().flat_map(|sink| sink.src());
    let of_row = |r: &UOp| reduce.uses_range(r.range_id());
    let of_store = |s: &UOp| -> Option<Vec<UOp>> {
        let nest: Vec<UOp> = s.closed_ranges().iter().filter(|r| !of_row(r)).cloned().collect();
        // With a loop of the nest outside, the reduction is computed again in each iteration.
        let is_inner = |s: &UOp| {
            let last = s.closed_ranges().iter().rposition(|r| of_row(r) && is_loop(r));
            let first = s.closed_ranges().iter().position(|r| nest.contains(r) && is_loop(r));
            first.is_none_or(|first| last.is_none_or(|last| last < first))
        };
        stores().all(is_inner).then_some(nest)
    };
    let mut list: Vec<Vec<UOp>> = stores().filter_map(of_store).collect();
    let mut seen = FxHashSet::default();
    list.retain(|n: &Vec<UOp>| seen.insert(n.iter().map(UOp::range_id).collect::<Vec<_>>()));
    list
}

/// Maps the ranges of one nest to their values at the position in another of the same size.
fn substitution(ranges: &[UOp], nest: &[UOp]) -> FxHashMap<UOp, UOp> {
    let sizes = |list: &[UOp]| list.iter().map(extent).collect::<Vec<_>>();
    if sizes(ranges) == sizes(nest) {
        return ranges.iter().cloned().zip(nest.iter().cloned()).collect();
    }
    let at = position(nest);
    let mut below = 1i64;
    let digit = |r: &UOp| {
        let digit = simplify(&((&at / below) % extent(r) as i64));
        below *= extent(r) as i64;
        (r.clone(), digit)
    };
    ranges.iter().rev().map(digit).collect()
}

/// Returns the nodes of a reduction's body with its ranges replaced by the position in the nest.
fn substituted(steps: &[UOp], ranges: &[UOp], nest: &[UOp]) -> FxHashMap<u64, UOp> {
    // Not `UOp::rebuild`, which returns the new root alone: here the new form of each node counts.
    let mut done: FxHashMap<u64, UOp> =
        substitution(ranges, nest).into_iter().map(|(r, p)| (r.id(), p)).collect();
    for u in steps.iter().filter(|u| u.op() != Op::Range) {
        let new = u.with_src(
            u.src().iter().map(|s| done.get(&s.id()).unwrap_or(s).clone()).collect::<Src>(),
        );
        // Indices and masks are simplified, so that equal ones are one node; values keep their
        // bits.
        let is_place = u.dtype() == DType::INDEX || u.dtype().is_bool();
        done.insert(u.id(), if is_place { simplify(&new) } else { new });
    }
    done
}

impl Reused {
    /// Returns the kernel that stores this value.
    fn build(&self, before: &ReuseKernel) -> ReuseKernel {
        let order = before.ast.toposort();
        let is_copy = |u: &&UOp| {
            u.op() == Op::Range
                && u.range_kind() == AxisKind::Upcast
                && self.value.uses_range(u.range_id())
        };
        let copies: Vec<UOp> = order.iter().filter(is_copy).cloned().collect();
        let bytes = size(&copies)
            .saturating_mul(size(&self.ranges))
            .saturating_mul(self.value.dtype().itemsize());
        let (to, from) =
            self.output_memory(&order).unwrap_or_else(|| self.scratch_memory(&order, &copies));
        let closed: Vec<UOp> = self.ranges.iter().chain(&copies).cloned().collect();
        let ready = UOp::barrier([to.store(&self.value, &closed)].to_src());
        let loads = from.into_iter().map(|from| from.load_after(&ready));
        let map = self.later_uses.iter().map(|(u, _)| u.clone()).zip(loads).collect();
        ReuseKernel { ast: before.ast.substitute(&map), bytes: before.bytes.saturating_add(bytes) }
    }

    /// Returns the element of an output that the value is stored to, and those that it is loaded
    /// from, if there is an output that the only later loop writes and nothing reads.
    fn output_memory(&self, order: &[UOp]) -> Option<(UOp, Vec<UOp>)> {
        let [(again, nest)] = &self.later_uses[..] else { return None };
        // A thread that shares the row would overwrite what another one reads later.
        if nest.iter().any(|r| r.range_kind() == AxisKind::Thread) {
            return None;
        }
        let stores = order.last()?.src().iter().filter(|s| {
            // A store past the caches is not loaded from.
            let writes = s.op() == Op::Store && !s.is_nontemporal();
            writes && nest.iter().all(|r| s.closed_ranges().contains(r))
        });
        let unread = |buffer: &UOp| {
            !order.iter().any(|u| u.as_load().is_some_and(|l| l.place.buffer == buffer))
        };
        let known = |r: &UOp| nest.contains(r) || self.value.uses_range(r.range_id());
        let is_row = |to: &UOp| {
            order.iter().filter(|r| r.op() == Op::Range && to.uses_range(r.range_id())).all(known)
        };
        let fits = |to: &Index| {
            to.mask.is_none()
                && to.node.dtype() == again.dtype()
                && is_row(to.node)
                && unread(to.buffer)
        };
        let written = stores.map(UOp::expect_store).filter(|s| s.value.toposort().contains(again));
        let from = written.map(|s| s.place).find(fits)?;
        let index = simplify(&from.index.substitute(&substitution(nest, &self.ranges)));
        let runs = self.ranges.iter().all(|r| kernel::index_stride(&index, r).is_some());
        runs.then(|| (from.buffer.at(index), vec![from.node.clone()]))
    }

    /// Returns the same elements in scratch memory. Each copy of the row has its own part;
    /// copies along which inputs have unit stride are adjacent.
    fn scratch_memory(&self, order: &[UOp], copies: &[UOp]) -> (UOp, Vec<UOp>) {
        let id = next_shared(order);
        let loads = toposort_until([&self.value], |u| !uses(u, &self.ranges));
        let (lanes, rows): (Vec<&UOp>, Vec<&UOp>) =
            copies.iter().partition(|r| has_unit_stride_load(&loads, r));
        let len = size(copies) * size(&self.ranges);
        let memory = UOp::define_shared(id, len, self.value.dtype());
        let at = |nest: &[UOp]| {
            let all: Vec<UOp> =
                rows.iter().copied().chain(nest).chain(lanes.iter().copied()).cloned().collect();
            memory.at(simplify(&position(&all)))
        };
        (at(&self.ranges), self.later_uses.iter().map(|(_, nest)| at(nest)).collect())
    }
}
