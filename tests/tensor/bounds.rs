//! Errors of softmax, norms and losses against the bounds of `docs/semantics.md`, in `f32` and in
//! narrower floats. The exact values are those of `f64`.

use picograd::nn::Layer;
use picograd::tensor::{GaussianNll, MultiMargin, PoissonNll, Reduction, TripletMargin, keepdim};
use picograd::{DType, Tensor, nn};

/// The documented constant of each function.
fn documented() -> Vec<(String, f64)> {
    let text = include_str!("../../docs/semantics.md");
    let section = text
        .split("Sums of n terms")
        .nth(1)
        .and_then(|rest| rest.split("**Masked").next())
        .expect("the section");
    let row = |line: &str| -> Vec<(String, f64)> {
        let columns: Vec<&str> = line.split(" | ").map(|c| c.trim_matches(['|', ' '])).collect();
        columns[0]
            .split(", ")
            .map(|n| (n.to_string(), columns[1].parse().expect("a constant")))
            .collect()
    };
    section
        .lines()
        .filter(|l| l.starts_with("| ") && !l.starts_with("| function"))
        .flat_map(row)
        .collect()
}

/// The result of a function of a matrix, and the sum of the magnitudes of its terms, which
/// broadcasts to it.
fn call(name: &str, x: &Tensor) -> (Tensor, Tensor) {
    let zeros = x.zeros_like();
    let greatest = || x.abs().max(keepdim(1)) + 1.0;
    let target = Tensor::arange(0, x.size(0) as i32, 1).modulo(7);
    // Magnitudes of at most one, which every dtype represents.
    let share = x.abs().minimum(1.0);
    let loss = |y: Tensor, extra: bool| {
        let terms = if extra { y.abs() + x.abs().max(..) + 1.0 } else { y.abs() };
        (y, terms)
    };
    match name {
        "softmax" => (x.softmax(1), x.softmax(1)),
        "softmin" => (x.softmin(1), x.softmin(1)),
        "log_softmax" => (x.log_softmax(1), x.log_softmax(1).abs() + greatest()),
        "logsumexp" => (x.logsumexp(1), x.logsumexp(1).abs() + greatest().squeeze(1)),
        "layernorm" => (
            x.layernorm(1, 1e-5),
            x.layernorm(1, 1e-5).abs() + x.abs().mean(keepdim(1)) / x.std(keepdim(1), 0),
        ),
        "rmsnorm" => (x.rmsnorm(1, 1e-5), x.rmsnorm(1, 1e-5).abs() * 2.0),
        "normalize" => (x.normalize(2.0, 1, 1e-12), x.normalize(2.0, 1, 1e-12).abs() * 2.0),
        "mse_loss" => loss(x.mse_loss(&zeros, Reduction::Mean), false),
        "l1_loss" => loss(x.l1_loss(&zeros, Reduction::Mean), false),
        "huber_loss" => loss(x.huber_loss(&zeros, 1.0, Reduction::Mean), false),
        "smooth_l1_loss" => loss(x.smooth_l1_loss(&zeros, 0.5, Reduction::Mean), false),
        "cross_entropy" => loss(x.cross_entropy(&target, Reduction::Mean), true),
        "binary_crossentropy_logits" => {
            loss(x.binary_crossentropy_logits(&zeros, Reduction::Mean), true)
        }
        "logcumsumexp" => (x.logcumsumexp(1), x.logcumsumexp(1).abs() + greatest()),
        "BatchNorm" => {
            let norm = |x: &Tensor| {
                nn::BatchNorm::new(x.size(0)).track_running_stats(false).forward(&x.t()).t()
            };
            (norm(x), norm(x).abs() + x.abs().mean(keepdim(1)) / x.std(keepdim(1), 0))
        }
        "GroupNorm" => (nn::GroupNorm::new(1, x.size(1)).forward(x), call("layernorm", x).1),
        "InstanceNorm" => {
            (nn::InstanceNorm::new(1).forward(&x.unsqueeze(1)).squeeze(1), call("layernorm", x).1)
        }
        "nll_loss" => loss(x.nll_loss(&target, Reduction::Mean), true),
        "sparse_categorical_crossentropy" => {
            loss(x.sparse_categorical_crossentropy(&target, Reduction::Mean), true)
        }
        "kl_div" => loss(x.kl_div(&share, false, Reduction::Mean), true),
        "binary_crossentropy" => {
            loss(share.binary_crossentropy(&(&zeros + 0.25), Reduction::Mean), true)
        }
        "cosine_similarity" => {
            (x.cosine_similarity(&x.flip(0), 1, 1e-8), Tensor::ones(()).cast(x.dtype()))
        }
        "cosine_embedding_loss" => loss(
            x.cosine_embedding_loss(&x.flip(0), &Tensor::ones([x.size(0)]), 0.0, Reduction::Mean),
            true,
        ),
        "poisson_nll_loss" => {
            loss(x.clamp(-4.0, 4.0).poisson_nll_loss(&share, PoissonNll::new()), true)
        }
        "gaussian_nll_loss" => {
            loss(x.gaussian_nll_loss(&zeros, &(&zeros + 0.5), GaussianNll::new()), true)
        }
        "hinge_embedding_loss" => {
            loss(x.hinge_embedding_loss(&(&zeros - 1.0), 1.0, Reduction::Mean), true)
        }
        "margin_ranking_loss" => {
            loss(x.margin_ranking_loss(&zeros, &(&zeros + 1.0), 0.5, Reduction::Mean), true)
        }
        "soft_margin_loss" => loss(x.soft_margin_loss(&(&zeros - 1.0), Reduction::Mean), true),
        "multi_margin_loss" => loss(x.multi_margin_loss(&target, MultiMargin::new()), true),
        "triplet_margin_loss" => {
            loss(x.triplet_margin_loss(&zeros, &x.flip(1), TripletMargin::new()), true)
        }
        "ctc_loss" => {
            let (frames, classes) = (x.size(0), x.size(1));
            let lengths = [Tensor::new([frames as i32]), Tensor::new([1])];
            loss(
                x.reshape([frames, 1, classes]).ctc_loss(
                    &Tensor::new([[2]]),
                    &lengths[0],
                    &lengths[1],
                    Reduction::Mean,
                ),
                true,
            )
        }
        _ => panic!("unknown function {name}"),
    }
}

#[test]
fn sums_are_within_their_bounds() {
    let functions = documented();
    assert!(functions.len() >= 31, "{functions:?}");
    for (name, c) in functions {
        for (dtype, eps) in
            [(DType::F32, 0.0), (DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))]
        {
            let mut worst = 0f64;
            for (rows, n) in [(3, 7), (5, 64), (2, 1000)] {
                for scale in [0.1, 3.0, 20.0] {
                    let values: Vec<f64> = (0..rows * n)
                        .map(|i| {
                            (((i * 7919 + n) % 1009) as f64 / 504.5 - 1.0) * scale + scale * 0.3
                        })
                        .collect();
                    let given = Tensor::from_slice(&values, [rows, n]).cast(dtype);
                    let got = call(&name, &given).0.cast(DType::F64).to_vec::<f64>().unwrap();
                    let (want, terms) = call(&name, &given.cast(DType::F64));
                    let terms = terms.expand(want.shape()).to_vec::<f64>().unwrap();
                    let count = if name.ends_with("loss") || name.contains("entropy") {
                        rows * n
                    } else {
                        n
                    } as f64;
                    for ((g, w), t) in got.iter().zip(want.to_vec::<f64>().unwrap()).zip(terms) {
                        // The smallest spacing of f16 is that of its subnormals.
                        let last =
                            eps * w.abs() + if dtype == DType::F16 { 2f64.powi(-25) } else { 0.0 };
                        let off = ((g - w).abs() - last).max(0.0)
                            / (count * 2f64.powi(-24) * t.max(1e-300));
                        worst = worst.max(off);
                        assert!(
                            off <= c,
                            "{name} in {dtype} of {rows}x{n} at {scale} is {g}, expected {w}: c \
                             is {off}, more than {c}"
                        );
                    }
                }
            }
            println!("{name} {dtype}: c = {worst:.3} of {c}");
        }
    }
}
