//! Memory: planned over the whole call, and constant from ten to ten thousand calls.

use super::{alone, tensor};
use picograd::device::memory::live_bytes;
use picograd::ir::UOp;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Layer, Linear, Module, ReLU};
use picograd::tensor::Reduction;
use picograd::{Jit, Tensor, seq};

#[test]
fn intermediates_share_memory() {
    let _alone = alone();
    // A chain of four stores: the lifetime of each value ends at the next.
    let mut f = Jit::new(|x: Tensor| {
        let x = (&x + 1.0).realize()?;
        let x = (x * 2.0).realize()?;
        let x = (x - 3.0).realize()?;
        let x = (x * 0.5).realize()?;
        Ok(x.sum(0))
    });
    let x = tensor(&[1.0; 1024]);
    for _ in 0..3 {
        assert_eq!(f.call(x.clone()).unwrap().item::<f32>().unwrap(), 512.0);
    }
    let m = f.stats().unwrap().memory;
    assert_eq!((m.separate, m.arena, m.peak), (4 * 4096, 2 * 4096, 2 * 4096));
}

#[test]
fn memory_is_constant_over_many_steps() {
    let _alone = alone();
    let net = seq![Linear::new(4, 8), ReLU, Linear::new(8, 2)];
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.001)).unwrap();
    let mut step = Jit::new(|(x, y): (Tensor, Tensor)| {
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    });
    let mut run = |n: usize| {
        for i in 0..n {
            let x = Tensor::from_vec(
                (0..8).map(|k| ((i + k) as f32).sin()).collect::<Vec<_>>(),
                [2, 4],
            );
            let y = Tensor::from_vec(vec![0.5f32; 4], [2, 2]);
            let loss = step.call((x, y)).unwrap();
            assert!(i % 1000 != 0 || loss.item::<f32>().unwrap().is_finite());
        }
        (live_bytes(), UOp::live())
    };
    run(10);
    let (bytes, nodes) = run(10);
    let (after, nodes_after) = run(10_000);
    assert!(after <= bytes, "{bytes} bytes, then {after}");
    // Dead tensors leave the global list when it has doubled; nodes are freed with their tensors.
    assert!(nodes_after <= nodes + 64, "{nodes} nodes, then {nodes_after}");
}
