//! Matrix norms over two axes: elementwise, induced and by singular values. Narrow floats are
//! computed in `f32` and rounded once.

use super::statistics::p_norm;
use super::svd::singular_values;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::{Axes, Tensor, keepdim};

/// Norm of [`Tensor::matrix_norm`]. A number converts to an order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MatrixNorm {
    /// Root of the sum of squares of all elements.
    Frobenius,
    /// Sum of the singular values.
    Nuclear,
    /// 1 is the maximum column sum of absolute values, infinity the maximum row sum, and 2 the
    /// largest singular value; -1, -infinity and -2 are the minima.
    Order(f64),
}

conversions! { MatrixNorm: () f64, |order| MatrixNorm::Order(order); }

/// Maximum along an axis, which is kept, or minimum for a negative order. The maximum of no
/// elements is 0.
fn extreme(x: &Tensor, order: f64, axis: isize) -> Result<Tensor> {
    match order > 0.0 {
        true if x.size(axis) == 0 => x.reduce_axes(Fold::Add, keepdim(axis)),
        true => x.try_max(keepdim(axis)),
        false => x.try_min(keepdim(axis)),
    }
}

/// Norm of matrices of wide floats over the last two axes, which are kept.
fn norm(op: &'static str, x: &Tensor, order: MatrixNorm) -> Result<Tensor> {
    let by_values =
        |f: &dyn Fn(&Tensor) -> Result<Tensor>| f(&singular_values(op, x)?)?.try_unsqueeze(-1);
    let of_sums = |along: isize, p: f64| {
        extreme(&x.abs().reduce_axes(Fold::Add, keepdim(along))?, p, -3 - along)
    };
    match order {
        MatrixNorm::Frobenius => p_norm(x, 2.0, &keepdim([-2, -1])),
        MatrixNorm::Nuclear => by_values(&|s| s.reduce_axes(Fold::Add, keepdim(-1))),
        MatrixNorm::Order(p) if p.abs() == 2.0 => by_values(&|s| extreme(s, p, -1)),
        MatrixNorm::Order(p) if p.abs() == 1.0 => of_sums(-2, p),
        MatrixNorm::Order(p) if p.is_infinite() => of_sums(-1, p),
        MatrixNorm::Order(p) => {
            wrong_shape!(op, "expected an order of 1, 2, inf or their negatives, got {p}")
        }
    }
}

impl Tensor {
    fallible! {
        /// Norm of matrices, whose rows and columns are two axes in this order: Frobenius, nuclear,
        /// or of order 1, 2, infinity, -1, -2 or -infinity. Equal extremes share the gradient, and
        /// the gradient of a Frobenius norm of 0 is 0. The nuclear norm and the orders 2 and -2
        /// compute singular values, for matrices of dozens or hundreds of columns. Empty matrices
        /// have the norm 0; with a negative order they are an error.
        ///
        /// ```
        /// use picograd::tensor::{MatrixNorm, Tensor, keepdim};
        /// let x = Tensor::new([[3.0f32, 0.0], [4.0, 0.0]]);
        /// assert_eq!(x.matrix_norm(MatrixNorm::Frobenius, [-2, -1]).item::<f32>()?, 5.0);
        /// assert_eq!(x.matrix_norm(1.0, [-2, -1]).item::<f32>()?, 7.0);
        /// assert_eq!(x.matrix_norm(-1.0, keepdim(..)).shape(), [1, 1]);
        /// assert!((x.matrix_norm(MatrixNorm::Nuclear, ..).item::<f32>()? - 5.0).abs() < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn matrix_norm | try_matrix_norm(
            &self, order: impl Into<MatrixNorm>, axes: impl Into<Axes>,
        ) -> Tensor {
            in_wide_dtype!(self.try_matrix_norm(order, axes));
            let dims = self.dims();
            let (at, keep) = axes.into().in_given_order("matrix_norm", &dims)?;
            let [row, column] = at[..] else {
                return shape_error!("expected two axes, got {} of {dims:?}", at.len());
            };
            let x = self.as_wide_float().try_movedim([row, column], [-2, -1])?;
            let norms = norm("matrix_norm", &x, order.into())?.try_cast(self.as_float().dtype())?;
            if keep {
                norms.try_movedim([-2, -1], [row, column])
            } else {
                norms.try_squeeze(-1)?.try_squeeze(-1)
            }
        }
    }
}
