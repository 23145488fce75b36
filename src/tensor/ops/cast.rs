//! Conversion to other dtypes.

use super::create::iota;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Dims;
use crate::tensor::Tensor;
use crate::tensor::broadcast::cast_uop;

/// Unsigned integer of a dtype's width.
fn unsigned(dtype: DType) -> DType {
    match dtype.bits() {
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        _ => DType::U64,
    }
}

/// Splits unsigned integers into elements of a narrower dtype, least significant first.
fn split_bits(bits: &Tensor, lead: &[usize], last: usize, dtype: DType) -> Result<Tensor> {
    let count = bits.dtype().itemsize() / dtype.itemsize();
    let with = |sizes: &[usize]| lead.iter().chain(sizes).copied().collect::<Dims>();
    let shifts = iota(count).try_mul(dtype.bits())?.try_cast(bits.dtype())?;
    let parts = bits.shaped(with(&[last, 1]))?.try_rshift(shifts)?.try_cast(unsigned(dtype))?;
    let parts = parts.shaped(with(&[last * count]))?;
    Ok(parts.with_uop(parts.uop().bitcast(dtype)))
}

/// Combines unsigned integers, least significant first, to `size` elements of a wider dtype.
fn combine_bits(bits: &Tensor, lead: &[usize], size: usize, dtype: DType) -> Result<Tensor> {
    let (width, count) = (bits.dtype().bits() as usize, dtype.itemsize() / bits.dtype().itemsize());
    let with = |sizes: &[usize]| lead.iter().chain(sizes).copied().collect::<Dims>();
    let parts = bits.shaped(with(&[size, count]))?;
    let mut all: Option<Tensor> = None;
    for i in 0..count {
        let part = parts.slice_axis(lead.len() + 1, i, i + 1)?.shaped(with(&[size]))?;
        let part = part.try_cast(unsigned(dtype))?.try_lshift(i * width)?;
        all = Some(match all {
            None => part,
            Some(low) => low.try_bitwise_or(part)?,
        });
    }
    let all = all.expect("two parts or more");
    Ok(all.with_uop(all.uop().bitcast(dtype)))
}

impl Tensor {
    fallible! {
        /// Converts to another dtype. Floats to integers truncate and saturate, integers wrap, and
        /// nonzero elements become true.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::new([1.9f32, -300.0]).cast(DType::I8).to_vec::<i8>()?, [1, -128]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cast | try_cast(&self, dtype: DType) -> Tensor {
            reject_dtype!(!DType::ALL.contains(&dtype), "a tensor cannot hold {dtype}");
            Ok(if dtype == self.dtype() {
                self.copy()
            } else {
                self.with_uop(cast_uop(&self.uop(), dtype))
            })
        }

        /// Reinterprets the bits as another dtype. Between dtypes of different width the last axis
        /// grows or shrinks: a `u32` becomes four `u8`, least significant first, and vice versa;
        /// its size must be a multiple of that ratio. Bools are an error, and there is no gradient.
        /// Both directions are integer shifts, which fuse.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::new([1.0f32]).bitcast(DType::U32).to_vec::<u32>()?, [0x3f800000]);
        /// let bytes = Tensor::new([[1.0f32, -2.0]]).bitcast(DType::U8);
        /// assert_eq!(bytes.to_vec::<u8>()?, [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        /// assert_eq!(bytes.bitcast(DType::F32).shape(), [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitcast | try_bitcast(&self, dtype: DType) -> Tensor {
            let from = self.dtype();
            reject_dtype!(!DType::ALL.contains(&dtype), "a tensor cannot hold {dtype}");
            if from.is_bool() != dtype.is_bool() {
                return dtype_error!(
                    "{from} to {dtype}: the bits of a bool are not defined; use cast"
                );
            }
            if from.bits() == dtype.bits() {
                return Ok(self.with_uop(self.uop().bitcast(dtype)));
            }
            let dims = self.dims();
            let Some(&last) = dims.last() else {
                return shape_error!(
                    "{from} to {dtype} changes the size of the last axis, but the shape is []; \
                     reshape to [1]"
                );
            };
            self.require_static("bitcast", [dims.len() - 1])?;
            let bits = self.detach();
            let bits = bits.with_uop(bits.uop().bitcast(unsigned(from)));
            let lead = &dims[..dims.len() - 1];
            if from.bits() > dtype.bits() {
                return split_bits(&bits, lead, last, dtype);
            }
            let count = dtype.itemsize() / from.itemsize();
            if !last.is_multiple_of(count) {
                return shape_error!(
                    "{from} to {dtype} requires a multiple of {count} as the last size, got \
                     {dims:?}"
                );
            }
            combine_bits(&bits, lead, last / count, dtype)
        }
    }
}

/// Methods that cast to one dtype.
macro_rules! casts {
    ($($(#[$meta:meta])* $name:ident $dtype:ident;)*) => {
        impl Tensor { $(
            $(#[$meta])*
            pub fn $name(&self) -> Tensor {
                self.cast(DType::$dtype)
            }
        )* }
    };
}

casts! {
    /// Casts to `f32`.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::new([1u8, 0]);
    /// assert_eq!((x.float().dtype(), x.double().dtype()), (DType::F32, DType::F64));
    /// ```
    float F32;
    /// Casts to `f16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).half().float().to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    half F16;
    /// Casts to `bf16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([257]).bfloat16().float().to_vec::<f32>()?, [256.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bfloat16 BF16;
    /// Casts to `f64`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).double().to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    double F64;
    /// Casts to `i32`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.9f32, -1.9]).int().to_vec::<i32>()?, [1, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    int I32;
    /// Casts to `i64`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.9f32, -1.9]).long().to_vec::<i64>()?, [1, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    long I64;
    /// Casts to `i16`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1e9f32, -1.9]).short().to_vec::<i16>()?, [32767, -1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    short I16;
    /// Casts to bool: true where the element is nonzero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 0.5]).bool().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bool BOOL;
}
