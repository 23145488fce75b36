//! Scans against loops, for lengths below and above a block and for several levels of blocks.

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
fn scans_of_every_length_match_loops() {
    for n in [1, 2, 63, 128, 129, 200, 5000] {
        let x = noise(n);
        let t = Tensor::from_vec(x.clone(), [n]);
        // The error is relative to the largest partial sum.
        let sums = running(&x, 0.0, |a, b| a + b);
        let greatest = sums.iter().fold(1f64, |m, v| m.max(v.abs()));
        close(&t.cumsum(0), &sums, 1e-6 * greatest);
        close(
            &t.logcumsumexp(0),
            &running(&x, f64::NEG_INFINITY, |a, b| (a.exp() + b.exp()).ln()),
            1e-5,
        );
        check(
            &t.cummax(0).0,
            &[n],
            &running(&x, f64::NEG_INFINITY, f64::max).iter().map(|&v| v as f32).collect::<Vec<_>>(),
        );
        check(
            &t.cummin(0).0,
            &[n],
            &running(&x, f64::INFINITY, f64::min).iter().map(|&v| v as f32).collect::<Vec<_>>(),
        );
        let near_one: Vec<f32> = x.iter().map(|v| 1.0 + v * 0.01).collect();
        close(
            &Tensor::from_vec(near_one.clone(), [n]).cumprod(0),
            &running(&near_one, 1.0, |a, b| a * b),
            1e-4,
        );
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
fn a_million_terms_sum_accurately() {
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
fn scans_support_all_axes_and_dtypes() {
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
    assert!(Tensor::from(1).try_cumsum(1).is_err());
    assert!(x.try_cumprod(2).is_err());
}

#[test]
fn nan_and_infinities_spread_only_forward() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::new([1f32, nan, 3.0, nan, 5.0]);
    let (values, places) = x.cummax(0);
    close(&values, &[1.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN], 0.0);
    check(&places, &[5], &[0, 1, 1, 3, 3]);
    check(&x.cummin(0).1, &[5], &[0, 1, 1, 3, 3]);
    check(&Tensor::new([1, 3, 3, 2]).cummax(0).1, &[4], &[0, 1, 2, 2]);
    check(&Tensor::new([-inf, -inf]).cummax(0).1, &[2], &[0, 1]);
    close(
        &Tensor::new([1f32, inf, 1.0, -inf]).cumsum(0),
        &[1.0, f64::INFINITY, f64::INFINITY, f64::NAN],
        0.0,
    );
    // Later elements do not affect earlier results, not even through 0·inf.
    let mut late = vec![1f32; 300];
    late[250] = inf;
    let sums = Tensor::from_vec(late, [300]).cumsum(0).to_vec::<f32>().unwrap();
    assert!(sums[249] == 250.0 && sums[250] == inf && sums[299] == inf);
    let low = f64::NEG_INFINITY;
    close(&Tensor::new([-inf, -inf, 0.0]).logcumsumexp(0), &[low, low, 0.0], 0.0);
}

#[test]
fn gradients_of_scans_match_their_definitions() {
    let x = Tensor::from_vec(noise(200), [200]).as_param();
    let g = x.cumsum(0).sum(..).gradient(&[&x]).remove(0);
    check(&g, &[200], &(0..200).map(|i| (200 - i) as f32).collect::<Vec<_>>());
    let g = x.logcumsumexp(0).i(-1).gradient(&[&x]).remove(0);
    let sum: f64 = noise(200).iter().map(|&v| (v as f64).exp()).sum();
    close(&g, &noise(200).iter().map(|&v| (v as f64).exp() / sum).collect::<Vec<_>>(), 1e-5);
}

/// The running extreme and its index: the last of equal elements, and NaN wins.
fn best(x: &[f32], least: bool) -> (Vec<f32>, Vec<i32>) {
    let (mut value, mut place) = (if least { f32::INFINITY } else { f32::NEG_INFINITY }, 0);
    let step = |(i, &v): (usize, &f32)| {
        let wins = if least { v <= value } else { v >= value };
        if v.is_nan() || (!value.is_nan() && wins) {
            (value, place) = (v, i as i32);
        }
        (value, place)
    };
    x.iter().enumerate().map(step).unzip()
}

#[test]
fn running_extremes_match_loops() {
    // Ties, both zeros, infinities and NaN; lengths of several blocks and a partial one.
    for n in [1usize, 7, 300, 2100] {
        let special = [0.0, -0.0, 1.5, -2.0, f32::INFINITY, f32::NEG_INFINITY];
        let mut x: Vec<f32> =
            (0..n).map(|i| special[(i * 31 + i / 7) % if i < n / 2 { 4 } else { 6 }]).collect();
        if n == 300 {
            (x[120], x[200]) = (f32::NAN, f32::NAN);
        }
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            let t = Tensor::from_vec(x.clone(), [n]).cast(dtype);
            for least in [false, true] {
                let (values, places) = if least { t.cummin(0) } else { t.cummax(0) };
                let (v, p) = best(&x, least);
                assert_eq!(values.dtype(), dtype);
                close(&values.float(), &v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>(), 0.0);
                check(&places, &[n], &p);
            }
        }
    }
    // The extreme integers.
    let t = Tensor::new([0i64, i64::MIN, i64::MAX, i64::MAX, 5]);
    check(&t.cummax(0).0, &[5], &[0i64, 0, i64::MAX, i64::MAX, i64::MAX]);
    check(&t.cummin(0).1, &[5], &[0, 1, 1, 1, 1]);
    let t = Tensor::new([0i32, i32::MIN, i32::MAX, i32::MIN]);
    check(&t.cummin(0).0, &[4], &[0i32, i32::MIN, i32::MIN, i32::MIN]);
    check(&t.cummax(0).1, &[4], &[0, 0, 2, 2]);
    check(&Tensor::new([3u8, 255, 0]).cummin(0).0, &[3], &[3u8, 3, 0]);
    check(&Tensor::new([-3i8, -128, 127]).cummax(0).0, &[3], &[-3i8, -3, 127]);
}

#[test]
fn scans_of_long_axes_match_loops() {
    // An odd length, so that the last block is padded; along each of three axes, and reversed.
    let shape = [2usize, 2053, 3];
    let x: Vec<i32> =
        (0..shape.iter().product::<usize>()).map(|i| (i * 7919 % 23) as i32 - 11).collect();
    let t = Tensor::from_vec(x.clone(), shape);
    for axis in 0..3usize {
        let inner: usize = shape[axis + 1..].iter().product();
        let mut expected = x.clone();
        for i in 0..x.len() {
            if !(i / inner).is_multiple_of(shape[axis]) {
                expected[i] = expected[i].wrapping_add(expected[i - inner]);
            }
        }
        check(&t.cumsum(axis as isize), &shape, &expected);
        check(&t.flip(axis as isize).flip(axis as isize).cumsum(axis as isize), &shape, &expected);
    }
}

#[test]
fn scan_work_is_linear_in_the_length() {
    // One kernel for a short axis; for a long one block totals, their scan, and the final pass, and
    // two more for many totals.
    let kernels = |n: usize, f: &dyn Fn(&Tensor) -> Tensor| {
        f(&Tensor::from_vec(noise(n), [n]).realize().unwrap()).schedule().unwrap().len()
    };
    let sum = |x: &Tensor| x.cumsum(0);
    assert_eq!((kernels(500, &sum), kernels(100_000, &sum), kernels(1_000_000, &sum)), (1, 3, 5));
    let best = |x: &Tensor| x.cummax(0).1;
    assert_eq!(
        (kernels(500, &best), kernels(100_000, &best), kernels(1_000_000, &best)),
        (1, 3, 5)
    );
    // Adjacent rows need no blocks: one kernel with rows as lanes.
    assert_eq!(Tensor::from_vec(noise(64_000), [1000, 64]).cumsum(0).schedule().unwrap().len(), 1);
    // A cast and a scale are fused into the scan; costlier ops have their own vectorized kernel.
    let x = Tensor::from_vec(noise(500), [500]);
    assert_eq!((x.cumsum(0) * 2.0).schedule().unwrap().len(), 1);
    assert_eq!(x.cumsum(0).sin().schedule().unwrap().len(), 2);
}

#[test]
fn exact_sums_do_not_depend_on_blocks() {
    let x: Vec<f32> = (0..5000).map(|i| (i % 13) as f32).collect();
    let mut sum = 0.0;
    let expected: Vec<f32> = x
        .iter()
        .map(|v| {
            sum += v;
            sum
        })
        .collect();
    check(&Tensor::from_vec(x, [5000]).cumsum(0), &[5000], &expected);
}

#[test]
fn gradients_go_to_the_reported_indices() {
    let x = Tensor::new([1f32, 3.0, 3.0, 2.0, 5.0]).as_param();
    let (values, places) = x.cummax(0);
    check(&places, &[5], &[0, 1, 2, 2, 4]);
    let w = Tensor::new([1f32, 10.0, 100.0, 1000.0, 10000.0]);
    let g = (&values * &w).sum(..).gradient(&[&x]).remove(0);
    check(&g, &[5], &[1f32, 10.0, 1100.0, 0.0, 10000.0]);
    // The same after realizing values and indices, separately or together, also of a computed
    // argument.
    for which in 0..4 {
        let a = Tensor::from_vec(noise(40 * 40), [40, 40]).as_param();
        let y = a.matmul(&a.t());
        let (values, places) = y.cummax(1);
        match which {
            1 => drop(values.realize().unwrap()),
            2 => drop(places.realize().unwrap()),
            3 => Tensor::realize_many(&[&values, &y]).unwrap(),
            _ => {}
        }
        let g = values.sum(..).gradient(&[&a]).remove(0);
        // The number of times that each element is reported, weighted by the product.
        let at = places.to_vec::<i32>().unwrap();
        let count = |i: usize| {
            at[i / 40 * 40..(i / 40 + 1) * 40].iter().filter(|&&p| p as usize == i % 40).count()
                as f32
        };
        let counts = Tensor::from_vec((0..1600).map(count).collect::<Vec<_>>(), [40, 40]);
        let expected = (&counts + counts.t()).matmul(&a.detach()).to_vec::<f32>().unwrap();
        close(&g, &expected.iter().map(|&v| f64::from(v)).collect::<Vec<_>>(), 1e-4);
    }
    // An infinite gradient stays in its segment.
    let w = Tensor::new([1f32, f32::INFINITY, 1.0, 1.0, 1.0]);
    let g = (x.cummax(0).0 * w).sum(..).gradient(&[&x]).remove(0);
    check(&g, &[5], &[1f32, f32::INFINITY, 2.0, 0.0, 1.0]);
}

#[test]
fn gradients_of_products_with_zeros_are_exact() {
    let n = 50;
    let mut x = noise(n);
    x.iter_mut().for_each(|v| *v += 1.2);
    for zeros in [vec![], vec![20], vec![20, 31]] {
        zeros.iter().for_each(|&z| x[z] = 0.0);
        let t = Tensor::from_vec(x.clone(), [n]).as_param();
        let g = t.cumprod(0).sum(..).gradient(&[&t]).remove(0).to_vec::<f32>().unwrap();
        for (i, g) in g.iter().enumerate() {
            // The sum of the cofactors of the element in all products that contain it.
            let mut p: f64 = x[..i].iter().map(|&v| f64::from(v)).product();
            let mut slope = p;
            x[i + 1..].iter().for_each(|&v| {
                p *= f64::from(v);
                slope += p;
            });
            assert!(
                (f64::from(*g) - slope).abs() <= 1e-5 * (1.0 + slope.abs()),
                "{zeros:?} {i}: {g} {slope}"
            );
        }
    }
}

#[test]
fn scans_accept_empty_axes() {
    let none = Tensor::zeros([3, 0]);
    for axis in [0, 1] {
        assert!(none.cumsum(axis).to_vec::<f32>().unwrap().is_empty());
        assert_eq!(none.cumprod(axis).shape(), [3, 0]);
        assert!(none.cummin(axis).0.to_vec::<f32>().unwrap().is_empty());
        assert!(none.logcumsumexp(axis).to_vec::<f32>().unwrap().is_empty());
    }
    let p = Tensor::zeros([0]).as_param();
    let all = p.cumsum(0) + p.cumprod(0) + p.cummax(0).0;
    assert_eq!(all.sum(..).gradient(&[&p]).remove(0).shape(), [0]);
}
