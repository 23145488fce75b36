//! Captured functions equal their plain calls: values, state, random numbers, errors, memory.
//! Symbolic sizes equal literal ones.

#[path = "../common/mod.rs"]
mod common;

mod captured_variables;
mod errors;
mod memory;
mod state;
mod training;
mod values;
mod variables;

use picograd::Tensor;
use std::sync::{Mutex, MutexGuard};

/// The generator and the counters are one for the process, and a capture looks at every tensor that
/// is alive: one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn floats(t: &Tensor) -> Vec<f32> {
    t.to_vec::<f32>().unwrap()
}

/// Numbers in memory.
fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::from_slice(numbers, [numbers.len()]).realize().unwrap()
}
