//! `cargo xtask bench beam`: the speedup of a beam search over the heuristic on the default device.
//! Each kernel is searched without the disk cache, with a beam width of 4 and a budget of
//! `BEAM_SECONDS`; then both programs are timed in alternation, by wall-clock time over many
//! launches. The peer of each figure is the heuristic.

use crate::bench::Figure;
use picograd::compile::beam::Beam;
use picograd::exec::{ExecItem, ScheduleItem};
use picograd::tensor::Conv;
use picograd::{DType, Device, Error, Result, Tensor, env, opt, testing};
use std::time::{Duration, Instant};

const WIDTH: usize = 4;
/// Alternations per kernel; the best counts.
const ROUNDS: usize = 7;
/// Approximate duration of one measurement.
const MEASUREMENT: Duration = Duration::from_millis(40);

/// Prints the figures, or those whose names contain one of the words. A GPU runs the workloads of
/// `bench gpu`, which are large enough to saturate it.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let search = |name: &str, build: &dyn Fn() -> Result<Tensor>| -> Result<()> {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w)) {
            figure(name, &device, &build()?)
        } else {
            Ok(())
        }
    };
    let conv = |x: &[usize], w: &[usize]| {
        Ok(random(x)?.conv2d(&random(w)?, Conv::new().padding(1)).relu())
    };
    if testing::has_own_memory(device.name()) && !device.target().tensor_cores.is_empty() {
        let bf16 = |shape: &[usize]| Tensor::rand(shape).cast(DType::BF16).contiguous().realize();
        search("sum_256m", &|| Ok(random(&[1 << 28])?.sum(..)))?;
        search("softmax_16384x4096", &|| Ok(random(&[16384, 4096])?.softmax(-1)))?;
        search("layernorm_16384x4096", &|| Ok(random(&[16384, 4096])?.layernorm(-1, 1e-5)))?;
        search("transpose_16384", &|| Ok(random(&[16384, 16384])?.transpose(0, 1).contiguous()))?;
        search("gemv_bf16_4096", &|| Ok(bf16(&[4096, 4096])?.matmul(&bf16(&[4096])?)))?;
        search("matmul_4096", &|| Ok(random(&[4096, 4096])?.matmul(&random(&[4096, 4096])?)))?;
        search("matmul_bf16_4096", &|| Ok(bf16(&[4096, 4096])?.matmul(&bf16(&[4096, 4096])?)))?;
        search("conv_128x64x56_k3", &|| conv(&[128, 64, 56, 56], &[64, 64, 3, 3]))?;
        return if wanted.is_empty() || wanted.iter().any(|w| "mnist_step".contains(w)) {
            step()
        } else {
            Ok(())
        };
    }
    search("matmul_512", &|| Ok(random(&[512, 512])?.matmul(&random(&[512, 512])?)))?;
    search("softmax_1024x1024", &|| Ok(random(&[1024, 1024])?.softmax(-1)))?;
    search("layernorm_1024x1024", &|| Ok(random(&[1024, 1024])?.layernorm(-1, 1e-5)))?;
    search("sum_columns_1024x1024", &|| Ok(random(&[1024, 1024])?.sum(0)))?;
    search("conv_8x32x32x32_64x3x3", &|| conv(&[8, 32, 32, 32], &[64, 32, 3, 3]))
}

fn random(shape: &[usize]) -> Result<Tensor> {
    Tensor::rand(shape).cast(DType::F32).contiguous().realize()
}

/// Tunes the slowest kernel of a tensor and prints its time.
fn figure(name: &str, device: &Device, t: &Tensor) -> Result<()> {
    let kernels = t.schedule()?.into_iter().filter(|i| matches!(i, ScheduleItem::Kernel { .. }));
    let lowered = kernels.map(|i| i.compile()).collect::<Result<Vec<ExecItem>>>()?;
    for item in &lowered {
        item.run()?;
    }
    let flops = |item: &ExecItem| item.compiled().map_or(0.0, |c| c.program.estimate.flops);
    let Some(by_heuristic) = lowered.iter().max_by(|a, b| flops(a).total_cmp(&flops(b))) else {
        return Ok(());
    };
    let Some(found) =
        by_heuristic.item().tune(Beam { width: WIDTH, seconds: env::config()?.beam_seconds })?
    else {
        return Ok(());
    };
    let tuned = by_heuristic.item().compile_with(&found.opts)?;
    let (mut best, mut best_heuristic) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        best = best.min(time(&tuned, device)?);
        best_heuristic = best_heuristic.min(time(by_heuristic, device)?);
    }
    let list = |item: &ExecItem| item.compiled().map_or(String::new(), |c| opt::show(&c.opts));
    eprintln!("{name}: {} in place of {}", list(&tuned), list(by_heuristic));
    Figure::in_suite("beam", name, best * 1e6, "us")
        .peer("heuristic", best_heuristic * 1e6)
        .with("programs", found.tried as f64)
        .with("search_s", found.took.as_secs_f64())
        .print();
    Ok(())
}

/// Returns a whole training step: `bench gpu mnist_step` in two processes, one of which tunes every
/// kernel.
fn step() -> Result<()> {
    let failed = |what: String| Error::Device(format!("bench gpu mnist_step: {what}"));
    let figure = |beam: usize| -> Result<(f64, Duration)> {
        let start = Instant::now();
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let mut command = std::process::Command::new(program);
        let out = command
            .args(["bench", "gpu", "mnist_step"])
            .env("BEAM", beam.to_string())
            .output()
            .map_err(|e| failed(e.to_string()))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let value = text
            .lines()
            .find(|l| l.contains("mnist_step"))
            .and_then(|l| l.split("\"value\":").nth(1)?.split(',').next()?.parse().ok());
        let value =
            value.ok_or_else(|| failed(String::from_utf8_lossy(&out.stderr).into_owned()))?;
        Ok((value, start.elapsed()))
    };
    let (by_heuristic, _) = figure(0)?;
    let (tuned, took) = figure(WIDTH)?;
    Figure::in_suite("beam", "mnist_step", tuned, "ms")
        .peer("heuristic", by_heuristic)
        .with("search_s", took.as_secs_f64())
        .print();
    Ok(())
}

/// Mean seconds per run over many runs in a row.
fn time(item: &ExecItem, device: &Device) -> Result<f64> {
    let run = |times: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            item.run()?;
        }
        device.synchronize()?;
        Ok(start.elapsed() / times)
    };
    let once = run(2)?;
    Ok(run((MEASUREMENT.as_secs_f64() / once.as_secs_f64().max(1e-6)).clamp(2.0, 2000.0) as u32)?
        .as_secs_f64())
}
