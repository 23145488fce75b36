//! Random tests: tensor graphs from seeds, the bounds of their results, runs on devices, and
//! shrinking of failing graphs.
//!
//! Input: a seed. Output: a [`Case`], which is a valid graph with the content of its inputs; and
//! from [`check`] the failures of the compiler on it. The reference evaluator computes a case
//! together with bounds on the results of a correct compiler ([`BoundedValue`]): exact values are
//! compared by bits, others must be within the bounds.
//!
//! | file | contents |
//! |---|---|
//! | `rng` | the random number generator |
//! | `bounds`, `fold_bounds`, `indexed` | values with bounds, op by op |
//! | `graph`, `graph/grow` | the generator: operands, and the ops that it adds |
//! | `devices` | the devices under test |
//! | `case` | a graph with its inputs, as text and back |
//! | `setup` | the device and the Opts of a run |
//! | `run` | schedules, lowers, compiles and runs a case, and compares |
//! | `shrink` | a smaller case that fails in the same way |
//! | `campaign`, `tally` | many seeds on several threads, and their coverage |
//!
//! **Invariant:** the same seed gives the same case on every machine.

mod bounds;
mod campaign;
mod case;
mod devices;
mod fold_bounds;
mod graph;
mod indexed;
mod rng;
mod run;
mod setup;
mod shrink;
mod tally;

pub use bounds::{Bound, BoundedValue, evaluate_bounded};
pub use campaign::{Campaign, Found};
pub use case::Case;
pub use devices::{
    devices, feature_of, graphs, has_own_memory, is_available, is_required, is_skipped, is_slow,
    lacks, runs_nothing,
};
pub use graph::{makes, random_case};
pub use rng::Rng;
pub use run::{Failure, check, check_all, check_for, run_for};
pub use setup::{Setup, SetupOpts, setups};
pub use shrink::{Report, shrink};
pub use tally::Tally;
