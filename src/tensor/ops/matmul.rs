//! Matrix products as a broadcast product and a sum over the inner axis. They are fused, so that no
//! intermediate larger than the result is stored.

use crate::dtype::sum_acc;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::broadcast::{Operand, broadcast_dims, broadcast_to, promote_operands};
use crate::tensor::{Tensor, autocast};

/// Sum of products over the last `axes` axes, which are removed. Narrow floats multiply and
/// accumulate in `f32`, where their products are exact, and are rounded once; narrow integers keep
/// the 32 bits of their sum.
pub(super) fn sum_of_products(x: &Tensor, y: &Tensor, axes: usize) -> Result<Tensor> {
    let dtype = promote_operands(&[Operand::from(x), Operand::from(y)]);
    let acc = sum_acc(dtype);
    let product = x.try_cast(acc)?.try_mul(y.try_cast(acc)?)?;
    let last: Vec<isize> = (1..=axes as isize).map(|a| -a).collect();
    let sum = product.reduce_axes(Fold::Add, last)?;
    if dtype.is_float() { sum.try_cast(dtype) } else { Ok(sum) }
}

impl Tensor {
    fallible! {
        /// Matrix product over the last two axes, with leading axes broadcast. A vector is a row on
        /// the left and a column on the right, and that axis is removed. Floats below 32 bits
        /// accumulate in `f32`; integers return the dtype of their [`sum`](Self::sum).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.matmul(&x).to_vec::<i32>()?, [7, 10, 15, 22]);
        /// assert_eq!(x.matmul(&Tensor::new([1, 1])).to_vec::<i32>()?, [3, 7]);
        /// assert!(x.try_matmul(&Tensor::zeros([3, 2])).is_err()); // inner sizes 2 and 3
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn matmul | try_matmul(&self, other: &Tensor) -> Tensor {
            if let Some([x, y]) = autocast::narrow([self, other]) {
                return x.try_matmul(&y);
            }
            let (a, b) = (self.dims(), other.dims());
            if a.is_empty() || b.is_empty() {
                return shape_error!(
                    "{a:?} and {b:?}: a scalar is not a matrix; multiply with `*`"
                );
            }
            let inner = if b.len() == 1 { b[0] } else { b[b.len() - 2] };
            if a[a.len() - 1] != inner {
                return shape_error!(
                    "inner sizes of {a:?} and {b:?} differ: {} and {inner}",
                    a[a.len() - 1]
                );
            }
            let x = if a.len() == 1 { self.try_unsqueeze(0)? } else { self.copy() };
            let y = if b.len() == 1 { other.try_unsqueeze(-1)? } else { other.clone() };
            let (m, n, k) = (x.dims(), y.dims(), inner);
            if let Err(e) =
                broadcast_dims("matmul", &[m[..m.len() - 2].into(), n[..n.len() - 2].into()])
            {
                return shape_error!(
                    "{a:?} and {b:?}: {}",
                    e.to_string().trim_start_matches("matmul: ")
                );
            }
            // [… rows, 1, k] · [… 1, cols, k]
            let (rows, cols) = (m[m.len() - 2], n[n.len() - 1]);
            let x = x.try_reshape([&m[..m.len() - 2], &[rows, 1, k]].concat())?;
            let y = y.try_transpose(-1, -2)?;
            let y = y.try_reshape([&n[..n.len() - 2], &[1, cols, k]].concat())?;
            let mut product = sum_of_products(&x, &y, 1)?;
            if b.len() == 1 {
                product = product.try_squeeze(-1)?;
            }
            if a.len() == 1 {
                product = product.try_squeeze(if b.len() == 1 { -1 } else { -2 })?;
            }
            Ok(product)
        }

        /// Alias of [`matmul`](Self::matmul). Under [`autocast()`](crate::autocast()) the product
        /// of two vectors keeps their dtypes, as in PyTorch.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2]).dot(&Tensor::new([3, 4])).to_vec::<i32>()?, [11]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn dot | try_dot(&self, other: &Tensor) -> Tensor {
            if self.ndim() == 1 && other.ndim() == 1 {
                return self.try_matmul(other);
            }
            match autocast::narrow([self, other]) {
                Some([x, y]) => x.try_matmul(&y),
                None => self.try_matmul(other),
            }
        }

        /// Affine map `x·Wᵀ + b` over the last axis, with a weight of shape `[out, in]`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (w, b) = (Tensor::new([[1, 2], [3, 4], [5, 6]]), Tensor::new([1, 1, 1]));
        /// assert_eq!(Tensor::new([[1, 1]]).linear(&w, Some(&b)).to_vec::<i32>()?, [4, 8, 12]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn linear | try_linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
            if let Some([x, w, b]) = autocast::narrow([self, weight, bias.unwrap_or(weight)]) {
                return x.try_linear(&w, bias.map(|_| &b));
            }
            let (x, w) = (self.dims(), weight.dims());
            if w.len() != 2 || x.last() != Some(&w[1]) {
                return shape_error!(
                    "a weight of {w:?} does not apply to {x:?}; expected [out, in] with `in` \
                     equal to the last size"
                );
            }
            let product = self.try_matmul(&weight.try_t()?)?;
            match bias {
                Some(b) => product.try_add(broadcast_to("linear", b, &[w[0]])?),
                None => Ok(product),
            }
        }
    }

    /// Applies functions in order. A network with parameters is a
    /// [`Sequential`](crate::nn::Sequential).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([-1.0f32, 2.0]).sequential(&[&Tensor::relu, &|x| x * 2.0]);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 4.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn sequential(&self, functions: &[&dyn Fn(&Tensor) -> Tensor]) -> Tensor {
        functions.iter().fold(self.clone(), |x, f| f(&x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DType, promote};

    #[test]
    fn the_dtype_of_a_product_is_that_of_its_sum() {
        for &x in DType::ALL {
            for &y in DType::ALL {
                let (a, b) = (Tensor::zeros([1, 1]).cast(x), Tensor::zeros([1, 1]).cast(y));
                let dtype = promote(x, y);
                let expected = if dtype.is_float() { dtype } else { sum_acc(dtype) };
                assert_eq!(a.matmul(&b).dtype(), expected, "{x} and {y}");
            }
        }
    }
}
