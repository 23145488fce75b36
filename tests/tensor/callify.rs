//! `Tensor::callify`: graphs with arguments.

use super::check;
use picograd::{DType, Tensor, no_grad};
use std::cell::Cell;

#[test]
fn callify_builds_its_graph_once() {
    let runs = Cell::new(0);
    let (a, b) = (Tensor::zeros([2, 3]), Tensor::zeros([3]));
    let f = Tensor::callify(&[&a, &b], |x| {
        runs.set(runs.get() + 1);
        let y = (&x[0] * &x[1] + 1.0).relu();
        Ok(vec![y.sum(1), y.max(0)])
    })
    .unwrap();
    let b = Tensor::new([1.0f32, -1.0, 2.0]);
    for k in 0..3 {
        let a = super::ramp(&[2, 3]) - k as f32;
        let y = (&a * &b + 1.0).relu();
        let got = f.call(&[&a, &b]).unwrap();
        check(&got[0], &[2], &y.sum(1).to_vec::<f32>().unwrap());
        check(&got[1], &[3], &y.max(0).to_vec::<f32>().unwrap());
    }
    // A lazy tensor can be an argument, and one tensor can be two arguments.
    let lazy = super::ramp(&[3]) * 0.5;
    let twice = Tensor::callify(&[&lazy, &lazy], |x| Ok(vec![&x[0] - &x[1] * 2.0])).unwrap();
    check(&twice.call(&[&lazy, &lazy]).unwrap()[0], &[3], &[0.0f32, -0.5, -1.0]);
    assert_eq!(runs.get(), 1);
    let text = format!("{twice:?}");
    assert!(text.contains("Param") && text.contains("Sink"), "{text}");
}

#[test]
fn reading_a_value_during_capture_is_an_error() {
    let x = Tensor::ones([2]);
    for read in [
        |x: &Tensor| x.to_vec::<f32>().map(drop),
        |x: &Tensor| (x + 1.0).realize().map(drop),
        |x: &Tensor| x.sum(..).schedule().map(drop),
    ] {
        let e = Tensor::callify(&[&x], |x| read(&x[0]).map(|()| vec![])).unwrap_err();
        assert!(e.to_string().contains("has no value while its function is recorded"), "{e}");
    }
    // The same applies to an argument that escapes the function.
    let mut kept = None;
    Tensor::callify(&[&x], |x| {
        kept = Some(x[0].clone());
        Ok(vec![])
    })
    .unwrap();
    assert!(kept.unwrap().realize().is_err());
    // Other values can be read.
    let f =
        Tensor::callify(&[&x], |x| Ok(vec![&x[0] * Tensor::new([3.0f32]).item::<f32>()?])).unwrap();
    check(&f.call(&[&x]).unwrap()[0], &[2], &[3.0f32, 3.0]);
}

#[test]
fn invalid_arguments_are_named() {
    let x = Tensor::ones([2, 2]);
    let f = Tensor::callify(&[&x, &x], |x| Ok(vec![&x[0] + &x[1]])).unwrap();
    let refused = |args: &[&Tensor], expected: &str| {
        assert_eq!(f.call(args).unwrap_err().to_string(), expected)
    };
    refused(&[&x], "function: expected 2 arguments, got 1");
    refused(&[&x, &x.reshape([4])], "function: expected argument 1 of shape [2, 2], got [4]");
    refused(&[&x.cast(DType::I32), &x], "function: expected argument 0 of f32, got i32");
    refused(
        &[&x, &x.to("INTERP")],
        &format!("device: function: expected argument 1 on {}, got INTERP", x.device()),
    );
    let e = f.call(&[&x.as_param(), &x]).unwrap_err().to_string();
    assert!(
        e.contains("argument 0 requires a gradient") && e.contains("parameter as the example"),
        "{e}"
    );
    let both = x.shard(&["CPU:0", "CPU:1"], 0);
    let e = Tensor::callify(&[&both], |x| Ok(vec![x[0].clone()])).unwrap_err().to_string();
    assert!(e.contains("argument 0 is on") && e.contains("shard it inside"), "{e}");
    // An error of the function is returned.
    assert!(Tensor::callify(&[&x], |x| Ok(vec![x[0].try_reshape([3])?])).is_err());
}

#[test]
fn gradients_go_through_calls() {
    let example = Tensor::zeros([3]).as_param();
    let w = Tensor::new([2.0f32, 3.0, 4.0]).as_param();
    let f = Tensor::callify(&[&example], |x| Ok(vec![(&x[0] * &x[0] * &w).max(0), x[0].exp()]))
        .unwrap();
    let x = Tensor::new([1.0f32, 2.0, -3.0]).as_param();
    f.call(&[&x]).unwrap()[0].sum(..).backward();
    check(&x.grad().unwrap(), &[3], &[0.0f32, 0.0, -24.0]);
    check(&w.grad().unwrap(), &[3], &[0.0f32, 0.0, 9.0]);
    assert!(example.grad().is_none());
    // Gradients of gradients, inside and outside of the function.
    let slope =
        Tensor::callify(&[&example], |x| Ok(x[0].square().sum(..).square().gradient(&[&x[0]])))
            .unwrap();
    let dx = slope.call(&[&x]).unwrap().remove(0);
    check(&dx, &[3], &[56.0f32, 112.0, -168.0]);
    let ddx = dx.sum(..).gradient(&[&x]).remove(0);
    check(&ddx, &[3], &[56.0f32, 56.0, 56.0]);
    // An argument without a gradient may replace one with a gradient, and `no_grad` applies.
    assert!(!f.call(&[&x.detach()]).unwrap()[1].requires_grad());
    assert!(!no_grad(|| f.call(&[&x]).unwrap().remove(0)).requires_grad());
}

#[test]
fn captured_tensors_keep_their_old_value() {
    let bias = Tensor::new([1.0f32, 2.0]).realize().unwrap();
    let f = Tensor::callify(&[&bias], |x| Ok(vec![&x[0] + &bias])).unwrap();
    bias.assign(&bias * 100.0).unwrap();
    bias.realize().unwrap();
    check(&bias, &[2], &[100.0f32, 200.0]);
    check(&f.call(&[&bias]).unwrap()[0], &[2], &[101.0f32, 202.0]);
}

#[test]
fn nested_calls_and_empty_shapes_compute() {
    let x = Tensor::zeros([2]);
    let add = Tensor::callify(&[&x, &x], |x| Ok(vec![&x[0] + &x[1], x[1].clone()])).unwrap();
    let swap = Tensor::callify(&[&x, &x], |x| {
        let inner = Tensor::callify(&[&x[0]], |y| Ok(vec![&y[0] * &x[1]]))?;
        let sum = add.call(&[&x[1], &x[0]])?;
        Ok(vec![sum[0].clone(), inner.call(&[&sum[1]])?.remove(0)])
    })
    .unwrap();
    let (a, b) = (Tensor::new([1.0f32, 2.0]), Tensor::new([10.0f32, 20.0]));
    let got = swap.call(&[&a, &b]).unwrap();
    check(&got[0], &[2], &[11.0f32, 22.0]);
    check(&got[1], &[2], &[10.0f32, 40.0]);
    for shape in [&[][..], &[0], &[3, 0], &[1, 1]] {
        let x = Tensor::full(shape, 2.5f32);
        let f =
            Tensor::callify(&[&x], |x| Ok(vec![&x[0] * 2.0, x[0].sum(..), x[0].clone()])).unwrap();
        let got = f.call(&[&x]).unwrap();
        check(&got[0], shape, &vec![5.0f32; x.numel()]);
        check(&got[1], &[], &[2.5 * x.numel() as f32]);
        check(&got[2], shape, &vec![2.5f32; x.numel()]);
    }
}
