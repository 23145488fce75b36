//! The order of the threads of a workgroup. Adjacent threads should access adjacent addresses, so
//! that the accesses of a warp are coalesced.

use super::try_apply;
use crate::ir::{AxisKind, Op, UOp};
use crate::kernel::{self, Access, thread_order, warp_last};
use crate::opt::{Kernel, Opt, OptOp};
use crate::target::Target;
use std::cmp::Reverse;

/// Adds the `ORDER` Opts that sort thread axes by decreasing stride, to a list that has none.
pub(super) fn ordered(kernel: &Kernel, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    let mut order = thread_order(&k.ast);
    if kernel.has(OptOp::Order) || !target.grid || order.len() < 2 {
        return k;
    }
    // Unrolled iterations are accesses of their own.
    let (accesses, _) = kernel::accesses_in(&k.ast, |r| r.range_kind() != AxisKind::Unroll);
    let mut wanted = order.clone();
    wanted.sort_by_key(|r| Reverse(stride(&accesses, r)));
    warp_last(&k.ast, &mut wanted);
    for (position, r) in wanted.iter().enumerate() {
        if order[position] != *r
            && let Some(axis) = k.axis_of(r)
            && try_apply(&mut k, Opt::new(OptOp::Order, axis, position), target)
        {
            order.retain(|other| other != r);
            order.insert(position, r.clone());
        }
    }
    k
}

/// Returns the smallest stride along a range in the most frequent accesses.
fn stride(accesses: &[Access], r: &UOp) -> i64 {
    let in_range = |a: &&Access| {
        let place = a.node.expect_access().place;
        place.buffer.op() == Op::DefineGlobal && place.node.uses_range(r.range_id())
    };
    let using = || accesses.iter().filter(in_range);
    let most = using().map(|a| a.times).fold(0.0, f64::max);
    let strides = using().filter(|a| a.times == most).filter_map(|a| kernel::stride(&a.node, r));
    strides.map(i64::abs).filter(|s| *s > 0).min().unwrap_or(i64::MAX)
}
