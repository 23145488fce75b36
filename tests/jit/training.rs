//! A thousand training steps, captured and plain: the same bits.

use super::{alone, floats};
use picograd::nn::optim::{Adam, Optimizer, SGD};
use picograd::nn::{BatchNorm, Dropout, Layer, Linear, Module, ReLU};
use picograd::tensor::Reduction;
use picograd::{Jit, Tensor, seq};

const STEPS: usize = 1000;

/// Trains a net, and returns the losses, and all parameters and buffers.
fn trained(jit: bool, momentum: bool) -> (Vec<f32>, Vec<Vec<f32>>) {
    Tensor::manual_seed(3);
    let net =
        seq![Linear::new(8, 16), BatchNorm::new(16), ReLU, Dropout::new(0.2), Linear::new(16, 4)];
    let mut optimizer = if momentum {
        Optimizer::new(net.parameters(), SGD::new(0.01).momentum(0.9)).unwrap()
    } else {
        Optimizer::new(net.parameters(), Adam::new(0.01)).unwrap()
    };
    let (mut losses, lr) = (Vec::new(), optimizer.lr());
    let optimizer = std::cell::RefCell::new(&mut optimizer);
    let train = |(x, y): (Tensor, Tensor)| {
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.borrow_mut().step()?;
        Ok(loss)
    };
    let mut captured = Jit::new(train);
    for step in 0..STEPS {
        let data = |n: usize, k: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * k + step * 7) as f32 * 0.37).sin()).collect()
        };
        let (x, y) =
            (Tensor::from_vec(data(6 * 8, 3), [6, 8]), Tensor::from_vec(data(6 * 4, 5), [6, 4]));
        if step % 100 == 99 {
            // The schedule changes a buffer, not the kernels.
            optimizer.borrow_mut().set_lr(lr / (1.0 + step as f64 / 100.0)).unwrap();
        }
        let loss = if jit { captured.call((x, y)) } else { train((x, y)) };
        losses.push(loss.unwrap().item::<f32>().unwrap());
    }
    assert_eq!(captured.is_captured(), jit);
    if let Some(stats) = captured.stats() {
        assert_eq!(stats.copies, 0, "state is written in place");
    }
    (losses, net.state_dict().iter().map(|(_, t)| floats(&t.cast(picograd::DType::F32))).collect())
}

#[test]
fn a_thousand_captured_steps_match_plain_ones() {
    let _alone = alone();
    for momentum in [false, true] {
        let (plain, captured) = (trained(false, momentum), trained(true, momentum));
        assert!(plain.0[STEPS - 1].is_finite() && plain.0[0] != plain.0[1]);
        let first = plain.0.iter().zip(&captured.0).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(first, None, "the first step whose loss differs");
        assert_eq!(plain.1, captured.1);
    }
}
