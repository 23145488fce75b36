//! Adds the bounds of the buffer to the mask of a load, where the mask does not imply them in a
//! form that the bounds proof understands. Splitting axes can bring a mask into such a form. After
//! this pass every masked load is proven to stay inside its buffer. Loads without a mask are left
//! to the verifier: a mask would hide a defect there.
//!
//! ```text
//! x[i] where m  =>  x[i] where m and 0 <= i and i < len(x)
//! ```

use crate::ir::typed::Index;
use crate::ir::{Op, Src, UOp};
use crate::kernel::lane_multiples;
use crate::symbolic::simplify;
use crate::verify::is_proven_inside;

/// Adds the missing bounds to all masked loads of a kernel.
pub(super) fn mask_bounds(ast: &UOp) -> UOp {
    let order = ast.toposort();
    // Most kernels need no change.
    let is_unbounded = |u: &UOp| {
        let access = u.as_access().filter(|a| u.op() == Op::Load || has_lanes(a.place));
        access.is_some_and(|a| bounded(a.place.node, a.lanes).is_some())
    };
    if !order.iter().any(is_unbounded) {
        return ast.clone();
    }
    ast.rebuild(|u, src| {
        let [place, others @ ..] = src else { return None };
        let access = u.as_access().filter(|a| u.op() == Op::Load || has_lanes(a.place))?;
        let place = bounded(place, access.lanes)?;
        Some(u.with_src(std::iter::once(place).chain(others.iter().cloned()).collect::<Src>()))
    })
}

/// Returns true if each lane of the access has a mask. Other masked stores are conditional.
fn has_lanes(place: Index) -> bool {
    place.mask.is_some_and(|mask| mask.dtype().lanes > 1)
}

/// Returns the place with the bounds of its buffer in its mask, if they are missing.
fn bounded(place: &UOp, lanes: u16) -> Option<UOp> {
    let Index { buffer, index, mask: Some(mask), .. } = place.as_index()? else { return None };
    let len = buffer.as_define_global()?.len;
    if is_proven_inside(index, mask, len, lanes) {
        return None;
    }
    let inside = if mask.dtype().lanes > 1 {
        let (first, end) = (index * -1i64, index * -1i64 + len as i64);
        let number = lane_multiples(lanes, 1);
        let past = number.binary(Op::Lt, end.splat(lanes));
        past.and(number.binary(Op::Lt, first.splat(lanes)).not())
    } else {
        index.ge(0i64).and(index.lt(len as i64 - lanes as i64 + 1))
    };
    Some(UOp::masked_index(buffer, index, Some(simplify(&mask.and(&inside)))))
}
