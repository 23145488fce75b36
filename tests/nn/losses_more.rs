//! Margin, likelihood and alignment losses against PyTorch: values and gradients.

use super::{assert_finite_close, check, fixture};
use picograd::io::StateDict;
use picograd::tensor::{Ctc, GaussianNll, MultiMargin, PoissonNll, Reduction, TripletMargin};
use picograd::{DType, Tensor};
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/losses_more.safetensors")));

const REDUCTIONS: [(&str, Reduction); 3] =
    [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("none", Reduction::None)];

fn shared(name: &str) -> Tensor {
    ALL.require(name).unwrap().clone()
}

#[track_caller]
fn loss(name: &str, forward: impl Fn(&[Tensor]) -> Tensor) {
    check(&ALL, name, &(), |x| vec![forward(x)]);
}

#[test]
fn margin_losses_match_pytorch() {
    let (signs, weight) = (shared("shared/signs"), shared("shared/weight"));
    let index = Tensor::new([0, 3, 1, 1, 2]);
    for (r, reduction) in REDUCTIONS {
        let triplet = || TripletMargin::new().reduction(reduction);
        loss(&format!("triplet_{r}"), |x| x[0].triplet_margin_loss(&x[1], &x[2], reduction));
        loss(&format!("triplet_swap_{r}"), |x| {
            x[0].triplet_margin_loss(&x[1], &x[2], triplet().margin(0.7).p(1.0).swap())
        });
        loss(&format!("triplet_p3_{r}"), |x| {
            x[0].triplet_margin_loss(&x[1], &x[2], triplet().margin(2.0).p(3.0).eps(1e-3))
        });
        loss(&format!("ranking_{r}"), |x| x[0].margin_ranking_loss(&x[1], &signs, 0.3, reduction));
        loss(&format!("hinge_{r}"), |x| x[0].hinge_embedding_loss(&signs, 0.6, reduction));
        loss(&format!("soft_margin_{r}"), |x| x[0].soft_margin_loss(&signs, reduction));
        loss(&format!("multi_margin_{r}"), |x| x[0].multi_margin_loss(&index, reduction));
        let how = MultiMargin::new().p(2).margin(0.4).weight(&weight).reduction(reduction);
        loss(&format!("multi_margin_all_{r}"), |x| x[0].multi_margin_loss(&index, how.clone()));
    }
    loss("triplet_vector", |x| {
        x[0].triplet_margin_loss(&x[1], &x[2], TripletMargin::new().margin(3.0))
    });
    loss("multi_margin_one", |x| x[0].multi_margin_loss(&Tensor::new(2), Reduction::Mean));
}

#[test]
fn likelihood_losses_match_pytorch() {
    let counts = shared("shared/counts");
    for (r, reduction) in REDUCTIONS {
        let poisson = || PoissonNll::new().reduction(reduction);
        loss(&format!("poisson_{r}"), |x| x[0].poisson_nll_loss(&counts, reduction));
        loss(&format!("poisson_full_{r}"), |x| x[0].poisson_nll_loss(&counts, poisson().full()));
        loss(&format!("poisson_rate_{r}"), |x| {
            x[0].poisson_nll_loss(&counts, poisson().log_input(false).full().eps(1e-3))
        });
        let gaussian = || GaussianNll::new().reduction(reduction);
        loss(&format!("gaussian_{r}"), |x| x[0].gaussian_nll_loss(&x[1], &x[2], reduction));
        loss(&format!("gaussian_full_{r}"), |x| {
            x[0].gaussian_nll_loss(&x[1], &x[2], gaussian().full().eps(0.2))
        });
        loss(&format!("gaussian_rows_{r}"), |x| x[0].gaussian_nll_loss(&x[1], &x[2], reduction));
    }
}

#[track_caller]
fn ctc(name: &str, how: Ctc) {
    let part = |k: &str| shared(&format!("ctc/{name}/{k}"));
    for (r, reduction) in REDUCTIONS {
        loss(&format!("ctc_{name}_{r}"), |x| {
            let how = how.clone().reduction(reduction);
            x[0].log_softmax(-1).ctc_loss(&part("targets"), &part("frames"), &part("labels"), how)
        });
    }
}

#[test]
fn ctc_loss_matches_pytorch() {
    ctc("padded", Ctc::new());
    ctc("repeated", Ctc::new());
    ctc("blank", Ctc::new().blank(3));
    ctc("flat", Ctc::new());
    ctc("one", Ctc::new());
}

#[test]
fn ctc_loss_of_empty_targets_matches_pytorch() {
    ctc("empty", Ctc::new());
    ctc("none", Ctc::new());
    ctc("impossible", Ctc::new().zero_infinity());
}

/// The loss equals the explicit sum over all paths that collapse to the target.
#[test]
fn ctc_loss_sums_all_paths() {
    let (frames, classes) = (4usize, 3usize);
    let values: Vec<f32> = (0..frames * classes).map(|i| ((i * 7 + 3) % 11) as f32 * 0.3).collect();
    let logp = Tensor::from_vec(values, [frames, classes]).log_softmax(-1);
    let p: Vec<f64> = logp.cast(DType::F64).exp().to_vec().unwrap();
    for target in [vec![], vec![1], vec![1, 2], vec![1, 1], vec![2, 1, 2], vec![1, 1, 1]] {
        let mut total = 0.0;
        for path in 0..classes.pow(frames as u32) {
            let labels: Vec<usize> =
                (0..frames).map(|t| path / classes.pow(t as u32) % classes).collect();
            let mut read = labels.clone();
            read.dedup();
            read.retain(|&l| l != 0);
            if read == target {
                total +=
                    labels.iter().enumerate().map(|(t, l)| p[t * classes + l]).product::<f64>();
            }
        }
        let labels: Vec<i32> = target.iter().map(|&l| l as i32).collect();
        let n = labels.len();
        let loss = logp.ctc_loss(
            &Tensor::from_vec(labels, [n]),
            &Tensor::new(frames as i32),
            &Tensor::new(n as i32),
            Reduction::Sum,
        );
        let (got, expected) = (loss.item::<f32>().unwrap() as f64, -total.ln());
        assert!(
            got == expected || (got - expected).abs() < 1e-5,
            "{target:?}: {got}, expected {expected}"
        );
    }
}

#[test]
fn impossible_alignments_have_infinite_loss() {
    let x = Tensor::zeros([2, 1, 3]).as_param();
    let run = |how: Ctc| {
        x.log_softmax(-1).ctc_loss(
            &Tensor::new([[1, 1]]),
            &Tensor::new([2]),
            &Tensor::new([2]),
            how,
        )
    };
    let loss = run(Ctc::new());
    loss.backward();
    assert_eq!(loss.item::<f32>().unwrap(), f32::INFINITY);
    assert!(x.grad().unwrap().to_vec::<f32>().unwrap().iter().all(|g| *g == 0.0));
    // A probability of 0 in the path of the target.
    let logp = Tensor::new([[[0.0f32, f32::NEG_INFINITY]], [[0.0, f32::NEG_INFINITY]]]).as_param();
    let loss = logp.ctc_loss(&Tensor::new([[1]]), &Tensor::new([2]), &Tensor::new([1]), Ctc::new());
    loss.backward();
    assert_eq!(loss.item::<f32>().unwrap(), f32::INFINITY);
    assert!(logp.grad().unwrap().to_vec::<f32>().unwrap().iter().all(|g| *g == 0.0));
    // No frames at all.
    let none = |labels: i32| {
        let logp = Tensor::zeros([2, 1, 3]).log_softmax(-1);
        logp.ctc_loss(
            &Tensor::new([[1]]),
            &Tensor::new([0]),
            &Tensor::new([labels]),
            Reduction::Sum,
        )
        .item::<f32>()
        .unwrap()
    };
    assert_eq!((none(0), none(1)), (0.0, f32::INFINITY));
}

#[test]
fn narrow_floats_are_rounded_once() {
    let x = Tensor::new([[0.25f32, -1.5, 3.0]]);
    let (y, t) = (Tensor::new([[1.0f32, 2.0, -0.5]]), Tensor::new([[1.0f32, -1.0, 1.0]]));
    let both = |f: &dyn Fn(&Tensor) -> Tensor| {
        let (narrow, wide) = (f(&x.cast(DType::BF16)), f(&x));
        assert_eq!(narrow.dtype(), DType::BF16);
        assert_eq!(narrow.to_bytes().unwrap(), wide.cast(DType::BF16).to_bytes().unwrap());
    };
    both(&|x| x.triplet_margin_loss(&y, &t, Reduction::Mean));
    both(&|x| x.margin_ranking_loss(&y, &t, 0.1, Reduction::Mean));
    both(&|x| x.hinge_embedding_loss(&t, 1.0, Reduction::Mean));
    both(&|x| x.soft_margin_loss(&t, Reduction::Mean));
    both(&|x| x.multi_margin_loss(&Tensor::new([2]), Reduction::Mean));
    both(&|x| x.poisson_nll_loss(&y.abs(), PoissonNll::new().full()));
    both(&|x| x.gaussian_nll_loss(&y, &t.abs(), GaussianNll::new().full()));
    let one = Tensor::new([1]);
    both(&|x| x.unsqueeze(0).ctc_loss(&Tensor::new([[1]]), &one, &one, Reduction::Mean));
}

#[test]
fn gradients_at_corners_match_pytorch() {
    let at = |x: f32, f: &dyn Fn(&Tensor) -> Tensor| {
        let x = Tensor::new([x]).as_param();
        f(&x).backward();
        x.grad().unwrap().item::<f32>().unwrap()
    };
    // A margin that is met exactly has no gradient.
    let (zero, one) = (Tensor::new([0.0f32]), Tensor::new([1.0f32]));
    assert_eq!(at(0.0, &|x| x.margin_ranking_loss(&zero, &one, 0.0, Reduction::Sum)), 0.0);
    assert_eq!(at(1.0, &|x| x.hinge_embedding_loss(&-&one, 1.0, Reduction::Sum)), 0.0);
    assert_eq!(
        at(0.0, &|x| x.triplet_margin_loss(&one, &(&one + &one), TripletMargin::new().eps(0.0))),
        0.0
    );
    for p in [1, 2] {
        let x = Tensor::new([[1.0f32, 0.0]]).as_param();
        x.multi_margin_loss(&Tensor::new([0]), MultiMargin::new().p(p)).backward();
        assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    }
    let x = Tensor::new([[1.0f32, 0.0]]).as_param();
    x.cosine_embedding_loss(&Tensor::new([[0.0f32, 1.0]]), &Tensor::new([-1]), 0.0, Reduction::Sum)
        .backward();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    // A variance clamped to eps passes its gradient.
    let loss = |v: &Tensor| zero.gaussian_nll_loss(&zero, v, GaussianNll::new().eps(0.5));
    assert_eq!(at(0.0, &loss), 1.0);
    // Equal vectors have a distance of eps, whose gradient is finite.
    let x = Tensor::zeros([1, 2]).as_param();
    x.triplet_margin_loss(
        &Tensor::zeros([1, 2]),
        &Tensor::ones([1, 2]),
        TripletMargin::new().margin(5.0).eps(0.0),
    )
    .backward();
    assert_finite_close(
        "the gradient",
        &x.grad().unwrap(),
        &Tensor::new([[0.5f32.sqrt(), 0.5f32.sqrt()]]),
        1e-6,
    );
}

#[test]
fn misuse_is_an_error() {
    let (x, y) = (Tensor::zeros([2, 3]), Tensor::zeros([2]));
    let text = |r: picograd::Result<Tensor>| r.unwrap_err().to_string();
    assert!(
        text(x.try_triplet_margin_loss(&y, &x, Reduction::Mean))
            .starts_with("triplet_margin_loss: expected a target of the input's shape")
    );
    assert!(
        text(x.try_triplet_margin_loss(&x, &x, TripletMargin::new().p(0.0))).contains("above 0")
    );
    assert!(
        text(Tensor::zeros(()).try_triplet_margin_loss(
            &Tensor::zeros(()),
            &Tensor::zeros(()),
            Reduction::Mean
        ))
        .contains("no axis")
    );
    assert!(
        text(x.try_margin_ranking_loss(&y, &x, 0.0, Reduction::Mean))
            .starts_with("margin_ranking_loss:")
    );
    assert!(
        text(x.try_hinge_embedding_loss(&y, 0.0, Reduction::Mean))
            .starts_with("hinge_embedding_loss:")
    );
    assert!(text(x.try_soft_margin_loss(&y, Reduction::Mean)).starts_with("soft_margin_loss:"));
    assert!(text(x.try_multi_margin_loss(&y, Reduction::Mean)).contains("class indices"));
    assert!(
        text(x.try_multi_margin_loss(&Tensor::new([1]), Reduction::Mean))
            .contains("requires a target of [2]")
    );
    for bad in [3, -1] {
        let e = text(x.try_multi_margin_loss(&Tensor::new([0, bad]), Reduction::Mean));
        assert_eq!(
            e,
            format!("multi_margin_loss: the target at 1 is {bad}; expected a class from 0 to 2")
        );
    }
    let weight = MultiMargin::new().weight(&y);
    assert!(text(x.try_multi_margin_loss(&Tensor::new([0, 1]), weight)).contains("of 3 classes"));
    assert!(text(x.try_poisson_nll_loss(&y, Reduction::Mean)).starts_with("poisson_nll_loss:"));
    assert!(
        text(x.try_gaussian_nll_loss(&x, &Tensor::zeros([3]), Reduction::Mean)).contains("got [3]")
    );
    assert!(text(x.try_gaussian_nll_loss(&x, &x, GaussianNll::new().eps(0.0))).contains("above 0"));
    let (logp, target, one) = (Tensor::zeros([4, 1, 3]), Tensor::new([[1]]), Tensor::new([1]));
    assert!(
        text(y.try_ctc_loss(&target, &one, &one, Reduction::Mean))
            .contains("[frames, batch, classes]")
    );
    assert!(
        text(logp.try_ctc_loss(&target, &Tensor::new([1, 1]), &one, Reduction::Mean))
            .contains("expected input_lengths of shape [1], got [2]")
    );
    assert!(
        text(logp.try_ctc_loss(&target, &one, &Tensor::zeros([1]), Reduction::Mean))
            .contains("expected integer target_lengths")
    );
    for bad in [3, -1] {
        let (rows, list) = (Tensor::new([[1, bad]]), Tensor::new([1, bad]));
        for targets in [&rows, &list] {
            let e = text(logp.try_ctc_loss(
                targets,
                &Tensor::new([4]),
                &Tensor::new([2]),
                Reduction::Mean,
            ));
            assert_eq!(
                e,
                format!("ctc_loss: the label at 1 is {bad}; expected a class from 0 to 2")
            );
            // Labels after the end of the target are ignored.
            assert!(logp.try_ctc_loss(targets, &Tensor::new([4]), &one, Reduction::Mean).is_ok());
        }
    }
    assert!(
        text(logp.try_ctc_loss(&target, &one, &one, Ctc::new().blank(3)))
            .contains("blank class 3 is not one of 3 classes")
    );
    assert!(
        text(logp.try_ctc_loss(&target, &one, &one, Reduction::BatchMean))
            .contains("Mean, Sum or None")
    );
    assert!(
        text(logp.try_ctc_loss(&Tensor::new([[1], [2]]), &one, &one, Reduction::Mean))
            .contains("got [2, 1]")
    );
}
