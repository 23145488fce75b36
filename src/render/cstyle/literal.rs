//! Literals: a constant as text that the language's compiler reads back as exactly that value.

use super::dialect::{Text, is_small};
use super::prelude::Cx;
use super::value::{Form, Operand};
use crate::dtype::{Const, DType, Scalar};

/// Returns a literal as an operand, in every lane of a vector. Narrow integers are plain `int`
/// literals; small floats are their bits.
pub(super) fn literal(cx: &Cx, value: Const, dtype: DType) -> Result<Operand, String> {
    let text = scalar(cx, value, dtype.scalar)?;
    let literal = Some(value.normalize(dtype.scalar()));
    Ok(match dtype.lanes {
        1 => Operand { text, form: Form::Plain, literal, lanes: None },
        n => Operand {
            text: String::new(),
            form: Form::Plain,
            literal,
            lanes: Some(vec![text; n as usize].into()),
        },
    })
}

/// Returns true if the literal has all bits set, or is -1 as a float.
pub(super) fn is_ones(x: &Operand, scalar: Scalar) -> bool {
    x.literal.is_some_and(|c| c == Const::Int(-1).normalize(DType { scalar, lanes: 1 }))
}

/// Returns the absolute value of a negative literal, if it is a literal of the same type.
pub(super) fn below_zero(cx: &Cx, x: &Operand, scalar: Scalar) -> Option<String> {
    let dtype = DType { scalar, lanes: 1 };
    match x.literal? {
        Const::Int(v) if v < 0 && dtype.is_signed_int() && Const::Int(v) != dtype.min_value() => {
            self::scalar(cx, Const::Int(-v), scalar).ok()
        }
        Const::Float(v) if v < 0.0 && v.is_finite() && !is_small(scalar) => {
            self::scalar(cx, Const::Float(-v), scalar).ok()
        }
        _ => None,
    }
}

/// Returns a scalar literal.
pub(super) fn scalar(cx: &Cx, value: Const, scalar: Scalar) -> Text {
    let words = cx.dialect.words();
    let dtype = DType { scalar, lanes: 1 };
    if scalar == Scalar::Void {
        return Err("a void has no value".to_string());
    }
    let value = value.normalize(dtype);
    Ok(match (scalar, value) {
        (Scalar::F16 | Scalar::BF16, _) => format!("{:#06x}", value.to_bits(dtype)),
        (Scalar::F8E4M3 | Scalar::F8E5M2, _) => format!("{:#04x}", value.to_bits(dtype)),
        (Scalar::F32, Const::Float(v)) => {
            float(v, format!("{}f", digits(v, format!("{:?}", v as f32))), words.special32)
        }
        (Scalar::F64, Const::Float(v)) => {
            let special = words
                .special64
                .ok_or_else(|| format!("{} has no f64", cx.dialect.target().name))?;
            float(v, format!("{v:?}"), special)
        }
        (_, Const::Bool(b)) => words.truth[b as usize].to_string(),
        // The least value is not a literal in C: it would be a minus sign before a number that the
        // type does not hold.
        (Scalar::I32, Const::Int(v)) if v == i32::MIN as i64 => "(-2147483647-1)".to_string(),
        (Scalar::I64 | Scalar::Index, Const::Int(i64::MIN)) => {
            format!("(-9223372036854775807{0}-1{0})", words.long)
        }
        (Scalar::I64 | Scalar::Index, Const::Int(v)) => format!("{v}{}", words.long),
        (Scalar::U32, Const::Int(v)) => format!("{v}u"),
        (Scalar::U64, Const::Int(v)) => format!("{}u{}", v as u64, words.long),
        (_, Const::Int(v)) => v.to_string(),
        (_, c) => return Err(format!("no literal for {c:?}")),
    })
}

/// Writes all digits of integers: the shortest digits that give 2³² back are not those of 2³².
fn digits(value: f64, shortest: String) -> String {
    if value.fract() == 0.0 && value.abs() < 1e12 { format!("{value:.1}") } else { shortest }
}

fn float(value: f64, finite: String, [infinity, nan]: [&str; 2]) -> String {
    if value.is_nan() {
        nan.to_string()
    } else if value.is_finite() {
        finite
    } else if value < 0.0 {
        format!("-{infinity}")
    } else {
        infinity.to_string()
    }
}
