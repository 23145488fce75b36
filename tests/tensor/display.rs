//! `Display` in NumPy's layout, and the lazy `Debug` form.

use picograd::{DType, Tensor};

#[test]
fn printed_numbers_line_up() {
    assert_eq!(Tensor::new([1f32, 2.5, -3.25]).to_string(), "[ 1.    2.5  -3.25]");
    assert_eq!(Tensor::new([[1f32, 2.0], [3.0, 4.0]]).to_string(), "[[1. 2.]\n [3. 4.]]");
    assert_eq!(Tensor::new([1, -20, 300]).to_string(), "[  1 -20 300]");
    assert_eq!(Tensor::new([true, false]).to_string(), "[ true false]");
    assert_eq!(Tensor::new([u64::MAX]).to_string(), "[18446744073709551615]");
    assert_eq!(Tensor::new([f32::NAN, f32::INFINITY, 1.5]).to_string(), "[nan inf 1.5]");
}

#[test]
fn scalars_and_empty_tensors_print() {
    assert_eq!(Tensor::from(2.5f32).to_string(), "2.5");
    assert_eq!(Tensor::from(7).to_string(), "7");
    assert_eq!(Tensor::zeros([0]).to_string(), "[]");
    assert_eq!(Tensor::zeros([2, 0]).to_string(), "[[]\n []]");
}

#[test]
fn printed_digits_fit_the_dtype() {
    assert_eq!(Tensor::new([0.1f32, 0.25]).to_string(), "[0.1  0.25]");
    assert_eq!(Tensor::new([0.1f32]).cast(DType::F16).to_string(), "[0.1]");
    assert_eq!(Tensor::new([1f64 / 3.0]).to_string(), "[0.33333333]");
    assert_eq!(Tensor::new([1e-5f32, 2.0]).to_string(), "[1e-5  2e0]");
    assert_eq!(Tensor::new([1.5e10f32, -1.0]).to_string(), "[1.5e10 -1.0e0]");
}

#[test]
fn blocks_are_separated_and_long_rows_wrap() {
    assert_eq!(
        Tensor::arange(0, 8, 1).reshape([2, 2, 2]).to_string(),
        "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"
    );
    let text = Tensor::arange(0, 100, 1).to_string();
    assert!(text.lines().all(|l| l.len() <= 76), "{text}");
    assert!(text.lines().count() > 1 && text.lines().nth(1).unwrap().starts_with(' '));
}

#[test]
fn large_tensors_are_summarized() {
    assert_eq!(Tensor::arange(0, 2000, 1).to_string(), "[   0    1    2 ... 1997 1998 1999]");
    let rows = Tensor::zeros([100, 100]).to_string();
    assert_eq!(rows.lines().next().unwrap(), "[[0. 0. 0. ... 0. 0. 0.]");
    assert_eq!(rows.lines().nth(3).unwrap(), " ...");
    assert_eq!(rows.lines().count(), 7);
}

#[test]
fn debug_computes_nothing() {
    let x = Tensor::new([[1f32]]) + 1.0;
    assert_eq!(format!("{x:?}"), "<Tensor f32 [1, 1] on CPU: Add>");
    assert_eq!(format!("{:?}", Tensor::new([[1f32]])), "<Tensor f32 [1, 1] on CPU: Buffer>");
}
