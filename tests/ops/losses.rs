//! Cases of losses against PyTorch.

use crate::cases::How::Wide;
use crate::cases::{Case, cases};
use picograd::tensor::{
    BinaryCrossEntropy, CrossEntropy, GaussianNll, MultiMargin, PoissonNll, Reduction,
    TripletMargin,
};

pub const CASES: &[Case] = cases! {
    Wide(8.0), "mse_loss.mean", |x| x[0].mse_loss(&x[1], Reduction::Mean);
    Wide(8.0), "mse_loss.sum", |x| x[0].mse_loss(&x[1], Reduction::Sum);
    Wide(8.0), "mse_loss.none", |x| x[0].mse_loss(&x[1], Reduction::None);
    Wide(8.0), "l1_loss.mean", |x| x[0].l1_loss(&x[1], Reduction::Mean);
    Wide(8.0), "l1_loss.sum", |x| x[0].l1_loss(&x[1], Reduction::Sum);
    Wide(8.0), "l1_loss.none", |x| x[0].l1_loss(&x[1], Reduction::None);
    Wide(8.0), "binary_crossentropy.mean", |x| x[0].binary_crossentropy(&x[1], Reduction::Mean);
    Wide(8.0), "binary_crossentropy.sum", |x| x[0].binary_crossentropy(&x[1], Reduction::Sum);
    Wide(8.0), "binary_crossentropy.none", |x| x[0].binary_crossentropy(&x[1], Reduction::None);
    Wide(8.0), "binary_crossentropy_logits.mean", |x|
        x[0].binary_crossentropy_logits(&x[1], Reduction::Mean);
    Wide(8.0), "binary_crossentropy_logits.sum", |x|
        x[0].binary_crossentropy_logits(&x[1], Reduction::Sum);
    Wide(8.0), "binary_crossentropy_logits.none", |x|
        x[0].binary_crossentropy_logits(&x[1], Reduction::None);
    Wide(8.0), "binary_crossentropy_logits.weights", |x|
        x[0].binary_crossentropy_logits(
            &x[1],
            BinaryCrossEntropy::new().pos_weight(&x[2].cast(x[0].dtype())),
        );
    Wide(8.0), "cross_entropy.mean", |x| x[0].cross_entropy(&x[1], Reduction::Mean);
    Wide(8.0), "cross_entropy.sum", |x| x[0].cross_entropy(&x[1], Reduction::Sum);
    Wide(8.0), "cross_entropy.none", |x| x[0].cross_entropy(&x[1], Reduction::None);
    Wide(8.0), "cross_entropy.smooth", |x|
        x[0].cross_entropy(&x[1], CrossEntropy::new().label_smoothing(0.25));
    Wide(8.0), "cross_entropy.ignore", |x|
        x[0].cross_entropy(&x[1], CrossEntropy::new().ignore_index(1));
    Wide(8.0), "cross_entropy.weight", |x|
        x[0].cross_entropy(&x[1], CrossEntropy::new().weight(&x[2]));
    Wide(8.0), "cross_entropy.shares", |x| x[0].cross_entropy(&x[1], Reduction::Mean);
    Wide(8.0), "nll_loss.mean", |x| x[0].nll_loss(&x[1], Reduction::Mean);
    Wide(8.0), "nll_loss.sum", |x| x[0].nll_loss(&x[1], Reduction::Sum);
    Wide(8.0), "nll_loss.none", |x| x[0].nll_loss(&x[1], Reduction::None);
    Wide(8.0), "sparse_categorical_crossentropy", |x|
        x[0].sparse_categorical_crossentropy(&x[1], Reduction::Mean);
    Wide(8.0), "huber_loss", |x| x[0].huber_loss(&x[1], 1.25, Reduction::Mean);
    Wide(8.0), "smooth_l1_loss", |x| x[0].smooth_l1_loss(&x[1], 0.75, Reduction::Mean);
    Wide(8.0), "kl_div", |x| x[0].kl_div(&x[1], false, Reduction::BatchMean);
    Wide(8.0), "kl_div.log", |x| x[0].kl_div(&x[1], true, Reduction::Sum);
    Wide(8.0), "cosine_similarity", |x| x[0].cosine_similarity(&x[1], -1, 1e-8);
    Wide(8.0), "cosine_embedding_loss", |x|
        x[0].cosine_embedding_loss(&x[1], &x[2], -0.25, Reduction::Mean);

    Wide(8.0), "triplet_margin_loss", |x|
        x[0].triplet_margin_loss(&x[1], &x[2], TripletMargin::new().margin(2.5).eps(0.125));
    Wide(8.0), "margin_ranking_loss", |x|
        x[0].margin_ranking_loss(&x[1], &x[2], 0.375, Reduction::Mean);
    Wide(8.0), "hinge_embedding_loss", |x| x[0].hinge_embedding_loss(&x[1], 1.125, Reduction::Sum);
    Wide(8.0), "soft_margin_loss", |x| x[0].soft_margin_loss(&x[1], Reduction::Mean);
    Wide(8.0), "multi_margin_loss", |x|
        x[0].multi_margin_loss(&x[1], MultiMargin::new().p(2).margin(1.125));
    Wide(8.0), "poisson_nll_loss", |x| x[0].poisson_nll_loss(&x[1], PoissonNll::new().full());
    Wide(8.0), "gaussian_nll_loss", |x|
        x[0].gaussian_nll_loss(&x[1], &x[2], GaussianNll::new().full());
    Wide(8.0), "ctc_loss", |x| x[0].ctc_loss(&x[1], &x[2], &x[3], Reduction::Sum);
};
