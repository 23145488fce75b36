//! Tensor cores: the interpreter equals the plain loops for all shapes, memory layouts and other
//! Opts.

mod common;

use common::kernels;
use picograd::compile::{OptPolicy, with_opt_policy};
use picograd::dtype::DType;
use picograd::ir::{Op, TensorCore};
use picograd::lower::Program;
use picograd::opt::Kernel;
use picograd::target::Target;
use picograd::{Device, Tensor, compile, heuristic, opt};
use std::rc::Rc;

/// Whole numbers from -4 to 4: sums of their products are exact in every order.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + i / 13 * 5 + seed * 3 + i * i % 11) % 9) as f32 - 4.0).collect()
}

fn whole(shape: &[usize], seed: usize, dtype: DType) -> Tensor {
    let list = numbers(shape.iter().product(), seed);
    common::filled(shape, dtype, "INTERP", |i| list[i])
}

/// The target that has all tensor cores.
fn all_cores() -> Target {
    Target::interp().with_tensor_cores(true, true)
}

/// Compares a tensor computed with these Opts for its kernel, with the heuristic's lanes, and
/// without Opts, and compiles it for CUDA.
fn check(make: impl Fn() -> Tensor, opts: &str) {
    let programs = compared(make, opts);
    assert!(programs[0].uops.iter().any(|u| u.op() == Op::Wmma));
}

fn compared(make: impl Fn() -> Tensor, opts: &str) -> Vec<Program> {
    let list = opt::parse(opts).unwrap();
    let values = |choice: OptPolicy| {
        with_opt_policy(choice, || make().cast(DType::F32).to_vec::<f32>().unwrap())
    };
    let applied = Rc::new(std::cell::Cell::new(0));
    let count = applied.clone();
    let by = move |k: &Kernel, _: &Target| match k.apply_all(&list, &all_cores()) {
        Ok(k) => {
            count.set(count.get() + 1);
            heuristic::completed(&k, &all_cores())
        }
        Err(_) => k.clone(),
    };
    let (got, expected) = (values(OptPolicy::By(Rc::new(by))), values(OptPolicy::Nothing));
    assert!(
        applied.get() > 0,
        "{opts} fits one kernel of {:?}: {:?}",
        make(),
        kernels(&make()).iter().map(|k| k.name()).collect::<Vec<_>>()
    );
    assert!(got.iter().any(|v| *v != 0.0), "the result is not all zero");
    assert_eq!(got, expected, "{opts}");
    let target = Target::cuda().with_tensor_cores(true, true);
    let programs: Vec<_> = kernels(&make())
        .iter()
        .filter_map(|k| k.apply_all(&opt::parse(opts).unwrap(), &target).ok())
        .map(|k| compile::lowered(&heuristic::completed(&k, &target), &target).unwrap())
        .collect();
    common::compile_for_cuda(&programs);
    programs
}

#[test]
fn every_core_matches_plain_loops() {
    for core in TensorCore::ALL {
        let dtype = DType { scalar: core.input, lanes: 1 };
        let [m, n, k] = core.dims;
        for (m, n, k) in [(m, n, k), (2 * m, 3 * n, 4 * k)] {
            let (a, b) = (whole(&[m, k], 1, dtype), whole(&[k, n], 2, dtype));
            // Each core has two variants, with rows and columns exchanged.
            let which = if m % core.dims[0] == 0 && core.steps > 1 { 2 } else { 0 };
            check(|| a.matmul(&b), &format!("TC:2:{which}"));
        }
    }
}

/// Both factors row-major and column-major.
#[test]
fn every_layout_matches_plain_loops() {
    for (i, (turn_a, turn_b)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        for dtype in [DType::F16, DType::BF16] {
            let made = |shape: [usize; 2], turned: bool, seed: usize| {
                let [r, c] = shape;
                if turned { whole(&[c, r], seed, dtype).t() } else { whole(&[r, c], seed, dtype) }
            };
            let (a, b) = (made([64, 64], turn_a, i), made([64, 64], turn_b, i + 7));
            // Alone, and with adjacent registers at adjacent addresses.
            for opts in [
                "TC:2:0",
                "UPCAST:1:8 UPCAST:0:2 TC:2:2",
                "UPCAST:1:8 UPCAST:0:2 UNROLL:2:2 TC:2:0 LOCAL:0:2",
                "TC:2:1 UPCAST:0:2 UNROLL:4:2 UPCAST:1:2",
            ] {
                check(|| a.matmul(&b), opts);
            }
        }
    }
}

/// Products with other axes, other sums, prologues and epilogues, and padded sizes.
#[test]
fn epilogues_of_products_are_correct() {
    let bf16 = DType::BF16;
    let (a, b) = (whole(&[3, 32, 48], 1, bf16), whole(&[3, 48, 16], 2, bf16));
    check(|| a.matmul(&b), "TC:3:0");
    check(|| a.matmul(&b), "LOCAL:0:3 TC:3:0 UNROLL:5:3");
    let (x, w, bias) =
        (whole(&[32, 64], 3, bf16), whole(&[24, 64], 4, bf16), whole(&[24], 5, bf16));
    check(|| x.linear(&w, Some(&bias)).relu(), "TC:2:0");
    check(|| x.linear(&w, Some(&bias)).relu(), "UNROLL:2:2 TC:2:0 UPCAST:0:2 GROUP:3:2");
    // A factor with a fused prologue.
    check(|| (&x * 2.0).relu().matmul(&w.t()), "TC:2:0");
    // Two products in one kernel.
    let v = whole(&[24, 64], 6, bf16);
    check(|| x.matmul(&w.t()).cast(DType::F32) * x.matmul(&v.t()).cast(DType::F32), "TC:2:0");
    let (odd_a, odd_b) = (whole(&[19, 37], 7, bf16), whole(&[37, 13], 8, bf16));
    check(|| odd_a.matmul(&odd_b), "PADTO:0:16 PADTO:1:8 PADTO:2:16 TC:2:0");
    check(|| odd_a.matmul(&odd_b), "PADTO:0:16 PADTO:1:8 PADTO:2:16 TC:2:0 PREFETCH:4");
    check(
        || odd_a.matmul(&odd_b),
        "PADTO:0:32 PADTO:1:16 PADTO:2:32 UPCAST:1:2 UPCAST:0:2 UNROLL:2:2 TC:2:0",
    );
    // A convolution: the channels are the reduction axis of the product, and the window stays a
    // loop.
    let (image, kernel) = (whole(&[2, 16, 10, 10], 9, bf16), whole(&[16, 16, 3, 3], 10, bf16));
    let conv = || image.conv2d(&kernel, Default::default());
    let chosen = heuristic::choose(&kernels(&conv())[0], &Target::interp());
    check(conv, &opt::show(&chosen.opts));
}

/// The heuristic chooses tensor cores, and results match the reference.
#[test]
fn the_heuristic_chooses_tensor_cores() {
    let bf16 = DType::BF16;
    for (m, n, k) in [(64, 64, 64), (128, 256, 64), (100, 60, 50), (40, 17, 200), (16, 8, 16)] {
        let (a, b) = (whole(&[m, k], 1, bf16), whole(&[k, n], 2, bf16));
        for dtype in [bf16, DType::F32] {
            let (a, b) = (
                a.cast(dtype).contiguous().realize().unwrap(),
                b.cast(dtype).contiguous().realize().unwrap(),
            );
            let chosen = heuristic::choose(&kernels(&a.matmul(&b))[0], &Target::interp());
            assert_eq!(
                opt::show(&chosen.opts).contains("TC:"),
                dtype == bf16,
                "{m} × {n} × {k}: {}",
                opt::show(&chosen.opts)
            );
            if dtype == bf16 {
                check(|| a.matmul(&b), &opt::show(&chosen.opts));
            }
        }
    }
}

/// Tiles of both factors in shared memory, with and without prefetch.
#[test]
fn staged_factors_match_plain_loops() {
    for (i, (turn_a, turn_b)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let made = |turned: bool, seed: usize| {
            let x = whole(&[128, 128], seed, DType::BF16);
            if turned { x.t() } else { x }
        };
        let (a, b) = (made(turn_a, i), made(turn_b, i + 7));
        for opts in [
            "TC:2:0 LOCAL:0:2 LOCAL:1:2 STAGE:6:1 STAGE:6:2",
            "UPCAST:0:4 UPCAST:1:8 TC:2:2 LOCAL:0:2 LOCAL:0:2 STAGE:4:1 STAGE:4:2",
            "UPCAST:0:4 UPCAST:1:8 TC:2:2 LOCAL:0:2 LOCAL:0:2 STAGE:4:1 STAGE:4:2 PREFETCH:4",
            "UPCAST:0:4 UPCAST:1:8 TC:2:0 LOCAL:0:2 LOCAL:0:2 SPLIT:4:2 STAGE:4:1 PREFETCH:4",
        ] {
            check(|| a.matmul(&b), opts);
        }
    }
}

/// Prefetched loads with and without tensor cores, with masks, and at loaded indices.
#[test]
fn prefetched_loads_are_correct() {
    let (a, b) = (whole(&[12, 20], 1, DType::F32), whole(&[20, 6], 2, DType::F32));
    for opts in [
        "PREFETCH:2",
        "UPCAST:0:4 LOCAL:1:2 UNROLL:3:5 PREFETCH:3",
        "PADTO:2:8 UNROLL:2:4 PREFETCH:2",
        "PREFETCH:2 UNROLL:2:0",
    ] {
        let programs = compared(|| a.matmul(&b), opts);
        let loads = programs[0].uops.iter().filter(|u| u.op() == Op::Load).count();
        let kept = programs[0]
            .uops
            .iter()
            .filter(|u| u.op() == Op::DefineAcc && u.src()[0].op() == Op::Load)
            .count();
        // A loop has each load twice: before it and inside it.
        assert_eq!(
            (kept > 0, loads == 2 * kept),
            if opts.ends_with("PREFETCH:2 UNROLL:2:0") { (false, false) } else { (true, true) },
            "{opts}"
        );
    }
    let rows = Tensor::new([3i32, 0, 2, 1, 3]).to("INTERP").contiguous().realize().unwrap();
    let picked = || (a.i(&rows).contiguous() * 1.0).sum(1);
    compared(picked, "PREFETCH:1");
    compared(|| a.i(&rows).sum(0), "PREFETCH:1");
}

/// Kernels without a suitable product are refused with a reason.
#[test]
fn unsuitable_kernels_are_refused() {
    let refused = |t: Tensor, target: &Target, opts: &str| {
        let e =
            kernels(&t)[0].apply_all(&opt::parse(opts).unwrap(), target).unwrap_err().to_string();
        assert!(e.contains("TC:"), "{e}");
        e
    };
    let (a, b) = (whole(&[32, 32], 1, DType::BF16), whole(&[32, 32], 2, DType::BF16));
    let (x, y) = (
        a.cast(DType::F32).contiguous().realize().unwrap(),
        b.cast(DType::F32).contiguous().realize().unwrap(),
    );
    let interp = Target::interp();
    assert!(
        refused(x.matmul(&y), &interp, "TC:2:0")
            .contains("not the reduction axis of a sum of products"),
        "f32 is not rounded by default"
    );
    assert!(refused(a.matmul(&b), &interp, "TC:0:0").contains("not the reduction axis"));
    assert!(refused(a.matmul(&b), &interp, "TC:2:4").contains("selects one of 4 mappings"));
    assert!(refused(a.matmul(&b), &interp, "NOLOCALS TC:2:0").contains("no workgroup"));
    assert!(refused(a.matmul(&b), &interp, "TC:2:0 TC:4:0").contains("not the reduction axis"));
    assert!(
        refused(a.matmul(&b), &interp, "LOCAL:0:8 LOCAL:1:8 TC:4:0")
            .contains("not the reduction axis")
    );
    assert!(
        refused(a.matmul(&b), &interp.clone().with_tensor_cores(false, false), "TC:2:0")
            .contains("not the reduction axis")
    );
    assert!(refused(a.matmul(&b), &Target::opencl(), "TC:2:0").contains("not the reduction axis"));
    let odd = whole(&[33, 32], 1, DType::BF16);
    assert!(refused(odd.matmul(&b), &interp, "TC:2:0").contains("not the reduction axis"));
    assert!(refused(a.sum(1), &interp, "TC:1:0").contains("not the reduction axis"));
}

/// Rounding to 11 bits must be requested, and is exact.
#[test]
fn f32_is_rounded_only_where_allowed() {
    let a = Tensor::full([16, 8], 1.0f32 + 2.0f32.powi(-11))
        .to("INTERP")
        .contiguous()
        .realize()
        .unwrap();
    let b = Tensor::eye(8, 8).to("INTERP").contiguous().realize().unwrap();
    let by = |k: &Kernel, _: &Target| {
        k.apply_all(&opt::parse("TC:2:0").unwrap(), &all_cores()).unwrap_or_else(|_| k.clone())
    };
    let got = with_opt_policy(OptPolicy::By(Rc::new(by)), || a.matmul(&b).to_vec::<f32>().unwrap());
    assert!(
        got.iter().all(|v| *v == 1.0 + 2.0f32.powi(-10)),
        "a tie goes away from zero: {}",
        got[0]
    );
    assert_eq!(a.matmul(&b).to_vec::<f32>().unwrap(), a.to_vec::<f32>().unwrap());
}

/// Devices with tensor cores use them, and results match the reference on every device.
#[test]
fn devices_match_the_reference() {
    for device in common::devices() {
        let has = !Device::get(&device).unwrap().target().tensor_cores.is_empty();
        for (i, (m, n, k)) in [
            (64, 64, 64),
            (256, 128, 96),
            (100, 60, 50),
            (40, 17, 200),
            (16, 8, 16),
            (192, 320, 32),
        ]
        .into_iter()
        .enumerate()
        {
            for dtype in [DType::F16, DType::BF16] {
                let (x, y) = (numbers(m * k, i), numbers(k * n, i + 5));
                let expected = |row: usize, column: usize| {
                    (0..k).map(|j| x[row * k + j] * y[j * n + column]).sum::<f32>()
                };
                let expected: Vec<f32> = (0..m * n).map(|e| expected(e / n, e % n)).collect();
                let a = Tensor::from_vec(x.clone(), [m, k])
                    .cast(dtype)
                    .to(&device)
                    .contiguous()
                    .realize()
                    .unwrap();
                let b = Tensor::from_vec(y.clone(), [k, n])
                    .cast(dtype)
                    .to(&device)
                    .contiguous()
                    .realize()
                    .unwrap();
                let (at, bt) = (
                    a.t().contiguous().realize().unwrap().t(),
                    b.t().contiguous().realize().unwrap().t(),
                );
                for (a, b) in [(&a, &b), (&at, &b), (&a, &bt), (&at, &bt)] {
                    let product = a.matmul(b);
                    let kernel = &kernels(&product)[0];
                    let chosen = heuristic::choose(kernel, Device::get(&device).unwrap().target());
                    assert_eq!(
                        opt::show(&chosen.opts).contains("TC:"),
                        has,
                        "{device}: {m} × {n} × {k}: {}",
                        opt::show(&chosen.opts)
                    );
                    // Results above 256 are rounded to the dtype of the factors.
                    let rounded = Tensor::from_vec(expected.clone(), [m, n])
                        .cast(dtype)
                        .cast(DType::F32)
                        .to_vec::<f32>()
                        .unwrap();
                    assert_eq!(
                        product.cast(DType::F32).to_vec::<f32>().unwrap(),
                        rounded,
                        "{device}: {m} × {n} × {k} of {dtype}"
                    );
                    let after = (a.cast(DType::F32).matmul(&b.cast(DType::F32)) + 1.0)
                        .relu()
                        .to_vec::<f32>()
                        .unwrap();
                    assert!(
                        after.iter().zip(&expected).all(|(v, e)| *v == (e + 1.0).max(0.0)),
                        "{device}: {m} × {n} × {k} in f32"
                    );
                }
            }
        }
    }
}

/// Errors of values with full mantissas stay within the bounds of `docs/semantics.md`.
#[test]
fn sums_are_within_their_bounds() {
    let (m, n, k) = (128, 64, 512);
    let mut state = 12345u32;
    let mut random = |count: usize| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    };
    let (x, y) = (random(m * k), random(k * n));
    for device in common::devices() {
        for dtype in [DType::F16, DType::BF16] {
            let rounded =
                |v: &[f32], shape: [usize; 2]| Tensor::from_vec(v.to_vec(), shape).cast(dtype);
            let (a, b) = (rounded(&x, [m, k]), rounded(&y, [k, n]));
            let (xs, ys) = (
                a.cast(DType::F32).to_vec::<f32>().unwrap(),
                b.cast(DType::F32).to_vec::<f32>().unwrap(),
            );
            let (a, b) = (
                a.to(&device).contiguous().realize().unwrap(),
                b.to(&device).contiguous().realize().unwrap(),
            );
            // The sum is in f32 and is not rounded to 16 bits.
            let got = (a.cast(DType::F32).matmul(&b.cast(DType::F32))).to_vec::<f32>().unwrap();
            for (e, got) in got.iter().enumerate() {
                let products =
                    (0..k).map(|j| f64::from(xs[e / n * k + j]) * f64::from(ys[j * n + e % n]));
                let (sum, size) = products.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
                let most = 4.0 * k as f64 * 2.0f64.powi(-24) * size;
                assert!(
                    (f64::from(*got) - sum).abs() <= most,
                    "{device}, {dtype}, element {e}: {got} and not {sum}"
                );
            }
        }
    }
}
