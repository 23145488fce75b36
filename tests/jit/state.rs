//! Tensors that a captured function closes over: read with their current values, and updated as by
//! a plain call.

use super::{alone, floats, tensor};
use picograd::{Jit, Tensor};
use std::sync::{Barrier, Mutex};

#[test]
fn assignments_persist_across_calls() {
    let _alone = alone();
    for start in [tensor(&[1.0, 2.0]), Tensor::ones([2]), Tensor::new([1.0f32, 2.0]) * 1.0] {
        let plain = start.copy();
        let state = start.copy();
        let mut f = Jit::new(|x: Tensor| {
            let before = state.copy();
            state.assign(&state * 2.0 + &x)?;
            Ok(before)
        });
        for i in 0..7 {
            let x = tensor(&[i as f32, 1.0]);
            let want = floats(&plain);
            plain.assign(&plain * 2.0 + &x).unwrap();
            assert_eq!(floats(&f.call(x).unwrap()), want, "the value before, call {i}");
            assert_eq!(floats(&state), floats(&plain), "call {i}");
        }
        assert!(f.is_captured());
    }
}

#[test]
fn state_is_updated_in_place_unless_shared() {
    let _alone = alone();
    let state = tensor(&[0.0, 10.0]);
    let mut f = Jit::new(|x: Tensor| state.assign(&state + &x));
    let one = tensor(&[1.0, 1.0]);
    for _ in 0..6 {
        f.call(one.clone()).unwrap();
    }
    assert_eq!(
        (floats(&state), f.stats().unwrap().copies),
        (vec![6.0, 16.0], 0),
        "nothing else reads it, so nothing is copied"
    );
    let (copy, lazy, handle) = (state.copy(), &state * 2.0, state.clone());
    f.call(one.clone()).unwrap();
    assert_eq!(
        (floats(&copy), floats(&lazy), floats(&handle)),
        (vec![6.0, 16.0], vec![12.0, 32.0], vec![7.0, 17.0])
    );
    assert_eq!(f.stats().unwrap().copies, 1);
    drop((copy, lazy));
    f.call(one.clone()).unwrap();
    f.call(one).unwrap();
    assert_eq!((floats(&state), f.stats().unwrap().copies), (vec![9.0, 19.0], 1), "alone again");
}

#[test]
fn state_may_be_argument_and_result() {
    let _alone = alone();
    let state = tensor(&[1.0]);
    let mut f = Jit::new(|x: Tensor| {
        state.assign(&state + &x)?;
        Ok(state.clone())
    });
    let mut kept = Vec::new();
    for _ in 0..5 {
        kept.push(f.call(state.clone()).unwrap());
    }
    assert_eq!(kept.iter().map(|k| floats(k)[0]).collect::<Vec<_>>(), [2.0, 4.0, 8.0, 16.0, 32.0]);
    assert_eq!(floats(&state), [32.0]);
}

#[test]
fn assignments_between_calls_are_seen() {
    let _alone = alone();
    let scale = tensor(&[2.0]);
    let lazy = Tensor::full([1], 5.0f32);
    let mut f = Jit::new(|x: Tensor| Ok(&x * &scale + &lazy));
    let x = tensor(&[10.0]);
    for _ in 0..4 {
        assert_eq!(floats(&f.call(x.clone()).unwrap()), [25.0]);
    }
    scale.assign(Tensor::new([3.0f32])).unwrap();
    assert_eq!(floats(&f.call(x.clone()).unwrap()), [35.0]);
    scale.assign(&scale + 1.0).unwrap();
    assert_eq!(floats(&f.call(x.clone()).unwrap()), [45.0]);
    lazy.assign(&lazy * 2.0).unwrap();
    assert_eq!(floats(&f.call(x.clone()).unwrap()), [50.0]);
    // A value computed from the old state does not change.
    let before = &scale * 1.0;
    scale.assign(0.0).unwrap();
    assert_eq!((floats(&f.call(x).unwrap()), floats(&before)), (vec![10.0], vec![4.0]));
}

#[test]
fn a_view_of_old_state_stays_old() {
    let _alone = alone();
    let state = tensor(&[1.0, 2.0]);
    let view = state.flip([0]);
    let mut f = Jit::new(|x: Tensor| {
        state.assign(&state + &x)?;
        Ok(view.flip([0]) * 1.0)
    });
    let one = tensor(&[1.0, 1.0]);
    for i in 0..6 {
        assert_eq!(floats(&f.call(one.clone()).unwrap()), [1.0, 2.0], "call {i}");
        assert_eq!(floats(&state), [2.0 + i as f32, 3.0 + i as f32]);
    }
}

#[test]
fn several_updates_of_one_state_in_one_call() {
    let _alone = alone();
    let state = tensor(&[1.0]);
    let mut f = Jit::new(|x: Tensor| {
        state.assign(&state + &x)?;
        state.realize()?;
        let middle = &state * 1.0;
        state.assign(&state * 2.0)?;
        Ok(middle)
    });
    let mut want = 1.0;
    for i in 0..6 {
        let middle = f.call(tensor(&[i as f32])).unwrap();
        assert_eq!(floats(&middle), [want + i as f32]);
        want = (want + i as f32) * 2.0;
        assert_eq!(floats(&state), [want]);
    }
}

#[test]
fn random_numbers_match_plain_calls() {
    let _alone = alone();
    let draws = |f: &mut dyn FnMut(Tensor) -> Tensor| -> Vec<Vec<f32>> {
        Tensor::manual_seed(7);
        let mut all = Vec::new();
        for i in 0..6 {
            all.push(floats(&f(tensor(&[1.0, 2.0, 3.0]))));
            if i == 3 {
                Tensor::manual_seed(8);
            }
            if i == 4 {
                all.push(floats(&Tensor::rand([2])));
            }
        }
        all
    };
    let random =
        |x: Tensor| -> picograd::Result<Tensor> { Ok(&x * Tensor::rand([3]) + Tensor::randn([3])) };
    let want = draws(&mut |x| random(x).unwrap());
    let mut f = Jit::new(random);
    assert_eq!(draws(&mut |x| f.call(x).unwrap()), want);
    assert!(f.is_captured() && want[0] != want[1]);
}

#[test]
fn sharded_state_is_updated() {
    let _alone = alone();
    let devices = ["CPU:0", "CPU:1"];
    let state = tensor(&[1.0, 2.0, 3.0, 4.0]).shard(&devices, 0).realize().unwrap();
    let copied = tensor(&[1.0, 2.0]).shard(&devices, None).realize().unwrap();
    let mut f = Jit::new(|x: Tensor| {
        state.assign(&state + &x)?;
        copied.assign(&copied * 2.0)
    });
    let x = tensor(&[1.0; 4]).shard(&devices, 0).realize().unwrap();
    for i in 1..6 {
        f.call(x.clone()).unwrap();
        let i = i as f32;
        assert_eq!(floats(&state), [1.0 + i, 2.0 + i, 3.0 + i, 4.0 + i]);
        assert_eq!(floats(&copied), [2f32.powf(i), 2.0 * 2f32.powf(i)]);
    }
}

/// A replay locks a tensor while it writes its memory, so that no thread reads overwritten memory.
#[test]
fn threads_read_a_tensor_that_others_replay_on() {
    let _alone = alone();
    let state = Tensor::ones([256, 256]).contiguous().realize().unwrap();
    let (capturing, captured) = (Mutex::new(()), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut f = Jit::new(|x: Tensor| {
                    state.assign(&state * 0.5 + x.sum(..))?;
                    Ok(state.sum(0))
                });
                let mut call = || f.call(tensor(&[1.0, 1.0])).unwrap().to_vec::<f32>().unwrap();
                let one = capturing.lock().unwrap();
                (0..3).for_each(|_| drop(call()));
                drop(one);
                captured.wait();
                (0..300).for_each(|_| drop(call()));
            });
            scope.spawn(|| {
                captured.wait();
                for _ in 0..300 {
                    let sums = (&state * 2.0).sum(0).to_vec::<f32>().unwrap();
                    assert!(sums.iter().all(|x| *x == sums[0]), "{:?}", &sums[..4]);
                }
            });
        }
    });
    assert_eq!(floats(&state).len(), 256 * 256);
}
