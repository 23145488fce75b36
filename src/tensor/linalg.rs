//! Factors of matrices over the last two axes; the axes before them are batches. Each is a loop over columns in the graph, with kernels over the whole matrix, so these
//! are for matrices of dozens or hundreds of columns, not thousands. Narrow floats are computed in `f32`.

use super::create::iota;
use super::{Axes, Tensor, keepdim, wrong_shape};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, Movement, checked_numel};

/// Steps of an iteration that is unrolled in the graph, at most. Five are usual.
pub(super) const MOST_STEPS: usize = 1000;

/// Rows and columns, and the axes before them.
pub(super) fn matrix(op: &'static str, x: &Tensor) -> Result<(Dims, usize, usize)> {
    match x.dims().as_slice() {
        [lead @ .., rows, cols] => Ok((lead.into(), *rows, *cols)),
        other => wrong_shape(op, format!("takes two axes or more, and was given {other:?}")),
    }
}

/// The unit matrix, once for each of a batch, in the dtype and on the device of a tensor.
pub(super) fn unit(like: &Tensor, lead: &[usize], n: usize) -> Result<Tensor> {
    let shape: Dims = lead.iter().copied().chain([n, n]).collect();
    like.with(Tensor::try_eye(n, n)?.try_cast(like.dtype())?.uop()).try_expand(&shape)
}

fn sum(op: &'static str, x: &Tensor, axis: isize) -> Result<Tensor> {
    x.fold(op, Fold::Add, &keepdim(axis))
}

/// Householder's reflections, each of which makes one column zero below the diagonal: a loop over the columns. The reflections of the matrix and of a unit matrix beside
/// it are one.
fn qr(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (lead, m, n) = matrix(op, a)?;
    let k = m.min(n);
    let (rows, last) = (lead.len(), lead.len() + 1);
    let both = Tensor::try_cat(&[a.clone(), unit(a, &lead, m)?], -1)?;
    let row = iota(m).try_unsqueeze(-1)?;
    let columns = iota(k.min(m.saturating_sub(1)));
    let (mut last_carry, _) = Tensor::scan_in(op, false, &[&both], &[&columns], |carry, j| {
        let (x, j) = (&carry[0], &j[0]);
        let column = sum(op, &iota(m + n).try_eq(j)?.try_where_(x, 0.0)?, -1)?;
        let below = row.try_gt(j)?.try_where_(&column, 0.0)?;
        let rest = sum(op, &below.square(), -2)?;
        // A column that is zero there already stays as it is, and so does the sign of its diagonal, as in LAPACK.
        let some = rest.try_gt(0)?;
        let head = sum(op, &row.try_eq(j)?.try_where_(&column, 0.0)?, -2)?;
        let norm = some.try_where_(head.square().try_add(&rest)?, 1.0)?.sqrt();
        let top = head.try_lt(0)?.try_where_(head.try_sub(&norm)?, head.try_add(&norm)?)?;
        let v = row.try_eq(j)?.try_where_(&top, below)?;
        let scale = some.try_where_(2.0 / some.try_where_(top.square().try_add(&rest)?, 1.0)?, 0.0)?;
        let v = v.contiguous();
        let down = sum(op, &v.try_mul(x)?, -2)?.try_mul(scale)?.contiguous();
        Ok((vec![x.try_sub(v.try_mul(down)?)?], vec![]))
    })?;
    let both = last_carry.remove(0);
    let (r, q) = (both.slice_axis(last, 0, n)?, both.slice_axis(last, n, n + m)?);
    Ok((q.try_transpose(-1, -2)?.slice_axis(last, 0, k)?, r.slice_axis(rows, 0, k)?.try_triu(0)?))
}

/// One round of a tournament in which everyone meets everyone: columns sit in two rows, each opposite to its partner, and all but the first move on by one seat. For each
/// seat who sits there in the next round: by the seat before.
fn next_round(half: usize) -> Vec<i32> {
    match half as i32 {
        1 => vec![0, 1],
        h => [0, h].into_iter().chain(1..h - 1).chain(h + 1..2 * h).chain([h - 1]).collect(),
    }
}

/// Columns by their numbers.
fn columns(op: &'static str, x: &Tensor, of: &Tensor, n: usize) -> Result<Tensor> {
    let is = iota(n).try_eq(of.try_unsqueeze(-1)?)?;
    x.try_unsqueeze(-2).and_then(|x| is.try_where_(x, 0.0)).and_then(|x| x.fold(op, Fold::Add, &Axes::from(-1)))
}

/// Jacobi's rotations from the right (Hestenes, 1958): columns are turned in pairs until all are orthogonal, in a loop over rounds of pairs. Rows are not fewer than
/// columns. What is turned is the triangle of a QR decomposition, transposed, whose columns are nearly in order, so that few rounds are enough (Drmač and
/// Veselić, 2008).
fn svd(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (lead, _, n) = matrix(op, a)?;
    let (rows, last) = (lead.len(), lead.len() + 1);
    // Each column is read by a sum over all, for every row of both factors. Refused before the seats are laid out in memory.
    let even = n.next_multiple_of(2);
    checked_numel(op, &lead.iter().copied().chain([n + even, even, even]).collect::<Dims>())?;
    let by_norm = |x: &Tensor| x.square().fold(op, Fold::Add, &Axes::from(-2))?.try_argsort(-1, true);
    let pick = |x: &Tensor, order: &Tensor| {
        let shape: Dims = x.dims()[..last].iter().chain(order.dims().last()).copied().collect();
        x.try_gather(-1, &order.try_unsqueeze(-2)?.try_expand(&shape)?)
    };
    let order = by_norm(a)?.contiguous();
    let (q, r) = qr(op, &pick(a, &order)?.contiguous())?;
    // An even number of columns, so that everyone has a partner; a column of zeros is turned by nobody.
    let half = n.div_ceil(2);
    let wide = 2 * half;
    let more = |x: Tensor| x.moved(Movement::pad((0..=last).map(|i| if i == last { (0, wide - n) } else { (0, 0) })));
    let mut both = Tensor::try_cat(&[more(r.try_transpose(-1, -2)?)?, unit(a, &lead, wide)?], rows as isize)?.contiguous();
    if n > 1 {
        // Convergence is quadratic once it has begun; how soon it begins grows with the logarithm of the size.
        let tournaments = wide.next_power_of_two().ilog2() as usize + if a.dtype() == DType::F64 { 6 } else { 4 };
        let table = |f: &dyn Fn(i32) -> i32| {
            let seats: Vec<i32> = next_round(half).into_iter().map(f).collect();
            Tensor::from_vec(seats, [wide]).try_to(a.device().as_str())
        };
        let h = half as i32;
        let (seat, partner, pair) = (table(&|s| s)?, table(&|s| (s + h) % (2 * h))?, table(&|s| s % h)?);
        let (mut turned, _) = Tensor::scan_in(op, false, &[&both], &[&iota(tournaments * (wide - 1))], |carry, _| {
            let all = &carry[0];
            let top = all.slice_axis(rows, 0, n)?;
            let (x, y) = (top.slice_axis(last, 0, half)?, top.slice_axis(last, half, wide)?);
            let (xx, yy, xy) = (sum(op, &x.square(), -2)?, sum(op, &y.square(), -2)?, sum(op, &(&x * &y), -2)?);
            let meet = xy.try_ne(0)?;
            let zeta = (yy - xx).try_div(meet.try_where_(&xy * 2.0, 1.0)?)?;
            let size = zeta.abs().try_add((zeta.square() + 1.0).sqrt())?;
            let tangent = meet.try_where_(zeta.try_lt(0)?.try_where_(zeta.literal(-1.0), zeta.literal(1.0))?.try_div(size)?, 0.0)?;
            let cosine = (tangent.square() + 1.0).rsqrt().contiguous();
            let sine = (&cosine * &tangent).contiguous();
            let (c, s) = (columns(op, &cosine, &pair, half)?, columns(op, &sine, &pair, half)?);
            let s = seat.try_lt(half)?.try_where_(-&s, s)?;
            let (own, other) = (columns(op, all, &seat, wide)?, columns(op, all, &partner, wide)?);
            Ok((vec![own.try_mul(c)?.try_add(other.try_mul(s)?)?], vec![]))
        })?;
        both = turned.remove(0);
    }
    let (b, v) = (both.slice_axis(rows, 0, n)?, both.slice_axis(rows, n, n + wide)?);
    // The greatest first; the column that was added, if any, is the one that still has a share in its own row.
    let norms = b.square().fold(op, Fold::Add, &Axes::from(-2))?;
    let norms = if wide > n { v.slice_axis(rows, n, wide)?.try_squeeze(-2)?.try_gt(0.5)?.try_where_(-1.0, norms)? } else { norms };
    let sorted = norms.try_argsort(-1, true)?.slice_axis(rows, 0, n)?.contiguous();
    let (b, v) = (pick(&b, &sorted)?.contiguous(), pick(&v.slice_axis(rows, 0, n)?, &sorted)?);
    // Of orthogonal columns the triangle is a diagonal, and the other factor is orthogonal also where a column is zero.
    let (w, diagonal) = qr(op, &b)?;
    let values = diagonal.try_diagonal(0, -2, -1)?;
    let signs = values.try_lt(0)?.try_where_(values.literal(-1.0), values.literal(1.0))?;
    let w = w.try_mul(signs.try_unsqueeze(-2)?)?;
    // The columns where they were before they were put in order.
    let place = order.try_argsort(-1, false)?.contiguous();
    let w = pick(&w.try_transpose(-1, -2)?, &place)?;
    Ok((q.try_matmul(&v)?, values.try_mul(signs)?, w))
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
