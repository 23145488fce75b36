//! Kernels. Input: groups of stores that share a loop nest. Output: the `Sink` of each group, over
//! numbered arguments and ranges. Equal groups from different parts of the graph are the same
//! interned node.
//!
//! Ranges that only occur as one flat index are merged: longer loops leave more choice of vector
//! lanes and threads.
//!
//! ```text
//! out[i*4 + j] = x[i*4 + j] over i < 6, j < 4   =>   out[r] = x[r] over r < 24
//! ```
//!
//! **Invariant:** a store stays inside its buffer, and a range belongs to one loop.

use super::assign_ranges::buffer_param;
use super::fuse::{BufferStore, KernelGroup};
use super::scan;
use crate::ir::typed::Store;
use crate::ir::{Op, Src, UOp, substitute_all, toposort};
use crate::rewrite::Rules;
use crate::rewrite::rules;
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The kernels built so far, from their graphs before ranges are merged: layers of a model often
/// have the same kernel.
pub type Built = FxHashMap<UOp, UOp>;

/// Makes the kernel of a group, and returns the buffer number of each of its arguments. `len`
/// returns the elements of a buffer.
pub fn build_kernel(
    g: &KernelGroup,
    len: &dyn Fn(usize) -> usize,
    built: &mut Built,
) -> (UOp, Vec<usize>) {
    let (ast, slots) = build_sink(g, len);
    (built.entry(ast).or_insert_with_key(merge_ranges).clone(), slots)
}

/// Merges adjacent ranges that only occur as one flat index: longer loops leave more choice of
/// vector lanes and threads.
fn merge_ranges(sink: &UOp) -> UOp {
    let mut ranges: Vec<UOp> = sink.operand().expect_store().ranges.to_vec();
    let mut exprs: Vec<UOp> = sink
        .src()
        .iter()
        .flat_map(|s| {
            let Store { place, value, .. } = s.expect_store();
            let mask = place.mask.cloned().unwrap_or_else(|| UOp::truth(true));
            [place.index.clone(), value.clone(), mask]
        })
        .collect();
    let mut i = 0;
    while i + 1 < ranges.len() {
        let Some((range, new)) = merge_two_ranges(&ranges[i], &ranges[i + 1], &exprs) else {
            i += 1;
            continue;
        };
        ranges.splice(i..i + 2, [range]);
        exprs = new;
    }
    let stores = sink.src().iter().zip(exprs.chunks(3)).map(|(s, e)| {
        let mask = Some(e[2].clone()).filter(|mask| !mask.is_int(1));
        let place = UOp::masked_index(s.expect_store().place.buffer, &e[0], mask);
        place.store(MERGE_RULES.fixpoint(&e[1], &mut ()), &ranges)
    });
    renumbered(&separate_nests(UOp::sink(stores.collect::<Src>())))
}

/// Gives a reduce ranges of its own where two reduces would nest a shared range differently. A
/// range is one loop of the program: if one reduce has it inside another loop and a second does
/// not, the second gets new ranges.
///
/// ```text
/// Reduce(x[b], a, b) + Reduce(x[b], b, c)   ->   Reduce(x[b], a, b) + Reduce(x[d], d, c)
/// ```
fn separate_nests(mut sink: UOp) -> UOp {
    let is_range = |r: &&UOp| r.op() == Op::Range;
    let closed = |u: &UOp| -> BTreeSet<u32> {
        u.expect_reduce().ranges.iter().filter(is_range).map(UOp::range_id).collect()
    };
    let reduces = |sink: &UOp| {
        sink.toposort().into_iter().filter(|u| u.op() == Op::Reduce).collect::<Vec<_>>()
    };
    for _ in 0..reduces(&sink).len() {
        let list = reduces(&sink);
        let all: BTreeSet<u32> = list.iter().flat_map(&closed).collect();
        // The reduce ranges around a reduce, with its own.
        let around = |u: &UOp| -> BTreeSet<u32> {
            u.ranges().iter().filter(|id| all.contains(id)).chain(closed(u)).collect()
        };
        let mut known: FxHashMap<u32, BTreeSet<u32>> = FxHashMap::default();
        let differs = |u: &&UOp| {
            let own = around(u);
            closed(u).into_iter().any(|id| *known.entry(id).or_insert_with(|| own.clone()) != own)
        };
        let Some(u) = list.iter().find(differs) else { break };
        let ids =
            sink.toposort().iter().filter(is_range).map(UOp::range_id).max().map_or(0, |id| id + 1);
        let fresh = |(i, r): (u32, &UOp)| {
            (r.clone(), UOp::range(r.expect_range().extent, ids + i, r.range_kind()))
        };
        let map: FxHashMap<UOp, UOp> =
            (0..).zip(u.expect_reduce().ranges.iter().filter(is_range)).map(fresh).collect();
        let new = u.with_src(
            u.src()
                .iter()
                .map(|s| map.get(s).cloned().unwrap_or_else(|| s.substitute(&map)))
                .collect::<Src>(),
        );
        sink = sink.substitute(&FxHashMap::from_iter([(u.clone(), new)]));
    }
    sink
}

/// Replaces two ranges by one in all expressions, if no division by it remains.
fn merge_two_ranges(a: &UOp, b: &UOp, exprs: &[UOp]) -> Option<(UOp, Vec<UOp>)> {
    // Ordered and unordered ranges are not merged.
    if a.range_kind() != b.range_kind() {
        return None;
    }
    let (m, n) = (a.expect_range().extent.as_int()?, b.expect_range().extent.as_int()?);
    let whole = UOp::range(m.checked_mul(n)?, a.range_id(), a.range_kind());
    let map = FxHashMap::from_iter([(a.clone(), &whole / n), (b.clone(), &whole % n)]);
    let new: Vec<UOp> = substitute_all(exprs, &map).iter().map(simplify).collect();
    let splits = |u: &UOp| matches!(u.op(), Op::IDiv | Op::Mod) && u.uses_range(whole.range_id());
    (!toposort(&new).iter().any(splits)).then_some((whole, new))
}

rules! {
    /// Rules on the values of kernels. Ranges are renumbered afterwards.
    pub MERGE_RANGES |u, _cx: ()| {
        reduce_join: Reduce(..) => merge_reduce_ranges(u);
    }
}

static MERGE_RULES: LazyLock<Rules<()>> = LazyLock::new(|| Rules::new(&[&MERGE_RANGES]));

/// Merges adjacent ranges of a reduce.
fn merge_reduce_ranges(u: &UOp) -> Option<UOp> {
    let (body, ranges) = u.src().split_first()?;
    (0..ranges.len().saturating_sub(1)).find_map(|i| {
        let (range, mut body) =
            merge_two_ranges(&ranges[i], &ranges[i + 1], std::slice::from_ref(body))?;
        let mut src: Src = smallvec::smallvec![body.pop()?];
        src.extend(ranges[..i].iter().chain([&range]).chain(&ranges[i + 2..]).cloned());
        Some(u.with_src(src))
    })
}

/// Makes the kernel of a group: the `Sink` of its stores, and the buffer number of each argument
/// slot. `len` returns the elements of a buffer.
///
/// **Invariant:** the bounds of each store's index are inside its buffer, also if the store is
/// masked.
fn build_sink(g: &KernelGroup, len: &dyn Fn(usize) -> usize) -> (UOp, Vec<usize>) {
    let ranges = scan::loop_order(&g.ranges, g.values());
    let close = |BufferStore { buffer: number, index, value }: &BufferStore| -> UOp {
        let len = len(*number);
        let inside = index.vmin() >= 0 && index.vmax() < len as i128;
        assert!(
            inside,
            "build_kernels: a store may exceed its buffer of {len} elements: {index:?}"
        );
        let mask = g.update.clone().filter(|mask| !mask.is_int(1));
        let buffer = buffer_param(*number, len, value.dtype());
        UOp::masked_index(&buffer, index, mask).store(value, &ranges)
    };
    let sink = UOp::sink(g.stores.iter().map(close).collect::<Src>());
    let order = sink.toposort();
    // Slots: written buffers, then those that are only read, in order of use.
    let mut slots: Vec<usize> = Vec::new();
    g.writes().for_each(|n| {
        if !slots.contains(&n) {
            slots.push(n)
        }
    });
    let mut map = numbers(&sink, &order);
    for u in order.iter().filter(|u| u.op() == Op::Param) {
        let param = u.expect_param();
        let slot = slots.iter().position(|n| *n == param.slot).unwrap_or_else(|| {
            slots.push(param.slot);
            slots.len() - 1
        });
        map.insert(u.clone(), UOp::define_global(slot, param.len, u.dtype()));
    }
    (sink.substitute(&map), slots)
}

/// Renumbers the ranges of a kernel.
fn renumbered(sink: &UOp) -> UOp {
    sink.substitute(&numbers(sink, &sink.toposort()))
}

/// Returns the new ids of a kernel's ranges: those of the outputs, then those of reduces, outer
/// ones first.
fn numbers(sink: &UOp, order: &[UOp]) -> FxHashMap<UOp, UOp> {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut number = |r: &UOp| {
        let next = map.len() as u32;
        map.entry(r.clone())
            .or_insert_with(|| UOp::range(r.expect_range().extent, next, r.range_kind()));
    };
    sink.operand().expect_store().ranges.iter().for_each(&mut number);
    for u in order.iter().rev().filter(|u| u.op() == Op::Reduce) {
        u.expect_reduce().ranges.iter().for_each(&mut number);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ir::{AxisKind, DeviceName};

    fn group(extent: i64, update: Option<UOp>) -> KernelGroup {
        let range = UOp::range(extent, 0, AxisKind::Global);
        let value = UOp::constant(1i64, DType::I32);
        let store = BufferStore { buffer: 0, index: range.clone(), value };
        KernelGroup::new(DeviceName::new("CPU"), vec![range], vec![store], update)
    }

    #[test]
    fn a_store_inside_its_buffer_is_finished() {
        assert_eq!(build_sink(&group(8, None), &|_| 8).1, [0]);
    }

    #[test]
    #[should_panic(expected = "a store may exceed its buffer of 8 elements")]
    fn a_store_that_leaves_its_buffer_is_not() {
        build_sink(&group(9, None), &|_| 8);
    }
}
