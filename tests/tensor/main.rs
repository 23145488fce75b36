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

use picograd::Tensor;
use picograd::dtype::Element;

/// Asserts shape and exact elements.
#[track_caller]
fn check<T: Element + PartialEq + std::fmt::Debug>(t: &Tensor, shape: &[usize], expected: &[T]) {
    assert_eq!(t.shape(), shape, "the shape of {t:?}");
    assert_eq!(t.to_vec::<T>().unwrap(), expected, "the elements of {t:?}");
}

/// Asserts that elements are within a relative and absolute tolerance; NaN equals NaN.
#[track_caller]
fn close(t: &Tensor, expected: &[f64], tolerance: f64) {
    let values: Vec<f32> = t.to_vec().unwrap();
    assert_eq!(values.len(), expected.len(), "the number of elements of {t:?}");
    for (i, (&x, &y)) in values.iter().zip(expected).enumerate() {
        let x = x as f64;
        let same =
            x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * y.abs().max(1.0);
        assert!(same, "element {i} is {x}, expected {y}");
    }
}

/// The numbers `0, 1, …` as f32 in a shape.
fn ramp(shape: &[usize]) -> Tensor {
    Tensor::arange(0f32, shape.iter().product::<usize>() as f32, 1.0).reshape(shape)
}
