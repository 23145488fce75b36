//! Tensor operations by topic. Each method checks its arguments and adds nodes to the graph.

/// Defines methods of two operands: the name, its fallible variant, and the function of
/// [`elementwise::binary`].
macro_rules! binary_methods {
    ($($(#[$meta:meta])* $name:ident $try_name:ident $function:ident;)*) => {
        impl Tensor { fallible! { $(
            $(#[$meta])*
            pub fn $name | $try_name(&self, other: impl Into<$crate::tensor::Operand>) -> Tensor {
                $crate::tensor::ops::elementwise::binary::$function(self.into(), other.into())
            }
        )* } }
    };
}

pub(super) mod activation;
pub(super) mod adaptive;
pub(super) mod advanced;
pub(super) mod attention;
pub(super) mod bitonic;
pub(super) mod cast;
pub(super) mod compare;
pub(super) mod compensated;
pub(super) mod concat;
pub(super) mod conv;
pub(super) mod create;
pub(super) mod cross_entropy;
pub(super) mod ctc;
pub(super) mod distribution;
pub(super) mod einsum;
pub(super) mod elementwise;
pub(super) mod gather;
pub(super) mod grid;
pub(super) mod histogram;
pub(super) mod index;
pub(super) mod interpolate;
pub(super) mod inverse;
pub(super) mod keccak;
pub(super) mod likelihood_loss;
pub(super) mod linalg;
pub(super) mod loops;
pub(super) mod loss;
pub(super) mod margin_loss;
pub(super) mod math;
pub(super) mod matmul;
pub(super) mod matrix_norm;
pub(super) mod movement;
pub(super) mod norm;
pub(super) mod operators;
pub(super) mod pad;
pub(super) mod pool;
pub(super) mod put;
pub(super) mod radix;
pub(super) mod random;
pub(super) mod reduce;
pub(super) mod resample;
pub(super) mod scan;
pub(super) mod shrinkage;
pub(super) mod solve;
pub(super) mod sort;
pub(super) mod special;
pub(super) mod statistics;
pub(super) mod svd;
pub(super) mod vector;
pub(super) mod winograd;
