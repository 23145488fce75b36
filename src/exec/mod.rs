//! Execution: from requests for values to buffers that hold them. Programs are cached in memory by
//! kernel and device; `beam` searches for optimisations by timing them.

mod bind;
pub(crate) mod record;
mod repeat;
mod run;
mod tape;

pub use bind::Proof;
pub use run::{BufferArg, ExecItem, ScheduleItem, Scheduled, schedule_unchecked};
pub(crate) use run::{copy_buffer, realize, schedule};
pub(crate) use tape::{Slot, SlotRef, Tape, TapeStep};
