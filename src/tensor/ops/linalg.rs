//! QR decomposition and orthogonalization over the last two axes; leading axes are batches. QR is a
//! loop over columns with kernels over the whole matrix, for matrices of dozens or hundreds of
//! columns, not thousands. Narrow floats are computed in `f32`.

use super::create::iota;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{DeviceName, Fold};
use crate::shape::Dims;
use crate::tensor::{Function, Tensor, keepdim};
use rustc_hash::FxHashMap;
use std::sync::{LazyLock, Mutex};

/// Maximum steps of an iteration that is unrolled in the graph. Five are usual.
pub(super) const MAX_STEPS: usize = 1000;

/// Batch axes, rows and columns.
pub(in crate::tensor) fn matrix(x: &Tensor) -> Result<(Dims, usize, usize)> {
    match x.dims().as_slice() {
        [lead @ .., rows, cols] => Ok((lead.into(), *rows, *cols)),
        other => shape_error!("expected two axes or more, got {other:?}"),
    }
}

/// Batched identity matrix in the dtype and on the device of a tensor.
pub(super) fn identity(like: &Tensor, lead: &[usize], n: usize) -> Result<Tensor> {
    let shape: Dims = lead.iter().copied().chain([n, n]).collect();
    like.with_uop(Tensor::try_eye(n, n)?.try_cast(like.dtype())?.uop()).try_expand(&shape)
}

pub(in crate::tensor) fn sum(x: &Tensor, axis: isize) -> Result<Tensor> {
    x.reduce_axes(Fold::Add, keepdim(axis))
}

/// Number of graphs at which the cache is cleared.
const MAX_TRACED: usize = 64;

/// Key of a traced graph.
type Traced = (&'static str, Dims, DType, DeviceName);

/// Returns the graph of a factorization of a tensor without gradient, from a cache: tracing takes
/// as long as running a small matrix. `trace` depends only on shape, dtype and device of its
/// argument, and uses no other tensor.
pub(super) fn traced(
    op: &'static str,
    x: &Tensor,
    trace: impl FnOnce(&Tensor) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    static CACHE: LazyLock<Mutex<FxHashMap<Traced, Function>>> = LazyLock::new(Mutex::default);
    // A function takes tensors of one device and static sizes.
    if x.uop().requires_grad() || x.device().is_multi_device() || !x.uop().extents().is_empty() {
        return trace(x);
    }
    let key = (op, x.dims(), x.dtype(), x.device().clone());
    let lock = || CACHE.lock().unwrap_or_else(|e| e.into_inner());
    let known = lock().get(&key).cloned();
    let function = match known {
        Some(function) => function,
        None => {
            let function = Tensor::callify(&[x], |x| trace(&x[0]))?;
            let mut cache = lock();
            // Dropped after the lock is released.
            let _old = (cache.len() >= MAX_TRACED).then(|| std::mem::take(&mut *cache));
            cache.insert(key, function.clone());
            drop(cache);
            function
        }
    };
    function.call(&[x])
}

/// QR by Householder reflections, a loop over columns, which are applied to the matrix and to an
/// identity matrix in one.
pub(super) fn qr(op: &'static str, a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (lead, m, n) = matrix(a)?;
    let k = m.min(n);
    let (rows, last) = (lead.len(), lead.len() + 1);
    let both = Tensor::try_cat(&[a.clone(), identity(a, &lead, m)?], -1)?;
    let row = iota(m).try_unsqueeze(-1)?;
    let columns = iota(k.min(m.saturating_sub(1)));
    let (mut last_carry, _) = Tensor::scan_in(op, false, &[&both], &[&columns], |carry, j| {
        let (x, j) = (&carry[0], &j[0]);
        let column = sum(&iota(m + n).try_eq(j)?.try_where_(x, 0.0)?, -1)?;
        let below = row.try_gt(j)?.try_where_(&column, 0.0)?;
        let rest = sum(&below.square(), -2)?;
        // A column that is zero already is not reflected and keeps the sign of its diagonal, as in
        // LAPACK. NaN is not zero, and propagates.
        let some = rest.try_ne(0)?;
        let head = sum(&row.try_eq(j)?.try_where_(&column, 0.0)?, -2)?;
        let norm = some.try_where_(head.square().try_add(&rest)?, 1.0)?.sqrt();
        let top = head.try_lt(0)?.try_where_(head.try_sub(&norm)?, head.try_add(&norm)?)?;
        let v = row.try_eq(j)?.try_where_(&top, below)?;
        let scale =
            some.try_where_(2.0 / some.try_where_(top.square().try_add(&rest)?, 1.0)?, 0.0)?;
        let v = v.contiguous();
        let down = sum(&v.try_mul(x)?, -2)?.try_mul(scale)?.contiguous();
        Ok((vec![x.try_sub(v.try_mul(down)?)?], vec![]))
    })?;
    let both = last_carry.remove(0);
    let (r, q) = (both.slice_axis(last, 0, n)?, both.slice_axis(last, n, n + m)?);
    Ok((q.try_transpose(-1, -2)?.slice_axis(last, 0, k)?, r.slice_axis(rows, 0, k)?.try_triu(0)?))
}

impl Tensor {
    fallible! {
        /// QR decomposition of each m × n matrix: Q with k = min(m, n) orthonormal columns, and
        /// upper triangular R with k rows, such that Q·R is the matrix.
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
            let x = self.as_wide_float();
            matrix(&x)?;
            let factors = traced("qr", &x, |x| qr("qr", x).map(|(q, r)| vec![q, r]))?;
            let dtype = self.as_float().dtype();
            Ok((factors[0].try_cast(dtype)?, factors[1].try_cast(dtype)?))
        }

        /// Approximate orthogonalization by Newton-Schulz iteration: `steps` times X ← aX + (bA +
        /// cA²)X with A = X·Xᵀ, from the matrix divided by its norm plus `eps`. With the
        /// coefficients (3.4445, -4.775, 2.0315) and five steps, singular values are between 0.7
        /// and 1.2 (Jordan, 2024); (1.5, -0.5, 0) converges to 1 slowly.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[3.0f32, 0.0], [0.0, 1.0]]);
        /// let q = x.newton_schulz(20, (1.5, -0.5, 0.0), 1e-7);
        /// assert!((q - Tensor::eye(2, 2)).abs().max(..).item::<f32>()? < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn newton_schulz | try_newton_schulz(
            &self, steps: usize, coefficients: (f64, f64, f64), eps: f64,
        ) -> Tensor {
            let (_, m, n) = matrix(self)?;
            if steps > MAX_STEPS {
                return shape_error!(
                    "expected at most {MAX_STEPS} steps, got {steps}: each adds nodes to the graph"
                );
            }
            let x = self.as_wide_float();
            let mut x = if m > n { x.try_transpose(-1, -2)? } else { x };
            let norm = x.square().reduce_axes(Fold::Add, keepdim([-2, -1]))?.sqrt();
            x = x.try_div(norm + eps)?;
            let (a, b, c) = coefficients;
            for _ in 0..steps {
                let square = x.try_matmul(&x.try_transpose(-1, -2)?)?;
                let mix = if c == 0.0 {
                    &square * b
                } else {
                    &square * b + square.try_matmul(&square)? * c
                };
                x = (&x * a).try_add(mix.try_matmul(&x)?)?;
            }
            let x = if m > n { x.try_transpose(-1, -2)? } else { x };
            x.try_cast(self.as_float().dtype())
        }
    }
}
