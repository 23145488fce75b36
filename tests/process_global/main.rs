//! What a process counts: nodes that are alive, kernels that were compiled, plans that were found.
//! Here is nothing else, and one test runs at a time.

mod deep;
mod device_counters;
mod intern;
mod profile;
mod shard_steps;
mod training_kernels;

use std::sync::{Mutex, MutexGuard};

/// The turn of a test, which ends with the value.
fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}
