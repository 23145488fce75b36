//! `cargo xtask bench beam`: what a search gains over the heuristic on the default device. Each kernel is searched for anew, four kernels wide and for as long as
//! `BEAM_SECONDS` says; then both are timed in turns, by the clock on the wall over many launches. The peer of each figure is the heuristic.

use crate::bench::Figure;
use picograd::exec::beam::Beam;
use picograd::exec::{ExecItem, ScheduleItem};
use picograd::tensor::Conv;
use picograd::{DType, Device, Result, Tensor, env, opt};
use std::time::{Duration, Instant};

const WIDTH: usize = 4;
/// Turns, of which the best counts.
const TURNS: usize = 7;
/// How long a turn takes, about.
const TURN: Duration = Duration::from_millis(40);

/// Prints the figures.
pub fn figures() -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let (a, b) = (random(&[512, 512])?, random(&[512, 512])?);
    figure("matmul_512", &device, &a.matmul(&b))?;
    let rows = random(&[1024, 1024])?;
    figure("softmax_1024x1024", &device, &rows.softmax(-1))?;
    figure("layernorm_1024x1024", &device, &rows.layernorm(-1, 1e-5))?;
    figure("sum_columns_1024x1024", &device, &rows.sum(0))?;
    let (image, weight) = (random(&[8, 32, 32, 32])?, random(&[64, 32, 3, 3])?);
    figure("conv_8x32x32x32_64x3x3", &device, &image.conv2d(&weight, Conv::new().padding(1)).relu())
}

fn random(shape: &[usize]) -> Result<Tensor> {
    Tensor::rand(shape).cast(DType::F32).contiguous().realize()
}

/// Searches for the longest kernel of a tensor and prints its time with what was found.
fn figure(name: &str, device: &Device, t: &Tensor) -> Result<()> {
    let kernels = t.schedule()?.into_iter().filter(|i| matches!(i, ScheduleItem::Kernel { .. }));
    let lowered = kernels.map(|i| i.lower()).collect::<Result<Vec<ExecItem>>>()?;
    for item in &lowered {
        item.run()?;
    }
    let flops = |item: &ExecItem| item.compiled.as_ref().map_or(0.0, |c| c.program.estimate.flops);
    let Some(by_heuristic) = lowered.iter().max_by(|a, b| flops(a).total_cmp(&flops(b))) else { return Ok(()) };
    let Some(found) = by_heuristic.item.tune(Beam { width: WIDTH, seconds: env::config()?.beam_seconds })? else { return Ok(()) };
    let tuned = by_heuristic.item.lower_with(&found.opts)?;
    let (mut best, mut best_heuristic) = (f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        best = best.min(time(&tuned, device)?);
        best_heuristic = best_heuristic.min(time(by_heuristic, device)?);
    }
    let list = |item: &ExecItem| item.compiled.as_ref().map_or(String::new(), |c| opt::show(&c.opts));
    eprintln!("{name}: {} in place of {}", list(&tuned), list(by_heuristic));
    Figure::in_suite("beam", name, best * 1e6, "us")
        .peer("heuristic", best_heuristic * 1e6)
        .with("programs", found.tried as f64)
        .with("search_s", found.took.as_secs_f64())
        .print();
    Ok(())
}

/// Seconds of one run, of many in a row.
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
    Ok(run((TURN.as_secs_f64() / once.as_secs_f64().max(1e-6)).clamp(2.0, 2000.0) as u32)?.as_secs_f64())
}
