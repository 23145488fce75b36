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

/// Serializes the tests: the random generator and the counters are process-wide, and a capture
/// visits every live tensor.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn floats(t: &Tensor) -> Vec<f32> {
    t.to_vec::<f32>().unwrap()
}

/// A realized tensor of these numbers.
fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::from_slice(numbers, [numbers.len()]).realize().unwrap()
}
