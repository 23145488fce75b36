//! Pads output axes of symbolic extent to their upper bound and masks them, where the launch gives
//! them no dimension of their own: with more than three output axes, or with one that is longer
//! than a dimension, axes share dimensions, and positions are computed by division by constant
//! extents.

use crate::ir::{AxisKind, UOp};
use crate::kernel::{axes, extent, is_of_chunk, is_symbolic, pad_range};
use crate::target::Target;

/// Pads the symbolic output axes of a kernel, if they cannot be dimensions of the launch.
pub(super) fn pad_symbols(ast: &UOp, target: &Target) -> UOp {
    let is_global =
        |r: &UOp| matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop) && !is_of_chunk(r);
    let globals: Vec<UOp> = axes(ast).into_iter().filter(is_global).collect();
    let long = globals.iter().rev().zip(target.grid_max).any(|(r, most)| extent(r) > most);
    if globals.len() <= 3 && !long {
        return ast.clone();
    }
    let symbolic = globals.iter().filter(|r| is_symbolic(r));
    symbolic.fold(ast.clone(), |ast, r| pad_range(&ast, r, extent(r)))
}
