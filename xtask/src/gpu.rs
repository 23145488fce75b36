//! `cargo xtask bench gpu`: throughput of kernels on the default device, which should be a GPU.
//! Names and workloads are those of `benches/peers`. Each tensor is recomputed from the same
//! inputs; the time is wall-clock time over many launches, launch overhead included. `limit` is the
//! bandwidth of a copy in the same run, or the peak rate of a known GPU.

use crate::bench::Figure;
use crate::{cpu_workloads, models};
use picograd::exec::ExecItem;
use picograd::tensor::{Attention, Conv};
use picograd::{DType, Device, Result, Tensor, no_grad};
use std::time::{Duration, Instant};

/// Measuring time of each figure.
const MEASURED: Duration = Duration::from_millis(300);
/// Training steps between two reads of the loss.
const STEPS_PER_READ: usize = 10;

/// Peak rates of GPUs by a part of their description, in TFLOP/s: f32 by the datasheet, and 16-bit
/// matrix products as measured with `mma.sync`.
const PEAKS: [(&str, f64, f64); 2] = [("H200", 67.0, 627.0), ("H100", 67.0, 627.0)];

/// The peers' figures were measured on an H200.
const PEER: &str = "PyTorch 2.11 on an H200";

struct Bench<'a> {
    device: Device,
    wanted: &'a [&'a str],
    copy: f64,
}

/// Prints the figures, or those whose names contain one of the words.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let mut b = Bench { device, wanted, copy: 0.0 };
    let long = 1usize << 28;
    {
        let a = random(&[long])?;
        b.copy = 8.0 * long as f64 / b.time(&(&a + 1.0))?.as_secs_f64() / 1e9;
        Figure::in_suite("gpu", "copy_256m", b.copy, "GB/s").print();
        b.bytes("relu_256m", 12.0, 3720.0, || Ok((&a * random(&[long])? + 1.5).relu()))?;
        b.bytes("gelu_256m", 8.0, 4205.0, || Ok(a.gelu()))?;
        b.bytes("sum_256m", 4.0 * long as f64, 4297.0, || Ok(a.sum(..)))?;
        let rows = a.reshape([1 << 16, 1 << 12]);
        b.bytes("sum_rows_65536x4096", 4.0 * 4096.0, 0.0, || Ok(rows.sum(1)))?;
        b.bytes("sum_columns_65536x4096", 4.0 * 65536.0, 0.0, || Ok(rows.sum(0)))?;
    }
    b.bytes("softmax_16384x4096", 8.0, 2469.0, || Ok(random(&[16384, 4096])?.softmax(-1)))?;
    b.bytes("layernorm_16384x4096", 8.0, 3024.0, || {
        Ok(random(&[16384, 4096])?.layernorm(-1, 1e-5))
    })?;
    b.bytes("transpose_16384", 8.0, 3521.0, || {
        Ok(random(&[16384, 16384])?.transpose(0, 1).contiguous())
    })?;
    let (f16, bf16, f32) = (DType::F16, DType::BF16, DType::F32);
    b.bytes("gemv_bf16_4096", 2.0 * 4096.0, 1214.0, || {
        Ok(narrow(&[4096, 4096], bf16)?.matmul(&narrow(&[4096], bf16)?))
    })?;
    for (name, n, dtype, peer) in [
        ("matmul_1024", 1024usize, f32, 0.0),
        ("matmul_4096", 4096, f32, 50.0),
        ("matmul_bf16_1024", 1024, bf16, 88.0),
        ("matmul_bf16_4096", 4096, bf16, 692.0),
        ("matmul_bf16_8192", 8192, bf16, 685.0),
        ("matmul_f16_4096", 4096, f16, 663.0),
    ] {
        b.flops(name, 2.0 * n as f64, dtype, peer, || {
            Ok(narrow(&[n, n], dtype)?.matmul(&narrow(&[n, n], dtype)?))
        })?;
    }
    for (name, dtype, peer) in
        [("conv_f16_128x64x56_k3", f16, 171.0), ("conv_128x64x56_k3", f32, 0.0)]
    {
        let images = || Ok((narrow(&[128, 64, 56, 56], dtype)?, narrow(&[64, 64, 3, 3], dtype)?));
        b.flops(name, 2.0 * 64.0 * 9.0, dtype, peer, || {
            images().map(|(x, w)| x.conv2d(&w, Conv::new().padding(1)))
        })?;
    }
    // Two products per output element: 4096 queries of width 128 by 4096 keys, and the weights by
    // 4096 values.
    b.flops("attention_bf16_4x16x4096x128", 4.0 * 4096.0, bf16, 601.0, || {
        let x = || narrow(&[4, 16, 4096, 128], bf16);
        Ok(x()?.scaled_dot_product_attention(&x()?, &x()?, Attention::new()))
    })?;
    b.mnist()?;
    b.decode()
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| name.contains(w))
    }
    /// Measures bytes per second, from those of one element of the result.
    fn bytes(
        &self,
        name: &str,
        bytes: f64,
        peer: f64,
        build: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        if self.wants(name) {
            let t = build()?;
            let rate = bytes * t.numel() as f64 / self.time(&t)?.as_secs_f64() / 1e9;
            with_peer(limited(Figure::in_suite("gpu", name, rate, "GB/s"), rate, self.copy), peer)
                .print();
        }
        Ok(())
    }
    /// Measures operations per second, from those of one element of the result.
    fn flops(
        &self,
        name: &str,
        flops: f64,
        dtype: DType,
        peer: f64,
        build: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        if self.wants(name) {
            let t = build()?;
            let rate = flops * t.numel() as f64 / self.time(&t)?.as_secs_f64() / 1e12;
            let mut figure = Figure::in_suite("gpu", name, rate, "TFLOP/s");
            if let Some((_, f32, f16)) = PEAKS.iter().find(|p| self.device.describe().contains(p.0))
            {
                figure = limited(figure, rate, if dtype == DType::F32 { *f32 } else { *f16 });
            }
            with_peer(figure, peer).print();
        }
        Ok(())
    }
    /// Measures a training step without capture: each step builds, schedules and runs its graph.
    fn mnist(&self) -> Result<()> {
        if !self.wants("mnist_step") {
            return Ok(());
        }
        let start = Instant::now();
        let mut step = cpu_workloads::mnist_step()?;
        step()?.item::<f32>()?;
        let first = start.elapsed();
        step()?.item::<f32>()?;
        let start = Instant::now();
        let mut steps = 0;
        // The loss is read now and then, as a progress bar does.
        while start.elapsed() < 3 * MEASURED {
            for _ in 1..STEPS_PER_READ {
                step()?.realize()?;
            }
            step()?.item::<f32>()?;
            steps += STEPS_PER_READ;
        }
        let each = start.elapsed().as_secs_f64() * 1e3 / steps as f64;
        with_peer(
            Figure::in_suite("gpu", "mnist_step", each, "ms")
                .with("first_ms", first.as_secs_f64() * 1e3),
            3.0,
        )
        .print();
        Ok(())
    }
    /// One token through eight layers with the shapes of a model of 7 billion parameters.
    fn decode(&self) -> Result<()> {
        if !self.wants("decode_bf16_8_layers") {
            return Ok(());
        }
        let bytes = 8.0 * models::LLAMA_LAYER * 2.0;
        let rate = bytes / self.time(&no_grad(|| models::llama_next(8, 64)))?.as_secs_f64() / 1e9;
        with_peer(
            limited(Figure::in_suite("gpu", "decode_bf16_8_layers", rate, "GB/s"), rate, self.copy),
            1151.0,
        )
        .print();
        Ok(())
    }

    /// Mean time of one computation over many in a row.
    fn time(&self, t: &Tensor) -> Result<Duration> {
        let items = t.schedule()?.iter().map(|i| i.compile()).collect::<Result<Vec<ExecItem>>>()?;
        let run = |times: u32| -> Result<Duration> {
            let start = Instant::now();
            for _ in 0..times {
                for item in &items {
                    item.run()?;
                }
            }
            self.device.synchronize()?;
            Ok(start.elapsed() / times)
        };
        run(2)?;
        let once = run(3)?;
        run((MEASURED.as_secs_f64() / once.as_secs_f64().max(1e-6)).clamp(3.0, 1000.0) as u32)
    }
}

fn random(shape: &[usize]) -> Result<Tensor> {
    narrow(shape, DType::F32)
}

fn narrow(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::rand(shape).cast(dtype).contiguous().realize()
}

fn limited(figure: Figure, rate: f64, limit: f64) -> Figure {
    figure.with("limit", limit).with("of_limit", rate / limit)
}

/// 0 stands for none.
fn with_peer(figure: Figure, peer: f64) -> Figure {
    if peer > 0.0 { figure.peer(PEER, peer) } else { figure }
}
