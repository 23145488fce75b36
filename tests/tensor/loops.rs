//! `Tensor::scan` against the unrolled computation: values, first and second gradients, and errors.

use super::common::{as_f64, assert_close};
use picograd::ir::{Op, UOp, toposort};
use picograd::tensor::{Scanned, keepdim};
use picograd::{DType, Result, Tensor};

fn noise(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + seed * 104_729 + 13) % 1009) as f64 / 504.5 - 1.0;
    Tensor::from_vec((0..n).map(value).collect::<Vec<f64>>(), shape).realize().unwrap()
}

#[track_caller]
fn same(x: &Tensor, y: &Tensor) {
    assert_eq!((x.shape(), x.dtype()), (y.shape(), y.dtype()));
    assert_close("the loop", &as_f64(x), &as_f64(y), 1e-10);
}

type Run<'a> = dyn Fn(&[Tensor], &[Tensor]) -> Result<Scanned> + 'a;

/// The unrolled loop, which stores carries between iterations as a loop does.
fn unrolled(carry: &[&Tensor], xs: &[&Tensor], body: &Run<'_>) -> Scanned {
    let (mut now, mut runs) = (carry.iter().map(|t| t.copy()).collect::<Vec<_>>(), Vec::new());
    for t in 0..xs[0].size(0) {
        let (after, kept) = body(&now, &xs.iter().map(|x| x.i(t)).collect::<Vec<_>>()).unwrap();
        now = after;
        runs.push(kept);
    }
    let stack = |i: usize| Tensor::stack(&runs.iter().map(|r| r[i].clone()).collect::<Vec<_>>(), 0);
    (now, (0..runs[0].len()).map(stack).collect())
}

type Body = dyn Fn(&[Tensor], &[Tensor], &[Tensor]) -> Result<Scanned>;

/// Compares a scan with its unrolled form: values, and gradients of initial carries, elements and
/// captured tensors.
#[track_caller]
fn agrees(carry: &[&[usize]], xs: &[&[usize]], inside: &[&[usize]], body: &Body) {
    let make = |shapes: &[&[usize]], from: usize| -> Vec<Tensor> {
        shapes.iter().enumerate().map(|(i, s)| noise(s, from + i).as_param()).collect()
    };
    let (carry, xs, inside) = (make(carry, 0), make(xs, 10), make(inside, 20));
    let refs = |list: &[Tensor]| -> Vec<Tensor> { list.to_vec() };
    let (c, x) = (refs(&carry), refs(&xs));
    let (c, x): (Vec<&Tensor>, Vec<&Tensor>) = (c.iter().collect(), x.iter().collect());
    let one = |carry: &[Tensor], x: &[Tensor]| body(carry, x, &inside);
    let (looped, plain) = (Tensor::scan(&c, &x, one).unwrap(), unrolled(&c, &x, &one));
    for (a, b) in looped.0.iter().chain(&looped.1).zip(plain.0.iter().chain(&plain.1)) {
        same(a, b);
    }
    let loss = |s: &Scanned| {
        let terms = s.0.iter().chain(&s.1).filter(|t| t.is_floating_point()).enumerate();
        let of_loop = terms.map(|(i, t)| (t.square() * (i as f64 + 1.0)).sum(..) + t.sin().sum(..));
        // Some inputs may be unused.
        let of_inputs = carry.iter().chain(&xs).chain(&inside).map(|t| t.square().sum(..) * 0.1);
        of_loop.chain(of_inputs).reduce(|a, b| a + b).unwrap()
    };
    let targets: Vec<&Tensor> = carry.iter().chain(&xs).chain(&inside).collect();
    let (first, expected) = (loss(&looped).gradient(&targets), loss(&plain).gradient(&targets));
    for (a, b) in first.iter().zip(&expected) {
        same(a, b);
    }
    // The second gradient: that of a weighted sum of all gradients.
    let again = |g: &[Tensor]| {
        g.iter()
            .enumerate()
            .map(|(i, t)| (t.square() * (0.5 + i as f64)).sum(..))
            .reduce(|a, b| a + b)
            .unwrap()
    };
    let (second, expected) =
        (again(&first).gradient(&targets), again(&expected).gradient(&targets));
    for (a, b) in second.iter().zip(&expected) {
        same(a, b);
    }
}

#[test]
fn scan_matches_its_unrolled_form() {
    // A recurrent network.
    agrees(&[&[2, 3]], &[&[4, 2, 3]], &[&[3, 3], &[3]], &|c, x, w| {
        let h = (c[0].matmul(&w[0]) + &x[0] + &w[1]).tanh();
        Ok((vec![h.clone()], vec![h]))
    });
    // Two carries, one of them not an output, and an element that is used twice.
    agrees(&[&[3], &[2]], &[&[5, 3], &[5, 2]], &[&[2, 3]], &|c, x, w| {
        let a = &c[0] * 0.5 + c[1].matmul(&w[0]) * &x[0];
        let b = (&c[1] + &x[1]).sin() * a.sum(..);
        Ok((vec![a, b.clone()], vec![&b * &x[1], x[0].sum(0)]))
    });
    // Carries that are swapped, and a constant carry.
    agrees(&[&[2], &[2], &[2]], &[&[3, 2]], &[], &|c, x, _| {
        Ok((vec![c[1].clone(), &c[0] * &x[0], c[2].clone()], vec![c[2].clone()]))
    });
    // A single iteration.
    agrees(&[&[2]], &[&[1, 2]], &[&[2]], &|c, x, w| {
        Ok((vec![&c[0] * &x[0] * &w[0]], vec![c[0].exp()]))
    });
    // Rank 0, an unused carry, and an output that does not depend on the iteration.
    agrees(&[&[], &[3]], &[&[4]], &[&[]], &|c, x, w| {
        Ok((
            vec![&c[0] * &w[0] + &x[0], &c[1] * 2.0],
            vec![w[0].square(), Tensor::ones([2]).cast(DType::F64)],
        ))
    });
}

#[test]
fn nested_scans_match_their_unrolled_form() {
    agrees(&[&[2]], &[&[3, 4, 2]], &[&[2, 2]], &|c, x, w| {
        let (last, all) = Tensor::scan(&[&c[0]], &[&x[0]], |c, x| {
            let h = (c[0].matmul(&w[0]) + &x[0]).tanh();
            Ok((vec![h.clone()], vec![h]))
        })?;
        Ok((vec![&last[0] * 0.5], vec![all[0].sum(0)]))
    });
}

#[test]
fn detach_stops_gradients_inside_calls() {
    let (x, w) = (noise(&[3, 2], 1).as_param(), noise(&[2], 2).as_param());
    let body = |c: &[Tensor], x: &[Tensor]| {
        let h = c[0].detach() * &w + &x[0] * c[0].square().detach();
        Ok((vec![h.clone()], vec![h]))
    };
    let first = noise(&[2], 3).as_param();
    let (a, b) = (Tensor::scan(&[&first], &[&x], body).unwrap(), unrolled(&[&first], &[&x], &body));
    let gradients = |s: &Scanned| s.1[0].square().sum(..).gradient(&[&x, &w]);
    for (a, b) in gradients(&a).iter().zip(gradients(&b)) {
        same(a, &b);
    }
    assert!(
        a.1[0]
            .sum(..)
            .try_gradient(&[&first])
            .map(|g| g[0].abs().sum(..).item::<f64>().unwrap())
            .unwrap_or(0.0)
            == 0.0
    );
}

fn nodes(t: &Tensor) -> usize {
    fn all(roots: &[UOp]) -> usize {
        let order = toposort(roots);
        let bodies = order.iter().filter_map(|u| {
            if let picograd::ir::Arg::Loop(l) = u.arg() { Some(all(l.body.src())) } else { None }
        });
        order.len() + bodies.sum::<usize>()
    }
    all(&[t.uop()])
}

#[test]
fn scan_graphs_do_not_grow_with_length() {
    let of = |n: usize| {
        let (w, x) = (noise(&[3, 3], 1).as_param(), noise(&[n, 3], 2));
        let (last, all) = Tensor::scan(&[&noise(&[3], 3)], &[&x], |c, x| {
            let h = (c[0].matmul(&w) + &x[0]).tanh();
            Ok((vec![h.clone()], vec![h]))
        })
        .unwrap();
        let loss = last[0].sum(..) + all[0].square().sum(..);
        let g = loss.gradient(&[&w]).remove(0);
        assert!(toposort([&g.uop()]).iter().any(|u| u.op() == Op::Loop));
        (nodes(&loss), nodes(&g))
    };
    assert_eq!(of(4), of(1000));
}

#[test]
fn scans_carry_integers_and_narrow_floats() {
    let x = Tensor::arange(0, 6, 1);
    let (last, all) = Tensor::scan(
        &[&Tensor::new(1i32), &Tensor::new([1.0f32, 2.0]).cast(DType::F16)],
        &[&x],
        |c, x| {
            let n = &c[0] * 2 + &x[0];
            Ok((vec![n.clone(), &c[1] + x[0].cast(DType::F16)], vec![n.gt(20), c[1].sum(0)]))
        },
    )
    .unwrap();
    assert_eq!(last[0].item::<i32>().unwrap(), 121);
    assert_eq!(last[1].float().to_vec::<f32>().unwrap(), [16.0, 17.0]);
    assert_eq!(all[0].to_vec::<bool>().unwrap(), [false, false, false, true, true, true]);
    assert_eq!(all[1].float().to_vec::<f32>().unwrap(), [3.0, 3.0, 5.0, 9.0, 15.0, 23.0]);
}

#[test]
fn scans_accept_empty_loops_and_values() {
    let step = |c: &[Tensor], x: &[Tensor]| Ok((vec![&c[0] + x[0].sum(0)], vec![x[0].clone()]));
    let first = Tensor::new([5.0f32, 6.0]);
    let (last, all) = Tensor::scan(&[&first], &[&Tensor::zeros([0, 3, 2])], step).unwrap();
    assert_eq!((last[0].to_vec::<f32>().unwrap(), all[0].shape()), (vec![5.0, 6.0], vec![0, 3, 2]));
    let (last, all) = Tensor::scan(&[&first], &[&Tensor::zeros([4, 0, 2])], step).unwrap();
    assert_eq!((last[0].to_vec::<f32>().unwrap(), all[0].shape()), (vec![5.0, 6.0], vec![4, 0, 2]));
}

#[test]
fn misuse_errors_name_the_fix() {
    let (c, x) = (Tensor::zeros([2]), Tensor::zeros([3, 2]));
    let e = |r: Result<Scanned>| r.err().unwrap().to_string();
    assert_eq!(
        e(Tensor::scan(&[&c], &[], |c, _| Ok((c.to_vec(), vec![])))),
        "scan: expected a tensor to loop over, got none; for n iterations give Tensor::arange(0, \
         n, 1)"
    );
    assert_eq!(
        e(Tensor::scan(&[&c], &[&Tensor::zeros(())], |c, _| Ok((c.to_vec(), vec![])))),
        "scan: tensor 0 to loop over has no axis"
    );
    assert_eq!(
        e(Tensor::scan(&[&c], &[&x, &c], |c, _| Ok((c.to_vec(), vec![])))),
        "scan: the first axes of [3, 2] and [2] differ"
    );
    assert_eq!(
        e(Tensor::scan(&[&c], &[&x], |_, _| Ok((vec![], vec![])))),
        "scan: expected 1 carries from the body, got 0"
    );
    assert_eq!(
        e(Tensor::scan(&[&c], &[&x], |c, _| Ok((vec![c[0].sum(0)], vec![])))),
        "scan: expected carry 0 of shape [2] from the body, got []"
    );
    assert_eq!(
        e(Tensor::scan(&[&c], &[&x], |c, _| Ok((vec![c[0].cast(DType::I32)], vec![])))),
        "scan: expected carry 0 of f32 from the body, got i32; cast it to f32"
    );
    let read =
        Tensor::scan(&[&c], &[&x], |c, _| c[0].sum(..).item::<f32>().map(|_| (c.to_vec(), vec![])));
    assert!(e(read).contains("has no value"), "what is read inside");
}

#[test]
fn scan_matches_the_reference_on_every_device() {
    let (w, xs, first) =
        (noise(&[3, 3], 1).float(), noise(&[5, 2, 3], 2).float(), noise(&[2, 3], 3).float());
    Tensor::realize_many(&[&w, &xs, &first]).unwrap();
    let on = |device: &str| {
        let (w, xs, first) = (w.to(device).as_param(), xs.to(device), first.to(device));
        let (last, all) = Tensor::scan(&[&first], &[&xs], |c, x| {
            let h = (c[0].matmul(&w) + &x[0]).tanh();
            Ok((vec![h.clone()], vec![h]))
        })
        .unwrap();
        let loss = last[0].sum(..) + all[0].square().sum(..);
        vec![last[0].copy(), all[0].copy(), loss.gradient(&[&w]).remove(0)]
    };
    let read =
        |s: &picograd::ir::StorageRef| picograd::compiler::device::Buffer::of(s).read().unwrap();
    let nodes: Vec<UOp> = on("CPU").iter().map(Tensor::uop).collect();
    let expected: Vec<Vec<f32>> =
        picograd::reference::evaluate(&nodes, &read).iter().map(|v| v.to_vec()).collect();
    for device in ["CPU", "INTERP", "CPU:CLANG", "CL"] {
        if picograd::Device::get(device).is_err() {
            continue;
        }
        for (t, e) in on(device).iter().zip(&expected) {
            for (a, b) in t.to_vec::<f32>().unwrap().iter().zip(e) {
                assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{device}: {a} and {b}");
            }
        }
    }
}

#[test]
fn captured_scans_read_their_arguments() {
    let w = (noise(&[3, 3], 1).float() * 0.5).realize().unwrap().as_param();
    let run = |first: &Tensor, xs: &Tensor| -> Result<(Tensor, Tensor)> {
        let (last, all) = Tensor::scan(&[first], &[xs], |c, x| {
            let h = (c[0].matmul(&w) + &x[0]).tanh();
            Ok((vec![h.clone()], vec![&h * 2.0]))
        })?;
        let g = (last[0].sum(..) + all[0].square().sum(..)).gradient(&[&w]).remove(0);
        Tensor::realize_many(&[&last[0], &g])?;
        Ok((last[0].copy(), g))
    };
    let mut captured = picograd::Jit::new(|(first, xs): (Tensor, Tensor)| run(&first, &xs));
    for i in 0..5 {
        let (first, xs) = (
            noise(&[2, 3], i).float().realize().unwrap(),
            noise(&[7, 2, 3], 10 + i).float().realize().unwrap(),
        );
        let (a, b) = (captured.call((first.copy(), xs.copy())).unwrap(), run(&first, &xs).unwrap());
        assert_eq!(a.0.to_vec::<f32>().unwrap(), b.0.to_vec::<f32>().unwrap());
        assert_eq!(a.1.to_vec::<f32>().unwrap(), b.1.to_vec::<f32>().unwrap());
    }
}

#[test]
fn sharded_scans_are_unrolled() {
    let devices = ["CPU", "CPU:1", "CPU:2"];
    for (first, along) in [(Some(0), Some(1)), (None, Some(1)), (Some(1), None), (None, Some(0))] {
        let run = |shard: bool| {
            let place = |t: Tensor, axis: Option<isize>| {
                if shard { t.shard(&devices, axis) } else { t }.as_param()
            };
            let (carry, xs) = (place(noise(&[4, 3], 1), first), place(noise(&[5, 4, 3], 2), along));
            let (last, all) = Tensor::scan(&[&carry], &[&xs], |c, x| {
                let h = (&c[0] * 0.5 + &x[0]).tanh();
                Ok((vec![h.clone()], vec![h.sum(0)]))
            })
            .unwrap();
            let loss = last[0].square().sum(..) + all[0].sin().sum(..);
            let nodes = toposort(&[last[0].uop()]).iter().filter(|u| u.op() == Op::Loop).count();
            let mut found = loss.gradient(&[&carry, &xs]);
            found.extend([last[0].copy(), all[0].copy()]);
            (nodes, found.iter().map(|t| t.to("CPU")).collect::<Vec<_>>())
        };
        let ((looped, plain), (written, sharded)) = (run(false), run(true));
        assert_eq!((looped, written), (1, 0));
        for (a, b) in sharded.iter().zip(&plain) {
            same(a, b);
        }
    }
}

#[test]
fn scans_of_symbolic_sizes_are_unrolled() {
    let (carry, xs) = (noise(&[6, 2], 1), noise(&[4, 6, 2], 2));
    let run = |carry: &Tensor, xs: &Tensor| {
        let (last, all) = Tensor::scan(&[carry], &[xs], |c, x| {
            let h = &c[0] * 0.5 + &x[0];
            Ok((vec![h.clone()], vec![h.sum(0)]))
        })
        .unwrap();
        (last[0].clone(), all[0].clone())
    };
    for n in [1, 4, 6] {
        let rows = picograd::Variable::new("rows", 1, 6).unwrap().bind(n).unwrap();
        let (last, all) = run(&carry.i(..&rows), &xs.transpose(0, 1).i(..&rows).transpose(0, 1));
        let cut = (carry.i(..n as usize), xs.transpose(0, 1).i(..n as usize).transpose(0, 1));
        let (plain, plain_all) = run(&cut.0, &cut.1);
        assert!(!toposort(&[last.uop()]).iter().any(|u| u.op() == Op::Loop));
        same(&last.sum(0), &plain.sum(0));
        same(&all, &plain_all);
    }
    // A variable that is not a size is an operand of the loop like any other value.
    let by = picograd::Variable::new("by", 0, 9).unwrap().bind(3).unwrap();
    let (last, _) = Tensor::scan(&[&carry], &[&xs], |c, x| {
        Ok((vec![&c[0] * Tensor::from(&by) + &x[0]], vec![]))
    })
    .unwrap();
    let (plain, _) =
        Tensor::scan(&[&carry], &[&xs], |c, x| Ok((vec![&c[0] * 3.0 + &x[0]], vec![]))).unwrap();
    assert!(toposort(&[last[0].uop()]).iter().any(|u| u.op() == Op::Loop));
    same(&last[0], &plain[0]);
}

/// A value of a shape, computed from others by a few random ops.
fn random_value(have: &[Tensor], shape: &[usize], next: &mut impl FnMut(usize) -> usize) -> Tensor {
    let as_shape = |t: &Tensor, next: &mut dyn FnMut(usize) -> usize| -> Tensor {
        if t.shape() == shape {
            return t.clone();
        }
        let one = match next(3) {
            0 => t.sum(..),
            1 => t.max(..),
            _ => t.flatten(0, -1).i(next(t.numel())),
        };
        one.expand(shape)
    };
    let mut value = as_shape(&have[next(have.len())], next);
    for _ in 0..1 + next(4) {
        let other = as_shape(&have[next(have.len())], next);
        value = match next(9) {
            0 => &value + &other,
            1 => &value * &other,
            2 => value.sin(),
            3 => value.tanh() - &other,
            4 => value.gt(&other).where_(&value, &other * 0.5),
            5 if !shape.is_empty() => value.flip(-1),
            6 if shape.len() == 2 => value.sum(keepdim(-1)) * 0.3 + &other,
            7 if shape.len() == 2 && shape[0] == shape[1] => value.matmul(&other).tanh(),
            8 if !shape.is_empty() => value.contiguous().roll(1, -1),
            _ => &value * 0.7,
        };
    }
    value
}

/// Random bodies: carries and elements of several shapes, some of them outputs, some unused.
#[test]
fn random_scans_match_their_unrolled_form() {
    const SHAPES: [&[usize]; 4] = [&[], &[3], &[2, 3], &[3, 3]];
    for seed in 0..32u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let mut shapes = |most: usize| -> Vec<&[usize]> {
            (0..1 + next(most)).map(|_| SHAPES[next(4)]).collect()
        };
        let (carry, elements, inside) = (shapes(3), shapes(2), shapes(2));
        let count = 1 + next(5);
        let stacks: Vec<Vec<usize>> = elements.iter().map(|s| [&[count], *s].concat()).collect();
        let stacks: Vec<&[usize]> = stacks.iter().map(|s| &s[..]).collect();
        let (kept, choice) = (next(3), next(1 << 30) as u64);
        let of_carry = carry.clone();
        agrees(&carry, &stacks, &inside, &move |c, x, w| {
            // The choices are the same each time that the body is traced.
            let mut state = choice | 1;
            let mut next = |n: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % n
            };
            let have = [c, x, w].concat();
            let after: Vec<Tensor> =
                of_carry.iter().map(|s| random_value(&have, s, &mut next)).collect();
            let have = [&have[..], &after].concat();
            let kept = (0..kept).map(|_| random_value(&have, SHAPES[next(4)], &mut next)).collect();
            Ok((after, kept))
        });
    }
}
