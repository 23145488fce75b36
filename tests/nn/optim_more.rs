//! The other optimizers against PyTorch: every option, skipped updates, f64, resuming, capture.

use super::{assert_finite_close, fixture};
use picograd::io::StateDict;
use picograd::nn::optim::*;
use picograd::{DType, Jit, Tensor};
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/optim_more.safetensors")));

const NAMES: [&str; 2] = ["w", "b"];

fn start(dtype: DType) -> Vec<Tensor> {
    NAMES
        .iter()
        .map(|n| ALL.require(&format!("start/{n}")).unwrap().cast(dtype).as_param())
        .collect()
}

fn grad(name: &str, step: usize) -> Tensor {
    ALL.require(&format!("grads/{name}")).unwrap().i(step)
}

fn steps(
    range: std::ops::Range<usize>,
    params: &[Tensor],
    optimizer: &mut Optimizer,
    uneven: bool,
) {
    for step in range {
        for (n, p) in NAMES.iter().zip(params) {
            if !(uneven && *n == "b" && [0, 4, 5].contains(&step)) {
                p.set_grad(Some(grad(n, step).cast(p.dtype())));
            }
        }
        optimizer.step().unwrap();
    }
}

#[track_caller]
fn run(case: &str, rule: impl Rule + 'static, dtype: DType, uneven: bool, tolerance: f64) {
    let params = start(dtype);
    let mut optimizer = Optimizer::new(params.clone(), rule).unwrap();
    for (from, to) in [(0, 1), (1, 6), (6, 12)] {
        steps(from..to, &params, &mut optimizer, uneven);
        for (n, p) in NAMES.iter().zip(&params) {
            let expected = ALL.require(&format!("{case}/{to}/{n}")).unwrap();
            assert_finite_close(&format!("{case}: {n} after step {to}"), p, expected, tolerance);
        }
    }
}

#[track_caller]
fn rule(case: &str, rule: impl Rule + 'static) {
    run(case, rule, DType::F32, false, 1e-5);
}

/// Stops in the middle and resumes from a file.
#[track_caller]
fn resumes<R: Rule + 'static>(make: impl Fn() -> R) {
    let whole = start(DType::F32);
    steps(0..12, &whole, &mut Optimizer::new(whole.clone(), make()).unwrap(), true);
    let first = start(DType::F32);
    let mut optimizer = Optimizer::new(first.clone(), make()).unwrap();
    steps(0..5, &first, &mut optimizer, true);
    let file = picograd::io::safe_to_bytes(&optimizer.state_dict(), &[]).unwrap();
    let second: Vec<Tensor> = first.iter().map(|p| p.detach().as_param()).collect();
    let mut resumed = Optimizer::new(second.clone(), make()).unwrap();
    resumed.load_state_dict(&fixture(&file)).unwrap();
    steps(5..12, &second, &mut resumed, true);
    for (x, y) in whole.iter().zip(&second) {
        assert_eq!(x.to_bytes().unwrap(), y.to_bytes().unwrap());
    }
}

#[test]
fn rmsprop_matches_pytorch() {
    rule("rmsprop", RMSprop::new(0.01));
    rule(
        "rmsprop_momentum",
        RMSprop::new(0.01).alpha(0.9).eps(1e-4).momentum(0.8).weight_decay(0.1),
    );
    rule("rmsprop_centered", RMSprop::new(0.01).alpha(0.9).centered());
    rule("rmsprop_both", RMSprop::new(0.01).alpha(0.9).centered().momentum(0.5).maximize());
}

#[test]
fn adagrad_and_adadelta_match_pytorch() {
    rule("adagrad", Adagrad::new(0.1));
    rule(
        "adagrad_all",
        Adagrad::new(0.1)
            .lr_decay(0.1)
            .weight_decay(0.1)
            .initial_accumulator_value(0.3)
            .eps(1e-3)
            .maximize(),
    );
    rule("adadelta", Adadelta::new(1.0));
    rule("adadelta_all", Adadelta::new(0.5).rho(0.8).eps(1e-3).weight_decay(0.1).maximize());
}

#[test]
fn nadam_radam_and_adamax_match_pytorch() {
    rule("nadam", NAdam::new(0.02));
    rule(
        "nadam_all",
        NAdam::new(0.02)
            .betas(0.8, 0.95)
            .eps(1e-4)
            .weight_decay(0.1)
            .momentum_decay(0.1)
            .maximize(),
    );
    rule("nadam_decoupled", NAdam::new(0.02).weight_decay(0.1).decoupled_weight_decay());
    rule("radam", RAdam::new(0.02));
    rule("radam_all", RAdam::new(0.02).betas(0.8, 0.9).eps(1e-4).weight_decay(0.1).maximize());
    rule("radam_decoupled", RAdam::new(0.02).weight_decay(0.1).decoupled_weight_decay());
    rule("adamax", Adamax::new(2e-3));
    rule("adamax_all", Adamax::new(0.02).betas(0.8, 0.9).eps(1e-3).weight_decay(0.1).maximize());
}

#[test]
fn maximize_ascends() {
    rule("sgd_maximize", SGD::new(0.1).momentum(0.9).weight_decay(0.1).maximize());
    rule("adam_maximize", Adam::new(0.05).weight_decay(0.1).maximize());
    rule("adamw_maximize", AdamW::new(0.05).maximize());
    for rule in [0, 1, 2] {
        let (up, down) =
            (Tensor::new([[1.0f32, 2.0]]).as_param(), Tensor::new([[1.0f32, 2.0]]).as_param());
        let make = |p: &Tensor, up: bool| {
            let params = [p.clone()];
            match (rule, up) {
                (0, true) => Optimizer::new(params, LARS::new(1.0).maximize()),
                (0, false) => Optimizer::new(params, LARS::new(1.0)),
                (1, true) => Optimizer::new(params, LAMB::new(0.1).maximize()),
                (1, false) => Optimizer::new(params, LAMB::new(0.1)),
                (_, true) => Optimizer::new(params, Muon::new(0.1).maximize()),
                (_, false) => Optimizer::new(params, Muon::new(0.1)),
            }
            .unwrap()
        };
        let (mut first, mut second) = (make(&up, true), make(&down, false));
        let grad = Tensor::new([[0.5f32, -1.0]]);
        up.set_grad(Some(-&grad));
        down.set_grad(Some(grad));
        first.step().unwrap();
        second.step().unwrap();
        assert_eq!(up.to_bytes().unwrap(), down.to_bytes().unwrap(), "rule {rule}");
    }
}

#[test]
fn parameters_count_their_own_updates() {
    run("rmsprop_uneven", RMSprop::new(0.01), DType::F32, true, 1e-5);
    run("adagrad_uneven", Adagrad::new(0.1).lr_decay(0.1), DType::F32, true, 1e-5);
    run("adadelta_uneven", Adadelta::new(1.0), DType::F32, true, 1e-5);
    run("nadam_uneven", NAdam::new(2e-3), DType::F32, true, 1e-5);
    run("radam_uneven", RAdam::new(1e-3), DType::F32, true, 1e-5);
    run("adamax_uneven", Adamax::new(2e-3), DType::F32, true, 1e-5);
}

#[test]
fn doubles_are_updated_as_doubles() {
    run("rmsprop_double", RMSprop::new(0.01), DType::F64, false, 1e-13);
    run("adagrad_double", Adagrad::new(0.1).lr_decay(0.1), DType::F64, false, 1e-13);
    run("adadelta_double", Adadelta::new(1.0), DType::F64, false, 1e-13);
    // PyTorch keeps the product of the momenta in f32, whatever the dtype of the parameters.
    run("nadam_double", NAdam::new(2e-3), DType::F64, false, 1e-8);
    run("radam_double", RAdam::new(1e-3), DType::F64, false, 1e-11);
    run("adamax_double", Adamax::new(2e-3), DType::F64, false, 1e-13);
}

#[test]
fn resumed_training_matches_uninterrupted_training() {
    resumes(|| RMSprop::new(0.01).centered().momentum(0.5));
    resumes(|| Adagrad::new(0.1).lr_decay(0.1).initial_accumulator_value(0.5));
    resumes(|| Adadelta::new(1.0));
    resumes(|| NAdam::new(0.02));
    resumes(|| RAdam::new(0.02));
    resumes(|| Adamax::new(0.02));
}

#[test]
fn captured_steps_match_plain_steps() {
    fn both<R: Rule + 'static>(name: &str, make: impl Fn() -> R) {
        let run = |captured: bool| {
            let w = Tensor::new([1.0f32, -2.0, 0.5]).as_param();
            let mut optimizer = Optimizer::new([w.clone()], make()).unwrap();
            let mut step = |x: Tensor| {
                (&w * &x).square().sum(..).backward();
                optimizer.step()?;
                Ok(w.detach())
            };
            let mut jit = Jit::new(&mut step);
            let x = |i: usize| Tensor::new([1.0f32 + i as f32, 0.5, -1.0]);
            if captured {
                (0..6).for_each(|i| drop(jit.call(x(i)).unwrap()));
                assert!(jit.is_captured(), "{name}");
            } else {
                drop(jit);
                (0..6).for_each(|i| drop(step(x(i)).unwrap()));
            }
            w.to_vec::<f32>().unwrap()
        };
        assert_eq!(run(true), run(false), "{name}");
    }
    both("RMSprop", || RMSprop::new(0.01).centered().momentum(0.5));
    both("Adagrad", || Adagrad::new(0.1).lr_decay(0.1));
    both("Adadelta", || Adadelta::new(1.0));
    both("NAdam", || NAdam::new(0.02));
    both("RAdam", || RAdam::new(0.02).betas(0.8, 0.9));
    both("Adamax", || Adamax::new(0.02).maximize());
}

fn rosenbrock(x: &Tensor) -> Tensor {
    let (a, b) = (x.i(0..2), x.i(1..3));
    (1.0 - &a).square().sum(..) + (b - a.square()).square().sum(..) * 10.0
}

#[track_caller]
fn lbfgs(case: &str, make: impl Fn(LBFGS) -> LBFGS) {
    for sign in [1.0, -1.0] {
        let x = Tensor::new([-1.5f64, 2.0, 0.5]).as_param();
        let optimizer = make(LBFGS::new([x.clone()]).unwrap());
        let mut optimizer = if sign < 0.0 { optimizer.maximize() } else { optimizer };
        let losses: Vec<f64> = ALL.require(&format!("{case}/losses")).unwrap().to_vec().unwrap();
        for (i, expected) in losses.iter().enumerate() {
            let loss = optimizer.step(|| Ok(rosenbrock(&x) * sign)).unwrap() * sign;
            assert!(
                (loss - expected).abs() <= 1e-9 * expected.abs().max(1.0),
                "{case}: loss {loss} before step {i}, expected {expected}"
            );
            assert_finite_close(
                &format!("{case} after step {}", i + 1),
                &x,
                ALL.require(&format!("{case}/{}", i + 1)).unwrap(),
                1e-7,
            );
        }
        assert!(x.grad().is_none());
    }
}

#[test]
fn lbfgs_matches_pytorch() {
    lbfgs("lbfgs", |o| o.lr(0.01));
    lbfgs("lbfgs_short", |o| o.lr(0.01).max_iter(3).history_size(2));
    lbfgs("lbfgs_wolfe", |o| o.strong_wolfe().max_iter(6));
    lbfgs("lbfgs_wolfe_few", |o| o.strong_wolfe().max_iter(4).history_size(3).lr(3.0).max_eval(7));
}

#[test]
fn lbfgs_resumes_from_its_state() {
    let run = |stop: bool| {
        let x = Tensor::new([-1.5f64, 2.0, 0.5]).as_param();
        let make = || LBFGS::new([x.clone()]).unwrap().strong_wolfe().max_iter(4);
        let mut optimizer = make();
        for i in 0..5 {
            if stop && i == 2 {
                let file = picograd::io::safe_to_bytes(&optimizer.state_dict(), &[]).unwrap();
                optimizer = make();
                optimizer.load_state_dict(&fixture(&file)).unwrap();
            }
            optimizer.step(|| Ok(rosenbrock(&x))).unwrap();
        }
        x.to_vec::<f64>().unwrap()
    };
    assert_eq!(run(true), run(false));
    let mut other = LBFGS::new([Tensor::new([1.0f32]).as_param()]).unwrap();
    let x = Tensor::new([1.0f64, 2.0]).as_param();
    let mut optimizer = LBFGS::new([x.clone()]).unwrap();
    optimizer.step(|| Ok(x.square().sum(..))).unwrap();
    let wrong = other.load_state_dict(&optimizer.state_dict()).unwrap_err().to_string();
    assert!(wrong.contains("for 1 numbers"), "{wrong}");
}

#[test]
fn lbfgs_finds_a_minimum_and_refuses_capture() {
    let x = Tensor::new([3.0f32, -1.0]).as_param();
    let mut optimizer = LBFGS::new([x.clone()]).unwrap().strong_wolfe();
    optimizer.step(|| Ok((&x - 0.5).square().sum(..))).unwrap();
    assert_finite_close("the minimum", &x, &Tensor::new([0.5f32, 0.5]), 1e-5);
    let mut jit = Jit::new(|y: Tensor| {
        let loss = optimizer.step(|| (&x * &y).square().sum(..).try_add(0.0))?;
        Ok(y + loss)
    });
    let wrong = (0..3)
        .find_map(|_| jit.call(Tensor::new([1.0f32, 2.0])).err())
        .expect("an error")
        .to_string();
    assert!(wrong.starts_with("jit"), "{wrong}");
}

/// The line search stops at `max_eval`; the values are those of PyTorch 2.15.
#[test]
fn line_search_respects_max_eval() {
    let cases = [
        (2, [-1.2636253881946555, 1.1299318301690333, 0.7551118043224719], 4),
        (4, [-0.8971048975774604, 0.9128748925174626, 0.8730993269552607], 8),
    ];
    for (most, expected, calls) in cases {
        let x = Tensor::new([-1.5f64, 2.0, 0.5]).as_param();
        let mut optimizer =
            LBFGS::new([x.clone()]).unwrap().strong_wolfe().max_iter(20).max_eval(most);
        let mut count = 0;
        for _ in 0..2 {
            let closure = || {
                count += 1;
                Ok(rosenbrock(&x))
            };
            optimizer.step(closure).unwrap();
        }
        assert_eq!(count, calls, "evaluations with {most} a step");
        assert_finite_close(&format!("{most} a step"), &x, &Tensor::new(expected), 1e-9);
    }
}

#[test]
fn a_closure_that_calls_backward_is_named() {
    let x = Tensor::new([3.0f32]).as_param();
    let mut optimizer = LBFGS::new([x.clone()]).unwrap();
    let closure = || {
        let loss = x.square().sum(..);
        loss.try_backward()?;
        Ok(loss)
    };
    let wrong = optimizer.step(closure).unwrap_err().to_string();
    assert!(wrong.contains("the closure called backward"), "{wrong}");
}
