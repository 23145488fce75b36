//! `cargo xtask bench cpu`: throughput of kernels on the default device, which should be a CPU.
//! Names and workloads are those of `benches/peers`. Each tensor is recomputed from the same
//! inputs, and the fastest repetition counts, because other load only makes repetitions slower.
//! `limit` is the roofline of this machine, measured by loops that do nothing else, and `of_limit`
//! the ratio to it.

use crate::bench::Figure;
use crate::limits::Limits;
use crate::{kernels, models};
use picograd::exec::ExecItem;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Layer, Module};
use picograd::tensor::{Conv, Reduction};
use picograd::{DType, Device, Result, Tensor, no_grad};
use std::time::{Duration, Instant};

/// The chosen workloads and the measuring time of each.
struct Bench<'a> {
    wanted: &'a [&'a str],
    time: Duration,
    limits: Limits,
}

/// Prints the figures, or those whose names contain one of the words.
pub fn figures(quick: bool, wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let time = Duration::from_millis(if quick { 200 } else { 1500 });
    let b =
        Bench { wanted, time, limits: Limits::measure(device.target().threads.max(1), time * 2) };
    for (name, value) in [
        ("limit_fma", b.limits.flops),
        ("limit_read", b.limits.read[0]),
        ("limit_read_16MiB", b.limits.read[1]),
        ("limit_copy", b.limits.copy[0]),
        ("limit_copy_16MiB", b.limits.copy[1]),
    ] {
        let unit = if name == "limit_fma" { "GFLOP/s" } else { "GB/s" };
        Figure::in_suite("cpu", name, value / 1e9, unit).print();
    }
    products(&b)?;
    streams(&b)?;
    let image = || Ok((random(&[1, 64, 56, 56])?, random(&[64, 64, 3, 3])?));
    b.flops("conv_1x64x56_k3", 2.0 * 64.0 * 9.0, || {
        image().map(|(x, w)| x.conv2d(&w, Conv::new().padding(1)))
    })?;
    let images = || Ok((random(&[32, 1, 28, 28])?, random(&[32, 1, 5, 5])?));
    b.flops("conv_32x1x28_k5", 2.0 * 25.0, || images().map(|(x, w)| x.conv2d(&w, Conv::new())))?;
    mnist(&b)?;
    b.model("gpt2_decode", 2.0 * models::GPT2_WEIGHTS, 4.0 * models::GPT2_WEIGHTS, || {
        models::gpt2_next(1, 64)
    })?;
    // The logits use the embedding table for the last token only.
    let layers = models::GPT2_WEIGHTS - models::GPT2_TABLE;
    b.model("gpt2_prefill64", 2.0 * (64.0 * layers + models::GPT2_TABLE), 0.0, || {
        models::gpt2_next(64, 0)
    })
}

/// Matrix products.
fn products(b: &Bench) -> Result<()> {
    for n in [512usize, 1024, 2048] {
        b.flops(&format!("matmul_{n}"), 2.0 * n as f64, || {
            Ok(random(&[n, n])?.matmul(&random(&[n, n])?))
        })?;
    }
    b.bytes("gemv_4096", 4.0 * 4096.0, true, || {
        Ok(random(&[1, 4096])?.matmul(&random(&[4096, 4096])?))
    })?;
    b.flops("bmm_8x512x64", 2.0 * 64.0, || {
        Ok(random(&[8, 512, 64])?.matmul(&random(&[8, 64, 512])?))
    })
}

/// Bandwidth-bound work. Bytes are those per element of the result, each operand counted once.
fn streams(b: &Bench) -> Result<()> {
    let long = [16usize << 20];
    b.bytes("fma_relu_16M", 12.0, false, || Ok((random(&long)? * random(&long)? + 1.5).relu()))?;
    b.bytes("gelu_4M", 8.0, false, || Ok(random(&[4 << 20])?.gelu_tanh()))?;
    b.bytes("sum_16M", 4.0 * long[0] as f64, true, || Ok(random(&long)?.sum(..)))?;
    let rows = || random(&[4096, 1024]);
    b.bytes("softmax_4096x1024", 8.0, false, || Ok(rows()?.softmax(-1)))?;
    b.bytes("layernorm_4096x1024", 8.0, false, || {
        Ok(rows()?.layernorm(-1, 1e-5) * random(&[1024])? + random(&[1024])?)
    })?;
    b.bytes("transpose_4096", 8.0, false, || {
        Ok(random(&[4096, 4096])?.transpose(0, 1).contiguous())
    })
}

/// Returns a training step of the conv net that `benches/peers` measures.
fn mnist(b: &Bench) -> Result<()> {
    // Each layer once forward and twice backward, the first only once.
    const FLOPS: f64 = 2.0
        * 512.0
        * (2.0 * 460_800.0 + 3.0 * (10_240_000.0 + 1_179_648.0 + 1_327_104.0 + 5_760.0));
    if !b.wants("mnist_step") {
        return Ok(());
    }
    let mut step = mnist_step()?;
    let times = b.times(|| step()?.item::<f32>().map(drop))?;
    let limit = FLOPS / b.limits.flops * 1e3;
    b.line("mnist_step", times.best.as_secs_f64() * 1e3, "ms", &times)
        .with("limit", limit)
        .with("of_limit", limit / ms(times.best))
        .print();
    Ok(())
}

/// Returns a function that runs one training step and returns the loss.
pub fn mnist_step() -> Result<impl FnMut() -> Result<Tensor>> {
    Ok(mnist_training()?.0)
}

/// Returns the same, with the number of parameters.
pub fn mnist_training() -> Result<(impl FnMut() -> Result<Tensor>, usize)> {
    let net = kernels::mnist();
    let parameters = net.num_parameters();
    let (x, y) = (
        random(&[512, 1, 28, 28])?,
        (random(&[512])? * 10.0).cast(DType::I32).contiguous().realize()?,
    );
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    let step = move || {
        let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    };
    Ok((step, parameters))
}

fn ms(t: Duration) -> f64 {
    t.as_secs_f64() * 1e3
}

fn random(shape: &[usize]) -> Result<Tensor> {
    Tensor::rand(shape).cast(DType::F32).contiguous().realize()
}

/// Times of one workload.
struct Times {
    first: Duration,
    best: Duration,
    median: Duration,
    kernels: u64,
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| name.contains(w))
    }
    /// Runs a function until the time is up, at least a few times.
    fn times(&self, mut run: impl FnMut() -> Result<()>) -> Result<Times> {
        let begin = Instant::now();
        run()?;
        let first = begin.elapsed();
        let mut list: Vec<Duration> = Vec::new();
        let (begin, before) = (Instant::now(), picograd::device::counters().kernels);
        while list.len() < 3 || (begin.elapsed() < self.time && list.len() < 1000) {
            let start = Instant::now();
            run()?;
            list.push(start.elapsed());
        }
        let kernels = (picograd::device::counters().kernels - before) / list.len() as u64;
        list.sort_unstable();
        Ok(Times { first, best: list[0], median: list[list.len() / 2], kernels })
    }
    fn line(&self, name: &str, value: f64, unit: &'static str, times: &Times) -> Figure {
        let figure = Figure::in_suite("cpu", name, value, unit)
            .with("best_ms", ms(times.best))
            .with("median_ms", ms(times.median));
        figure.with("first_ms", ms(times.first)).with("kernels", times.kernels as f64)
    }
    /// Measures the kernels of a tensor. Returns the times and the number of elements.
    fn tensor(&self, build: impl FnOnce() -> Result<Tensor>) -> Result<(Times, f64)> {
        let start = Instant::now();
        let t = build()?;
        let items = t.schedule()?.iter().map(|i| i.compile()).collect::<Result<Vec<ExecItem>>>()?;
        let built = start.elapsed();
        let mut times = self.times(|| items.iter().try_for_each(|i| i.run().map(drop)))?;
        times.first += built;
        Ok((times, t.numel() as f64))
    }
    /// Measures operations per second, from those of one element of the result.
    fn flops(&self, name: &str, flops: f64, build: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        if self.wants(name) {
            let (times, elements) = self.tensor(build)?;
            self.rate(name, flops * elements, "GFLOP/s", &times, self.limits.flops);
        }
        Ok(())
    }
    /// Measures bytes per second, from those of one element of the result. `read` says that almost
    /// all of them are read.
    fn bytes(
        &self,
        name: &str,
        bytes: f64,
        read: bool,
        build: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        if self.wants(name) {
            let (times, elements) = self.tensor(build)?;
            let of_size = if read { &self.limits.read } else { &self.limits.copy };
            self.rate(
                name,
                bytes * elements,
                "GB/s",
                &times,
                of_size[usize::from(bytes * elements <= 34e6)],
            );
        }
        Ok(())
    }
    fn rate(&self, name: &str, work: f64, unit: &'static str, times: &Times, limit: f64) {
        let rate = work / times.best.as_secs_f64();
        self.line(name, rate / 1e9, unit, times)
            .with("limit", limit / 1e9)
            .with("of_limit", rate / limit)
            .print();
    }
    /// Measures milliseconds of a model. The limit is the larger of the times of its operations and
    /// of its bytes.
    fn model(
        &self,
        name: &str,
        flops: f64,
        bytes: f64,
        build: impl FnOnce() -> Tensor,
    ) -> Result<()> {
        if self.wants(name) {
            let (times, _) = self.tensor(|| Ok(no_grad(build)))?;
            let limit = (flops / self.limits.flops).max(bytes / self.limits.read[0]) * 1e3;
            self.line(name, ms(times.best), "ms", &times)
                .with("limit", limit)
                .with("of_limit", limit / ms(times.best))
                .print();
        }
        Ok(())
    }
}
