//! The CPU device: machine code from LLVM, or from C through clang or cc, loaded into memory, run
//! on a pool of threads.

use super::arch::{Arch, NATIVE};
use super::cc::CCompiler;
use super::code::check_execution;
use super::elf::Code;
use super::llvm::Llvm;
use super::scratch::Scratch;
use super::{machine, platform, pool};
use crate::device::backend::{Addresses, Backend, Executable, HostFunction, Purpose};
use crate::device::buffer::{Memory, MemoryRef};
use crate::device::memory::HostBuffer;
use crate::device::module::{Batching, CompiledModule, KernelInfo, LoadedModule, ModuleCompiler};
use crate::disk_cache::CacheKey;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::render::{self, Clang, Renderer};
use crate::target::Target;
use std::env::consts::{ARCH, OS};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The device.
pub struct Cpu {
    compiler: Compiler,
    renderer: Box<dyn Renderer>,
}

/// The compiler from text to machine code.
enum Compiler {
    C(CCompiler),
    Llvm(&'static Llvm),
}

impl Cpu {
    /// Compiles C, if there is a compiler, for the CPU of a name or for this one.
    pub fn clang(arch: Option<&str>) -> Result<Cpu> {
        platform::check_clang(ARCH, OS).and_then(|_| check_execution()).map_err(Error::Device)?;
        let arch = Arch::find(arch)?;
        let common = Target::c(arch.vector_bytes);
        let machine = machine::detect(arch.vector_bytes);
        let target = Target { fma: arch.fma, machine, ..common };
        Ok(Cpu {
            compiler: Compiler::C(CCompiler::find()?.for_cpu(arch.name)),
            renderer: Box::new(Clang::new(target)),
        })
    }

    /// Compiles LLVM IR, if there is a library.
    pub fn llvm(arch: Option<&str>) -> Result<Cpu> {
        platform::check_llvm(ARCH, OS).and_then(|_| check_execution()).map_err(Error::Device)?;
        let arch = Arch::find(arch)?;
        let common = Target::llvm(arch.vector_bytes);
        let machine = machine::detect(arch.vector_bytes);
        let target = Target { fma: arch.fma, machine, ..common };
        Ok(Cpu {
            compiler: Compiler::Llvm(Llvm::find()?.for_cpu(arch.name)),
            renderer: Box::new(if cfg!(target_arch = "aarch64") {
                render::Llvm::for_arm64(target)
            } else {
                render::Llvm::new(target)
            }),
        })
    }
}

impl Backend for Cpu {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        let target = self.target();
        let compiler = match &self.compiler {
            Compiler::C(c) if c.cpu == NATIVE => c.version.clone(),
            Compiler::C(c) => format!("{} for {}", c.version, c.cpu),
            Compiler::Llvm(l) => format!("LLVM {} for {}", l.version, l.cpu),
        };
        format!("{compiler}, vectors of {} bytes, {}", target.vector_bytes, pool::describe())
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        HostBuffer::new(bytes).map(Memory::Host)
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        Some(self)
    }
}

/// Maximum number of kernels per call of the C compiler.
const MAX_PER_MODULE: usize = 32;

impl ModuleCompiler for Cpu {
    fn label(&self) -> &str {
        match self.compiler {
            Compiler::C(_) => "CPU:CLANG",
            Compiler::Llvm(_) => "CPU:LLVM",
        }
    }
    fn renderer(&self) -> &dyn Renderer {
        &*self.renderer
    }
    /// Starting a C compiler costs several times as much as compiling a small kernel; LLVM runs in
    /// this process.
    fn batching(&self, kernels: usize) -> Batching {
        let threads = pool::threads();
        let per_module = match self.compiler {
            Compiler::C(_) => kernels.div_ceil(threads).clamp(1, MAX_PER_MODULE),
            Compiler::Llvm(_) => 1,
        };
        Batching { per_module, parallel_modules: threads }
    }
    fn cache_key(&self, source: &str) -> Option<CacheKey> {
        Some(match &self.compiler {
            Compiler::C(c) => c.key(source),
            Compiler::Llvm(l) => l.key(source),
        })
    }
    fn compile_module(&self, text: &str, name: &str, purpose: Purpose) -> Result<CompiledModule> {
        let object = match &self.compiler {
            Compiler::C(c) if purpose == Purpose::Once => c.quick().compile(text, name),
            Compiler::C(c) => c.compile(text, name),
            Compiler::Llvm(l) => l.compile_text(text, name, purpose == Purpose::UserText),
        }?;
        Ok(CompiledModule { loaded: self.load(&object, name)?, object: Some(object) })
    }
    fn load(&self, object: &[u8], _name: &str) -> Result<Arc<dyn LoadedModule>> {
        Ok(Arc::new(Code::load(object)?))
    }
    /// C gets a wrapper that calls the function with the buffers and the number of the chunk; a
    /// text for LLVM has its own.
    fn user_module(&self, program: &Program, text: &str) -> Result<String> {
        let name = &program.name;
        Ok(match self.compiler {
            Compiler::C(_) => {
                let args: String =
                    (0..program.args.len()).map(|i| format!("bufs[{i}], ")).collect();
                format!(
                    "{text}\nvoid {name}_entry(void* const* bufs, long chunk, void* scratch) {{ \
                     {name}({args}chunk); }}\n"
                )
            }
            Compiler::Llvm(_) => text.to_string(),
        })
    }
}

impl LoadedModule for Code {
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>> {
        let entry = format!("{}_entry", kernel.symbol);
        let address = self.symbol(&entry).ok_or_else(|| {
            Error::compile(format!("the compiler's object has no function {entry}"))
        })?;
        // SAFETY: every kernel has an entry of this type, from the renderer or `user_module`, and
        // `code` keeps it mapped as long as the function pointer lives.
        let run = unsafe { std::mem::transmute::<*const u8, HostFunction>(address) };
        Ok(Arc::new(HostKernel { run, code: self }))
    }
}

struct HostKernel {
    run: HostFunction,
    /// Keeps the machine code mapped.
    code: Arc<Code>,
}

impl Executable for HostKernel {
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        // SAFETY: the caller upholds the contract, which is that of the function.
        unsafe { run_on_pool(self.run, args, launch) }
    }
    fn machine_code(&self) -> Option<&[u8]> {
        Some(self.code.text())
    }
    /// Returns the function that the renderer calls `<name>_entry`.
    fn entry(&self) -> Option<HostFunction> {
        Some(self.run)
    }
}

/// Runs a host kernel on the threads of the pool, and returns its time.
///
/// # Safety
/// As for [`Executable::run`].
pub(super) unsafe fn run_on_pool(
    function: HostFunction,
    args: &[MemoryRef],
    launch: &Launch,
) -> Result<Duration> {
    let addresses = args.iter().map(|p| match p.memory {
        Memory::Host(h) => Ok(h.ptr().wrapping_add(p.offset)),
        Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
            Err(Error::Device("a CPU kernel was given memory of another device".into()))
        }
    });
    let addresses = Addresses(addresses.collect::<Result<Vec<_>>>()?);
    let scratch = Scratch::new(launch.scratch, launch.chunks)?;
    let start = Instant::now();
    let chunk = |i: usize, thread: usize| {
        // SAFETY: every index of the kernel is masked or proven in bounds of the argument of
        // its slot, whose length the executor has checked; different chunks write different
        // elements. The block of the thread has the bytes that the kernel needs.
        unsafe { function(addresses.from(0), i as i64, scratch.of(thread)) }
    };
    pool::run(launch.chunks, &chunk);
    Ok(start.elapsed())
}
