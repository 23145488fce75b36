//! A deep-learning compiler: lazy tensors go in, fused native kernels come out and run.
//!
//! ```
//! use picograd::Tensor;
//!
//! let a = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
//! let b = Tensor::new([[10.0f32, 20.0], [30.0, 40.0]]);
//! let c = (&a * &b).sum(0); // nothing has been computed yet
//! assert_eq!(c.schedule()?.len(), 1); // multiply and sum are one kernel
//! assert_eq!(c.to_vec::<f32>()?, [100.0, 200.0]); // now it has run
//!     
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! What happens to `c`, stage by stage; `cargo run --release --example tour` shows each on the
//! screen:
//!
//! 1. [`tensor`]: a method checks its arguments and adds nodes to a lazy graph of [`ir::UOp`]s.
//! 2. [`exec`]: reading a value asks for a plan of the graph, then runs it.
//! 3. [`schedule`]: the graph becomes kernels. Ranges are given to every node, and what can share a
//!    loop nest does.
//! 4. [`opt`]: a list of [`opt::Opt`]s splits the ranges of a kernel, for vectors and threads.
//! 5. [`lower`]: a list of named passes turns the kernel into a linear program of simple ops.
//! 6. [`symbolic`] and [`rewrite`]: rule tables simplify the expressions of every stage.
//! 7. [`verify`]: after each pass it is checked which ops may stand where, and that no index leaves
//!    its buffer.
//! 8. [`render`]: the program becomes source text, such as C.
//! 9. [`runtime`]: a device compiles the text (or takes it from a cache), holds buffers and runs
//!    kernels.
//!
//! Mistakes of the user are an [`Error`] that names the operation and what it was given.
//! `ARCHITECTURE.md` has the map of the code.

// The derive of `Module` names the crate, also inside of it.
extern crate self as picograd;

pub mod autograd;
pub mod compile;
pub mod device;
pub mod disk_cache;
pub mod dtype;
pub mod env;
pub mod error;
pub mod exec;
pub mod heuristic;
pub mod io;
pub mod ir;
pub mod kernel;
pub mod lower;
pub mod math;
pub mod nn;
pub mod opt;
pub mod pass;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod reference;
pub mod render;
pub mod rewrite;
pub mod schedule;
pub mod shape;
pub mod symbolic;
pub mod tables;
pub mod target;
pub mod tensor;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod verify;

pub use device::{Device, profile};
pub use dtype::DType;
pub use error::{Error, Result};
pub use shape::{SymInt, Variable};
pub use tensor::{Jit, Tensor, autocast, checkpoint, no_autocast, no_grad};

/// The examples of the quickstart, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/quickstart.md")]
pub struct Quickstart;

/// The example of the page on optimisations, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/opts.md")]
pub struct Opts;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The examples of the page on sizes that are variables, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/symbolic.md")]
pub struct Symbolic;

/// The examples of the page on several devices, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/sharding.md")]
pub struct Sharding;

/// The example of the page on captured functions, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/jit.md")]
pub struct CapturedFunctions;

/// The example of the page on loops, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/loops.md")]
pub struct Loops;

/// The example of the page on what can be seen, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/debug.md")]
pub struct Seeing;

/// The examples of the page on safety, which must not compile.
#[cfg(doctest)]
#[doc = include_str!("../docs/safety.md")]
pub struct Safety;

/// The examples of the page on kernels of the user's, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/custom-kernels.md")]
pub struct CustomKernels;
