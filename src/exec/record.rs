//! Writes down what a thread runs while a function is observed: every plan with its programs, and
//! every draw of random numbers. It holds no memory that the function lets go, but for what the
//! function makes from numbers of the host.

use super::bound::BoundCommand;
use super::schedule::Scheduled;
use crate::device::Buffer;
use crate::dtype::DType;
use crate::ir::{DeviceName, Storage, UOp, walk_values};
use crate::schedule::{Plan, Request, Values};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::sync::Arc;

/// One call of `realize`.
pub struct Run {
    /// The plan.
    pub plan: Arc<Plan>,
    /// Its commands, loops unrolled. Slots beyond those of the plan hold values of variables.
    pub commands: Vec<BoundCommand>,
    /// The planned graph, with numbers in place of storages.
    pub graph: UOp,
    /// Storages that it read, by number.
    pub inputs: Vec<Input>,
    /// Storage of each output, or of each shard of one.
    pub outputs: Vec<Option<u64>>,
    /// Values of the graph's variables.
    pub values: Arc<Values>,
}

/// A storage that a run reads.
pub struct Input {
    /// Its id.
    pub id: u64,
    /// Its memory, if the function made it from host data.
    pub own: Option<Buffer>,
    /// Device whose memory it is in.
    pub device: DeviceName,
    /// Element dtype.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
}

/// Memory that a draw of random numbers begins from: seed and counter.
pub struct Draw {
    /// The storage that holds them, one for each device.
    pub storages: Vec<u64>,
    /// How many numbers are drawn.
    pub numbers: u64,
}

/// How much is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Which tensors are assigned to, and nothing of what is run.
    #[default]
    AssignmentsOnly,
    /// All that is run.
    Record,
    /// The same, and no value may be read.
    Capture,
}

/// What was written down.
#[derive(Default)]
pub struct Recording {
    mode: Mode,
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
    /// The first value that was read where none may be.
    pub read: Option<String>,
    /// Those of the watched nodes that something was computed from.
    pub used: FxHashSet<u64>,
    watched: FxHashSet<u64>,
    /// Storages that are not the function's own, and what its runs have made.
    known: FxHashSet<u64>,
}

thread_local! {
    static NOW: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

fn with(f: impl FnOnce(&mut Recording)) {
    NOW.with_borrow_mut(|now| now.as_mut().map(f));
}

/// Is something written down on this thread?
pub fn is_on() -> bool {
    NOW.with_borrow(Option::is_some)
}

/// May a run write into a storage whose content nobody needs? What a function has made from numbers
/// of the host is needed by its replays.
pub fn may_overwrite(storage: u64) -> bool {
    NOW.with_borrow(|now| {
        now.as_ref().is_none_or(|r| r.mode == Mode::AssignmentsOnly || r.known.contains(&storage))
    })
}

/// Notes that a value is read, and says whether that would be lost to a replay.
pub fn note_read(what: impl FnOnce() -> String) -> Option<String> {
    NOW.with_borrow_mut(|now| {
        let recording = now.as_mut().filter(|r| r.mode == Mode::Capture)?;
        Some(recording.read.get_or_insert_with(what).clone())
    })
}

/// Runs a function and writes down what it runs. `known` are storages that are not its own, and of
/// the nodes `watched` it is noted whether something is computed from them.
pub fn recorded<T>(
    mode: Mode,
    known: FxHashSet<u64>,
    watched: FxHashSet<u64>,
    f: impl FnOnce() -> T,
) -> (T, Recording) {
    /// Ends the recording, after a panic too.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            NOW.take();
        }
    }
    NOW.set(Some(Recording { mode, known, watched, ..Recording::default() }));
    let _end = End;
    let value = f();
    (value, NOW.take().unwrap_or_default())
}

/// Whether runs are recorded launch by launch.
pub(super) fn keeps_runs() -> bool {
    NOW.with_borrow(|now| now.as_ref().is_some_and(|r| r.mode != Mode::AssignmentsOnly))
}

/// Adds a run, if something is written down.
pub(super) fn note_run(requests: &[Request], scheduled: &Scheduled, commands: Vec<BoundCommand>) {
    with(|r| {
        if r.mode == Mode::AssignmentsOnly {
            return;
        }
        let roots: Vec<UOp> = requests.iter().map(|r| r.node.clone()).collect();
        walk_values(&roots, |u| {
            if r.watched.contains(&u.id()) {
                r.used.insert(u.id());
            }
        });
        let input = |s: &crate::ir::StorageRef| {
            let (id, buffer) = (s.storage.id(), Buffer::of(s));
            let (device, dtype, len) =
                (buffer.device_name().clone(), buffer.dtype(), buffer.size());
            Input { id, own: (!r.known.contains(&id)).then_some(buffer), device, dtype, len }
        };
        let inputs = scheduled.inputs.iter().map(input).collect();
        let outputs: Vec<Option<u64>> =
            scheduled.outputs.iter().map(|o| o.as_ref().map(Buffer::id)).collect();
        r.known.extend(outputs.iter().flatten());
        r.runs.push(Run {
            plan: scheduled.plan.clone(),
            commands,
            graph: scheduled.graph.clone(),
            inputs,
            outputs,
            values: scheduled.values.clone(),
        });
    });
}

/// Adds a tensor that is assigned to, if something is written down.
pub fn note_assigned(tensor: usize) {
    with(|r| r.assigned.push(tensor));
}

/// Adds a tensor whose gradient is set or taken away, if something is written down.
pub fn note_graded(tensor: usize) {
    with(|r| r.graded.push(tensor));
}

/// Notes that the generator of random numbers is put elsewhere, if something is written down.
pub fn note_seeded() {
    with(|r| r.seeded = true);
}

/// The tensors that were assigned to up to now.
pub fn assigned() -> Vec<usize> {
    NOW.with_borrow(|now| now.as_ref().map(|recording| recording.assigned.clone()))
        .unwrap_or_default()
}

/// Adds a draw, if something is written down.
pub fn note_draw(storages: impl FnOnce() -> Vec<u64>, numbers: u64) {
    with(|r| {
        let storages = storages();
        r.known.extend(&storages);
        r.draws.push(Draw { storages, numbers });
    });
}
