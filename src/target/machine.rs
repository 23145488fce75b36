//! The machine of a target: one struct for CPUs and GPUs. Devices detect it; targets without a
//! device, such as those of tests and of `NULL`, have fixed values, so that their kernels are the
//! same everywhere.
//!
//! **Invariant:** a machine is a part of its [`Target`](super::Target), and the program of a kernel
//! depends on kernel, Opts and target alone. So what is detected is the same in every process on
//! one machine: it comes from CPUID, from `/sys` and from tables, never from a measurement. The
//! keys of tuned Opts contain the whole target; those of machine code contain the source text.

use super::CoreRates;
use std::fmt;

/// The properties of a machine that estimates depend on; 0 stands for unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// True if the values are those of a device of this process, false if they are fixed.
    pub detected: bool,
    /// Cores of a CPU that kernels run on; multiprocessors or compute units of a GPU.
    pub cores: usize,
    /// Threads that are resident on a core.
    pub core_threads: usize,
    /// Threads that run in lockstep. Fewer are not worth a workgroup.
    pub lockstep_threads: usize,
    /// Vector registers of a thread; 0 for GPUs.
    pub vector_registers: usize,
    /// Registers for the masks of lanes; 0 where masks are vectors.
    pub mask_registers: usize,
    /// Registers of 32 bits that the threads of a core share; 0 for CPUs.
    pub core_registers: usize,
    /// Bytes of shared memory of a core; 0 for CPUs.
    pub core_shared_bytes: usize,
    /// Bytes of the data caches: L1 and L2 of a core, L3; of a GPU, L1 of a core, and L2.
    pub cache_bytes: [usize; 3],
    /// Hardware threads of a CPU, or cores of a GPU, that share each of these caches.
    pub cache_threads: [usize; 3],
    /// Bytes of memory that are fetched together.
    pub line_bytes: usize,
    /// Clock rate in kHz.
    pub clock_khz: usize,
    /// Memory bandwidth in bytes per second.
    pub bandwidth: usize,
    /// Rates of a core of a CPU, per cycle.
    pub rates: CoreRates,
    /// True if stores can bypass the caches.
    pub nontemporal_stores: bool,
    /// Cost of storing a 32-bit element and reading it back, in simple instructions on an element.
    /// Measured on a core with 175 GFLOP/s and 13 GB/s (`copy`): about 40 in memory, and half of
    /// that in a cache. Devices do not report it, and plans of all devices use this value.
    pub store_cost: f64,
    /// Cost of launching a kernel, in the same unit.
    pub launch_cost: f64,
}

impl Machine {
    /// Returns a CPU with vectors of this size: AVX-512 has 32 registers, AVX2 has 16. The fixed
    /// values are those of a Xeon of 8 cores.
    pub const fn cpu(vector_bytes: usize) -> Machine {
        Machine {
            detected: false,
            cores: 8,
            core_threads: 1,
            lockstep_threads: 1,
            vector_registers: if vector_bytes >= 64 { 32 } else { 16 },
            mask_registers: if vector_bytes >= 64 { 8 } else { 0 },
            core_registers: 0,
            core_shared_bytes: 0,
            cache_bytes: [32 << 10, 1 << 20, 32 << 20],
            cache_threads: [1, 1, 8],
            line_bytes: 64,
            clock_khz: 0,
            bandwidth: 0,
            rates: CoreRates::of_vectors(vector_bytes),
            nontemporal_stores: true,
            store_cost: 32.0,
            launch_cost: 20_000.0,
        }
    }

    /// Returns a GPU. The fixed values are those of an H200.
    pub const fn gpu() -> Machine {
        Machine {
            detected: false,
            cores: 132,
            core_threads: 2048,
            lockstep_threads: 32,
            vector_registers: 0,
            core_registers: 1 << 16,
            core_shared_bytes: 228 << 10,
            cache_bytes: [256 << 10, 50 << 20, 0],
            cache_threads: [1, 132, 0],
            line_bytes: 128,
            clock_khz: 0,
            bandwidth: 0,
            rates: CoreRates::UNKNOWN,
            nontemporal_stores: false,
            ..Machine::cpu(0)
        }
    }

    /// Returns a GPU of which nothing is known but what its device tells.
    pub const fn unknown_gpu() -> Machine {
        Machine {
            detected: true,
            cores: 0,
            core_threads: 0,
            core_registers: 0,
            core_shared_bytes: 0,
            cache_bytes: [0; 3],
            cache_threads: [0; 3],
            ..Machine::gpu()
        }
    }

    /// Returns the bytes of the last-level cache that the cores have together.
    pub fn last_level_bytes(&self) -> usize {
        let level = self.cache_bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0);
        self.cache_bytes[level].min(self.last_level_share().saturating_mul(self.cores))
    }
    /// Returns the bytes of the last-level cache for each of those that share it.
    pub fn last_level_share(&self) -> usize {
        let level = self.cache_bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0);
        self.cache_bytes[level] / self.cache_threads[level].max(1)
    }
}

/// Prints the known facts on one line: `2 cores, L1 48 KiB, L2 2 MiB, lines of 64 bytes` and so on.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts = Vec::new();
        let mut add = |known: usize, text: String| facts.extend((known > 0).then_some(text));
        add(self.cores, format!("{} cores", self.cores));
        if self.core_threads > 1 {
            add(self.core_threads, format!("{} threads per core", self.core_threads));
        }
        add(self.core_registers, format!("{} registers per core", self.core_registers));
        add(self.core_shared_bytes, format!("shared memory {}", bytes(self.core_shared_bytes)));
        add(self.vector_registers, format!("{} vector registers", self.vector_registers));
        add(self.mask_registers, format!("{} mask registers", self.mask_registers));
        for (i, size) in self.cache_bytes.into_iter().enumerate() {
            let sharers = match self.cache_threads[i] {
                0 | 1 => String::new(),
                n => format!(" for {n} threads"),
            };
            add(size, format!("L{} {}{sharers}", i + 1, bytes(size)));
        }
        add(self.line_bytes, format!("lines of {} bytes", self.line_bytes));
        add(self.clock_khz, format!("{:.2} GHz", self.clock_khz as f64 / 1e6));
        add(self.bandwidth, format!("{:.0} GB/s", self.bandwidth as f64 / 1e9));
        let CoreRates { fmas, loads, stores, shuffles, cycle_bytes, .. } = self.rates;
        if self.rates != CoreRates::UNKNOWN {
            facts.push(format!(
                "per cycle {fmas} multiply-adds, {loads} loads, {stores} stores, {shuffles} \
                 shuffles, {} bytes from L2, {} from L3, {} from memory",
                cycle_bytes[0], cycle_bytes[1], cycle_bytes[2]
            ));
        }
        f.write_str(&facts.join(", "))
    }
}

fn bytes(n: usize) -> String {
    if n >= 1 << 20 { format!("{} MiB", n >> 20) } else { format!("{} KiB", n >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_last_cache() {
        assert_eq!(Machine::cpu(64).last_level_share(), 4 << 20);
        assert_eq!(Machine::gpu().last_level_share(), (50 << 20) / 132);
        assert_eq!(Machine::unknown_gpu().last_level_share(), 0);
    }

    #[test]
    fn masks_and_rates_follow_the_vectors() {
        let (wide, narrow) = (Machine::cpu(64), Machine::cpu(32));
        assert_eq!((wide.mask_registers, narrow.mask_registers), (8, 0));
        assert_eq!((wide.rates.stores, narrow.rates.stores), (1.0, 2.0));
        assert_eq!(Machine::gpu().rates, CoreRates::UNKNOWN);
    }

    #[test]
    fn known_facts_are_printed() {
        let text = Machine::cpu(64).to_string();
        assert!(text.contains("L3 32 MiB for 8 threads"), "{text}");
        assert!(text.contains("per cycle 2 multiply-adds, 2 loads, 1 stores"), "{text}");
        assert!(!Machine::unknown_gpu().to_string().contains("per cycle"));
    }
}
