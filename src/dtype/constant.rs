//! Typed constants, and the definition of casts, bitcasts and storage for every dtype.
//!
//! Input: values, bits or bytes, and their dtype. Output: values in the **normal form** of the
//! dtype: a bool is `Bool`, an integer is `Int` with the value (for `u64` its bits), a float is
//! `Float` with a value that the dtype represents exactly.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use half::{bf16, f16};

use super::element::{F8E4M3, F8E5M2};
use super::float::{self, BRAIN, E4M3, E5M2, HALF, round_f64};
use super::{DType, Scalar};

/// The value of a typed constant, without its dtype.
///
/// Equality, hash and order compare floats by their bits, except that all NaN are equal: -0.0 and
/// 0.0 differ. Constants of different variants differ, so `Int(1)` is not `Float(1.0)`; the order
/// is total.
#[derive(Copy, Clone, Debug)]
pub enum Const {
    /// A bool.
    Bool(bool),
    /// Any integer or an index. A `u64` above `i64::MAX` is held as the `i64` of the same bits.
    Int(i64),
    /// Any float; each narrower float is exactly an `f64`.
    Float(f64),
}

impl Const {
    /// Returns the value as an integer: a bool is 0 or 1, an integer is itself (a `u64` its wrapped
    /// bits), a float is not one.
    #[inline]
    pub const fn as_i64(self) -> Option<i64> {
        match self {
            Const::Bool(b) => Some(b as i64),
            Const::Int(i) => Some(i),
            Const::Float(_) => None,
        }
    }

    /// Returns the value as an `f64`, rounded where a 64-bit integer is too long. The dtype
    /// distinguishes a large `u64` from a negative number.
    #[inline]
    pub const fn as_f64(self, dtype: DType) -> f64 {
        match self {
            Const::Bool(b) => b as u8 as f64,
            Const::Int(i) if matches!(dtype.scalar, Scalar::U64) => i as u64 as f64,
            Const::Int(i) => i as f64,
            Const::Float(x) => x,
        }
    }

    /// Returns true for false, 0, 0.0 and -0.0.
    #[inline]
    pub const fn is_zero(self) -> bool {
        !self.is_true()
    }

    /// Returns true for true, 1 and 1.0.
    #[cfg(test)]
    pub const fn is_one(self) -> bool {
        match self {
            Const::Bool(b) => b,
            Const::Int(i) => i == 1,
            Const::Float(x) => x == 1.0,
        }
    }

    /// Returns the value as a condition: whether it differs from zero. NaN does.
    #[inline]
    pub const fn is_true(self) -> bool {
        match self {
            Const::Bool(b) => b,
            Const::Int(i) => i != 0,
            Const::Float(x) => x != 0.0,
        }
    }

    /// Returns the value cast to another dtype. This is the definition of every cast in the crate:
    ///
    /// | from | to | |
    /// |---|---|---|
    /// | anything | bool | whether it differs from zero; NaN does |
    /// | bool | number | 0 or 1 |
    /// | integer | integer | wraps: the low bits of the two's complement |
    /// | float | integer | truncates toward zero and saturates; NaN is 0 (Rust's `as`) |
    /// | number | float | nearest, ties to even, rounded once; overflow is infinity (`f8e4m3`: NaN) |
    ///
    /// NaN becomes the canonical NaN. A constant has one value for all lanes. Panics if `to` is
    /// void.
    #[inline]
    pub fn cast(self, from: DType, to: DType) -> Const {
        match self {
            Const::Bool(b) => cast_int(b as i64, false, to.scalar),
            Const::Int(i) => cast_int(i, from.scalar == Scalar::U64, to.scalar),
            Const::Float(x) => cast_float(x, to.scalar),
        }
    }

    /// Returns the value in normal form for a dtype: integers wrapped, floats rounded, and a
    /// constant of another variant cast. An `Int` is taken as an `i64`.
    #[inline]
    pub fn normalize(self, dtype: DType) -> Const {
        self.cast(DType::I64, dtype)
    }

    /// Returns the value of another dtype of the same width with the same bits. A bool made from
    /// bits other than 0 and 1 is true.
    ///
    /// The bits of a NaN survive here, but equality does not see them: a NaN that is interned by
    /// value may come back with the bits of another.
    #[inline]
    pub fn bitcast(self, from: DType, to: DType) -> Const {
        assert!(from.bits() == to.bits(), "bitcast from {from} to {to}: the widths differ");
        Const::from_bits(self.to_bits(from), to)
    }

    /// Returns the bits that one lane of the dtype is stored as, with zeros above. A value out of
    /// normal form is wrapped or rounded first.
    #[inline]
    pub fn to_bits(self, dtype: DType) -> u64 {
        match (self, dtype.scalar) {
            (Const::Int(i), Scalar::I8 | Scalar::U8) => i as u8 as u64,
            (Const::Int(i), Scalar::I16 | Scalar::U16) => i as u16 as u64,
            (Const::Int(i), Scalar::I32 | Scalar::U32) => i as u32 as u64,
            (Const::Int(i), Scalar::I64 | Scalar::U64 | Scalar::Index) => i as u64,
            (Const::Float(x), Scalar::F64) => x.to_bits(),
            (Const::Float(x), Scalar::F32) => float::encode_f32(x) as u64,
            (Const::Float(x), Scalar::F16) => HALF.encode(x),
            (Const::Float(x), Scalar::BF16) => BRAIN.encode(x),
            (Const::Float(x), Scalar::F8E4M3) => E4M3.encode(x),
            (Const::Float(x), Scalar::F8E5M2) => E5M2.encode(x),
            (c, Scalar::Bool) => c.is_true() as u64,
            // The variant is of another kind than the dtype; the normal form is not.
            _ => self.normalize(dtype).to_bits(dtype),
        }
    }

    /// Returns the value of these bits of storage, in normal form. Bits above the width are
    /// ignored. Panics if the dtype is void.
    #[inline]
    pub fn from_bits(bits: u64, dtype: DType) -> Const {
        match dtype.scalar {
            Scalar::Void => void(),
            Scalar::Bool => Const::Bool(bits as u8 != 0),
            Scalar::F64 => Const::Float(f64::from_bits(bits)),
            Scalar::F32 => Const::Float(float::decode_f32(bits as u32)),
            Scalar::F16 => Const::Float(HALF.decode(bits)),
            Scalar::BF16 => Const::Float(BRAIN.decode(bits)),
            Scalar::F8E4M3 => Const::Float(float::decode_e4m3(bits as u8)),
            Scalar::F8E5M2 => Const::Float(float::decode_e5m2(bits as u8)),
            to => cast_int(bits as i64, false, to),
        }
    }
}

#[cold]
fn void() -> ! {
    panic!("void has no values")
}

#[inline]
fn cast_int(i: i64, unsigned: bool, to: Scalar) -> Const {
    match to {
        Scalar::Void => void(),
        Scalar::Bool => Const::Bool(i != 0),
        Scalar::I8 => Const::Int(i as i8 as i64),
        Scalar::I16 => Const::Int(i as i16 as i64),
        Scalar::I32 => Const::Int(i as i32 as i64),
        Scalar::U8 => Const::Int(i as u8 as i64),
        Scalar::U16 => Const::Int(i as u16 as i64),
        Scalar::U32 => Const::Int(i as u32 as i64),
        Scalar::I64 | Scalar::U64 | Scalar::Index => Const::Int(i),
        Scalar::F64 => Const::Float(if unsigned { i as u64 as f64 } else { i as f64 }),
        Scalar::F32 => Const::Float(if unsigned { i as u64 as f32 } else { i as f32 } as f64),
        Scalar::F16 | Scalar::BF16 | Scalar::F8E4M3 | Scalar::F8E5M2 => {
            Const::Float(round_f64(int_to_odd(i, unsigned), to))
        }
    }
}

/// Returns the integer as an `f64`, rounded so that rounding again to a float of up to 16 bits
/// gives what rounding once would. An integer over 53 bits loses its low 11 bits, and the last
/// remaining bit is set if any of those was (round to odd), which distinguishes a tie from a value
/// just above it.
#[inline]
fn int_to_odd(i: i64, unsigned: bool) -> f64 {
    let magnitude = if unsigned { i as u64 } else { i.unsigned_abs() };
    let kept = if magnitude >> 53 == 0 {
        magnitude
    } else {
        (magnitude & !0x7ff) | ((magnitude & 0x7ff != 0) as u64) << 11
    };
    if i < 0 && !unsigned { -(kept as f64) } else { kept as f64 }
}

#[inline]
fn cast_float(x: f64, to: Scalar) -> Const {
    match to {
        Scalar::Void => void(),
        Scalar::Bool => Const::Bool(x != 0.0),
        Scalar::I8 => Const::Int(x as i8 as i64),
        Scalar::I16 => Const::Int(x as i16 as i64),
        Scalar::I32 => Const::Int(x as i32 as i64),
        Scalar::I64 | Scalar::Index => Const::Int(x as i64),
        Scalar::U8 => Const::Int(x as u8 as i64),
        Scalar::U16 => Const::Int(x as u16 as i64),
        Scalar::U32 => Const::Int(x as u32 as i64),
        Scalar::U64 => Const::Int(x as u64 as i64),
        Scalar::F8E4M3
        | Scalar::F8E5M2
        | Scalar::F16
        | Scalar::BF16
        | Scalar::F32
        | Scalar::F64 => Const::Float(round_f64(x, to)),
    }
}

/// Reads one lane of the dtype from the front of the bytes, little endian. Panics if there are too
/// few bytes or the dtype is void.
#[inline]
pub fn read(bytes: &[u8], dtype: DType) -> Const {
    let bits = match dtype.bits() {
        8 => bytes[0] as u64,
        16 => u16::from_le_bytes(front(bytes)) as u64,
        32 => u32::from_le_bytes(front(bytes)) as u64,
        _ => u64::from_le_bytes(front(bytes)),
    };
    Const::from_bits(bits, dtype)
}

/// Writes one lane of the dtype to the front of the bytes, little endian; a value out of normal
/// form is wrapped or rounded first. Panics if there are too few bytes or the dtype is void.
#[inline]
pub fn write(c: Const, dtype: DType, out: &mut [u8]) {
    let bits = c.to_bits(dtype);
    match dtype.bits() {
        8 => out[0] = bits as u8,
        16 => out[..2].copy_from_slice(&(bits as u16).to_le_bytes()),
        32 => out[..4].copy_from_slice(&(bits as u32).to_le_bytes()),
        _ => out[..8].copy_from_slice(&bits.to_le_bytes()),
    }
}

#[inline]
fn front<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("an element needs as many bytes as its dtype")
}

/// Returns the key of equality, hash and order: the rank of the variant and the bits of the value,
/// with one NaN.
#[inline]
fn key(c: Const) -> (u8, i64) {
    match c {
        Const::Bool(b) => (0, b as i64),
        Const::Int(i) => (1, i),
        Const::Float(x) => {
            let bits = if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() } as i64;
            // Negative floats have descending bits; flipping all but the sign puts every float in
            // the order of its value.
            (2, bits ^ ((bits >> 63) & i64::MAX))
        }
    }
}

impl PartialEq for Const {
    #[inline]
    fn eq(&self, other: &Const) -> bool {
        key(*self) == key(*other)
    }
}

impl Eq for Const {}

impl Hash for Const {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        key(*self).hash(state);
    }
}

impl Ord for Const {
    #[inline]
    fn cmp(&self, other: &Const) -> Ordering {
        key(*self).cmp(&key(*other))
    }
}

impl PartialOrd for Const {
    #[inline]
    fn partial_cmp(&self, other: &Const) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Const {
    /// Prints an integer with digits alone ("3"). A float always has a '.', an 'e', "inf" or "nan",
    /// and is the shortest text that parses back to the same `f64`. The dtype is not known here, so
    /// a `u64` above `i64::MAX` prints as the negative number of the same bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Const::Bool(b) => write!(f, "{b}"),
            Const::Int(i) => write!(f, "{i}"),
            Const::Float(x) if x.is_nan() => f.write_str("nan"),
            Const::Float(x) => write!(f, "{x:?}"),
        }
    }
}

/// Declares conversions of Rust numbers: the type and the constant of a value.
macro_rules! from {
    ($($($t:ty)+: |$x:ident| $constant:expr;)*) => { $($(
        impl From<$t> for Const {
            #[inline]
            fn from($x: $t) -> Const {
                $constant
            }
        }
    )+)* };
}

from! {
    bool: |b| Const::Bool(b);
    // An integer above `i64::MAX` is given by its bits.
    i8 i16 i32 i64 isize u8 u16 u32 u64 usize: |i| Const::Int(i as i64);
    F8E4M3: |x| Const::Float(float::decode_e4m3(x.0));
    F8E5M2: |x| Const::Float(float::decode_e5m2(x.0));
    f16: |x| Const::Float(HALF.decode(x.to_bits() as u64));
    bf16: |x| Const::Float(BRAIN.decode(x.to_bits() as u64));
    f32: |x| Const::Float(float::decode_f32(x.to_bits()));
    f64: |x| Const::Float(x);
}
