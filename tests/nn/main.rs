//! Networks: layers, losses, optimizers and schedules against PyTorch, modules and their state, and
//! training.

mod fuzz;
mod layers;
mod layers_more;
mod learn;
mod learn_more;
mod losses;
mod losses_more;
mod module;
mod module_more;
mod optim;
mod optim_more;
mod precision;
mod recompute;

#[path = "../common/mod.rs"]
mod common;

use picograd::Tensor;
use picograd::io::{StateDict, safe_load_bytes};
use picograd::nn::Module;

/// The tensors of a fixture whose names begin with a prefix, with the prefix removed.
fn under(all: &StateDict, prefix: &str) -> StateDict {
    all.iter()
        .filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t.clone())))
        .collect()
}

/// Asserts that elements are within a tolerance of expected values, none of which is NaN.
#[track_caller]
fn assert_finite_close(what: &str, got: &Tensor, expected: &Tensor, tolerance: f64) {
    assert!(!common::as_f64(expected).iter().any(|y| y.is_nan()), "{what}: a NaN is expected");
    common::assert_tensors_close(what, got, expected, tolerance);
}

/// Runs a case of a fixture forward and backward: loads the parameters, calls a function on the
/// inputs, and compares outputs, gradients and buffers.
#[track_caller]
fn check(
    all: &StateDict,
    name: &str,
    module: &dyn Module,
    forward: impl Fn(&[Tensor]) -> Vec<Tensor>,
) {
    const TOLERANCE: f64 = 2e-5;
    let case = under(all, &format!("{name}/"));
    assert!(!case.is_empty(), "the fixture has no case {name}");
    module.load_state_dict(&under(&case, "param."), true).unwrap_or_else(|e| panic!("{name}: {e}"));
    let inputs: Vec<Tensor> = (0..)
        .map_while(|i| case.get(&format!("in.{i}")))
        .map(|t| if t.is_floating_point() { t.as_param() } else { t.clone() })
        .collect();
    let outputs = forward(&inputs);
    assert!(
        case.get(&format!("out.{}", outputs.len())).is_none(),
        "{name}: the fixture has more outputs"
    );
    let weighted = |(i, y): (usize, &Tensor)| {
        let weight = case.require(&format!("weight.{i}")).unwrap();
        assert_eq!(y.shape(), weight.shape(), "the shape of {name} out.{i}");
        (y * weight).sum(..)
    };
    let total = outputs.iter().enumerate().map(weighted).reduce(|a, b| a + b).unwrap();
    if total.requires_grad() {
        total.backward();
    }
    let grad = |t: &Tensor| t.grad().unwrap_or_else(|| t.zeros_like());
    let mut pairs: Vec<(String, Tensor)> =
        outputs.iter().enumerate().map(|(i, y)| (format!("out.{i}"), y.detach())).collect();
    pairs.extend(
        inputs
            .iter()
            .enumerate()
            .filter(|(_, t)| t.is_param())
            .map(|(i, t)| (format!("grad_in.{i}"), grad(t))),
    );
    pairs.extend(
        module.named_parameters().into_iter().map(|(n, t)| (format!("grad.{n}"), grad(&t))),
    );
    pairs.extend(module.named_buffers().into_iter().map(|(n, t)| (format!("after.{n}"), t)));
    Tensor::realize_many(&pairs.iter().map(|(_, t)| t).collect::<Vec<_>>()).unwrap();
    for (key, got) in &pairs {
        let before = key.strip_prefix("after.").and_then(|n| case.get(&format!("param.{n}")));
        match case.get(key).or(before) {
            Some(expected) => {
                assert_finite_close(&format!("{name} {key}"), got, expected, TOLERANCE)
            }
            None => assert!(key.starts_with("grad_in."), "{name}: the fixture has no {key}"),
        }
    }
}

/// Fills a module with deterministic weights. The random generator is shared by all tests, which
/// run in parallel.
fn fill(module: &dyn Module, mut seed: u32) {
    let mut next = || {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    for (name, p) in module.named_parameters() {
        if p.ndim() > 1 {
            let bound = ((p.numel() / p.size(0)) as f32).powf(-0.5);
            let values: Vec<f32> = (0..p.numel()).map(|_| next() * bound).collect();
            p.assign(Tensor::from_vec(values, p.shape())).unwrap();
        } else if name.ends_with("bias") {
            p.assign(0.0).unwrap();
        }
    }
}

fn fixture(bytes: &[u8]) -> StateDict {
    safe_load_bytes(bytes).unwrap()
}
