//! Checkpointing: values, gradients and memory.

use super::{assert_finite_close, fill};
use picograd::nn::optim::{Optimizer, SGD};
use picograd::nn::*;
use picograd::tensor::Reduction;
use picograd::{Jit, Result, Tensor, checkpoint, no_grad, seq};

fn blocks(count: usize, size: usize) -> Vec<Sequential> {
    let block = || {
        seq![
            Linear::new(size, size),
            Tensor::tanh,
            Linear::new(size, size),
            Tensor::sigmoid,
            Linear::new(size, size),
            Tensor::tanh
        ]
    };
    let blocks: Vec<Sequential> = (0..count).map(|_| block()).collect();
    blocks.iter().enumerate().for_each(|(i, b)| fill(b, i as u32 + 1));
    blocks
}

fn forward(blocks: &[Sequential], x: &Tensor, again: bool) -> Result<Tensor> {
    blocks.iter().try_fold(x.clone(), |x, block| match again {
        true => checkpoint(&[&x], |x| block.try_forward(&x[0])),
        false => block.try_forward(&x),
    })
}

fn input(rows: usize, size: usize) -> Tensor {
    (Tensor::arange(0f32, (rows * size) as f32, 1.0).reshape([rows, size]) * 0.7)
        .sin()
        .realize()
        .unwrap()
}

#[test]
fn checkpointed_gradients_match_plain_ones() {
    let x = input(4, 6);
    let run = |again: bool, read: bool| {
        let (net, x) = (blocks(3, 6), x.as_param());
        let loss = forward(&net, &x, again).unwrap().square().sum(..);
        if read {
            loss.realize().unwrap();
        }
        let value = loss.copy();
        loss.backward();
        let mut all = vec![value, x.grad().unwrap()];
        all.extend(net.parameters().iter().map(|p| p.grad().unwrap()));
        all
    };
    let expected = run(false, false);
    for read in [false, true] {
        for (i, (a, b)) in expected.iter().zip(run(true, read)).enumerate() {
            assert_finite_close(&format!("{i}, with the loss read before: {read}"), &b, a, 1e-6);
        }
    }
}

#[test]
fn checkpointed_second_gradients_match_plain_ones() {
    let second = |again: bool| {
        let (net, x) = (blocks(2, 4), input(3, 4).as_param());
        let y = forward(&net, &x, again).unwrap().square().sum(..) * 1e3;
        let dx = y.gradient(&[&x]).remove(0);
        let weight = net[0].parameters()[0].clone();
        let found = dx.square().sum(..).gradient(&[&x, &weight]);
        Tensor::realize_many(&found.iter().collect::<Vec<_>>()).unwrap();
        found
    };
    for (a, b) in second(false).iter().zip(second(true)) {
        assert_finite_close("a second gradient", &b, a, 1e-5);
        assert!(a.abs().max(..).item::<f32>().unwrap() > 1e-2);
    }
}

#[test]
fn checkpointed_random_numbers_are_drawn_once() {
    let x = Tensor::ones([64]).as_param();
    let y = checkpoint(&[&x], |x| Ok(x[0].square() * Tensor::rand([64]))).unwrap();
    let value = y.copy();
    y.sum(..).backward();
    let (value, grad) =
        (value.to_vec::<f32>().unwrap(), x.grad().unwrap().to_vec::<f32>().unwrap());
    assert!(value.iter().zip(&grad).all(|(v, g)| *g == 2.0 * v), "{value:?} and {grad:?}");
}

#[test]
fn checkpoints_accept_all_kinds_of_inputs() {
    let (x, w, i) = (
        Tensor::new([1.0f32, 2.0, 3.0]).as_param(),
        Tensor::new([2.0f32]).as_param(),
        Tensor::new([2, 0]),
    );
    let f = |x: &[Tensor]| Ok((x[0].index_select(0, &x[2]) * &x[1] * &w).exp());
    let other = Tensor::new([0.5f32, 0.25]);
    checkpoint(&[&x, &other, &i], f).unwrap().sum(..).backward();
    let found = (x.grad().unwrap(), w.grad().unwrap());
    x.set_grad(None);
    w.set_grad(None);
    f(&[x.clone(), other.clone(), i.clone()]).unwrap().sum(..).backward();
    assert_finite_close("x", &found.0, &x.grad().unwrap(), 1e-6);
    assert_finite_close("w", &found.1, &w.grad().unwrap(), 1e-6);
    // Nested, and of an input without a gradient.
    let nested = checkpoint(&[&x], |x| checkpoint(&[&x[0]], |x| Ok(x[0].square() * &w)));
    let g = nested.unwrap().sum(..).gradient(&[&x, &w]);
    assert_eq!(
        (g[0].to_vec::<f32>().unwrap(), g[1].item::<f32>().unwrap()),
        (vec![4.0, 8.0, 12.0], 14.0)
    );
    let plain = checkpoint(&[&other], |x| Ok(&x[0] * 2.0)).unwrap();
    assert!(!plain.requires_grad());
    assert_eq!(plain.to_vec::<f32>().unwrap(), [1.0, 0.5]);
    assert!(!no_grad(|| checkpoint(&[&x], |x| Ok(x[0].square()))).unwrap().requires_grad());
    let wrong = checkpoint(&[&x], |x| x[0].try_reshape([2, 2])).unwrap_err().to_string();
    assert!(wrong.starts_with("reshape"), "{wrong}");
    assert_eq!(checkpoint(&[&x], |x| Ok(x[0].int())).unwrap().to_vec::<i32>().unwrap(), [1, 2, 3]);
}

/// The statistics of a captured training step, and its losses.
fn training(again: bool) -> (picograd::tensor::JitStats, Vec<f32>) {
    const SIZE: usize = 16;
    let net = blocks(8, SIZE);
    let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.05)).unwrap();
    let x = input(512, SIZE);
    let mut step = Jit::new(|x: Tensor| {
        let loss = forward(&net, &x, again)?.try_mse_loss(&(&x * 0.5), Reduction::Mean)?;
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    });
    let losses = (0..4).map(|_| step.call(x.clone()).unwrap().item::<f32>().unwrap()).collect();
    (step.stats().unwrap(), losses)
}

#[test]
fn checkpointing_reduces_peak_memory() {
    let ((kept, expected), (again, losses)) = (training(false), training(true));
    println!("kept: {}\nrecomputed: {}", kept.memory, again.memory);
    for (a, b) in expected.iter().zip(&losses) {
        assert!((a - b).abs() < 1e-5, "{expected:?} and {losses:?}");
    }
    // 8 blocks of 3 activations each, against the 8 inputs of blocks and the 3 activations of one.
    assert!(again.memory.peak * 10 < kept.memory.peak * 7, "{} and {}", again.memory, kept.memory);
    assert!(again.steps > kept.steps, "the forward pass runs twice");
}
