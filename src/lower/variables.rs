//! Variables of a kernel become memory: one more argument, after all others, has their values as
//! `i32`, in the order of their names. A value is held to its bounds where it is read, so that
//! whatever is in that memory, every index stays inside its buffer, and the proof of that is the
//! same as for numbers.
//!
//! An argument rather than a parameter of each language: renderers, devices and replays of recorded
//! launches have nothing else to know of, and the few bytes are written once for a run, not for
//! each kernel.

use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, Src, UOp};
use crate::kernel::{axes, extent, is_symbolic, pad_range};
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What of a program depends on variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Their names, in the order of their values in the last argument. Without any there is no
    /// such argument.
    pub names: Vec<Arc<str>>,
    /// Dimensions of the grid that are sums of variables.
    pub grid: Vec<(usize, UOp)>,
}

impl Variables {
    /// The launch with these values.
    pub fn launch(
        &self,
        greatest: &super::Launch,
        value: &dyn Fn(&str) -> Option<i64>,
    ) -> super::Launch {
        let mut launch = *greatest;
        for (dim, size) in &self.grid {
            // What cannot be computed here is launched for the greatest values: what is past the
            // end is not read by anyone.
            if let Some(n) = computed(size, value).and_then(|n| usize::try_from(n).ok()) {
                launch.grid[*dim] = n.min(greatest.grid[*dim]);
            }
        }
        launch
    }
}

/// The value of a sum of variables.
fn computed(u: &UOp, value: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    let of = |i: usize| computed(u.src().get(i)?, value);
    match (u.op(), u.arg()) {
        (Op::Const, _) => u.as_int(),
        (Op::Var, Arg::Var { name, min, max }) => Some(value(name)?.clamp(*min, *max)),
        (Op::Add, _) => of(0)?.checked_add(of(1)?),
        (Op::Mul, _) => of(0)?.checked_mul(of(1)?),
        _ => None,
    }
}

/// The names of the variables of a kernel, in order.
pub fn names(ast: &UOp) -> Vec<Arc<str>> {
    let name = |u: UOp| if let Arg::Var { name, .. } = u.arg() { Some(name.clone()) } else { None };
    let mut names: Vec<Arc<str>> = ast.toposort().into_iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// The kernel with output axes of variables as long as they can be, and guarded, where they would
/// have to share a dimension of the launch with others.
pub(super) fn spread(ast: &UOp, target: &Target) -> Option<UOp> {
    let is_global = |r: &UOp| matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop);
    let globals: Vec<UOp> = axes(ast).into_iter().filter(is_global).collect();
    let long = globals.iter().rev().zip(target.grid_max).any(|(r, most)| extent(r) > most);
    if !target.grid || (globals.len() <= 3 && !long) || !globals.iter().any(is_symbolic) {
        return None;
    }
    let mut wide = ast.clone();
    for r in globals.iter().filter(|r| is_symbolic(r)) {
        wide = pad_range(&wide, r, extent(r));
    }
    Some(wide)
}

/// The argument that has the values.
pub(super) fn argument(names: &[Arc<str>], slot: usize) -> UOp {
    UOp::new(Op::DefineGlobal, DType::I32, Src::new(), Arg::Global { slot, len: names.len() })
}

/// The kernel with variables read from the argument.
pub(super) fn loaded(ast: &UOp, names: &[Arc<str>], argument: &UOp) -> UOp {
    let value = |u: &UOp| {
        let Arg::Var { name, min, max } = u.arg() else { return None };
        let at = names.iter().position(|n| n == name)?;
        let value = argument.at(at as i64).load().binary(Op::Max, *min).binary(Op::Min, *max);
        Some((u.clone(), value.cast(u.dtype())))
    };
    let map: FxHashMap<UOp, UOp> = ast.toposort().iter().filter_map(value).collect();
    ast.substitute(&map)
}
