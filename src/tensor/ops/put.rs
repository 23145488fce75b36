//! Writes at indices, and slices along an axis. Writes are `scatter` and `scatter_reduce`; an index
//! outside its axis writes nothing.

use super::create::index_dtype;
use super::gather::{check_source, normalize_indices, split_positions};
use super::index::resolve_position;
use super::movement::spliced;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::{Operand, broadcast_dims, broadcast_to};
use crate::tensor::{Scatter, Sizes, Tensor, resolve_axis};

/// Flattens indices of the first axes of a shape to one index, and returns their broadcast shape. A
/// position outside an axis becomes negative.
fn flatten_indices(dims: &[usize], indices: &[Tensor]) -> Result<(Tensor, Dims)> {
    let shape = broadcast_dims("tensor", &indices.iter().map(|t| t.dims()).collect::<Vec<_>>())?;
    let count = checked_numel("tensor", &dims[..indices.len()])?;
    let mut all: Option<(Tensor, Tensor)> = None;
    for (t, &size) in indices.iter().zip(dims) {
        let t = normalize_indices("tensor", t, size)?;
        let inside = t.try_ge(0)?.try_bitwise_and(t.try_lt(size)?)?;
        let t = if index_dtype(count) == DType::I32 { t } else { t.try_cast(DType::I64)? };
        all = Some(match all {
            None => (t, inside),
            Some((p, i)) => (p.try_mul(size)?.try_add(t)?, i.try_bitwise_and(inside)?),
        });
    }
    let (place, inside) = all.expect("an index at least");
    // Negative indices count from the end; this one is outside for any size.
    let none = -(count as i64) - 1;
    Ok((broadcast_to("tensor", &inside.try_where_(place, none)?, &shape)?, shape))
}

impl Tensor {
    fallible! {
        /// Adds slices of a source, scaled by `alpha`, along an axis: slice `i` of the source to
        /// slice `index[i]`. Repeated indices accumulate.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 1], [2, 2], [3, 3]]);
        /// let (index, source) = (Tensor::new([2, 0, 2]), Tensor::new([[1, 2], [3, 4], [5, 6]]));
        /// let y = x.index_add(0, &index, &source, 10);
        /// assert_eq!(y.to_vec::<i32>()?, [31, 41, 2, 2, 63, 83]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn index_add | try_index_add(
            &self, axis: isize, index: &Tensor, source: &Tensor, alpha: impl Into<Operand>,
        ) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("index_add", axis, &dims)?;
            let [count] = index.dims()[..] else {
                return shape_error!("expected an index of one axis, got {:?}", index.dims());
            };
            let (wanted, given) = (spliced(&dims, at..at + 1, &[count]), source.dims());
            if given != wanted {
                return shape_error!(
                    "expected a source of {wanted:?} for an index of {count} along axis {axis} \
                     of {dims:?}, got {given:?}"
                );
            }
            check_source(self, source)?;
            let source = source.try_mul(source.cast_operand(alpha.into())?)?;
            let along = index.line_along(at, dims.len())?.try_expand(&wanted)?;
            self.try_scatter_reduce(at as isize, &along, source, Scatter::Sum, true)
        }

        /// Writes values at indices of the first axes: one integer tensor per axis, or bool tensors
        /// for as many axes as they have. The indices broadcast together, and the values to their
        /// shape followed by the remaining axes. With `accumulate` the values are added; otherwise
        /// the last value for one position is kept. A bool tensor is computed at once.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, values) = (Tensor::full([2, 2], 0), Tensor::new([1, 2, 3]));
        /// let (rows, cols) = (Tensor::new([0, 1, 0]), Tensor::new([1, 0, 1]));
        /// assert_eq!(x.index_put(&[&rows, &cols], &values, true).to_vec::<i32>()?, [0, 4, 2, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn index_put | try_index_put(
            &self, indices: &[&Tensor], values: impl Into<Operand>, accumulate: bool,
        ) -> Tensor {
            const OP: &str = "index_put";
            let dims = self.dims();
            let mut list = Vec::new();
            for t in indices {
                if !t.dtype().is_bool() {
                    list.push((*t).clone());
                    continue;
                }
                let (first, rank) = (list.len(), t.ndim());
                if rank == 0
                    || first + rank > dims.len()
                    || t.dims()[..] != dims[first..first + rank]
                {
                    return shape_error!(
                        "a mask of {:?} does not match the axes of {dims:?} from {first} on",
                        t.dims()
                    );
                }
                list.extend(split_positions(&t.nonzero_indices(None)?, &t.dims())?);
            }
            if list.is_empty() || list.len() > dims.len() {
                return shape_error!(
                    "expected 1 index or more, at most one per axis of {dims:?}, got {}",
                    list.len()
                );
            }
            let (place, shape) = flatten_indices(&dims, &list)?;
            let rest = &dims[list.len()..];
            let (count, n) = (checked_numel(OP, &dims[..list.len()])?, checked_numel(OP, &shape)?);
            let wanted: Dims = shape.iter().chain(rest).copied().collect();
            let row = checked_numel(OP, rest)?;
            let values =
                broadcast_to(OP, &self.cast_operand(values.into())?, &wanted)?.shaped([n, row])?;
            let place = place.shaped([n, 1])?.try_expand([n, row])?;
            let x = self.shaped([count, row])?;
            let written = if accumulate {
                x.try_scatter_reduce(0, &place, values, Scatter::Sum, true)
            } else {
                x.try_scatter(0, &place, values)
            };
            written?.shaped(dims)
        }

        /// Writes elements of a source, in row-major order, where a mask is true. The mask
        /// broadcasts to the tensor. A source with too few elements is padded with zeros.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// let y = x.masked_scatter(&x.ne(2), &Tensor::new([7, 8, 9]));
        /// assert_eq!(y.to_vec::<i32>()?, [7, 2, 8, 9]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn masked_scatter | try_masked_scatter(
            &self, mask: &Tensor, source: &Tensor,
        ) -> Tensor {
            reject_dtype!(!mask.dtype().is_bool(), "expected a bool mask, got {}", mask.dtype());
            check_source(self, source)?;
            let (dims, n) = (self.dims(), self.max_numel());
            let mask = broadcast_to("masked_scatter", mask, &dims)?;
            let source = source.shaped([source.max_numel()])?;
            if n == 0 || source.max_numel() == 0 {
                return mask.try_where_(self.literal(0), self);
            }
            let order = mask.shaped([n])?.try_cast(DType::I32)?.try_cumsum(0)? - 1;
            // Before the first selected position there is no element; what is read there is
            // discarded.
            let read = source.try_gather(0, &order.try_maximum(0)?)?.shaped(dims)?;
            mask.try_where_(read, self)
        }

        /// Moves axes to other positions; the others keep their order.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).movedim(0, -1).shape(), [3, 4, 2]);
        /// assert_eq!(Tensor::zeros([2, 3, 4]).movedim([0, 1], [2, 0]).shape(), [3, 4, 2]);
        /// ```
        pub fn movedim | try_movedim(
            &self, source: impl Into<Sizes>, destination: impl Into<Sizes>,
        ) -> Tensor {
            let dims = self.dims();
            let (from, to) =
                (source.into().axes("movedim", &dims)?, destination.into().axes("movedim", &dims)?);
            if from.len() != to.len() {
                return shape_error!(
                    "expected as many destinations as sources, got {from:?} to {to:?}"
                );
            }
            let mut rest = (0..dims.len()).filter(|a| !from.contains(a));
            let order = (0..dims.len()).map(|i| match to.iter().position(|&t| t == i) {
                Some(k) => from[k],
                None => rest.next().expect("an axis for each place"),
            });
            let order: Dims = order.collect();
            self.permuted(order)
        }

        /// Returns `length` elements of an axis from `start` on; a negative start counts from the
        /// end.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2, 3], [4, 5, 6]]);
        /// assert_eq!(x.narrow(1, 1, 2).to_vec::<i32>()?, [2, 3, 5, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn narrow | try_narrow(&self, axis: isize, start: isize, length: usize) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("narrow", axis, &dims)?;
            self.require_static("narrow", [at])?;
            let size = dims[at];
            let first = if start < 0 { start.checked_add_unsigned(size) } else { Some(start) };
            let range = first
                .and_then(|a| usize::try_from(a).ok())
                .and_then(|a| Some((a, a.checked_add(length)?)))
                .filter(|r| r.1 <= size);
            let Some((a, b)) = range else {
                return index_error!(
                    "{length} elements from {start} on are not within axis {axis} of {dims:?}, \
                     which has size {size}"
                );
            };
            self.slice_axis(at, a, b)
        }

        /// Slice of an axis at an index, without that axis; a negative index counts from the end.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2, 3], [4, 5, 6]]).select(1, -1).to_vec::<i32>()?, [3, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn select | try_select(&self, axis: isize, index: isize) -> Tensor {
            const OP: &str = "select";
            let dims = self.dims();
            let at = resolve_axis(OP, axis, &dims)?;
            self.require_static(OP, [at])?;
            let place = resolve_position(OP, &dims, at, index)?;
            let slice = self.slice_axis(at, place, place + 1)?;
            slice.shaped(spliced(&dims, at..at + 1, &[]))
        }
    }
}
