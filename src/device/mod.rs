//! Devices: the registry of backends, buffers and allocators, and what runs on the host for them
//! (compilers, object loader, thread pool).

mod allocator;
pub mod buffer;
mod cl;
mod counters;
pub mod cuda;
pub mod disk;
pub(crate) mod files;
pub mod host;
pub mod interp;
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

pub(crate) use buffer::Memory;
pub use buffer::{Buffer, MemoryRef};
pub use counters::{Counters, counters, reset_counters};
pub(crate) use counters::{count, count_all, count_plan};
pub(crate) use registry::{Addresses, Call, Graph, Purpose};
pub use registry::{Device, Executable, HostFunction};
pub use usage::DeviceMemory;

#[cfg(test)]
pub(crate) mod testing;
