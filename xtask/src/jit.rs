//! `cargo xtask bench jit`: what a replay of a captured function costs beside its kernels, and what
//! capturing gains, on the default device. One line of JSON per figure.

use crate::bench::Figure;
use crate::{cpu, models};
use picograd::{Device, Jit, Result, SymInt, Tensor, device, no_grad};
use std::time::{Duration, Instant};

/// The kernels of the chain.
const CHAIN: usize = 100;

/// All figures, or those whose names contain one of the words.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("on {}: {}", device.name(), device.describe());
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    if wants("chain") {
        chain(&device)?;
    }
    if wants("mnist_step") {
        let mut plain = cpu::mnist_step()?;
        let mut inner = cpu::mnist_step()?;
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

/// The longest text of the model with a cache.
const LONGEST: usize = 1024;

/// A token of GPT-2 small with a cache that grows: one captured function for all places.
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
    assert_eq!(device::counters().compiled, compiled, "one set of kernels serves all places");
    Ok(())
}

/// A hundred kernels of one element each, every one on the result of the one before.
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
    // On a device that runs beside the host the call returns when everything is started.
    let mut issue = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        f.call(x.clone())?;
        issue = issue.min(start.elapsed().as_secs_f64() * 1e6);
        device.synchronize()?;
    }
    Figure::in_suite("jit", "chain_100_kernels", us, "us").with("until_started", issue).print();
    Figure::in_suite("jit", "replay_per_kernel", us / CHAIN as f64, "us")
        .with("limit", 1.0)
        .print();
    Ok(())
}

/// One thing with and without.
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
    // One after the other, so that a busy moment of the machine meets both.
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

/// The best time of one call, each measured to the end of what it started.
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
