//! The interpreter of linear programs: the device that all others are compared with, and a memory
//! checker.
//!
//! In: a linear program. [`Interp::compile`] numbers its values and loops once, and [`Interp::run`]
//! executes it on bytes. Workgroups run in lockstep: every thread executes an instruction before
//! any executes the next. Values are raw lanes in one register file.
//!
//! **Invariant:** no program accesses memory outside the buffers that it was given. Every access is
//! checked, and a wrong one is a [`Fault`] that names the node, the buffer, the element and the
//! thread. Shared memory must be written before it is read, and a barrier must be reached by all
//! threads of its workgroup. With [`Options::races`], unordered accesses of different threads are
//! faults too.

mod alu;
mod compile;
pub(super) mod device;
mod machine;
mod shadow;
#[cfg(test)]
mod tests;
mod warp;

use crate::dtype::DType;
use crate::error::Error;
use crate::ir::{SpecialKind, UOp};
use compile::{Instr, Literal, Var};
use std::cell::Cell;
use std::fmt;

/// The bytes of one kernel argument. Two arguments may be the same bytes.
#[derive(Clone, Copy)]
pub struct Memory<'a>(&'a [Cell<u8>]);

impl<'a> Memory<'a> {
    /// Wraps bytes.
    #[cfg(feature = "testing")]
    pub fn new(bytes: &'a mut [u8]) -> Memory<'a> {
        Memory(Cell::from_mut(bytes).as_slice_of_cells())
    }
    /// Wraps `len` bytes at `ptr`. If `len` is 0, the pointer is not read.
    ///
    /// # Safety
    /// For the life of the value the bytes must be allocated and initialized, and nothing may
    /// access them but through `Memory` on this thread.
    pub unsafe fn from_raw(ptr: *mut u8, len: usize) -> Memory<'a> {
        if len == 0 {
            return Memory(&[]);
        }
        // SAFETY: the caller guarantees valid bytes, and a Cell<u8> has the layout of a u8.
        Memory(unsafe { std::slice::from_raw_parts(ptr as *const Cell<u8>, len) })
    }
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns true if it has no bytes.
    #[cfg(feature = "testing")]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The options of a run.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// True if unordered accesses of different threads are faults. It costs memory and time.
    pub races: bool,
    /// Values of the program's variables, by name.
    pub vars: &'a [(&'a str, i64)],
}

/// The extent of each launch dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterpLaunch {
    /// Number of workgroups per dimension.
    pub grid: [usize; 3],
    /// Threads of a workgroup.
    pub local: [usize; 3],
    /// Chunks of a CPU kernel.
    pub chunks: usize,
}

/// The thread of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPosition {
    /// Position of the workgroup.
    pub group: [usize; 3],
    /// Position in the workgroup.
    pub local: [usize; 3],
    /// Chunk of the CPU kernel.
    pub chunk: usize,
}

impl fmt::Display for ThreadPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gidx {:?} lidx {:?} chunk {}", self.group, self.local, self.chunk)
    }
}

/// The location of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultLocation {
    /// The load, store or barrier.
    pub node: String,
    /// The memory, as in "global 0"; empty for a barrier.
    pub buffer: String,
    /// The element, or the first one of a vector.
    pub index: i64,
    /// The thread: for a race the later one, for a barrier one that does not reach it.
    pub thread: ThreadPosition,
}

/// The reason why a program is rejected or stopped: an error in the program or its launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The list is not a linear program.
    #[error("interp: {0}")]
    Form(String),
    /// Buffers, launch or variables do not fit the program.
    #[error("interp: {0}")]
    Launch(String),
    /// An access outside its buffer.
    #[error(
        "interp: out of bounds: element {} (lanes: {lanes}) of {}, which has {len}, by {}, at {}",
        at.index, at.buffer, at.thread, at.node
    )]
    OutOfBounds {
        /// The location.
        at: Box<FaultLocation>,
        /// Elements of the access.
        lanes: usize,
        /// Elements of the buffer.
        len: usize,
    },
    /// A read of shared memory that no thread of the workgroup has written.
    #[error(
        "interp: uninitialized: element {} of {} is read by {} before any thread has written it, \
         at {}",
        .0.index, .0.buffer, .0.thread, .0.node
    )]
    Uninitialized(Box<FaultLocation>),
    /// Unordered accesses of two threads to one element.
    #[error(
        "interp: race: {what} on element {} of {}, the second by {}, at {}",
        at.index, at.buffer, at.thread, at.node
    )]
    Race {
        /// The location.
        at: Box<FaultLocation>,
        /// The two accesses, as in "write after read".
        what: &'static str,
    },
    /// A barrier that some thread of the workgroup does not reach.
    #[error("interp: divergent barrier: {} does not reach {}", .0.thread, .0.node)]
    DivergentBarrier(Box<FaultLocation>),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Device(fault.to_string())
    }
}

/// A kernel argument: its elements.
#[derive(Clone, Copy)]
struct Global {
    dtype: DType,
    len: usize,
}

/// A program ready to run.
pub struct Interp {
    code: Vec<Instr>,
    /// The node of each instruction, for messages.
    nodes: Vec<UOp>,
    consts: Vec<Literal>,
    vars: Vec<Var>,
    globals: Vec<Global>,
    /// Elements of each shared memory.
    shared: Vec<usize>,
    specials: Vec<(SpecialKind, u8, usize)>,
    /// Lanes of all values together, for one thread.
    lanes: usize,
    /// Maximum number of nested loops and masked regions.
    depth: usize,
}

impl Interp {
    /// Verifies a linear program and compiles it to instructions.
    pub fn compile(uops: &[UOp]) -> Result<Interp, Fault> {
        compile::compile(uops)
    }

    /// Returns the launch that the program was compiled for, from its specials.
    pub fn launch(&self) -> InterpLaunch {
        let mut launch = InterpLaunch { grid: [1; 3], local: [1; 3], chunks: 1 };
        for &(kind, dim, extent) in &self.specials {
            match kind {
                SpecialKind::Group => launch.grid[dim as usize] = extent,
                SpecialKind::Local => launch.local[dim as usize] = extent,
                SpecialKind::Thread => launch.chunks = extent,
            }
        }
        launch
    }

    /// Runs on buffers in slot order. The launch must be that of [`launch`](Interp::launch).
    #[cfg(feature = "testing")]
    pub fn run(
        &self,
        bufs: &[Memory<'_>],
        grid: [usize; 3],
        local: [usize; 3],
        chunks: usize,
    ) -> Result<(), Fault> {
        self.run_with(bufs, InterpLaunch { grid, local, chunks }, &Options::default())
    }

    /// Runs with options.
    pub fn run_with(
        &self,
        bufs: &[Memory<'_>],
        launch: InterpLaunch,
        options: &Options<'_>,
    ) -> Result<(), Fault> {
        let made = self.launch();
        // A grid may be smaller than its upper bound if variables determine its size.
        let fits = launch.grid.iter().zip(made.grid).all(|(n, most)| *n <= most);
        if !fits || (launch.local, launch.chunks) != (made.local, made.chunks) {
            return Err(Fault::Launch(format!(
                "launched as {launch:?}, but the program was compiled for {:?}",
                self.launch()
            )));
        }
        if bufs.len() != self.globals.len() {
            return Err(Fault::Launch(format!(
                "{} buffers given to a program that takes {}",
                bufs.len(),
                self.globals.len()
            )));
        }
        for (slot, (m, g)) in bufs.iter().zip(&self.globals).enumerate() {
            let need = g.len.saturating_mul(g.dtype.itemsize());
            if m.len() < need {
                return Err(Fault::Launch(format!(
                    "slot {slot} needs {need} bytes ({} of {}) and was given {}",
                    g.len,
                    g.dtype,
                    m.len()
                )));
            }
        }
        machine::run(self, bufs, launch, options)
    }
}
