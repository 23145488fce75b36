//! Terms of a reduction that contribute only where a mask holds, and masks with a bool per lane.

use crate::dtype::DType;
use crate::ir::{Fold, Op, Src, UOp};
use crate::symbolic::Linear;

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

/// Returns the mask in the first `n` iterations of a range as a vector of bools; `None` if one of
/// its comparisons is not linear in the range. All that varies is a literal, so each comparison is
/// one of a literal with a scalar in every lane.
pub fn lane_mask(mask: &UOp, r: &UOp, n: u16) -> Option<UOp> {
    if !mask.uses_range(r.range_id()) {
        return Some(mask.splat(n));
    }
    let [x, y] = mask.src() else { return None };
    if x.dtype() == DType::BOOL {
        return Some(lane_mask(x, r, n)?.binary(mask.op(), lane_mask(y, r, n)?));
    }
    if x.dtype() != DType::INDEX || !matches!(mask.op(), Op::Lt | Op::Eq | Op::Ne) {
        return None;
    }
    // `x < y` is `step * r < rest`, where `y - x` is `rest - step * r`.
    let mut rest = Linear::of(y)?;
    rest.add_scaled(&Linear::of(x)?, -1)?;
    rest.normalize();
    let step = rest.coefficient(r).checked_neg()?;
    rest.terms.retain(|(t, _)| t != r);
    if rest.terms.iter().any(|(t, _)| t.uses_range(r.range_id())) {
        return None;
    }
    Some(lane_multiples(n, step).binary(mask.op(), rest.build().splat(n)))
}

/// Returns the vector of `0`, `step`, `2 * step` and so on.
pub fn lane_multiples(n: u16, step: i64) -> UOp {
    UOp::vectorize((0..n).map(|i| UOp::int(i64::from(i) * step)).collect::<Src>())
}
