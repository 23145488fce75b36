//! The first run of new machine code, in a forked process: one that does not end is killed, and one
//! that faults ends only that process.
//!
//! The forked process has a copy of our memory, so the writes of a kernel are lost with it. It runs
//! one candidate after another and reports after each, so one fork is enough if all succeed.
//! Threads do not survive the fork, so the pool runs all tasks on the remaining one.
//!
//! Where the system has no `fork` (Windows), there is no first run: a kernel that faults or hangs
//! does so in this process.

use crate::device::{Executable, MemoryRef};
use crate::lower::Launch;
use crate::os::{CAN_FORK, Fork};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The result of a candidate's first run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FirstRun {
    /// It ended after this time, on one thread.
    Ended(Duration),
    /// It returned an error or panicked.
    Refused,
    /// It exceeded the time limit, or was not tried because the deadline has passed.
    Slow,
    /// It ended the process.
    Died,
}

/// The report of a run that returned an error or panicked.
const REJECTED: u64 = u64::MAX;

/// Returns the results of the first runs within a time limit. After the deadline no more are tried.
pub(super) fn run_in_fork(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    limit: Duration,
    deadline: Instant,
) -> Vec<FirstRun> {
    if !CAN_FORK {
        return vec![FirstRun::Ended(Duration::ZERO); candidates.len()];
    }
    let mut runs = Vec::new();
    while runs.len() < candidates.len() && Instant::now() < deadline {
        if !run_some(&candidates[runs.len()..], places, limit, deadline, &mut runs) {
            break;
        }
    }
    runs.resize(candidates.len(), FirstRun::Slow);
    runs
}

/// Runs candidates in a forked process until one does not return, and records each result. `false`
/// if nothing can be tried.
fn run_some(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    limit: Duration,
    deadline: Instant,
    runs: &mut Vec<FirstRun>,
) -> bool {
    let Ok((mut reader, writer)) = pipe() else { return false };
    // SAFETY: the copy runs kernels, writes to the pipe and ends; it catches panics. No kernel runs
    // in another thread, as the caller holds the lock under which kernels run. Scratch memory takes
    // the lock of the allocator: if another thread holds it now, the copy is killed at the limit,
    // and the candidate counts as slow.
    let copy = unsafe { Fork::start(|| run_and_report(candidates, places, &writer)) };
    let Ok(copy) = copy else { return false };
    drop(writer);
    for _ in candidates {
        let limit = limit.min(deadline.saturating_duration_since(Instant::now()));
        let run = read_result(&copy, &mut reader, limit);
        runs.push(run);
        if matches!(run, FirstRun::Slow | FirstRun::Died) {
            break;
        }
    }
    true
}

/// Runs the candidates in the forked process, and reports the time of each.
fn run_and_report(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    mut writer: &PipeWriter,
) {
    for (executable, launch) in candidates {
        // A panic must not unwind out of this function: its callers belong to the original.
        // SAFETY: a candidate is made from the kernel of an item that was planned, and the places
        // are as long as its arguments; the copy of the process is alone.
        let run = || unsafe { executable.run(places, launch) }.ok();
        let time = catch_unwind(AssertUnwindSafe(run)).ok().flatten();
        let report = time.map_or(REJECTED, |t| t.as_nanos() as u64);
        if writer.write_all(&report.to_le_bytes()).is_err() {
            break;
        }
    }
}

/// Reads the next report of the forked process.
fn read_result(copy: &Fork, reader: &mut PipeReader, timeout: Duration) -> FirstRun {
    let mut report = [0u8; 8];
    if !copy.reports_within(reader, timeout) {
        return FirstRun::Slow;
    }
    match reader.read_exact(&mut report).map(|()| u64::from_le_bytes(report)) {
        Err(_) => FirstRun::Died,
        Ok(REJECTED) => FirstRun::Refused,
        Ok(nanos) => FirstRun::Ended(Duration::from_nanos(nanos)),
    }
}
