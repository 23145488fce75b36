//! One small kernel of every kind on the devices under test, against the reference evaluator. It
//! runs in seconds, so that it can run under a memory or race checker: `DEV=CUDA compute-sanitizer
//! --tool racecheck ./kernel_kinds`.

mod common;

use picograd::compile::{OptPolicy, with_opt_policy};
use picograd::dtype::{Const, DType};
use picograd::opt::Kernel;
use picograd::target::Target;
use picograd::tensor::{Attention, Conv};
use picograd::testing::lacks;
use picograd::{Device, Tensor, heuristic, opt};
use std::cell::Cell;
use std::rc::Rc;

/// A kind of kernel: the Opts that produce it, or none for those of the heuristic, and the tensors
/// that it computes.
struct Kind {
    name: &'static str,
    opts: &'static str,
    make: fn(&str) -> Vec<Tensor>,
}

/// The value of `opts` for a kernel without Opts; the empty string is the heuristic.
const PLAIN: &str = "none";

/// Whole numbers from -4 to 4.
fn whole(shape: &[usize], seed: usize, dtype: DType, device: &str) -> Tensor {
    stored(shape, dtype, device, |i| ((i * 7 + i / 13 * 5 + seed * 3 + i * i % 11) % 9) as i64 - 4)
}

/// Whole numbers that increase from row to row, so that the extremes of rows increase too.
fn rows(shape: &[usize], dtype: DType, device: &str) -> Tensor {
    let row = shape[shape.len() - 1];
    stored(shape, dtype, device, |i| (i % row * 5 % 7 + i / row * 10) as i64)
}

fn stored(shape: &[usize], dtype: DType, device: &str, value: impl Fn(usize) -> i64) -> Tensor {
    let of = |i: usize| {
        if dtype.is_float() { Const::Float(value(i) as f64) } else { Const::Int(value(i)) }
    };
    let values: Vec<Const> = (0..shape.iter().product()).map(of).collect();
    common::stored(&values, dtype, shape, device)
}

/// Fractions between -1 and 1.
fn fractions(shape: &[usize], seed: usize, device: &str) -> Tensor {
    let value = |i: usize| ((i * 37 + i / 7 * 11 + seed * 17) % 101) as f64 / 51.0 - 0.99;
    let values: Vec<Const> = (0..shape.iter().product())
        .map(|i| Const::Float(value(i)).normalize(DType::F32.scalar()))
        .collect();
    common::stored(&values, DType::F32, shape, device)
}

/// Indices from 0 to `most - 1`.
fn places(shape: &[usize], most: usize, dtype: DType, device: &str) -> Tensor {
    let values: Vec<Const> =
        (0..shape.iter().product()).map(|i| Const::Int(((i * 5 + i / 3) % most) as i64)).collect();
    common::stored(&values, dtype, shape, device)
}

fn f32s(shape: &[usize], seed: usize, device: &str) -> Tensor {
    whole(shape, seed, DType::F32, device)
}

fn product(dtype: DType, [m, k, n]: [usize; 3], d: &str) -> Vec<Tensor> {
    vec![whole(&[m, k], 1, dtype, d).matmul(&whole(&[k, n], 2, dtype, d))]
}

/// The gradients of a weighted sum of the function's result; the weights make them differ.
fn gradients(f: impl Fn(&[Tensor]) -> Tensor, inputs: &[Tensor], d: &str) -> Vec<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(Tensor::as_param).collect();
    let value = f(&inputs);
    let weight = fractions(&value.shape(), 9, d);
    (value * weight).sum(..).gradient(&inputs.iter().collect::<Vec<_>>())
}

const KINDS: &[Kind] = &[
    Kind {
        name: "elementwise, vectors",
        opts: "",
        make: |d| vec![(f32s(&[64, 64], 1, d) * f32s(&[64, 64], 2, d) + 1.5).relu()],
    },
    Kind {
        name: "elementwise, scalars",
        opts: PLAIN,
        make: |d| vec![f32s(&[1003], 1, d) * f32s(&[1003], 2, d) + 1.5],
    },
    Kind {
        name: "elementwise, an odd size",
        opts: "",
        make: |d| vec![f32s(&[3, 1003], 1, d) + 0.5],
    },
    Kind {
        name: "functions",
        opts: "",
        make: |d| vec![fractions(&[17, 16], 1, d).exp(), fractions(&[17, 16], 2, d).gelu()],
    },
    Kind {
        name: "small dtypes",
        opts: "",
        make: |d| {
            [DType::I8, DType::U16, DType::BOOL, DType::BF16]
                .map(|t| whole(&[5, 24], 3, DType::I32, d).cast(t).contiguous())
                .to_vec()
        },
    },
    Kind {
        name: "masked",
        opts: "",
        make: |d| vec![f32s(&[9, 13], 1, d).pad(&[(1, 2), (3, 0)]) + f32s(&[12, 16], 2, d)],
    },
    Kind {
        name: "padded axes",
        opts: "PADTO:0:16 UPCAST:0:4",
        make: |d| vec![f32s(&[13], 1, d) * 2.0],
    },
    Kind { name: "a transpose", opts: "", make: |d| vec![f32s(&[64, 96], 1, d).t().contiguous()] },
    Kind {
        name: "a transpose of small elements",
        opts: "",
        make: |d| vec![whole(&[32, 48], 1, DType::I8, d).t().contiguous()],
    },
    Kind {
        name: "a sum of rows, by the heuristic",
        opts: "",
        make: |d| vec![f32s(&[4, 4096], 1, d).sum(1)],
    },
    Kind {
        name: "a sum of columns, by the heuristic",
        opts: "",
        make: |d| vec![f32s(&[512, 64], 1, d).sum(0)],
    },
    Kind { name: "a full sum", opts: "", make: |d| vec![f32s(&[70, 1000], 1, d).sum(..)] },
    Kind {
        name: "a group through shared memory",
        opts: "GROUP:1:24",
        make: |d| vec![f32s(&[4, 96], 1, d).sum(1)],
    },
    Kind {
        name: "a group in rounds",
        opts: "GROUP:1:192",
        make: |d| vec![rows(&[4, 384], DType::F32, d).max(1)],
    },
    Kind {
        name: "a group of one warp",
        opts: "GROUP:1:32",
        make: |d| vec![f32s(&[4, 96], 1, d).sum(1)],
    },
    Kind {
        name: "a group that is part of a warp",
        opts: "LOCAL:0:4 GROUP:2:8",
        make: |d| vec![rows(&[8, 24], DType::F32, d).max(1)],
    },
    Kind {
        name: "a warp with threads missing",
        opts: "LOCAL:0:3 GROUP:2:8",
        make: |d| vec![rows(&[6, 24], DType::F32, d).min(1)],
    },
    Kind {
        name: "a group of several warps",
        opts: "GROUP:1:256",
        make: |d| vec![f32s(&[4, 768], 1, d).sum(1)],
    },
    Kind {
        name: "a group across warps",
        opts: "LOCAL:0:4 GROUP:2:32",
        make: |d| vec![f32s(&[64, 8], 1, d).sum(0)],
    },
    Kind {
        name: "a group of i64",
        opts: "GROUP:1:64",
        make: |d| vec![whole(&[4, 128], 1, DType::I64, d).sum(1)],
    },
    Kind {
        name: "a group of small floats",
        opts: "GROUP:1:64",
        make: |d| vec![rows(&[4, 128], DType::F16, d).max(1)],
    },
    Kind {
        name: "several sums at a time",
        opts: "UPCAST:0:4 GROUP:1:32",
        make: |d| vec![f32s(&[8, 64], 1, d).sum(1)],
    },
    Kind {
        name: "several reduces of a row",
        opts: "",
        make: |d| vec![fractions(&[4, 4096], 1, d).softmax(-1)],
    },
    Kind {
        name: "softmax of short rows",
        opts: "",
        make: |d| vec![fractions(&[24, 10], 1, d).log_softmax(-1)],
    },
    Kind {
        name: "layernorm",
        opts: "",
        make: |d| vec![fractions(&[6, 1000], 1, d).layernorm(-1, 1e-5)],
    },
    Kind {
        name: "softmax backwards",
        opts: "",
        make: |d| gradients(|x| x[0].softmax(-1), &[fractions(&[6, 256], 1, d)], d),
    },
    Kind {
        name: "layernorm backwards",
        opts: "",
        make: |d| gradients(|x| x[0].layernorm(-1, 1e-5), &[fractions(&[6, 256], 1, d)], d),
    },
    Kind { name: "argmax", opts: "", make: |d| vec![fractions(&[4, 300], 1, d).argmax(1)] },
    Kind { name: "gemv", opts: "", make: |d| product(DType::F32, [1, 512, 64], d) },
    Kind {
        name: "a product, by the heuristic",
        opts: "",
        make: |d| product(DType::F32, [64, 64, 64], d),
    },
    Kind {
        name: "a staged product",
        opts: "UPCAST:1:4 LOCAL:1:8 UPCAST:0:4 LOCAL:0:4 SPLIT:4:8 STAGE:4:1 STAGE:4:2",
        make: |d| product(DType::F32, [32, 64, 64], d),
    },
    Kind {
        name: "a staged product of odd sizes",
        opts: "PADTO:1:4 UPCAST:1:4 LOCAL:1:5 PADTO:0:2 LOCAL:0:2 PADTO:3:6 SPLIT:3:6 STAGE:3:1 \
               STAGE:3:2",
        make: |d| product(DType::F32, [13, 17, 19], d),
    },
    Kind {
        name: "a staged product in groups",
        opts: "LOCAL:1:4 GROUP:3:8 STAGE:4:1 STAGE:4:2",
        make: |d| product(DType::F32, [8, 64, 16], d),
    },
    Kind {
        name: "a sum in two loops",
        opts: "SPLIT:1:16",
        make: |d| vec![f32s(&[8, 64], 1, d).sum(1)],
    },
    Kind {
        name: "prefetched loads",
        opts: "UPCAST:0:4 LOCAL:1:2 UNROLL:3:5 PREFETCH:3",
        make: |d| product(DType::F32, [12, 20, 6], d),
    },
    Kind {
        name: "tensor cores, f16",
        opts: "TC:2:0",
        make: |d| product(DType::F16, [32, 32, 32], d),
    },
    Kind {
        name: "tensor cores, bf16, two steps",
        opts: "TC:2:2",
        make: |d| product(DType::BF16, [32, 64, 32], d),
    },
    Kind {
        name: "tensor cores, by the heuristic",
        opts: "",
        make: |d| product(DType::BF16, [64, 64, 64], d),
    },
    Kind {
        name: "tensor cores, odd sizes",
        opts: "",
        make: |d| product(DType::BF16, [40, 50, 17], d),
    },
    Kind {
        name: "tensor cores, staged and prefetched",
        opts: "UPCAST:0:4 UPCAST:1:8 TC:2:2 LOCAL:0:2 LOCAL:0:2 STAGE:4:1 STAGE:4:2 PREFETCH:4",
        make: |d| product(DType::BF16, [128, 64, 128], d),
    },
    Kind {
        name: "tensor cores, tf32",
        opts: "TC:2:0",
        make: |d| product(DType::F32, [32, 32, 32], d),
    },
    Kind {
        name: "a batched product",
        opts: "",
        make: |d| vec![f32s(&[3, 16, 24], 1, d).matmul(&f32s(&[3, 24, 20], 2, d))],
    },
    Kind {
        name: "a gather",
        opts: "",
        make: |d| vec![f32s(&[40, 16], 1, d).index_select(0, &places(&[24], 40, DType::I32, d))],
    },
    Kind {
        name: "a gather by i64",
        opts: "",
        make: |d| vec![f32s(&[8, 16], 1, d).gather(1, &places(&[8, 5], 16, DType::I64, d))],
    },
    Kind {
        name: "a scatter",
        opts: "",
        make: |d| {
            vec![f32s(&[8, 16], 1, d).scatter(
                1,
                &places(&[8, 3], 16, DType::I32, d),
                f32s(&[8, 3], 2, d),
            )]
        },
    },
    Kind {
        name: "a sort",
        opts: "",
        make: |d| {
            let (values, order) = f32s(&[3, 33], 1, d).sort(1, false);
            vec![values, order]
        },
    },
    Kind { name: "a running sum", opts: "", make: |d| vec![f32s(&[3, 600], 1, d).cumsum(1)] },
    Kind {
        name: "random bits",
        opts: "",
        make: |d| {
            vec![places(&[100], 97, DType::U64, d).threefry(&places(&[100], 31, DType::U64, d))]
        },
    },
    Kind {
        name: "a convolution",
        opts: "",
        make: |d| {
            vec![
                f32s(&[2, 4, 10, 10], 1, d)
                    .conv2d(&f32s(&[8, 4, 3, 3], 2, d), Conv::new().padding(1)),
            ]
        },
    },
    Kind {
        name: "a convolution backwards",
        opts: "",
        make: |d| {
            let conv = |x: &[Tensor]| x[0].conv2d(&x[1], Conv::new().padding(1));
            gradients(conv, &[f32s(&[2, 4, 10, 10], 1, d), f32s(&[8, 4, 3, 3], 2, d)], d)
        },
    },
    Kind {
        name: "attention",
        opts: "",
        make: |d| {
            let part = |seed: usize| fractions(&[2, 2, 24, 16], seed, d);
            vec![part(1).scaled_dot_product_attention(
                &part(2),
                &part(3),
                Attention::new().causal(),
            )]
        },
    },
    Kind {
        name: "several outputs",
        opts: "",
        make: |d| {
            let x = f32s(&[32, 32], 1, d);
            vec![&x + 1.0, &x * 2.0, x.relu()]
        },
    },
];

/// The tensors computed with the Opts of their kind and the heuristic's lanes, and the number of
/// kernels that accepted the Opts. Other kernels use the heuristic.
fn run(kind: &Kind, device: &str) -> (Vec<Vec<Const>>, usize) {
    let taken = Rc::new(Cell::new(0));
    let count = taken.clone();
    let list = if kind.opts == PLAIN { Vec::new() } else { opt::parse(kind.opts).unwrap() };
    let by = move |k: &Kernel, target: &Target| match k.apply_all(&list, target) {
        Ok(k) => {
            count.set(count.get() + 1);
            heuristic::completed(&k, target)
        }
        Err(_) => heuristic::choose(k, target),
    };
    let choice = if kind.opts.is_empty() { OptPolicy::Default } else { OptPolicy::By(Rc::new(by)) };
    let got = with_opt_policy(choice, || {
        let tensors = (kind.make)(device);
        Tensor::realize_many(&tensors.iter().collect::<Vec<_>>()).unwrap();
        tensors.iter().map(common::computed).collect()
    });
    (got, taken.get())
}

/// True if two values are equal up to the order of sums and one rounding of functions.
fn near(expected: &Const, got: &Const, dtype: DType) -> bool {
    match (expected, got) {
        (Const::Float(e), Const::Float(g)) => {
            (e - g).abs() <= 1e-4 * (1.0 + e.abs()) || (e.is_nan() && g.is_nan())
        }
        _ => expected == got && !dtype.is_float(),
    }
}

#[test]
fn every_kernel_kind_matches_the_reference() {
    for device in common::devices() {
        let target = Device::get(&device).unwrap().target().clone();
        for kind in KINDS {
            let tensors = (kind.make)(&device);
            if lacks(&device, tensors.iter().flat_map(|t| t.uop().toposort()).map(|u| u.dtype())) {
                eprintln!("{device} does not compute in a dtype of: {}", kind.name);
                continue;
            }
            let expected = common::evaluated(&tensors);
            let (got, taken) = run(kind, &device);
            for ((e, g), t) in expected.iter().zip(&got).zip(&tensors) {
                assert!(
                    e.len() == 1 || e.iter().any(|v| *v != e[0]),
                    "{}: the result has elements",
                    kind.name
                );
                let wrong = e.iter().zip(g).position(|(e, g)| !near(e, g, t.dtype()));
                assert_eq!(wrong.map(|i| (i, e[i], g[i])), None, "{} on {device}", kind.name);
            }
            // The Opts were applied if the device has workgroups, and tensor cores if the kind uses
            // them.
            let cores = target
                .tensor_cores
                .iter()
                .any(|c| tensors[0].uop().toposort().iter().any(|u| u.dtype().scalar == c.input));
            if !kind.opts.is_empty()
                && target.grid
                && target.local_max >= 256
                && (cores || !kind.opts.contains("TC:"))
            {
                assert!(taken > 0, "{}: no kernel accepts {} on {device}", kind.name, kind.opts);
            }
        }
    }
}

/// Kernels write over memory that they read, as an optimizer step does.
#[test]
fn in_place_assignments_match_the_reference() {
    for device in common::devices() {
        let x = f32s(&[33, 40], 1, &device);
        let before = x.to_vec::<f32>().unwrap();
        for _ in 0..3 {
            x.assign(&x * 2.0 + 1.0).unwrap();
            x.realize().unwrap();
        }
        let expected: Vec<f32> = before.iter().map(|v| v * 8.0 + 7.0).collect();
        assert_eq!(x.to_vec::<f32>().unwrap(), expected, "{device}");
        // Threads of one warp or several share a sum that one of them adds to the old value.
        for width in [64, 4096] {
            let (sums, rows) = (f32s(&[24], 3, &device), f32s(&[24, width], 4, &device));
            let expected = (&sums + rows.sum(1)).to_vec::<f32>().unwrap();
            sums.assign(&sums + rows.sum(1)).unwrap();
            let found = sums.realize().unwrap().to_vec::<f32>().unwrap();
            assert!(
                found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-2 + y.abs() * 1e-4),
                "{device}: {found:?} {expected:?}"
            );
        }
        // A flipped input cannot be overwritten while it is read.
        let y = f32s(&[16, 16], 2, &device);
        let turned = y.t().contiguous().to_vec::<f32>().unwrap();
        y.assign(y.t()).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), turned, "{device}");
    }
}
