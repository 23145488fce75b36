//! A gradient is the same whatever was realized before it, and in which order.

use picograd::tensor::{Pool, keepdim};
use picograd::testing::is_spared;
use picograd::{DType, Tensor};

/// Numbers in [-1, 1) that depend on the seed alone.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(next).collect()
}

fn param(seed: u64, shape: [usize; 2]) -> Tensor {
    Tensor::new(numbers(seed, shape[0] * shape[1])).reshape(shape).as_param()
}

fn close(got: &[f32], want: &[f32]) -> bool {
    let size = want.iter().fold(1.0f32, |m, w| m.max(w.abs()));
    got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-3 * size)
}

/// The gradient of a stored maximum: `top` is realized with a sibling, as printing both does, then differentiated.
#[test]
fn max_of_a_product_that_was_realized_with_a_sibling() {
    for kind in 0..5 {
        let mut lost = Vec::new();
        for seed in 0..40u64 {
            let shape = [2 + seed as usize % 17, 1 + seed as usize % 23];
            let gradient = |realize: bool| {
                let x = param(seed, shape);
                let y = if kind < 3 { (&x * 1.5 + 0.25).tanh() } else { x.matmul(&param(seed + 1000, [shape[1], shape[1]])) };
                let product = y.matmul(&y.t());
                let top = product.max(keepdim(1));
                let sibling = match kind {
                    0 => product.sum(keepdim(1)),
                    1 => y.sum(keepdim(1)),
                    2 => product.min(keepdim(1)),
                    3 => y.copy(),
                    _ => product.exp().sum(keepdim(1)),
                };
                if realize {
                    Tensor::realize_many(&[&top, &sibling]).unwrap();
                }
                top.sum(..).gradient(&[&x])[0].to_vec::<f32>().unwrap()
            };
            if !close(&gradient(true), &gradient(false)) {
                lost.push(seed);
            }
        }
        eprintln!("{kind} {} of 40 gradients depend on what was realized: {lost:?}", lost.len());
    }
}
