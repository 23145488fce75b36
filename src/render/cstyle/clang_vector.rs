//! Vectors in C by the vector extensions of gcc and clang. A vector of bools is one of 32-bit
//! integers, 0 or -1 in each lane.

use super::cast::limits;
use super::dialect::{Alu, Text, is_small, storage, width_index};
use super::expr::{comparison, count, negated_comparison};
use super::literal::{is_ones, scalar as number};
use super::prelude::Cx;
use super::value::{Form, Operand, operands};
use super::vector::{as_vector, operators, vector_operands};
use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Group, Op};

/// Returns the dtype of the lanes that hold a value of this dtype.
pub(super) fn held(dtype: DType) -> DType {
    let scalar = if dtype.is_bool() { Scalar::I32 } else { storage(dtype.scalar) };
    DType { scalar, lanes: dtype.lanes }
}

/// Returns signed integers of the width of another dtype: the result of its comparisons.
pub(super) fn mask_of(dtype: DType) -> DType {
    let scalar =
        [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64][width_index(held(dtype).bits())];
    DType { scalar, lanes: dtype.lanes }
}

/// Returns each lane of `x` or `y` by the mask.
pub(super) fn select(cx: &mut Cx, dtype: DType, mask: &str, x: &str, y: &str) -> Text {
    let dtype = held(dtype);
    let name = format!("sel_{dtype}");
    cx.helper(&name, dtype, |cx| {
        let (ty, narrow, bits) =
            (cx.ty(dtype)?, cx.ty(DType::I32.vec(dtype.lanes))?, cx.ty(mask_of(dtype))?);
        let mask = if bits == narrow {
            "m".to_string()
        } else {
            format!("__builtin_convertvector(m,{bits})")
        };
        let body = format!("{bits} k = {mask}; return ({ty})((k&({bits})x)|(~k&({bits})y));");
        Ok((format!("{narrow} m, {ty} x, {ty} y"), body))
    })?;
    Ok(format!("{name}({mask},{x},{y})"))
}

/// Returns a comparison's mask, made as wide as a vector of bools.
fn as_bools(cx: &mut Cx, mask: String, from: DType) -> Text {
    if mask_of(from).scalar == Scalar::I32 {
        return Ok(mask);
    }
    Ok(format!("__builtin_convertvector({mask},{})", cx.ty(DType::I32.vec(from.lanes))?))
}

/// Returns a vector expression for an op; `None` if it is computed lane by lane.
pub(super) fn alu(cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
    let (op, dtype, from) = (alu.op, alu.dtype, alu.from);
    if is_small(from.scalar) && !matches!(op, Op::Cast | Op::Bitcast | Op::Where) {
        return None;
    }
    match op {
        Op::Where => Some(choose(cx, alu)),
        Op::Cast => cast(cx, alu).map(|t| t.map(Operand::plain)),
        Op::Bitcast if dtype.is_bool() || from.is_bool() => None,
        Op::Bitcast if dtype.bits() == from.bits() => Some(reinterpret(cx, alu)),
        _ if op.is(Group::Comparison) && from.is_bool() => bools(cx, alu),
        _ if op.is(Group::Comparison) => Some(compare(cx, alu)),
        _ if dtype.is_bool() => bools(cx, alu),
        Op::Max | Op::Min => Some(extreme(cx, alu)),
        Op::Shl | Op::Shr if dtype.is_int() => Some(shift(cx, alu)),
        Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor if dtype.is_int() => operators(cx, alu),
        Op::Add | Op::Mul | Op::Div if dtype.is_float() => operators(cx, alu),
        _ => None,
    }
}

fn choose(cx: &mut Cx, alu: &Alu) -> Result<Operand, String> {
    let lanes = alu.dtype.lanes;
    let [mask, x, y] = operands(alu.args);
    let mask = as_vector(cx, mask, DType::BOOL.vec(lanes))?;
    let (x, y) = (as_vector(cx, x, alu.dtype)?, as_vector(cx, y, alu.dtype)?);
    select(cx, alu.dtype, &mask, &x, &y).map(Operand::plain)
}

fn reinterpret(cx: &mut Cx, alu: &Alu) -> Result<Operand, String> {
    let [x] = operands(alu.args);
    let x = as_vector(cx, x, alu.from)?;
    if held(alu.dtype) == held(alu.from) {
        return Ok(Operand::plain(x));
    }
    Ok(Operand::plain(format!("(({}){x})", cx.ty(alu.dtype)?)))
}

fn compare(cx: &mut Cx, alu: &Alu) -> Result<Operand, String> {
    let args = vector_operands(cx, alu.args, alu.from)?;
    let [x, y] = operands(&args);
    let mut result = comparison(alu.op, alu.from, &x.text, &y.text);
    if mask_of(alu.from).scalar != Scalar::I32 {
        result.form = Form::Plain;
    }
    result.text = as_bools(cx, result.text, alu.from)?;
    Ok(result)
}

/// Masks combine by bits. `x < y` is "not x, and y".
fn bools(cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
    let bools = DType::BOOL.vec(alu.dtype.lanes);
    let [x, y] = alu.args else { return None };
    let other = match () {
        _ if is_ones(x, Scalar::Bool) => Some(y),
        _ if is_ones(y, Scalar::Bool) => Some(x),
        _ => None,
    };
    if let (Op::Xor | Op::Ne, Some(other)) = (alu.op, other) {
        return Some(match negated_comparison(&other.form) {
            Some(text) => Ok(Operand::plain(text)),
            None => as_vector(cx, other, bools).map(|x| Operand::plain(format!("(~{x})"))),
        });
    }
    let (x, y) = match (as_vector(cx, x, bools), as_vector(cx, y, bools)) {
        (Ok(x), Ok(y)) => (x, y),
        (Err(e), _) | (_, Err(e)) => return Some(Err(e)),
    };
    let text = match alu.op {
        Op::Add | Op::Or | Op::Max => format!("({x}|{y})"),
        Op::Mul | Op::And | Op::Min => format!("({x}&{y})"),
        Op::Xor | Op::Ne => format!("({x}^{y})"),
        Op::Eq => format!("(~({x}^{y}))"),
        Op::Lt => format!("(~{x}&{y})"),
        _ => return None,
    };
    Some(Ok(Operand::plain(text)))
}

fn extreme(cx: &mut Cx, alu: &Alu) -> Result<Operand, String> {
    let dtype = alu.dtype;
    let (name, sign) = if alu.op == Op::Max {
        (format!("max_{dtype}"), ">")
    } else {
        (format!("min_{dtype}"), "<")
    };
    cx.helper(&name, dtype, |cx| {
        let ty = cx.ty(dtype)?;
        let body = if dtype.is_float() {
            let mask = as_bools(cx, format!("((x{sign}y)|(x!=x))"), dtype)?;
            // NaN wins, and adding +0 makes a zero result +0.
            format!("return {}+({ty}){{0}};", select(cx, dtype, &mask, "x", "y")?)
        } else {
            let mask = as_bools(cx, format!("(x{sign}y)"), dtype)?;
            format!("return {};", select(cx, dtype, &mask, "x", "y")?)
        };
        Ok((format!("{ty} x, {ty} y"), body))
    })?;
    let [x, y] = operands(alu.args);
    let (x, y) = (as_vector(cx, x, dtype)?, as_vector(cx, y, dtype)?);
    Ok(Operand::plain(format!("{name}({x},{y})")))
}

fn shift(cx: &mut Cx, alu: &Alu) -> Result<Operand, String> {
    let sign = if alu.op == Op::Shl { "<<" } else { ">>" };
    let [x, amount] = operands(alu.args);
    let x = as_vector(cx, x, alu.dtype)?;
    let amount = match amount.literal {
        Some(_) => count(cx, amount, alu.dtype.scalar)?,
        None => {
            let mask = number(cx, Const::Int(i64::from(alu.dtype.bits()) - 1), alu.dtype.scalar)?;
            let mask = cx.build(alu.dtype, &vec![mask; alu.dtype.lanes as usize])?;
            format!("({}&{mask})", as_vector(cx, amount, alu.dtype)?)
        }
    };
    Ok(Operand::plain(format!("({x}{sign}{amount})")))
}

/// Converts vectors. Small floats convert through f32 if that is exact, and otherwise lane by lane.
fn cast(cx: &mut Cx, alu: &Alu) -> Option<Text> {
    let (dtype, from) = (alu.dtype, alu.from);
    let f32s = DType::F32.vec(dtype.lanes);
    let through = |cx: &mut Cx| match cast(cx, &Alu { dtype: f32s, ..*alu })? {
        Ok(x) => cast(cx, &Alu { from: f32s, args: &[Operand::plain(x)], ..*alu }),
        Err(e) => Some(Err(e)),
    };
    if is_small(from.scalar) && dtype.scalar != Scalar::F32 {
        return through(cx);
    }
    if is_small(dtype.scalar) && from.scalar != Scalar::F32 {
        return if from.bits() <= 16 { through(cx) } else { None };
    }
    Some((|| {
        let [x] = operands(alu.args);
        let x = as_vector(cx, x, from)?;
        if is_small(dtype.scalar) {
            super::small_float::encode(cx, from, dtype.scalar, &x)
        } else if is_small(from.scalar) {
            super::small_float::decode(cx, from, &x)
        } else if dtype.is_bool() {
            let zero = cx.ty(from)?;
            as_bools(cx, format!("({x}!=({zero}){{0}})"), from)
        } else if from.is_float() && dtype.is_int() {
            saturate(cx, from, dtype, &x)
        } else {
            let ty = cx.ty(dtype)?;
            // A true lane is -1.
            let x = if from.is_bool() { format!("(-{x})") } else { x };
            Ok(if held(from) == dtype { x } else { format!("__builtin_convertvector({x},{ty})") })
        }
    })())
}

/// Lanes outside the range are set to 0 before the conversion, and after it to the nearest bound,
/// unless they are NaN.
fn saturate(cx: &mut Cx, from: DType, dtype: DType, x: &str) -> Text {
    let name = format!("{from}_to_{dtype}");
    cx.helper(&name, dtype, |cx| {
        let lanes = dtype.lanes as usize;
        let (f, t, m) = (cx.ty(from)?, cx.ty(dtype)?, cx.ty(DType::I32.vec(dtype.lanes))?);
        let (least, past) = limits(dtype.scalar);
        let all = |cx: &mut Cx, value: Const, of: DType| -> Text {
            let text = number(cx, value, of.scalar)?;
            cx.build(of, &vec![text; lanes])
        };
        let (low, high) = (all(cx, Const::Float(least), from)?, all(cx, Const::Float(past), from)?);
        let (min, max) = (all(cx, dtype.min_value(), dtype)?, all(cx, dtype.max_value(), dtype)?);
        let (under, over) = (
            as_bools(cx, format!("(x<{low})"), from)?,
            as_bools(cx, format!("(x>={high})"), from)?,
        );
        let inside = as_bools(cx, format!("((x>={low})&(x<{high}))"), from)?;
        let kept = select(cx, from, &inside, "x", &format!("({f}){{0}}"))?;
        let body = format!(
            "{m} under = {under}; {m} over = {over}; {t} r = __builtin_convertvector({kept},{t}); "
        );
        let bounded = select(cx, dtype, "over", &max, "r")?;
        let bounded = select(cx, dtype, "under", &min, &bounded)?;
        Ok((format!("{f} x"), format!("{body}return {bounded};")))
    })?;
    Ok(format!("{name}({x})"))
}
