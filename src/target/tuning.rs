//! Thresholds that were measured. The GPU figures are from an H200, the CPU figures from a Xeon
//! with AVX-512, unless a field says otherwise.
//!
//! Properties of the machine are not here but in [`Machine`](super::Machine). Some thresholds still
//! stand for one, such as `row_bytes` of the scheduler and `interleaved_scans`: with the detected
//! value the measured machines would get other kernels, which have not been measured.

/// Measured thresholds of the heuristic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Thresholds of the scheduler.
    pub schedule: ScheduleTuning,
    /// Thresholds of targets without workgroups.
    pub cpu: CpuTuning,
    /// Thresholds of targets with workgroups.
    pub gpu: GpuTuning,
    /// Amounts that the beam search tries.
    pub search: SearchTuning,
    /// Threads that saturate the device with register-tiled kernels; 0 for CPUs. Resident threads
    /// are more: 270,336 on an H200, of which register tiles need a quarter.
    pub saturating_threads: usize,
    /// Iterations of a copy to shared memory or to a panel that are unrolled, so that their loads
    /// overlap.
    pub copy_unroll: usize,
    /// Minimum number of accumulators that are each updated once per unrolled iteration: the others
    /// keep the arithmetic units busy during the latency of one. Fewer accumulators get the
    /// combined value of all unrolled iterations, which shortens the dependency chain.
    pub many_accumulators: usize,
    /// Weight of a store in the choice of lanes, where a load has 1: it decides ties.
    pub store_weight: f64,
}

/// Thresholds of the scheduler. The unit of work is one simple instruction on one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleTuning {
    /// The longest row, in bytes, that one kernel walks more than once: half of an L2 cache of
    /// 1 MiB, on every device.
    pub row_bytes: usize,
    /// Work up to which a value is always rematerialized: a load with a conversion, a relu, a
    /// negation.
    pub free_work: f64,
    /// Minimum number of outputs of a tile. Inside a reduction a value is computed once for each
    /// tile.
    pub tile_outputs: f64,
    /// Outputs of a kernel below which threads are idle.
    pub few_outputs: f64,
    /// Maximum work of a value inside a loop that runs in order, on one thread.
    pub ordered_work: f64,
    /// Work that is worth distributing over threads.
    pub distributed_work: f64,
    /// Work on one row that is worth a kernel of its own, when there are few rows.
    pub row_work: f64,
    /// Minimum number of elements of a row whose reduction is split in two, if there are few rows.
    pub split_row: usize,
    /// Rows that keep all threads busy without a split.
    pub split_rows: usize,
    /// Approximate number of pieces of a row that is split.
    pub row_pieces: usize,
    /// Maximum number of pieces of a row whose length has no good divisor.
    pub max_pieces: usize,
    /// Of each five of these, the fewest that are considered: the number that leaves the shortest
    /// remainder is taken.
    pub uneven_pieces_of_5: usize,
    /// Pieces of a row that is split, at least.
    pub min_pieces: usize,
    /// Pieces of a row whose length they divide, at most.
    pub even_pieces: usize,
    /// Vectors of a piece, at least.
    pub piece_vectors: usize,
    /// A divisor of the elements of a piece along unit stride: those of a vector of 64 bytes.
    pub piece_lanes: usize,
    /// Minimum number of uses of each factor of a sum of products that is computed in tiles.
    pub product_uses: usize,
    /// Outputs of a tile of a sum of products.
    pub product_tile: usize,
    /// Minimum number of iterations of a piece of a sum of products.
    pub product_row: usize,
    /// Parts of a sum of products that are worth storing partial results.
    pub min_product_parts: usize,
    /// Approximate number of elements of a block of a scan.
    pub scan_block: usize,
    /// Minimum number of blocks of a blocked scan, if there are few rows: a shorter one takes less
    /// time than two more kernels.
    pub scan_blocks: usize,
    /// Rows of a scan that keep all threads busy without blocks.
    pub scan_rows: usize,
    /// Minimum number of blocks of a blocked scan of any number of rows, for the accuracy of sums.
    pub long_scan: usize,
    /// Maximum work per element that is fused into the loop of a scan: it runs in order, without
    /// lanes.
    pub scan_epilogue: f64,
    /// Maximum number of operands of a concatenation for which a select is cheaper than a store and
    /// a load, if one user reads the result.
    pub fused_operands: usize,
    /// Maximum number of operands of a concatenation that every user computes with a select.
    pub select_operands: usize,
    /// Number of elements below which a launch takes longer than selects between a few operands.
    pub select_elements: usize,
    /// Number of bytes from which on a second copy of a concatenation costs more than compiling
    /// kernels that differ in where they write.
    pub copied_bytes: usize,
}

/// Amounts of Opts that the beam search tries. Those that do not divide an axis do not apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchTuning {
    /// Outputs per thread along an axis, and unrolled iterations of a reduction.
    pub copies: &'static [usize],
    /// Further copies on a CPU, where they are vector lanes.
    pub cpu_lanes: &'static [usize],
    /// Threads of a workgroup along an axis.
    pub threads: &'static [usize],
    /// Chunks of `THREAD`.
    pub chunks: &'static [usize],
    /// Iterations of a reduction whose inputs are staged together in shared memory.
    pub gpu_steps: &'static [usize],
    /// Iterations of a reduction whose inputs are staged together in the cache of a CPU.
    pub cpu_steps: &'static [usize],
    /// Tensor-core mappings: there are as many as pairs of output axes.
    pub tensor_core_mappings: &'static [usize],
    /// Multiples to which axes are padded.
    pub padding: &'static [usize],
    /// Fraction by which padding may extend an axis of constant extent: more is wasted work.
    pub padding_fraction: f64,
    /// Maximum extent of an axis that is upcast or unrolled completely.
    pub whole_axis: usize,
}

/// Thresholds of the heuristic for CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTuning {
    /// An input that is packed, and the values that `REUSE` stores, take one part of an L2 cache of
    /// this many.
    pub parts_of_l2: usize,
    /// Nanoseconds of a simple operation on one element on one core: 1/16 of a vector operation,
    /// two of which start in a cycle, and its share of the loop.
    pub operation_ns: f64,
    /// Nanoseconds of a byte of a buffer on one core, between those of a cache (0.02) and those of
    /// memory (0.08).
    pub byte_ns: f64,
    /// Nanoseconds of an iteration of a loop that runs in order.
    pub ordered_ns: f64,
    /// Estimated nanoseconds of a kernel below which chunks cost more than they save: a thread
    /// that spins starts after one microsecond, one that sleeps after ten.
    pub min_chunked_ns: f64,
    /// Estimated nanoseconds of a chunk, at least.
    pub chunk_ns: f64,
    /// The fraction of the time of a kernel that all chunks together may spend on what each of them
    /// computes again: its reciprocal.
    pub repeated_work: f64,
    /// The threads that chunks are made for, on every machine: a kernel is the same program for
    /// every number of threads.
    pub reference_threads: usize,
    /// Chunks for each of these threads, at most: with four, a thread that loses its core delays
    /// the kernel by a quarter of its part.
    pub thread_chunks: usize,
    /// Scans that a thread interleaves: about the latency of an addition in cycles.
    pub interleaved_scans: usize,
    /// Vectors of a reduction that are combined before they reach the accumulator, so that one
    /// latency is paid in place of several.
    pub reduce_vectors: usize,
    /// Vectors of a reduction, in units of `reduce_vectors`, from which on they are combined: with
    /// fewer the loop runs once.
    pub reduce_rounds: usize,
    /// Outputs that are computed together if each reads a stream of its own.
    pub streams: usize,
    /// Reductions of a kernel of such streams, at most.
    pub stream_reduces: usize,
    /// Rows that are computed together if they are reduced and then used.
    pub rows: usize,
    /// Reductions of such rows, at most.
    pub row_reduces: usize,
    /// Reductions of a kernel that become vectors after the first one, at most.
    pub vectorized_reduces: usize,
    /// Cost of a lane that is loaded and inserted on its own, in vector loads.
    pub lane_load: f64,
    /// The same for a lane under a mask of its own. Measured on a convolution.
    pub masked_lane_load: f64,
    /// Cost of a lane that is stored on its own, in vector stores.
    pub lane_store: f64,
    /// Accumulators of a register tile with 32 vector registers, and with 16. The other registers
    /// hold what is loaded.
    pub tile_accumulators: [usize; 2],
    /// Maximum number of copies along one axis of a register tile.
    pub tile_side: usize,
    /// Maximum number of axes of a register tile besides that of its lanes.
    pub tile_axes: usize,
    /// Factor by which the main reduction of a register tile exceeds all others in work.
    pub main_reduce: f64,
    /// Minimum work of a value that `REUSE` stores, in simple operations: a store and a load of it,
    /// and what they evict from the L1 cache, cost less.
    pub reuse_work: usize,
    /// Accumulators of the register tile of a convolution's gradient, of each four vector
    /// registers: the others hold what is loaded.
    pub conv_registers_of_4: usize,
    /// Maximum number of unrolled taps of a convolution's gradient.
    pub conv_taps: usize,
    /// Minimum number of uses of each element of a packed input.
    pub pack_uses: usize,
    /// Maximum number of vectors and of rows of the register tile of a panel.
    pub panel_tile: [usize; 2],
    /// Minimum number of accumulators of the register tile of a panel.
    pub min_panel_tile: usize,
    /// Lanes of a vector from which on panels are made.
    pub min_panel_lanes: usize,
    /// Registers that a panel's tile leaves to the compiler.
    pub spare_registers: usize,
    /// Iterations of a matrix product in the time of carrying its accumulators through memory once.
    /// Measured on an EPYC: blocks of 512 take 5 % longer than one of 1024.
    pub carried_steps: f64,
    /// Maximum number of rows of the register tile of a panel that has a block of the sum. Measured
    /// on an EPYC: 6×64 runs at 508 GFLOP/s, 8×48 at 382.
    pub blocked_rows: usize,
    /// Vectors of a tile of columns, in sums over rows that are read in order.
    pub row_sum_vectors: usize,
    /// Rows that are added at a time. Measured on an EPYC: 8 rows reach 128 GB/s, 4 rows 113, and
    /// columns by columns 67.
    pub row_sum_rows: usize,
    /// Columns of a chunk, at least: a page of memory, because reading ahead starts again in each.
    pub row_sum_columns: usize,
    /// Minimum number of uses of a panel that is copied, in register tiles.
    pub panel_uses: usize,
    /// The same where the input has no unit stride along vectors, so that elements are copied one
    /// by one.
    pub strided_panel_uses: usize,
    /// Minimum fraction of useful elements in overlapping vectors, where vectors of half the lanes
    /// divide the axis. Measured on rows of 24 pixels and an EPYC, which takes two cycles for a
    /// vector of 64 bytes.
    pub overlap_efficiency: f64,
    /// Maximum fraction by which an axis of a product is padded.
    pub padding_fraction: f64,
    /// Factor on the work of a product whose columns are padded: elements are copied and stored one
    /// by one. An estimate.
    pub padded_columns: f64,
    /// Factor on the work of a product whose rows are padded: the other matrix is copied as well,
    /// for each panel. Measured on 1022 rows.
    pub padded_rows: f64,
}

/// Thresholds of the heuristic for GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuTuning {
    /// Multiplications of a warp in the time of fetching one line of memory.
    pub multiplies_per_fetch: f64,
    /// Partial results that a thread reduces in one round through shared memory. Few, because all
    /// threads of the workgroup read shared memory at the same time.
    pub reduce_round: usize,
    /// Threads of a workgroup, where there is a choice.
    pub workgroup: usize,
    /// Iterations of a long axis, in warps: fewer leave threads that share it one iteration each.
    pub long_axis: usize,
    /// Workgroups that are resident together, at least, where a workgroup shares a reduction.
    pub core_workgroups: usize,
    /// Maximum number of threads that share a row: with more, too few workgroups are resident.
    pub row_threads: usize,
    /// Vectors of a row for each of its threads, at least.
    pub thread_vectors: usize,
    /// Factor by which a divisor of a row may be below the wanted threads. With fewer threads,
    /// padding the row costs less.
    pub row_shortfall: usize,
    /// Threads of a workgroup that several short rows share.
    pub short_rows_threads: usize,
    /// Maximum number of vectors of a row that a thread holds in registers.
    pub row_vectors: usize,
    /// Vectors of a row below which its reduction is not shared, unless the row is written too.
    pub min_row_vectors: usize,
    /// Vectors of a long row whose loads are in flight together.
    pub row_unroll: usize,
    /// Maximum number of iterations of another reduction in a kernel of row reductions.
    pub short_reduce: usize,
    /// Iterations of a reduction whose loads are in flight together.
    pub unroll: usize,
    /// Threads along each side of a workgroup that transposes.
    pub transpose_side: usize,
    /// Outputs below which threads share each of them, because most of the device would be idle.
    pub few_outputs: usize,
    /// Threads along each side of the workgroup of a matrix product.
    pub matmul_side: usize,
    /// Iterations of a matrix product whose inputs are staged together, in order of preference.
    pub matmul_steps: [usize; 2],
    /// Outputs from which on a thread computes a square tile of this side.
    pub matmul_tiles: [(usize, usize); 2],
    /// Adjacent outputs of such a tile along each side, which are loaded and stored together.
    pub matmul_vector: usize,
    /// Side of the tile whose iterations are unrolled: the loads of one are then in flight during
    /// the one before, which saves a tenth of the time.
    pub matmul_unrolled_tile: usize,
    /// Maximum number of copies along one axis of a register tile.
    pub tile_side: usize,
    /// Iterations of a sum that a register tile unrolls, at most, unless it is the whole sum.
    pub tile_steps: usize,
    /// Threads along two axes of a workgroup that are compared for register tiles, besides a warp.
    pub tile_workgroups: [[usize; 2]; 4],
    /// Fraction of the shorter of fetching and multiplying that the longer does not hide.
    pub exposed: f64,
    /// Bytes of padding between rows of a staged tile that is written across its rows, which avoids
    /// bank conflicts between adjacent threads.
    pub row_padding: usize,
    /// Maximum number of accumulators of a register tile, so that they stay in registers.
    pub tile_accumulators: usize,
    /// Maximum number of unrolled multiplications of a register tile: compile time grows with them.
    pub tile_multiplies: usize,
    /// Maximum number of values that a thread holds: accumulators and loads of one iteration.
    pub tile_values: usize,
    /// Cost of a masked load, in multiplications.
    pub mask_cost: f64,
    /// Cost of a product under a mask that differs within the tile, in multiplications.
    pub masked_product_cost: f64,
    /// Threads below which even a CPU that runs workgroups is not saturated.
    pub min_threads: usize,
    /// Minimum number of outputs that one factor alone serves in a register tile.
    pub factor_outputs: usize,
    /// Outputs below which threads share a long sum instead of computing tiles.
    pub tile_outputs: usize,
    /// Maximum number of register tiles that are compared.
    pub compared_tiles: usize,
    /// Register tiles whose workgroups are compared, the most promising first.
    pub tried_tiles: usize,
    /// Maximum factor by which padding increases the work of tensor cores.
    pub padded_work: f64,
    /// Minimum number of iterations of a tensor-core loop whose loads are prefetched.
    pub prefetch_iterations: usize,
    /// Maximum number of outputs of a warp along both sides with tensor cores: more exceed its
    /// registers.
    pub warp_tile: [usize; 2],
    /// Maximum number of warps of a workgroup along both sides with tensor cores.
    pub warps: [usize; 2],
    /// Warps below which smaller tiles are better, because most of the device would be idle.
    pub few_warps: usize,
}

impl Tuning {
    /// The measured thresholds.
    pub const MEASURED: Tuning = Tuning {
        schedule: ScheduleTuning {
            row_bytes: 1 << 19,
            free_work: 4.0,
            tile_outputs: 8.0,
            few_outputs: 16.0,
            ordered_work: 32.0,
            distributed_work: 131_072.0,
            row_work: 1_048_576.0,
            split_row: 1 << 15,
            split_rows: 256,
            row_pieces: 256,
            max_pieces: 320,
            uneven_pieces_of_5: 3,
            min_pieces: 8,
            even_pieces: 1024,
            piece_vectors: 8,
            piece_lanes: 16,
            product_uses: 16,
            product_tile: 32,
            product_row: 256,
            min_product_parts: 4,
            scan_block: 128,
            scan_blocks: 4,
            scan_rows: 64,
            long_scan: 32,
            scan_epilogue: 24.0,
            fused_operands: 8,
            select_operands: 3,
            select_elements: 1 << 14,
            copied_bytes: 1 << 20,
        },
        cpu: CpuTuning {
            parts_of_l2: 4,
            operation_ns: 0.015,
            byte_ns: 0.03,
            ordered_ns: 1.0,
            min_chunked_ns: 10_000.0,
            chunk_ns: 5_000.0,
            repeated_work: 8.0,
            reference_threads: 8,
            thread_chunks: 4,
            interleaved_scans: 4,
            reduce_vectors: 4,
            reduce_rounds: 2,
            streams: 8,
            stream_reduces: 1,
            rows: 4,
            row_reduces: 3,
            vectorized_reduces: 4,
            lane_load: 2.0,
            masked_lane_load: 6.0,
            lane_store: 4.0,
            tile_accumulators: [25, 10],
            tile_side: 8,
            tile_axes: 3,
            main_reduce: 8.0,
            reuse_work: 12,
            conv_registers_of_4: 3,
            conv_taps: 8,
            pack_uses: 64,
            panel_tile: [4, 8],
            min_panel_tile: 4,
            min_panel_lanes: 4,
            spare_registers: 2,
            carried_steps: 25.0,
            blocked_rows: 6,
            row_sum_vectors: 4,
            row_sum_rows: 8,
            row_sum_columns: 1024,
            panel_uses: 4,
            strided_panel_uses: 8,
            overlap_efficiency: 0.8,
            padding_fraction: 0.125,
            padded_columns: 1.1,
            padded_rows: 2.0,
        },
        gpu: GpuTuning {
            multiplies_per_fetch: 4.0,
            reduce_round: 8,
            workgroup: 256,
            long_axis: 2,
            core_workgroups: 2,
            row_threads: 512,
            thread_vectors: 2,
            row_shortfall: 2,
            short_rows_threads: 128,
            row_vectors: 16,
            min_row_vectors: 8,
            row_unroll: 4,
            short_reduce: 64,
            unroll: 8,
            transpose_side: 16,
            few_outputs: 1 << 15,
            matmul_side: 16,
            matmul_steps: [16, 8],
            matmul_tiles: [(1 << 22, 8), (1 << 19, 4)],
            matmul_vector: 4,
            matmul_unrolled_tile: 8,
            tile_side: 8,
            tile_steps: 4,
            tile_workgroups: [[16, 16], [8, 8], [8, 4], [4, 8]],
            exposed: 0.3,
            row_padding: 16,
            tile_accumulators: 64,
            tile_multiplies: 400,
            tile_values: 104,
            mask_cost: 3.0,
            masked_product_cost: 3.0,
            min_threads: 256,
            factor_outputs: 8,
            tile_outputs: 1024,
            compared_tiles: 8192,
            tried_tiles: 12,
            padded_work: 2.0,
            prefetch_iterations: 4,
            warp_tile: [64, 64],
            warps: [2, 2],
            few_warps: 512,
        },
        search: SearchTuning {
            copies: &[2, 3, 4, 5, 6, 7, 8, 16],
            cpu_lanes: &[32, 64],
            threads: &[2, 4, 8, 16, 32, 64, 128, 256],
            chunks: &[2, 4, 8, 16, 32, 64],
            gpu_steps: &[8, 16, 32],
            cpu_steps: &[256, 512],
            tensor_core_mappings: &[0, 1, 2, 3],
            padding: &[4, 8, 16, 32],
            padding_fraction: 0.25,
            whole_axis: 16,
        },
        saturating_threads: 0,
        copy_unroll: 8,
        many_accumulators: 8,
        store_weight: 1.5,
    };
    /// The thresholds for C: it has no vector operation that multiplies and adds, and clang
    /// recognizes fewer of them with more accumulators.
    pub const C: Tuning = Tuning {
        cpu: CpuTuning { tile_accumulators: [20, 10], ..Tuning::MEASURED.cpu },
        ..Tuning::MEASURED
    };

    /// Returns the measured thresholds of a GPU that this number of threads saturates.
    pub const fn gpu(saturating_threads: usize) -> Tuning {
        Tuning { saturating_threads, ..Tuning::MEASURED }
    }
}
