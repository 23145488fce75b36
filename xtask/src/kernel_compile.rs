//! `cargo xtask bench kernel_compile`: how long a kernel takes from linear program to machine code, through LLVM and through C, on the kernels of models. Nothing
//! is kept on disk, and nothing runs.

use crate::bench::Figure;
use crate::{kernels, models};
use picograd::exec::{self, ScheduleItem};
use picograd::ir::UOp;
use picograd::{Device, Result, Tensor};
use std::time::Duration;

/// Prints the figures of every renderer that is here.
pub fn figures() -> Result<()> {
    for (model, tensors) in [("gpt2", vec![models::gpt2()]), ("mnist", kernels::mnist_gradients()?)] {
        let mut asts: Vec<UOp> = Vec::new();
        for item in Tensor::schedule_many(&tensors.iter().collect::<Vec<_>>())? {
            if let ScheduleItem::Kernel { ast, .. } = item
                && !asts.contains(&ast)
            {
                asts.push(ast);
            }
        }
        for name in ["CPU:LLVM", "CPU:CLANG"] {
            match Device::get(name) {
                Ok(device) => figure(model, name, &asts, &device)?,
                Err(e) => eprintln!("{name} is left out: {e}"),
            }
        }
    }
    Ok(())
}

fn figure(model: &str, name: &str, asts: &[UOp], device: &Device) -> Result<()> {
    // The first kernel pays for the start of LLVM.
    exec::compiled(&asts[0], device)?;
    exec::clear_programs();
    let mut times = asts.iter().map(|ast| Ok(exec::compiled(ast, device)?.times[2])).collect::<Result<Vec<Duration>>>()?;
    times.sort();
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    let mean = ms(times.iter().sum()) / times.len() as f64;
    let renderer = name.split(':').nth(1).unwrap_or(name).to_lowercase();
    Figure::in_suite("kernel_compile", format!("{model}_{renderer}"), mean, "ms")
        .with("median", ms(times[times.len() / 2]))
        .with("worst", ms(times[times.len() - 1]))
        .with("kernels", times.len() as f64)
        .print();
    Ok(())
}
