//! Kernels without reductions that read an input along another axis than they write the output:
//! square tiles, which lowering transposes in registers.

use super::super::facts::KernelFacts;
use super::super::{power_of_two_divisor, splittable_extent, try_apply};
use super::fit::{Fit, Tiles, overlaps};
use crate::ir::{Op, UOp};
use crate::kernel::{self, Access, extent, max_lanes};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Minimum side of a tile: the shuffles of a smaller one are no fewer than its elements' loads.
/// Structural.
const MIN_SIDE: usize = 4;

/// Makes a square tile of an axis along which the output is contiguous, and one along which a load
/// is. Returns false where no load is contiguous along another axis.
pub(super) fn tile(k: &mut Kernel, to: &UOp, facts: &KernelFacts, target: &Target) -> bool {
    let strided = |a: &&Access| {
        a.node.op() == Op::Load && kernel::stride(&a.node, to).is_some_and(|s| s.abs() > 1)
    };
    let along = |r: &&UOp| {
        let reads = |a: &Access| kernel::stride(&a.node, r) == Some(1) && !a.is_masked(r);
        is_output(r) && *r != to && facts.accesses().iter().filter(strided).any(reads)
    };
    let Some(from) = facts.axes.iter().rev().find(along) else { return false };
    let most = max_lanes(target).min(1 << extent(to).min(extent(from)).max(1).ilog2());
    let sides = [from, to].map(|r| {
        let size = power_of_two_divisor(splittable_extent(r), most).unwrap_or(1);
        if size < most && overlaps(facts, r, most, target) {
            Tiles { size: most, fit: Fit::Overlaps }
        } else {
            Tiles { size, fit: Fit::Divides }
        }
    });
    let side = sides[0].size.min(sides[1].size);
    if side < MIN_SIDE {
        return false;
    }
    let mut next = k.clone();
    // The innermost loop runs along the input.
    let order = [to, from].map(|r| next.axis_of(r));
    if let [Some(i), Some(j)] = order
        && j < i
    {
        try_apply(&mut next, Opt::new(OptOp::Swap, j, i), target);
    }
    for (r, tiles) in [from, to].into_iter().zip(sides) {
        let tiles = if tiles.fit == Fit::Divides { Tiles { size: side, ..tiles } } else { tiles };
        if tiles.upcast(&mut next, r, target).is_none() {
            return false;
        }
    }
    *k = next;
    true
}
