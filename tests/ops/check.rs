//! Runs a group of cases on every device in every dtype, and compares with PyTorch's results. All
//! results of one dtype are realized together.

use crate::cases::{Case, How};
use crate::common::{computed, devices};
use crate::fixture::{Array, Block, Kind, blocks};
use picograd::compiler::dtype::write;
use picograd::dtype::{Const, DType};
use picograd::testing::{is_slow, lacks};
use picograd::{Device, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The 8-bit floats, which run only forward, in cases that round at most once.
const EIGHT_BITS: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];
/// The number of tensors realized together.
const TOGETHER: usize = 400;

/// The memory layout of an input.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Layout {
    /// In row-major order.
    Plain,
    /// Reversed elements and axes, so that every stride differs.
    Turned,
}

/// True if the dtype represents the number exactly.
fn holds(dtype: DType, x: f64) -> bool {
    let back = Const::Float(x).cast(DType::F64, dtype).cast(dtype, DType::F64).as_f64(DType::F64);
    back == x || (back.is_nan() && x.is_nan())
}

/// The dtypes that a case runs in, each with true if gradients run too.
pub fn runs(case: &Case, block: &Block) -> Vec<(DType, bool)> {
    let backward = !block.grads.is_empty();
    let mut all: Vec<(DType, bool)> = block.kind.dtypes().iter().map(|&d| (d, backward)).collect();
    if block.kind == Kind::Float && !matches!(case.how, How::Steps(_)) {
        all.extend(EIGHT_BITS.map(|d| (d, false)));
    }
    if block.kind == Kind::Fixed {
        all.push((DType::F32, false));
    }
    all.retain(|&(d, _)| {
        block.inputs.iter().all(|(fixed, a)| {
            fixed.is_some() || !d.is_float() || a.data.iter().all(|&x| holds(d, x))
        })
    });
    all
}

/// The weight of an output element, as in the script that generates the fixture.
pub fn weight(i: usize) -> f64 {
    ((i * 7 + 3) % 11 + 1) as f64 / 8.0 * if i.is_multiple_of(3) { -1.0 } else { 1.0 }
}

/// A realized tensor of the numbers in a dtype.
fn stored(data: impl Iterator<Item = f64>, dtype: DType, shape: &[usize], device: &str) -> Tensor {
    let mut bytes = Vec::new();
    for x in data {
        let mut one = [0u8; 8];
        let c = if dtype.is_float() {
            Const::Float(x).cast(DType::F64, dtype)
        } else {
            Const::Int(x as i64).cast(DType::I64, dtype)
        };
        write(c, dtype, &mut one[..dtype.itemsize()]);
        bytes.extend_from_slice(&one[..dtype.itemsize()]);
    }
    let t = Tensor::from_bytes(&bytes, dtype, shape);
    if t.device().as_str() == device { t } else { t.to(device) }
}

pub fn input(array: &Array, dtype: DType, layout: Layout, device: &str) -> Tensor {
    let rank = array.shape.len();
    if layout == Layout::Plain || rank == 0 {
        return stored(array.data.iter().copied(), dtype, &array.shape, device);
    }
    let back: Vec<usize> = array.shape.iter().rev().copied().collect();
    let n = array.data.len();
    let data = (0..n).map(|flat| {
        // The index in the tensor of this stored element: the first axis varies fastest.
        let (mut rest, mut place, mut stride) = (n - 1 - flat, 0, n);
        for &size in &array.shape {
            stride /= size;
            place += rest % size * stride;
            rest /= size;
        }
        array.data[place]
    });
    let order: Vec<usize> = (0..rank).rev().collect();
    stored(data, dtype, &back, device).flip(..).permute(order)
}

/// The weighted sum of all float outputs; `None` if no output has a gradient.
pub fn total(outputs: &[Tensor]) -> Option<Tensor> {
    let weighted = |y: &Tensor| {
        (y * stored((0..y.numel()).map(weight), y.dtype(), &y.shape(), y.device().as_str())).sum(..)
    };
    outputs
        .iter()
        .filter(|y| y.is_floating_point() && y.requires_grad())
        .map(weighted)
        .reduce(|a, b| a + b)
}

/// A tensor to compute, and its expected value.
struct Pending<'a> {
    what: String,
    how: How,
    expected: &'a Array,
    got: Tensor,
}

/// The spacing of a float dtype at 1.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON as f64,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        DType::F8E5M2 => 2f64.powi(-2),
        other => panic!("{other} is not a float"),
    }
}

/// The smallest positive number of a dtype: the spacing at zero.
fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-24),
        DType::F8E4M3 => 2f64.powi(-9),
        DType::F8E5M2 => 2f64.powi(-16),
        _ => 0.0,
    }
}

fn near(how: How, dtype: DType, expected: f64, got: Const) -> bool {
    if !dtype.is_float() {
        return got == Const::Int(expected as i64).cast(DType::I64, dtype);
    }
    let g = got.as_f64(dtype);
    let rounded = Const::Float(expected).cast(DType::F64, dtype).as_f64(dtype);
    if g == rounded || (g.is_nan() && rounded.is_nan()) {
        return true;
    }
    let off = (g - expected).abs();
    match how {
        How::Exact | How::Cast => false,
        How::Once => off <= 2.0 * epsilon(dtype) * expected.abs(),
        How::Wide(n) if dtype.bits() < 32 => {
            off <= epsilon(dtype) * expected.abs() + least(dtype) + n * epsilon(DType::F32)
        }
        How::Wide(n) | How::Steps(n) => off <= n * epsilon(dtype) * expected.abs().max(1.0),
    }
}

/// The tolerance of a gradient, which rounds a few times more than the result.
fn backward_of(how: How) -> How {
    match how {
        How::Exact | How::Cast => How::Steps(2.0),
        How::Once => How::Steps(8.0),
        How::Wide(n) | How::Steps(n) => How::Steps(n * 4.0),
    }
}

/// True if the dtype of an output is the expected one.
fn fits(how: How, given: DType, mark: char, got: DType) -> bool {
    match mark {
        'b' => got.is_bool(),
        'i' => got.is_int(),
        _ if how == How::Cast => got.is_float(),
        _ => got == if given.is_float() { given } else { DType::F32 },
    }
}

/// The lazy outputs and gradients of a case.
fn prepare<'a>(
    case: &Case,
    block: &'a Block,
    dtype: DType,
    backward: bool,
    layout: Layout,
    device: &str,
) -> Result<Vec<Pending<'a>>, String> {
    let what = format!("{} in {dtype}, {layout:?}, on {device}", block.label());
    let build = || -> Result<Vec<Pending<'a>>, String> {
        let inputs: Vec<Tensor> = block
            .inputs
            .iter()
            .map(|(fixed, a)| {
                let t = input(a, fixed.unwrap_or(dtype), layout, device);
                if backward && fixed.is_none() { t.as_param() } else { t }
            })
            .collect();
        let outputs = (case.call)(&inputs);
        if outputs.len() != block.outputs.len() {
            return Err(format!("{what}: {} outputs", outputs.len()));
        }
        let mut all = Vec::new();
        for (i, (y, (mark, expected))) in outputs.iter().zip(&block.outputs).enumerate() {
            if y.shape() != expected.shape || !fits(case.how, dtype, *mark, y.dtype()) {
                return Err(format!(
                    "{what}: output {i} is {} {:?}, expected {mark} {:?}",
                    y.dtype(),
                    y.shape(),
                    expected.shape
                ));
            }
            all.push(Pending {
                what: format!("{what}, output {i}"),
                how: case.how,
                expected,
                got: y.detach(),
            });
        }
        if backward && let Some(total) = total(&outputs) {
            total.try_backward().map_err(|e| format!("{what}: {e}"))?;
        }
        if backward {
            let params: Vec<&Tensor> = inputs.iter().filter(|t| t.is_param()).collect();
            assert_eq!(params.len(), block.grads.len(), "{what}: the number of gradients");
            for (i, (p, expected)) in params.into_iter().zip(&block.grads).enumerate() {
                let got = p.grad().unwrap_or_else(|| p.zeros_like());
                all.push(Pending {
                    what: format!("{what}, gradient {i}"),
                    how: backward_of(case.how),
                    expected,
                    got,
                });
            }
        }
        Ok(all)
    };
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(result) => result,
        Err(e) => {
            let said = e
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| e.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(format!("{what}: {}", said.unwrap_or_default()))
        }
    }
}

fn compare(all: &[Pending], wrong: &mut Vec<String>) {
    for part in all.chunks(TOGETHER) {
        let full: Vec<&Tensor> = part.iter().map(|p| &p.got).filter(|t| t.numel() > 0).collect();
        if let Err(e) = Tensor::realize_many(&full) {
            wrong.push(format!("{} to {}: {e}", part[0].what, part[part.len() - 1].what));
            continue;
        }
        for p in part {
            let dtype = p.got.dtype();
            if p.got.shape() != p.expected.shape {
                wrong.push(format!(
                    "{} has shape {:?}, expected {:?}",
                    p.what,
                    p.got.shape(),
                    p.expected.shape
                ));
                continue;
            }
            let got = computed(&p.got);
            if let Some(i) =
                (0..got.len()).find(|&i| !near(p.how, dtype, p.expected.data[i], got[i]))
            {
                let units = match dtype.is_float() {
                    true => {
                        (got[i].as_f64(dtype) - p.expected.data[i]).abs()
                            / epsilon(dtype)
                            / p.expected.data[i].abs().max(1.0)
                    }
                    false => f64::INFINITY,
                };
                wrong.push(format!(
                    "{}: element {i} is {:?}, expected {} within {:?}; {units:.1} units off",
                    p.what, got[i], p.expected.data[i], p.how
                ));
            }
        }
    }
}

/// True if a device runs every case: it compiles within the process.
fn runs_everything(device: &str) -> bool {
    let compiles_here = |d: Device| matches!(d.target().name, "LLVM" | "X86");
    device == "INTERP" || Device::get(device).is_ok_and(compiles_here)
}

/// One run of a case: its dtype, layout, and true if gradients run too.
type Job<'a> = (DType, Layout, bool, &'a Case, &'a Block);

/// The runs of cases on a device. The interpreter, X86 and LLVM, which start no other process, run
/// all of them. Other devices run everything forward in `f32`, and the first shape of each case
/// also backward, in `i32` and `bool`, and if asked for in every dtype. Devices that compile slowly
/// run the first shape in these three.
fn jobs<'a>(cases: &'a [Case], all: &'a [Block], every_dtype: bool, device: &str) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job> = Vec::new();
    for case in cases {
        let mine: Vec<&Block> = all.iter().filter(|b| b.name == case.name).collect();
        assert!(!mine.is_empty(), "the fixture has no {}", case.name);
        for block in &mine {
            let first = mine
                .iter()
                .find(|b| b.kind == block.kind)
                .is_some_and(|b| std::ptr::eq(*b, *block));
            let dtypes = runs(case, block);
            assert!(!dtypes.is_empty(), "{} runs in no dtype", block.label());
            for (dtype, backward) in dtypes {
                let common = matches!(dtype, DType::F32 | DType::I32 | DType::BOOL);
                let long =
                    block.kind != Kind::Fixed && block.inputs.iter().any(|(_, a)| a.data.len() > 1);
                if runs_everything(device) {
                    jobs.push((dtype, Layout::Plain, backward, case, block));
                    if common && long {
                        jobs.push((dtype, Layout::Turned, backward, case, block));
                    }
                } else if is_slow(device) {
                    if first && common {
                        jobs.push((dtype, Layout::Plain, backward, case, block));
                    }
                } else if dtype == DType::F32 {
                    jobs.push((dtype, Layout::Plain, backward && first, case, block));
                    if first && long {
                        jobs.push((dtype, Layout::Turned, false, case, block));
                    }
                } else if first && (common || every_dtype) {
                    jobs.push((dtype, Layout::Plain, false, case, block));
                }
            }
        }
    }
    jobs
}

/// Checks every case of a group.
pub fn check(cases: &[Case], every_dtype: bool) {
    let all = blocks();
    let mut wrong = Vec::new();
    for device in devices() {
        let mut left_out = 0;
        let jobs = jobs(cases, &all, every_dtype, &device);
        for &dtype in DType::ALL {
            for layout in [Layout::Plain, Layout::Turned] {
                let mut pending = Vec::new();
                for &(_, _, backward, case, block) in
                    jobs.iter().filter(|j| j.0 == dtype && j.1 == layout)
                {
                    match prepare(case, block, dtype, backward, layout, &device) {
                        Ok(list) => {
                            let before = pending.len() + list.len();
                            pending.extend(list.into_iter().filter(|p| {
                                !lacks(&device, p.got.uop().toposort().iter().map(|u| u.dtype()))
                            }));
                            left_out += before - pending.len();
                        }
                        Err(e) => wrong.push(e),
                    }
                }
                compare(&pending, &mut wrong);
            }
        }
        if left_out > 0 {
            eprintln!(
                "skipped {left_out} results on {device}, which does not compute in a dtype of \
                 theirs"
            );
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The lazy tensors of a group for a device with a compiler. They are on the interpreter, because
/// some need computed values.
pub fn tensors(cases: &[Case], every_dtype: bool) -> Vec<Tensor> {
    let all = blocks();
    let mut tensors = Vec::new();
    for (dtype, layout, backward, case, block) in jobs(cases, &all, every_dtype, "CUDA") {
        let pending = prepare(case, block, dtype, backward, layout, "INTERP")
            .unwrap_or_else(|e| panic!("{e}"));
        tensors.extend(pending.into_iter().map(|p| p.got).filter(|t| t.numel() > 0));
    }
    tensors
}
