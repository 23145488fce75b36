//! Trains one network three times and compares the results: on one device, data-parallel on four
//! (the batch is sharded), and tensor-parallel on four (the layers are sharded). `cargo run
//! --release --example parallel`.

use picograd::nn::data::{DataLoader, Progress, digits};
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Flatten, Layer, Linear, Module, Sequential};
use picograd::tensor::Reduction;
use picograd::{DType, Tensor, seq};
use std::error::Error;

const STEPS: usize = 200;

/// The sharding of a network and its batches.
struct Layout {
    name: &'static str,
    devices: &'static [&'static str],
    /// Shard axis of each parameter: weight and bias of the first layer, weight and bias of the
    /// second. `None` replicates.
    parameters: [Option<isize>; 4],
    /// Shard axis of images and labels.
    batch: Option<isize>,
}

const FOUR: &[&str] = &["CPU:0", "CPU:1", "CPU:2", "CPU:3"];

const LAYOUTS: [Layout; 3] = [
    Layout { name: "one device", devices: &["CPU"], parameters: [None; 4], batch: None },
    // Each device has all parameters and a shard of the batch. Gradients are all-reduced.
    Layout { name: "data-parallel", devices: FOUR, parameters: [None; 4], batch: Some(0) },
    // The first layer is sharded along its outputs, the second along its inputs: each device has a
    // shard of the hidden units, and only the logits are all-reduced.
    Layout {
        name: "tensor-parallel",
        devices: FOUR,
        parameters: [Some(0), Some(0), Some(1), None],
        batch: None,
    },
];

/// Returns the network and its losses after training.
fn train(how: &Layout) -> Result<(Sequential, Vec<f32>), Box<dyn Error>> {
    Tensor::manual_seed(0);
    let net = seq![Flatten::new(), Linear::new(784, 128), Tensor::relu, Linear::new(128, 10)];
    for (p, axis) in net.parameters().iter().zip(how.parameters) {
        p.shard_(how.devices, axis)?;
    }
    // Created after sharding, so that its state is sharded like the parameters.
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    let mut bar = Progress::new(how.name, STEPS as u64);
    let mut losses = Vec::new();
    for batch in DataLoader::new(digits(0, 20_000), 100)?.shuffle(0).epoch(0).take(STEPS) {
        let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
        let (images, labels) =
            (images.shard(how.devices, how.batch), labels.shard(how.devices, how.batch));
        let loss =
            net.forward(&(images.cast(DType::F32) / 255.0)).cross_entropy(&labels, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        losses.push(loss.item::<f32>()?);
        bar.set("loss", losses[losses.len() - 1] as f64);
        bar.tick(1);
    }
    bar.finish();
    Ok((net, losses))
}

fn main() -> Result<(), Box<dyn Error>> {
    let apart =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let [one, others @ ..] = &LAYOUTS;
    let (net, losses) = train(one)?;
    println!("{}: loss {:.4}", one.name, losses[STEPS - 1]);
    for how in others {
        let (same, also) = train(how)?;
        let mut parameters = 0f32;
        for (a, b) in net.parameters().iter().zip(same.parameters()) {
            parameters = parameters.max(apart(&a.to_vec()?, &b.to_vec()?));
        }
        let loss = also[STEPS - 1];
        println!(
            "{}: loss {loss:.4}; at most {:.1e} between losses, {parameters:.1e} between \
             parameters",
            how.name,
            apart(&losses, &also)
        );
        if parameters > 1e-3 {
            return Err(format!("training with {} is not training on one device", how.name).into());
        }
    }
    Ok(())
}
