//! Kernels of a training step; none is recompiled when the learning rate changes.

use crate::serial;
use picograd::device::{counters, reset_counters};
use picograd::ir::Arg;
use picograd::nn::optim::{Adam, Cosine, Optimizer, SGD, Scheduler, clip_grad_norm};
use picograd::nn::{
    BatchNorm, Conv2d, Flatten, Layer, Linear, MaxPool2d, Module, ReLU, Sequential,
};
use picograd::tensor::Reduction;
use picograd::{Tensor, seq};

fn data(shape: [usize; 2]) -> Tensor {
    Tensor::from_vec(
        (0..shape[0] * shape[1]).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<f32>>(),
        shape,
    )
}

/// The allocation number of a realized tensor.
fn memory(t: &Tensor) -> u64 {
    let mut u = t.uop();
    loop {
        match u.arg() {
            Arg::Storage(s) => return s.storage.memory_id(),
            _ => u = u.src()[0].clone(),
        }
    }
}

/// The kernels of one step after the first ones; asserts that none is compiled.
fn step(
    name: &str,
    net: &Sequential,
    optimizer: &mut Optimizer,
    loss: &dyn Fn() -> Tensor,
    clip: bool,
) -> u64 {
    let mut scheduler = Scheduler::new(optimizer, Cosine::new(10)).unwrap();
    let mut kernels = 0;
    let homes: Vec<u64> = net.parameters().iter().map(memory).collect();
    for i in 0..4 {
        reset_counters();
        let loss = loss();
        loss.backward();
        let norm = clip.then(|| clip_grad_norm(&net.parameters(), 1.0).unwrap());
        optimizer.step().unwrap();
        scheduler.step(optimizer).unwrap();
        // The step computed both.
        let before = counters().kernels;
        assert!(
            loss.item::<f32>().unwrap().is_finite()
                && norm.is_none_or(|n| n.item::<f32>().unwrap() > 0.0)
        );
        let c = counters();
        assert_eq!(c.kernels, before, "{name}: the loss is computed by the step");
        let now: Vec<u64> = net.parameters().iter().map(memory).collect();
        // If a later kernel still reads the old value, the new one has its own memory; that is
        // rare.
        let in_place = homes.iter().zip(&now).filter(|(a, b)| a == b).count();
        assert!(
            in_place * 5 >= homes.len() * 4,
            "{name}: {in_place} of {} parameters are updated in place",
            homes.len()
        );
        if i > 0 {
            assert_eq!(c.compiled, 0, "{name}: step {i} compiles nothing");
            assert_eq!(c.schedule_hits, c.schedules, "{name}: step {i} plans nothing");
        }
        kernels = c.kernels;
    }
    println!("{name}: {kernels} kernels a step");
    kernels
}

#[test]
fn training_steps_stay_within_their_kernel_counts() {
    let _guard = serial();
    let (x, y) = (data([32, 16]), data([32, 8]));
    let net = seq![Linear::new(16, 8)];
    let mut adam = Optimizer::new(net.parameters(), Adam::new(1e-3)).unwrap();
    let loss = |net: &Sequential| net.forward(&x).mse_loss(&y, Reduction::Mean);
    let linear = step("linear, Adam", &net, &mut adam, &|| loss(&net), false);
    assert!(linear <= 6, "{linear} kernels");

    // Layers of one shape share the kernels of their update.
    let deep = |n: usize| {
        (0..n)
            .fold(Sequential::new(), |net, _| net.then(Linear::new(16, 16)).then(Tensor::tanh))
            .then(Linear::new(16, 8))
    };
    let mut counts = Vec::new();
    for n in [2, 8] {
        let net = deep(n);
        let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3)).unwrap();
        counts.push(step(
            &format!("{n} layers, Adam"),
            &net,
            &mut optimizer,
            &|| loss(&net),
            false,
        ));
        let mut optimizer = Optimizer::new(net.parameters(), SGD::new(1e-3).momentum(0.9)).unwrap();
        step(&format!("{n} layers, SGD, clipped"), &net, &mut optimizer, &|| loss(&net), true);
    }
    // Per layer: forward, backward to its input, and the gradients of weight and bias with their
    // updates.
    assert!(counts[1] - counts[0] <= 6 * 4, "{counts:?} kernels");

    let net = seq![
        Conv2d::new(1, 32, 5),
        ReLU,
        Conv2d::new(32, 32, 5).bias(false),
        BatchNorm::new(32),
        ReLU,
        MaxPool2d::new(2),
        Conv2d::new(32, 64, 3),
        ReLU,
        Conv2d::new(64, 64, 3).bias(false),
        BatchNorm::new(64),
        ReLU,
        MaxPool2d::new(2),
        Flatten::new(),
        Linear::new(576, 10),
    ];
    let (x, y) = (data([2, 784]).reshape([2, 1, 28, 28]), Tensor::new([3, 7]));
    let mut adam = Optimizer::new(net.parameters(), Adam::new(1e-3)).unwrap();
    let count = step(
        "conv net, Adam",
        &net,
        &mut adam,
        &|| net.forward(&x).cross_entropy(&y, Reduction::Mean),
        false,
    );
    assert!(count <= 45, "{count} kernels");
}
