//! Compilation of kernels: the program cache, and `beam`, which searches for Opts by timing them.

pub mod beam;
mod build;
mod choose_opts;
#[cfg(test)]
mod nontemporal_tests;
pub mod pipeline;
mod programs;
mod render;

#[cfg(feature = "testing")]
pub(crate) use build::compile_programs;
pub use pipeline::lowered;
pub use programs::{Compiled, OptPolicy, compiled, with_opt_policy};
#[cfg(feature = "testing")]
pub use programs::{clear_programs, compiled_programs, programs};
pub(crate) use programs::{compile_together, compiled_with, planned};
