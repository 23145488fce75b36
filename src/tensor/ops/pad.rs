//! Padding with elements of the tensor: reflected, replicated or circular.

use crate::error::Result;
use crate::tensor::Tensor;

/// Source of the padding. [`Tensor::pad`] pads with zeros, and [`Tensor::pad_with`] with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PadMode {
    /// Reflection at the ends, which are not repeated: `c b | a b c | b a`.
    Reflect,
    /// Repetition of the first and last element: `a a | a b c | c c`.
    Replicate,
    /// Elements from the opposite end: `b c | a b c | a b`.
    Circular,
}

impl PadMode {
    /// Padding before and after the axis.
    fn sides(self, x: &Tensor, axis: usize, before: usize, after: usize) -> Result<[Tensor; 2]> {
        let n = x.dims()[axis];
        let repeated = |t: Tensor, count: usize| {
            let mut dims = t.dims();
            dims[axis] = count;
            t.expanded(dims)
        };
        Ok(match self {
            PadMode::Reflect => [
                x.slice_axis(axis, 1, before + 1)?.try_flip(axis as isize)?,
                x.slice_axis(axis, n - 1 - after, n - 1)?.try_flip(axis as isize)?,
            ],
            PadMode::Replicate => [
                repeated(x.slice_axis(axis, 0, 1)?, before)?,
                repeated(x.slice_axis(axis, n - 1, n)?, after)?,
            ],
            PadMode::Circular => {
                [x.slice_axis(axis, n - before, n)?, x.slice_axis(axis, 0, after)?]
            }
        })
    }
    /// Largest padding on one side of an axis.
    fn max_padding(self, size: usize) -> usize {
        match self {
            PadMode::Reflect => size.saturating_sub(1),
            PadMode::Replicate if size > 0 => usize::MAX,
            PadMode::Replicate => 0,
            PadMode::Circular => size,
        }
    }
}

impl Tensor {
    fallible! {
        /// Pads each axis with `(before, after)` elements of the tensor itself.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::PadMode};
        /// let x = Tensor::new([1, 2, 3]);
        /// let y = x.pad_mode(&[(2, 1)], PadMode::Reflect);
        /// assert_eq!(y.to_vec::<i32>()?, [3, 2, 1, 2, 3, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad_mode | try_pad_mode(&self, padding: &[(usize, usize)], mode: PadMode) -> Tensor {
            let dims = self.dims();
            if padding.len() != dims.len() {
                return shape_error!(
                    "{padding:?} has {} pairs for the axes of {dims:?}",
                    padding.len()
                );
            }
            let mut x = self.copy();
            for (axis, &(before, after)) in padding.iter().enumerate() {
                let most = mode.max_padding(dims[axis]);
                if before > most || after > most {
                    return shape_error!(
                        "padding {:?} of axis {axis} of {dims:?} exceeds its limit of {most}",
                        (before, after)
                    );
                }
                if (before, after) != (0, 0) {
                    let [first, last] = mode.sides(&x, axis, before, after)?;
                    let parts: Vec<Tensor> = [(first, before), (x, 1), (last, after)]
                        .into_iter()
                        .filter(|p| p.1 > 0)
                        .map(|p| p.0)
                        .collect();
                    x = Tensor::try_cat(&parts, axis as isize)?;
                }
            }
            Ok(x)
        }
    }
}
