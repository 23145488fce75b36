//! The contract of a backend: the traits that a device implements, and helpers that backends share.

use super::buffer::{Memory, MemoryRef};
use super::memory;
use super::module::ModuleCompiler;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::target::Target;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A device: memory, compilation and launches.
pub trait Backend: Send + Sync {
    /// Returns the capabilities of its kernels.
    fn target(&self) -> &Target;
    /// Describes it in one line: compiler, version, threads.
    fn describe(&self) -> String;
    /// Allocates memory of `bytes` bytes.
    fn allocate(&self, bytes: usize) -> Result<Memory>;
    /// Returns the compiler of its language; `None` if it takes linear programs themselves, by
    /// [`load_program`](Self::load_program).
    fn compiler(&self) -> Option<&dyn ModuleCompiler>;
    /// Returns the compiler of kernels that users write as source text: that of its language,
    /// unless it has none.
    fn source_compiler(&self) -> Option<&dyn ModuleCompiler> {
        self.compiler()
    }
    /// Returns the machine code of a program as text, on a device that generates it without a
    /// compiler.
    fn listing(&self, _program: &Program) -> Option<String> {
        None
    }
    /// Makes a linear program executable, on a device without a compiler: one that assembles
    /// machine code, or interprets.
    fn load_program(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Device(format!("kernel {}: the device takes source text only", program.name)))
    }
    /// Prepares kernels that run many times in this order as one graph launch. `overlap` says
    /// whether two arguments, by their indices, may share memory. `None` if launching the kernels
    /// one by one is as good.
    fn graph(
        &self,
        _kernels: &[GraphKernel],
        _overlap: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Box<dyn Graph>>> {
        Ok(None)
    }
    /// Returns the memory that its allocator holds: the host's, for a device without its own.
    fn memory(&self) -> SystemMemory {
        SystemMemory { held: memory::held_bytes(), limit: Some(memory::limit()) }
    }
    /// Waits until all launches and copies are done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Memory that an allocator takes from the system.
pub struct SystemMemory {
    /// Bytes taken: buffers, rounded up to their size class, and free blocks.
    pub held: usize,
    /// Bytes that it may take at most, if known.
    pub limit: Option<usize>,
}

/// Locks a mutex whose state no panic leaves inconsistent.
pub(in crate::device) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the name of a device in errors: `CL`, `CL:1`.
pub(in crate::device) fn numbered_name(kind: &str, index: usize) -> String {
    if index == 0 { kind.to_string() } else { format!("{kind}:{index}") }
}

/// Returns the error of a device number that does not exist; `api` has `count` devices.
pub(in crate::device) fn no_such_device(
    kind: &str,
    index: usize,
    api: &str,
    count: usize,
) -> Error {
    let devices = match count {
        0 => "no device".to_string(),
        1 => format!("1 device, {kind}"),
        _ => format!("{count} devices, {kind} to {kind}:{}", count - 1),
    };
    Error::Device(format!("there is no {kind}:{index}: {api} has {devices}"))
}

/// A kernel of a [`Graph`].
pub struct GraphKernel<'a> {
    /// The kernel.
    pub executable: &'a Arc<dyn Executable>,
    /// The indices of its arguments among those of the graph.
    pub args: std::ops::Range<usize>,
    /// The arguments that it writes, counted from its first.
    pub writes: &'a [usize],
}

/// Kernels that the driver launches as one unit.
pub trait Graph: Send {
    /// Runs all kernels on the memory of each argument. `launch` returns the launch sizes of a
    /// kernel, which may depend on variables.
    ///
    /// # Safety
    /// As for [`Executable::run`], for each kernel.
    unsafe fn launch(&mut self, args: &[MemoryRef], launch: &dyn Fn(usize) -> Launch)
    -> Result<()>;
}

/// Addresses of buffers, shared between the threads of a kernel.
pub(crate) struct Addresses(pub Vec<*mut u8>);
// SAFETY: kernels only read the addresses, and their threads write disjoint elements.
unsafe impl Sync for Addresses {}
// SAFETY: an address belongs to no thread.
unsafe impl Send for Addresses {}

impl Addresses {
    /// Returns a pointer to the addresses from `first` on, as a kernel takes them.
    pub fn from(&self, first: usize) -> *const *mut u8 {
        self.0[first..].as_ptr()
    }
}

/// A host kernel: a function of the addresses of its buffers, the number of the chunk, and scratch
/// memory, of which each thread has its own. The bytes that it needs are in
/// [`Launch::scratch`]. Machine code has the calling convention of Linux on every system.
#[cfg(target_arch = "x86_64")]
pub type HostFunction = unsafe extern "sysv64" fn(*const *mut u8, i64, *mut u8);
/// A host kernel: a function of the addresses of its buffers, the number of the chunk, and scratch
/// memory, of which each thread has its own. The bytes that it needs are in
/// [`Launch::scratch`].
#[cfg(not(target_arch = "x86_64"))]
pub type HostFunction = unsafe extern "C" fn(*const *mut u8, i64, *mut u8);

/// The purpose of a compilation, which decides whether the disk cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Runs now and in later processes: looked up in the disk cache and stored there.
    Cached,
    /// Timing or comparison of the code that users run. Bypasses the disk cache.
    Measure,
    /// One run. Bypasses the disk cache; the compiler may produce slower code in less time.
    Once,
    /// Source text of a user: cached, and verified if the compiler runs in this process.
    UserText,
}

/// A compiled kernel.
pub trait Executable: Any + Send + Sync {
    /// Runs it on one memory reference per slot, and returns its time. A device that does not wait
    /// for its kernels returns zero, unless `DEBUG=2` or `PROFILE` asks for times.
    ///
    /// # Safety
    /// The kernel was compiled from a program whose indices are proven in bounds or masked, or from
    /// a text whose author guarantees it. The memory of each slot has the length and dtype that the
    /// program declares, is writable if the program writes it, and is not used by anything else
    /// during the run.
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration>;
    /// Runs it, waits until it is done, and returns its time.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        // SAFETY: the caller upholds the contract of `run`.
        unsafe { self.run(args, launch) }
    }
    /// Returns the machine code, if it is in host memory.
    fn machine_code(&self) -> Option<&[u8]> {
        None
    }
    /// Its entry point, if it is host code. The caller upholds the contract of
    /// [`run`](Self::run), and calls it once per thread number.
    fn entry(&self) -> Option<HostFunction> {
        None
    }
}

impl dyn Executable {
    /// Downcasts to the kernel of a backend.
    pub(in crate::device) fn downcast<K: Executable>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}
