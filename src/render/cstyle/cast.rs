//! Conversions between scalars, exactly as [`Const::cast`](crate::dtype::Const::cast) defines them.

use super::dialect::{Text, is_small, storage};
use super::literal::scalar as number;
use super::prelude::Cx;
use super::small_float::{decode, encode};
use crate::dtype::{Const, DType, Scalar};

/// Returns the value `x` converted.
pub(super) fn cast(cx: &mut Cx, from: Scalar, to: Scalar, x: &str) -> Text {
    let (source, target) = (DType { scalar: from, lanes: 1 }, DType { scalar: to, lanes: 1 });
    if from == to {
        return Ok(x.to_string());
    }
    if is_small(from) {
        let x = decode(cx, source, x)?;
        return cast(cx, Scalar::F32, to, &x);
    }
    if is_small(to) {
        let (wide, x) = match from {
            Scalar::F32 => (DType::F32, x.to_string()),
            Scalar::F64 => (DType::F64, x.to_string()),
            // Up to 16 bits an integer is exactly an f32, up to 32 bits exactly an f64.
            _ if source.bits() <= 16 => (DType::F32, cast(cx, from, Scalar::F32, x)?),
            _ if source.bits() == 32 => (DType::F64, cast(cx, from, Scalar::F64, x)?),
            _ => (DType::F64, round_to_odd(cx, from, x)?),
        };
        return encode(cx, wide, to, &x);
    }
    if target.is_bool() {
        return Ok(format!("({x}!={})", number(cx, Const::Int(0), from)?));
    }
    if source.is_float() && target.is_int() {
        return saturate(cx, from, to, x);
    }
    Ok(format!("(({}){x})", cx.scalar_type(to)?))
}

/// Returns the bits of `x` as another scalar of the same width.
pub(super) fn bitcast(cx: &mut Cx, from: Scalar, to: Scalar, x: &str) -> Text {
    if from.bits() != to.bits() {
        return Err(format!("bitcast from {from} to {to}: the widths differ"));
    }
    let (held_from, held_to) = (storage(from), storage(to));
    let floats = matches!(held_from, Scalar::F32 | Scalar::F64)
        || matches!(held_to, Scalar::F32 | Scalar::F64);
    cx.scalar_type(held_from)?;
    cx.scalar_type(held_to)?;
    if held_from == held_to {
        Ok(x.to_string())
    } else if to == Scalar::Bool {
        Ok(format!("({x}!=0)"))
    } else if floats {
        let dialect = cx.dialect;
        Ok(dialect.reinterpret(cx, x, held_from, held_to))
    } else {
        Ok(format!("(({}){x})", cx.scalar_type(held_to)?))
    }
}

/// Converts a float to an integer toward zero, and saturates; NaN is 0.
fn saturate(cx: &mut Cx, from: Scalar, to: Scalar, x: &str) -> Text {
    let name = format!("{from}_to_{to}");
    cx.helper(&name, DType { scalar: to, lanes: 1 }, |cx| {
        let (least, past) = limits(to);
        let (low, high) =
            (number(cx, Const::Float(least), from)?, number(cx, Const::Float(past), from)?);
        let dtype = DType { scalar: to, lanes: 1 };
        let (min, max) = (number(cx, dtype.min_value(), to)?, number(cx, dtype.max_value(), to)?);
        let body =
            format!("return x!=x?0:x<{low}?{min}:x>={high}?{max}:({})x;", cx.scalar_type(to)?);
        Ok((format!("{} x", cx.scalar_type(from)?), body))
    })?;
    Ok(format!("{name}({x})"))
}

/// Returns the minimum of an integer type, and its maximum plus one: both are exact in either float
/// width.
pub(super) fn limits(to: Scalar) -> (f64, f64) {
    let dtype = DType { scalar: to, lanes: 1 };
    if dtype.is_unsigned() {
        (0.0, 2f64.powi(dtype.bits() as i32))
    } else {
        (-(2f64.powi(dtype.bits() as i32 - 1)), 2f64.powi(dtype.bits() as i32 - 1))
    }
}

/// Returns a 64-bit integer as an f64 that rounds to any small float as the integer itself would:
/// of more than 53 bits the low 11 are dropped, and the last remaining bit is set if one of them
/// was (round to odd).
fn round_to_odd(cx: &mut Cx, from: Scalar, x: &str) -> Text {
    let name = format!("{}_to_odd_f64", storage(from));
    cx.helper(&name, DType::F64, |cx| {
        let u = cx.scalar_type(Scalar::U64)?;
        let long = cx.dialect.words().long;
        let params = format!("{} x", cx.scalar_type(from)?);
        let negative = if from == Scalar::U64 { "0" } else { "x<0" };
        let body = format!(
            "{u} m = {negative}?0u{long}-({u})x:({u})x; if (m>>53) m = \
             (m&~0x7ffu{long})|((m&0x7ffu{long})!=0?0x800u{long}:0u{long}); return \
             {negative}?-(double)m:(double)m;"
        );
        Ok((params, body))
    })?;
    Ok(format!("{name}({x})"))
}
