//! Index expressions of kernels: row-major offsets and masked loads.

use crate::ir::UOp;
use crate::shape::IndexExpr;
use crate::symbolic::{simplify, simplify_mask, simplify_under};

impl IndexExpr for UOp {
    fn int(value: i64) -> UOp {
        UOp::int(value)
    }
    fn add(&self, other: &UOp) -> UOp {
        self + other
    }
    fn mul(&self, factor: i64) -> UOp {
        self * factor
    }
    fn div(&self, divisor: i64) -> UOp {
        self / divisor
    }
    fn modulo(&self, divisor: i64) -> UOp {
        self % divisor
    }
    fn ge(&self, bound: i64) -> UOp {
        UOp::ge(self, bound)
    }
    fn lt(&self, bound: i64) -> UOp {
        UOp::lt(self, bound)
    }
    fn and(&self, other: &UOp) -> UOp {
        UOp::and(self, other)
    }
    fn truth() -> UOp {
        UOp::truth(true)
    }
}

/// Returns the row-major offset of indices in a shape.
pub fn flat(at: &[UOp], shape: &[usize]) -> UOp {
    let mut sum = UOp::int(0);
    let mut stride = 1i64;
    for (i, &n) in at.iter().zip(shape).rev() {
        sum = i * stride + sum;
        stride *= n as i64;
    }
    simplify(&sum)
}

/// Returns a load, masked if the index could leave the buffer, and zero where the mask is false.
pub fn load(buffer: &UOp, len: usize, index: UOp, mask: &UOp) -> UOp {
    let zero = || UOp::constant(0i64, buffer.dtype());
    if mask.is_int(0) || len == 0 {
        return zero();
    }
    let index = if mask.is_int(1) { index } else { simplify_under(&index, mask) };
    let inside = index.vmin() >= 0 && index.vmax() < len as i128;
    assert!(inside || !mask.is_int(1), "an unmasked index leaves its buffer of {len}: {index:?}");
    if inside {
        return buffer.at(index).load();
    }
    let mask = simplify_mask(mask);
    if mask.is_int(0) {
        return zero();
    }
    UOp::masked_index(buffer, index, Some(mask)).load_or(&zero())
}
