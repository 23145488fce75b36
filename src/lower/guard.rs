//! Guards that say what they imply. A load that is guarded stays inside its buffer because of the
//! guard; where splitting axes has brought the guard into a form from which that can no longer be
//! shown, the bounds of the buffer are added to it. After this pass every guarded load is
//! shown to stay inside its buffer. Loads without a guard are left to the verifier: there a guard
//! would hide a mistake.

use crate::ir::{Arg, Op, Src, UOp};
use crate::verify::shown_inside;
use rustc_hash::FxHashMap;

/// The pass.
pub fn guard(ast: &UOp) -> UOp {
    let order = ast.toposort();
    // Most kernels are as they should be.
    if !order.iter().any(|u| u.op() == Op::Load && bounded(&u.src()[0], u.dtype().lanes).is_some())
    {
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

/// The place with the bounds of its buffer in its guard, if they are needed.
fn bounded(place: &UOp, lanes: u16) -> Option<UOp> {
    let [buffer, index, valid] = place.src() else { return None };
    let Arg::Global { len, .. } = buffer.arg() else { return None };
    if shown_inside(index, valid, *len, lanes) {
        return None;
    }
    let inside = index.ge(0i64).and(index.lt(*len as i64 - lanes as i64 + 1));
    let mut src: Src = place.src().iter().cloned().collect();
    src[2] = crate::symbolic::simplify(&valid.and(&inside));
    Some(place.with_src(src))
}
