//! Rust types as elements: bytes there and back, at any alignment.

use half::{bf16, f16};

use super::super::element::from_bytes;
use super::super::{Const, Element, F8E4M3, F8E5M2, as_bytes, read};

fn check_element<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    let bytes = as_bytes(values);
    assert_eq!(bytes.len(), values.len() * T::DTYPE.itemsize());
    assert_eq!(from_bytes::<T>(bytes), values);
    // One byte further, no element is aligned.
    let shifted: Vec<u8> = std::iter::once(0).chain(bytes.iter().copied()).collect();
    assert_eq!(from_bytes::<T>(&shifted[1..]), values);
    for (v, chunk) in values.iter().zip(bytes.chunks(T::DTYPE.itemsize())) {
        assert_eq!(read(chunk, T::DTYPE), v.to_const());
        assert_eq!(T::from_const(v.to_const()), *v);
        assert_eq!(v.to_const().normalize(T::DTYPE), v.to_const());
    }
}

#[test]
fn elements_are_bytes_and_constants() {
    check_element(&[true, false, true]);
    check_element(&[i8::MIN, -1, i8::MAX]);
    check_element(&[i16::MIN, -1, i16::MAX]);
    check_element(&[i32::MIN, -1, i32::MAX]);
    check_element(&[i64::MIN, -1, i64::MAX]);
    check_element(&[0, 1, u8::MAX]);
    check_element(&[0, 1, u16::MAX]);
    check_element(&[0, 1, u32::MAX]);
    check_element(&[0, 1, u64::MAX]);
    check_element(&[F8E4M3::from_f32(0.5), F8E4M3(0x7e), F8E4M3(1)]);
    check_element(&[F8E5M2::from_f32(0.5), F8E5M2(0x7c), F8E5M2(1)]);
    check_element(&[f16::from_f32(0.1), f16::INFINITY, f16::MIN_POSITIVE_SUBNORMAL]);
    check_element(&[bf16::from_f32(0.1), bf16::INFINITY, bf16::MIN_POSITIVE_SUBNORMAL]);
    check_element(&[0.1f32, f32::NEG_INFINITY, 1e-45]);
    check_element(&[0.1f64, f64::NEG_INFINITY, 5e-324]);
    check_element::<f64>(&[]);
    assert_eq!(from_bytes::<bool>(&[0, 1, 2, 255]), [false, true, true, true]);
    assert!(std::panic::catch_unwind(|| from_bytes::<f32>(&[0; 6])).is_err());
    // A constant that is not yet of the dtype is mended.
    assert_eq!(u8::from_const(Const::Int(300)), 44);
    assert_eq!(f32::from_const(Const::Int(2)), 2.0);
    assert_eq!(F8E4M3::from_f32(1.5).to_string(), "1.5");
    assert_ne!(F8E4M3(0x7f), F8E4M3(0x7f));
    assert_eq!(F8E5M2(0x80), F8E5M2(0));
}
