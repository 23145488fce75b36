//! Gradients of reads and writes at indices. An indexed sum is the adjoint of a gather and a gather
//! that of an indexed sum, so every gradient costs as much as there are indices, and a pass over
//! the table.

use super::{spread, zeros};
use crate::dtype::DType;
use crate::ir::{Arg, Combine, Op, Src, ToSrc, UOp};
use crate::shape::Movement;

/// The gradient of what a gather reads: each element gets the sum of the gradients of its reads.
pub fn gathered(u: &UOp, g: &UOp) -> UOp {
    let (Arg::Gather { axis }, [x, index]) = (u.arg(), u.src()) else {
        panic!("not a gather: {u:?}")
    };
    zeros(x).scattered(index, g, Combine::Add, *axis)
}

/// The gradients of the base and the values of a scatter.
pub fn scattered(u: &UOp, g: &UOp) -> (UOp, UOp) {
    let (Arg::Scatter { combine, axis }, [base, index, value]) = (u.arg(), u.src()) else {
        panic!("not a scatter: {u:?}")
    };
    let axis = *axis;
    let s = Scattered { base, index, value, axis };
    match combine {
        Combine::Set => s.set(g),
        Combine::SetDistinct => (s.again(g, &g.const_like(0i64), *combine), s.at(g)),
        Combine::Add => (g.clone(), g.gathered(index, axis)),
        Combine::Mul => s.product(g),
        Combine::Max | Combine::Min => s.best(u, g),
    }
}

/// The operands of a scatter.
struct Scattered<'a> {
    base: &'a UOp,
    index: &'a UOp,
    value: &'a UOp,
    axis: usize,
}

impl Scattered<'_> {
    /// Something of the base and of the values, combined as the scatter does.
    fn again(&self, base: &UOp, value: &UOp, combine: Combine) -> UOp {
        spread(base, self.base.shape()).scattered(
            self.index,
            &spread(value, self.index.shape()),
            combine,
            self.axis,
        )
    }

    /// What is at the place of each value.
    fn at(&self, x: &UOp) -> UOp {
        x.gathered(self.index, self.axis)
    }

    /// Elements that are overwritten get nothing: of the values at one place the last has the
    /// gradient.
    fn set(&self, g: &UOp) -> (UOp, UOp) {
        let size = self.index.shape()[self.axis];
        let counts = if i32::try_from(size).is_ok() { DType::I32 } else { DType::I64 };
        let line = (0..self.index.shape().len()).map(|a| if a == self.axis { size } else { 1 });
        let order = UOp::new(Op::Iota, counts, Src::new(), Arg::Iota { len: size })
            .moved(Movement::reshape(line));
        let order = spread(&order, self.index.shape());
        let last = self.again(&UOp::constant(-1i64, counts), &order, Combine::Set);
        let stays = self.at(&last).equals(&order);
        (
            self.again(g, &g.const_like(0i64), Combine::Set),
            stays.select(self.at(g), &g.const_like(0i64)),
        )
    }

    /// Elements that are the greatest (or least) of their place share the gradient evenly. Where a
    /// NaN won, the gradient is NaN unless the upstream one is 0.
    ///
    /// The extremes are those of the very values that they are compared with, and not `u`, which
    /// may be stored from an earlier plan and replaces only a node that equals it.
    fn best(&self, u: &UOp, g: &UOp) -> (UOp, UOp) {
        let (base, value) = (self.base.materialized(), self.value.materialized());
        let [detached_base, detached_value] = [&base, &value].map(|x| x.unary(Op::Detach));
        let best = u.with_src([detached_base, self.index.clone(), detached_value].to_src());
        let (old, new) = (base.equals(&best), value.equals(self.at(&best)));
        let one = |is: &UOp| is.select(1.0, &g.const_like(0i64));
        // At least one: where none is equal there is a NaN.
        let share = g / &self.again(&one(&old), &one(&new), Combine::Add).binary(Op::Max, 1.0);
        let is_lost = best.binary(Op::Ne, &best).binary(Op::And, g.binary(Op::Ne, 0.0));
        let others = is_lost.select(f64::NAN, &g.const_like(0i64));
        (old.select(&share, &others), new.select(self.at(&share), &self.at(&others)))
    }

    /// Each factor gets the product of the others at its place: of those that are not zero by a
    /// division, and of zeros by how many there are.
    fn product(&self, g: &UOp) -> (UOp, UOp) {
        let zero = |x: &UOp| x.equals(0i64);
        let rest = |x: &UOp| zero(x).select(1.0, x);
        let only = |x: &UOp| zero(x).select(x, &x.const_like(1i64));
        let count = |x: &UOp| zero(x).cast(DType::I32);
        let product = self.again(&rest(self.base), &rest(self.value), Combine::Mul);
        let of_zeros = self.again(&only(self.base), &only(self.value), Combine::Mul);
        let alone = self.again(&count(self.base), &count(self.value), Combine::Add).equals(1i64);
        let others = |x: &UOp, product: &UOp, of_zeros: &UOp, alone: &UOp| {
            let of_zero = alone.select(product, &product.const_like(0i64));
            zero(x).select(&of_zero, &(product / rest(x) * of_zeros))
        };
        let old = others(self.base, &product, &of_zeros, &alone);
        let new = others(self.value, &self.at(&product), &self.at(&of_zeros), &self.at(&alone));
        (g * &old, self.at(g) * &new)
    }
}
