//! Training on four devices equals training on one.

use super::common::assert_close_to_largest;
use super::{devices, tensor};
use picograd::nn::optim::{Adam, Optimizer, SGD};
use picograd::nn::{Conv2d, Flatten, Layer, Linear, Module, ReLU, Sequential};
use picograd::tensor::{CrossEntropy, Reduction};
use picograd::{Tensor, seq};

/// The tolerance relative to the largest element after twenty steps: each device sums its part of a
/// gradient first, so sums round differently.
const TOLERANCE: f32 = 1e-5;

fn net() -> Sequential {
    Tensor::manual_seed(5);
    seq![Linear::new(6, 16), ReLU, Linear::new(16, 3)]
}

fn convolutions() -> Sequential {
    Tensor::manual_seed(6);
    seq![Conv2d::new(1, 4, 3), ReLU, Flatten::new(), Linear::new(4 * 4 * 4, 3)]
}

/// The losses and the parameters after some steps. With devices the parameters are on all of them,
/// and the batch is split.
fn train(
    net: &Sequential,
    shape: &[usize],
    optimizer: &dyn Fn(Vec<Tensor>) -> Optimizer,
    over: &[String],
    steps: u64,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let spread =
        |t: Tensor, axis: Option<isize>| if over.is_empty() { t } else { t.shard(over, axis) };
    if !over.is_empty() {
        net.parameters().iter().for_each(|p| p.shard_(over, None).unwrap());
    }
    let mut optimizer = optimizer(net.parameters());
    let mut losses = Vec::new();
    for step in 0..steps {
        let x = spread(tensor(shape, step), Some(0));
        let labels: Vec<i32> = (0..shape[0]).map(|i| (i as i32 * 7 + step as i32) % 3).collect();
        let y = spread(Tensor::new(labels), Some(0));
        let loss = net.forward(&x).cross_entropy(&y, CrossEntropy::new());
        loss.backward();
        optimizer.step().unwrap();
        losses.push(loss.item::<f32>().unwrap());
    }
    (losses, net.parameters().iter().map(|p| p.to_vec().unwrap()).collect())
}

fn same(
    what: &str,
    net: impl Fn() -> Sequential,
    shape: &[usize],
    optimizer: &dyn Fn(Vec<Tensor>) -> Optimizer,
) {
    // Only constructing a net uses the random generator.
    let fresh = || {
        let _alone = super::seeded();
        let net = net();
        Tensor::realize_many(&net.parameters().iter().collect::<Vec<_>>()).unwrap();
        net
    };
    let (losses, params) = train(&fresh(), shape, optimizer, &[], 20);
    let (got, got_params) = train(&fresh(), shape, optimizer, &devices(4), 20);
    assert!(losses[0] > 0.5, "{what}: the initial loss is small");
    assert_close_to_largest(&format!("{what}: losses"), &got, &losses, TOLERANCE);
    for (i, (g, w)) in got_params.iter().zip(&params).enumerate() {
        assert_close_to_largest(&format!("{what}: parameter {i}"), g, w, TOLERANCE);
    }
}

#[test]
fn data_parallel_training_matches_one_device() {
    let sgd = |p: Vec<Tensor>| Optimizer::new(p, SGD::new(0.1).momentum(0.9)).unwrap();
    let adam = |p: Vec<Tensor>| Optimizer::new(p, Adam::new(0.01)).unwrap();
    same("SGD", net, &[16, 6], &sgd);
    same("Adam", net, &[16, 6], &adam);
    // Ten examples over four devices: shards of three and of two.
    same("SGD on an uneven batch", net, &[10, 6], &sgd);
    same("Adam on convolutions", convolutions, &[8, 1, 6, 6], &adam);
}

/// The first layer is sharded along its outputs, the second along its inputs: each device has a
/// part of the hidden units.
#[test]
fn tensor_parallel_training_matches_one_device() {
    let run = |over: &[String]| {
        let w1 = tensor(&[8, 13], 1);
        let w2 = tensor(&[13, 4], 2);
        let spread =
            |t: Tensor, axis: Option<isize>| if over.is_empty() { t } else { t.shard(over, axis) };
        let (w1, w2) = (spread(w1, Some(1)).as_param(), spread(w2, Some(0)).as_param());
        let mut optimizer = Optimizer::new([w1.clone(), w2.clone()], Adam::new(0.01)).unwrap();
        let mut losses = Vec::new();
        for step in 0..20 {
            let (x, y) =
                (spread(tensor(&[5, 8], step), None), spread(tensor(&[5, 4], step + 100), None));
            let loss = x.matmul(&w1).tanh().matmul(&w2).mse_loss(&y, Reduction::Mean);
            loss.backward();
            if !over.is_empty() {
                let axes = [&w1, &w2].map(|w| w.grad().unwrap().shard_axis());
                assert_eq!(
                    axes,
                    [Some(1), Some(0)],
                    "gradients have the layout of their parameters"
                );
            }
            optimizer.step().unwrap();
            losses.push(loss.item::<f32>().unwrap());
        }
        if !over.is_empty() {
            assert_eq!(
                (w1.shard_axis(), w2.shard_axis()),
                (Some(1), Some(0)),
                "parameters stay sharded"
            );
        }
        (losses, [w1, w2].map(|w| w.to_vec::<f32>().unwrap()))
    };
    let (losses, params) = run(&[]);
    let (got, got_params) = run(&devices(4));
    assert_close_to_largest("losses", &got, &losses, TOLERANCE);
    for (g, w) in got_params.iter().zip(&params) {
        assert_close_to_largest("weights", g, w, TOLERANCE);
    }
}
