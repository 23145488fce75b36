//! Terms of a reduction that contribute only where a mask holds.

use crate::ir::{Fold, Op, UOp};

/// Splits a term `Where(mask, value, identity)` of a reduction into its scalar mask and the value
/// that is combined where the mask holds.
pub fn masked_term(fold: Fold, body: &UOp) -> Option<(UOp, UOp)> {
    let [mask, value, identity] = body.src() else { return None };
    if body.op() != Op::Where || identity.as_const() != Some(fold.identity(body.dtype())) {
        return None;
    }
    let uniform = |c: &&UOp| mask.src().iter().all(|s| s == *c);
    let mask = if mask.op() == Op::Vectorize { mask.src().first().filter(uniform)? } else { mask };
    (mask.dtype().lanes == 1).then(|| (mask.clone(), value.clone()))
}
