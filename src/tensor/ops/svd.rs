//! Singular value decomposition over the last two axes; leading axes are batches. Narrow floats are
//! computed in `f32`.
//!
//! Columns are sorted by their norms, a QR decomposition makes them triangular, and the rows of the
//! triangle are rotated in pairs until all are orthogonal (one-sided Jacobi: Hestenes, 1958; Drmač
//! and Veselić, 2008). A round rotates every row once in two kernels: the tangents of all pairs,
//! and the rotations. The rows of V are concatenated to those of the triangle, so that one rotation
//! applies to both.

use super::create::iota;
use super::gather::select_at;
use super::linalg::{identity, matrix, qr, sum, traced};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, checked_numel};
use crate::tensor::Tensor;

/// Returns the ranks of keys along the last axis, and the indices that sort them. NaN counts as
/// infinite; the sort is stable. Comparing all pairs takes two kernels, where a sorting network
/// takes one for every few steps.
pub(in crate::tensor) fn rank(keys: &Tensor, descending: bool) -> Result<(Tensor, Tensor)> {
    let n = keys.size(-1);
    let keys = keys.isnan().try_where_(f64::INFINITY, keys)?.contiguous();
    let (own, other) = (keys.try_unsqueeze(-1)?, keys.try_unsqueeze(-2)?);
    let (row, column) = (iota(n).try_unsqueeze(-1)?, iota(n).try_unsqueeze(0)?);
    let ahead = if descending { other.try_gt(&own)? } else { other.try_lt(&own)? };
    let equal = other.try_eq(&own)?.try_bitwise_and(column.try_lt(&row)?)?;
    let ahead = ahead.try_bitwise_or(equal)?.try_cast(DType::I32)?;
    let place = ahead.reduce_axes(Fold::Add, -1)?.contiguous();
    // Row i, column j: true if key j has rank i.
    let comes = place.try_unsqueeze(-2)?.try_eq(&row)?;
    let number = comes.try_where_(&column, 0)?.reduce_axes(Fold::Add, -1)?.contiguous();
    Ok((place, number))
}

/// Gathers slices along axis -1 or -2, by the indices of each matrix.
pub(super) fn gather_slices(x: &Tensor, axis: isize, numbers: &Tensor) -> Result<Tensor> {
    let numbers = numbers.try_unsqueeze(if axis == -1 { -2 } else { -1 })?;
    x.try_gather(axis, &numbers.try_expand(&x.dims())?)
}

/// Position on a circle after `steps` steps of one.
fn rotate_position(place: &Tensor, steps: &Tensor, circle: usize, forward: bool) -> Result<Tensor> {
    // Position 0 is fixed.
    let at = if forward { place.try_add(steps)? - 1 } else { place.try_sub(steps)? - 1 };
    let at = if forward {
        at.try_ge(circle as i64)?.try_where_(&at - circle as i64, &at)?
    } else {
        at.try_lt(0)?.try_where_(&at + circle as i64, &at)?
    };
    place.try_eq(0)?.try_where_(0, at + 1)
}

/// Rotates rows in pairs until their first `n` columns are orthogonal; the other columns are
/// rotated along.
///
/// Pairs follow a round-robin tournament: each row has a position and meets the opposite one;
/// between rounds all but position 0 move by one. If `n` is odd, the last position is empty and
/// reads zero, which rotates nothing.
fn jacobi(op: &'static str, rows: &Tensor, n: usize) -> Result<Tensor> {
    let even = n.next_multiple_of(2);
    let (half, circle) = (even / 2, even - 1);
    let (axis, last) = (rows.ndim() - 2, rows.ndim() - 1);
    let is_f64 = rows.dtype() == DType::F64;
    // Convergence is quadratic after a phase that grows with the logarithm of the size.
    let tournaments = even.next_power_of_two().ilog2() as usize + if is_f64 { 6 } else { 4 };
    // Cosine up to which two rows count as orthogonal, as in LAPACK: smaller rotations are rounding
    // errors.
    let limit = if is_f64 { f64::EPSILON } else { f64::from(f32::EPSILON) } * (n as f64).sqrt();
    let rounds = iota(tournaments * circle).try_modulo(circle as i64)?;
    let (mut last_carry, _) = Tensor::scan_in(op, false, &[rows], &[&rounds], |carry, round| {
        let (all, round) = (&carry[0], &round[0]);
        let here = rotate_position(&iota(half), round, circle, true)?;
        let opposite = rotate_position(&(iota(half).neg() + circle as i64), round, circle, true)?;
        let top = all.slice_axis(last, 0, n)?;
        let (x, y) = (select_at(op, &top, &here, axis)?, select_at(op, &top, &opposite, axis)?);
        let (xx, yy, xy) = (sum(&x.square(), -1)?, sum(&y.square(), -1)?, sum(&(&x * &y), -1)?);
        let meet = xy.abs().try_gt(xx.sqrt().try_mul(yy.sqrt())? * limit)?;
        let zeta = yy.try_sub(&xx)?.try_div(meet.try_where_(&xy * 2.0, 1.0)?)?;
        let size = zeta.abs().try_add((zeta.square() + 1.0).sqrt())?;
        let sign = zeta.try_lt(0)?.try_where_(zeta.literal(-1.0), zeta.literal(1.0))?;
        let tangents = meet.try_where_(sign.try_div(size)?, 0.0)?.contiguous();

        let place = rotate_position(&iota(n), round, circle, false)?;
        let facing = place.neg() + circle as i64;
        let partner = rotate_position(&facing, round, circle, true)?;
        let other = select_at(op, all, &partner, axis)?;
        let is_first = place.try_lt(half as i64)?;
        let tangent = select_at(op, &tangents, &is_first.try_where_(&place, &facing)?, axis)?;
        // A correction of the row (Rutishauser): c·x - s·y would round the row in each round.
        let cosine = (tangent.square() + 1.0).sqrt().reciprocal();
        let sine = tangent.try_mul(&cosine)?;
        let of_half = sine.try_div(cosine + 1.0)?;
        let signed = is_first.try_unsqueeze(-1)?.try_where_(-&sine, &sine)?;
        let change = signed.try_mul(other)?.try_sub(sine.try_mul(of_half)?.try_mul(all)?)?;
        Ok((vec![all.try_add(change)?], vec![]))
    })?;
    Ok(last_carry.remove(0))
}

/// U with m rows, the values, and V transposed, of matrices with at least as many rows as columns,
/// without gradients.
fn factors(op: &'static str, a: &Tensor) -> Result<Vec<Tensor>> {
    let (lead, _, n) = matrix(a)?;
    let last = lead.len() + 1;
    // Comparison of all pairs, checked before anything is built.
    let even = n.next_multiple_of(2);
    checked_numel(op, &lead.iter().copied().chain([n + even, even, even]).collect::<Dims>())?;
    let norms = |x: &Tensor, axis: isize| x.square().reduce_axes(Fold::Add, axis);
    let (place, number) = rank(&norms(a, -2)?, true)?;
    let (q, r) = qr(op, &gather_slices(a, -1, &number)?.contiguous())?;
    let mut rows = Tensor::try_cat(&[r, identity(a, &lead, n)?], -1)?.contiguous();
    if n > 1 {
        rows = jacobi(op, &rows, n)?;
    }
    let (_, number) = rank(&norms(&rows.slice_axis(last, 0, n)?, -1)?, true)?;
    let rows = gather_slices(&rows, -2, &number)?.contiguous();
    let (b, v) = (rows.slice_axis(last, 0, n)?, rows.slice_axis(last, n, 2 * n)?);
    // The triangle of orthogonal columns is diagonal, and the other factor is orthogonal even if a
    // column is zero.
    let (w, diagonal) = qr(op, &b.try_transpose(-1, -2)?)?;
    let values = diagonal.try_diagonal(0, -2, -1)?;
    let signs = values.try_lt(0)?.try_where_(values.literal(-1.0), values.literal(1.0))?;
    let w = w.try_mul(signs.try_unsqueeze(-2)?)?;
    // Restores the order of columns.
    let w = gather_slices(&w.try_transpose(-1, -2)?.contiguous(), -1, &place)?;
    Ok(vec![q.try_matmul(&v.try_transpose(-1, -2)?)?, values.try_mul(signs)?, w])
}

/// U above the values above V, `[…, m + 1 + n, n]`, with the gradient.
fn stacked_factors(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let (_, m, n) = matrix(a)?;
    Tensor::call(
        &[a],
        |x| {
            let parts = traced(op, &x[0], |x| factors(op, x))?;
            let v = parts[2].try_transpose(-1, -2)?;
            Ok(Tensor::try_cat(&[parts[0].clone(), parts[1].try_unsqueeze(-2)?, v], -2)?
                .contiguous())
        },
        move |g, x| {
            let (of_u, of_s, of_v) = split_factors(g, m, n)?;
            let (u, s, v) = split_factors(&stacked_factors(op, &x[0])?, m, n)?;
            let (row, column) = (iota(n).try_unsqueeze(-1)?, iota(n).try_unsqueeze(0)?);
            // Vectors of equal values are undetermined, and get no gradient.
            let down = s.try_transpose(-1, -2)?;
            let gaps = s.try_sub(&down)?.try_mul(s.try_add(&down)?)?;
            let apart = gaps.try_ne(0.0)?;
            let turns = |x: &Tensor, g: &Tensor| {
                let product = x.try_transpose(-1, -2)?.try_matmul(g)?;
                let skew = product.try_sub(product.try_transpose(-1, -2)?)?;
                apart.try_where_(skew.try_div(apart.try_where_(&gaps, 1.0)?)?, 0.0)
            };
            let inner =
                turns(&u, &of_u)?.try_mul(&s)?.try_add(turns(&v, &of_v)?.try_mul(&down)?)?;
            let inner = row.try_eq(&column)?.try_where_(of_s, inner)?;
            let mut left = u.try_matmul(&inner)?;
            if m > n {
                // Part outside the column space.
                let outside =
                    of_u.try_sub(u.try_matmul(&u.try_transpose(-1, -2)?.try_matmul(&of_u)?)?)?;
                let some = s.try_ne(0.0)?;
                left = left
                    .try_add(some.try_where_(outside.try_div(some.try_where_(&s, 1.0)?)?, 0.0)?)?;
            }
            Ok(vec![left.try_matmul(&v.try_transpose(-1, -2)?)?])
        },
    )
}

/// U, the values as a row, and V.
fn split_factors(x: &Tensor, m: usize, n: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let at = x.ndim() - 2;
    Ok((x.slice_axis(at, 0, m)?, x.slice_axis(at, m, m + 1)?, x.slice_axis(at, m + 1, m + 1 + n)?))
}

/// U, the values, and V transposed, of matrices with at least as many rows as columns.
fn svd(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    if a.uop().requires_grad() {
        let (_, m, n) = matrix(a)?;
        let (u, s, v) = split_factors(&stacked_factors(op, a)?, m, n)?;
        return Ok((u, s.try_squeeze(-2)?, v.try_transpose(-1, -2)?));
    }
    let mut all = traced(op, a, |x| factors(op, x))?.into_iter();
    let mut next = || all.next().expect("three factors");
    Ok((next(), next(), next()))
}

/// Singular values of each matrix of wide floats in descending order, along the last axis.
pub(super) fn singular_values(op: &'static str, x: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrix(x)?;
    x.require_static(op, [lead.len(), lead.len() + 1])?;
    if m == 0 || n == 0 {
        // There are none; a sum keeps the gradient.
        return x.reduce_axes(Fold::Add, if n == 0 { -2 } else { -1 });
    }
    let tall = if m < n { x.try_transpose(-1, -2)? } else { x.copy() };
    Tensor::call(
        &[&tall],
        |x| Ok(traced(op, &x[0], |x| factors(op, x))?.swap_remove(1)),
        move |g, x| {
            let (u, _, v) = svd(op, &x[0])?;
            Ok(vec![u.try_mul(g.try_unsqueeze(-2)?)?.try_matmul(&v)?])
        },
    )
}

impl Tensor {
    fallible! {
        /// Singular value decomposition of each matrix: U with k = min(m, n) orthonormal columns, S
        /// with k values in descending order, and V transposed with k orthonormal rows, such that
        /// U·diag(S)·V is the matrix. The signs of vectors, and the vectors of equal values, are
        /// not determined: gradients are correct for results that do not depend on them.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[0.0f32, 2.0], [3.0, 0.0]]);
        /// let (u, s, v) = x.svd();
        /// assert_eq!(s.to_vec::<f32>()?, [3.0, 2.0]);
        /// assert!((u.matmul(&s.diag()).matmul(&v) - &x).abs().max(..).item::<f32>()? < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn svd | try_svd(&self) -> (Tensor, Tensor, Tensor) {
            let (_, m, n) = matrix(self)?;
            if m == 0 || n == 0 {
                // Every factor has an axis of min(m, n) = 0.
                let (x, dims) = (self.as_float(), self.dims());
                let empty = |last: &[usize]| {
                    x.literal(0).try_expand(
                        &dims[..dims.len() - 2].iter().chain(last).copied().collect::<Dims>(),
                    )
                };
                return Ok((empty(&[m, 0])?, empty(&[0])?, empty(&[0, n])?));
            }
            let x = self.as_wide_float();
            let (u, s, v) = if m < n {
                let (u, s, v) = svd("svd", &x.try_transpose(-1, -2)?)?;
                (v.try_transpose(-1, -2)?, s, u.try_transpose(-1, -2)?)
            } else {
                svd("svd", &x)?
            };
            let dtype = self.as_float().dtype();
            Ok((u.try_cast(dtype)?, s.try_cast(dtype)?, v.try_cast(dtype)?))
        }
    }
}
