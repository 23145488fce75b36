//! Indexing by tensors: the part of `i` and `set` that is not a view. In come a tensor and index
//! tensors for some of its axes; out comes what they choose.

use super::gather::{expand_positions, normalize_indices, scatter_at, select_at};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Combine;
use crate::shape::{Dims, Movement, checked_numel};
use crate::tensor::broadcast::{broadcast_dims, broadcast_to};
use crate::tensor::{Tensor, wrong_shape};

/// Indices of integers, each with its axis: masks become the places where they are true, for which
/// they are computed.
pub(in crate::tensor) fn places_of(
    op: &'static str,
    x: &Tensor,
    picks: &[(usize, Tensor)],
) -> Result<Vec<(usize, Tensor)>> {
    let mut all = Vec::new();
    for (axis, t) in picks {
        if !t.dtype().is_bool() {
            all.push((*axis, normalize_indices(op, t, x.dims()[*axis])?));
            continue;
        }
        // There are as many places as were counted, so none of them is negative; the compiler is
        // told.
        let (mut rest, dims) = (t.nonzero_indices(None)?.try_maximum(0)?, t.dims());
        let first = all.len();
        for (i, &n) in dims.iter().enumerate().rev() {
            all.insert(first, (axis + i, rest.try_modulo(n)?));
            rest = rest.try_idiv(n)?;
        }
        if dims.is_empty() {
            return wrong_shape(op, "a mask without axes; compare with `where_`");
        }
    }
    Ok(all)
}

/// How the axes of a tensor and of its indices lie.
struct Plan {
    /// Axes that are not indexed.
    others: Dims,
    /// How many of them come before the axes of the indices in the result.
    before: usize,
    /// The common shape of the indices.
    shape: Dims,
    /// For each element of that shape its place among the indexed axes in row-major order; what is
    /// outside an axis is negative.
    place: Tensor,
    /// The number of places.
    count: usize,
}

fn plan(op: &'static str, x: &Tensor, indices: &[(usize, Tensor)]) -> Result<Plan> {
    let dims = x.dims();
    let shape = broadcast_dims(op, &indices.iter().map(|(_, t)| t.dims()).collect::<Vec<_>>())?;
    let axes: Dims = indices.iter().map(|(axis, _)| *axis).collect();
    let count = checked_numel(op, &axes.iter().map(|&a| dims[a]).collect::<Dims>())?;
    let mut place: Option<(Tensor, Option<Tensor>)> = None;
    for (axis, t) in indices {
        let size = dims[*axis];
        let wide = if i32::try_from(count).is_ok() { t.dtype() } else { DType::I64 };
        let t = t.try_cast(wide)?;
        place = Some(match place {
            None if indices.len() == 1 => (t, None),
            other => {
                let inside = t.try_ge(0)?.try_bitwise_and(t.try_lt(size)?)?;
                match other {
                    None => (t, Some(inside)),
                    Some((p, i)) => (
                        p.try_mul(size)?.try_add(t)?,
                        Some(i.expect("several indices").try_bitwise_and(inside)?),
                    ),
                }
            }
        });
    }
    let (place, inside) = place.expect("an index at least");
    let place = match inside {
        // A place outside one axis must not become a place inside the row-major order of all.
        Some(inside) => inside.try_where_(place, -1)?,
        None => place,
    };
    let place = broadcast_to(op, &place, &shape)?;
    let others: Dims = (0..dims.len()).filter(|a| !axes.contains(a)).collect();
    let adjacent = axes.windows(2).all(|w| w[1] == w[0] + 1);
    let before = if adjacent { others.iter().filter(|&&a| a < axes[0]).count() } else { 0 };
    Ok(Plan { others, before, shape, place, count })
}

impl Plan {
    /// The order of the tensor's axes in which the indexed ones stand together, where the result
    /// has those of the indices.
    fn order(&self, rank: usize) -> Dims {
        let indexed = (0..rank).filter(|a| !self.others.contains(a));
        self.others[..self.before]
            .iter()
            .copied()
            .chain(indexed)
            .chain(self.others[self.before..].iter().copied())
            .collect()
    }
    /// The tensor with its indexed axes as one.
    fn arranged(&self, x: &Tensor) -> Result<Tensor> {
        let order = self.order(x.ndim());
        let moved =
            if order.is_sorted() { x.clone() } else { x.movement(Movement::Permute(order))? };
        moved.movement(Movement::Reshape(self.around(&x.dims(), &[self.count])))
    }
    /// The places as one list.
    fn places(&self) -> Result<Tensor> {
        self.place.movement(Movement::reshape([self.shape.iter().product::<usize>()]))
    }
    /// Sizes of the axes that are not indexed, with others after the first `before` of them.
    fn around(&self, dims: &[usize], middle: &[usize]) -> Dims {
        let sizes: Dims = self.others.iter().map(|&a| dims[a]).collect();
        sizes[..self.before].iter().chain(middle).chain(&sizes[self.before..]).copied().collect()
    }
}

/// The elements at the places.
pub(in crate::tensor) fn read(
    op: &'static str,
    x: &Tensor,
    indices: &[(usize, Tensor)],
) -> Result<Tensor> {
    let plan = plan(op, x, indices)?;
    let read = select_at(op, &plan.arranged(x)?, &plan.places()?, plan.before)?;
    read.movement(Movement::Reshape(plan.around(&x.dims(), &plan.shape)))
}

/// The tensor with a value at the places; the last of several that go to one place stays.
pub(in crate::tensor) fn written(
    op: &'static str,
    x: &Tensor,
    picks: &[(usize, Tensor)],
    value: &Tensor,
) -> Result<Tensor> {
    if let [(axis, mask)] = picks
        && mask.dtype().is_bool()
        && mask.ndim() > 0
    {
        // A value that is the same at every place of the mask needs no count of them.
        let after = x.ndim() - axis - mask.ndim();
        if value.ndim() <= after {
            let mask = mask.movement(Movement::reshape(
                mask.dims().iter().copied().chain(std::iter::repeat_n(1, after)),
            ))?;
            return mask.try_where_(broadcast_to(op, value, &x.dims()[x.ndim() - after..])?, x);
        }
    }
    let plan = plan(op, x, &places_of(op, x, picks)?)?;
    let dims = x.dims();
    let n = plan.shape.iter().product::<usize>();
    let value = broadcast_to(op, value, &plan.around(&dims, &plan.shape))?;
    let value = value.movement(Movement::Reshape(plan.around(&dims, &[n])))?;
    let old = plan.arranged(x)?;
    let all = scatter_at(
        op,
        &old,
        &expand_positions(&old, &plan.places()?, plan.before)?,
        &value,
        Combine::Set,
        plan.before,
    )?;
    // Back to the axes as they were.
    let order = plan.order(dims.len());
    let all = all.movement(Movement::reshape(order.iter().map(|&a| dims[a])))?;
    if order.is_sorted() {
        return Ok(all);
    }
    all.movement(Movement::permute(
        (0..dims.len()).map(|a| order.iter().position(|&b| b == a).expect("every axis")),
    ))
}
