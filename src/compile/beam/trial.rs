//! The first run of new machine code, in a forked process: one that does not end is killed, and one
//! that faults ends only that process.
//!
//! The forked process has a copy of our memory, so the writes of a kernel are lost with it. It runs
//! one candidate after another and reports after each, so one fork is enough if all succeed.
//! Threads do not survive the fork, so the pool runs all tasks on the remaining one.

use crate::device::{Executable, MemoryRef};
use crate::lower::Launch;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
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
    // SAFETY: the copy runs kernels, writes to the pipe and ends; it takes no lock that another
    // thread may hold: no kernel runs in other threads, because the caller holds the lock under
    // which kernels run, and the system's allocator works in forked processes.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return false;
    }
    if child == 0 {
        run_and_exit(candidates, places, writer);
    }
    drop(writer);
    for _ in candidates {
        let run =
            read_result(&mut reader, limit.min(deadline.saturating_duration_since(Instant::now())));
        runs.push(run);
        if matches!(run, FirstRun::Slow | FirstRun::Died) {
            break;
        }
    }
    // SAFETY: the child is ours and has not been waited for, so its number is still its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
    true
}

/// Runs the candidates in the forked process, reports the time of each, and ends the process.
fn run_and_exit(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    mut writer: PipeWriter,
) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: sets limits of the copy itself: a fault leaves no file behind, and the copy does not
    // outlive the original.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
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
    // SAFETY: ends the copy without running anything that belongs to the original.
    unsafe { libc::_exit(0) }
}

/// Reads the next report of the forked process.
fn read_result(reader: &mut PipeReader, timeout: Duration) -> FirstRun {
    let mut report = [0u8; 8];
    if !is_readable(reader, timeout) {
        return FirstRun::Slow;
    }
    match reader.read_exact(&mut report).map(|()| u64::from_le_bytes(report)) {
        Err(_) => FirstRun::Died,
        Ok(REJECTED) => FirstRun::Refused,
        Ok(nanos) => FirstRun::Ended(Duration::from_nanos(nanos)),
    }
}

/// Returns true if there is data to read, or the end of the file, within this time.
fn is_readable(file: &impl AsRawFd, timeout: Duration) -> bool {
    let end = Instant::now() + timeout;
    loop {
        let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, or the last millisecond would be spent polling.
        let ms = end.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        // SAFETY: reads and writes one entry, which lives through the call.
        match unsafe { libc::poll(&mut one, 1, i32::try_from(ms).unwrap_or(i32::MAX)) } {
            0 => return false,
            n if n > 0 => return true,
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
}
