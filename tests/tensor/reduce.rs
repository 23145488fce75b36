//! Reductions over axes and statistics.

use super::{check, close, ramp};
use half::f16;
use picograd::tensor::keepdim;
use picograd::{DType, Tensor};

const NAN: f32 = f32::NAN;

#[test]
fn sums_and_products() {
    let x = Tensor::new([[1, 2, 3], [4, 5, 6]]);
    check(&x.sum(..), &[], &[21]);
    check(&x.sum(0), &[3], &[5, 7, 9]);
    check(&x.sum([0, -1]), &[], &[21]);
    check(&x.sum(keepdim(..)), &[1, 1], &[21]);
    check(&x.sum(keepdim([1])), &[2, 1], &[6, 15]);
    check(&x.sum(()), &[2, 3], &[1, 2, 3, 4, 5, 6]);
    check(&x.prod(1), &[2], &[6, 120]);
    check(&Tensor::zeros([0, 2]).sum(0), &[2], &[0f32, 0.0]);
    check(&Tensor::from(5).sum(..), &[], &[5]);
}

#[test]
fn sums_accumulate_wide() {
    let of = |dtype: DType| Tensor::ones([2]).cast(dtype).sum(..).dtype();
    assert_eq!(
        (of(DType::BOOL), of(DType::I8), of(DType::U8)),
        (DType::I32, DType::I32, DType::U32)
    );
    assert_eq!(
        (of(DType::I64), of(DType::F16), of(DType::BF16)),
        (DType::I64, DType::F16, DType::BF16)
    );
    check(&Tensor::full([300], 100i8).sum(..), &[], &[30000]);
    // An f16 accumulator of ones would stop at 2048.
    check(&Tensor::full([3000], f16::ONE).sum(..), &[], &[f16::from_f32(3000.0)]);
    check(&Tensor::new([true, true, false]).sum(..), &[], &[2]);
}

#[test]
fn extremes_propagate_nan() {
    let x = Tensor::new([[1f32, -2.0], [NAN, 4.0]]);
    close(&x.max(1), &[1.0, f64::NAN], 0.0);
    close(&x.min(1), &[-2.0, f64::NAN], 0.0);
    check(&Tensor::new([[1u8, 200]]).max(-1), &[1], &[200u8]);
    check(&Tensor::new([true, false]).max(..), &[], &[true]);
}

#[test]
fn means_and_variances_match_hand_computed_values() {
    let x = Tensor::new([[1, 2, 3], [4, 5, 9]]);
    check(&x.mean(..), &[], &[4f32]);
    check(&x.mean(1), &[2], &[2f32, 6.0]);
    check(&x.var(1, 1), &[2], &[1f32, 7.0]);
    close(&x.var(1, 0), &[2.0 / 3.0, 14.0 / 3.0], 1e-6);
    close(&x.std(keepdim(1), 1), &[1.0, 7f64.sqrt()], 1e-6);
    assert_eq!(Tensor::ones([2]).cast(DType::F16).mean(..).dtype(), DType::F16);
    check(&Tensor::full([70000], f16::ONE).mean(..), &[], &[f16::ONE]);
    assert!(Tensor::zeros([0]).mean(..).item::<f32>().unwrap().is_nan());
}

#[test]
fn any_and_all_match_hand_computed_values() {
    let x = Tensor::new([[0, 2], [1, 3]]);
    check(&x.any(1), &[2], &[true, true]);
    check(&x.all(1), &[2], &[false, true]);
    check(&x.all(..), &[], &[false]);
    check(&Tensor::zeros([0]).all(..), &[], &[true]);
    check(&Tensor::zeros([0]).any(..), &[], &[false]);
}

#[test]
fn argmax_returns_the_first() {
    let x = Tensor::new([[3f32, 1.0, 3.0], [NAN, 0.0, NAN]]);
    check(&x.argmax(1), &[2], &[0, 0]);
    check(&x.argmin(1), &[2], &[1, 0]);
    check(&x.argmax(..), &[], &[3]);
    check(&x.argmax(keepdim(1)), &[2, 1], &[0, 0]);
    check(&x.argmax(keepdim(..)), &[1, 1], &[3]);
    check(&Tensor::new([[1, 9], [5, 2]]).argmax(0), &[2], &[1, 0]);
    check(&Tensor::new([i32::MIN, i32::MIN]).argmax(0), &[], &[0]);
    check(&Tensor::new([false, true, true]).argmax(0), &[], &[1]);
}

#[test]
fn softmaxes_match_their_definitions() {
    let x = Tensor::new([[1f32, 2.0, 3.0]]);
    let e = [1f64.exp(), 2f64.exp(), 3f64.exp()];
    let sum: f64 = e.iter().sum();
    close(&x.softmax(-1), &e.map(|v| v / sum), 1e-6);
    close(&x.log_softmax(-1), &e.map(|v| (v / sum).ln()), 1e-6);
    close(&(-&x).softmin(1), &e.map(|v| v / sum), 1e-6);
    close(&x.logsumexp(-1), &[sum.ln()], 1e-6);
    close(&x.softmax(0), &[1.0, 1.0, 1.0], 0.0);
    let far = Tensor::new([[-1000f32, 0.0, 1000.0]]);
    close(&far.softmax(-1), &[0.0, 0.0, 1.0], 0.0);
    close(&far.log_softmax(-1), &[-2000.0, -1000.0, 0.0], 1e-6);
    let inf = f64::INFINITY;
    close(
        &Tensor::new([[inf as f32, 0.0], [-inf as f32, -inf as f32]]).logsumexp(1),
        &[inf, -inf],
        0.0,
    );
    assert_eq!(x.cast(DType::F16).softmax(-1).dtype(), DType::F16);
    assert_eq!(Tensor::new([1, 2]).softmax(0).dtype(), DType::F32);
    assert_eq!(Tensor::zeros([2, 0]).softmax(-1).shape(), [2, 0]);
}

#[test]
fn norms_match_their_definitions() {
    let x = ramp(&[2, 4]);
    let row = [-1.5f64, -0.5, 0.5, 1.5].map(|v| v / (1.25f64 + 1e-5).sqrt());
    close(&x.layernorm(-1, 1e-5), &[row, row].concat(), 1e-5);
    close(
        &Tensor::new([[3f32, 4.0]]).rmsnorm(-1, 0.0),
        &[3.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt()],
        1e-6,
    );
}

/// Long rows without a useful divisor have the same values and still take two kernels.
#[test]
fn long_rows_of_any_length_are_two_kernels() {
    let value = |i: usize| (i * 7919 % 1009) as i64 - 500;
    for shape in [
        vec![32_771usize],
        vec![65_537],
        vec![100_003],
        vec![3, 40_009],
        vec![40_009, 3],
        vec![499, 499],
        vec![2, 211, 223],
    ] {
        let n: usize = shape.iter().product();
        let all: Vec<i64> = (0..n).map(value).collect();
        let x = Tensor::from_vec(all.clone(), &shape[..]).realize().unwrap();
        check(&x.sum(..), &[], &[all.iter().sum::<i64>()]);
        check(&x.max(..), &[], &[*all.iter().max().unwrap()]);
        check(&x.min(..), &[], &[*all.iter().min().unwrap()]);
        // The last element counts, in every dtype.
        let odd = Tensor::from_vec(
            (0..n).map(|i| if i == n - 1 { 3i64 } else { 1 }).collect::<Vec<_>>(),
            &shape[..],
        );
        check(&odd.prod(..), &[], &[3i64]);
        check(&odd.cast(DType::F16).max(..), &[], &[f16::from_f32(3.0)]);
        close(&x.cast(DType::F32).sum(..), &[all.iter().sum::<i64>() as f64], 1e-3);
        let kernels = x.sum(..).schedule().unwrap().len();
        assert!(kernels == 2, "{shape:?}: {kernels} kernels");
        if let [rows, columns] = shape[..] {
            let of = |r: usize| all[r * columns..(r + 1) * columns].iter().sum::<i64>();
            check(&x.sum(1), &[rows], &(0..rows).map(of).collect::<Vec<_>>());
            let of = |c: usize| all.iter().skip(c).step_by(columns).sum::<i64>();
            check(&x.sum(0), &[columns], &(0..columns).map(of).collect::<Vec<_>>());
        }
    }
    let x =
        Tensor::from_vec((0..40_009).map(|i| i as f32 / 40_009.0).collect::<Vec<_>>(), [40_009])
            .realize()
            .unwrap()
            .as_param();
    let g = x.square().sum(..).gradient(&[&x]).remove(0);
    close(&g.i(40_008), &[2.0 * 40_008.0 / 40_009.0], 1e-6);
    let nan = Tensor::from_vec(
        (0..40_009).map(|i| if i == 40_008 { NAN } else { 1.0 }).collect::<Vec<f32>>(),
        [40_009],
    );
    assert!(
        nan.max(..).item::<f32>().unwrap().is_nan() && nan.sum(..).item::<f32>().unwrap().is_nan()
    );
}
