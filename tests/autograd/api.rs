//! Parameters, `backward`, `gradient`, `detach` and `no_grad`: accumulation, detached graphs, and
//! the errors of misuse.

use picograd::testing::is_skipped;
use picograd::{DType, Tensor, no_grad};

fn vec(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[test]
fn equal_parameters_are_distinct() {
    let (a, b) = (Tensor::zeros([3]).as_param(), Tensor::zeros([3]).as_param());
    (&a * 2.0 + &b * 5.0).sum(..).backward();
    assert_eq!(vec(&a.grad().unwrap()), [2.0; 3]);
    assert_eq!(vec(&b.grad().unwrap()), [5.0; 3]);
}

#[test]
fn backward_accumulates_until_cleared() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    w.square().sum(..).backward();
    w.square().sum(..).backward();
    assert_eq!(vec(&w.grad().unwrap()), [4.0, 8.0]);
    w.set_grad(None);
    assert!(w.grad().is_none());
    assert!(!w.square().sum(..).gradient(&[&w])[0].is_param());
}

#[test]
fn realized_intermediates_keep_their_gradient() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let h = w.square();
    let loss = (&h * 3.0).sum(..);
    // Reading stores both; their graph stays known to the gradient.
    assert_eq!(vec(&h), [1.0, 4.0]);
    assert_eq!(loss.item::<f32>().unwrap(), 15.0);
    assert!(loss.requires_grad() && h.requires_grad());
    loss.backward();
    assert_eq!(vec(&w.grad().unwrap()), [6.0, 12.0]);
    assert_eq!(loss.item::<f32>().unwrap(), 15.0);
    let e = loss.try_backward().unwrap_err().to_string();
    assert!(e.contains("depends on no parameter"), "{e}");
}

#[test]
fn realizing_a_parameter_keeps_its_gradient() {
    let w = (Tensor::arange(0, 3, 1).cast(DType::F32) + 1.0).as_param();
    let loss = w.square().sum(..);
    w.realize().unwrap();
    assert!(w.is_param());
    loss.backward();
    assert_eq!(vec(&w.grad().unwrap()), [2.0, 4.0, 6.0]);
}

#[test]
fn manual_gradient_steps_reduce_the_loss() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    for _ in 0..3 {
        let loss = w.square().sum(..);
        loss.backward();
        let g = w.grad().unwrap();
        no_grad(|| w.assign(&w - g * 0.25)).unwrap();
        w.set_grad(None);
        w.realize().unwrap();
        assert!(w.is_param() && w.requires_grad());
    }
    assert_eq!(vec(&w), [0.125, 0.25]);
}

#[test]
fn gradients_use_the_values_of_their_graph() {
    let w = Tensor::new([3.0f32]).as_param();
    let y = w.square().sum(..);
    w.assign(Tensor::new([10.0f32])).unwrap();
    w.realize().unwrap();
    assert_eq!(vec(&y.gradient(&[&w])[0]), [6.0]);
}

#[test]
fn detach_and_no_grad_stop_gradients() {
    let w = Tensor::new([2.0f32]).as_param();
    let y = (&w * w.detach()).sum(..);
    assert_eq!(vec(&y.gradient(&[&w])[0]), [2.0]);
    let z = no_grad(|| w.square());
    assert!(!z.requires_grad());
    assert!(z.sum(..).try_backward().is_err());
    let mixed = (&w * no_grad(|| &w * 1.0)).sum(..);
    assert_eq!(vec(&mixed.gradient(&[&w])[0]), [2.0]);
    // A panic inside leaves gradients on.
    assert!(std::panic::catch_unwind(|| no_grad(|| panic!("on purpose"))).is_err());
    assert!((&w * 1.0).requires_grad());
}

#[test]
fn detached_target_is_an_error_and_constant_gradient_is_zero() {
    let (w, v) = (Tensor::new([2.5f32]).as_param(), Tensor::new([1.0f32]).as_param());
    let e = w.detach().sum(..).try_gradient(&[&w]).unwrap_err().to_string();
    assert_eq!(e, "gradient: the tensor does not depend on target 0");
    let e = w.sum(..).try_gradient(&[&w, &v]).unwrap_err().to_string();
    assert_eq!(e, "gradient: the tensor does not depend on target 1");
    let flat = w.floor().sum(..);
    assert_eq!(vec(&flat.gradient(&[&w])[0]), [0.0]);
}

#[test]
fn misuse_errors_name_the_cause() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let e = w.square().try_backward().unwrap_err().to_string();
    assert!(e.contains("one element") && e.contains("[2]"), "{e}");
    let e = Tensor::new([1, 2]).try_as_param().unwrap_err().to_string();
    assert!(e.contains("i32"), "{e}");
    let e = w.cast(DType::I32).sum(..).try_gradient(&[&w]).unwrap_err().to_string();
    assert!(e.contains("i32"), "{e}");
    let c = Tensor::full([2], 3.0);
    let e = (&c * &w).sum(..).try_gradient(&[&c]).unwrap_err().to_string();
    assert!(e.contains("as_param"), "{e}");
    let e = w.square().gradient_with(&Tensor::ones([3]), &[&w]).unwrap_err().to_string();
    assert!(e.contains("[3]") && e.contains("[2]"), "{e}");
}

#[test]
fn a_detached_running_total_frees_its_graphs() {
    let w = Tensor::new([1.0f32]).as_param();
    let mut total = Tensor::zeros(());
    for _ in 0..4 {
        let loss = w.square().sum(..);
        loss.backward();
        total = (&total + &loss).realize().unwrap();
        assert!(!total.requires_grad());
    }
    assert_eq!(total.item::<f32>().unwrap(), 4.0);
}

#[test]
fn gradients_have_the_dtype_of_their_parameter() {
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        if is_skipped("gradients_have_the_dtype_of_their_parameter", &[dtype]) {
            continue;
        }
        let w = Tensor::new([1.0f32, 2.0, 3.0]).cast(dtype).as_param();
        let g = w.square().sum(..).gradient(&[&w]).remove(0);
        assert_eq!(g.dtype(), dtype);
        assert_eq!(vec(&g.cast(DType::F32)), [2.0, 4.0, 6.0]);
    }
}

#[test]
fn realized_intermediates_can_be_targets() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let x = &w * 2.0;
    let h = x.exp();
    h.realize().unwrap();
    x.realize().unwrap();
    let g = ((&x * 3.0).sum(..) + h.sum(..)).gradient(&[&x]).remove(0);
    assert_eq!(vec(&g), [3.0 + 2f32.exp(), 3.0 + 4f32.exp()]);
    // A tensor that is not a parameter would lose a part silently, so it is refused.
    let p = Tensor::new([1.0f32]);
    let e = (&p * &p).sum(..).try_gradient(&[&p]).unwrap_err().to_string();
    assert!(e.contains("as_param"), "{e}");
}

#[test]
fn a_live_loss_keeps_its_graph_alive() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let loss = (&w * &w * &w).sum(..);
    w.assign(&w - 0.5).unwrap();
    Tensor::realize_many(&[&w, &loss]).unwrap();
    assert_eq!(vec(&loss.gradient(&[&w])[0]), [3.0, 12.0]);
    assert_eq!(vec(&w), [0.5, 1.5]);
}

#[test]
fn a_call_uses_its_custom_gradient() {
    let (x, w) = (Tensor::new([1.0f32, 2.0]).as_param(), Tensor::new([3.0f32, 5.0]).as_param());
    // It differs from the gradient of the product, so that the two are distinguishable.
    let odd = |x: &Tensor, w: &Tensor| {
        Tensor::call(
            &[x, w],
            |x| Ok(&x[0] * &x[1]),
            |g, x| Ok(vec![g * x[0].square() * &x[1], g * 100.0]),
        )
        .unwrap()
    };
    let y = odd(&x, &w);
    assert_eq!(vec(&y), [3.0, 10.0]);
    y.sum(..).backward();
    assert_eq!(vec(&x.grad().unwrap()), [3.0, 20.0]);
    assert_eq!(vec(&w.grad().unwrap()), [100.0, 100.0]);
    // Realizing intermediates changes nothing. The second gradient is 24x²w.
    let y = odd(&(&x * 2.0), &w);
    y.realize().unwrap();
    let dx = (&y * 3.0).sum(..).gradient(&[&x]).remove(0);
    assert_eq!(vec(&dx), [24.0 * 3.0, 24.0 * 4.0 * 5.0]);
    let second = dx.sum(..).gradient(&[&x, &w]);
    assert_eq!(vec(&second[0]), [48.0 * 3.0, 48.0 * 2.0 * 5.0]);
    assert_eq!(vec(&second[1]), [24.0, 24.0 * 4.0]);
    assert!(!no_grad(|| odd(&x, &w)).requires_grad());
    // The result has a shape of no input, and one input has no gradient.
    let picked = Tensor::call(
        &[&x, &Tensor::new([1])],
        |x| Ok(x[0].index_select(0, &x[1]).sum(..)),
        |g, x| Ok(vec![g.expand([2]) * 7.0, x[1].clone()]),
    );
    let picked = picked.unwrap();
    assert_eq!((picked.shape(), picked.item::<f32>().unwrap()), (vec![], 2.0));
    assert_eq!(vec(&picked.gradient(&[&x])[0]), [7.0, 7.0]);
}

#[test]
fn undifferentiable_calls_are_errors() {
    let (x, w) = (Tensor::new([1.0f32, 2.0]).as_param(), Tensor::new([3.0f32]).as_param());
    let wrong = |grads: fn(&Tensor) -> Vec<Tensor>| {
        let y = Tensor::call(&[&x], |x| Ok(x[0].square()), move |g, _| Ok(grads(g))).unwrap();
        y.sum(..).try_gradient(&[&x]).unwrap_err().to_string()
    };
    assert!(
        wrong(|_| vec![])
            .ends_with("call: expected one gradient per input, in order; got 0 for 1 inputs")
    );
    assert!(wrong(|g| vec![g.sum(..)]).ends_with(
        "call: the gradient of input 0 is f32 [], but the input is f32 [2]; both must be the same"
    ));
    assert!(wrong(|g| vec![g.double()]).contains("is f64 [2], but the input is f32 [2]"));
    let hidden = Tensor::call(&[&x], |x| Ok(&x[0] * &w), |g, _| Ok(vec![g.clone()]))
        .err()
        .unwrap()
        .to_string();
    assert!(hidden.contains("depends on a parameter that is not among the inputs"), "{hidden}");
    let whole = Tensor::call(&[&x], |x| Ok(x[0].int()), |g, _| Ok(vec![g.clone()]))
        .err()
        .unwrap()
        .to_string();
    assert!(whole.contains("expected a result of floats, got i32"), "{whole}");
    let own = Tensor::call(&[&x], |x| x[0].try_reshape([3]), |g, _| Ok(vec![g.clone()]));
    assert!(own.is_err());
}

#[test]
fn a_call_is_freed_with_its_graph() {
    let held = std::sync::Arc::new(());
    let x = Tensor::new([1.0f32]).as_param();
    let in_call = held.clone();
    let y = Tensor::call(
        &[&x],
        |x| Ok(x[0].exp()),
        move |g, _| {
            let _ = &in_call;
            Ok(vec![g.clone()])
        },
    );
    let y = y.unwrap().sum(..);
    assert_eq!(std::sync::Arc::strong_count(&held), 2);
    y.backward();
    y.realize().unwrap();
    x.grad().unwrap().realize().unwrap();
    drop(y);
    assert_eq!(
        std::sync::Arc::strong_count(&held),
        1,
        "the function is freed with the last node that refers to it"
    );
}

/// The gradient uses the quotient of the remainder: 0.7 / 0.1 rounds to 7, but its exact integer
/// part is 6.
#[test]
fn gradient_of_a_remainder_uses_the_exact_quotient() {
    let cases = [
        (0.7f32, 0.1f32, -6.0f32),
        (-0.7, 0.1, 7.0),
        (-5.0, f32::INFINITY, 1.0),
        (5.0, f32::INFINITY, 0.0),
        (6.0, -4.0, 2.0),
        (1e6, 3.0, -333333.0),
    ];
    for (x, y, want) in cases {
        let y = Tensor::new([y]).as_param();
        let g = Tensor::new([x]).modulo(&y).sum(..).gradient(&[&y])[0].item::<f32>().unwrap();
        assert_eq!(g, want, "of {x}");
    }
}

/// Gradients at the ends of domains and at NaN; the values are those of PyTorch 2.15.
#[test]
fn gradients_at_domain_edges_match_pytorch() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    type Case = (&'static str, fn(&Tensor) -> Tensor, &'static [f32], &'static [f32]);
    let cases: &[Case] = &[
        ("erfinv", Tensor::erfinv, &[1.0, -1.0, 2.0, NAN], &[INF, INF, NAN, NAN]),
        (
            "lgamma",
            Tensor::lgamma,
            &[-1.0, -2.0, 0.0, -0.0, -INF, INF, NAN],
            &[NAN, NAN, -INF, INF, NAN, INF, NAN],
        ),
        // At the negative poles PyTorch has rounding noise of 1e15.
        (
            "digamma",
            Tensor::digamma,
            &[-1.0, -2.0, 0.0, -0.0, -INF, INF, NAN],
            &[NAN, NAN, INF, INF, NAN, 0.0, NAN],
        ),
        ("asin", Tensor::asin, &[1.0, -1.0, 2.0, NAN, 0.0], &[INF, INF, NAN, NAN, 1.0]),
        ("acos", Tensor::acos, &[1.0, -1.0, 2.0, NAN, 0.0], &[-INF, -INF, NAN, NAN, -1.0]),
        ("relu", Tensor::relu, &[NAN, 0.0, -0.0, INF, -1.0], &[1.0, 0.0, 0.0, 1.0, 0.0]),
        ("relu6", Tensor::relu6, &[NAN, 0.0, 6.0, 1.0], &[1.0, 0.0, 0.0, 1.0]),
        ("hardtanh", Tensor::hardtanh, &[NAN, 1.0, -1.0], &[1.0, 0.0, 0.0]),
        ("clamp", |x| x.clamp(-1, 1), &[NAN, 1.0, -1.0, 0.5], &[0.0, 0.0, 0.0, 1.0]),
        ("hardsigmoid", Tensor::hardsigmoid, &[NAN, 3.0, -3.0], &[0.0, 0.0, 0.0]),
        (
            "hardswish",
            Tensor::hardswish,
            &[NAN, 3.0, -3.0, 2.0, INF, -INF],
            &[1.0, 1.0, 0.0, 7.0 / 6.0, 1.0, 0.0],
        ),
        ("elu", |x| x.elu(1.0), &[NAN, 0.0, -0.0, INF, -INF], &[1.0, 1.0, 1.0, 1.0, 0.0]),
        ("celu", |x| x.celu(1.0), &[NAN, 0.0, INF, -INF], &[1.0, 1.0, 1.0, 0.0]),
        ("selu", Tensor::selu, &[NAN, 0.0, INF, -INF], &[1.050701, 1.7580993, 1.050701, 0.0]),
        ("leaky_relu", |x| x.leaky_relu(0.01), &[NAN, 0.0], &[0.01, 0.01]),
        ("threshold", |x| x.threshold(0.5, 2.0), &[NAN, 0.5], &[1.0, 0.0]),
        ("softshrink", |x| x.softshrink(0.5), &[NAN, 0.5, -0.5], &[1.0, 0.0, 0.0]),
        ("hardshrink", |x| x.hardshrink(0.5), &[NAN, 0.5, -0.5], &[1.0, 0.0, 0.0]),
        (
            "cosh",
            Tensor::cosh,
            &[1e-8, -1e-8, 1e-3, INF, -INF, NAN],
            &[1e-8, -1e-8, 0.0010000002, INF, -INF, NAN],
        ),
        ("softplus", |x| x.softplus(1.0), &[NAN, INF, -INF, 30.0], &[NAN, 1.0, 0.0, 1.0]),
    ];
    for (name, f, x, want) in cases {
        let x = Tensor::from_slice(x, [x.len()]).as_param();
        let got = vec(&f(&x).sum(..).gradient(&[&x])[0]);
        for (i, (g, w)) in got.iter().zip(*want).enumerate() {
            assert!(
                g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= 2e-7 * w.abs(),
                "{name}: gradient {i} is {g:e}, expected {w:e}"
            );
        }
    }
    for (y, x, by_y, by_x) in [
        (0.0f32, 0.0f32, 0.0f32, 0.0f32),
        (0.0, 1.0, 1.0, 0.0),
        (0.0, -1.0, -1.0, 0.0),
        (1.0, 0.0, 0.0, -1.0),
    ] {
        let (y, x) = (Tensor::new([y]).as_param(), Tensor::new([x]).as_param());
        let g = y.atan2(&x).sum(..).gradient(&[&y, &x]);
        assert_eq!((vec(&g[0])[0], vec(&g[1])[0]), (by_y, by_x), "atan2 at {y:?}, {x:?}");
    }
}

/// Narrow floats cannot count that many equal elements.
#[test]
fn many_equal_elements_share_the_gradient_of_a_maximum() {
    for (dtype, n) in [(DType::F16, 70_000), (DType::BF16, 70_000), (DType::F8E5M2, 600)] {
        if is_skipped("many_equal_elements_share_the_gradient_of_a_maximum", &[dtype]) {
            continue;
        }
        let x = Tensor::ones([n]).cast(dtype).contiguous().as_param();
        let found = vec(&x.max(0).gradient(&[&x])[0].cast(DType::F32));
        let share = Tensor::new([1.0 / n as f32]).cast(dtype).cast(DType::F32).item::<f32>();
        assert_eq!(found, vec![share.unwrap(); n], "{dtype}");
    }
}
