//! The device that runs no kernels: they are lowered and rendered as for the CPU or a GPU, and
//! dropped. It needs no driver, and serves to measure the compiler and to inspect kernels:
//! `DEV=NULL:CUDA DEBUG=4`.

use super::backend::{Backend, Executable, Purpose, SystemMemory};
use super::buffer::{Memory, MemoryRef};
use super::module::{CompiledModule, KernelInfo, LoadedModule, ModuleCompiler};
use crate::codegen::{Isa, Level, assemble};
use crate::env;
use crate::error::Result;
use crate::lower::{Launch, Program};
use crate::render::{Clang, Cuda, Llvm, Metal, OpenCl, Renderer, Wgsl};
use crate::target::Target;
use std::sync::Arc;
use std::time::Duration;

/// The device.
pub struct Null {
    renderer: Box<dyn Renderer>,
    language: &'static str,
}

impl Null {
    /// Creates the device, which is always available. Its target does not depend on the machine, so
    /// that figures are comparable.
    fn of(renderer: impl Renderer + 'static, language: &'static str) -> Arc<dyn Backend> {
        Arc::new(Null { renderer: Box::new(renderer), language })
    }
    /// Renders C for a CPU.
    pub fn c() -> Arc<dyn Backend> {
        Null::of(Clang::new(Target::c(64)), "C")
    }
    /// Renders LLVM IR for a CPU.
    pub fn llvm() -> Arc<dyn Backend> {
        Null::of(Llvm::new(Target::llvm(64)), "LLVM IR")
    }
    /// Renders CUDA C.
    pub fn cuda() -> Arc<dyn Backend> {
        Null::of(Cuda::new("sm_90"), "CUDA C")
    }
    /// Renders OpenCL C.
    pub fn opencl() -> Arc<dyn Backend> {
        Null::of(OpenCl::new(), "OpenCL C")
    }
    /// Renders Metal Shading Language.
    pub fn metal() -> Arc<dyn Backend> {
        Null::of(Metal::new(), "Metal Shading Language")
    }
    /// Renders WGSL.
    pub fn wgsl() -> Arc<dyn Backend> {
        Null::of(Wgsl::new(), "WGSL")
    }
}

impl Backend for Null {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        format!("lowers and renders {}, runs nothing", self.language)
    }
    fn allocate(&self, _bytes: usize) -> Result<Memory> {
        Ok(Memory::Null)
    }
    fn memory(&self) -> SystemMemory {
        SystemMemory { held: 0, limit: None }
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        Some(self)
    }
}

impl ModuleCompiler for Null {
    fn label(&self) -> &str {
        "NULL"
    }
    fn renderer(&self) -> &dyn Renderer {
        &*self.renderer
    }
    fn compile_module(&self, _: &str, _: &str, _: Purpose) -> Result<CompiledModule> {
        Ok(CompiledModule { loaded: Arc::new(NullKernel), object: None })
    }
}

/// The device that assembles kernels for x86-64 and drops them. It works on every host.
pub struct NullX86(Target);

impl NullX86 {
    /// Creates the device, for the highest level.
    pub fn new() -> NullX86 {
        NullX86(Target::x86(Level::V4.vector_bytes()))
    }
}

impl Backend for NullX86 {
    fn target(&self) -> &Target {
        &self.0
    }
    fn describe(&self) -> String {
        "lowers and assembles machine code for x86-64-v4, runs nothing".into()
    }
    fn allocate(&self, _bytes: usize) -> Result<Memory> {
        Ok(Memory::Null)
    }
    fn memory(&self) -> SystemMemory {
        SystemMemory { held: 0, limit: None }
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        None
    }
    fn load_program(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        let verify = env::config()?.verify;
        assemble(&program.name, &program.uops, Isa::of(Level::V4), verify, None)?;
        Ok(Arc::new(NullKernel))
    }
    fn listing(&self, program: &Program) -> Option<String> {
        let (isa, rates) = (Isa::of(Level::V4), &self.target().machine.rates);
        assemble(&program.name, &program.uops, isa, false, Some(rates)).ok()?.listing
    }
}

struct NullKernel;

impl LoadedModule for NullKernel {
    fn kernel(self: Arc<Self>, _: KernelInfo) -> Result<Arc<dyn Executable>> {
        Ok(self)
    }
}

impl Executable for NullKernel {
    unsafe fn run(&self, _args: &[MemoryRef], _launch: &Launch) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}
