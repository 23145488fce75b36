//! Unification of operands: one dtype by promotion, one shape by broadcasting, one device.

use super::{Tensor, intern_device};
use crate::dtype::{Const, DType, Weak, promote, promote_weak};
use crate::error::Result;
use crate::ir::{DeviceName, Op, UOp};
use crate::shape::{Dims, Extents, Movement, SymInt, checked_numel};
use half::{bf16, f16};
use smallvec::SmallVec;

/// Operand: a tensor, or a Rust number. A number takes the dtype of the tensor unless it is of a
/// higher kind (a float with integers gives `f32`, an integer with bools `i32`).
#[derive(Clone)]
pub enum Operand {
    /// Tensor with its own dtype.
    Tensor(Tensor),
    /// Rust number.
    Scalar(Const, Weak),
}

conversions! { Operand:
    () Tensor, |t| Operand::Tensor(t);
    () &Tensor, |t| Operand::Tensor(t.clone());
}
macro_rules! scalars {
    ($($weak:ident: $($t:ty)*;)*) => { $($(
        impl From<$t> for Operand {
            fn from(x: $t) -> Operand { Operand::Scalar(Const::from(x), Weak::$weak) }
        }
    )*)* };
}
scalars! { Bool: bool; Int: i8 i16 i32 i64 isize u8 u16 u32 u64 usize; Float: f16 bf16 f32 f64; }

impl Operand {
    pub(super) fn shape(&self) -> Dims {
        match self {
            Operand::Tensor(t) => t.dims(),
            Operand::Scalar(..) => Dims::new(),
        }
    }
}

impl Tensor {
    /// Casts an operand to this tensor's dtype.
    pub(super) fn cast_operand(&self, value: Operand) -> Result<Tensor> {
        match value {
            Operand::Scalar(c, weak) => self
                .with_uop(UOp::constant(c, promote_weak(self.dtype(), weak)))
                .try_cast(self.dtype()),
            Operand::Tensor(t) => t.try_cast(self.dtype()),
        }
    }
}

/// Operands with common dtype and shape. Constants stay scalars.
pub(super) struct Unified {
    pub(super) src: SmallVec<[UOp; 3]>,
    pub(super) dtype: DType,
    pub(super) device: &'static DeviceName,
}

impl Unified {
    /// Applies a binary op to the first two operands.
    pub(super) fn node(&self, op: Op) -> Tensor {
        Tensor::new_inner(self.src[0].binary(op, &self.src[1]), self.device, None)
    }
}

/// Unifies operands in their promoted dtype.
pub(super) fn unify(op: &'static str, operands: &[Operand]) -> Result<Unified> {
    let dtype = promote_operands(operands);
    let dtypes: SmallVec<[DType; 3]> = operands.iter().map(|_| dtype).collect();
    Ok(Unified { dtype, ..unify_as(op, operands, &dtypes)? })
}

/// Unifies shape and device of operands, each in the given dtype.
pub(super) fn unify_as(
    op: &'static str,
    operands: &[Operand],
    dtypes: &[DType],
) -> Result<Unified> {
    let extents = broadcast_extents(op, operands)?;
    let shape = broadcast_shapes(op, operands)?;
    let device = device_of(op, tensors(operands))?;
    let lifted = |(o, &dtype): (&Operand, &DType)| {
        Ok(slice_to_extents(to_node(op, o, dtype, &shape)?, &extents))
    };
    let src = operands.iter().zip(dtypes).map(lifted).collect::<Result<_>>()?;
    Ok(Unified { src, dtype: dtypes[0], device })
}

/// Symbolic dimensions of the broadcast shape; sizes have to be equal or 1.
fn broadcast_extents(op: &'static str, operands: &[Operand]) -> Result<Extents> {
    let nodes: SmallVec<[UOp; 3]> = tensors(operands).map(Tensor::uop).collect();
    if nodes.iter().all(|u| u.extents().is_empty()) {
        return Ok(Extents::default());
    }
    let rank = nodes.iter().map(|u| u.shape().len()).max().unwrap_or(0);
    let mut out: Vec<Option<SymInt>> = vec![None; rank];
    for back in 1..=rank {
        // Sizes of the operands that are not broadcast along the axis.
        let size = |u: &UOp| {
            let axis = u.shape().len().checked_sub(back)?;
            (u.shape()[axis] != 1)
                .then(|| u.extent(axis).cloned().unwrap_or(SymInt::number(u.shape()[axis] as i64)))
        };
        let mut sizes = nodes.iter().filter_map(size);
        let Some(first) = sizes.next() else { continue };
        if let Some(other) = sizes.find(|s| *s != first) {
            let all: Vec<String> = nodes
                .iter()
                .filter(|u| !u.shape().is_empty())
                .map(super::variable::format_shape)
                .collect();
            return wrong_shape!(
                op,
                "shapes {} do not broadcast: axis -{back} has sizes {first} and {other}",
                all.join(" and ")
            );
        }
        out[rank - back] = first.as_number().is_none().then_some(first);
    }
    Ok(out.into())
}

/// Slices axes of a broadcast node to symbolic sizes.
pub(super) fn slice_to_extents(u: UOp, extents: &[Option<SymInt>]) -> UOp {
    let mut u = u;
    if u.shape().is_empty() {
        return u;
    }
    for (axis, extent) in extents.iter().enumerate() {
        if let (Some(extent), None) = (extent, u.extent(axis)) {
            u = u.sliced(axis, SymInt::number(0), extent.clone());
        }
    }
    u
}

/// Converts an operand to a node of a dtype and shape.
fn to_node(op: &'static str, operand: &Operand, dtype: DType, shape: &[usize]) -> Result<UOp> {
    match operand {
        Operand::Scalar(c, _) => Ok(UOp::constant(*c, dtype)),
        Operand::Tensor(t) => {
            let cast = cast_uop(&t.uop(), dtype);
            if cast.op() == Op::Const { Ok(cast) } else { broadcast_node(op, &cast, shape) }
        }
    }
}

/// Casts a node; constants are folded.
pub(super) fn cast_uop(u: &UOp, dtype: DType) -> UOp {
    match u.as_const() {
        Some(c) if u.dtype() != dtype => UOp::constant(c.cast(u.dtype(), dtype), dtype),
        _ => u.cast(dtype),
    }
}

/// Promoted dtype of tensors, then of numbers.
pub(super) fn promote_operands(operands: &[Operand]) -> DType {
    let strong = tensors(operands).map(Tensor::dtype);
    let weak = operands.iter().filter_map(|o| match o {
        Operand::Scalar(_, w) => Some(*w),
        Operand::Tensor(_) => None,
    });
    weak.fold(strong.fold(DType::VOID, promote), promote_weak)
}

/// Broadcast shape: aligned at the last axis, with sizes equal or 1.
pub(super) fn broadcast_shapes(op: &'static str, operands: &[Operand]) -> Result<Dims> {
    let shapes: Vec<Dims> = operands.iter().map(|o| o.shape()).collect();
    broadcast_dims(op, &shapes)
}

/// [`broadcast_shapes`] of plain shapes.
pub(super) fn broadcast_dims(op: &'static str, shapes: &[Dims]) -> Result<Dims> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = Dims::from_elem(1, rank);
    for shape in shapes {
        for (axis, &size) in shape.iter().enumerate() {
            let at = rank - shape.len() + axis;
            if out[at] == 1 {
                out[at] = size;
            } else if size != 1 && size != out[at] {
                let all: Vec<String> =
                    shapes.iter().filter(|s| !s.is_empty()).map(|s| format!("{s:?}")).collect();
                return wrong_shape!(
                    op,
                    "shapes {} do not broadcast: axis {} has sizes {} and {size}",
                    all.join(" and "),
                    at as isize - rank as isize,
                    out[at]
                );
            }
        }
    }
    Ok(out)
}

/// Broadcasts a tensor to a shape.
pub(super) fn broadcast_to(op: &'static str, t: &Tensor, shape: &[usize]) -> Result<Tensor> {
    Ok(t.with_uop(broadcast_node(op, &t.uop(), shape)?))
}

/// Broadcasts a node to a shape.
fn broadcast_node(op: &'static str, u: &UOp, shape: &[usize]) -> Result<UOp> {
    let from = u.shape();
    if from[..] == *shape {
        return Ok(u.clone());
    }
    let fits = from.len() <= shape.len()
        && from.iter().rev().zip(shape.iter().rev()).all(|(a, b)| *a == 1 || a == b);
    if !fits {
        return wrong_shape!(op, "{from:?} does not broadcast to {shape:?}");
    }
    checked_numel(op, shape)?;
    let ones = std::iter::repeat_n(1, shape.len() - from.len());
    let mut u = u.clone();
    if from.len() < shape.len() {
        u = u.moved(Movement::reshape(ones.chain(from.iter().copied())));
    }
    if u.shape()[..] != *shape {
        u = u.moved(Movement::expand(shape.iter().copied()));
    }
    Ok(u)
}

/// Tensors among operands.
fn tensors(operands: &[Operand]) -> impl Iterator<Item = &Tensor> {
    operands.iter().filter_map(|o| match o {
        Operand::Tensor(t) => Some(t),
        Operand::Scalar(..) => None,
    })
}

/// Common device of tensors. A graph without storage, such as `zeros` or `arange`, runs on the
/// device of the others.
pub(super) fn device_of<'a>(
    op: &'static str,
    mut tensors: impl Iterator<Item = &'a Tensor>,
) -> Result<&'static DeviceName> {
    let Some(mut first) = tensors.next() else {
        return Ok(intern_device(&super::realize::default_device()));
    };
    let mut device = first.device();
    for t in tensors {
        if t.device() == device || !t.uop().has_data() {
            continue;
        }
        if first.uop().has_data() {
            let b = t.device();
            return refuse!(
                Device,
                "{op}: one operand is on {device} and another on {b}; move one with .to(…) or \
                 .shard(…)"
            );
        }
        (first, device) = (t, t.device());
    }
    Ok(device)
}
