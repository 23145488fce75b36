//! The first run of machine code that nobody has run before, in a process of its own: one that never ends is killed, and one that faults ends only
//! that process.
//!
//! The process is a copy of ours, with our memory as it is now; what a kernel writes there is gone with it. It runs candidate after candidate and says so
//! after each, so that one copy is enough where all are well. Threads do not survive the copy, so the pool runs all shares of a kernel on the one that does.

use crate::lower::Launch;
use crate::runtime::{Executable, Place};
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Which of these come back from a run within so much time each. Where the deadline passes the rest is taken not to.
pub(super) fn survivors(candidates: &[(&dyn Executable, Launch)], places: &[Place], limit: Duration, deadline: Instant) -> Vec<bool> {
    let mut alive = vec![false; candidates.len()];
    let mut next = 0;
    while next < candidates.len() && Instant::now() < deadline {
        next = run_from(candidates, next, places, limit, deadline, &mut alive);
    }
    alive
}

/// Runs candidates from a number on, until one does not come back. Returns the number to go on with.
fn run_from(
    candidates: &[(&dyn Executable, Launch)],
    from: usize,
    places: &[Place],
    limit: Duration,
    deadline: Instant,
    alive: &mut [bool],
) -> usize {
    let Ok((mut reader, mut writer)) = pipe() else { return candidates.len() };
    // SAFETY: the copy runs kernels, writes to the pipe and ends; it takes no lock that another thread may hold: no kernel runs in other threads, because
    // whoever calls this holds the lock under which kernels run, and the system's allocator is made for copies.
    let child = unsafe { libc::fork() };
    if child < 0 {
        // Where the system has no room for a copy nothing can be tried.
        return candidates.len();
    }
    if child == 0 {
        for (executable, launch) in &candidates[from..] {
            // A panic must not leave this block: what is above belongs to the original.
            let run = || executable.run(places, launch).is_ok();
            let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or(false);
            if writer.write_all(&[u8::from(done)]).is_err() {
                break;
            }
        }
        // SAFETY: ends the copy without running anything that belongs to the original.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut next = from;
    while next < candidates.len() {
        let patience = limit.min(deadline.saturating_duration_since(Instant::now()));
        let mut said = [0u8];
        if !readable(&reader, patience) || reader.read_exact(&mut said).is_err() {
            next += 1;
            break;
        }
        alive[next] = said[0] == 1;
        next += 1;
    }
    // SAFETY: the child is ours and has not been waited for, so its number is still its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {}
    }
    next
}

/// Is there something to read, or the end, within this time?
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
