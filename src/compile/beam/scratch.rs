//! Memory that beam search runs kernels on: inputs with random values, outputs that can be
//! restored, and the comparison of outputs.

use crate::device::{Device, Memory, MemoryRef};
use crate::dtype::{Const, DType, Scalar, read, write};
use crate::error::{Error, Result};
use crate::ir::typed::Store;
use crate::ir::{Arg, Fold, Op, UOp};
use crate::lower::Program;

/// The number of random values before they repeat: a prime, so that rows differ.
const PERIOD: usize = 65_521;
/// Outputs of up to this many bytes are compared completely.
const MAX_FULL_COMPARE: usize = 4 << 20;
/// Number of samples that are compared of a longer buffer, and bytes of each: a multiple of every
/// element size.
const SAMPLES: usize = 8;
const SAMPLE_BYTES: usize = 512 << 10;

/// An argument of the kernel.
struct ScratchSlot {
    memory: Memory,
    dtype: DType,
    bytes: usize,
    /// Its initial content, if the kernel writes to it.
    before: Option<Vec<u8>>,
    /// True if its integers are computed from sums of floats, by a cast or a comparison: another
    /// order of the sum may give another integer.
    from_sums: bool,
}

/// Memory for all arguments of a kernel.
pub(super) struct Scratch {
    slots: Vec<ScratchSlot>,
}

impl Scratch {
    /// Allocates memory for a program.
    pub(super) fn new(ast: &UOp, program: &Program, device: &Device) -> Result<Scratch> {
        let written: Vec<&UOp> = ast.src().iter().map(|s| s.expect_store().place.buffer).collect();
        let from_sums = |arg: &UOp| {
            !arg.dtype().is_float()
                && ast.src().iter().any(|s| {
                    let Store { place, value, .. } = s.expect_store();
                    place.buffer == arg && sums_floats(value)
                })
        };
        let slot = |(i, arg): (usize, &UOp)| -> Result<ScratchSlot> {
            let Arg::Global { len, .. } = arg.arg() else {
                return Err(Error::Device(format!("argument {i} of the kernel is not a buffer")));
            };
            let bytes = len * arg.dtype().itemsize();
            // Variables have the largest value: a kernel clamps them to their bounds.
            let variables = !program.variables.names.is_empty() && i + 1 == program.args.len();
            let values = if variables {
                i32::MAX.to_le_bytes().repeat(*len)
            } else {
                random(arg.dtype(), *len, i as u64 + 1)?
            };
            let mut slot = ScratchSlot {
                memory: device.backend().allocate(bytes)?,
                dtype: arg.dtype(),
                bytes,
                before: None,
                from_sums: from_sums(arg),
            };
            slot.fill(&values)?;
            slot.before = written.contains(&arg).then_some(values);
            Ok(slot)
        };
        Ok(Scratch { slots: program.args.iter().enumerate().map(slot).collect::<Result<_>>()? })
    }

    /// Returns true if the device runs kernels.
    pub(super) fn is_real(&self) -> bool {
        !self.slots.iter().any(|s| matches!(s.memory, Memory::Null))
    }

    /// Returns the arguments of a kernel.
    pub(super) fn places(&self) -> Vec<MemoryRef<'_>> {
        self.slots.iter().map(|s| MemoryRef { memory: &s.memory, offset: 0 }).collect()
    }

    /// Restores the buffers that kernels have written.
    pub(super) fn restore(&mut self) -> Result<()> {
        for slot in &mut self.slots {
            if let Some(values) = slot.before.take() {
                slot.fill(&values)?;
                slot.before = Some(values);
            }
        }
        Ok(())
    }

    /// Returns the outputs, or pieces of long ones.
    pub(super) fn outputs(&self) -> Result<Vec<Vec<u8>>> {
        self.slots.iter().filter(|s| s.before.is_some()).map(ScratchSlot::contents).collect()
    }

    /// Describes the difference between two lists of outputs, if the order of operations does not
    /// explain it.
    pub(super) fn difference(&self, expected: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
        let outputs = self.slots.iter().filter(|s| s.before.is_some()).zip(expected).zip(got);
        outputs.enumerate().find_map(|(i, ((slot, e), g))| {
            Some(format!("output {i}: {}", describe_difference(slot.dtype, slot.from_sums, e, g)?))
        })
    }
}

impl ScratchSlot {
    fn fill(&mut self, values: &[u8]) -> Result<()> {
        match &mut self.memory {
            Memory::Host(h) => h.as_mut_slice()[..values.len()].copy_from_slice(values),
            Memory::Remote(r) => r.write(0, values)?,
            Memory::Disk(_) | Memory::Null => {}
        }
        Ok(())
    }

    fn contents(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let pieces: Vec<(usize, usize)> = match self.bytes {
            n if n <= MAX_FULL_COMPARE => vec![(0, n)],
            // The first at the beginning, the last at the end.
            n => (0..SAMPLES)
                .map(|i| {
                    (
                        (n - SAMPLE_BYTES) / 64 * i / (SAMPLES - 1) * 64
                            + if i + 1 == SAMPLES { (n - SAMPLE_BYTES) % 64 } else { 0 },
                        SAMPLE_BYTES,
                    )
                })
                .collect(),
        };
        for (at, len) in pieces {
            let from = out.len();
            out.resize(from + len, 0);
            match &self.memory {
                Memory::Host(h) => {
                    // SAFETY: no kernel runs now, and the memory is as long as the slot.
                    let bytes = unsafe { h.as_slice() };
                    out[from..].copy_from_slice(&bytes[at..at + len])
                }
                Memory::Remote(r) => r.read(at, &mut out[from..])?,
                Memory::Disk(_) | Memory::Null => {}
            }
        }
        Ok(out)
    }
}

/// Returns random elements, the same in every process: floats between -1 and 1, small integers.
fn random(dtype: DType, len: usize, seed: u64) -> Result<Vec<u8>> {
    let size = dtype.itemsize();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let mut values = crate::device::limits::zeroed(len * size)?;
    let (first, rest) = values.split_at_mut(len.min(PERIOD) * size);
    for place in first.chunks_exact_mut(size.max(1)) {
        let value = match dtype.is_float() {
            true => Const::Float(next() as f64 / (1u64 << 52) as f64 - 1.0),
            false if dtype.is_bool() => Const::Bool(next() % 2 == 1),
            false => Const::Int((next() % 4) as i64),
        };
        write(value.normalize(dtype), dtype, place);
    }
    for piece in rest.chunks_mut(first.len().max(1)) {
        piece.copy_from_slice(&first[..piece.len()]);
    }
    Ok(values)
}

/// Returns the tolerance between two floats of a dtype that were summed in different orders.
fn tolerance(dtype: DType) -> f64 {
    match dtype.scalar {
        Scalar::F64 => 1e-9,
        Scalar::F32 => 1e-3,
        _ => 5e-2,
    }
}

/// Returns true if a value has a sum or a product of floats, which rounds differently in another
/// order.
fn sums_floats(value: &UOp) -> bool {
    let rounds = |u: &UOp| {
        u.op() == Op::Reduce
            && u.dtype().is_float()
            && matches!(u.arg(), Arg::Reduce { fold: Fold::Add | Fold::Mul, .. })
    };
    value.toposort().iter().any(rounds)
}

/// The largest relative error of a quotient by a sum near zero.
const MAX_QUOTIENT_ERROR: f64 = 0.05;

/// Of this number of integers computed from sums, one may differ. A wrong kernel exceeds that.
const FROM_SUMS: usize = 16;

/// Returns the median; 0 of an empty list.
fn median(mut list: Vec<f64>) -> f64 {
    let middle = list.len() / 2;
    if list.is_empty() { 0.0 } else { *list.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// Describes the first element that differs by more than another order of sums explains.
fn describe_difference(
    dtype: DType,
    from_sums: bool,
    expected: &[u8],
    got: &[u8],
) -> Option<String> {
    if expected == got {
        return None;
    }
    let size = dtype.itemsize();
    let values = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(size).map(|b| read(b, dtype).as_f64(dtype)).collect()
    };
    let (expected, got) = (values(expected), values(got));
    // A sum of terms of both signs may be near zero; its error is relative to the terms.
    let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    // A quotient by such a sum is larger than other values, and its error by the same factor.
    let usual = median(expected.iter().filter(|x| x.is_finite()).map(|x| x.abs()).collect());
    let most = (MAX_QUOTIENT_ERROR / tolerance(dtype)).max(1.0);
    let scale = |x: f64| if usual > 0.0 { x * (x / usual).clamp(1.0, most) } else { x };
    let near = |expected: f64, b: f64| {
        (expected - b).abs() <= tolerance(dtype) * (scale(expected.abs()) + 0.1 * largest)
    };
    let close = |a: f64, b: f64| {
        a == b
            || (a.is_nan() && b.is_nan())
            || (dtype.is_float() && (a - b).is_finite() && near(a, b))
    };
    let differing = |close: &dyn Fn(f64, f64) -> bool| -> Vec<usize> {
        (0..got.len()).filter(|i| !close(expected[*i], got[*i])).collect()
    };
    let mut wrong = differing(&close);
    if from_sums {
        // Another rounding of a sum changes few integers by one, and fewer by more, through a
        // comparison.
        let next =
            |a: f64, b: f64| (a - b).abs() <= 1.0 + tolerance(DType::F32) * a.abs().max(b.abs());
        let far = differing(&next);
        if wrong.len() <= got.len() / FROM_SUMS + 1 && far.len() <= got.len() / FROM_SUMS {
            wrong.clear();
        }
    }
    let at = *wrong.first()?;
    Some(format!("element {at} is {}, expected {}", got[at], expected[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_values_are_reproducible() {
        for dtype in [DType::F32, DType::F16, DType::F64, DType::I32, DType::U8, DType::BOOL] {
            let a = random(dtype, 200_000, 3).unwrap();
            assert!(
                a.len() == 200_000 * dtype.itemsize()
                    && a == random(dtype, 200_000, 3).unwrap()
                    && a != random(dtype, 200_000, 4).unwrap()
            );
            let values: Vec<f64> =
                a.chunks_exact(dtype.itemsize()).map(|b| read(b, dtype).as_f64(dtype)).collect();
            let (low, high) = if dtype.is_float() { (-1.0, 1.0) } else { (0.0, 3.0) };
            assert!(values.iter().all(|v| (low..=high).contains(v)), "{dtype}");
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let middle = if dtype.is_bool() { 0.5 } else { (low + high) / 2.0 };
            assert!((mean - middle).abs() < 0.05, "{dtype}: {mean}");
        }
        assert!(random(DType::F32, 0, 1).unwrap().is_empty());
    }

    #[test]
    fn differences_beyond_reordering_are_detected() {
        let bytes = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|x| x.to_le_bytes()).collect() };
        let same = |a: &[f32], b: &[f32]| {
            describe_difference(DType::F32, false, &bytes(a), &bytes(b)).is_none()
        };
        assert!(same(
            &[1.0, f32::NAN, f32::INFINITY, 0.0],
            &[1.0001, f32::NAN, f32::INFINITY, -0.0]
        ));
        assert!(same(&[100.0, 0.001], &[100.0, 0.002]), "what is lost against the largest");
        assert!(
            !same(&[1.0, 1.0], &[1.0, 1.1])
                && !same(&[f32::NAN], &[1.0])
                && !same(&[f32::INFINITY], &[1.0])
                && !same(&[1.0], &[f32::NAN])
        );
        let quotients = |last: f32, x: f32| [1.0, -1.0, 1.0, 1.0, last, x];
        assert!(
            same(&quotients(278.3, 1.0), &quotients(277.7, 1.0))
                && !same(&quotients(2.0, 1.0), &quotients(2.0, 1.1)),
            "what lost digits"
        );
        assert!(
            !same(&quotients(1.0, 1.0), &quotients(1e6, 1.0))
                && !same(&quotients(200.0, 1.0), &quotients(0.0, 1.0)),
            "garbage"
        );
        let ints = |v: &[i32]| -> Vec<u8> { v.iter().flat_map(|x| x.to_le_bytes()).collect() };
        let steps = |a: &[i32], b: &[i32]| {
            describe_difference(DType::I32, true, &ints(a), &ints(b)).is_none()
        };
        assert!(
            steps(&[7], &[8]) && !steps(&[7], &[9]) && steps(&[10_000], &[10_010]),
            "a sum that is cast"
        );
        let many: Vec<i32> = (0..64).collect();
        let but = |n: usize, by: i32| {
            many.iter()
                .enumerate()
                .map(|(i, x)| if i < n { x + by } else { *x })
                .collect::<Vec<i32>>()
        };
        assert!(
            steps(&many, &but(4, 50))
                && !steps(&many, &but(5, 50))
                && steps(&many, &but(5, 1))
                && !steps(&many, &but(6, 1))
        );
        let difference = describe_difference(
            DType::I32,
            false,
            &[1, 0, 0, 0, 2, 0, 0, 0],
            &[1, 0, 0, 0, 3, 0, 0, 0],
        )
        .unwrap();
        assert_eq!(difference, "element 1 is 3, expected 2");
    }
}
