//! Losses and their reductions. Narrow floats are computed in `f32` and rounded once.

use super::margin_loss::positive;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::{
    CrossEntropy, Ctc, GaussianNll, MultiMargin, PoissonNll, Tensor, TripletMargin, autocast,
    resolve_axis,
};

/// Reduction of elementwise losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// Mean, weighted if the losses have weights.
    #[default]
    Mean,
    /// Sum of the losses.
    Sum,
    /// No reduction.
    None,
    /// Sum divided by the size of the first axis: the mean in the definition of a divergence.
    BatchMean,
}

/// Options of binary cross entropy: `BinaryCrossEntropy::new().pos_weight(&w)`. Converts from a
/// [`Reduction`].
#[derive(Clone, Default)]
pub struct BinaryCrossEntropy {
    reduction: Reduction,
    weight: Option<Tensor>,
    pos_weight: Option<Tensor>,
}

setters! { BinaryCrossEntropy;
    /// Mean without weights.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let loss = p.binary_crossentropy(&y, BinaryCrossEntropy::new()).item::<f32>()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new;
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{BinaryCrossEntropy, Reduction, Tensor};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let sum = BinaryCrossEntropy::new().reduction(Reduction::Sum);
    /// assert!((p.binary_crossentropy(&y, sum).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
    /// Factors of the losses, broadcast. The mean does not divide by them.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let how = BinaryCrossEntropy::new().weight(&Tensor::new([4.0f32, 0.0]));
    /// assert!((p.binary_crossentropy(&y, how).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    weight(weight: &Tensor) weight = Some(weight.clone());
    /// Factors of the loss of positive targets, broadcast: above 1 for recall, below 1 for
    /// precision.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::BinaryCrossEntropy};
    /// let (p, y) = (Tensor::new([0.5f32, 0.5]), Tensor::new([1.0f32, 0.0]));
    /// let how = BinaryCrossEntropy::new().pos_weight(&Tensor::new([3.0f32]));
    /// assert!((p.binary_crossentropy(&y, how).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pos_weight(weight: &Tensor) pos_weight = Some(weight.clone());
}

macro_rules! from_reduction {
    ($($options:ident)*) => { $(
        conversions! { $options: () Reduction, |how| $options::new().reduction(how); }
    )* };
}
from_reduction! {
    BinaryCrossEntropy CrossEntropy Ctc GaussianNll MultiMargin PoissonNll TripletMargin
}

impl Tensor {
    fallible! {
        /// Binary cross entropy of probabilities and targets in 0..=1. Logarithms are limited to at
        /// least -100, so that the loss is finite.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (p, y) = (Tensor::new([0.5f32, 1.0, 0.0]), Tensor::new([1.0f32, 1.0, 1.0]));
        /// let each = p.binary_crossentropy(&y, Reduction::None).to_vec::<f32>()?;
        /// assert!((each[0] - 2f32.ln()).abs() < 1e-6 && each[1] == 0.0 && each[2] == 100.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn binary_crossentropy | try_binary_crossentropy(
            &self, target: &Tensor, options: impl Into<BinaryCrossEntropy>,
        ) -> Tensor {
            autocast::reject("binary_crossentropy", "binary_crossentropy_logits")?;
            let (options, x, y) = (options.into(), self.as_wide_float(), self.target(target)?);
            // log(0) is replaced by -100, and its argument by 1, which keeps the gradient finite.
            let log = |p: Tensor| {
                let none = p.try_eq(0)?;
                none.try_where_(-100.0, none.try_where_(1.0, p)?.log().try_maximum(-100.0)?)
            };
            let yes = scale_by(y.try_mul(log(x.copy())?)?, &options.pos_weight)?;
            let no = (1.0 - &y).try_mul(log(1.0 - &x)?)?;
            self.reduced(&scale_by(-yes.try_add(no)?, &options.weight)?, options.reduction)
        }

        /// [`binary_crossentropy`](Self::binary_crossentropy) of the sigmoid of logits, computed
        /// without overflow or cancellation.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let x = Tensor::new([1000.0f32, -1000.0]);
        /// let y = Tensor::new([1.0f32, 1.0]);
        /// let z = x.binary_crossentropy_logits(&y, Reduction::None);
        /// assert_eq!(z.to_vec::<f32>()?, [0.0, 1000.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn binary_crossentropy_logits | try_binary_crossentropy_logits(
            &self, target: &Tensor, options: impl Into<BinaryCrossEntropy>,
        ) -> Tensor {
            in_wide_dtype!(self.try_binary_crossentropy_logits(target, options));
            let (options, x, y) = (options.into(), self.as_wide_float(), self.target(target)?);
            // -log(sigmoid(x)) = softplus(-x), and softplus(-x) = softplus(x) - x.
            let yes = scale_by(y.try_mul((-&x).softplus(1.0))?, &options.pos_weight)?;
            let no = (1.0 - &y).try_mul(x.softplus(1.0))?;
            self.reduced(&scale_by(yes.try_add(no)?, &options.weight)?, options.reduction)
        }

        /// Squared error.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1.0f32, 4.0]));
        /// assert_eq!(x.mse_loss(&y, Reduction::Mean).item::<f32>()?, 2.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn mse_loss | try_mse_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
            in_wide_dtype!(self.try_mse_loss(target, reduction));
            let diff = self.as_wide_float().try_sub(self.target(target)?)?;
            self.reduced(&diff.square(), reduction)
        }

        /// Absolute error.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 2.0]), Tensor::new([1.0f32, 4.0]));
        /// assert_eq!(x.l1_loss(&y, Reduction::Sum).item::<f32>()?, 2.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn l1_loss | try_l1_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
            in_wide_dtype!(self.try_l1_loss(target, reduction));
            let diff = self.as_wide_float().try_sub(self.target(target)?)?;
            self.reduced(&diff.abs(), reduction)
        }

        /// Huber loss: d²/2 for |d| ≤ `delta`, and `delta·(|d| - delta/2)` beyond.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 10.0]), Tensor::zeros([2]));
        /// assert_eq!(x.huber_loss(&y, 2.0, Reduction::None).to_vec::<f32>()?, [0.5, 18.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn huber_loss | try_huber_loss(
            &self, target: &Tensor, delta: f64, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_huber_loss(target, delta, reduction));
            reject_shape!(delta.is_nan() || delta <= 0.0, "expected delta above 0, got {delta}");
            let diff = self.as_wide_float().try_sub(self.target(target)?)?.abs();
            let near = diff.square() * 0.5;
            let each = diff.try_le(delta)?.try_where_(near, (&diff - 0.5 * delta) * delta)?;
            self.reduced(&each, reduction)
        }

        /// [`huber_loss`](Self::huber_loss) divided by `beta`, so that its slope is 1. With `beta`
        /// 0 it is [`l1_loss`](Self::l1_loss).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 10.0]), Tensor::zeros([2]));
        /// assert_eq!(x.smooth_l1_loss(&y, 2.0, Reduction::None).to_vec::<f32>()?, [0.25, 9.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn smooth_l1_loss | try_smooth_l1_loss(
            &self, target: &Tensor, beta: f64, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_smooth_l1_loss(target, beta, reduction));
            reject_shape!(beta.is_nan() || beta < 0.0, "expected beta of at least 0, got {beta}");
            if beta == 0.0 {
                return self.try_l1_loss(target, reduction);
            }
            let diff = self.as_wide_float().try_sub(self.target(target)?)?.abs();
            let near = diff.square() * (0.5 / beta);
            self.reduced(&diff.try_lt(beta)?.try_where_(near, &diff - 0.5 * beta)?, reduction)
        }

        /// Kullback-Leibler divergence `t·(log t - x)` of log probabilities from a target
        /// distribution. With `log_target` the target is in logarithms, too.
        /// [`Reduction::BatchMean`] matches the definition.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (p, q) = (Tensor::new([[0.5f32, 0.5]]), Tensor::new([[1.0f32, 0.0]]));
        /// let diff = p.log().kl_div(&q, false, Reduction::BatchMean).item::<f32>()?;
        /// assert!((diff - 2f32.ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn kl_div | try_kl_div(
            &self, target: &Tensor, log_target: bool, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_kl_div(target, log_target, reduction));
            let (x, t) = (self.as_wide_float(), self.target(target)?);
            let each = if log_target {
                t.exp().try_mul(t.try_sub(x)?)?
            } else {
                // 0·log 0 is 0; replacing the argument by 1 keeps the gradient finite.
                let there = t.try_gt(0.0)?;
                let entropy =
                    there.try_where_(t.try_mul(there.try_where_(&t, 1.0)?.log())?, 0.0)?;
                entropy.try_sub(t.try_mul(x)?)?
            };
            self.reduced(&each, reduction)
        }

        /// Cosine similarity of vectors along an axis, which is removed. Lengths are at least
        /// `eps`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([[1.0f32, 0.0]]), Tensor::new([[2.0f32, 0.0], [0.0, 3.0]]));
        /// assert_eq!(x.cosine_similarity(&y, -1, 1e-8).to_vec::<f32>()?, [1.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cosine_similarity | try_cosine_similarity(
            &self, other: &Tensor, axis: isize, eps: f64,
        ) -> Tensor {
            in_wide_dtype!(self.try_cosine_similarity(other, axis, eps));
            let cos = cosine(self, other, axis, |squares| squares.try_maximum(eps * eps))?;
            cos.try_cast(self.as_float().dtype())
        }

        /// Cosine embedding loss of vectors along the last axis: `1 - cos` for pairs with target 1,
        /// and `max(0, cos - margin)` for pairs with target -1.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([[1.0f32, 0.0]]), Tensor::new([[0.0f32, 3.0]]));
        /// let loss = x.cosine_embedding_loss(&y, &Tensor::new([1]), 0.5, Reduction::Sum);
        /// assert!((loss.item::<f32>()? - 1.0).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cosine_embedding_loss | try_cosine_embedding_loss(
            &self, other: &Tensor, target: &Tensor, margin: f64, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_cosine_embedding_loss(other, target, margin, reduction));
            // The constant keeps the gradient of the roots finite at 0.
            let cos = cosine(self, other, -1, |squares| Ok(squares + 1e-12))?;
            let alike = target.try_eq(1)?.try_where_(1.0 - &cos, 0.0)?;
            let negative = target.try_eq(-1)?.try_where_(positive(&(cos - margin))?, 0.0)?;
            self.reduced(&alike.try_add(negative)?, reduction)
        }
    }

    /// Target in the dtype of the loss. Another shape than the input's is an error: broadcasting it
    /// would give a meaningless loss.
    pub(super) fn target(&self, target: &Tensor) -> Result<Tensor> {
        let (dims, given) = (self.dims(), target.dims());
        if given != dims {
            return shape_error!("expected a target of the input's shape {dims:?}, got {given:?}");
        }
        target.try_cast(self.as_wide_float().dtype())
    }

    /// Reduces elementwise losses, in this tensor's dtype.
    pub(super) fn reduced(&self, each: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let sum = || each.try_sum(..);
        let loss = match reduction {
            Reduction::None => each.clone(),
            Reduction::Sum => sum()?,
            Reduction::Mean => sum()?.try_div(each.count(.., 0)?)?,
            Reduction::BatchMean if self.ndim() == 0 => sum()?.try_div(self.count(.., 0)?)?,
            Reduction::BatchMean => sum()?.try_div(self.count(0, 0)?)?,
        };
        loss.try_cast(self.as_float().dtype())
    }
}

/// Multiplies by a factor, if there is one.
pub(super) fn scale_by(x: Tensor, factor: &Option<Tensor>) -> Result<Tensor> {
    match factor {
        Some(f) => x.try_mul(f),
        None => Ok(x),
    }
}

/// Dot product divided by both lengths; `floor` keeps the squares away from 0.
fn cosine(
    x: &Tensor,
    y: &Tensor,
    axis: isize,
    floor: impl Fn(Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, y) = (x.as_wide_float(), y.as_wide_float());
    let product = x.try_mul(&y)?;
    let axis = resolve_axis("loss", axis, &product.dims())? as isize - product.ndim() as isize;
    let squares = |t: &Tensor| floor(t.square().reduce_axes(Fold::Add, axis)?);
    // Two roots, because the product of squares overflows earlier.
    let lengths = squares(&x)?.sqrt().try_mul(squares(&y)?.sqrt())?;
    product.reduce_axes(Fold::Add, axis)?.try_div(lengths)
}
