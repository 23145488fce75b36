//! Elements as another dtype.

use super::broadcast::cast_uop;
use super::{Tensor, wrong_dtype};
use crate::dtype::DType;

impl Tensor {
    fallible! {
        /// The elements converted to another dtype: floats to integers toward zero and saturating, integers wrap, anything but zero is true.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::new([1.9f32, -300.0]).cast(DType::I8).to_vec::<i8>()?, [1, -128]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cast | try_cast(&self, dtype: DType) -> Tensor {
            if !DType::ALL.contains(&dtype) {
                return wrong_dtype("cast", format!("a tensor cannot hold {dtype}"));
            }
            Ok(if dtype == self.dtype() { self.same() } else { self.with(cast_uop(&self.uop(), dtype)) })
        }

        /// The same bits as another dtype of the same width.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::new([1.0f32]).bitcast(DType::U32).to_vec::<u32>()?, [0x3f800000]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitcast | try_bitcast(&self, dtype: DType) -> Tensor {
            let from = self.dtype();
            if !DType::ALL.contains(&dtype) || dtype.bits() != from.bits() {
                let msg = format!("{from} has {} bits and {dtype} has {}: only dtypes of one width share their bits", from.bits(), dtype.bits());
                return wrong_dtype("bitcast", msg);
            }
            if from.is_bool() != dtype.is_bool() {
                return wrong_dtype("bitcast", format!("{from} to {dtype}: a bool has no bits of its own; cast it"));
            }
            Ok(self.with(self.uop().bitcast(dtype)))
        }
    }

    /// As `f32`.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::new([1u8, 0]);
    /// assert_eq!((x.float().dtype(), x.half().dtype(), x.bfloat16().dtype()), (DType::F32, DType::F16, DType::BF16));
    /// assert_eq!((x.double().dtype(), x.int().dtype(), x.long().dtype()), (DType::F64, DType::I32, DType::I64));
    /// assert_eq!((x.short().dtype(), x.bool().dtype()), (DType::I16, DType::BOOL));
    /// ```
    pub fn float(&self) -> Tensor {
        self.cast(DType::F32)
    }
    /// As `f16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).half().float().to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn half(&self) -> Tensor {
        self.cast(DType::F16)
    }
    /// As `bf16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([257]).bfloat16().float().to_vec::<f32>()?, [256.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn bfloat16(&self) -> Tensor {
        self.cast(DType::BF16)
    }
    /// As `f64`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).double().to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn double(&self) -> Tensor {
        self.cast(DType::F64)
    }
    /// As `i32`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.9f32, -1.9]).int().to_vec::<i32>()?, [1, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn int(&self) -> Tensor {
        self.cast(DType::I32)
    }
    /// As `i64`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.9f32, -1.9]).long().to_vec::<i64>()?, [1, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn long(&self) -> Tensor {
        self.cast(DType::I64)
    }
    /// As `i16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1e9f32, -1.9]).short().to_vec::<i16>()?, [32767, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn short(&self) -> Tensor {
        self.cast(DType::I16)
    }
    /// As bools: whether the element is anything but zero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 0.5]).bool().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn bool(&self) -> Tensor {
        self.truth()
    }
}
