//! Register tiles on a GPU, for sums of products that no staged tile fits, such as convolutions:
//! which outputs a thread computes, which iterations of the sum are unrolled, and which threads are
//! adjacent. All tiles are compared by an estimate of what a multiprocessor does for one
//! multiplication, from the strides of each load along the axes, and the best is applied.
//!
//! The estimate: a multiprocessor multiplies for four warps at a time, and fetches one line of
//! memory for one warp. What a thread has loaded serves all outputs of its tile, those of a sliding
//! window included. Threads that load the same element, or elements of one line, share the fetch.

use super::super::facts::KernelFacts;
use super::super::{splittable_extent, try_apply};
use crate::ir::typed::{Index, Reduce};
use crate::ir::{AxisKind, Fold, Op, UOp};
use crate::kernel::{self, masked_term};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::symbolic::Linear;
use crate::target::Target;

/// Elements of the widest load of a thread, in every language of GPUs. Structural.
const WIDEST_LOAD: i64 = 4;

/// A load of the sum.
struct LoadFacts {
    /// The stride along each axis, if it is constant.
    strides: Vec<Option<i64>>,
    /// The constant term of the index.
    constant: i64,
    /// Bytes of an element.
    bytes: i64,
    /// True if the load is masked.
    is_masked: bool,
    /// For each axis, whether the mask varies along it.
    mask_varies: Vec<bool>,
}

impl LoadFacts {
    fn of(load: &UOp, axes: &[UOp]) -> Option<LoadFacts> {
        let Index { index, mask, .. } = load.expect_load().place;
        let varies = |r: &UOp| mask.is_some_and(|m| m.uses_range(r.range_id()));
        Some(LoadFacts {
            strides: axes.iter().map(|r| kernel::index_stride(index, r)).collect(),
            constant: Linear::of(index)?.constant,
            bytes: load.dtype().itemsize() as i64,
            is_masked: mask.is_some(),
            mask_varies: axes.iter().map(varies).collect(),
        })
    }

    /// Returns true if the load does not depend on an axis.
    fn is_independent(&self, axis: usize) -> bool {
        self.strides[axis] == Some(0) && !self.mask_varies[axis]
    }

    /// Returns the distinct offsets of the load in one iteration of a thread, and a factor on their
    /// number for axes along which the stride is unknown.
    fn offsets(&self, copies: &Copies) -> (Vec<i64>, usize) {
        let (mut list, mut unknown) = (vec![self.constant], 1);
        for (axis, n) in copies.iter().enumerate().filter(|c| *c.1 > 1) {
            match self.strides[axis] {
                _ if self.is_independent(axis) => {}
                Some(stride) => {
                    let along = |i: i64| list.iter().map(move |x| x + i * stride);
                    list = (0..*n as i64).flat_map(along).collect();
                    list.sort_unstable();
                    list.dedup();
                }
                None => unknown *= n,
            }
        }
        (list, unknown)
    }

    /// Returns the number of lines of memory that a warp fetches for a vector of `width` elements
    /// at an offset. `lanes` are the positions of its threads along the axes.
    fn lines(
        &self,
        copies: &Copies,
        lanes: &[Vec<usize>],
        (offset, width): (i64, i64),
        target: &Target,
    ) -> usize {
        let line = target.machine.line_bytes as i64;
        let first = |lane: &Vec<usize>| -> Option<i64> {
            let moved = lane.iter().enumerate().filter(|l| *l.1 > 0);
            moved.map(|(axis, i)| Some(self.strides[axis]? * (copies[axis] * i) as i64)).sum()
        };
        let mut list: Vec<i64> = Vec::with_capacity(lanes.len());
        for lane in lanes {
            // With an unknown stride, each thread has a line of its own.
            let Some(first) = first(lane) else { return lanes.len() };
            let bytes = (first + offset) * self.bytes;
            list.extend([bytes, bytes + width * self.bytes - 1].map(|b| b.div_euclid(line)));
        }
        list.sort_unstable();
        list.dedup();
        list.len()
    }
}

/// The axes of a sum of products: those of outputs, then those of the sum.
struct SumOfProducts {
    axes: Vec<UOp>,
    sizes: Vec<usize>,
    /// The number of output axes.
    outputs: usize,
    loads: Vec<LoadFacts>,
    /// For each axis, whether the mask of the products varies along it, such as that of a window
    /// that exceeds an edge. Along other axes it is evaluated once per iteration.
    mask_varies: Vec<bool>,
}

/// The copies of a thread along each axis.
type Copies = Vec<usize>;

impl SumOfProducts {
    fn of(facts: &KernelFacts, main: &UOp, target: &Target) -> Option<SumOfProducts> {
        let Reduce { body, ranges, fold: Fold::Add, .. } = main.as_reduce()? else { return None };
        let mask = masked_term(Fold::Add, body).map(|term| term.0);
        let is_used = |r: &&UOp| is_output(r) && main.uses_range(r.range_id());
        let mut axes: Vec<UOp> = facts.axes.iter().filter(is_used).cloned().collect();
        let outputs = axes.len();
        let is_summed = |r: &&UOp| r.op() == Op::Range && r.range_kind() == AxisKind::Reduce;
        axes.extend(ranges.iter().filter(is_summed).cloned());
        let body = body.toposort();
        let loads = body.iter().filter(|u| u.op() == Op::Load);
        let varies = |r: &UOp| mask.as_ref().is_some_and(|m| m.uses_range(r.range_id()));
        let p = SumOfProducts {
            sizes: axes.iter().map(splittable_extent).collect(),
            outputs,
            loads: loads.map(|load| LoadFacts::of(load, &axes)).collect::<Option<_>>()?,
            mask_varies: axes.iter().map(varies).collect(),
            axes,
        };
        p.is_tile_profitable(target).then_some(p)
    }

    /// Returns true if two loads each serve enough outputs that the other does not depend on. If
    /// those are few, or all outputs are, it is better to share each sum between threads.
    fn is_tile_profitable(&self, target: &Target) -> bool {
        let tuning = &target.tuning.gpu;
        let serves_alone = |l: &LoadFacts, other: &LoadFacts| {
            let alone = |axis: &usize| !l.is_independent(*axis) && other.is_independent(*axis);
            (0..self.outputs).filter(alone).map(|axis| self.sizes[axis]).product::<usize>()
                >= tuning.factor_outputs
        };
        let (outputs, reduced) = self.sizes.split_at(self.outputs);
        let is_few = outputs.iter().product::<usize>() < tuning.tile_outputs
            && reduced.iter().product::<usize>() >= super::long_axis(target);
        let mut pairs = (0..self.loads.len()).flat_map(|i| (0..i).map(move |j| [i, j]));
        !is_few
            && pairs.any(|pair| {
                let [l, m] = pair.map(|i| &self.loads[i]);
                serves_alone(l, m) && serves_alone(m, l)
            })
    }

    /// Returns the first offset and the width of each machine load of sorted offsets.
    fn vector_loads(
        &self,
        load: &LoadFacts,
        copies: &Copies,
        offsets: &[i64],
        target: &Target,
    ) -> Vec<(i64, i64)> {
        let lanes = (target.vector_bytes as i64 / load.bytes).min(WIDEST_LOAD);
        let most = if load.is_masked { 1 } else { lanes };
        // A vector starts at a multiple of its width, in every thread.
        let is_aligned = |n: i64| {
            (0..self.axes.len()).all(|axis| {
                let is_multiple = |s: i64| s * copies[axis] as i64 % n == 0;
                load.strides[axis]
                    .is_some_and(|s| copies[axis] == self.sizes[axis] || is_multiple(s))
            })
        };
        let widths = [WIDEST_LOAD, WIDEST_LOAD / 2].into_iter();
        let widths: Vec<i64> = widths.filter(|n| *n <= most && is_aligned(*n)).collect();
        let mut out = Vec::new();
        let mut rest = offsets;
        while let Some(&first) = rest.first() {
            let fits = |n: &&i64| {
                let last = rest.get(**n as usize - 1);
                first % **n == 0 && last == Some(&(first + **n - 1))
            };
            let n = widths.iter().find(fits).copied().unwrap_or(1);
            out.push((first, n));
            rest = &rest[n as usize..];
        }
        out
    }

    /// Estimates the cost of one multiplication; none if the values of an iteration exceed the
    /// registers. `lanes` are the positions of a warp's threads along the axes.
    fn cost(&self, copies: &Copies, lanes: Option<&[Vec<usize>]>, target: &Target) -> Option<f64> {
        let tuning = &target.tuning.gpu;
        let (sums, multiplies) = self.counts(copies);
        if sums > tuning.tile_accumulators || multiplies > tuning.tile_multiplies {
            return None;
        }
        let is_masked = self.mask_varies.contains(&true);
        let differs = self.mask_varies.iter().zip(copies).any(|(varies, n)| *varies && *n > 1);
        let (mut fetched, mut loaded, mut masks) = (0.0, 0, 0.0);
        for load in &self.loads {
            let (offsets, unknown) = load.offsets(copies);
            let elements = offsets.len() * unknown;
            loaded += elements;
            if load.is_masked && (differs || !is_masked) {
                masks += elements as f64;
            }
            for vector in self.vector_loads(load, copies, &offsets, target) {
                let lines = lanes.map_or(1, |lanes| load.lines(copies, lanes, vector, target));
                fetched += unknown as f64 * lines as f64;
            }
        }
        if sums + loaded > tuning.tile_values {
            return None;
        }
        let product = if differs { tuning.masked_product_cost } else { 1.0 };
        let work =
            (multiplies as f64 * product + tuning.mask_cost * masks) / tuning.multiplies_per_fetch;
        // The shorter of the two hides behind the longer, but not all of it.
        let time = fetched.max(work) + tuning.exposed * fetched.min(work);
        let threads = self.sizes[..self.outputs].iter().product::<usize>() as f64 / sums as f64;
        let saturating = target.tuning.saturating_threads.max(tuning.min_threads) as f64;
        Some(time / multiplies as f64 / (threads / saturating).min(1.0))
    }

    /// Returns the accumulators of a tile, and its multiplications in one iteration.
    fn counts(&self, copies: &Copies) -> (usize, usize) {
        (copies[..self.outputs].iter().product(), copies.iter().product())
    }

    /// Returns the register tiles that fit in registers.
    fn tiles(&self, target: &Target) -> Vec<Copies> {
        let tuning = &target.tuning.gpu;
        let mut tiles: Vec<Copies> = vec![vec![1; self.axes.len()]];
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        order.sort_by_key(|axis| std::cmp::Reverse(self.sizes[*axis]));
        for axis in order {
            // A divisor of an output axis; of the sum a whole window, or up to a vector.
            let is_vector = |n: usize| n.is_power_of_two() && n <= tuning.tile_steps;
            let fits = |n: &usize| axis < self.outputs || is_vector(*n) || *n == self.sizes[axis];
            let amounts: Vec<usize> =
                divisors(self.sizes[axis], tuning.tile_side).filter(fits).collect();
            if tiles.len() * amounts.len() > tuning.compared_tiles {
                break;
            }
            let with = |tile: &Copies, n: usize| {
                let mut tile = tile.clone();
                tile[axis] = n;
                tile
            };
            let is_small = |tile: &Copies| {
                let (sums, multiplies) = self.counts(tile);
                sums <= tuning.tile_accumulators && multiplies <= tuning.tile_multiplies
            };
            let longer = tiles.iter().flat_map(|t| amounts.iter().map(|n| with(t, *n)));
            tiles = longer.filter(is_small).collect();
        }
        tiles
    }

    /// Returns workgroups for a tile: one or two axes first, then as much of the others as fits.
    fn workgroups(&self, copies: &Copies, target: &Target) -> Vec<Vec<usize>> {
        let workgroup = target.tuning.gpu.workgroup;
        let left: Vec<usize> = (0..self.outputs).map(|a| self.sizes[a] / copies[a]).collect();
        let sides = std::iter::once([target.machine.lockstep_threads; 2])
            .chain(target.tuning.gpu.tile_workgroups);
        let pairs = (0..self.outputs).flat_map(|a| (0..self.outputs).map(move |b| [a, b]));
        let mut list: Vec<Vec<usize>> = Vec::new();
        for ([first, second], [most, more]) in
            pairs.flat_map(|pair| sides.clone().map(move |sides| (pair, sides)))
        {
            let mut group = vec![1; self.outputs];
            let mut room = workgroup;
            let others = (0..self.outputs).rev().map(|axis| (axis, workgroup));
            let order = [(first, most), (second, more)].into_iter().chain(others);
            for (axis, most) in order.filter(|o| left[o.0] > 1) {
                if group[axis] == 1 {
                    group[axis] = divisors(left[axis], most.min(room)).next_back().unwrap_or(1);
                    room /= group[axis];
                }
            }
            if !list.contains(&group) {
                list.push(group);
            }
        }
        list
    }

    /// Returns the coordinates along each axis of the threads of a workgroup's first warp. Threads
    /// along the axis of the smallest stride are adjacent, as `ORDER` makes them.
    fn warp_coordinates(
        &self,
        copies: &Copies,
        group: &[usize],
        target: &Target,
    ) -> Vec<Vec<usize>> {
        let stride = |axis: &usize| {
            let strides = self.loads.iter().filter_map(|l| l.strides[*axis]);
            let strides = strides.map(|s| s.unsigned_abs() as usize * copies[*axis]);
            strides.filter(|s| *s > 0).min().unwrap_or(usize::MAX)
        };
        let mut order: Vec<usize> = (0..self.outputs).filter(|axis| group[*axis] > 1).collect();
        order.sort_by_key(stride);
        let threads = group.iter().product::<usize>().min(target.machine.lockstep_threads);
        let position = |lane: usize| {
            let mut at = vec![0; self.axes.len()];
            let mut rest = lane;
            for axis in &order {
                at[*axis] = rest % group[*axis];
                rest /= group[*axis];
            }
            at
        };
        (0..threads).map(position).collect()
    }

    /// Returns the tile and the workgroup of the lowest estimated cost.
    fn best(&self, target: &Target) -> Option<(Copies, Vec<usize>)> {
        let mut ranked: Vec<(f64, Copies)> = self
            .tiles(target)
            .into_iter()
            .filter_map(|t| Some((self.cost(&t, None, target)?, t)))
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.truncate(target.tuning.gpu.tried_tiles);
        let mut best: Option<(f64, Copies, Vec<usize>)> = None;
        for (_, copies) in ranked {
            for group in self.workgroups(&copies, target) {
                let lanes = self.warp_coordinates(&copies, &group, target);
                let Some(cost) = self.cost(&copies, Some(&lanes), target) else { continue };
                // A warp that is not full takes as long as a full one.
                let threads: usize = group.iter().product();
                let full = threads.next_multiple_of(target.machine.lockstep_threads);
                let cost = cost * full as f64 / threads as f64;
                if best.as_ref().is_none_or(|b| cost < b.0) {
                    best = Some((cost, copies.clone(), group));
                }
            }
        }
        best.map(|(_, copies, group)| (copies, group))
    }
}

/// Returns the divisors of an extent up to `most`, ascending.
fn divisors(size: usize, most: usize) -> impl DoubleEndedIterator<Item = usize> {
    (1..=most.min(size)).filter(move |n| size.is_multiple_of(*n))
}

/// Returns the kernel with the best register tile, if it is a sum of products.
pub(super) fn gpu_register_tile(
    facts: &KernelFacts,
    main: &UOp,
    target: &Target,
) -> Option<Kernel> {
    let p = SumOfProducts::of(facts, main, target)?;
    let (copies, group) = p.best(target)?;
    let mut k = facts.kernel.clone();
    for (a, r) in p.axes.iter().enumerate() {
        let op = if a < p.outputs { OptOp::Upcast } else { OptOp::Unroll };
        let threads = group.get(a).copied().unwrap_or(1);
        for (op, amount) in [(op, copies[a]), (OptOp::Local, threads)] {
            if amount > 1
                && let Some(axis) = k.axis_of(r)
                && !try_apply(&mut k, Opt::new(op, axis, amount), target)
            {
                return None;
            }
        }
    }
    Some(k)
}
