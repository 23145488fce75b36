//! Operators between tensors by value or reference, and with a number on either side. Each calls
//! the method of the same meaning and panics like it. Numbers on the left are `f64`, `i32` or
//! `bool`: with one type per kind Rust infers that of `1.0 - &x`, so that `(1.0 - &x).log()`
//! compiles.

use super::elementwise::binary;
use crate::tensor::broadcast::Operand;
use crate::tensor::{Tensor, or_panic};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

macro_rules! operator {
    ($trait:ident $method:ident $function:ident:
        $(($($generics:tt)*) $left:ty, $right:ty;)*) => { $(
        impl $($generics)* $trait<$right> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $right) -> Tensor {
                or_panic(binary::$function(self.into(), other.into()))
            }
        }
    )* };
}
macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)*) => { $( operator! {
        $trait $method $function:
        (<R: Into<Operand>>) Tensor, R;
        (<R: Into<Operand>>) &Tensor, R;
        () f64, Tensor;
        () f64, &Tensor;
        () i32, Tensor;
        () i32, &Tensor;
        () bool, Tensor;
        () bool, &Tensor;
    } )* };
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

macro_rules! unary_operators {
    ($($trait:ident $method:ident $try_method:ident: $($t:ty)*;)*) => { $($(
        impl $trait for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                or_panic(self.$try_method())
            }
        }
    )*)* };
}
unary_operators! {
    Neg neg try_neg: Tensor &Tensor;
    Not not try_bitwise_not: Tensor &Tensor;
}
