//! OpenCL: every GPU, accelerator and CPU that has a driver for it, through a library that is
//! opened at run time.
//!
//! A device has one context and one in-order queue. Launches do not wait; copies to and from the
//! host do, and run after all earlier launches. With `DEBUG=2` or `PROFILE=1` each launch waits,
//! and its time is measured by the device.

mod api;
mod kernel;
mod memory;

use self::api::{Api, Handle, Owned, check, numbers, text};
use super::allocator::Pool;
use super::backend::{Backend, Purpose, SystemMemory, no_such_device, numbered_name};
use super::buffer::Memory;
use super::module::{Batching, CompiledModule, LoadedModule, ModuleCompiler};
use crate::disk_cache::CacheKey;
use crate::env;
use crate::error::{Error, Result};
use crate::lower::Program;
use crate::render::{OpenCl, Renderer};
use crate::target::{Machine, Target, Tuning};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Kernels per module. PoCL takes 0.22 s for one kernel and 0.25 s for sixteen.
const PER_MODULE: usize = 32;

/// The device.
pub struct Cl {
    shared: Arc<ClContext>,
    renderer: OpenCl,
}

/// The state that the device, its memory and its kernels share.
struct ClContext {
    api: &'static Api,
    /// Its name in errors.
    name: String,
    /// Its description for users.
    label: String,
    /// Platform, device and driver with their versions, and the build options: everything that
    /// determines the binary of a source.
    identity: String,
    options: String,
    device: Device,
    queue: Owned,
    context: Owned,
    /// True if each launch is waited for and timed.
    timed: bool,
    pool: Arc<Pool<Owned>>,
}

/// A device handle, valid for the life of the process.
#[derive(Clone, Copy)]
struct Device(Handle);
// SAFETY: the handle is valid for the life of the process and belongs to no thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Lists the usable devices with their platforms: GPUs first, then accelerators, then CPUs.
fn found(api: &Api) -> Result<Vec<(Handle, Handle)>> {
    let platforms = api.platforms()?;
    let mut list = Vec::new();
    for kinds in [api::DEVICE_TYPE_GPU, api::DEVICE_TYPE_ACCELERATOR, api::DEVICE_TYPE_CPU] {
        for platform in &platforms {
            // A driver that fails does not hide the devices of the others.
            for device in api.devices(*platform, kinds).unwrap_or_default() {
                let says = |what| {
                    api.device_info(device, what).is_ok_and(|b| numbers(&b, 4).first() == Some(&1))
                };
                let usable = [
                    api::DEVICE_AVAILABLE,
                    api::DEVICE_COMPILER_AVAILABLE,
                    api::DEVICE_ENDIAN_LITTLE,
                ]
                .into_iter()
                .all(says);
                if usable && !list.iter().any(|(_, d)| *d == device) {
                    list.push((*platform, device));
                }
            }
        }
    }
    match (platforms.len(), list.len()) {
        (0, _) => {
            Err(Error::Device(format!("OpenCL has no driver on this machine\n{}", api::advice())))
        }
        (n, 0) => Err(Error::Device(format!(
            "OpenCL has {n} drivers and no device that works\n{}",
            api::advice()
        ))),
        _ => Ok(list),
    }
}

impl Cl {
    /// Opens the device with this number.
    pub fn open(index: usize) -> Result<Cl> {
        let api = Api::find()?;
        let list = found(api)?;
        let &(platform, device) =
            list.get(index).ok_or_else(|| no_such_device("CL", index, "OpenCL", list.len()))?;
        let properties = Properties { api, device };
        let of_platform = |what| api.platform_info(platform, what).map(|b| text(&b));
        let (platform, version) =
            (of_platform(api::PLATFORM_NAME)?, of_platform(api::PLATFORM_VERSION)?);
        let model = properties.text(api::DEVICE_NAME)?;
        let driver = properties.text(api::DRIVER_VERSION)?;
        let config = properties.number(api::DEVICE_SINGLE_FP_CONFIG, 8)?;
        // No option lets a compiler change a value. The language version is explicit, because the
        // default differs by driver.
        let mut options = "-cl-std=CL1.2".to_string();
        if config & api::FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0 {
            options += " -cl-fp32-correctly-rounded-divide-sqrt";
        }
        let timed = env::config()?.times_kernels();
        let (context, queue) = open_queue(api, device, timed)?;
        let mut label = format!("{model} by {platform}, driver {driver}");
        for (has, gap) in [
            (properties.has_f64()?, "no f64"),
            (config & api::FP_DENORM != 0, "flushes subnormals"),
            (
                config & api::FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
                "f32 division and square root are not correctly rounded",
            ),
        ] {
            if !has {
                label += &format!(", {gap}");
            }
        }
        if list.len() > 1 {
            label += &format!(", {} of {} devices", index + 1, list.len());
        }
        let name = numbered_name("CL", index);
        let bytes = properties.number(api::DEVICE_GLOBAL_MEM_SIZE, 8)? as usize;
        let shared = ClContext {
            api,
            pool: Pool::new(&name, bytes, Some(bytes)),
            name,
            label,
            identity: [platform, version, model, driver, options.clone()].join("\0"),
            options,
            device: Device(device),
            queue,
            context,
            timed,
        };
        Ok(Cl { shared: Arc::new(shared), renderer: OpenCl::with(properties.target()?) })
    }
}

/// Properties of a device, as its driver reports them.
struct Properties {
    api: &'static Api,
    device: Handle,
}

impl Properties {
    fn text(&self, what: u32) -> Result<String> {
        Ok(text(&self.api.device_info(self.device, what)?))
    }

    /// Returns the first number of a property whose numbers have `width` bytes.
    fn number(&self, what: u32, width: usize) -> Result<u64> {
        let bytes = self.api.device_info(self.device, what)?;
        Ok(numbers(&bytes, width).first().copied().unwrap_or(0))
    }

    fn has_f64(&self) -> Result<bool> {
        let extensions = self.text(api::DEVICE_EXTENSIONS)?;
        Ok(extensions.split_whitespace().any(|e| e == "cl_khr_fp64"))
    }

    /// Returns the machine as the driver reports it. Cache line and warp size have the fixed values
    /// of a GPU: kernels depend on them, and drivers of CPUs report other values.
    fn machine(&self) -> Result<Machine> {
        let cores = self.number(api::DEVICE_MAX_COMPUTE_UNITS, 4)? as usize;
        let cache = self.number(api::DEVICE_GLOBAL_MEM_CACHE_SIZE, 8)? as usize;
        Ok(Machine {
            cores,
            core_shared_bytes: self.number(api::DEVICE_LOCAL_MEM_SIZE, 8)? as usize,
            cache_bytes: [0, cache, 0],
            clock_khz: self.number(api::DEVICE_MAX_CLOCK_FREQUENCY, 4)? as usize * 1000,
            ..Machine::unknown_gpu()
        })
    }

    fn target(&self) -> Result<Target> {
        let common =
            if self.has_f64()? { Target::opencl() } else { Target::opencl().without_f64() };
        let sizes = self.api.device_info(self.device, api::DEVICE_MAX_WORK_ITEM_SIZES)?;
        let sizes = numbers(&sizes, size_of::<usize>());
        let is_cpu = self.number(api::DEVICE_TYPE, 8)? & api::DEVICE_TYPE_CPU != 0;
        let saturating_threads = if is_cpu { 0 } else { common.tuning.saturating_threads };
        let local_max = self.number(api::DEVICE_MAX_WORK_GROUP_SIZE, size_of::<usize>())?;
        let is_64_bit = self.number(api::DEVICE_ADDRESS_BITS, 4)? >= 64;
        Ok(Target {
            machine: self.machine()?,
            tuning: Tuning { saturating_threads, ..common.tuning },
            local_max: common.local_max.min(local_max as usize),
            local_dims: [0, 1, 2].map(|i| sizes.get(i).map_or(1, |n| *n as usize)),
            shared_bytes: self.number(api::DEVICE_LOCAL_MEM_SIZE, 8)? as usize,
            // Sizes are rounded up by an eighth at most.
            buffer_bytes: self.number(api::DEVICE_MAX_MEM_ALLOC_SIZE, 8)? as usize / 9 * 8,
            grid_max: if is_64_bit { common.grid_max } else { [u32::MAX as usize; 3] },
            ..common
        })
    }
}

/// Opens a context of a device with its queue, which measures the time of launches if asked to.
fn open_queue(api: &Api, device: Handle, timed: bool) -> Result<(Owned, Owned)> {
    let mut status = 0;
    // SAFETY: the device is alive; there are no properties and no callback; the status is a local
    // number.
    let context =
        unsafe { (api.clCreateContext)(null(), 1, &device, null(), null_mut(), &mut status) };
    let context = Owned::new("opening a device", (context, status), api.clReleaseContext)?;
    let properties = if timed { api::QUEUE_PROFILING_ENABLE } else { 0 };
    // SAFETY: the context is of this device.
    let queue =
        unsafe { (api.clCreateCommandQueue)(context.handle, device, properties, &mut status) };
    let queue = Owned::new("creating a queue", (queue, status), api.clReleaseCommandQueue)?;
    Ok((context, queue))
}

impl ClContext {
    /// Waits for all launches and copies.
    fn finish_all(&self) -> Result<()> {
        // SAFETY: the queue is alive.
        check("waiting for the queue", unsafe { (self.api.clFinish)(self.queue.handle) })
    }

    /// Submits the queued commands.
    fn flush(&self) -> Result<()> {
        // SAFETY: the queue is alive.
        check("submitting commands", unsafe { (self.api.clFlush)(self.queue.handle) })
    }
}

impl Backend for Cl {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        self.shared.label.clone()
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
        self.shared.finish_all()
    }
}

impl ModuleCompiler for Cl {
    fn label(&self) -> &str {
        "CL"
    }
    fn renderer(&self) -> &dyn Renderer {
        &self.renderer
    }
    fn batching(&self, _kernels: usize) -> Batching {
        Batching { per_module: PER_MODULE, parallel_modules: 1 }
    }
    fn cache_key(&self, source: &str) -> Option<CacheKey> {
        let identity = self.shared.identity.as_bytes();
        Some(CacheKey::of(&[b"opencl binary 1", identity, source.as_bytes()]))
    }
    fn user_module(&self, _: &Program, text: &str) -> Result<String> {
        Ok(text.to_string())
    }
    /// If the driver returns no binary, the text is compiled again in the next process.
    fn compile_module(&self, text: &str, name: &str, _: Purpose) -> Result<CompiledModule> {
        let program = self.shared.built_source(text, name)?;
        let object = self.shared.binary(&program).ok();
        Ok(CompiledModule { loaded: self.module(program), object })
    }
    fn load(&self, object: &[u8], _name: &str) -> Result<Arc<dyn LoadedModule>> {
        Ok(self.module(self.shared.built_binary(object)?))
    }
}

impl Cl {
    fn module(&self, program: Owned) -> Arc<dyn LoadedModule> {
        Arc::new(kernel::ClModule { shared: self.shared.clone(), program })
    }
}

#[cfg(test)]
mod tests;
