//! Adds the bounds of the buffer to the mask of a load, where the mask does not imply them in a
//! form that the bounds proof understands. Splitting axes can bring a mask into such a form. After
//! this pass every masked load is proven to stay inside its buffer. Loads without a mask are left
//! to the verifier: a mask would hide a defect there.
//!
//! ```text
//! x[i] where m  =>  x[i] where m and 0 <= i and i < len(x)
//! ```

use crate::ir::{Arg, Op, Src, UOp};
use crate::verify::shown_inside;
use rustc_hash::FxHashMap;

/// Adds the missing bounds to all masked loads of a kernel.
pub(super) fn mask_bounds(ast: &UOp) -> UOp {
    let order = ast.toposort();
    // Most kernels need no change.
    let is_unbounded = |u: &UOp| {
        u.as_load().is_some_and(|load| bounded(load.place.node, u.dtype().lanes).is_some())
    };
    if !order.iter().any(is_unbounded) {
        return ast.clone();
    }
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in order {
        let mut src: Src = u.src().iter().map(|s| done[&s.id()].clone()).collect();
        if u.op() == Op::Load
            && let Some(place) = bounded(&src[0], u.dtype().lanes)
        {
            src[0] = place;
        }
        done.insert(u.id(), u.with_src(src));
    }
    done[&ast.id()].clone()
}

/// Returns the place with the bounds of its buffer in its mask, if they are missing.
fn bounded(place: &UOp, lanes: u16) -> Option<UOp> {
    let [buffer, index, mask] = place.src() else { return None };
    let Arg::Global { len, .. } = buffer.arg() else { return None };
    if shown_inside(index, mask, *len, lanes) {
        return None;
    }
    let inside = index.ge(0i64).and(index.lt(*len as i64 - lanes as i64 + 1));
    let mut src: Src = place.src().iter().cloned().collect();
    src[2] = crate::symbolic::simplify(&mask.and(&inside));
    Some(place.with_src(src))
}
