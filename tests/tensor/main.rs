//! Tensor methods against hand-computed values and small formulas, each method at least once, and
//! errors of misuse.

mod api;
mod bounds;
mod broadcast;
mod callify;
mod cat;
mod conv;
mod create;
mod display;
mod edges;
mod einsum;
mod elementwise;
mod errors;
mod functions;
mod fuzz;
mod fuzz_calls;
mod gather;
mod index;
mod keccak;
mod linalg;
mod loops;
mod matmul;
mod movement;
mod op_names;
mod poison;
mod pools;
mod random;
mod realize;
mod reduce;
mod scan;
mod solve;
mod sort;
mod windows;

#[path = "../common/mod.rs"]
mod common;

use picograd::dtype::Element;
use picograd::{DType, Tensor};

/// Asserts shape and exact elements.
#[track_caller]
fn check<T: Element + PartialEq + std::fmt::Debug>(t: &Tensor, shape: &[usize], expected: &[T]) {
    assert_eq!(t.shape(), shape, "the shape of {t:?}");
    assert_eq!(t.to_vec::<T>().unwrap(), expected, "the elements of {t:?}");
}

/// Asserts that elements are within a relative and absolute tolerance; NaN equals NaN.
#[track_caller]
fn close(t: &Tensor, expected: &[f64], tolerance: f64) {
    assert_eq!(t.dtype(), DType::F32, "the dtype of {t:?}");
    common::assert_close(&format!("{t:?}"), &common::as_f64(t), expected, tolerance);
}

/// Asserts that two tensors have one shape and differ by at most `within`.
#[track_caller]
fn assert_within(x: &Tensor, y: &Tensor, within: f32) {
    assert_eq!(x.shape(), y.shape());
    let gap = (x - y).abs().max(..).float().item::<f32>().unwrap();
    assert!(gap <= within, "they differ by {gap}");
}

/// Integers from -5 to 5 in steps of `by`, modulo 11.
fn small_integers(len: usize, by: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * by) % 11) as f64 - 5.0).collect()
}

/// The numbers `0, 1, …` as f32 in a shape.
fn ramp(shape: &[usize]) -> Tensor {
    Tensor::arange(0f32, shape.iter().product::<usize>() as f32, 1.0).reshape(shape)
}
