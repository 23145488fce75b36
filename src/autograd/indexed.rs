//! Gradients of gathers and scatters. A scatter that adds is the adjoint of a gather and vice
//! versa, so that the work of a gradient is proportional to the size of the index and of the table.

use super::{broadcast_to, iota, zeros};
use crate::dtype::DType;
use crate::ir::typed::{Gather, Scatter};
use crate::ir::{Combine, Op, ToSrc, UOp};

/// Returns the gradient of the table of a gather: for each element the sum of the gradients of its
/// reads.
pub fn gathered(u: &UOp, g: &UOp) -> UOp {
    let Gather { x, index, axis, .. } = u.expect_gather();
    zeros(x).scattered(index, g, Combine::Add, axis)
}

/// Returns the gradients of the base and the values of a scatter.
pub fn scattered(u: &UOp, g: &UOp) -> (UOp, UOp) {
    let s = u.expect_scatter();
    match s.combine {
        Combine::Set => set_gradients(&s, g),
        Combine::SetDistinct => {
            (scatter_like(&s, g, &g.const_like(0i64), s.combine), gather_at_indices(&s, g))
        }
        Combine::Add => (g.clone(), gather_at_indices(&s, g)),
        Combine::Mul => product_gradients(&s, g),
        Combine::Max | Combine::Min => max_min_gradients(&s, g),
    }
}

/// Returns a scatter of `value` into `base` at the indices of `s`.
fn scatter_like(s: &Scatter<'_>, base: &UOp, value: &UOp, combine: Combine) -> UOp {
    let value = broadcast_to(value, s.index.shape());
    broadcast_to(base, s.base.shape()).scattered(s.index, &value, combine, s.axis)
}

/// Returns the elements of a tensor at the indices of a scatter.
fn gather_at_indices(s: &Scatter<'_>, x: &UOp) -> UOp {
    x.gathered(s.index, s.axis)
}

/// Returns the gradients of a scatter that overwrites elements: of several values at one index,
/// only the last has a gradient.
fn set_gradients(s: &Scatter<'_>, g: &UOp) -> (UOp, UOp) {
    let order = iota(s.index.shape(), s.axis);
    let order = broadcast_to(&order, s.index.shape());
    let last = scatter_like(s, &order.const_like(-1i64), &order, Combine::Set);
    let stays = gather_at_indices(s, &last).equals(&order);
    let zero = g.const_like(0i64);
    (scatter_like(s, g, &zero, Combine::Set), stays.select(gather_at_indices(s, g), &zero))
}

/// Returns the gradients of a scatter that takes the maximum or minimum. Elements that are equal to
/// the result at their index share the gradient evenly. If the result is NaN, the gradient of these
/// elements is NaN unless the upstream gradient is 0.
///
/// The maximum or minimum is computed from the values that it is compared with and not read from
/// the node, which an earlier plan may have stored; a stored value replaces only an equal node.
fn max_min_gradients(s: &Scatter<'_>, g: &UOp) -> (UOp, UOp) {
    let (base, value) = (s.base.materialized(), s.value.materialized());
    let [detached_base, detached_value] = [&base, &value].map(|x| x.unary(Op::Detach));
    let best = s.node.with_src([detached_base, s.index.clone(), detached_value].to_src());
    let (old, new) = (base.equals(&best), value.equals(gather_at_indices(s, &best)));
    let one = |is: &UOp| is.select(1.0, &g.const_like(0i64));
    // At least one: if none is equal, there is a NaN.
    let share = g / &scatter_like(s, &one(&old), &one(&new), Combine::Add).binary(Op::Max, 1.0);
    let is_lost = best.differs(&best).and(g.differs(0.0));
    let others = is_lost.select(f64::NAN, &g.const_like(0i64));
    (
        old.select(&share, &others),
        new.select(gather_at_indices(s, &share), &gather_at_indices(s, &others)),
    )
}

/// Returns the gradients of a scatter that multiplies. The gradient of a factor is the product of
/// the other factors at its index: zero if one of them is zero, else computed from the product of
/// the nonzero factors.
fn product_gradients(s: &Scatter<'_>, g: &UOp) -> (UOp, UOp) {
    let zero = |x: &UOp| x.equals(0i64);
    let rest = |x: &UOp| zero(x).select(1.0, x);
    let only = |x: &UOp| zero(x).select(x, &x.const_like(1i64));
    let count = |x: &UOp| zero(x).cast(DType::I32);
    let combined =
        |f: &dyn Fn(&UOp) -> UOp, combine| scatter_like(s, &f(s.base), &f(s.value), combine);
    let product = combined(&rest, Combine::Mul);
    let of_zeros = combined(&only, Combine::Mul);
    let alone = combined(&count, Combine::Add).equals(1i64);
    let others = |x: &UOp, product: &UOp, of_zeros: &UOp, alone: &UOp| {
        let of_zero = alone.select(product, &product.const_like(0i64));
        zero(x).select(&of_zero, &(product / rest(x) * of_zeros))
    };
    let old = others(s.base, &product, &of_zeros, &alone);
    let new = others(
        s.value,
        &gather_at_indices(s, &product),
        &gather_at_indices(s, &of_zeros),
        &gather_at_indices(s, &alone),
    );
    (g * &old, gather_at_indices(s, g) * &new)
}
