//! Rust types that a buffer can hold, and their conversion to and from the bytes of a buffer.

use std::cmp::Ordering;
use std::collections::TryReserveError;
use std::fmt;

use half::{bf16, f16};

use super::float::{f8e4m3_to_f32, f8e5m2_to_f32, f32_to_f8e4m3, f32_to_f8e5m2};
use super::{Const, DType, read};

// Buffers are little endian everywhere, and a slice is viewed as bytes in place.
const _: () = assert!(cfg!(target_endian = "little"), "picograd needs a little-endian host");

mod sealed {
    /// Restricts [`super::Element`] to types without padding, on which [`super::as_bytes`] relies.
    pub trait Sealed {}
}

/// A Rust type that is one element of a dtype. The set is closed: one type for each of
/// [`DType::ALL`].
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// The dtype of this type; one lane, and as many bytes as the type.
    const DTYPE: DType;

    /// Returns the value as a constant of [`Element::DTYPE`].
    fn to_const(self) -> Const;

    /// Returns the element of a constant. A constant that is not of [`Element::DTYPE`] is first put
    /// in its normal form.
    fn from_const(c: Const) -> Self;
}

/// Declares the elements: the type, its dtype, and its conversion from the bits of storage.
macro_rules! elements {
    ($($t:ty, $dtype:ident, $from_bits:expr;)*) => {
        $(
            const _: () = assert!(size_of::<$t>() == DType::$dtype.itemsize());

            impl sealed::Sealed for $t {}

            impl Element for $t {
                const DTYPE: DType = DType::$dtype;

                #[inline]
                fn to_const(self) -> Const {
                    Const::from(self)
                }

                #[inline]
                fn from_const(c: Const) -> $t {
                    ($from_bits)(c.to_bits(DType::$dtype))
                }
            }
        )*
    };
}

elements! {
    bool,   BOOL,   |b: u64| b != 0;
    i8,     I8,     |b: u64| b as i8;
    i16,    I16,    |b: u64| b as i16;
    i32,    I32,    |b: u64| b as i32;
    i64,    I64,    |b: u64| b as i64;
    u8,     U8,     |b: u64| b as u8;
    u16,    U16,    |b: u64| b as u16;
    u32,    U32,    |b: u64| b as u32;
    u64,    U64,    |b: u64| b;
    F8E4M3, F8E4M3, |b: u64| F8E4M3(b as u8);
    F8E5M2, F8E5M2, |b: u64| F8E5M2(b as u8);
    f16,    F16,    |b: u64| f16::from_bits(b as u16);
    bf16,   BF16,   |b: u64| bf16::from_bits(b as u16);
    f32,    F32,    |b: u64| f32::from_bits(b as u32);
    f64,    F64,    f64::from_bits;
}

/// Returns the bytes of a slice, as a buffer stores them.
#[inline]
pub fn as_bytes<T: Element>(s: &[T]) -> &[u8] {
    // SAFETY: `Element` is sealed, and each of its types is a plain number without padding, so
    // every byte is initialized. A byte needs no alignment, and the length is that of the same
    // memory.
    unsafe { std::slice::from_raw_parts(s.as_ptr().cast(), size_of_val(s)) }
}

/// Returns the elements that these bytes store, wherever they are aligned. A bool is true where its
/// byte is not zero. Panics unless the bytes are a whole number of elements.
pub fn from_bytes<T: Element>(b: &[u8]) -> Vec<T> {
    try_from_bytes(b).expect("memory for the elements")
}

/// As [`from_bytes`]; an error where there is no memory for the elements.
pub(crate) fn try_from_bytes<T: Element>(b: &[u8]) -> Result<Vec<T>, TryReserveError> {
    let size = size_of::<T>();
    assert!(
        b.len().is_multiple_of(size),
        "{} bytes are not a whole number of {}",
        b.len(),
        T::DTYPE
    );
    let count = b.len() / size;
    let mut out = Vec::<T>::new();
    out.try_reserve_exact(count)?;
    if T::DTYPE.is_bool() {
        // A byte other than 0 and 1 is no Rust bool, so these are read one by one.
        out.extend(b.iter().map(|byte| T::from_const(read(&[*byte], T::DTYPE))));
        return Ok(out);
    }
    // SAFETY: the vector has room for `count` elements, which is exactly `b.len()` bytes, and is
    // fresh memory, so the two do not overlap. Both ends are written as bytes, so alignment does
    // not matter. `Element` is sealed, and of its types only bool, handled above, has bit patterns
    // that are not values.
    unsafe {
        std::ptr::copy_nonoverlapping(b.as_ptr(), out.as_mut_ptr().cast::<u8>(), b.len());
        out.set_len(count);
    }
    Ok(out)
}

/// An 8-bit float type over its code.
macro_rules! small_float {
    ($(#[$doc:meta])* $name:ident, $to_f32:ident, $from_f32:ident) => {
        $(#[$doc])*
        ///
        /// Compares by value, as floats do: 0.0 equals -0.0 and NaN equals nothing.
        #[derive(Copy, Clone, Default)]
        #[repr(transparent)]
        pub struct $name(
            /// The code, as stored.
            pub u8,
        );

        impl $name {
            /// Returns the nearest value, ties to even.
            #[inline]
            pub fn from_f32(x: f32) -> $name {
                $name($from_f32(x))
            }

            /// Returns the value, exactly.
            #[inline]
            pub fn to_f32(self) -> f32 {
                $to_f32(self.0)
            }
        }

        impl PartialEq for $name {
            #[inline]
            fn eq(&self, other: &$name) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            #[inline]
            fn partial_cmp(&self, other: &$name) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
    };
}

small_float! {
    /// An OCP 8-bit float of 4 exponent and 3 mantissa bits, the finite variant: no infinity,
    /// largest 448; overflow is NaN.
    F8E4M3, f8e4m3_to_f32, f32_to_f8e4m3
}

small_float! {
    /// An OCP 8-bit float of 5 exponent and 2 mantissa bits, with infinities as in IEEE;
    /// largest finite 57344.
    F8E5M2, f8e5m2_to_f32, f32_to_f8e5m2
}
