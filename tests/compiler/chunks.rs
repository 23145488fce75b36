//! Chunks of CPU kernels: a result has the same bits for any number of threads, and in any order of
//! the chunks.

use crate::common::filled;
use picograd::compiler::device::Executable;
use picograd::exec::ScheduleItem;
use picograd::lower::Launch;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Conv2d, Flatten, Layer, Linear, Module, ReLU, TransformerBlock};
use picograd::opt::Kernel;
use picograd::target::{CpuTuning, Target, Tuning};
use picograd::tensor::{Pool, Reduction};
use picograd::testing::{graphs, random_case, run_for};
use picograd::{DType, Device, Tensor, compile, heuristic, opt, seq};
use std::hash::Hasher;
use std::process::Command;
use std::sync::Arc;

/// The devices that split kernels into chunks.
fn devices() -> Vec<&'static str> {
    ["CPU:X86", "CPU:LLVM", "CPU:CLANG"].into_iter().filter(|d| Device::get(d).is_ok()).collect()
}

/// The target of a device for which even the shortest kernel has many chunks.
fn eager(device: &str) -> Target {
    let target = Device::get(device).unwrap().target().clone();
    let cpu = CpuTuning { min_chunked_ns: 0.0, chunk_ns: 0.5, ..target.tuning.cpu };
    Target { tuning: Tuning { cpu, ..target.tuning }, ..target }
}

/// A hash of bytes that is the same in every process.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// A training step of a convolutional network: its loss and its parameters.
fn training_bits() -> u64 {
    Tensor::manual_seed(1);
    let net = seq![
        Conv2d::new(1, 16, 5),
        ReLU,
        |x: &Tensor| x.max_pool2d(2, Pool::new()),
        Conv2d::new(16, 32, 3),
        ReLU,
        Flatten::new(),
        Linear::new(32 * 10 * 10, 10)
    ];
    let x = Tensor::randn([24, 1, 28, 28]).realize().unwrap();
    let y = Tensor::arange(0, 24, 1) % 10;
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.01)).unwrap();
    let mut all = Vec::new();
    for _ in 0..2 {
        let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean);
        loss.backward();
        all.extend(loss.to_bytes().unwrap());
        optimizer.step().unwrap();
    }
    net.parameters().iter().for_each(|p| all.extend(p.to_bytes().unwrap()));
    hash(&all)
}

/// The logits of a transformer block over a vocabulary of prime size.
fn decode_bits() -> u64 {
    Tensor::manual_seed(2);
    let block = TransformerBlock::new(64, 4, 256);
    let x = Tensor::randn([1, 7, 64]).realize().unwrap();
    let head = Tensor::randn([10_007, 64]).realize().unwrap();
    let last = block.forward(&x).reshape([7, 64]).i(6);
    let logits = (head * last).sum(1);
    hash(&logits.to_bytes().unwrap())
}

/// Everything above on the default device, one line for each.
fn report() -> String {
    let name = std::env::var("DEV").unwrap();
    let (device, target) = (Device::get(&name).unwrap(), eager(&name));
    let sum = |shape: [usize; 2]| {
        let x = filled(&shape, DType::F32, &name, |i| ((i * 37) % 101) as f32 / 7.0);
        hash(&x.sum(1).to_bytes().unwrap())
    };
    let mut lines = vec![
        format!("sums {:x} {:x}", sum([2, 4096]), sum([37, 5003])),
        format!("training {:x}", training_bits()),
        format!("decode {:x}", decode_bits()),
    ];
    let count = std::env::var("PICO_TEST_CHUNKS").unwrap().parse().unwrap();
    let mut chunked = 0;
    for seed in 0..count {
        let (outputs, kernels) = run_for(&random_case(seed), &device, &target).unwrap();
        chunked += kernels;
        lines.push(format!("graph {seed} {:x}", hash(&outputs)));
    }
    lines.push(format!("chunked {chunked}"));
    lines.join("\n")
}

/// The work of a process that the test below starts.
#[test]
fn child_process() {
    if std::env::var("PICO_TEST_CHUNKS").is_ok() {
        println!("<report>{}</report>", report());
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    // 2,000 graphs with `PICO_GRAPHS=40000`.
    let count = (graphs() / 20).max(10);
    for device in devices() {
        let count = if device == "CPU:CLANG" { count.div_ceil(10) } else { count };
        let run = |threads: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "chunks::child_process", "--test-threads=1", "--nocapture"]);
            command.env("PICO_TEST_CHUNKS", count.to_string()).env("DEV", device);
            let out = command.env("THREADS", threads.to_string()).output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let report = text.split_once("<report>").and_then(|(_, t)| t.split_once("</report>"));
            let failed =
                || panic!("THREADS={threads}: {text}{}", String::from_utf8_lossy(&out.stderr));
            report.unwrap_or_else(failed).0.to_string()
        };
        let one = run(1);
        let chunked = one.rsplit_once("chunked ").unwrap().1.parse::<u64>().unwrap();
        assert!(chunked >= count / 4, "{chunked} kernels of {count} graphs have chunks");
        for threads in [2, 3, 8] {
            let other = run(threads);
            let differs = one.lines().zip(other.lines()).find(|(a, b)| a != b);
            assert_eq!(differs, None, "{device}: THREADS=1 and THREADS={threads}");
        }
    }
}

/// Calls the chunks of a kernel one by one in an order, on new memory, and returns its output.
fn in_order(
    run: &Arc<dyn Executable>,
    launch: &Launch,
    order: &[usize],
    input: &[u8],
    len: usize,
) -> Vec<u8> {
    let entry = run.entry().expect("a function of this process");
    let (mut out, mut input) = (vec![0u8; len], input.to_vec());
    let mut scratch = vec![0u64; launch.scratch.div_ceil(8) + 8];
    let at = scratch.as_mut_ptr().cast::<u8>();
    let at = at.wrapping_add(at.align_offset(64));
    let buffers = [out.as_mut_ptr(), input.as_mut_ptr()];
    for chunk in order {
        // SAFETY: the kernel has these two arguments of this length, and the scratch memory.
        unsafe { entry(buffers.as_ptr(), *chunk as std::ffi::c_long, at) };
    }
    out
}

#[test]
fn chunks_run_in_any_order() {
    for device in devices() {
        let x = filled(&[1009, 64], DType::F32, device, |i| ((i * 37) % 101) as f32 / 7.0);
        let bytes = x.to_bytes().unwrap();
        for y in [&x * 2.0, x.softmax(1)] {
            let item = y.schedule().unwrap().remove(0);
            let ScheduleItem::Kernel { ast, .. } = &item else { panic!("a kernel") };
            let kernel = heuristic::choose(&Kernel::new(ast.clone()), &eager(device));
            let compiled = item.compile_with(&kernel.opts).unwrap();
            let compiled = compiled.compiled().unwrap();
            let launch = &compiled.program.launch;
            let n = launch.chunks;
            assert!(n > 16, "{}", opt::show(&kernel.opts));
            let forward: Vec<usize> = (0..n).collect();
            let mixed: Vec<usize> = (0..n).map(|i| (i * 7 + 3) % n).collect();
            let backward: Vec<usize> = (0..n).rev().collect();
            let orders = [forward, backward, if n % 7 == 0 { Vec::new() } else { mixed }];
            let results: Vec<Vec<u8>> = orders
                .iter()
                .filter(|order| !order.is_empty())
                .map(|order| in_order(&compiled.executable, launch, order, &bytes, bytes.len()))
                .collect();
            assert!(results.iter().all(|r| *r == results[0]), "{device}");
            assert!(results[0].iter().any(|b| *b != 0));
        }
    }
}

/// An axis of prime length, which no number of chunks divides.
#[test]
fn the_last_chunk_is_shorter() {
    for target in [Target::c(64), Target::llvm(64), Target::interp()] {
        for n in [7usize, 13, 127, 1009] {
            let x = filled(&[n], DType::F32, "interp", |i| i as f32);
            let item = (&x + 1.0).schedule().unwrap().remove(0);
            let ScheduleItem::Kernel { ast, .. } = &item else { panic!("a kernel") };
            for chunks in [2, 3, 5, n - 1] {
                let opts = opt::parse(&format!("THREAD:0:{chunks}")).unwrap();
                let k = Kernel::new(ast.clone()).apply_all(&opts, &target).unwrap();
                let program = compile::lowered(&k, &target).unwrap();
                let len = n.div_ceil(chunks);
                assert_eq!(program.launch.chunks, n.div_ceil(len), "{n} in {chunks}");
                let expected = n as f64;
                let flops = program.estimate.flops;
                assert!((flops - expected).abs() < 1e-6 * expected, "{flops} of {expected}");
            }
        }
    }
}
