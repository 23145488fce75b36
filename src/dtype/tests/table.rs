//! Names, kinds, widths and limits of the dtypes.

use super::super::{Const, DType};
use super::everything;
use crate::error::Error;

#[test]
fn names_print_and_parse() {
    for t in everything() {
        for lanes in [1, 2, 16, 65535] {
            let v = t.vec(lanes);
            assert_eq!(v.to_string().parse::<DType>(), Ok(v));
            assert_eq!(format!("{v:?}"), v.to_string());
            assert_eq!(v.scalar(), t);
            assert_eq!(v.itemsize(), t.itemsize() * lanes as usize);
        }
    }
    assert_eq!(DType::F32.vec(16).to_string(), "f32x16");
    assert_eq!(DType::INDEX.vec(4).to_string(), "indexx4");
    assert_eq!(format!("[{:>6}]", DType::F32), "[   f32]");
    for (alias, t) in [
        ("float", DType::F32),
        ("float32", DType::F32),
        ("half", DType::F16),
        ("bfloat16", DType::BF16),
        ("double", DType::F64),
        ("int", DType::I32),
        ("long", DType::I64),
        ("uint8", DType::U8),
        ("float8_e4m3fn", DType::F8E4M3),
        ("float8_e5m2", DType::F8E5M2),
        ("floatx4", DType::F32.vec(4)),
    ] {
        assert_eq!(alias.parse::<DType>(), Ok(t), "{alias}");
    }
    for bad in ["", "f33", "f32x", "f32x0", "f32x04", "f32x+4", "f32x65536", "x4", "F32", " f32"] {
        assert!(matches!(bad.parse::<DType>(), Err(Error::DType { op: "dtype", .. })), "{bad}");
    }
}

#[test]
fn kinds_have_their_widths() {
    assert_eq!(DType::ALL.len(), 15);
    for &t in DType::ALL {
        let kinds = [t.is_bool(), t.is_float(), t.is_unsigned(), t.is_signed_int()];
        assert_eq!(kinds.iter().filter(|k| **k).count(), 1, "{t}");
        assert_eq!(t.is_int(), t.is_unsigned() || t.is_signed_int());
    }
    assert!(DType::INDEX.is_int() && DType::INDEX.is_signed_int());
    assert_eq!((DType::BOOL.bits(), DType::INDEX.bits(), DType::VOID.itemsize()), (8, 64, 0));
}

#[test]
fn limits_are_the_extreme_values() {
    for (t, low, high) in [
        (DType::BOOL, Const::Bool(false), Const::Bool(true)),
        (DType::I8, Const::Int(-128), Const::Int(127)),
        (DType::I32, Const::Int(i32::MIN as i64), Const::Int(i32::MAX as i64)),
        (DType::I64, Const::Int(i64::MIN), Const::Int(i64::MAX)),
        (DType::INDEX, Const::Int(i64::MIN), Const::Int(i64::MAX)),
        (DType::U8, Const::Int(0), Const::Int(255)),
        (DType::U32, Const::Int(0), Const::Int(u32::MAX as i64)),
        (DType::U64, Const::Int(0), Const::Int(-1)),
        (DType::F8E4M3, Const::Float(-448.0), Const::Float(448.0)),
        (DType::F16, Const::Float(f64::NEG_INFINITY), Const::Float(f64::INFINITY)),
    ] {
        assert_eq!((t.min_value(), t.max_value()), (low, high), "{t}");
    }
    for &t in DType::ALL {
        assert_eq!(t.min_value().normalize(t), t.min_value());
        assert_eq!(t.max_value().normalize(t), t.max_value());
    }
}
