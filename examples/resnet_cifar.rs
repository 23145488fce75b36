//! A residual network on small colour images: `cargo run --release --example resnet_cifar`.
//!
//! The images are synthetic shapes, so nothing is downloaded. `-- path/to/cifar-10-batches-bin`
//! reads CIFAR-10 from a directory.

mod plot;

use picograd::nn::data::{ArrayDataset, DataLoader, Dataset, Progress, Split, cifar10, shapes};
use picograd::nn::optim::{AdamW, OneCycle, Optimizer, Scheduler};
use picograd::nn::{BatchNorm, Conv2d, Layer, Linear, Module};
use picograd::tensor::{CrossEntropy, keepdim};
use picograd::{DType, Tensor, no_grad};
use std::error::Error;
use std::path::PathBuf;

/// Two convolutions and a shortcut; a 1×1 convolution projects the shortcut to a new shape.
#[derive(Module)]
struct Block {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    shortcut: Option<Conv2d>,
}

impl Block {
    fn new(from: usize, to: usize, stride: usize) -> Block {
        Block {
            conv1: Conv2d::new(from, to, 3).stride(stride).padding(1).bias(false),
            norm1: BatchNorm::new(to),
            conv2: Conv2d::new(to, to, 3).padding(1).bias(false),
            norm2: BatchNorm::new(to),
            shortcut: (from != to || stride != 1)
                .then(|| Conv2d::new(from, to, 1).stride(stride).bias(false)),
        }
    }
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.norm1.forward(&self.conv1.forward(x)).relu();
        let y = self.norm2.forward(&self.conv2.forward(&y));
        (y + self.shortcut.as_ref().map_or_else(|| x.clone(), |s| s.forward(x))).relu()
    }
}

#[derive(Module)]
struct ResNet {
    stem: Conv2d,
    norm: BatchNorm,
    blocks: Vec<Block>,
    head: Linear,
}

impl ResNet {
    fn new() -> ResNet {
        ResNet {
            stem: Conv2d::new(3, 16, 3).padding(1).bias(false),
            norm: BatchNorm::new(16),
            blocks: vec![Block::new(16, 16, 1), Block::new(16, 32, 2), Block::new(32, 64, 2)],
            head: Linear::new(64, 10),
        }
    }
    fn forward(&self, images: &Tensor) -> Tensor {
        let x = images.cast(DType::F32) / 127.5 - 1.0;
        let x = self.norm.forward(&self.stem.forward(&x)).relu();
        let x = self.blocks.iter().fold(x, |x, b| b.forward(&x));
        self.head.forward(&x.mean(keepdim([2, 3])).flatten(1, -1))
    }
}

fn accuracy(net: &ResNet, data: ArrayDataset) -> picograd::Result<f64> {
    let total = data.len();
    let mut right = 0;
    for batch in DataLoader::new(data, 100)?.epoch(0) {
        let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
        let guess = no_grad(|| net.forward(images).argmax(1));
        right += guess.eq(labels.cast(DType::I32)).sum(..).item::<i32>()?;
    }
    Ok(right as f64 / total as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (train, test) = match std::env::args().nth(1).map(PathBuf::from) {
        Some(folder) => {
            (cifar10(Some(&folder), Split::Train)?, cifar10(Some(&folder), Split::Test)?)
        }
        None => (shapes(0, 8_000), shapes(1, 1_000)),
    };
    Tensor::manual_seed(0);
    let net = ResNet::new();
    println!("{} images, {} parameters", train.len(), net.num_parameters());
    let epochs = 3;
    let loader = DataLoader::new(train, 50)?.shuffle(0).drop_last(true);
    let rule = AdamW::new(1e-2).weight_decay(0.05);
    let mut optimizer = Optimizer::new(net.parameters(), rule)?;
    let mut scheduler = Scheduler::new(&mut optimizer, OneCycle::new(epochs * loader.len()))?;
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        let mut bar = Progress::new(&format!("epoch {}/{epochs}", epoch + 1), loader.len() as u64);
        for batch in loader.epoch(epoch as u64) {
            let [images, labels] = &batch?[..] else { unreachable!("images and labels") };
            let loss =
                net.forward(images).cross_entropy(labels, CrossEntropy::new().label_smoothing(0.1));
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
    plot::losses("target/out/resnet_cifar.png", "resnet_cifar", &losses)?;
    println!("test accuracy {:.2} %", figure * 100.0);
    Ok(())
}
