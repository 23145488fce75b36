//! Process-wide state: live nodes, compiled kernels, schedule-cache hits, the random generator.
//! This binary has nothing else, and runs one test at a time.

mod deep;
mod device_counters;
mod intern;
mod profile;
mod random;
mod shard_steps;
mod training_kernels;
mod visit_cases;
mod visits;

#[path = "../common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard};

/// Serializes the tests: one runs at a time, until the guard is dropped.
fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}
