//! NVIDIA GPUs: CUDA C through NVRTC, run through the driver. Both are libraries that are found at run time.
//!
//! | file | what it holds |
//! |---|---|
//! | `driver` | the functions of the driver |
//! | `nvrtc` | the compiler, and where it is looked for |
//! | `gpu` | a GPU with its stream: order, waiting, what went wrong |
//! | `memory` | buffers, and copies |
//! | `kernel` | modules and launches |
//!
//! **Invariant:** kernels, copies, allocations and frees of one GPU happen in one stream, in the order in which they were asked for. The host waits
//! only where it reads.

mod driver;
mod gpu;
mod kernel;
mod memory;
mod nvrtc;

pub use nvrtc::Nvrtc;

use self::driver::{Driver, number, shown};
use self::gpu::Gpu;
use self::kernel::{Builder, Kernel, Module};
use self::memory::GpuMemory;
use self::nvrtc::KERNEL;
use super::buffer::Memory;
use super::build::{Built, Fresh, Maker, build, build_text, short};
use super::device::{Backend, Executable};
use super::store::{self, Key};
use crate::env;
use crate::error::Result;
use crate::lower::Program;
use crate::render::{Cuda, Renderer};
use crate::target::Target;
use std::sync::Arc;

/// The device.
pub struct CudaDevice {
    builder: Arc<Builder>,
    renderer: Cuda,
    /// For buffers that do not start where vectors have to.
    plain: Cuda,
    about: String,
}

impl CudaDevice {
    /// Opens the GPU of a number, or says what is missing.
    pub fn open(index: usize) -> Result<CudaDevice> {
        let driver = Driver::find()?;
        let gpu = Arc::new(Gpu::open(driver, index)?);
        let nvrtc = Nvrtc::find()?;
        let (major, minor) = (gpu.attribute(number::MAJOR), gpu.attribute(number::MINOR));
        let arch = nvrtc.arch((major * 10 + minor) as u32)?;
        let about = format!(
            "{}, compute capability {major}.{minor}, {:.1} GiB, driver for CUDA {}, NVRTC {}",
            gpu.model(),
            gpu.total() as f64 / (1u64 << 30) as f64,
            shown(driver.version()),
            nvrtc.version
        );
        let config = env::config()?;
        let renderer = Cuda::new(&arch).with_tensor_cores(config.tensor_cores, config.allow_tf32);
        Ok(CudaDevice { plain: renderer.clone().unaligned(), renderer, builder: Arc::new(Builder { gpu, nvrtc, arch }), about })
    }
}

impl Backend for CudaDevice {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        self.about.clone()
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        Ok(Memory::Remote(Box::new(GpuMemory::new(&self.builder.gpu, bytes)?)))
    }
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Ok(self.compile_many(&[program], true)?.swap_remove(0))
    }
    fn compile_many(&self, programs: &[&Program], keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        let built = build(self, programs, keep.then(store::global))?;
        let kernel = |(built, program): (Built<Module>, &&Program)| -> Result<Arc<dyn Executable>> {
            let plain = self.plain.render(short(&program.name), &program.uops)?;
            Ok(Arc::new(Kernel::new(&self.builder, built, &program.name, plain)?))
        };
        built.into_iter().zip(programs).map(kernel).collect()
    }
    fn compile_source(&self, program: &Program, text: &str) -> Result<Arc<dyn Executable>> {
        let built = build_text(self, text.to_string(), &program.name)?;
        Ok(Arc::new(Kernel::new(&self.builder, built, &program.name, text.to_string())?))
    }
    fn synchronize(&self) -> Result<()> {
        self.builder.gpu.synchronize()
    }
}

impl Maker for CudaDevice {
    type Code = Module;
    fn device(&self) -> &str {
        "CUDA"
    }
    fn renderer(&self) -> &dyn Renderer {
        &self.renderer
    }
    fn start(&self) -> &str {
        KERNEL
    }
    /// One text for all: the start of NVRTC takes as long as several small kernels.
    fn division(&self, kernels: usize) -> (usize, usize) {
        (kernels, 1)
    }
    fn key(&self, source: &str) -> Key {
        self.builder.nvrtc.key(source, &self.builder.arch)
    }
    fn make(&self, text: &str, name: &str) -> Result<Fresh<Module>> {
        let object = self.builder.nvrtc.compile(text, name, &self.builder.arch)?;
        Ok((self.builder.load(&object, name)?, Some(object)))
    }
    fn load(&self, object: &[u8], name: &str) -> Result<Module> {
        self.builder.load(object, name)
    }
}
