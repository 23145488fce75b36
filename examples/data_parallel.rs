//! Trains one network twice, on one device and over four with the batch in parts, and compares: `cargo run --release --example data_parallel`.

use picograd::nn::data::{DataLoader, Progress, digits};
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Flatten, Layer, Linear, Module, Sequential};
use picograd::tensor::Reduction;
use picograd::{DType, Tensor, seq};
use std::error::Error;

const STEPS: usize = 200;

/// The network and its losses after some steps over these devices.
fn train(devices: &[&str]) -> Result<(Sequential, Vec<f32>), Box<dyn Error>> {
    Tensor::manual_seed(0);
    let net = seq![Flatten::new(), Linear::new(784, 128), Tensor::relu, Linear::new(128, 10)];
    // Each device has all parameters. Then the optimizer: what it keeps for them is where they are.
    for p in net.parameters() {
        p.shard_(devices, None)?;
    }
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    let mut bar = Progress::new(&devices.join(" "), STEPS as u64);
    let mut losses = Vec::new();
    for batch in DataLoader::new(digits(0, 20_000), 100)?.shuffle(0).epoch(0).take(STEPS) {
        let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
        // Each device has a part of the batch. Gradients are sums over all of it, so they are added up between devices.
        let (images, labels) = (images.shard(devices, 0), labels.shard(devices, 0));
        let loss = net.forward(&(images.cast(DType::F32) / 255.0)).cross_entropy(&labels, Reduction::Mean);
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
    let (one, losses) = train(&["CPU"])?;
    let (four, same) = train(&["CPU:0", "CPU:1", "CPU:2", "CPU:3"])?;
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let mut params = 0f32;
    for (a, b) in one.parameters().iter().zip(four.parameters()) {
        params = params.max(apart(&a.to_vec()?, &b.to_vec()?));
    }
    println!("loss {:.4} on one device, {:.4} over four", losses[STEPS - 1], same[STEPS - 1]);
    println!("greatest difference: {:.1e} between losses, {params:.1e} between parameters", apart(&losses, &same));
    if params > 1e-3 {
        return Err("training over four devices is not training on one".into());
    }
    Ok(())
}
