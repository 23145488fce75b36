//! The dtypes that an op takes, a column of the table of ops.

use crate::dtype::DType;

/// A class of dtypes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypes {
    /// Every dtype.
    Any,
    /// Floats and integers.
    Numbers,
    /// Floats of any width.
    Floats,
    /// Integers, signed, unsigned or of index arithmetic.
    Ints,
    /// Integers and bools.
    Bits,
}

impl DTypes {
    /// Returns true if the dtype is a member.
    pub const fn has(self, dtype: DType) -> bool {
        match self {
            DTypes::Any => true,
            DTypes::Numbers => dtype.is_float() || dtype.is_int(),
            DTypes::Floats => dtype.is_float(),
            DTypes::Ints => dtype.is_int(),
            DTypes::Bits => dtype.is_int() || dtype.is_bool(),
        }
    }
    /// Returns the class in words, for messages and documents.
    pub const fn name(self) -> &'static str {
        match self {
            DTypes::Any => "any",
            DTypes::Numbers => "numbers",
            DTypes::Floats => "floats",
            DTypes::Ints => "integers",
            DTypes::Bits => "integers and bools",
        }
    }
}
