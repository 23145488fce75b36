//! Transposed convolution against its definition, pooling with indices, interpolation against
//! PyTorch.

use super::{check, close, ramp, small_integers};
use picograd::tensor::{Conv, Interpolate, Pool};
use picograd::{DType, Tensor};

/// One spatial axis: size, kernel, stride, dilation, padding, output padding.
type Axis = (usize, usize, usize, usize, (usize, usize), usize);

fn length((size, kernel, stride, dilation, (before, after), extra): Axis) -> usize {
    (size - 1) * stride + dilation * (kernel - 1) + 1 + extra - before - after
}

/// Each input element adds a multiple of the window to the output, where its stride places it.
fn reference(
    x: &[f64],
    w: &[f64],
    (n, ci, co, groups): (usize, usize, usize, usize),
    a: Axis,
    b: Axis,
) -> Vec<f64> {
    let (rows, cols, each) = (length(a), length(b), co / groups);
    let mut out = vec![0.0; n * co * rows * cols];
    for batch in 0..n {
        for c in 0..ci {
            for (p, q) in (0..a.0).flat_map(|p| (0..b.0).map(move |q| (p, q))) {
                for o in 0..each {
                    for (i, j) in (0..a.1).flat_map(|i| (0..b.1).map(move |j| (i, j))) {
                        let (y, z) = (
                            (p * a.2 + i * a.3).checked_sub(a.4.0),
                            (q * b.2 + j * b.3).checked_sub(b.4.0),
                        );
                        if let (Some(y), Some(z)) =
                            (y.filter(|&y| y < rows), z.filter(|&z| z < cols))
                        {
                            let channel = c / (ci / groups) * each + o;
                            out[((batch * co + channel) * rows + y) * cols + z] += x
                                [((batch * ci + c) * a.0 + p) * b.0 + q]
                                * w[((c * each + o) * a.1 + i) * b.1 + j];
                        }
                    }
                }
            }
        }
    }
    out
}

#[test]
fn transposed_convolutions_match_their_definition() {
    let axes: [Axis; 7] = [
        (3, 2, 1, 1, (0, 0), 0),
        (2, 3, 2, 1, (1, 1), 1),
        (4, 1, 3, 1, (0, 0), 2),
        (3, 2, 2, 3, (1, 2), 0),
        (3, 2, 1, 1, (1, 1), 0),
        (1, 3, 2, 2, (0, 1), 1),
        (4, 2, 2, 1, (2, 3), 0),
    ];
    for (i, &a) in axes.iter().enumerate() {
        let b = axes[(i * 3 + 1) % axes.len()];
        for (n, ci, co, groups) in [(1, 1, 1, 1), (2, 4, 6, 2)] {
            let x = small_integers(n * ci * a.0 * b.0, 7);
            let w = small_integers(ci * (co / groups) * a.1 * b.1, 5);
            let expected = reference(&x, &w, (n, ci, co, groups), a, b);
            let (tx, tw) = (
                Tensor::from_slice(&x, [n, ci, a.0, b.0]).float(),
                Tensor::from_slice(&w, [ci, co / groups, a.1, b.1]).float(),
            );
            let how = Conv::new()
                .stride([a.2, b.2])
                .dilation([a.3, b.3])
                .padding([a.4, b.4])
                .output_padding([a.5, b.5])
                .groups(groups);
            let got = tx.conv_transpose2d(&tw, how);
            assert_eq!(got.shape(), [n, co, length(a), length(b)]);
            close(&got, &expected, 0.0);
        }
    }
    let one = Tensor::new([[[1f32, 2.0]]])
        .conv_transpose2d(&Tensor::new([[[1f32, 10.0]]]), Conv::new().bias(&Tensor::new([100f32])));
    check(&one, &[1, 1, 3], &[101f32, 112.0, 120.0]);
    let says = |how: Conv| {
        Tensor::zeros([1, 2, 3, 3])
            .try_conv_transpose2d(&Tensor::zeros([2, 1, 2, 2]), how)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        says(Conv::new().output_padding(1)),
        "conv_transpose2d: output padding 1 is not less than the stride 1 or the dilation 1"
    );
    assert!(says(Conv::new().padding(2)).contains("leaves axis 2 empty"));
    assert!(says(Conv::new().groups(3)).contains("groups"));
    assert!(
        Tensor::zeros([1, 3, 3, 3])
            .try_conv_transpose2d(&Tensor::zeros([2, 1, 2, 2]), Conv::new())
            .is_err()
    );
}

#[test]
fn transposed_convolution_is_the_gradient() {
    let (x, w) = (ramp(&[1, 2, 7]).as_param(), ramp(&[3, 2, 3]));
    let y = x.conv2d(&w, Conv::new().stride(2).padding(1));
    let g = y.sum(..).gradient(&[&x]).remove(0);
    let back = y.ones_like().conv_transpose2d(&w, Conv::new().stride(2).padding(1));
    check(&g, &[1, 2, 7], &back.to_vec::<f32>().unwrap());
}

#[test]
fn max_pool_returns_the_first_index() {
    let x = Tensor::new([[[[1f32, 3.0, 3.0, 0.0], [2.0, 9.0, 9.0, 4.0], [5.0, 5.0, -1.0, -2.0]]]]);
    let go = |kernel: usize, how: Pool| x.max_pool2d_with_indices(kernel, how);
    let (v, p) = go(2, Pool::new().stride(1));
    check(&v, &[1, 1, 2, 3], &[9f32; 6]);
    check(&p, &[1, 1, 2, 3], &[5, 5, 6, 5, 5, 6]);
    let (v, p) = go(3, Pool::new().stride(2).padding(1));
    check(&v, &[1, 1, 2, 2], &[9f32; 4]);
    check(&p, &[1, 1, 2, 2], &[5, 5, 5, 5]);
    let (v, p) = go(2, Pool::new().ceil_mode());
    check(&v, &[1, 1, 2, 2], &[9f32, 9.0, 5.0, -1.0]);
    check(&p, &[1, 1, 2, 2], &[5, 6, 8, 10]);
    // If all elements equal the padding value, the index is still inside the tensor.
    let low = Tensor::full([1, 2, 2], f32::NEG_INFINITY);
    check(
        &low.max_pool2d_with_indices([2, 2], Pool::new().padding(1)).1,
        &[1, 2, 2],
        &[0, 1, 2, 3],
    );
    let (v, p) = go(2, Pool::new());
    check(
        &v.max_unpool2d(&p, 2, Pool::new(), Some([3, 4])),
        &[1, 1, 3, 4],
        &[0f32, 0., 0., 0., 0., 9., 9., 0., 0., 0., 0., 0.],
    );
    assert_eq!(v.max_unpool2d(&p, 2, Pool::new(), None).shape(), [1, 1, 2, 4]);
    assert!(v.try_max_unpool2d(&p.i(0), 2, Pool::new(), None).is_err());
    let two = Tensor::new([[[[1, 2], [3, 4]]], [[[8, 7], [6, 5]]]]);
    let (v, p) = two.max_pool2d_with_indices(2, Pool::new());
    check(&v.max_unpool2d(&p, 2, Pool::new(), None), &[2, 1, 2, 2], &[0, 0, 0, 4, 8, 0, 0, 0]);
}

#[test]
fn interpolate_matches_pytorch() {
    let x = ramp(&[1, 1, 3, 4]);
    let linear = [
        0.16667, 1.5, 2.83333, 1.76667, 3.1, 4.43333, 4.16667, 5.5, 6.83333, 6.56667, 7.9, 9.23333,
        8.16667, 9.5, 10.83333,
    ];
    close(&x.interpolate([5, 3], Interpolate::Linear, false), &linear, 1e-5);
    let aligned = [0.0, 1.5, 3.0, 2.0, 3.5, 5.0, 4.0, 5.5, 7.0, 6.0, 7.5, 9.0, 8.0, 9.5, 11.0];
    close(&x.interpolate([5, 3], Interpolate::Linear, true), &aligned, 1e-6);
    let rows = |rows: [usize; 5], cols: [usize; 7]| {
        rows.iter().flat_map(|r| cols.map(|c| (r * 4 + c) as f32)).collect::<Vec<_>>()
    };
    check(
        &x.interpolate([5, 7], Interpolate::Nearest, false),
        &[1, 1, 5, 7],
        &rows([0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2, 3]),
    );
    check(
        &x.interpolate([5, 7], Interpolate::NearestExact, false),
        &[1, 1, 5, 7],
        &rows([0, 0, 1, 2, 2], [0, 0, 1, 2, 2, 3, 3]),
    );
    check(
        &x.i(0).interpolate(2, Interpolate::NearestExact, false),
        &[1, 3, 2],
        &[1f32, 3., 5., 7., 9., 11.],
    );
    check(&x.i((0, 0)).interpolate([1, 1], Interpolate::Linear, true), &[1, 1], &[0f32]);
    check(
        &Tensor::new([7u8, 9]).interpolate(4, Interpolate::Nearest, false),
        &[4],
        &[7u8, 7, 9, 9],
    );
    assert_eq!(
        Tensor::new([7u8, 9]).interpolate(3, Interpolate::Linear, false).dtype(),
        DType::F32
    );
    assert_eq!(x.half().interpolate(3, Interpolate::Linear, false).dtype(), DType::F16);
    // The gradient of a pixel is the sum of its weights.
    let x = x.as_param();
    let g = x.interpolate([6, 8], Interpolate::Linear, false).sum(..).gradient(&[&x]).remove(0);
    close(&g.sum(..), &[48.0], 1e-6);
    assert!(x.try_interpolate([1, 1, 1, 1, 1], Interpolate::Nearest, false).is_err());
    assert!(x.try_interpolate([2, 2], Interpolate::Nearest, true).is_err());
    assert!(x.try_interpolate([0, 2], Interpolate::Nearest, false).is_err());
}
