//! Factors of matrices over the last two axes; the axes before them are batches. The loops run over columns while the graph is built, so these are for matrices of
//! dozens of columns, not thousands. Narrow floats are computed in `f32`.

use super::create::iota;
use super::{Axes, Tensor, keepdim, wrong_shape};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, Movement};

/// Steps of an iteration that is unrolled in the graph, at most. Five are usual.
const MOST_STEPS: usize = 1000;

/// Rows and columns, and the axes before them.
fn matrix(op: &'static str, x: &Tensor) -> Result<(Dims, usize, usize)> {
    match x.dims().as_slice() {
        [lead @ .., rows, cols] => Ok((lead.into(), *rows, *cols)),
        other => wrong_shape(op, format!("takes two axes or more, and was given {other:?}")),
    }
}

/// The unit matrix, once for each of a batch, in the dtype and on the device of a tensor.
fn unit(like: &Tensor, lead: &[usize], n: usize) -> Result<Tensor> {
    let shape: Dims = lead.iter().copied().chain([n, n]).collect();
    like.with(Tensor::try_eye(n, n)?.try_cast(like.dtype())?.uop()).try_expand(&shape)
}

fn sum(op: &'static str, x: &Tensor, axis: isize) -> Result<Tensor> {
    x.fold(op, Fold::Add, &keepdim(axis))
}

/// Householder's reflections, each of which makes one column zero below the diagonal.
fn qr(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (lead, m, n) = matrix(op, a)?;
    let k = m.min(n);
    let (mut q, mut r) = (unit(a, &lead, m)?, a.clone());
    let row = iota(m).try_unsqueeze(-1)?;
    for j in 0..k.min(m.saturating_sub(1)) {
        let column = r.narrow(lead.len() + 1, j, j + 1)?;
        let below = row.try_gt(j)?.try_where_(&column, 0.0)?;
        let rest = sum(op, &below.square(), -2)?;
        // A column that is zero there already stays as it is, and so does the sign of its diagonal, as in LAPACK.
        let some = rest.try_gt(0)?;
        let head = column.narrow(lead.len(), j, j + 1)?;
        let norm = some.try_where_(head.square().try_add(&rest)?, 1.0)?.sqrt();
        let top = head.try_lt(0)?.try_where_(head.try_sub(&norm)?, head.try_add(&norm)?)?;
        let v = row.try_eq(j)?.try_where_(&top, below)?;
        let scale = some.try_where_(2.0 / some.try_where_(top.square().try_add(&rest)?, 1.0)?, 0.0)?;
        let down = sum(op, &v.try_mul(&r)?, -2)?;
        r = r.try_sub(v.try_mul(down.try_mul(&scale)?)?)?.contiguous();
        let across = v.try_transpose(-1, -2)?;
        let along = sum(op, &q.try_mul(&across)?, -1)?;
        q = q.try_sub(along.try_mul(across)?.try_mul(scale)?)?.contiguous();
    }
    Ok((q.narrow(lead.len() + 1, 0, k)?, r.narrow(lead.len(), 0, k)?.try_triu(0)?))
}

/// Columns in two halves, each of which meets the one opposite to it; one step of a tournament in which all but the first move on by one.
fn next_round(x: &Tensor, axis: usize, half: usize) -> Result<Tensor> {
    let part = |from: usize, to: usize| x.narrow(axis, from, to);
    let h = half;
    let parts = [part(0, 1)?, part(h, h + 1)?, part(1, h - 1)?, part(h + 1, 2 * h)?, part(h - 1, h)?];
    Tensor::try_cat(&parts, axis as isize)
}

/// Jacobi's rotations from the right (Hestenes, 1958): columns are turned in pairs until all are orthogonal. Rows are not fewer than columns.
fn svd(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (lead, m, n) = matrix(op, a)?;
    // An even number of columns, so that everyone has a partner; a column of zeros is turned by nobody.
    let half = n.div_ceil(2);
    let wide = 2 * half;
    let last = lead.len() + 1;
    let mut b = a.moved(Movement::pad((0..=last).map(|i| if i == last { (0, wide - n) } else { (0, 0) })))?;
    let mut v = unit(a, &lead, wide)?;
    // Convergence is quadratic once it has begun; how soon it begins grows with the logarithm of the size.
    let sweeps = wide.ilog2() as usize + if a.dtype() == DType::F64 { 7 } else { 5 };
    for _ in 0..if n > 1 { sweeps * (wide - 1) } else { 0 } {
        let halves = |x: &Tensor| Ok::<_, crate::Error>((x.narrow(last, 0, half)?, x.narrow(last, half, wide)?));
        let (x, y) = halves(&b)?;
        let (xx, yy, xy) = (sum(op, &x.square(), -2)?, sum(op, &y.square(), -2)?, sum(op, &(&x * &y), -2)?);
        let meet = xy.try_ne(0)?;
        let zeta = (yy - xx).try_div(meet.try_where_(&xy * 2.0, 1.0)?)?;
        let size = zeta.abs().try_add((zeta.square() + 1.0).sqrt())?;
        let tangent = meet.try_where_(zeta.try_lt(0)?.try_where_(zeta.literal(-1.0), zeta.literal(1.0))?.try_div(size)?, 0.0)?;
        let cosine = (tangent.square() + 1.0).rsqrt().contiguous();
        let sine = (&cosine * &tangent).contiguous();
        let turned = |m: &Tensor| {
            let (x, y) = halves(m)?;
            let both = [&x * &cosine - &y * &sine, &x * &sine + &y * &cosine];
            let all = Tensor::try_cat(&both, last as isize)?;
            Ok::<_, crate::Error>(if half > 1 { next_round(&all, last, half)? } else { all }.contiguous())
        };
        (b, v) = (turned(&b)?, turned(&v)?);
    }
    // The greatest first; the column that was added, if any, is the one that still has a share in its own row.
    let norms = b.square().fold(op, Fold::Add, &Axes::from(-2))?;
    let norms = if wide > n { v.narrow(last - 1, n, wide)?.try_squeeze(-2)?.try_gt(0.5)?.try_where_(-1.0, norms)? } else { norms };
    let order = norms.try_argsort(-1, true)?.narrow(last - 1, 0, n)?.try_unsqueeze(-2)?;
    let sorted = |x: &Tensor, rows: usize| {
        let shape: Dims = lead.iter().copied().chain([rows, n]).collect();
        x.narrow(last - 1, 0, rows)?.try_gather(-1, &order.try_expand(&shape)?)
    };
    let (b, v) = (sorted(&b, m)?.contiguous(), sorted(&v, n)?);
    // Of orthogonal columns the triangle is a diagonal, and the other factor is orthogonal also where a column is zero.
    let (q, r) = qr(op, &b)?;
    let values = r.try_diagonal(0, -2, -1)?;
    let signs = values.try_lt(0)?.try_where_(values.literal(-1.0), values.literal(1.0))?;
    Ok((q.try_mul(signs.try_unsqueeze(-2)?)?, values.try_mul(signs)?, v.try_transpose(-1, -2)?))
}

impl Tensor {
    fallible! {
        /// The factors of each matrix of m rows and n columns: Q of m rows and k = min(m, n) orthonormal columns, and R of k rows, zero below its diagonal, with
        /// Q·R the matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[3.0f32, 1.0], [4.0, 2.0]]);
        /// let (q, r) = x.qr();
        /// assert!((q.matmul(&r) - &x).abs().max(..).item::<f32>()? < 1e-6);
        /// assert_eq!(r.i((1, 0)).item::<f32>()?, 0.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn qr | try_qr(&self) -> (Tensor, Tensor) {
            let (q, r) = qr("qr", &self.as_wide_float())?;
            let dtype = self.as_float().dtype();
            Ok((q.try_cast(dtype)?, r.try_cast(dtype)?))
        }

        /// The singular values of each matrix, the greatest first, between their vectors: U of m rows and k = min(m, n) orthonormal columns, S of k values, and V
        /// transposed, of k orthonormal rows, with U·diag(S)·V the matrix.
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
            let (_, m, n) = matrix("svd", self)?;
            if m == 0 || n == 0 {
                return wrong_shape("svd", format!("{:?} has no element", self.dims()));
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

        /// The nearest matrix of orthonormal rows or columns, about: `steps` times X ← aX + (bA + cA²)X with A = X·Xᵀ, from the matrix over its norm plus `eps`. With the
        /// coefficients (3.4445, -4.775, 2.0315) and five steps, singular values come between 0.7 and 1.2 (Jordan, 2024); (1.5, -0.5, 0) goes on to 1, slowly.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[3.0f32, 0.0], [0.0, 1.0]]).newton_schulz(20, (1.5, -0.5, 0.0), 1e-7);
        /// assert!((x - Tensor::eye(2, 2)).abs().max(..).item::<f32>()? < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn newton_schulz | try_newton_schulz(&self, steps: usize, coefficients: (f64, f64, f64), eps: f64) -> Tensor {
            let (_, m, n) = matrix("newton_schulz", self)?;
            if steps > MOST_STEPS {
                return wrong_shape("newton_schulz", format!("{steps} steps; each is part of the graph, and at most {MOST_STEPS} are"));
            }
            let x = self.as_wide_float();
            let mut x = if m > n { x.try_transpose(-1, -2)? } else { x };
            let norm = x.square().fold("newton_schulz", Fold::Add, &keepdim([-2, -1]))?.sqrt();
            x = x.try_div(norm + eps)?;
            let (a, b, c) = coefficients;
            for _ in 0..steps {
                let square = x.try_matmul(&x.try_transpose(-1, -2)?)?;
                let mix = if c == 0.0 { &square * b } else { &square * b + square.try_matmul(&square)? * c };
                x = (&x * a).try_add(mix.try_matmul(&x)?)?;
            }
            let x = if m > n { x.try_transpose(-1, -2)? } else { x };
            x.try_cast(self.as_float().dtype())
        }
    }
}
