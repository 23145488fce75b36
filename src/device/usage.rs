//! How much memory the buffers of each device take, whatever allocator it comes from: the devices
//! of the host share one.

use super::profile;
use crate::ir::DeviceName;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Of the buffers that are there, as asked for. Memory that was lent to picograd does not
    /// count.
    pub live: usize,
    /// The most that `live` has been since the start, or since the counters were reset.
    pub peak: usize,
    /// Taken from the system: buffers, with what their sizes are rounded up to, and freed memory
    /// that is kept for the next ones. The devices of the host share theirs.
    pub held: usize,
    /// The most that it may take, where that is known.
    pub limit: Option<usize>,
}

/// What the buffers of a device take.
#[derive(Debug)]
pub(crate) struct Usage {
    device: DeviceName,
    live: AtomicUsize,
    peak: AtomicUsize,
}

type Usages = FxHashMap<DeviceName, &'static Usage>;

fn all() -> MutexGuard<'static, Usages> {
    static ALL: LazyLock<Mutex<Usages>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(|e| e.into_inner())
}

/// Starts all peaks from what is there now.
pub(crate) fn reset_peaks() {
    for usage in all().values() {
        usage.peak.store(usage.live.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Usage {
    /// That of a device. Each lives as long as the process: a buffer may be the last thing that
    /// names its device.
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

    /// Bytes that are there, and the most that there were.
    pub fn now(&self) -> (usize, usize) {
        (self.live.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }
}

/// Bytes of a device for as long as this lives.
pub(in crate::device) struct Taken(Option<(&'static Usage, usize)>);

impl Taken {
    /// So many bytes of a device.
    pub fn new(usage: &'static Usage, bytes: usize) -> Taken {
        if bytes == 0 {
            return Taken(None);
        }
        let live = usage.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        usage.peak.fetch_max(live, Ordering::Relaxed);
        profile::memory(&usage.device, live);
        Taken(Some((usage, bytes)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((usage, bytes)) = self.0 {
            profile::memory(&usage.device, usage.live.fetch_sub(bytes, Ordering::Relaxed) - bytes);
        }
    }
}
