//! A network of three linear layers on synthetic digits, in few lines: `cargo run --release
//! --example mlp`.

mod plot;

use picograd::nn::data::{DataLoader, Progress, digits};
use picograd::nn::optim::{AdamW, Optimizer};
use picograd::nn::{Dropout, Flatten, Layer, Linear, Module};
use picograd::tensor::Reduction;
use picograd::{DType, Tensor, no_grad, seq};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    Tensor::manual_seed(0);
    let net = seq![
        Flatten::new(),
        Linear::new(784, 256),
        Tensor::relu,
        Dropout::new(0.2),
        Linear::new(256, 128),
        Tensor::relu,
        Linear::new(128, 10)
    ];
    println!("{} parameters", net.num_parameters());
    let mut optimizer = Optimizer::new(net.parameters(), AdamW::new(1e-3))?;
    let loader = DataLoader::new(digits(0, 20_000), 100)?.shuffle(0);
    let scaled = |images: &Tensor| images.cast(DType::F32) / 255.0;
    let mut losses = Vec::new();
    for epoch in 0..5 {
        let mut bar = Progress::new(&format!("epoch {}", epoch + 1), loader.len() as u64);
        for batch in loader.epoch(epoch) {
            let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
            let loss = net.forward(&scaled(images)).cross_entropy(labels, Reduction::Mean);
            loss.backward();
            optimizer.step()?;
            losses.push(loss.item::<f32>()?);
            bar.set("loss", losses[losses.len() - 1] as f64);
            bar.tick(1);
        }
        bar.finish();
    }
    net.eval();
    let test = digits(1, 4_000).tensors()?;
    let right = no_grad(|| net.forward(&scaled(&test[0])).argmax(1))
        .eq(test[1].cast(DType::I32))
        .cast(DType::F32)
        .mean(..);
    std::fs::create_dir_all("target/out")?;
    plot::losses("target/out/mlp.png", "mlp", &losses)?;
    println!("test accuracy {:.2} %", right.item::<f32>()? * 100.0);
    Ok(())
}
