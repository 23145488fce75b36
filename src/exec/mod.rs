//! Execution: from requests for values to buffers that hold them.
//!
//! | file | topic |
//! |---|---|
//! | `schedule` | requests to a plan with memory; `realize` |
//! | `item` | the commands of a schedule as a user sees them |
//! | `bound` | a plan with compiled programs and memory, run command by command |
//! | `command` | checks and runs of commands, loops included |
//! | `memory` | the memory of slots |
//! | `launch` | single launches and copies |
//! | `bind` | the checks of programs against memory |
//! | `capture` | the record of what a function does during a JIT capture |
//! | `captured` | a capture as a plan for replays: slots and the origins of their memory |
//! | `fingerprint` | what a recorded call did, to compare it with the next call |
//! | `replay` | captured commands, run again on other memory |

mod bind;
mod bound;
pub(crate) mod capture;
mod captured;
mod command;
pub(crate) mod fingerprint;
mod item;
mod launch;
mod memory;
mod replay;
mod schedule;

pub use bind::Proof;
pub(crate) use capture::{Capture, Draw, Event};
pub(crate) use captured::{BufferType, CaptureBuilder, CapturedPlan, Source, Template};
pub use item::{BufferArg, ExecItem, ScheduleItem};
pub(crate) use launch::copy_buffer;
#[cfg(feature = "testing")]
pub use schedule::{Scheduled, schedule_unchecked};
pub(crate) use schedule::{realize, schedule};
