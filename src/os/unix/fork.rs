//! A copy of this process that runs code which may fault or hang.

use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// True if a copy of the process can be started.
pub(crate) const CAN_FORK: bool = true;

/// A forked process, which is killed and waited for when dropped.
pub(crate) struct Fork(libc::pid_t);

impl Fork {
    /// Runs a function in a copy of this process, which then ends. The copy leaves no file behind
    /// if it faults, and does not outlive this process.
    ///
    /// A lock that another thread holds at this time is never released in the copy, which waits for
    /// it until it is killed: the caller limits the time.
    ///
    /// # Safety
    /// The function does not unwind, and reads no memory that another thread is writing.
    pub(crate) unsafe fn start(run: impl FnOnce()) -> io::Result<Fork> {
        // SAFETY: the system's allocator works in forked processes; the caller vouches for the
        // rest.
        match unsafe { libc::fork() } {
            0 => {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: sets limits of the copy itself.
                unsafe {
                    libc::setrlimit(libc::RLIMIT_CORE, &none);
                    #[cfg(target_os = "linux")]
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                }
                run();
                // SAFETY: ends the copy without running anything that belongs to the original.
                unsafe { libc::_exit(0) }
            }
            child if child > 0 => Ok(Fork(child)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns true if its pipe has data to read, or has ended, within this time.
    pub(crate) fn reports_within(&self, pipe: &PipeReader, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        loop {
            let mut one = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // Rounded up, or the last millisecond would be spent polling.
            let ms = end.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            // SAFETY: reads and writes one entry, which lives through the call.
            match unsafe { libc::poll(&mut one, 1, i32::try_from(ms).unwrap_or(i32::MAX)) } {
                0 => return false,
                n if n > 0 => return true,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        // SAFETY: the child is ours and has not been waited for, so its number is still its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            let mut status = 0;
            while libc::waitpid(self.0, &mut status, 0) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}
