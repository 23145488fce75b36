//! NVIDIA GPUs: CUDA C, compiled by NVRTC and run by the driver, two libraries that are found at
//! run time.
//!
//! | file | contents |
//! |---|---|
//! | `driver` | the functions of the driver |
//! | `nvrtc` | the compiler, and the search for it |
//! | `gpu` | a GPU with its stream: order, synchronization, errors |
//! | `memory` | buffers, and copies |
//! | `kernel` | modules and launches |
//! | `graph` | graph launches |
//!
//! **Invariant:** kernels, copies, allocations and frees of one GPU are in one stream, in program
//! order. The host waits only to read.

mod driver;
mod gpu;
mod graph;
mod kernel;
mod memory;
mod nvrtc;

pub use nvrtc::Nvrtc;

use self::driver::{Driver, format_version, number};
use self::gpu::Gpu;
use self::graph::CudaGraph;
use self::kernel::Builder;
use self::memory::CudaMemory;
use super::backend::{Backend, Graph, GraphKernel, SystemMemory};
use super::buffer::Memory;
use super::host::arch::NATIVE;
use super::module::ModuleCompiler;
use crate::env;
use crate::error::Result;
use crate::render::{Cuda, Renderer};
use crate::target::Target;
use std::sync::Arc;

/// The device.
pub(crate) struct CudaDevice {
    builder: Arc<Builder>,
    about: String,
}

impl CudaDevice {
    /// Opens the GPU with a number, or returns what is missing. Kernels are compiled for an
    /// architecture such as `sm_80`, or for that of the GPU.
    pub fn open(index: usize, arch: Option<&str>) -> Result<CudaDevice> {
        let driver = Driver::find()?;
        let gpu = Arc::new(Gpu::open(driver, index)?);
        let nvrtc = Nvrtc::find()?;
        let (major, minor) = (gpu.attribute(number::MAJOR), gpu.attribute(number::MINOR));
        let asked = arch.and_then(number_of);
        let arch = nvrtc.arch((major * 10 + minor) as u32, asked)?;
        let code = if asked.is_some() { format!(", code for {arch}") } else { String::new() };
        let about = format!(
            "{}, compute capability {major}.{minor}, {:.1} GiB, driver for CUDA {}, NVRTC {}{code}",
            gpu.model(),
            gpu.total() as f64 / (1u64 << 30) as f64,
            format_version(driver.version()),
            nvrtc.version
        );
        let config = env::config()?;
        let renderer = Cuda::new(&arch)
            .with_tensor_cores(config.tensor_cores, config.allow_tf32)
            .with_machine(gpu.machine());
        Ok(CudaDevice { builder: Arc::new(Builder { gpu, nvrtc, arch, renderer }), about })
    }
}

/// Parses an architecture: `sm_80` is 80.
fn number_of(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.parse().ok()
}

/// Checks the name of an architecture. Opening the GPU shows whether it runs on it.
pub(in crate::device) fn is_arch(name: &str) -> std::result::Result<(), String> {
    if name == NATIVE || number_of(name).is_some() {
        Ok(())
    } else {
        Err("its ARCHs are native and sm_NN, as in sm_80".into())
    }
}

impl Backend for CudaDevice {
    fn target(&self) -> &Target {
        self.builder.renderer.target()
    }
    fn describe(&self) -> String {
        self.about.clone()
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        Ok(Memory::Remote(Box::new(CudaMemory::new(&self.builder.gpu, bytes)?)))
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        Some(&*self.builder)
    }
    fn graph(
        &self,
        kernels: &[GraphKernel],
        meet: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Box<dyn Graph>>> {
        let graph = CudaGraph::new(&self.builder.gpu, kernels, meet);
        Ok(graph.map(|g| Box::new(g) as Box<dyn Graph>))
    }
    fn memory(&self) -> SystemMemory {
        let gpu = &self.builder.gpu;
        SystemMemory { held: gpu.reserved(), limit: Some(gpu.total()) }
    }
    fn synchronize(&self) -> Result<()> {
        self.builder.gpu.synchronize()
    }
}
