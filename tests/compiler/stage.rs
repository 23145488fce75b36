//! The Opt `STAGE`: the same bits as without it, on the interpreter with its race check and on the
//! available compilers.

use crate::common::{count, varied};
use picograd::device::interp::{Fault, Interp, Memory, Options};
use picograd::exec::ScheduleItem;
use picograd::ir::{Op, UOp};
use picograd::opt::Kernel;
use picograd::target::Target;
use picograd::tensor::Conv;
use picograd::{DType, Device, Tensor, heuristic, opt};

/// The output of the single kernel of a tensor with these Opts.
fn with(t: &Tensor, opts: &str) -> picograd::Result<Vec<u8>> {
    let mut items = t.schedule()?;
    assert_eq!(items.len(), 1, "one kernel is expected");
    items.remove(0).compile_with(&opt::parse(opts)?)?.run()?;
    t.to_bytes()
}

/// The linear program of the single kernel of a tensor.
fn program(t: &Tensor, opts: &str, target: &Target) -> picograd::Result<Vec<UOp>> {
    let schedule = t.schedule()?;
    let ScheduleItem::Kernel { ast, .. } = &schedule[0] else { panic!("a kernel is expected") };
    let kernel = Kernel::new(ast.clone()).apply_all(&opt::parse(opts)?, target)?;
    Ok(picograd::compile::lowered(&kernel, target)?.uops)
}

/// Compares the bits with and without the `STAGE` Opts of the list, on each available device.
#[track_caller]
fn same(make: impl Fn(&str) -> Tensor, devices: &[&str], opts: &str) {
    let unstaged: Vec<&str> = opts.split_whitespace().filter(|o| !o.starts_with("STAGE")).collect();
    assert!(unstaged.len() < opts.split_whitespace().count(), "the list has no STAGE");
    for device in devices {
        if Device::get(device).is_err() {
            continue;
        }
        let expected = with(&make(device), &unstaged.join(" ")).unwrap();
        let got = with(&make(device), opts).unwrap_or_else(|e| panic!("{device}: {e}"));
        assert!(expected == got, "{device} {opts}: different bits than without staging");
    }
}

#[track_caller]
fn refused(t: &Tensor, opts: &str, target: &Target, why: &str) {
    let e = program(t, opts, target).expect_err(opts).to_string();
    assert!(e.contains(why), "{opts}: {e}, expected {why}");
}

const CPUS: [&str; 3] = ["CPU:X86", "CPU:CLANG", "CPU:LLVM"];

fn matmul(m: usize, k: usize, n: usize, dtype: DType) -> impl Fn(&str) -> Tensor {
    move |d| varied(&[m, k], dtype, d, 16.0).matmul(&varied(&[k, n], dtype, d, 16.0))
}

#[test]
fn both_inputs_of_a_product_are_staged() {
    let opts = "UPCAST:1:4 LOCAL:1:8 UPCAST:0:4 LOCAL:0:4 SPLIT:4:8 STAGE:4:1 STAGE:4:2";
    same(matmul(32, 64, 64, DType::F32), &["INTERP"], opts);
    for dtype in [DType::F16, DType::BF16, DType::I32, DType::I8, DType::F64, DType::U64] {
        same(
            matmul(32, 64, 64, dtype),
            &["INTERP"],
            "UPCAST:1:4 LOCAL:1:8 UPCAST:0:4 LOCAL:0:4 SPLIT:4:8 STAGE:4:1 STAGE:4:2",
        );
    }
}

#[test]
fn later_opts_change_the_tile() {
    same(
        matmul(32, 64, 64, DType::F32),
        &["INTERP"],
        "SPLIT:2:16 STAGE:2:2 UPCAST:1:4 LOCAL:1:8 STAGE:3:1 LOCAL:0:2 UNROLL:5:4",
    );
}

#[test]
fn odd_sizes_are_staged() {
    // 5 threads, 7 columns each, 9 iterations: no count divides another.
    same(
        matmul(15, 27, 35, DType::F32),
        &["INTERP"],
        "UPCAST:1:7 LOCAL:1:5 LOCAL:0:3 SPLIT:3:9 STAGE:3:1 STAGE:3:2",
    );
    same(matmul(15, 27, 35, DType::F32), &["INTERP"], "LOCAL:1:5 STAGE:1:1 STAGE:1:2");
    same(matmul(15, 27, 35, DType::F32), &CPUS, "UPCAST:1:7 UPCAST:0:3 SWAP:0:1 STAGE:0:2");
    same(matmul(1, 27, 35, DType::F32), &CPUS, "UPCAST:0:5 STAGE:0:1");
    same(
        matmul(13, 17, 19, DType::F32),
        &["INTERP"],
        "PADTO:1:4 UPCAST:1:4 LOCAL:1:5 PADTO:0:2 LOCAL:0:2 PADTO:3:6 SPLIT:3:6 STAGE:3:1 \
         STAGE:3:2",
    );
}

#[test]
fn cpu_panels_keep_values() {
    for dtype in [DType::F32, DType::BF16, DType::I32, DType::F64] {
        same(
            matmul(32, 64, 128, dtype),
            &CPUS,
            "UPCAST:1:64 UPCAST:0:4 SWAP:0:1 THREAD:0:2 STAGE:0:2",
        );
    }
    // A panel of an input that is not contiguous along the lanes, and blocks of a sum.
    let turned = |d: &str| {
        varied(&[16, 48], DType::F32, d, 16.0).matmul(&varied(&[64, 48], DType::F32, d, 16.0).t())
    };
    same(turned, &CPUS, "UPCAST:1:32 UPCAST:0:4 SWAP:0:1 STAGE:0:2");
    same(turned, &CPUS, "UPCAST:1:32 UPCAST:0:4 SPLIT:2:16 STAGE:2:2 STAGE:2:1");
}

/// A panel of 128 KiB is in scratch memory: the stack of the thread that runs the kernel has half
/// of that.
#[test]
fn panels_need_no_stack() {
    for device in CPUS.into_iter().filter(|d| d.starts_with("CPU") && Device::get(d).is_ok()) {
        let product = matmul(8, 512, 128, DType::F32)(device);
        let item = product.schedule().unwrap().remove(0);
        let opts = opt::parse("UPCAST:1:64 UPCAST:0:4 SWAP:0:1 STAGE:0:2").unwrap();
        let staged = item.compile_with(&opts).unwrap();
        assert!(staged.compiled().unwrap().program.launch.scratch >= 128 << 10);
        let run = || staged.run().map(drop);
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        std::thread::scope(|s| thread.spawn_scoped(s, run).unwrap().join().unwrap()).unwrap();
        let expected = matmul(8, 512, 128, DType::F32)(device);
        let plain = expected.schedule().unwrap().remove(0).compile_with(&[]).unwrap();
        plain.run().unwrap();
        assert_eq!(product.to_bytes().unwrap(), expected.to_bytes().unwrap(), "{device}");
    }
}

#[test]
fn products_of_any_size_have_panels() {
    for (m, k, n) in [(64, 48, 128), (100, 40, 200), (37, 50, 100), (61, 33, 127), (128, 16, 16)] {
        let target = Target::c(64);
        let schedule = matmul(m, k, n, DType::F32)("CPU").schedule().unwrap();
        let ScheduleItem::Kernel { ast, .. } = &schedule[0] else { panic!("a kernel is expected") };
        let opts = opt::show(&heuristic::choose(&Kernel::new(ast.clone()), &target).opts);
        assert!(opts.contains("STAGE"), "{m} {k} {n}: {opts}");
        if Device::get("CPU").is_ok() {
            same(matmul(m, k, n, DType::F32), &CPUS, &opts);
        }
    }
}

#[test]
fn staged_loads_keep_their_masks() {
    let conv = |d: &str| {
        let (x, w) = (
            varied(&[2, 4, 9, 9], DType::F32, d, 16.0),
            varied(&[8, 4, 3, 3], DType::F32, d, 16.0),
        );
        x.conv2d(&w, Conv::new().padding(1))
    };
    let axes = program(&conv("INTERP"), "", &Target::interp()).unwrap();
    assert!(count(&axes, Op::Range) == 3, "{axes:?}");
    same(conv, &["INTERP"], "LOCAL:1:4 LOCAL:3:9 STAGE:6:1 STAGE:6:2");
    same(conv, &["INTERP"], "UPCAST:1:4 LOCAL:3:3 UPCAST:3:3 STAGE:5:1");
    same(conv, &CPUS, "UPCAST:1:4 STAGE:2:1 STAGE:2:2");
    same(conv, &CPUS, "UPCAST:3:9 UPCAST:1:4 STAGE:3:1");
}

#[test]
fn staging_combines_with_group_reduces() {
    same(matmul(8, 64, 16, DType::F32), &["INTERP"], "LOCAL:1:4 GROUP:3:8 STAGE:4:1 STAGE:4:2");
    same(matmul(8, 64, 16, DType::F32), &["INTERP"], "LOCAL:1:4 SPLIT:3:16 STAGE:3:2 GROUPTOP:4:4");
}

#[test]
fn missing_barriers_are_detected_as_races() {
    let t = matmul(16, 32, 32, DType::F32)("INTERP");
    let uops = program(
        &t,
        "UPCAST:1:2 LOCAL:1:8 LOCAL:0:4 SPLIT:4:8 STAGE:4:1 STAGE:4:2",
        &Target::interp(),
    )
    .unwrap();
    let run = |uops: &[UOp]| {
        let mut buffers = [vec![0u8; 16 * 32 * 4], vec![1u8; 16 * 32 * 4], vec![1u8; 32 * 32 * 4]];
        let memory: Vec<Memory> = buffers.iter_mut().map(|b| Memory::new(b)).collect();
        let interp = Interp::compile(uops).unwrap();
        interp.run_with(&memory, interp.launch(), &Options { races: true, ..Options::default() })
    };
    run(&uops).unwrap();
    // Without the barrier before the copies, one thread overwrites what another still reads.
    let mut without = uops.clone();
    without.remove(uops.iter().position(|u| u.op() == Op::Barrier).unwrap());
    assert!(matches!(run(&without), Err(Fault::Race { .. })));
}

#[test]
fn unstageable_loads_are_refused() {
    let t = matmul(32, 64, 64, DType::F32)("INTERP");
    let target = Target::interp();
    refused(&t, "STAGE:2:0", &target, "writes argument 0");
    refused(&t, "STAGE:2:7", &target, "nothing is loaded from argument 7");
    refused(&t, "STAGE:9:1", &target, "there is no axis 9");
    refused(&t, "STAGE:2:1", &target, "the load uses no range below the loop");
    refused(&t, "LOCAL:1:8 STAGE:2:1", &target, "kind Local");
    refused(&t, "SPLIT:2:8 STAGE:2:1 STAGE:2:1", &target, "staged already");
    refused(
        &t,
        "SPLIT:2:8 STAGE:2:1 UNROLL:2:8",
        &target,
        "the loop of the staged load no longer exists",
    );
    refused(&t, "SPLIT:2:7", &target, "does not divide");
    refused(&t, "SPLIT:2:64", &target, "is the whole axis, so there is nothing to split");
    refused(&t, "SPLIT:0:8", &target, "not a loop");
    let large = matmul(1024, 1024, 1024, DType::F32)("CPU");
    refused(&large, "STAGE:0:2", &Target::c(64), "too small");
    let table = varied(&[64, 8], DType::F32, "INTERP", 16.0);
    let at = varied(&[16], DType::F32, "INTERP", 16.0).cast(DType::I32).realize().unwrap();
    refused(&table.index_select(0, &at), "STAGE:0:2", &target, "depends on data");
}
