//! Assignment under every read-write hazard, and the updates that are written in place.

use picograd::ir::{Arg, Combine, DeviceName, Op, Src, UOp};
use picograd::schedule::{DeviceTraits, PlanRequest, Role};
use picograd::shape::Movement;
use picograd::{DType, Tensor, schedule};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn v(t: &Tensor) -> Vec<f32> {
    t.to_vec::<f32>().unwrap()
}

fn four() -> Tensor {
    Tensor::new([1.0f32, 2.0, 3.0, 4.0])
}

/// The allocation number of a realized tensor.
fn memory(t: &Tensor) -> u64 {
    let u = t.realize().unwrap().uop();
    let base = u.view().map_or(u.clone(), |v| v.0.clone());
    assert_eq!(base.op(), Op::Buffer);
    match base.arg() {
        Arg::Storage(s) => s.storage.memory_id(),
        _ => unreachable!(),
    }
}

#[test]
fn an_update_is_written_in_place() {
    let w = four();
    let home = memory(&w);
    for step in 1..=5 {
        w.assign(&w * 2.0 + 1.0).unwrap();
        w.realize().unwrap();
        assert_eq!(memory(&w), home, "step {step}");
    }
    assert_eq!(v(&w), [63.0, 95.0, 127.0, 159.0]);
}

#[test]
fn earlier_graphs_keep_the_old_value() {
    let a = four();
    let before = &a * 10.0;
    let part = a.i(1..3);
    let handle = a.clone();
    a.assign(&a + 1.0).unwrap();
    assert_eq!(v(&a), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(v(&handle), [2.0, 3.0, 4.0, 5.0], "a handle is the same tensor");
    assert_eq!(v(&before), [10.0, 20.0, 30.0, 40.0]);
    assert_eq!(v(&part), [2.0, 3.0]);
}

#[test]
fn a_realized_view_shares_memory() {
    let a = four();
    let part = a.i(1..3).realize().unwrap();
    assert_eq!(memory(&part), memory(&a), "a contiguous part is not copied");
    a.assign(&a * 0.0).unwrap();
    assert_eq!(v(&a), [0.0; 4]);
    assert_eq!(v(&part), [2.0, 3.0]);
    assert_ne!(memory(&part), memory(&a));
}

#[test]
fn a_slice_read_only_by_its_update_is_no_hazard() {
    let a = four();
    let shifted = {
        let part = a.i(1..4).realize().unwrap();
        part.pad(&[(0, 1)])
    };
    a.assign(&a + &shifted).unwrap();
    drop(shifted);
    assert_eq!(v(&a), [3.0, 5.0, 7.0, 4.0]);
}

#[test]
fn diamond_graphs_read_old_and_new_values() {
    let a = four();
    let c = &a + 1.0;
    a.assign(&a * 2.0).unwrap();
    let d = &a + &c;
    let e = &c * &d;
    assert_eq!(v(&e), [8.0, 21.0, 40.0, 65.0]);
    assert_eq!(v(&a), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(v(&c), [2.0, 3.0, 4.0, 5.0]);
    // Both branches of the diamond and the update are realized together.
    let a = four();
    let (left, right) = (&a + 1.0, &a * 3.0);
    a.assign(&left * &right).unwrap();
    Tensor::realize_many(&[&left, &a, &right]).unwrap();
    assert_eq!((v(&left), v(&right)), (vec![2.0, 3.0, 4.0, 5.0], vec![3.0, 6.0, 9.0, 12.0]));
    assert_eq!(v(&a), [6.0, 18.0, 36.0, 60.0]);
}

#[test]
fn a_tensor_can_be_assigned_its_own_permutation_or_overlap() {
    let a = Tensor::arange(0, 9, 1).cast(DType::F32).reshape([3, 3]).realize().unwrap();
    a.assign(a.t()).unwrap();
    assert_eq!(v(&a), [0.0, 3.0, 6.0, 1.0, 4.0, 7.0, 2.0, 5.0, 8.0]);
    let b = four();
    b.assign(b.flip(0)).unwrap();
    assert_eq!(v(&b), [4.0, 3.0, 2.0, 1.0]);
    let c = Tensor::arange(0, 8, 1).cast(DType::F32).realize().unwrap();
    c.assign(Tensor::cat(&[c.i(2..6), c.i(4..8)], 0)).unwrap();
    assert_eq!(v(&c), [2.0, 3.0, 4.0, 5.0, 4.0, 5.0, 6.0, 7.0]);
    let d = four();
    d.assign(&d - d.sum(0)).unwrap();
    assert_eq!(v(&d), [-9.0, -8.0, -7.0, -6.0]);
    let e = four();
    e.assign(&e + e.flip(0)).unwrap();
    assert_eq!(v(&e), [5.0; 4]);
}

#[test]
fn two_tensors_can_be_swapped() {
    let (a, b) = (four(), four() * 10.0);
    b.realize().unwrap();
    let old = &a * 1.0;
    a.assign(&b).unwrap();
    b.assign(&old).unwrap();
    Tensor::realize_many(&[&a, &b]).unwrap();
    assert_eq!((v(&a), v(&b)), (vec![10.0, 20.0, 30.0, 40.0], vec![1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn updates_accumulate_before_a_read() {
    let a = four();
    for _ in 0..10 {
        a.assign(&a + 1.0).unwrap();
    }
    assert_eq!(v(&a), [11.0, 12.0, 13.0, 14.0]);
}

#[test]
fn values_are_broadcast_and_cast() {
    let a = Tensor::zeros([2, 3]).contiguous().realize().unwrap();
    a.assign(7).unwrap();
    assert_eq!(v(&a), [7.0; 6]);
    a.assign(Tensor::new([1i32, 2, 3])).unwrap();
    assert_eq!(v(&a), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    assert!(a.assign(Tensor::zeros([4])).is_err());
    assert_eq!(v(&a), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0], "a refused assignment changes nothing");
}

#[test]
fn an_optimizer_step_updates_all_tensors_in_place() {
    let params: Vec<Tensor> = (0..4).map(|i| four().repeat([4096]) + i as f64).collect();
    params.iter().for_each(|p| drop(p.realize().unwrap()));
    let homes: Vec<u64> = params.iter().map(memory).collect();
    let norm = params.iter().map(|p| p.square().sum(0)).reduce(|a, b| a + b).unwrap().sqrt();
    for p in &params {
        p.assign(p - &norm * 0.0 - 1.0).unwrap();
    }
    drop(norm);
    Tensor::realize_many(&params.iter().collect::<Vec<_>>()).unwrap();
    for (i, p) in params.iter().enumerate() {
        assert_eq!(v(p)[..4], [i as f32, i as f32 + 1.0, i as f32 + 2.0, i as f32 + 3.0]);
    }
    assert_eq!(
        params.iter().map(memory).collect::<Vec<_>>(),
        homes,
        "each update is written where the tensor was"
    );
}

#[test]
fn reads_are_ordered_around_a_write() {
    let a = Tensor::arange(0, 4096, 1).cast(DType::F32).realize().unwrap();
    let home = memory(&a);
    let (old_max, old_sum) = (a.max(0), a.flip(0).reshape([64, 64]).matmul(&a.reshape([64, 64])));
    a.assign(&a * 2.0).unwrap();
    let (new_max, new_square) = (a.max(0), a.reshape([64, 64]).matmul(&a.reshape([64, 64])));
    Tensor::realize_many(&[&new_max, &new_square, &a, &old_max, &old_sum]).unwrap();
    assert_eq!((old_max.item::<f32>().unwrap(), new_max.item::<f32>().unwrap()), (4095.0, 8190.0));
    let x = |i: usize, j: usize| (i * 64 + j) as f32;
    let old: f32 = (0..64).map(|k| (4095.0 - x(3, k)) * x(k, 5)).sum();
    let new: f32 = (0..64).map(|k| 4.0 * x(3, k) * x(k, 5)).sum();
    assert!((v(&old_sum)[3 * 64 + 5] / old - 1.0).abs() < 1e-5);
    assert!((v(&new_square)[3 * 64 + 5] / new - 1.0).abs() < 1e-5);
    assert_eq!(memory(&a), home);
}

#[test]
fn updates_that_read_each_other_are_ordered() {
    let (a, b) = (
        Tensor::ones([4096]).contiguous().realize().unwrap(),
        Tensor::full([4096], 2.0f32).contiguous().realize().unwrap(),
    );
    let (sa, sb) = (a.flip(0), b.flip(0));
    a.assign(&a + &sb).unwrap();
    b.assign(&b * 10.0 + &sa).unwrap();
    drop((sa, sb));
    Tensor::realize_many(&[&a, &b]).unwrap();
    assert_eq!((v(&a)[7], v(&b)[9]), (3.0, 21.0));
}

#[test]
fn kernels_may_read_old_and_new_values() {
    let x = four();
    let old = x.flip(0);
    x.assign(&x + 1.0).unwrap();
    let y = x.flip(0) + old;
    Tensor::realize_many(&[&x, &y]).unwrap();
    assert_eq!((v(&x), v(&y)), (vec![2.0, 3.0, 4.0, 5.0], vec![9.0, 7.0, 5.0, 3.0]));
}

#[test]
fn identity_ops_return_new_tensors() {
    let x = four();
    let same = [
        x.contiguous(),
        x.cast(DType::F32),
        x.reshape([4]),
        x.expand([4]),
        x.permute([0]),
        x.to("cpu"),
        x.i(..),
        x.abs().abs(),
        x.detach(),
    ];
    x.assign(&x + 1.0).unwrap();
    assert_eq!(v(&x), [2.0, 3.0, 4.0, 5.0]);
    for s in same {
        assert_eq!(v(&s), [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn constants_do_not_mix_devices() {
    let y = Tensor::arange(0, 4, 1);
    let (z, sum) = (y.to("null"), Tensor::new([1i32, 2, 3, 4]) + &y);
    z.realize().unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
    assert_eq!(sum.to_vec::<i32>().unwrap(), [1, 3, 5, 7]);
    let y = Tensor::arange(0, 4, 1);
    let z = y.to("interp");
    Tensor::realize_many(&[&z, &y]).unwrap();
    assert_eq!(
        (z.to_vec::<i32>().unwrap(), y.to_vec::<i32>().unwrap()),
        (vec![0, 1, 2, 3], vec![0, 1, 2, 3])
    );
}

#[test]
fn a_run_that_fails_changes_nothing() {
    let w = four();
    w.assign(&w + 1.0).unwrap();
    let bad = Tensor::new([1.0f32]).to("null").to("cpu");
    assert!(Tensor::realize_many(&[&w, &bad]).unwrap_err().to_string().contains("NULL"));
    assert_eq!(v(&w), [2.0, 3.0, 4.0, 5.0]);
}

/// Checks that a value is not a mixture of two updates, and not older than the last one seen.
fn whole(v: &[f32], last: &mut f32) {
    assert!(
        v.iter().all(|e| *e == v[0]),
        "torn: {} and {:?}",
        v[0],
        v.iter().find(|e| **e != v[0])
    );
    assert!(v[0] >= *last, "{} after {last}", v[0]);
    *last = v[0];
}

/// One thread adds 1 to a tensor `rounds` times; other threads read the result of `read` on it.
fn changed_and_read(
    rounds: usize,
    x: &Tensor,
    change: impl Fn(usize) + Sync,
    read: impl Fn() -> Tensor + Sync,
) {
    let running = AtomicBool::new(true);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut last = 0.0;
                while running.load(Ordering::Relaxed) {
                    whole(&read().to_vec::<f32>().unwrap(), &mut last);
                    // No reader holds the memory in between, so the update is in place.
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
        }
        let all = catch_unwind(AssertUnwindSafe(|| (1..=rounds).for_each(&change)));
        running.store(false, Ordering::Relaxed);
        all.unwrap();
    });
    assert_eq!(v(x), vec![rounds as f32; x.numel()]);
}

fn counter() -> Tensor {
    Tensor::zeros([4096]).contiguous().realize().unwrap()
}

#[test]
fn threads_read_a_tensor_that_one_realizes() {
    for read in [|x: &Tensor| x.clone(), |x: &Tensor| x * 2.0 + 1.0, |x: &Tensor| x + 1.0] {
        let x = counter();
        let change = |_| {
            x.assign(&x + 1.0).unwrap();
            x.realize().unwrap();
        };
        changed_and_read(1000, &x, change, || read(&x));
    }
}

/// The first thread that needs an assignment realizes it; the next assignment may happen
/// concurrently.
#[test]
fn threads_realize_what_one_assigns() {
    for read in [|x: &Tensor| x.clone(), |x: &Tensor| x * 2.0 + 1.0, |x: &Tensor| x + 1.0] {
        let x = counter();
        changed_and_read(1000, &x, |_| x.assign(&x + 1.0).unwrap(), || read(&x));
    }
}

/// Two kernels write in place; the first leaves every other element at -1.
#[test]
fn in_place_writes_are_atomic_for_readers() {
    const N: i64 = 1 << 14;
    let x = Tensor::zeros([N]).contiguous().realize().unwrap();
    let even = (Tensor::arange(0, N / 2, 1) * 2).realize().unwrap();
    let is_even = Tensor::arange(0, N, 1).modulo(2).eq(0).realize().unwrap();
    let change = |i| {
        let values = Tensor::full([N / 2], i as f32).contiguous().realize().unwrap();
        x.assign(is_even.where_(-1.0, &x + 1.0).scatter(0, &even, &values)).unwrap();
        x.realize().unwrap();
    };
    changed_and_read(500, &x, change, || x.clone());
}

/// Writes random boxes, one after another and several at once, and compares with the host.
#[test]
fn writing_a_slice_keeps_the_rest() {
    const DIMS: [usize; 3] = [7, 5, 6];
    let mut state = 42u64;
    let mut below = |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for device in picograd::testing::devices() {
        let values: Vec<f32> = (0..210).map(|i| i as f32).collect();
        let tensors: Vec<Tensor> = (0..2)
            .map(|_| Tensor::from_slice(&values, DIMS).to(device).realize().unwrap())
            .collect();
        let mut host = [values.clone(), values.clone()];
        for round in 0..30 {
            let mut parts = || {
                DIMS.map(|n| {
                    let start = below(n);
                    (start, start + 1 + below(n - start))
                })
            };
            // In some rounds both tensors write the same slice, so that one kernel may write both.
            let same = parts();
            let each = [same, if round % 3 == 0 { same } else { parts() }];
            for (t, (tensor, [a, b, c])) in tensors.iter().zip(each).enumerate() {
                let by = (round * 10 + t) as f32;
                let index = (a.0..a.1, b.0..b.1, c.0..c.1);
                // Half of the writes read the old content.
                if round % 2 == 0 {
                    tensor.set(index, by).unwrap();
                } else {
                    tensor.set(index.clone(), tensor.i(index) * 0.5 + by).unwrap();
                }
                for (at, v) in host[t].iter_mut().enumerate() {
                    let place = [at / 30, at / 6 % 5, at % 6];
                    if [a, b, c].iter().zip(place).all(|(r, p)| (r.0..r.1).contains(&p)) {
                        *v = if round % 2 == 0 { by } else { *v * 0.5 + by };
                    }
                }
            }
            if round % 4 != 3 {
                Tensor::realize_many(&tensors.iter().collect::<Vec<_>>()).unwrap();
            }
            for (t, tensor) in tensors.iter().enumerate() {
                if round % 4 != 2 {
                    assert_eq!(
                        tensor.to_vec::<f32>().unwrap(),
                        host[t],
                        "{device}: round {round}, tensor {t}, {each:?}"
                    );
                }
            }
        }
    }
}

/// If the base is donated, a scatter runs only its updates; otherwise the base is copied first.
#[test]
fn an_in_place_scatter_costs_only_its_updates() {
    let device = DeviceName::new("CPU");
    let param = |slot, len, dtype| {
        UOp::new(Op::Param, dtype, Src::new(), Arg::Param { slot, len, device: device.clone() })
    };
    let (base, index, value) =
        (param(0, 20, DType::F32), param(1, 3, DType::I32), param(2, 3, DType::F32));
    for combine in Combine::ALL {
        let out = base.scattered(&index, &value, combine, 0);
        let plan = |output: &UOp, donated: Option<usize>| {
            schedule::plan(&PlanRequest {
                outputs: std::slice::from_ref(output),
                devices: std::slice::from_ref(&device),
                donated: &[donated],
                inputs: 3,
                traits_of: &|_| DeviceTraits::UNKNOWN,
            })
        };
        let (copied, in_place) = (plan(&out, None), plan(&out, Some(0)));
        assert_eq!((copied.commands.len(), in_place.commands.len()), (2, 1), "{combine:?}");
        assert_eq!(
            in_place.buffers[in_place.outputs[0].as_ref().unwrap().buffer].role,
            Role::Input(0)
        );
        // A value read from the base needs the old content while the new content is written.
        let moved = base.scattered(&index, &base.moved(Movement::shrink([(4, 7)])), combine, 0);
        assert_eq!(plan(&moved, Some(0)).commands.len(), 2, "{combine:?}");
    }
}

#[test]
fn rows_set_by_index_are_written_in_place() {
    let x = Tensor::zeros([9, 2]).contiguous().realize().unwrap().clone();
    let before = &x + 1.0;
    x.set(
        Tensor::new([7, 3, 7, 20]),
        Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
    )
    .unwrap();
    assert_eq!(v(&x.i(7)), [5.0, 6.0]);
    assert_eq!(v(&before), [1.0; 18]);
    x.set(Tensor::new([0]), 9.0).unwrap();
    x.realize().unwrap();
    assert_eq!((v(&x.i(0)), v(&x.i(3))), (vec![9.0, 9.0], vec![3.0, 4.0]));
}
