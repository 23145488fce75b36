//! The IR. A node `UOp { op, dtype, src, arg }` represents the tensor graph, the kernel and the
//! linear program; the verifier of each stage (`verify/`) defines which ops are allowed in it.

pub(crate) mod arg;
mod custom;
mod derive;
mod doc;
pub mod eval;
mod idset;
mod intern;
mod kernel_nodes;
mod loops;
mod materialize;
mod op;
mod parse;
mod print;
mod range_set;
mod tensor_core;
mod uop;
mod walk;

#[cfg(test)]
mod tests;

pub use arg::{
    Arg, AxisKind, Combine, DeviceName, Fold, Gradient, GradientFn, LoadHint, Slice, SpecialKind,
    Storage, StorageRef,
};
pub use custom::{Custom, Source};
pub use derive::{Bounds, dtype_bounds};
#[cfg(feature = "testing")]
pub use doc::doc_table;
pub(crate) use idset::IdSet;
pub use intern::{Src, UOp};
pub use kernel_nodes::{Access, Moved};
pub use loops::Loop;
pub(crate) use loops::{Batch, Body, before, output, param, unshaped};
pub use materialize::Rounding;
pub use op::{Group, Op, OpSet, typed};
pub use parse::{parse, parse_program};
pub use print::{print, print_part, print_program};
pub use range_set::RangeSet;
pub use tensor_core::{Coordinate, Fragment, TensorCore};
pub use uop::{Like, ToSrc};
pub(crate) use uop::{fit_along, fit_cat};
#[cfg(feature = "testing")]
pub use walk::visits;
pub(crate) use walk::{map_symints, next_range, visit, walk, walk_along};
pub use walk::{rebuild_all, substitute_all, toposort, toposort_until, unmarked, walk_values};
