//! Losses over classes: cross entropy and negative log likelihood. Narrow floats are computed in
//! `f32` and rounded once.

use super::create::iota;
use super::loss::{Reduction, scale_by};
use super::movement::spliced;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::tensor::{Tensor, resolve_axis};

/// Default index that losses over classes ignore, as in PyTorch.
const IGNORED: i64 = -100;

/// Options of a loss over classes: `CrossEntropy::new().label_smoothing(0.1).ignore_index(0)`.
/// Converts from a [`Reduction`].
#[derive(Clone, Default)]
pub struct CrossEntropy {
    reduction: Reduction,
    smoothing: f64,
    ignore: Option<i64>,
    weight: Option<Tensor>,
}

setters! { CrossEntropy;
    /// Mean over targets other than -100, without class weights or label smoothing.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [0.0, 0.0]]), Tensor::new([0, 1]));
    /// let loss = logits.cross_entropy(&target, CrossEntropy::new()).item::<f32>()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new;
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{CrossEntropy, Reduction, Tensor};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [0.0, 0.0]]), Tensor::new([0, 1]));
    /// let sum = CrossEntropy::new().reduction(Reduction::Sum);
    /// assert!((logits.cross_entropy(&target, sum).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
    /// Distributes this part of each target evenly over all classes (Szegedy et al., 2016).
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[8.0f32, 0.0]]), Tensor::new([0]));
    /// let smooth = logits.cross_entropy(&target, CrossEntropy::new().label_smoothing(0.5));
    /// // A quarter of the target is the other class.
    /// assert!((smooth.item::<f32>()? - 2.0).abs() < 1e-3);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    label_smoothing(part: f64) smoothing = part;
    /// Index of targets that are ignored and not counted in the mean. The default is -100.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [9.0, 0.0]]), Tensor::new([0, 1]));
    /// let loss =
    ///     logits.cross_entropy(&target, CrossEntropy::new().ignore_index(1)).item::<f32>()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    ignore_index(index: i64) ignore = Some(index);
    /// Weight per class. The mean is then weighted.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::CrossEntropy};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [9.0, 0.0]]), Tensor::new([0, 1]));
    /// let how = CrossEntropy::new().weight(&Tensor::new([1.0f32, 0.0]));
    /// assert!((logits.cross_entropy(&target, how).item::<f32>()? - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    weight(weight: &Tensor) weight = Some(weight.clone());
}

impl Tensor {
    fallible! {
        /// Cross entropy of logits and targets along axis 1 (axis 0 of a vector). Targets are
        /// integer class indices, without the class axis, or floating-point probabilities of the
        /// shape of the logits. Targets of -100, or of
        /// [`ignore_index`](CrossEntropy::ignore_index), are ignored. Other indices outside the
        /// classes are an error if the targets are in host memory; otherwise they have loss 0 but
        /// count in the mean.
        ///
        /// ```
        /// use picograd::tensor::{CrossEntropy, Reduction, Tensor};
        /// let logits = Tensor::new([[0.0f32, 0.0], [100.0, 0.0]]);
        /// let each = logits.cross_entropy(&Tensor::new([1, 0]), Reduction::None).to_vec::<f32>()?;
        /// assert!((each[0] - 2f32.ln()).abs() < 1e-6 && each[1].abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cross_entropy | try_cross_entropy(
            &self, target: &Tensor, options: impl Into<CrossEntropy>,
        ) -> Tensor {
            in_wide_dtype!(self.try_cross_entropy(target, options));
            self.logits_loss(target, class_axis(self)?, &options.into())
        }

        /// Negative log likelihood: [`cross_entropy`](Self::cross_entropy) of log probabilities,
        /// such as a [`log_softmax`](Self::log_softmax).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let logp = Tensor::new([[0.25f32, 0.75], [0.5, 0.5]]).log();
        /// let loss = logp.nll_loss(&Tensor::new([1, 0]), Reduction::Sum).item::<f32>()?;
        /// assert!((loss + (0.75f32 * 0.5).ln()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nll_loss | try_nll_loss(
            &self, target: &Tensor, options: impl Into<CrossEntropy>,
        ) -> Tensor {
            in_wide_dtype!(self.try_nll_loss(target, options));
            class_loss(&self.as_wide_float(), target, class_axis(self)?, &options.into())?
                .try_cast(self.as_float().dtype())
        }

        /// [`cross_entropy`](Self::cross_entropy) of class indices with the classes along the last
        /// axis.
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
            &self, target: &Tensor, options: impl Into<CrossEntropy>,
        ) -> Tensor {
            in_wide_dtype!(self.try_sparse_categorical_crossentropy(target, options));
            check_indices(target)?;
            let axis = resolve_axis("loss", -1, &self.dims())?;
            self.logits_loss(target, axis, &options.into())
        }
    }

    /// Cross entropy of logits along a class axis.
    fn logits_loss(&self, target: &Tensor, axis: usize, options: &CrossEntropy) -> Result<Tensor> {
        let x = mask_ignored_rows(&self.as_wide_float(), target, axis, options)?;
        class_loss(&x.try_log_softmax(axis as isize)?, target, axis, options)?
            .try_cast(self.as_float().dtype())
    }
}

fn class_axis(x: &Tensor) -> Result<usize> {
    match x.ndim() {
        0 => shape_error!("a tensor of shape [] has no axis of classes"),
        n => Ok(n.min(2) - 1),
    }
}

/// Checks that targets are class indices.
pub(super) fn check_indices(target: &Tensor) -> Result<()> {
    let dtype = target.dtype();
    if dtype.is_int() {
        return Ok(());
    }
    dtype_error!("expected integer class indices as targets, got {dtype}")
}

/// Class weights in a dtype; an error if there is not one for each class.
pub(super) fn class_weights(
    weight: &Option<Tensor>,
    classes: usize,
    dtype: DType,
) -> Result<Option<Tensor>> {
    let Some(w) = weight else { return Ok(None) };
    let dims = w.dims();
    if dims[..] != [classes] {
        return shape_error!("expected a weight for each of {classes} classes, got {dims:?}");
    }
    w.try_cast(dtype).map(Some)
}

/// Checks class indices that are in host memory.
pub(super) fn check_classes(target: &Tensor, classes: usize, ignored: Option<i64>) -> Result<()> {
    let inside =
        |t: f64| (t >= 0.0 && t < classes as f64) || ignored.is_some_and(|i| t == i as f64);
    let wrong = |values: Vec<f64>| values.into_iter().enumerate().find(|(_, t)| !inside(*t));
    match target.host_values().and_then(wrong) {
        Some((i, t)) => {
            let last = classes as i64 - 1;
            index_error!("the target at {i} is {t}; expected a class from 0 to {last}")
        }
        None => Ok(()),
    }
}

/// Returns the index that is ignored.
fn ignored_index(target: &Tensor, options: &CrossEntropy) -> Option<i64> {
    options.ignore.or((!target.dtype().is_unsigned()).then_some(IGNORED))
}

/// Mask of targets that are not ignored. In `i64`, because the index may be outside the target's
/// dtype.
fn counted_mask(target: &Tensor, ignored: Option<i64>) -> Result<Option<Tensor>> {
    ignored.map(|i| target.try_cast(DType::I64)?.try_ne(i)).transpose()
}

/// Logits with zeros in ignored rows: their gradient is 0, where softmax would multiply 0 by inf or
/// NaN.
fn mask_ignored_rows(
    x: &Tensor,
    target: &Tensor,
    axis: usize,
    options: &CrossEntropy,
) -> Result<Tensor> {
    // `class_loss` reports other forms of targets.
    if !target.dtype().is_int() || target.dims() != spliced(&x.dims(), axis..axis + 1, &[]) {
        return Ok(x.copy());
    }
    match counted_mask(target, ignored_index(target, options))? {
        Some(counted) => counted.try_unsqueeze(axis as isize)?.try_where_(x, 0.0),
        None => Ok(x.copy()),
    }
}

/// Loss of log probabilities along a class axis.
struct ClassLoss<'a> {
    logp: &'a Tensor,
    axis: usize,
    /// Class weights, broadcast along the class axis.
    weight: Option<Tensor>,
    options: &'a CrossEntropy,
}

/// Loss of log probabilities along the class axis.
fn class_loss(
    logp: &Tensor,
    target: &Tensor,
    axis: usize,
    options: &CrossEntropy,
) -> Result<Tensor> {
    let (dims, smoothing) = (logp.dims(), options.smoothing);
    if !(0.0..=1.0).contains(&smoothing) {
        return shape_error!("expected a label smoothing from 0 to 1, got {smoothing}");
    }
    let weight = class_weights(&options.weight, dims[axis], logp.dtype())?
        .map(|w| w.line_along(axis, dims.len()))
        .transpose()?;
    let loss = ClassLoss { logp, axis, weight, options };
    if target.is_floating_point() { loss.of_probabilities(target) } else { loss.of_indices(target) }
}

impl ClassLoss<'_> {
    /// Sum over classes.
    fn sum(&self, t: &Tensor) -> Result<Tensor> {
        t.reduce_axes(Fold::Add, self.axis)
    }

    /// Loss of targets that are probabilities.
    fn of_probabilities(&self, target: &Tensor) -> Result<Tensor> {
        let ClassLoss { logp, axis, options, .. } = *self;
        let (dims, given) = (logp.dims(), target.dims());
        if given != dims {
            return shape_error!(
                "expected probabilities of the shape of the logits {dims:?}, got {given:?}"
            );
        }
        if let Some(i) = options.ignore {
            return shape_error!(
                "ignore_index({i}) requires class indices as targets, got probabilities"
            );
        }
        let mut t = target.try_cast(logp.dtype())?;
        if options.smoothing > 0.0 {
            let each = Tensor::full((), options.smoothing).try_cast(logp.dtype())?;
            let each = each.try_div(logp.count(axis, 0)?)?;
            t = (t * (1.0 - options.smoothing)).try_add(each)?;
        }
        let each = -self.sum(&scale_by(logp.try_mul(t)?, &self.weight)?)?;
        logp.reduced(&each, options.reduction)
    }

    /// Loss of targets that are class indices.
    fn of_indices(&self, target: &Tensor) -> Result<Tensor> {
        let ClassLoss { logp, axis, options, .. } = *self;
        let (dims, dtype, given) = (logp.dims(), target.dtype(), target.dims());
        let rows = spliced(&dims, axis..axis + 1, &[]);
        if dtype.is_bool() || given != rows {
            return shape_error!(
                "logits of shape {dims:?} require integers of shape {rows:?} or floats of \
                 {dims:?} as targets, got {dtype} of {given:?}"
            );
        }
        let class = iota(dims[axis]).line_along(axis, dims.len())?;
        let selected = target.try_unsqueeze(axis as isize)?.try_eq(class)?;
        let ignored = ignored_index(target, options);
        let counted = counted_mask(target, ignored)?;
        let mask = |t: Tensor| match &counted {
            Some(c) => c.try_where_(t, 0.0),
            None => Ok(t),
        };
        check_classes(target, dims[axis], ignored)?;
        let weighted = scale_by(logp.clone(), &self.weight)?;
        let mut each = mask(-self.sum(&selected.try_where_(&weighted, 0.0)?)?)?;
        if options.smoothing > 0.0 {
            let even = mask(-self.sum(&weighted)?)?;
            each =
                each * (1.0 - options.smoothing) + even * (options.smoothing / dims[axis] as f64);
        }
        if options.reduction != Reduction::Mean || (counted.is_none() && self.weight.is_none()) {
            return logp.reduced(&each, options.reduction);
        }
        let share = match &self.weight {
            Some(w) => mask(self.sum(&selected.try_where_(w, 0.0)?)?)?,
            None => mask(logp.literal(1.0))?,
        };
        each.try_sum(..)?.try_div(share.try_expand(&rows)?.try_sum(..)?)
    }
}
