//! Functions that kernels call for ops without instructions: one per op and dtype, with the calling
//! convention of Unix on every system. On other machines than x86-64 nothing calls them.

use crate::dtype::{Fma, Scalar, trigonometry};
use crate::ir::Op;

unsafe extern "C" {
    /// The C library's error function; Rust's own library has none.
    safe fn erf(x: f64) -> f64;
}

/// Declares functions of one argument and the table of them.
macro_rules! functions {
    ($($op:ident $scalar:ident $name:ident ($($x:ident),*): $ty:ty = $value:expr;)*) => {
        $(
            #[cfg(target_arch = "x86_64")]
            extern "sysv64" fn $name($($x: $ty),*) -> $ty {
                $value
            }
            #[cfg(not(target_arch = "x86_64"))]
            extern "C" fn $name($($x: $ty),*) -> $ty {
                $value
            }
        )*
        /// Returns the name and the address of the function for an op on a dtype.
        pub(super) fn function(op: Op, scalar: Scalar) -> Option<(&'static str, u64)> {
            match (op, scalar) {
                $((Op::$op, Scalar::$scalar) => {
                    Some((stringify!($name), $name as *const () as u64))
                })*
                _ => None,
            }
        }
    };
}

functions! {
    Exp F64 exp(x): f64 = x.exp();
    Exp2 F64 exp2(x): f64 = x.exp2();
    Log F64 log(x): f64 = x.ln();
    Log2 F64 log2(x): f64 = x.log2();
    Sin F64 sin(x): f64 = trigonometry::sin(x);
    Cos F64 cos(x): f64 = trigonometry::cos(x);
    Tan F64 tan(x): f64 = trigonometry::tan(x);
    Tanh F64 tanh(x): f64 = x.tanh();
    Erf F64 error_function(x): f64 = erf(x);
    Pow F64 pow(x, y): f64 = x.powf(y);
    Fma F64 fma(x, y, z): f64 = x.fma(y, z);
    Fma F32 fmaf(x, y, z): f32 = x.fma(y, z);
    Trunc F64 trunc(x): f64 = x.trunc();
    Trunc F32 truncf(x): f32 = x.trunc();
}
