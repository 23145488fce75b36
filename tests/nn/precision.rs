//! Mixed precision: which operations are cast, and how losses are scaled.

use super::{assert_finite_close, fill};
use picograd::nn::optim::{Adam, GradScaler, Optimizer, SGD};
use picograd::nn::*;
use picograd::tensor::{Attention, Conv, Interpolate, Pool, Reduction};
use picograd::{DType, Jit, Tensor, autocast, no_autocast, seq};

fn x(dtype: DType) -> Tensor {
    (Tensor::arange(1f32, 13.0, 1.0).reshape([3, 4]) * 0.05).cast(dtype)
}

type Case = (&'static str, fn(&Tensor) -> Tensor);

/// The lists of PyTorch, restricted to existing methods.
const NARROW: &[Case] = &[
    ("matmul", |x| x.matmul(&x.t())),
    ("dot", |x| x.dot(&x.t())),
    ("linear", |x| x.linear(x, Some(&x.i((.., 0)).float()))),
    ("einsum", |x| Tensor::einsum("ij,kj->ik", &[x, x])),
    ("conv", |x| {
        x.unsqueeze(0)
            .conv2d(&x.unsqueeze(0).i((0..1, 0..3, 0..2)), Conv::new().bias(&Tensor::ones([1])))
    }),
    ("conv_transpose", |x| x.unsqueeze(0).conv_transpose2d(&x.unsqueeze(1), Conv::new())),
    ("prelu", |x| PReLU::new(1).forward(x)),
    ("rnn", |x| RNN::new(4, 2).forward(&x.unsqueeze(0))),
    ("gru", |x| GRU::new(4, 2).forward(&x.unsqueeze(0))),
    ("lstm", |x| LSTM::new(4, 2).forward(&x.unsqueeze(0))),
    ("gru cell", |x| GRUCell::new(4, 2).forward(x, None)),
    ("attention", |x| x.scaled_dot_product_attention(x, x, Attention::new())),
];
const WIDE: &[Case] = &[
    ("exp", |x| x.exp()),
    ("log", |x| x.log()),
    ("log2", |x| x.log2()),
    ("log10", |x| x.log10()),
    ("log1p", |x| x.log1p()),
    ("pow", |x| x.pow(x)),
    ("rsqrt", |x| x.rsqrt()),
    ("reciprocal", |x| x.reciprocal()),
    ("tan", |x| x.tan()),
    ("acos", |x| x.acos()),
    ("asin", |x| x.asin()),
    ("cosh", |x| x.cosh()),
    ("sinh", |x| x.sinh()),
    ("softplus", |x| x.softplus(1.0)),
    ("expm1", |x| x.expm1()),
    ("erfinv", |x| x.erfinv()),
    ("norm", |x| x.norm(2.0, -1)),
    ("matrix_norm", |x| x.matrix_norm(1.0, ..)),
    ("normalize", |x| x.normalize(2.0, -1, 1e-12)),
    ("rmsnorm", |x| x.rmsnorm(-1, 1e-6)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("cdist", |x| x.cdist(x, 2.0)),
    ("interpolate", |x| x.unsqueeze(0).interpolate([8], Interpolate::Linear, false)),
    ("softmax", |x| x.softmax(-1)),
    ("softmin", |x| x.softmin(-1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("layernorm", |x| x.layernorm(-1, 1e-5)),
    ("LayerNorm", |x| LayerNorm::new(4).forward(x)),
    ("LayerNorm without parameters", |x| LayerNorm::new(4).affine(false).forward(x)),
    ("LayerNorm2d", |x| LayerNorm2d::new(3).affine(false).forward(&x.reshape([1, 3, 2, 2]))),
    ("RMSNorm", |x| RMSNorm::new(4).affine(false).forward(x)),
    ("GroupNorm", |x| GroupNorm::new(2, 4).forward(x)),
    ("GroupNorm without parameters", |x| GroupNorm::new(2, 4).affine(false).forward(x)),
    ("GroupNorm of narrow parameters", |x| {
        let norm = GroupNorm::new(2, 4);
        norm.cast(x.dtype()).unwrap();
        norm.forward(x)
    }),
    ("sum", |x| x.sum(0)),
    ("prod", |x| x.prod(0)),
    ("cumsum", |x| x.cumsum(0)),
    ("cumprod", |x| x.cumprod(0)),
    ("mse_loss", |x| x.mse_loss(x, Reduction::Mean)),
    ("l1_loss", |x| x.l1_loss(x, Reduction::Mean)),
    ("smooth_l1_loss", |x| x.smooth_l1_loss(x, 1.0, Reduction::Mean)),
    ("huber_loss", |x| x.huber_loss(x, 1.0, Reduction::Mean)),
    ("cross_entropy", |x| x.cross_entropy(&Tensor::new([0, 1, 2]), Reduction::Mean)),
    ("nll_loss", |x| x.nll_loss(&Tensor::new([0, 1, 2]), Reduction::Mean)),
    ("bce_logits", |x| x.binary_crossentropy_logits(x, Reduction::Mean)),
    ("kl_div", |x| x.kl_div(x, false, Reduction::Mean)),
    ("cosine_similarity", |x| x.cosine_similarity(x, -1, 1e-8)),
    ("cosine_embedding_loss", |x| {
        x.cosine_embedding_loss(x, &Tensor::new([1, 1, -1]), 0.0, Reduction::Mean)
    }),
    ("hinge_embedding_loss", |x| x.hinge_embedding_loss(x, 1.0, Reduction::Mean)),
    ("margin_ranking_loss", |x| x.margin_ranking_loss(x, x, 1.0, Reduction::Mean)),
    ("multi_margin_loss", |x| x.multi_margin_loss(&Tensor::new([0, 1, 2]), Reduction::Mean)),
    ("poisson_nll_loss", |x| x.poisson_nll_loss(x, Reduction::Mean)),
    ("soft_margin_loss", |x| x.soft_margin_loss(x, Reduction::Mean)),
    ("triplet_margin_loss", |x| x.triplet_margin_loss(x, x, Reduction::Mean)),
    ("ctc_loss", |x| {
        x.ctc_loss(&Tensor::new([1]), &Tensor::new(3), &Tensor::new(1), Reduction::Mean)
    }),
];
const KEPT: &[Case] = &[
    ("relu", |x| x.relu()),
    ("gelu", |x| x.gelu()),
    ("gelu_tanh", |x| x.gelu_tanh()),
    ("silu", |x| x.silu()),
    ("mish", |x| x.mish()),
    ("elu", |x| x.elu(1.0)),
    ("selu", |x| x.selu()),
    ("celu", |x| x.celu(1.0)),
    ("logsigmoid", |x| x.logsigmoid()),
    ("sigmoid", |x| x.sigmoid()),
    ("tanh", |x| x.tanh()),
    ("sqrt", |x| x.sqrt()),
    ("erf", |x| x.erf()),
    ("mean", |x| x.mean(0)),
    ("max", |x| x.max(0)),
    ("add", |x| x + x),
    ("mul", |x| x * x),
    ("div", |x| x / (x + 1.0)),
    ("var", |x| x.var(0, 1)),
    ("std", |x| x.std(0, 1)),
    ("BatchNorm", |x| BatchNorm::new(4).forward(x)),
    ("InstanceNorm", |x| InstanceNorm::new(3).forward(&x.unsqueeze(0))),
    ("InstanceNorm with parameters", |x| {
        InstanceNorm::new(3).affine(true).forward(&x.unsqueeze(0))
    }),
    ("max_pool2d", |x| x.reshape([1, 1, 3, 4]).max_pool2d(2, Pool::new())),
    ("avg_pool2d", |x| x.reshape([1, 1, 3, 4]).avg_pool2d(2, Pool::new())),
    ("cat", |x| Tensor::cat(&[x.clone(), x.clone()], 0)),
];

#[test]
fn autocast_uses_the_dtypes_of_the_lists() {
    for narrow in [DType::BF16, DType::F16] {
        for (list, expected) in [(NARROW, Some(narrow)), (WIDE, Some(DType::F32)), (KEPT, None)] {
            for (name, f) in list {
                for dtype in [DType::F32, narrow, DType::F64] {
                    let got = autocast(narrow, || f(&x(dtype))).dtype();
                    let expected =
                        if dtype == DType::F64 { DType::F64 } else { expected.unwrap_or(dtype) };
                    assert_eq!(got, expected, "{name} of {dtype} under autocast to {narrow}");
                }
            }
        }
    }
}

#[test]
fn mixed_operands_promote_to_the_widest() {
    let (a, b) = (x(DType::BF16), x(DType::F32));
    autocast(DType::BF16, || {
        assert_eq!(Tensor::cat(&[a.clone(), b.clone()], 0).dtype(), DType::F32);
        assert_eq!(Tensor::stack(&[a.clone(), b.clone()], 0).dtype(), DType::F32);
        assert_eq!(a.gt(0).where_(&a, &b).dtype(), DType::F32);
        assert_eq!((&a + &b).dtype(), DType::F32);
        assert_eq!(a.matmul(&b.t()).dtype(), DType::BF16);
        assert_eq!(a.pow(&b).dtype(), DType::F32);
        assert_eq!(a.i((0, ..)).dot(&b.i((0, ..))).dtype(), DType::F32);
    });
}

#[test]
fn scopes_nest_and_end() {
    let (a, i) = (x(DType::F32), Tensor::new([[1, 2], [3, 4]]));
    let of = || a.matmul(&a.t()).dtype();
    autocast(DType::BF16, || {
        assert_eq!(of(), DType::BF16);
        autocast(DType::F16, || assert_eq!(of(), DType::F16));
        no_autocast(|| {
            assert_eq!(of(), DType::F32);
            autocast(DType::F16, || assert_eq!(of(), DType::F16));
        });
        assert_eq!(of(), DType::BF16);
        assert_eq!(i.matmul(&i).dtype(), DType::I32);
        assert_eq!(std::thread::scope(|s| s.spawn(of).join().unwrap()), DType::F32);
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        autocast(DType::F16, || panic!("inside"))
    }));
    assert!(caught.is_err());
    assert_eq!(of(), DType::F32);
    // An operation that fails does not change the scope.
    autocast(DType::BF16, || {
        assert!(a.try_matmul(&a).is_err());
        assert_eq!(of(), DType::BF16);
    });
    assert!(std::panic::catch_unwind(|| autocast(DType::F32, || ())).is_err());
    let wrong = autocast(DType::BF16, || a.try_binary_crossentropy(&a, Reduction::Mean))
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("binary_crossentropy is not safe under autocast to bf16"), "{wrong}");
}

fn net() -> Sequential {
    let net = seq![
        Conv2d::new(1, 3, 3),
        BatchNorm::new(3),
        Tensor::relu,
        Flatten::new(),
        Linear::new(12, 5),
        LayerNorm::new(5),
        Tensor::gelu,
        Linear::new(5, 2)
    ];
    fill(&net, 3);
    net
}

fn data() -> (Tensor, Tensor) {
    let x = (Tensor::arange(0f32, 96.0, 1.0).reshape([6, 1, 4, 4]) * 0.37).sin();
    let y = Tensor::new([0, 1, 0, 1, 1, 0]);
    (x.realize().unwrap(), y)
}

#[test]
fn gradients_are_near_those_of_full_precision() {
    let (x, y) = data();
    let run = |dtype: Option<DType>| {
        let net = net();
        let forward = || net.forward(&x).cross_entropy(&y, Reduction::Mean);
        let loss = match dtype {
            Some(dtype) => autocast(dtype, forward),
            None => forward(),
        };
        assert_eq!(loss.dtype(), DType::F32);
        loss.backward();
        let grads: Vec<Tensor> = net.parameters().iter().map(|p| p.grad().unwrap()).collect();
        assert!(grads.iter().all(|g| g.dtype() == DType::F32));
        (loss.item::<f32>().unwrap(), grads)
    };
    let (loss, grads) = run(None);
    for (dtype, tolerance) in [(DType::BF16, 0.05), (DType::F16, 0.01)] {
        let (narrow, others) = run(Some(dtype));
        assert!((loss - narrow).abs() < tolerance as f32 && loss != narrow, "{loss} and {narrow}");
        for (i, (a, b)) in grads.iter().zip(&others).enumerate() {
            assert_finite_close(&format!("gradient {i} in {dtype}"), b, a, tolerance);
        }
    }
}

#[test]
fn autocast_applies_in_captured_functions() {
    let (x, y) = data();
    let run = |captured: bool| {
        let net = net();
        let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.02)).unwrap();
        let mut scaler = GradScaler::new().init_scale(1024.0).growth_interval(3);
        let mut losses = Vec::new();
        {
            let mut step = |(x, y): (Tensor, Tensor)| {
                let loss =
                    autocast(DType::BF16, || net.forward(&x).cross_entropy(&y, Reduction::Mean));
                scaler.scale(&loss)?.backward();
                scaler.step(&mut optimizer)?;
                scaler.update()?;
                Ok(loss)
            };
            if captured {
                let mut jit = Jit::new(&mut step);
                (0..8).for_each(|_| {
                    losses.push(jit.call((x.clone(), y.clone())).unwrap().item::<f32>().unwrap())
                });
                assert!(jit.is_captured());
            } else {
                (0..8).for_each(|_| {
                    losses.push(step((x.clone(), y.clone())).unwrap().item::<f32>().unwrap())
                });
            }
        }
        assert!(losses[7] < losses[0], "{losses:?}");
        (losses, scaler.get_scale().unwrap(), net.parameters()[0].to_vec::<f32>().unwrap())
    };
    let (plain, captured) = (run(false), run(true));
    assert_eq!(plain.1, 4096.0, "the scale doubles after three steps and after six");
    assert_eq!(plain, captured);
}

#[test]
fn steps_with_infinite_gradients_are_skipped() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let mut optimizer = Optimizer::new([w.clone()], Adam::new(0.1)).unwrap();
    let mut scaler = GradScaler::new()
        .init_scale(16.0)
        .growth_interval(2)
        .growth_factor(4.0)
        .backoff_factor(0.25);
    let factors = [1.0f32, f32::INFINITY, 1.0, f32::NAN, 1.0, 1.0, 1.0];
    let scales = [16.0, 4.0, 4.0, 1.0, 1.0, 4.0, 4.0];
    // The same finite gradients without the infinite ones.
    let expected = Tensor::new([1.0f32, 2.0]).as_param();
    let mut plain = Optimizer::new([expected.clone()], Adam::new(0.1)).unwrap();
    for (factor, scale) in factors.into_iter().zip(scales) {
        let before = (w.to_bytes().unwrap(), optimizer.state_dict());
        scaler.scale(&(w.square().sum(..) * factor)).unwrap().backward();
        scaler.step(&mut optimizer).unwrap();
        assert!(w.grad().is_none());
        scaler.update().unwrap();
        assert_eq!(scaler.get_scale().unwrap(), scale);
        if factor.is_finite() {
            expected.square().sum(..).backward();
            plain.step().unwrap();
        } else {
            assert_eq!(w.to_bytes().unwrap(), before.0);
            for (name, t) in optimizer.state_dict().iter() {
                assert_eq!(
                    t.to_bytes().unwrap(),
                    before.1.require(name).unwrap().to_bytes().unwrap(),
                    "{name}"
                );
            }
        }
        assert_eq!(
            w.to_bytes().unwrap(),
            expected.to_bytes().unwrap(),
            "after a factor of {factor}"
        );
    }
    let saved = scaler.state_dict();
    assert_eq!(saved.require("scale").unwrap().item::<f32>().unwrap(), 4.0);
    let mut other = GradScaler::new();
    other.load_state_dict(&saved).unwrap();
    assert_eq!(other.state_dict().require("_growth_tracker").unwrap().item::<i32>().unwrap(), 1);
    assert_eq!(other.state_dict().require("growth_interval").unwrap().item::<u64>().unwrap(), 2);
}

#[test]
fn uneven_steps_are_skipped_on_the_host() {
    let (a, b) = (Tensor::new([1.0f32]).as_param(), Tensor::new([1.0f32]).as_param());
    let mut optimizer = Optimizer::new([a.clone(), b.clone()], Adam::new(0.1)).unwrap();
    let mut scaler = GradScaler::new().init_scale(4.0);
    let mut step = |loss: Tensor| {
        scaler.scale(&loss).unwrap().backward();
        scaler.step(&mut optimizer).unwrap();
        scaler.update().unwrap();
        (a.item::<f32>().unwrap(), b.item::<f32>().unwrap())
    };
    let first = step(a.square().sum(..));
    assert!(first.0 < 1.0 && first.1 == 1.0);
    let skipped = step((&a * &b).sum(..) * f32::INFINITY);
    assert_eq!(skipped, first);
    let third = step((&a + &b).sum(..));
    assert!(third.0 < first.0 && (third.1 - 0.9).abs() < 1e-5);
}

#[test]
fn a_grad_scaler_serves_several_optimizers() {
    let (a, b) = (Tensor::new([3.0f32, 4.0]).as_param(), Tensor::new([1.0f32]).as_param());
    let mut first = Optimizer::new([a.clone()], SGD::new(1.0)).unwrap();
    let mut second = Optimizer::new([b.clone()], SGD::new(1.0)).unwrap();
    let mut scaler = GradScaler::new().init_scale(8.0);
    let loss = (a.square().sum(..) * 0.5) + (&b * f32::INFINITY).sum(..);
    scaler.scale(&loss).unwrap().backward();
    scaler.unscale_(&first).unwrap();
    picograd::nn::optim::clip_grad_norm(std::slice::from_ref(&a), 1.0).unwrap();
    scaler.step(&mut first).unwrap();
    assert!(scaler.step(&mut first).unwrap_err().to_string().contains("step() was already called"));
    scaler.step(&mut second).unwrap();
    scaler.update().unwrap();
    assert_finite_close("the clipped step", &a, &Tensor::new([2.4f32, 3.2]), 1e-5);
    assert_eq!((b.item::<f32>().unwrap(), scaler.get_scale().unwrap()), (1.0, 4.0));
    let wrong = scaler.update().unwrap_err().to_string();
    assert!(wrong.contains("update() requires a step() since the last update()"), "{wrong}");
    let mut off = GradScaler::new().enabled(false);
    off.scale(&b.square().sum(..)).unwrap().backward();
    off.step(&mut second).unwrap();
    off.update().unwrap();
    assert_eq!(b.item::<f32>().unwrap(), -1.0);
}
