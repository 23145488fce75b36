//! Checks that a node's payload agrees with its op and operands, for the parser and the verifiers.

use super::doc::sample;
use super::{Arg, LoadHint, Op, UOp};
use crate::shape::{Movement, checked_numel, moved_extents};

/// The result of a check; the error describes the mismatch.
type CheckResult = Result<(), String>;

/// Maximum id of a range: more than any kernel has. A `RangeSet` takes a bit for each id up to the
/// largest member.
const MAX_RANGE: u32 = 65_535;

impl Arg {
    /// Returns true if nodes of the op may lack the payload that others of the op have.
    pub(super) fn is_optional(op: Op) -> bool {
        matches!(op, Op::Contiguous | Op::Load | Op::Store | Op::Sink)
    }
    /// Returns true if nodes of the op have payloads of this variant.
    pub(crate) fn is_valid_for(&self, op: Op) -> bool {
        match self {
            Arg::None => Arg::is_optional(op) || sample(op).is_empty(),
            arg => arg.ops().contains(&op),
        }
    }
}

impl Op {
    /// Returns the op of a movement.
    pub(super) fn of_movement(m: &Movement) -> Op {
        match m {
            Movement::Reshape(_) => Op::Reshape,
            Movement::Expand(_) => Op::Expand,
            Movement::Permute(_) => Op::Permute,
            Movement::Pad(_) => Op::Pad,
            Movement::Shrink(_) => Op::Shrink,
            Movement::Flip(_) => Op::Flip,
        }
    }
}

/// Checks that a payload is one of the op and agrees with the operands, whose number is already
/// checked.
pub(crate) fn check_payload(op: Op, src: &[UOp], arg: &Arg) -> CheckResult {
    let rank = || src[0].shape().len();
    match arg {
        arg if !arg.is_valid_for(op) => match sample(op) {
            "" => Err(format!("{op:?} carries no payload, not {arg:?}")),
            sample => Err(format!("{op:?} needs a payload such as {sample}, not {arg:?}")),
        },
        Arg::Var { min, max, .. } | Arg::BoundVar { min, max, .. } if min > max => {
            Err(format!("min={min} is above max={max}"))
        }
        Arg::BoundVar { min, max, value, .. } if !(min..=max).contains(&value) => {
            Err(format!("value={value} is outside {min}..={max}"))
        }
        Arg::Slice(s) => s.check(src[0].shape(), src[0].extents()).map_err(|e| e.to_string()),
        Arg::Movement(m) if Op::of_movement(m) != op => {
            Err(format!("expected {}, not {}", op.name().to_lowercase(), m.name()))
        }
        Arg::Movement(m) => m
            .apply_shape(src[0].shape())
            .and_then(|_| moved_extents(m, src[0].shape(), src[0].extents()))
            .map_or_else(|e| Err(e.to_string()), |_| Ok(())),
        Arg::Reduce { axes, .. } if axes.is_empty() => Ok(()),
        Arg::Reduce { axes, .. } if op == Op::Scan && axes.len() > 1 => {
            Err(format!("expected one axis of a scan, got {axes:?}"))
        }
        Arg::Reduce { axes, .. }
            if axes.iter().any(|a| *a >= rank()) || axes.windows(2).any(|w| w[0] >= w[1]) =>
        {
            Err(format!("axes {axes:?} are not ascending axes of a tensor of rank {}", rank()))
        }
        Arg::Cat { axis } => check_cat(*axis, src),
        Arg::Gather { axis } | Arg::Scatter { axis, .. } => check_indexed(*axis, src),
        Arg::Shards { axis: Some(axis), .. } if *axis >= rank() => {
            Err(format!("axis {axis} is out of range for rank {}", rank()))
        }
        Arg::Range { id, .. } if *id > MAX_RANGE => {
            Err(format!("range id {id} is above {MAX_RANGE}"))
        }
        Arg::Lanes(lanes) => match lanes.iter().find(|l| **l >= src[0].dtype().lanes) {
            Some(lane) => {
                Err(format!("lane {lane} is out of range for {} lanes", src[0].dtype().lanes))
            }
            None => Ok(()),
        },
        Arg::LoadHint(LoadHint { stage_at: None, prefetch_in: None }) => {
            Err("a hint names a loop in stage_at or prefetch_in".into())
        }
        Arg::StoreHint { nontemporal: false } => Err("a hint of a store says nontemporal".into()),
        _ => Ok(()),
    }
}

/// Checks the operands of a `Cat`: their shapes differ in the axis alone, and no size is symbolic.
fn check_cat(axis: usize, src: &[UOp]) -> CheckResult {
    let first = src[0].shape();
    if axis >= first.len() {
        return Err(format!("axis {axis} is out of range for rank {}", first.len()));
    }
    match src.iter().find(|s| !s.matches_except(first, Some(axis)) || !s.extents().is_empty()) {
        Some(s) => Err(format!("shapes {:?} and {first:?} differ outside axis {axis}", s.shape())),
        None => Ok(()),
    }
}

impl UOp {
    /// Returns true if the shape is `shape` in all axes but `axis`.
    pub(crate) fn matches_except(&self, shape: &[usize], axis: Option<usize>) -> bool {
        let own = self.shape();
        own.len() == shape.len() && (0..own.len()).all(|a| Some(a) == axis || own[a] == shape[a])
    }
}

/// Checks the operands of a `Gather` or `Scatter`: the shapes of table and index differ in the axis
/// alone, and index and value have the same shape.
pub(crate) fn check_indexed(axis: usize, src: &[UOp]) -> CheckResult {
    let (table, index) = (&src[0], &src[1]);
    let rank = table.shape().len();
    if axis >= rank {
        return Err(format!("axis {axis} is out of range for rank {rank}"));
    }
    let alike = |a: usize| {
        a == axis || (table.shape()[a] == index.shape()[a] && table.extent(a) == index.extent(a))
    };
    if index.shape().len() != rank || !(0..rank).all(alike) {
        let (index, table) = (index.shape(), table.shape());
        return Err(format!("index {index:?} and table {table:?} differ outside axis {axis}"));
    }
    // The scheduler rewrites a gather, also that of a scatter's gradient, as a sum over the axis
    // for each index.
    let pairs: Vec<usize> = index.shape().iter().chain([&table.shape()[axis]]).copied().collect();
    if checked_numel("gather", &pairs).is_err() {
        let (n, count) = (table.shape()[axis], index.shape());
        return Err(format!(
            "the product of the index shape {count:?} and the axis size {n} exceeds what isize can \
             count"
        ));
    }
    match src.get(2) {
        Some(value) if value.shape() != index.shape() || value.extents() != index.extents() => Err(
            format!("value shape {:?} differs from index shape {:?}", value.shape(), index.shape()),
        ),
        _ => Ok(()),
    }
}
