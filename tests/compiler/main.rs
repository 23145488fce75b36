//! Tests of the compiler, one module per topic: kernel counts, loops, source text, values and their
//! accuracy, caches, devices, and errors. They are one binary because each binary links the whole
//! crate, which takes longer than most of these tests. Tests that need their own process, for its
//! counters or allocator, are in the directory above.

mod api_boundary;
mod assign;
mod bad_input;
mod beam;
mod bitcast;
mod chunks;
mod cl;
#[path = "../common/mod.rs"]
mod common;
mod cpu_loops;
mod cuda_compile;
mod custom_kernel;
mod disk_cache;
mod docs;
mod gather;
mod kernels;
mod ldexp;
mod math;
mod nontemporal;
mod op_coverage;
mod opts;
mod oracle;
mod out_of_memory;
mod reduce_outer;
mod regressions;
mod remainder;
mod render_code;
mod render_text;
mod reuse;
mod safe;
mod shuffle;
mod special;
mod stage;
mod tidy;
mod ulp;
mod unsupported_dtypes;
mod vocabulary;
mod webgpu;
mod wide_index;
mod x86_loops;
