//! Products and distances of vectors and matrices. Narrow floats are computed in `f32` and rounded
//! once.

use super::statistics::p_norm;
use crate::dtype::sum_acc;
use crate::error::Result;
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::{broadcast_dims, broadcast_to, promote_operands};
use crate::tensor::{Axes, Sizes, Tensor, autocast, resolve_axis};

/// Axes that [`Tensor::tensordot`] contracts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DotAxes {
    /// The last `n` axes of the first tensor with the first `n` of the second.
    Count(usize),
    /// Axes of the first tensor with those of the second, in order.
    Lists(Sizes, Sizes),
}

conversions! { DotAxes:
    () usize, |n| DotAxes::Count(n);
    (<A: Into<Sizes>, B: Into<Sizes>>) (A, B), |l| DotAxes::Lists(l.0.into(), l.1.into());
}

impl DotAxes {
    fn resolve(&self, op: &'static str, a: &[usize], b: &[usize]) -> Result<(Dims, Dims)> {
        let (x, y): (Dims, Dims) = match self {
            DotAxes::Count(n) if *n > a.len().min(b.len()) => {
                return wrong_shape!(op, "cannot contract {n} axes of {a:?} and {b:?}");
            }
            DotAxes::Count(n) => ((a.len() - n..a.len()).collect(), (0..*n).collect()),
            DotAxes::Lists(x, y) => (x.axes(op, a)?, y.axes(op, b)?),
        };
        if x.len() != y.len() || x.iter().zip(&y).any(|(&i, &j)| a[i] != b[j]) {
            return wrong_shape!(
                op,
                "axes {x:?} of {a:?} and {y:?} of {b:?} differ in number or size"
            );
        }
        Ok((x, y))
    }
}

impl Tensor {
    fallible! {
        /// Outer product of two vectors.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1, 2]).outer(&Tensor::new([3, 4, 5]));
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![2, 3], vec![3, 4, 5, 6, 8, 10]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn outer | try_outer(&self, other: &Tensor) -> Tensor {
            if self.ndim() != 1 || other.ndim() != 1 {
                let (a, b) = (self.dims(), other.dims());
                return shape_error!("expected two vectors, got {a:?} and {b:?}");
            }
            self.try_unsqueeze(1)?.try_mul(other)
        }

        /// Trace of a matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).trace().item::<i32>()?, 5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn trace | try_trace(&self) -> Tensor {
            reject_shape!(self.ndim() != 2, "expected a matrix, got {:?}", self.dims());
            self.try_diagonal(0, 0, 1)?.try_sum(0)
        }

        /// Cross product of vectors of three elements along an axis; other axes broadcast.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([1, 0, 0]), Tensor::new([0, 1, 0]));
        /// assert_eq!(x.cross(&y, -1).to_vec::<i32>()?, [0, 0, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cross | try_cross(&self, other: &Tensor, axis: isize) -> Tensor {
            let (a, b) = (self.dims(), other.dims());
            reject_shape!(a.len() != b.len(), "{a:?} and {b:?} differ in the number of axes");
            let at = resolve_axis("cross", axis, &a)?;
            if a[at] != 3 || b[at] != 3 {
                return shape_error!("expected size 3 along axis {axis}, got {a:?} and {b:?}");
            }
            let dtype = promote_operands(&[self.into(), other.into()]);
            reject_dtype!(dtype.is_bool(), "expected numbers, got bool");
            let wide = if dtype.is_float() { sum_acc(dtype) } else { dtype };
            let (x, y) = (self.try_cast(wide)?, other.try_cast(wide)?);
            let turned = |t: &Tensor, by: isize| t.try_roll(-by, at);
            let first = turned(&x, 1)?.try_mul(turned(&y, 2)?);
            let second = turned(&x, 2)?.try_mul(turned(&y, 1)?);
            first?.try_sub(second?)?.try_cast(dtype)
        }

        /// Kronecker product. The tensor of lower rank gets leading axes of size 1.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([[1, 2]]).kron(&Tensor::new([[1, 1], [0, 3]]));
        /// assert_eq!((y.shape(), y.to_vec::<i32>()?), (vec![2, 4], vec![1, 1, 2, 2, 0, 3, 0, 6]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn kron | try_kron(&self, other: &Tensor) -> Tensor {
            let rank = self.ndim().max(other.ndim());
            let full = |t: &Tensor| [&vec![1; rank - t.ndim()], &t.dims()[..]].concat();
            let (a, b) = (full(self), full(other));
            let sizes: Dims = a.iter().zip(&b).map(|(m, n)| m.saturating_mul(*n)).collect();
            checked_numel("kron", &sizes)?;
            let x = self.shaped(a.iter().flat_map(|&n| [n, 1]))?;
            let y = other.shaped(b.iter().flat_map(|&n| [1, n]))?;
            x.try_mul(y)?.shaped(sizes)
        }

        /// Tensor contraction: the sum of products over axes of two tensors. The result has the
        /// remaining axes of this one, then those of the other. Axes are a number, or a list for
        /// each tensor.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::ones([2, 3, 4]), Tensor::ones([4, 3, 5]));
        /// let z = x.tensordot(&y, ([1, 2], [1, 0]));
        /// assert_eq!((z.shape(), z.max(..).item::<f32>()?), (vec![2, 5], 12.0));
        /// assert_eq!(x.tensordot(&Tensor::ones([4, 5]), 1).shape(), [2, 3, 5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn tensordot | try_tensordot(
            &self, other: &Tensor, axes: impl Into<DotAxes>,
        ) -> Tensor {
            let (a, b) = (self.dims(), other.dims());
            let (x, y) = axes.into().resolve("tensordot", &a, &b)?;
            let rest = |n: usize, taken: &Dims| (0..n).filter(|i| !taken.contains(i)).collect();
            let (rows, cols): (Dims, Dims) = (rest(a.len(), &x), rest(b.len(), &y));
            let count =
                |axes: &[usize], of: &[usize]| axes.iter().map(|&i| of[i]).product::<usize>();
            let inner = count(&x, &a);
            let left =
                self.permuted(rows.iter().chain(&x).copied())?.shaped([count(&rows, &a), inner])?;
            let right = other
                .permuted(y.iter().chain(&cols).copied())?
                .shaped([inner, count(&cols, &b)])?;
            let out = rows.iter().map(|&i| a[i]).chain(cols.iter().map(|&j| b[j]));
            left.try_matmul(&right)?.shaped(out)
        }

        /// Pairwise distances of rows: for `[…, m, k]` and `[…, n, k]` a tensor `[…, m, n]` of
        /// `p`-norms of differences, with leading axes broadcast. It is computed from the
        /// differences, so that close rows do not cancel; the gradient of a distance of 0 is 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([[0.0f32, 0.0], [3.0, 0.0]]), Tensor::new([[3.0f32, 4.0]]));
        /// assert_eq!(x.cdist(&y, 2.0).to_vec::<f32>()?, [5.0, 4.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cdist | try_cdist(&self, other: &Tensor, p: f64) -> Tensor {
            if let Some(x) =
                autocast::wide(self).or_else(|| autocast::wide(other).map(|_| self.clone()))
            {
                return x.try_cdist(&autocast::wide(other).unwrap_or_else(|| other.clone()), p);
            }
            const OP: &str = "cdist";
            let (a, b) = (self.dims(), other.dims());
            if a.len() < 2 || b.len() < 2 || a.last() != b.last() {
                return shape_error!("expected rows of the same length, got {a:?} and {b:?}");
            }
            reject_shape!(p.is_nan() || p < 0.0, "expected a power of at least 0, got {p}");
            let dtype = promote_operands(&[self.into(), other.into()]);
            let lead = broadcast_dims(OP, &[a[..a.len() - 2].into(), b[..b.len() - 2].into()])?;
            let shape = [&lead[..], &[a[a.len() - 2], b[b.len() - 2]]].concat();
            checked_numel(OP, &[&shape[..], &a[a.len() - 1..]].concat())?;
            let out = self.with_uop(crate::ir::UOp::constant(0, dtype)).as_float().dtype();
            if a.last() == Some(&0) {
                return Tensor::try_full((), 0.0)?.try_cast(out)?.try_expand(&shape);
            }
            let (x, y) =
                (self.try_cast(dtype)?.as_wide_float(), other.try_cast(dtype)?.as_wide_float());
            let gap = x.try_unsqueeze(-2)?.try_sub(y.try_unsqueeze(-3)?)?;
            let distance = p_norm(&gap, p, &Axes::from(-1))?.try_cast(out)?;
            broadcast_to(OP, &distance, &shape)
        }
    }
}
