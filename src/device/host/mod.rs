//! The CPU backends: compilers, the loader of their objects, the thread pool and its scratch
//! memory.

pub(super) mod arch;
pub mod cc;
pub mod code;
mod cores;
pub(super) mod cpu;
mod cpuid;
pub mod elf;
pub mod llvm;
mod machine;
pub(in crate::device) mod platform;
pub mod pool;
pub mod scratch;
pub(super) mod x86;
