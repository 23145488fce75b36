//! Warp-shuffle reductions: the interpreter equals the reference evaluator for every reduction,
//! dtype, group size and launch, and CUDA compiles them.

use crate::common::{self, count, kernels};
use picograd::compile::{OptPolicy, with_opt_policy};
use picograd::dtype::{Const, DType};
use picograd::ir::{Arg, DeviceName, Op, Src, UOp};
use picograd::lower::Program;
use picograd::opt::Kernel;
use picograd::render::{Cuda, Renderer};
use picograd::target::Target;
use picograd::testing::{Case, SetupOpts, check_for};
use picograd::{Tensor, compile, heuristic, opt};
use std::rc::Rc;

type Fold = (&'static str, fn(&Tensor, isize) -> Tensor, fn(usize) -> i64);

/// Each reduction with values that give exact results in every order, varied and not neutral.
const FOLDS: [Fold; 4] = [
    ("sum", |x, axis| x.sum(axis), |i| if i % 37 == 5 { 1 } else { 0 }),
    ("prod", |x, axis| x.prod(axis), |i| if i.is_multiple_of(41) { 2 } else { 1 }),
    ("max", |x, axis| x.max(axis), |i| (i * 7 + i / 13) as i64 % 97),
    ("min", |x, axis| x.min(axis), |i| 100 - (i * 5 + i / 11) as i64 % 89),
];

fn numbers(shape: &[usize], dtype: DType, value: impl Fn(usize) -> i64) -> Tensor {
    let of = |i: usize| match dtype.is_float() {
        true => Const::Float(value(i) as f64),
        false => Const::Int(value(i)),
    };
    let values: Vec<Const> =
        (0..shape.iter().product()).map(|i| of(i).normalize(dtype.scalar())).collect();
    common::stored(&values, dtype, shape, "INTERP")
}

/// Compares the tensor under these Opts, with the heuristic's thread order and lanes, with the
/// reference evaluator, and returns its programs for CUDA.
fn compared(make: impl Fn() -> Tensor, opts: &str) -> Vec<Program> {
    let list = opt::parse(opts).unwrap();
    let apply = {
        let (list, opts) = (list.clone(), opts.to_string());
        move |k: &Kernel, target: &Target| match k.apply_all(&list, target) {
            Ok(k) => heuristic::completed(&k, target),
            Err(e) => panic!("{opts} on {}: {e}", k.name()),
        }
    };
    let expected = common::evaluated(&[make()]);
    let got = with_opt_policy(OptPolicy::By(Rc::new(apply)), || common::computed(&make()));
    assert_eq!(common::differences(&expected[0], &got), [], "{opts} of {:?}", make());
    kernels(&make())
        .iter()
        .map(|k| {
            let target = Target::cuda();
            let k = heuristic::completed(&k.apply_all(&list, &target).unwrap(), &target);
            compile::lowered(&k, &target).unwrap()
        })
        .collect()
}

/// The nodes of all programs.
fn nodes(programs: &[Program]) -> impl Iterator<Item = &UOp> {
    programs.iter().flat_map(|p| &p.uops)
}

/// The lane mask of each shuffle, in order.
fn bits(program: &Program) -> Vec<usize> {
    let of = |a: &Arg| if let Arg::Shuffle(bits) = a { Some(*bits) } else { None };
    program.uops.iter().filter_map(|u| of(u.arg())).collect()
}

#[test]
fn every_reduction_dtype_and_size_matches_the_reference() {
    let mut programs = Vec::new();
    for dtype in DType::ALL {
        for (name, fold, value) in FOLDS {
            let value =
                |i: usize| if dtype.is_bool() { i64::from(!i.is_multiple_of(3)) } else { value(i) };
            // The size does not depend on the dtype, so only two dtypes run all sizes.
            let sizes: &[usize] = if [DType::F32, DType::I64].contains(dtype) {
                &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
            } else {
                &[8, 64]
            };
            for &size in sizes {
                // Several elements per thread, and one.
                for each in [1, 3] {
                    let x = numbers(&[2, size * each], *dtype, value);
                    let made = compared(|| fold(&x, 1), &format!("GROUP:1:{size}"));
                    let steps = size.ilog2() as usize;
                    assert_eq!(bits(&made[0]).len(), steps, "{name} {dtype} {size}");
                    programs.extend(made);
                }
            }
        }
    }
    common::compile_for_cuda(&programs);
}

#[test]
fn groups_with_other_thread_axes_match_the_reference() {
    let made = |shape: &[usize], axis: isize, opts: &str| {
        let x = numbers(shape, DType::I32, |i| (i * 7 + i / 5) as i64 % 31 - 15);
        let programs = compared(|| x.sum(axis), opts);
        common::compile_for_cuda(&programs);
        bits(&programs[0])
    };
    // For rows, the threads of a group are adjacent.
    assert_eq!(made(&[8, 16], 1, "LOCAL:0:4 GROUP:2:8"), [4, 2, 1]);
    // For columns, the threads of different groups are adjacent.
    assert_eq!(made(&[32, 8], 0, "LOCAL:0:2 GROUP:2:16"), [16, 8, 4, 2]);
    // Eight threads of the group in each of four warps, then two in each of eight.
    assert_eq!(made(&[64, 8], 0, "LOCAL:0:4 GROUP:2:32"), [16, 8, 4, 8, 4]);
    assert_eq!(made(&[64, 32], 0, "LOCAL:0:16 GROUP:2:16"), [16, 16]);
    // A partial warp is valid if it is the only one.
    assert_eq!(made(&[6, 16], 1, "LOCAL:0:3 GROUP:2:8"), [4, 2, 1]);
    assert_eq!(made(&[10, 16], 1, "LOCAL:0:5 GROUP:2:8"), [0usize; 0]);
    // Groups whose size is not a power of two, and threads a warp apart.
    assert_eq!(made(&[4, 48], 1, "GROUP:1:24"), [0usize; 0]);
    assert_eq!(made(&[64, 64], 0, "LOCAL:0:32 GROUP:2:8"), [0usize; 0]);
    assert_eq!(made(&[24, 6], 0, "LOCAL:0:3 GROUP:2:8"), [0usize; 0]);
    // Several sums at once, and contiguous iterations instead of strided ones.
    let several = made(&[8, 64], 1, "UPCAST:0:4 GROUP:1:32").len();
    assert!(several > 0 && several.is_multiple_of(5), "{several}");
    assert_eq!(made(&[8, 64], 1, "GROUPTOP:1:16"), [8, 4, 2, 1]);
}

#[test]
fn several_reductions_of_a_row_match_on_two_targets() {
    // The heuristic's Opts for CUDA, interpreted with the race check.
    let (here, len) = (DeviceName::new("HERE"), 2 * 1024);
    let input = UOp::new(
        Op::Param,
        DType::F32,
        Src::new(),
        Arg::Param { slot: 0, len, device: here.clone() },
    );
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let x = unsafe { Tensor::from_uop_unchecked(input, here) }.reshape([2, 1024]);
    let values: Vec<Const> =
        (0..len).map(|i| Const::Float(((i * 7 + i / 13) % 97) as f64 / 8.0 - 6.0)).collect();
    let inputs = vec![common::bytes(&values, DType::F32)];
    for t in [x.softmax(-1), x.layernorm(-1, 1e-5), x.log_softmax(-1)] {
        let case = Case { outputs: vec![t.uop()], inputs: inputs.clone() };
        let expected = case.expected();
        for target in [Target::cuda(), Target::opencl()] {
            let programs = check_for(&case, &expected, SetupOpts::Default, &target).unwrap();
            assert_eq!(count(nodes(&programs), Op::Shuffle) > 0, target.warp > 0);
        }
    }
}

#[test]
fn cuda_text_has_warp_shuffles() {
    let x = numbers(&[2, 256], DType::F32, |i| i as i64 % 5);
    let programs = compared(|| x.sum(1), "GROUP:1:128");
    let text = Cuda::new("sm_90").render("sums", &programs[0].uops).unwrap().text();
    assert!(text.contains("__shfl_xor_sync(0xffffffff,acc0,16)"), "{text}");
    assert_eq!(text.matches("__shfl_xor_sync").count(), 7, "{text}");
    assert_eq!(text.matches("__syncthreads").count(), 1, "{text}");
    let programs = compared(|| x.sum(1), "GROUP:1:8");
    let text = Cuda::new("sm_90").render("sums", &programs[0].uops).unwrap().text();
    assert!(text.contains("__shfl_xor_sync(0xff,"), "{text}");
    assert!(!text.contains("__shared__"), "{text}");
}
