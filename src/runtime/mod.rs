//! What runs kernels: devices and buffers, and for the host the C compiler, LLVM, the loader of their objects, the disk cache of objects and the
//! thread pool.

pub mod buffer;
mod build;
pub mod cc;
mod cpu;
pub mod device;
pub mod disk;
pub mod elf;
pub mod interp;
mod interp_device;
pub mod llvm;
pub mod memory;
mod null;
pub mod objcache;
pub mod pool;

pub use buffer::{Buffer, Memory, Place};
pub use device::{Device, Executable};

#[cfg(test)]
pub(crate) mod testing;
