//! Operations on two or three tensors, element by element: arithmetic, comparisons, logic, choice; and casts. Operands broadcast and promote first.

use super::broadcast::{Operand, Unified, cast_uop, promoted, unify, unify_as};
use super::{Tensor, wrong_dtype};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Arg, Op, UOp};

/// How [`Tensor::div_rounded`] makes a quotient whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Toward zero, as integers divide in C and in Rust.
    Trunc,
    /// Toward minus infinity, as [`Tensor::idiv`].
    Floor,
}

/// Two operands of one dtype and shape.
pub(super) struct Pair {
    pub(super) x: Tensor,
    pub(super) y: Tensor,
    pub(super) dtype: DType,
}

pub(super) fn pair(op: &'static str, x: Operand, y: Operand) -> Result<Pair> {
    let Unified { mut src, dtype, device } = unify(op, &[x, y])?;
    let (y, x) = (src.pop().expect("two operands"), src.pop().expect("two operands"));
    Ok(Pair { x: Tensor::from_uop(x, device.clone()), y: Tensor::from_uop(y, device), dtype })
}

impl Pair {
    /// The node of a two-operand op on the pair.
    pub(super) fn node(&self, op: Op) -> Tensor {
        self.x.with(self.x.uop().binary(op, self.y.uop()))
    }
    fn swapped(self) -> Pair {
        Pair { x: self.y, y: self.x, dtype: self.dtype }
    }
    /// Both as floats: integers become the default float.
    fn floats(self) -> Pair {
        if self.dtype.is_float() {
            return self;
        }
        let cast = |t: Tensor| t.with(cast_uop(&t.uop(), DType::F32));
        Pair { x: cast(self.x), y: cast(self.y), dtype: DType::F32 }
    }
}

/// The operations by name, on operands that may both be bare numbers. The methods and the operators call these.
pub(super) mod binary {
    use super::*;

    fn only(op: &'static str, p: &Pair, ok: bool, what: &str) -> Result<()> {
        if ok { Ok(()) } else { wrong_dtype(op, format!("takes {what}, and was given {}", p.dtype)) }
    }
    pub(crate) fn add(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("add", x, y)?.node(Op::Add))
    }
    pub(crate) fn sub(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("sub", x, y)?;
        only("sub", &p, !p.dtype.is_bool(), "numbers (bools differ with `^` or `ne`)")?;
        Ok(p.x.with(&p.x.uop() - &p.y.uop()))
    }
    pub(crate) fn mul(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("mul", x, y)?.node(Op::Mul))
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
        if !p.dtype.is_float() {
            return Ok(p.node(Op::Mod));
        }
        let (x, y) = (&p.x, &p.y);
        let rest = sub(x.into(), mul(p.node(Op::Div).floor().into(), y.into())?.into())?;
        // An infinite divisor has no multiple to take off: what is left is the number itself, or the divisor if the signs differ.
        let apart = x.try_lt(0)?.try_ne(y.try_lt(0)?)?.try_bitwise_and(x.try_ne(0)?)?;
        y.isinf().try_bitwise_and(x.isfinite())?.try_where_(apart.try_where_(y, x)?, rest)
    }
    pub(crate) fn trunc_div(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("div_rounded", x, y)?;
        only("div_rounded", &p, !p.dtype.is_bool(), "numbers")?;
        if p.dtype.is_float() {
            return Ok(p.node(Op::Div).trunc());
        }
        // One more than the floor where that was below a negative quotient. Signs that wrap do no harm: the least by -1 has no rest.
        let down = p.node(Op::IDiv);
        let below = p.node(Op::Mod).try_ne(0)?.try_bitwise_and(p.x.try_lt(0)?.try_ne(p.y.try_lt(0)?)?)?;
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
        let rest = x.try_sub(p.node(Op::Div).trunc().try_mul(y)?)?;
        // A quotient that was rounded up to a whole number took off one divisor too many.
        let past = rest.try_mul(x)?.try_lt(0)?;
        let back = y.abs().try_mul(x.try_lt(0)?.try_where_(x.literal(-1.0), x.literal(1.0))?)?;
        let rest = past.try_where_(rest.try_add(back)?, &rest)?;
        y.isinf().try_bitwise_and(x.isfinite())?.try_where_(x, rest)
    }
    pub(crate) fn pow(x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair("pow", x, y)?;
        only("pow", &p, !p.dtype.is_bool(), "numbers")?;
        // Small whole powers are products, which round better and cost less.
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
        Ok(pair("maximum", x, y)?.node(Op::Max))
    }
    pub(crate) fn minimum(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("minimum", x, y)?.node(Op::Min))
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
        Ok(pair(op, x, y)?.node(Op::Lt))
    }
    pub(crate) fn gt(x: Operand, y: Operand) -> Result<Tensor> {
        Ok(pair("gt", x, y)?.swapped().node(Op::Lt))
    }
    pub(crate) fn le(op: &'static str, x: Operand, y: Operand) -> Result<Tensor> {
        let p = pair(op, x, y)?;
        if p.dtype.is_float() {
            // With NaN both are false, where "not greater" would be true.
            return or(p.node(Op::Lt).into(), p.node(Op::Eq).into());
        }
        p.swapped().node(Op::Lt).try_bitwise_not()
    }
}

impl Tensor {
    fallible! {
        /// The sum. Two bools give their "or".
        pub fn add | try_add(&self, other: impl Into<Operand>) -> Tensor {
            binary::add(self.into(), other.into())
        }

        /// The difference.
        pub fn sub | try_sub(&self, other: impl Into<Operand>) -> Tensor {
            binary::sub(self.into(), other.into())
        }

        /// The product. Two bools give their "and".
        pub fn mul | try_mul(&self, other: impl Into<Operand>) -> Tensor {
            binary::mul(self.into(), other.into())
        }

        /// The quotient, a float also of integers; [`idiv`](Self::idiv) is the integer one.
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

        /// The quotient rounded toward minus infinity. An integer divided by zero is zero.
        pub fn idiv | try_idiv(&self, other: impl Into<Operand>) -> Tensor {
            binary::idiv(self.into(), other.into())
        }

        /// The remainder of [`idiv`](Self::idiv), with the divisor's sign. An integer modulo zero is zero.
        pub fn modulo | try_modulo(&self, other: impl Into<Operand>) -> Tensor {
            binary::modulo(self.into(), other.into())
        }

        /// The quotient as a whole number, in the dtype of the operands. An integer divided by zero is zero.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Rounding};
        /// let x = Tensor::new([7, -7]);
        /// assert_eq!(x.div_rounded(2, Rounding::Trunc).to_vec::<i32>()?, [3, -3]);
        /// assert_eq!(x.div_rounded(2, Rounding::Floor).to_vec::<i32>()?, [3, -4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn div_rounded | try_div_rounded(&self, other: impl Into<Operand>, rounding: Rounding) -> Tensor {
            match rounding {
                Rounding::Trunc => binary::trunc_div(self.into(), other.into()),
                Rounding::Floor => binary::idiv(self.into(), other.into()),
            }
        }

        /// The remainder of the quotient toward zero, with the sign of this. An integer by zero has none. Of floats it is exact for quotients that the dtype can tell
        /// apart.
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

        /// This to the power of the other. A negative power of an integer is rounded toward zero.
        pub fn pow | try_pow(&self, other: impl Into<Operand>) -> Tensor {
            binary::pow(self.into(), other.into())
        }

        /// The greater of the two; NaN wins.
        pub fn maximum | try_maximum(&self, other: impl Into<Operand>) -> Tensor {
            binary::maximum(self.into(), other.into())
        }

        /// The lesser of the two; NaN wins.
        pub fn minimum | try_minimum(&self, other: impl Into<Operand>) -> Tensor {
            binary::minimum(self.into(), other.into())
        }

        /// Whether the elements are equal; NaN equals nothing.
        pub fn eq | try_eq(&self, other: impl Into<Operand>) -> Tensor {
            Ok(pair("eq", self.into(), other.into())?.node(Op::Eq))
        }

        /// Whether the elements differ; NaN does from everything.
        pub fn ne | try_ne(&self, other: impl Into<Operand>) -> Tensor {
            Ok(pair("ne", self.into(), other.into())?.node(Op::Ne))
        }

        /// Whether this is less; false with NaN.
        pub fn lt | try_lt(&self, other: impl Into<Operand>) -> Tensor {
            binary::lt("lt", self.into(), other.into())
        }

        /// Whether this is less or equal; false with NaN.
        pub fn le | try_le(&self, other: impl Into<Operand>) -> Tensor {
            binary::le("le", self.into(), other.into())
        }

        /// Whether this is greater; false with NaN.
        pub fn gt | try_gt(&self, other: impl Into<Operand>) -> Tensor {
            binary::gt(self.into(), other.into())
        }

        /// Whether this is greater or equal; false with NaN.
        pub fn ge | try_ge(&self, other: impl Into<Operand>) -> Tensor {
            binary::le("ge", other.into(), self.into())
        }

        /// Bitwise and; logical for bools.
        pub fn bitwise_and | try_bitwise_and(&self, other: impl Into<Operand>) -> Tensor {
            binary::and(self.into(), other.into())
        }

        /// Bitwise or; logical for bools.
        pub fn bitwise_or | try_bitwise_or(&self, other: impl Into<Operand>) -> Tensor {
            binary::or(self.into(), other.into())
        }

        /// Bitwise exclusive or; "differs" for bools.
        pub fn bitwise_xor | try_bitwise_xor(&self, other: impl Into<Operand>) -> Tensor {
            binary::xor(self.into(), other.into())
        }

        /// Bits moved up; past the width all are gone.
        pub fn lshift | try_lshift(&self, other: impl Into<Operand>) -> Tensor {
            binary::shl(self.into(), other.into())
        }

        /// Bits moved down; the sign fills up for signed integers.
        pub fn rshift | try_rshift(&self, other: impl Into<Operand>) -> Tensor {
            binary::shr(self.into(), other.into())
        }

        /// Every bit turned; logical negation for bools.
        pub fn bitwise_not | try_bitwise_not(&self) -> Tensor {
            if self.is_floating_point() {
                return wrong_dtype("bitwise_not", format!("takes integers or bools, and was given {}", self.dtype()));
            }
            Ok(self.with(self.uop().not()))
        }

        /// Whether both are true; what is not zero counts as true.
        pub fn logical_and | try_logical_and(&self, other: impl Into<Operand>) -> Tensor {
            logical("logical_and", Op::And, self.into(), other.into())
        }

        /// Whether one or both are true.
        pub fn logical_or | try_logical_or(&self, other: impl Into<Operand>) -> Tensor {
            logical("logical_or", Op::Or, self.into(), other.into())
        }

        /// Whether just one is true.
        pub fn logical_xor | try_logical_xor(&self, other: impl Into<Operand>) -> Tensor {
            logical("logical_xor", Op::Xor, self.into(), other.into())
        }

        /// The negative. Unsigned integers wrap.
        pub fn neg | try_neg(&self) -> Tensor {
            if self.dtype().is_bool() {
                return wrong_dtype("neg", "takes numbers, and was given bool; `!x` negates a bool");
            }
            Ok(self.with(-&self.uop()))
        }

        /// Where this is true the elements of `x`, elsewhere those of `y`. All three broadcast; `x` and `y` promote.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([-1.0f32, 2.0]);
        /// assert_eq!(x.lt(0).where_(0, &x).to_vec::<f32>()?, [0.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn where_ | try_where_(&self, x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
            let (x, y) = (x.into(), y.into());
            let dtype = promoted(&[x.clone(), y.clone()]);
            let Unified { src, device, .. } = unify_as("where", &[self.into(), x, y], &[DType::BOOL, dtype, dtype])?;
            Ok(Tensor::from_uop(UOp::new(Op::Where, dtype, src, Arg::None), device))
        }

        /// This where the mask is false, the value where it is true. The dtype stays.
        pub fn masked_fill | try_masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Tensor {
            mask.try_where_(value, self)?.try_cast(self.dtype())
        }

        /// The elements converted to another dtype: floats to integers toward zero and saturating, integers wrap, anything but zero is true.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::new([1.9f32, -300.0]).cast(DType::I8).to_vec::<i8>()?, [1, -128]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cast | try_cast(&self, dtype: DType) -> Tensor {
            if !DType::ALL.contains(&dtype) {
                return wrong_dtype("cast", format!("a tensor cannot hold {dtype}"));
            }
            Ok(if dtype == self.dtype() { self.same() } else { self.with(cast_uop(&self.uop(), dtype)) })
        }

        /// The same bits as another dtype of the same width.
        pub fn bitcast | try_bitcast(&self, dtype: DType) -> Tensor {
            let from = self.dtype();
            if !DType::ALL.contains(&dtype) || dtype.bits() != from.bits() {
                let msg = format!("{from} has {} bits and {dtype} has {}: only dtypes of one width share their bits", from.bits(), dtype.bits());
                return wrong_dtype("bitcast", msg);
            }
            if from.is_bool() != dtype.is_bool() {
                return wrong_dtype("bitcast", format!("{from} to {dtype}: a bool has no bits of its own; cast it"));
            }
            Ok(self.with(self.uop().bitcast(dtype)))
        }
    }

    /// As `f32`.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::new([1u8, 0]);
    /// assert_eq!((x.float().dtype(), x.half().dtype(), x.bfloat16().dtype()), (DType::F32, DType::F16, DType::BF16));
    /// assert_eq!((x.double().dtype(), x.int().dtype(), x.long().dtype()), (DType::F64, DType::I32, DType::I64));
    /// assert_eq!((x.short().dtype(), x.bool().dtype()), (DType::I16, DType::BOOL));
    /// ```
    pub fn float(&self) -> Tensor {
        self.cast(DType::F32)
    }
    /// As `f16`.
    pub fn half(&self) -> Tensor {
        self.cast(DType::F16)
    }
    /// As `bf16`.
    pub fn bfloat16(&self) -> Tensor {
        self.cast(DType::BF16)
    }
    /// As `f64`.
    pub fn double(&self) -> Tensor {
        self.cast(DType::F64)
    }
    /// As `i32`.
    pub fn int(&self) -> Tensor {
        self.cast(DType::I32)
    }
    /// As `i64`.
    pub fn long(&self) -> Tensor {
        self.cast(DType::I64)
    }
    /// As `i16`.
    pub fn short(&self) -> Tensor {
        self.cast(DType::I16)
    }
    /// As bools: whether the element is anything but zero.
    pub fn bool(&self) -> Tensor {
        self.truth()
    }

    /// Whether the element is zero.
    pub fn logical_not(&self) -> Tensor {
        let truth = self.truth();
        truth.with(truth.uop().not())
    }

    /// Whether the element is anything but zero.
    pub(super) fn truth(&self) -> Tensor {
        self.with(cast_uop(&self.uop(), DType::BOOL))
    }
}

fn logical(op: &'static str, node: Op, x: Operand, y: Operand) -> Result<Tensor> {
    Ok(pair(op, as_bool(x), as_bool(y))?.node(node))
}

fn as_bool(x: Operand) -> Operand {
    match x {
        Operand::Tensor(t) => Operand::Tensor(t.truth()),
        Operand::Scalar(c, _) => Operand::from(c.is_true()),
    }
}
