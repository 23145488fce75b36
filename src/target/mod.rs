//! What a backend can do, as data. Optimizer and lowering see this value and nothing else of a
//! device.

mod core_rates;
mod machine;
mod tuning;

pub use core_rates::{CoreRates, Vendor};
pub use machine::Machine;
pub use tuning::{CpuTuning, GpuTuning, ScheduleTuning, SearchTuning, Tuning};

use crate::dtype::{DType, Scalar};
use crate::ir::{Op, TensorCore};

/// The abilities and limits of a renderer with its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// For messages and cache keys.
    pub name: &'static str,
    /// True if there are launch grids, and workgroups with shared memory and barriers.
    pub grid: bool,
    /// True if kernels may be split into chunks, which the threads of a pool claim.
    pub chunks: bool,
    /// The machine that estimates are made for: detected by a device, or fixed values.
    pub machine: Machine,
    /// Measured thresholds.
    pub tuning: Tuning,
    /// Bytes of the widest vector register; 0 where vectors are no use.
    pub vector_bytes: usize,
    /// Maximum number of lanes of a vector value.
    pub max_lanes: u16,
    /// Maximum number of workgroups in each dimension of the grid.
    pub grid_max: [usize; 3],
    /// Maximum number of threads of a workgroup.
    pub local_max: usize,
    /// Maximum number of threads of a workgroup in each dimension.
    pub local_dims: [usize; 3],
    /// Threads of a warp that can read each other's registers; 0 where they cannot.
    pub warp: usize,
    /// Bytes of shared memory; without workgroups, of scratch memory of a thread.
    pub shared_bytes: usize,
    /// Maximum number of buffers of a kernel.
    pub max_buffers: usize,
    /// Bytes of one binding: a longer buffer counts as several. Also the limit of an arena of
    /// intermediates.
    pub buffer_bytes: usize,
    /// True if a fused multiply-add is as fast as a multiplication; sums of products then use it.
    pub fma: bool,
    /// Scalar dtypes that the language can hold and compute with. What is missing is stored as
    /// bits and computed in f32.
    pub arithmetic: &'static [Scalar],
    /// Transcendental ops that the language has at the accuracy that `docs/semantics.md` promises.
    pub native: &'static [(Op, Scalar)],
    /// Products of matrices that the threads of a warp compute together.
    pub tensor_cores: &'static [TensorCore],
}

const WITH_F64: &[Scalar] = &[
    Scalar::Bool,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F32,
    Scalar::F64,
];
const WITHOUT_F64: &[Scalar] = WITH_F64.split_at(WITH_F64.len() - 1).0;
const WITHOUT_64_BITS: &[Scalar] = &[
    Scalar::Bool,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::F32,
];

/// The double-precision functions of the C library, OpenCL and CUDA, and `Ldexp`, which AVX-512
/// has as an instruction.
const WITH_LDEXP: &[(Op, Scalar)] = &[
    (Op::Exp, Scalar::F64),
    (Op::Exp2, Scalar::F64),
    (Op::Log, Scalar::F64),
    (Op::Log2, Scalar::F64),
    (Op::Sin, Scalar::F64),
    (Op::Cos, Scalar::F64),
    (Op::Tan, Scalar::F64),
    (Op::Tanh, Scalar::F64),
    (Op::Erf, Scalar::F64),
    (Op::Pow, Scalar::F64),
    (Op::Ldexp, Scalar::F32),
    (Op::Ldexp, Scalar::F64),
];
const DOUBLE_MATH: &[(Op, Scalar)] = WITH_LDEXP.split_at(WITH_LDEXP.len() - 2).0;

/// The tensor cores that do not round their inputs.
const EXACT_CORES: &[TensorCore] =
    &[TensorCore::F16, TensorCore::F16_LONG, TensorCore::BF16, TensorCore::BF16_LONG];

impl Target {
    /// C, compiled by clang or cc.
    pub const fn c(vector_bytes: usize) -> Target {
        Target {
            name: "C",
            grid: false,
            chunks: true,
            machine: Machine::cpu(vector_bytes),
            tuning: Tuning::C,
            vector_bytes,
            max_lanes: 64,
            grid_max: [1, 1, 1],
            local_max: 1,
            local_dims: [1; 3],
            warp: 0,
            shared_bytes: 512 << 10,
            max_buffers: usize::MAX,
            buffer_bytes: usize::MAX,
            fma: true,
            arithmetic: WITH_F64,
            native: DOUBLE_MATH,
            tensor_cores: &[],
        }
    }
    /// LLVM IR, for the same machine as C.
    pub const fn llvm(vector_bytes: usize) -> Target {
        Target {
            name: "LLVM",
            tuning: Tuning::MEASURED,
            native: if vector_bytes >= 64 { WITH_LDEXP } else { DOUBLE_MATH },
            ..Target::c(vector_bytes)
        }
    }
    /// Machine code for x86-64, for the same machine as C.
    pub const fn x86(vector_bytes: usize) -> Target {
        Target { name: "X86", ..Target::llvm(vector_bytes) }
    }
    /// Returns the interpreter: it supports every Opt, so that each can be checked on it, and as
    /// few buffers in a kernel as Metal.
    pub const fn interp() -> Target {
        Target {
            name: "INTERP",
            grid: true,
            chunks: true,
            machine: Machine::gpu(),
            tuning: Tuning::gpu(256),
            vector_bytes: 16,
            max_lanes: 64,
            grid_max: [usize::MAX; 3],
            local_max: 1024,
            local_dims: [1024; 3],
            warp: 32,
            shared_bytes: 64 << 10,
            max_buffers: 31,
            buffer_bytes: usize::MAX,
            fma: true,
            arithmetic: WITH_F64,
            native: WITH_LDEXP,
            tensor_cores: EXACT_CORES,
        }
    }
    /// OpenCL C, on a device with `double` and the lowest limits of common GPUs.
    pub const fn opencl() -> Target {
        Target {
            name: "OpenCL",
            grid: true,
            chunks: false,
            machine: Machine::gpu(),
            tuning: Tuning::gpu(1 << 14),
            vector_bytes: 16,
            max_lanes: 16,
            grid_max: [usize::MAX; 3],
            local_max: 256,
            local_dims: [256; 3],
            warp: 0,
            shared_bytes: 32 << 10,
            max_buffers: 64,
            buffer_bytes: usize::MAX,
            fma: true,
            arithmetic: WITH_F64,
            native: DOUBLE_MATH,
            tensor_cores: &[],
        }
    }
    /// CUDA C, on a GPU with tensor cores for f16 and bf16.
    pub const fn cuda() -> Target {
        Target {
            name: "CUDA",
            grid: true,
            chunks: false,
            machine: Machine::gpu(),
            tuning: Tuning::gpu(1 << 16),
            vector_bytes: 16,
            max_lanes: 4,
            grid_max: [i32::MAX as usize, 65535, 65535],
            local_max: 1024,
            local_dims: [1024, 1024, 64],
            warp: 32,
            shared_bytes: 48 << 10,
            max_buffers: 480,
            buffer_bytes: usize::MAX,
            fma: true,
            arithmetic: WITH_F64,
            native: DOUBLE_MATH,
            tensor_cores: EXACT_CORES,
        }
    }
    /// Metal Shading Language.
    pub const fn metal() -> Target {
        Target {
            name: "Metal",
            grid: true,
            chunks: false,
            machine: Machine::gpu(),
            tuning: Tuning::gpu(1 << 14),
            vector_bytes: 16,
            max_lanes: 4,
            grid_max: [usize::MAX; 3],
            local_max: 1024,
            local_dims: [1024; 3],
            warp: 0,
            shared_bytes: 32 << 10,
            max_buffers: 31,
            buffer_bytes: usize::MAX,
            fma: true,
            arithmetic: WITHOUT_F64,
            native: &[],
            tensor_cores: &[],
        }
    }
    /// WGSL, on an adapter with 64-bit integers and the lowest limits that WebGPU allows. The
    /// renderer distributes a grid that exceeds a dimension over several.
    pub const fn wgsl() -> Target {
        Target {
            name: "WGSL",
            grid: true,
            chunks: false,
            machine: Machine::gpu(),
            tuning: Tuning::gpu(1 << 14),
            vector_bytes: 16,
            max_lanes: 4,
            grid_max: [u32::MAX as usize, 65535, 65535],
            local_max: 256,
            local_dims: [256, 256, 64],
            warp: 0,
            shared_bytes: 16 << 10,
            max_buffers: 8,
            buffer_bytes: 128 << 20,
            fma: false,
            arithmetic: WITHOUT_F64,
            native: &[],
            tensor_cores: &[],
        }
    }
    /// Returns the target of a device without 64-bit integers and floats.
    pub const fn without_64_bits(self) -> Target {
        Target { arithmetic: WITHOUT_64_BITS, native: &[], ..self }
    }
    /// Returns the target of a device without double precision.
    pub const fn without_f64(self) -> Target {
        Target { arithmetic: WITHOUT_F64, native: &[], ..self }
    }
    /// Returns the target without tensor cores, or with those that round f32 as well, as `TC` and
    /// `ALLOW_TF32` request. A target that has none gets none.
    pub fn with_tensor_cores(self, any: bool, rounding: bool) -> Target {
        let tensor_cores = match (any && !self.tensor_cores.is_empty(), rounding) {
            (false, _) => &[],
            (true, false) => EXACT_CORES,
            (true, true) => TensorCore::ALL,
        };
        Target { tensor_cores, ..self }
    }
    /// Returns the number of adjacent elements of a dtype that one load or store may access.
    pub fn access_lanes(&self, dtype: DType) -> usize {
        // Registers of tensor cores hold two elements of 16 bits, so a vector may have more.
        let lanes = if self.tensor_cores.is_empty() || dtype.itemsize() != 2 {
            self.max_lanes.min(4)
        } else {
            8
        };
        (self.vector_bytes / dtype.itemsize()).min(lanes as usize)
    }
    /// Returns the bytes of an input that is packed, and of values that `REUSE` stores, at most.
    pub fn stored_bytes(&self) -> usize {
        self.machine.cache_bytes[1] / self.tuning.cpu.parts_of_l2
    }
    /// Returns true if the mask of a vector access may have a bool per lane.
    pub fn has_lane_masks(&self) -> bool {
        !self.grid
    }
    /// Returns true if the language computes in this dtype.
    pub fn computes(&self, dtype: DType) -> bool {
        self.arithmetic.contains(&dtype.scalar)
    }
    /// Returns true if the language cannot compute this dtype at all. Floats narrower than f32 are
    /// computed in f32; f64 and 64-bit integers would lose digits.
    pub fn lacks(&self, dtype: DType) -> bool {
        matches!(dtype.scalar, Scalar::F64 | Scalar::I64 | Scalar::U64) && !self.computes(dtype)
    }
    /// Returns true if the language has this transcendental op, or `Ldexp`, at this dtype.
    pub fn has(&self, op: Op, dtype: DType) -> bool {
        self.native.contains(&(op, dtype.scalar))
    }
}
