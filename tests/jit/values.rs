//! Results of captured functions for all kinds of arguments.

use super::{alone, floats, tensor};
use picograd::device::{counters, reset_counters};
use picograd::{DType, Jit, Tensor};

#[test]
fn the_third_call_replays_the_second() {
    let _alone = alone();
    let mut calls = 0;
    let mut f = Jit::new(|(x, w): (Tensor, Tensor)| {
        calls += 1;
        Ok(x.matmul(&w).relu().sum(1))
    });
    let w = Tensor::from_slice(&[1.0f32, -2.0, 3.0, 4.0], [2, 2]);
    for i in 0..6 {
        let x = Tensor::from_slice(&[i as f32, 1.0, -1.0, i as f32], [2, 2]);
        let want = x.matmul(&w).relu().sum(1);
        assert_eq!(f.is_captured(), i >= 2, "call {i}");
        assert_eq!(floats(&f.call((x, w.clone())).unwrap()), floats(&want), "call {i}");
    }
    drop(f);
    assert_eq!(calls, 2, "a replay does not run the function");
}

#[test]
fn a_replay_schedules_and_compiles_nothing() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| Ok((&x * 3.0).softmax(-1).contiguous().sum(0)));
    let xs: Vec<Tensor> =
        (0..4).map(|i| tensor(&[i as f32, 1.0, 2.0]).reshape([1, 3]).realize().unwrap()).collect();
    f.call(xs[0].clone()).unwrap();
    f.call(xs[1].clone()).unwrap();
    reset_counters();
    f.call(xs[2].clone()).unwrap();
    f.call(xs[3].clone()).unwrap();
    let c = counters();
    assert_eq!((c.schedules, c.compiled, c.kernels), (0, 0, 2 * f.stats().unwrap().steps as u64));
}

#[test]
fn results_belong_to_the_caller() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| Ok([&x + 1.0, &x * 2.0]));
    let kept: Vec<[Tensor; 2]> =
        (0..6).map(|i| f.call(tensor(&[i as f32, 5.0])).unwrap()).collect();
    for (i, [a, b]) in kept.iter().enumerate() {
        let i = i as f32;
        assert_eq!((floats(a), floats(b)), (vec![i + 1.0, 6.0], vec![2.0 * i, 10.0]));
    }
    // Changing one result does not change another.
    kept[4][0].assign(0.0).unwrap();
    assert_eq!((floats(&kept[3][0]), floats(&kept[5][0])), (vec![4.0, 6.0], vec![6.0, 6.0]));
    assert_eq!(floats(&f.call(tensor(&[1.0, 1.0])).unwrap()[0]), [2.0, 2.0]);
}

#[test]
fn arguments_may_be_lazy_views_or_constants() {
    let _alone = alone();
    let base = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut f = Jit::new(|x: Tensor| Ok(x * 10.0));
    let given = || -> Vec<Tensor> {
        vec![
            tensor(&[1.0, 2.0]),
            base.shrink(&[(1, 3)]),
            base.reshape([3, 2]).t().shrink(&[(0, 1), (0, 2)]).reshape([2]),
            Tensor::ones([2]),
            base.reshape([3, 2]).sum(0),
            base.shrink(&[(4, 6)]).realize().unwrap(),
            base.flip([0]).shrink(&[(0, 2)]),
        ]
    };
    for (i, (x, same)) in given().into_iter().zip(given()).enumerate() {
        assert_eq!(floats(&f.call(x).unwrap()), floats(&(same * 10.0)), "argument {i}");
    }
}

#[test]
fn one_tensor_may_be_several_arguments() {
    let _alone = alone();
    let x = tensor(&[1.0, 2.0]);
    let mut f = Jit::new(|(a, b): (Tensor, Tensor)| Ok(&a * 100.0 + &b * 10.0 + &x));
    let y = tensor(&[3.0, 4.0]);
    let want = |a: &Tensor, b: &Tensor| floats(&(a * 100.0 + b * 10.0 + &x));
    for (a, b) in [(&x, &x), (&x, &x), (&x, &y), (&y, &y), (&y, &x)] {
        assert_eq!(floats(&f.call((a.clone(), b.clone())).unwrap()), want(a, b));
    }
    // Captured with different tensors, replayed with one.
    let mut f = Jit::new(|(a, b): (Tensor, Tensor)| Ok(a - b));
    for (a, b) in [(&x, &y), (&x, &y), (&x, &x), (&y, &x)] {
        assert_eq!(floats(&f.call((a.clone(), b.clone())).unwrap()), floats(&(a - b)));
    }
}

#[test]
fn results_may_be_arguments_slices_or_literals() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| {
        Ok((
            x.clone(),
            x.shrink(&[(1, 3)]),
            Tensor::full([2], 7.0f32),
            x.reshape([2, 2]),
            Tensor::zeros([0]),
        ))
    });
    for i in 0..5 {
        let x = tensor(&[i as f32, 1.0, 2.0, 3.0]);
        let (same, part, literal, other, none) = f.call(x.clone()).unwrap();
        assert_eq!(
            (floats(&same), floats(&part)),
            (vec![i as f32, 1.0, 2.0, 3.0], vec![1.0, 2.0]),
            "call {i}"
        );
        assert_eq!(
            (floats(&literal), other.shape(), none.shape()),
            (vec![7.0, 7.0], vec![2, 2], vec![0])
        );
        // The result is a distinct tensor.
        same.assign(0.0).unwrap();
        assert_eq!(floats(&x), [i as f32, 1.0, 2.0, 3.0]);
    }
}

#[test]
fn arguments_may_be_lazy_and_on_another_device() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| {
        let y = (&x + 1.0).realize()?;
        let there = (&y * 2.0).to("interp").realize()?;
        Ok((y.sum(0), there + 1.0))
    });
    for i in 0..4 {
        let (sum, there) = f.call(tensor(&[i as f32, 2.0])).unwrap();
        assert_eq!(
            (floats(&sum), floats(&there)),
            (vec![i as f32 + 4.0], vec![2.0 * i as f32 + 3.0, 7.0])
        );
        assert_eq!(there.device().as_str(), "INTERP");
    }
}

#[test]
fn host_numbers_are_constant_across_calls() {
    let _alone = alone();
    // Assigned inside the function, and returned.
    let mut f = Jit::new(|x: Tensor| {
        let t = Tensor::new([1.0f32, 2.0]);
        t.assign(&t + &x)?;
        Ok((t, Tensor::new([5.0f32])))
    });
    let mut kept = Vec::new();
    for i in 0..6 {
        let (t, five) = f.call(tensor(&[i as f32, 10.0])).unwrap();
        assert_eq!(
            (floats(&t), floats(&five)),
            (vec![1.0 + i as f32, 12.0], vec![5.0]),
            "call {i}"
        );
        // Changing a result does not change the next.
        five.assign(&five + 1.0).unwrap();
        five.realize().unwrap();
        t.assign(&t * 0.0).unwrap();
        t.realize().unwrap();
        kept.push(five);
    }
    assert!(f.is_captured() && kept.iter().all(|k| floats(k) == [6.0]));
}

#[test]
fn captured_literals_may_be_dropped() {
    let _alone = alone();
    let mut f = Jit::new(|x: Tensor| Ok(x.relu()));
    for i in 0..5 {
        // The same literal as the one in relu.
        let sum = Tensor::zeros(());
        let y = f.call(tensor(&[i as f32 - 2.0])).unwrap();
        assert_eq!(floats(&(sum + y)), [(i as f32 - 2.0).max(0.0)]);
    }
    assert!(f.is_captured());
}

#[test]
fn jit_levels_give_the_same_results() {
    let _alone = alone();
    let program = std::env::current_exe().unwrap();
    let names = [
        "values::results_belong_to_the_caller",
        "values::captures_replay_multi_output_kernels_and_sharded_inputs",
        "state::sharded_state_is_updated",
    ];
    for jit in ["0", "1", "2"] {
        let out = std::process::Command::new(&program)
            .args(names)
            .arg("--exact")
            .env("JIT", jit)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("3 passed"), "JIT={jit}: {text}");
    }
    let out = std::process::Command::new(&program)
        .args([names[0], "--exact"])
        .env("JIT", "3")
        .output()
        .unwrap();
    assert!(
        !out.status.success()
            && String::from_utf8_lossy(&out.stdout).contains("JIT=3: expected 0, 1 or 2")
    );
}

#[test]
fn captures_work_for_every_dtype_and_the_interpreter() {
    let _alone = alone();
    for dtype in [DType::BOOL, DType::U8, DType::I64, DType::F16, DType::F64] {
        for device in ["cpu", "interp"] {
            let mut f = Jit::new(|x: Tensor| Ok((&x.cast(DType::F32) + 1.0).cast(dtype)));
            for i in 0..3 {
                let x = tensor(&[i as f32, 1.0]).to(device).cast(dtype);
                let want = (&x.cast(DType::F32) + 1.0).cast(dtype).to_bytes().unwrap();
                assert_eq!(f.call(x).unwrap().to_bytes().unwrap(), want, "{dtype} on {device}");
            }
        }
    }
}

#[test]
fn a_nested_capture_is_a_plain_call() {
    let _alone = alone();
    let mut inner = Jit::new(|x: Tensor| Ok(&x * 2.0));
    let mut outer = Jit::new(|x: Tensor| Ok(inner.call(x)? + 1.0));
    for i in 0..5 {
        assert_eq!(floats(&outer.call(tensor(&[i as f32])).unwrap()), [2.0 * i as f32 + 1.0]);
    }
    assert!(outer.is_captured());
    drop(outer);
    assert!(!inner.is_captured(), "a nested call is a plain call");
}

#[test]
fn captures_replay_multi_output_kernels_and_sharded_inputs() {
    let _alone = alone();
    let devices = ["CPU:0", "CPU:1"];
    let mut f = Jit::new(|x: Tensor| Ok((&x * 2.0, x.sum(0))));
    for i in 0..4 {
        let x = tensor(&[i as f32, 1.0, 2.0, 3.0]).shard(&devices, 0);
        let (double, sum) = f.call(x).unwrap();
        assert_eq!(
            (floats(&double), floats(&sum)),
            (vec![2.0 * i as f32, 2.0, 4.0, 6.0], vec![i as f32 + 6.0])
        );
    }
}

#[test]
fn a_failed_call_can_be_repeated() {
    let _alone = alone();
    let fail = std::cell::Cell::new(false);
    let mut f = Jit::new(|x: Tensor| if fail.get() { x.try_reshape([7]) } else { Ok(x + 1.0) });
    assert_eq!(floats(&f.call(tensor(&[1.0])).unwrap()), [2.0]);
    fail.set(true);
    assert!(f.call(tensor(&[1.0])).unwrap_err().to_string().contains("reshape"));
    fail.set(false);
    for _ in 0..3 {
        assert_eq!(floats(&f.call(tensor(&[1.0])).unwrap()), [2.0]);
    }
}
