//! Small training runs that converge: every optimizer, CTC, narrow floats.

use super::fill;
use picograd::nn::optim::*;
use picograd::nn::{Layer, Linear, Module, Sequential};
use picograd::tensor::Reduction;
use picograd::{DType, Jit, Tensor, autocast, seq};

/// Fits a curve, and compares the loss before and after.
fn fit(name: &str, steps: usize, make: impl Fn(Vec<Tensor>) -> Optimizer) {
    let net: Sequential = seq![Linear::new(1, 8), Tensor::tanh, Linear::new(8, 1)];
    fill(&net, 11);
    let mut optimizer = make(net.parameters());
    let x = Tensor::arange(0f32, 16.0, 1.0).reshape([16, 1]) * 0.125 - 1.0;
    let y = (&x * &x).realize().unwrap();
    let mut step = Jit::new(|(x, y): (Tensor, Tensor)| {
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    });
    let mut call = || step.call((x.clone(), y.clone())).unwrap().item::<f32>().unwrap();
    let first = call();
    let last = (0..steps).map(|_| call()).last().unwrap();
    assert!(last < first / 10.0, "{name}: from {first} to {last}");
}

#[test]
fn every_rule_learns() {
    fit("RMSprop", 300, |p| Optimizer::new(p, RMSprop::new(0.01)).unwrap());
    fit("Adagrad", 300, |p| Optimizer::new(p, Adagrad::new(0.2)).unwrap());
    fit("Adadelta", 300, |p| Optimizer::new(p, Adadelta::new(10.0)).unwrap());
    fit("NAdam", 300, |p| Optimizer::new(p, NAdam::new(0.02)).unwrap());
    fit("RAdam", 300, |p| Optimizer::new(p, RAdam::new(0.05)).unwrap());
    fit("Adamax", 300, |p| Optimizer::new(p, Adamax::new(0.05)).unwrap());
}

#[test]
fn ctc_learns_sequences_without_alignment() {
    // Two patterns of three classes in each sequence of six frames.
    let x = (Tensor::arange(0f32, 6.0 * 4.0 * 5.0, 1.0).reshape([6, 4, 5]) * 1.7)
        .sin()
        .realize()
        .unwrap();
    let (target, frames, labels) = (
        Tensor::new([[1, 2], [2, 1], [1, 1], [2, 0]]),
        Tensor::new([6, 6, 6, 6]),
        Tensor::new([2, 2, 2, 1]),
    );
    let net: Sequential = seq![Linear::new(5, 16), Tensor::tanh, Linear::new(16, 3)];
    fill(&net, 7);
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.05)).unwrap();
    let mut step = Jit::new(|x: Tensor| {
        let loss =
            net.forward(&x).log_softmax(-1).ctc_loss(&target, &frames, &labels, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    });
    let losses: Vec<f32> =
        (0..80).map(|_| step.call(x.clone()).unwrap().item::<f32>().unwrap()).collect();
    assert!(losses[79] < losses[0] / 3.0, "from {} to {}", losses[0], losses[79]);
}

#[test]
fn networks_of_narrow_floats_learn() {
    let net: Sequential = seq![Linear::new(2, 16), Tensor::tanh, Linear::new(16, 2)];
    fill(&net, 13);
    let mut optimizer = Optimizer::new(net.parameters(), AdamW::new(0.03)).unwrap();
    let mut scaler = GradScaler::new().growth_interval(20);
    let (x, y) = (
        Tensor::new([[0.0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]),
        Tensor::new([0, 1, 1, 0]),
    );
    let mut step = Jit::new(|(x, y): (Tensor, Tensor)| {
        let loss = autocast(DType::F16, || net.forward(&x).cross_entropy(&y, Reduction::Mean));
        scaler.scale(&loss)?.backward();
        scaler.step(&mut optimizer)?;
        scaler.update()?;
        Ok(loss)
    });
    let losses: Vec<f32> = (0..100)
        .map(|_| step.call((x.clone(), y.clone())).unwrap().item::<f32>().unwrap())
        .collect();
    assert!(losses[99] < 0.05, "from {} to {}", losses[0], losses[99]);
}
