//! Windows, convolution and pooling against hand-computed values.

use super::{check, close, ramp, small_integers};
use half::f16;
use picograd::Tensor;
use picograd::tensor::{Conv, Pool};

/// One axis: size, kernel, stride, dilation, padding.
type Axis = (usize, usize, usize, usize, (usize, usize));

fn count((size, kernel, stride, dilation, (before, after)): Axis) -> usize {
    (size + before + after - dilation * (kernel - 1) - 1) / stride + 1
}

/// The position on the axis of element `k` of window `o`, unless it is padding.
fn place((size, _, stride, dilation, (before, _)): Axis, o: usize, k: usize) -> Option<usize> {
    (o * stride + k * dilation).checked_sub(before).filter(|&i| i < size)
}

/// Convolution of two spatial axes by seven loops.
fn reference(
    x: &[f64],
    w: &[f64],
    (n, ci, co, groups): (usize, usize, usize, usize),
    a: Axis,
    b: Axis,
) -> Vec<f64> {
    let each = ci / groups;
    let mut out = Vec::new();
    for (batch, o) in (0..n).flat_map(|batch| (0..co).map(move |o| (batch, o))) {
        for (y, z) in (0..count(a)).flat_map(|y| (0..count(b)).map(move |z| (y, z))) {
            let mut sum = 0.0;
            for c in 0..each {
                let channel = o / (co / groups) * each + c;
                for (i, j) in (0..a.1).flat_map(|i| (0..b.1).map(move |j| (i, j))) {
                    if let (Some(p), Some(q)) = (place(a, y, i), place(b, z, j)) {
                        sum += x[((batch * ci + channel) * a.0 + p) * b.0 + q]
                            * w[((o * each + c) * a.1 + i) * b.1 + j];
                    }
                }
            }
            out.push(sum);
        }
    }
    out
}

#[test]
fn convolutions_match_seven_loops() {
    let axes: [Axis; 9] = [
        (5, 3, 1, 1, (0, 0)),
        (5, 1, 2, 1, (0, 0)),
        (6, 2, 2, 1, (1, 0)),
        (7, 3, 2, 1, (1, 1)),
        (7, 2, 1, 3, (0, 2)),
        (4, 2, 5, 1, (0, 0)),
        (9, 2, 5, 2, (0, 0)),
        (5, 5, 1, 1, (2, 2)),
        (3, 3, 3, 1, (0, 0)),
    ];
    for (i, &a) in axes.iter().enumerate() {
        let b = axes[(i * 4 + 3) % axes.len()];
        for (n, ci, co, groups) in [(1, 1, 1, 1), (2, 4, 2, 2)] {
            let x = small_integers(n * ci * a.0 * b.0, 7);
            let w = small_integers(co * (ci / groups) * a.1 * b.1, 5);
            let tx = Tensor::from_slice(&x, [n, ci, a.0, b.0]).cast(picograd::DType::F32);
            let tw = Tensor::from_slice(&w, [co, ci / groups, a.1, b.1]).cast(picograd::DType::F32);
            let how = Conv::new()
                .stride([a.2, b.2])
                .dilation([a.3, b.3])
                .padding([a.4, b.4])
                .groups(groups);
            let out = tx.conv2d(&tw, how);
            assert_eq!(out.shape(), [n, co, count(a), count(b)], "{a:?} and {b:?}");
            close(&out, &reference(&x, &w, (n, ci, co, groups), a, b), 0.0);
        }
    }
}

#[test]
fn convolutions_support_one_and_three_axes_and_bias() {
    let x = ramp(&[1, 1, 5]);
    let bias = Tensor::new([100f32]);
    check(
        &x.conv2d(&Tensor::new([[[1f32, 0.0, -1.0]]]), Conv::new().bias(&bias)),
        &[1, 1, 3],
        &[98f32; 3],
    );
    let y = ramp(&[1, 1, 2, 2, 2]).conv2d(&Tensor::ones([3, 1, 2, 2, 2]), Conv::new());
    check(&y, &[1, 3, 1, 1, 1], &[28f32; 3]);
}

#[test]
fn narrow_convolutions_accumulate_wide() {
    let x = Tensor::full([1, 3000, 1], f16::ONE);
    check(
        &x.conv2d(&Tensor::full([1, 3000, 1], f16::ONE), Conv::new()),
        &[1, 1, 1],
        &[f16::from_f32(3000.0)],
    );
}

#[test]
fn max_pools_match_hand_computed_values() {
    let x = ramp(&[1, 1, 4, 4]) - 100.0;
    check(&x.max_pool2d(2, Pool::new()), &[1, 1, 2, 2], &[-95f32, -93.0, -87.0, -85.0]);
    // Padding is less than every element.
    check(
        &x.max_pool2d(2, Pool::new().padding(1)),
        &[1, 1, 3, 3],
        &[-100f32, -98.0, -97.0, -92.0, -90.0, -89.0, -88.0, -86.0, -85.0],
    );
    check(
        &x.max_pool2d([1, 2], Pool::new().stride([3, 1]).dilation([1, 3])),
        &[1, 1, 2, 1],
        &[-97f32, -85.0],
    );
    let ints = Tensor::new([[i32::MIN, 1], [2, 3]]);
    check(
        &ints.max_pool2d([2, 2], Pool::new().padding([(1, 0), (0, 1)]).stride(1)),
        &[2, 2],
        &[1, 1, 3, 3],
    );
}

#[test]
fn ceil_mode_keeps_a_partial_last_window() {
    let x = ramp(&[1, 1, 1, 5]);
    check(&x.max_pool2d([1, 2], Pool::new()), &[1, 1, 1, 2], &[1f32, 3.0]);
    check(&x.max_pool2d([1, 2], Pool::new().ceil_mode()), &[1, 1, 1, 3], &[1f32, 3.0, 4.0]);
    check(&x.avg_pool2d([1, 2], Pool::new().ceil_mode()), &[1, 1, 1, 3], &[0.5f32, 2.5, 4.0]);
    // A window that would start beyond the input is dropped.
    assert_eq!(x.max_pool2d([1, 1], Pool::new().stride([1, 4]).ceil_mode()).shape(), [1, 1, 1, 2]);
    assert_eq!(x.max_pool2d([1, 1], Pool::new().stride([1, 5]).ceil_mode()).shape(), [1, 1, 1, 1]);
}

#[test]
fn mean_pools_match_hand_computed_values() {
    let x = ramp(&[1, 1, 4, 4]);
    check(&x.avg_pool2d(2, Pool::new()), &[1, 1, 2, 2], &[2.5f32, 4.5, 10.5, 12.5]);
    let ones = Tensor::ones([1, 1, 2, 2]);
    check(&ones.avg_pool2d(2, Pool::new().padding(1)), &[1, 1, 2, 2], &[0.25f32; 4]);
    check(&ones.avg_pool2d(2, Pool::new().padding(1).exclude_padding()), &[1, 1, 2, 2], &[1f32; 4]);
    check(&Tensor::new([[1, 2], [3, 5]]).avg_pool2d([2, 2], Pool::new()), &[1, 1], &[2.75f32]);
}

/// Unsorted numbers between -2 and 2. The random generator is process-wide, and another test needs
/// a known state of it.
fn mixed(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::from_vec(
        (0..n).map(|i| ((i + seed) * 7919 % 1009) as f32 / 252.0 - 2.0).collect(),
        shape,
    )
}

/// Winograd's method against the sum of products: odd sizes, groups, padding, small floats,
/// gradients.
#[test]
fn winograd_matches_the_direct_convolution() {
    for (x, w, how) in [
        ([2, 3, 8, 8], [4, 3, 3, 3], Conv::new()),
        ([1, 4, 7, 9], [6, 2, 3, 3], Conv::new().groups(2).padding(1)),
        ([3, 1, 3, 5], [2, 1, 3, 3], Conv::new().bias(&Tensor::new([0.5f32, -1.0]))),
        ([1, 2, 6, 11], [2, 2, 3, 3], Conv::new().padding([2, 1])),
    ] {
        let (x, w) = (mixed(&x, 1).as_param(), mixed(&w, 500).as_param());
        let (plain, fast) =
            (x.conv2d(&w, how.clone().winograd(false)), x.conv2d(&w, how.clone().winograd(true)));
        assert_eq!(plain.shape(), fast.shape());
        // Winograd uses other kernels than the direct convolution.
        assert!(fast.schedule().unwrap().len() > plain.schedule().unwrap().len());
        let weight = mixed(&plain.shape(), 77);
        for (a, b) in [(&plain, &fast)].into_iter().map(|(a, b)| (a.clone(), b.clone())).chain(
            plain
                .gradient_with(&weight, &[&x, &w])
                .unwrap()
                .into_iter()
                .zip(fast.gradient_with(&weight, &[&x, &w]).unwrap()),
        ) {
            let expected: Vec<f64> =
                a.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
            close(&b, &expected, 1e-4);
        }
        let half = x.detach().half().conv2d(&w.detach().half(), how.clone().winograd(true));
        assert_eq!(
            half.dtype(),
            x.detach().half().conv2d(&w.detach().half(), how.winograd(false)).dtype()
        );
        let expected: Vec<f64> =
            plain.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
        close(&half.float(), &expected, 2e-2);
    }
    // Unsuitable convolutions use the direct method.
    let (x, w) = (ramp(&[1, 1, 9, 9]), ramp(&[1, 1, 3, 3]));
    for how in [Conv::new().stride(2), Conv::new().dilation(2)] {
        let same = x.conv2d(&w, how.clone()).to_vec::<f32>().unwrap();
        check(&x.conv2d(&w, how.clone().winograd(true)), &x.conv2d(&w, how).shape(), &same);
    }
    let ints = Tensor::new([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]);
    check(&ints.conv2d(&ints, Conv::new().winograd(true)), &[1, 1, 1, 1], &[285]);
    // A window that does not fit gives the same error.
    let small = Tensor::zeros([1, 1, 2, 5]);
    let e = small.try_conv2d(&w, Conv::new().winograd(true)).unwrap_err().to_string();
    assert_eq!(e, small.try_conv2d(&w, Conv::new().winograd(false)).unwrap_err().to_string());
}
