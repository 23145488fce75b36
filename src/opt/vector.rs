//! What vector lanes along an axis are worth: one access in place of many where memory runs along
//! the axis, many in place of one where it does not. Accesses inside a reduce count as often as its
//! loops run.

use super::extent;
use crate::dtype::DType;
use crate::ir::{Op, UOp};
use crate::symbolic::Linear;
use rustc_hash::FxHashMap;

/// A load or store of a kernel, or an operation on its values.
pub struct Access {
    /// The node.
    pub node: UOp,
    /// How often it happens for one output.
    pub times: f64,
}

/// The loads and stores of a kernel, and apart from them its operations.
pub fn accesses(ast: &UOp) -> (Vec<Access>, Vec<Access>) {
    let order = ast.toposort();
    let mut times: FxHashMap<u64, f64> = FxHashMap::default();
    let (mut list, mut operations) = (Vec::new(), Vec::new());
    for u in order.iter().rev() {
        let now = *times.entry(u.id()).or_insert(1.0);
        let loops: f64 = if u.op() == Op::Reduce {
            u.src()[1..].iter().filter(|r| r.op() == Op::Range).map(|r| extent(r) as f64).product()
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

/// The step of an index along a range, if it is the same everywhere.
pub fn step(index: &UOp, r: &UOp) -> Option<i64> {
    if !index.uses_range(r.range_id()) {
        return Some(0);
    }
    let l = Linear::of(index)?;
    let inside = l.terms.iter().any(|(t, _)| t != r && t.uses_range(r.range_id()));
    (!inside).then(|| l.coefficient(r))
}

impl Access {
    /// How many machine accesses one access of `lanes` lanes along the range is.
    pub fn parts(&self, r: &UOp, lanes: usize) -> usize {
        match step(&self.node.src()[0].src()[1], r) {
            Some(0 | 1) if !self.is_guarded(r) => 1,
            _ => lanes,
        }
    }
    /// Does it happen under a condition that changes along the range?
    pub fn is_guarded(&self, r: &UOp) -> bool {
        self.node.src()[0].src().get(2).is_some_and(|v| v.uses_range(r.range_id()))
    }
    /// Does memory run along the range?
    pub fn runs_along(&self, r: &UOp) -> bool {
        step(&self.node.src()[0].src()[1], r) == Some(1) && self.parts(r, 2) == 1
    }
}

/// What lanes along the range save in all, in accesses and operations; a store counts a little
/// more, so that it decides between equals. Not above 0: nothing.
pub fn gain((accesses, operations): &(Vec<Access>, Vec<Access>), r: &UOp) -> f64 {
    let lanes = extent(r).max(2);
    let of = |a: &Access| {
        let weight = a.times * if a.node.op() == Op::Store { 1.5 } else { 1.0 };
        if a.runs_along(r) {
            weight
        } else {
            weight * (1.0 - a.parts(r, lanes) as f64) / lanes as f64
        }
    };
    let along = |o: &&Access| {
        o.node.uses_range(r.range_id())
            || (o.node.op() == Op::Reduce && o.node.src()[1..].contains(r))
    };
    accesses.iter().map(of).sum::<f64>()
        + operations.iter().filter(along).map(|o| o.times * (1.0 - 1.0 / lanes as f64)).sum::<f64>()
}
