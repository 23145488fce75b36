//! Casting, freezing, summaries, moving averages, and gradient accumulation.

use super::{assert_finite_close, fill};
use picograd::nn::optim::{Accumulate, Adam, Optimizer, SGD};
use picograd::nn::*;
use picograd::tensor::Reduction;
use picograd::{DType, Jit, Tensor, seq};

fn net() -> Sequential {
    let net = seq![Linear::new(3, 4), BatchNorm::new(4), Tensor::relu, Linear::new(4, 2)];
    fill(&net, 5);
    net
}

fn data() -> (Tensor, Tensor) {
    let x = Tensor::arange(0f32, 24.0, 1.0).reshape([8, 3]) * 0.1 - 1.0;
    (x.sin().realize().unwrap(), (x.i((.., 0..2)) * 0.5).realize().unwrap())
}

#[test]
fn floats_are_cast_and_integers_are_not() {
    let net = net();
    let weight = net.parameters()[0].clone();
    let before = weight.to_vec::<f32>().unwrap();
    net.forward(&data().0).sum(..).backward();
    net.cast(DType::BF16).unwrap();
    for (name, t) in net.state_dict().iter() {
        let expected = if name.ends_with("num_batches_tracked") { DType::I64 } else { DType::BF16 };
        assert_eq!(t.dtype(), expected, "{name}");
    }
    assert!(weight.is_param() && weight.requires_grad());
    assert_eq!(weight.grad().unwrap().dtype(), DType::BF16);
    let rounded =
        Tensor::from_vec(before, [4, 3]).cast(DType::BF16).float().to_vec::<f32>().unwrap();
    assert_eq!(weight.float().to_vec::<f32>().unwrap(), rounded);
    let y = net.forward(&data().0.bfloat16());
    assert_eq!(y.dtype(), DType::BF16);
    y.sum(..).backward();
    assert_eq!(weight.grad().unwrap().dtype(), DType::BF16);
    let wrong = net.cast(DType::I32).unwrap_err().to_string();
    assert_eq!(wrong, "Module::cast: expected a float dtype, got i32");
}

#[test]
fn a_shared_parameter_is_cast_once() {
    let table = Embedding::new(5, 3);
    let head = Linear { weight: table.weight.clone(), bias: None };
    let tied = (table, head);
    tied.cast(DType::F64).unwrap();
    assert_eq!(tied.parameters().len(), 1);
    assert_eq!((tied.0.weight.dtype(), tied.1.weight.dtype()), (DType::F64, DType::F64));
}

#[test]
fn frozen_parameters_are_not_trained() {
    let net = net();
    let all = net.parameters();
    let (x, y) = data();
    let mut optimizer = Optimizer::new(all.clone(), Adam::new(0.1)).unwrap();
    let bytes = |i: usize| all[i].to_bytes().unwrap();
    all[0].freeze();
    assert!(all[0].is_param() && !all[0].requires_grad() && net.parameters().len() == all.len());
    let before: Vec<Vec<u8>> = (0..all.len()).map(bytes).collect();
    for _ in 0..2 {
        net.forward(&x).mse_loss(&y, Reduction::Mean).backward();
        assert!(all[0].grad().is_none());
        optimizer.step().unwrap();
    }
    let changed: Vec<bool> = (0..all.len()).map(|i| bytes(i) != before[i]).collect();
    assert_eq!((changed[0], changed[1], changed[5]), (false, true, true));
    let wrong = net.forward(&x).sum(..).try_gradient(&[&all[0]]).unwrap_err().to_string();
    assert!(wrong.contains("target 0 is frozen"), "{wrong}");
    net.freeze();
    assert!(!net.forward(&x).requires_grad());
    assert!(net.forward(&x).sum(..).try_backward().is_err());
    net.unfreeze();
    net.forward(&x).mse_loss(&y, Reduction::Mean).backward();
    optimizer.step().unwrap();
    assert_ne!(bytes(0), before[0]);
    // An earlier result keeps its gradient.
    let made = net.forward(&x).sum(..);
    net.freeze();
    made.backward();
    assert!(all[0].grad().is_some());
}

#[test]
fn unused_targets_have_no_gradient() {
    let (x, y) = (Tensor::new([2.0f32]).as_param(), Tensor::new([3.0f32]).as_param());
    let loss = (&x * &x).sum(..);
    let found = loss.gradient_allow_unused(&[&y, &x]);
    assert!(found[0].is_none());
    assert_eq!(found[1].as_ref().unwrap().item::<f32>().unwrap(), 4.0);
    let wrong = loss.try_gradient(&[&x, &y]).unwrap_err().to_string();
    assert!(wrong.contains("does not depend on target 1"), "{wrong}");
    // A target with only zero derivatives counts as used, with a zero gradient.
    let found = (x.floor() * 2.0).sum(..).gradient_allow_unused(&[&x]);
    assert_eq!(found[0].as_ref().unwrap().item::<f32>().unwrap(), 0.0);
}

#[test]
fn a_module_prints_as_a_tree() {
    #[derive(Module)]
    struct Block<L> {
        norm: LayerNorm,
        inner: L,
        heads: Vec<Linear>,
        scale: f32,
        table: Tensor,
        none: Option<Linear>,
    }
    let block = Block {
        norm: LayerNorm::new(4),
        inner: seq![
            Conv3d::new(1, 2, 3),
            Tensor::relu,
            |x: &Tensor| x * 2.0,
            ReLU,
            Dropout::new(0.5)
        ],
        heads: vec![Linear::new(4, 1).bias(false)],
        scale: 1.0,
        table: Tensor::zeros([2, 3]),
        none: None,
    };
    assert!(block.scale == 1.0 && block.none.is_none());
    block.norm.cast(DType::BF16).unwrap();
    block.heads.freeze();
    let expected = "\
Block<Sequential>(table: [2, 3] buffer
  (norm): LayerNorm(weight: bf16 [4], bias: bf16 [4]) 8 parameters
  (inner): Sequential(
    (0): Conv3d(weight: [2, 1, 3, 3, 3], bias: [2]) 56 parameters
    (1): relu()
    (2): closure()
    (3): ReLU()
    (4): Dropout()
  ) 56 parameters
  (heads): ModuleList(
    (0): Linear(weight: [1, 4]) 4 parameters, frozen
  ) 4 parameters, frozen
) 68 parameters, 4 frozen";
    assert_eq!(block.summary().to_string(), expected);
    assert_eq!((&block as &dyn Module).to_string(), expected);
    let norm = SpectralNorm::new(Linear::new(2, 3).bias(false));
    let boxed: Box<dyn Layer> = Box::new(norm);
    let line = "SpectralNorm<Linear>(parametrizations.weight.original: [3, 2], \
                parametrizations.weight.0._u: [3] buffer, parametrizations.weight.0._v: [2] \
                buffer) 6 parameters";
    assert_eq!(boxed.to_string(), line);
    // A shared parameter counts once.
    let table = Embedding::new(5, 3);
    let tied = (Linear { weight: table.weight.clone(), bias: None }, table);
    assert!(tied.summary().to_string().ends_with(") 15 parameters"), "{}", tied.summary());
    assert_eq!(net().to_string(), net().summary().to_string());
}

#[test]
fn moving_averages_follow_the_parameters() {
    let run = |captured: bool| {
        let net = net();
        let (x, y) = data();
        let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.1)).unwrap();
        let ema = Ema::new(&net, 0.8).unwrap();
        let mut expected: Vec<Vec<f32>> = Vec::new();
        let step = |(x, y): (Tensor, Tensor)| {
            let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
            loss.backward();
            optimizer.step()?;
            ema.update()?;
            Ok(loss)
        };
        let mut call: Box<dyn FnMut((Tensor, Tensor)) -> picograd::Result<Tensor>> = if captured {
            let mut jit = Jit::new(step);
            Box::new(move |data| jit.call(data))
        } else {
            Box::new(step)
        };
        for i in 0..5 {
            call((x.clone(), y.clone())).unwrap();
            let now: Vec<Vec<f32>> =
                net.parameters().iter().map(|p| p.to_vec::<f32>().unwrap()).collect();
            expected = if i == 0 {
                now
            } else {
                let mix = |(a, p): (&f32, &f32)| p + (a - p) * 0.8;
                expected.iter().zip(&now).map(|(a, p)| a.iter().zip(p).map(mix).collect()).collect()
            };
        }
        let state = ema.state_dict();
        assert_eq!(state.require("n_averaged").unwrap().item::<i64>().unwrap(), 5);
        for ((name, p), values) in net.named_parameters().iter().zip(&expected) {
            let got = state.require(&format!("module.{name}")).unwrap();
            assert_finite_close(name, got, &Tensor::from_vec(values.clone(), p.shape()), 1e-6);
        }
        let mean = net.state_dict().require("1.running_mean").unwrap().to_bytes().unwrap();
        assert_eq!(state.require("module.1.running_mean").unwrap().to_bytes().unwrap(), mean);
        let before: Vec<Vec<u8>> = net.parameters().iter().map(|p| p.to_bytes().unwrap()).collect();
        let inside = ema.with(|| net.parameters()[0].to_vec::<f32>().unwrap()).unwrap();
        assert_finite_close(
            "inside",
            &Tensor::new(inside),
            &Tensor::new(expected[0].clone()),
            1e-6,
        );
        assert_eq!(
            before,
            net.parameters().iter().map(|p| p.to_bytes().unwrap()).collect::<Vec<_>>()
        );
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ema.with(|| panic!("inside"))
        }));
        assert!(caught.is_err());
        assert_eq!(
            before,
            net.parameters().iter().map(|p| p.to_bytes().unwrap()).collect::<Vec<_>>()
        );
        let other = Ema::new(&self::net(), 0.8).unwrap();
        other.load_state_dict(&state).unwrap();
        assert_eq!(
            other.state_dict().require("module.0.weight").unwrap().to_bytes(),
            state.require("module.0.weight").unwrap().to_bytes()
        );
    };
    run(false);
    run(true);
}

#[test]
fn accumulated_batches_equal_one_large_batch() {
    let make = || seq![Linear::new(3, 4), Tensor::tanh, Linear::new(4, 2)];
    let (large, small) = (make(), make());
    fill(&large, 9);
    fill(&small, 9);
    let (x, y) = data();
    let mut first = Optimizer::new(large.parameters(), Adam::new(0.05)).unwrap();
    let mut second = Optimizer::new(small.parameters(), Adam::new(0.05)).unwrap();
    let mut accumulate = Accumulate::new(4).unwrap();
    for _ in 0..3 {
        large.forward(&x).mse_loss(&y, Reduction::Mean).backward();
        first.step().unwrap();
        for i in 0..4 {
            let loss = small
                .forward(&x.i(2 * i..2 * i + 2))
                .mse_loss(&y.i(2 * i..2 * i + 2), Reduction::Mean);
            let last = accumulate.backward(&loss, &second).unwrap();
            assert_eq!((last, accumulate.is_pending()), (i == 3, i != 3));
            if last {
                second.step().unwrap();
            }
        }
    }
    for ((name, a), b) in large.named_parameters().iter().zip(small.parameters()) {
        assert_finite_close(name, &b, a, 1e-5);
    }
}
