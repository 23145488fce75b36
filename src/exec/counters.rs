//! What has been run so far in this process.

use std::sync::Mutex;
use std::time::Duration;

/// Totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Kernels run.
    pub kernels: u64,
    /// Copies between devices.
    pub copies: u64,
    /// Arithmetic operations, as estimated from programs.
    pub flops: f64,
    /// Bytes of buffers touched, each counted once per kernel.
    pub bytes: f64,
    /// Time in kernels. A device that runs while the host goes on, as CUDA does, tells it only where `DEBUG` shows kernels.
    pub time: Duration,
    /// Graphs planned.
    pub schedules: u64,
    /// Graphs whose plan was there already.
    pub schedule_hits: u64,
    /// Kernels made ready to run: compiled, or taken from the store on disk.
    pub compiled: u64,
    /// Those of them that came from the store, without a compiler.
    pub from_store: u64,
    /// Kernels for which optimisations were searched by timing.
    pub searched: u64,
}

static COUNTERS: Mutex<Counters> = Mutex::new(Counters {
    kernels: 0,
    copies: 0,
    flops: 0.0,
    bytes: 0.0,
    time: Duration::ZERO,
    schedules: 0,
    schedule_hits: 0,
    compiled: 0,
    from_store: 0,
    searched: 0,
});

/// The totals now.
pub fn counters() -> Counters {
    *COUNTERS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Starts counting from zero.
pub fn reset_counters() {
    *COUNTERS.lock().unwrap_or_else(|e| e.into_inner()) = Counters::default();
}

pub(super) fn count(f: impl FnOnce(&mut Counters)) -> Counters {
    let mut c = COUNTERS.lock().unwrap_or_else(|e| e.into_inner());
    f(&mut c);
    *c
}
