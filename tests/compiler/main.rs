//! The compiler from outside, a module per subject: how many kernels there are, how their loops are
//! shaped, what they are as text, what they compute and how exactly, what is kept of them, what
//! single devices add, and what is said of mistakes. They are one program because each program
//! holds the whole crate, and linking that takes longer than most of these tests; what needs a
//! process of its own, for what a process counts or allocates, stands in the folder above.

mod assign;
mod bad_input;
mod beam;
mod bitcast;
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
mod math;
mod oracle;
mod out_of_memory;
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
mod visits;
mod webgpu;
mod wide_index;
