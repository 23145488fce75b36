//! Connectionist temporal classification (Graves et al., 2006): the likelihood of a label sequence
//! under all alignments to a longer sequence of frames.
//!
//! With blanks between, before and after its labels, a target of S labels has 2S + 1 states. A
//! frame stays in a state, advances to the next, or skips a blank between two different labels. All
//! probabilities are logarithms; an impossible one is a large negative number in place of -∞, so
//! that no gradient meets ∞ - ∞.

use super::create::iota;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::checked_numel;
use crate::tensor::{Reduction, Tensor, keepdim};

/// Logarithm of an impossible probability. A sum of a million of them is within the range of `f32`,
/// and no sum of actual log probabilities comes near it.
const IMPOSSIBLE: f64 = -1e30;
const OP: &str = "ctc_loss";

/// Options of [`Tensor::ctc_loss`]. Converts from a [`Reduction`].
///
/// ```
/// use picograd::{Tensor, tensor::Ctc};
/// let logp = Tensor::zeros([3, 1, 4]).log_softmax(-1);
/// let (target, frames, labels) = (Tensor::new([[0]]), Tensor::new([3]), Tensor::new([1]));
/// let loss = logp.ctc_loss(&target, &frames, &labels, Ctc::new().blank(3)).item::<f32>()?;
/// assert!((loss - (64f32 / 6.0).ln()).abs() < 1e-5); // 6 of 4³ paths
///
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ctc {
    blank: usize,
    zero_infinity: bool,
    reduction: Reduction,
}

setters! { Ctc;
    /// Blank 0, infinite losses, mean.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Ctc};
    /// let logp = Tensor::zeros([2, 1, 2]).log_softmax(-1);
    /// let loss =
    ///     logp.ctc_loss(&Tensor::new([[1]]), &Tensor::new([2]), &Tensor::new([1]), Ctc::new());
    /// assert!((loss.item::<f32>()? - (4f32 / 3.0).ln()).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new;
    /// Index of the blank class.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Ctc};
    /// let logp = Tensor::zeros([2, 1, 2]).log_softmax(-1);
    /// let (target, frames, labels) = (Tensor::new([[0]]), Tensor::new([2]), Tensor::new([1]));
    /// assert!(logp.try_ctc_loss(&target, &frames, &labels, Ctc::new().blank(2)).is_err());
    /// ```
    blank(blank: usize) blank = blank;
    /// Sets infinite losses, of targets without an alignment to the frames, to 0.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Ctc};
    /// let logp = Tensor::zeros([1, 1, 3]).log_softmax(-1);
    /// let (target, frames, labels) = (Tensor::new([[1, 2]]), Tensor::new([1]), Tensor::new([2]));
    /// let loss = |how| logp.ctc_loss(&target, &frames, &labels, how).item::<f32>();
    /// assert_eq!((loss(Ctc::new())?, loss(Ctc::new().zero_infinity())?), (f32::INFINITY, 0.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    zero_infinity() zero_infinity = true;
    /// Sets the reduction. The mean is over losses divided by the lengths of their targets.
    ///
    /// ```
    /// use picograd::tensor::{Ctc, Reduction, Tensor};
    /// let logp = Tensor::zeros([2, 3, 2]).log_softmax(-1);
    /// let (target, frames, labels) =
    ///     (Tensor::new([[1], [1], [1]]), Tensor::new([2, 2, 2]), Tensor::new([1, 0, 1]));
    /// let each = logp.ctc_loss(&target, &frames, &labels, Ctc::new().reduction(Reduction::None));
    /// assert_eq!(each.shape(), [3]);
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
}

/// Log-sum-exp of finite numbers.
fn log_add(terms: &[Tensor]) -> Result<Tensor> {
    let (first, rest) = terms.split_first().expect("a term");
    let max = rest.iter().try_fold(first.detach(), |max, t| max.try_maximum(t.detach()))?;
    let exp = |t: &Tensor| t.try_sub(&max).map(|t| t.exp());
    let sum = rest.iter().try_fold(exp(first)?, |sum, t| sum.try_add(exp(t)?))?;
    sum.log().try_add(max)
}

/// Log probabilities of each state after the last frame, from those of the frames' labels,
/// `[frames, batch, states]`. `skips` masks states that may be entered from two before, and
/// `lengths` are the frames of each sequence.
fn forward(emitted: &Tensor, skips: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    let [frames, batch, states] = emitted.dims()[..] else { panic!("frames, batch and states") };
    let first = iota(states).try_eq(0)?;
    let now = first.try_where_(0.0, IMPOSSIBLE)?.try_cast(emitted.dtype())?;
    let now = now.try_expand([batch, states])?;
    let before = |t: &Tensor, by: usize| {
        let kept = t.slice_axis(1, 0, states - by.min(states))?;
        kept.try_pad_with(&[(0, 0), (by.min(states), 0)], IMPOSSIBLE)
    };
    let step = |carry: &[Tensor], of_frame: &[Tensor]| {
        let (now, here, frame) = (&carry[0], &of_frame[0], &of_frame[1]);
        let mut ways = vec![now.clone(), before(now, 1)?];
        if states > 2 {
            ways.push(skips.try_where_(before(now, 2)?, IMPOSSIBLE)?);
        }
        let next = log_add(&ways)?.try_add(here)?;
        Ok((vec![lengths.try_gt(frame)?.try_unsqueeze(-1)?.try_where_(next, now)?], vec![]))
    };
    let frame = iota(frames).try_cast(lengths.dtype())?;
    let (mut last, _) = Tensor::scan_in(OP, false, &[&now], &[emitted, &frame], step)?;
    Ok(last.remove(0))
}

/// Log likelihood of each target, from log probabilities `[frames, batch, classes]`, targets
/// `[batch, labels]` and the lengths of both.
fn log_likelihood(
    x: &Tensor,
    targets: &Tensor,
    inputs: &Tensor,
    labels: &Tensor,
    blank: usize,
) -> Result<Tensor> {
    let [frames, batch, classes] = x.dims()[..] else { panic!("frames, batch and classes") };
    let count = targets.dims()[1];
    let states = checked_numel(OP, &[count.saturating_mul(2).saturating_add(1)])?;
    checked_numel(OP, &[frames, batch, states])?;
    // Blank, label, blank, label, …, blank.
    let blank = blank as i64;
    let pairs = targets.try_unsqueeze(-1)?.try_pad_with(&[(0, 0), (0, 0), (1, 0)], blank)?;
    let path = pairs.shaped([batch, 2 * count])?.try_pad_with(&[(0, 0), (0, 1)], blank)?;
    let past = if count > 0 {
        path.slice_axis(1, 0, states - 2)?.try_pad_with(&[(0, 0), (2, 0)], blank)?
    } else {
        path.clone()
    };
    let skips = path.try_ne(blank)?.try_bitwise_and(path.try_ne(past)?)?;
    let place = path.try_clamp(0, classes as i64 - 1)?.try_unsqueeze(0)?;
    let place = place.try_expand([frames, batch, states])?;
    // A probability of 0 is impossible, and passes no gradient.
    let emitted = x.try_gather(2, &place)?;
    let emitted = emitted.try_lt(IMPOSSIBLE)?.try_where_(IMPOSSIBLE, emitted)?.contiguous();
    let last = forward(&emitted, &skips, inputs)?;
    // The last label, or the blank after it.
    let end = (labels.try_unsqueeze(-1)? * 2).try_sub(iota(states).try_cast(DType::I64)?)?;
    let ends = end.try_eq(0)?.try_bitwise_or(end.try_eq(1)?)?.try_where_(last, IMPOSSIBLE)?;
    let max = ends.detach().try_max(keepdim(-1))?;
    let sum = ends.try_sub(&max)?.exp().reduce_axes(Fold::Add, -1)?;
    sum.log().try_add(max.try_squeeze(-1)?)
}

/// Splits concatenated targets into rows.
fn split_targets(targets: &Tensor, lengths: &Tensor, batch: usize) -> Result<Tensor> {
    let total = targets.dims()[0];
    let starts = lengths.try_cumsum(0)?.try_sub(lengths)?.try_unsqueeze(-1)?;
    let place = starts.try_add(iota(total).try_cast(starts.dtype())?)?;
    let place = place.try_clamp(0, total.saturating_sub(1) as i64)?;
    if total == 0 {
        return targets.try_reshape([1, 0])?.try_expand([batch, 0]);
    }
    targets.try_reshape([1, total])?.try_expand([batch, total])?.try_gather(1, &place)
}

/// Checks labels in host memory against the classes. Elements behind the end of a target are never
/// read.
fn check_labels(targets: &Tensor, lengths: &Tensor, classes: usize) -> Result<()> {
    let (Some(values), Some(lengths)) = (targets.host_values(), lengths.host_values()) else {
        return Ok(());
    };
    let dims = targets.dims();
    let mut end = 0;
    for (row, length) in lengths.into_iter().enumerate() {
        let (start, room) = if dims.len() == 2 {
            (row * dims[1], dims[1])
        } else {
            (end, values.len().saturating_sub(end))
        };
        end = start + (length.max(0.0) as usize).min(room);
        let read = values.iter().enumerate().take(end).skip(start);
        if let Some((i, t)) = read.into_iter().find(|(_, t)| !(0.0..classes as f64).contains(*t)) {
            let last = classes as i64 - 1;
            return wrong_index!(OP, "the label at {i} is {t}; expected a class from 0 to {last}");
        }
    }
    Ok(())
}

impl Tensor {
    fallible! {
        /// CTC loss: the negative log likelihood of targets under these log probabilities,
        /// `[frames, batch, classes]` or `[frames, classes]`, over all alignments. The targets are
        /// `[batch, labels]` with any padding, or concatenated along one axis, which costs more.
        /// `input_lengths` and `target_lengths` are the frames and labels of each sequence, limited
        /// to the axes.
        ///
        /// A target without labels is as likely as blanks in all frames. A target without an
        /// alignment has loss ∞ and gradient 0. The frames are a loop of the graph
        /// ([`scan`](Self::scan)).
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let logp = Tensor::zeros([2, 1, 3]).log_softmax(-1);
        /// let (target, frames, labels) =
        ///     (Tensor::new([[1, 2]]), Tensor::new([2]), Tensor::new([2]));
        /// let loss = logp.ctc_loss(&target, &frames, &labels, Reduction::Sum).item::<f32>()?;
        /// assert!((loss - 9f32.ln()).abs() < 1e-5); // one of 3² paths
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn ctc_loss | try_ctc_loss(
            &self,
            targets: &Tensor,
            input_lengths: &Tensor,
            target_lengths: &Tensor,
            options: impl Into<Ctc>,
        ) -> Tensor {
            in_wide_dtype!(self.try_ctc_loss(targets, input_lengths, target_lengths, options));
            let (options, dims) = (options.into(), self.dims());
            match dims[..] {
                [_, _] => self.single_ctc_loss(targets, input_lengths, target_lengths, options),
                [_, batch, classes] => {
                    self.require_static(OP, 0..3)?;
                    check_arguments(targets, input_lengths, target_lengths, batch)?;
                    check_options(&options, classes)?;
                    check_labels(targets, target_lengths, classes)?;
                    self.batch_ctc_loss(targets, input_lengths, target_lengths, &options)
                }
                _ => shape_error!(
                    "expected [frames, batch, classes] or [frames, classes], got {dims:?}"
                ),
            }
        }
    }

    /// CTC loss of one sequence, `[frames, classes]`.
    fn single_ctc_loss(
        &self,
        targets: &Tensor,
        input_length: &Tensor,
        target_length: &Tensor,
        options: Ctc,
    ) -> Result<Tensor> {
        let one = |t: &Tensor| match t.dims() {
            given if given.iter().product::<usize>() != 1 => {
                wrong_shape!(OP, "expected one length for one sequence, got shape {given:?}")
            }
            _ => t.try_reshape([1]),
        };
        let (frames, labels) = (one(input_length)?, one(target_length)?);
        let targets = if targets.ndim() == 1 { targets.try_unsqueeze(0)? } else { targets.clone() };
        let keep = options.reduction == Reduction::None;
        let loss = self.try_unsqueeze(1)?.try_ctc_loss(&targets, &frames, &labels, options)?;
        if keep { loss.try_squeeze(0) } else { Ok(loss) }
    }

    /// CTC loss of checked arguments, `[frames, batch, classes]`.
    fn batch_ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &Tensor,
        target_lengths: &Tensor,
        options: &Ctc,
    ) -> Result<Tensor> {
        let wide = |t: &Tensor| t.try_cast(DType::I64);
        let (inputs, labels) = (wide(input_lengths)?, wide(target_lengths)?);
        let batch = self.dims()[1];
        let targets = match targets.dims()[..] {
            [n, _] if n == batch => wide(targets)?,
            [_] => split_targets(&wide(targets)?, &labels, batch)?,
            _ => {
                let given = targets.dims();
                return wrong_shape!(
                    OP,
                    "expected targets of [batch, labels] or [all labels] for a batch of {batch}, \
                     got {given:?}"
                );
            }
        };
        let labels = labels.try_clamp(0, targets.dims()[1] as i64)?;
        let x = self.as_wide_float();
        let likelihood = log_likelihood(&x, &targets, &inputs, &labels, options.blank)?;
        let possible = likelihood.try_gt(IMPOSSIBLE / 2.0)?;
        let worst = if options.zero_infinity { 0.0 } else { f64::INFINITY };
        let mut each = possible.try_where_(-likelihood, worst)?;
        if options.reduction == Reduction::Mean {
            each = each.try_div(labels.try_maximum(1)?.try_cast(each.dtype())?)?;
        }
        self.reduced(&each, options.reduction)
    }
}

/// Checks the dtypes of targets and lengths, and the shapes of lengths.
fn check_arguments(
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    batch: usize,
) -> Result<()> {
    let lengths = [("input_lengths", input_lengths), ("target_lengths", target_lengths)];
    for (what, t) in [("targets", targets)].into_iter().chain(lengths) {
        if !t.dtype().is_int() {
            return wrong_dtype!(OP, "expected integer {what}, got {}", t.dtype());
        }
        if what != "targets" && t.dims()[..] != [batch] {
            return wrong_shape!(OP, "expected {what} of shape [{batch}], got {:?}", t.dims());
        }
    }
    Ok(())
}

fn check_options(options: &Ctc, classes: usize) -> Result<()> {
    if options.blank >= classes {
        return wrong_shape!(OP, "blank class {} is not one of {classes} classes", options.blank);
    }
    if options.reduction == Reduction::BatchMean {
        return wrong_shape!(OP, "expected the reduction Mean, Sum or None, got BatchMean");
    }
    Ok(())
}
