//! `VECTORIZE`: marks an axis of kind Upcast or Unroll, which lowering then makes vector lanes.
//!
//! ```text
//! UPCAST:0:4 VECTORIZE:1    out[4*g + u] = x[4*g + u] * 2  ->  one load, product and store of 4
//! lanes
//! ```

use super::apply::{Applied, OptRequest};
use super::{Kernel, OptOp};
use crate::ir::UOp;
use crate::kernel::{
    can_be_lanes, copied_ranges, extent, have_common_user, lanes_of, max_lanes, split_to_lanes,
};
use rustc_hash::FxHashMap;

/// Applies `VECTORIZE`.
pub(super) fn vectorize(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(r.range_kind().is_copied(), "an axis of UPCAST or UNROLL")?;
    if r.is_lanes() {
        return Err(format!("axis {} already becomes vector lanes", q.opt.axis));
    }
    let (size, most) = (extent(r), max_lanes(q.target));
    if lanes_of(size, q.target).is_none() {
        return Err(format!("an axis of {size} does not fill vectors of up to {most} lanes"));
    }
    let marked = q.kernel.ast.substitute(&FxHashMap::from_iter([(r.clone(), r.with_lanes(true))]));
    // Of a long axis, only the part that becomes lanes can conflict with other lanes.
    let (split, inner) = split_to_lanes(&marked, q.target);
    let order = split.toposort();
    let lanes: Vec<&UOp> = inner.iter().map(|(_, r)| r).filter(|r| r.is_lanes()).collect();
    if !lanes.iter().all(|r| can_be_lanes(&order, r)) {
        return Err("a tensor core uses the axis".into());
    }
    let conflict =
        |(i, a): (usize, &&UOp)| lanes[..i].iter().any(|b| have_common_user(&order, a, b));
    if lanes.iter().enumerate().any(conflict) {
        return Err("a value would be a vector along two axes".into());
    }
    Ok(marked)
}

impl Kernel {
    /// Returns the kernel without its `VECTORIZE` Opts.
    pub fn without_lanes(&self) -> Kernel {
        let lanes = copied_ranges(&self.ast).into_iter().filter(UOp::is_lanes);
        let map: FxHashMap<UOp, UOp> = lanes.map(|r| (r.clone(), r.with_lanes(false))).collect();
        let opts = self.opts.iter().copied().filter(|o| o.op != OptOp::Vectorize).collect();
        Kernel { ast: self.ast.substitute(&map), opts }
    }
}
