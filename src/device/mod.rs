//! Devices: their registry, counters and memory, and [profiles](profile). Internally also buffers,
//! allocators, a directory per backend, and host services: compilers, object loader, thread pool.
//! [`compiler::device`](crate::compiler::device) has what a backend implements.

mod allocator;
pub(crate) mod backend;
mod cl;
mod counters;
pub(crate) mod files;
pub(crate) mod kind;
mod library;
pub(crate) mod limits;
#[cfg(target_os = "macos")]
mod metal;
pub(crate) mod module;
mod null;
pub mod profile;
pub(crate) mod usage;
#[cfg(feature = "webgpu")]
mod webgpu;

// Public for the tests of this repository only.
#[cfg(not(feature = "testing"))]
pub(crate) mod buffer;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod buffer;
#[cfg(not(feature = "testing"))]
pub(crate) mod cuda;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod cuda;
#[cfg(not(feature = "testing"))]
pub(crate) mod disk;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod disk;
#[cfg(not(feature = "testing"))]
pub(crate) mod host;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod host;
#[cfg(not(feature = "testing"))]
pub(crate) mod interp;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod interp;
#[cfg(not(feature = "testing"))]
pub(crate) mod memory;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod memory;
#[cfg(not(feature = "testing"))]
pub(crate) mod registry;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod registry;

pub(crate) use backend::{Addresses, Executable, Graph, GraphKernel, Purpose};
pub(crate) use buffer::{Buffer, Memory, MemoryRef};
pub use counters::{Counters, counters, reset_counters};
pub(crate) use counters::{count, count_all, count_plan};
pub use memory::clear_cache;
pub use registry::Device;
pub use usage::DeviceMemory;

#[cfg(test)]
pub(crate) mod testing;
