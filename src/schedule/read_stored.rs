//! Values that are stored for one user and computed again for others. Input: a tensor graph.
//! Output: the same, where all users of a value that two kernels could round differently read it
//! from the `Contiguous` that stores it: then the plan computes it once.
//!
//! ```text
//! f(sum(x)), contiguous(sum(x))   =>   f(contiguous(sum(x))), contiguous(sum(x))
//! ```

use crate::ir::{Arg, Op, Rounding, Src, ToSrc, UOp, rebuild_all, toposort};
use rustc_hash::FxHashMap;

/// Lets users of stored values read them.
pub fn read_stored(outputs: &[UOp]) -> Vec<UOp> {
    let order = toposort(outputs);
    let stores = |u: &&UOp| {
        u.op() == Op::Contiguous
            && *u.arg() == Arg::None
            && u.operand().rounding() == Rounding::Differs
    };
    let mut stored: FxHashMap<u64, &UOp> = FxHashMap::default();
    stored.extend(order.iter().filter(stores).map(|c| (c.operand().id(), c)));
    if stored.is_empty() {
        return outputs.to_vec();
    }
    rebuild_all(outputs, |u, src| {
        let new = match u.as_contiguous() {
            Some(c) if stored.get(&c.x.id()) == Some(&u) => src[0].clone(),
            _ => u.with_src(src.iter().cloned().collect::<Src>()),
        };
        Some(stored.get(&u.id()).map_or(new.clone(), |c| c.with_src([new].to_src())))
    })
}
