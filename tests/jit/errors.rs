//! Misuse of captured functions, each with its error.

use super::{alone, floats, tensor};
use picograd::nn::optim::{Optimizer, SGD};
use picograd::{DType, Device, Jit, Tensor};
use std::cell::Cell;

fn message<T>(result: picograd::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn reading_a_value_inside_is_an_error() {
    let _alone = alone();
    for read in [
        |x: &Tensor| x.item::<f32>().map(drop),
        |x: &Tensor| x.to_vec::<f32>().map(drop),
        |x: &Tensor| x.data().map(drop),
    ] {
        let mut f = Jit::new(|x: Tensor| {
            read(&(&x * 2.0))?;
            Ok(x + 1.0)
        });
        f.call(tensor(&[1.0])).unwrap();
        let e = message(f.call(tensor(&[1.0])));
        assert!(
            e.starts_with("jit: the value of a tensor f32 [1] is read inside a captured function")
                && e.contains("return the tensor"),
            "{e}"
        );
        assert!(!f.is_captured());
    }
    // Printing cannot fail, so the call does.
    let mut f = Jit::new(|x: Tensor| {
        let _text = format!("{}", &x * 2.0);
        Ok(x + 1.0)
    });
    f.call(tensor(&[1.0])).unwrap();
    assert!(message(f.call(tensor(&[1.0]))).contains("is read inside a captured function"));
    // Reading outside the function works.
    assert_eq!(floats(&tensor(&[1.0])), [1.0]);
}

#[test]
fn changed_arguments_are_errors() {
    let _alone = alone();
    let captured = || {
        let mut f = Jit::new(|(x, n): (Tensor, usize)| Ok(x * n as f64));
        (0..3).for_each(|_| drop(f.call((tensor(&[1.0, 2.0]), 2)).unwrap()));
        f
    };
    let mut f = captured();
    let here = Device::default_name();
    let was = format!(
        "but the function was captured with f32 [2] on {here}; use a separate Jit for each"
    );
    assert_eq!(
        message(f.call((tensor(&[1.0]), 2))),
        format!("jit: argument 0 is f32 [1] on {here}, {was}")
    );
    assert_eq!(
        message(f.call((tensor(&[1.0, 2.0]).reshape([1, 2]), 2))),
        format!("jit: argument 0 is f32 [1, 2] on {here}, {was}")
    );
    assert_eq!(
        message(f.call((tensor(&[1.0, 2.0]).cast(DType::F64), 2))),
        format!("jit: argument 0 is f64 [2] on {here}, {was}")
    );
    assert_eq!(
        message(f.call((tensor(&[1.0, 2.0]).to("interp"), 2))),
        format!("jit: argument 0 is f32 [2] on INTERP, {was}")
    );
    let e = message(f.call((tensor(&[1.0, 2.0]), 3)));
    assert_eq!(
        e,
        "jit: argument 1 was 2 when the function was captured and is 3 now; make it a tensor, or \
         use a separate Jit for each value"
    );
    // Calls continue after an error, and other arguments are accepted after a reset.
    assert_eq!(floats(&f.call((tensor(&[1.0, 2.0]), 2)).unwrap()), [2.0, 4.0]);
    f.reset();
    for _ in 0..3 {
        assert_eq!(floats(&f.call((tensor(&[5.0]), 3)).unwrap()), [15.0]);
    }
    let mut many = Jit::new(|x: Vec<Tensor>| Ok(&x[0] + 1.0));
    (0..2).for_each(|_| drop(many.call(vec![tensor(&[1.0])]).unwrap()));
    let e = message(many.call(vec![tensor(&[1.0]), tensor(&[1.0])]));
    assert_eq!(
        e,
        "jit: the list at argument 0 has length 2, but had 1 when the function was captured; use \
         a Jit for each length"
    );
    let mut lists = Jit::new(|(x, y): (Vec<Tensor>, Vec<Tensor>)| {
        Ok(x.iter().chain(&y).fold(tensor(&[0.0]), |a, b| a + b) * x.len() as f64)
    });
    let one = || tensor(&[1.0]);
    (0..3).for_each(|_| drop(lists.call((vec![one()], vec![one(), one()])).unwrap()));
    assert!(
        message(lists.call((vec![one(), one()], vec![one()])))
            .contains("the list at argument 0 has length 2, but had 1")
    );
    // Another shard axis is another fingerprint.
    let devices = ["CPU:0", "CPU:1"];
    let square = tensor(&[1.0, 2.0, 3.0, 4.0]).reshape([2, 2]);
    let mut parts = Jit::new(|x: Tensor| Ok(x * 2.0));
    (0..3).for_each(|_| drop(parts.call(square.shard(&devices, 0)).unwrap()));
    let e = message(parts.call(square.shard(&devices, 1)));
    assert!(
        e.contains(
            "along axis 1, but the function was captured with f32 [2, 2] on CPU+CPU:1 along axis 0"
        ),
        "{e}"
    );
    assert!(
        message(parts.call(square.shard(&devices, None))).contains("use a separate Jit for each")
    );
    let state = square.shard(&devices, 0).realize().unwrap();
    let mut uses = Jit::new(|x: Tensor| Ok(&state * &x));
    (0..3).for_each(|_| drop(uses.call(square.shard(&devices, 0)).unwrap()));
    state.shard_(&devices, Some(1)).unwrap();
    assert!(
        message(uses.call(square.shard(&devices, 0))).contains("call reset() to capture again")
    );
    // The capturing call already compares with the first.
    let mut f = Jit::new(|x: Tensor| Ok(x + 1.0));
    f.call(tensor(&[1.0])).unwrap();
    let e = message(f.call(tensor(&[1.0, 2.0])));
    assert!(
        e.contains(&format!(
            "was f32 [1] on {here} in the previous call and is f32 [2] on {here} now"
        )),
        "{e}"
    );
}

#[test]
fn changing_host_numbers_are_errors() {
    let _alone = alone();
    let count = Cell::new(0);
    let next = || {
        count.set(count.get() + 1);
        count.get()
    };
    let x = tensor(&[1.0, 2.0, 3.0, 4.0]);
    let mut literal = Jit::new(|x: Tensor| Ok(x * next() as f64));
    literal.call(x.clone()).unwrap();
    let e = message(literal.call(x.clone()));
    assert!(
        e.starts_with("jit: the function differs from the previous call: an operation `Const` has")
            && e.contains("pass values that change between calls as arguments"),
        "{e}"
    );
    let mut part = Jit::new(|x: Tensor| {
        let i = next() % 3;
        Ok(x.shrink(&[(i, i + 1)]) * 2.0)
    });
    part.call(x.clone()).unwrap();
    assert!(message(part.call(x.clone())).contains("Shrink"));
    let mut data = Jit::new(|x: Tensor| Ok(x + Tensor::new([next() as f32, 0.0, 0.0, 0.0])));
    data.call(x.clone()).unwrap();
    let e = message(data.call(x.clone()));
    assert!(
        e.contains(
            "the function creates 4 × f32 from host data that differs from the previous call"
        ),
        "{e}"
    );
    let mut result = Jit::new(|_: Tensor| Ok(Tensor::new([next() as f32])));
    result.call(x.clone()).unwrap();
    assert!(message(result.call(x.clone())).contains("1 × f32 from host data"));
    // A schedule inside the function sets the learning rate from the host.
    let w = tensor(&[1.0]).as_param();
    let mut optimizer = Optimizer::new([w.clone()], SGD::new(0.5)).unwrap();
    let mut step = Jit::new(|x: Tensor| {
        (&w * x.sum(0)).sum(..).backward();
        optimizer.step()?;
        optimizer.set_lr(1.0 / next() as f64)
    });
    step.call(x.clone()).unwrap();
    assert!(
        message(step.call(x.clone()))
            .contains("from host data that differs from the previous call")
    );
    // A host number that is equal at each call is a constant.
    let mut data = Jit::new(|x: Tensor| Ok(x + Tensor::new([1.0f32, 0.0, 0.0, 0.0])));
    for _ in 0..4 {
        assert_eq!(floats(&data.call(x.clone()).unwrap()), [2.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn a_warm_up_call_delays_capture() {
    let _alone = alone();
    let made = std::cell::RefCell::new(None::<Tensor>);
    let mut f = Jit::new(|x: Tensor| {
        let mut made = made.borrow_mut();
        let table = made.get_or_insert_with(|| Tensor::new([1.0f32, 2.0]) * 3.0);
        Ok(&x * &*table)
    });
    for i in 0..6 {
        assert_eq!(floats(&f.call(tensor(&[i as f32, 1.0])).unwrap()), [3.0 * i as f32, 6.0]);
    }
    assert!(f.is_captured());
    let turn = Cell::new(0);
    let mut never = Jit::new(|x: Tensor| {
        turn.set(turn.get() + 1);
        Ok((0..turn.get() % 5).fold(x, |x, _| (x + 1.0).sin()))
    });
    let e = (0..20).find_map(|_| never.call(tensor(&[1.0])).err()).unwrap().to_string();
    assert!(e.contains("did something different in each of"), "{e}");
}

#[test]
fn stale_and_external_gradients_are_errors() {
    let _alone = alone();
    let w = tensor(&[1.0]).as_param();
    let mut left = Jit::new(|x: Tensor| {
        let loss = (&w * &x).sum(..);
        loss.backward();
        Ok(loss)
    });
    let e = message(left.call(tensor(&[2.0])));
    assert!(
        e.contains("leaves a gradient on the parameter f32 [1] on ")
            && e.contains("optimizer's step inside"),
        "{e}"
    );
    w.set_grad(None);
    let mut optimizer = Optimizer::new([w.clone()], SGD::new(0.5)).unwrap();
    (&w * 3.0).sum(..).backward();
    let mut step = Jit::new(|()| optimizer.step());
    assert!(
        message(step.call(()))
            .contains("changes an existing gradient of the parameter f32 [1] on ")
    );
}

#[test]
fn capture_does_not_reseed() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| {
        Tensor::manual_seed(1);
        Ok(x + Tensor::rand([1]))
    });
    let first = f.call(tensor(&[1.0]));
    let e = message(first.and_then(|_| f.call(tensor(&[1.0]))));
    assert!(e.contains("manual_seed or set_rng_state is called inside a captured function"), "{e}");
}

#[test]
fn a_moved_tensor_is_an_error() {
    let _alone = alone();
    let w = tensor(&[2.0]);
    let mut f = Jit::new(|x: Tensor| Ok(&x * w.to(x.device().as_str())));
    (0..3).for_each(|_| drop(f.call(tensor(&[1.0])).unwrap()));
    w.to_("interp").unwrap();
    assert!(message(f.call(tensor(&[1.0]))).contains("call reset() to capture again"));
    f.reset();
    for _ in 0..3 {
        assert_eq!(floats(&f.call(tensor(&[1.0])).unwrap()), [2.0]);
    }
}
