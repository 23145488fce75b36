//! Concatenation. Input: a `Cat` of n tensors. Output: n stores into slices of one buffer,
//! O(output) in all, or a select for each element, which fuses into its user and is O(n · output).
//!
//! Before: `Cat(a[2, m], b[3, m]) {axis=0}`. After, as stores:
//!
//! ```text
//! for i in 2, j in m:  out[i, j]     = a[i, j]
//! for i in 3, j in m:  out[i + 2, j] = b[i, j]
//! ```
//!
//! `fuse` merges stores with equal loops. Many tensors are concatenated in groups of as many as fit
//! in a kernel. The kernels of the groups are equal, so they are compiled once; n stores at
//! different offsets would need a kernel per group.

use super::assign_ranges::{PendingStore, Use, Walk, contiguous_memory};
use super::fuse::MAX_MERGED_BUFFERS;
use super::index::flat;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, Src, UOp, rebuild_all, toposort};
use crate::shape::{Dims, Movement};
use crate::symbolic::simplify;
use crate::target::ScheduleTuning;
use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum number of operands that one kernel concatenates: they fit in [`MAX_MERGED_BUFFERS`] with
/// others. `limit_buffers` splits the kernel for devices that have fewer.
const GROUP: usize = MAX_MERGED_BUFFERS - 3;

/// Returns the axis of a cat.
fn axis(u: &UOp) -> usize {
    u.expect_cat().axis
}

/// Replaces each `Cat` that is cheaper to compute with a select per element. The remaining ones are
/// stored.
pub fn lower_cats(outputs: &[UOp], tuning: &ScheduleTuning) -> Vec<UOp> {
    let order = toposort(outputs);
    let mut users: FxHashMap<u64, usize> = FxHashMap::default();
    order.iter().flat_map(|u| u.src()).for_each(|s| *users.entry(s.id()).or_default() += 1);
    let in_memory = |u: &&UOp| {
        matches!(u.op(), Op::Contiguous | Op::Copy | Op::Kernel | Op::Cat | Op::Scan | Op::Scatter)
    };
    let stored: FxHashSet<u64> = outputs
        .iter()
        .chain(order.iter().filter(in_memory).flat_map(|u| u.src()))
        .map(|u| contiguous_memory(u).0.id())
        .collect();
    rebuild_all(outputs, |u, src| {
        if u.op() == Op::Cat && u.numel() > 0 {
            let parts: Src = src.iter().filter(|s| s.numel() > 0).cloned().collect();
            let is_large = stored.contains(&u.id()) && u.numel() >= tuning.select_elements;
            let few = if is_large { 1 } else { tuning.select_operands };
            let once = !stored.contains(&u.id()) && users.get(&u.id()).is_none_or(|n| *n == 1);
            return Some(match parts.len() {
                n if n <= few || (n <= tuning.fused_operands && once) => {
                    select_by_position(&parts, axis(u))
                }
                n if n > GROUP && u.numel() * u.dtype().itemsize() < tuning.copied_bytes => {
                    in_groups(parts, axis(u))
                }
                _ => UOp::cat(parts, axis(u)),
            });
        }
        // A cat is in memory, in row-major order.
        let (Op::Contiguous, Arg::None, [x]) = (u.op(), u.arg(), src) else { return None };
        let base = x.view().map_or(Some(x), |(base, seen)| seen.is_contiguous().then_some(base));
        base.is_some_and(|b| b.op() == Op::Cat).then(|| x.clone())
    })
}

/// Selects each element from the operands by its position along the axis. A sum with zeros would
/// turn -0 into 0.
fn select_by_position(parts: &[UOp], axis: usize) -> UOp {
    let total: usize = parts.iter().map(|p| p.shape()[axis]).sum();
    let shape: Dims = parts[0]
        .shape()
        .iter()
        .enumerate()
        .map(|(a, &n)| if a == axis { total } else { n })
        .collect();
    let along: Dims = (0..shape.len()).map(|a| if a == axis { total } else { 1 }).collect();
    let dtype = if i32::try_from(total).is_ok() { DType::I32 } else { DType::I64 };
    let place = UOp::iota(total, dtype);
    let place = place.moved(Movement::Reshape(along)).moved(Movement::Expand(shape));
    let (mut joined, mut end): (Option<UOp>, usize) = (None, 0);
    for p in parts {
        let (before, after) = (end, total - end - p.shape()[axis]);
        end += p.shape()[axis];
        let padded = p.moved(Movement::pad(
            (0..p.shape().len()).map(|a| if a == axis { (before, after) } else { (0, 0) }),
        ));
        joined = Some(match joined {
            None => padded,
            Some(left) => place.lt(before as i64).select(&left, &padded),
        });
    }
    joined.expect("a cat has an operand")
}

/// Concatenates groups of as many operands as fit in a kernel, then the groups.
fn in_groups(mut parts: Src, axis: usize) -> UOp {
    while parts.len() > GROUP {
        parts = parts
            .chunks(GROUP)
            .map(|group| UOp::cat(group.iter().cloned().collect(), axis))
            .collect();
    }
    UOp::cat(parts, axis)
}

/// Returns the evaluation of each operand, over its own axes in a kernel of its own. An operand
/// without elements has none.
pub(super) fn propagate(u: &UOp, walk: &mut Walk) -> Vec<Use> {
    let part = |x: &UOp| {
        let (at, ranges) = walk.axis_ranges(x, |_| AxisKind::Global);
        let mut d = walk.new_kernel_use(at, &ranges, x.numel());
        let k = walk.add_use_at(x, &d);
        d.operands.push(k);
        d
    };
    u.src().iter().map(part).collect()
}

/// Returns the stores into slices. `operand` returns the value of an operand at an evaluation.
pub(super) fn stored(
    u: &UOp,
    buffer: usize,
    evals: &[Use],
    operand: impl Fn(&UOp, &Use) -> UOp,
) -> Vec<PendingStore> {
    let (axis, mut start) = (axis(u), 0);
    let mut list = Vec::with_capacity(evals.len());
    for (x, d) in u.src().iter().zip(evals) {
        let mut at = d.at.clone();
        at[axis] = simplify(&(&at[axis] + start));
        start += x.shape()[axis] as i64;
        let (node, ranges) = (u.clone(), d.loops.to_vec());
        let (value, index) = (operand(x, d), flat(&at, u.shape()));
        list.push(PendingStore { node, buffer, ranges, value, index, update: None });
    }
    list
}
