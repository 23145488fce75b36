//! Cases of linear systems, determinants and symmetric factorizations.

use crate::cases::How::Wide;
use crate::cases::{Case, cases};
use picograd::Tensor;

/// A positive definite matrix from any square matrix.
fn definite(x: &Tensor) -> Tensor {
    let product = x.matmul(&x.transpose(-1, -2));
    &product + Tensor::eye(x.size(-1), x.size(-1)).cast(product.dtype())
}

/// Eigenvalues and eigenvectors, without signs, which are not unique.
fn eigh(x: &Tensor) -> (Tensor, Tensor) {
    let (values, vectors) = (x + x.transpose(-1, -2)).eigh();
    (values, vectors.abs())
}

pub const CASES: &[Case] = cases! {
    Wide(64.0), "solve", |x| x[0].solve(&x[1]);
    Wide(64.0), "inverse", |x| x[0].inverse();
    Wide(64.0), "det", |x| x[0].det();
    Wide(64.0), "slogdet", |x| x[0].slogdet();
    Wide(64.0), "cholesky", |x| definite(&x[0]).cholesky(false);
    Wide(64.0), "cholesky.upper", |x| definite(&x[0]).cholesky(true);
    Wide(64.0), "eigh", |x| eigh(&x[0]);
    Wide(64.0), "lstsq", |x| x[0].lstsq(&x[1]);
    Wide(64.0), "pinv", |x| x[0].pinv(None);
};
