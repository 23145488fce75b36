//! `REDUCE_OUTER`: the bits of a kernel with a reduction loop outside output loops are those of
//! the same kernel without it, and random lists of Opts keep values.

use crate::common::filled;
use picograd::compile::OptPolicy;
use picograd::device::interp::{Interp, Memory, Options};
use picograd::exec::ScheduleItem;
use picograd::ir::{Arg, AxisKind, UOp};
use picograd::opt::{Kernel, Opt, OptOp};
use picograd::target::Target;
use picograd::tensor::Conv;
use picograd::testing::{Rng, graphs};
use picograd::{DType, Device, Tensor, compile, heuristic, opt};
use std::rc::Rc;

/// The devices whose kernels may have such loops.
fn devices() -> Vec<&'static str> {
    ["CPU:LLVM", "CPU:CLANG", "CPU:X86"].into_iter().filter(|d| Device::get(d).is_ok()).collect()
}

/// Varied numbers whose sums depend on the order of additions.
fn numbers(shape: &[usize], from: usize, device: &str) -> Tensor {
    filled(shape, DType::F32, device, |i| ((i * 7919 + from * 13) % 201) as f32 / 7.0 - 14.0)
}

/// Integers whose sums are exact in any order.
fn integers(shape: &[usize], from: usize, device: &str) -> Tensor {
    filled(shape, DType::F32, device, |i| ((i * 7919 + from * 13) % 41) as f32 - 20.0)
}

/// A function that makes an input of a shape.
type Input<'a> = &'a dyn Fn(&[usize], usize) -> Tensor;

/// Kernels with reductions: products, sums of several axes, masks, extremes, epilogues.
fn kernels(x: Input) -> Vec<Tensor> {
    let square = x(&[24, 32], 1);
    let image = x(&[2, 3, 8, 8], 2);
    let weight = x(&[4, 3, 3, 3], 3);
    let mean = x(&[4, 6, 5, 7], 4);
    vec![
        x(&[24, 32], 0).matmul(&x(&[32, 40], 1)),
        (x(&[24, 32], 0).matmul(&x(&[32, 40], 1)) + x(&[40], 2)).relu(),
        x(&[1, 64], 0).matmul(&x(&[64, 48], 1)),
        x(&[13, 30], 0).matmul(&x(&[30, 17], 1)),
        image.conv2d(&weight, Conv::new().padding(1)),
        mean.sum([0, 2, 3]),
        mean.max([0, 2]) * 2.0,
        square.sum(0) + square.square().sum(0),
        square.transpose(0, 1).cast(DType::F64).sum(1),
        square.cast(DType::I32).sum(0),
    ]
}

fn kernel(t: &Tensor) -> Option<Kernel> {
    let mut items = t.schedule().unwrap();
    match (items.pop(), items.is_empty()) {
        (Some(ScheduleItem::Kernel { ast, .. }), true) => Some(Kernel::new(ast)),
        _ => None,
    }
}

/// The bytes of a tensor whose kernel has these Opts.
fn bytes(t: &Tensor, opts: &[Opt]) -> Vec<u8> {
    let opts = opts.to_vec();
    let chooser = move |k: &Kernel, target: &Target| k.apply_all(&opts, target).unwrap();
    compile::with_opt_policy(OptPolicy::By(Rc::new(chooser)), || t.to_bytes().unwrap())
}

/// The outputs of a program on the interpreter, which finds loads of what was never written.
fn interpreted(k: &Kernel, target: &Target) -> Vec<Vec<u8>> {
    let content = |arg: &UOp| {
        let Arg::Global { len, .. } = arg.arg() else { panic!("an argument") };
        let list: Vec<f32> = (0..*len).map(|i| ((i * 31 + 7) % 41) as f32 / 7.0 - 2.0).collect();
        Tensor::from_vec(list, [*len]).cast(arg.dtype()).to_bytes().unwrap()
    };
    let program = compile::lowered(k, target).unwrap();
    let mut buffers: Vec<Vec<u8>> = program.args.iter().map(content).collect();
    let memory: Vec<Memory> = buffers.iter_mut().map(|b| Memory::new(b)).collect();
    let interp = Interp::compile(&program.uops).unwrap();
    interp.run_with(&memory, interp.launch(), &Options::default()).unwrap();
    drop(memory);
    program.writes.iter().map(|slot| buffers[*slot].clone()).collect()
}

/// The number of lists of each kernel: 60 with `PICO_GRAPHS=2000`.
fn lists_of(device: &str) -> usize {
    (graphs() as usize / 33).clamp(10, 60) / if device == "CPU:CLANG" { 6 } else { 1 }
}

/// A random Opt of any kind.
fn random_opt(k: &Kernel, rng: &mut Rng) -> Opt {
    let axes = k.axes().len();
    let op = rng.pick(&OptOp::ALL[..12]);
    let amount = match op {
        OptOp::Swap | OptOp::ReduceOuter => rng.below(axes),
        OptOp::Stage => rng.below(4),
        _ => rng.pick(&[0, 2, 3, 4, 5, 8, 16]),
    };
    Opt::new(op, rng.below(axes), amount)
}

/// Applies random Opts, `VECTORIZE` among them with some luck.
fn extended(k: &Kernel, count: usize, rng: &mut Rng, target: &Target) -> Kernel {
    let mut k = k.clone();
    for _ in 0..count {
        k = k.apply(&random_opt(&k, rng), target).unwrap_or(k);
    }
    k
}

/// The `VECTORIZE` Opts of a kernel for the axes that are lanes in another one.
fn lanes(k: &Kernel, like: &Kernel) -> Vec<Opt> {
    let same = |a: &UOp| {
        k.axes()
            .iter()
            .position(|b| b.range_id() == a.range_id() && b.range_kind() == a.range_kind())
    };
    let vectors = like.axes().into_iter().filter(|a| a.is_lanes());
    vectors.filter_map(|a| same(&a)).map(|axis| Opt::of_axis(OptOp::Vectorize, axis)).collect()
}

/// Kernels with random Opts before `REDUCE_OUTER` have the bits of those without it.
#[test]
fn reduce_outer_changes_no_bit() {
    for device in devices() {
        let d = Device::get(device).unwrap();
        let input = |shape: &[usize], from: usize| numbers(shape, from, device);
        let mut rng = Rng::new(7);
        let (mut applied, count) = (0, lists_of(device));
        for (i, t) in kernels(&input).iter().enumerate() {
            let Some(plain) = kernel(t) else { continue };
            for _ in 0..count {
                let steps = rng.below(5);
                let before = extended(&plain, steps, &mut rng, d.target());
                let axes = before.axes();
                let reduces: Vec<usize> =
                    (0..axes.len()).filter(|a| axes[*a].range_kind() == AxisKind::Reduce).collect();
                let outputs = axes.len() - reduces.len();
                if reduces.is_empty() || outputs == 0 || before.has(OptOp::ReduceOuter) {
                    continue;
                }
                let opt = Opt::new(OptOp::ReduceOuter, rng.pick(&reduces), rng.below(outputs));
                let Ok(after) = before.apply(&opt, d.target()) else { continue };
                let after = heuristic::completed(&after, d.target());
                let Ok(before) = before.apply_all(&lanes(&before, &after), d.target()) else {
                    continue;
                };
                let (a, b) = (&kernels(&input)[i], &kernels(&input)[i]);
                let same = bytes(a, &before.opts) == bytes(b, &after.opts);
                let lists = [opt::show(&before.opts), opt::show(&after.opts)];
                assert!(same, "{device}, kernel {i}: {lists:?}");
                let [a, b] = [&before, &after].map(|k| interpreted(k, d.target()));
                assert!(a == b, "INTERP, kernel {i} for {device}: {lists:?}");
                applied += 1;
            }
        }
        assert!(applied >= count * 3, "{device}: {applied} lists");
    }
}

/// Random lists with `REDUCE_OUTER` at any place keep the values of integers.
#[test]
fn opts_after_reduce_outer_keep_values() {
    for device in devices() {
        let d = Device::get(device).unwrap();
        let input = |shape: &[usize], from: usize| integers(shape, from, device);
        let mut rng = Rng::new(11);
        let (mut applied, count) = (0, lists_of(device));
        for (i, t) in kernels(&input).iter().enumerate() {
            let Some(plain) = kernel(t) else { continue };
            let expected = bytes(&kernels(&input)[i], &[]);
            for _ in 0..count {
                let steps = rng.below(4);
                let mut k = extended(&plain, steps, &mut rng, d.target());
                for _ in 0..8 {
                    let n = k.axes().len();
                    let opt = Opt::new(OptOp::ReduceOuter, rng.below(n), rng.below(n));
                    k = k.apply(&opt, d.target()).unwrap_or(k);
                }
                if !k.has(OptOp::ReduceOuter) {
                    continue;
                }
                let k = extended(&k, 4, &mut rng, d.target());
                let k = heuristic::completed(&k, d.target());
                let same = bytes(&kernels(&input)[i], &k.opts) == expected;
                assert!(same, "{device}, kernel {i}: {}", opt::show(&k.opts));
                applied += 1;
            }
        }
        assert!(applied >= count * 3, "{device}: {applied} lists");
    }
}
