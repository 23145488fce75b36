//! Trains a convolutional network on images of digits: `cargo run --release --example mnist`.
//!
//! The digits are synthetic, so nothing is downloaded. `-- path/to/mnist` reads MNIST from the four
//! files in a directory.

mod plot;

use picograd::io::safe_save;
use picograd::nn::data::{ArrayDataset, DataLoader, Dataset, Progress, Split, digits, mnist};
use picograd::nn::optim::{Adam, OneCycle, Optimizer, Scheduler};
use picograd::nn::{BatchNorm, Conv2d, Layer, Linear, Module};
use picograd::tensor::{Pool, Reduction};
use picograd::{DType, Tensor, no_grad};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

const EPOCHS: usize = 2;
const BATCH: usize = 100;

#[derive(Module)]
struct Net {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    head: Linear,
}

impl Net {
    fn new() -> Net {
        Net {
            conv1: Conv2d::new(1, 16, 5).bias(false),
            norm1: BatchNorm::new(16),
            conv2: Conv2d::new(16, 32, 5).bias(false),
            norm2: BatchNorm::new(32),
            head: Linear::new(32 * 4 * 4, 10),
        }
    }

    /// Images of bytes to logits.
    fn forward(&self, images: &Tensor) -> Tensor {
        let x = images.cast(DType::F32).reshape([-1, 1, 28, 28]) / 255.0;
        let x = self.norm1.forward(&self.conv1.forward(&x)).relu().max_pool2d(2, Pool::new());
        let x = self.norm2.forward(&self.conv2.forward(&x)).relu().max_pool2d(2, Pool::new());
        self.head.forward(&x.flatten(1, -1))
    }
}

fn accuracy(net: &Net, data: ArrayDataset) -> picograd::Result<f64> {
    let total = data.len();
    let mut right = 0;
    for batch in DataLoader::new(data, 250)?.epoch(0) {
        let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
        let guess = no_grad(|| net.forward(images).argmax(1));
        right += guess.eq(labels.cast(DType::I32)).sum(..).item::<i32>()?;
    }
    Ok(right as f64 / total as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let (train, test) = match std::env::args().nth(1).map(PathBuf::from) {
        Some(folder) => (mnist(Some(&folder), Split::Train)?, mnist(Some(&folder), Split::Test)?),
        None => (digits(0, 20_000), digits(1, 4_000)),
    };
    println!(
        "{} training images, {} test images, ready in {:.1?}",
        train.len(),
        test.len(),
        start.elapsed()
    );

    Tensor::manual_seed(0);
    let net = Net::new();
    let loader = DataLoader::new(train, BATCH)?.shuffle(0).drop_last(true);
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(5e-3))?;
    let mut scheduler = Scheduler::new(&mut optimizer, OneCycle::new(EPOCHS * loader.len()))?;
    let mut losses = Vec::new();
    for epoch in 0..EPOCHS {
        let mut bar = Progress::new(&format!("epoch {}/{EPOCHS}", epoch + 1), loader.len() as u64);
        for batch in loader.epoch(epoch as u64) {
            let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
            let loss = net.forward(images).cross_entropy(labels, Reduction::Mean);
            loss.backward();
            optimizer.step()?;
            scheduler.step(&mut optimizer)?;
            losses.push(loss.item::<f32>()?);
            bar.set("loss", losses[losses.len() - 1] as f64);
            bar.tick(1);
        }
        bar.finish();
    }
    net.eval();
    let figure = accuracy(&net, test)?;
    std::fs::create_dir_all("target/out")?;
    safe_save("target/out/mnist.safetensors", &net.state_dict(), &[])?;
    plot::losses("target/out/mnist.png", "mnist", &losses)?;
    println!("test accuracy {:.2} % after {:.1?}", figure * 100.0, start.elapsed());
    Ok(())
}
