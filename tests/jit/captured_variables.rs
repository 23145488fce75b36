//! Captured functions with variables: arguments, caches written in place, values that are not fixed
//! by the capture.

use super::alone;
use super::variables::{data, plain};
use picograd::nn::Layer;
use picograd::tensor::Attention;
use picograd::{Device, Jit, SymInt, Tensor, Variable, device, no_grad};

fn storage(t: &Tensor) -> u64 {
    let order = t.uop().toposort();
    order.iter().find_map(|u| u.arg().storage().map(|s| s.storage.id())).unwrap()
}

/// A position in a cache of `steps` tokens, two empty caches, and the keys, values and queries of
/// all positions.
fn cache(steps: usize, device: &str) -> (Variable, [Tensor; 2], [Tensor; 3]) {
    let empty = || Tensor::zeros([steps, 2, 4]).to(device).contiguous().realize().unwrap();
    let all = || data(&[steps, 2, 4], device);
    (
        Variable::new("pos", 0, steps as i64 - 1).unwrap(),
        [empty(), empty()],
        [all(), all().exp().realize().unwrap(), all()],
    )
}

#[test]
fn kv_cache_is_updated_in_place() {
    let _alone = alone();
    const STEPS: usize = 20;
    for device in picograd::testing::devices() {
        let (pos, [keys, values], [all_k, all_v, all_q]) = cache(STEPS, device);
        let memory = storage(&keys);
        for step in 0..STEPS {
            let before = device::counters().compiled;
            let at = pos.bind(step as i64).unwrap();
            let (q, k, v) = (all_q.i(&at), all_k.i(&at), all_v.i(&at));
            keys.set(&at, &k).unwrap();
            values.set(&at, &v).unwrap();
            Tensor::realize_many(&[&keys, &values]).unwrap();
            let heads = |t: &Tensor| t.i(..&at + 1).permute([1, 0, 2]);
            let out = q.unsqueeze(1).scaled_dot_product_attention(
                &heads(&keys),
                &heads(&values),
                Attention::new(),
            );
            let got = out.to_vec::<f32>().unwrap();
            let compiled = device::counters().compiled - before;
            assert!(
                step == 0 || compiled == 0,
                "{device}: step {step} compiled {compiled} kernels"
            );
            let numbers = |t: &Tensor| t.i(..step + 1).permute([1, 0, 2]);
            let expected = all_q.i(step).unsqueeze(1).scaled_dot_product_attention(
                &numbers(&all_k),
                &numbers(&all_v),
                Attention::new(),
            );
            for (a, b) in got.iter().zip(plain(&expected)) {
                assert!((a - b).abs() < 1e-5, "{device}: step {step}: {a} and {b}");
            }
            assert_eq!(storage(&keys), memory, "{device}: the cache moved");
        }
        assert_eq!(keys.to_vec::<f32>().unwrap(), all_k.to_vec::<f32>().unwrap());
    }
}

#[test]
fn a_captured_step_takes_variables() {
    let _alone = alone();
    const STEPS: usize = 12;
    for device in picograd::testing::devices() {
        let (pos, [keys, values], [all_k, all_v, all_q]) = cache(STEPS, device);
        let mut step = Jit::new(|(q, k, v, at): (Tensor, Tensor, Tensor, SymInt)| {
            keys.set(&at, &k)?;
            values.set(&at, &v)?;
            let heads = |t: &Tensor| t.i(..&at + 1).permute([1, 0, 2]);
            let seen = q.unsqueeze(1).scaled_dot_product_attention(
                &heads(&keys),
                &heads(&values),
                Attention::new(),
            );
            Ok((seen, keys.i(..&at + 1) * 2.0))
        });
        for i in 0..STEPS {
            let row = |t: &Tensor| t.i(i).contiguous().realize().unwrap();
            let before = device::counters();
            let (seen, so_far) = step
                .call((row(&all_q), row(&all_k), row(&all_v), pos.bind(i as i64).unwrap()))
                .unwrap();
            let after = device::counters();
            assert!(i < 2 || after.compiled == before.compiled, "{device}: step {i} compiles");
            let numbers = |t: &Tensor| t.i(..i + 1).permute([1, 0, 2]);
            let expected = all_q.i(i).unsqueeze(1).scaled_dot_product_attention(
                &numbers(&all_k),
                &numbers(&all_v),
                Attention::new(),
            );
            for (a, b) in seen.to_vec::<f32>().unwrap().iter().zip(plain(&expected)) {
                assert!((a - b).abs() < 1e-5, "{device}: step {i}: {a} and {b}");
            }
            // A result has the runtime size of its call.
            assert_eq!(
                (so_far.shape(), so_far.max_shape()),
                (vec![i + 1, 2, 4], vec![STEPS, 2, 4])
            );
            assert_eq!(
                so_far.to_vec::<f32>().unwrap(),
                plain(&(all_k.i(..i + 1) * 2.0)),
                "{device}: step {i}"
            );
        }
        assert!(step.is_captured());
        assert_eq!(keys.to_vec::<f32>().unwrap(), all_k.to_vec::<f32>().unwrap());
        let other = Variable::new("other", 0, 3).unwrap().bind(1).unwrap();
        let row = || all_q.i(0).contiguous().realize().unwrap();
        let e = step.call((row(), row(), row(), other)).err().unwrap().to_string();
        assert_eq!(
            e,
            "jit: argument 3 is other[0..3], but the function was captured with pos[0..11]; use a \
             Jit for each"
        );
    }
}

#[test]
fn captured_functions_take_symbolic_shapes() {
    let _alone = alone();
    let (x, n) = (data(&[10, 3], "CPU"), Variable::new("n", 1, 10).unwrap());
    let mut mean = Jit::new(|x: Tensor| Ok((x.mean(0), &x + 1.0)));
    for value in [4, 9, 1, 10, 7] {
        let part = x.i(..n.bind(value).unwrap()).contiguous().realize().unwrap();
        let (mean, more) = mean.call(part).unwrap();
        let want = x.i(..value as usize);
        assert_eq!((mean.shape(), more.shape()), (vec![3], vec![value as usize, 3]));
        for (a, b) in mean.to_vec::<f32>().unwrap().iter().zip(plain(&want.mean(0))) {
            assert!((a - b).abs() < 1e-5, "{value} rows: {a} and {b}");
        }
        assert_eq!(more.to_vec::<f32>().unwrap(), plain(&(want + 1.0)));
    }
    let e = mean.call(x.i(..4).contiguous()).err().unwrap().to_string();
    assert_eq!(
        e,
        "jit: argument 0 is f32 [4, 3] on CPU, but the function was captured with f32 [n[1..10], \
         3] on CPU; use a separate Jit for each"
    );
    // A variable that is not an argument is a host number.
    let turn = std::cell::Cell::new(1);
    let mut hidden = Jit::new(|y: Tensor| {
        turn.set(turn.get() + 1);
        Ok(x.i(..n.bind(turn.get())?).sum(0) + y)
    });
    hidden.call(Tensor::ones([3]).to("CPU")).unwrap();
    let e = hidden.call(Tensor::ones([3]).to("CPU")).err().unwrap().to_string();
    assert!(
        e.contains(
            "the variable n was 2 in the previous call and is 3 now; pass it to the function as an \
             argument"
        ),
        "{e}"
    );
}

#[test]
fn capture_does_not_fix_a_variable() {
    let _alone = alone();
    let default = Device::default().unwrap();
    let (x, n) = (data(&[8, 6], default.name().as_str()), Variable::new("n", 1, 8).unwrap());
    // Every way to read it on the host would give the value of one call.
    type Read = fn(&Tensor, &SymInt) -> f32;
    let reads: [Read; 5] = [
        |_, n| n.value() as f32,
        |part, _| part.shape()[0] as f32,
        |part, _| part.size(0) as f32,
        |part, _| part.numel() as f32,
        |_, n| if (n + 1).value() > 100 { 1.0 } else { 2.0 },
    ];
    for (i, read) in reads.into_iter().enumerate() {
        let mut by = Jit::new(move |(x, n): (Tensor, SymInt)| {
            let part = x.i(..&n);
            Ok(part.sum(0) / read(&part, &n))
        });
        by.call((x.clone(), n.bind(4).unwrap())).unwrap();
        let e = by.call((x.clone(), n.bind(4).unwrap())).err().unwrap().to_string();
        assert!(
            e.contains(
                "the value of a variable, or a size that depends on one, is read inside the \
             function"
            ),
            "read {i}: {e}"
        );
    }
    // A function that does not read it accepts any value. Layers do not read it.
    let net = picograd::nn::Linear::new(6, 2);
    let mut sum = Jit::new(|(x, n): (Tensor, SymInt)| {
        let part = x.i(..&n);
        assert_eq!((part.size(1), part.max_shape(), part.ndim()), (6, vec![8, 6], 2));
        Ok(no_grad(|| net.forward(&part)).sum(0) / &n)
    });
    for (i, v) in [4, 4, 4, 5, 6, 4, 8, 1].into_iter().enumerate() {
        let got = sum.call((x.clone(), n.bind(v).unwrap())).unwrap().to_vec::<f32>().unwrap();
        let expected = net.forward(&x.i(..v)).mean(0).to_vec::<f32>().unwrap();
        assert!(
            got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5),
            "call {i}: {got:?} {expected:?}"
        );
    }
    // A wrong argument is refused before anything runs.
    let wrong = Variable::new("n", 1, 7).unwrap().bind(2).unwrap();
    assert!(sum.call((x.clone(), wrong)).is_err() && sum.is_captured());
    sum.call((x.clone(), n.bind(2).unwrap())).unwrap();
    // One variable has one value per call, also if it is bound again inside the function.
    let mut anew = Jit::new(|(x, _): (Tensor, SymInt)| Ok(x.i(..n.bind(3)?).sum(0)));
    let e = anew.call((x.clone(), n.bind(2).unwrap())).err().unwrap().to_string();
    assert!(e.contains("the variable n is 2 and 3 in one call"), "{e}");
    let mut twice = Jit::new(|x: Tensor| {
        let a = x.i(..n.bind(2)?).sum(0).realize()?;
        Ok((a, x.i(..n.bind(5)?).sum(0)))
    });
    let e = twice.call(x.clone()).err().unwrap().to_string();
    assert!(e.contains("the variable n is 2 and 5 in one call"), "{e}");
    // A slice of a stored tensor runs no kernel, but is checked too.
    let turn = std::cell::Cell::new(1);
    let mut part = Jit::new(|x: Tensor| {
        turn.set(turn.get() + 1);
        Ok(x.i(..n.bind(turn.get())?))
    });
    part.call(x.clone()).unwrap();
    let e = part.call(x.clone()).err().unwrap().to_string();
    assert!(e.contains("the variable n was 2 in the previous call and is 3 now"), "{e}");
}

type Write<'a> = &'a dyn Fn(&Tensor) -> picograd::Result<()>;

#[test]
fn a_write_to_a_part_touches_nothing_else() {
    let _alone = alone();
    for device in picograd::testing::devices() {
        let x = data(&[16, 4, 6], device);
        let row = data(&[4, 6], device);
        let at = Variable::new("at", 0, 12).unwrap().bind(5).unwrap();
        let before = x.to_vec::<f32>().unwrap();
        let writes: [(Write, usize); 5] = [
            (&|x| x.set(3, &row), 24),
            (&|x| x.set(&at, &row), 24),
            (&|x| x.set((at.clone()..&at + 3, 1..3), 7.0), 36),
            (&|x| x.set((0..16, 2..), -1.0), 192),
            // A slice that is not contiguous is written whole.
            (&|x| x.set((picograd::tensor::step(.., 2), 0), 9.0), 384),
        ];
        for (i, (write, written)) in writes.into_iter().enumerate() {
            let c = data(&[16, 4, 6], device);
            let memory = storage(&c);
            write(&c).unwrap();
            let (bytes, kernels) = (device::counters().bytes, device::counters().kernels);
            c.realize().unwrap();
            assert_eq!(
                (storage(&c), device::counters().kernels - kernels),
                (memory, 1),
                "{device}: write {i} is in place"
            );
            // Reads are the row or a number; each written element counts once.
            let moved = (device::counters().bytes - bytes) / 4.0;
            assert!(
                moved <= (written + 24 + 1) as f64,
                "{device}: write {i} moves {moved} elements to write {written}"
            );
            let expected = {
                let mut all = before.clone();
                for (j, v) in all.iter_mut().enumerate() {
                    let (a, b, k) = (j / 24, j / 6 % 4, j % 6);
                    let r = row.to_vec::<f32>().unwrap()[b * 6 + k];
                    match i {
                        0 if a == 3 => *v = r,
                        1 if a == 5 => *v = r,
                        2 if (5..8).contains(&a) && (1..3).contains(&b) => *v = 7.0,
                        3 if b >= 2 => *v = -1.0,
                        4 if a % 2 == 0 && b == 0 => *v = 9.0,
                        _ => {}
                    }
                }
                all
            };
            assert_eq!(c.to_vec::<f32>().unwrap(), expected, "{device}: write {i}");
        }
    }
}

#[test]
fn replay_copies_a_shared_cache_before_writing() {
    let _alone = alone();
    for device in picograd::testing::devices() {
        let cache = data(&[6, 2], device);
        let at = Variable::new("at", 0, 5).unwrap();
        let mut expected = cache.to_vec::<f32>().unwrap();
        let mut step = Jit::new(|(row, at): (Tensor, SymInt)| {
            cache.set(&at, row)?;
            Ok(cache.sum(..))
        });
        for i in 0..6 {
            let old = (i >= 3 && i % 2 == 1).then(|| (cache.copy(), expected.clone()));
            expected[2 * i..2 * i + 2].fill(i as f32);
            let row = Tensor::full([2], i as f32).contiguous().to(device).realize().unwrap();
            let sum = step.call((row, at.bind(i as i64).unwrap())).unwrap().item::<f32>().unwrap();
            assert!((sum - expected.iter().sum::<f32>()).abs() < 1e-4, "{device}: step {i}");
            assert_eq!(cache.to_vec::<f32>().unwrap(), expected, "{device}: step {i}");
            if let Some((old, values)) = old {
                assert_eq!(
                    old.to_vec::<f32>().unwrap(),
                    values,
                    "{device}: the copy held since step {i}"
                );
            }
        }
        assert!(step.stats().unwrap().copies > 0);
    }
}

#[test]
fn rows_are_written_at_a_symbolic_offset() {
    let _alone = alone();
    for at in [0i64, 2, 5] {
        let x = data(&[8, 4], "CPU");
        let mut expected = x.to_vec::<f32>().unwrap();
        let start = Variable::new("start", 0, 5).unwrap().bind(at).unwrap();
        x.set(
            (start.clone()..&start + 3, 1..3),
            Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        )
        .unwrap();
        for i in 0..3 {
            for j in 0..2 {
                expected[(at as usize + i) * 4 + 1 + j] = (i * 2 + j + 1) as f32;
            }
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    }
}
