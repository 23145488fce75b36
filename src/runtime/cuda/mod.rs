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
use self::kernel::{Builder, Kernel};
use self::memory::GpuMemory;
use self::nvrtc::KERNEL;
use super::buffer::Memory;
use super::build::joined;
use super::device::{Backend, Executable};
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
        let renderer = Cuda::new(&arch);
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
        let name = &program.name;
        let source = self.renderer.render(name, &program.uops)?;
        let plain = self.plain.render(name, &program.uops)?;
        let module = self.builder.build(&source, name)?;
        Ok(Arc::new(Kernel::new(&self.builder, &module, name, source, plain)?))
    }
    /// One text for all: the start of NVRTC takes as long as several small kernels. Such code is not kept on disk.
    fn compile_many(&self, programs: &[&Program], _keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        let (text, names) = joined(&self.renderer, KERNEL, programs)?;
        let module = self.builder.load(&self.builder.nvrtc.compile(&text, "many", &self.builder.arch)?, "many")?;
        let kernel = |((name, source), program): ((String, String), &&Program)| -> Result<Arc<dyn Executable>> {
            let plain = self.plain.render(&name, &program.uops)?;
            Ok(Arc::new(Kernel::new(&self.builder, &module, &name, source, plain)?))
        };
        names.into_iter().zip(programs).map(kernel).collect()
    }
    fn compile_source(&self, program: &Program, text: &str) -> Result<Arc<dyn Executable>> {
        let module = self.builder.build(text, &program.name)?;
        Ok(Arc::new(Kernel::new(&self.builder, &module, &program.name, text.to_string(), text.to_string())?))
    }
    fn synchronize(&self) -> Result<()> {
        self.builder.gpu.synchronize()
    }
}
