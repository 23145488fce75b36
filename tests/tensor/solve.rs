//! Linear systems: residuals at sizes beyond the fixtures, and edge cases.

use super::common::noise;
use super::{assert_within, close};
use picograd::{DType, Tensor};

fn unit(n: usize) -> Tensor {
    Tensor::eye(n, n)
}

#[test]
fn solutions_satisfy_their_systems() {
    for n in [1, 2, 5, 12] {
        let a = noise(&[2, n, n]) + unit(n) * 2.0;
        let b = noise(&[2, n, 3]);
        assert_within(&a.matmul(&a.solve(&b)), &b, 1e-4);
        assert_within(&a.matmul(&a.inverse()), &unit(n).expand([2, n, n]), 1e-4);
    }
}

#[test]
fn pivoting_exchanges_rows() {
    let a = Tensor::new([[0f32, 1.0], [1.0, 0.0]]);
    close(&a.inverse(), &[0.0, 1.0, 1.0, 0.0], 0.0);
    close(&a.det(), &[-1.0], 0.0);
    // Without pivoting the small pivot would lose all digits.
    let a = Tensor::new([[1e-8f32, 1.0], [1.0, 1.0]]);
    close(&a.solve(&Tensor::new([1f32, 2.0])), &[1.0, 1.0], 1e-6);
}

#[test]
fn singular_matrices_have_zero_determinant() {
    let a = Tensor::new([[1f32, 2.0], [2.0, 4.0]]).as_param();
    close(&a.det(), &[0.0], 0.0);
    let (sign, log) = a.slogdet();
    close(&sign, &[0.0], 0.0);
    assert_eq!(log.item::<f32>().unwrap(), f32::NEG_INFINITY);
    assert!(a.inverse().to_vec::<f32>().unwrap().iter().any(|x| !x.is_finite()));
    // The gradient of a determinant is the cofactor matrix, also for singular matrices.
    close(&a.det().gradient(&[&a])[0], &[4.0, -2.0, -2.0, 1.0], 1e-4);
    let zero = Tensor::new([[0f32]]).as_param();
    close(&zero.det().sum(..).gradient(&[&zero])[0], &[1.0], 0.0);
}

#[test]
fn right_hand_sides_broadcast() {
    let a = noise(&[3, 2, 2]) + unit(2) * 3.0;
    assert_eq!(a.solve(&noise(&[2])).shape(), [3, 2]);
    assert_eq!(a.solve(&noise(&[3, 2])).shape(), [3, 2]);
    assert_eq!(a.solve(&noise(&[2, 5])).shape(), [3, 2, 5]);
    assert_eq!(a.solve(&noise(&[4, 1, 2, 5])).shape(), [4, 3, 2, 5]);
    let wrong = a.try_solve(&noise(&[3, 5])).unwrap_err().to_string();
    assert!(wrong.starts_with("solve: ") && wrong.contains("2 rows"), "{wrong}");
    for error in [
        noise(&[2, 3]).try_inverse().unwrap_err(),
        noise(&[2, 3]).try_det().unwrap_err(),
        noise(&[2, 3]).try_cholesky(false).unwrap_err(),
        noise(&[2, 3]).try_eigh().unwrap_err(),
        noise(&[3]).try_pinv(None).unwrap_err(),
        noise(&[3]).try_lstsq(&noise(&[3])).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("square") || text.contains("two axes"), "{text}");
    }
}

#[test]
fn cholesky_and_eigh_factors_multiply_back() {
    for n in [1, 3, 8] {
        let x = noise(&[2, n, n]);
        let a = x.matmul(&x.transpose(-1, -2)) + unit(n);
        let l = a.cholesky(false);
        assert_within(&l.matmul(&l.transpose(-1, -2)), &a, 1e-4);
        assert_within(&l, &l.tril(0), 0.0);
        assert_within(&a.cholesky(true), &l.transpose(-1, -2), 0.0);
        // Only the lower triangle is read.
        assert_within(&a.tril(0).cholesky(false), &l, 0.0);
        let (values, vectors) = a.eigh();
        Tensor::realize_many(&[&values, &vectors]).unwrap();
        assert_within(
            &(&vectors * values.unsqueeze(-2)).matmul(&vectors.transpose(-1, -2)),
            &a,
            1e-4,
        );
        assert_within(
            &vectors.transpose(-1, -2).matmul(&vectors),
            &unit(n).expand([2, n, n]),
            1e-5,
        );
        assert!(values.shape() == [2, n]);
        assert_within(&values, &values.sort(-1, false).0, 0.0);
    }
    assert!(Tensor::new([[-1f32]]).cholesky(false).item::<f32>().unwrap().is_nan());
    // Eigenvalues of equal magnitude and opposite sign.
    let (values, _) = Tensor::new([[0f32, 1.0], [1.0, 0.0]]).eigh();
    close(&values, &[-1.0, 1.0], 1e-6);
    let (values, vectors) = Tensor::zeros([3, 3]).eigh();
    close(&values, &[0.0; 3], 0.0);
    assert_within(&vectors.t().matmul(&vectors), &unit(3), 1e-6);
}

#[test]
fn pseudoinverses_satisfy_the_penrose_conditions() {
    for shape in [[4, 2], [2, 4], [3, 3]] {
        let a = noise(&shape);
        let p = a.pinv(None);
        assert_within(&a.matmul(&p).matmul(&a), &a, 1e-4);
        assert_within(&p.matmul(&a).matmul(&p), &p, 1e-3);
        assert_within(&a.matmul(&p), &a.matmul(&p).t(), 1e-4);
        assert_within(&p.matmul(&a), &p.matmul(&a).t(), 1e-4);
        let b = noise(&[shape[0], 2]);
        assert_within(&a.lstsq(&b), &p.matmul(&b), 1e-3);
    }
    // Of rank one.
    let a = Tensor::new([[1f32, 2.0], [2.0, 4.0]]);
    close(&a.pinv(None), &[0.04, 0.08, 0.08, 0.16], 1e-6);
    close(&Tensor::zeros([2, 3]).pinv(None), &[0.0; 6], 0.0);
}

#[test]
fn empty_matrices_and_narrow_dtypes_are_supported() {
    let empty = Tensor::zeros([0, 0]);
    assert_eq!(empty.det().item::<f32>().unwrap(), 1.0);
    assert_eq!(empty.inverse().shape(), [0, 0]);
    assert_eq!(empty.cholesky(false).shape(), [0, 0]);
    assert_eq!((empty.eigh().0.shape(), empty.eigh().1.shape()), (vec![0], vec![0, 0]));
    assert_eq!(Tensor::zeros([0, 3]).pinv(None).shape(), [3, 0]);
    assert_eq!(Tensor::zeros([2, 0, 0]).det().to_vec::<f32>().unwrap(), [1.0, 1.0]);
    assert_eq!(empty.solve(&Tensor::zeros([0, 2])).shape(), [0, 2]);
    let half = (noise(&[2, 2]) + unit(2)).cast(DType::F16);
    assert_eq!(half.inverse().dtype(), DType::F16);
    assert_eq!(Tensor::new([[2, 0], [0, 4]]).det().dtype(), DType::F32);
}
