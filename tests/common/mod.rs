//! Helpers of the tests: devices under test, tensors from values, and comparison of values.
#![allow(dead_code, unused_imports)] // Each test binary uses a part.

mod temp;

pub use temp::TempDir;

use picograd::device::Buffer;
use picograd::device::cuda::Nvrtc;
use picograd::dtype::{Const, DType, write};
use picograd::exec::ScheduleItem;
use picograd::ir::{Op, UOp};
use picograd::lower::Program;
use picograd::opt::Kernel;
use picograd::reference::Value;
use picograd::{Device, Tensor, reference};
use std::process::Command;

/// The devices under test.
pub fn devices() -> Vec<String> {
    picograd::testing::devices()
        .iter()
        .map(|d| Device::get(d).unwrap().name().to_string())
        .collect()
}

/// Values as the bytes of a buffer.
pub fn bytes(values: &[Const], dtype: DType) -> Vec<u8> {
    let mut out = vec![0; values.len() * dtype.itemsize()];
    for (c, place) in values.iter().zip(out.chunks_exact_mut(dtype.itemsize())) {
        write(*c, dtype, place);
    }
    out
}

/// A tensor in the memory of the device, so that no rule can fold its values.
pub fn stored(values: &[Const], dtype: DType, shape: &[usize], device: &str) -> Tensor {
    let t = Tensor::from_bytes(&bytes(values, dtype), dtype, shape).to(device);
    if values.is_empty() { t } else { t.realize().unwrap() }
}

/// A literal of rank 0, which rules can fold.
pub fn literal(value: Const, dtype: DType, device: &str) -> Tensor {
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    unsafe {
        Tensor::from_uop_unchecked(
            UOp::constant(value, dtype),
            Device::get(device).unwrap().name().clone(),
        )
    }
}

/// Values of lazy tensors by the reference evaluator.
pub fn evaluated(tensors: &[Tensor]) -> Vec<Vec<Const>> {
    let roots: Vec<UOp> = tensors.iter().map(|t| t.uop()).collect();
    let values = reference::evaluate(&roots, &|s| Buffer::of(s).read().unwrap());
    values.into_iter().map(|v| v.data).collect()
}

/// Values of a tensor as its device computes them.
pub fn computed(t: &Tensor) -> Vec<Const> {
    Value::from_bytes(&t.to_bytes().unwrap(), t.dtype()).data
}

/// The first differing elements: index, expected and computed value. All NaNs are equal; -0 and 0
/// are not.
pub fn differences(expected: &[Const], got: &[Const]) -> Vec<(usize, Const, Const)> {
    assert_eq!(expected.len(), got.len(), "the number of elements");
    expected
        .iter()
        .zip(got)
        .enumerate()
        .filter(|(_, (e, g))| e != g)
        .map(|(i, (e, g))| (i, *e, *g))
        .take(4)
        .collect()
}

/// NVRTC, or `None` with a printed reason. `PICO_REQUIRE=NVRTC` makes its absence a failure.
pub fn nvrtc() -> Option<&'static Nvrtc> {
    let required = std::env::var("PICO_REQUIRE").is_ok_and(|v| v.split(',').any(|w| w == "NVRTC"));
    match Nvrtc::find() {
        Ok(nvrtc) => Some(nvrtc),
        Err(e) if required => panic!("PICO_REQUIRE asks for NVRTC: {e}"),
        Err(e) => {
            eprintln!("skipped: {e}");
            None
        }
    }
}

/// Compiles programs for CUDA, 100 per source text, if NVRTC is available.
pub fn compile_for_cuda(programs: &[Program]) {
    let Some(nvrtc) = nvrtc() else { return };
    let start = std::time::Instant::now();
    for part in programs.chunks(100) {
        nvrtc.check(&part.iter().collect::<Vec<_>>(), "sm_90").unwrap();
    }
    eprintln!(
        "NVRTC {} compiled {} kernels in {:.1} s",
        nvrtc.version,
        programs.len(),
        start.elapsed().as_secs_f64()
    );
}

/// A realized tensor on a device whose element `i` is `value(i)`.
pub fn filled(shape: &[usize], dtype: DType, device: &str, value: impl Fn(usize) -> f32) -> Tensor {
    let list: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_vec(list, shape).cast(dtype).to(device).contiguous().realize().unwrap()
}

/// Unsorted numbers in [-1, 1).
pub fn noise(shape: &[usize]) -> Tensor {
    let value = |i: usize| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
    let list: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_vec(list, shape).realize().unwrap()
}

/// `n` pseudo-random numbers in [-1, 1), determined by the seed.
pub fn random_numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Asserts that elements are within a tolerance, relative to the larger of 1 and the expected
/// value; NaN equals NaN.
#[track_caller]
pub fn assert_close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: the number of elements");
    for (i, (&x, &y)) in got.iter().zip(expected).enumerate() {
        let same =
            x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * y.abs().max(1.0);
        assert!(same, "{what}: element {i} is {x}, expected {y}");
    }
}

/// The first element that is further than a tolerance from the expected one, relative to the
/// largest expected value and at least 1; NaN equals NaN.
pub fn far_from_largest(got: &[f32], expected: &[f32], tolerance: f32) -> Option<usize> {
    let scale = expected.iter().fold(1f32, |most, x| most.max(x.abs()));
    let is_far =
        |(x, y): (&f32, &f32)| !((x - y).abs() <= tolerance * scale || x.is_nan() && y.is_nan());
    got.iter().zip(expected).position(is_far)
}

/// Asserts that no element is [far from the largest](far_from_largest).
#[track_caller]
pub fn assert_close_to_largest(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: the number of elements");
    if let Some(i) = far_from_largest(got, expected, tolerance) {
        panic!("{what}: element {i} is {}, expected {}", got[i], expected[i]);
    }
}

/// The elements of a tensor, converted to f64 on the host.
pub fn as_f64(t: &Tensor) -> Vec<f64> {
    computed(t).iter().map(|c| c.as_f64(t.dtype())).collect()
}

/// The kernels of a tensor.
pub fn kernels(t: &Tensor) -> Vec<Kernel> {
    let of = |item: &ScheduleItem| match item {
        ScheduleItem::Kernel { ast, .. } => Some(Kernel::new(ast.clone())),
        _ => None,
    };
    t.schedule().unwrap().iter().filter_map(of).collect()
}

/// The number of nodes with this op.
pub fn count<'a>(uops: impl IntoIterator<Item = &'a UOp>, op: Op) -> usize {
    uops.into_iter().filter(|u| u.op() == op).count()
}

/// Floats at the edges of what arguments are valid for.
pub const EDGE_FLOATS: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-300,
    1e300,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// This test binary as a child process that runs one test, without variables of picograd.
pub fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"]);
    for v in picograd::env::VARIABLES {
        command.env_remove(v.name);
    }
    command
}

/// A number from an environment variable.
pub fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}
