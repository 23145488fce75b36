//! Accuracy of the functions on the devices, through tensors: the largest error in ulp against f64.
//!
//! `f32` over the whole range, all exponents and signs equally; `f16` and `bf16` on all inputs. A
//! wrong class (NaN, infinity) or the wrong sign of a zero is an infinite error. There is no
//! absolute tolerance: small results count as much as large ones.

use crate::common::{self, devices, stored};
use crate::oracle::{self, Pairs, ulp_error};
use picograd::dtype::Const;
use picograd::ir::{Group, Op};
use picograd::{DType, Tensor};

/// A function of one argument: the call on a tensor, the oracle, and its bound in f32.
struct Function {
    name: &'static str,
    call: fn(&Tensor) -> Tensor,
    oracle: fn(f64) -> f64,
    ulp: f64,
}

const fn function(
    name: &'static str,
    call: fn(&Tensor) -> Tensor,
    oracle: fn(f64) -> f64,
    ulp: f64,
) -> Function {
    Function { name, call, oracle, ulp }
}

const FUNCTIONS: &[Function] = &[
    function("exp", Tensor::exp, f64::exp, 2.0),
    function("exp2", Tensor::exp2, f64::exp2, 2.0),
    function("log", Tensor::log, f64::ln, 2.0),
    function("log2", Tensor::log2, f64::log2, 2.0),
    function("sin", Tensor::sin, f64::sin, 2.0),
    function("cos", Tensor::cos, f64::cos, 2.0),
    function("tan", Tensor::tan, f64::tan, 4.0),
    function("tanh", Tensor::tanh, f64::tanh, 2.0),
    function("sigmoid", Tensor::sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 2.0),
    function("erf", Tensor::erf, oracle::erf, 4.0),
    function("rsqrt", Tensor::rsqrt, |x| 1.0 / x.sqrt(), 2.0),
    function("sqrt", Tensor::sqrt, f64::sqrt, 0.5),
    function("recip", Tensor::reciprocal, |x| 1.0 / x, 0.5),
    function("log1p", Tensor::log1p, f64::ln_1p, 4.0),
    function("log10", Tensor::log10, f64::log10, 4.0),
    function("sinh", Tensor::sinh, f64::sinh, 4.0),
    function("cosh", Tensor::cosh, f64::cosh, 4.0),
    function("asin", Tensor::asin, f64::asin, 4.0),
    function("acos", Tensor::acos, f64::acos, 4.0),
    function("atan", Tensor::atan, f64::atan, 4.0),
    function("asinh", Tensor::asinh, f64::asinh, 4.0),
    function("acosh", Tensor::acosh, f64::acosh, 4.0),
    function("atanh", Tensor::atanh, f64::atanh, 4.0),
    function("exp10", Tensor::exp10, |x| 10f64.powf(x), 4.0),
    function("expm1", Tensor::expm1, f64::exp_m1, 4.0),
    function("silu", Tensor::silu, |x| x * sigmoid(x), 4.0),
    function("swish", Tensor::swish, |x| x * sigmoid(x), 4.0),
    function("gelu", Tensor::gelu, |x| x * normal_cdf(x), 4.0),
    function(
        "gelu_tanh",
        Tensor::gelu_tanh,
        |x| x * sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x * x)),
        4.0,
    ),
    function("quick_gelu", Tensor::quick_gelu, |x| x * sigmoid(1.702 * x), 4.0),
    function("mish", Tensor::mish, mish, 4.0),
    function("softplus", |x| x.softplus(1.0), softplus, 4.0),
    function("softplus(3)", |x| x.softplus(3.0), |x| softplus(3.0 * x) / 3.0, 4.0),
    function("softplus(0.1)", |x| x.softplus(0.1), |x| softplus(0.1 * x) / 0.1, 4.0),
    function("logsigmoid", Tensor::logsigmoid, |x| -softplus(-x), 4.0),
    function("elu", |x| x.elu(1.0), |x| if x > 0.0 { x } else { x.exp_m1() }, 4.0),
    function("elu(0.3)", |x| x.elu(0.3), |x| if x > 0.0 { x } else { 0.3 * x.exp_m1() }, 4.0),
    function(
        "celu(1.3)",
        |x| x.celu(1.3),
        |x| if x > 0.0 { x } else { 1.3 * (x / 1.3).exp_m1() },
        4.0,
    ),
    function(
        "selu",
        Tensor::selu,
        |x| SELU * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() },
        4.0,
    ),
    function(
        "leaky_relu(0.01)",
        |x| x.leaky_relu(0.01),
        |x| if x > 0.0 { x } else { 0.01 * x },
        1.0,
    ),
    function("relu", Tensor::relu, |x| if x < 0.0 { 0.0 } else { x }, 0.0),
    function("relu6", Tensor::relu6, |x| if x.is_nan() { x } else { x.clamp(0.0, 6.0).abs() }, 0.0),
    function(
        "hardtanh",
        Tensor::hardtanh,
        |x| if x == 0.0 { 0.0 } else { x.clamp(-1.0, 1.0) },
        0.0,
    ),
    function("tanhshrink", Tensor::tanhshrink, tanhshrink, 4.0),
    function("softshrink(0.5)", |x| x.softshrink(0.5), |x| shrunk(x, x - 0.5 * x.signum()), 0.5),
    function("hardshrink(0.5)", |x| x.hardshrink(0.5), |x| shrunk(x, x), 0.0),
    function(
        "threshold(0.5; 2)",
        |x| x.threshold(0.5, 2.0),
        |x| if x <= 0.5 { 2.0 } else { x },
        0.0,
    ),
    function(
        "glu",
        |x| Tensor::stack(&[x.clone(), x.clone()], 0).glu(0).squeeze(0),
        |x| x * sigmoid(x),
        4.0,
    ),
    function("softsign", Tensor::softsign, |x| x / (1.0 + x.abs()), 4.0),
    function("hardsigmoid", Tensor::hardsigmoid, |x| (x + 3.0).clamp(0.0, 6.0).abs() / 6.0, 4.0),
    function("hardswish", Tensor::hardswish, |x| x * ((x + 3.0).clamp(0.0, 6.0).abs() / 6.0), 4.0),
];

const SELU: f64 = 1.0507009873554805;

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// `x - tanh(x)`, near zero by its series, because the difference cancels in f64 too.
fn tanhshrink(x: f64) -> f64 {
    if x.abs() < 0.03 {
        x * x * x * (1.0 / 3.0 - x * x * (2.0 / 15.0 - x * x * (17.0 / 315.0)))
    } else {
        x - x.tanh()
    }
}

/// `outside` if |x| is above one half, else 0.
fn shrunk(x: f64, outside: f64) -> f64 {
    if x.abs() <= 0.5 { 0.0 } else { outside }
}

fn mish(x: f64) -> f64 {
    let e = x.min(300.0).exp();
    let n = e * (e + 2.0);
    if x.is_nan() { x } else { x * (n / (n + 2.0)) }
}

/// The number of inputs on a device; slow devices get fewer.
fn inputs_on(device: &str) -> usize {
    if device == "INTERP" { 1 << 14 } else { 1 << 16 }
}

/// Inputs distributed equally over the 512 signs and exponents, including both ends of each binade.
fn stratified(count: usize) -> Vec<f32> {
    let each = (count / 512) as u32;
    let fraction = move |k: u32| {
        if k + 1 == each {
            0x7f_ffff
        } else {
            k * (0x80_0000 / each)
                + if k == 0 { 0 } else { (k * k).wrapping_mul(0x9e37) % (0x80_0000 / each) }
        }
    };
    (0..512u32)
        .flat_map(|top| (0..each).map(move |k| f32::from_bits(top << 23 | fraction(k))))
        .collect()
}

fn tensor(values: &[f32], device: &str) -> Tensor {
    Tensor::from_slice(values, [values.len()]).to(device).realize().unwrap()
}

/// The results for a list whose length vectors divide. A second run with one more element, an odd
/// length (a prime for 2¹⁶), uses scalar code and must give the same bits.
fn run(name: &str, device: &str, inputs: &[&[f32]], f: &dyn Fn(&[Tensor]) -> Tensor) -> Vec<f32> {
    let at = |extra: usize| {
        let tensors: Vec<Tensor> = inputs
            .iter()
            .map(|v| {
                tensor(
                    &v.iter().copied().chain(std::iter::repeat_n(1.0, extra)).collect::<Vec<f32>>(),
                    device,
                )
            })
            .collect();
        f(&tensors).to_vec::<f32>().unwrap()
    };
    let (whole, odd) = (at(0), at(1));
    for (i, (x, y)) in whole.iter().zip(&odd).enumerate() {
        let same = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
        let at: Vec<f32> = inputs.iter().map(|v| v[i]).collect();
        assert!(same, "{name}{at:?} on {device} is {x:e} in vector code and {y:e} in scalar code");
    }
    whole
}

/// The largest error and its index.
fn worst(errors: impl Iterator<Item = f64>) -> (f64, usize) {
    errors
        .enumerate()
        .map(|(i, e)| (e, i))
        .reduce(|a, b| if b.0 > a.0 { b } else { a })
        .expect("some inputs")
}

/// Prints a row of the table, and records a failure if the error exceeds the bound.
fn judge(
    failures: &mut Vec<String>,
    name: &str,
    device: &str,
    dtype: DType,
    worst: f64,
    bound: f64,
    at: &str,
) {
    println!("| {name:8} | {device:6} | {dtype:4} | {worst:.3} | {bound} | {at} |");
    if worst > bound {
        failures.push(format!(
            "{name} in {dtype} on {device} is off by {worst} ulp at {at}, more than {bound}"
        ));
    }
}

#[track_caller]
fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The bounds of `docs/semantics.md`: for each composite function in f32 and in narrower floats.
fn documented() -> Vec<(String, f64, f64)> {
    let text = include_str!("../../docs/semantics.md");
    let section = text
        .split("## Composite functions")
        .nth(1)
        .and_then(|rest| rest.split("The functions of this table").next())
        .expect("the section");
    let mut rows = Vec::new();
    for line in section.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| function")) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, wide, narrow] = columns[..] else { panic!("a row has three columns: {line}") };
        rows.extend(names.split(", ").map(|n| {
            (n.to_string(), wide.parse().expect("a bound"), narrow.parse().expect("a bound"))
        }));
    }
    rows
}

/// The bound in narrow floats: the documented one, or 1.
fn narrow_bound(name: &str) -> f64 {
    documented().iter().find(|row| row.0 == name).map_or(1.0, |row| row.2)
}

#[test]
fn bounds_match_the_docs() {
    let rows = documented();
    assert!(rows.len() >= 30, "{} rows", rows.len());
    for (name, wide, _) in &rows {
        let f = FUNCTIONS
            .iter()
            .find(|f| f.name == name)
            .unwrap_or_else(|| panic!("{name} is not measured"));
        assert_eq!(f.ulp, *wide, "the bound of {name}");
    }
    let first = FUNCTIONS.iter().position(|f| f.name == "log1p").expect("the first composite");
    for f in &FUNCTIONS[first..] {
        assert!(
            rows.iter().any(|row| row.0 == f.name),
            "docs/semantics.md has no bound for {}",
            f.name
        );
    }
}

/// The transcendental ops, and the names of their functions.
fn transcendental() -> impl Iterator<Item = (Op, String)> {
    let ops = Op::ALL.iter().copied().filter(|op| op.is(Group::Transcendental));
    ops.map(|op| (op, op.name().to_lowercase()))
}

#[test]
fn bounds_match_the_table_of_ops() {
    // `f32_pow_keeps_its_bound` reads the table.
    for (op, name) in transcendental().filter(|(op, _)| *op != Op::Pow) {
        let f = FUNCTIONS.iter().find(|f| f.name == name);
        let f = f.unwrap_or_else(|| panic!("{name} is not measured"));
        assert_eq!(f.ulp, f64::from(op.ulp()), "the bound of {name}");
    }
}

#[test]
fn documented_bounds_of_ops_match_the_table_of_ops() {
    let text = include_str!("../../docs/semantics.md");
    let section = text.split("## Functions").nth(1).expect("the section");
    let sentence = section.split("(`tests/compiler/ulp.rs`)").next().expect("the sentence");
    let (two, four) = sentence.split_once("4 ulp").expect("both bounds");
    for (op, name) in transcendental() {
        let bound = [(2, two), (4, four)].into_iter().find(|b| b.1.contains(&format!("`{name}`")));
        assert_eq!(bound.map(|b| b.0), Some(op.ulp()), "docs/semantics.md: the bound of {name}");
    }
    // The measured errors of the functions in `src/math`.
    let measured = include_str!("../../src/math/mod.rs");
    for (op, name) in transcendental() {
        let row = measured.lines().find_map(|l| l.strip_prefix(&format!("//! | {name} | ")));
        let row = row.unwrap_or_else(|| panic!("src/math/mod.rs has no error of {name}"));
        let error: f64 = row.split(' ').next().and_then(|e| e.parse().ok()).expect("an error");
        assert!(error <= op.ulp().into(), "the error of {name}, {error}, is above {}", op.ulp());
    }
}

#[test]
fn f32_functions_keep_their_bounds() {
    let mut failures = Vec::new();
    for device in devices() {
        let x = stratified(inputs_on(&device));
        for f in FUNCTIONS {
            let y = run(f.name, &device, &[&x], &|t| (f.call)(&t[0]));
            let (error, i) =
                worst(x.iter().zip(&y).map(|(x, y)| ulp_error(*y, (f.oracle)(*x as f64))));
            judge(&mut failures, f.name, &device, DType::F32, error, f.ulp, &format!("{:e}", x[i]));
        }
    }
    report(&failures);
}

#[test]
fn f32_pow_keeps_its_bound() {
    let mut failures = Vec::new();
    for device in devices() {
        let (x, y): (Vec<f32>, Vec<f32>) = Pairs(0).take(inputs_on(&device)).unzip();
        let z = run("pow", &device, &[&x, &y], &|t| t[0].pow(&t[1]));
        let (error, i) = worst(
            x.iter().zip(&y).zip(&z).map(|((x, y), z)| ulp_error(*z, (*x as f64).powf(*y as f64))),
        );
        judge(
            &mut failures,
            "pow",
            &device,
            DType::F32,
            error,
            Op::Pow.ulp().into(),
            &format!("{:e}^{:e}", x[i], y[i]),
        );
    }
    report(&failures);
}

/// Division and square root are correctly rounded, so their bits equal those of the host.
#[test]
fn division_and_square_root_are_correctly_rounded() {
    for device in devices() {
        let x = stratified(inputs_on(&device));
        // A stride coprime to the length pairs almost all exponents.
        let y: Vec<f32> = (0..x.len()).map(|i| x[(i * 40503 + 12345) % x.len()]).collect();
        let check = |name: &str, got: Vec<f32>, want: &dyn Fn(f32, f32) -> f32| {
            for (i, got) in got.iter().enumerate() {
                let want = want(x[i], y[i]);
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(
                    same,
                    "{name}({:e}, {:e}) on {device} is {got:e}, expected {want:e}",
                    x[i], y[i]
                );
            }
        };
        let two: [&[f32]; 2] = [&x, &y];
        check("div", run("div", &device, &two, &|t| &t[0] / &t[1]), &|x, y| x / y);
        check("add", run("add", &device, &two, &|t| &t[0] + &t[1]), &|x, y| x + y);
        check("sub", run("sub", &device, &two, &|t| &t[0] - &t[1]), &|x, y| x - y);
        check("mul", run("mul", &device, &two, &|t| &t[0] * &t[1]), &|x, y| x * y);
        // A product and a sum round twice: they are not contracted.
        check("muladd", run("muladd", &device, &two, &|t| &t[0] * &t[1] + &t[0]), &|x, y| {
            x * y + x
        });
        check("sqrt", run("sqrt", &device, &[&x], &|t| t[0].sqrt()), &|x, _| x.sqrt());
    }
}

/// The error of `got`, a 16-bit float, in units of the spacing at `want`. The spacing continues
/// past the largest value.
fn narrow_error(got: f64, want: f64, dtype: DType) -> f64 {
    let (digits, least, most) = if dtype == DType::F16 { (10, -14, 15) } else { (7, -126, 127) };
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let rounded = Const::Float(want).cast(DType::F64, dtype).as_f64(dtype);
    if got == rounded {
        let wrong_zero = got == 0.0 && got.is_sign_negative() != want.is_sign_negative();
        let exact = got.is_infinite() || want == got;
        if wrong_zero || exact {
            return if wrong_zero { f64::INFINITY } else { 0.0 };
        }
    } else if got.is_infinite()
        || rounded.is_infinite()
        || (got != 0.0 && (got < 0.0) != (want < 0.0))
    {
        return f64::INFINITY;
    }
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(least, most);
    (got - want).abs() / 2f64.powi(exponent - digits)
}

/// Every value of both 16-bit floats. One rounding at the end hides nearly all of the f32 error: 1
/// ulp is more than enough.
#[test]
fn narrow_float_functions_keep_their_bounds() {
    let mut failures = Vec::new();
    for device in devices() {
        for dtype in [DType::F16, DType::BF16] {
            let x: Vec<Const> = (0..1u64 << 16).map(|c| Const::from_bits(c, dtype)).collect();
            let t = stored(&x, dtype, &[x.len()], &device);
            for f in FUNCTIONS {
                let y = common::computed(&(f.call)(&t));
                let error = |(x, y): (&Const, &Const)| {
                    narrow_error(y.as_f64(dtype), (f.oracle)(x.as_f64(dtype)), dtype)
                };
                let (error, i) = worst(x.iter().zip(&y).map(error));
                judge(
                    &mut failures,
                    f.name,
                    &device,
                    dtype,
                    error,
                    narrow_bound(f.name),
                    &format!("{}", x[i]),
                );
            }
        }
    }
    report(&failures);
}

/// The standard normal distribution function in f64, precise for large negative arguments too: the
/// series of [`erf`] and the continued fraction of the complement.
fn normal_cdf(x: f64) -> f64 {
    let a = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    if x.is_nan() || a < 2.0 {
        return 0.5 + 0.5 * oracle::erf(x * std::f64::consts::FRAC_1_SQRT_2);
    }
    let fraction = (1..=200).rev().fold(a, |acc, k| a + 0.5 * k as f64 / acc);
    let tail = 0.25 * std::f64::consts::FRAC_2_SQRT_PI * (-0.5 * x * x).exp() / fraction;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Functions whose gradient is accurate near zero and for large arguments: the derivative, and the
/// bound in ulp of f32.
const GRADIENTS: &[Function] = &[
    function("elu", |x| x.elu(1.0), |x| if x > 0.0 { 1.0 } else { x.exp() }, 4.0),
    function("celu(1.3)", |x| x.celu(1.3), |x| if x > 0.0 { 1.0 } else { (x / 1.3).exp() }, 128.0),
    function(
        "selu",
        Tensor::selu,
        |x| SELU * if x > 0.0 { 1.0 } else { 1.6732632423543772 * x.exp() },
        4.0,
    ),
    function("expm1", Tensor::expm1, f64::exp, 4.0),
    function("cosh", Tensor::cosh, f64::sinh, 8.0),
    function("sinh", Tensor::sinh, f64::cosh, 8.0),
    function("log1p", Tensor::log1p, |x| if x < -1.0 { f64::NAN } else { 1.0 / (1.0 + x) }, 4.0),
    function("softplus", |x| x.softplus(1.0), sigmoid, 8.0),
    function("logsigmoid", Tensor::logsigmoid, |x| sigmoid(-x), 8.0),
    function("asin", Tensor::asin, |x| 1.0 / ((1.0 - x) * (1.0 + x)).sqrt(), 4.0),
    function("acos", Tensor::acos, |x| -1.0 / ((1.0 - x) * (1.0 + x)).sqrt(), 4.0),
    function("tanhshrink", Tensor::tanhshrink, |x| x.tanh().powi(2), 8.0),
];

/// If the derivative is a normal number, its relative error is bounded.
#[test]
fn f32_gradients_keep_their_bounds() {
    let mut failures = Vec::new();
    for device in devices() {
        let x = stratified(1 << 14);
        for f in GRADIENTS {
            let t = tensor(&x, &device).as_param();
            let y = (f.call)(&t).sum(..).gradient(&[&t]).remove(0).to_vec::<f32>().unwrap();
            let normal =
                |want: f64| (f32::MIN_POSITIVE as f64..=f32::MAX as f64).contains(&want.abs());
            let error = |(x, y): (&f32, &f32)| {
                let want = (f.oracle)(*x as f64);
                if normal(want) { ulp_error(*y, want) } else { 0.0 }
            };
            let (error, i) = worst(x.iter().zip(&y).map(error));
            judge(
                &mut failures,
                &format!("{}'", f.name),
                &device,
                DType::F32,
                error,
                f.ulp,
                &format!("{:e}", x[i]),
            );
        }
    }
    report(&failures);
}
