//! The cost of ops that lowering expands.

use crate::ir::{Op, UOp};

/// The cost of a float remainder, in simple instructions: lowering expands it into as many.
const FLOAT_REMAINDER: u32 = 120;

/// Returns the cost of a node that lowering expands into many instructions; `None` for a node with
/// the cost that the table of ops has.
pub fn expanded_cost(u: &UOp) -> Option<u32> {
    (u.op() == Op::Mod && u.dtype().is_float()).then_some(FLOAT_REMAINDER)
}
