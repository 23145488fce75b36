//! `cargo xtask bench kernels`: kernel counts of ops, models and training steps. The device is
//! NULL, which runs no kernel. The peer's figures are those of its own tests and runs; `limit` is
//! the count that we guarantee.

use crate::bench::Figure;
use picograd::device::counters;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{
    BatchNorm, Conv2d, Flatten, Layer, LayerNorm, Linear, MaxPool2d, Module, ReLU, Sequential,
};
use picograd::tensor::{Attention, Conv, Reduction};
use picograd::{Result, Tensor, seq};

const PEER: &str = "tinygrad 0.14";

/// Prints all counts.
pub fn figures() -> Result<()> {
    let x = || Tensor::zeros([64, 256]).contiguous().realize();
    count("softmax", 1, 3, &[x()?.softmax(-1)])?;
    count("log_softmax", 1, 0, &[x()?.log_softmax(-1)])?;
    count("layernorm", 1, 3, &[x()?.layernorm(-1, 1e-5)])?;
    count("std", 1, 2, &[x()?.std(-1, 1)])?;
    let image = Tensor::zeros([8, 16, 32, 32]).contiguous().realize()?;
    let (weight, bias) = (
        Tensor::zeros([32, 16, 3, 3]).contiguous().realize()?,
        Tensor::zeros([32, 1, 1]).contiguous().realize()?,
    );
    count(
        "conv_bias_relu",
        1,
        1,
        &[(image.conv2d(&weight, Conv::new().padding(1)) + bias).relu()],
    )?;
    let qkv = || Tensor::zeros([4, 8, 128, 64]).contiguous().realize();
    count(
        "attention",
        3,
        4,
        &[qkv()?.scaled_dot_product_attention(&qkv()?, &qkv()?, Attention::new())],
    )?;

    let p = x()?.as_param();
    count("softmax_backward", 2, 4, &(p.softmax(-1) * x()?).sum(..).gradient(&[&p]))?;
    let norm = LayerNorm::new(256);
    Tensor::realize_many(&norm.parameters().iter().collect::<Vec<_>>())?;
    let mut targets = norm.parameters();
    targets.push(p.clone());
    let loss = (norm.forward(&p) * x()?).sum(..);
    count("layernorm_backward", 3, 0, &loss.gradient(&targets.iter().collect::<Vec<_>>()))?;

    let (x, y) = (
        Tensor::zeros([32, 64]).contiguous().realize()?,
        Tensor::zeros([32, 10]).contiguous().realize()?,
    );
    step("linear_adam_step", 6, 13, &seq![Linear::new(64, 10)], &|net| {
        net.forward(&x).mse_loss(&y, Reduction::Mean)
    })?;
    let (x, y) = (
        Tensor::zeros([512, 1, 28, 28]).contiguous().realize()?,
        Tensor::zeros([512]).cast(picograd::DType::I32).contiguous().realize()?,
    );
    step("mnist_step", 45, 123, &mnist(), &|net| net.forward(&x).cross_entropy(&y, Reduction::Mean))
}

/// Returns the conv net that `benches/peers` measures.
pub fn mnist() -> Sequential {
    seq![
        Conv2d::new(1, 32, 5),
        ReLU,
        Conv2d::new(32, 32, 5),
        ReLU,
        BatchNorm::new(32),
        MaxPool2d::new(2),
        Conv2d::new(32, 64, 3),
        ReLU,
        Conv2d::new(64, 64, 3),
        ReLU,
        BatchNorm::new(64),
        MaxPool2d::new(2),
        Flatten::new(),
        Linear::new(576, 10),
    ]
}

/// Returns the loss of the conv net over a batch, and its gradients.
pub fn mnist_gradients() -> Result<Vec<Tensor>> {
    let net = mnist();
    let (x, y) = (
        Tensor::zeros([512, 1, 28, 28]).contiguous().realize()?,
        Tensor::zeros([512]).cast(picograd::DType::I32).contiguous().realize()?,
    );
    let parameters = net.parameters();
    Tensor::realize_many(&parameters.iter().collect::<Vec<_>>())?;
    let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean);
    let mut all = loss.gradient(&parameters.iter().collect::<Vec<_>>());
    all.push(loss);
    Ok(all)
}

fn figure(name: &str, kernels: u64, limit: u32, peer: u32) {
    let figure =
        Figure::in_suite("kernels", name, kernels as f64, "kernels").with("limit", limit.into());
    let figure = if peer > 0 { figure.peer(PEER, peer.into()) } else { figure };
    figure.print();
}

/// Kernels that realize the tensors together.
fn count(name: &str, limit: u32, peer: u32, tensors: &[Tensor]) -> Result<()> {
    let items = Tensor::schedule_many(&tensors.iter().collect::<Vec<_>>())?;
    figure(name, items.len() as u64, limit, peer);
    Ok(())
}

/// Kernels of a warm training step.
fn step(
    name: &str,
    limit: u32,
    peer: u32,
    net: &Sequential,
    loss: &dyn Fn(&Sequential) -> Tensor,
) -> Result<()> {
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    let mut kernels = 0;
    for _ in 0..3 {
        let before = counters().kernels;
        let loss = loss(net);
        loss.backward();
        optimizer.step()?;
        kernels = counters().kernels - before;
    }
    figure(name, kernels, limit, peer);
    Ok(())
}
