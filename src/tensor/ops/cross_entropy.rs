//! Losses over classes: cross entropy and negative log likelihood. Narrow floats are computed in
//! `f32` and rounded once.

use super::create::iota;
use super::loss::{Reduction, scale_by};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Fold;
use crate::shape::{Dims, Movement};
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

impl CrossEntropy {
    /// Mean over targets other than -100, without class weights or label smoothing.
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
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{CrossEntropy, Reduction, Tensor};
    /// let (logits, target) = (Tensor::new([[0.0f32, 0.0], [0.0, 0.0]]), Tensor::new([0, 1]));
    /// let sum = CrossEntropy::new().reduction(Reduction::Sum);
    /// assert!((logits.cross_entropy(&target, sum).item::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reduction(self, reduction: Reduction) -> CrossEntropy {
        CrossEntropy { reduction, ..self }
    }
    /// Distributes this part of each target evenly over all classes (Szegedy et al., 2016).
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
    pub fn ignore_index(self, index: i64) -> CrossEntropy {
        CrossEntropy { ignore: Some(index), ..self }
    }
    /// Weight per class. The mean is then weighted.
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
            &self, target: &Tensor, options: impl Into<CrossEntropy>,
        ) -> Tensor {
            in_wide_dtype!(self.try_cross_entropy(target, options));
            let (axis, options) = (class_axis("cross_entropy", self)?, options.into());
            let logp = mask_ignored_rows(&self.as_wide_float(), target, axis, &options)?
                .try_log_softmax(axis as isize)?;
            class_loss("cross_entropy", &logp, target, axis, &options)?
                .try_cast(self.as_float().dtype())
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
            let axis = class_axis("nll_loss", self)?;
            class_loss("nll_loss", &self.as_wide_float(), target, axis, &options.into())?
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
            const OP: &str = "sparse_categorical_crossentropy";
            if !target.dtype().is_int() {
                return wrong_dtype!(
                    OP,
                    "expected integer class indices as targets, got {}",
                    target.dtype()
                );
            }
            let axis = resolve_axis(OP, -1, &self.dims())?;
            let options = options.into();
            let logp = mask_ignored_rows(&self.as_wide_float(), target, axis, &options)?
                .try_log_softmax(-1)?;
            class_loss(OP, &logp, target, axis, &options)?.try_cast(self.as_float().dtype())
        }
    }
}

fn class_axis(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.ndim() {
        0 => wrong_shape!(op, "a tensor of shape [] has no axis of classes"),
        1 => Ok(0),
        _ => Ok(1),
    }
}

/// Checks class indices that are in host memory.
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
                "the target at {i} is {t}; expected a class from 0 to {}",
                classes as i64 - 1
            ),
        }),
        None => Ok(()),
    }
}

/// Index that is ignored.
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
    let rows = x.dims().into_iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, n)| n);
    if !target.dtype().is_int() || !rows.eq(target.dims()) {
        return Ok(x.copy());
    }
    match counted_mask(target, ignored_index(target, options))? {
        Some(counted) => counted.try_unsqueeze(axis as isize)?.try_where_(x, 0.0),
        None => Ok(x.copy()),
    }
}

/// Loss of log probabilities along a class axis.
struct ClassLoss<'a> {
    op: &'static str,
    logp: &'a Tensor,
    axis: usize,
    /// Class weights, broadcast along the class axis.
    weight: Option<Tensor>,
    options: &'a CrossEntropy,
}

/// Reshapes a vector over classes to broadcast along the class axis.
fn along_classes(t: &Tensor, dims: &[usize], axis: usize) -> Result<Tensor> {
    t.movement(Movement::reshape((0..dims.len()).map(|i| if i == axis { dims[axis] } else { 1 })))
}

/// Loss of log probabilities along the class axis.
fn class_loss(
    op: &'static str,
    logp: &Tensor,
    target: &Tensor,
    axis: usize,
    options: &CrossEntropy,
) -> Result<Tensor> {
    let dims = logp.dims();
    let classes = dims[axis];
    if !(0.0..=1.0).contains(&options.smoothing) {
        return wrong_shape!(
            op,
            "expected a label smoothing from 0 to 1, got {}",
            options.smoothing
        );
    }
    let weight = match &options.weight {
        None => None,
        Some(w) if w.dims().as_slice() == [classes] => {
            Some(along_classes(&w.try_cast(logp.dtype())?, &dims, axis)?)
        }
        Some(w) => {
            return wrong_shape!(
                op,
                "expected a weight for each of {classes} classes, got {:?}",
                w.dims()
            );
        }
    };
    let loss = ClassLoss { op, logp, axis, weight, options };
    if target.is_floating_point() { loss.of_probabilities(target) } else { loss.of_indices(target) }
}

impl ClassLoss<'_> {
    /// Sum over classes.
    fn sum(&self, t: &Tensor) -> Result<Tensor> {
        t.reduce_axes(self.op, Fold::Add, &(self.axis as isize).into())
    }

    /// Loss of targets that are probabilities.
    fn of_probabilities(&self, target: &Tensor) -> Result<Tensor> {
        let ClassLoss { op, logp, axis, options, .. } = *self;
        let dims = logp.dims();
        if target.dims() != dims {
            return wrong_shape!(
                op,
                "expected probabilities of the shape of the logits {dims:?}, got {:?}",
                target.dims()
            );
        }
        if let Some(i) = options.ignore {
            return wrong_shape!(
                op,
                "ignore_index({i}) requires class indices as targets, got probabilities"
            );
        }
        let mut t = target.try_cast(logp.dtype())?;
        if options.smoothing > 0.0 {
            let each = Tensor::full((), options.smoothing)
                .try_cast(logp.dtype())?
                .try_div(logp.count(op, &axis.into(), 0)?)?;
            t = (t * (1.0 - options.smoothing)).try_add(each)?;
        }
        let each = -self.sum(&scale_by(logp.try_mul(t)?, &self.weight)?)?;
        logp.reduced(&each, options.reduction)
    }

    /// Loss of targets that are class indices.
    fn of_indices(&self, target: &Tensor) -> Result<Tensor> {
        let ClassLoss { op, logp, axis, options, .. } = *self;
        let dims = logp.dims();
        let rows: Dims =
            dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
        if target.dtype().is_bool() || target.dims() != rows {
            return wrong_shape!(
                op,
                "logits of shape {dims:?} require integers of shape {rows:?} or floats of \
                 {dims:?} as targets, got {} of {:?}",
                target.dtype(),
                target.dims()
            );
        }
        let class = along_classes(&iota(dims[axis]), &dims, axis)?;
        let selected = target.try_unsqueeze(axis as isize)?.try_eq(class)?;
        let ignored = ignored_index(target, options);
        let counted = counted_mask(target, ignored)?;
        let mask = |t: Tensor| match &counted {
            Some(c) => c.try_where_(t, 0.0),
            None => Ok(t),
        };
        check_classes(op, target, dims[axis], ignored)?;
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
