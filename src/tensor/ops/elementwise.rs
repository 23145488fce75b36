//! Elementwise arithmetic and bitwise operations of two operands, which broadcast and promote.

use crate::dtype::{DType, promote_weak};
use crate::error::Result;
use crate::ir::{Arg, Group, Op, UOp};
use crate::tensor::broadcast::{Operand, Unified, cast_uop, unify};
use crate::tensor::{Tensor, autocast};

/// Rounding mode of [`Tensor::div_rounded`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Toward zero, as integer division in C and Rust.
    Trunc,
    /// Toward negative infinity, as in [`Tensor::idiv`].
    Floor,
}

/// Two operands with common dtype and shape, as tensors.
pub(super) struct Pair {
    pub(super) x: Tensor,
    pub(super) y: Tensor,
    pub(super) dtype: DType,
}

pub(super) fn pair(op: &'static str, x: Operand, y: Operand) -> Result<Pair> {
    Ok(unify(op, &[x, y])?.pair())
}

impl Pair {
    /// Applies a binary op to the pair.
    fn node(&self, op: Op) -> Tensor {
        self.x.with_uop(self.x.uop().binary(op, self.y.uop()))
    }
}

impl Unified {
    fn pair(self) -> Pair {
        let tensor = |i: usize| Tensor::new_inner(self.src[i].clone(), self.device, None);
        Pair { x: tensor(0), y: tensor(1), dtype: self.dtype }
    }
    fn swapped(mut self) -> Unified {
        self.src.swap(0, 1);
        self
    }
    /// Converts integers to `f32`.
    fn floats(mut self) -> Unified {
        if !self.dtype.is_float() {
            self.dtype = DType::F32;
            self.src.iter_mut().for_each(|u| *u = cast_uop(u, DType::F32));
        }
        self
    }
}

/// Binary operations on operands that may both be scalars. Methods and operators call these.
pub(in crate::tensor) mod binary {
    use super::*;

    /// Binary operations that are one node, with the dtypes that they accept.
    macro_rules! nodes {
        ($($function:ident $name:literal $op:ident $accepts:ident;)*) => { $(
            pub(crate) fn $function(x: Operand, y: Operand) -> Result<Tensor> {
                Ok($accepts($name, x, y)?.node(Op::$op))
            }
        )* };
    }
    nodes! {
        add "add" Add any;
        mul "mul" Mul any;
        modulo "modulo" Mod numbers;
        maximum "maximum" Max any;
        minimum "minimum" Min any;
        and "bitwise_and" And bits;
        or "bitwise_or" Or bits;
        xor "bitwise_xor" Xor bits;
        shl "lshift" Shl integers;
        shr "rshift" Shr integers;
        eq "eq" Eq any;
        ne "ne" Ne any;
        lt "lt" Lt any;
        logical_and "logical_and" And truths;
        logical_or "logical_or" Or truths;
        logical_xor "logical_xor" Xor truths;
    }

    fn any(op: &'static str, x: Operand, y: Operand) -> Result<Unified> {
        unify(op, &[x, y])
    }
    /// Checks the dtype of operands; `what` names the accepted ones.
    fn of(
        op: &'static str,
        u: Unified,
        accepts: fn(&DType) -> bool,
        what: &str,
    ) -> Result<Unified> {
        if accepts(&u.dtype) { Ok(u) } else { wrong_dtype!(op, "expected {what}, got {}", u.dtype) }
    }
    fn numbers(op: &'static str, x: Operand, y: Operand) -> Result<Unified> {
        of(op, any(op, x, y)?, |d| !d.is_bool(), "numbers")
    }
    fn bits(op: &'static str, x: Operand, y: Operand) -> Result<Unified> {
        of(op, any(op, x, y)?, |d| !d.is_float(), "integers or bools")
    }
    fn integers(op: &'static str, x: Operand, y: Operand) -> Result<Unified> {
        of(op, any(op, x, y)?, |d| d.is_int(), "integers")
    }
    /// Operands as bools: nonzero elements are true.
    fn truths(op: &'static str, x: Operand, y: Operand) -> Result<Unified> {
        let mask = |x: Operand| match x {
            Operand::Tensor(t) => Operand::Tensor(t.nonzero_mask()),
            Operand::Scalar(c, _) => Operand::from(c.is_true()),
        };
        any(op, mask(x), mask(y))
    }

    pub(crate) fn sub(x: Operand, y: Operand) -> Result<Tensor> {
        let what = "numbers (bools differ with `^` or `ne`)";
        let u = of("sub", any("sub", x, y)?, |d| !d.is_bool(), what)?;
        Ok(Tensor::new_inner(&u.src[0] - &u.src[1], u.device, None))
    }
    pub(crate) fn div(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(any("div", x, y)?.floats().node(Op::Div))
    }
    pub(crate) fn idiv(x: Operand, y: Operand) -> Result<Tensor> {
        let u = numbers("idiv", x, y)?;
        Ok(if u.dtype.is_float() { u.node(Op::Div).floor() } else { u.node(Op::IDiv) })
    }
    pub(crate) fn trunc_div(x: Operand, y: Operand) -> Result<Tensor> {
        let p = numbers("div_rounded", x, y)?.pair();
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
        let p = numbers("fmod", x, y)?.pair();
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
        let p = numbers("pow", x, y)?.pair();
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
    pub(crate) fn gt(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(any("gt", x, y)?.swapped().node(Op::Lt))
    }
    fn at_most(op: &'static str, x: Operand, y: Operand) -> Result<Tensor> {
        let u = any(op, x, y)?;
        if u.dtype.is_float() {
            // `!(x > y)` would be true for NaN.
            return or(u.node(Op::Lt).into(), u.node(Op::Eq).into());
        }
        u.swapped().node(Op::Lt).try_bitwise_not()
    }
    pub(crate) fn le(x: Operand, y: Operand) -> Result<Tensor> {
        at_most("le", x, y)
    }
    pub(crate) fn ge(x: Operand, y: Operand) -> Result<Tensor> {
        at_most("ge", y, x)
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
        /// assert!(x.try_alu(Op::Xor, &[&x]).is_err());
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn alu | try_alu(&self, op: Op, others: &[&Tensor]) -> Tensor {
            let elementwise =
                [Group::Unary, Group::Binary, Group::Ternary].iter().any(|g| op.is(*g));
            if !elementwise || op.is(Group::Mark) || matches!(op, Op::CDiv | Op::CMod) {
                return dtype_error!("{op:?} is not an elementwise op of the tensor graph");
            }
            if others.len() + 1 != op.arity() {
                return shape_error!(
                    "{op:?} expected {} operands, got {}",
                    op.arity(),
                    others.len() + 1
                );
            }
            if op == Op::Where {
                if !self.dtype().is_bool() {
                    return dtype_error!(
                        "expected a bool condition of Where, got {}",
                        self.dtype()
                    );
                }
                return self.try_where_(others[0], others[1]);
            }
            let operands: Vec<Operand> =
                std::iter::once(&self).chain(others).map(|t| Operand::from(*t)).collect();
            let Unified { src, dtype, device } = unify("alu", &operands)?;
            if !op.on().has(dtype) {
                return dtype_error!("{op:?} expected {}, got {dtype}", op.on().name());
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

binary_methods! {
    /// Sum. For bools it is logical or.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).add(10).to_vec::<i32>()?, [11, 12]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    add try_add add;
    /// Difference. Bools are an error.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).sub(Tensor::new([3, 1])).to_vec::<i32>()?, [-2, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    sub try_sub sub;
    /// Product. For bools it is logical and.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).mul(3).to_vec::<i32>()?, [3, 6]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    mul try_mul mul;
    /// True division: integers give `f32`. [`idiv`](Self::idiv) is floor division.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!((Tensor::new([7, -7]) / 2).to_vec::<f32>()?, [3.5, -3.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    div try_div div;
    /// Floor division. An integer divided by zero is 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([7, -7, 7]).idiv(Tensor::new([2, 2, 0]));
    /// assert_eq!(y.to_vec::<i32>()?, [3, -4, 0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    idiv try_idiv idiv;
    /// Remainder of floor division, with the sign of the divisor. An integer modulo zero is 0.
    /// The remainder of floats is exact for any quotient, and NaN for a divisor of zero.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([7, -7]).modulo(4).to_vec::<i32>()?, [3, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    modulo try_modulo modulo;
    /// Remainder of truncated division, with the sign of the dividend. An integer divided by
    /// zero leaves 0. The remainder of floats is exact for any quotient.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([7, -7]).fmod(4).to_vec::<i32>()?, [3, -3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    fmod try_fmod fmod;
    /// Elementwise maximum. NaN propagates.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 5]).maximum(3).to_vec::<i32>()?, [3, 5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    maximum try_maximum maximum;
    /// Elementwise minimum. NaN propagates.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 5]).minimum(3).to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    minimum try_minimum minimum;
    /// Bitwise and; logical for bools.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([12, 7]).bitwise_and(10).to_vec::<i32>()?, [8, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bitwise_and try_bitwise_and and;
    /// Bitwise or; logical for bools.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([12, 7]).bitwise_or(10).to_vec::<i32>()?, [14, 15]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bitwise_or try_bitwise_or or;
    /// Bitwise exclusive or; logical for bools.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([12, 7]).bitwise_xor(10).to_vec::<i32>()?, [6, 13]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    bitwise_xor try_bitwise_xor xor;
    /// Left shift. Shifting by the width or more gives 0.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 3]).lshift(2).to_vec::<i32>()?, [4, 12]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    lshift try_lshift shl;
    /// Right shift, arithmetic for signed integers.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([-8, 8]).rshift(1).to_vec::<i32>()?, [-4, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    rshift try_rshift shr;
}

impl Tensor {
    fallible! {
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

        /// Bitwise complement; logical not for bools.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([0, 5]).bitwise_not().to_vec::<i32>()?, [-1, -6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bitwise_not | try_bitwise_not(&self) -> Tensor {
            if self.is_floating_point() {
                return dtype_error!("expected integers or bools, got {}", self.dtype());
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
                return dtype_error!("expected numbers, got bool; `!x` negates a bool");
            }
            Ok(self.with_uop(-&self.uop()))
        }
    }
}
