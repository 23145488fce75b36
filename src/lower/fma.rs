//! Terms of a reduction that are combined with the accumulator by one instruction: products by a
//! fused multiply-add, matrix products by a tensor core.

use crate::dtype::Scalar;
use crate::ir::{Fold, Op, ToSrc, UOp};
use crate::kernel::masked_term;
use crate::target::Target;

/// Combines an accumulator with one more term. A product is added with a single rounding where the
/// target has an instruction for it.
pub(super) fn combine(fold: Fold, value: &UOp, next: &UOp, target: &Target) -> UOp {
    match is_product(fold, next, target) {
        true => add_product(next, value),
        false => value.binary(fold.op(), next),
    }
}

/// Returns true if all terms are products that the reduction adds, unmasked or under one common
/// mask.
pub(super) fn are_products(fold: Fold, terms: &[UOp], target: &Target) -> bool {
    let masked = masked_term(fold, &terms[0]);
    terms.iter().all(|v| match (&masked, masked_term(fold, v)) {
        (Some((first, _)), Some((mask, value))) => {
            *first == mask && is_product(fold, &value, target)
        }
        (None, _) => is_product(fold, v, target),
        _ => false,
    })
}

/// Returns true if the reduction adds products of a dtype in which a multiply-add is one
/// instruction.
pub(super) fn is_product(fold: Fold, u: &UOp, target: &Target) -> bool {
    let float = || {
        target.fma
            && matches!(u.dtype().scalar, Scalar::F32 | Scalar::F64)
            && target.computes(u.dtype())
    };
    fold == Fold::Add
        && match u.op() {
            Op::Mul => float(),
            // Its accumulator is still the constant that it was created with.
            Op::Wmma => u.expect_wmma().c.op() == Op::Const,
            _ => false,
        }
}

/// Adds such a product to a sum by that instruction.
pub(super) fn add_product(product: &UOp, sum: &UOp) -> UOp {
    match product.as_wmma() {
        Some(w) => product.with_src([w.a.clone(), w.b.clone(), sum.clone()].to_src()),
        None => {
            let (x, y) = product.expect_binary();
            x.fma(y, sum)
        }
    }
}

/// Returns the value of a completely unrolled reduction as if it had started from the identity: a
/// sum whose terms are all -0 is +0. Max and Min of two values need no identity.
pub(super) fn from_identity(fold: Fold, value: UOp) -> UOp {
    if fold == Fold::Add { fold.of_one(&value) } else { value }
}
