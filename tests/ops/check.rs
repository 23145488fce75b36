//! Runs a group of cases on every device in every dtype, and compares with PyTorch's results. All
//! results of one dtype are realized together.

use crate::cases::{Case, How};
use crate::common::{computed, devices};
use crate::fixture::{Array, Block, Kind, blocks};
use picograd::dtype::{Const, DType, write};
use picograd::testing::{is_slow, lacks};
use picograd::{Device, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The 8-bit floats, which run forward where a result is rounded once at most.
const EIGHT_BITS: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];
/// How many tensors are computed in one go.
const TOGETHER: usize = 400;

/// How an input lies in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Layout {
    /// In row-major order.
    Plain,
    /// The last element first and the axes in reverse order, so that every stride is another.
    Turned,
}

/// True if the dtype represents the number exactly.
fn holds(dtype: DType, x: f64) -> bool {
    let back = Const::Float(x).cast(DType::F64, dtype).cast(dtype, DType::F64).as_f64(DType::F64);
    back == x || (back.is_nan() && x.is_nan())
}

/// The dtypes that a case runs in, for each whether with gradients.
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

/// A factor for each element of an output, as in the script that made the fixture.
pub fn weight(i: usize) -> f64 {
    ((i * 7 + 3) % 11 + 1) as f64 / 8.0 * if i.is_multiple_of(3) { -1.0 } else { 1.0 }
}

/// The numbers in a dtype, in this order.
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
        // The place in the tensor of what is stored here: the first axis runs fastest.
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

/// The sum of all float outputs, each element times its weight; `None` if there is none with a
/// gradient.
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

/// A tensor to be computed, and what it should be.
struct Pending<'a> {
    what: String,
    how: How,
    expected: &'a Array,
    got: Tensor,
}

/// The units of the last place of 1.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON as f64,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        DType::F8E5M2 => 2f64.powi(-2),
        other => panic!("{other} is no float"),
    }
}

/// The smallest positive number: results next to zero differ by it.
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

/// The gradient comes of a few more roundings than the result.
fn backward_of(how: How) -> How {
    match how {
        How::Exact | How::Cast => How::Steps(2.0),
        How::Once => How::Steps(8.0),
        How::Wide(n) | How::Steps(n) => How::Steps(n * 4.0),
    }
}

/// Checks the dtype of an output.
fn fits(how: How, given: DType, mark: char, got: DType) -> bool {
    match mark {
        'b' => got.is_bool(),
        'i' => got.is_int(),
        _ if how == How::Cast => got.is_float(),
        _ => got == if given.is_float() { given } else { DType::F32 },
    }
}

/// The outputs and gradients of a case, not computed yet.
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

/// Does a device run every case? Those do that compile within the process.
fn runs_everything(device: &str) -> bool {
    device == "INTERP" || Device::get(device).is_ok_and(|d| d.target().name == "LLVM")
}

/// What a case is run as: dtype, layout, with gradients or not.
type Job<'a> = (DType, Layout, bool, &'a Case, &'a Block);

/// What is run on a device. The interpreter and LLVM, which have no other process to wait for, run
/// all of it. Other devices run everything forward in `f32`, and the first shape of each case also
/// backward, in `i32` and `bool`, and if asked for in every dtype. Devices that take long to
/// compile run the first shape in these three.
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

/// Every case of a group.
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
                "{left_out} results left out on {device}, which does not compute in a dtype of \
                 theirs"
            );
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The tensors of a group that a device with a compiler runs, not computed. They are on the
/// interpreter, because some can only be made from values.
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
