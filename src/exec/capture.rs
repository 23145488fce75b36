//! JIT capture: the record of a function's effects on this thread. It has every plan with its
//! compiled commands, RNG draws, assignments and gradients. It keeps no buffers alive except those
//! that the function makes from host data.
//!
//! [`Capture::record`] installs the record of a thread, and [`Capture::note`] adds an [`Event`] to
//! it, from where a tensor is realized, assigned to or read.

use super::captured::BufferType;
use super::command::BoundCommand;
use super::schedule::Scheduled;
use crate::device::Buffer;
use crate::error::Error;
use crate::ir::{Storage, StorageRef, UOp, walk_values};
use crate::schedule::{Plan, Request, VariableValues};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::sync::Arc;

/// The bound plan of one call of `realize`, without its memory.
pub struct RecordedPlan {
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
    pub values: Arc<VariableValues>,
}

/// A storage that a run reads.
pub struct Input {
    /// Its id.
    pub id: u64,
    /// Its memory, if the function made it from host data.
    pub own: Option<Buffer>,
    /// Its device, dtype and length.
    pub buffer_type: BufferType,
}

/// An RNG draw.
pub struct Draw {
    /// Storages with seed and counter, one per device.
    pub storages: Vec<u64>,
    /// Random numbers that are drawn.
    pub numbers: u64,
}

/// The extent of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Assignments alone, for a function that is never replayed.
    #[default]
    AssignmentsOnly,
    /// All effects.
    Record,
    /// All effects, and reading a value is an error: a replay would not read it again.
    Capture,
}

/// What a function did that replays have to repeat, or that makes it unfit for them.
pub(crate) enum Event<'a> {
    /// Requests were computed.
    Run {
        /// The requests.
        requests: &'a [Request],
        /// Their plan.
        scheduled: &'a Scheduled,
        /// Its commands.
        commands: Vec<BoundCommand>,
    },
    /// Random numbers were drawn.
    Draw(Draw),
    /// The RNG was seeded.
    Seed,
    /// A tensor was assigned to: its id.
    Assign(usize),
    /// The gradient of a tensor was set or taken: the tensor's id.
    SetGrad(usize),
    /// The value of a tensor is read: the message of the error that this is in [`Mode::Capture`].
    ReadValue(&'a dyn Fn() -> String),
    /// The value of a variable is read, which a replay would not read again.
    ReadVariable,
}

/// The record of one call of a function.
#[derive(Default)]
pub struct Capture {
    mode: Mode,
    /// Plans in the order of their runs.
    pub runs: Vec<RecordedPlan>,
    /// RNG draws in order.
    pub draws: Vec<Draw>,
    /// Ids of tensors that were assigned to.
    pub assigned: Vec<usize>,
    /// Ids of tensors whose gradient was set or taken.
    pub gradients_changed: Vec<usize>,
    /// True if the RNG was seeded.
    pub seeded: bool,
    /// The error of the first value that was read in [`Mode::Capture`].
    pub read: Option<String>,
    /// Watched nodes that something was computed from.
    pub used: FxHashSet<u64>,
    watched: FxHashSet<u64>,
    /// Storages from outside the function, and outputs of its runs.
    known: FxHashSet<u64>,
    /// True if the function read the value of a variable in [`Mode::Capture`].
    pub has_read_variable: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

impl Capture {
    /// Calls a function and records its effects. `known` are storages from outside the function. Of
    /// the nodes `watched`, the record has those that something is computed from.
    pub fn record<T>(
        mode: Mode,
        known: FxHashSet<u64>,
        watched: FxHashSet<u64>,
        f: impl FnOnce() -> T,
    ) -> (T, Capture) {
        /// Ends the record, after a panic too.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                CURRENT.take();
            }
        }
        CURRENT.set(Some(Capture { mode, known, watched, ..Capture::default() }));
        let _end = End;
        let value = f();
        (value, CURRENT.take().unwrap_or_default())
    }

    /// Adds an event to the record of this thread, if there is one. Returns the error of an event
    /// that the record does not allow.
    pub fn note(event: Event) -> Option<Error> {
        Capture::current(|c| c.add(event)).flatten()
    }

    /// Calls `f` on the record of this thread, if there is one.
    pub fn current<T>(f: impl FnOnce(&mut Capture) -> T) -> Option<T> {
        CURRENT.with_borrow_mut(|current| current.as_mut().map(f))
    }

    /// Returns true if this thread records.
    pub fn is_active() -> bool {
        CURRENT.with_borrow(Option::is_some)
    }

    /// Returns true if this thread records each launch.
    pub(super) fn records_runs() -> bool {
        Capture::current(|c| c.mode != Mode::AssignmentsOnly).unwrap_or(false)
    }

    /// Returns true if a run may write to a storage whose content is dead. Replays need the
    /// storages that the function made from host data.
    pub fn may_overwrite(storage: u64) -> bool {
        let may = |c: &mut Capture| c.mode == Mode::AssignmentsOnly || c.known.contains(&storage);
        Capture::current(may).unwrap_or(true)
    }

    fn add(&mut self, event: Event) -> Option<Error> {
        match event {
            Event::Run { requests, scheduled, commands } if self.mode != Mode::AssignmentsOnly => {
                self.add_run(requests, scheduled, commands)
            }
            Event::Run { .. } => {}
            Event::Draw(draw) => {
                self.known.extend(&draw.storages);
                self.draws.push(draw);
            }
            Event::Seed => self.seeded = true,
            Event::Assign(tensor) => self.assigned.push(tensor),
            Event::SetGrad(tensor) => self.gradients_changed.push(tensor),
            Event::ReadValue(message) if self.mode == Mode::Capture => {
                return Some(Error::Jit(self.read.get_or_insert_with(message).clone()));
            }
            Event::ReadValue(_) => {}
            Event::ReadVariable => self.has_read_variable |= self.mode == Mode::Capture,
        }
        None
    }

    fn add_run(
        &mut self,
        requests: &[Request],
        scheduled: &Scheduled,
        commands: Vec<BoundCommand>,
    ) {
        let roots: Vec<UOp> = requests.iter().map(|r| r.node.clone()).collect();
        walk_values(&roots, |u| {
            if self.watched.contains(&u.id()) {
                self.used.insert(u.id());
            }
        });
        let input = |s: &StorageRef| {
            let (id, buffer) = (s.storage.id(), Buffer::of(s));
            let buffer_type = BufferType::of(&buffer);
            Input { id, own: (!self.known.contains(&id)).then_some(buffer), buffer_type }
        };
        let inputs = scheduled.inputs.iter().map(input).collect();
        let outputs: Vec<Option<u64>> =
            scheduled.outputs.iter().map(|o| o.as_ref().map(Buffer::id)).collect();
        self.known.extend(outputs.iter().flatten());
        self.runs.push(RecordedPlan {
            plan: scheduled.plan.clone(),
            commands,
            graph: scheduled.graph.clone(),
            inputs,
            outputs,
            values: scheduled.values.clone(),
        });
    }
}
