//! Writes down what a thread runs while a function is captured: every plan with its memory and its programs, and every draw of random numbers.

use super::compile::Compiled;
use super::run::{ExecItem, Scheduled};
use crate::ir::UOp;
use crate::schedule::Request;
use std::cell::RefCell;
use std::sync::Arc;

/// One call of `realize`.
pub struct Run {
    /// What was asked for, as the tensors had it.
    pub roots: Vec<UOp>,
    /// What was run, and on which memory.
    pub scheduled: Scheduled,
    /// The program of each item; none for a copy.
    pub compiled: Vec<Option<Arc<Compiled>>>,
}

/// Memory that a draw of random numbers begins from: seed and counter.
pub struct Draw {
    /// The storage that holds them, one for each device.
    pub storages: Vec<u64>,
    /// How many numbers are drawn.
    pub numbers: u64,
}

/// What was written down.
#[derive(Default)]
pub struct Recording {
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// The draws, in order.
    pub draws: Vec<Draw>,
    /// The numbers of tensors that were assigned to.
    pub assigned: Vec<usize>,
    /// The numbers of tensors whose gradient was set or taken away.
    pub graded: Vec<usize>,
    /// Was the generator of random numbers put elsewhere?
    pub seeded: bool,
    /// May no value be read meanwhile?
    sealed: bool,
}

thread_local! {
    static NOW: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Is something written down on this thread?
pub fn is_on() -> bool {
    NOW.with_borrow(Option::is_some)
}

/// Would a value that is read now be lost to a replay?
pub fn is_sealed() -> bool {
    NOW.with_borrow(|now| now.as_ref().is_some_and(|r| r.sealed))
}

/// Runs a function and writes down what it runs. In a sealed one no value may be read.
pub fn recorded<T>(sealed: bool, f: impl FnOnce() -> T) -> (T, Recording) {
    /// Ends the recording, after a panic too.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            NOW.take();
        }
    }
    NOW.set(Some(Recording { sealed, ..Recording::default() }));
    let _end = End;
    let value = f();
    (value, NOW.take().unwrap_or_default())
}

/// Adds a run, if something is written down.
pub(super) fn note_run(requests: &[Request], scheduled: Scheduled, items: Vec<ExecItem>) {
    NOW.with_borrow_mut(|now| {
        if let Some(recording) = now {
            let roots = requests.iter().map(|r| r.node.clone()).collect();
            recording.runs.push(Run { roots, scheduled, compiled: items.into_iter().map(|i| i.compiled).collect() });
        }
    });
}

/// Adds a tensor that is assigned to, if something is written down.
pub fn note_assigned(tensor: usize) {
    NOW.with_borrow_mut(|now| now.as_mut().map(|recording| recording.assigned.push(tensor)));
}

/// Adds a tensor whose gradient is set or taken away, if something is written down.
pub fn note_graded(tensor: usize) {
    NOW.with_borrow_mut(|now| now.as_mut().map(|recording| recording.graded.push(tensor)));
}

/// Notes that the generator of random numbers is put elsewhere, if something is written down.
pub fn note_seeded() {
    NOW.with_borrow_mut(|now| now.as_mut().map(|recording| recording.seeded = true));
}

/// The tensors that were assigned to up to now.
pub fn assigned() -> Vec<usize> {
    NOW.with_borrow(|now| now.as_ref().map(|recording| recording.assigned.clone())).unwrap_or_default()
}

/// Adds a draw, if something is written down.
pub fn note_draw(storages: impl FnOnce() -> Vec<u64>, numbers: u64) {
    NOW.with_borrow_mut(|now| {
        if let Some(recording) = now {
            recording.draws.push(Draw { storages: storages(), numbers });
        }
    });
}
