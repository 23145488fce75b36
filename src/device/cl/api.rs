//! The C functions of OpenCL, from the loader library that dispatches to the drivers. Names and
//! numbers are those of its headers.

use crate::device::library::{Library, functions};
use crate::error::{Error, Result};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// A handle of OpenCL.
pub(super) type Handle = *mut c_void;
/// The status that most functions return: 0, or an error code.
type Status = i32;
/// A callback that is never passed.
type Nobody = *const c_void;

functions! {
    /// The functions that are used, under the library's own names.
    Api:
    clGetPlatformIDs(u32, *mut Handle, *mut u32) -> Status;
    clGetPlatformInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clGetDeviceIDs(Handle, u64, u32, *mut Handle, *mut u32) -> Status;
    clGetDeviceInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clCreateContext(*const isize, u32, *const Handle, Nobody, *mut c_void, *mut Status) -> Handle;
    clReleaseContext(Handle) -> Status;
    clCreateCommandQueue(Handle, Handle, u64, *mut Status) -> Handle;
    clReleaseCommandQueue(Handle) -> Status;
    clFlush(Handle) -> Status;
    clFinish(Handle) -> Status;
    clCreateBuffer(Handle, u64, usize, *mut c_void, *mut Status) -> Handle;
    clReleaseMemObject(Handle) -> Status;
    clEnqueueReadBuffer(Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> Status;
    clEnqueueWriteBuffer(Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle) -> Status;
    clEnqueueCopyBuffer(Handle, Handle, Handle, usize, usize, usize, u32, *const Handle, *mut Handle) -> Status;
    clCreateProgramWithSource(Handle, u32, *const *const c_char, *const usize, *mut Status) -> Handle;
    clCreateProgramWithBinary(Handle, u32, *const Handle, *const usize, *const *const u8, *mut Status, *mut Status) -> Handle;
    clBuildProgram(Handle, u32, *const Handle, *const c_char, Nobody, *mut c_void) -> Status;
    clGetProgramInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clGetProgramBuildInfo(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clReleaseProgram(Handle) -> Status;
    clCreateKernel(Handle, *const c_char, *mut Status) -> Handle;
    clGetKernelWorkGroupInfo(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clSetKernelArg(Handle, u32, usize, *const c_void) -> Status;
    clReleaseKernel(Handle) -> Status;
    clEnqueueNDRangeKernel(Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle, *mut Handle) -> Status;
    clWaitForEvents(u32, *const Handle) -> Status;
    clGetEventProfilingInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clReleaseEvent(Handle) -> Status;
}

pub(super) const PLATFORM_NAME: u32 = 0x0902;
pub(super) const PLATFORM_VERSION: u32 = 0x0901;
pub(super) const DEVICE_TYPE_CPU: u64 = 1 << 1;
pub(super) const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub(super) const DEVICE_TYPE_ACCELERATOR: u64 = 1 << 3;
pub(super) const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
pub(super) const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
pub(super) const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
pub(super) const DEVICE_MAX_CLOCK_FREQUENCY: u32 = 0x100C;
pub(super) const DEVICE_ADDRESS_BITS: u32 = 0x100D;
pub(super) const DEVICE_SINGLE_FP_CONFIG: u32 = 0x101B;
pub(super) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub(super) const DEVICE_GLOBAL_MEM_CACHE_SIZE: u32 = 0x101E;
pub(super) const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
pub(super) const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
pub(super) const DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
pub(super) const DEVICE_AVAILABLE: u32 = 0x1027;
pub(super) const DEVICE_COMPILER_AVAILABLE: u32 = 0x1028;
pub(super) const DEVICE_TYPE: u32 = 0x1000;
pub(super) const DEVICE_NAME: u32 = 0x102B;
pub(super) const DRIVER_VERSION: u32 = 0x102D;
pub(super) const DEVICE_EXTENSIONS: u32 = 0x1030;
pub(super) const FP_DENORM: u64 = 1 << 0;
pub(super) const FP_CORRECTLY_ROUNDED_DIVIDE_SQRT: u64 = 1 << 7;
pub(super) const QUEUE_PROFILING_ENABLE: u64 = 1 << 1;
pub(super) const MEM_READ_WRITE: u64 = 1 << 0;
pub(super) const PROGRAM_BINARY_SIZES: u32 = 0x1165;
pub(super) const PROGRAM_BINARIES: u32 = 0x1166;
pub(super) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(super) const KERNEL_WORK_GROUP_SIZE: u32 = 0x11B0;
pub(super) const PROFILING_COMMAND_START: u32 = 0x1282;
pub(super) const PROFILING_COMMAND_END: u32 = 0x1283;
/// Copies block until they are done.
pub(super) const BLOCKING: u32 = 1;

pub(super) const OUT_OF_MEMORY: [Status; 4] = [-4, -5, -6, -61];
const DEVICE_NOT_FOUND: Status = -1;
const PLATFORM_NOT_FOUND: Status = -1001;

/// The names of errors, from -1 down; missing numbers are unassigned.
const FAILURES: [&str; 19] = [
    "CL_DEVICE_NOT_FOUND",
    "CL_DEVICE_NOT_AVAILABLE",
    "CL_COMPILER_NOT_AVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_OUT_OF_RESOURCES",
    "CL_OUT_OF_HOST_MEMORY",
    "CL_PROFILING_INFO_NOT_AVAILABLE",
    "CL_MEM_COPY_OVERLAP",
    "CL_IMAGE_FORMAT_MISMATCH",
    "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    "CL_BUILD_PROGRAM_FAILURE",
    "CL_MAP_FAILURE",
    "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "CL_COMPILE_PROGRAM_FAILURE",
    "CL_LINKER_NOT_AVAILABLE",
    "CL_LINK_PROGRAM_FAILURE",
    "CL_DEVICE_PARTITION_FAILED",
    "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
];

/// The names of misuse, from -30 down.
const MISUSE: [&str; 43] = [
    "CL_INVALID_VALUE",
    "CL_INVALID_DEVICE_TYPE",
    "CL_INVALID_PLATFORM",
    "CL_INVALID_DEVICE",
    "CL_INVALID_CONTEXT",
    "CL_INVALID_QUEUE_PROPERTIES",
    "CL_INVALID_COMMAND_QUEUE",
    "CL_INVALID_HOST_PTR",
    "CL_INVALID_MEM_OBJECT",
    "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "CL_INVALID_IMAGE_SIZE",
    "CL_INVALID_SAMPLER",
    "CL_INVALID_BINARY",
    "CL_INVALID_BUILD_OPTIONS",
    "CL_INVALID_PROGRAM",
    "CL_INVALID_PROGRAM_EXECUTABLE",
    "CL_INVALID_KERNEL_NAME",
    "CL_INVALID_KERNEL_DEFINITION",
    "CL_INVALID_KERNEL",
    "CL_INVALID_ARG_INDEX",
    "CL_INVALID_ARG_VALUE",
    "CL_INVALID_ARG_SIZE",
    "CL_INVALID_KERNEL_ARGS",
    "CL_INVALID_WORK_DIMENSION",
    "CL_INVALID_WORK_GROUP_SIZE",
    "CL_INVALID_WORK_ITEM_SIZE",
    "CL_INVALID_GLOBAL_OFFSET",
    "CL_INVALID_EVENT_WAIT_LIST",
    "CL_INVALID_EVENT",
    "CL_INVALID_OPERATION",
    "CL_INVALID_GL_OBJECT",
    "CL_INVALID_BUFFER_SIZE",
    "CL_INVALID_MIP_LEVEL",
    "CL_INVALID_GLOBAL_WORK_SIZE",
    "CL_INVALID_PROPERTY",
    "CL_INVALID_IMAGE_DESCRIPTOR",
    "CL_INVALID_COMPILER_OPTIONS",
    "CL_INVALID_LINKER_OPTIONS",
    "CL_INVALID_DEVICE_PARTITION_COUNT",
    "CL_INVALID_PIPE_SIZE",
    "CL_INVALID_DEVICE_QUEUE",
    "CL_INVALID_SPEC_ID",
    "CL_MAX_SIZE_RESTRICTION_EXCEEDED",
];

/// The name of an error, with its number.
pub(super) fn named(status: Status) -> String {
    let below = |first: Status| usize::try_from(first - status).ok();
    let name = match status {
        PLATFORM_NOT_FOUND => Some(&"CL_PLATFORM_NOT_FOUND_KHR"),
        _ => below(-1)
            .and_then(|i| FAILURES.get(i))
            .or_else(|| below(-30).and_then(|i| MISUSE.get(i))),
    };
    format!("{} ({status})", name.unwrap_or(&"vendor-specific error"))
}

/// The error of an operation.
pub(super) fn failed(what: &str, status: Status) -> Error {
    Error::Device(format!("OpenCL: {what}: {}", named(status)))
}

/// Checks a status.
pub(super) fn check(what: &str, status: Status) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(failed(what, status)) }
}

/// A handle that is released when dropped.
pub(in crate::device) struct Owned {
    pub handle: Handle,
    release: unsafe extern "C" fn(Handle) -> Status,
}

// SAFETY: things of OpenCL belong to no thread, and its functions may be called from any; only the
// arguments of a kernel may not be set by two at once: `ClKernel` has a lock.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    /// A handle that a function created, if it succeeded.
    pub fn new(
        what: &str,
        (handle, status): (Handle, Status),
        release: unsafe extern "C" fn(Handle) -> Status,
    ) -> Result<Owned> {
        check(what, status)?;
        if handle.is_null() {
            Err(Error::Device(format!("OpenCL: {what}: the driver returned no handle")))
        } else {
            Ok(Owned { handle, release })
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, owned, and of the kind that the function takes. The driver
        // keeps objects alive that pending commands use.
        unsafe { (self.release)(self.handle) };
    }
}

/// The result of a query that is called twice: for its length, and for its bytes.
pub(super) fn answer(
    what: &str,
    ask: impl Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Result<Vec<u8>> {
    let mut length = 0;
    check(what, ask(0, null_mut(), &mut length))?;
    let mut bytes = vec![0u8; length];
    check(what, ask(length, bytes.as_mut_ptr().cast(), null_mut()))?;
    Ok(bytes)
}

/// An answer that is a text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_string()
}

/// An answer that is numbers of up to 64 bits.
pub(super) fn numbers(bytes: &[u8], width: usize) -> Vec<u64> {
    bytes
        .chunks(width.clamp(1, 8))
        .map(|c| c.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        .collect()
}

/// The file names of the library.
#[cfg(not(target_os = "macos"))]
const NAMES: [&str; 2] = ["libOpenCL.so.1", "libOpenCL.so"];
#[cfg(target_os = "macos")]
const NAMES: [&str; 1] = ["/System/Library/Frameworks/OpenCL.framework/OpenCL"];

impl Api {
    /// The library of this process, looked for once.
    pub fn find() -> Result<&'static Api> {
        static FOUND: OnceLock<Result<Api>> = OnceLock::new();
        let find = || {
            let mut tried = Vec::new();
            for name in NAMES {
                match Library::open(name).and_then(|library| Api::load(&library)) {
                    Ok(api) => return Ok(api),
                    Err(why) => tried.push(format!("{name}: {why}")),
                }
            }
            Err(Error::Device(format!("no library of OpenCL: {}\n{}", tried.join("; "), advice())))
        };
        FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// The platforms: one for each driver.
    pub fn platforms(&self) -> Result<Vec<Handle>> {
        // SAFETY: the list has the length that is passed.
        let list =
            |most, ids, count: &mut u32| unsafe { (self.clGetPlatformIDs)(most, ids, count) };
        listed("looking for platforms", PLATFORM_NOT_FOUND, list)
    }

    /// The devices of a platform of some kinds.
    pub fn devices(&self, platform: Handle, kinds: u64) -> Result<Vec<Handle>> {
        // SAFETY: the platform is one of the list above, and the list has the length that is
        // passed.
        let list = |most, ids, count: &mut u32| unsafe {
            (self.clGetDeviceIDs)(platform, kinds, most, ids, count)
        };
        listed("looking for devices", DEVICE_NOT_FOUND, list)
    }

    /// A property of a platform.
    pub fn of_platform(&self, platform: Handle, what: u32) -> Result<Vec<u8>> {
        // SAFETY: the answer is written to a buffer of the passed length, and its length to a local
        // number.
        answer("asking a platform", |n, out, len| unsafe {
            (self.clGetPlatformInfo)(platform, what, n, out, len)
        })
    }

    /// A property of a device.
    pub fn of_device(&self, device: Handle, what: u32) -> Result<Vec<u8>> {
        // SAFETY: as above.
        answer("asking a device", |n, out, len| unsafe {
            (self.clGetDeviceInfo)(device, what, n, out, len)
        })
    }
}

/// A list that is queried twice: for its length, and for its elements. `none` is the status of an
/// empty one.
fn listed(
    what: &str,
    none: Status,
    list: impl Fn(u32, *mut Handle, &mut u32) -> Status,
) -> Result<Vec<Handle>> {
    let mut count = 0;
    match list(0, null_mut(), &mut count) {
        status if status == none => return Ok(Vec::new()),
        status => check(what, status)?,
    }
    let mut ids = vec![null_mut(); count as usize];
    if count > 0 {
        check(what, list(count, ids.as_mut_ptr(), &mut count))?;
        ids.truncate(count as usize);
    }
    Ok(ids)
}

/// Advice on installing OpenCL.
pub(super) fn advice() -> &'static str {
    "install the library and a driver: `apt install ocl-icd-libopencl1` with your GPU's driver, or \
     with `pocl-opencl-icd`, which runs on any CPU"
}
