//! The IR. Nodes `UOp { op, dtype, src, arg }` represent tensor graphs, kernels and linear
//! programs; the verifier of each stage (`src/verify`) defines which ops it allows.

pub(crate) mod arg;
pub(crate) mod bounds;
mod check;
mod custom;
mod derive;
mod doc;
mod dtypes;
pub mod eval;
mod idset;
mod intern;
mod kernel_nodes;
mod loops;
mod materialize;
mod op;
mod op_set;
mod parse;
mod payload;
mod print;
mod range_set;
mod tensor_core;
mod uop;
mod walk;

#[cfg(test)]
mod tests;

pub use arg::{
    AxisKind, Combine, DeviceName, Fold, Gradient, GradientFn, LoadHint, Slice, SpecialKind,
    Storage, StorageRef,
};
pub use bounds::{Bounds, dtype_bounds};
pub(crate) use check::{check_indexed, check_payload};
pub use custom::{Custom, Source};
#[cfg(feature = "testing")]
pub use doc::doc_table;
pub use dtypes::DTypes;
pub(crate) use idset::IdSet;
pub use intern::{Src, UOp};
pub use kernel_nodes::{Access, Moved};
pub use loops::Loop;
pub(crate) use loops::{BatchedGraph, Body, carry_stack, movement_base, output, param, unshaped};
pub use materialize::Rounding;
pub use op::{Op, typed};
pub use op_set::{Group, OpSet};
pub use parse::{parse, parse_program};
pub use payload::Arg;
pub use print::{print, print_part, print_program};
pub use range_set::RangeSet;
pub use tensor_core::{Coordinate, Fragment, TensorCore};
pub use uop::{IntoOperand, ToSrc};
#[cfg(feature = "testing")]
pub use walk::visits;
pub(crate) use walk::{dependents, map_symints, next_range, visit, walk, walk_along};
pub use walk::{rebuild_all, substitute_all, toposort, toposort_until, unmarked, walk_values};
