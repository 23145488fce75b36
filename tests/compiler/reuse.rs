//! The Opt `REUSE`: values that a reduction computes and a later loop needs are computed once if
//! storing them is cheaper, with the same bits.

use crate::common::varied;
use picograd::device::interp::{Interp, Memory, Options};
use picograd::dtype::Scalar;
use picograd::exec::ScheduleItem;
use picograd::ir::{Op, UOp};
use picograd::opt::{Kernel, OptOp};
use picograd::schedule::Role;
use picograd::target::Target;
use picograd::tensor::{Attention, keepdim};
use picograd::{DType, Device, Tensor, compile, heuristic, opt};

/// A machine with 16 lanes and an exponential instruction, so that exponentials can be counted.
const WIDE: Target = Target {
    native: &[(Op::Exp, Scalar::F32), (Op::Exp, Scalar::F64), (Op::Sin, Scalar::F32)],
    ..Target::llvm(64)
};

/// The ASTs of the kernels of a tensor.
fn asts(t: &Tensor) -> Vec<UOp> {
    let of =
        |i: ScheduleItem| if let ScheduleItem::Kernel { ast, .. } = i { Some(ast) } else { None };
    t.schedule().unwrap().into_iter().filter_map(of).collect()
}

/// The number of times that one run of a program computes an op, counted per lane.
fn times(uops: &[UOp], op: Op) -> f64 {
    let (mut loops, mut sum, mut chunks) = (vec![1.0], 0.0, 1.0);
    for u in uops {
        match u.op() {
            Op::Range => {
                // The last chunk may be shorter.
                let [least, most] = [u.src()[0].vmin(), u.src()[0].vmax()].map(|n| n as f64);
                loops.push(loops.last().unwrap() * (most - (most - least) / chunks));
            }
            Op::EndRange => drop(loops.pop()),
            Op::Special => chunks *= (u.vmax() + 1) as f64,
            o if o == op => sum += loops.last().unwrap() * u.dtype().lanes as f64,
            _ => {}
        }
    }
    (sum * chunks).round()
}

fn chosen(ast: &UOp) -> Kernel {
    heuristic::choose(&Kernel::new(ast.clone()), &WIDE)
}

/// The number of times that the kernels of a tensor compute an op, per element.
#[track_caller]
fn each(t: &Tensor, op: Op, elements: usize) -> f64 {
    let programs =
        asts(t).into_iter().map(|ast| compile::lowered(&chosen(&ast), &WIDE).unwrap().uops);
    programs.map(|uops| times(&uops, op)).sum::<f64>() / elements as f64
}

#[test]
fn exponentials_of_a_softmax_are_computed_once() {
    for (shape, axis) in [
        (&[64usize, 1024][..], 1),
        (&[7, 1000], 1),
        (&[5, 77], 1),
        (&[3, 1001], -1),
        (&[33, 8, 96], 2),
        (&[2, 640], 1),
    ] {
        let n: usize = shape.iter().product();
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let x = varied(shape, dtype, "CPU", 4.0);
            assert_eq!(each(&x.softmax(axis), Op::Exp, n), 1.0, "{shape:?} {dtype}");
        }
        let x = varied(shape, DType::F32, "CPU", 4.0);
        let mask = (varied(shape, DType::F32, "CPU", 4.0) * 7.0).gt(3.0).realize().unwrap();
        assert_eq!(
            each(&x.masked_fill(&mask, f32::NEG_INFINITY).softmax(axis), Op::Exp, n),
            1.0,
            "{shape:?} with a mask"
        );
    }
    // Fully unrolled rows share values in registers.
    assert_eq!(each(&varied(&[64, 16], DType::F32, "CPU", 4.0).softmax(1), Op::Exp, 1024), 1.0);
}

#[test]
fn rows_that_are_too_long_are_computed_twice() {
    let rows = |dtype| varied(&[64, 20 << 10], dtype, "CPU", 4.0);
    assert_eq!(asts(&rows(DType::F32).softmax(1)).len(), 1);
    assert_eq!(each(&rows(DType::F32).softmax(1), Op::Exp, 1280 << 10), 2.0);
}

#[test]
fn cheap_values_are_recomputed() {
    let x = varied(&[64, 1024], DType::F32, "CPU", 4.0);
    for t in [x.layernorm(-1, 1e-5), x.softmax(1).log(), &x - x.sum(keepdim(1))] {
        for ast in asts(&t) {
            let cheap = !ast.toposort().iter().any(|u| u.op() == Op::Exp);
            let k = chosen(&ast);
            assert_eq!(
                k.opts.iter().any(|o| o.op == OptOp::Reuse),
                !cheap,
                "{}",
                opt::show(&k.opts)
            );
        }
    }
}

#[test]
fn reused_values_may_share_subexpressions() {
    // The sine is reduced, then part of a summand, then part of the result.
    let x = varied(&[64, 512], DType::F32, "CPU", 4.0);
    let y = x.sin().softmax(1);
    assert_eq!((each(&y, Op::Sin, 64 * 512), each(&y, Op::Exp, 64 * 512)), (1.0, 1.0));
    // It is used in two reductions of one row, and nowhere else.
    let s = x.sin();
    let y = (&s - s.mean(keepdim(1))).square().sum(1);
    assert_eq!(each(&y, Op::Sin, 64 * 512), 1.0);
}

/// Compares the bits of every kernel with and without `REUSE`, on compilers and the interpreter.
#[track_caller]
fn same(make: impl Fn(&str) -> Tensor) {
    let kept = |ast: &UOp, target: &Target| heuristic::choose(&Kernel::new(ast.clone()), target);
    for device in ["CPU:X86", "CPU:CLANG", "CPU:LLVM"] {
        let Ok(d) = Device::get(device) else { continue };
        let run = |keep: bool| {
            let mut written: Vec<Vec<u8>> = Vec::new();
            for item in make(device).schedule().unwrap() {
                let ScheduleItem::Kernel { ast, buffers, .. } = &item else { continue };
                let mut opts = kept(ast, d.target()).opts;
                opts.retain(|o| keep || o.op != OptOp::Reuse);
                item.compile_with(&opts).unwrap().run().unwrap();
                written.extend(
                    buffers
                        .iter()
                        .filter(|b| b.role == Role::Output)
                        .map(|b| b.buffer.read().unwrap()),
                );
            }
            assert!(!written.is_empty());
            written
        };
        assert!(run(true) == run(false), "{device}: different bits");
    }
    for ast in asts(&make("CPU")) {
        let with = kept(&ast, &WIDE);
        let opts: Vec<_> = with.opts.iter().copied().filter(|o| o.op != OptOp::Reuse).collect();
        let without = Kernel::new(ast.clone()).apply_all(&opts, &WIDE).unwrap();
        let run = |k: &Kernel| {
            let program = compile::lowered(k, &WIDE).unwrap();
            let mut buffers: Vec<Vec<u8>> = program.args.iter().map(content).collect();
            let memory: Vec<Memory> = buffers.iter_mut().map(|b| Memory::new(b)).collect();
            let interp = Interp::compile(&program.uops).unwrap();
            interp.run_with(&memory, interp.launch(), &Options::default()).unwrap();
            drop(memory);
            buffers
        };
        assert!(
            run(&with) == run(&without),
            "INTERP: different bits {} {}",
            opt::show(&with.opts),
            opt::show(&without.opts)
        );
    }
}

/// The bytes of an argument: small positive and negative numbers.
fn content(arg: &UOp) -> Vec<u8> {
    let picograd::ir::Arg::Global { len, .. } = arg.arg() else { panic!("an argument") };
    let list: Vec<f32> = (0..*len).map(|i| ((i * 31 + 7) % 41) as f32 / 8.0 - 2.0).collect();
    Tensor::from_vec(list, [*len]).cast(arg.dtype()).to_bytes().unwrap()
}

#[test]
fn reuse_keeps_bits_for_all_row_shapes() {
    let mut seed = 1u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    for round in 0..24u64 {
        let rank = 1 + random(3) as usize;
        let shape: Vec<usize> = (0..rank)
            .map(|_| [1, 2, 3, 7, 16, 33, 48, 64, 100, 128][random(10) as usize])
            .collect();
        let axis = random(rank as u64) as isize;
        let dtype =
            [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16][random(5) as usize];
        let make = |d: &str| {
            let x = varied(&shape, dtype, d, 4.0);
            match round % 4 {
                0 => x.softmax(axis),
                1 => x.masked_fill(&x.gt(1.0), f32::NEG_INFINITY).softmax(axis),
                2 => x.sin().softmax(axis) * 2.0,
                _ => x.log_softmax(axis).exp(),
            }
        };
        same(make);
    }
}

#[test]
fn reuse_keeps_bits_with_several_outputs() {
    same(|d| {
        let x = varied(&[12, 160], DType::F32, d, 4.0).as_param();
        let w = varied(&[12, 160], DType::F32, d, 4.0);
        (x.softmax(1) * w).sum(..).gradient(&[&x]).remove(0)
    });
    // The row has two axes.
    same(|d| {
        let e = varied(&[6, 40, 24], DType::F32, d, 4.0).exp();
        &e / e.sum(keepdim([1, 2]))
    });
    same(|d| {
        let q = varied(&[2, 2, 20, 16], DType::F32, d, 4.0);
        q.scaled_dot_product_attention(&q, &q, Attention::new().causal())
    });
}

#[test]
fn reuse_keeps_bits_across_lanes_and_nested_reductions() {
    // Lanes are rows, and all of them write the buffer that each reads.
    same(|d| {
        let x =
            varied(&[5, 2, 5], DType::F32, d, 4.0).exp() + varied(&[5, 2, 5], DType::F32, d, 4.0);
        x.maximum(x.max(keepdim(2)))
    });
    // A reduction over values scaled by another: the first is rematerialized at each iteration of
    // the second.
    same(|d| {
        let e = varied(&[5, 5], DType::F32, d, 4.0).exp();
        let scaled = (&e / e.sum(keepdim(0))).reshape([5, 1, 5]).expand([5, 5, 5]).reshape([5, 25]);
        scaled
            .shrink(&[(0, 5), (0, 24)])
            .reshape([5, 4, 6])
            .shrink(&[(0, 5), (0, 4), (0, 2)])
            .sum(1)
    });
    // Two reductions that compute the same values.
    same(|d| {
        let x = varied(&[64], DType::F32, d, 4.0);
        Tensor::stack(&[(x.exp() * x.max(0)).sum(0), (x.exp() * 2.0).sum(0) * x.exp().max(0)], 0)
    });
}

#[test]
fn loops_with_different_splits_share_values() {
    let x = varied(&[8, 256], DType::F32, "CPU", 4.0);
    let ast = asts(&x.softmax(1)).remove(0);
    // Four vectors per iteration of the sum and one of the result, and vice versa.
    for opts in [
        "",
        "UPCAST:1:16 UNROLL:2:64",
        "UPCAST:0:2 UNROLL:2:32 UPCAST:1:64",
        "UPCAST:1:64 UPCAST:0:8 UNROLL:2:4",
    ] {
        let opts = format!("{opts} REUSE");
        let k = Kernel::new(ast.clone()).apply_all(&opt::parse(&opts).unwrap(), &WIDE).unwrap();
        assert_eq!(times(&compile::lowered(&k, &WIDE).unwrap().uops, Op::Exp), 2048.0, "{opts}");
        if Device::get("CPU").is_ok() {
            let bits = |opts: &str| {
                let item = x.softmax(1).schedule().unwrap().remove(0);
                item.compile_with(&opt::parse(opts).unwrap()).unwrap().run().unwrap();
                let ScheduleItem::Kernel { buffers, .. } = &item else { panic!("a kernel") };
                buffers[0].buffer.read().unwrap()
            };
            assert!(bits(&opts) == bits(opts.trim_end_matches("REUSE")), "{opts}: different bits");
        }
    }
}

#[test]
fn invalid_reuse_is_refused() {
    let x = varied(&[8, 256], DType::F32, "CPU", 4.0);
    let refused = |t: &Tensor, opts: &str, target: &Target, why: &str| {
        let e = Kernel::new(asts(t).remove(0))
            .apply_all(&opt::parse(opts).unwrap(), target)
            .unwrap_err()
            .to_string();
        assert!(e.contains(why), "{opts}: {e}, expected {why}");
    };
    refused(&x.sum(1), "REUSE", &WIDE, "costs more to compute than to store");
    refused(&x.exp(), "REUSE", &WIDE, "costs more to compute than to store");
    refused(&x.softmax(1), "REUSE REUSE", &WIDE, "no other Opt may follow it");
    refused(&x.softmax(1), "REUSE UPCAST:1:16", &WIDE, "no other Opt may follow it");
    refused(&x.softmax(1), "REUSE", &Target::interp(), "costs more to compute than to store");
    refused(
        &varied(&[32, 8192], DType::F16, "CPU", 4.0).softmax(1),
        "UPCAST:0:32 REUSE",
        &WIDE,
        "too small",
    );
}
