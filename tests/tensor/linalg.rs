//! Matrix factorizations: products, orthogonality, and hand-computed values.

use super::common::noise;
use super::{assert_within, close};
use picograd::tensor::MatrixNorm;
use picograd::{DType, Tensor};

#[track_caller]
fn orthonormal_columns(q: &Tensor) {
    let n = q.size(-1);
    let product = q.transpose(-1, -2).matmul(q);
    assert_within(&product, &Tensor::eye(n, n).cast(q.dtype()).expand(product.shape()), 1e-5);
}

#[test]
fn qr_factors_multiply_back() {
    for shape in [vec![3, 3], vec![5, 3], vec![3, 5], vec![2, 4, 4], vec![1, 1], vec![4, 1]] {
        let x = noise(&shape);
        let (q, r) = x.qr();
        Tensor::realize_many(&[&q, &r]).unwrap();
        assert_within(&q.matmul(&r), &x, 1e-5);
        orthonormal_columns(&q);
        assert_within(&r, &r.triu(0), 0.0);
    }
    // The values of LAPACK, including signs.
    let (q, r) = Tensor::new([[3f32, 1.0], [4.0, 2.0]]).qr();
    close(&q, &[-0.6, -0.8, -0.8, 0.6], 1e-6);
    close(&r, &[-5.0, -2.2, 0.0, 0.4], 1e-6);
    let (q, r) = Tensor::new([[2f32, 1.0], [0.0, -3.0]]).qr();
    close(&q, &[1.0, 0.0, 0.0, 1.0], 0.0);
    close(&r, &[2.0, 1.0, 0.0, -3.0], 0.0);
    let (q, r) = Tensor::zeros([3, 2]).qr();
    orthonormal_columns(&q);
    close(&r, &[0.0; 4], 0.0);
    assert!(Tensor::zeros([3]).try_qr().is_err());
    assert_eq!(noise(&[2, 2]).cast(DType::F16).qr().0.dtype(), DType::F16);
}

#[test]
fn svd_factors_multiply_back() {
    for shape in
        [vec![4, 4], vec![5, 3], vec![3, 4], vec![2, 3, 2], vec![1, 1], vec![1, 3], vec![2, 2]]
    {
        let x = noise(&shape);
        let (u, s, v) = x.svd();
        Tensor::realize_many(&[&u, &s, &v]).unwrap();
        let back = (&u * s.unsqueeze(-2)).matmul(&v);
        assert_within(&back, &x, 2e-5);
        orthonormal_columns(&u);
        orthonormal_columns(&v.transpose(-1, -2));
        let list = s.to_vec::<f32>().unwrap();
        let k = s.size(-1);
        assert!(
            list.chunks(k)
                .all(|c| c.windows(2).all(|w| w[0] >= w[1] - 1e-6) && c.iter().all(|&v| v >= 0.0)),
            "{list:?}"
        );
    }
    // [[1, 1], [1, 1], [0, 0]] has the singular values 2 and 0, and orthonormal vectors.
    let (u, s, v) = Tensor::new([[1f32, 1.0], [1.0, 1.0], [0.0, 0.0]]).svd();
    close(&s, &[2.0, 0.0], 1e-6);
    orthonormal_columns(&u);
    orthonormal_columns(&v.t());
    let (u, s, v) = Tensor::zeros([3, 3]).svd();
    close(&s, &[0.0; 3], 0.0);
    orthonormal_columns(&u);
    orthonormal_columns(&v.t());
    let known = Tensor::new([[2f64, 0.0, 0.0], [0.0, 3.0, 4.0], [0.0, 4.0, 9.0]])
        .svd()
        .1
        .to_vec::<f64>()
        .unwrap();
    for (got, want) in known.iter().zip([11.0, 2.0, 1.0]) {
        assert!((got - want).abs() < 1e-13, "{known:?}");
    }
    assert!(Tensor::zeros([2]).try_svd().is_err());
}

#[test]
fn newton_schulz_is_nearly_orthogonal() {
    for shape in [[3, 5], [5, 3]] {
        let x = noise(&shape).newton_schulz(5, (3.4445, -4.775, 2.0315), 1e-7);
        assert_eq!(x.shape(), shape);
        let values = x.svd().1.to_vec::<f32>().unwrap();
        assert!(values.iter().all(|v| (0.6..1.3).contains(v)), "{values:?}");
    }
}

/// The gradient by finite differences, in f64.
fn differences(x: &Tensor, f: &dyn Fn(&Tensor) -> Tensor) -> Vec<f64> {
    let (values, shape, step) = (x.to_vec::<f64>().unwrap(), x.shape(), 1e-6);
    let at = |i: usize, by: f64| {
        let mut v = values.clone();
        v[i] += by;
        f(&Tensor::from_vec(v, &shape[..])).item::<f64>().unwrap()
    };
    (0..values.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect()
}

#[test]
fn gradients_of_qr_and_svd_match_differences() {
    let weigh = |t: &Tensor, by: f64| {
        (t * (t.square() + by) * Tensor::arange(1, t.size(-1) as i64 + 1, 1)).sum(..)
    };
    let of_qr = |x: &Tensor| {
        let (q, r) = x.qr();
        weigh(&q, 0.3) + weigh(&r, 0.7)
    };
    // Signs of singular vectors are not unique, so the loss does not depend on them.
    let of_svd = |x: &Tensor| {
        let (u, s, v) = x.svd();
        let middle = s.square().unsqueeze(-2);
        weigh(&s, 0.2)
            + weigh(&(&u * &middle).matmul(&u.transpose(-1, -2)), 0.1)
            + weigh(&(v.transpose(-1, -2) * middle).matmul(&v), 0.5)
    };
    for shape in [vec![3, 3], vec![4, 2], vec![2, 4], vec![2, 3, 2], vec![1, 1], vec![3, 1]] {
        let x = (noise(&shape).cast(DType::F64) * 1.3 + 0.1).realize().unwrap();
        for (name, f) in [("qr", &of_qr as &dyn Fn(&Tensor) -> Tensor), ("svd", &of_svd)] {
            let p = x.as_param();
            let g = f(&p).gradient(&[&p]).remove(0).to_vec::<f64>().unwrap();
            for (i, (a, b)) in g.iter().zip(differences(&x, f)).enumerate() {
                assert!(
                    (a - b).abs() <= 1e-5 * (1.0 + b.abs()),
                    "{name} of {shape:?}: element {i} is {a}, and by differences {b}"
                );
            }
        }
    }
}

#[test]
fn factors_of_larger_matrices_multiply_back() {
    let graded = |n: usize, rows: bool| {
        let scale = Tensor::from_vec(
            (0..n).map(|i| 10f32.powf(-6.0 * i as f32 / n as f32)).collect::<Vec<_>>(),
            if rows { [n, 1] } else { [1, n] },
        );
        noise(&[n, n]) * scale
    };
    for x in [
        noise(&[33, 17]),
        noise(&[2, 16, 16]),
        graded(24, true),
        graded(24, false),
        Tensor::ones([9, 9]),
        noise(&[5, 20]),
    ] {
        let (u, s, v) = x.svd();
        Tensor::realize_many(&[&u, &s, &v]).unwrap();
        orthonormal_columns(&u);
        orthonormal_columns(&v.transpose(-1, -2));
        let scale = x.abs().max(..).item::<f32>().unwrap();
        assert_within(&(&u * s.unsqueeze(-2)).matmul(&v), &x, 1e-5 * scale);
        let values = s.to_vec::<f32>().unwrap();
        assert!(
            values
                .chunks(s.size(-1))
                .all(|c| c.is_sorted_by(|a, b| a >= b) && c.iter().all(|v| *v >= 0.0)),
            "{values:?}"
        );
    }
}

#[test]
fn gradient_of_log_det_is_the_inverse() {
    // The product of the diagonal of R is the determinant up to its sign, and the gradient of its
    // logarithm is the transposed inverse.
    let x = Tensor::new([[3f32, 1.0], [4.0, 2.0]]).as_param();
    let g = x.qr().1.diagonal(0, 0, 1).abs().log().sum(..).gradient(&[&x]).remove(0);
    close(&g, &[1.0, -2.0, -0.5, 1.5], 1e-4);
}

/// The largest deviation of the columns from orthonormality.
fn off_orthonormal(q: &Tensor) -> f64 {
    let (q, n) = (q.cast(DType::F64), q.size(-1));
    let product = q.transpose(-1, -2).matmul(&q);
    (product - Tensor::eye(n, n).cast(DType::F64)).abs().max(..).item::<f64>().unwrap()
}

#[test]
fn singular_values_and_vectors_are_accurate() {
    let random = |n: usize| {
        let value = |i: usize| ((i * i * 31 + i * 7919) % 65_521) as f32 / 32_760.5 - 1.0;
        Tensor::from_vec((0..n * n).map(value).collect::<Vec<_>>(), [n, n]).realize().unwrap()
    };
    let decay = |n: usize| {
        Tensor::from_vec(
            (0..n).map(|i| 10f32.powf(-5.0 * i as f32 / n as f32)).collect::<Vec<_>>(),
            [1, n],
        )
    };
    for n in [2, 7, 16, 33, 64] {
        for x in [
            random(n),
            random(n) * decay(n),
            random(n).matmul(&(random(n) * decay(n))),
            random(n) * 1e-12,
        ] {
            let x = x.realize().unwrap();
            let ((u, s, v), (_, exact, _)) = (x.svd(), x.cast(DType::F64).svd());
            Tensor::realize_many(&[&u, &s, &v, &exact]).unwrap();
            let (s, exact) =
                (s.cast(DType::F64).to_vec::<f64>().unwrap(), exact.to_vec::<f64>().unwrap());
            for (a, b) in s.iter().zip(&exact) {
                assert!((a - b).abs() <= 2e-6 * exact[0], "{n}: {a} and {b} of {}", exact[0]);
            }
            for (name, off) in [("u", off_orthonormal(&u)), ("v", off_orthonormal(&v.t()))] {
                assert!(off <= 4e-6, "{n}: {name} is off by {off}");
            }
            let (u, _, v) = x.cast(DType::F64).svd();
            assert!(
                off_orthonormal(&u) <= 1e-13 && off_orthonormal(&v.t()) <= 1e-13,
                "{n}, in f64"
            );
        }
    }
}

#[test]
fn factors_of_nan_are_nan() {
    for (row, column) in [(0, 0), (2, 0), (1, 3), (3, 2)] {
        let mut values: Vec<f32> = (0..16).map(|i| (i * 7 % 5) as f32).collect();
        values[row * 4 + column] = f32::NAN;
        let x = Tensor::from_vec(values, [4, 4]);
        let (_, r) = x.qr();
        assert!(r.isnan().any(..).item::<bool>().unwrap(), "qr with NaN at {row}, {column}");
        let s = x.svd().1.to_vec::<f32>().unwrap();
        assert!(s.iter().all(|s| s.is_nan()), "svd with NaN at {row}, {column}: {s:?}");
    }
}

#[test]
fn gradients_of_equal_or_zero_singular_values_are_exact() {
    let (eye, low) = (Tensor::eye(3, 3), Tensor::new([[1f32, 2.0], [2.0, 4.0], [0.0, 0.0]]));
    for x in [eye, low, Tensor::zeros([2, 2]), noise(&[2, 3, 3])] {
        let x = x.as_param();
        let (u, s, v) = x.svd();
        // The sum of squared singular values is that of the elements.
        assert_within(&s.square().sum(..).gradient(&[&x]).remove(0), &(&x * 2.0), 1e-5);
        let back = (&u * s.unsqueeze(-2)).matmul(&v);
        let g = back.sum(..).gradient(&[&x]).remove(0);
        assert!(g.isfinite().all(..).item::<bool>().unwrap());
    }
}

const ORDERS: [MatrixNorm; 8] = [
    MatrixNorm::Frobenius,
    MatrixNorm::Nuclear,
    MatrixNorm::Order(1.0),
    MatrixNorm::Order(-1.0),
    MatrixNorm::Order(2.0),
    MatrixNorm::Order(-2.0),
    MatrixNorm::Order(f64::INFINITY),
    MatrixNorm::Order(f64::NEG_INFINITY),
];

#[test]
fn gradients_of_matrix_norms_match_differences() {
    for order in ORDERS {
        for shape in [&[3, 2][..], &[2, 4], &[2, 3, 3]] {
            // Sines, so that no two sums are equal.
            let x = (noise(shape).cast(DType::F64) * 1.7).sin().realize().unwrap().as_param();
            let f = |x: &Tensor| x.matrix_norm(order, [-1, 0]).square().sum(..);
            let got = f(&x).gradient(&[&x]).remove(0).to_vec::<f64>().unwrap();
            for (g, e) in got.iter().zip(differences(&x.detach(), &f)) {
                assert!(
                    (g - e).abs() < 1e-5 * (1.0 + e.abs()),
                    "{order:?} of {shape:?}: {g} and {e}"
                );
            }
            // The second gradient, along the first.
            let slope = |x: &Tensor| f(x).gradient(&[x]).remove(0);
            let along = noise(shape).cast(DType::F64) * 0.5;
            let got =
                (slope(&x) * &along).sum(..).gradient(&[&x]).remove(0).to_vec::<f64>().unwrap();
            let of_slope = |x: &Tensor| (slope(&x.detach().as_param()) * &along).sum(..);
            for (g, e) in got.iter().zip(differences(&x.detach(), &of_slope)) {
                assert!(
                    (g - e).abs() < 1e-4 * (1.0 + e.abs()),
                    "second gradient of {order:?} of {shape:?}: {g} and {e}"
                );
            }
        }
    }
}

#[test]
fn matrix_norms_of_zero_nan_and_huge_matrices_are_defined() {
    for order in ORDERS {
        // Ties at 0 share the gradient, which is finite.
        let zero = Tensor::zeros([2, 3]).as_param();
        let norm = zero.matrix_norm(order, ..);
        assert_eq!(norm.item::<f32>().unwrap(), 0.0, "{order:?}");
        assert!(norm.gradient(&[&zero])[0].isfinite().all(..).item::<bool>().unwrap(), "{order:?}");
        let bad = Tensor::new([[1.0f32, f32::NAN], [2.0, 3.0]]);
        assert!(bad.matrix_norm(order, ..).item::<f32>().unwrap().is_nan(), "{order:?}");
        // The result is rounded once from f32, and infinite beyond the range of f16.
        let narrow = Tensor::full([4, 4], 300.0).cast(DType::F16);
        let (own, wide) = (narrow.matrix_norm(order, ..), narrow.float().matrix_norm(order, ..));
        assert_eq!(
            (own.dtype(), own.float().item::<f32>().unwrap()),
            (DType::F16, wide.half().float().item::<f32>().unwrap()),
            "{order:?}"
        );
    }
}
