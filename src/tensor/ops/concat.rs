//! Concatenation, stacking, repetition and splitting along an axis.

use super::create::iota;
use super::movement::spliced;
use crate::device::limits;
use crate::dtype::{DType, promote};
use crate::error::Result;
use crate::ir::{Src, UOp};
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::{cast_uop, device_of};
use crate::tensor::{Sizes, Tensor, resolve_axis};

/// Bytes of a view with its node: 600, measured on a million of them.
const VIEW_BYTES: usize = 600;

/// Concatenates nodes along an axis, in time linear in their number; `op` is named in errors.
fn concat(op: &'static str, tensors: &[Tensor], nodes: Vec<UOp>, axis: isize) -> Result<Tensor> {
    let Some(first) = nodes.first() else {
        return wrong_shape!(op, "expected one tensor or more, got none");
    };
    let mut dims = first.shape().clone();
    let at = resolve_axis(op, axis, &dims)?;
    let mut total = 0usize;
    for u in &nodes {
        let other = u.shape();
        if other.len() != dims.len() || (0..dims.len()).any(|i| i != at && dims[i] != other[i]) {
            return wrong_shape!(op, "{dims:?} and {other:?} differ outside axis {axis}");
        }
        total = total.saturating_add(other[at]);
    }
    dims[at] = total;
    checked_numel(op, &dims)?;
    let dtype = nodes.iter().map(UOp::dtype).fold(DType::VOID, promote);
    let device = device_of(op, tensors.iter())?;
    let parts: Src = nodes
        .into_iter()
        .map(|u| if u.dtype() == dtype { u } else { cast_uop(&u, dtype) })
        .collect();
    if parts.iter().all(|u| u.extents().is_empty()) {
        return Ok(Tensor::new_inner(UOp::cat(parts, at), device, None));
    }
    // With symbolic dimensions each element is selected from the padded operands. A selection keeps
    // every bit, where adding zeros would turn -0 into 0.
    let place = iota(total).line_along(at, dims.len())?;
    let mut result: Option<Tensor> = None;
    let mut end = 0;
    for u in parts {
        let (before, after) = (end, total - end - u.shape()[at]);
        end += u.shape()[at];
        let padded = Tensor::new_inner(u, device, None).padded_axis(at, before, after)?;
        result = Some(match result {
            None => padded,
            Some(left) => place.try_lt(before)?.try_where_(left, padded)?,
        });
    }
    Ok(result.expect("a tensor at least"))
}

impl Tensor {
    fallible! {
        /// Concatenates tensors along an axis. Dtypes promote; sizes along other axes must match.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([1, 2]), Tensor::new([3]));
        /// assert_eq!(Tensor::cat(&[x, y], 0).to_vec::<i32>()?, [1, 2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cat | try_cat(tensors: &[Tensor], axis: isize) -> Tensor {
            concat("cat", tensors, tensors.iter().map(Tensor::uop).collect(), axis)
        }

        /// Stacks tensors of one shape along a new axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::stack(&[Tensor::new([1, 2]), Tensor::new([3, 4])], 1);
        /// assert_eq!(y.to_vec::<i32>()?, [1, 3, 2, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn stack | try_stack(tensors: &[Tensor], axis: isize) -> Tensor {
            let nodes: Vec<UOp> = tensors.iter().map(Tensor::uop).collect();
            let Some(dims) = nodes.first().map(|u| u.shape().clone()) else {
                return shape_error!("expected one tensor or more, got none");
            };
            if let Some(other) = nodes.iter().find(|u| *u.shape() != dims) {
                return shape_error!("shapes {dims:?} and {:?} differ", other.shape());
            }
            // Concatenating along the next axis and reshaping adds no node per tensor.
            let at = if axis < 0 { axis + dims.len() as isize + 1 } else { axis };
            if (0..dims.len() as isize).contains(&at)
                && nodes.iter().all(|u| u.extents().is_empty())
            {
                let (all, at) = (concat("stack", tensors, nodes, at)?, at as usize);
                return all.shaped(spliced(&dims, at..at, &[tensors.len()]));
            }
            let parts =
                tensors.iter().map(|t| t.try_unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
            Tensor::try_cat(&parts, axis)
        }

        /// Tiles the tensor along each axis. Counts beyond the rank add leading axes.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([1, 2]).repeat([2, 2]);
        /// assert_eq!(y.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn repeat | try_repeat(&self, counts: impl Into<Sizes>) -> Tensor {
            let (counts, dims) = (counts.into().shape("repeat")?, self.dims());
            if counts.len() < dims.len() {
                return shape_error!("{counts:?} has fewer counts than {dims:?} has axes");
            }
            let ones = std::iter::repeat_n(1, counts.len() - dims.len());
            let dims: Dims = ones.chain(dims).collect();
            self.shaped(dims.iter().flat_map(|&n| [1, n]))?
                .expanded(counts.iter().zip(&dims).flat_map(|(&c, &n)| [c, n]))?
                .shaped(counts.iter().zip(&dims).map(|(c, n)| c * n))
        }

        /// Repeats each slice along an axis `count` times consecutively.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2]).repeat_interleave(2, 0).to_vec::<i32>()?, [1, 1, 2, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn repeat_interleave | try_repeat_interleave(
            &self, count: usize, axis: isize,
        ) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("repeat_interleave", axis, &dims)?;
            let mut wide = dims.clone();
            wide.insert(at + 1, count);
            checked_numel("repeat_interleave", &wide)?;
            let mut out = dims;
            out[at] = out[at].saturating_mul(count);
            self.try_unsqueeze(at as isize + 1)?.expanded(wide)?.shaped(out)
        }

        /// Splits into views along an axis. One number is the size of every view but possibly the
        /// last; a list gives the size of each.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let sizes = |pieces: Vec<Tensor>| pieces.iter().map(|t| t.numel()).collect::<Vec<_>>();
        /// let x = Tensor::arange(0, 5, 1);
        /// assert_eq!(sizes(x.split(2, 0)), [2, 2, 1]);
        /// assert_eq!(sizes(x.split([1, 4], 0)), [1, 4]);
        /// ```
        pub fn split | try_split(&self, sizes: impl Into<Sizes>, axis: isize) -> Vec<Tensor> {
            let (mut sizes, dims) = (sizes.into().shape("split")?, self.dims());
            let at = resolve_axis("split", axis, &dims)?;
            if let [every] = sizes[..] {
                reject_shape!(
                    every == 0,
                    "expected a size above 0 to split axis {axis} of {dims:?}"
                );
                limits::check(dims[at].div_ceil(every).saturating_mul(VIEW_BYTES))?;
                let starts = (0..dims[at].max(1)).step_by(every);
                sizes = starts.map(|start| every.min(dims[at] - start)).collect();
            }
            if sizes.iter().try_fold(0usize, |n, s| n.checked_add(*s)) != Some(dims[at]) {
                let size = dims[at];
                return shape_error!(
                    "{sizes:?} does not add up to the {size} of axis {axis} of {dims:?}"
                );
            }
            let mut start = 0;
            let mut piece = |size: usize| {
                start += size;
                self.slice_axis(at, start - size, start)
            };
            sizes.into_iter().map(&mut piece).collect()
        }

        /// Splits into at most `chunks` views of equal size along an axis; the last may be smaller.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([5]).chunk(3, 0)[2].shape(), [1]);
        /// ```
        pub fn chunk | try_chunk(&self, chunks: usize, axis: isize) -> Vec<Tensor> {
            let size = self.dim("chunk", axis)?;
            reject_shape!(
                chunks == 0,
                "expected at least one chunk of axis {axis} of {:?}",
                self.dims()
            );
            self.try_split(size.div_ceil(chunks).max(1), axis)
        }
    }
}
