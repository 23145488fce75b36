//! What runs kernels on the host: the C compiler, the loader of its objects, the disk cache of objects, the thread pool, the buffers.

pub mod cc;
pub mod elf;
pub mod memory;
pub mod objcache;
pub mod pool;

#[cfg(test)]
pub(crate) mod testing;
