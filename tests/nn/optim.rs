//! Optimizers, clipping and schedules against PyTorch; resuming; kernels per step.

use super::{assert_finite_close, fill, fixture};
use picograd::io::StateDict;
use picograd::nn::optim::*;
use picograd::nn::{Layer, Linear, Module};
use picograd::tensor::Reduction;
use picograd::{DType, Tensor, seq};
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/optim.safetensors")));

const NAMES: [&str; 3] = ["w", "b", "k"];

fn start() -> Vec<Tensor> {
    NAMES.iter().map(|n| ALL.require(&format!("start/{n}")).unwrap().as_param()).collect()
}

/// The gradient of a parameter in a step.
fn grad(name: &str, step: usize) -> Tensor {
    let all = ALL.require(&format!("grads/{name}")).unwrap();
    all.i(step)
}

/// True if a parameter has no gradient in a step of the uneven cases of the fixture.
fn is_missing(name: &str, step: usize) -> bool {
    let steps: &[usize] = match name {
        "w" => &[7],
        "b" => &[0, 1, 7],
        _ => &[3, 4, 7, 11],
    };
    steps.contains(&step)
}

/// Steps with the gradients of the fixture; each parameter skips other steps.
fn uneven_steps(range: std::ops::Range<usize>, params: &[Tensor], optimizer: &mut Optimizer) {
    for step in range {
        for (n, p) in NAMES.iter().zip(params).filter(|(n, _)| !is_missing(n, step)) {
            p.set_grad(Some(grad(n, step).cast(p.dtype())));
        }
        optimizer.step().unwrap();
    }
}

#[track_caller]
fn uneven(case: &str, rule: impl Rule + 'static, dtype: DType, tolerance: f64) {
    let params: Vec<Tensor> = start().iter().map(|p| p.detach().cast(dtype).as_param()).collect();
    let mut optimizer = Optimizer::new(params.clone(), rule).unwrap();
    uneven_steps(0..20, &params, &mut optimizer);
    for (n, p) in NAMES.iter().zip(&params) {
        assert_finite_close(
            &format!("{case}: {n}"),
            p,
            ALL.require(&format!("{case}/20/{n}")).unwrap(),
            tolerance,
        );
    }
}

#[test]
fn parameters_count_their_own_updates() {
    uneven("sgd_uneven", SGD::new(0.1).momentum(0.9).dampening(0.4), DType::F32, 1e-5);
    uneven("adam_uneven", Adam::new(0.05), DType::F32, 1e-5);
    uneven("adamw_uneven", AdamW::new(0.05).weight_decay(0.2), DType::F32, 1e-5);
}

#[test]
fn doubles_are_updated_as_doubles() {
    uneven("sgd_double", SGD::new(0.1).momentum(0.9).dampening(0.4), DType::F64, 1e-14);
    uneven("adam_double", Adam::new(0.05), DType::F64, 1e-13);
    let p = Tensor::new([0.0f64]).as_param();
    let mut optimizer = Optimizer::new([p.clone()], SGD::new(0.1)).unwrap();
    p.set_grad(Some(Tensor::new([1.0f64])));
    optimizer.step().unwrap();
    assert_eq!(p.item::<f64>().unwrap(), -0.1);
}

#[test]
fn uneven_updates_are_saved_and_resumed() {
    let whole = start();
    let mut optimizer = Optimizer::new(whole.clone(), Adam::new(0.05)).unwrap();
    uneven_steps(0..14, &whole, &mut optimizer);
    let names: Vec<String> = optimizer
        .state_dict()
        .iter()
        .map(|(n, _)| n.clone())
        .filter(|n| n.starts_with("groups"))
        .collect();
    assert_eq!(
        names.len(),
        2 + 3 * 2,
        "a learning rate, counts, and two numbers for each of three counts: {names:?}"
    );

    let first = start();
    let mut optimizer = Optimizer::new(first.clone(), Adam::new(0.05)).unwrap();
    uneven_steps(0..6, &first, &mut optimizer);
    let file = picograd::io::safe_to_bytes(&optimizer.state_dict(), &[]).unwrap();
    let second: Vec<Tensor> = first.iter().map(|p| p.detach().as_param()).collect();
    let mut resumed = Optimizer::new(second.clone(), Adam::new(1.0)).unwrap();
    resumed.load_state_dict(&fixture(&file)).unwrap();
    uneven_steps(6..14, &second, &mut resumed);
    for (x, y) in whole.iter().zip(&second) {
        assert_eq!(x.to_bytes().unwrap(), y.to_bytes().unwrap());
    }
    // An even state loads into an uneven optimizer, and vice versa.
    let mut even = Optimizer::new(start(), Adam::new(0.05)).unwrap();
    let state = even.state_dict();
    assert!(
        state.get("groups.0.updates").is_none() && state.get("groups.0.exp_avg_part").is_some()
    );
    resumed.load_state_dict(&state).unwrap();
    even.load_state_dict(&fixture(&file)).unwrap();
    let wrong = Optimizer::new([start().remove(0)], Adam::new(0.05))
        .unwrap()
        .load_state_dict(&fixture(&file))
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("groups.0.updates"), "{wrong}");
}

/// Twenty steps with the gradients of the fixture, compared after the first and the last.
#[track_caller]
fn twenty_steps(case: &str, names: &[&str], params: &[Tensor], optimizer: &mut Optimizer) {
    for step in 0..20 {
        names.iter().zip(params).for_each(|(n, p)| p.set_grad(Some(grad(n, step))));
        optimizer.step().unwrap();
        if step == 0 || step == 19 {
            for (n, p) in names.iter().zip(params) {
                let expected = ALL.require(&format!("{case}/{}/{n}", step + 1)).unwrap();
                assert_finite_close(
                    &format!("{case}: {n} after step {}", step + 1),
                    p,
                    expected,
                    1e-5,
                );
            }
        }
    }
}

#[track_caller]
fn rule(case: &str, rule: impl Rule + 'static) {
    let params = start();
    let mut optimizer = Optimizer::new(params.clone(), rule).unwrap();
    twenty_steps(case, &NAMES, &params, &mut optimizer);
}

#[test]
fn sgd_matches_pytorch() {
    rule("sgd", SGD::new(0.1));
    rule("sgd_momentum", SGD::new(0.1).momentum(0.9).dampening(0.4).weight_decay(0.05));
    rule("sgd_nesterov", SGD::new(0.1).momentum(0.9).nesterov());
}

#[test]
fn groups_have_their_own_settings() {
    let params = start();
    let mut optimizer = Optimizer::new(params[..1].to_vec(), SGD::new(0.1).momentum(0.5)).unwrap();
    optimizer
        .add_group(params[1..].to_vec(), SGD::new(0.01).momentum(0.5).weight_decay(0.2))
        .unwrap();
    twenty_steps("sgd_groups", &NAMES, &params, &mut optimizer);
}

#[test]
fn adam_matches_pytorch() {
    rule("adam", Adam::new(0.05));
    rule("adam_decay", Adam::new(0.05).betas(0.8, 0.95).eps(1e-4).weight_decay(0.1));
    rule("adamw", AdamW::new(0.05).weight_decay(0.2));
    rule("adam_amsgrad", Adam::new(0.05).betas(0.8, 0.9).amsgrad());
    rule("adamw_amsgrad", AdamW::new(0.05).betas(0.8, 0.9).amsgrad());
}

#[test]
fn lars_and_lamb_match_their_definitions() {
    let lars = || LARS::new(1.0).weight_decay(1e-2).trust_coefficient(0.05);
    rule("lars", lars());
    rule("lars_nesterov", lars().nesterov());
    rule("lamb", LAMB::new(0.05).weight_decay(0.1));
}

#[test]
fn muon_matches_pytorch() {
    let names = ["w", "k"];
    for (case, rule) in [
        ("muon", Muon::new(0.05)),
        ("muon_plain", Muon::new(0.05).momentum(0.9).weight_decay(0.0).nesterov(false)),
    ] {
        let all = start();
        let params = [all[0].clone(), all[2].clone()];
        let mut optimizer = Optimizer::new(params.clone(), rule).unwrap();
        twenty_steps(case, &names, &params, &mut optimizer);
    }
    let wrong = Optimizer::new(start(), Muon::new(0.1)).err().unwrap().to_string();
    assert_eq!(
        wrong,
        "Muon: expected parameters of two axes or more, got [3]; put it in a group with another \
         rule"
    );
}

#[test]
fn tensors_that_cannot_be_optimized_are_errors() {
    let p = Tensor::new([1.0f32]).as_param();
    let e = |r: picograd::Result<Optimizer>| r.err().unwrap().to_string();
    let plain = e(Optimizer::new([Tensor::zeros([2])], SGD::new(0.1)));
    assert!(
        plain.ends_with("tensor 0 of shape [2] is not a parameter; make it one with as_param()"),
        "{plain}"
    );
    let twice = e(Optimizer::new([p.clone(), p.clone()], SGD::new(0.1)));
    assert!(
        twice.ends_with(
            "tensor 1 of shape [1] is already in a group; a parameter belongs to one group"
        ),
        "{twice}"
    );
    let mut optimizer = Optimizer::new([p.clone()], SGD::new(0.1)).unwrap();
    assert!(optimizer.add_group([p], SGD::new(0.1)).is_err());
    assert!(optimizer.set_lrs(&[0.1, 0.2]).is_err());
}

#[test]
fn parameters_without_a_gradient_stay() {
    let (a, b) = (Tensor::new([1.0f32]).as_param(), Tensor::new([1.0f32]).as_param());
    let mut optimizer =
        Optimizer::new([a.clone(), b.clone()], SGD::new(0.5).momentum(0.9)).unwrap();
    (&a * 2.0).sum(..).backward();
    optimizer.step().unwrap();
    assert_eq!((a.item::<f32>().unwrap(), b.item::<f32>().unwrap()), (0.0, 1.0));
    assert!(a.grad().is_none(), "a step consumes the gradients");
    optimizer.step().unwrap();
    assert_eq!(a.item::<f32>().unwrap(), 0.0);
}

#[test]
fn narrow_parameters_have_wide_state() {
    let p = Tensor::new([1.0f32, 2.0]).cast(picograd::DType::F16).as_param();
    let mut optimizer = Optimizer::new([p.clone()], Adam::new(0.5)).unwrap();
    (&p * 2.0).sum(..).backward();
    optimizer.step().unwrap();
    assert_eq!(p.cast(picograd::DType::F32).to_vec::<f32>().unwrap(), [0.5, 1.5]);
    assert_eq!(
        optimizer.state_dict().require("state.0.exp_avg").unwrap().dtype(),
        picograd::DType::F32
    );
}

#[test]
fn a_group_is_on_one_device() {
    let there = |x: f32| Tensor::new([x, 2.0]).to("interp").realize().unwrap().as_param();
    let p = there(1.0);
    let mut optimizer = Optimizer::new([p.clone()], Adam::new(0.5)).unwrap();
    optimizer.set_lr(0.25).unwrap();
    (&p * 2.0).sum(..).backward();
    optimizer.step().unwrap();
    assert_eq!(p.to_vec::<f32>().unwrap(), [0.75, 1.75]);
    assert_eq!(p.device().as_str(), "INTERP");
    if p.device() != Tensor::new([1.0f32]).device() {
        let mixed = Optimizer::new([Tensor::new([1.0f32]).as_param(), there(2.0)], SGD::new(0.1))
            .err()
            .unwrap()
            .to_string();
        assert!(
            mixed.ends_with(
                "is on INTERP and the first of its group on CPU; give each device a group"
            ),
            "{mixed}"
        );
    }
}

#[test]
fn clipping_matches_pytorch() {
    let case = |name: &str, step: usize, clip: &dyn Fn(&[Tensor])| {
        let params = start();
        NAMES.iter().zip(&params).for_each(|(n, p)| p.set_grad(Some(grad(n, step))));
        clip(&params);
        for (n, p) in NAMES.iter().zip(&params) {
            assert_finite_close(
                &format!("{name}: {n}"),
                &p.grad().unwrap(),
                ALL.require(&format!("{name}/{n}")).unwrap(),
                1e-6,
            );
        }
    };
    let norm = |name: &'static str, max: f64| {
        move |params: &[Tensor]| {
            let norm = clip_grad_norm(params, max).unwrap();
            assert_finite_close(name, &norm, ALL.require(&format!("{name}/norm")).unwrap(), 1e-6);
        }
    };
    case("clip_norm", 0, &norm("clip_norm", 1.5));
    case("clip_norm_idle", 1, &norm("clip_norm_idle", 100.0));
    case("clip_value", 2, &|params| clip_grad_value(params, 0.5).unwrap());
    assert_eq!(clip_grad_norm(&start(), 1.0).unwrap().item::<f32>().unwrap(), 0.0);
}

/// The learning rates that a schedule gives, compared with the fixture.
#[track_caller]
fn schedule(name: &str, schedule: impl Schedule + 'static) {
    let expected: Vec<f64> = ALL.require(&format!("schedule/{name}")).unwrap().to_vec().unwrap();
    let mut optimizer = Optimizer::new([Tensor::new([0.0f32]).as_param()], SGD::new(0.5)).unwrap();
    let mut scheduler = Scheduler::new(&mut optimizer, schedule).unwrap();
    for (step, y) in expected.iter().enumerate() {
        let x = optimizer.lr();
        assert!((x - y).abs() <= 1e-12 + 1e-9 * y, "{name}: {x} at step {step}, expected {y}");
        scheduler.step(&mut optimizer).unwrap();
    }
}

#[test]
fn schedules_match_pytorch() {
    schedule("step", Step::new(7, 0.3));
    schedule("multistep", MultiStep::new([3, 10, 20], 0.2));
    schedule("exponential", Exponential(0.9));
    schedule("cosine", Cosine::new(20).min_lr(0.05));
    schedule("ramp", Ramp::new(0.2, 0.8, 12));
    schedule("one_cycle", OneCycle::new(31));
    schedule(
        "one_cycle_linear",
        OneCycle::new(31).rise(0.5).linear().start_div(10.0).end_div(50.0),
    );
    schedule("warm_cosine", Ramp::new(0.1, 1.0, 5).then(5, Cosine::new(25)));
    schedule("exponential", |step: usize| 0.9f64.powi(step as i32));
}

#[test]
fn plateau_schedules_match_pytorch() {
    let metrics: Vec<f64> = ALL.require("schedule/metrics").unwrap().to_vec().unwrap();
    let up = Plateau::new().higher_is_better().factor(0.5).patience(3).absolute_threshold(0.1);
    for (name, mut plateau) in [
        ("plateau", Plateau::new().factor(0.5).patience(2).cooldown(1).min_lr(0.05)),
        ("plateau_up", up),
    ] {
        let expected: Vec<f64> =
            ALL.require(&format!("schedule/{name}")).unwrap().to_vec().unwrap();
        let mut optimizer =
            Optimizer::new([Tensor::new([0.0f32]).as_param()], SGD::new(0.5)).unwrap();
        for (step, (figure, y)) in metrics.iter().zip(expected).enumerate() {
            assert_eq!(optimizer.lr(), y, "{name} at step {step}");
            plateau.step(&mut optimizer, *figure).unwrap();
        }
    }
}

/// A resumable training: network, optimizer, schedule.
struct Training {
    net: picograd::nn::Sequential,
    optimizer: Optimizer,
    scheduler: Scheduler,
}

impl Training {
    fn new(seed: u32) -> Training {
        let net = seq![Linear::new(3, 5), Tensor::tanh, Linear::new(5, 2)];
        fill(&net, seed);
        let mut optimizer = Optimizer::new(net.parameters(), AdamW::new(0.05)).unwrap();
        let scheduler = Scheduler::new(&mut optimizer, Cosine::new(10)).unwrap();
        Training { net, optimizer, scheduler }
    }
    fn steps(&mut self, count: usize) {
        let x = Tensor::arange(0f32, 12.0, 1.0).reshape([4, 3]) * 0.1;
        let y = Tensor::arange(0f32, 8.0, 1.0).reshape([4, 2]) * 0.1;
        for _ in 0..count {
            self.net.forward(&x).mse_loss(&y, Reduction::Mean).backward();
            self.optimizer.step().unwrap();
            self.scheduler.step(&mut self.optimizer).unwrap();
        }
    }
    fn bytes(&self) -> Vec<Vec<u8>> {
        self.net.parameters().iter().map(|p| p.to_bytes().unwrap()).collect()
    }
}

#[test]
fn stop_and_resume_gives_the_same_bits() {
    let mut whole = Training::new(1);
    whole.steps(6);

    let mut first = Training::new(1);
    first.steps(3);
    let mut saved = StateDict::new();
    saved.extend_prefixed("net", &first.net.state_dict());
    saved.extend_prefixed("optimizer", &first.optimizer.state_dict());
    saved.extend_prefixed("scheduler", &first.scheduler.state_dict());
    let file = picograd::io::safe_to_bytes(&saved, &[]).unwrap();
    drop(first);

    let loaded = fixture(&file);
    let mut second = Training::new(2);
    second.net.load_state_dict(&loaded.under("net"), true).unwrap();
    second.optimizer.load_state_dict(&loaded.under("optimizer")).unwrap();
    second.scheduler.load_state_dict(&mut second.optimizer, &loaded.under("scheduler")).unwrap();
    second.steps(3);
    assert_eq!(whole.bytes(), second.bytes());
    assert_eq!(whole.optimizer.lr().to_bits(), second.optimizer.lr().to_bits());
}

#[test]
fn mismatched_state_changes_nothing() {
    let mut training = Training::new(1);
    training.steps(1);
    let state = training.optimizer.state_dict();
    let other: StateDict = state
        .iter()
        .filter(|(n, _)| n != "state.1.exp_avg")
        .cloned()
        .chain([("more".into(), Tensor::zeros([1]))])
        .collect();
    let wrong = training.optimizer.load_state_dict(&other).unwrap_err().to_string();
    assert!(
        wrong.contains("1 missing: state.1.exp_avg") && wrong.contains("1 extra: more"),
        "{wrong}"
    );
    let lr = training.optimizer.lr();
    assert_eq!(
        lr,
        Training::new(1).optimizer.lr() * (1.0 + (std::f64::consts::PI / 10.0).cos()) / 2.0
    );
}
