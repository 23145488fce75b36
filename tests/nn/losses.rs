//! Every loss against PyTorch, with all options: values and gradients.

use super::{check, fixture};
use picograd::Tensor;
use picograd::io::StateDict;
use picograd::tensor::{BinaryCrossEntropy, CrossEntropy, Reduction};
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/losses.safetensors")));

const REDUCTIONS: [(&str, Reduction); 4] = [
    ("mean", Reduction::Mean),
    ("sum", Reduction::Sum),
    ("none", Reduction::None),
    ("batchmean", Reduction::BatchMean),
];

fn shared(name: &str) -> Tensor {
    ALL.require(&format!("shared/{name}")).unwrap().clone()
}

#[track_caller]
fn loss(name: &str, forward: impl Fn(&[Tensor]) -> Tensor) {
    check(&ALL, name, &(), |x| vec![forward(x)]);
}

#[test]
fn classification_losses_match_pytorch() {
    let (index, deep) = (Tensor::new([0, 3, 1, 1, 2]), Tensor::new([[0, 1, 2], [3, 3, 0]]));
    let weight = shared("weight");
    for (name, reduction) in &REDUCTIONS[..3] {
        let how = || CrossEntropy::new().reduction(*reduction);
        loss(&format!("ce_{name}"), |x| x[0].cross_entropy(&index, *reduction));
        loss(&format!("ce_all_{name}"), |x| {
            x[0].cross_entropy(&deep, how().weight(&weight).ignore_index(3).label_smoothing(0.1))
        });
        loss(&format!("ce_ignore_{name}"), |x| x[0].cross_entropy(&deep, how().ignore_index(0)));
        loss(&format!("ce_probs_{name}"), |x| {
            x[0].cross_entropy(&shared("probs"), how().weight(&weight).label_smoothing(0.2))
        });
        loss(&format!("nll_{name}"), |x| {
            x[0].log_softmax(1).nll_loss(&index, how().weight(&weight).ignore_index(1))
        });
    }
    let some = Tensor::new([0, -100, 1, -100, 2]);
    for (name, reduction) in &REDUCTIONS[..3] {
        loss(&format!("ce_default_{name}"), |x| x[0].cross_entropy(&some, *reduction));
        let how = || CrossEntropy::new().reduction(*reduction).weight(&weight);
        loss(&format!("nll_default_{name}"), |x| x[0].log_softmax(1).nll_loss(&some, how()));
    }
    loss("ce_smooth", |x| x[0].cross_entropy(&index, CrossEntropy::new().label_smoothing(0.3)));
    loss("ce_one", |x| x[0].cross_entropy(&Tensor::new(2), Reduction::Mean));
    loss("ce_last", |x| {
        x[0].sparse_categorical_crossentropy(&deep, CrossEntropy::new().ignore_index(3))
    });
}

#[test]
fn binary_losses_match_pytorch() {
    for (name, reduction) in &REDUCTIONS[..3] {
        loss(&format!("bce_{name}"), |x| x[0].binary_crossentropy(&x[1], *reduction));
        let how = || {
            BinaryCrossEntropy::new()
                .reduction(*reduction)
                .weight(&shared("z"))
                .pos_weight(&shared("pos"))
        };
        loss(&format!("bce_logits_{name}"), |x| x[0].binary_crossentropy_logits(&x[1], how()));
    }
}

#[test]
fn regression_losses_match_pytorch() {
    for (name, reduction) in &REDUCTIONS[..3] {
        loss(&format!("mse_{name}"), |x| x[0].mse_loss(&x[1], *reduction));
        loss(&format!("l1_{name}"), |x| x[0].l1_loss(&x[1], *reduction));
        loss(&format!("huber_{name}"), |x| x[0].huber_loss(&x[1], 0.7, *reduction));
        loss(&format!("smooth_l1_{name}"), |x| x[0].smooth_l1_loss(&x[1], 0.7, *reduction));
    }
}

#[test]
fn distribution_and_angle_losses_match_pytorch() {
    for (name, reduction) in REDUCTIONS {
        loss(&format!("kl_{name}"), |x| x[0].kl_div(&shared("q"), false, reduction));
        loss(&format!("kl_log_{name}"), |x| x[0].kl_div(&shared("q").log(), true, reduction));
    }
    loss("cosine", |x| x[0].cosine_similarity(&x[1], 1, 1e-8));
    let signs = Tensor::new([1, -1, -1]);
    for (name, reduction) in &REDUCTIONS[..3] {
        loss(&format!("cosine_embedding_{name}"), |x| {
            x[0].cosine_embedding_loss(&x[1], &signs, 0.1, *reduction)
        });
    }
}

#[test]
fn extremes_stay_finite() {
    let logits = Tensor::new([[1e4f32, -1e4, 0.0]]).as_param();
    let loss = logits.cross_entropy(&Tensor::new([1]), Reduction::Mean);
    loss.backward();
    assert_eq!(loss.item::<f32>().unwrap(), 2e4);
    assert_eq!(logits.grad().unwrap().to_vec::<f32>().unwrap(), [1.0, -1.0, 0.0]);
    let x = Tensor::new([0.0f32, 1.0]);
    assert_eq!(
        x.binary_crossentropy(&Tensor::new([1.0f32, 0.0]), Reduction::None)
            .to_vec::<f32>()
            .unwrap(),
        [100.0, 100.0]
    );
    let q = Tensor::new([0.0f32, 1.0]);
    assert_eq!(
        Tensor::new([-3.0f32, 0.0]).kl_div(&q, false, Reduction::Sum).item::<f32>().unwrap(),
        0.0
    );
    let zero = Tensor::zeros([1, 3]);
    assert_eq!(zero.cosine_similarity(&zero, -1, 1e-8).item::<f32>().unwrap(), 0.0);
}

#[test]
fn targets_may_have_any_integer_dtype() {
    let logits = Tensor::new([[1.0f32, 2.0], [3.0, -1.0]]);
    let expected =
        logits.cross_entropy(&Tensor::new([1, 0]), Reduction::Mean).item::<f32>().unwrap();
    for dtype in picograd::DType::ALL.iter().filter(|d| d.is_int()) {
        let target = Tensor::new([1, 0]).cast(*dtype);
        // A target that wraps to a class in eight bits is not that class.
        let loss = logits
            .cross_entropy(&target, CrossEntropy::new().ignore_index(-255))
            .item::<f32>()
            .unwrap();
        assert!((loss - expected).abs() < 1e-6, "{dtype}: {loss}, expected {expected}");
    }
}

#[test]
fn narrow_floats_are_rounded_once() {
    let logits = Tensor::arange(0f32, 4.0, 1.0).reshape([1, 4]);
    let half = logits.cast(picograd::DType::F16).cross_entropy(&Tensor::new([0]), Reduction::Mean);
    let full = logits.cross_entropy(&Tensor::new([0]), Reduction::Mean).cast(picograd::DType::F16);
    assert_eq!(half.to_bytes().unwrap(), full.to_bytes().unwrap());
}

#[test]
fn misuse_is_an_error() {
    let (x, y) = (Tensor::zeros([2, 3]), Tensor::zeros([2]));
    let text = |r: picograd::Result<Tensor>| r.unwrap_err().to_string();
    let mse = text(x.try_mse_loss(&y, Reduction::Mean));
    assert_eq!(mse, "mse_loss: expected a target of the input's shape [2, 3], got [2]");
    let ce = text(x.try_cross_entropy(&Tensor::new([0, 1, 2]), Reduction::Mean));
    let shapes = "logits of shape [2, 3] require integers of shape [2] or floats of [2, 3] as \
                  targets, got i32 of [3]";
    assert_eq!(ce, format!("cross_entropy: {shapes}"));
    let weights = text(x.try_cross_entropy(&Tensor::new([0, 1]), CrossEntropy::new().weight(&y)));
    assert_eq!(weights, "cross_entropy: expected a weight for each of 3 classes, got [2]");
    assert!(
        text(x.try_cross_entropy(&x, CrossEntropy::new().ignore_index(0)))
            .contains("ignore_index(0) requires class indices")
    );
    assert!(
        text(x.try_cross_entropy(&Tensor::new([0, 1]), CrossEntropy::new().label_smoothing(1.5)))
            .contains("1.5")
    );
    assert!(
        text(Tensor::zeros(()).try_cross_entropy(&Tensor::new(0), Reduction::Mean))
            .contains("no axis of classes")
    );
    assert!(text(x.try_sparse_categorical_crossentropy(&y, Reduction::Mean)).contains("f32"));
    assert!(text(x.try_huber_loss(&x, 0.0, Reduction::Mean)).contains("above 0"));
    assert!(text(x.try_smooth_l1_loss(&x, -1.0, Reduction::Mean)).contains("at least 0"));
}
