//! What runs kernels: devices and buffers; for the host the C compiler, LLVM, the loader of their
//! objects, the store on disk and the thread pool; for GPUs libraries that are opened at run time;
//! files that are written whole, and files from the network.

mod arch;
mod blocks;
pub mod buffer;
mod build;
pub mod cc;
mod cl;
mod cpu;
pub mod cuda;
pub mod device;
pub mod disk;
pub(crate) mod download;
pub mod elf;
pub(crate) mod files;
pub mod interp;
mod interp_device;
pub(crate) mod json;
mod library;
pub(crate) mod limits;
pub mod llvm;
pub mod memory;
#[cfg(target_os = "macos")]
mod metal;
mod null;
pub mod pool;
pub mod profile;
pub(crate) mod sha256;
pub mod store;
pub(crate) mod usage;
#[cfg(feature = "webgpu")]
mod webgpu;

pub(crate) use buffer::Memory;
pub use buffer::{Buffer, Place};
pub(crate) use device::{Addresses, Call, Graph, Purpose};
pub use device::{Device, Entry, Executable};
pub use usage::DeviceMemory;

#[cfg(test)]
pub(crate) mod testing;
