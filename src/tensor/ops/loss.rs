//! Losses: how far an output is from its target, as one number or one per element. Narrow floats
//! are computed in `f32` and rounded once.

use super::create::iota;
use super::margin_loss::positive;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Fold;
use crate::shape::{Dims, Movement};
use crate::tensor::{Axes, Tensor, autocast, resolve_axis, wrong_dtype, wrong_shape};

/// What becomes of the losses of the single elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// Their mean; where they have weights, the weighted mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay as they are.
    None,
    /// Their sum over the size of the first axis: the mean that the mathematics of a divergence
    /// asks for.
    BatchMean,
}

/// The target that a loss over classes leaves out unless another is named, as in PyTorch.
const IGNORED: i64 = -100;

/// How a loss over classes runs: `CrossEntropy::new().label_smoothing(0.1).ignore_index(0)`. A
/// [`Reduction`] stands for one with nothing else set.
#[derive(Clone, Default)]
pub struct CrossEntropy {
    reduction: Reduction,
    smoothing: f64,
    ignore: Option<i64>,
    weight: Option<Tensor>,
}

impl CrossEntropy {
    /// The mean over all elements but those whose target is -100, every class alike, nothing
    /// smoothed.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [0.0, 0.0]]), Tensor::new([0, 1]));
    /// assert!(
    ///     (logits.cross_entropy(&target, CrossEntropy::new()).item::<f32>()? - 2f32.ln()).abs()
    ///         < 1e-6
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> CrossEntropy {
        CrossEntropy::default()
    }
    /// What becomes of the losses of the single elements.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     tensor::{CrossEntropy, Reduction},
    /// };
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [0.0, 0.0]]), Tensor::new([0, 1]));
    /// let sum = CrossEntropy::new().reduction(Reduction::Sum);
    /// assert!((logits.cross_entropy(&target, sum).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reduction(self, reduction: Reduction) -> CrossEntropy {
        CrossEntropy { reduction, ..self }
    }
    /// This part of each target is spread evenly over all classes (Szegedy and others, 2016).
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[8.0f32, 0.0]]), Tensor::new([0]));
    /// let smooth = logits
    ///     .cross_entropy(&target, CrossEntropy::new().label_smoothing(0.5))
    ///     .item::<f32>()?;
    /// assert!((smooth - 2.0).abs() < 1e-3); // a quarter of the target is the other class
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn label_smoothing(self, part: f64) -> CrossEntropy {
        CrossEntropy { smoothing: part, ..self }
    }
    /// Targets of this index count for nothing, and the mean is over the others. Without it such
    /// are targets of -100.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [9.0, 0.0]]), Tensor::new([0, 1]));
    /// let loss =
    ///     logits.cross_entropy(&target, CrossEntropy::new().ignore_index(1)).item::<f32>()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn ignore_index(self, index: i64) -> CrossEntropy {
        CrossEntropy { ignore: Some(index), ..self }
    }
    /// A weight per class. The mean is the weighted one.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [9.0, 0.0]]), Tensor::new([0, 1]));
    /// let how = CrossEntropy::new().weight(&Tensor::new([1.0f32, 0.0]));
    /// assert!((logits.cross_entropy(&target, how).item::<f32>()? - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight(self, weight: &Tensor) -> CrossEntropy {
        CrossEntropy { weight: Some(weight.clone()), ..self }
    }
}

impl From<Reduction> for CrossEntropy {
    fn from(reduction: Reduction) -> CrossEntropy {
        CrossEntropy::new().reduction(reduction)
    }
}

/// How a loss over yes and no runs: `BinaryCrossEntropy::new().pos_weight(&w)`. A [`Reduction`]
/// stands for one with nothing else set.
#[derive(Clone, Default)]
pub struct BinaryCrossEntropy {
    reduction: Reduction,
    weight: Option<Tensor>,
    pos_weight: Option<Tensor>,
}

impl BinaryCrossEntropy {
    /// The mean over all elements, all of them alike.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// assert!(
    ///     (p.binary_crossentropy(&y, BinaryCrossEntropy::new()).item::<f32>()? - 2f32.ln())
    ///         .abs()
    ///         < 1e-6
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> BinaryCrossEntropy {
        BinaryCrossEntropy::default()
    }
    /// What becomes of the losses of the single elements.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     tensor::{BinaryCrossEntropy, Reduction},
    /// };
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let sum = BinaryCrossEntropy::new().reduction(Reduction::Sum);
    /// assert!((p.binary_crossentropy(&y, sum).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reduction(self, reduction: Reduction) -> BinaryCrossEntropy {
        BinaryCrossEntropy { reduction, ..self }
    }
    /// Factors of the losses, broadcast to them. The mean does not divide by them.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let how = BinaryCrossEntropy::new().weight(&Tensor::new([4.0f32, 0.0]));
    /// assert!((p.binary_crossentropy(&y, how).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight(self, weight: &Tensor) -> BinaryCrossEntropy {
        BinaryCrossEntropy { weight: Some(weight.clone()), ..self }
    }
    /// Factors of what a "yes" costs, broadcast: above 1 for more recall, below for more precision.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let how = BinaryCrossEntropy::new().pos_weight(&Tensor::new([3.0f32]));
    /// assert!((p.binary_crossentropy(&y, how).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn pos_weight(self, weight: &Tensor) -> BinaryCrossEntropy {
        BinaryCrossEntropy { pos_weight: Some(weight.clone()), ..self }
    }
}

impl From<Reduction> for BinaryCrossEntropy {
    fn from(reduction: Reduction) -> BinaryCrossEntropy {
        BinaryCrossEntropy::new().reduction(reduction)
    }
}

impl Tensor {
    fallible! {
        /// The cross entropy of logits and a target, along axis 1 (axis 0 of a tensor with one
        /// axis). The target is either the index of a class, an integer tensor without the axis of
        /// classes, or a float tensor of this shape with probabilities. Targets of -100 are left
        /// out, or those that [`ignore_index`](CrossEntropy::ignore_index) names. Another index
        /// outside the classes is an error where the targets are in the host's memory
        /// already; elsewhere values are not read, and it costs nothing, but counts in the mean.
        ///
        /// ```
        /// use picograd::{
        ///     Tensor,
        ///     tensor::{CrossEntropy, Reduction},
        /// };
        /// let logits = Tensor::new([[0.0f32, 0.0], [100.0, 0.0]]);
        /// let each =
        ///     logits.cross_entropy(&Tensor::new([1, 0]), Reduction::None).to_vec::<f32>()?;
        /// assert!((each[0] - 2f32.ln()).abs() < 1e-6 && each[1].abs() < 1e-6);
        /// let first = logits
        ///     .cross_entropy(&Tensor::new([1, 0]), CrossEntropy::new().ignore_index(0))
        ///     .item::<f32>()?;
        /// assert!((first - 2f32.ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cross_entropy | try_cross_entropy(
            &self,
            target: &Tensor,
            how: impl Into<CrossEntropy>,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_cross_entropy(target, how);
            }
            let (axis, how) = (class_axis("cross_entropy", self)?, how.into());
            let logp = counted_rows(&self.as_wide_float(), target, axis, &how)?
                .try_log_softmax(axis as isize)?;
            classes("cross_entropy", &logp, target, axis, &how)?.try_cast(self.as_float().dtype())
        }

        /// The loss of [`cross_entropy`](Self::cross_entropy) for what are logarithms of
        /// probabilities already, such as a [`log_softmax`](Self::log_softmax).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let logp = Tensor::new([[0.25f32, 0.75], [0.5, 0.5]]).log();
        /// let loss = logp.nll_loss(&Tensor::new([1, 0]), Reduction::Sum).item::<f32>()?;
        /// assert!((loss + (0.75f32 * 0.5).ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nll_loss | try_nll_loss(
            &self,
            target: &Tensor,
            how: impl Into<CrossEntropy>,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_nll_loss(target, how);
            }
            let axis = class_axis("nll_loss", self)?;
            classes("nll_loss", &self.as_wide_float(), target, axis, &how.into())?
                .try_cast(self.as_float().dtype())
        }

        /// [`cross_entropy`](Self::cross_entropy) with the classes along the last axis and targets
        /// that are indices, as language models have it.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let logits = Tensor::zeros([2, 3, 10]);
        /// let loss = logits
        ///     .sparse_categorical_crossentropy(&Tensor::full([2, 3], 7i32), Reduction::Mean);
        /// assert!((loss.item::<f32>()? - 10f32.ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn sparse_categorical_crossentropy | try_sparse_categorical_crossentropy(
            &self,
            target: &Tensor,
            how: impl Into<CrossEntropy>,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_sparse_categorical_crossentropy(target, how);
            }
            const OP: &str = "sparse_categorical_crossentropy";
            if !target.dtype().is_int() {
                return wrong_dtype(
                    OP,
                    format!("expected integer class indices as targets, got {}", target.dtype()),
                );
            }
            let axis = resolve_axis(OP, -1, &self.dims())?;
            let how = how.into();
            let logp =
                counted_rows(&self.as_wide_float(), target, axis, &how)?.try_log_softmax(-1)?;
            classes(OP, &logp, target, axis, &how)?.try_cast(self.as_float().dtype())
        }

        /// The cross entropy of probabilities and targets between 0 and 1. A logarithm counts as
        /// -100 at least, so that a certain mistake has a finite cost.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (p, y) = (Tensor::new([0.5f32, 1.0, 0.0]), Tensor::new([1.0f32, 1.0, 1.0]));
        /// let each = p.binary_crossentropy(&y, Reduction::None).to_vec::<f32>()?;
        /// assert!((each[0] - 2f32.ln()).abs() < 1e-6 && each[1] == 0.0 && each[2] == 100.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn binary_crossentropy | try_binary_crossentropy(
            &self,
            target: &Tensor,
            how: impl Into<BinaryCrossEntropy>,
        ) -> Tensor {
            const OP: &str = "binary_crossentropy";
            autocast::banned(OP, "binary_crossentropy_logits")?;
            let (how, x, y) = (how.into(), self.as_wide_float(), self.target(OP, target)?);
            // At 0 the logarithm is -100 at once: that of 1 in its place keeps the gradient finite.
            let log = |p: Tensor| {
                let none = p.try_eq(0)?;
                none.try_where_(-100.0, none.try_where_(1.0, p)?.log().try_maximum(-100.0)?)
            };
            let yes = times(y.try_mul(log(x.copy())?)?, &how.pos_weight)?;
            let no = (1.0 - &y).try_mul(log(1.0 - &x)?)?;
            self.reduced(&times(-yes.try_add(no)?, &how.weight)?, how.reduction)
        }

        /// [`binary_crossentropy`](Self::binary_crossentropy) of the sigmoid of this, without
        /// overflow and without losing small numbers.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let x = Tensor::new([1000.0f32, -1000.0]);
        /// let y = Tensor::new([1.0f32, 1.0]);
        /// assert_eq!(
        ///     x.binary_crossentropy_logits(&y, Reduction::None).to_vec::<f32>()?,
        ///     [0.0, 1000.0]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn binary_crossentropy_logits | try_binary_crossentropy_logits(
            &self,
            target: &Tensor,
            how: impl Into<BinaryCrossEntropy>,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_binary_crossentropy_logits(target, how);
            }
            const OP: &str = "binary_crossentropy_logits";
            let (how, x, y) = (how.into(), self.as_wide_float(), self.target(OP, target)?);
            // -log(sigmoid(x)) = softplus(-x), and softplus(-x) = softplus(x) - x.
            let yes = times(y.try_mul((-&x).softplus(1.0))?, &how.pos_weight)?;
            let no = (1.0 - &y).try_mul(x.softplus(1.0))?;
            self.reduced(&times(yes.try_add(no)?, &how.weight)?, how.reduction)
        }

        /// The square of the difference.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1.0f32, 4.0]));
        /// assert_eq!(x.mse_loss(&y, Reduction::Mean).item::<f32>()?, 2.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn mse_loss | try_mse_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_mse_loss(target, reduction);
            }
            let apart = self.as_wide_float().try_sub(self.target("mse_loss", target)?)?;
            self.reduced(&apart.square(), reduction)
        }

        /// The size of the difference.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1.0f32, 4.0]));
        /// assert_eq!(x.l1_loss(&y, Reduction::Sum).item::<f32>()?, 2.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn l1_loss | try_l1_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_l1_loss(target, reduction);
            }
            let apart = self.as_wide_float().try_sub(self.target("l1_loss", target)?)?;
            self.reduced(&apart.abs(), reduction)
        }

        /// Half the square of the difference up to `delta`, and from there on a line: `delta·(|d| -
        /// delta/2)`.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 10.0]), Tensor::zeros([2]));
        /// assert_eq!(x.huber_loss(&y, 2.0, Reduction::None).to_vec::<f32>()?, [0.5, 18.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn huber_loss | try_huber_loss(
            &self,
            target: &Tensor,
            delta: f64,
            reduction: Reduction,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_huber_loss(target, delta, reduction);
            }
            if delta.is_nan() || delta <= 0.0 {
                return wrong_shape(
                    "huber_loss",
                    format!("delta is {delta}, and it must be above 0"),
                );
            }
            let apart = self.as_wide_float().try_sub(self.target("huber_loss", target)?)?.abs();
            let near = apart.square() * 0.5;
            self.reduced(
                &apart.try_le(delta)?.try_where_(near, (&apart - 0.5 * delta) * delta)?,
                reduction,
            )
        }

        /// [`huber_loss`](Self::huber_loss) over its `beta`, which keeps the slope of the line 1; a
        /// `beta` of 0 makes it [`l1_loss`](Self::l1_loss).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 10.0]), Tensor::zeros([2]));
        /// assert_eq!(x.smooth_l1_loss(&y, 2.0, Reduction::None).to_vec::<f32>()?, [0.25, 9.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn smooth_l1_loss | try_smooth_l1_loss(
            &self,
            target: &Tensor,
            beta: f64,
            reduction: Reduction,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_smooth_l1_loss(target, beta, reduction);
            }
            if beta.is_nan() || beta < 0.0 {
                return wrong_shape(
                    "smooth_l1_loss",
                    format!("beta is {beta}, and it must not be below 0"),
                );
            }
            if beta == 0.0 {
                return self.try_l1_loss(target, reduction);
            }
            let apart = self.as_wide_float().try_sub(self.target("smooth_l1_loss", target)?)?.abs();
            let near = apart.square() * (0.5 / beta);
            self.reduced(&apart.try_lt(beta)?.try_where_(near, &apart - 0.5 * beta)?, reduction)
        }

        /// The Kullback-Leibler divergence of a target distribution from this, which holds
        /// logarithms of probabilities: `t·(log t - x)`. With `log_target` the target is in
        /// logarithms too. [`Reduction::BatchMean`] is the one that the definition has.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (p, q) = (Tensor::new([[0.5f32, 0.5]]), Tensor::new([[1.0f32, 0.0]]));
        /// let apart = p.log().kl_div(&q, false, Reduction::BatchMean).item::<f32>()?;
        /// assert!((apart - 2f32.ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn kl_div | try_kl_div(
            &self,
            target: &Tensor,
            log_target: bool,
            reduction: Reduction,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_kl_div(target, log_target, reduction);
            }
            let (x, t) = (self.as_wide_float(), self.target("kl_div", target)?);
            let each = if log_target {
                t.exp().try_mul(t.try_sub(x)?)?
            } else {
                // 0·log 0 is 0. The logarithm of a 1 in its place keeps the gradient finite too.
                let there = t.try_gt(0.0)?;
                let entropy =
                    there.try_where_(t.try_mul(there.try_where_(&t, 1.0)?.log())?, 0.0)?;
                entropy.try_sub(t.try_mul(x)?)?
            };
            self.reduced(&each, reduction)
        }

        /// The cosine of the angle between two vectors along an axis, which is dropped. Lengths
        /// count as `eps` at least.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([[1.0f32, 0.0]]), Tensor::new([[2.0f32, 0.0], [0.0, 3.0]]));
        /// assert_eq!(x.cosine_similarity(&y, -1, 1e-8).to_vec::<f32>()?, [1.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cosine_similarity | try_cosine_similarity(
            &self,
            other: &Tensor,
            axis: isize,
            eps: f64,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_cosine_similarity(other, axis, eps);
            }
            cosine("cosine_similarity", self, other, axis, |squares| {
                squares.try_maximum(eps * eps)
            })?
            .try_cast(self.as_float().dtype())
        }

        /// 1 less the cosine between pairs whose target is 1, and what the cosine has above
        /// `margin` between pairs whose target is -1. The vectors lie along the last axis.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (
        ///     Tensor::new([[1.0f32, 0.0], [0.0, 1.0]]),
        ///     Tensor::new([[2.0f32, 0.0], [0.0, 3.0]]),
        /// );
        /// let each = x
        ///     .cosine_embedding_loss(&y, &Tensor::new([1, -1]), 0.5, Reduction::None)
        ///     .to_vec::<f32>()?;
        /// assert!(each[0].abs() < 1e-6 && (each[1] - 0.5).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cosine_embedding_loss | try_cosine_embedding_loss(
            &self,
            other: &Tensor,
            target: &Tensor,
            margin: f64,
            reduction: Reduction,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_cosine_embedding_loss(other, target, margin, reduction);
            }
            const OP: &str = "cosine_embedding_loss";
            // A small number under the roots keeps their gradient finite at zero.
            let cos = cosine(OP, self, other, -1, |squares| Ok(squares + 1e-12))?;
            let alike = target.try_eq(1)?.try_where_(1.0 - &cos, 0.0)?;
            let apart = target.try_eq(-1)?.try_where_(positive(&(cos - margin))?, 0.0)?;
            self.reduced(&alike.try_add(apart)?, reduction)
        }
    }

    /// A target of this tensor's shape, in the dtype that losses are computed in. Another shape
    /// would broadcast to a loss that means nothing.
    pub(in crate::tensor) fn target(&self, op: &'static str, target: &Tensor) -> Result<Tensor> {
        if target.dims() != self.dims() {
            return wrong_shape(
                op,
                format!(
                    "the target has shape {:?} and the input {:?}; they must be the same",
                    target.dims(),
                    self.dims()
                ),
            );
        }
        target.try_cast(self.as_wide_float().dtype())
    }

    /// The losses of the elements brought together, in this tensor's dtype.
    pub(in crate::tensor) fn reduced(&self, each: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let sum = || each.try_sum(..);
        let loss = match reduction {
            Reduction::None => each.clone(),
            Reduction::Sum => sum()?,
            Reduction::Mean => sum()?.try_div(each.count("loss", &Axes::from(..), 0)?)?,
            Reduction::BatchMean => sum()?.try_div(self.count(
                "loss",
                &if self.ndim() == 0 { Axes::from(..) } else { Axes::from(0) },
                0,
            )?)?,
        };
        loss.try_cast(self.as_float().dtype())
    }
}

/// With a factor, if there is one.
pub(in crate::tensor) fn times(x: Tensor, factor: &Option<Tensor>) -> Result<Tensor> {
    match factor {
        Some(f) => x.try_mul(f),
        None => Ok(x),
    }
}

fn class_axis(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.ndim() {
        0 => wrong_shape(op, "a tensor of shape [] has no axis of classes"),
        1 => Ok(0),
        _ => Ok(1),
    }
}

/// x·y over both lengths, each a root of squares that `floor` keeps away from zero.
fn cosine(
    op: &'static str,
    x: &Tensor,
    y: &Tensor,
    axis: isize,
    floor: impl Fn(Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, y) = (x.as_wide_float(), y.as_wide_float());
    let product = x.try_mul(&y)?;
    let axis = resolve_axis(op, axis, &product.dims())? as isize - product.ndim() as isize;
    // Two roots, since a product of squares leaves the range of a float sooner.
    let length = |t: &Tensor| {
        Ok::<_, Error>(floor(t.square().reduce_axes(op, Fold::Add, &axis.into())?)?.sqrt())
    };
    product.reduce_axes(op, Fold::Add, &axis.into())?.try_div(length(&x)?.try_mul(length(&y)?)?)
}

/// Refuses indices outside the classes, where they are at hand.
pub(in crate::tensor) fn check_classes(
    op: &'static str,
    target: &Tensor,
    classes: usize,
    ignored: Option<i64>,
) -> Result<()> {
    let inside =
        |t: f64| (t >= 0.0 && t < classes as f64) || ignored.is_some_and(|i| t == i as f64);
    match target
        .at_hand()
        .and_then(|values| values.into_iter().enumerate().find(|(_, t)| !inside(*t)))
    {
        Some((i, t)) => Err(Error::Index {
            op,
            msg: format!(
                "the target at {i} is {t}, and there are {classes} classes: 0 to {}",
                classes as i64 - 1
            ),
        }),
        None => Ok(()),
    }
}

/// The index that is left out.
fn ignored(target: &Tensor, how: &CrossEntropy) -> Option<i64> {
    how.ignore.or((!target.dtype().is_unsigned()).then_some(IGNORED))
}

/// Where the target is not the index that is left out. In 64 bits, since that need not be one that
/// the target's dtype has.
fn counted(target: &Tensor, ignored: Option<i64>) -> Result<Option<Tensor>> {
    ignored.map(|i| target.try_cast(DType::I64)?.try_ne(i)).transpose()
}

/// The logits with zeros where the target is left out: its gradient is 0 whatever is there, where
/// that of a softmax would multiply 0 by infinity or NaN.
fn counted_rows(x: &Tensor, target: &Tensor, axis: usize, how: &CrossEntropy) -> Result<Tensor> {
    // A target of another form is an error of `classes`.
    let rows = x.dims().into_iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, n)| n);
    if !target.dtype().is_int() || !rows.eq(target.dims()) {
        return Ok(x.copy());
    }
    match counted(target, ignored(target, how))? {
        Some(counted) => counted.try_unsqueeze(axis as isize)?.try_where_(x, 0.0),
        None => Ok(x.copy()),
    }
}

/// The loss of logarithms of probabilities along an axis of classes.
fn classes(
    op: &'static str,
    logp: &Tensor,
    target: &Tensor,
    axis: usize,
    how: &CrossEntropy,
) -> Result<Tensor> {
    let dims = logp.dims();
    let count = dims[axis];
    if !(0.0..=1.0).contains(&how.smoothing) {
        return wrong_shape(
            op,
            format!("a label smoothing of {} is no part: it lies between 0 and 1", how.smoothing),
        );
    }
    // Along the axis of classes.
    let across = |t: &Tensor| {
        t.movement(Movement::reshape((0..dims.len()).map(|i| if i == axis { count } else { 1 })))
    };
    let weight = match &how.weight {
        None => None,
        Some(w) if w.dims().as_slice() == [count] => Some(across(&w.try_cast(logp.dtype())?)?),
        Some(w) => {
            return wrong_shape(op, format!("weights of shape {:?} for {count} classes", w.dims()));
        }
    };
    let sum = |t: &Tensor| t.reduce_axes(op, Fold::Add, &(axis as isize).into());
    let elements: Dims =
        dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
    if target.is_floating_point() {
        if target.dims() != dims {
            return wrong_shape(
                op,
                format!(
                    "probabilities of shape {:?} for logits of {dims:?}; they must be the same",
                    target.dims()
                ),
            );
        }
        if let Some(i) = how.ignore {
            return wrong_shape(
                op,
                format!("ignore_index({i}) goes with targets that are indices, not probabilities"),
            );
        }
        let mut t = target.try_cast(logp.dtype())?;
        if how.smoothing > 0.0 {
            let each = Tensor::full((), how.smoothing)
                .try_cast(logp.dtype())?
                .try_div(logp.count(op, &axis.into(), 0)?)?;
            t = (t * (1.0 - how.smoothing)).try_add(each)?;
        }
        let each = -sum(&times(logp.try_mul(t)?, &weight)?)?;
        return logp.reduced(&each, how.reduction);
    }
    if target.dtype().is_bool() || target.dims() != elements {
        return wrong_shape(
            op,
            format!(
                "logits of shape {dims:?} take integers of shape {elements:?} or floats of \
                 {dims:?} as a target, got {} of {:?}",
                target.dtype(),
                target.dims()
            ),
        );
    }
    let picked = target.try_unsqueeze(axis as isize)?.try_eq(across(&iota(count))?)?;
    let ignored = ignored(target, how);
    let counted = counted(target, ignored)?;
    let keep = |t: Tensor| match &counted {
        Some(c) => c.try_where_(t, 0.0),
        None => Ok(t),
    };
    check_classes(op, target, count, ignored)?;
    let weighted = times(logp.clone(), &weight)?;
    let mut each = keep(-sum(&picked.try_where_(&weighted, 0.0)?)?)?;
    if how.smoothing > 0.0 {
        let even = keep(-sum(&weighted)?)?;
        each = each * (1.0 - how.smoothing) + even * (how.smoothing / count as f64);
    }
    if how.reduction != Reduction::Mean || (counted.is_none() && weight.is_none()) {
        return logp.reduced(&each, how.reduction);
    }
    let share = match &weight {
        Some(w) => keep(sum(&picked.try_where_(w, 0.0)?)?)?,
        None => keep(logp.literal(1.0))?,
    };
    each.try_sum(..)?.try_div(share.try_expand(&elements)?.try_sum(..)?)
}
