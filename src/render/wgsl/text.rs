//! Types and literals of WGSL.

use super::Text;
use crate::dtype::{Const, DType, Scalar};
use crate::render::facts::is_small;

/// Returns the type that holds a value: integers narrower than 32 bits are held in 32, extended by
/// their sign; small floats are their bits.
pub(super) fn ty(scalar: Scalar) -> Result<&'static str, String> {
    Ok(match scalar {
        Scalar::Bool => "bool",
        Scalar::I8 | Scalar::I16 | Scalar::I32 => "i32",
        Scalar::I64 | Scalar::Index => "i64",
        Scalar::U64 => "u64",
        Scalar::F32 => "f32",
        Scalar::F64 | Scalar::Void => return Err(format!("WGSL has no {scalar}")),
        _ => "u32",
    })
}

/// Returns a scalar literal. A value that WGSL cannot write, because it counts as an error there,
/// is made from its bits.
pub(super) fn literal(value: Const, scalar: Scalar) -> Text {
    let ty = ty(scalar)?;
    let dtype = DType { scalar, lanes: 1 };
    let value = value.normalize(dtype);
    if is_small(scalar) {
        return Ok(format!("{:#x}u", value.to_bits(dtype)));
    }
    Ok(match value {
        Const::Bool(b) => b.to_string(),
        // A minus sign precedes a number that the type must hold.
        Const::Int(v) if v == i32::MIN as i64 && ty == "i32" => "i32(-2147483648)".to_string(),
        Const::Int(i64::MIN) if ty == "i64" => "(-9223372036854775807li-1li)".to_string(),
        Const::Int(v) => {
            let text = match ty {
                "i32" => format!("{v}i"),
                "u32" => format!("{v}u"),
                "i64" => format!("{v}li"),
                _ => format!("{}lu", v as u64),
            };
            if text.starts_with('-') { format!("({text})") } else { text }
        }
        Const::Float(v) => {
            let v = v as f32;
            match v.is_normal() || v.to_bits() == 0 {
                true if v.fract() == 0.0 && v.abs() < 1e12 => {
                    format!("{}{v:.1}f{}", open(v), close(v))
                }
                true => format!("{}{v:?}f{}", open(v), close(v)),
                false => format!("number({:#x}u)", v.to_bits()),
            }
        }
    })
}

fn open(v: f32) -> &'static str {
    if v < 0.0 { "(" } else { "" }
}

fn close(v: f32) -> &'static str {
    if v < 0.0 { ")" } else { "" }
}
