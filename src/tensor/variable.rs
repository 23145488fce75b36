//! Symbolic dimensions: slices with symbolic bounds, variables as scalars, and their elements on
//! the host.
//!
//! Tensors with symbolic dimensions are allocated at their upper bound; elements beyond the runtime
//! size are never read. Methods that need a static size return an error, here and in `movement` and
//! `unify`.

use super::Tensor;
use super::broadcast::{Operand, slice_to_extents};
use super::ops::create::iota;
use super::ops::index::AxisIndex;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::{Capture, Event};
use crate::ir::{Slice, UOp};
use crate::shape::{Dims, SymInt};

impl SymInt {
    /// Returns the value in this run. A sum that overflows 64 bits wraps, as sums of `i64` tensors
    /// do, and is not accepted as a size or an index. In a graph that is planned for all values it
    /// is the upper bound. Inside a captured function reading it is an error of the
    /// [`Jit`](crate::Jit), because the value would be the same in every replay.
    ///
    /// ```
    /// use picograd::Variable;
    /// let n = Variable::new("n", 1, 64)?.bind(16)?;
    /// assert_eq!((&n + 1).value(), 17);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn value(&self) -> i64 {
        if self.as_number().is_none() {
            Capture::note(Event::ReadVariable);
        }
        self.bound_value()
    }
}

impl From<&SymInt> for Tensor {
    /// Scalar of the value, of `i32`, or of `i64` if its range requires it. One kernel serves all
    /// values.
    fn from(bound: &SymInt) -> Tensor {
        let fits = |n: i64| i32::try_from(n).is_ok();
        let dtype = if fits(bound.min()) && fits(bound.max()) { DType::I32 } else { DType::I64 };
        Tensor::from_uop(UOp::from_symint(bound, dtype), super::realize::default_device())
    }
}
conversions! { Tensor: () SymInt, |bound| Tensor::from(&bound); }
conversions! { Operand:
    () &SymInt, |bound| Operand::Tensor(Tensor::from(bound));
    () SymInt, |bound| Operand::from(&bound);
}

/// Formats sizes with variables: `[n=37, 4]`.
pub(super) fn format_shape(u: &UOp) -> String {
    let size = |(axis, n): (usize, &usize)| {
        u.extent(axis).map_or_else(|| n.to_string(), |e| e.to_string())
    };
    format!("[{}]", u.shape().iter().enumerate().map(size).collect::<Vec<_>>().join(", "))
}

/// Removes elements beyond the runtime sizes from a buffer of the upper bounds.
pub(super) fn strip_padding(bytes: Vec<u8>, uop: &UOp) -> Vec<u8> {
    let (dims, shape) = (uop.shape(), runtime_sizes(uop));
    if *dims == shape {
        return bytes;
    }
    let (mut row, mut out) = (uop.dtype().itemsize(), bytes);
    for axis in (0..dims.len()).rev() {
        let (all, some) = (row * dims[axis], row * shape[axis]);
        if all != some {
            out = out.chunks_exact(all).flat_map(|r| &r[..some]).copied().collect();
        }
        row = some;
    }
    out
}

/// Runtime sizes.
pub(super) fn runtime_sizes(u: &UOp) -> Dims {
    u.shape()
        .iter()
        .enumerate()
        .map(|(axis, &n)| u.extent(axis).map_or(n, |e| e.value() as usize))
        .collect()
}

impl Tensor {
    /// Slices an axis with static or symbolic bounds.
    pub(super) fn slice_symbolic(
        &self,
        op: &'static str,
        axis: usize,
        start: SymInt,
        len: SymInt,
    ) -> Result<Tensor> {
        if self.device().is_multi_device() {
            return refuse!(
                Device,
                "{op}: a symbolic slice of a tensor on {}; expected one device (gather it with \
                 .to(…))",
                self.device()
            );
        }
        start.check(op).and(len.check(op))?;
        let uop = self.uop();
        // A variable with a single value is that number, which keeps the size static.
        let settled = |b: SymInt| if b.min() == b.max() { SymInt::number(b.min()) } else { b };
        let part = Slice { axis, start: settled(start), len: settled(len) };
        part.check(uop.shape(), uop.extents()).map_err(|e| e.of_op(op))?;
        if let (Some(start), Some(len)) = (part.start.as_number(), part.len.as_number()) {
            return self.slice_axis(axis, start as usize, (start + len) as usize);
        }
        Ok(self.with_uop(uop.sliced(axis, part.start, part.len)))
    }

    /// Slices a tensor of the upper bounds to the symbolic dimensions of this one.
    pub(super) fn match_extents(&self, whole: Tensor) -> Tensor {
        let uop = self.uop();
        if uop.extents().is_empty() {
            whole
        } else {
            whole.with_uop(slice_to_extents(whole.uop(), uop.extents()))
        }
    }

    /// Returns `0, 1, …` along an axis of this tensor, with size 1 along the others.
    pub(super) fn iota_along(&self, axis: usize) -> Result<Tensor> {
        let (uop, dims) = (self.uop(), self.dims());
        let line = iota(dims[axis]).line_along(axis, dims.len())?;
        match uop.extent(axis) {
            Some(extent) => {
                line.slice_symbolic("iota_along", axis, SymInt::number(0), extent.clone())
            }
            None => Ok(line),
        }
    }

    /// Error if one of the axes is symbolic.
    pub(crate) fn require_static(
        &self,
        op: &'static str,
        axes: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let uop = self.uop();
        match axes.into_iter().find_map(|a| Some((a, uop.extent(a)?))) {
            Some((axis, extent)) => wrong_shape!(
                op,
                "axis {axis} of {} has the symbolic size {extent}; the operation needs a number",
                format_shape(&uop)
            ),
            None => Ok(()),
        }
    }
}

/// Symbolic slice of an axis, to be inverted.
pub(super) struct SymbolicSlice {
    axis: usize,
    size: usize,
    start: SymInt,
    len: SymInt,
}

/// Applies the symbolic indices to a tensor; returns the remaining indices and the slices.
pub(super) fn apply_symbolic(
    op: &'static str,
    x: &Tensor,
    indices: Vec<AxisIndex>,
) -> Result<(Tensor, Vec<AxisIndex>, Vec<SymbolicSlice>)> {
    if !indices.iter().any(|p| matches!(p, AxisIndex::SymIndex(_) | AxisIndex::SymSlice { .. })) {
        return Ok((x.clone(), indices, Vec::new()));
    }
    let rank = x.ndim();
    let named: usize = indices.iter().map(super::ops::index::axes_consumed).sum();
    if named > rank {
        return wrong_index!(
            op,
            "{named} indices for {}, which has {rank} axes",
            format_shape(&x.uop())
        );
    }
    let (mut axis, mut x, mut slices, mut rest) = (0, x.clone(), Vec::new(), Vec::new());
    for pick in indices {
        let takes = if matches!(pick, AxisIndex::Ellipsis) {
            rank - named
        } else {
            super::ops::index::axes_consumed(&pick)
        };
        if axis + takes > rank {
            return wrong_index!(op, "`..` is repeated; expected at most one");
        }
        let whole = AxisIndex::Slice { start: None, end: None, step: 1 };
        let (start, len, left) = match pick {
            AxisIndex::SymIndex(at) => (at, SymInt::number(1), AxisIndex::Index(0)),
            AxisIndex::SymSlice { start: Some(start), end: None }
                if start.as_number().is_none() =>
            {
                return wrong_index!(
                    op,
                    "the length of `{start}..` differs for each value; expected an end, as in \
                     `at..&at + 4`"
                );
            }
            AxisIndex::SymSlice { start, end } => {
                let size = SymInt::number(x.dims()[axis] as i64);
                let start = start.unwrap_or(SymInt::number(0));
                let len = end.unwrap_or(size) - &start;
                (start, len, whole)
            }
            other => {
                rest.push(other);
                axis += takes;
                continue;
            }
        };
        let size = x.dims()[axis];
        slices.push(SymbolicSlice { axis, size, start: start.clone(), len: len.clone() });
        x = x.slice_symbolic(op, axis, start, len)?;
        rest.push(left);
        axis += takes;
    }
    Ok((x, rest, slices))
}

/// Inverse of symbolic slices, with zeros elsewhere: pads by the size of the axis on both sides,
/// and slices the position of the original.
pub(super) fn restore_slices(
    op: &'static str,
    part: &Tensor,
    slices: &[SymbolicSlice],
) -> Result<Tensor> {
    let mut x = part.clone();
    for t in slices.iter().rev() {
        if t.len.as_number().is_none() {
            return wrong_shape!(
                op,
                "a slice of axis {} has the symbolic length {}; expected a number as its length",
                t.axis,
                t.len
            );
        }
        let size = SymInt::number(t.size as i64);
        let padded = x.padded_axis(t.axis, t.size, t.size)?;
        x = padded.slice_symbolic(op, t.axis, &size - &t.start, size)?;
    }
    Ok(x)
}
