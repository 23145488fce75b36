//! `cargo xtask bench cpu`: throughput of kernels on the default device, which should be a CPU.
//! Each workload is repeated, and the fastest repetition counts, because other load only makes
//! repetitions slower. `limit` is the roofline of this machine, measured by loops that do nothing
//! else, and `of_limit` the ratio to it.

use crate::bench::Figure;
use crate::cpu_workloads::{self, Workload};
use crate::limits::Limits;
use picograd::{Device, Result};
use std::time::{Duration, Instant};

/// Prints the figures, or those whose names contain one of the words.
pub fn figures(quick: bool, wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let time = Duration::from_millis(if quick { 200 } else { 1500 });
    let limits = Limits::measure(device.target(), time * 2);
    for (name, value) in [
        ("limit_fma", limits.flops),
        ("limit_read", limits.read[0]),
        ("limit_read_16MiB", limits.read[1]),
        ("limit_copy", limits.copy[0]),
        ("limit_copy_16MiB", limits.copy[1]),
    ] {
        let unit = if name == "limit_fma" { "GFLOP/s" } else { "GB/s" };
        Figure::in_suite("cpu", name, value / 1e9, unit).print();
    }
    for workload in cpu_workloads::all() {
        if wants(wanted, workload.name) {
            print(&workload, &measure(&workload, time)?, limits.seconds(workload.work));
        }
    }
    Ok(())
}

/// Returns true if no word is given, or the name contains one of them.
pub fn wants(wanted: &[&str], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|w| name.contains(w))
}

/// Times of one workload.
struct Times {
    first: Duration,
    best: Duration,
    median: Duration,
    kernels: u64,
}

/// Runs a workload until the time is up, at least a few times.
fn measure(workload: &Workload, time: Duration) -> Result<Times> {
    let begin = Instant::now();
    let mut run = (workload.prepare)()?;
    run()?;
    let first = begin.elapsed();
    let mut list: Vec<Duration> = Vec::new();
    let (begin, before) = (Instant::now(), picograd::device::counters().kernels);
    while list.len() < 3 || (begin.elapsed() < time && list.len() < 1000) {
        let start = Instant::now();
        run()?;
        list.push(start.elapsed());
    }
    let kernels = (picograd::device::counters().kernels - before) / list.len() as u64;
    list.sort_unstable();
    Ok(Times { first, best: list[0], median: list[list.len() / 2], kernels })
}

fn print(workload: &Workload, times: &Times, limit: f64) {
    let Workload { name, work, .. } = *workload;
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    let best = times.best.as_secs_f64();
    Figure::in_suite("cpu", name, work.value(best), work.unit())
        .with("best_ms", ms(times.best))
        .with("median_ms", ms(times.median))
        .with("first_ms", ms(times.first))
        .with("kernels", times.kernels as f64)
        .with("limit", work.value(limit))
        .with("of_limit", limit / best)
        .print();
}
