//! The compiler, for those who study or extend it. **Unstable:** anything here may change in any
//! release; the rest of the crate follows semantic versioning.
//!
//! A tensor graph becomes a kernel in stages. Each submodule has the types of one stage:
//!
//! | module | contents |
//! |---|---|
//! | [`ir`] | [`UOp`](ir::UOp), the node of graphs, kernels and programs; text form |
//! | [`rewrite`] | tables of rewrite rules, and the engine that applies them |
//! | [`symbolic`] | exact simplification of expressions |
//! | [`shape`] | movement ops, views, index expressions |
//! | [`schedule`] | the kernels and copies of a tensor graph, with their buffers |
//! | [`opt`] | loop transformations as data |
//! | [`pass`] | passes as data, and the function that runs them |
//! | [`lower`] | kernels to linear programs; the list of passes |
//! | [`target`] | what a backend can do, as data |
//! | [`verify`] | the verifiers that run after each pass |
//! | [`render`] | linear programs to source text |
//! | [`build`] | compiled kernels, and the beam search |
//! | [`device`] | what a backend implements: memory, compilation, launches |
//! | [`dtype`] | values as bytes, the dtypes of results |
//! | [`mod@env`] | the environment variables and their values |
//! | [`disk_cache`] | compiled programs and tuned Opts of earlier processes |
//!
//! A kernel built by hand, and its text in CUDA C:
//!
//! ```
//! use picograd::DType;
//! use picograd::compiler::ir::{self, AxisKind, UOp};
//! use picograd::compiler::{lower::lower, render::{Cuda, Renderer}, target::Target};
//!
//! let output = UOp::define_global(0, 8, DType::F32);
//! let input = UOp::define_global(1, 8, DType::F32);
//! let i = UOp::range(8, 0, AxisKind::Global);
//! let doubled = input.at(&i).load() * 2.0;
//! let kernel = UOp::sink(vec![output.at(&i).store(&doubled, &[i])]);
//! println!("{}", ir::print(&kernel));
//!
//! let program = lower(&kernel, &Target::cuda(), &mut |_, _| ());
//! let text = Cuda::new("sm_90").render(&program.name, &program.uops)?;
//! assert!(text.body.contains("__global__"));
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! The kernels of a tensor: [`Tensor::schedule`](crate::Tensor::schedule).

/// The IR: nodes, ops, payloads, and their text form.
pub mod ir {
    pub use crate::ir::{
        Access, Arg, AxisKind, Bounds, Combine, Coordinate, Custom, DTypes, DeviceName, Fold,
        Fragment, Gradient, GradientFn, Group, IntoOperand, LoadHint, Loop, Moved, Op, OpSet,
        RangeSet, Rounding, Slice, Source, SpecialKind, Src, Storage, StorageRef, TensorCore,
        ToSrc, UOp, parse, parse_program, print, print_part, print_program, typed,
    };
}

/// Rewrite rules and the engine that applies them.
pub mod rewrite {
    #[doc(inline)]
    pub use crate::rewrite::rules;
    pub use crate::rewrite::{IntoRewrite, Rule, RuleInfo, Rules, Step, traced};
}

/// Exact simplification: rules that change no bit of a result.
pub mod symbolic {
    pub use crate::symbolic::{simplify, tables};
}

/// Shapes: movement ops, views, and index expressions.
pub mod shape {
    pub use crate::shape::{IndexExpr, Movement, ShapeTracker, View};
}

/// What realizes a tensor: kernels and copies in order, with their buffers.
pub mod schedule {
    pub use crate::exec::{BufferArg, ExecItem, Proof, ScheduleItem};
    pub use crate::schedule::{PlannedMemory, Role, VariableValues};
}

/// Loop transformations as data, and kernels that they are applied to.
pub mod opt {
    pub use crate::opt::{Kernel, Operands, Opt, OptOp, parse, show};
}

/// Lowering from kernels to linear programs.
pub mod lower {
    pub use crate::lower::{Estimate, Launch, Lowering, PASSES, Program, Variables, lower};
}

/// Passes as data, and the function that runs them.
///
/// ```
/// use picograd::compiler::ir::{Op, UOp};
/// use picograd::compiler::pass::{self, Pass, PassInfo, Stage, State};
/// use picograd::compiler::rewrite::{Rules, rules};
/// use std::borrow::Cow;
///
/// rules! {
///     /// Adds a value to itself by a product.
///     TWICE |u, _cx: ()| {
///         add_same: Add(x, =x) => x * 2i64;
///     }
/// }
///
/// struct Graph(UOp);
/// impl State for Graph {
///     fn nodes(&self, _: Stage) -> Cow<'_, [UOp]> {
///         Cow::Borrowed(std::slice::from_ref(&self.0))
///     }
/// }
///
/// const PASSES: &[Pass<Graph>] = &pass::passes![
///     twice: Kernel, |g| g.0.op() == Op::Add,
///         |g| g.0 = Rules::new(&[&TWICE]).fixpoint(&g.0, &mut ()),
///         "Multiplies by two in place of adding a value to itself.";
/// ];
/// let n = UOp::int(3);
/// let mut graph = Graph(&n + &n);
/// pass::run(PASSES, &mut graph, &mut |_: &PassInfo, _: &dyn State| ());
/// assert_eq!(graph.0, &n * 2i64);
/// ```
pub mod pass {
    #[doc(inline)]
    pub use crate::pass::passes;
    pub use crate::pass::{Observer, Pass, PassInfo, PassTimes, Stage, State, run};
}

/// What a backend can do, as data.
pub mod target {
    pub use crate::target::{
        CoreRates, CpuTuning, GpuTuning, Machine, SearchTuning, Target, Tuning, Vendor,
    };
}

/// The verifiers of each stage.
pub mod verify {
    pub use crate::verify::{kernel, linear, program, tensor};
}

/// Renderers: linear programs to source text.
pub mod render {
    pub use crate::render::{Clang, Cuda, Llvm, Metal, OpenCl, Rendered, Renderer, Wgsl};
}

/// Compiled kernels, and the search for the fastest Opts.
pub mod build {
    pub use crate::compile::beam::{Beam, Tuned};
    pub use crate::compile::{Compiled, OptPolicy, compiled, lowered, with_opt_policy};
}

/// What a backend implements: memory, compilation and launches; and the buffers of tensors.
pub mod device {
    pub use crate::device::backend::{
        Backend, Executable, Graph, GraphKernel, HostFunction, Purpose, SystemMemory,
    };
    pub use crate::device::buffer::{Buffer, Memory, MemoryRef, Remote};
    pub use crate::device::module::{
        Batching, CompileVariant, CompiledModule, KernelInfo, LoadedModule, ModuleCompiler,
    };
    pub use crate::device::registry::canonical;
}

/// Values of dtypes as bytes, and the dtypes of results.
pub mod dtype {
    pub use crate::dtype::constant::{read, write};
    pub use crate::dtype::element::{as_bytes, from_bytes};
    pub use crate::dtype::float::{
        f8e4m3_to_f32, f8e5m2_to_f32, f32_to_f8e4m3, f32_to_f8e5m2, round_f64,
    };
    pub use crate::dtype::promote::{Weak, promote_weak, sum_acc};
}

/// The environment variables.
pub mod env {
    pub use crate::env::{Config, VARIABLES, Variable, config};
}

/// The disk cache, as the `pico` command shows it.
pub mod disk_cache {
    pub use crate::disk_cache::{
        CacheEntry, CacheKey, CachedProgram, DiskCache, DiskCacheContents, DiskCacheStats,
        EntryKind, global,
    };
}
