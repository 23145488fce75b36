//! Elements by computed places: reading at indices, and writing at them.
//!
//! A read at indices is written as a sum over the axis that is nonzero where the counter of the axis equals the index. The compiler knows this form and makes a
//! single load of it, so a read costs what it gives, not what it chooses from. A write at indices asks, for each element of the result, which of the
//! sources point at it; that costs the product of both.
//!
//! Indices are integers; negative ones count from the end. An index outside the axis reads 0 and writes nothing: whether there is one is known
//! only on the device, and finding out would mean to wait for it.

use super::broadcast::{Operand, broadcast_to};
use super::create::iota;
use super::{Axes, Tensor, resolve_axis, wrong_dtype, wrong_shape};
use crate::dtype::{DType, sum_acc};
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::{Dims, Movement};

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

/// The counter of an axis, in the dtype of places.
fn counter(rank: usize, axis: usize, size: usize, dtype: DType) -> Result<Tensor> {
    iota(size).try_cast(dtype)?.moved(Movement::reshape((0..rank).map(|i| if i == axis { size } else { 1 })))
}

/// Indices as places from the start of an axis of `size`, in a dtype that holds every place.
pub(super) fn places(op: &'static str, index: &Tensor, size: usize) -> Result<Tensor> {
    if !index.dtype().is_int() {
        return wrong_dtype(op, format!("an index is of integers, and this one is of {}", index.dtype()));
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

/// The elements of `x` at places along an axis, which `index` has with size 1 and which is gone in the result; the other axes broadcast. A place that is not
/// there gives 0.
pub(super) fn select(op: &'static str, x: &Tensor, index: &Tensor, axis: usize) -> Result<Tensor> {
    let here = index.try_eq(counter(x.ndim(), axis, x.dims()[axis], index.dtype())?)?;
    here.try_where_(x, x.literal(0))?.fold(op, Fold::Add, &Axes::from(axis))
}

/// Checks that the sizes of an index are within those of a tensor, but for one axis.
fn within(op: &'static str, index: &[usize], of: &[usize], what: &str, except: Option<usize>) -> Result<()> {
    if index.len() == of.len() && (0..of.len()).all(|i| Some(i) == except || index[i] <= of[i]) {
        return Ok(());
    }
    let but = except.map_or(String::new(), |axis| format!(" outside axis {axis}"));
    wrong_shape(op, format!("an index of {index:?} does not lie within the {what} {of:?}{but}"))
}

/// The first `sizes` of each axis, but for one.
fn cut(x: &Tensor, sizes: &[usize], except: Option<usize>) -> Result<Tensor> {
    let dims = x.dims();
    x.moved(Movement::shrink((0..dims.len()).map(|i| (0, if Some(i) == except { dims[i] } else { sizes[i] }))))
}

/// A write at indices, on the part of the tensor that the index spans.
struct Write {
    /// `[… count, size …]` in the place of the axis: does the source's element go there?
    hits: Tensor,
    /// The sources, `[… count, 1 …]`.
    src: Tensor,
    /// The axis of the sources in both.
    axis: usize,
}

impl Write {
    fn new(op: &'static str, x: &Tensor, at: usize, index: &Tensor, src: Operand) -> Result<Write> {
        let (dims, shape) = (x.dims(), index.dims());
        within(op, &shape, &dims, "tensor", Some(at))?;
        let src = match src {
            Operand::Scalar(..) => x.written_as(src)?.try_expand(&shape)?,
            Operand::Tensor(t) if t.ndim() == 0 => t.try_expand(&shape)?,
            Operand::Tensor(t) => {
                within(op, &shape, &t.dims(), "source", None)?;
                cut(&t, &shape, None)?
            }
        };
        if src.dtype() != x.dtype() {
            return wrong_dtype(op, format!("a source of {} for a tensor of {}; cast one", src.dtype(), x.dtype()));
        }
        let place = places(op, index, dims[at])?.try_unsqueeze(at as isize + 1)?;
        let hits = place.try_eq(counter(dims.len() + 1, at + 1, dims[at], place.dtype())?)?;
        Ok(Write { hits, src: src.try_unsqueeze(at as isize + 1)?, axis: at })
    }
    /// The sources that meet at each place, folded, with `other` from those that do not go there.
    fn fold(&self, op: &'static str, fold: Fold, src: &Tensor, other: &Tensor) -> Result<Tensor> {
        self.hits.try_where_(src, other)?.fold(op, fold, &Axes::from(self.axis))
    }
}

/// The result where the index reaches, this tensor elsewhere.
fn joined(x: &Tensor, shape: &[usize], at: usize, written: &Tensor) -> Result<Tensor> {
    let dims = x.dims();
    let padding: Vec<(usize, usize)> = (0..dims.len()).map(|i| if i == at { (0, 0) } else { (0, dims[i] - shape[i]) }).collect();
    if padding.iter().all(|&p| p == (0, 0)) {
        return Ok(written.same());
    }
    let reached = written.as_much_of(Tensor::full((), true).try_expand(&written.dims())?).try_pad(&padding)?;
    reached.try_where_(written.try_pad(&padding)?, x)
}

impl Tensor {
    fallible! {
        /// The elements at indices along an axis: element `[i, j]` of the result is `x[index[i, j], j]` for axis 0, `x[i, index[i, j]]` for axis 1. The index has as
        /// many axes as the tensor, none longer but for `axis`. Negative indices count from the end; one outside the axis gives 0.
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
            within(OP, &shape, &self.dims(), "tensor", Some(at))?;
            let place = places(OP, index, self.dims()[at])?.try_unsqueeze(at as isize + 1)?;
            select(OP, &cut(self, &shape, Some(at))?.try_unsqueeze(at as isize)?, &place, at + 1)
        }

        /// Slices along an axis in the order of a list of indices. Negative indices count from the end; one outside the axis gives zeros.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4], [5, 6]]);
        /// assert_eq!(x.index_select(0, &Tensor::new([2, 0])).to_vec::<i32>()?, [5, 6, 1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn index_select | try_index_select(&self, axis: isize, index: &Tensor) -> Tensor {
            const OP: &str = "index_select";
            let dims = self.dims();
            let at = resolve_axis(OP, axis, &dims)?;
            let [count] = index.dims()[..] else {
                return wrong_shape(OP, format!("an index has one axis, and this one is {:?}", index.dims()));
            };
            let place = places(OP, index, dims[at])?.moved(Movement::reshape((0..=dims.len()).map(|i| if i == at { count } else { 1 })))?;
            select(OP, &self.try_unsqueeze(at as isize)?, &place, at + 1)
        }

        /// The tensor with elements of a source, or a number, written at indices along an axis: `x[index[i, j], j] = src[i, j]` for axis 0. Where several meet at one place
        /// the last of them stays. An index outside the axis writes nothing. The cost is that of the tensor times the number of indices along the axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::full([2, 3], 0);
        /// let y = x.scatter(1, &Tensor::new([[0, 2], [1, -3]]), Tensor::new([[5, 6], [7, 8]]));
        /// assert_eq!(y.to_vec::<i32>()?, [5, 0, 6, 8, 7, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scatter | try_scatter(&self, axis: isize, index: &Tensor, src: impl Into<Operand>) -> Tensor {
            const OP: &str = "scatter";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = Write::new(OP, self, at, index, src.into())?;
            let count = index.dims()[at];
            let order = counter(w.src.ndim(), at, count, DType::I32)?;
            // The last source of each place, or -1; then one read at it.
            let last = w.fold(OP, Fold::Max, &order, &order.literal(-1))?;
            let read = select(OP, &w.src, &last.try_unsqueeze(at as isize)?, at)?;
            let written = last.try_ge(0)?.try_where_(read, cut(self, &index.dims(), Some(at))?)?;
            joined(self, &index.dims(), at, &written)
        }

        /// As [`scatter`](Self::scatter), where the elements that meet at one place are folded, with what was there if `include_self`. A place that no index names stays.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Scatter};
        /// let (x, index) = (Tensor::new([10, 20, 30]), Tensor::new([0, 2, 0]));
        /// let sums = x.scatter_reduce(0, &index, Tensor::new([1, 2, 3]), Scatter::Sum, true);
        /// assert_eq!(sums.to_vec::<i32>()?, [14, 20, 32]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scatter_reduce | try_scatter_reduce(&self, axis: isize, index: &Tensor, src: impl Into<Operand>, how: Scatter, include_self: bool) -> Tensor {
            const OP: &str = "scatter_reduce";
            let at = resolve_axis(OP, axis, &self.dims())?;
            let w = Write::new(OP, self, at, index, src.into())?;
            let part = cut(self, &index.dims(), Some(at))?;
            // Narrow floats are folded in f32 and rounded once.
            let acc = if self.is_floating_point() { sum_acc(self.dtype()) } else { self.dtype() };
            let (mut old, mut src) = (part.try_cast(acc)?, w.src.try_cast(acc)?);
            if matches!(how, Scatter::Amax | Scatter::Amin) && (old.requires_grad() || src.requires_grad()) {
                // The gradient looks for the elements that were taken.
                (old, src) = (old.settled(), src.settled());
            }
            let (fold, neutral) = match how {
                Scatter::Sum | Scatter::Mean => (Fold::Add, old.literal(0)),
                Scatter::Prod => (Fold::Mul, old.literal(1)),
                Scatter::Amax => (Fold::Max, old.literal(acc.min_value())),
                Scatter::Amin => (Fold::Min, old.literal(acc.max_value())),
            };
            let met = w.fold(OP, fold, &src, &neutral)?;
            let count = w.hits.try_cast(DType::I32)?.fold(OP, Fold::Add, &Axes::from(at))?;
            let all = match fold {
                _ if !include_self => met,
                Fold::Add => met.try_add(&old)?,
                Fold::Mul => met.try_mul(&old)?,
                Fold::Max => met.try_maximum(&old)?,
                Fold::Min => met.try_minimum(&old)?,
            };
            let all = if how == Scatter::Mean {
                // Where nothing arrives nothing is divided, also in the gradient.
                let n = count.try_add(include_self as i32)?.try_maximum(1)?.try_cast(acc)?;
                if acc.is_float() { all.try_div(n)? } else { all.try_idiv(n)? }
            } else {
                all
            };
            let written = count.try_gt(0)?.try_where_(all, old)?.try_cast(self.dtype())?;
            joined(self, &index.dims(), at, &written)
        }

        /// The indices of the elements that are not zero, in row-major order: a row for each, a column for each axis. Without a `size` the tensor is computed
        /// now, to count them. With one there are as many rows, the last filled with -1 if there are fewer elements; then nothing is computed.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[0, 3], [5, 0]]);
        /// assert_eq!(x.nonzero(None).to_vec::<i32>()?, [0, 1, 1, 0]);
        /// assert_eq!(x.nonzero(Some(3)).to_vec::<i32>()?, [0, 1, 1, 0, -1, -1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn nonzero | try_nonzero(&self, size: Option<usize>) -> Tensor {
            let (flat, dims) = (self.set_places(size)?, self.dims());
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

        /// The elements where a mask is true, in row-major order, as one axis. Without a `size` the mask is computed now, to count them. With one there are as many
        /// elements, the last filled with 0 if there are fewer; then nothing is computed. The mask broadcasts with the tensor.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.masked_select(&x.gt(1), None).to_vec::<i32>()?, [2, 3, 4]);
        /// assert_eq!(x.masked_select(&x.gt(2), Some(4)).to_vec::<i32>()?, [3, 4, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn masked_select | try_masked_select(&self, mask: &Tensor, size: Option<usize>) -> Tensor {
            const OP: &str = "masked_select";
            if !mask.dtype().is_bool() {
                return wrong_dtype(OP, format!("a mask is of bools, and this one is of {}", mask.dtype()));
            }
            let shape: Dims = super::broadcast::broadcast_dims(OP, &[self.dims(), mask.dims()])?;
            let flat = broadcast_to(OP, mask, &shape)?.set_places(size)?;
            let x = broadcast_to(OP, self, &shape)?.try_reshape([1, -1])?;
            // A place of -1 is outside, and reads 0.
            select(OP, &x, &flat.try_unsqueeze(1)?, 1)
        }
    }

    /// The places in row-major order of the elements that are not zero: as many as `size` says, the last of them -1 where there are fewer.
    pub(super) fn set_places(&self, size: Option<usize>) -> Result<Tensor> {
        self.no_variables("nonzero", 0..self.ndim())?;
        let mask = self.truth().try_reshape([self.numel()])?;
        let (most, size) = match size {
            Some(size) => (self.numel().min(size), size),
            None => {
                // Computed twice, floats in it may be added up in two orders; so it is computed once.
                mask.realize()?;
                let count = mask.try_cast(DType::I64)?.try_sum(0)?.item::<i64>()? as usize;
                (count, count)
            }
        };
        // The order is stable: those that are set come first, as they stood.
        let (set, places) = mask.try_topk(most, 0, true, true)?;
        set.try_where_(places, -1)?.try_pad_with(&[(0, size - most)], -1)
    }
}
