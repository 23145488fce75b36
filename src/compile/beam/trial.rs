//! The first run of new machine code, in a forked process: one that does not end is killed, and one
//! that faults ends only that process.
//!
//! The fork has a copy of our memory; writes of a kernel end with it. It runs candidate after
//! candidate and reports after each, so that one fork is enough if all succeed. Threads do not
//! survive the fork, so that the pool runs all tasks on the one that does.

use crate::device::{Executable, MemoryRef};
use crate::lower::Launch;
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The result of a candidate's first run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// It came back after this time, on one thread.
    Back(Duration),
    /// It was refused, or gave up by itself.
    Refused,
    /// It took longer than it may, or was not tried because time is up.
    Slow,
    /// It ended the process.
    Died,
}

/// The description of a run that did not return.
const GAVE_UP: u64 = u64::MAX;

/// The results of the first runs within a time limit. After the deadline the rest is not tried.
pub(super) fn fates(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    limit: Duration,
    deadline: Instant,
) -> Vec<Fate> {
    let mut fates = Vec::new();
    while fates.len() < candidates.len() && Instant::now() < deadline {
        if !run_some(&candidates[fates.len()..], places, limit, deadline, &mut fates) {
            break;
        }
    }
    fates.resize(candidates.len(), Fate::Slow);
    fates
}

/// Runs candidates until one does not return, and records each result. `false` if nothing can be
/// tried.
fn run_some(
    candidates: &[(&dyn Executable, Launch)],
    places: &[MemoryRef],
    limit: Duration,
    deadline: Instant,
    fates: &mut Vec<Fate>,
) -> bool {
    let Ok((mut reader, mut writer)) = pipe() else { return false };
    // SAFETY: the copy runs kernels, writes to the pipe and ends; it takes no lock that another
    // thread may hold: no kernel runs in other threads, because whoever calls this holds the lock
    // under which kernels run, and the system's allocator is made for copies.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return false;
    }
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: sets limits of the copy itself: a fault leaves no file behind, and the copy does
        // not outlive the original.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            #[cfg(target_os = "linux")]
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        for (executable, launch) in candidates {
            // A panic must not leave this block: what is above belongs to the original.
            // SAFETY: a candidate is made from the kernel of an item that was planned, and the
            // places are as long as its arguments; the copy of the process is alone.
            let run = || unsafe { executable.run(places, launch) }.ok();
            let time = catch_unwind(AssertUnwindSafe(run)).ok().flatten();
            let said = time.map_or(GAVE_UP, |t| t.as_nanos() as u64);
            if writer.write_all(&said.to_le_bytes()).is_err() {
                break;
            }
        }
        // SAFETY: ends the copy without running anything that belongs to the original.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    for _ in candidates {
        let patience = limit.min(deadline.saturating_duration_since(Instant::now()));
        let mut said = [0u8; 8];
        let fate = match readable(&reader, patience) {
            false => Fate::Slow,
            true => match reader.read_exact(&mut said).map(|()| u64::from_le_bytes(said)) {
                Err(_) => Fate::Died,
                Ok(GAVE_UP) => Fate::Refused,
                Ok(nanos) => Fate::Back(Duration::from_nanos(nanos)),
            },
        };
        fates.push(fate);
        if matches!(fate, Fate::Slow | Fate::Died) {
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

/// True if there is data to read, or the end, within this time.
fn readable(file: &impl AsRawFd, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let mut one = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, or the last millisecond would be spent asking.
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
