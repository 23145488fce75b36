//! Gradients do not depend on what was realized before, nor in which order.

use super::common::{far_from_largest, random_numbers};
use picograd::tensor::{Pool, Reduction, Scatter, keepdim};
use picograd::testing::{devices, is_slow};
use picograd::{Tensor, no_grad};

/// The number of seeds: `many`, or a few on devices that compile slowly.
fn seeds(many: u64) -> u64 {
    if devices().iter().any(|d| is_slow(d)) { many.min(6) } else { many }
}

fn param(seed: u64, shape: [usize; 2]) -> Tensor {
    Tensor::new(random_numbers(shape[0] * shape[1], seed)).reshape(shape).as_param()
}

fn close(got: &[f32], want: &[f32]) -> bool {
    got.len() == want.len() && far_from_largest(got, want, 1e-3).is_none()
}

/// The first and second gradient of a loss of `top` and `x`, the first realized before the second
/// is built or not.
fn first_and_second(top: &Tensor, x: &Tensor, realize: bool) -> [Vec<f32>; 2] {
    let first = (top * top * x).sum(..).gradient(&[x]).remove(0);
    if realize {
        first.realize().unwrap();
    }
    let second = (&first * &first).sum(..).gradient(&[x]).remove(0);
    [first, second].map(|g| g.to_vec::<f32>().unwrap())
}

/// Realizes a maximum together with a sibling, as printing both does, then differentiates it.
#[test]
fn gradient_of_max_ignores_a_realized_sibling() {
    let mut lost = Vec::new();
    for seed in 0..seeds(180) {
        let shape = [2 + seed as usize % 29, 1 + seed as usize % 23];
        let gradient = |realize: bool| {
            let x = param(seed, shape);
            let y = x.matmul(&param(seed + 1000, [shape[1], shape[1]]));
            let product = y.matmul(&y.t());
            let top = product.max(keepdim(1));
            let sibling = match seed % 3 {
                0 => y.copy(),
                1 => product.exp().sum(keepdim(1)),
                _ => (&product * 0.5 + &top).tanh(),
            };
            if realize {
                Tensor::realize_many(&[&top, &sibling]).unwrap();
            }
            top.sum(..).gradient(&[&x])[0].to_vec::<f32>().unwrap()
        };
        if !close(&gradient(true), &gradient(false)) {
            lost.push(seed);
        }
    }
    assert!(
        lost.is_empty(),
        "{} of 180 gradients depend on what was realized: {lost:?}",
        lost.len()
    );
}

/// Realizes the value of a maximum through a detached tensor, then differentiates the maximum
/// twice, with the first gradient realized in between.
#[test]
fn gradient_of_max_ignores_its_realized_detached_value() {
    let mut lost = Vec::new();
    for seed in 0..seeds(40) {
        let n = 4 + seed as usize % 9;
        for device in ["CPU", "INTERP"] {
            let gradients = |realize: bool| {
                let values = |seed: u64| {
                    Tensor::new(random_numbers(n * n, seed)).reshape([n, n]).to(device).contiguous()
                };
                let x = values(seed).as_param();
                let y = x.tanh().matmul(&values(seed + 1000));
                let top =
                    (y.matmul(&y.t()) / n as f64).max(keepdim(seed as isize % 2)).expand([n, n]);
                if realize {
                    top.detach().realize().unwrap();
                }
                first_and_second(&top, &x, realize)
            };
            let (got, want) = (gradients(true), gradients(false));
            if !got.iter().zip(&want).all(|(g, w)| close(g, w)) {
                lost.push((seed, device));
            }
        }
    }
    assert!(lost.is_empty(), "{} gradients depend on what was realized: {lost:?}", lost.len());
}

/// Realizes an extreme, and then separately the product that is its argument, on one device and
/// sharded over two. The product may round differently the second time; the gradient still goes to
/// the selected elements.
#[test]
fn extremes_realized_before_their_argument_keep_their_gradient() {
    let mut lost = Vec::new();
    for seed in 0..seeds(40) {
        let n = 4 + 2 * (seed as usize % 5);
        let sharded = seed % 2 == 1;
        let gradients = |realize: bool| {
            let values = |seed: u64, axis: Option<isize>| {
                let t = Tensor::new(random_numbers(n * n, seed)).reshape([n, n]).to("INTERP");
                let t = if sharded { t.shard(&["INTERP:1", "INTERP:2"], axis) } else { t };
                t.contiguous().realize().unwrap()
            };
            let (x, w) = (values(seed, Some(0)).as_param(), values(seed + 1000, None));
            let product = x.tanh().matmul(&w).matmul(&w.t()) / n as f64;
            let top = match seed / 2 % 4 {
                0 => product.max(keepdim(1)).expand([n, n]),
                1 => product.cummax(1).0,
                2 => product
                    .reshape([n, 1, 1, n])
                    .max_pool2d([1, 2], Pool::new().stride(1))
                    .reshape([n, n - 1])
                    .pad(&[(0, 0), (0, 1)]),
                _ => product.max_with_index(keepdim(1)).0.expand([n, n]),
            };
            if realize {
                top.realize().unwrap();
                product.realize().unwrap();
            }
            first_and_second(&top, &x, realize)
        };
        let (got, want) = (gradients(true), gradients(false));
        if !got.iter().zip(&want).all(|(g, w)| close(g, w)) {
            lost.push(seed);
        }
    }
    assert!(lost.is_empty(), "{} gradients depend on what was realized: {lost:?}", lost.len());
}

/// Indices of extremes point at the stored value, also if the extreme was computed earlier.
#[test]
fn indices_of_realized_extremes_point_at_their_values() {
    for seed in 0..seeds(40) {
        let n = 3 + seed as usize % 20;
        let x = param(seed, [n, n + 3]);
        let product = no_grad(|| x.matmul(&x.t()) + x.matmul(&x.t()).sum(keepdim(1)));
        let (best, places) = (product.max(keepdim(1)), product.argmax(keepdim(1)));
        let (running, records) = product.cummax(1);
        let (pooled, at) = product.reshape([1, 1, n, n]).max_pool2d_with_indices(2, Pool::new());
        Tensor::realize_many(&[&best, &running, &pooled]).unwrap();
        let close = |a: &Tensor, b: &Tensor| {
            close(&a.to_vec::<f32>().unwrap(), &b.to_vec::<f32>().unwrap())
        };
        assert!(close(&product.gather(1, &places), &best), "argmax, seed {seed}");
        assert!(close(&product.gather(1, &records), &running), "cummax, seed {seed}");
        let flat = product.reshape([n * n]).gather(0, &at.reshape([at.numel()]));
        assert!(
            close(&flat, &pooled.reshape([pooled.numel()])),
            "max_pool2d_with_indices, seed {seed}"
        );
    }
}

/// Both branches of a select read the same condition, so their gradients add up to the upstream
/// gradient.
#[test]
fn sides_of_a_choice_share_the_gradient() {
    for seed in 0..seeds(20) {
        let n = 3 + seed as usize % 20;
        let (x, w) = (param(seed, [n, n]), param(seed + 500, [n, n]));
        // The values are equal except for rounding, so two kernels could decide differently.
        let (a, b) = (x.matmul(&w), (w.t().matmul(&x.t())).t());
        let (p, q) = (param(seed + 1, [n, n]), param(seed + 2, [n, n]));
        let adds_up = |y: Tensor, what: &str, p: &Tensor, q: &Tensor| {
            let g = y.sum(..).gradient(&[p, q]);
            let [of_p, of_q] = [&g[0], &g[1]].map(|g| g.to_vec::<f32>().unwrap());
            let sum: Vec<f32> = of_p.iter().zip(of_q).map(|(p, q)| p + q).collect();
            assert!(sum.iter().all(|s| *s == 1.0), "{what}, seed {seed}: {sum:?}");
        };
        adds_up(a.lt(&b).where_(&p, &q), "where", &p, &q);
        let (p, q) = (&p * 0.0 + &a, &q * 0.0 + &b);
        adds_up(p.maximum(&q), "maximum", &p, &q);
    }
}

#[test]
fn gradient_of_a_nan_extreme_is_nan() {
    let x = Tensor::new([[1.0f32, f32::NAN, 2.0], [3.0, 3.0, 1.0]]).as_param();
    let g = x.max(1).sum(..).gradient(&[&x])[0].to_vec::<f32>().unwrap();
    assert!(g[..3].iter().all(|g| g.is_nan()), "{g:?}");
    assert_eq!(g[3..], [0.5, 0.5, 0.0]);
    let (base, x) =
        (Tensor::zeros([3]).as_param(), Tensor::new([1.0f32, f32::NAN, 2.0, 2.0]).as_param());
    let y = base.scatter_reduce(0, &Tensor::new([0, 0, 1, 1]), &x, Scatter::Amax, true).sum(..);
    let g = y.gradient(&[&base, &x]).iter().map(|g| g.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
    assert!(g[0][0].is_nan() && g[1][..2].iter().all(|g| g.is_nan()), "{g:?}");
    assert_eq!((&g[0][1..], &g[1][2..]), (&[0.0, 1.0][..], &[0.5, 0.5][..]));
}

/// A product over many elements has a first and a second gradient.
#[test]
fn long_products_have_first_and_second_gradients() {
    for n in [5_000usize, 70_000] {
        let mut values = vec![1.0f32; n];
        (values[3], values[n - 1]) = (2.0, 0.5);
        let x = Tensor::new(values.clone()).as_param();
        let g = x.prod(..).gradient(&[&x]).remove(0);
        assert_eq!(
            g.to_vec::<f32>().unwrap(),
            values.iter().map(|v| 1.0 / v).collect::<Vec<f32>>()
        );
    }
    let x = Tensor::new(vec![1.0f32; 5_000]).as_param();
    let g = x.prod(..).gradient(&[&x]).remove(0);
    let second = g.i(7).gradient(&[&x])[0].to_vec::<f32>().unwrap();
    assert!(second.iter().enumerate().all(|(i, v)| *v == if i == 7 { 0.0 } else { 1.0 }));
}

/// Realizing a differentiable maximum stores its argument, and nothing else that the gradient does
/// not need.
#[test]
fn the_argument_of_max_is_computed_once() {
    let x = param(1, [8, 8]);
    let product = x.matmul(&x.t());
    let top = product.max(keepdim(1));
    top.realize().unwrap();
    // Reading and differentiating start from the stored value.
    assert_eq!(product.schedule().unwrap().len(), 0);
    let cut = param(2, [8, 8]);
    let product = no_grad(|| cut.matmul(&cut.t()));
    product.max(keepdim(1)).realize().unwrap();
    assert_eq!(product.schedule().unwrap().len(), 1);
}

/// A function with a kink, and its derivative as a function of the result.
struct Kink {
    name: &'static str,
    call: fn(&Tensor) -> Tensor,
    derivative: fn(f32) -> Option<f32>,
}

fn no_rule(_: f32) -> Option<f32> {
    None
}

fn step(y: f32) -> Option<f32> {
    Some((y > 0.0) as u8 as f32)
}

fn sign_of(y: f32, slope: f32) -> Option<f32> {
    Some(if y > 0.0 { 1.0 } else { slope })
}

const KINKS: &[Kink] = &[
    Kink { name: "relu", call: |z| z.relu(), derivative: step },
    Kink { name: "leaky_relu", call: |z| z.leaky_relu(0.25), derivative: |y| sign_of(y, 0.25) },
    Kink { name: "clamp", call: |z| z.clamp(0.0, 1.0), derivative: step },
    Kink { name: "relu6", call: |z| z.relu6(), derivative: step },
    Kink { name: "maximum", call: |z| z.maximum(0.0), derivative: |y| (y > 0.0).then_some(1.0) },
    Kink { name: "minimum", call: |z| z.minimum(0.0), derivative: |y| (y < 0.0).then_some(1.0) },
    Kink { name: "abs", call: |z| z.abs(), derivative: no_rule },
    Kink {
        name: "hardtanh",
        call: |z| (z + 1.0).hardtanh(),
        derivative: |y| Some((y < 1.0) as u8 as f32),
    },
    Kink {
        name: "where",
        call: |z| z.lt(0.0).where_(z * 3.0, z),
        derivative: |y| Some(if y < 0.0 { 3.0 } else { 1.0 }),
    },
    Kink { name: "masked_fill", call: |z| z.masked_fill(&z.lt(0.0), 0.0), derivative: no_rule },
    Kink { name: "prelu", call: |z| z.gt(0.0).where_(z, z * 0.5), derivative: |y| sign_of(y, 0.5) },
    Kink {
        name: "huber_loss",
        call: |z| (z + 1.0).huber_loss(&Tensor::zeros(z.shape()), 1.0, Reduction::None),
        derivative: no_rule,
    },
    Kink {
        name: "smooth_l1_loss",
        call: |z| (z + 1.0).smooth_l1_loss(&Tensor::zeros(z.shape()), 1.0, Reduction::None),
        derivative: no_rule,
    },
    Kink {
        name: "l1_loss",
        call: |z| z.l1_loss(&Tensor::zeros(z.shape()), Reduction::None),
        derivative: no_rule,
    },
    Kink { name: "softshrink", call: |z| (z + 0.5).softshrink(0.5), derivative: step },
    Kink {
        name: "hinge",
        call: |z| z.hinge_embedding_loss(&Tensor::full(z.shape(), -1.0f32), 0.0, Reduction::None),
        derivative: no_rule,
    },
    Kink { name: "sign", call: |z| z.sign() * z, derivative: no_rule },
    Kink {
        name: "max.pair",
        call: |z| Tensor::stack(&[z.clone(), z * -1.0], 0).max(0),
        derivative: no_rule,
    },
];

/// The argument of each kink is rounding noise, which differs between kernels. Gradients that exist
/// together take the same side.
#[test]
fn kinks_are_decided_once() {
    let mut checked = 0;
    for (at, kink) in KINKS.iter().enumerate() {
        // A device that compiles slowly runs one order for each.
        let one = at as u64 % 4..at as u64 % 4 + 1;
        for seed in if seeds(12) < 12 { one } else { 0..12 } {
            let n = 3 + (seed as usize * 5 + at) % 29;
            let product = |a: &Tensor, b: &Tensor| {
                let y = a.matmul(b);
                (y.matmul(&y.t()), y)
            };
            let make =
                || (param(seed, [n, 1 + n % 23]), param(seed + 300, [1 + n % 23, 1 + n % 23]));
            let (a, b) = make();
            // The value as rounded by a kernel of its own.
            let usual = no_grad(|| product(&make().0, &make().1).0.to_vec::<f32>().unwrap());
            let (product, y) = product(&a, &b);
            let noise = &product - Tensor::new(usual).reshape([n, n]);
            let (p, q) = (Tensor::zeros([n, n]).as_param(), Tensor::zeros([n, n]).as_param());
            let z = &noise + &p + &q;
            let (before, y) = (y, (kink.call)(&z));
            let loss = y.sum(..);
            let sibling = match seed % 3 {
                0 => before.copy(),
                1 => product.exp().sum(keepdim(1)),
                _ => (&product * 0.5 + &y).tanh(),
            };
            match seed % 4 {
                0 => drop(y.realize().unwrap()),
                1 => Tensor::realize_many(&[&y, &sibling]).unwrap(),
                2 => Tensor::realize_many(&[&loss, &sibling]).unwrap(),
                _ => {}
            }
            let g = loss.gradient(&[&p, &q, &a]);
            let first = g[0].to_vec::<f32>().unwrap();
            if seed % 3 == 0 {
                Tensor::realize_many(&[&g[2], &sibling]).unwrap();
            }
            let second = (&g[1] * 1.0).to_vec::<f32>().unwrap();
            assert_eq!(
                first, second,
                "{}, seed {seed}: the gradients of two equal parts",
                kink.name
            );
            // Requested again, when its intermediates may be freed.
            drop(g);
            if seed % 4 < 3 {
                let again = loss.gradient(&[&q])[0].to_vec::<f32>().unwrap();
                assert_eq!(
                    first, again,
                    "{}, seed {seed}: the second request of the gradient",
                    kink.name
                );
                let results = y.to_vec::<f32>().unwrap();
                for (i, (&got, &y)) in first.iter().zip(&results).enumerate() {
                    if let Some(want) = (kink.derivative)(y)
                        && seed % 4 < 2
                    {
                        assert_eq!(
                            got, want,
                            "{}, seed {seed}: element {i}, whose result is {y:e}",
                            kink.name
                        );
                        checked += 1;
                    }
                }
            }
        }
    }
    println!("{checked} derivatives");
    assert!(checked > 400, "{checked}");
}
