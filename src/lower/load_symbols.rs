//! Loads the values of a kernel's variables from memory: one more argument, after all others, holds
//! them as `i32` in the order of their names. Each value is clamped to its bounds where it is
//! loaded, so that every index stays inside its buffer whatever that memory contains, and the
//! bounds proof is the same as for constants.
//!
//! The values are a buffer and not parameters of the source language, so that renderers, devices
//! and replays need no further mechanism, and a run writes them once, not once per kernel.

use crate::dtype::DType;
use crate::ir::{Arg, Op, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The parts of a program that depend on variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Their names, in the order of their values in the last argument. A program without variables
    /// has no such argument.
    pub names: Vec<Arc<str>>,
    /// Dimensions of the grid whose size is an expression of variables.
    pub grid: Vec<(usize, UOp)>,
}

impl Variables {
    /// Returns the launch for values of the variables.
    pub fn launch(
        &self,
        upper: &super::Launch,
        value: &dyn Fn(&str) -> Option<i64>,
    ) -> super::Launch {
        let mut launch = *upper;
        for (dim, size) in &self.grid {
            // A size that cannot be computed here is launched at its upper bound: elements past the
            // runtime size are never read.
            if let Some(n) = evaluate(size, value).and_then(|n| usize::try_from(n).ok()) {
                launch.grid[*dim] = n.min(upper.grid[*dim]);
            }
        }
        launch
    }
}

/// Evaluates an expression of variables.
fn evaluate(u: &UOp, value: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    if let Some((x, y)) = u.as_binary() {
        let (x, y) = (evaluate(x, value)?, evaluate(y, value)?);
        return match u.op() {
            Op::Add => x.checked_add(y),
            Op::Mul => x.checked_mul(y),
            _ => None,
        };
    }
    match u.arg() {
        Arg::Const(_) => u.as_int(),
        Arg::Var { name, min, max } => Some(value(name)?.clamp(*min, *max)),
        _ => None,
    }
}

/// Returns the names of the variables of a kernel, sorted.
pub fn names(ast: &UOp) -> Vec<Arc<str>> {
    let name = |u: UOp| if let Arg::Var { name, .. } = u.arg() { Some(name.clone()) } else { None };
    let mut names: Vec<Arc<str>> = ast.toposort().into_iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the argument that holds the values.
pub(super) fn argument(names: &[Arc<str>], slot: usize) -> UOp {
    UOp::define_global(slot, names.len(), DType::I32)
}

/// Replaces the variables of a kernel by loads from the argument.
pub(super) fn load_symbols(ast: &UOp, names: &[Arc<str>], argument: &UOp) -> UOp {
    let value = |u: &UOp| {
        let Arg::Var { name, min, max } = u.arg() else { return None };
        let at = names.iter().position(|n| n == name)?;
        let value = argument.at(at as i64).load().binary(Op::Max, *min).binary(Op::Min, *max);
        Some((u.clone(), value.cast(u.dtype())))
    };
    let map: FxHashMap<UOp, UOp> = ast.toposort().iter().filter_map(value).collect();
    ast.substitute(&map)
}
