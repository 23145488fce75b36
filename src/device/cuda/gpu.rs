//! One GPU: its context, and its stream, which runs all operations in order.

use super::driver::{Driver, Handle, number};
use super::memory::Staging;
use crate::device::backend::{lock, no_such_device, numbered_name};
use crate::error::{Error, Result};
use crate::target::Machine;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of freed memory that the driver caches for the next allocations; more is released when the
/// stream is synchronized.
const MAX_CACHED_BYTES: u64 = 8 << 30;

/// An opened GPU.
pub(super) struct Gpu {
    pub driver: &'static Driver,
    /// The device name, such as `CUDA:1`.
    pub name: String,
    pub number: c_int,
    pub context: Handle,
    pub stream: Handle,
    /// The driver's memory pool, if the GPU has one.
    pub pool: Option<Handle>,
    /// Bytes that buffers hold.
    pub held: AtomicUsize,
    pub staging: Mutex<Option<Staging>>,
    /// The event that other GPUs wait for.
    pub peer_event: Event,
    /// The kernel that was launched last, which an asynchronous error names.
    last: Mutex<Arc<str>>,
    /// The fatal error after which every call fails.
    lost: OnceLock<String>,
    /// The two events that time a kernel.
    timer: Mutex<Option<[Event; 2]>>,
}

// SAFETY: the handles are the driver's, which lets every thread use them.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// An event of a stream. It lives as long as the process.
#[derive(Clone, Copy)]
pub(super) struct Event(pub Handle);
// SAFETY: the handle is the driver's, which lets every thread use it.
unsafe impl Send for Event {}

impl Gpu {
    /// Opens the GPU with this number.
    pub fn open(driver: &'static Driver, index: usize) -> Result<Gpu> {
        let name = numbered_name("CUDA", index);
        let fail = |what: &str, code: c_int| {
            Error::Device(format!("{name}: {what}: {}", driver.explain(code)))
        };
        let mut count = 0;
        // SAFETY: writes one number. Where that fails it stays 0.
        unsafe { (driver.cuDeviceGetCount)(&mut count) };
        if index >= count as usize {
            return Err(no_such_device("CUDA", index, "the NVIDIA driver", count as usize));
        }
        let (mut number, mut context) = (0, null_mut());
        // SAFETY: each call writes one value; the index is of an existing GPU.
        let code = unsafe {
            match (driver.cuDeviceGet)(&mut number, index as c_int) {
                0 => (driver.cuDevicePrimaryCtxRetain)(&mut context, number),
                code => code,
            }
        };
        if code != 0 {
            return Err(fail("cannot open the device", code));
        }
        let mut gpu = Gpu {
            driver,
            name: name.clone(),
            number,
            context,
            stream: null_mut(),
            pool: None,
            held: AtomicUsize::new(0),
            staging: Mutex::default(),
            peer_event: Event(null_mut()),
            last: Mutex::new("none".into()),
            lost: OnceLock::new(),
            timer: Mutex::default(),
        };
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        gpu.call("creating a stream", |d| unsafe {
            (d.cuStreamCreate)(&mut stream, number::STREAM_NON_BLOCKING)
        })?;
        gpu.stream = stream;
        gpu.peer_event = gpu.event(number::EVENT_DISABLE_TIMING)?;
        gpu.pool = gpu.memory_pool()?;
        Ok(gpu)
    }

    /// Returns the driver's memory pool, set to cache [`MAX_CACHED_BYTES`] bytes; `None` if the GPU
    /// has none.
    fn memory_pool(&self) -> Result<Option<Handle>> {
        if self.attribute(number::POOLS_SUPPORTED) != 1 {
            return Ok(None);
        }
        let (mut pool, mut keep) = (null_mut(), MAX_CACHED_BYTES);
        // SAFETY: the first call writes one handle, the second reads one number of 64 bits, which
        // this attribute is.
        self.call("configuring the memory pool", |d| unsafe {
            match (d.cuDeviceGetDefaultMemPool)(&mut pool, self.number) {
                0 => (d.cuMemPoolSetAttribute)(
                    pool,
                    number::RELEASE_THRESHOLD,
                    (&raw mut keep).cast::<c_void>(),
                ),
                code => code,
            }
        })?;
        Ok(Some(pool))
    }

    /// Returns the machine as the driver reports it; 0 where it does not.
    pub fn machine(&self) -> Machine {
        let of = |which| usize::try_from(self.attribute(which)).unwrap_or(0);
        let warp = of(number::WARP_SIZE);
        // Both edges of the clock transfer data.
        let bandwidth =
            of(number::MEMORY_CLOCK_RATE) * 1000 * 2 * (of(number::MEMORY_BUS_WIDTH) / 8);
        let fixed = Machine::unknown_gpu();
        Machine {
            cores: of(number::MULTIPROCESSORS),
            core_threads: of(number::MULTIPROCESSOR_THREADS),
            lockstep_threads: if warp > 0 { warp } else { fixed.lockstep_threads },
            core_registers: of(number::MULTIPROCESSOR_REGISTERS),
            core_shared_bytes: of(number::MULTIPROCESSOR_SHARED_BYTES),
            cache_bytes: [0, of(number::L2_CACHE_SIZE), 0],
            cache_threads: [0, of(number::MULTIPROCESSORS), 0],
            clock_khz: of(number::CLOCK_RATE),
            bandwidth,
            ..fixed
        }
    }

    /// Returns an attribute of the GPU; 0 if the driver does not know it.
    pub fn attribute(&self, which: c_int) -> c_int {
        let mut value = 0;
        // SAFETY: writes one number.
        unsafe { (self.driver.cuDeviceGetAttribute)(&mut value, which, self.number) };
        value
    }

    /// Returns the model name of the GPU.
    pub fn model(&self) -> String {
        let mut name = [0u8; 128];
        // SAFETY: writes a text that ends in a null byte into a buffer of the passed length.
        unsafe {
            (self.driver.cuDeviceGetName)(
                name.as_mut_ptr().cast::<c_char>(),
                name.len() as c_int,
                self.number,
            )
        };
        String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
    }

    /// Total bytes of its memory.
    pub fn total(&self) -> usize {
        let mut bytes = 0;
        // SAFETY: writes one number.
        unsafe { (self.driver.cuDeviceTotalMem_v2)(&mut bytes, self.number) };
        bytes
    }

    /// Returns the bytes of its memory that this process holds: buffers, and freed memory that the
    /// driver caches.
    pub fn reserved(&self) -> usize {
        let live = self.held.load(Ordering::Relaxed);
        let Some(pool) = self.pool else { return live };
        let mut bytes = 0u64;
        // SAFETY: writes one number of 64 bits, which this attribute is.
        match self.ask(|d| unsafe {
            (d.cuMemPoolGetAttribute)(pool, number::RESERVED_NOW, (&raw mut bytes).cast::<c_void>())
        }) {
            Ok(0) => bytes as usize,
            _ => live,
        }
    }

    /// Calls the driver in the context of this GPU, and returns its status code.
    pub fn ask(&self, f: impl FnOnce(&Driver) -> c_int) -> Result<c_int> {
        if let Some(why) = self.lost.get() {
            return Err(Error::Device(why.clone()));
        }
        // SAFETY: the context is retained for the life of the process.
        let code = match unsafe { (self.driver.cuCtxSetCurrent)(self.context) } {
            0 => f(self.driver),
            code => code,
        };
        if number::FATAL.contains(&code) {
            let (name, last) = (&self.name, lock(&self.last).clone());
            let why = format!(
                "{name} failed, and this process cannot use it any more: {}\nlast launched kernel: \
                 {last}; with DEBUG=2 each launch is synchronized, so that it is the failed one",
                self.driver.explain(code)
            );
            return Err(Error::Device(self.lost.get_or_init(|| why).clone()));
        }
        Ok(code)
    }

    /// Calls the driver, and turns a failure into an error.
    pub fn call(&self, what: &str, f: impl FnOnce(&Driver) -> c_int) -> Result<()> {
        match self.ask(f)? {
            0 => Ok(()),
            code => {
                Err(Error::Device(format!("{}: {what}: {}", self.name, self.driver.explain(code))))
            }
        }
    }

    /// Waits for all operations.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        self.call("synchronizing", |d| unsafe { (d.cuStreamSynchronize)(self.stream) })
    }

    /// Creates an event, not yet recorded.
    pub fn event(&self, flags: u32) -> Result<Event> {
        let mut event = null_mut();
        // SAFETY: writes one handle.
        self.call("creating an event", |d| unsafe { (d.cuEventCreate)(&mut event, flags) })?;
        Ok(Event(event))
    }

    /// Records an event behind all operations so far.
    pub fn record(&self, event: Event) -> Result<()> {
        // SAFETY: both handles live as long as the process.
        self.call("recording an event", |d| unsafe { (d.cuEventRecord)(event.0, self.stream) })
    }

    /// Records the kernel that is launched next, for errors.
    pub fn note(&self, kernel: &Arc<str>) {
        *lock(&self.last) = kernel.clone();
    }

    /// Runs a function between two events of the stream, waits for it, and returns the time between
    /// them.
    pub fn timed(&self, f: impl FnOnce() -> Result<()>) -> Result<std::time::Duration> {
        let mut timer = lock(&self.timer);
        if timer.is_none() {
            *timer = Some([self.event(0)?, self.event(0)?]);
        }
        let [start, end] = timer.expect("made above");
        self.record(start)?;
        f()?;
        self.record(end)?;
        let mut ms = 0.0;
        // SAFETY: both points were set; the second call writes one number.
        self.call("waiting for a kernel", |d| unsafe {
            match (d.cuEventSynchronize)(end.0) {
                0 => (d.cuEventElapsedTime)(&mut ms, start.0, end.0),
                code => code,
            }
        })?;
        Ok(std::time::Duration::from_secs_f64(f64::from(ms) / 1e3))
    }
}
