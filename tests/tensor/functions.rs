//! Composite functions: special points, f64, and finite gradients where the true ones are finite.

use super::{check, close};
use picograd::tensor::Rounding;
use picograd::{DType, Tensor};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

#[test]
fn atan2_matches_f64() {
    let values = [0.0f32, -0.0, 1.0, -1.0, 0.5, -3.0, 1e-30, -1e30, INF, -INF, NAN];
    let n = values.len();
    let y = Tensor::from_vec(values.to_vec(), [n, 1]);
    let x = Tensor::from_vec(values.to_vec(), [1, n]);
    let got = y.atan2(&x).to_vec::<f32>().unwrap();
    for (i, &a) in values.iter().enumerate() {
        for (j, &b) in values.iter().enumerate() {
            let (g, e) = (got[i * n + j], (a as f64).atan2(b as f64) as f32);
            let near = g.is_nan() && e.is_nan()
                || g.signum() == e.signum() && (g - e).abs() <= 2e-7 * e.abs();
            assert!(near, "atan2({a}, {b}) is {g}, expected {e}");
        }
    }
}

#[test]
fn f64_functions_match_the_standard_library() {
    let xs: Vec<f64> = vec![
        -30.0,
        -2.5,
        -1.0,
        -0.99,
        -0.5,
        -0.3,
        -1e-9,
        1e-300,
        0.2,
        0.41,
        0.42,
        0.7,
        1.0 - 1e-12,
        1.0,
        1.0 + 1e-12,
        2.4,
        2.5,
        1e5,
        1e200,
    ];
    let t = Tensor::from_vec(xs.clone(), [xs.len()]);
    type Pair = (&'static str, fn(&Tensor) -> Tensor, fn(f64) -> f64);
    let functions: [Pair; 9] = [
        ("asin", Tensor::asin, f64::asin),
        ("acos", Tensor::acos, f64::acos),
        ("atan", Tensor::atan, f64::atan),
        ("asinh", Tensor::asinh, f64::asinh),
        ("acosh", Tensor::acosh, f64::acosh),
        ("atanh", Tensor::atanh, f64::atanh),
        ("log1p", Tensor::log1p, f64::ln_1p),
        ("sinh", Tensor::sinh, f64::sinh),
        ("cosh", Tensor::cosh, f64::cosh),
    ];
    for (name, call, oracle) in functions {
        let got = call(&t).to_vec::<f64>().unwrap();
        for (&x, &g) in xs.iter().zip(&got) {
            // `acosh` of the standard library cancels near 1; `log1p` does not.
            let e = if name == "acosh" && (1.0..2.0).contains(&x) {
                let t = x - 1.0;
                (t + (t * (x + 1.0)).sqrt()).ln_1p()
            } else {
                oracle(x)
            };
            let near = g == e || g.is_nan() && e.is_nan() || ((g - e) / e).abs() < 3e-14;
            assert!(near, "{name}({x}) is {g}, expected {e}");
        }
    }
}

#[test]
fn gradients_at_special_points_are_finite() {
    let gradient = |f: &dyn Fn(&Tensor) -> Tensor, at: &[f32]| {
        let x = Tensor::from_vec(at.to_vec(), [at.len()]).as_param();
        f(&x).sum(..).gradient(&[&x]).remove(0)
    };
    close(
        &gradient(&Tensor::atan, &[0.0, 1.0, -3.0, 1e20, -0.2]),
        &[1.0, 0.5, 0.1, 0.0, 1.0 / 1.04],
        1e-6,
    );
    close(&gradient(&Tensor::asin, &[0.0, 0.6, -0.8]), &[1.0, 1.25, 1.0 / 0.6], 1e-6);
    close(&gradient(&Tensor::acos, &[0.0, 0.6, -0.8]), &[-1.0, -1.25, -1.0 / 0.6], 1e-6);
    close(&gradient(&Tensor::asinh, &[0.0, 1e20, -0.75]), &[1.0, 0.0, 0.8], 1e-6);
    close(&gradient(&Tensor::acosh, &[1.25, 1e20]), &[1.0 / 0.75, 0.0], 1e-6);
    close(&gradient(&Tensor::atanh, &[0.0, 0.5, -0.5]), &[1.0, 4.0 / 3.0, 4.0 / 3.0], 1e-6);
    close(&gradient(&Tensor::log1p, &[0.0, 1.0, 1e-8]), &[1.0, 0.5, 1.0], 1e-6);
    close(&gradient(&Tensor::cosh, &[0.0, 1.0]), &[0.0, 1f64.sinh()], 1e-6);
    close(&gradient(&Tensor::sinh, &[0.0, 1.0]), &[1.0, 1f64.cosh()], 1e-6);
    let (y, x) = (
        Tensor::new([0f32, 1.0, -1.0, 0.0]).as_param(),
        Tensor::new([2f32, 1.0, 0.0, -2.0]).as_param(),
    );
    let g = y.atan2(&x).sum(..).gradient(&[&y, &x]);
    close(&g[0], &[0.5, 0.5, 0.0, -0.5], 1e-6);
    close(&g[1], &[0.0, -0.5, 1.0, 0.0], 1e-6);
    let x = Tensor::new([[0f32, 0.0], [3.0, 4.0]]).as_param();
    let g = x.normalize(2.0, 1, 1e-3).sum(..).gradient(&[&x]).remove(0);
    close(&g, &[1000.0, 1000.0, 0.2 - 7.0 * 3.0 / 125.0, 0.2 - 7.0 * 4.0 / 125.0], 1e-5);
    close(&gradient(&|x| x.softplus(1.0), &[0.0, 100.0, -100.0]), &[0.5, 1.0, 0.0], 1e-6);
    close(
        &gradient(&|x| x.elu(1.0), &[0.0, 100.0, -100.0, -1.0]),
        &[1.0, 1.0, 0.0, (-1f64).exp()],
        1e-6,
    );
    close(&gradient(&Tensor::mish, &[0.0, 100.0, -100.0]), &[0.6, 1.0, 0.0], 1e-6);
    close(&gradient(&Tensor::logsigmoid, &[0.0, 200.0, -200.0]), &[0.5, 0.0, 1.0], 1e-6);
}

#[test]
fn rounded_quotients_and_remainders_are_exact() {
    let (x, y) =
        (Tensor::new([7, -7, 7, -7, 5, i32::MIN, 6]), Tensor::new([2, 2, -2, -2, 0, -1, -3]));
    check(&x.div_rounded(&y, Rounding::Trunc), &[7], &[3, -3, -3, 3, 0, i32::MIN, -2]);
    check(&x.div_rounded(&y, Rounding::Floor), &[7], &[3, -4, -4, 3, 0, i32::MIN, -2]);
    check(&x.fmod(&y), &[7], &[1, -1, 1, -1, 0, 0, 0]);
    check(&Tensor::new([200u8]).fmod(7), &[1], &[4u8]);
    check(&Tensor::new([7.5f32, -7.5]).div_rounded(2.0, Rounding::Trunc), &[2], &[3f32, -3.0]);
    let (a, b) = (
        [5.5f32, -5.5, 5.5, -5.5, 1.0, 3.0, INF, 2.0, -1.0, 0.9999999],
        [2f32, 2.0, -2.0, -2.0, INF, 0.0, 1.0, NAN, -INF, 0.1],
    );
    let expected: Vec<f64> = a.iter().zip(&b).map(|(x, y)| (x % y) as f64).collect();
    close(&Tensor::new(a).fmod(Tensor::new(b)), &expected, 1e-7);
    assert!(Tensor::new([true]).try_fmod(Tensor::new([true])).is_err());
    assert!(Tensor::new([true]).try_div_rounded(Tensor::new([true]), Rounding::Trunc).is_err());
}

#[test]
fn normalize_and_glu_match_hand_computed_values() {
    let x = Tensor::new([[3f32, -4.0], [0.0, 0.0]]);
    close(&x.normalize(2.0, 1, 1e-12), &[0.6, -0.8, 0.0, 0.0], 1e-7);
    close(&x.normalize(1.0, 1, 1e-12), &[3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0], 1e-7);
    close(&x.normalize(3.0, 1, 1e-12).i(0), &[3.0 / 91f64.cbrt(), -4.0 / 91f64.cbrt()], 1e-6);
    close(&x.normalize(f64::INFINITY, 1, 1.0), &[0.75, -1.0, 0.0, 0.0], 1e-7);
    assert!(x.try_normalize(0.0, 1, 1.0).is_err());
    check(&x.glu(1), &[2, 1], &[3.0 * (1.0 / (1.0 + 4f32.exp())), 0.0]);
    assert_eq!(
        x.i(0..1).try_glu(0).unwrap_err().to_string(),
        "glu: axis 0 of [1, 2] has size 1; expected an even size"
    );
    assert!(Tensor::try_usum(&[]).is_err());
    let (var, mean) = Tensor::new([[1, 3], [2, 6]]).var_mean(1, 1);
    check(&var, &[2], &[2f32, 8.0]);
    check(&mean, &[2], &[2f32, 4.0]);
    assert_eq!(x.cast(DType::F16).std_mean(.., 0).0.dtype(), DType::F16);
}
