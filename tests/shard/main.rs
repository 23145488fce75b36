//! Sharded tensors give the results of one device, for every operation and shard axis.

mod api;
mod ops;
mod random;
mod train;

#[path = "../common/mod.rs"]
mod common;

use common::random_numbers;
use picograd::Tensor;
use std::sync::{Mutex, MutexGuard};

/// The names of `n` host devices.
fn devices(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("CPU:{i}")).collect()
}

/// Serializes the tests that seed the process-wide random generator.
fn seeded() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn tensor(shape: &[usize], seed: u64) -> Tensor {
    Tensor::from_slice(&random_numbers(shape.iter().product(), seed), shape).realize().unwrap()
}
