//! Counters of what this process has run, in total and per device.

use super::backend::lock;
use super::{Device, usage};
use crate::ir::DeviceName;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

/// Totals of the process, or of one device. The memory of a device is [`Device::memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Kernels run.
    pub kernels: u64,
    /// Copies between devices, each counted at its destination.
    pub copies: u64,
    /// Arithmetic operations, as estimated from programs.
    pub flops: f64,
    /// Bytes of buffers touched, each counted once per kernel.
    pub bytes: f64,
    /// Time in kernels. A device that runs asynchronously, such as CUDA, reports it only if `DEBUG`
    /// shows kernels or `PROFILE` times them.
    pub time: Duration,
    /// Kernels compiled, or loaded from the disk cache. Devices that run the same code, such as all
    /// CPUs of a process, share it, and it counts for the first.
    pub compiled: u64,
    /// Those of them that were loaded from the disk cache, without a compiler.
    pub from_cache: u64,
    /// Time from kernels to executables: choosing or searching Opts, lowering, rendering, and
    /// compiling or loading.
    pub compile_time: Duration,
    /// Kernels whose Opts were chosen by a beam search.
    pub searched: u64,
    /// Graphs planned. A plan may be for several devices, so that only the process has this
    /// number; that of a device is 0.
    pub schedules: u64,
    /// Graphs whose plan was in the schedule cache.
    pub schedule_hits: u64,
}

impl Counters {
    fn add(&mut self, more: &Counters) {
        self.kernels += more.kernels;
        self.copies += more.copies;
        self.flops += more.flops;
        self.bytes += more.bytes;
        self.time += more.time;
        self.compiled += more.compiled;
        self.from_cache += more.from_cache;
        self.compile_time += more.compile_time;
        self.searched += more.searched;
        self.schedules += more.schedules;
        self.schedule_hits += more.schedule_hits;
    }
}

/// The counters. There are few devices, so that a list is as fast as a map.
#[derive(Default)]
struct State {
    total: Counters,
    devices: Vec<(DeviceName, Counters)>,
}

impl State {
    fn add(&mut self, device: &DeviceName, more: &Counters) {
        self.total.add(more);
        match self.devices.iter_mut().find(|d| d.0 == *device) {
            Some((_, counters)) => counters.add(more),
            None => self.devices.push((device.clone(), *more)),
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
    lock(&STATE)
}

/// Returns the totals of the process now; [`Device::counters`] has those of a device.
///
/// ```
/// use picograd::{Tensor, device};
/// let before = device::counters().kernels;
/// (Tensor::new([1.0f32, 2.0]) + 1.0).realize()?;
/// assert!(device::counters().kernels > before);
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn counters() -> Counters {
    state().total
}

/// Resets the counters of the process and of all devices, and the memory peaks to the current use.
pub fn reset_counters() {
    *state() = State::default();
    usage::reset_peaks();
}

impl Device {
    /// Returns the counters of one device.
    ///
    /// ```
    /// use picograd::{Device, Tensor};
    /// let x = Tensor::ones([4, 4]).contiguous().to("interp").realize()?;
    /// let before = Device::get("interp")?.counters();
    /// x.sum(0).realize()?;
    /// let after = Device::get("interp")?.counters();
    /// assert_eq!((after.kernels - before.kernels, after.copies - before.copies), (1, 0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn counters(&self) -> Counters {
        state().devices.iter().find(|d| d.0 == *self.name()).map_or_else(Counters::default, |d| d.1)
    }
}

/// Adds counters of a device, and returns the totals of the process.
pub(crate) fn count(device: &DeviceName, did: &Counters) -> Counters {
    let mut state = state();
    state.add(device, did);
    state.total
}

/// Adds counters of several devices.
pub(crate) fn count_all(list: &[(DeviceName, Counters)]) {
    let mut state = state();
    list.iter().for_each(|(device, did)| state.add(device, did));
}

/// Counts a plan, and whether the schedule cache had it.
pub(crate) fn count_plan(hit: bool) {
    state().total.add(&Counters { schedules: 1, schedule_hits: hit as u64, ..Counters::default() });
}
