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
}

impl DeviceTraits {
    /// Those of a device that is not known.
    pub const UNKNOWN: DeviceTraits =
        DeviceTraits { limits: KernelLimits::UNLIMITED, threads: 0, costs: Costs::FIXED };

    /// Returns the traits of a target.
    pub fn of(target: &Target) -> DeviceTraits {
        DeviceTraits {
            limits: KernelLimits::of(target),
            threads: target.tuning.saturating_threads,
            costs: Costs::of(target),
        }
    }
}
