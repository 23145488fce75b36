//! Elements by computed places: reading at indices, and writing at them.
//!
//! A read at indices is a `Gather` of the graph, which costs what it gives and not what it chooses
//! from. A write at indices is a `Scatter`: a pass over the tensor, which is left out where the
//! memory of the old one is taken over, and then one over the sources, in order. Each is the
//! other's gradient.
//!
//! Indices are integers; negative ones count from the end. An index outside the axis reads 0 and
//! writes nothing: whether there is one is known only on the device, and finding out would mean to
//! wait for it.

use super::create::iota;
use crate::device::Device;
use crate::dtype::{DType, sum_acc};
use crate::error::Result;
use crate::ir::{Combine, DeviceName, UOp, fit_along};
use crate::shape::{Dims, Movement};
use crate::tensor::broadcast::{Operand, broadcast_to, common_device, slice_to_extents};
use crate::tensor::{Tensor, resolve_axis, wrong_dtype, wrong_shape};

/// What [`Tensor::scatter_reduce`] makes of the elements that meet at one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scatter {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean; of integers rounded down.
    Mean,
    /// The greatest; NaN wins.
    Amax,
    /// The least; NaN wins.
    Amin,
}

/// Indices as places from the start of an axis of `size`, in a dtype that holds every place.
pub(in crate::tensor) fn places(op: &'static str, index: &Tensor, size: usize) -> Result<Tensor> {
    if !index.dtype().is_int() {
        return wrong_dtype(op, format!("expected an integer index, got {}", index.dtype()));
    }
    let narrow = index.dtype().bits() < 32 || index.dtype() == DType::I32;
    let dtype = if narrow && i32::try_from(size).is_ok() { DType::I32 } else { DType::I64 };
    let from_start = index.try_cast(dtype)?;
    if index.dtype().is_unsigned() {
        return Ok(from_start);
    }
    // No number is both above zero and from the end; said so, the sum is seen not to overflow.
    from_start.try_lt(0)?.try_where_(from_start.try_minimum(0)? + size, &from_start)
}

/// The operands of a read or write at places, as nodes of one device. What is written has as much
/// of each axis as the tensor has.
fn nodes(
    op: &'static str,
    axis: usize,
    operands: &[&Tensor],
) -> Result<(Vec<UOp>, &'static DeviceName)> {
    let device = common_device(
        op,
        &operands.iter().map(|t| Operand::Tensor((*t).clone())).collect::<Vec<_>>(),
    )?;
    let table = operands[0].uop();
    let mut nodes = vec![table.clone()];
    for t in &operands[1..] {
        let others: Vec<_> = (0..table.shape().len())
            .map(|a| if a == axis { None } else { table.extent(a).cloned() })
            .collect();
        let node = slice_to_extents(t.uop(), &others);
        // Values are there for each place.
        let places: Vec<_> = nodes.get(1).map(|index| index.extents().to_vec()).unwrap_or_default();
        nodes.push(slice_to_extents(node, &places));
    }
    fit_along(axis, &nodes).or_else(|msg| wrong_shape(op, msg))?;
    Ok((nodes, device))
}

/// The elements of `x` at places along an axis; places have the shape of `x` but for the axis. A
/// place that is not there gives 0.
pub(in crate::tensor) fn gather_at(
    op: &'static str,
    x: &Tensor,
    places: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    let (nodes, device) = nodes(op, axis, &[x, places])?;
    Ok(Tensor::new_inner(nodes[0].gathered(&nodes[1], axis), device, None))
}

/// Slices of `x` along an axis, at a list of places.
pub(in crate::tensor) fn select_at(
    op: &'static str,
    x: &Tensor,
    places: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    gather_at(op, x, &along(x, places, axis)?, axis)
}

/// A list of places along an axis of `x`, the same for all of its other axes.
pub(in crate::tensor) fn along(x: &Tensor, places: &Tensor, axis: usize) -> Result<Tensor> {
    let (mut dims, count) = (x.dims(), places.dims()[0]);
    let line = places
        .movement(Movement::reshape((0..dims.len()).map(|a| if a == axis { count } else { 1 })))?;
    dims[axis] = count;
    line.movement(Movement::Expand(dims))
}

/// `x` with values combined into it at places along an axis; places and values have the shape of
/// `x` but for the axis.
pub(in crate::tensor) fn scatter_at(
    op: &'static str,
    x: &Tensor,
    places: &Tensor,
    value: &Tensor,
    combine: Combine,
    axis: usize,
) -> Result<Tensor> {
    let (nodes, device) = nodes(op, axis, &[x, places, value])?;
    Ok(Tensor::new_inner(nodes[0].scattered(&nodes[1], &nodes[2], combine, axis), device, None))
}

/// Checks that the sizes of an index are within those of a tensor, but for one axis.
fn within(
    op: &'static str,
    index: &[usize],
    of: &[usize],
    what: &str,
    except: Option<usize>,
) -> Result<()> {
    if index.len() == of.len() && (0..of.len()).all(|i| Some(i) == except || index[i] <= of[i]) {
        return Ok(());
    }
    let but = except.map_or(String::new(), |axis| format!(" outside axis {axis}"));
    wrong_shape(op, format!("an index of {index:?} exceeds the {what} {of:?}{but}"))
}

/// The first `sizes` of each axis, but for one.
fn cut(x: &Tensor, sizes: &[usize], except: Option<usize>) -> Result<Tensor> {
    let dims = x.dims();
    x.movement(Movement::shrink(
        (0..dims.len()).map(|i| (0, if Some(i) == except { dims[i] } else { sizes[i] })),
    ))
}

/// A write at indices, on the part of the tensor that the index spans.
struct Write {
    /// The part.
    part: Tensor,
    /// Where each source goes.
    places: Tensor,
    /// The sources.
    src: Tensor,
    /// The axis of the places.
    axis: usize,
}

impl Write {
    fn new(op: &'static str, x: &Tensor, at: usize, index: &Tensor, src: Operand) -> Result<Write> {
        let (dims, shape) = (x.dims(), index.dims());
        within(op, &shape, &dims, "tensor", Some(at))?;
        let src = match src {
            Operand::Scalar(..) => x.cast_operand(src)?.try_expand(&shape)?,
            Operand::Tensor(t) if t.ndim() == 0 => t.try_expand(&shape)?,
            Operand::Tensor(t) => {
                within(op, &shape, &t.dims(), "source", None)?;
                cut(&t, &shape, None)?
            }
        };
        if src.dtype() != x.dtype() {
            return wrong_dtype(
                op,
                format!("a source of {} for a tensor of {}; cast one", src.dtype(), x.dtype()),
            );
        }
        Ok(Write {
            part: cut(x, &shape, Some(at))?,
            places: places(op, index, dims[at])?,
            src,
            axis: at,
        })
    }
    /// A base of the part's shape with values at the places.
    fn onto(
        &self,
        op: &'static str,
        base: &Tensor,
        value: &Tensor,
        combine: Combine,
    ) -> Result<Tensor> {
        let shape = self.places.dims();
        let value = if value.ndim() == 0 { &value.try_expand(&shape)? } else { value };
        scatter_at(op, base, &self.places, value, combine, self.axis)
    }
}

/// The result where the index reaches, this tensor elsewhere.
fn joined(x: &Tensor, shape: &[usize], at: usize, written: &Tensor) -> Result<Tensor> {
    let dims = x.dims();
    let padding: Vec<(usize, usize)> =
        (0..dims.len()).map(|i| if i == at { (0, 0) } else { (0, dims[i] - shape[i]) }).collect();
    if padding.iter().all(|&p| p == (0, 0)) {
        return Ok(written.copy());
    }
    let reached = written
        .match_extents(Tensor::full((), true).try_expand(&written.dims())?)
        .try_pad(&padding)?;
    reached.try_where_(written.try_pad(&padding)?, x)
}

impl Tensor {
    fallible! {
        /// The elements at indices along an axis: element `[i, j]` of the result is `x[index[i, j],
        /// j]` for axis 0, `x[i, index[i, j]]` for axis 1. The index has as many axes as the
        /// tensor, none longer but for `axis`. Negative indices count from the end; one outside the
        /// axis gives 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(
        ///     x.gather(1, &Tensor::new([[0, 0], [1, -2]])).to_vec::<i32>()?,
        ///     [1, 1, 4, 3]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn gather | try_gather(&self, axis: isize, index: &Tensor) -> Tensor {
            const OP: &str = "gather";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let shape = index.dims();
            within(OP, &shape, &self.dims(), "tensor", Some(at))?;
            gather_at(OP, &cut(self, &shape, Some(at))?, &places(OP, index, self.dims()[at])?, at)
        }

        /// Slices along an axis in the order of a list of indices. Negative indices count from the
        /// end; one outside the axis gives zeros.
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
                return wrong_shape(
                    OP,
                    format!("expected an index of one axis, got {:?}", index.dims()),
                );
            }
            select_at(OP, self, &places(OP, index, self.dims()[at])?, at)
        }

        /// The tensor with elements of a source, or a number, written at indices along an axis:
        /// `x[index[i, j], j] = src[i, j]` for axis 0. Where several meet at one place the last of
        /// them stays. An index outside the axis writes nothing.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::full([2, 3], 0);
        /// let y = x.scatter(1, &Tensor::new([[0, 2], [1, -3]]), Tensor::new([[5, 6], [7, 8]]));
        /// assert_eq!(y.to_vec::<i32>()?, [5, 0, 6, 8, 7, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scatter | try_scatter(
            &self,
            axis: isize,
            index: &Tensor,
            src: impl Into<Operand>,
        ) -> Tensor {
            const OP: &str = "scatter";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = Write::new(OP, self, at, index, src.into())?;
            joined(self, &index.dims(), at, &w.onto(OP, &w.part, &w.src, Combine::Set)?)
        }

        /// As [`scatter`](Self::scatter), where the elements that meet at one place are folded,
        /// with what was there if `include_self`. A place that no index names stays.
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
            how: Scatter,
            include_self: bool,
        ) -> Tensor {
            const OP: &str = "scatter_reduce";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = Write::new(OP, self, at, index, src.into())?;
            // Narrow floats are folded in f32 and rounded once.
            let acc = if self.is_floating_point() { sum_acc(self.dtype()) } else { self.dtype() };
            let (mut old, mut src) = (w.part.try_cast(acc)?, w.src.try_cast(acc)?);
            if matches!(how, Scatter::Amax | Scatter::Amin)
                && (old.requires_grad() || src.requires_grad())
            {
                // The gradient looks for the elements that were taken.
                (old, src) = (old.materialized(), src.materialized());
            }
            let (combine, neutral) = match how {
                Scatter::Sum | Scatter::Mean => (Combine::Add, old.literal(0)),
                Scatter::Prod => (Combine::Mul, old.literal(1)),
                Scatter::Amax => (Combine::Max, old.literal(acc.min_value())),
                Scatter::Amin => (Combine::Min, old.literal(acc.max_value())),
            };
            // A place that no index names stays; at the others the fold begins anew, or with what
            // was there.
            let start = if include_self { old } else { w.onto(OP, &old, &neutral, Combine::Set)? };
            let mut all = w.onto(OP, &start, &src, combine)?;
            if how == Scatter::Mean {
                let none = Tensor::full((), include_self as i32).try_expand(&w.part.dims())?;
                let count =
                    w.onto(OP, &w.part.match_extents(none), &Tensor::full((), 1), Combine::Add)?;
                // Where nothing arrives nothing is divided.
                let n = count.try_maximum(1)?.try_cast(acc)?;
                all = if acc.is_float() { all.try_div(n)? } else { all.try_idiv(n)? };
            }
            joined(self, &index.dims(), at, &all.try_cast(self.dtype())?)
        }

        /// The indices of the elements that are not zero, in row-major order: a row for each, a
        /// column for each axis. Without a `size` the tensor is computed now, to count them. With
        /// one there are as many rows, the last filled with -1 if there are fewer elements; then
        /// nothing is computed.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[0, 3], [5, 0]]);
        /// assert_eq!(x.nonzero(None).to_vec::<i32>()?, [0, 1, 1, 0]);
        /// assert_eq!(x.nonzero(Some(3)).to_vec::<i32>()?, [0, 1, 1, 0, -1, -1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nonzero | try_nonzero(&self, size: Option<usize>) -> Tensor {
            let (flat, dims) = (self.nonzero_indices(size)?, self.dims());
            if dims.is_empty() {
                return flat.try_unsqueeze(1)?.slice_axis(1, 0, 0);
            }
            let mut rest = flat.try_maximum(0)?;
            let mut columns = Vec::new();
            for &n in dims.iter().rev() {
                columns.insert(0, rest.try_modulo(n)?);
                rest = rest.try_idiv(n)?;
            }
            let rows = Tensor::try_stack(&columns, 1)?;
            flat.try_lt(0)?.try_unsqueeze(1)?.try_where_(-1, rows)
        }

        /// The elements where a mask is true, in row-major order, as one axis. Without a `size` the
        /// mask is computed now, to count them. With one there are as many elements, the last
        /// filled with 0 if there are fewer; then nothing is computed. The mask broadcasts with the
        /// tensor.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.masked_select(&x.gt(1), None).to_vec::<i32>()?, [2, 3, 4]);
        /// assert_eq!(x.masked_select(&x.gt(2), Some(4)).to_vec::<i32>()?, [3, 4, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn masked_select | try_masked_select(
            &self,
            mask: &Tensor,
            size: Option<usize>,
        ) -> Tensor {
            const OP: &str = "masked_select";
            if !mask.dtype().is_bool() {
                return wrong_dtype(OP, format!("expected a bool mask, got {}", mask.dtype()));
            }
            let shape: Dims =
                crate::tensor::broadcast::broadcast_dims(OP, &[self.dims(), mask.dims()])?;
            let flat = broadcast_to(OP, mask, &shape)?.nonzero_indices(size)?;
            // A place of -1 is outside, and reads 0.
            gather_at(OP, &broadcast_to(OP, self, &shape)?.try_reshape([-1])?, &flat, 0)
        }
    }

    /// The places in row-major order of the elements that are not zero: as many as `size` says, the
    /// last of them -1 where there are fewer.
    pub(in crate::tensor) fn nonzero_indices(&self, size: Option<usize>) -> Result<Tensor> {
        self.require_static("nonzero", 0..self.ndim())?;
        let mask = self.nonzero_mask().try_reshape([self.numel()])?;
        let size = match size {
            Some(size) => size,
            None => {
                // Computed twice, floats in it may be added up in two orders; so it is computed
                // once.
                mask.realize()?;
                mask.try_cast(DType::I64)?.try_sum(0)?.item::<i64>()? as usize
            }
        };
        let wide = if i32::try_from(self.numel()).is_ok() { DType::I32 } else { DType::I64 };
        // Each goes where as many come before it.
        let count = mask.try_cast(wide)?;
        let before = count.try_cumsum(0)?.try_sub(&count)?;
        let line = iota(self.numel()).try_cast(wide)?;
        if self.device().is_several() || Device::named(self.device()).is_ok_and(|d| d.target().grid)
        {
            let (at, none) = (mask.try_where_(before, -1)?, count.literal(-1).try_expand([size])?);
            return scatter_at("nonzero", &none, &at, &line, Combine::SetDistinct, 0);
        }
        // A thread that writes in order does so without a branch, half of which would be
        // mispredicted: what is not set goes there too, as -1, and the next that is set writes over
        // it. After the last that is set comes one place more.
        let none = count.literal(-1).try_expand([size.saturating_add(1)])?;
        scatter_at("nonzero", &none, &before, &mask.try_where_(line, -1)?, Combine::Set, 0)?
            .slice_axis(0, 0, size)
    }
}
