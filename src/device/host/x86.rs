//! The CPU device whose kernels are assembled in this process: no compiler, no library, no file.
//!
//! **Invariant:** code uses only instructions that this CPU has.

use super::arch::{self, Arch};
use super::code::{NativeCode, check_execution};
use super::cpu::{Cpu, run_on_pool};
use super::{machine, platform, pool};
use crate::codegen::{Assembled, Isa, Level, assemble};
use crate::device::backend::{Backend, Executable, HostFunction};
use crate::device::buffer::{Memory, MemoryRef};
use crate::device::memory::HostBuffer;
use crate::device::module::ModuleCompiler;
use crate::env;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::target::Target;
use std::env::consts::ARCH;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The device.
pub struct X86 {
    target: Target,
    isa: Isa,
    arch: Option<String>,
    /// The C compiler, for kernels that users write as source text.
    source: OnceLock<Option<Cpu>>,
}

impl X86 {
    /// Opens the device for the CPU of a name or for this one, and runs an empty kernel.
    pub fn open(name: Option<&str>) -> Result<X86> {
        platform::check_x86(ARCH).map_err(Error::Device)?;
        let arch = Arch::find(name)?;
        let isa = isa(&arch);
        let bytes = isa.vector_bytes();
        let target = Target {
            fma: isa.level >= Level::V3,
            machine: machine::detect(bytes),
            ..Target::x86(bytes)
        };
        check_execution().map_err(Error::Device)?;
        run_empty_kernel(isa).map_err(|why| Error::Device(format!("no code can be run: {why}")))?;
        Ok(X86 { target, isa, arch: name.map(str::to_string), source: OnceLock::new() })
    }
}

/// Returns the instructions of an architecture.
fn isa(arch: &Arch) -> Isa {
    if arch.name == arch::NATIVE {
        return arch::native_isa();
    }
    let level = Level::ALL.into_iter().find(|l| l.name() == arch.name);
    Isa::of(level.unwrap_or(Level::V1))
}

/// Assembles and runs a kernel that does nothing.
fn run_empty_kernel(isa: Isa) -> std::result::Result<(), String> {
    let kernel = assemble("empty", &[], isa, false, None).map_err(|e| e.to_string())?;
    let code = NativeCode::load(&kernel)?;
    // SAFETY: the program has no nodes, so that the function returns at once.
    unsafe { function(&code)(std::ptr::null(), 0, std::ptr::null_mut()) };
    Ok(())
}

/// Returns the entry of a kernel.
///
/// # Safety
/// The code was assembled from a program whose indices are proven in bounds or masked.
unsafe fn function(code: &NativeCode) -> HostFunction {
    // SAFETY: every assembled kernel is a function of this type.
    unsafe { std::mem::transmute::<*const u8, HostFunction>(code.entry()) }
}

impl Backend for X86 {
    fn target(&self) -> &Target {
        &self.target
    }
    fn describe(&self) -> String {
        format!(
            "assembles for {}, vectors of {} bytes, {}",
            self.isa.describe(),
            self.target.vector_bytes,
            pool::describe()
        )
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        HostBuffer::new(bytes).map(Memory::Host)
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        None
    }
    fn source_compiler(&self) -> Option<&dyn ModuleCompiler> {
        let open = || Cpu::clang(self.arch.as_deref()).ok();
        self.source.get_or_init(open).as_ref().map(|cpu| cpu as &dyn ModuleCompiler)
    }
    fn load_program(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        let verify = cfg!(debug_assertions) || env::config()?.verify;
        let kernel = assemble(&program.name, &program.uops, self.isa, verify, None)?;
        let code = load(&program.name, &kernel)?;
        // SAFETY: the executor runs only programs that are proven safe.
        let run = unsafe { function(&code) };
        Ok(Arc::new(X86Kernel { run, code }))
    }
    fn listing(&self, program: &Program) -> Option<String> {
        let rates = &self.target.machine.rates;
        assemble(&program.name, &program.uops, self.isa, false, Some(rates)).ok()?.listing
    }
}

fn load(name: &str, kernel: &Assembled) -> Result<NativeCode> {
    NativeCode::load(kernel).map_err(|why| Error::compile(format!("kernel {name}: {why}")))
}

struct X86Kernel {
    run: HostFunction,
    /// Keeps the machine code mapped.
    code: NativeCode,
}

impl Executable for X86Kernel {
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        // SAFETY: the caller upholds the contract, which is that of the function.
        unsafe { run_on_pool(self.run, args, launch) }
    }
    fn machine_code(&self) -> Option<&[u8]> {
        Some(self.code.text())
    }
    fn entry(&self) -> Option<HostFunction> {
        Some(self.run)
    }
}
