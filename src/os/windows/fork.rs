//! Copies of this process, which Windows does not have.

use std::io::{self, ErrorKind, PipeReader};
use std::time::Duration;

/// True if a copy of the process can be started.
pub(crate) const CAN_FORK: bool = false;

/// A copy of this process: there is none.
pub(crate) enum Fork {}

impl Fork {
    /// Returns an error.
    ///
    /// # Safety
    /// The function is not called.
    pub(crate) unsafe fn start(_: impl FnOnce()) -> io::Result<Fork> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Cannot be called.
    pub(crate) fn reports_within(&self, _: &PipeReader, _: Duration) -> bool {
        match *self {}
    }
}
