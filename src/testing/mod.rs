//! For tests: random tensor graphs, what they must compute, running them on devices, and making a
//! failing one small.
//!
//! In comes a seed; out comes a [`Case`], a valid graph with the content of its inputs, or, through
//! [`check`], what is wrong with the compiler. A case is evaluated node by node before any
//! scheduling (`reference`), together with bounds on what any right compiler may answer
//! ([`Traced`]): integers, bools and floats that follow exactly are compared bit by bit, the others
//! must lie between the bounds.
//!
//! | file | what it holds |
//! |---|---|
//! | `rng` | the random numbers |
//! | `bounds` | values with bounds, op by op |
//! | `graph`, `graph/grow` | the generator: what there is to build on, and what is added to it |
//! | `devices` | which devices are tested |
//! | `case` | a graph with its inputs, as text and back |
//! | `run` | schedules, optimises, compiles and runs a case, and compares |
//! | `shrink` | a smaller case that fails in the same way |
//! | `campaign` | many seeds on several threads |
//!
//! **Invariant:** the same seed gives the same case on every machine.

mod bounds;
mod campaign;
mod case;
mod devices;
mod graph;
mod indexed;
mod rng;
mod run;
mod shrink;

pub use bounds::{Bound, Traced, trace};
pub use campaign::{Campaign, Found};
pub use case::Case;
pub use devices::{devices, graphs, is_required, is_slow, is_spared, lacks, there};
pub use graph::{makes, random_case};
pub use rng::Rng;
pub use run::{Choose, Failure, Setup, Tally, check, check_all, check_for, setups};
pub use shrink::{Report, shrink};
