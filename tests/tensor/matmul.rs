//! Matrix products of vectors, matrices and batches, and attention.

use super::{check, close, ramp};
use half::f16;
use picograd::tensor::Attention;
use picograd::{DType, Tensor};

#[test]
fn matmul_supports_every_rank() {
    let m = Tensor::new([[1, 2, 3], [4, 5, 6]]);
    check(&m.matmul(&m.t()), &[2, 2], &[14, 32, 32, 77]);
    check(&Tensor::new([1, 2]).matmul(&m), &[3], &[9, 12, 15]);
    check(&m.matmul(&Tensor::new([1, 0, 1])), &[2], &[4, 10]);
    check(&Tensor::new([1, 2]).dot(&Tensor::new([3, 4])), &[], &[11]);
    assert_eq!(Tensor::ones([5, 1, 2, 3]).matmul(&Tensor::ones([4, 3, 6])).shape(), [5, 4, 2, 6]);
    assert_eq!(Tensor::ones([5, 2, 3]).matmul(&Tensor::ones([3])).shape(), [5, 2]);
    assert_eq!(Tensor::ones([3]).matmul(&Tensor::ones([5, 3, 2])).shape(), [5, 2]);
    check(&Tensor::ones([2, 0]).matmul(&Tensor::ones([0, 1])), &[2, 1], &[0f32, 0.0]);
}

#[test]
fn batches_are_independent_products() {
    let (x, y) = (ramp(&[2, 2, 3]), ramp(&[2, 3, 2]) - 4.0);
    let z = x.matmul(&y);
    for b in 0..2 {
        check(&z.i(b), &[2, 2], &x.i(b).matmul(&y.i(b)).to_vec::<f32>().unwrap());
    }
}

#[test]
fn narrow_types_accumulate_wide() {
    let ones = Tensor::full([1, 3000], f16::ONE);
    check(&ones.matmul(&ones.t()), &[1, 1], &[f16::from_f32(3000.0)]);
    let bytes = Tensor::full([1, 100], 100i8);
    check(&bytes.matmul(&bytes.t()), &[1, 1], &[1_000_000]);
    assert_eq!(ones.cast(DType::BF16).matmul(&ones.t().cast(DType::BF16)).dtype(), DType::BF16);
}

#[test]
fn linear_matches_hand_computed_values() {
    let w = Tensor::new([[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let b = Tensor::new([10f32, 20.0, 30.0]);
    check(&Tensor::new([1f32, 1.0]).linear(&w, Some(&b)), &[3], &[13f32, 27.0, 41.0]);
    assert_eq!(Tensor::ones([4, 5, 2]).linear(&w, None).shape(), [4, 5, 3]);
}

/// Attention by three loops.
fn reference(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    (l, s, e): (usize, usize, usize),
    seen: impl Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let mut out = Vec::new();
    for i in 0..l {
        let scores: Vec<f64> = (0..s)
            .map(|j| (0..e).map(|c| q[i * e + c] * k[j * e + c]).sum::<f64>() / (e as f64).sqrt())
            .collect();
        let exp: Vec<f64> =
            (0..s).map(|j| if seen(i, j) { scores[j].exp() } else { 0.0 }).collect();
        let sum: f64 = exp.iter().sum();
        out.extend((0..e).map(|c| (0..s).map(|j| exp[j] * v[j * e + c]).sum::<f64>() / sum));
    }
    out
}

#[test]
fn attention_matches_three_loops() {
    let (l, s, e) = (3, 4, 2);
    let make = |n: usize, by: f64| -> Vec<f64> {
        (0..n).map(|i| ((i as f64 * by).sin() * 8.0).round() / 8.0).collect()
    };
    let (q, k, v) = (make(l * e, 1.3), make(s * e, 0.7), make(s * e, 2.1));
    let tensor = |data: &[f64], rows: usize| Tensor::from_slice(data, [rows, e]).cast(DType::F32);
    let (tq, tk, tv) = (tensor(&q, l), tensor(&k, s), tensor(&v, s));
    close(
        &tq.scaled_dot_product_attention(&tk, &tv, Attention::new()),
        &reference(&q, &k, &v, (l, s, e), |_, _| true),
        1e-5,
    );
    let causal = tq.scaled_dot_product_attention(&tk, &tv, Attention::new().causal());
    close(&causal, &reference(&q, &k, &v, (l, s, e), |i, j| j <= i), 1e-5);
    let mask = Tensor::ones([l, s]).tril(0).cast(DType::BOOL);
    close(
        &tq.scaled_dot_product_attention(&tk, &tv, Attention::new().mask(&mask)),
        &causal.cast(DType::F64).to_vec::<f64>().unwrap(),
        1e-6,
    );
    let bias = mask.where_(0.0, f64::NEG_INFINITY);
    close(
        &tq.scaled_dot_product_attention(&tk, &tv, Attention::new().mask(&bias)),
        &causal.cast(DType::F64).to_vec::<f64>().unwrap(),
        1e-6,
    );
}

#[test]
fn grouped_heads_share_their_keys() {
    let q = ramp(&[1, 4, 2, 3]) / 24.0;
    let k = ramp(&[1, 2, 5, 3]) / 30.0;
    let grouped = q.scaled_dot_product_attention(&k, &k, Attention::new().grouped().scale(1.0));
    let wide = k.repeat_interleave(2, 1);
    let plain = q.scaled_dot_product_attention(&wide, &wide, Attention::new().scale(1.0));
    assert_eq!(grouped.shape(), [1, 4, 2, 3]);
    assert_eq!(grouped.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
}
