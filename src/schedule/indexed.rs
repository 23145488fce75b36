//! Rewrites of `Gather` and `Scatter` for `prepare`: a gather becomes a sum, and a scatter of
//! narrow floats is computed in f32.

use crate::dtype::DType;
use crate::ir::{Arg, Combine, Fold, ToSrc, UOp, dtype_bounds};
use crate::shape::{Dims, Movement, SymInt};

fn with(shape: &Dims, at: usize, size: usize) -> Dims {
    let mut shape = shape.clone();
    shape.insert(at, size);
    shape
}

/// Expresses a gather as a sum over all positions, of which one is the index. With ranges,
/// `reduce_simplify` makes a load of it.
///
/// ```text
/// x[index[i]]   =>   sum over j of (index[i] == j ? x[j] : 0)
/// ```
pub fn summed(x: &UOp, index: &UOp, axis: usize) -> UOp {
    let n = x.shape()[axis];
    let fits = n as i128 <= dtype_bounds(index.dtype()).1;
    let index = if fits { index.clone() } else { index.cast(DType::I64) };
    let both = with(index.shape(), axis + 1, n);
    let mut extents: Vec<Option<SymInt>> =
        (0..index.shape().len()).map(|a| index.extent(a).cloned()).collect();
    extents.insert(axis + 1, x.extent(axis).cloned());
    let seen = |u: &UOp, shape: Dims| {
        let mut u = u.moved(Movement::Reshape(shape)).moved(Movement::Expand(both.clone()));
        for (a, extent) in extents.iter().enumerate() {
            if let (Some(extent), None) = (extent, u.extent(a)) {
                u = u.sliced(a, SymInt::number(0), extent.clone());
            }
        }
        u
    };
    let counter = UOp::iota(n, index.dtype());
    let counter =
        seen(&counter, (0..both.len()).map(|a| if a == axis + 1 { n } else { 1 }).collect());
    let here = seen(&index, with(index.shape(), axis + 1, 1)).equals(&counter);
    let choice = here.select(seen(x, with(x.shape(), axis, 1)), &UOp::constant(0i64, x.dtype()));
    // A sum of one element would lose the sign of a zero.
    let sum = if n == 1 { choice } else { choice.reduced(Fold::Add, [axis + 1]) };
    sum.moved(Movement::Reshape(index.shape().clone()))
}

/// Computes a scatter that rounds in f32, and rounds once at the end. Max, Min and Set are exact in
/// any dtype.
pub fn in_f32(u: &UOp) -> Option<UOp> {
    let Arg::Scatter { combine: Combine::Add | Combine::Mul, .. } = u.arg() else { return None };
    let wide = |x: &UOp| x.cast(DType::F32);
    let s = u.expect_scatter();
    let src = [wide(s.base), s.index.clone(), wide(s.value)].to_src();
    Some(u.retyped(DType::F32, src).cast(u.dtype()))
}
