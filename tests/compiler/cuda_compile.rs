//! CUDA kernels without a GPU: programs lowered for its target are interpreted and compared, and
//! their source is compiled by NVRTC if available.

use crate::common;
use picograd::dtype::DType;
use picograd::exec::ScheduleItem;
use picograd::heuristic;
use picograd::lower::Program;
use picograd::opt::Kernel;
use picograd::render::{Cuda, Renderer};
use picograd::target::Target;
use picograd::tensor::Conv;
use picograd::testing::{SetupOpts, check_for, random_case};
use picograd::{Tensor, compile};

#[test]
fn random_graphs_match_the_reference_and_compile() {
    let mut programs: Vec<Program> = Vec::new();
    for seed in 0..120 {
        let case = random_case(seed);
        let expected = case.expected();
        for choose in [SetupOpts::Default, SetupOpts::Random(seed)] {
            let made = check_for(&case, &expected, choose.clone(), &Target::cuda());
            programs.extend(
                made.unwrap_or_else(|e| panic!("seed {seed}, {choose:?}: {e}\n{}", case.text())),
            );
        }
    }
    common::compile_for_cuda(&programs);
}

/// The Opts and programs of the kernels of a tensor.
fn kernels(t: &Tensor) -> Vec<(String, Program)> {
    let of = |item: &ScheduleItem| {
        let ScheduleItem::Kernel { ast, .. } = item else { panic!("only kernels are expected") };
        let k = heuristic::choose(&Kernel::new(ast.clone()), &Target::cuda());
        let opts: Vec<String> = k.opts.iter().map(|o| o.to_string()).collect();
        (opts.join(" "), compile::lowered(&k, &Target::cuda()).unwrap())
    };
    t.schedule().unwrap().iter().map(of).collect()
}

#[test]
fn known_kernels_have_their_measured_opts() {
    let x = |shape: &[usize]| Tensor::zeros(shape).contiguous().to("NULL").realize().unwrap();
    let (a, b) = (x(&[4096, 4096]), x(&[4096, 4096]));
    let half = a.cast(DType::BF16).contiguous().realize().unwrap();
    let (odd, short) = (x(&[1001, 1003]), x(&[4096, 64]));
    let (images, weights) = (x(&[512, 32, 24, 24]), x(&[32, 32, 5, 5]));
    let row = "UNROLL:3:4 GROUP:3:512 UNROLL:4:2 UNROLL:3:4 GROUP:3:512 UNROLL:3:2 UPCAST:1:4 \
               LOCAL:1:512 UPCAST:1:2 VECTORIZE:7 VECTORIZE:5 VECTORIZE:3";
    // The graph, the name of its first kernel, the Opts, and the thread shape of a workgroup.
    let cases = [
        (
            (&a * &b + 1.5).relu(),
            "E_16384_256_4",
            "UPCAST:0:4 LOCAL:0:256 VECTORIZE:2",
            [256, 1, 1],
        ),
        (&odd + 1.0, "E_7844_128", "PADTO:0:128 LOCAL:0:128", [128, 1, 1]),
        (a.softmax(-1), "r_4096_512_2_4_2_4_2_4", row, [512, 1, 1]),
        (a.layernorm(-1, 1e-5), "r_4096_512_2_4_2_4_2_4", row, [512, 1, 1]),
        (
            short.softmax(-1),
            "r_512_8_16_4_4_4",
            "UNROLL:3:4 GROUP:3:16 UNROLL:3:4 GROUP:3:16 UPCAST:1:4 LOCAL:1:16 LOCAL:0:8 \
             VECTORIZE:5 VECTORIZE:4 VECTORIZE:3",
            [16, 8, 1],
        ),
        (
            odd.softmax(-1),
            "r_1001_256_4_4_4",
            "PADTO:3:256 GROUP:3:256 UNROLL:4:4 PADTO:3:256 GROUP:3:256 UNROLL:3:4 PADTO:1:256 \
             LOCAL:1:256 UPCAST:1:4 VECTORIZE:4 VECTORIZE:3 VECTORIZE:2",
            [256, 1, 1],
        ),
        (a.sum(1), "r_4096_512_2_4", "UNROLL:1:4 GROUP:1:512 UNROLL:2:2 VECTORIZE:3", [512, 1, 1]),
        (a.sum(0), "r_128_32_16_32_8", "LOCAL:0:32 GROUP:2:16 UNROLL:3:8 ORDER:2:0", [32, 16, 1]),
        (a.sum(..), "r_256_512_8_2_8", "GROUP:1:512 UNROLL:3:8 VECTORIZE:4", [512, 1, 1]),
        (
            half.matmul(&half.t()),
            "r_32_32_2_2_4_8_128_4_8_2_8",
            "UPCAST:0:4 UPCAST:1:8 TC:2:2 LOCAL:0:2 LOCAL:1:2 PREFETCH:6",
            [4, 8, 4],
        ),
        (
            a.matmul(&b),
            "r_32_32_16_16_256_2_4_2_4_16",
            "UPCAST:1:4 LOCAL:1:16 UPCAST:1:2 UPCAST:0:4 LOCAL:0:16 UPCAST:0:2 SPLIT:4:16 \
             STAGE:4:1 STAGE:4:2 UNROLL:5:16 VECTORIZE:8",
            [16, 16, 1],
        ),
        // Both factors of a convolution are reused for several outputs, a row of the window is
        // unrolled, and threads follow the contiguous axis of the loads.
        (
            images.conv2d(&weights, Conv::new()),
            "r_32_8_5_8_4_5_32_5_2_4_4_5",
            "UPCAST:0:2 LOCAL:0:8 UPCAST:1:4 LOCAL:2:4 UPCAST:3:4 LOCAL:3:5 UNROLL:8:5 \
             VECTORIZE:10",
            [5, 4, 8],
        ),
    ];
    let (mut programs, mut wrong) = (Vec::new(), Vec::new());
    for (t, name, opts, local) in cases {
        let found = kernels(&t);
        let got = (found[0].1.name.as_str(), found[0].0.as_str(), found[0].1.launch.local);
        if got != (name, opts, local) {
            wrong.push(format!("{got:?}"));
        }
        programs.extend(found.into_iter().map(|f| f.1));
    }
    assert!(wrong.is_empty(), "other Opts than measured:\n{}", wrong.join("\n"));
    common::compile_for_cuda(&programs);
}

/// Group reduces on rows of many lengths. The interpreter runs the same Opts with its race check.
#[test]
fn shared_reductions_of_any_length_match_the_host() {
    for (rows, len) in [(3, 5), (2, 64), (5, 96), (2, 250), (3, 257), (2, 1024)] {
        let values: Vec<f32> =
            (0..rows * len).map(|i| ((i * 37 + 11) % 101) as f32 / 25.0).collect();
        let x = Tensor::from_vec(values.clone(), [rows, len]).to("INTERP").realize().unwrap();
        let (softmax, sums, norm) = (x.softmax(-1), x.sum(1), x.layernorm(-1, 1e-5));
        let got = [&softmax, &sums, &norm].map(|t| t.to_vec::<f32>().unwrap());
        for (i, row) in values.chunks(len).enumerate() {
            let row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            let sum: f64 = row.iter().sum();
            let exps: f64 = row.iter().map(|v| v.exp()).sum();
            let mean = sum / len as f64;
            let deviation =
                (row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64 + 1e-5).sqrt();
            let near = |got: f32, expected: f64| {
                (f64::from(got) - expected).abs() <= 2e-5 * expected.abs().max(1e-2)
            };
            assert!(
                near(got[1][i], sum),
                "sum of row {i} of {rows} × {len}: {} and not {sum}",
                got[1][i]
            );
            for (j, v) in row.iter().enumerate() {
                let (s, n) = (v.exp() / exps, (v - mean) / deviation);
                let (s_got, n_got) = (got[0][i * len + j], got[2][i * len + j]);
                assert!(
                    near(s_got, s) && near(n_got, n),
                    "[{i}, {j}] of {rows} × {len}: {s_got}, {n_got} and not {s}, {n}"
                );
            }
        }
    }
}

/// The assembler would lose the sign of zero; the renderer has the reason.
#[test]
fn a_select_of_minus_zero_uses_bits() {
    let mask = Tensor::new([true, false]).to("NULL").realize().unwrap();
    let t =
        mask.where_(Tensor::full([2], -1.0f32).to("NULL"), Tensor::full([2], -0.0f32).to("NULL"));
    let program = &kernels(&t)[0].1;
    let text = Cuda::new("sm_90").render(&program.name, &program.uops).unwrap().text();
    assert!(text.contains("choose_f32(") && text.contains("selp.b32"), "{text}");
    common::compile_for_cuda(std::slice::from_ref(program));
}
