//! Lowering. Input: an optimized kernel. Output: a linear program. [`PASSES`] is the list of
//! passes; each has a file of its name.
//!
//! **Invariant:** a pass depends on the kernel and the [`Target`] alone, never on the list of Opts
//! that made the kernel: an Opt that needs a pass leaves a marker in the graph.

mod carry_accumulators;
mod coalesce;
mod decompose;
mod fma;
mod group_reduce;
mod join_lanes;
mod launch_dims;
mod ldexp;
mod linearize;
mod load_symbols;
mod loop_masks;
mod mask_bounds;
mod nontemporal;
mod pad_symbols;
mod prefetch;
mod program;
mod proven;
mod remainder;
mod stage;
mod transcendental;
mod transpose_vectors;
mod unroll;
mod vectorize;
mod write_fragments;

#[cfg(feature = "testing")]
pub use decompose::DECOMPOSE;
pub use launch_dims::Launch;
pub use load_symbols::{Variables, names};
pub use program::{Estimate, Program};
pub(crate) use proven::{check_unoptimized, proven};

use crate::ir::{Arg, AxisKind, Op, UOp};
use crate::kernel;
use crate::pass::{self, Observer, Pass, Stage, State};
use crate::target::Target;
use std::borrow::Cow;

/// The passes from an optimized kernel to its linear program, in order.
pub const PASSES: &[Pass<Lowering>] = &pass::passes![
    pad_symbols: Kernel, |l| l.target.grid && !l.variables.names.is_empty(),
        |l| l.update(pad_symbols::pad_symbols),
        "Pads output axes of symbolic extent to their upper bound, where they would share a \
         dimension of the launch with others.";
    stage: Kernel, |l| l.markers.staged, run_stage,
        "Copies the tiles of staged loads to shared memory and loads from there.";
    write_fragments: Kernel, |l| l.markers.fragments,
        |l| l.ast = write_fragments::write_fragments(&l.ast),
        "Writes the operands of tensor cores as vectors of the registers of one thread.";
    vectorize: Kernel, |l| l.markers.copies, |l| l.update(vectorize::vectorize),
        "Turns Upcast and Unroll ranges into vector lanes.";
    unroll: Kernel, |l| l.markers.copies, |l| l.update(unroll::unroll),
        "Unrolls the Upcast and Unroll ranges that did not become lanes.";
    coalesce: Kernel, |l| l.target.grid,
        |l| l.ast = coalesce::coalesce(&l.ast, l.markers.fragments, &l.target),
        "Joins loads and stores of adjacent addresses of one thread into vector accesses.";
    join_lanes: Kernel, |l| !l.target.grid && l.markers.copies,
        |l| l.update(join_lanes::join_lanes),
        "Joins the scalar loads that make a vector, and the stores of single lanes, into vector \
         accesses.";
    transpose_vectors: Kernel, |l| !l.target.grid && l.markers.copies,
        |l| l.ast = transpose_vectors::transpose_vectors(&l.ast),
        "Replaces vectors made of single lanes of other vectors by shuffles of whole vectors.";
    carry_accumulators: Kernel, |l| l.markers.carried,
        |l| l.ast = carry_accumulators::carry_accumulators(&l.ast),
        "Carries the accumulators of a reduction loop outside output loops through memory.";
    group_reduce: Kernel, |l| l.target.grid && l.markers.groups,
        |l| l.ast = group_reduce::group_reduce(&l.ast, &l.threads, &l.target),
        "Combines the partial results of threads that share a reduction, by warp shuffles and \
         shared memory.";
    launch_dims: Kernel, |_| true, run_launch_dims,
        "Replaces the ranges of workgroups and threads by launch dimensions.";
    load_symbols: Kernel, |l| !l.variables.names.is_empty(), run_load_symbols,
        "Loads the values of variables from one more argument.";
    mask_bounds: Kernel, |_| true, |l| l.ast = mask_bounds::mask_bounds(&l.ast),
        "Adds the bounds of the buffer to masks that do not imply them.";
    decompose: Kernel, |_| true, |l| l.update(decompose::decompose),
        "Expresses ops that the target lacks in ops that it has.";
    nontemporal: Kernel, |l| l.markers.nontemporal, |l| l.update(nontemporal::nontemporal),
        "Keeps the hints of stores that a CPU can execute past its caches.";
    linearize: Linear, |_| true, |l| l.uops = linearize::linearize(&l.ast, &l.args, &l.target),
        "Orders the graph as a list with loops, accumulators and conditionals.";
    prefetch: Program, |l| l.markers.prefetch,
        |l| l.uops = prefetch::prefetch(std::mem::take(&mut l.uops)),
        "Loads the data of the next iteration during the current one.";
];

fn run_stage(l: &mut Lowering) {
    l.ast = stage::stage(&l.ast, &l.threads, &l.target);
    // Copies of tiles are vectorized and unrolled.
    l.markers.copies = true;
}

fn run_launch_dims(l: &mut Lowering) {
    (l.ast, l.launch, l.variables.grid) = launch_dims::launch_dims(&l.ast, &l.threads, &l.target);
}

fn run_load_symbols(l: &mut Lowering) {
    let values = load_symbols::argument(&l.variables.names, l.args.len());
    l.ast = load_symbols::load_symbols(&l.ast, &l.variables.names, &values);
    l.args.push(values);
}

/// The nodes of a kernel that make a pass run.
#[derive(Clone, Copy, Debug, Default)]
struct Markers {
    /// Loads that are staged.
    staged: bool,
    /// Loads that are prefetched.
    prefetch: bool,
    /// Stores that need not keep their elements in a cache.
    nontemporal: bool,
    /// Products of tensor cores.
    fragments: bool,
    /// Reductions that threads of a workgroup share.
    groups: bool,
    /// Ranges that become lanes or copies.
    copies: bool,
    /// A reduction loop outside output loops.
    carried: bool,
}

/// A kernel on its way to a linear program.
pub struct Lowering {
    /// The target.
    target: Target,
    /// The kernel.
    ast: UOp,
    /// The linear program, after `linearize`.
    uops: Vec<UOp>,
    /// The arguments by slot, also those that simplification removed from the graph.
    args: Vec<UOp>,
    /// The parts of the program that depend on variables.
    variables: Variables,
    /// The shape of the launch.
    launch: Launch,
    /// The ranges of workgroup threads in the order of the launch.
    threads: Vec<UOp>,
    markers: Markers,
}

impl State for Lowering {
    fn nodes(&self, stage: Stage) -> Cow<'_, [UOp]> {
        Cow::Borrowed(match stage {
            Stage::Linear | Stage::Program => &self.uops,
            _ => std::slice::from_ref(&self.ast),
        })
    }
}

impl Lowering {
    /// Starts the lowering of a kernel.
    pub fn new(ast: &UOp, target: &Target) -> Lowering {
        let (mut markers, mut args, mut names) = (Markers::default(), Vec::new(), Vec::new());
        for u in ast.toposort() {
            match u.arg() {
                Arg::Global { .. } => args.push(u),
                Arg::Var { name, .. } => names.push(name.clone()),
                arg => markers.add(u.op(), arg),
            }
        }
        markers.carried = kernel::outer_reduce(ast).is_some();
        args.sort_by_key(|u| if let Arg::Global { slot, .. } = u.arg() { *slot } else { 0 });
        names.sort();
        names.dedup();
        Lowering {
            target: target.clone(),
            ast: kernel::without_thread_order(ast),
            uops: Vec::new(),
            args,
            variables: Variables { names, grid: Vec::new() },
            launch: Launch::default(),
            threads: if target.grid { kernel::thread_order(ast) } else { Vec::new() },
            markers,
        }
    }

    /// Starts the lowering of a linear program, for the passes behind `linearize`.
    #[cfg(feature = "testing")]
    pub fn of_program(uops: Vec<UOp>, target: &Target) -> Lowering {
        let mut lowering = Lowering::new(&UOp::sink(Vec::new()), target);
        uops.iter().for_each(|u| lowering.markers.add(u.op(), u.arg()));
        Lowering { uops, ..lowering }
    }

    /// Runs one pass by name, if its condition holds, and returns the text of its result.
    #[cfg(feature = "testing")]
    pub fn run_pass(&mut self, name: &str) -> Option<String> {
        let pass = PASSES.iter().find(|p| p.info.name == name)?;
        if (pass.runs_when)(self) {
            (pass.run)(self);
        }
        Some(self.text(&pass.info))
    }

    fn update(&mut self, f: fn(&UOp, &Target) -> UOp) {
        self.ast = f(&self.ast, &self.target);
    }
}

impl Markers {
    fn add(&mut self, op: Op, arg: &Arg) {
        match arg {
            Arg::LoadHint(hint) => {
                self.staged |= hint.stage_at.is_some();
                self.prefetch |= hint.prefetch_in.is_some();
            }
            Arg::StoreHint { .. } => self.nontemporal = true,
            Arg::Range { kind: AxisKind::Upcast | AxisKind::Unroll, .. } => self.copies = true,
            Arg::Range { kind: AxisKind::Group, .. } => self.groups = true,
            // Copies that are written out already.
            _ if matches!(op, Op::Vectorize | Op::Gep) => self.copies = true,
            _ => self.fragments |= op == Op::Wmma,
        }
    }
}

/// Lowers a kernel.
pub fn lower(ast: &UOp, target: &Target, after: Observer) -> Program {
    let mut state = Lowering::new(ast, target);
    let times = pass::run(PASSES, &mut state, after);
    let Lowering { uops, args, variables, mut launch, .. } = state;
    if !target.grid {
        launch.scratch = kernel::ScratchLayout::bytes_of(&uops);
    }
    Program {
        name: kernel::name(ast),
        colored: kernel::colored_name(ast),
        estimate: program::estimate(&uops, &args),
        uops,
        launch,
        variables,
        writes: program::writes(&args, ast),
        args,
        times,
    }
}
