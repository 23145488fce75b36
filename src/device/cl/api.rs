//! The C functions of OpenCL, from the loader library that dispatches to the drivers. Names and
//! numbers are those of its headers.

use crate::device::library::{Library, functions};
use crate::error::{Error, Result};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// A handle to an OpenCL object.
pub(super) type Handle = *mut c_void;
/// The status that most functions return: 0, or an error code.
type Status = i32;
/// Type of callback parameters; null is always passed.
type NullCallback = *const c_void;

functions! {
    /// The used functions, with the names of the library.
    Api:
    clGetPlatformIDs(u32, *mut Handle, *mut u32) -> Status;
    clGetPlatformInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clGetDeviceIDs(Handle, u64, u32, *mut Handle, *mut u32) -> Status;
    clGetDeviceInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clCreateContext(
        *const isize, u32, *const Handle, NullCallback, *mut c_void, *mut Status
    ) -> Handle;
    clReleaseContext(Handle) -> Status;
    clCreateCommandQueue(Handle, Handle, u64, *mut Status) -> Handle;
    clReleaseCommandQueue(Handle) -> Status;
    clFlush(Handle) -> Status;
    clFinish(Handle) -> Status;
    clCreateBuffer(Handle, u64, usize, *mut c_void, *mut Status) -> Handle;
    clReleaseMemObject(Handle) -> Status;
    clEnqueueReadBuffer(
        Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle
    ) -> Status;
    clEnqueueWriteBuffer(
        Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle
    ) -> Status;
    clEnqueueCopyBuffer(
        Handle, Handle, Handle, usize, usize, usize, u32, *const Handle, *mut Handle
    ) -> Status;
    clCreateProgramWithSource(
        Handle, u32, *const *const c_char, *const usize, *mut Status
    ) -> Handle;
    clCreateProgramWithBinary(
        Handle, u32, *const Handle, *const usize, *const *const u8, *mut Status, *mut Status
    ) -> Handle;
    clBuildProgram(Handle, u32, *const Handle, *const c_char, NullCallback, *mut c_void) -> Status;
    clGetProgramInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clGetProgramBuildInfo(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clReleaseProgram(Handle) -> Status;
    clCreateKernel(Handle, *const c_char, *mut Status) -> Handle;
    clGetKernelWorkGroupInfo(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clSetKernelArg(Handle, u32, usize, *const c_void) -> Status;
    clReleaseKernel(Handle) -> Status;
    clEnqueueNDRangeKernel(
        Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle,
        *mut Handle
    ) -> Status;
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

/// The names of errors without `CL_`, from -1 down.
const FAILURES: &str = "\
    DEVICE_NOT_FOUND DEVICE_NOT_AVAILABLE COMPILER_NOT_AVAILABLE MEM_OBJECT_ALLOCATION_FAILURE \
    OUT_OF_RESOURCES OUT_OF_HOST_MEMORY PROFILING_INFO_NOT_AVAILABLE MEM_COPY_OVERLAP \
    IMAGE_FORMAT_MISMATCH IMAGE_FORMAT_NOT_SUPPORTED BUILD_PROGRAM_FAILURE MAP_FAILURE \
    MISALIGNED_SUB_BUFFER_OFFSET EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST \
    COMPILE_PROGRAM_FAILURE LINKER_NOT_AVAILABLE LINK_PROGRAM_FAILURE DEVICE_PARTITION_FAILED \
    KERNEL_ARG_INFO_NOT_AVAILABLE";

/// The names of misuse without `CL_`, from -30 down.
const MISUSE: &str = "\
    INVALID_VALUE INVALID_DEVICE_TYPE INVALID_PLATFORM INVALID_DEVICE INVALID_CONTEXT \
    INVALID_QUEUE_PROPERTIES INVALID_COMMAND_QUEUE INVALID_HOST_PTR INVALID_MEM_OBJECT \
    INVALID_IMAGE_FORMAT_DESCRIPTOR INVALID_IMAGE_SIZE INVALID_SAMPLER INVALID_BINARY \
    INVALID_BUILD_OPTIONS INVALID_PROGRAM INVALID_PROGRAM_EXECUTABLE INVALID_KERNEL_NAME \
    INVALID_KERNEL_DEFINITION INVALID_KERNEL INVALID_ARG_INDEX INVALID_ARG_VALUE INVALID_ARG_SIZE \
    INVALID_KERNEL_ARGS INVALID_WORK_DIMENSION INVALID_WORK_GROUP_SIZE INVALID_WORK_ITEM_SIZE \
    INVALID_GLOBAL_OFFSET INVALID_EVENT_WAIT_LIST INVALID_EVENT INVALID_OPERATION \
    INVALID_GL_OBJECT INVALID_BUFFER_SIZE INVALID_MIP_LEVEL INVALID_GLOBAL_WORK_SIZE \
    INVALID_PROPERTY INVALID_IMAGE_DESCRIPTOR INVALID_COMPILER_OPTIONS INVALID_LINKER_OPTIONS \
    INVALID_DEVICE_PARTITION_COUNT INVALID_PIPE_SIZE INVALID_DEVICE_QUEUE INVALID_SPEC_ID \
    MAX_SIZE_RESTRICTION_EXCEEDED";

/// Returns the name of an error, with its number.
pub(super) fn named(status: Status) -> String {
    let nth = |names: &'static str, first: Status| {
        names.split_whitespace().nth(usize::try_from(first - status).ok()?)
    };
    let name = match status {
        PLATFORM_NOT_FOUND => Some("PLATFORM_NOT_FOUND_KHR"),
        _ => nth(FAILURES, -1).or_else(|| nth(MISUSE, -30)),
    };
    match name {
        Some(name) => format!("CL_{name} ({status})"),
        None => format!("vendor-specific error ({status})"),
    }
}

/// Returns the error of an operation.
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

// SAFETY: OpenCL objects are not tied to threads, and its functions are thread-safe, except for
// setting the arguments of one kernel, for which `ClKernel` has a lock.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    /// Returns a handle that a function created, if it succeeded.
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

/// Returns the result of a query that is called twice: for its length, and for its bytes.
pub(super) fn query(
    what: &str,
    ask: impl Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Result<Vec<u8>> {
    let mut length = 0;
    check(what, ask(0, null_mut(), &mut length))?;
    let mut bytes = vec![0u8; length];
    check(what, ask(length, bytes.as_mut_ptr().cast(), null_mut()))?;
    Ok(bytes)
}

/// Converts the result of a query to text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_string()
}

/// Converts the result of a query to numbers of `width` bytes.
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
    /// Returns the library, which is searched once per process.
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
            Err(Error::Device(format!(
                "no OpenCL library found: {}\n{}",
                tried.join("; "),
                advice()
            )))
        };
        FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// Lists the platforms, one per driver.
    pub fn platforms(&self) -> Result<Vec<Handle>> {
        // SAFETY: the list has the length that is passed.
        let list =
            |most, ids, count: &mut u32| unsafe { (self.clGetPlatformIDs)(most, ids, count) };
        query_list("listing platforms", PLATFORM_NOT_FOUND, list)
    }

    /// Lists the devices of a platform of the given kinds.
    pub fn devices(&self, platform: Handle, kinds: u64) -> Result<Vec<Handle>> {
        // SAFETY: the platform is one of the list above, and the list has the length that is
        // passed.
        let list = |most, ids, count: &mut u32| unsafe {
            (self.clGetDeviceIDs)(platform, kinds, most, ids, count)
        };
        query_list("listing devices", DEVICE_NOT_FOUND, list)
    }

    /// Returns a property of a platform.
    pub fn platform_info(&self, platform: Handle, what: u32) -> Result<Vec<u8>> {
        // SAFETY: the answer is written to a buffer of the passed length, and its length to a local
        // number.
        query("querying a platform", |n, out, len| unsafe {
            (self.clGetPlatformInfo)(platform, what, n, out, len)
        })
    }

    /// Returns a property of a device.
    pub fn device_info(&self, device: Handle, what: u32) -> Result<Vec<u8>> {
        // SAFETY: as above.
        query("querying a device", |n, out, len| unsafe {
            (self.clGetDeviceInfo)(device, what, n, out, len)
        })
    }
}

/// Returns a list that is queried twice: for its length, and for its elements. `none` is the status
/// of an empty one.
fn query_list(
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
