//! What a search may do to a kernel next: every optimisation, on every axis, by amounts that were
//! seen to be of use.

use super::{argument, vectorized};
use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel::{extent, is_symbolic};
use crate::opt::{Kernel, Opt, OptOp};
use crate::target::Target;

/// Copies of outputs, and steps of a reduce, that are worth a try. Those that do not divide an axis
/// are refused by it.
const COPIES: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 16];
/// Lanes of vectors on a CPU.
const LANES: [usize; 2] = [32, 64];
/// Threads of a workgroup along an axis.
const THREADS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Steps of a reduce whose inputs are staged together, for workgroups and for the cache of a CPU.
const STEPS: [usize; 3] = [8, 16, 32];
const BLOCKS: [usize; 2] = [256, 512];
/// Ways to use tensor cores: there are as many as pairs of output axes.
const WAYS: [usize; 4] = [0, 1, 2, 3];
/// Sizes that other optimisations divide well.
const PADDED: [usize; 4] = [4, 8, 16, 32];

/// The kernels that are one optimisation away from this one, in a fixed order.
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
/// let next = heuristic::actions(&Kernel::new(ast.clone()), &Target::c(2, 64));
/// assert!(next.iter().any(|k| opt::show(&k.opts) == "THREAD:0:2"));
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn actions(kernel: &Kernel, target: &Target) -> Vec<Kernel> {
    // Lanes are chosen last: a list that goes on gets new ones.
    let lanes = kernel;
    let kernel = &kernel.without_lanes();
    let mut opts: Vec<Opt> = Vec::new();
    let axes = kernel.axes();
    let unstaged = |u: &&UOp| u.op() == Op::Load && *u.arg() == Arg::None;
    let mut inputs: Vec<usize> =
        kernel.ast.toposort().iter().filter(unstaged).filter_map(argument).collect();
    inputs.sort_unstable();
    inputs.dedup();
    for (axis, r) in axes.iter().enumerate() {
        let size = extent(r);
        let mut add = |op: OptOp, amounts: &[usize]| {
            opts.extend(amounts.iter().map(|a| Opt::new(op, axis, *a)))
        };
        match r.range_kind() {
            AxisKind::Global | AxisKind::Loop => {
                add(OptOp::Upcast, &COPIES);
                if !target.grid {
                    add(OptOp::Upcast, &LANES);
                }
                add(OptOp::Local, &THREADS);
                let threads: Vec<usize> = (2..=target.threads)
                    .filter(|n| n.is_power_of_two() || *n == target.threads)
                    .collect();
                add(OptOp::Thread, &threads);
                let others =
                    (axis + 1..axes.len()).filter(|o| axes[*o].range_kind() == r.range_kind());
                add(OptOp::Swap, &others.collect::<Vec<_>>());
            }
            AxisKind::Reduce => {
                add(OptOp::Unroll, &COPIES);
                if !target.grid {
                    add(OptOp::Unroll, &LANES);
                }
                add(OptOp::Group, &THREADS);
                add(OptOp::GroupTop, &THREADS);
                add(OptOp::Split, if target.grid { &STEPS } else { &BLOCKS });
                if !target.tensor_cores.is_empty() {
                    add(OptOp::Tc, &WAYS);
                }
                add(OptOp::Prefetch, &[0]);
            }
            _ => continue,
        }
        add(OptOp::Stage, &inputs);
        // An axis that is no longer than this is done whole.
        if !COPIES.contains(&size) && (2..=16).contains(&size) {
            add(
                if r.range_kind() == AxisKind::Reduce { OptOp::Unroll } else { OptOp::Upcast },
                &[size],
            );
        }
        // Padding is work for nothing, so only where it is little, or makes an axis that a variable
        // ends one that can be cut.
        let little =
            |p: &usize| !size.is_multiple_of(*p) && size.next_multiple_of(*p) * 4 <= size * 5;
        let padded = PADDED.into_iter().filter(|p| is_symbolic(r) || little(p));
        add(OptOp::PadTo, &padded.collect::<Vec<_>>());
    }
    opts.push(Opt::of_kernel(OptOp::Reuse));
    let other = opts.iter().filter_map(|opt| kernel.apply(opt, target).ok());
    let mut next: Vec<Kernel> = other.map(|k| vectorized(&k, target)).collect();
    // Lanes along one axis in place of those that there are, or along one more.
    for axis in 0..axes.len() {
        let opt = Opt::of_axis(OptOp::Vectorize, axis);
        next.extend(kernel.apply(&opt, target).ok());
        if lanes.has(OptOp::Vectorize) {
            next.extend(lanes.apply(&opt, target).ok());
        }
    }
    next
}
