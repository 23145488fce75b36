//! Programs of an OpenCL device: built from source or from a cached binary, and launched.

use super::api::{Owned, check, numbers, query, text};
use super::memory::ClMemory;
use super::{ClContext, api};
use crate::device::backend::{Executable, lock};
use crate::device::buffer::MemoryRef;
use crate::device::module::{KernelInfo, LoadedModule, first_lines, rejected};
use crate::disk_cache;
use crate::error::{Error, Result};
use crate::lower::Launch;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A built program.
pub(super) struct ClModule {
    pub shared: Arc<ClContext>,
    pub program: Owned,
}

/// A compiled kernel. The driver keeps its program alive.
struct ClKernel {
    shared: Arc<ClContext>,
    name: String,
    /// Element size of each argument in bytes.
    widths: Vec<usize>,
    /// The driver's kernel. It holds the arguments of the next launch, so that one thread sets them
    /// and launches at a time.
    kernel: Mutex<Owned>,
}

impl LoadedModule for ClModule {
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>> {
        let KernelInfo { symbol, program, source, .. } = kernel;
        let shared = &self.shared;
        let entry = CString::new(symbol)
            .map_err(|_| Error::Device("a kernel's name has a null byte".into()))?;
        let mut status = 0;
        // SAFETY: the program is built, and the name ends in a null byte.
        let kernel = unsafe {
            (shared.api.clCreateKernel)(self.program.handle, entry.as_ptr(), &mut status)
        };
        let kernel = Owned::new("creating a kernel", (kernel, status), shared.api.clReleaseKernel)?;
        let threads: usize = program.launch.local.iter().product();
        let most = shared.max_threads(&kernel)?;
        if threads > most {
            let why = format!(
                "a workgroup has {threads} threads, and {} allows at most {most}",
                shared.label
            );
            return Err(rejected(disk_cache::global(), &program.name, source, ".cl", &why));
        }
        Ok(Arc::new(ClKernel {
            shared: shared.clone(),
            name: program.name.clone(),
            widths: program.args.iter().map(|a| a.dtype().itemsize()).collect(),
            kernel: Mutex::new(kernel),
        }))
    }
}

impl ClContext {
    /// Builds a program from source text.
    pub fn built_source(&self, source: &str, name: &str) -> Result<Owned> {
        let (start, length) = (source.as_ptr().cast(), source.len());
        let mut status = 0;
        // SAFETY: the context is alive, and the one text has the passed length; it is copied.
        let program = unsafe {
            (self.api.clCreateProgramWithSource)(
                self.context.handle,
                1,
                &start,
                &length,
                &mut status,
            )
        };
        let program = Owned::new("reading a source", (program, status), self.api.clReleaseProgram)?;
        self.finish(&program).map_err(|status| {
            let log = first_lines(&self.log(&program));
            let why = format!("{}: {}\n{log}", self.label, api::named(status));
            rejected(disk_cache::global(), name, source, ".cl", &why)
        })?;
        Ok(program)
    }

    /// Builds a program from a cached binary.
    pub fn built_binary(&self, binary: &[u8]) -> Result<Owned> {
        let (start, length) = (binary.as_ptr(), binary.len());
        let (mut whole, mut status) = (0, 0);
        // SAFETY: the context and the device are alive, and the one binary has the passed length;
        // it is copied.
        let program = unsafe {
            let (context, device) = (self.context.handle, self.device.0);
            (self.api.clCreateProgramWithBinary)(
                context,
                1,
                &device,
                &length,
                &start,
                &mut whole,
                &mut status,
            )
        };
        let program = Owned::new("reading a binary", (program, status), self.api.clReleaseProgram)?;
        check("reading a binary", whole)?;
        self.finish(&program).map_err(|status| api::failed("building a binary", status))?;
        Ok(program)
    }

    /// Compiles and links a program.
    fn finish(&self, program: &Owned) -> std::result::Result<(), i32> {
        let options = CString::new(self.options.as_str()).unwrap_or_default();
        // SAFETY: program and device are alive, the options end in a null byte, and there is no
        // callback, so that it is done when it returns.
        match unsafe {
            (self.api.clBuildProgram)(
                program.handle,
                1,
                &self.device.0,
                options.as_ptr(),
                null(),
                null_mut(),
            )
        } {
            0 => Ok(()),
            status => Err(status),
        }
    }

    fn log(&self, program: &Owned) -> String {
        // SAFETY: program and device are alive; the answer is written to a buffer of the passed
        // length.
        let log = query("reading the build log", |n, out, len| unsafe {
            (self.api.clGetProgramBuildInfo)(
                program.handle,
                self.device.0,
                api::PROGRAM_BUILD_LOG,
                n,
                out,
                len,
            )
        });
        log.map_or_else(|e| e.to_string(), |b| text(&b))
    }

    /// Returns the binary of a program, for the disk cache.
    pub fn binary(&self, program: &Owned) -> Result<Vec<u8>> {
        let mut length = 0usize;
        let room = size_of::<usize>();
        // SAFETY: the program is alive and of one device, so one length is written.
        let status = unsafe {
            (self.api.clGetProgramInfo)(
                program.handle,
                api::PROGRAM_BINARY_SIZES,
                room,
                (&raw mut length).cast(),
                null_mut(),
            )
        };
        check("reading the binary size", status)?;
        let mut binary = vec![0u8; length];
        let mut start = binary.as_mut_ptr();
        // SAFETY: one address is read, and the bytes behind it are as many as the binary has.
        let status = unsafe {
            (self.api.clGetProgramInfo)(
                program.handle,
                api::PROGRAM_BINARIES,
                room,
                (&raw mut start).cast(),
                null_mut(),
            )
        };
        check("reading the binary", status)?;
        if binary.is_empty() {
            Err(Error::Device("OpenCL: the driver returned an empty binary".into()))
        } else {
            Ok(binary)
        }
    }

    /// Returns the largest workgroup of the kernel, in threads.
    fn max_threads(&self, kernel: &Owned) -> Result<usize> {
        // SAFETY: kernel and device are alive; the answer is written to a buffer of the passed
        // length.
        let most = query("querying the workgroup limit", |n, out, len| unsafe {
            (self.api.clGetKernelWorkGroupInfo)(
                kernel.handle,
                self.device.0,
                api::KERNEL_WORK_GROUP_SIZE,
                n,
                out,
                len,
            )
        })?;
        Ok(numbers(&most, size_of::<usize>()).first().map_or(0, |n| *n as usize))
    }

    /// Waits for a launch.
    fn wait(&self, event: &Owned) -> Result<()> {
        // SAFETY: the one event is alive.
        check("waiting for a kernel", unsafe { (self.api.clWaitForEvents)(1, &event.handle) })
    }

    /// Waits for a launch and returns the time that the device measured.
    fn time(&self, event: &Owned) -> Result<Duration> {
        self.wait(event)?;
        let [mut start, mut end] = [0u64; 2];
        for (what, out) in
            [(api::PROFILING_COMMAND_START, &mut start), (api::PROFILING_COMMAND_END, &mut end)]
        {
            let out = (&raw mut *out).cast();
            // SAFETY: the event is alive, and one number of 64 bits is written.
            let status = unsafe {
                (self.api.clGetEventProfilingInfo)(
                    event.handle,
                    what,
                    size_of::<u64>(),
                    out,
                    null_mut(),
                )
            };
            check("timing a kernel", status)?;
        }
        Ok(Duration::from_nanos(end.saturating_sub(start)))
    }
}

impl ClKernel {
    fn error(&self, what: &str) -> Error {
        Error::Device(format!("kernel {} on {}: {what}", self.name, self.shared.name))
    }

    /// Sets the memory and the element offset of each argument.
    fn set_args(&self, kernel: &Owned, args: &[MemoryRef]) -> Result<()> {
        if args.len() != self.widths.len() {
            return Err(self.error(&format!(
                "{} arguments given, expected {}",
                args.len(),
                self.widths.len()
            )));
        }
        let set = |at: usize, bytes: &[u8]| {
            let (length, start) = (bytes.len(), bytes.as_ptr().cast());
            // SAFETY: the kernel is alive and locked, and the value has the passed length; it is
            // copied.
            match unsafe {
                (self.shared.api.clSetKernelArg)(kernel.handle, at as u32, length, start)
            } {
                0 => Ok(()),
                status => Err(self.error(&format!("argument {at}: {}", api::named(status)))),
            }
        };
        for (slot, (place, width)) in args.iter().zip(&self.widths).enumerate() {
            let memory = place.remote::<ClMemory>().and_then(|m| m.handle(&self.shared));
            let memory =
                memory.ok_or_else(|| self.error("an argument is memory of another device"))?;
            if place.offset % width != 0 {
                return Err(self.error(&format!(
                    "argument {slot} begins at byte {}, which is inside an element of {width}",
                    place.offset
                )));
            }
            set(slot, &(memory as usize).to_ne_bytes())?;
            set(args.len() + slot, &((place.offset / width) as u64).to_ne_bytes())?;
        }
        Ok(())
    }

    /// Launches the kernel. Returns the event of the launch if the caller waits for it.
    fn start(&self, args: &[MemoryRef], launch: &Launch, wait: bool) -> Result<Option<Owned>> {
        let shared = &self.shared;
        let kernel = lock(&self.kernel);
        self.set_args(&kernel, args)?;
        let global: [usize; 3] = std::array::from_fn(|i| launch.grid[i] * launch.local[i]);
        let mut event = null_mut();
        let wanted = if wait { &raw mut event } else { null_mut() };
        // SAFETY: the arguments are set in the order in which the renderer declares them, and the
        // sizes are three numbers each. Every index of the kernel is masked or proven in bounds of
        // the argument of its slot, whose length the executor has checked.
        let status = unsafe {
            let queue = shared.queue.handle;
            (shared.api.clEnqueueNDRangeKernel)(
                queue,
                kernel.handle,
                3,
                null(),
                global.as_ptr(),
                launch.local.as_ptr(),
                0,
                null(),
                wanted,
            )
        };
        if status != 0 {
            return Err(self.error(&format!(
                "a grid of {:?} workgroups of {:?}: {}",
                launch.grid,
                launch.local,
                api::named(status)
            )));
        }
        shared.flush()?;
        if wait {
            Owned::new("timing a launch", (event, 0), shared.api.clReleaseEvent).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl Executable for ClKernel {
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        let event = self.start(args, launch, self.shared.timed)?;
        event.map_or(Ok(Duration::ZERO), |event| self.shared.time(&event))
    }
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        if self.shared.timed {
            // SAFETY: the caller upholds the contract of `run`.
            return unsafe { self.run(args, launch) };
        }
        // The queue measures no times, so this is wall-clock time on an empty queue.
        self.shared.finish_all()?;
        let start = Instant::now();
        let event = self.start(args, launch, true)?;
        event.map_or(Ok(()), |event| self.shared.wait(&event))?;
        Ok(start.elapsed())
    }
}
