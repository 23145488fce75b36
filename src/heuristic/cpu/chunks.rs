//! The number of chunks that a kernel is split into: from its estimated time and its axes, never
//! from the number of threads, so that a kernel is the same program on any of them.
//!
//! ```text
//! 50,257 rows of 768, 1.2 ms: 32 chunks are wanted; 29 divides the rows, so THREAD:0:29
//! ```

use super::super::try_apply;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel::{expanded_cost, extent, is_symbolic};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::{CpuTuning, Target};
use rustc_hash::FxHashMap;

/// Splits an output axis into at most `most` chunks, if the kernel takes long enough.
pub(super) fn chunks(k: &mut Kernel, most: usize, target: &Target) {
    chunks_along(k, most, |_| true, target);
}

/// Splits one of some output axes into at most `most` chunks, if the kernel takes long enough.
pub(super) fn chunks_along(
    k: &mut Kernel,
    most: usize,
    is_wanted: impl Fn(&UOp) -> bool,
    target: &Target,
) {
    let tuning = &target.tuning.cpu;
    let time = estimated_ns(&k.ast, tuning);
    let wanted = wanted_chunks(time, tuning).min(most);
    if wanted < 2 || !target.chunks {
        return;
    }
    let axes = k.axes();
    let fits = |r: &UOp| is_output(r) && !is_symbolic(r) && extent(r) > 1 && is_wanted(r);
    let mut outputs: Vec<(usize, usize, usize)> = Vec::new();
    for (axis, r) in axes.iter().enumerate().filter(|(_, r)| fits(r)) {
        // What does not depend on the axis is computed by every chunk: a fraction of its work.
        let repeated = operations_ns(&k.ast, tuning, |u| !u.uses_range(r.range_id()));
        let affordable = (time / tuning.repeated_work / repeated.max(1e-9)) as usize;
        if affordable > 1 {
            outputs.push((axis, extent(r), wanted.min(affordable)));
        }
    }
    // The outermost axis that is long enough, otherwise the longest.
    outputs.sort_by_key(|(_, n, most)| std::cmp::Reverse((*n).min(*most).min(wanted.div_ceil(2))));
    for (axis, size, most) in outputs {
        if try_apply(k, Opt::new(OptOp::Thread, axis, chunks_of(size, most)), target) {
            return;
        }
    }
}

/// Returns the number of threads that a kernel is worth, so that as many outputs are left to it.
pub(super) fn useful_threads(k: &Kernel, target: &Target) -> usize {
    let tuning = &target.tuning.cpu;
    wanted_chunks(estimated_ns(&k.ast, tuning), tuning).min(tuning.reference_threads)
}

/// Returns the number of chunks of an axis: preferably one that divides it, so that all chunks are
/// equal.
fn chunks_of(size: usize, wanted: usize) -> usize {
    if size <= wanted {
        return size;
    }
    let fewest = (wanted * 3).div_ceil(4).max(2);
    (fewest..=wanted).rev().find(|n| size.is_multiple_of(*n)).unwrap_or(wanted)
}

/// Returns the number of chunks for an estimated time; 1 if the kernel is too short.
fn wanted_chunks(ns: f64, tuning: &CpuTuning) -> usize {
    if ns < tuning.min_chunked_ns {
        return 1;
    }
    let most = tuning.reference_threads * tuning.thread_chunks;
    ((ns / tuning.chunk_ns) as usize).clamp(2, most)
}

/// Returns the estimated time of a kernel on one core, in nanoseconds: operations, and the bytes
/// of its buffers.
pub(super) fn estimated_ns(ast: &UOp, tuning: &CpuTuning) -> f64 {
    // In the order of the graph, so that the sum has the same bits in every process.
    let mut accesses: Vec<(UOp, f64)> = Vec::new();
    let order = ast.toposort();
    let times = executions(&order);
    for u in &order {
        let Some(access) = u.as_access() else { continue };
        let count = if u.op() == Op::Store { iterations(u) } else { times(u) };
        let buffer = access.place.buffer;
        match accesses.iter_mut().find(|(known, _)| known == buffer) {
            Some((_, sum)) => *sum += count,
            None => accesses.push((buffer.clone(), count)),
        }
    }
    let bytes = accesses.iter().map(|(buffer, count)| match buffer.arg() {
        Arg::Global { len, .. } => count.min(*len as f64) * buffer.dtype().itemsize() as f64,
        _ => 0.0,
    });
    operations_ns(ast, tuning, |_| true) + bytes.sum::<f64>() * tuning.byte_ns
}

/// Returns the estimated time of the operations that `counts` accepts, as if they were vectorized.
fn operations_ns(ast: &UOp, tuning: &CpuTuning, counts: impl Fn(&UOp) -> bool) -> f64 {
    let order = ast.toposort();
    let times = executions(&order);
    let of = |u: &UOp| match u.op() {
        Op::Reduce => times(u.operand()) * tuning.operation_ns,
        Op::Scan => times(u.operand()) * tuning.ordered_ns,
        Op::Store if u.closed_ranges().iter().any(|r| r.range_kind() == AxisKind::Ordered) => {
            iterations(u) * tuning.ordered_ns
        }
        op if op.is_alu() && u.dtype() != DType::INDEX && !u.dtype().is_bool() => {
            let cost = expanded_cost(u).unwrap_or(op.reuse_cost());
            times(u) * f64::from(cost) * tuning.operation_ns
        }
        _ => 0.0,
    };
    order.iter().filter(|u| counts(u)).map(of).sum()
}

/// Returns a function of a node: how often it is computed.
fn executions(order: &[UOp]) -> impl Fn(&UOp) -> f64 {
    let ranges = order.iter().filter(|u| u.op() == Op::Range);
    let extents: FxHashMap<u32, f64> = ranges.map(|r| (r.range_id(), extent(r) as f64)).collect();
    move |u| u.ranges().iter().map(|id| extents[&id]).product()
}

/// Returns the iterations of the loops that a store closes.
fn iterations(store: &UOp) -> f64 {
    store.closed_ranges().iter().map(|r| extent(r) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ScheduleItem;
    use crate::{Tensor, heuristic};

    fn kernel(t: &Tensor) -> Kernel {
        let Some(ScheduleItem::Kernel { ast, .. }) = t.schedule().unwrap().pop() else {
            panic!("a kernel")
        };
        Kernel::new(ast)
    }

    fn ones(shape: &[usize]) -> Tensor {
        let x = Tensor::ones(shape).contiguous().realize().unwrap();
        x.to("interp").realize().unwrap()
    }

    #[test]
    fn independent_reductions_add_up() {
        let tuning = &Target::c(64).tuning.cpu;
        let x = ones(&[2, 32, 64]);
        let (a, b) = (x.i(0), x.i(1));
        let ns = |t: &Tensor| estimated_ns(&kernel(t).ast, tuning);
        let one = ns(&a.square().sum(1));
        let three = ns(&(a.square().sum(1) + b.square().sum(1) * (&a * &b).sum(1)));
        assert!(three > 2.0 * one && three < 4.0 * one, "{one} {three}");
        // The sums of a product are inside its outputs.
        let product = ns(&a.matmul(&b.t()));
        let multiplications = (32 * 32 * 64) as f64 * 2.0 * tuning.operation_ns;
        assert!(product > multiplications && product < multiplications * 1.5, "{product}");
    }

    #[test]
    fn the_number_of_chunks_follows_from_time_and_axes() {
        let tuning = Target::c(64).tuning.cpu;
        let wanted = |us: f64| wanted_chunks(us * 1e3, &tuning);
        assert_eq!([9.9, 10.0, 24.0, 1e3].map(wanted), [1, 2, 4, 32]);
        let chunks = [(50_257, 32), (50_261, 32), (20, 32), (64, 32), (33, 32), (7, 2)];
        assert_eq!(chunks.map(|(size, n)| chunks_of(size, n)), [29, 32, 20, 32, 32, 2]);
    }

    #[test]
    fn an_axis_of_prime_length_has_chunks() {
        let (w, x) = (ones(&[5003, 256]), ones(&[256]));
        let k = heuristic::choose(&kernel(&(w * x).sum(1)), &Target::llvm(64));
        assert!(k.opts.iter().any(|o| o.op == OptOp::Thread), "{:?}", k.opts);
    }
}
