//! Memory of the buffers of each device, independent of the allocator: the devices of the host
//! share one.

use super::backend::lock;
use super::profile;
use crate::ir::DeviceName;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes of live buffers, as requested. Borrowed memory does not count.
    pub live: usize,
    /// Maximum of `live` since the start, or since the counters were reset.
    pub peak: usize,
    /// Bytes taken from the system: buffers, rounded up to their size class, and free blocks. The
    /// devices of the host share theirs.
    pub held: usize,
    /// Maximum bytes that may be taken from the system, if known.
    pub limit: Option<usize>,
}

/// Memory of the buffers of one device.
#[derive(Debug)]
pub(crate) struct Usage {
    device: DeviceName,
    live: AtomicUsize,
    peak: AtomicUsize,
}

type Usages = FxHashMap<DeviceName, &'static Usage>;

fn all() -> MutexGuard<'static, Usages> {
    static ALL: LazyLock<Mutex<Usages>> = LazyLock::new(Mutex::default);
    lock(&ALL)
}

/// Resets all peaks to the current use.
pub(crate) fn reset_peaks() {
    for usage in all().values() {
        usage.peak.store(usage.live.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Usage {
    /// Returns the usage of a device. It lives as long as the process, because buffers refer to it.
    pub fn of(device: &DeviceName) -> &'static Usage {
        let mut all = all();
        if let Some(usage) = all.get(device) {
            return usage;
        }
        let usage: &'static Usage = Box::leak(Box::new(Usage {
            device: device.clone(),
            live: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }));
        all.insert(device.clone(), usage);
        usage
    }

    /// Live and peak bytes.
    pub fn now(&self) -> (usize, usize) {
        (self.live.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }
}

/// Bytes that count as live until this is dropped.
pub(in crate::device) struct LiveBytes(Option<(&'static Usage, usize)>);

impl LiveBytes {
    /// Counts `bytes` of a device as live.
    pub fn new(usage: &'static Usage, bytes: usize) -> LiveBytes {
        if bytes == 0 {
            return LiveBytes(None);
        }
        let live = usage.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        usage.peak.fetch_max(live, Ordering::Relaxed);
        profile::memory(&usage.device, live);
        LiveBytes(Some((usage, bytes)))
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        if let Some((usage, bytes)) = self.0 {
            profile::memory(&usage.device, usage.live.fetch_sub(bytes, Ordering::Relaxed) - bytes);
        }
    }
}
