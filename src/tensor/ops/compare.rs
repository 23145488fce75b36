//! Comparisons, logical operations, and selection by a condition.

use crate::dtype::DType;
use crate::ir::{Arg, Op, UOp};
use crate::tensor::Tensor;
use crate::tensor::broadcast::{Operand, Unified, cast_uop, promote_operands, unify_as};

binary_methods! {
    /// True where elements are equal. NaN equals nothing.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).eq(2).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    eq try_eq eq;
    /// True where elements differ. NaN differs from everything.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).ne(2).to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    ne try_ne ne;
    /// True where this is less. NaN compares false.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).lt(2).to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    lt try_lt lt;
    /// True where this is less or equal. NaN compares false.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).le(2).to_vec::<bool>()?, [true, true, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    le try_le le;
    /// True where this is greater. NaN compares false.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).gt(2).to_vec::<bool>()?, [false, false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    gt try_gt gt;
    /// True where this is greater or equal. NaN compares false.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2, 3]).ge(2).to_vec::<bool>()?, [false, true, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    ge try_ge ge;
    /// Logical and; nonzero elements are true.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0, 2]).logical_and(true).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    logical_and try_logical_and logical_and;
    /// Logical or; nonzero elements are true.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0, 2]).logical_or(false).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    logical_or try_logical_or logical_or;
    /// Logical exclusive or; nonzero elements are true.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0, 2]).logical_xor(true).to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    logical_xor try_logical_xor logical_xor;
}

impl Tensor {
    fallible! {
        /// Selects elements of `x` where this is true and of `y` elsewhere. All three broadcast;
        /// `x` and `y` promote.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([-1.0f32, 2.0]);
        /// assert_eq!(x.lt(0).where_(0, &x).to_vec::<f32>()?, [0.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn where_ | try_where_(&self, x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
            let (x, y) = (x.into(), y.into());
            let dtype = promote_operands(&[x.clone(), y.clone()]);
            let Unified { src, device, .. } =
                unify_as("where", &[self.into(), x, y], &[DType::BOOL, dtype, dtype])?;
            Ok(Tensor::new_inner(UOp::new(Op::Where, dtype, src, Arg::None), device, None))
        }

        /// Replaces elements by a value where the mask is true. The dtype stays.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 5, 3]);
        /// assert_eq!(x.masked_fill(&x.gt(2), 0).to_vec::<i32>()?, [1, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn masked_fill | try_masked_fill(
            &self, mask: &Tensor, value: impl Into<Operand>,
        ) -> Tensor {
            mask.try_where_(value, self)?.try_cast(self.dtype())
        }
    }

    /// Returns true where the element is zero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0, 2]).logical_not().to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn logical_not(&self) -> Tensor {
        let mask = self.nonzero_mask();
        mask.with_uop(mask.uop().not())
    }

    /// Returns true where the element is nonzero.
    pub(super) fn nonzero_mask(&self) -> Tensor {
        self.with_uop(cast_uop(&self.uop(), DType::BOOL))
    }
}
