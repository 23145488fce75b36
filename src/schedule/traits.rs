//! The traits of a device that plans depend on.

use super::KernelLimits;
use super::cost::Costs;
use crate::target::Target;

/// Traits of a device that plans depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTraits {
    /// Limits of one kernel.
    pub limits: KernelLimits,
    /// Threads that saturate the device; 0 for CPUs.
    pub threads: usize,
    /// Costs of kernels.
    pub costs: Costs,
    /// Sizes that decide which stores need not keep their elements in a cache; none if the device
    /// has no such stores.
    pub nontemporal: Option<Nontemporal>,
}

/// The outputs whose stores bypass the caches of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nontemporal {
    /// Their least size in bytes, exclusive: smaller ones are read again from L2.
    pub least_bytes: usize,
    /// The least distance to the command that reads them, exclusive: the bytes of the buffers that
    /// commands name until then.
    pub distance: usize,
}

impl Nontemporal {
    fn of(target: &Target) -> Option<Nontemporal> {
        let machine = &target.machine;
        (machine.nontemporal_stores && !target.grid).then(|| Nontemporal {
            least_bytes: machine.cache_bytes[1],
            distance: machine.last_level_bytes() / 2,
        })
    }
}

impl DeviceTraits {
    /// Those of a device that is not known.
    pub const UNKNOWN: DeviceTraits = DeviceTraits {
        limits: KernelLimits::UNLIMITED,
        threads: 0,
        costs: Costs::FIXED,
        nontemporal: None,
    };

    /// Returns the traits of a target.
    pub fn of(target: &Target) -> DeviceTraits {
        DeviceTraits {
            limits: KernelLimits::of(target),
            threads: target.tuning.saturating_threads,
            costs: Costs::of(target),
            nontemporal: Nontemporal::of(target),
        }
    }
}
