//! Plain numbers as [`Val`]: the functions of `math` computed on the host, for tests.

use super::Val;
use crate::dtype::Fma;

/// A number of one of the dtypes that the functions use. An operation on a wrong dtype panics: it
/// is a bug of the function.
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
    /// Returns the value of a float32.
    #[inline(always)]
    pub fn as_f32(&self) -> f32 {
        match self {
            F32(v) => *v,
            other => panic!("expected a float32, got {other:?}"),
        }
    }
}

/// Panics because of an operation on dtypes that it does not take.
#[cold]
fn mixed(op: &str, args: &[Scalar]) -> ! {
    panic!("{op} does not take {args:?}")
}

/// Declares operations by their results on each dtype that has them.
macro_rules! operations {
    ($($name:ident($($arg:ident),*) {
        $($($dtype:ident($x:ident)),+ => $result:expr;)+
    })*) => { $(
        #[inline(always)]
        fn $name(&self, $($arg: &Self),*) -> Self {
            match (*self, $(*$arg),*) {
                $(($($dtype($x),)+) => $result,)+
                #[allow(unreachable_patterns)]
                _ => mixed(stringify!($name), &[*self, $(*$arg),*]),
            }
        }
    )* };
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
    operations! {
        add(o) {
            F32(a), F32(b) => F32(a + b);
            I32(a), I32(b) => I32(a.wrapping_add(b));
            U32(a), U32(b) => U32(a.wrapping_add(b));
        }
        sub(o) {
            F32(a), F32(b) => F32(a - b);
            I32(a), I32(b) => I32(a.wrapping_sub(b));
            U32(a), U32(b) => U32(a.wrapping_sub(b));
        }
        mul(o) {
            F32(a), F32(b) => F32(a * b);
            I32(a), I32(b) => I32(a.wrapping_mul(b));
            U32(a), U32(b) => U32(a.wrapping_mul(b));
        }
        div(o) { F32(a), F32(b) => F32(a / b); }
        fma(b, c) { F32(x), F32(y), F32(z) => F32(Fma::fma(x, y, z)); }
        sqrt() { F32(v) => F32(v.sqrt()); }
        neg() { F32(v) => F32(-v); }
        trunc() { F32(v) => F32(v.trunc()); }
        lt(o) {
            F32(a), F32(b) => Bool(a < b);
            I32(a), I32(b) => Bool(a < b);
            U32(a), U32(b) => Bool(a < b);
        }
        eq(o) {
            F32(a), F32(b) => Bool(a == b);
            I32(a), I32(b) => Bool(a == b);
            U32(a), U32(b) => Bool(a == b);
        }
        ne(o) {
            F32(a), F32(b) => Bool(a != b);
            I32(a), I32(b) => Bool(a != b);
            U32(a), U32(b) => Bool(a != b);
        }
        and(o) {
            I32(a), I32(b) => I32(a & b);
            U32(a), U32(b) => U32(a & b);
            Bool(a), Bool(b) => Bool(a & b);
        }
        or(o) {
            I32(a), I32(b) => I32(a | b);
            U32(a), U32(b) => U32(a | b);
            Bool(a), Bool(b) => Bool(a | b);
        }
        xor(o) {
            I32(a), I32(b) => I32(a ^ b);
            U32(a), U32(b) => U32(a ^ b);
            Bool(a), Bool(b) => Bool(a ^ b);
        }
        shl(o) { I32(a), I32(n) => I32(a << n); U32(a), U32(n) => U32(a << n); }
        shr(o) { I32(a), I32(n) => I32(a >> n); U32(a), U32(n) => U32(a >> n); }
        select(a, b) {
            Bool(c), F32(x), F32(y) => F32(if c { x } else { y });
            Bool(c), I32(x), I32(y) => I32(if c { x } else { y });
            Bool(c), U32(x), U32(y) => U32(if c { x } else { y });
            Bool(c), Bool(x), Bool(y) => Bool(if c { x } else { y });
        }
        bitcast_f32() {
            F32(v) => F32(v);
            I32(v) => F32(f32::from_bits(v.cast_unsigned()));
            U32(v) => F32(f32::from_bits(v));
        }
        bitcast_i32() {
            F32(v) => I32(v.to_bits().cast_signed());
            I32(v) => I32(v);
            U32(v) => I32(v.cast_signed());
        }
        bitcast_u32() {
            F32(v) => U32(v.to_bits());
            I32(v) => U32(v.cast_unsigned());
            U32(v) => U32(v);
        }
        to_f32() { I32(v) => F32(v as f32); U32(v) => F32(v as f32); }
        to_i32() { F32(v) => I32(v as i32); }
    }
}
