//! `cargo xtask bench gpu`: how fast kernels run on the default device, which should be a GPU. Values are computed over and over from inputs that
//! stay where they are; the time is by the clock on the wall over many launches, so what it takes to start one is in it.

use crate::bench::Figure;
use picograd::exec::ExecItem;
use picograd::{DType, Device, Result, Tensor};
use std::time::{Duration, Instant};

/// How long each figure is measured for.
const MEASURED: Duration = Duration::from_millis(300);

/// Prints the figures. The peer's are of an H200 with PyTorch 2.11.
pub fn figures() -> Result<()> {
    let device = Device::named(&Device::default_name())?;
    eprintln!("{}: {}", device.name(), device.describe());
    let long = [1usize << 28];
    let (a, b) = (random(&long)?, random(&long)?);
    bandwidth("copy_256m", &device, &(&a + 1.0), 8.0, None)?;
    bandwidth("relu_256m", &device, &(&a * &b + 1.5).relu(), 12.0, Some(3720.0))?;
    bandwidth("gelu_256m", &device, &a.gelu(), 8.0, Some(4205.0))?;
    bandwidth("sum_256m", &device, &a.sum(..), 4.0 * long[0] as f64, Some(4297.0))?;
    drop(b);
    let rows = a.reshape([1 << 16, 1 << 12]);
    bandwidth("sum_rows_65536x4096", &device, &rows.sum(1), 4.0 * 4096.0, None)?;
    bandwidth("sum_columns_65536x4096", &device, &rows.sum(0), 4.0 * 65536.0, None)?;
    drop((a, rows));
    let rows = random(&[16384, 4096])?;
    bandwidth("softmax_16384x4096", &device, &rows.softmax(-1), 8.0, Some(2469.0))?;
    bandwidth("layernorm_16384x4096", &device, &rows.layernorm(-1, 1e-5), 8.0, Some(3024.0))?;
    drop(rows);
    let square = random(&[16384, 16384])?;
    bandwidth("transpose_16384", &device, &square.transpose(0, 1).contiguous(), 8.0, Some(3521.0))?;
    drop(square);
    let (n, bf16) = (4096usize, DType::BF16);
    let (matrix, vector) = (random(&[n, n])?.cast(bf16).realize()?, random(&[n])?.cast(bf16).realize()?);
    bandwidth("gemv_bf16_4096", &device, &matrix.matmul(&vector), 2.0 * n as f64, Some(1214.0))?;
    for (name, n, dtype, peer) in [
        ("matmul_1024", 1024usize, DType::F32, None),
        ("matmul_4096", 4096, DType::F32, Some(50.0)),
        ("matmul_bf16_4096", 4096, bf16, Some(692.0)),
    ] {
        let (a, b) = (random(&[n, n])?.cast(dtype).realize()?, random(&[n, n])?.cast(dtype).realize()?);
        let time = time(&device, &a.matmul(&b))?;
        let figure = Figure::in_suite("gpu", name, 2.0 * (n as f64).powi(3) / time.as_secs_f64() / 1e12, "TFLOP/s");
        with_peer(figure, peer).print();
    }
    Ok(())
}

fn random(shape: &[usize]) -> Result<Tensor> {
    Tensor::rand(shape).cast(DType::F32).contiguous().realize()
}

fn with_peer(figure: Figure, peer: Option<f64>) -> Figure {
    match peer {
        Some(p) => figure.peer("PyTorch 2.11", p),
        None => figure,
    }
}

/// Bytes per second, given those of one element of the result.
fn bandwidth(name: &str, device: &Device, t: &Tensor, bytes: f64, peer: Option<f64>) -> Result<()> {
    let seconds = time(device, t)?.as_secs_f64();
    with_peer(Figure::in_suite("gpu", name, bytes * t.numel() as f64 / seconds / 1e9, "GB/s"), peer).print();
    Ok(())
}

/// The time of one computation of a tensor, of many in a row.
fn time(device: &Device, t: &Tensor) -> Result<Duration> {
    let items = t.schedule()?.iter().map(|i| i.lower()).collect::<Result<Vec<ExecItem>>>()?;
    let run = |times: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            for item in &items {
                item.run()?;
            }
        }
        device.synchronize()?;
        Ok(start.elapsed() / times)
    };
    run(2)?;
    let once = run(3)?;
    run((MEASURED.as_secs_f64() / once.as_secs_f64().max(1e-6)).clamp(3.0, 1000.0) as u32)
}
