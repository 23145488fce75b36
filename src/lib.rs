//! A deep-learning compiler: lazy tensors in, fused native kernels out.
//!
//! Methods of [`Tensor`] build a graph. Reading a value schedules the graph into a few kernels,
//! compiles them for the machine, and runs them.
//!
//! ```
//! use picograd::Tensor;
//!
//! let a = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
//! let b = Tensor::new([[10.0f32, 20.0], [30.0, 40.0]]);
//! let c = (&a * &b).sum(0); // lazy: only a graph
//! assert_eq!(c.schedule()?.len(), 1); // multiply and sum are one kernel
//! assert_eq!(c.to_vec::<f32>()?, [100.0, 200.0]); // compiles and runs it
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | compute | [`Tensor`], [`DType`], and the options of its methods in [`tensor`] |
//! | differentiate | [`Tensor::backward`], [`Tensor::gradient`], [`no_grad`], [`checkpoint()`] |
//! | build and train networks | [`nn`]: layers, losses, [`nn::optim`], [`nn::data`], [`seq!`] |
//! | load and save | [`io`]: safetensors, `.npy`, `.npz` |
//! | replay a step without overhead | [`Jit`] |
//! | use one kernel for many sizes | [`Variable`], [`SymInt`] |
//! | choose a device, read counters and memory | [`Device`], [`device`], [`profile`] |
//! | train in mixed precision | [`autocast()`], [`nn::optim::GradScaler`] |
//! | write a kernel by hand | [`Tensor::custom_kernel`], [`tensor::CustomKernel`] |
//! | study or extend the compiler | [`compiler`] (unstable) |
//!
//! A network in four lines, and one training step:
//!
//! ```
//! use picograd::nn::optim::{AdamW, Optimizer};
//! use picograd::nn::{Layer, Linear, Module};
//! use picograd::{Tensor, seq, tensor::Reduction};
//!
//! let net = seq![Linear::new(4, 16), Tensor::relu, Linear::new(16, 3)];
//! let mut optimizer = Optimizer::new(net.parameters(), AdamW::new(1e-2))?;
//! let (x, classes) = (Tensor::rand([8, 4]), Tensor::new([0, 1, 2, 0, 1, 2, 0, 1]));
//! let loss = net.forward(&x).cross_entropy(&classes, Reduction::Mean);
//! loss.backward();
//! optimizer.step()?;
//! assert!(loss.item::<f32>()?.is_finite());
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! **Errors.** A mistake of the user is an [`Error`] that names the operation and its arguments.
//! Methods that build graphs panic with its text; each has a `try_` variant that returns it.
//!
//! **Features.** `download`: [`Tensor::from_url`] and the downloads of datasets. `webgpu`: the
//! device `WEBGPU`. Neither is a default.
//!
//! **Settings** are environment variables, such as `DEV=CUDA` and `DEBUG=2`; `docs/env.md` lists
//! them. `ARCHITECTURE.md` has the map of the code.

// The derive of `Module` names the crate, also inside of it.
extern crate self as picograd;

pub mod compiler;
pub mod device;
pub mod dtype;
pub mod io;
pub mod nn;
pub mod tensor;

// The modules of the compiler are private. The tests of this repository see them as public.
#[cfg(not(feature = "testing"))]
mod autograd;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod autograd;
#[cfg(not(feature = "testing"))]
mod codegen;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod codegen;
#[cfg(not(feature = "testing"))]
mod compile;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod compile;
#[cfg(not(feature = "testing"))]
mod disk_cache;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod disk_cache;
#[cfg(not(feature = "testing"))]
mod env;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod env;
#[cfg(not(feature = "testing"))]
mod error;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod error;
#[cfg(not(feature = "testing"))]
mod exec;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod exec;
#[cfg(not(feature = "testing"))]
mod heuristic;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod heuristic;
#[cfg(not(feature = "testing"))]
mod ir;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod ir;
#[cfg(not(feature = "testing"))]
mod kernel;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod kernel;
#[cfg(not(feature = "testing"))]
mod lower;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod lower;
#[cfg(not(feature = "testing"))]
mod math;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod math;
#[cfg(not(feature = "testing"))]
mod opt;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod opt;
mod os;
#[cfg(not(feature = "testing"))]
mod pass;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod pass;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod reference;
#[cfg(not(feature = "testing"))]
mod render;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod render;
#[cfg(not(feature = "testing"))]
mod rewrite;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod rewrite;
#[cfg(not(feature = "testing"))]
mod schedule;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod schedule;
#[cfg(not(feature = "testing"))]
mod shape;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod shape;
#[cfg(not(feature = "testing"))]
mod symbolic;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod symbolic;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod tables;
#[cfg(not(feature = "testing"))]
mod target;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod target;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
#[cfg(not(feature = "testing"))]
mod verify;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod verify;

#[doc(inline)]
pub use device::{Device, profile};
#[doc(inline)]
pub use dtype::DType;
pub use error::{Error, Result};
pub use shape::{SymInt, Variable};
#[doc(inline)]
pub use tensor::{Jit, Tensor, autocast, checkpoint, no_autocast, no_grad};

/// The examples of the quickstart, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/quickstart.md")]
pub struct Quickstart;

/// The example of the page on Opts, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/opts.md")]
pub struct Opts;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The examples of the page on symbolic dimensions, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/symbolic.md")]
pub struct Symbolic;

/// The examples of the page on several devices, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/sharding.md")]
pub struct Sharding;

/// The example of the page on the JIT, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/jit.md")]
pub struct CapturedFunctions;

/// The example of the page on loops, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/loops.md")]
pub struct Loops;

/// The example of the page on debugging, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/debug.md")]
pub struct Debugging;

/// The examples of the page on safety, which must not compile.
#[cfg(doctest)]
#[doc = include_str!("../docs/safety.md")]
pub struct Safety;

/// The examples of the page on custom kernels, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/custom-kernels.md")]
pub struct CustomKernels;
