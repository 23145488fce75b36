//! Gather and scatter along an axis.
//!
//! A read at indices is a `Gather` node, whose cost is that of its result, not of its input. A
//! write at indices is a `Scatter` node: a copy of the input, unless its buffer is donated, and one
//! pass over the sources in order. Each is the gradient of the other.
//!
//! Indices are integers; negative ones count from the end. An index outside the axis reads 0 and
//! writes nothing: an error would require a wait for the device.

use super::create::{index_dtype, iota};
use crate::device::Device;
use crate::dtype::{DType, sum_acc};
use crate::error::{Error, Result};
use crate::ir::{Combine, DeviceName, UOp, check_indexed};
use crate::tensor::broadcast::{
    Operand, broadcast_dims, broadcast_to, device_of, slice_to_extents,
};
use crate::tensor::{Tensor, resolve_axis};

/// Reduction of [`Tensor::scatter_reduce`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scatter {
    /// Sum of the sources.
    Sum,
    /// Product of the sources.
    Prod,
    /// Mean; floor division for integers.
    Mean,
    /// Maximum; NaN propagates.
    Amax,
    /// Minimum; NaN propagates.
    Amin,
}

/// Converts indices to nonnegative positions on an axis of `size`, in a dtype that holds them all.
pub(super) fn normalize_indices(op: &'static str, index: &Tensor, size: usize) -> Result<Tensor> {
    let dtype = index.dtype();
    if !dtype.is_int() {
        return wrong_dtype!(op, "expected an integer index, got {dtype}");
    }
    let narrow = dtype.bits() < 32 || dtype == DType::I32;
    let from_start = index.try_cast(if narrow { index_dtype(size) } else { DType::I64 })?;
    if dtype.is_unsigned() {
        return Ok(from_start);
    }
    // `minimum` lets range analysis see that the sum does not overflow.
    from_start.try_lt(0)?.try_where_(from_start.try_minimum(0)? + size, &from_start)
}

/// Returns the indices per axis of positions in the flattened axes.
pub(super) fn split_positions(positions: &Tensor, dims: &[usize]) -> Result<Vec<Tensor>> {
    let (mut rest, mut indices) = (positions.clone(), Vec::new());
    for &n in dims.iter().rev() {
        indices.push(rest.try_modulo(n)?);
        rest = rest.try_idiv(n)?;
    }
    indices.reverse();
    Ok(indices)
}

/// Returns the operands of a gather or scatter as nodes of one device, with the symbolic dimensions
/// of the input.
fn nodes(
    op: &'static str,
    axis: usize,
    operands: &[&Tensor],
) -> Result<(Vec<UOp>, &'static DeviceName)> {
    let device = device_of(op, operands.iter().copied())?;
    let table = operands[0].uop();
    let extents = (0..table.shape().len()).map(|a| table.extent(a).filter(|_| a != axis).cloned());
    let others: Vec<_> = extents.collect();
    let mut nodes = vec![table];
    for t in &operands[1..] {
        let node = slice_to_extents(t.uop(), &others);
        let positions = nodes.get(1).map(|index| index.extents().to_vec()).unwrap_or_default();
        nodes.push(slice_to_extents(node, &positions));
    }
    check_indexed(axis, &nodes).map_err(|msg| Error::Shape { op, msg })?;
    Ok((nodes, device))
}

/// Gathers elements of `x` along an axis at positions that have the shape of `x` but for the axis.
/// A position outside gives 0.
pub(super) fn gather_at(
    op: &'static str,
    x: &Tensor,
    positions: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    let (nodes, device) = nodes(op, axis, &[x, positions])?;
    Ok(Tensor::new_inner(nodes[0].gathered(&nodes[1], axis), device, None))
}

/// Selects slices of `x` along an axis at a list of positions.
pub(super) fn select_at(
    op: &'static str,
    x: &Tensor,
    positions: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    gather_at(op, x, &expand_positions(x, positions, axis)?, axis)
}

/// Broadcasts a list of positions along an axis to the shape of `x`.
pub(super) fn expand_positions(x: &Tensor, positions: &Tensor, axis: usize) -> Result<Tensor> {
    let mut dims = x.dims();
    dims[axis] = positions.dims()[0];
    positions.line_along(axis, dims.len())?.expanded(dims)
}

/// Combines values into `x` at positions along an axis; positions and values have the shape of `x`
/// but for the axis.
pub(super) fn scatter_at(
    op: &'static str,
    x: &Tensor,
    positions: &Tensor,
    value: &Tensor,
    combine: Combine,
    axis: usize,
) -> Result<Tensor> {
    let (nodes, device) = nodes(op, axis, &[x, positions, value])?;
    Ok(Tensor::new_inner(nodes[0].scattered(&nodes[1], &nodes[2], combine, axis), device, None))
}

/// Checks that an index is not larger than a tensor, except along one axis.
fn check_index_shape(
    index: &[usize],
    of: &[usize],
    what: &str,
    except: Option<usize>,
) -> Result<()> {
    if index.len() == of.len() && (0..of.len()).all(|i| Some(i) == except || index[i] <= of[i]) {
        return Ok(());
    }
    let but = except.map_or(String::new(), |axis| format!(" outside axis {axis}"));
    shape_error!("an index of {index:?} exceeds the {what} {of:?}{but}")
}

/// Shrinks each axis to `sizes`, except one.
fn narrow_to(x: &Tensor, sizes: &[usize], except: Option<usize>) -> Result<Tensor> {
    let dims = x.dims();
    x.shrunk((0..dims.len()).map(|i| (0, if Some(i) == except { dims[i] } else { sizes[i] })))
}

/// Operands of a scatter on the slice of the tensor that the index spans.
struct ScatterArgs {
    /// Slice of the tensor.
    part: Tensor,
    /// Position of each source.
    positions: Tensor,
    /// Values of the sources.
    src: Tensor,
    /// Axis of the positions.
    axis: usize,
}

/// Checks that sources have the dtype of the tensor that they are written to.
pub(super) fn check_source(x: &Tensor, source: &Tensor) -> Result<()> {
    let (of, to) = (source.dtype(), x.dtype());
    if of == to {
        return Ok(());
    }
    dtype_error!("expected a source of {to}, got {of}; cast it")
}

impl ScatterArgs {
    fn new(
        op: &'static str,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: Operand,
    ) -> Result<ScatterArgs> {
        let (dims, shape) = (x.dims(), index.dims());
        check_index_shape(&shape, &dims, "tensor", Some(axis))?;
        let src = match src {
            Operand::Scalar(..) => x.cast_operand(src)?.try_expand(&shape)?,
            Operand::Tensor(t) if t.ndim() == 0 => t.try_expand(&shape)?,
            Operand::Tensor(t) => {
                check_index_shape(&shape, &t.dims(), "source", None)?;
                narrow_to(&t, &shape, None)?
            }
        };
        check_source(x, &src)?;
        let part = narrow_to(x, &shape, Some(axis))?;
        Ok(ScatterArgs { part, positions: normalize_indices(op, index, dims[axis])?, src, axis })
    }
    /// Scatters values into a base of the slice's shape.
    fn scatter_onto(
        &self,
        op: &'static str,
        base: &Tensor,
        value: &Tensor,
        combine: Combine,
    ) -> Result<Tensor> {
        let shape = self.positions.dims();
        let value = if value.ndim() == 0 { &value.try_expand(&shape)? } else { value };
        scatter_at(op, base, &self.positions, value, combine, self.axis)
    }
}

/// Result of a scatter inside the slice, the tensor elsewhere.
fn merge_outside(x: &Tensor, shape: &[usize], at: usize, written: &Tensor) -> Result<Tensor> {
    let dims = x.dims();
    let padding: Vec<(usize, usize)> =
        (0..dims.len()).map(|i| if i == at { (0, 0) } else { (0, dims[i] - shape[i]) }).collect();
    if padding.iter().all(|&p| p == (0, 0)) {
        return Ok(written.copy());
    }
    let all = Tensor::full((), true).try_expand(&written.dims())?;
    let reached = written.match_extents(all).try_pad(&padding)?;
    reached.try_where_(written.try_pad(&padding)?, x)
}

impl Tensor {
    fallible! {
        /// Gathers elements along an axis: element `[i, j]` of the result is `x[index[i, j], j]`
        /// for axis 0 and `x[i, index[i, j]]` for axis 1. The index has the rank of the tensor and
        /// is not larger except along `axis`. Negative indices count from the end; one outside the
        /// axis gives 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.gather(1, &Tensor::new([[0, 0], [1, -2]])).to_vec::<i32>()?, [1, 1, 4, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn gather | try_gather(&self, axis: isize, index: &Tensor) -> Tensor {
            const OP: &str = "gather";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let shape = index.dims();
            check_index_shape(&shape, &self.dims(), "tensor", Some(at))?;
            let part = narrow_to(self, &shape, Some(at))?;
            gather_at(OP, &part, &normalize_indices(OP, index, self.dims()[at])?, at)
        }

        /// Selects slices along an axis by a list of indices. Negative indices count from the end;
        /// one outside the axis gives zeros.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4], [5, 6]]);
        /// assert_eq!(x.index_select(0, &Tensor::new([2, 0])).to_vec::<i32>()?, [5, 6, 1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn index_select | try_index_select(&self, axis: isize, index: &Tensor) -> Tensor {
            const OP: &str = "index_select";
            let at = resolve_axis(OP, axis, &self.dims())?;
            if index.ndim() != 1 {
                return shape_error!("expected an index of one axis, got {:?}", index.dims());
            }
            select_at(OP, self, &normalize_indices(OP, index, self.dims()[at])?, at)
        }

        /// Scatters a source tensor or a number along an axis: `x[index[i, j], j] = src[i, j]` for
        /// axis 0. The last of several sources for one position is kept. An index outside the axis
        /// writes nothing.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::full([2, 3], 0);
        /// let y = x.scatter(1, &Tensor::new([[0, 2], [1, -3]]), Tensor::new([[5, 6], [7, 8]]));
        /// assert_eq!(y.to_vec::<i32>()?, [5, 0, 6, 8, 7, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scatter | try_scatter(
            &self, axis: isize, index: &Tensor, src: impl Into<Operand>,
        ) -> Tensor {
            const OP: &str = "scatter";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = ScatterArgs::new(OP, self, at, index, src.into())?;
            let written = w.scatter_onto(OP, &w.part, &w.src, Combine::Set)?;
            merge_outside(self, &index.dims(), at, &written)
        }

        /// Scatters as [`scatter`](Self::scatter) and reduces the sources of one position, together
        /// with the input if `include_self`. Positions without a source keep their value.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Scatter};
        /// let (x, index) = (Tensor::new([10, 20, 30]), Tensor::new([0, 2, 0]));
        /// let sums = x.scatter_reduce(0, &index, Tensor::new([1, 2, 3]), Scatter::Sum, true);
        /// assert_eq!(sums.to_vec::<i32>()?, [14, 20, 32]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scatter_reduce | try_scatter_reduce(
            &self,
            axis: isize,
            index: &Tensor,
            src: impl Into<Operand>,
            reduction: Scatter,
            include_self: bool,
        ) -> Tensor {
            const OP: &str = "scatter_reduce";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = ScatterArgs::new(OP, self, at, index, src.into())?;
            // Narrow floats accumulate in f32 and are rounded once.
            let acc = if self.is_floating_point() { sum_acc(self.dtype()) } else { self.dtype() };
            let (old, src) = (w.part.try_cast(acc)?, w.src.try_cast(acc)?);
            let (combine, neutral) = match reduction {
                Scatter::Sum | Scatter::Mean => (Combine::Add, old.literal(0)),
                Scatter::Prod => (Combine::Mul, old.literal(1)),
                Scatter::Amax => (Combine::Max, old.literal(acc.min_value())),
                Scatter::Amin => (Combine::Min, old.literal(acc.max_value())),
            };
            // Positions with a source start at the neutral element, unless the input is included.
            let start =
                if include_self { old } else { w.scatter_onto(OP, &old, &neutral, Combine::Set)? };
            let mut all = w.scatter_onto(OP, &start, &src, combine)?;
            if reduction == Scatter::Mean {
                let none = Tensor::full((), include_self as i32).try_expand(&w.part.dims())?;
                let (none, one) = (w.part.match_extents(none), Tensor::full((), 1));
                let count = w.scatter_onto(OP, &none, &one, Combine::Add)?;
                // Positions without a source are divided by 1.
                let n = count.try_maximum(1)?.try_cast(acc)?;
                all = if acc.is_float() { all.try_div(n)? } else { all.try_idiv(n)? };
            }
            merge_outside(self, &index.dims(), at, &all.try_cast(self.dtype())?)
        }

        /// Returns the indices of the nonzero elements in row-major order: one row per element, one
        /// column per axis. Without a `size` the tensor is computed at once to count them. With a
        /// `size` the result has that many rows, padded with -1, and stays lazy.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[0, 3], [5, 0]]);
        /// assert_eq!(x.nonzero(Some(3)).to_vec::<i32>()?, [0, 1, 1, 0, -1, -1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nonzero | try_nonzero(&self, size: Option<usize>) -> Tensor {
            let (flat, dims) = (self.nonzero_indices(size)?, self.dims());
            if dims.is_empty() {
                return flat.try_unsqueeze(1)?.slice_axis(1, 0, 0);
            }
            let rows = Tensor::try_stack(&split_positions(&flat.try_maximum(0)?, &dims)?, 1)?;
            flat.try_lt(0)?.try_unsqueeze(1)?.try_where_(-1, rows)
        }

        /// Selects the elements where a mask is true, in row-major order, as one axis. Without a
        /// `size` the mask is computed at once to count them. With a `size` the result has that
        /// many elements, padded with 0, and stays lazy. The mask broadcasts with the tensor.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.masked_select(&x.gt(2), Some(4)).to_vec::<i32>()?, [3, 4, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn masked_select | try_masked_select(
            &self, mask: &Tensor, size: Option<usize>,
        ) -> Tensor {
            const OP: &str = "masked_select";
            reject_dtype!(!mask.dtype().is_bool(), "expected a bool mask, got {}", mask.dtype());
            let shape = broadcast_dims(OP, &[self.dims(), mask.dims()])?;
            let flat = broadcast_to(OP, mask, &shape)?.nonzero_indices(size)?;
            // Position -1 is outside and reads 0.
            gather_at(OP, &broadcast_to(OP, self, &shape)?.try_reshape([-1])?, &flat, 0)
        }
    }

    /// Returns the positions of the nonzero elements of the flattened tensor, padded with -1 to
    /// `size`.
    pub(super) fn nonzero_indices(&self, size: Option<usize>) -> Result<Tensor> {
        self.require_static("nonzero", 0..self.ndim())?;
        let mask = self.nonzero_mask().try_reshape([self.numel()])?;
        let size = match size {
            Some(size) => size,
            None => {
                // Stored once: computed twice, a float sum in it could be rounded differently.
                mask.realize()?;
                mask.try_cast(DType::I64)?.try_sum(0)?.item::<i64>()? as usize
            }
        };
        let wide = index_dtype(self.numel());
        // The output position is the number of nonzero elements before it.
        let count = mask.try_cast(wide)?;
        let before = count.try_cumsum(0)?.try_sub(&count)?;
        let line = iota(self.numel()).try_cast(wide)?;
        if self.device().is_multi_device()
            || Device::named(self.device()).is_ok_and(|d| d.target().grid)
        {
            let (at, none) = (mask.try_where_(before, -1)?, count.literal(-1).try_expand([size])?);
            return scatter_at("nonzero", &none, &at, &line, Combine::SetDistinct, 0);
        }
        // A sequential thread writes without a branch, which would be mispredicted half of the
        // time: zero elements write -1, which the next nonzero one overwrites. The output has one
        // more element for the -1 after the last.
        let none = count.literal(-1).try_expand([size.saturating_add(1)])?;
        scatter_at("nonzero", &none, &before, &mask.try_where_(line, -1)?, Combine::Set, 0)?
            .slice_axis(0, 0, size)
    }
}
