//! The Opts that a search tries next: each kind, on each axis, by the amounts of
//! [`SearchTuning`](crate::target::SearchTuning).

use super::{argument, completed};
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel::{extent, is_symbolic, thread_order};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Returns the kernels that are one Opt away from this one, in a fixed order.
///
/// ```
/// use picograd::{
///     Tensor,
///     exec::ScheduleItem,
///     heuristic,
///     opt::{self, Kernel},
///     target::Target,
/// };
/// let x = Tensor::ones([64, 64]).contiguous().realize()?;
/// let schedule = (&x + 1.0).schedule()?;
/// let ScheduleItem::Kernel { ast, .. } = &schedule[0] else { panic!("a sum is a kernel") };
/// let next = heuristic::actions(&Kernel::new(ast.clone()), &Target::c(64));
/// assert!(next.iter().any(|k| opt::show(&k.opts) == "THREAD:0:2"));
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn actions(kernel: &Kernel, target: &Target) -> Vec<Kernel> {
    // Thread order and lanes are chosen last: a list that goes on gets new ones.
    let complete = kernel;
    let kernel = &kernel.without_last();
    let mut opts: Vec<Opt> = Vec::new();
    let axes = kernel.axes();
    let unstaged = |u: &&UOp| u.op() == Op::Load && *u.arg() == Arg::None;
    let mut inputs: Vec<usize> =
        kernel.ast.toposort().iter().filter(unstaged).filter_map(argument).collect();
    inputs.sort_unstable();
    inputs.dedup();
    for axis in 0..axes.len() {
        opts.extend(opts_of_axis(&axes, axis, &inputs, target));
    }
    opts.push(Opt::of_kernel(OptOp::Reuse));
    let other = opts.iter().filter_map(|opt| kernel.apply(opt, target).ok());
    let mut next: Vec<Kernel> = other.map(|k| completed(&k, target)).collect();
    // Vector lanes along one axis in place of the present ones, or along one axis more.
    let without_lanes = complete.without_lanes();
    for axis in 0..axes.len() {
        let opt = Opt::of_axis(OptOp::Vectorize, axis);
        next.extend(without_lanes.apply(&opt, target).ok());
        if complete.has(OptOp::Vectorize) {
            next.extend(complete.apply(&opt, target).ok());
        }
    }
    next.extend(orders(complete, &axes, target));
    // No lanes, and the order of the axes.
    next.extend(complete.has(OptOp::Vectorize).then_some(without_lanes));
    next.extend(complete.has(OptOp::Order).then(|| complete.without_order()));
    next
}

/// Returns the kernels in which one axis of threads is further back in the order.
fn orders(kernel: &Kernel, axes: &[UOp], target: &Target) -> Vec<Kernel> {
    let order = thread_order(&kernel.ast);
    let moves = |(axis, r): (usize, &UOp)| {
        let at = order.iter().position(|t| t == r).unwrap_or(order.len());
        (at + 1..order.len()).map(move |position| Opt::new(OptOp::Order, axis, position))
    };
    let opts = axes.iter().enumerate().flat_map(moves);
    opts.filter_map(|opt| kernel.apply(&opt, target).ok()).collect()
}

/// Returns the Opts of one axis.
fn opts_of_axis(axes: &[UOp], axis: usize, inputs: &[usize], target: &Target) -> Vec<Opt> {
    let (r, search) = (&axes[axis], &target.tuning.search);
    let (size, kind) = (extent(r), r.range_kind());
    let mut opts: Vec<Opt> = Vec::new();
    let mut add =
        |op: OptOp, amounts: &[usize]| opts.extend(amounts.iter().map(|a| Opt::new(op, axis, *a)));
    let is_reduce = kind == AxisKind::Reduce;
    if !is_reduce && !is_output(r) {
        return opts;
    }
    let copy = if is_reduce { OptOp::Unroll } else { OptOp::Upcast };
    add(copy, search.copies);
    if !target.grid {
        add(copy, search.cpu_lanes);
    }
    if is_reduce {
        add(OptOp::Group, search.threads);
        add(OptOp::GroupTop, search.threads);
        add(OptOp::Split, if target.grid { search.gpu_steps } else { search.cpu_steps });
        if !target.tensor_cores.is_empty() {
            add(OptOp::Tc, search.tensor_core_mappings);
        }
        add(OptOp::Prefetch, &[0]);
        let outputs = (0..axes.len()).filter(|o| is_output(&axes[*o]) && !target.grid);
        add(OptOp::ReduceOuter, &outputs.collect::<Vec<_>>());
    } else {
        add(OptOp::Local, search.threads);
        add(OptOp::Thread, search.chunks);
        let others = (axis + 1..axes.len()).filter(|o| axes[*o].range_kind() == kind);
        add(OptOp::Swap, &others.collect::<Vec<_>>());
    }
    add(OptOp::Stage, inputs);
    if !search.copies.contains(&size) && (2..=search.whole_axis).contains(&size) {
        add(copy, &[size]);
    }
    // A symbolic axis can be split only after it was padded.
    let is_little = |p: &usize| {
        let padding = size.next_multiple_of(*p) - size;
        padding > 0 && padding as f64 <= size as f64 * search.padding_fraction
    };
    if !is_reduce && !is_symbolic(r) {
        let overlaps = |n: &usize| *n < size && !size.is_multiple_of(*n);
        let tiles = search.copies.iter().chain(search.cpu_lanes).copied().filter(overlaps);
        add(OptOp::Overlap, &tiles.collect::<Vec<_>>());
    }
    let padded = search.padding.iter().copied().filter(|p| is_symbolic(r) || is_little(p));
    add(OptOp::PadTo, &padded.collect::<Vec<_>>());
    opts
}
