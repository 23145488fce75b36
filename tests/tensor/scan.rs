//! Running folds against loops, for lengths below and above a block and for several levels of blocks.

use super::{check, close};
use half::f16;
use picograd::{DType, Tensor};

fn noise(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + i % 1000 * (i % 1000) * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

fn running(x: &[f32], start: f64, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    x.iter()
        .scan(start, |acc, &v| {
            *acc = f(*acc, v as f64);
            Some(*acc)
        })
        .collect()
}

#[test]
fn every_length() {
    for n in [1, 2, 63, 128, 129, 200, 5000] {
        let x = noise(n);
        let t = Tensor::from_vec(x.clone(), [n]);
        // The error of a sum is one of the greatest sums on the way, not of itself.
        let sums = running(&x, 0.0, |a, b| a + b);
        let greatest = sums.iter().fold(1f64, |m, v| m.max(v.abs()));
        close(&t.cumsum(0), &sums, 1e-6 * greatest);
        close(&t.logcumsumexp(0), &running(&x, f64::NEG_INFINITY, |a, b| (a.exp() + b.exp()).ln()), 1e-5);
        check(&t.cummax(0).0, &[n], &running(&x, f64::NEG_INFINITY, f64::max).iter().map(|&v| v as f32).collect::<Vec<_>>());
        check(&t.cummin(0).0, &[n], &running(&x, f64::INFINITY, f64::min).iter().map(|&v| v as f32).collect::<Vec<_>>());
        let near_one: Vec<f32> = x.iter().map(|v| 1.0 + v * 0.01).collect();
        close(&Tensor::from_vec(near_one.clone(), [n]).cumprod(0), &running(&near_one, 1.0, |a, b| a * b), 1e-4);
        let ints: Vec<i32> = x.iter().map(|v| (v * 50.0) as i32).collect();
        let mut best = 0;
        let expected: Vec<i32> = (0..n)
            .map(|i| {
                if ints[i] >= ints[best] {
                    best = i;
                }
                best as i32
            })
            .collect();
        check(&Tensor::from_vec(ints, [n]).cummax(0).1, &[n], &expected);
    }
}

#[test]
fn a_million() {
    let n = 1 << 20;
    let x: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1000usize) as f32 / 1000.0).collect();
    let got = Tensor::from_vec(x.clone(), [n]).cumsum(0).to_vec::<f32>().unwrap();
    let mut sum = 0f64;
    let worst = x
        .iter()
        .zip(&got)
        .map(|(&v, &g)| {
            sum += v as f64;
            ((g as f64 - sum) / sum.max(1.0)).abs()
        })
        .fold(0.0, f64::max);
    assert!(worst < 1e-6, "the error is {worst}");
    let kernels = Tensor::from_vec(x, [n]).cumsum(0).schedule().unwrap().len();
    assert!(kernels <= 8, "{kernels} kernels");
}

#[test]
fn axes_and_dtypes() {
    let x = Tensor::new([[1, 2], [3, 4], [5, 6]]);
    check(&x.cumsum(0), &[3, 2], &[1, 2, 4, 6, 9, 12]);
    check(&x.cumsum(-1), &[3, 2], &[1, 3, 3, 7, 5, 11]);
    check(&x.t().cumsum(1), &[2, 3], &[1, 4, 9, 2, 6, 12]);
    check(&x.cumprod(0), &[3, 2], &[1, 2, 3, 8, 15, 48]);
    check(&Tensor::new([true, false, true]).cumsum(0), &[3], &[1, 1, 2]);
    check(&Tensor::full([300], 100i8).cumsum(0).i(-1), &[], &[30000]);
    let halves = Tensor::full([3000], f16::ONE).cumsum(0);
    check(&halves.i(-1), &[], &[f16::from_f32(3000.0)]);
    check::<f32>(&Tensor::zeros([0, 3]).cumsum(0), &[0, 3], &[]);
    assert_eq!(Tensor::zeros([2, 0]).cummax(1).1.dtype(), DType::I32);
    assert_eq!(x.logcumsumexp(0).dtype(), DType::F32);
    assert!(Tensor::from(1).try_cumsum(0).is_err());
    assert!(x.try_cumprod(2).is_err());
}

#[test]
fn nan_and_infinities() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::new([1f32, nan, 3.0, nan, 5.0]);
    let (values, places) = x.cummax(0);
    close(&values, &[1.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN], 0.0);
    check(&places, &[5], &[0, 1, 1, 3, 3]);
    check(&x.cummin(0).1, &[5], &[0, 1, 1, 3, 3]);
    check(&Tensor::new([1, 3, 3, 2]).cummax(0).1, &[4], &[0, 1, 2, 2]);
    check(&Tensor::new([-inf, -inf]).cummax(0).1, &[2], &[0, 1]);
    close(&Tensor::new([1f32, inf, 1.0, -inf]).cumsum(0), &[1.0, f64::INFINITY, f64::INFINITY, f64::NAN], 0.0);
    // What comes later does not reach back, not even by 0·inf.
    let mut late = vec![1f32; 300];
    late[250] = inf;
    let sums = Tensor::from_vec(late, [300]).cumsum(0).to_vec::<f32>().unwrap();
    assert!(sums[249] == 250.0 && sums[250] == inf && sums[299] == inf);
    let low = f64::NEG_INFINITY;
    close(&Tensor::new([-inf, -inf, 0.0]).logcumsumexp(0), &[low, low, 0.0], 0.0);
}

#[test]
fn gradients_of_scans() {
    let x = Tensor::from_vec(noise(200), [200]).as_param();
    let g = x.cumsum(0).sum(..).gradient(&[&x]).remove(0);
    check(&g, &[200], &(0..200).map(|i| (200 - i) as f32).collect::<Vec<_>>());
    let g = x.logcumsumexp(0).i(-1).gradient(&[&x]).remove(0);
    let sum: f64 = noise(200).iter().map(|&v| (v as f64).exp()).sum();
    close(&g, &noise(200).iter().map(|&v| (v as f64).exp() / sum).collect::<Vec<_>>(), 1e-5);
}
