//! ResNet-50 (He et al., 2015; the variant with the stride in the 3×3 convolutions) for training.
//! `benches/peers` has the same network.

use picograd::Tensor;
use picograd::nn::{BatchNorm, Conv2d, Layer, Linear, Module};
use picograd::tensor::Pool;

/// A convolution without bias, followed by batch norm.
#[derive(Module)]
struct Convolved {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Convolved {
    fn new(from: usize, to: usize, kernel: usize, stride: usize) -> Convolved {
        let conv = Conv2d::new(from, to, kernel).stride(stride).padding(kernel / 2).bias(false);
        Convolved { conv, norm: BatchNorm::new(to) }
    }
    fn forward(&self, x: &Tensor) -> Tensor {
        self.norm.forward(&self.conv.forward(x))
    }
}

/// A bottleneck block: 1×1, 3×3, 1×1 and a shortcut; the first of a stage projects the input to the
/// new shape.
#[derive(Module)]
struct Bottleneck {
    narrow: Convolved,
    middle: Convolved,
    wide: Convolved,
    short: Option<Convolved>,
}

impl Bottleneck {
    fn new(from: usize, width: usize, stride: usize) -> Bottleneck {
        Bottleneck {
            narrow: Convolved::new(from, width, 1, 1),
            middle: Convolved::new(width, width, 3, stride),
            wide: Convolved::new(width, 4 * width, 1, 1),
            short: (from != 4 * width).then(|| Convolved::new(from, 4 * width, 1, stride)),
        }
    }
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.narrow.forward(x).relu();
        let y = self.wide.forward(&self.middle.forward(&y).relu());
        (y + self.short.as_ref().map_or_else(|| x.clone(), |s| s.forward(x))).relu()
    }
}

/// The network.
#[derive(Module)]
pub struct ResNet50 {
    stem: Convolved,
    blocks: Vec<Bottleneck>,
    head: Linear,
}

impl ResNet50 {
    /// Creates the network with random weights.
    pub fn new() -> ResNet50 {
        let (mut blocks, mut from) = (Vec::new(), 64);
        for (stage, count) in [3, 4, 6, 3].into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..count {
                blocks.push(Bottleneck::new(
                    from,
                    width,
                    if block == 0 && stage > 0 { 2 } else { 1 },
                ));
                from = 4 * width;
            }
        }
        ResNet50 { stem: Convolved::new(3, 64, 7, 2), blocks, head: Linear::new(from, 1000) }
    }
    /// Computes the logits of images `[batch, 3, 224, 224]`.
    pub fn forward(&self, images: &Tensor) -> Tensor {
        let x = self.stem.forward(images).relu().max_pool2d(3, Pool::new().stride(2).padding(1));
        let x = self.blocks.iter().fold(x, |x, b| b.forward(&x));
        self.head.forward(&x.mean([2, 3]))
    }
}
