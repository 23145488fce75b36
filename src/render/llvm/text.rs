//! Types and literals of LLVM's language.

use crate::dtype::{Const, DType, Scalar};
use crate::render::facts::storage;

/// Returns the type of a value: a bool is one bit, small floats are their bits.
pub(super) fn ty(dtype: DType) -> String {
    vector(element(dtype.scalar), dtype.lanes)
}

/// Returns the type of a value in memory: a bool is a byte there.
pub(super) fn memory_type(dtype: DType) -> String {
    vector(if dtype.is_bool() { "i8" } else { element(dtype.scalar) }, dtype.lanes)
}

fn vector(element: &str, lanes: u16) -> String {
    if lanes == 1 { element.to_string() } else { format!("<{lanes} x {element}>") }
}

fn element(scalar: Scalar) -> &'static str {
    match storage(scalar) {
        Scalar::Void => "void",
        Scalar::Bool => "i1",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
        held => ["i8", "i16", "i32", "i64"][held.bits().trailing_zeros() as usize - 3],
    }
}

/// Returns the type as the names of intrinsics have it, as in `llvm.sqrt.v4f32`.
pub(super) fn suffix(dtype: DType) -> String {
    let element = match element(dtype.scalar) {
        "float" => "f32",
        "double" => "f64",
        int => int,
    };
    if dtype.lanes == 1 { element.to_string() } else { format!("v{}{element}", dtype.lanes) }
}

/// Returns the type of a value in memory as the names of intrinsics have it.
pub(super) fn memory_suffix(dtype: DType) -> String {
    suffix(if dtype.is_bool() { DType::U8.vec(dtype.lanes) } else { dtype })
}

/// Returns a constant of the dtype, in every lane.
pub(super) fn literal(value: Const, dtype: DType) -> String {
    let one = scalar(value, dtype.scalar());
    match dtype.lanes {
        1 => one,
        _ if one == "0" || one == "0.0" || one == "false" => "zeroinitializer".to_string(),
        n => lanes(&vec![one; n as usize], dtype),
    }
}

/// Returns a vector of literals.
pub(super) fn lanes(literals: &[String], dtype: DType) -> String {
    let element = element(dtype.scalar);
    let list: Vec<String> = literals.iter().map(|l| format!("{element} {l}")).collect();
    format!("<{}>", list.join(", "))
}

fn scalar(value: Const, dtype: DType) -> String {
    match value.normalize(dtype) {
        Const::Bool(b) => b.to_string(),
        Const::Int(v) => v.to_string(),
        Const::Float(_) if storage(dtype.scalar) != dtype.scalar => {
            value.to_bits(dtype).to_string()
        }
        // A decimal must be exact, which short ones are; all others are the bits of a double, also
        // for a float.
        Const::Float(v) if (v * 16.0).fract() == 0.0 && v.abs() < 65536.0 => format!("{v:?}"),
        Const::Float(v) => format!("{:#018X}", v.to_bits()).replace("0X", "0x"),
    }
}
