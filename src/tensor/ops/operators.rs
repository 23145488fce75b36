//! Operators between tensors by value or reference, and with a number on either side. Each calls
//! the method of the same meaning and panics like it. Numbers on the left are `f64`, `i32` or
//! `bool`: with one type per kind Rust infers that of `1.0 - &x`, so that `(1.0 - &x).log()`
//! compiles.

use super::elementwise::binary;
use crate::tensor::broadcast::Operand;
use crate::tensor::{Tensor, or_panic};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)*) => { $(
        impl<R: Into<Operand>> $trait<R> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor { or_panic(binary::$function(self.into(), other.into())) }
        }
        impl<R: Into<Operand>> $trait<R> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor { or_panic(binary::$function(self.into(), other.into())) }
        }
        operators! { @left $trait $method $function: f64 i32 bool }
    )* };
    (@left $trait:ident $method:ident $function:ident: $($t:ty)*) => { $(
        impl $trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { or_panic(binary::$function(self.into(), other.into())) }
        }
        impl $trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { or_panic(binary::$function(self.into(), other.into())) }
        }
    )* };
}

operators! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem modulo;
    BitAnd bitand and;
    BitOr bitor or;
    BitXor bitxor xor;
    Shl shl shl;
    Shr shr shr;
}

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}
impl Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}
impl Not for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        self.bitwise_not()
    }
}
impl Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        self.bitwise_not()
    }
}
