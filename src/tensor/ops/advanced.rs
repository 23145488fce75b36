//! Advanced indexing: the part of `i` and `set` with index tensors.

use super::create::index_dtype;
use super::gather::{expand_positions, normalize_indices, scatter_at, select_at, split_positions};
use super::movement::spliced;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Combine;
use crate::shape::{Dims, checked_numel};
use crate::tensor::Tensor;
use crate::tensor::broadcast::{broadcast_dims, broadcast_to};

/// Integer indices, each with its axis. Masks are computed and become the positions where they are
/// true.
pub(super) fn resolve_indices(
    op: &'static str,
    x: &Tensor,
    indices: &[(usize, Tensor)],
) -> Result<Vec<(usize, Tensor)>> {
    let mut all = Vec::new();
    for (axis, t) in indices {
        if !t.dtype().is_bool() {
            all.push((*axis, normalize_indices(op, t, x.dims()[*axis])?));
            continue;
        }
        // The count is exact, so that no position is negative; `maximum` tells the compiler.
        let flat = t.nonzero_indices(None)?.try_maximum(0)?;
        if t.ndim() == 0 {
            return wrong_shape!(op, "a mask needs one axis or more; use `where_`");
        }
        all.extend((*axis..).zip(split_positions(&flat, &t.dims())?));
    }
    Ok(all)
}

/// Layout of the axes of a tensor and of its indices.
struct Plan {
    /// Axes that are not indexed.
    others: Dims,
    /// Number of them before the axes of the indices in the result.
    before: usize,
    /// Broadcast shape of the indices.
    shape: Dims,
    /// Position of each index in the flattened indexed axes; negative if outside an axis.
    position: Tensor,
    /// Number of positions.
    count: usize,
}

fn plan(op: &'static str, x: &Tensor, indices: &[(usize, Tensor)]) -> Result<Plan> {
    let dims = x.dims();
    let shape = broadcast_dims(op, &indices.iter().map(|(_, t)| t.dims()).collect::<Vec<_>>())?;
    let axes: Dims = indices.iter().map(|(axis, _)| *axis).collect();
    let count = checked_numel(op, &axes.iter().map(|&a| dims[a]).collect::<Dims>())?;
    let narrow = index_dtype(count) == DType::I32;
    let wide = |t: &Tensor| if narrow { Ok(t.clone()) } else { t.try_cast(DType::I64) };
    let position = if let [(_, one)] = indices {
        wide(one)?
    } else {
        let mut all: Option<(Tensor, Tensor)> = None;
        for (axis, t) in indices {
            let (t, size) = (wide(t)?, dims[*axis]);
            let inside = t.try_ge(0)?.try_bitwise_and(t.try_lt(size)?)?;
            all = Some(match all {
                None => (t, inside),
                Some((p, i)) => (p.try_mul(size)?.try_add(t)?, i.try_bitwise_and(inside)?),
            });
        }
        let (position, inside) = all.expect("an index at least");
        // A position outside one axis must not wrap into the flattened axes.
        inside.try_where_(position, -1)?
    };
    let position = broadcast_to(op, &position, &shape)?;
    let others: Dims = (0..dims.len()).filter(|a| !axes.contains(a)).collect();
    let adjacent = axes.windows(2).all(|w| w[1] == w[0] + 1);
    let before = if adjacent { others.iter().filter(|&&a| a < axes[0]).count() } else { 0 };
    Ok(Plan { others, before, shape, position, count })
}

impl Plan {
    /// Order of axes that makes the indexed ones adjacent, where the result has those of the
    /// indices.
    fn order(&self, rank: usize) -> Dims {
        let indexed: Dims = (0..rank).filter(|a| !self.others.contains(a)).collect();
        spliced(&self.others, self.before..self.before, &indexed)
    }
    /// Tensor with its indexed axes flattened to one.
    fn flatten_indexed(&self, x: &Tensor) -> Result<Tensor> {
        let order = self.order(x.ndim());
        let moved = if order.is_sorted() { x.clone() } else { x.permuted(order)? };
        moved.shaped(self.sizes_with(&x.dims(), &[self.count]))
    }
    /// Positions as one list.
    fn positions(&self) -> Result<Tensor> {
        self.position.shaped([self.shape.iter().product::<usize>()])
    }
    /// Returns the sizes of the axes that are not indexed, with `middle` after the first `before`
    /// of them.
    fn sizes_with(&self, dims: &[usize], middle: &[usize]) -> Dims {
        let sizes: Dims = self.others.iter().map(|&a| dims[a]).collect();
        spliced(&sizes, self.before..self.before, middle)
    }
}

/// Gathers the elements at the indices.
pub(super) fn gather_indices(
    op: &'static str,
    x: &Tensor,
    indices: &[(usize, Tensor)],
) -> Result<Tensor> {
    let plan = plan(op, x, indices)?;
    let read = select_at(op, &plan.flatten_indexed(x)?, &plan.positions()?, plan.before)?;
    read.shaped(plan.sizes_with(&x.dims(), &plan.shape))
}

/// Writes a value at the indices; the last of several for one position is kept.
pub(super) fn scatter_indices(
    op: &'static str,
    x: &Tensor,
    indices: &[(usize, Tensor)],
    value: &Tensor,
) -> Result<Tensor> {
    if let [(axis, mask)] = indices
        && mask.dtype().is_bool()
        && mask.ndim() > 0
    {
        // A value that does not vary along the mask needs no count.
        let after = x.ndim() - axis - mask.ndim();
        if value.ndim() <= after {
            let mask = mask.shaped([&mask.dims()[..], &vec![1; after]].concat())?;
            return mask.try_where_(broadcast_to(op, value, &x.dims()[x.ndim() - after..])?, x);
        }
    }
    let plan = plan(op, x, &resolve_indices(op, x, indices)?)?;
    let dims = x.dims();
    let n = plan.shape.iter().product::<usize>();
    let value = broadcast_to(op, value, &plan.sizes_with(&dims, &plan.shape))?;
    let value = value.shaped(plan.sizes_with(&dims, &[n]))?;
    let old = plan.flatten_indexed(x)?;
    let positions = expand_positions(&old, &plan.positions()?, plan.before)?;
    let all = scatter_at(op, &old, &positions, &value, Combine::Set, plan.before)?;
    // Restores the order of axes.
    let order = plan.order(dims.len());
    let all = all.shaped(order.iter().map(|&a| dims[a]))?;
    if order.is_sorted() {
        return Ok(all);
    }
    all.permuted((0..dims.len()).map(|a| order.iter().position(|&b| b == a).expect("every axis")))
}
