//! The table of dtypes, their promotion, and typed constants.
//!
//! Input: names ("f32", "bfloat16") and pairs of dtypes. Output: dtypes and exact values.
//! Everything that computes with numbers at compile time (constant folding, the interpreter, the
//! printers) uses [`Const::cast`], so that every conversion has one definition.
//!
//! **Invariant:** nothing here depends on a device, and nothing here rounds twice.

pub(crate) mod constant;
pub(crate) mod element;
pub(crate) mod float;
mod fma;
pub(crate) mod promote;
#[cfg(test)]
mod tests;
pub(crate) mod trigonometry;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

pub use constant::Const;
pub(crate) use constant::{read, write};
pub use element::{Element, F8E4M3, F8E5M2};
pub(crate) use element::{as_bytes, try_from_bytes};
pub(crate) use float::round_f64;
pub(crate) use fma::Fma;
pub use promote::promote;
pub(crate) use promote::{Weak, promote_weak, sum_acc};

/// The kind of a scalar, from the weakest to the strongest in promotion.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Void,
    Bool,
    Index,
    Unsigned,
    Signed,
    Float,
}

/// Declares the scalars. The enum, the constants, the names, the widths and the parser are derived
/// from the rows.
macro_rules! scalars {
    ($(
        $(#[$doc:meta])*
        $variant:ident $constant:ident $name:literal $bits:literal $kind:ident [$($alias:literal)*];
    )*) => {
        /// The type of one lane. The order of the variants is not that of promotion.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Scalar {
            $($(#[$doc])* $variant,)*
        }

        impl Scalar {
            /// Returns the name in text IR and messages.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self { $(Scalar::$variant => $name,)* }
            }

            /// Bits of storage. A bool takes a byte, an index is evaluated in 64 bits, a void takes
            /// nothing.
            #[inline]
            pub const fn bits(self) -> u32 {
                match self { $(Scalar::$variant => $bits,)* }
            }

            #[inline]
            const fn kind(self) -> Kind {
                match self { $(Scalar::$variant => Kind::$kind,)* }
            }

            /// Returns the scalar of a name or an alias.
            fn of_name(name: &str) -> Option<Scalar> {
                match name {
                    $($name $(| $alias)* => Some(Scalar::$variant),)*
                    _ => None,
                }
            }
        }

        impl DType {
            $(
                $(#[$doc])*
                pub const $constant: DType = DType { scalar: Scalar::$variant, lanes: 1 };
            )*

            /// All dtypes of one lane.
            const TABLE: &[DType] = &[$(DType::$constant),*];
        }
    };
}

scalars! {
    /// No value: stores, barriers and sinks.
    Void   VOID   "void"   0  Void     [];
    /// True or false, in a byte that is 0 or 1.
    Bool   BOOL   "bool"   8  Bool     ["bool_" "boolean"];
    /// Signed integer of 8 bits.
    I8     I8     "i8"     8  Signed   ["int8" "char"];
    /// Signed integer of 16 bits.
    I16    I16    "i16"    16 Signed   ["int16" "short"];
    /// Signed integer of 32 bits.
    I32    I32    "i32"    32 Signed   ["int32" "int"];
    /// Signed integer of 64 bits.
    I64    I64    "i64"    64 Signed   ["int64" "long"];
    /// Unsigned integer of 8 bits.
    U8     U8     "u8"     8  Unsigned ["uint8" "uchar" "byte"];
    /// Unsigned integer of 16 bits.
    U16    U16    "u16"    16 Unsigned ["uint16" "ushort"];
    /// Unsigned integer of 32 bits.
    U32    U32    "u32"    32 Unsigned ["uint32" "uint"];
    /// Unsigned integer of 64 bits.
    U64    U64    "u64"    64 Unsigned ["uint64" "ulong"];
    /// OCP 8-bit float of 4 exponent and 3 mantissa bits, the finite variant: no infinity, largest
    /// 448.
    F8E4M3 F8E4M3 "f8e4m3" 8  Float    ["float8_e4m3fn" "float8_e4m3" "f8_e4m3" "fp8e4m3"];
    /// OCP 8-bit float of 5 exponent and 2 mantissa bits, with infinities as in IEEE.
    F8E5M2 F8E5M2 "f8e5m2" 8  Float    ["float8_e5m2" "f8_e5m2" "fp8e5m2"];
    /// IEEE half precision.
    F16    F16    "f16"    16 Float    ["float16" "half"];
    /// The upper half of an `f32`.
    BF16   BF16   "bf16"   16 Float    ["bfloat16" "bfloat"];
    /// IEEE single precision.
    F32    F32    "f32"    32 Float    ["float32" "float"];
    /// IEEE double precision.
    F64    F64    "f64"    64 Float    ["float64" "double"];
    /// Weak integer of index arithmetic, later lowered to `i32` or `i64`; evaluated in 64 bits.
    Index  INDEX  "index"  64 Index    [];
}

/// A scalar type and a number of lanes; one lane is a plain scalar.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DType {
    /// The type of each lane.
    pub scalar: Scalar,
    /// The number of lanes; at least 1.
    pub lanes: u16,
}

impl DType {
    /// The dtypes that a buffer can hold, in the order of the table: all but void and index.
    pub const ALL: &[DType] = DType::TABLE.split_at(DType::TABLE.len() - 1).0.split_at(1).1;

    /// Returns the same scalar with this many lanes.
    #[inline]
    pub const fn vec(self, lanes: u16) -> DType {
        assert!(lanes > 0, "a dtype has at least one lane");
        DType { scalar: self.scalar, lanes }
    }

    /// Returns the dtype of one lane.
    #[inline]
    pub const fn scalar(self) -> DType {
        DType { scalar: self.scalar, lanes: 1 }
    }

    /// Returns true if a lane is a float of any width.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self.scalar.kind(), Kind::Float)
    }

    /// Returns true if a lane is a float below 32 bits.
    #[inline]
    pub const fn is_narrow_float(self) -> bool {
        self.is_float() && self.bits() < 32
    }

    /// Returns the dtype that values of this one are computed and accumulated in: `f32` for floats
    /// below 32 bits, because adding small terms to a large `f16` would lose them; else this one.
    #[inline]
    pub const fn computed_in(self) -> DType {
        if self.is_narrow_float() { DType::F32.vec(self.lanes) } else { self }
    }

    /// Returns true if a lane is an integer, signed or unsigned, or an index. A bool is not an
    /// integer.
    #[inline]
    pub const fn is_int(self) -> bool {
        matches!(self.scalar.kind(), Kind::Signed | Kind::Unsigned | Kind::Index)
    }

    /// Returns true if a lane is an unsigned integer.
    #[inline]
    pub const fn is_unsigned(self) -> bool {
        matches!(self.scalar.kind(), Kind::Unsigned)
    }

    /// Returns true if a lane is a signed integer; an index is one.
    #[inline]
    pub const fn is_signed_int(self) -> bool {
        matches!(self.scalar.kind(), Kind::Signed | Kind::Index)
    }

    /// Returns true if a lane is a bool.
    #[inline]
    pub const fn is_bool(self) -> bool {
        matches!(self.scalar.kind(), Kind::Bool)
    }

    /// Bits of storage of one lane: 8 for a bool, 64 for an index, 0 for a void.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.scalar.bits()
    }

    /// Returns the bytes of storage of all lanes.
    #[inline]
    pub const fn itemsize(self) -> usize {
        (self.bits() / 8) as usize * self.lanes as usize
    }

    /// Returns the smallest value of a lane, the identity of a maximum. For floats it is minus
    /// infinity, for `f8e4m3`, which has no infinity, -448.
    pub const fn min_value(self) -> Const {
        match self.scalar {
            Scalar::Void => panic!("void has no values"),
            Scalar::Bool => Const::Bool(false),
            Scalar::F8E4M3 => Const::Float(-448.0),
            _ if self.is_float() => Const::Float(f64::NEG_INFINITY),
            _ if self.is_unsigned() => Const::Int(0),
            _ => Const::Int(i64::MIN >> (64 - self.bits())),
        }
    }

    /// Returns the largest value of a lane, the identity of a minimum. For floats it is infinity,
    /// for `f8e4m3`, which has no infinity, 448.
    pub const fn max_value(self) -> Const {
        match self.scalar {
            Scalar::Void => panic!("void has no values"),
            Scalar::Bool => Const::Bool(true),
            Scalar::F8E4M3 => Const::Float(448.0),
            _ if self.is_float() => Const::Float(f64::INFINITY),
            // For u64 this is all ones, which is how a constant holds it.
            _ if self.is_unsigned() => Const::Int((u64::MAX >> (64 - self.bits())) as i64),
            _ => Const::Int(i64::MAX >> (64 - self.bits())),
        }
    }

    /// Returns the name of the scalar; lanes are not in it.
    #[inline]
    pub const fn name(self) -> &'static str {
        self.scalar.name()
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lanes == 1 {
            f.pad(self.name())
        } else {
            f.pad(&format!("{}x{}", self.name(), self.lanes))
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses what `Display` prints, and the names that other frameworks use.
    fn from_str(text: &str) -> Result<DType> {
        // The whole text first, because "index" has an x.
        if let Some(scalar) = Scalar::of_name(text) {
            return Ok(DType { scalar, lanes: 1 });
        }
        let vector = text.rsplit_once('x').and_then(|(name, lanes)| {
            let scalar = Scalar::of_name(name)?;
            // `u16::from_str` also accepts "+4" and "04", which `Display` never prints.
            let plain = lanes.starts_with(|c: char| c.is_ascii_digit() && c != '0');
            let lanes = lanes.parse().ok().filter(|_| plain)?;
            Some(DType { scalar, lanes })
        });
        vector.ok_or_else(|| Error::DType {
            op: "dtype",
            msg: format!(
                "unknown dtype {text:?}; the dtypes are {}, and vectors of them such as f32x4",
                names()
            ),
        })
    }
}

/// Returns the names of the storable dtypes, for messages.
fn names() -> String {
    DType::ALL.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")
}
