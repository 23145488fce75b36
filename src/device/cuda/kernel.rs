//! Compiled kernels: modules of machine code that are loaded into a GPU, and their launches.

use super::driver::{Address, Driver, Handle, format_version, number};
use super::gpu::Gpu;
use super::memory::CudaMemory;
use super::nvrtc::Nvrtc;
use crate::device::backend::{Executable, Purpose};
use crate::device::buffer::MemoryRef;
use crate::device::module::{
    Batching, CompileVariant, CompiledModule, KernelInfo, LoadedModule, ModuleCompiler,
};
use crate::disk_cache::CacheKey;
use crate::env;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::render::{Cuda, Renderer};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The alignment of vector accesses, in bytes.
const ALIGN: Address = 16;

/// A compiler and the GPU that it compiles for.
pub(super) struct Builder {
    pub gpu: Arc<Gpu>,
    pub nvrtc: &'static Nvrtc,
    pub arch: String,
    pub renderer: Cuda,
}

impl ModuleCompiler for Builder {
    fn label(&self) -> &str {
        "CUDA"
    }
    fn renderer(&self) -> &dyn Renderer {
        &self.renderer
    }
    /// One module for all: starting NVRTC takes as long as several small kernels.
    fn batching(&self, kernels: usize) -> Batching {
        Batching { per_module: kernels, parallel_modules: 1 }
    }
    fn cache_key(&self, source: &str) -> Option<CacheKey> {
        Some(self.nvrtc.key(source, &self.arch))
    }
    fn user_module(&self, _: &Program, text: &str) -> Result<String> {
        Ok(text.to_string())
    }
    fn compile_module(&self, text: &str, name: &str, _: Purpose) -> Result<CompiledModule> {
        let object = self.nvrtc.compile(text, name, &self.arch)?;
        Ok(CompiledModule { loaded: self.load(&object, name)?, object: Some(object) })
    }
    fn load(&self, image: &[u8], name: &str) -> Result<Arc<dyn LoadedModule>> {
        let mut module = null_mut();
        let load = |d: &Driver| {
            // SAFETY: the image is complete: the compiler's, or one that the cache has checked; the
            // call writes one handle.
            unsafe { (d.cuModuleLoadData)(&mut module, image.as_ptr().cast()) }
        };
        match self.gpu.ask(load)? {
            0 => Ok(Arc::new(Module { gpu: self.gpu.clone(), handle: module })),
            code => {
                let (driver, nvrtc) = (self.gpu.driver, self.nvrtc);
                let mut msg =
                    format!("the driver rejected kernel {name}: {}", driver.explain(code));
                if number::INCOMPATIBLE_IMAGE.contains(&code) {
                    let version = format_version(driver.version());
                    msg += &format!(
                        "\nthe driver is for CUDA {version}, and NVRTC ({}) is {}: update the \
                         driver, or use an NVRTC that is not newer",
                        nvrtc.path.display(),
                        nvrtc.version
                    );
                }
                Err(Error::compile(msg))
            }
        }
    }
}

/// Loaded machine code.
pub(in crate::device) struct Module {
    gpu: Arc<Gpu>,
    handle: Handle,
}
// SAFETY: the handle is the driver's, which lets every thread use it.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    fn function(self: &Arc<Module>, name: &str) -> Result<Function> {
        let mut handle = null_mut();
        let symbol = CString::new(name)
            .map_err(|_| Error::Device(format!("{name:?} is not a kernel name")))?;
        // SAFETY: the module is loaded, the name ends in a null byte, and the call writes one
        // handle.
        self.gpu.call(name, |d| unsafe {
            (d.cuModuleGetFunction)(&mut handle, self.handle, symbol.as_ptr())
        })?;
        Ok(Function { handle, _module: self.clone() })
    }
}

impl LoadedModule for Module {
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(CudaKernel {
            gpu: self.gpu.clone(),
            name: kernel.program.name.as_str().into(),
            function: self.function(kernel.symbol)?,
            compile_unaligned: kernel.unaligned,
            unaligned: OnceLock::new(),
        }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // One of its kernels may still run. The modules of a lost GPU are unloaded already.
        if self.gpu.synchronize().is_ok() {
            // SAFETY: the module is owned and not used again.
            let _ = self.gpu.ask(|d| unsafe { (d.cuModuleUnload)(self.handle) });
        }
    }
}

struct Function {
    handle: Handle,
    /// Keeps the module loaded.
    _module: Arc<Module>,
}
// SAFETY: the handle is the driver's, which lets every thread use it.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A kernel.
pub(super) struct CudaKernel {
    gpu: Arc<Gpu>,
    name: Arc<str>,
    function: Function,
    /// Compiles the variant for buffers that do not start at a multiple of [`ALIGN`].
    compile_unaligned: Option<CompileVariant>,
    /// That variant, compiled at the first launch that needs it.
    unaligned: OnceLock<Result<Arc<dyn Executable>>>,
}

/// Returns the addresses of memory, which must be of this GPU.
pub(super) fn addresses(gpu: &Arc<Gpu>, args: &[MemoryRef]) -> Result<Vec<Address>> {
    let address = |p: &MemoryRef| {
        let own = p.remote::<CudaMemory>().filter(|m| Arc::ptr_eq(&m.gpu, gpu));
        own.map(|m| m.address + p.offset as Address)
    };
    let found: Option<Vec<Address>> = args.iter().map(address).collect();
    found.ok_or_else(|| {
        Error::Device(format!("a kernel of {} was given memory of another device", gpu.name))
    })
}

impl CudaKernel {
    /// Returns the version of the kernel for these buffers, and their addresses.
    fn prepare(&self, args: &[MemoryRef]) -> Result<(Handle, Vec<Address>)> {
        let addresses = addresses(&self.gpu, args)?;
        Ok((self.function_for(&addresses)?, addresses))
    }

    /// Returns the version of the kernel for buffers at these addresses.
    pub fn function_for(&self, addresses: &[Address]) -> Result<Handle> {
        let Some(compile) = self.compile_unaligned.as_ref() else {
            return Ok(self.function.handle);
        };
        if addresses.iter().all(|a| a.is_multiple_of(ALIGN)) {
            return Ok(self.function.handle);
        }
        let variant = self.unaligned.get_or_init(compile).as_ref().map_err(Clone::clone)?;
        let kernel = variant.downcast::<CudaKernel>();
        Ok(kernel.expect("a variant is compiled by the same backend").function.handle)
    }

    fn start(&self, function: Handle, addresses: &mut [Address], launch: &Launch) -> Result<()> {
        let gpu = &self.gpu;
        let mut params: Vec<*mut c_void> =
            addresses.iter_mut().map(|a| (&raw mut *a).cast()).collect();
        let [[gx, gy, gz], [lx, ly, lz]] =
            [launch.grid, launch.local].map(|s| s.map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
        gpu.note(&self.name);
        // SAFETY: the kernel takes as many addresses as there are, each of which its index proofs
        // hold for; they are copied before the call returns.
        let code = gpu.ask(|d| unsafe {
            (d.cuLaunchKernel)(
                function,
                gx,
                gy,
                gz,
                lx,
                ly,
                lz,
                0,
                gpu.stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        })?;
        if code != 0 {
            let shape = format!("{:?} groups of {:?} threads", launch.grid, launch.local);
            return Err(Error::Device(format!(
                "{}: failed to launch kernel {} with {shape}: {}",
                gpu.name,
                self.name,
                gpu.driver.explain(code)
            )));
        }
        Ok(())
    }
}

impl Executable for CudaKernel {
    /// Does not wait, and returns zero, unless kernels are timed.
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        if env::config()?.times_kernels() {
            // SAFETY: the caller upholds the contract of `run`.
            return unsafe { self.timed(args, launch) };
        }
        let (function, mut addresses) = self.prepare(args)?;
        self.start(function, &mut addresses, launch).map(|()| Duration::ZERO)
    }
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        let (function, mut addresses) = self.prepare(args)?;
        self.gpu.timed(|| self.start(function, &mut addresses, launch))
    }
}
