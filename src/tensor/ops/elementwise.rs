//! Elementwise arithmetic and bitwise operations of two operands, which broadcast and promote.

use crate::dtype::{DType, promote_weak};
use crate::error::Result;
use crate::ir::{Arg, Group, Op, UOp};
use crate::tensor::broadcast::{Operand, Unified, cast_uop, unify};
use crate::tensor::{Tensor, autocast};
use crate::verify::refuses;

/// Rounding mode of [`Tensor::div_rounded`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Toward zero, as integer division in C and Rust.
    Trunc,
    /// Toward negative infinity, as in [`Tensor::idiv`].
    Floor,
}

/// Two operands with common dtype and shape.
pub(in crate::tensor) struct Pair {
    pub(in crate::tensor) x: Tensor,
    pub(in crate::tensor) y: Tensor,
    pub(in crate::tensor) dtype: DType,
}

pub(in crate::tensor) fn pair(op: &'static str, x: Operand, y: Operand) -> Result<Pair> {
    let Unified { mut src, dtype, device } = unify(op, &[x, y])?;
    let (y, x) = (src.pop().expect("two operands"), src.pop().expect("two operands"));
    Ok(Pair { x: Tensor::new_inner(x, device, None), y: Tensor::new_inner(y, device, None), dtype })
}

impl Pair {
    /// Applies a binary op to the pair.
    pub(in crate::tensor) fn node(&self, op: Op) -> Tensor {
        self.x.with_uop(self.x.uop().binary(op, self.y.uop()))
    }
    fn swapped(self) -> Pair {
        Pair { x: self.y, y: self.x, dtype: self.dtype }
    }
    /// Converts integers to `f32`.
    fn floats(self) -> Pair {
        if self.dtype.is_float() {
            return self;
        }
        let cast = |t: Tensor| t.with_uop(cast_uop(&t.uop(), DType::F32));
        Pair { x: cast(self.x), y: cast(self.y), dtype: DType::F32 }
    }
}

/// Binary operations on operands that may both be scalars. Methods and operators call these.
pub(in crate::tensor) mod binary {
    use super::*;

    fn only(op: &'static str, p: &Pair, ok: bool, what: &str) -> Result<()> {
        if ok { Ok(()) } else { wrong_dtype!(op, "expected {what}, got {}", p.dtype) }
    }
    pub(crate) fn add(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(unify("add", &[x, y])?.node(Op::Add))
    }
    pub(crate) fn sub(x: Operand, y: Operand) -> Result<Tensor> {
        let u = unify("sub", &[x, y])?;
        if u.dtype.is_bool() {
            return wrong_dtype!(
                "sub",
                "expected numbers (bools differ with `^` or `ne`), got {}",
                u.dtype
            );
        }
        Ok(Tensor::new_inner(&u.src[0] - &u.src[1], u.device, None))
    }
    pub(crate) fn mul(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(unify("mul", &[x, y])?.node(Op::Mul))
    }
    pub(crate) fn div(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("div", x, y)?.floats().node(Op::Div))
    }
    pub(crate) fn idiv(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("idiv", x, y)?;
        only("idiv", &p, !p.dtype.is_bool(), "numbers")?;
        Ok(if p.dtype.is_float() { p.node(Op::Div).floor() } else { p.node(Op::IDiv) })
    }
    pub(crate) fn modulo(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("modulo", x, y)?;
        only("modulo", &p, !p.dtype.is_bool(), "numbers")?;
        Ok(p.node(Op::Mod))
    }
    pub(crate) fn trunc_div(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("div_rounded", x, y)?;
        only("div_rounded", &p, !p.dtype.is_bool(), "numbers")?;
        if p.dtype.is_float() {
            return Ok(p.node(Op::Div).trunc());
        }
        // Floor division is one below where the quotient is negative and inexact. Wrapping is
        // harmless: the minimum divided by -1 has no remainder.
        let down = p.node(Op::IDiv);
        let below =
            p.node(Op::Mod).try_ne(0)?.try_bitwise_and(p.x.try_lt(0)?.try_ne(p.y.try_lt(0)?)?)?;
        below.try_where_(&down + 1, &down)
    }
    pub(crate) fn fmod(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("fmod", x, y)?;
        only("fmod", &p, !p.dtype.is_bool(), "numbers")?;
        let (x, y) = (&p.x, &p.y);
        if !p.dtype.is_float() {
            let rest = p.node(Op::Mod);
            let other = rest.try_ne(0)?.try_bitwise_and(rest.try_lt(0)?.try_ne(x.try_lt(0)?)?)?;
            return other.try_where_(rest.try_sub(y)?, rest);
        }
        // For nonnegative operands both remainders agree; the result takes the sign of the
        // dividend.
        let size = |t: &Tensor| t.signbit().try_where_(-t, t);
        let rest = Pair { x: size(x)?, y: size(y)?, dtype: p.dtype }.node(Op::Mod);
        x.signbit().try_where_(-&rest, &rest)
    }
    pub(crate) fn pow(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("pow", x, y)?;
        only("pow", &p, !p.dtype.is_bool(), "numbers")?;
        // Powers 2 and 3 as products are more accurate and cheaper.
        let exponent = p.y.uop().as_const().map(|c| c.as_f64(p.dtype));
        let square = || Pair { x: p.x.clone(), y: p.x.clone(), dtype: p.dtype }.node(Op::Mul);
        Ok(match exponent {
            Some(1.0) => p.x,
            Some(2.0) => square(),
            Some(3.0) => Pair { x: square(), y: p.x.clone(), dtype: p.dtype }.node(Op::Mul),
            _ => p.node(Op::Pow),
        })
    }
    pub(crate) fn maximum(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(unify("maximum", &[x, y])?.node(Op::Max))
    }
    pub(crate) fn minimum(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(unify("minimum", &[x, y])?.node(Op::Min))
    }
    fn bits(op: &'static str, node: Op, x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair(op, x, y)?;
        only(op, &p, !p.dtype.is_float(), "integers or bools")?;
        Ok(p.node(node))
    }
    pub(crate) fn and(x: Operand, y: Operand) -> Result<Tensor> {
        bits("bitwise_and", Op::And, x, y)
    }
    pub(crate) fn or(x: Operand, y: Operand) -> Result<Tensor> {
        bits("bitwise_or", Op::Or, x, y)
    }
    pub(crate) fn xor(x: Operand, y: Operand) -> Result<Tensor> {
        bits("bitwise_xor", Op::Xor, x, y)
    }
    fn shift(op: &'static str, node: Op, x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair(op, x, y)?;
        only(op, &p, p.dtype.is_int(), "integers")?;
        Ok(p.node(node))
    }
    pub(crate) fn shl(x: Operand, y: Operand) -> Result<Tensor> {
        shift("lshift", Op::Shl, x, y)
    }
    pub(crate) fn shr(x: Operand, y: Operand) -> Result<Tensor> {
        shift("rshift", Op::Shr, x, y)
    }
    pub(crate) fn lt(op: &'static str, x: Operand, y: Operand) -> Result<Tensor> {
        Ok(unify(op, &[x, y])?.node(Op::Lt))
    }
    pub(crate) fn gt(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("gt", x, y)?.swapped().node(Op::Lt))
    }
    pub(crate) fn le(op: &'static str, x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair(op, x, y)?;
        if p.dtype.is_float() {
            // `!(x > y)` would be true for NaN.
            return or(p.node(Op::Lt).into(), p.node(Op::Eq).into());
        }
        p.swapped().node(Op::Lt).try_bitwise_not()
    }
}

impl Tensor {
    fallible! {
        /// Applies an elementwise op of `docs/ir.md`, chosen at run time, to this tensor and the
        /// remaining operands. They broadcast and promote as for the operators.
        ///
        /// ```
        /// use picograd::{Tensor, compiler::ir::Op};
        /// let x = Tensor::new([4.0f32, 9.0]);
        /// assert_eq!(x.alu(Op::Sqrt, &[]).to_vec::<f32>()?, [2.0, 3.0]);
        /// assert_eq!(x.alu(Op::Max, &[&Tensor::new(5)]).to_vec::<f32>()?, [5.0, 9.0]);
        /// assert!(x.try_alu(Op::Xor, &[&x]).is_err());
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn alu | try_alu(&self, op: Op, others: &[&Tensor]) -> Tensor {
            let elementwise =
                [Group::Unary, Group::Binary, Group::Ternary].iter().any(|g| op.is(*g));
            if !elementwise || op.is(Group::Mark) || matches!(op, Op::CDiv | Op::CMod) {
                return wrong_dtype!("alu", "{op:?} is not an elementwise op of the tensor graph");
            }
            if others.len() + 1 != op.arity() {
                return wrong_shape!(
                    "alu",
                    "{op:?} expected {} operands, got {}",
                    op.arity(),
                    others.len() + 1
                );
            }
            if op == Op::Where {
                if !self.dtype().is_bool() {
                    return wrong_dtype!(
                        "alu",
                        "expected a bool condition of Where, got {}",
                        self.dtype()
                    );
                }
                return self.try_where_(others[0], others[1]);
            }
            let operands: Vec<Operand> =
                std::iter::once(&self).chain(others).map(|t| Operand::from(*t)).collect();
            let Unified { src, dtype, device } = unify("alu", &operands)?;
            if let Some(what) = refuses(op, dtype) {
                return wrong_dtype!("alu", "{op:?} expected {what}, got {dtype}");
            }
            let result = if op.is(Group::Comparison) { DType::BOOL } else { dtype };
            Ok(Tensor::new_inner(UOp::new(op, result, src, Arg::None), device, None))
        }
    }

    /// Converts a number to a scalar tensor as the operators do: of this dtype, or of a higher kind
    /// if the number is of one. Tensors are returned unchanged.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::new([1u8, 2]);
    /// assert_eq!((x.ufix(3).dtype(), x.ufix(3).shape()), (DType::U8, vec![]));
    /// assert_eq!(x.ufix(0.5).dtype(), DType::F32);
    /// ```
    pub fn ufix(&self, x: impl Into<Operand>) -> Tensor {
        match x.into() {
            Operand::Scalar(c, weak) => {
                self.with_uop(UOp::constant(c, promote_weak(self.dtype(), weak)))
            }
            Operand::Tensor(t) => t,
        }
    }
}

impl Tensor {
    fallible! {
        /// Sum. For bools it is logical or.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2]).add(10).to_vec::<i32>()?, [11, 12]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn add | try_add(&self, other: impl Into<Operand>) -> Tensor {
            binary::add(self.into(), other.into())
        }

        /// Difference. Bools are an error.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2]).sub(Tensor::new([3, 1])).to_vec::<i32>()?, [-2, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn sub | try_sub(&self, other: impl Into<Operand>) -> Tensor {
            binary::sub(self.into(), other.into())
        }

        /// Product. For bools it is logical and.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2]).mul(3).to_vec::<i32>()?, [3, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn mul | try_mul(&self, other: impl Into<Operand>) -> Tensor {
            binary::mul(self.into(), other.into())
        }

        /// True division: integers give `f32`. [`idiv`](Self::idiv) is floor division.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!((Tensor::new([7, -7]) / 2).to_vec::<f32>()?, [3.5, -3.5]);
        /// assert_eq!(Tensor::new([7, -7]).idiv(2).to_vec::<i32>()?, [3, -4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn div | try_div(&self, other: impl Into<Operand>) -> Tensor {
            binary::div(self.into(), other.into())
        }

        /// Floor division. An integer divided by zero is 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([7, -7, 7]).idiv(Tensor::new([2, 2, 0])).to_vec::<i32>()?,
        ///     [3, -4, 0]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn idiv | try_idiv(&self, other: impl Into<Operand>) -> Tensor {
            binary::idiv(self.into(), other.into())
        }

        /// Remainder of floor division, with the sign of the divisor. An integer modulo zero is 0.
        /// The remainder of floats is exact for any quotient, and NaN for a divisor of zero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([7, -7]).modulo(4).to_vec::<i32>()?, [3, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn modulo | try_modulo(&self, other: impl Into<Operand>) -> Tensor {
            binary::modulo(self.into(), other.into())
        }

        /// Division rounded to an integer, in the dtype of the operands. An integer divided by zero
        /// is 0.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Rounding};
        /// let x = Tensor::new([7, -7]);
        /// assert_eq!(x.div_rounded(2, Rounding::Trunc).to_vec::<i32>()?, [3, -3]);
        /// assert_eq!(x.div_rounded(2, Rounding::Floor).to_vec::<i32>()?, [3, -4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn div_rounded | try_div_rounded(
            &self, other: impl Into<Operand>, rounding: Rounding,
        ) -> Tensor {
            match rounding {
                Rounding::Trunc => binary::trunc_div(self.into(), other.into()),
                Rounding::Floor => binary::idiv(self.into(), other.into()),
            }
        }

        /// Remainder of truncated division, with the sign of the dividend. An integer divided by
        /// zero leaves 0. The remainder of floats is exact for any quotient.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([7, -7]).fmod(4).to_vec::<i32>()?, [3, -3]);
        /// assert_eq!(Tensor::new([5.5f32, -5.5]).fmod(2.0).to_vec::<f32>()?, [1.5, -1.5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn fmod | try_fmod(&self, other: impl Into<Operand>) -> Tensor {
            binary::fmod(self.into(), other.into())
        }

        /// Power. Integer powers with a negative exponent are truncated toward zero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([2, 3]).pow(4).to_vec::<i32>()?, [16, 81]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pow | try_pow(&self, other: impl Into<Operand>) -> Tensor {
            in_wide_dtype!(self.try_pow(autocast::wide_operand(other.into())));
            binary::pow(self.into(), other.into())
        }

        /// Elementwise maximum. NaN propagates.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 5]).maximum(3).to_vec::<i32>()?, [3, 5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn maximum | try_maximum(&self, other: impl Into<Operand>) -> Tensor {
            binary::maximum(self.into(), other.into())
        }

        /// Elementwise minimum. NaN propagates.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 5]).minimum(3).to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn minimum | try_minimum(&self, other: impl Into<Operand>) -> Tensor {
            binary::minimum(self.into(), other.into())
        }

        /// Bitwise and; logical for bools.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([12, 7]).bitwise_and(10).to_vec::<i32>()?, [8, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitwise_and | try_bitwise_and(&self, other: impl Into<Operand>) -> Tensor {
            binary::and(self.into(), other.into())
        }

        /// Bitwise or; logical for bools.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([12, 7]).bitwise_or(10).to_vec::<i32>()?, [14, 15]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitwise_or | try_bitwise_or(&self, other: impl Into<Operand>) -> Tensor {
            binary::or(self.into(), other.into())
        }

        /// Bitwise exclusive or; logical for bools.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([12, 7]).bitwise_xor(10).to_vec::<i32>()?, [6, 13]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitwise_xor | try_bitwise_xor(&self, other: impl Into<Operand>) -> Tensor {
            binary::xor(self.into(), other.into())
        }

        /// Left shift. Shifting by the width or more gives 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 3]).lshift(2).to_vec::<i32>()?, [4, 12]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn lshift | try_lshift(&self, other: impl Into<Operand>) -> Tensor {
            binary::shl(self.into(), other.into())
        }

        /// Right shift, arithmetic for signed integers.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([-8, 8]).rshift(1).to_vec::<i32>()?, [-4, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn rshift | try_rshift(&self, other: impl Into<Operand>) -> Tensor {
            binary::shr(self.into(), other.into())
        }

        /// Bitwise complement; logical not for bools.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([0, 5]).bitwise_not().to_vec::<i32>()?, [-1, -6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitwise_not | try_bitwise_not(&self) -> Tensor {
            if self.is_floating_point() {
                return wrong_dtype!(
                    "bitwise_not",
                    "expected integers or bools, got {}",
                    self.dtype()
                );
            }
            Ok(self.with_uop(self.uop().not()))
        }

        /// Negation. Unsigned integers wrap; bools are an error.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, -2]).neg().to_vec::<i32>()?, [-1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn neg | try_neg(&self) -> Tensor {
            if self.dtype().is_bool() {
                return wrong_dtype!("neg", "expected numbers, got bool; `!x` negates a bool");
            }
            Ok(self.with_uop(-&self.uop()))
        }
    }
}
