//! `cargo xtask bench jit`: the overhead of a replay, and the speedup of captured functions, on the
//! default device. Prints one line of JSON per figure.

use crate::bench::Figure;
use crate::{cpu_workloads, models};
use picograd::{Device, Jit, Result, SymInt, Tensor, device, no_grad};
use std::time::{Duration, Instant};

/// Kernels in the chain.
const CHAIN: usize = 100;

/// Prints the figures, or those whose names contain one of the words.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("on {}: {}", device.name(), device.describe());
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    if wants("chain") {
        chain(&device)?;
    }
    if wants("mnist_step") {
        let mut plain = cpu_workloads::mnist_step()?;
        let mut inner = cpu_workloads::mnist_step()?;
        let mut step = Jit::new(move |()| inner());
        both("mnist_step", &device, || plain().map(drop), || step.call(()).map(drop))?;
    }
    if wants("gpt2_decode") {
        let weights = models::Weights::default();
        let token = weights.next(&[1, 1, 768]);
        let next = |x: &Tensor| no_grad(|| models::gpt2_with(&weights, x, 64));
        let mut step = Jit::new(|x: Tensor| Ok(next(&x)));
        both(
            "gpt2_decode",
            &device,
            || next(&token).realize().map(drop),
            || step.call(token.clone()).map(drop),
        )?;
    }
    if wants("gpt2_cache") {
        cached(&device)?;
    }
    Ok(())
}

/// Capacity of the cache, in tokens.
const LONGEST: usize = 1024;

/// Returns a token of GPT-2 small with a growing cache: one captured function for all positions.
fn cached(device: &Device) -> Result<()> {
    let (weights, cache) = (models::Weights::default(), models::Cache::new(LONGEST)?);
    let token = weights.next(&[1, 1, 768]);
    let mut step = Jit::new(|(x, at): (Tensor, SymInt)| {
        no_grad(|| models::gpt2_cached(&weights, &x, &cache, &at))
    });
    let mut next = |place: usize| step.call((token.clone(), cache.at(place)?)).map(drop);
    for place in 0..3 {
        next(place)?;
    }
    let compiled = device::counters().compiled;
    for place in [63, LONGEST - 1] {
        let time = best(device, || next(place))?;
        Figure::in_suite(
            "jit",
            format!("gpt2_cache_{}_jit", place + 1),
            time.as_secs_f64() * 1e3,
            "ms",
        )
        .print();
    }
    assert_eq!(device::counters().compiled, compiled, "one set of kernels serves all positions");
    Ok(())
}

/// Returns a chain of 100 kernels of one element, each using the result of the previous one.
fn chain(device: &Device) -> Result<()> {
    let mut f = Jit::new(|x: Tensor| {
        let mut x = x;
        for _ in 0..CHAIN {
            x = (x + 1.0).realize()?;
        }
        Ok(x)
    });
    let x = Tensor::zeros([1]).contiguous().realize()?;
    for _ in 0..4 {
        assert_eq!(f.call(x.clone())?.item::<f32>()?, CHAIN as f32, "every kernel ran");
    }
    let stats = f.stats().expect("captured by now");
    assert_eq!(stats.steps, CHAIN, "a kernel for each");
    let time = best(device, || f.call(x.clone()).map(drop))?;
    let us = time.as_secs_f64() * 1e6;
    // On an asynchronous device the call returns when all kernels are launched.
    let mut issue = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        f.call(x.clone())?;
        issue = issue.min(start.elapsed().as_secs_f64() * 1e6);
        device.synchronize()?;
    }
    Figure::in_suite("jit", "chain_100_kernels", us, "us").with("host_us", issue).print();
    Figure::in_suite("jit", "replay_per_kernel", us / CHAIN as f64, "us")
        .with("limit", 1.0)
        .print();
    Ok(())
}

/// Measures a function plain and captured.
fn both(
    name: &str,
    device: &Device,
    mut plain: impl FnMut() -> Result<()>,
    mut captured: impl FnMut() -> Result<()>,
) -> Result<()> {
    for _ in 0..3 {
        plain()?;
        captured()?;
    }
    // Measurements alternate, so that other load affects both.
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        without = without.min(best(device, &mut plain)?);
        with = with.min(best(device, &mut captured)?);
    }
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    Figure::in_suite("jit", format!("{name}_plain"), ms(without), "ms").print();
    Figure::in_suite("jit", format!("{name}_jit"), ms(with), "ms")
        .with("of_plain", ms(with) / ms(without))
        .print();
    Ok(())
}

/// Best time of one call, including a synchronization at its end.
fn best(device: &Device, mut f: impl FnMut() -> Result<()>) -> Result<Duration> {
    let (begin, mut best) = (Instant::now(), Duration::MAX);
    let mut runs = 0;
    while runs < 5 || (begin.elapsed() < Duration::from_millis(700) && runs < 2000) {
        device.synchronize()?;
        let start = Instant::now();
        f()?;
        device.synchronize()?;
        best = best.min(start.elapsed());
        runs += 1;
    }
    Ok(best)
}
