//! Passes as data: a name, the stage of the IR that the pass produces, the condition under which it
//! runs, and the function. [`run`] executes a list of them and reports each to an observer, which
//! prints, verifies and traces; `compile::pipeline` has the list of all passes.

use crate::env::Config;
use crate::ir::{self, UOp};
use crate::verify;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// The form of the IR that a pass produces. It determines the verifier and the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A tensor graph.
    Tensor,
    /// Stored values over ranges, which the scheduler groups into kernels.
    Ranged,
    /// A kernel: a `Sink` of stores over ranges.
    Kernel,
    /// A linear program whose loads still have the `LoadHint`s of `prefetch`.
    Linear,
    /// A linear program.
    Program,
    /// Source text.
    Text,
}

impl Stage {
    /// Verifies the result of a pass of this stage.
    pub fn verify(self, nodes: &[UOp]) -> Result<(), String> {
        match self {
            Stage::Tensor => nodes.iter().try_for_each(verify::tensor),
            Stage::Kernel => nodes.iter().try_for_each(verify::kernel),
            Stage::Linear => verify::linear(nodes).and_then(|()| verify::in_bounds(nodes)),
            Stage::Program => verify::program(nodes).and_then(|()| verify::in_bounds(nodes)),
            // The scheduler verifies its stores, and the compiler of the device verifies text.
            Stage::Ranged | Stage::Text => Ok(()),
        }
    }

    /// Prints the result of a pass of this stage.
    pub fn print(self, nodes: &[UOp]) -> String {
        match self {
            Stage::Tensor | Stage::Ranged | Stage::Kernel => nodes.iter().map(ir::print).collect(),
            Stage::Linear | Stage::Program => ir::print_program(nodes),
            Stage::Text => String::new(),
        }
    }

    /// Returns the name of the stage in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Tensor => "tensor graph",
            Stage::Ranged => "stores over ranges",
            Stage::Kernel => "kernel",
            Stage::Linear | Stage::Program => "linear program",
            Stage::Text => "text",
        }
    }
}

/// The description of a pass: an entry of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassInfo {
    /// The name, which is also that of its file and of its directory in `tests/filetests`.
    pub name: &'static str,
    /// The form of the IR that it produces.
    pub stage: Stage,
    /// One sentence about its effect.
    pub doc: &'static str,
}

/// A pass over a state `S`.
pub struct Pass<S> {
    /// Name, stage and description.
    pub info: PassInfo,
    /// The condition under which the pass runs: a predicate on the IR, never on the list of Opts.
    pub runs_when: fn(&S) -> bool,
    /// Transforms the state.
    pub run: fn(&mut S),
}

impl<S> Pass<S> {
    /// Creates a pass.
    pub const fn new(
        name: &'static str,
        stage: Stage,
        runs_when: fn(&S) -> bool,
        run: fn(&mut S),
        doc: &'static str,
    ) -> Pass<S> {
        Pass { info: PassInfo { name, stage, doc }, runs_when, run }
    }
}

/// Lists passes. A row is the name of a pass, the stage that it produces, the condition under which
/// it runs, its function, and what it does in one sentence.
#[macro_export]
#[doc(hidden)]
macro_rules! passes {
    ($($name:ident: $stage:ident, $when:expr, $run:expr, $doc:literal;)*) => {
        [$($crate::compiler::pass::Pass::new(
            stringify!($name),
            $crate::compiler::pass::Stage::$stage,
            $when,
            $run,
            $doc,
        )),*]
    };
}
pub use passes;

/// A state that passes transform.
pub trait State {
    /// Returns the IR in the form of a stage.
    fn nodes(&self, stage: Stage) -> Cow<'_, [UOp]>;

    /// Verifies the state after a pass.
    fn verify(&self, pass: &PassInfo) -> Result<(), String> {
        pass.stage.verify(&self.nodes(pass.stage))
    }

    /// Returns the state after a pass as text.
    fn text(&self, pass: &PassInfo) -> String {
        pass.stage.print(&self.nodes(pass.stage))
    }
}

/// A function that is called with the state after each pass that ran.
pub type Observer<'a> = &'a mut dyn FnMut(&PassInfo, &dyn State);

/// The time of each pass that ran, by name. The observer's time is not counted.
pub type PassTimes = Vec<(&'static str, Duration)>;

/// Runs passes in order and returns their times. A pass whose condition does not hold is skipped.
pub fn run<S: State>(passes: &[Pass<S>], state: &mut S, after: Observer) -> PassTimes {
    let mut times = PassTimes::with_capacity(passes.len());
    for pass in passes {
        let start = Instant::now();
        if !(pass.runs_when)(state) {
            continue;
        }
        (pass.run)(state);
        times.push((pass.info.name, start.elapsed()));
        after(&pass.info, state);
    }
    times
}

/// Prints the state after a pass if `PRINT_AFTER` names it, and verifies it.
pub fn observe(config: &Config, pass: &PassInfo, state: &dyn State) {
    print_after(config, pass, state);
    verify_after(config, pass, state);
}

/// Prints the state after a pass if `PRINT_AFTER` names it.
fn print_after(config: &Config, pass: &PassInfo, state: &dyn State) {
    if config.print_after.as_deref() == Some(pass.name) {
        eprintln!("; after {}\n{}", pass.name, state.text(pass));
    }
}

/// Panics if a pass produced invalid IR and verification is on.
pub fn verify_after(config: &Config, pass: &PassInfo, state: &dyn State) {
    if config.verify
        && let Err(e) = state.verify(pass)
    {
        panic!("after {}: {e}\n{}", pass.name, state.text(pass));
    }
}
