//! `cargo xtask bench memory`: peak memory of tensors during a call on the default device:
//! parameters, gradients, optimizer state, inputs, intermediates and results. Prints one line of
//! JSON per figure; `benches/peers` measures other frameworks under the same names.
//!
//! The measured call is warm. `base` is the live memory between two calls, `held` the memory held
//! from the system after it, free lists included.

use crate::bench::Figure;
use crate::resnet::ResNet50;
use crate::{cpu_workloads, models};
use picograd::device::memory::clear_cache;
use picograd::device::reset_counters;
use picograd::nn::Module;
use picograd::nn::optim::{Optimizer, SGD};
use picograd::tensor::{JitStats, Reduction};
use picograd::{DType, Device, Jit, Result, Tensor, no_grad};

/// Batch size of the ResNet-50 step.
const BATCH: usize = 16;

/// Prints the figures, or those whose names contain one of the words.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("on {}: {}", device.name(), device.describe());
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    if wants("mnist_step") {
        steps("mnist_step", &device, &|| {
            let (step, parameters) = cpu_workloads::mnist_training()?;
            Ok((Box::new(step), parameters))
        })?;
    }
    if wants("resnet50_step") {
        steps("resnet50_step", &device, &|| {
            let net = ResNet50::new();
            let parameters = net.num_parameters();
            let x = Tensor::rand([BATCH, 3, 224, 224]).contiguous().realize()?;
            let y = (Tensor::rand([BATCH]) * 1000.0).cast(DType::I32).contiguous().realize()?;
            let mut optimizer = Optimizer::new(net.parameters(), SGD::new(1e-3).momentum(0.9))?;
            let step = move || {
                let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean);
                loss.backward();
                optimizer.step()?;
                Ok(loss)
            };
            Ok((Box::new(step), parameters))
        })?;
    }
    if wants("gpt2_decode") {
        steps("gpt2_decode", &device, &|| {
            let weights = models::Weights::default();
            let token = weights.next(&[1, 1, 768]);
            no_grad(|| models::gpt2_with(&weights, &token, 64)).realize()?;
            let parameters = weights.elements();
            Ok((
                Box::new(move || no_grad(|| models::gpt2_with(&weights, &token, 64)).realize()),
                parameters,
            ))
        })?;
    }
    Ok(())
}

type Step = Box<dyn FnMut() -> Result<Tensor>>;

/// Measures a step plain and captured, each with its own model; the first is dropped before the
/// second is built.
fn steps(name: &str, device: &Device, make: &dyn Fn() -> Result<(Step, usize)>) -> Result<()> {
    let (mut step, parameters) = make()?;
    let peak = peak(device, 2, &mut *step)?;
    peak.figure(&format!("{name}_plain"), parameters).print();
    drop(step);
    let (mut inner, parameters) = make()?;
    let mut step = Jit::new(move |()| inner());
    let peak = self::peak(device, 3, &mut || step.call(()))?;
    let stats = step.stats().expect("captured by now");
    with_plan(peak.figure(&format!("{name}_jit"), parameters), &stats).print();
    Ok(())
}

/// Memory of one call, in bytes.
struct Peak {
    base: usize,
    peak: usize,
    held: usize,
}

impl Peak {
    fn figure(&self, name: &str, parameters: usize) -> Figure {
        let figure = Figure::in_suite("memory", name, mb(self.peak), "MB")
            .with("base", mb(self.base))
            .with("held", mb(self.held));
        figure.with("parameters", parameters as f64)
    }
}

/// Measures one call after `warm` others.
fn peak(device: &Device, warm: usize, step: &mut dyn FnMut() -> Result<Tensor>) -> Result<Peak> {
    for _ in 0..warm {
        step()?;
    }
    device.synchronize()?;
    clear_cache();
    reset_counters();
    let base = device.memory().live;
    let result = step()?;
    device.synchronize()?;
    let now = device.memory();
    drop(result);
    Ok(Peak { base, peak: now.peak, held: now.held })
}

fn with_plan(figure: Figure, stats: &JitStats) -> Figure {
    let m = stats.memory;
    figure
        .with("unshared", mb(m.separate))
        .with("arena", mb(m.arena))
        .with("peak", mb(m.peak))
        .with("kernels", stats.steps as f64)
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
