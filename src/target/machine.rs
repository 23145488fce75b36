//! The machine of a target: one struct for CPUs and GPUs. Devices detect it; targets without a
//! device, such as those of tests and of `NULL`, have fixed values, so that their kernels are the
//! same everywhere.

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
    /// Registers of 32 bits that the threads of a core share; 0 for CPUs.
    pub core_registers: usize,
    /// Bytes of shared memory of a core; 0 for CPUs.
    pub core_shared_bytes: usize,
    /// Bytes of the data caches: L1 and L2 of a core, L3; of a GPU, L1 of a core, and L2.
    pub cache_bytes: [usize; 3],
    /// Bytes of memory that are fetched together.
    pub line_bytes: usize,
    /// Clock rate in kHz.
    pub clock_khz: usize,
    /// Memory bandwidth in bytes per second.
    pub bandwidth: usize,
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
            core_registers: 0,
            core_shared_bytes: 0,
            cache_bytes: [32 << 10, 1 << 20, 32 << 20],
            line_bytes: 64,
            clock_khz: 0,
            bandwidth: 0,
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
            line_bytes: 128,
            clock_khz: 0,
            bandwidth: 0,
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
            ..Machine::gpu()
        }
    }
}

/// Prints the known facts on one line: `2 cores, L1 48 KiB, L2 2 MiB, lines of 64 bytes`.
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
        for (level, size) in (1..).zip(self.cache_bytes) {
            add(size, format!("L{level} {}", bytes(size)));
        }
        add(self.line_bytes, format!("lines of {} bytes", self.line_bytes));
        add(self.clock_khz, format!("{:.2} GHz", self.clock_khz as f64 / 1e6));
        add(self.bandwidth, format!("{:.0} GB/s", self.bandwidth as f64 / 1e9));
        f.write_str(&facts.join(", "))
    }
}

fn bytes(n: usize) -> String {
    if n >= 1 << 20 { format!("{} MiB", n >> 20) } else { format!("{} KiB", n >> 10) }
}
