//! The CPU device: C through clang or cc, loaded into memory, run on a pool of threads.

use super::buffer::{Memory, Place};
use super::build::joined;
use super::cc::CCompiler;
use super::device::{Backend, Executable};
use super::elf::Code;
use super::memory::HostBuffer;
use super::pool;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::render::{Clang, Renderer};
use crate::target::Target;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The device.
pub struct Cpu {
    compiler: &'static CCompiler,
    renderer: Clang,
}

impl Cpu {
    /// Finds a compiler.
    pub fn open() -> Result<Cpu> {
        let compiler = CCompiler::find()?;
        Ok(Cpu { compiler, renderer: Clang::new(Target::c(pool::threads(), vector_bytes())) })
    }
}

/// Bytes of the widest vector register of this machine.
fn vector_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return 64;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return 32;
        }
    }
    16
}

impl Backend for Cpu {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        let target = self.target();
        format!("{} with {} threads, vectors of {} bytes", self.compiler.version, target.threads, target.vector_bytes)
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        HostBuffer::new(bytes).map(Memory::Host)
    }
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        let source = self.renderer.render(&program.name, &program.uops)?;
        let code = Arc::new(self.compiler.build(&source, &program.name)?);
        Ok(Arc::new(kernel(source, &program.name, &code)?))
    }
    /// One text for all: starting the compiler costs several times what a small kernel does. Such an object is not kept on disk.
    fn compile_many(&self, programs: &[&Program]) -> Result<Vec<Arc<dyn Executable>>> {
        let (text, names) = joined(&self.renderer, "static", programs)?;
        let object = self.compiler.compile(&text, "many")?;
        let code = Arc::new(Code::load(&object)?);
        names.into_iter().map(|(name, source)| Ok(Arc::new(kernel(source, &name, &code)?) as Arc<dyn Executable>)).collect()
    }
}

/// The kernel of a name in an object.
fn kernel(source: String, name: &str, code: &Arc<Code>) -> Result<Kernel> {
    let entry = format!("{name}_entry");
    let address = code
        .symbol(&entry)
        .ok_or_else(|| Error::Compile { msg: format!("the compiler's object has no function {entry}"), source_at: None })?;
    // SAFETY: the renderer gives every kernel an entry of this type, and `code` keeps it mapped as long as the function pointer lives.
    let run = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
    Ok(Kernel { source, run, code: code.clone() })
}

/// What the renderer calls `<name>_entry`: the buffers, and the share of the work.
type Entry = unsafe extern "C" fn(*const *mut u8, libc::c_long);

struct Kernel {
    source: String,
    run: Entry,
    /// Keeps the machine code mapped.
    code: Arc<Code>,
}

/// Buffer addresses that the threads of one launch share.
struct Addresses(Vec<*mut u8>);
// SAFETY: the addresses are only read here; what is behind them is divided between the threads by the kernel itself.
unsafe impl Sync for Addresses {}

impl Executable for Kernel {
    fn run(&self, args: &[Place], launch: &Launch) -> Result<Duration> {
        let addresses = args.iter().map(|p| match p.memory {
            Memory::Host(h) => Ok(h.ptr().wrapping_add(p.offset)),
            Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
                Err(Error::Device("a CPU kernel was given memory of another device".into()))
            }
        });
        let addresses = Addresses(addresses.collect::<Result<Vec<_>>>()?);
        let start = Instant::now();
        let share = |i: usize| {
            let addresses = &addresses;
            // SAFETY: every index of the kernel was proven inside the argument of its slot, whose length the executor has checked, or is
            // guarded; different shares write different elements.
            unsafe { (self.run)(addresses.0.as_ptr(), i as libc::c_long) }
        };
        pool::run(launch.threads, &share);
        Ok(start.elapsed())
    }
    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }
    fn machine_code(&self) -> Option<&[u8]> {
        Some(self.code.text())
    }
}
