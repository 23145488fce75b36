//! Devices: the registry of backends, buffers and allocators, and their host services: compilers,
//! object loader, thread pool.

#[cfg(not(unix))]
compile_error!(
    "picograd builds on Linux and macOS: its host allocator, object loader and disk cache use \
     Unix system calls"
);

mod allocator;
pub(crate) mod backend;
pub mod buffer;
mod cl;
mod counters;
pub mod cuda;
pub mod disk;
pub(crate) mod files;
pub mod host;
pub mod interp;
pub(crate) mod kind;
mod library;
pub(crate) mod limits;
pub mod memory;
#[cfg(target_os = "macos")]
mod metal;
pub(crate) mod module;
mod null;
pub mod profile;
pub mod registry;
pub(crate) mod usage;
#[cfg(feature = "webgpu")]
mod webgpu;

pub(crate) use backend::{Addresses, Graph, GraphKernel, Purpose};
pub use backend::{Executable, HostFunction};
pub(crate) use buffer::Memory;
pub use buffer::{Buffer, MemoryRef};
pub use counters::{Counters, counters, reset_counters};
pub(crate) use counters::{count, count_all, count_plan};
pub use registry::Device;
pub use usage::DeviceMemory;

#[cfg(test)]
pub(crate) mod testing;
