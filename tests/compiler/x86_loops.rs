//! Innermost loops of `CPU:X86`, as its listing counts them: no spill in the loops of benchmarks,
//! at the levels with 16 and with 32 registers.

use crate::common::{count, filled, varied};
use picograd::codegen::{Isa, Level, listing};
use picograd::compile;
use picograd::exec::ScheduleItem;
use picograd::heuristic;
use picograd::ir::Op;
use picograd::lower::Program;
use picograd::opt::{self, Kernel};
use picograd::target::Target;
use picograd::tensor::Conv;
use picograd::{DType, Device, Tensor};

/// Returns the programs of a tensor, with the Opts of the last kernel, or with those of the
/// heuristic.
fn programs(t: &Tensor, opts: Option<&str>, target: &Target) -> Vec<Program> {
    let items = t.schedule().expect("a schedule");
    let kernel = |item: ScheduleItem| match item {
        ScheduleItem::Kernel { ast, .. } => Some(Kernel::new(ast)),
        _ => None,
    };
    let optimized = |k: Kernel| match opts {
        Some(opts) => k.apply_all(&opt::parse(opts).expect("Opts"), target).expect("a kernel"),
        None => heuristic::choose(&k, target),
    };
    let kernels = items.into_iter().filter_map(kernel).map(optimized);
    kernels.map(|k| compile::lowered(&k, target).expect("a program")).collect()
}

/// Returns the lines of counts of the innermost loops of a program.
fn loops(program: &Program, level: Level) -> Vec<String> {
    let text = listing(&program.uops, Isa::of(level)).expect("a listing");
    text.lines().filter(|l| l.starts_with("loop ")).map(str::to_string).collect()
}

/// Returns a number of a line of counts.
fn counted(line: &str, what: &str) -> usize {
    let words: Vec<&str> = line.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let at = words.iter().position(|w| *w == what).unwrap_or_else(|| panic!("{what} in {line}"));
    words[at - 1].parse().expect("a number")
}

fn x86(level: Level) -> Target {
    Target { fma: true, ..Target::x86(level.vector_bytes()) }
}

fn product(m: usize, k: usize, n: usize) -> Tensor {
    let of = |shape: &[usize]| varied(shape, DType::F32, "INTERP", 16.0);
    of(&[m, k]).matmul(&of(&[k, n]))
}

fn conv(kernel: usize) -> Tensor {
    let of = |shape: &[usize]| varied(shape, DType::F32, "INTERP", 16.0);
    of(&[1, 16, 40, 40]).conv2d(&of(&[64, 16, kernel, kernel]), Conv::new())
}

/// Checks that no loop of a tensor with fused multiply-adds spills, and returns the lines of all.
fn no_spill(t: &Tensor, opts: Option<&str>, level: Level) -> Vec<String> {
    let all: Vec<String> =
        programs(t, opts, &x86(level)).iter().flat_map(|p| loops(p, level)).collect();
    assert!(!all.is_empty(), "no loop at {}", level.name());
    for line in all.iter().filter(|line| counted(line, "fma") > 0) {
        assert_eq!(counted(line, "spills"), 0, "{opts:?} at {}: {line}", level.name());
    }
    all
}

#[test]
fn register_tiles_fit() {
    // 6×4 vectors of 32 registers, 6×2 of 16.
    for (level, opts) in [
        (Level::V4, "UPCAST:1:64 UPCAST:0:6 VECTORIZE:4"),
        (Level::V4, "UPCAST:1:64 UPCAST:0:4 VECTORIZE:4"),
        (Level::V4, "UPCAST:1:32 UPCAST:0:12 VECTORIZE:4"),
        (Level::V3, "UPCAST:1:16 UPCAST:0:6 VECTORIZE:4"),
        (Level::V3, "UPCAST:1:16 UPCAST:0:4 VECTORIZE:4"),
    ] {
        let lines = no_spill(&product(48, 64, 128), Some(opts), level);
        let most = lines.iter().max_by_key(|l| counted(l, "fma")).expect("a loop");
        let moves = counted(most, "moves");
        assert!(moves <= 2, "{opts} at {}: {most}", level.name());
    }
}

#[test]
fn taps_of_a_convolution_fit() {
    for level in [Level::V3, Level::V4] {
        for kernel in [3, 5] {
            no_spill(&conv(kernel), None, level);
        }
    }
}

#[test]
fn loops_of_the_heuristic_do_not_spill() {
    let x = || varied(&[64, 256], DType::F32, "INTERP", 16.0);
    for level in [Level::V3, Level::V4] {
        for t in [
            product(96, 64, 128),
            x().softmax(1),
            x().gelu_tanh(),
            x().sum(1),
            x().max(1),
            (x() * x() + 1.5).relu(),
        ] {
            no_spill(&t, None, level);
        }
    }
}

#[test]
fn loads_fold_and_constants_do_not_reload() {
    let x = varied(&[4096], DType::F32, "INTERP", 16.0);
    let y = varied(&[4096], DType::F32, "INTERP", 8.0);
    let lines = no_spill(&(x * y + 1.5), None, Level::V4);
    let line = lines.iter().max_by_key(|l| counted(l, "loads")).expect("a loop");
    // A load, a product with memory, a sum, a store, and the end of the loop.
    let vectors = counted(line, "stores");
    assert!(counted(line, "instructions") <= 4 * vectors + 4, "{line}");
}

#[test]
fn a_maximum_adds_zero_after_the_loop() {
    let x = varied(&[64, 4096], DType::F32, "INTERP", 16.0);
    let target = x86(Level::V4);
    let program = programs(&x.max(1), None, &target).remove(0);
    assert!(count(&program.uops, Op::Max) > 0);
    let text = listing(&program.uops, Isa::of(Level::V4)).expect("a listing");
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|l| l.starts_with("loop ")).expect("a loop");
    let start = lines[..end].iter().rposition(|l| l.starts_with("block ")).expect("a block");
    let body = lines[start..end].join("\n");
    assert!(body.contains("vmaxps") && !body.contains("vaddps"), "{body}");
    assert!(lines[end..].iter().any(|l| l.contains("vaddps")), "{text}");
}

#[test]
fn lanes_of_large_blocks_match_the_interpreter() {
    // The block after the loop is scheduled, up to the instruction that clears the upper lanes.
    let opts = opt::parse("UPCAST:0:16 UPCAST:0:2 UPCAST:0:5 VECTORIZE:1").unwrap();
    let of = |device: &str| {
        let x = filled(&[32, 2], DType::F32, device, |i| i as f32);
        x.matmul(&filled(&[2, 5], DType::F32, device, |i| (i * i) as f32))
    };
    for device in ["CPU:X86", "CPU:X86:x86-64-v3", "CPU:X86:x86-64-v4"] {
        if Device::get(device).is_err() {
            continue;
        }
        let product = of(device);
        let item = product.schedule().expect("a schedule").pop().expect("a kernel");
        item.compile_with(&opts).expect("a kernel").run().expect("a run");
        let expected = of("INTERP").to_vec::<f32>().unwrap();
        assert_eq!(product.to_vec::<f32>().unwrap(), expected, "{device}");
    }
}
