//! `cargo xtask bench kernel_compile`: time per kernel from linear program to machine code, for
//! each installed compiler, on the kernels of models, and the time of a disk-cache hit. No kernel
//! runs.

use crate::bench::Figure;
use crate::{kernels, models};
use picograd::exec::ScheduleItem;
use picograd::ir::UOp;
use picograd::{Device, Result, Tensor, compile};
use std::time::Duration;

/// Prints the figures of every available renderer.
pub fn figures() -> Result<()> {
    for (model, tensors) in [("gpt2", vec![models::gpt2()]), ("mnist", kernels::mnist_gradients()?)]
    {
        let mut asts: Vec<UOp> = Vec::new();
        for item in Tensor::schedule_many(&tensors.iter().collect::<Vec<_>>())? {
            if let ScheduleItem::Kernel { ast, .. } = item
                && !asts.contains(&ast)
            {
                asts.push(ast);
            }
        }
        for name in ["CPU:X86", "CPU:LLVM", "CPU:CLANG", "CUDA", "CL"] {
            match Device::get(name) {
                Ok(device) => figure(model, name, &asts, &device)?,
                Err(e) => eprintln!("{name} is skipped: {e}"),
            }
        }
    }
    Ok(())
}

fn figure(model: &str, name: &str, asts: &[UOp], device: &Device) -> Result<()> {
    // The first kernel includes the start of LLVM.
    compile::compiled(&asts[0], device)?;
    let renderer = name.split(':').nth(1).unwrap_or(name).to_lowercase();
    // The second time, the disk cache has the kernels.
    for (which, cached) in [("", false), ("_cached", true)] {
        compile::clear_programs();
        let compiled =
            asts.iter().map(|ast| compile::compiled(ast, device)).collect::<Result<Vec<_>>>()?;
        let of_kind = compiled.iter().filter(|c| c.from_cache == cached);
        let mut times: Vec<Duration> = of_kind.map(|c| c.compile_time).collect();
        times.sort();
        let [.., worst] = times[..] else {
            eprintln!(
                "{model} on {name}: no kernel was {}",
                if cached { "in the disk cache" } else { "compiled: all are in the disk cache" }
            );
            continue;
        };
        let largest = compiled.iter().map(|c| c.program.uops.len()).max().unwrap_or(0);
        let ms = |t: Duration| t.as_secs_f64() * 1e3;
        let mean = ms(times.iter().sum()) / times.len() as f64;
        Figure::in_suite("kernel_compile", format!("{model}_{renderer}{which}"), mean, "ms")
            .with("median", ms(times[times.len() / 2]))
            .with("worst", ms(worst))
            .with("kernels", times.len() as f64)
            .with("largest_nodes", largest as f64)
            .print();
    }
    Ok(())
}
