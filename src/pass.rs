//! Passes as data: a name, the stage of the IR that the pass produces, the condition under which it
//! runs, and the function. [`run`] executes a list of them and reports each to an observer, which
//! prints, verifies and traces; `compile::pipeline` has the list of all passes.

use crate::ir::{self, UOp};
use crate::verify;
use std::time::{Duration, Instant};

/// The form of the IR that a pass produces. It determines the verifier and the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A tensor graph.
    Tensor,
    /// A kernel: a `Sink` of stores over ranges.
    Kernel,
    /// A linear program.
    Program,
    /// Source text.
    Text,
}

impl Stage {
    /// Verifies what a pass of this stage produced.
    pub fn verify(self, nodes: &[UOp]) -> Result<(), String> {
        match self {
            Stage::Tensor => nodes.iter().try_for_each(verify::tensor),
            Stage::Kernel => nodes.iter().try_for_each(verify::kernel),
            Stage::Program => verify::program(nodes).and_then(|()| verify::in_bounds(nodes)),
            Stage::Text => Ok(()),
        }
    }

    /// Prints what a pass of this stage produced.
    pub fn print(self, nodes: &[UOp]) -> String {
        match self {
            Stage::Tensor | Stage::Kernel => nodes.iter().map(ir::print).collect(),
            Stage::Program => ir::print_program(nodes),
            Stage::Text => String::new(),
        }
    }

    /// Returns the name of the stage in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Tensor => "tensor graph",
            Stage::Kernel => "kernel",
            Stage::Program => "linear program",
            Stage::Text => "text",
        }
    }
}

/// What is known of a pass without its state: an entry of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassInfo {
    /// The name, which is also that of its file and of its directory in `tests/filetests`.
    pub name: &'static str,
    /// The form of the IR that it produces.
    pub stage: Stage,
    /// What it does, in one sentence.
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

/// A state that passes transform.
pub trait State {
    /// Returns the IR in the form of a stage.
    fn nodes(&self, stage: Stage) -> &[UOp];
}

/// A function that sees the result of each pass that ran.
pub type Observer<'a> = &'a mut dyn FnMut(&PassInfo, &[UOp]);

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
        after(&pass.info, state.nodes(pass.info.stage));
    }
    times
}
