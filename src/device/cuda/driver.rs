//! The used functions of NVIDIA's driver library, with their original names.

use crate::device::library::{Library, functions};
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A handle of the driver: a context, a stream, an event, a module, a function, a pool.
pub(super) type Handle = *mut c_void;
/// An address in the memory of a GPU.
pub(super) type Address = u64;

functions! {
    /// The driver.
    Driver:
    cuInit(c_uint) -> c_int;
    cuDriverGetVersion(*mut c_int) -> c_int;
    cuGetErrorName(c_int, *mut *const c_char) -> c_int;
    cuGetErrorString(c_int, *mut *const c_char) -> c_int;
    cuDeviceGetCount(*mut c_int) -> c_int;
    cuDeviceGet(*mut c_int, c_int) -> c_int;
    cuDeviceGetName(*mut c_char, c_int, c_int) -> c_int;
    cuDeviceGetAttribute(*mut c_int, c_int, c_int) -> c_int;
    cuDeviceTotalMem_v2(*mut usize, c_int) -> c_int;
    cuDeviceCanAccessPeer(*mut c_int, c_int, c_int) -> c_int;
    cuDeviceGetDefaultMemPool(*mut Handle, c_int) -> c_int;
    cuDevicePrimaryCtxRetain(*mut Handle, c_int) -> c_int;
    cuCtxSetCurrent(Handle) -> c_int;
    cuStreamCreate(*mut Handle, c_uint) -> c_int;
    cuStreamSynchronize(Handle) -> c_int;
    cuStreamWaitEvent(Handle, Handle, c_uint) -> c_int;
    cuEventCreate(*mut Handle, c_uint) -> c_int;
    cuEventRecord(Handle, Handle) -> c_int;
    cuEventSynchronize(Handle) -> c_int;
    cuEventElapsedTime(*mut f32, Handle, Handle) -> c_int;
    cuMemAlloc_v2(*mut Address, usize) -> c_int;
    cuMemFree_v2(Address) -> c_int;
    cuMemAllocAsync(*mut Address, usize, Handle) -> c_int;
    cuMemFreeAsync(Address, Handle) -> c_int;
    cuMemPoolSetAttribute(Handle, c_int, *mut c_void) -> c_int;
    cuMemPoolGetAttribute(Handle, c_int, *mut c_void) -> c_int;
    cuMemPoolTrimTo(Handle, usize) -> c_int;
    cuMemPoolSetAccess(Handle, *const PoolAccess, usize) -> c_int;
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> c_int;
    cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle) -> c_int;
    cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Handle) -> c_int;
    cuMemcpyDtoDAsync_v2(Address, Address, usize, Handle) -> c_int;
    cuMemcpyPeerAsync(Address, Handle, Address, Handle, usize, Handle) -> c_int;
    cuModuleLoadData(*mut Handle, *const c_void) -> c_int;
    cuModuleGetFunction(*mut Handle, Handle, *const c_char) -> c_int;
    cuModuleUnload(Handle) -> c_int;
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
        *mut *mut c_void
    ) -> c_int;
    cuGraphCreate(*mut Handle, c_uint) -> c_int;
    cuGraphAddKernelNode(*mut Handle, Handle, *const Handle, usize, *const KernelNode) -> c_int;
    cuGraphInstantiateWithFlags(*mut Handle, Handle, u64) -> c_int;
    cuGraphExecKernelNodeSetParams(Handle, Handle, *const KernelNode) -> c_int;
    cuGraphLaunch(Handle, Handle) -> c_int;
    cuGraphExecDestroy(Handle) -> c_int;
    cuGraphDestroy(Handle) -> c_int;
}

/// `CUDA_KERNEL_NODE_PARAMS`, the first version: a kernel of a graph.
#[repr(C)]
pub(super) struct KernelNode {
    pub function: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUmemAccessDesc`: access rights of a device to the memory of a pool.
#[repr(C)]
pub(super) struct PoolAccess {
    pub location_kind: c_int,
    pub location: c_int,
    pub flags: c_int,
}

/// Numbers of the driver's header.
pub(super) mod number {
    use std::ffi::{c_int, c_uint};
    pub const OUT_OF_MEMORY: c_int = 2;
    pub const NO_DEVICE: c_int = 100;
    pub const STREAM_NON_BLOCKING: c_uint = 1;
    pub const EVENT_DISABLE_TIMING: c_uint = 2;
    pub const WARP_SIZE: c_int = 10;
    pub const CLOCK_RATE: c_int = 13;
    pub const MULTIPROCESSORS: c_int = 16;
    pub const MEMORY_CLOCK_RATE: c_int = 36;
    pub const MEMORY_BUS_WIDTH: c_int = 37;
    pub const L2_CACHE_SIZE: c_int = 38;
    pub const MULTIPROCESSOR_THREADS: c_int = 39;
    pub const MULTIPROCESSOR_SHARED_BYTES: c_int = 81;
    pub const MULTIPROCESSOR_REGISTERS: c_int = 82;
    pub const MAJOR: c_int = 75;
    pub const MINOR: c_int = 76;
    pub const POOLS_SUPPORTED: c_int = 115;
    pub const RELEASE_THRESHOLD: c_int = 4;
    pub const RESERVED_NOW: c_int = 5;
    pub const LOCATION_DEVICE: c_int = 1;
    pub const READ_WRITE: c_int = 3;
    /// Codes with which the driver rejects a module of an incompatible compiler.
    pub const INCOMPATIBLE_IMAGE: [c_int; 4] = [200, 209, 218, 222];
    /// Codes after which the context of the process is unusable.
    pub const FATAL: [c_int; 14] =
        [4, 46, 214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999];
}

/// The oldest supported version, CUDA 11.4, the first with all of these functions.
const OLDEST: c_int = 11040;

impl Driver {
    /// Returns the initialized driver, which is searched once per process.
    pub fn find() -> Result<&'static Driver> {
        static FOUND: OnceLock<Result<Driver>> = OnceLock::new();
        FOUND.get_or_init(|| Driver::search().map_err(Error::Device)).as_ref().map_err(Clone::clone)
    }

    fn search() -> std::result::Result<Driver, String> {
        let names = ["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"];
        let opened = names.iter().find_map(|n| Library::open(n).ok());
        let library = opened
            .ok_or("there is no libcuda.so.1, which comes with the driver of an NVIDIA GPU")?;
        let too_old = |why: String| {
            format!(
                "the NVIDIA driver is too old: {why}\nCUDA 11.4 or newer is needed; \
                 update the driver"
            )
        };
        let driver = Driver::load(&library).map_err(too_old)?;
        // SAFETY: the flags have to be 0.
        match unsafe { (driver.cuInit)(0) } {
            0 => {}
            number::NO_DEVICE => {
                return Err("the NVIDIA driver is installed but finds no GPU".into());
            }
            code => {
                return Err(format!(
                    "the NVIDIA driver failed to initialize: {}",
                    driver.explain(code)
                ));
            }
        }
        let version = driver.version();
        if version < OLDEST {
            return Err(too_old(format!("it is for CUDA {}", format_version(version))));
        }
        Ok(driver)
    }

    /// Returns the CUDA version of the driver: 13020 for 13.2.
    pub fn version(&self) -> c_int {
        let mut version = 0;
        // SAFETY: writes one number. Where that fails it stays 0.
        unsafe { (self.cuDriverGetVersion)(&mut version) };
        version
    }

    /// Formats an error code with the driver's name and description.
    pub fn explain(&self, code: c_int) -> String {
        let text = |ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the call writes a pointer to a constant text that ends in a null byte, or
            // leaves it null.
            unsafe {
                ask(code, &mut text);
                if text.is_null() {
                    None
                } else {
                    Some(CStr::from_ptr(text).to_string_lossy().into_owned())
                }
            }
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(words)) => format!("{name}, {words}"),
            _ => format!("error {code}"),
        }
    }
}

/// Formats a version number: 13020 is `13.2`.
pub(super) fn format_version(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
