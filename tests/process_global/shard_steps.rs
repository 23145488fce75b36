//! Sharded training steps: a repeated step schedules and compiles nothing, and parameters are
//! updated in place.

use crate::serial;
use picograd::device::{counters, reset_counters};
use picograd::ir::Arg;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Layer, Linear, Module, ReLU};
use picograd::tensor::Reduction;
use picograd::{Tensor, seq};

/// The allocation numbers of the shards of a realized tensor.
fn memories(t: &Tensor) -> Vec<u64> {
    let nodes = t.uop().toposort();
    let storage = |u: &picograd::ir::UOp| {
        if let Arg::Storage(s) = u.arg() { Some(s.storage.memory_id()) } else { None }
    };
    nodes.iter().filter_map(storage).collect()
}

#[test]
fn a_sharded_step_is_planned_once() {
    let _guard = serial();
    let devices = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"];
    let net = seq![Linear::new(16, 32), ReLU, Linear::new(32, 4)];
    net.parameters().iter().for_each(|p| p.shard_(&devices, None).unwrap());
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.01)).unwrap();
    let homes: Vec<Vec<u64>> = net.parameters().iter().map(memories).collect();
    assert!(homes.iter().all(|h| h.len() == 4), "a copy on each device");
    for step in 0..4 {
        let data = |shape: [usize; 2]| {
            Tensor::from_vec(
                (0..shape[0] * shape[1]).map(|i| ((i + step) as f32).sin()).collect::<Vec<_>>(),
                shape,
            )
        };
        let (x, y) = (data([10, 16]).shard(&devices, 0), data([10, 4]).shard(&devices, 0));
        reset_counters();
        let start = std::time::Instant::now();
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.step().unwrap();
        assert!(loss.item::<f32>().unwrap().is_finite());
        let c = counters();
        println!(
            "step {step}: {} kernels, {} copies, {:?} of which {:?} in kernels",
            c.kernels,
            c.copies,
            start.elapsed(),
            c.time
        );
        assert!(
            c.compiled * 2 <= c.kernels,
            "CPUs share their code: {} kernels compiled, {} run",
            c.compiled,
            c.kernels
        );
        if step > 0 {
            assert_eq!(
                (c.compiled, c.schedule_hits),
                (0, c.schedules),
                "step {step} plans and compiles nothing"
            );
        }
        let now: Vec<Vec<u64>> = net.parameters().iter().map(memories).collect();
        assert_eq!(now, homes, "parameters are updated in place");
    }
    // Two layers: four gradients, and the loss.
    let copies = counters().copies;
    assert!(
        copies <= 5 * 12 + 8,
        "{copies} copies, expected only partial sums of four devices and the batch"
    );
}
