//! Register tiles for sums of products on GPUs that no tile of memory fits, as those of
//! convolutions: which outputs a thread computes, which steps of the sum are written out, and which
//! threads stand beside each other. In come the axes and how far each load moves along them; all
//! tiles are compared by an estimate of what a multiprocessor does for one multiplication, and the
//! best is applied.
//!
//! The estimate: a multiprocessor multiplies for four warps at a time, and fetches one line of
//! memory for one warp. What a thread has loaded serves all outputs of its tile, a window that
//! slides included; threads that load the same place, or places of one line, share the fetch.

use super::super::facts::KernelFacts;
use super::super::{splittable_extent, try_apply};
use crate::ir::typed::{Index, Reduce};
use crate::ir::{AxisKind, Fold, Op, UOp};
use crate::kernel::{self, masked_term};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::symbolic::Linear;
use crate::target::Target;

/// A load of the sum.
struct Operand {
    /// How far it moves along each axis; none where that is not the same everywhere.
    steps: Vec<Option<i64>>,
    /// The literal in its place.
    constant: i64,
    bytes: i64,
    guarded: bool,
    /// Axes that its guard changes along.
    guards: Vec<bool>,
}

/// The axes of a sum of products: those of outputs, then those of the sum.
struct SumOfProducts {
    axes: Vec<UOp>,
    sizes: Vec<usize>,
    /// How many of them are outputs.
    outputs: usize,
    loads: Vec<Operand>,
    /// Axes that the condition changes along under which products count, as those of a window do
    /// that hangs over an edge. Along all others it is asked once for a round.
    gates: Vec<bool>,
}

/// How much of each axis a thread has at once.
type Copies = Vec<usize>;

impl SumOfProducts {
    fn of(facts: &KernelFacts, main: &UOp, target: &Target) -> Option<SumOfProducts> {
        let Reduce { body, ranges, fold: Fold::Add, .. } = main.as_reduce()? else { return None };
        let condition = masked_term(Fold::Add, body).map(|g| g.0);
        let is_used = |r: &&UOp| is_output(r) && main.uses_range(r.range_id());
        let mut axes: Vec<UOp> = facts.axes.iter().filter(is_used).cloned().collect();
        let outputs = axes.len();
        axes.extend(
            ranges
                .iter()
                .filter(|r| r.op() == Op::Range && r.range_kind() == AxisKind::Reduce)
                .cloned(),
        );
        let operand = |load: &UOp| {
            let Index { index, mask, .. } = load.expect_load().place;
            Some(Operand {
                steps: axes.iter().map(|r| kernel::step(index, r)).collect(),
                constant: Linear::of(index)?.constant,
                bytes: load.dtype().itemsize() as i64,
                guarded: mask.is_some(),
                guards: axes
                    .iter()
                    .map(|r| mask.is_some_and(|m| m.uses_range(r.range_id())))
                    .collect(),
            })
        };
        let loads: Vec<Operand> = body
            .toposort()
            .iter()
            .filter(|u| u.op() == Op::Load)
            .map(operand)
            .collect::<Option<_>>()?;
        let gates = axes
            .iter()
            .map(|r| condition.as_ref().is_some_and(|c| c.uses_range(r.range_id())))
            .collect();
        let p = SumOfProducts {
            sizes: axes.iter().map(splittable_extent).collect(),
            axes,
            outputs,
            loads,
            gates,
        };
        p.is_worth_a_tile(target).then_some(p)
    }

    /// Returns true if two loads each serve enough outputs that the other does not depend on. Where
    /// those are few, or all outputs are, it is better to share each sum between threads.
    fn is_worth_a_tile(&self, target: &Target) -> bool {
        let only = |l: &Operand, other: &Operand| -> usize {
            let does_without = |l: &Operand, a: usize| l.steps[a] == Some(0) && !l.guards[a];
            (0..self.outputs)
                .filter(|a| !does_without(l, *a) && does_without(other, *a))
                .map(|a| self.sizes[a])
                .product()
        };
        let serves = |l: &Operand, other: &Operand| {
            only(l, other) >= target.tuning.gpu.factor_outputs
                && only(other, l) >= target.tuning.gpu.factor_outputs
        };
        let (outputs, reduced) = self.sizes.split_at(self.outputs);
        let few = outputs.iter().product::<usize>() < target.tuning.gpu.tile_outputs
            && reduced.iter().product::<usize>() >= 2 * target.machine.lockstep_threads;
        let mut pairs = self
            .loads
            .iter()
            .enumerate()
            .flat_map(|(i, l)| self.loads[..i].iter().map(move |m| (l, m)));
        !few && pairs.any(|(l, m)| serves(l, m))
    }

    /// Returns the distinct offsets of a load in one round of a thread, and a factor on their
    /// number for axes along which the stride is unknown.
    fn places(&self, load: &Operand, copies: &Copies) -> (Vec<i64>, usize) {
        let (mut list, mut unlike) = (vec![load.constant], 1);
        for (a, n) in copies.iter().enumerate().filter(|c| *c.1 > 1) {
            match load.steps[a] {
                Some(0) if !load.guards[a] => {}
                Some(step) => {
                    let first = std::mem::take(&mut list);
                    list.extend(
                        (0..*n as i64).flat_map(|i| first.iter().map(move |x| x + i * step)),
                    );
                    list.sort_unstable();
                    list.dedup();
                }
                None => unlike *= n,
            }
        }
        (list, unlike)
    }

    /// The first place and the width of each machine load that these are.
    fn joined(
        &self,
        load: &Operand,
        copies: &Copies,
        places: &[i64],
        target: &Target,
    ) -> Vec<(i64, i64)> {
        let most = if load.guarded { 1 } else { (target.vector_bytes as i64 / load.bytes).min(4) };
        // A vector lies at a multiple of its width, wherever a thread begins.
        let aligned = |n: i64| {
            (0..self.axes.len()).all(|a| {
                load.steps[a]
                    .is_some_and(|s| copies[a] == self.sizes[a] || s * copies[a] as i64 % n == 0)
            })
        };
        let widths: Vec<i64> = [4, 2].into_iter().filter(|n| *n <= most && aligned(*n)).collect();
        let mut out = Vec::new();
        let mut rest = places;
        while let Some(&at) = rest.first() {
            let fits = |n: &&i64| {
                at % **n == 0
                    && rest.len() >= **n as usize
                    && rest[**n as usize - 1] == at + **n - 1
            };
            let n = widths.iter().find(fits).copied().unwrap_or(1);
            out.push((at, n));
            rest = &rest[n as usize..];
        }
        out
    }

    /// What one multiplication costs, if a round fits in registers. `lanes` are the places of a
    /// warp's threads along the axes.
    fn cost(&self, copies: &Copies, lanes: Option<&[Vec<usize>]>, target: &Target) -> Option<f64> {
        let sums: usize = copies[..self.outputs].iter().product();
        let round: usize = copies.iter().product();
        if sums > target.tuning.gpu.tile_accumulators || round > target.tuning.gpu.tile_multiplies {
            return None;
        }
        let gated = self.gates.contains(&true);
        let apart = gated && self.gates.iter().zip(copies).any(|(g, n)| *g && *n > 1);
        let (mut fetched, mut loaded, mut guards) = (0.0, 0, 0.0);
        for load in &self.loads {
            let (places, unlike) = self.places(load, copies);
            loaded += places.len() * unlike;
            if load.guarded && (apart || !gated) {
                guards += (places.len() * unlike) as f64;
            }
            for (at, width) in self.joined(load, copies, &places, target) {
                fetched += unlike as f64
                    * lanes.map_or(1, |lanes| lines(load, copies, lanes, at, width, target)) as f64;
            }
        }
        if sums + loaded > target.tuning.gpu.tile_values {
            return None;
        }
        let threads = self.sizes[..self.outputs].iter().product::<usize>() as f64 / sums as f64;
        let work = (round as f64 * if apart { target.tuning.gpu.masked_product_cost } else { 1.0 }
            + target.tuning.gpu.mask_cost * guards)
            / target.tuning.gpu.multiplies_per_fetch;
        // The one hides behind the other, though not all of it.
        let time = fetched.max(work) + target.tuning.gpu.exposed * fetched.min(work);
        Some(
            time / round as f64
                / (threads
                    / target.tuning.saturating_threads.max(target.tuning.gpu.min_threads) as f64)
                    .min(1.0),
        )
    }
}

/// How many lines of memory a warp fetches for a load.
fn lines(
    load: &Operand,
    copies: &Copies,
    lanes: &[Vec<usize>],
    at: i64,
    width: i64,
    target: &Target,
) -> usize {
    let line = target.machine.line_bytes as i64;
    let place = |lane: &Vec<usize>| -> Option<i64> {
        lane.iter()
            .enumerate()
            .filter(|l| *l.1 > 0)
            .map(|(a, i)| Some(load.steps[a]? * (copies[a] * i) as i64))
            .sum()
    };
    let mut list: Vec<i64> = Vec::with_capacity(lanes.len());
    for lane in lanes {
        // Where it cannot be told, each has a line of its own.
        let Some(first) = place(lane) else { return lanes.len() };
        let bytes = (first + at) * load.bytes;
        list.extend([bytes.div_euclid(line), (bytes + width * load.bytes - 1).div_euclid(line)]);
    }
    list.sort_unstable();
    list.dedup();
    list.len()
}

/// The amounts by which an axis can be cut, up to `most`.
fn divisors(size: usize, most: usize) -> impl DoubleEndedIterator<Item = usize> {
    (1..=most.min(size)).filter(move |n| size.is_multiple_of(*n))
}

/// A kernel with the best tile, where it is a sum of products.
pub(super) fn gpu_register_tile(
    facts: &KernelFacts,
    main: &UOp,
    target: &Target,
) -> Option<Kernel> {
    let p = SumOfProducts::of(facts, main, target)?;
    let mut tiles: Vec<Copies> = vec![vec![1; p.axes.len()]];
    let mut order: Vec<usize> = (0..p.axes.len()).collect();
    order.sort_by_key(|a| std::cmp::Reverse(p.sizes[*a]));
    for a in order {
        // All of a short axis, or a part of it; of a sum all of a window, or as many steps as one
        // vector has.
        let fits = |n: &usize| a < p.outputs || matches!(n, 1 | 2 | 4) || *n == p.sizes[a];
        let amounts: Vec<usize> =
            divisors(p.sizes[a], target.tuning.gpu.tile_side).filter(fits).collect();
        if tiles.len() * amounts.len() > target.tuning.gpu.compared_tiles {
            break;
        }
        let with = |t: &Copies, n: usize| {
            t.iter().enumerate().map(|(i, c)| if i == a { n } else { *c }).collect::<Copies>()
        };
        let small = |t: &Copies| {
            t[..p.outputs].iter().product::<usize>() <= target.tuning.gpu.tile_accumulators
                && t.iter().product::<usize>() <= target.tuning.gpu.tile_multiplies
        };
        tiles =
            tiles.iter().flat_map(|t| amounts.iter().map(|n| with(t, *n))).filter(small).collect();
    }
    let mut ranked: Vec<(f64, Copies)> =
        tiles.into_iter().filter_map(|t| Some((p.cost(&t, None, target)?, t))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.truncate(target.tuning.gpu.tried_tiles);
    let mut best: Option<(f64, Copies, Vec<usize>)> = None;
    for (_, copies) in ranked {
        for group in workgroups(&p, &copies, target) {
            let lanes = lanes(&p, &copies, &group, target);
            let threads: usize = group.iter().product();
            let Some(cost) = p.cost(&copies, Some(&lanes), target) else { continue };
            // Warps that are not full.
            let cost = cost * threads.next_multiple_of(target.machine.lockstep_threads) as f64
                / threads as f64;
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, copies.clone(), group));
            }
        }
    }
    let (_, copies, group) = best?;
    let mut k = facts.kernel.clone();
    for (a, r) in p.axes.iter().enumerate() {
        let op = if a < p.outputs { OptOp::Upcast } else { OptOp::Unroll };
        for (op, amount) in [(op, copies[a]), (OptOp::Local, group.get(a).copied().unwrap_or(1))] {
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

/// Workgroups for a tile: one or two axes first, then as much of the others as there is room.
fn workgroups(p: &SumOfProducts, copies: &Copies, target: &Target) -> Vec<Vec<usize>> {
    let left: Vec<usize> = (0..p.outputs).map(|a| p.sizes[a] / copies[a]).collect();
    let mut list: Vec<Vec<usize>> = Vec::new();
    for first in 0..p.outputs {
        for second in 0..p.outputs {
            let warp = [target.machine.lockstep_threads; 2];
            for [most, more] in std::iter::once(warp).chain(target.tuning.gpu.tile_workgroups) {
                let mut group = vec![1; p.outputs];
                let mut room = target.tuning.gpu.workgroup;
                let order = [(first, most), (second, more)]
                    .into_iter()
                    .chain((0..p.outputs).rev().map(|a| (a, target.tuning.gpu.workgroup)));
                for (a, most) in order.filter(|o| left[o.0] > 1) {
                    if group[a] == 1 {
                        group[a] = divisors(left[a], most.min(room)).next_back().unwrap_or(1);
                        room /= group[a];
                    }
                }
                if !list.contains(&group) {
                    list.push(group);
                }
            }
        }
    }
    list
}

/// Where the threads of the first warp of a workgroup stand along each axis: those beside each
/// other that are nearest in memory, as the launch has them.
fn lanes(p: &SumOfProducts, copies: &Copies, group: &[usize], target: &Target) -> Vec<Vec<usize>> {
    let stride = |a: &usize| {
        let steps = p
            .loads
            .iter()
            .filter_map(|l| l.steps[*a])
            .map(|s| s.unsigned_abs() as usize * copies[*a]);
        steps.filter(|s| *s > 0).min().unwrap_or(usize::MAX)
    };
    let mut order: Vec<usize> = (0..p.outputs).filter(|a| group[*a] > 1).collect();
    order.sort_by_key(stride);
    let threads = group.iter().product::<usize>().min(target.machine.lockstep_threads);
    let position = |lane: usize| {
        let mut at = vec![0; p.axes.len()];
        let mut rest = lane;
        for a in &order {
            at[*a] = rest % group[*a];
            rest /= group[*a];
        }
        at
    };
    (0..threads).map(position).collect()
}
