//! Errors of users, as values. Every message names the operation, its arguments and, if there is
//! one, the remedy. Bugs of picograd are not here: a broken invariant panics with the pass, the
//! rule and the printed node.

use std::path::{Path, PathBuf};

/// `Result` with [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A mistake of the user, or a failure of a file, a driver or the environment.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes that do not match, or an invalid size.
    #[error("{op}: {msg}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The problem, with the shapes.
        msg: String,
    },
    /// An axis or index outside the tensor.
    #[error("{op}: {msg}")]
    Index {
        /// The operation.
        op: &'static str,
        /// The problem, with the index and the bound.
        msg: String,
    },
    /// A dtype that the operation does not take.
    #[error("{op}: {msg}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The problem, with the dtypes.
        msg: String,
    },
    /// A gradient that cannot be taken.
    #[error("gradient: {0}")]
    Gradient(String),
    /// A captured function that cannot be replayed as it was captured.
    #[error("jit: {0}")]
    Jit(String),
    /// A device that is unknown, absent, or mixed with another.
    #[error("device: {0}")]
    Device(String),
    /// An environment variable with a value that it does not take.
    #[error("environment: {0}")]
    Env(String),
    /// Text IR that does not parse.
    #[error("line {line}: {msg}")]
    Parse {
        /// Line of the text, from 1.
        line: usize,
        /// The problem.
        msg: String,
    },
    /// An `Opt` that does not apply to this kernel: an expected value during search.
    #[error("opt {opt}: {msg}")]
    Opt {
        /// The `Opt`, printed.
        opt: String,
        /// Why it does not apply.
        msg: String,
    },
    /// The compiler of a device refused a kernel, could not be run, or ran too long.
    #[error("compile: {msg}{}", source_note(.source_at.as_deref()))]
    Compile {
        /// The compiler's message.
        msg: String,
        /// The file of the rejected source.
        source_at: Option<PathBuf>,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {msg}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's message.
        msg: String,
    },
    /// A malformed file, or malformed bytes.
    #[error("{at}: {msg}")]
    Format {
        /// The file, or the format of the bytes.
        at: String,
        /// The problem, and its position.
        msg: String,
    },
    /// A state dict that does not match the tensors that it is loaded into.
    #[error("state: {0}")]
    State(String),
    /// Samples that cannot be read or collated, or a data worker that failed.
    #[error("data: {0}")]
    Data(String),
    /// A buffer that does not fit into the memory of a device.
    #[error("out of memory on {device}: {asked} bytes requested, {held} bytes in use")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes requested.
        asked: usize,
        /// Bytes held by picograd on that device at the time.
        held: usize,
    },
}

/// Returns the line that names the file of a rejected source, if there is one.
fn source_note(source_at: Option<&Path>) -> String {
    source_at.map_or_else(String::new, |p| format!("\nthe source is kept at {}", p.display()))
}

impl Error {
    /// Returns a failed compilation without a source to look at.
    pub(crate) fn compile(msg: String) -> Error {
        Error::Compile { msg, source_at: None }
    }

    /// Returns the same error, attributed to the operation that the user called.
    pub(crate) fn of_op(self, op: &'static str) -> Error {
        match self {
            Error::Shape { msg, .. } => Error::Shape { op, msg },
            Error::Index { msg, .. } => Error::Index { op, msg },
            Error::DType { msg, .. } => Error::DType { op, msg },
            other => other,
        }
    }
}

/// The message itself: a `main` that returns an error shows it by `Debug`.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
