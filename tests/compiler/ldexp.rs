//! `Ldexp` on every device against its definition, bit for bit, and the functions that use it: a
//! device with the instruction gives the same bits as one that multiplies.

use crate::common::devices;
use picograd::dtype::{Const, Scalar};
use picograd::ir::{Op, eval};
use picograd::testing::lacks;
use picograd::{DType, Tensor};

/// A function of the exponentials.
type Function = fn(&Tensor) -> Tensor;

/// Factors at which the class or the rounding of a product changes.
fn factors(dtype: DType) -> Vec<f64> {
    let tiny = if dtype == DType::F64 { f64::from_bits(1) } else { f32::from_bits(1) as f64 };
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 };
    let most = if dtype == DType::F64 { f64::MAX } else { f32::MAX as f64 };
    let all = [
        0.0,
        tiny,
        3.0 * tiny,
        least - tiny,
        least,
        least * 1.75,
        1e-30,
        0.1,
        0.5,
        0.75,
        1.0,
        1.5,
        1.999999,
        3.0,
        1e30,
        most,
        f64::INFINITY,
        f64::NAN,
    ];
    all.into_iter().flat_map(|x| [x, -x]).collect()
}

/// Exponents around the limits of the dtypes, some not integral.
fn exponents() -> Vec<f64> {
    let near = |at: i32| (-3..4).map(move |d| f64::from(at + d));
    let limits = [-2200, -2098, -1074, -1022, -300, -277, -149, -126, -102, -25, 0, 24, 127];
    let upper = [128, 254, 277, 300, 1023, 2046, 2098, 2200];
    let others = [0.5, -0.5, -126.5, 1e9, -1e9, 3e38, -3e38, f64::INFINITY, f64::NEG_INFINITY];
    limits.into_iter().chain(upper).flat_map(near).chain(others).chain([f64::NAN]).collect()
}

/// Computes the op on a device, for exponents that are known to be integers or not.
fn ldexp(device: &str, dtype: DType, x: &[f64], n: &[f64], integers: bool) -> Vec<Const> {
    let tensor = |v: &[f64]| Tensor::new(v).cast(dtype).to(device);
    let (x, n) = (tensor(x), tensor(n));
    let n = if integers { n.cast(DType::I32).cast(dtype) } else { n };
    let y = x.uop().binary(Op::Ldexp, n.uop());
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let y = unsafe { Tensor::from_uop_unchecked(y, x.device().clone()) };
    y.cast(DType::F64).to_vec::<f64>().unwrap().into_iter().map(Const::Float).collect()
}

#[test]
fn ldexp_is_exact_on_every_device() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for device in devices().iter().filter(|d| !lacks(d, [dtype])) {
            for integers in [false, true] {
                let exponents = exponents().into_iter();
                let exponents: Vec<f64> =
                    exponents.filter(|n| !integers || n.abs() < 1e6 && n.fract() == 0.0).collect();
                let rounded = |v: f64| Const::Float(v).cast(DType::F64, dtype).as_f64(dtype);
                let pairs: Vec<(f64, f64)> = factors(dtype)
                    .into_iter()
                    .flat_map(|x| exponents.iter().map(move |n| (rounded(x), rounded(*n))))
                    .collect();
                let (x, n): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
                let got = ldexp(device, dtype, &x, &n, integers);
                for ((x, n), got) in pairs.into_iter().zip(got) {
                    let want =
                        eval::alu(Op::Ldexp, dtype, dtype, &[Const::Float(x), Const::Float(n)]);
                    assert_eq!(
                        got.to_bits(DType::F64),
                        want.to_bits(DType::F64),
                        "{device}: {dtype} {x:e} · 2^{n:e} is {got:?}, expected {want:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_definition_rounds_once() {
    let ldexp = |scalar, x: f64, n: f64| {
        let dtype = DType { scalar, lanes: 1 };
        let args = [Const::Float(x), Const::Float(n)];
        eval::alu(Op::Ldexp, dtype, dtype, &args).as_f64(dtype)
    };
    let f32 = |x, n| ldexp(Scalar::F32, x, n) as f32;
    // Half of the least number is a tie with zero; above the tie it rounds up.
    assert_eq!(f32(1.0, -150.0), 0.0);
    assert_eq!(f32(1.0000001, -150.0), f32::from_bits(1));
    // Rounded to a subnormal in between, this would be a tie.
    let x = f64::from(f32::from_bits(0x0080_0001));
    assert_eq!(f32(x, -1.0), f32::from_bits(0x0040_0000));
    assert_eq!(f32(1.5, 127.5), 1.5 * 2f32.powi(127));
    assert_eq!(f32(f64::from(f32::from_bits(1)), 277.0), f32::INFINITY);
    assert_eq!(f32(f64::from(f32::from_bits(1)), 276.0), 2f32.powi(127));
    assert_eq!(ldexp(Scalar::F64, f64::from_bits(1), 2097.0), 2f64.powi(1023));
    assert_eq!(ldexp(Scalar::F64, f64::MAX, -2098.0), f64::from_bits(1));
    assert_eq!(ldexp(Scalar::F64, 1.5, -1074.0), f64::from_bits(2));
    assert_eq!(f32(0.0, f64::INFINITY).to_bits(), 0);
    assert_eq!(f32(f64::NEG_INFINITY, f64::NEG_INFINITY), f32::NEG_INFINITY);
    assert!(f32(f64::NAN, f64::INFINITY).is_nan() && f32(0.0, f64::NAN).is_nan());
}

#[test]
fn exponentials_have_the_same_bits_with_and_without_the_instruction() {
    // Every exponent and sign with 128 fractions.
    let x: Vec<f32> =
        (0..1u32 << 16).map(|i| f32::from_bits(i << 16 | i.wrapping_mul(40503) & 0xffff)).collect();
    let functions: [(&str, Function); 3] =
        [("exp", Tensor::exp), ("exp2", Tensor::exp2), ("pow", |x| x.abs().pow(x))];
    for (name, f) in functions {
        let run = |device: &str| -> Vec<u32> {
            let y = f(&Tensor::new(&x[..]).to(device).realize().unwrap()).to_vec::<f32>().unwrap();
            y.into_iter().map(|y| if y.is_nan() { u32::MAX } else { y.to_bits() }).collect()
        };
        let results: Vec<(String, Vec<u32>)> =
            devices().into_iter().map(|d| (d.clone(), run(&d))).collect();
        let Some(((first, want), others)) = results.split_first() else { return };
        for (device, got) in others {
            let wrong = (0..x.len()).find(|i| got[*i] != want[*i]);
            assert!(
                wrong.is_none(),
                "{name} of {:e} differs on {first} and {device}",
                x[wrong.unwrap()]
            );
        }
    }
}

/// Compares the instruction with C, which multiplies twice.
#[test]
#[ignore = "takes a minute: all 2^32 inputs"]
fn every_exponential_has_the_same_bits() {
    const STEP: usize = 1 << 26;
    let found = |name: &str| devices().into_iter().find(|d| d.contains(name));
    let (Some(x86), Some(c)) = (found("X86"), found("CLANG")) else { return };
    for f in [Tensor::exp, Tensor::exp2] {
        for start in (0..1usize << 32).step_by(STEP) {
            let x: Vec<f32> = (start..start + STEP).map(|i| f32::from_bits(i as u32)).collect();
            let x = Tensor::new(&x[..]);
            let [y, want] = [&x86, &c].map(|d| f(&x.to(d)).to_vec::<f32>().unwrap());
            let differs = |i: &usize| {
                y[*i].to_bits() != want[*i].to_bits() && !(y[*i].is_nan() && want[*i].is_nan())
            };
            let wrong = (0..STEP).find(differs).map(|i| f32::from_bits((start + i) as u32));
            assert!(wrong.is_none(), "the results for {wrong:?} differ");
        }
    }
}
