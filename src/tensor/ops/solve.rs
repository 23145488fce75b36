//! Linear systems over the last two axes, with leading axes as batches: `solve`, `inverse`, `det`,
//! `slogdet`, `cholesky`, `eigh`, `lstsq` and `pinv`. Narrow floats are computed in `f32`.
//!
//! Eliminations are loops over columns ([`Tensor::scan`]) on whole matrices. Gradients are analytic
//! and do not differentiate the loops. Singularity is known only on the device: the result then
//! holds infinities or NaN, without an error.

use super::create::iota;
use super::linalg::{identity, matrix, traced};
use super::svd::{gather_slices, rank};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Dims;
use crate::tensor::broadcast::{broadcast_dims, broadcast_to};
use crate::tensor::{Tensor, keepdim};

/// Batch axes and size of square matrices.
fn square(op: &'static str, x: &Tensor) -> Result<(Dims, usize)> {
    x.require_static(op, 0..x.ndim())?;
    match matrix(x)? {
        (lead, m, n) if m == n => Ok((lead, n)),
        (_, m, n) => wrong_shape!(op, "expected square matrices, got {m} × {n}"),
    }
}

fn transposed(x: &Tensor) -> Result<Tensor> {
    x.try_transpose(-1, -2)
}

/// Row index, `[n, 1]`, and column index, `[1, n]`.
fn index_grid(n: usize) -> Result<(Tensor, Tensor)> {
    Ok((iota(n).try_unsqueeze(-1)?, iota(n).try_unsqueeze(0)?))
}

/// Loops `body` over `0..count`, or backwards, with the index and the carried values.
fn for_each(
    op: &'static str,
    (count, reverse): (usize, bool),
    first: &[Tensor],
    body: impl Fn(&Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    // Empty tensors need no loop.
    if count == 0 || first.iter().all(|t| t.max_numel() == 0) {
        return Ok(first.to_vec());
    }
    let carry: Vec<&Tensor> = first.iter().collect();
    let step = |carry: &[Tensor], k: &[Tensor]| Ok((body(&k[0], carry)?, vec![]));
    Ok(Tensor::scan_in(op, reverse, &carry, &[&iota(count)], step)?.0)
}

/// Row (axis -2) or column (axis -1) `k`, with size 1.
fn row_or_column(x: &Tensor, axis: isize, k: &Tensor) -> Result<Tensor> {
    x.try_index_select(axis, &k.try_reshape([1])?)
}

/// Gaussian elimination of `n` columns with partial pivoting. Returns the matrix, which is zero
/// below the diagonal up to rounding, and the sign of the permutation, `[…, 1, 1]`. A column
/// without a pivot is not changed.
fn eliminate(op: &'static str, a: &Tensor, n: usize) -> Result<(Tensor, Tensor)> {
    let (lead, m, width) = matrix(a)?;
    let (row, _) = index_grid(m)?;
    let one: Dims = lead.iter().copied().chain([1, 1]).collect();
    let shape: Dims = lead.iter().copied().chain([m, width]).collect();
    let first = [a.contiguous(), a.literal(1.0).try_expand(&one)?.contiguous()];
    let done = for_each(op, (n, false), &first, |k, carry| {
        let (a, sign) = (&carry[0], &carry[1]);
        let sizes = row.try_ge(k)?.try_where_(row_or_column(a, -1, k)?.abs(), -1.0)?;
        let pivot_row = sizes.try_argmax(keepdim(-2))?;
        let from = row.try_eq(&pivot_row)?.try_where_(k, &row)?;
        let from = row.try_eq(k)?.try_where_(&pivot_row, from)?;
        let a = a.try_gather(-2, &from.try_expand(&shape)?)?.contiguous();
        let pivot = row_or_column(&row_or_column(&a, -2, k)?, -1, k)?;
        let some = pivot.try_ne(0.0)?;
        let divided = row_or_column(&a, -1, k)?.try_div(some.try_where_(&pivot, 1.0)?)?;
        let factor = row.try_gt(k)?.try_bitwise_and(&some)?.try_where_(divided, 0.0)?;
        let sign = pivot_row.try_eq(k)?.try_where_(sign, sign.neg())?;
        Ok(vec![a.try_sub(factor.try_mul(row_or_column(&a, -2, k)?)?)?, sign])
    })?;
    Ok((done[0].clone(), done[1].clone()))
}

/// Solves U·X = B for an upper triangular U, whose lower part is not read.
fn back_substitute(op: &'static str, u: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (_, n) = square(op, u)?;
    let (row, column) = index_grid(n)?;
    let first = [b.literal(0.0).try_expand(&b.dims())?.contiguous()];
    let done = for_each(op, (n, true), &first, |k, carry| {
        let x = &carry[0];
        let of_u = row_or_column(u, -2, k)?;
        let after = column.try_gt(k)?.try_where_(&of_u, 0.0)?;
        let rest = row_or_column(b, -2, k)?.try_sub(after.try_matmul(x)?)?;
        Ok(vec![row.try_eq(k)?.try_where_(rest.try_div(row_or_column(&of_u, -1, k)?)?, x)?])
    })?;
    Ok(done[0].clone())
}

/// Solves T·X = B for a triangular T, with its gradient.
fn solve_triangular(op: &'static str, t: &Tensor, b: &Tensor, upper: bool) -> Result<Tensor> {
    Tensor::call(
        &[t, b],
        |x| {
            if upper {
                return back_substitute(op, &x[0], &x[1]);
            }
            let flipped = back_substitute(op, &x[0].try_flip([-2, -1])?, &x[1].try_flip(-2)?)?;
            flipped.try_flip(-2)
        },
        move |g, x| {
            let of_b = solve_triangular(op, &transposed(&x[0])?, g, !upper)?;
            let solution = solve_triangular(op, &x[0], &x[1], upper)?;
            let of_t = of_b.try_matmul(&transposed(&solution)?)?.neg();
            Ok(vec![if upper { of_t.try_triu(0)? } else { of_t.try_tril(0)? }, of_b])
        },
    )
}

/// Solves A·X = B for equal batch axes.
fn solve(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (_, n) = square(op, a)?;
    Tensor::call(
        &[a, b],
        |x| {
            let both = Tensor::try_cat(&[x[0].clone(), x[1].clone()], -1)?;
            let (done, _) = eliminate(op, &both, n)?;
            let last = done.ndim() - 1;
            let width = done.dims()[last];
            back_substitute(op, &done.slice_axis(last, 0, n)?, &done.slice_axis(last, n, width)?)
        },
        move |g, x| {
            let of_b = solve(op, &transposed(&x[0])?, g)?;
            let solution = solve(op, &x[0], &x[1])?;
            Ok(vec![of_b.try_matmul(&transposed(&solution)?)?.neg(), of_b])
        },
    )
}

fn inverse(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let (lead, n) = square(op, a)?;
    Tensor::call(
        &[a],
        |x| solve(op, &x[0], &identity(&x[0], &lead, n)?),
        move |g, x| {
            let t = transposed(&inverse(op, &x[0])?)?;
            Ok(vec![t.try_matmul(g)?.try_matmul(&t)?.neg()])
        },
    )
}

/// Diagonal after elimination, `[…, n]`, and sign of the permutation, `[…]`.
fn pivots(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (lead, n) = square(op, a)?;
    let (done, sign) = eliminate(op, a, n)?;
    Ok((done.try_diagonal(0, -2, -1)?, sign.shaped(lead)?))
}

/// Reshapes a value per matrix, `[…]`, to `[…, 1, 1]`.
fn as_matrix(x: &Tensor) -> Result<Tensor> {
    x.try_unsqueeze(-1)?.try_unsqueeze(-1)
}

fn det(op: &'static str, a: &Tensor) -> Result<Tensor> {
    Tensor::call(
        &[a],
        |x| {
            let (pivots, sign) = pivots(op, &x[0])?;
            pivots.reduce_axes(Fold::Mul, -1)?.try_mul(sign)
        },
        move |g, x| Ok(vec![as_matrix(g)?.try_mul(cofactors(op, &x[0])?)?]),
    )
}

/// Cofactor matrix: det(A)·A⁻ᵀ for an invertible A. It also exists for a singular one, from
/// products of all singular values but one.
fn cofactors(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let (_, n) = square(op, a)?;
    if n == 0 {
        return Ok(a.copy());
    }
    let (u, s, v) = a.try_svd()?;
    let (row, column) = index_grid(n)?;
    let others = row.try_eq(&column)?.try_where_(1.0, s.try_unsqueeze(-2)?)?;
    let products = others.reduce_axes(Fold::Mul, -1)?;
    // The determinant of an orthogonal matrix is 1 or -1.
    let side = as_matrix(&det(op, &u.detach())?.try_mul(det(op, &v.detach())?)?.round())?;
    u.try_mul(products.try_unsqueeze(-2)?)?.try_matmul(&v)?.try_mul(side)
}

/// Symmetric matrix of a lower triangle.
fn from_lower(a: &Tensor) -> Result<Tensor> {
    let lower = a.try_tril(0)?;
    lower.try_add(transposed(&a.try_tril(-1)?)?)
}

/// Lower factor L with L·Lᵀ = A, column by column.
fn cholesky(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let (_, n) = square(op, a)?;
    Tensor::call(
        &[a],
        |x| {
            let (row, column) = index_grid(n)?;
            let zeros = x[0].literal(0.0).try_expand(&x[0].dims())?;
            let first = [from_lower(&x[0])?.contiguous(), zeros.contiguous()];
            let done = for_each(op, (n, false), &first, |k, carry| {
                let (rest, factor) = (&carry[0], &carry[1]);
                let of_rest = row_or_column(rest, -1, k)?;
                let diagonal = row_or_column(&of_rest, -2, k)?.sqrt();
                let below = row.try_gt(k)?.try_where_(of_rest.try_div(&diagonal)?, 0.0)?;
                let new = row.try_eq(k)?.try_where_(&diagonal, below)?.contiguous();
                let rest = rest.try_sub(new.try_mul(transposed(&new)?)?)?;
                Ok(vec![rest, column.try_eq(k)?.try_where_(&new, factor)?])
            })?;
            Ok(done[1].clone())
        },
        move |g, x| {
            let factor = cholesky(op, &x[0])?;
            let up = transposed(&factor)?;
            let product = up.try_matmul(g)?.try_tril(0)?;
            let (row, column) = index_grid(n)?;
            let halved = row.try_eq(&column)?.try_where_(&product * 0.5, &product)?;
            let left = solve_triangular(op, &up, &halved, true)?;
            let both = transposed(&solve_triangular(op, &up, &transposed(&left)?, true)?)?;
            Ok(vec![both.try_add(transposed(&both)?)?.try_mul(0.5)?])
        },
    )
}

/// Eigenvalues in ascending order above their vectors, `[…, 1 + n, n]`.
fn eigen(op: &'static str, a: &Tensor) -> Result<Tensor> {
    let (_, n) = square(op, a)?;
    Tensor::call(
        &[a],
        |x| {
            let both = |x: &Tensor| {
                let a = from_lower(x)?.contiguous();
                // Shifted by a bound of their magnitudes no eigenvalue is negative, so that
                // singular vectors are eigenvectors; the values are computed from the matrix
                // itself.
                let sizes = a.abs().reduce_axes(Fold::Add, keepdim(-1))?;
                let shift = sizes.reduce_axes(Fold::Max, keepdim(-2))?;
                let (row, column) = index_grid(n)?;
                let shifted = row.try_eq(&column)?.try_where_(&a + &shift, &a)?;
                let (u, _, _) = shifted.try_svd()?;
                let vectors = u.try_flip(-1)?.contiguous();
                let values = a.try_matmul(&vectors)?.try_mul(&vectors)?;
                let values = values.reduce_axes(Fold::Add, keepdim(-2))?;
                let both = Tensor::try_cat(&[values, vectors], -2)?.contiguous();
                // Values that are equal up to rounding may be out of order.
                let values = both.slice_axis(both.ndim() - 2, 0, 1)?.try_squeeze(-2)?;
                Ok(vec![gather_slices(&both, -1, &rank(&values, false)?.1)?])
            };
            Ok(traced(op, &x[0], both)?.remove(0))
        },
        move |g, x| {
            let both = eigen(op, &x[0])?;
            let at = both.ndim() - 2;
            let (values, vectors) = (both.slice_axis(at, 0, 1)?, both.slice_axis(at, 1, n + 1)?);
            let (of_values, of_vectors) = (g.slice_axis(at, 0, 1)?, g.slice_axis(at, 1, n + 1)?);
            let (row, column) = index_grid(n)?;
            let gaps = values.try_sub(transposed(&values)?)?;
            // Vectors of equal eigenvalues are undetermined, and get no gradient.
            let apart = gaps.try_ne(0.0)?;
            let turns = transposed(&vectors)?.try_matmul(&of_vectors)?;
            let turns = turns.try_div(apart.try_where_(&gaps, 1.0)?)?;
            let inner = apart.try_where_(turns, 0.0)?;
            let inner = row.try_eq(&column)?.try_where_(of_values, inner)?;
            let full = vectors.try_matmul(&inner)?.try_matmul(&transposed(&vectors)?)?;
            Ok(vec![full.try_add(transposed(&full)?)?.try_mul(0.5)?])
        },
    )
}

fn pinv(a: &Tensor, rcond: f64) -> Result<Tensor> {
    Tensor::call(
        &[a],
        |x| {
            let (u, s, v) = x[0].try_svd()?;
            let limit = s.reduce_axes(Fold::Max, keepdim(-1))?.try_mul(rcond)?;
            let counts = s.try_gt(limit)?;
            let scale = counts.try_where_(counts.try_where_(&s, 1.0)?.reciprocal(), 0.0)?;
            transposed(&v)?.try_mul(scale.try_unsqueeze(-2)?)?.try_matmul(&transposed(&u)?)
        },
        move |g, x| {
            // dP = -P·dA·P + P·Pᵀ·dAᵀ·(1 - A·P) + (1 - P·A)·dAᵀ·Pᵀ·P
            let (a, p) = (&x[0], pinv(&x[0], rcond)?);
            let (pt, gt) = (transposed(&p)?, transposed(g)?);
            let direct = pt.try_matmul(g)?.try_matmul(&pt)?;
            let right = gt.try_matmul(&p)?;
            let right = right.try_sub(a.try_matmul(&p)?.try_matmul(&right)?)?.try_matmul(&pt)?;
            let left = p.try_matmul(&gt)?;
            let left = left.try_sub(left.try_matmul(&p)?.try_matmul(a)?)?;
            let left = pt.try_matmul(&left)?;
            Ok(vec![right.try_add(left)?.try_sub(direct)?])
        },
    )
}

/// Right-hand sides as matrices, and whether they are vectors, one per matrix.
fn right_hand_sides(a: &Tensor, b: &Tensor) -> Result<(Tensor, bool)> {
    let (dims, of_b) = (a.dims(), b.dims());
    b.require_static("tensor", 0..b.ndim())?;
    let rows = dims[dims.len() - 2];
    let is_vector =
        of_b.len() == 1 || (of_b.len() + 1 == dims.len() && of_b[..] == dims[..dims.len() - 1]);
    let b = if is_vector { b.try_unsqueeze(-1)? } else { b.copy() };
    match b.dims()[..] {
        [.., n, _] if n == rows => Ok((b, is_vector)),
        _ => shape_error!(
            "expected right-hand sides of {rows} rows for matrices of {dims:?}, got {of_b:?}"
        ),
    }
}

/// Broadcasts batch axes.
fn batched(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let ((of_a, m, n), (of_b, rows, cols)) = (matrix(a)?, matrix(b)?);
    let lead = broadcast_dims("tensor", &[of_a, of_b])?;
    let with = |x: &Tensor, rows: usize, cols: usize| {
        let shape: Dims = lead.iter().copied().chain([rows, cols]).collect();
        broadcast_to("tensor", x, &shape)
    };
    Ok((with(a, m, n)?, with(b, rows, cols)?))
}

/// Common float dtype of two operands, and both in its accumulation dtype.
fn promote_floats(a: &Tensor, b: &Tensor) -> Result<(DType, Tensor, Tensor)> {
    let dtype = crate::dtype::promote(a.as_float().dtype(), b.as_float().dtype());
    Ok((dtype, a.try_cast(dtype)?.as_wide_float(), b.try_cast(dtype)?.as_wide_float()))
}

impl Tensor {
    fallible! {
        /// Solves A·X = B for each square matrix A, by Gaussian elimination with partial pivoting.
        /// B is a matrix with as many rows, or a vector per matrix; batch axes broadcast. For a
        /// singular A the result holds infinities or NaN.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let a = Tensor::new([[3.0f32, 1.0], [1.0, 2.0]]);
        /// let x = a.solve(&Tensor::new([9.0f32, 8.0])).to_vec::<f32>()?;
        /// assert!((x[0] - 2.0).abs() < 1e-5 && (x[1] - 3.0).abs() < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn solve | try_solve(&self, b: &Tensor) -> Tensor {
            square("solve", self)?;
            let (dtype, a, b) = promote_floats(self, b)?;
            let (b, is_vector) = right_hand_sides(&a, &b)?;
            let (a, b) = batched(&a, &b)?;
            let x = solve("solve", &a, &b)?.try_cast(dtype)?;
            if is_vector { x.try_squeeze(-1) } else { Ok(x) }
        }

        /// Inverse of each square matrix. For a singular one it holds infinities or NaN.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[2.0f32, 0.0], [0.0, 4.0]]);
        /// assert_eq!(x.inverse().to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.25]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn inverse | try_inverse(&self) -> Tensor {
            inverse("inverse", &self.as_wide_float())?.try_cast(self.as_float().dtype())
        }

        /// Determinant of each square matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[0.0f32, 2.0], [3.0, 1.0]]).det().item::<f32>()?, -6.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn det | try_det(&self) -> Tensor {
            det("det", &self.as_wide_float())?.try_cast(self.as_float().dtype())
        }

        /// Sign and logarithm of the absolute value of the determinant of each square matrix, which
        /// does not overflow: 0 and -∞ for a singular matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (sign, log) = (Tensor::eye(3, 3) * -2.0).slogdet();
        /// assert_eq!(sign.item::<f32>()?, -1.0);
        /// assert!((log.item::<f32>()? - 8f32.ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn slogdet | try_slogdet(&self) -> (Tensor, Tensor) {
            let (a, dtype) = (self.as_wide_float(), self.as_float().dtype());
            let (of_a, side) = pivots("slogdet", &a.detach())?;
            let sign = of_a.sign().reduce_axes(Fold::Mul, -1)?.try_mul(side)?;
            let size = Tensor::call(
                &[&a],
                |_| of_a.abs().log().reduce_axes(Fold::Add, -1),
                |g, x| Ok(vec![as_matrix(g)?.try_mul(transposed(&inverse("slogdet", &x[0])?)?)?]),
            )?;
            Ok((sign.try_cast(dtype)?, size.try_cast(dtype)?))
        }

        /// Cholesky factor L, lower triangular with L·Lᵀ the matrix, or with `upper` its transpose.
        /// Only the lower triangle is read. If the matrix is not positive definite, L holds NaN.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[4.0f32, 2.0], [2.0, 5.0]]);
        /// assert_eq!(x.cholesky(false).to_vec::<f32>()?, [2.0, 0.0, 1.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cholesky | try_cholesky(&self, upper: bool) -> Tensor {
            let lower =
                cholesky("cholesky", &self.as_wide_float())?.try_cast(self.as_float().dtype())?;
            if upper { transposed(&lower) } else { Ok(lower) }
        }

        /// Eigenvalues of each symmetric matrix in ascending order, and orthonormal eigenvectors as
        /// columns. Only the lower triangle is read. The signs of vectors, and the vectors of equal
        /// eigenvalues, are not determined.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[2.0f32, 1.0], [1.0, 2.0]]);
        /// let (values, vectors) = x.eigh();
        /// assert!((values - Tensor::new([1.0f32, 3.0])).abs().max(..).item::<f32>()? < 1e-5);
        /// assert_eq!(vectors.shape(), [2, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn eigh | try_eigh(&self) -> (Tensor, Tensor) {
            let (lead, n) = square("eigh", self)?;
            let dtype = self.as_float().dtype();
            if n == 0 {
                let values: Dims = lead.iter().copied().chain([0]).collect();
                return Ok((self.as_float().shaped(values)?, self.as_float()));
            }
            let both = eigen("eigh", &self.as_wide_float())?.try_cast(dtype)?;
            let at = both.ndim() - 2;
            Ok((both.slice_axis(at, 0, 1)?.try_squeeze(-2)?, both.slice_axis(at, 1, n + 1)?))
        }

        /// Least-squares solution of A·X = B, of minimum norm, for each matrix A of full rank. B is
        /// a matrix with as many rows, or a vector per matrix; batch axes broadcast.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let a = Tensor::new([[1.0f32, 0.0], [1.0, 1.0], [1.0, 2.0]]);
        /// let x = a.lstsq(&Tensor::new([1.0f32, 3.0, 5.0])).to_vec::<f32>()?;
        /// assert!((x[0] - 1.0).abs() < 1e-5 && (x[1] - 2.0).abs() < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn lstsq | try_lstsq(&self, b: &Tensor) -> Tensor {
            const OP: &str = "lstsq";
            matrix(self)?;
            self.require_static(OP, 0..self.ndim())?;
            let (dtype, a, b) = promote_floats(self, b)?;
            let (b, is_vector) = right_hand_sides(&a, &b)?;
            let (a, b) = batched(&a, &b)?;
            let (_, m, n) = matrix(&a)?;
            let x = if m >= n {
                let (q, r) = a.try_qr()?;
                solve_triangular(OP, &r, &transposed(&q)?.try_matmul(&b)?, true)?
            } else {
                let (q, r) = transposed(&a)?.try_qr()?;
                q.try_matmul(&solve_triangular(OP, &transposed(&r)?, &b, false)?)?
            };
            let x = x.try_cast(dtype)?;
            if is_vector { x.try_squeeze(-1) } else { Ok(x) }
        }

        /// Moore-Penrose pseudoinverse of each matrix. Singular values up to `rcond` times the
        /// largest count as zero; the default is the larger size times the precision of the dtype.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[2.0f32, 0.0], [0.0, 0.0], [0.0, 4.0]]);
        /// let p = x.pinv(None);
        /// let expected = Tensor::new([[0.5f32, 0.0, 0.0], [0.0, 0.0, 0.25]]);
        /// assert!((p - expected).abs().max(..).item::<f32>()? < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pinv | try_pinv(&self, rcond: impl Into<Option<f64>>) -> Tensor {
            let (_, m, n) = matrix(self)?;
            let a = self.as_wide_float();
            let precision =
                if a.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
            let rcond = rcond.into().unwrap_or(m.max(n) as f64 * precision);
            if m == 0 || n == 0 {
                return transposed(&self.as_float());
            }
            pinv(&a, rcond)?.try_cast(self.as_float().dtype())
        }
    }
}
