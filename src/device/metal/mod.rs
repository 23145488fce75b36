//! Apple's GPUs, through the system's own Metal, on macOS alone. Kernels are texts in Metal's
//! language, which the system compiles.
//!
//! A device has one in-order queue. Launches do not wait; reads and writes of the host do, because
//! host and GPU share the memory. With `DEBUG=2` or `PROFILE=1` each launch waits, and its time is
//! measured by the GPU.
//!
//! This device compiles for macOS and has not been run; the tests compare the text of its kernels.

mod kernel;
mod memory;

use self::kernel::MetalModule;
use super::allocator::Pool;
use super::backend::{Backend, Purpose, SystemMemory, lock, no_such_device, numbered_name};
use super::buffer::Memory;
use super::module::{CompiledModule, ModuleCompiler};
use crate::error::{Error, Result};
use crate::lower::Program;
use crate::render::{self, Renderer};
use crate::target::Target;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandQueue, MTLCopyAllDevices, MTLDevice,
};
use std::sync::{Arc, Mutex};

// Required for programs without windows: they find no device otherwise.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// Maximum number of launches in flight. A Metal queue accepts 64.
const MAX_PENDING: usize = 48;

/// The device.
pub struct MetalDevice {
    shared: Arc<MetalContext>,
    renderer: render::Metal,
    about: String,
}

/// The part of a device that its memory and kernels share.
struct MetalContext {
    /// Its name in errors.
    name: String,
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// Launches that were not waited for, the oldest first.
    pending: Mutex<Vec<Pending>>,
    pool: Arc<Pool<memory::MetalBlock>>,
}

/// A launch that was handed over, with the kernel's name.
struct Pending {
    commands: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    kernel: Arc<str>,
}
// SAFETY: every thread may wait for committed commands and read their status.
unsafe impl Send for Pending {}

impl Pending {
    /// Waits until it is done, and returns its error.
    fn finish(&self, device: &str) -> Result<()> {
        self.commands.waitUntilCompleted();
        if self.commands.status() != MTLCommandBufferStatus::Error {
            return Ok(());
        }
        let why = self.commands.error().map_or_else(
            || "no reason given".to_string(),
            |e| e.localizedDescription().to_string(),
        );
        Err(Error::Device(format!("{device}: kernel {}: {why}", self.kernel)))
    }
}

impl MetalContext {
    /// Records a launch, and waits for the oldest if there are too many.
    fn add_pending(&self, launch: Pending) -> Result<()> {
        let mut pending = lock(&self.pending);
        pending.push(launch);
        if pending.len() > MAX_PENDING { pending.remove(0).finish(&self.name) } else { Ok(()) }
    }

    /// Waits for all launches. The first failure is the error.
    fn finish(&self) -> Result<()> {
        let pending = std::mem::take(&mut *lock(&self.pending));
        let ends: Vec<Result<()>> = pending.iter().map(|p| p.finish(&self.name)).collect();
        ends.into_iter().collect()
    }
}

impl MetalDevice {
    /// Opens the GPU with this number.
    pub fn open(index: usize) -> Result<MetalDevice> {
        let list = MTLCopyAllDevices();
        let device = list
            .iter()
            .nth(index)
            .ok_or_else(|| no_such_device("METAL", index, "Metal", list.len()))?;
        let name = numbered_name("METAL", index);
        let queue = device
            .newCommandQueue()
            .ok_or_else(|| Error::Device(format!("{name}: cannot create a command queue")))?;
        let (common, threads) = (Target::metal(), device.maxThreadsPerThreadgroup());
        let target = Target {
            local_dims: [threads.width, threads.height, threads.depth],
            local_max: common.local_max.min(threads.width),
            shared_bytes: device.maxThreadgroupMemoryLength(),
            buffer_bytes: device.maxBufferLength(),
            ..common
        };
        let total = usize::try_from(device.recommendedMaxWorkingSetSize()).unwrap_or(usize::MAX);
        let about =
            format!("{}, {:.1} GiB, no f64", device.name(), total as f64 / (1u64 << 30) as f64);
        let pool = Pool::new(&name, device.maxBufferLength(), Some(total));
        let renderer = render::Metal::with(target);
        let shared =
            Arc::new(MetalContext { name, device, queue, pending: Mutex::default(), pool });
        Ok(MetalDevice { shared, renderer, about })
    }
}

impl Backend for MetalDevice {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        self.about.clone()
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        Ok(Memory::Remote(Box::new(memory::allocate(&self.shared, bytes)?)))
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        Some(self)
    }
    fn memory(&self) -> SystemMemory {
        self.shared.pool.memory()
    }
    fn synchronize(&self) -> Result<()> {
        self.shared.finish()
    }
}

impl ModuleCompiler for MetalDevice {
    fn label(&self) -> &str {
        "METAL"
    }
    fn renderer(&self) -> &dyn Renderer {
        &self.renderer
    }
    fn user_module(&self, _: &Program, text: &str) -> Result<String> {
        Ok(text.to_string())
    }
    fn compile_module(&self, text: &str, name: &str, _: Purpose) -> Result<CompiledModule> {
        let loaded = Arc::new(MetalModule::new(&self.shared, text, name)?);
        Ok(CompiledModule { loaded, object: None })
    }
}
