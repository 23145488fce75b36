//! Plain numbers as [`Val`]: the functions of this folder computed on the host, for tests and for
//! folding constants.

use super::Val;

/// A number of one of the dtypes that the functions use. An operation on the wrong dtype panics: it
/// is a fault of the function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float32.
    F32(f32),
    /// An int32.
    I32(i32),
    /// A uint32.
    U32(u32),
    /// A bool.
    Bool(bool),
}

use Scalar::{Bool, F32, I32, U32};

impl Scalar {
    /// The float32 that this is.
    #[inline(always)]
    pub fn as_f32(&self) -> f32 {
        match self {
            F32(v) => *v,
            other => panic!("expected a float32, got {other:?}"),
        }
    }
}

/// The panic of an operation that was given dtypes it does not take.
#[cold]
fn mixed(op: &str, args: &[Scalar]) -> ! {
    panic!("{op} does not take {args:?}")
}

impl Val for Scalar {
    #[inline(always)]
    fn f32(&self, v: f32) -> Self {
        F32(v)
    }
    #[inline(always)]
    fn i32(&self, v: i32) -> Self {
        I32(v)
    }
    #[inline(always)]
    fn u32(&self, v: u32) -> Self {
        U32(v)
    }

    #[inline(always)]
    fn add(&self, o: &Self) -> Self {
        match (*self, *o) {
            (F32(a), F32(b)) => F32(a + b),
            (I32(a), I32(b)) => I32(a.wrapping_add(b)),
            (U32(a), U32(b)) => U32(a.wrapping_add(b)),
            _ => mixed("add", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn sub(&self, o: &Self) -> Self {
        match (*self, *o) {
            (F32(a), F32(b)) => F32(a - b),
            (I32(a), I32(b)) => I32(a.wrapping_sub(b)),
            (U32(a), U32(b)) => U32(a.wrapping_sub(b)),
            _ => mixed("sub", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn mul(&self, o: &Self) -> Self {
        match (*self, *o) {
            (F32(a), F32(b)) => F32(a * b),
            (I32(a), I32(b)) => I32(a.wrapping_mul(b)),
            (U32(a), U32(b)) => U32(a.wrapping_mul(b)),
            _ => mixed("mul", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn div(&self, o: &Self) -> Self {
        F32(self.as_f32() / o.as_f32())
    }
    #[inline(always)]
    fn fma(&self, b: &Self, c: &Self) -> Self {
        F32(self.as_f32().mul_add(b.as_f32(), c.as_f32()))
    }
    #[inline(always)]
    fn sqrt(&self) -> Self {
        F32(self.as_f32().sqrt())
    }
    #[inline(always)]
    fn neg(&self) -> Self {
        F32(-self.as_f32())
    }
    #[inline(always)]
    fn trunc(&self) -> Self {
        F32(self.as_f32().trunc())
    }

    #[inline(always)]
    fn lt(&self, o: &Self) -> Self {
        Bool(match (*self, *o) {
            (F32(a), F32(b)) => a < b,
            (I32(a), I32(b)) => a < b,
            (U32(a), U32(b)) => a < b,
            _ => mixed("lt", &[*self, *o]),
        })
    }
    #[inline(always)]
    fn eq(&self, o: &Self) -> Self {
        Bool(match (*self, *o) {
            (F32(a), F32(b)) => a == b,
            (I32(a), I32(b)) => a == b,
            (U32(a), U32(b)) => a == b,
            _ => mixed("eq", &[*self, *o]),
        })
    }
    #[inline(always)]
    fn ne(&self, o: &Self) -> Self {
        Bool(match (*self, *o) {
            (F32(a), F32(b)) => a != b,
            (I32(a), I32(b)) => a != b,
            (U32(a), U32(b)) => a != b,
            _ => mixed("ne", &[*self, *o]),
        })
    }
    #[inline(always)]
    fn and(&self, o: &Self) -> Self {
        match (*self, *o) {
            (I32(a), I32(b)) => I32(a & b),
            (U32(a), U32(b)) => U32(a & b),
            (Bool(a), Bool(b)) => Bool(a & b),
            _ => mixed("and", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn or(&self, o: &Self) -> Self {
        match (*self, *o) {
            (I32(a), I32(b)) => I32(a | b),
            (U32(a), U32(b)) => U32(a | b),
            (Bool(a), Bool(b)) => Bool(a | b),
            _ => mixed("or", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn xor(&self, o: &Self) -> Self {
        match (*self, *o) {
            (I32(a), I32(b)) => I32(a ^ b),
            (U32(a), U32(b)) => U32(a ^ b),
            (Bool(a), Bool(b)) => Bool(a ^ b),
            _ => mixed("xor", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn shl(&self, o: &Self) -> Self {
        match (*self, *o) {
            (I32(a), I32(n)) => I32(a << n),
            (U32(a), U32(n)) => U32(a << n),
            _ => mixed("shl", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn shr(&self, o: &Self) -> Self {
        match (*self, *o) {
            (I32(a), I32(n)) => I32(a >> n),
            (U32(a), U32(n)) => U32(a >> n),
            _ => mixed("shr", &[*self, *o]),
        }
    }
    #[inline(always)]
    fn select(&self, a: &Self, b: &Self) -> Self {
        match (*self, *a, *b) {
            (Bool(c), F32(a), F32(b)) => F32(if c { a } else { b }),
            (Bool(c), I32(a), I32(b)) => I32(if c { a } else { b }),
            (Bool(c), U32(a), U32(b)) => U32(if c { a } else { b }),
            (Bool(c), Bool(a), Bool(b)) => Bool(if c { a } else { b }),
            _ => mixed("select", &[*self, *a, *b]),
        }
    }

    #[inline(always)]
    fn bitcast_f32(&self) -> Self {
        match *self {
            F32(v) => F32(v),
            I32(v) => F32(f32::from_bits(v.cast_unsigned())),
            U32(v) => F32(f32::from_bits(v)),
            Bool(_) => mixed("bitcast", &[*self]),
        }
    }
    #[inline(always)]
    fn bitcast_i32(&self) -> Self {
        match *self {
            F32(v) => I32(v.to_bits().cast_signed()),
            I32(v) => I32(v),
            U32(v) => I32(v.cast_signed()),
            Bool(_) => mixed("bitcast", &[*self]),
        }
    }
    #[inline(always)]
    fn bitcast_u32(&self) -> Self {
        match *self {
            F32(v) => U32(v.to_bits()),
            I32(v) => U32(v.cast_unsigned()),
            U32(v) => U32(v),
            Bool(_) => mixed("bitcast", &[*self]),
        }
    }
    #[inline(always)]
    fn to_f32(&self) -> Self {
        match *self {
            I32(v) => F32(v as f32),
            U32(v) => F32(v as f32),
            F32(_) | Bool(_) => mixed("to_f32", &[*self]),
        }
    }
    #[inline(always)]
    fn to_i32(&self) -> Self {
        I32(self.as_f32() as i32)
    }
}
