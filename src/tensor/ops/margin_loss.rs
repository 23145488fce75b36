//! Margin losses of pairs, triplets and classes. Narrow floats are computed in `f32` and rounded
//! once. Options and defaults are PyTorch's.

use super::create::iota;
use super::cross_entropy::{check_classes, check_indices, class_weights};
use super::loss::scale_by;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::{Reduction, Tensor};

/// Options of [`Tensor::triplet_margin_loss`]. Converts from a [`Reduction`].
///
/// ```
/// use picograd::tensor::{Reduction, Tensor, TripletMargin};
/// let (a, p, n) = (Tensor::new([[0.0f32]]), Tensor::new([[1.0f32]]), Tensor::new([[5.0f32]]));
/// let how = TripletMargin::new().margin(6.0).p(1.0).swap().reduction(Reduction::Sum);
/// assert!((a.triplet_margin_loss(&p, &n, how).item::<f32>()? - 3.0).abs() < 1e-4);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TripletMargin {
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: Reduction,
}

setters! { TripletMargin;
    /// Margin 1, Euclidean distance, eps 1e-6, no swap, mean.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::TripletMargin};
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!(x.triplet_margin_loss(&x, &x, TripletMargin::new()).item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = TripletMargin { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::Mean };
    /// Margin between the distances of the negative and the positive example.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::TripletMargin};
    /// let x = Tensor::zeros([2, 3]);
    /// let y = x.triplet_margin_loss(&x, &x, TripletMargin::new().margin(0.5));
    /// assert_eq!(y.item::<f32>()?, 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    margin(margin: f64) margin = margin;
    /// Power of the norm: 2 is Euclidean, 1 the sum and infinity the maximum of absolute values.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::TripletMargin};
    /// let (x, far) = (Tensor::zeros([1, 2]), Tensor::new([[3.0f32, 4.0]]));
    /// let loss = x.triplet_margin_loss(&far, &x, TripletMargin::new().p(1.0));
    /// assert!((loss.item::<f32>()? - 8.0).abs() < 1e-4);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    p(p: f64) p = p;
    /// Constant added to each difference, which keeps the gradient of the distance finite.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::TripletMargin};
    /// let x = Tensor::zeros([2, 3]);
    /// let y = x.triplet_margin_loss(&x, &x, TripletMargin::new().eps(1e-3));
    /// assert_eq!(y.item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    eps(eps: f64) eps = eps;
    /// Uses the distance between the positive and the negative example if it is less than the
    /// anchor's.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::TripletMargin};
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!(x.triplet_margin_loss(&x, &x, TripletMargin::new().swap()).item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    swap() swap = true;
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{Reduction, Tensor, TripletMargin};
    /// let (x, how) = (Tensor::zeros([2, 3]), TripletMargin::new().reduction(Reduction::None));
    /// assert_eq!(x.triplet_margin_loss(&x, &x, how).shape(), [2]);
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
}

/// Options of [`Tensor::multi_margin_loss`]. Converts from a [`Reduction`].
///
/// ```
/// use picograd::{Tensor, tensor::MultiMargin};
/// let x = Tensor::new([[0.0f32, 0.0]]);
/// let how = MultiMargin::new().p(2).margin(2.0).weight(&Tensor::new([3.0f32, 1.0]));
/// assert_eq!(x.multi_margin_loss(&Tensor::new([0]), how).item::<f32>()?, 6.0);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone)]
pub struct MultiMargin {
    p: usize,
    margin: f64,
    weight: Option<Tensor>,
    reduction: Reduction,
}

setters! { MultiMargin;
    /// Power 1, margin 1, no weights, mean.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::MultiMargin};
    /// let x = Tensor::new([[0.0f32, 0.0]]);
    /// let loss = x.multi_margin_loss(&Tensor::new([0]), MultiMargin::new());
    /// assert_eq!(loss.item::<f32>()?, 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = MultiMargin { p: 1, margin: 1.0, weight: None, reduction: Reduction::Mean };
    /// Power of the hinge: 1 or 2.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::MultiMargin};
    /// let x = Tensor::new([[0.0f32, 1.0]]);
    /// let y = x.multi_margin_loss(&Tensor::new([0]), MultiMargin::new().p(2));
    /// assert_eq!(y.item::<f32>()?, 2.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    p(p: usize) p = p;
    /// Margin between the scores of the right class and the others.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::MultiMargin};
    /// let x = Tensor::new([[0.0f32, 0.0]]);
    /// let y = x.multi_margin_loss(&Tensor::new([0]), MultiMargin::new().margin(4.0));
    /// assert_eq!(y.item::<f32>()?, 2.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    margin(margin: f64) margin = margin;
    /// Weight per class, which scales the losses of its samples.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::MultiMargin};
    /// let (x, weight) = (Tensor::new([[0.0f32, 0.0]]), Tensor::new([2.0f32, 1.0]));
    /// let loss = x.multi_margin_loss(&Tensor::new([0]), MultiMargin::new().weight(&weight));
    /// assert_eq!(loss.item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    weight(weight: &Tensor) weight = Some(weight.clone());
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{MultiMargin, Reduction, Tensor};
    /// let (x, how) = (Tensor::zeros([3, 2]), MultiMargin::new().reduction(Reduction::None));
    /// assert_eq!(x.multi_margin_loss(&Tensor::new([0, 1, 0]), how).shape(), [3]);
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
}

/// Returns `max(x, 0)` with gradient 0 at 0, as in PyTorch's losses. NaN propagates.
pub(in crate::tensor) fn positive(x: &Tensor) -> Result<Tensor> {
    x.try_le(0.0)?.try_where_(0.0, x)
}

/// ‖x - y + eps‖ₚ over the last axis.
fn distance(x: &Tensor, y: &Tensor, p: f64, eps: f64) -> Result<Tensor> {
    let apart = x.try_sub(y)?.try_add(eps)?;
    let sum = |t: &Tensor| t.reduce_axes(Fold::Add, -1);
    if p == 1.0 {
        return sum(&apart.abs());
    }
    if p == f64::INFINITY {
        return apart.abs().try_max(-1);
    }
    // At 0 the gradient of the root is infinite; replacing its argument by 1 gives 0.
    let powers = if p == 2.0 { sum(&apart.square())? } else { sum(&apart.abs().try_pow(p)?)? };
    let some = powers.try_ne(0.0)?;
    let inside = some.try_where_(powers, 1.0)?;
    let root = if p == 2.0 { inside.sqrt() } else { inside.try_pow(1.0 / p)? };
    some.try_where_(root, 0.0)
}

impl Tensor {
    fallible! {
        /// Triplet margin loss of this anchor: `max(0, d(anchor, positive) - d(anchor, negative) +
        /// margin)`. The vectors lie along the last axis, which is removed.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (a, p) = (Tensor::new([[0.0f32]]), Tensor::new([[1.0f32]]));
        /// let loss = a.triplet_margin_loss(&p, &(&p * 1.5), Reduction::Mean);
        /// assert!((loss.item::<f32>()? - 0.5).abs() < 1e-5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn triplet_margin_loss | try_triplet_margin_loss(
            &self,
            positive_example: &Tensor,
            negative_example: &Tensor,
            options: impl Into<TripletMargin>,
        ) -> Tensor {
            in_wide_dtype!(self.try_triplet_margin_loss(
                positive_example,
                negative_example,
                options
            ));
            let options = options.into();
            reject_shape!(self.ndim() == 0, "a tensor of shape [] has no axis of vectors");
            if options.p.is_nan() || options.p <= 0.0 {
                return shape_error!("expected a power above 0, got {}", options.p);
            }
            let a = self.as_wide_float();
            let (p, n) = (self.target(positive_example)?, self.target(negative_example)?);
            let distance = |x: &Tensor, y: &Tensor| distance(x, y, options.p, options.eps);
            let (near, mut far) = (distance(&a, &p)?, distance(&a, &n)?);
            if options.swap {
                far = far.try_minimum(distance(&p, &n)?)?;
            }
            self.reduced(&positive(&(near.try_sub(far)? + options.margin))?, options.reduction)
        }

        /// Margin ranking loss `max(0, -target·(x - other) + margin)` for targets of 1 and -1.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, y) = (Tensor::new([1.0f32, 1.0]), Tensor::new([3.0f32, 3.0]));
        /// let each = x.margin_ranking_loss(&y, &Tensor::new([1, -1]), 0.5, Reduction::None);
        /// assert_eq!(each.to_vec::<f32>()?, [2.5, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn margin_ranking_loss | try_margin_ranking_loss(
            &self, other: &Tensor, target: &Tensor, margin: f64, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_margin_ranking_loss(other, target, margin, reduction));
            let (x, y, t) = (self.as_wide_float(), self.target(other)?, self.target(target)?);
            self.reduced(&positive(&(t.try_mul(y.try_sub(x)?)? + margin))?, reduction)
        }

        /// Hinge embedding loss of distances: x for targets of 1, and `max(0, margin - x)` for
        /// targets of -1.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let x = Tensor::new([0.25f32, 0.25]);
        /// let each = x.hinge_embedding_loss(&Tensor::new([1, -1]), 1.0, Reduction::None);
        /// assert_eq!(each.to_vec::<f32>()?, [0.25, 0.75]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn hinge_embedding_loss | try_hinge_embedding_loss(
            &self, target: &Tensor, margin: f64, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_hinge_embedding_loss(target, margin, reduction));
            let (x, t) = (self.as_wide_float(), self.target(target)?);
            let apart = t.try_ne(1.0)?.try_where_(positive(&(margin - &x))?, 0.0)?;
            let alike = t.try_ne(-1.0)?.try_where_(x, 0.0)?;
            self.reduced(&apart.try_add(alike)?, reduction)
        }

        /// Logistic loss `log(1 + exp(-target·x))` for targets of 1 and -1, computed without
        /// overflow.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let x = Tensor::new([0.0f32, 1000.0]);
        /// let each = x.soft_margin_loss(&Tensor::new([1, -1]), Reduction::None).to_vec::<f32>()?;
        /// assert!((each[0] - 2f32.ln()).abs() < 1e-6 && each[1] == 1000.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn soft_margin_loss | try_soft_margin_loss(
            &self, target: &Tensor, reduction: Reduction,
        ) -> Tensor {
            in_wide_dtype!(self.try_soft_margin_loss(target, reduction));
            let (x, t) = (self.as_wide_float(), self.target(target)?);
            self.reduced(&(-t.try_mul(x)?).softplus(1.0), reduction)
        }

        /// Multi-class hinge loss: `max(0, margin - x[target] + x[i])` to a power, summed over the
        /// other classes and divided by the number of classes. The input is `[batch, classes]` or
        /// `[classes]`, and the target one class per sample.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let x = Tensor::new([[1.0f32, 0.5, -2.0]]);
        /// let loss = x.multi_margin_loss(&Tensor::new([0]), Reduction::Mean);
        /// assert!((loss.item::<f32>()? - 0.5 / 3.0).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn multi_margin_loss | try_multi_margin_loss(
            &self, target: &Tensor, options: impl Into<MultiMargin>,
        ) -> Tensor {
            in_wide_dtype!(self.try_multi_margin_loss(target, options));
            let (options, dims) = (options.into(), self.dims());
            if !matches!(options.p, 1 | 2) {
                return shape_error!("expected a power of 1 or 2, got {}", options.p);
            }
            check_indices(target)?;
            let Some((&classes, lead)) = dims.split_last().filter(|(n, l)| **n > 0 && l.len() < 2)
            else {
                return shape_error!("expected [batch, classes] or [classes], got {dims:?}");
            };
            let given = target.dims();
            if given[..] != *lead {
                return shape_error!(
                    "an input of {dims:?} requires a target of {lead:?}, got {given:?}"
                );
            }
            let x = self.as_wide_float();
            check_classes(target, classes, None)?;
            let sum = |t: &Tensor| t.reduce_axes(Fold::Add, -1);
            let right = target.try_cast(DType::I64)?.try_unsqueeze(-1)?;
            let right = right.try_eq(iota(classes).try_cast(DType::I64)?)?;
            let score = sum(&right.try_where_(&x, 0.0)?)?.try_unsqueeze(-1)?;
            let lack = positive(&(x.try_sub(score)? + options.margin))?;
            let lack = if options.p == 2 { lack.square() } else { lack };
            let of_sample =
                |w: Tensor| sum(&right.try_where_(w.line_along(lead.len(), dims.len())?, 0.0)?);
            let weight = class_weights(&options.weight, classes, x.dtype())?;
            let weight = weight.map(of_sample).transpose()?;
            let each = sum(&right.try_where_(0.0, lack)?)? * (1.0 / classes as f64);
            self.reduced(&scale_by(each, &weight)?, options.reduction)
        }
    }
}
