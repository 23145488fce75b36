//! WebGPU, through the crate `wgpu`: Vulkan, Metal or Direct3D 12, whichever the machine has, with
//! kernels in WGSL. It is built with `--features webgpu`.
//!
//! A device has one in-order queue. Launches do not wait; reads do, and run after all earlier
//! launches. With `DEBUG=2` each launch waits, and its time is measured by the device if it has a
//! clock. An error of `wgpu` becomes an [`Error`] that names the operation.

mod kernel;
mod memory;

use super::allocator::Pool;
use super::backend::{
    Backend, Executable, Purpose, SystemMemory, lock, no_such_device, numbered_name,
};
use super::buffer::Memory;
use super::module::{CompiledModule, KernelInfo, LoadedModule, ModuleCompiler};
use crate::env;
use crate::error::{Error, Result};
use crate::render::{Fma, Renderer, Wgsl};
use crate::target::{Target, Tuning};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use wgpu::{
    Adapter, Backends, DeviceType, ErrorFilter, Features, Instance, InstanceDescriptor,
    InstanceFlags, PollType,
};

/// Start offsets of buffers that a binding cannot express.
type Starts = Vec<i32>;

/// The device.
pub struct WebGpu {
    shared: Arc<WebGpuContext>,
    renderer: Wgsl,
}

/// The part of a device that its memory and kernels share.
struct WebGpuContext {
    /// Its name in errors.
    name: String,
    /// Its description for users.
    label: String,
    device: wgpu::Device,
    queue: wgpu::Queue,
    /// Why the device is gone, once it is.
    lost: Arc<Mutex<Option<String>>>,
    /// True if each launch is waited for and timed.
    timed: bool,
    /// The clock of the device, if it has one and launches are timed.
    clock: Option<kernel::Clock>,
    /// Uniforms with the start offsets of buffers: mostly zero, so that there are few.
    starts: Mutex<Vec<(Starts, wgpu::Buffer)>>,
    pool: Arc<Pool<wgpu::Buffer>>,
}

/// Returns the result of a future. Those of `wgpu` are ready at once, or after a poll.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Returns every adapter that runs kernels: GPUs first, then software adapters.
fn found() -> Result<Vec<Adapter>> {
    let mut wanted = InstanceDescriptor::new_without_display_handle();
    wanted.backends = Backends::VULKAN | Backends::METAL;
    // Validation layers are for authors of drivers.
    wanted.flags = InstanceFlags::empty();
    let instance = Instance::new(wanted);
    let rank = |a: &Adapter| match a.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    };
    let mut list = wait(instance.enumerate_adapters(Backends::all()));
    list.sort_by_key(rank);
    if list.is_empty() {
        let advice = "a GPU needs its driver for Vulkan; `apt install mesa-vulkan-drivers` gives \
                      any machine one on its CPU";
        return Err(Error::Device(format!(
            "there is no adapter for WebGPU on this machine\n{advice}"
        )));
    }
    Ok(list)
}

impl WebGpu {
    /// Opens the device with this number.
    pub fn open(index: usize) -> Result<WebGpu> {
        let list = found()?;
        let adapter =
            list.get(index).ok_or_else(|| no_such_device("WEBGPU", index, "WebGPU", list.len()))?;
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let timed = env::config()?.times_kernels();
        let clock = if timed { Features::TIMESTAMP_QUERY } else { Features::empty() };
        let features = adapter.features() & (Features::SHADER_INT64 | Features::SHADER_F64 | clock);
        let wanted = wgpu::DeviceDescriptor {
            label: None,
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = wait(adapter.request_device(&wanted))
            .map_err(|e| Error::Device(format!("{} for WebGPU: {e}", info.name)))?;
        let lost = record_loss(&device);
        let binding = limits.max_storage_buffer_binding_size as usize;
        let longs = features.contains(Features::SHADER_INT64);
        let target = target(&limits, info.device_type == DeviceType::Cpu, longs);
        let which = if list.len() > 1 {
            format!(", {} of {} adapters", index + 1, list.len())
        } else {
            String::new()
        };
        let gaps = if longs { ", no f64" } else { ", no f64, i64 and u64" };
        let name = numbered_name("WEBGPU", index);
        let shared = WebGpuContext {
            label: format!("{} by {} ({}){gaps}{which}", info.name, info.backend, info.driver_info),
            clock: features
                .contains(Features::TIMESTAMP_QUERY)
                .then(|| kernel::Clock::new(&device, &queue)),
            // Adapters do not report the size of their memory.
            pool: Pool::new(&name, memory::whole_words(limits.max_buffer_size as usize), None),
            name,
            device,
            queue,
            lost,
            timed,
            starts: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let renderer =
            |fma| Wgsl::with(Target { fma: fma == Fma::Native, ..target.clone() }, binding, fma);
        let fma = match kernel::has_fused_fma(&shared, &renderer(Fma::Native))? {
            true => Fma::Native,
            false if features.contains(Features::SHADER_F64) => Fma::Doubles,
            false => Fma::Integers,
        };
        Ok(WebGpu { shared, renderer: renderer(fma) })
    }
}

/// Records why a device is lost. Errors outside of an error scope count as a loss, so that the next
/// call returns them.
fn record_loss(device: &wgpu::Device) -> Arc<Mutex<Option<String>>> {
    let lost = Arc::new(Mutex::new(None));
    let (on_loss, on_error) = (lost.clone(), lost.clone());
    device.set_device_lost_callback(move |_, why| *lock(&on_loss) = Some(why));
    device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
        *lock(&on_error) = Some(e.to_string())
    }));
    lost
}

/// Returns the target of an adapter with these limits; `longs` says whether it has 64-bit integers.
fn target(limits: &wgpu::Limits, is_cpu: bool, longs: bool) -> Target {
    let common = if longs { Target::wgsl() } else { Target::wgsl().without_64_bits() };
    let saturating_threads = if is_cpu { 0 } else { common.tuning.saturating_threads };
    Target {
        tuning: Tuning { saturating_threads, ..common.tuning },
        local_max: common.local_max.min(limits.max_compute_invocations_per_workgroup as usize),
        local_dims: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ]
        .map(|n| n as usize),
        shared_bytes: limits.max_compute_workgroup_storage_size as usize,
        max_buffers: limits.max_storage_buffers_per_shader_stage as usize,
        // A buffer may begin inside the bytes that bindings are aligned to, and pieces are powers
        // of two.
        buffer_bytes: (1 << limits.max_storage_buffer_binding_size.ilog2()) - kernel::ALIGN,
        ..common
    }
}

impl WebGpuContext {
    /// Calls a function, and returns the error that `wgpu` reports for it.
    fn caught<T>(&self, f: impl FnOnce() -> T) -> std::result::Result<T, wgpu::Error> {
        let filters = [ErrorFilter::Internal, ErrorFilter::OutOfMemory, ErrorFilter::Validation];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = f();
        let mut errors = Vec::new();
        for scope in scopes.into_iter().rev() {
            errors.extend(wait(scope.pop()));
        }
        errors.into_iter().next().map_or(Ok(result), Err)
    }

    /// Calls a function, and turns any failure into an error of the device; `what` names the
    /// operation.
    fn checked<T>(&self, what: &dyn Fn() -> String, f: impl FnOnce() -> T) -> Result<T> {
        let result = self.caught(f).map_err(|e| e.to_string());
        let lost = lock(&self.lost).clone();
        match (result, lost) {
            (Ok(value), None) => Ok(value),
            (_, Some(why)) => {
                Err(Error::Device(format!("{}: {}: the device is lost: {why}", self.name, what())))
            }
            (Err(e), None) => Err(Error::Device(format!("{}: {}: {e}", self.name, what()))),
        }
    }

    /// Waits until all that was submitted is done.
    fn finish(&self, what: &dyn Fn() -> String) -> Result<()> {
        let polled = self.checked(what, || self.device.poll(PollType::wait_indefinitely()))?;
        polled.map(drop).map_err(|e| Error::Device(format!("{}: {}: {e}", self.name, what())))
    }
}

impl Backend for WebGpu {
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
        self.shared.finish(&|| "waiting".to_string())
    }
}

impl ModuleCompiler for WebGpu {
    fn label(&self) -> &str {
        "WEBGPU"
    }
    fn renderer(&self) -> &dyn Renderer {
        &self.renderer
    }
    /// Returns `wgpu` compiles a pipeline, which needs the kernel's buffers; the module is its
    /// text.
    fn compile_module(&self, _: &str, _: &str, _: Purpose) -> Result<CompiledModule> {
        let module = WebGpuModule { shared: self.shared.clone(), renderer: self.renderer.clone() };
        Ok(CompiledModule { loaded: Arc::new(module), object: None })
    }
}

struct WebGpuModule {
    shared: Arc<WebGpuContext>,
    renderer: Wgsl,
}

impl LoadedModule for WebGpuModule {
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(kernel::WebGpuKernel::new(&self.shared, &self.renderer, &kernel)?))
    }
}
