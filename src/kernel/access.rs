//! Loads and stores of a kernel: how often each runs, its stride along a range, and the accesses
//! and operations that vector lanes along a range save.

use super::{extent, lane_mask};
use crate::dtype::DType;
use crate::ir::{Op, UOp};
use crate::symbolic::Linear;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Maximum distance of neighbouring elements that one vector load covers on targets without
/// workgroups: beyond it, most of the loaded elements are not used. Structural: the shuffles of
/// four vectors replace one per element.
pub const MAX_JOINED_STRIDE: u64 = 4;

/// A load, store or arithmetic operation of a kernel with its execution count.
pub struct Access {
    /// The node.
    pub node: UOp,
    /// Executions per output element.
    pub times: f64,
}

/// Returns the loads and stores of a kernel, and its arithmetic operations. What is inside a
/// reduction counts once per iteration.
pub fn accesses(ast: &UOp) -> (Vec<Access>, Vec<Access>) {
    accesses_in(ast, |_| true)
}

/// Returns the same, where only ranges that `is_loop` accepts count.
pub fn accesses_in(ast: &UOp, is_loop: impl Fn(&UOp) -> bool) -> (Vec<Access>, Vec<Access>) {
    let order = ast.toposort();
    let mut times: FxHashMap<u64, f64> = FxHashMap::default();
    let (mut list, mut operations) = (Vec::new(), Vec::new());
    for u in order.iter().rev() {
        let now = *times.entry(u.id()).or_insert(1.0);
        let loops: f64 = if u.op() == Op::Reduce {
            let ranges = u.closed_ranges().iter().filter(|r| r.op() == Op::Range && is_loop(r));
            ranges.map(|r| extent(r) as f64).product()
        } else {
            1.0
        };
        for s in u.src() {
            let t = times.entry(s.id()).or_insert(0.0);
            *t = t.max(now * loops);
        }
        if matches!(u.op(), Op::Load | Op::Store) {
            list.push(Access { node: u.clone(), times: now });
        } else if (u.op().is_alu() || u.op() == Op::Reduce)
            && u.dtype() != DType::INDEX
            && !u.dtype().is_bool()
        {
            operations.push(Access { node: u.clone(), times: now * loops });
        }
    }
    (list, operations)
}

/// Returns the stride of an index along a range, if it is constant.
pub fn index_stride(index: &UOp, r: &UOp) -> Option<i64> {
    if !index.uses_range(r.range_id()) {
        return Some(0);
    }
    let l = Linear::of(index)?;
    let inside = l.terms.iter().any(|(t, _)| t != r && t.uses_range(r.range_id()));
    (!inside).then(|| l.coefficient(r))
}

/// Returns the stride of a load or a store along a range, if it is constant.
pub fn stride(access: &UOp, r: &UOp) -> Option<i64> {
    index_stride(access.expect_access().place.index, r)
}

/// Returns true if one of the nodes is a load that has unit stride along the range.
pub fn has_unit_stride_load(nodes: &[UOp], r: &UOp) -> bool {
    nodes.iter().any(|u| u.op() == Op::Load && stride(u, r) == Some(1))
}

impl Access {
    /// Returns the number of machine accesses that an access of `lanes` lanes along the range
    /// takes.
    pub fn machine_accesses(&self, r: &UOp, lanes: usize, target: &Target) -> usize {
        match stride(&self.node, r) {
            Some(0 | 1) if !self.is_masked(r) => 1,
            Some(1) if target.has_lane_masks() && self.has_lane_mask(r) => 1,
            // Vector loads of all elements between the first and the last, and shuffles.
            Some(s) if self.is_joined(s, r, target) => {
                (2 * s.unsigned_abs() as usize - 1).min(lanes)
            }
            _ => lanes,
        }
    }
    /// Returns true if lanes at this stride are joined to vector loads.
    fn is_joined(&self, stride: i64, r: &UOp, target: &Target) -> bool {
        let joins = !target.grid && stride.unsigned_abs() <= MAX_JOINED_STRIDE;
        joins && self.node.op() == Op::Load && !self.is_masked(r)
    }
    /// Returns true if the mask of the access can have a bool per lane along the range.
    fn has_lane_mask(&self, r: &UOp) -> bool {
        let mask = self.node.expect_access().place.mask;
        mask.is_none_or(|mask| lane_mask(mask, r, 2).is_some())
    }
    /// Returns true if the mask of the access varies along the range.
    pub fn is_masked(&self, r: &UOp) -> bool {
        self.node.expect_access().place.mask.is_some_and(|m| m.uses_range(r.range_id()))
    }
    /// Returns true if the access has unit stride along the range.
    pub fn has_unit_stride(&self, r: &UOp, target: &Target) -> bool {
        stride(&self.node, r) == Some(1) && self.machine_accesses(r, 2, target) == 1
    }
}
