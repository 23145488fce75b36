//! Compilation of kernels: the program cache, and `beam`, which searches for Opts by timing them.

pub mod beam;
mod build;
pub mod pipeline;
mod programs;

#[cfg(feature = "testing")]
pub(crate) use build::compile_programs;
pub use pipeline::lowered;
pub use programs::{
    Choice, Compiled, clear_programs, compiled, compiled_programs, programs, with_choice,
};
pub(crate) use programs::{compile_together, compiled_with, planned};
