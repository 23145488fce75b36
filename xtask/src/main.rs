//! Development tasks of the project; `cargo xtask help` lists them.

mod beam;
mod bench;
mod compare;
mod corpus;
mod counts;
mod cpu;
mod cpu_workloads;
mod fuzz;
mod gpu;
mod ir;
mod jit;
mod kernel_compile;
mod kernels;
mod limits;
mod memory;
mod models;
mod op_cases;
mod ops;
mod package;
mod parallel;
mod readme_table;
mod replay;
mod resnet;
mod saved;
mod suite;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [FILTER…]        run all tests; with filters only those whose names contain one of them;
                        with DEV=<device> only the device tests, on that device
  lint                  check the format and run clippy on all code
  bench SUITE [OPTION…] run a benchmark in release mode and print one line of JSON per figure;
                        --save writes the figures to benches/results
    compile             compile time from tensors to source; --quick measures for less time
    kernels             number of kernels of models and training steps
    kernel_compile      time from linear program to machine code, for each installed compiler
    cpu [NAME…]         throughput of CPU kernels and its ratio to the roofline; --quick;
                        --compare [--peer PYTHON] alternates with reference kernels and peers;
                        --counts counts instructions, loads and spills of innermost loops
    gpu [NAME…]         throughput of kernels on the default device
    jit [NAME…]         overhead of a replay, and the speedup of captured functions
    memory [NAME…]      peak memory of training steps and of a decoded token
    ops [NAME…]         latency of single ops and gradients; --peer PYTHON also measures PyTorch;
                        --quick, --list (print the cases), --sample (40 of them)
    beam [NAME…]        speedup of a beam search over the heuristic
  readme-table          generate the tables of README.md from benches/results
  package               build tests and benchmarks into target/device, for a machine without cargo
  fuzz [--seconds N] [--seed S] [--realizations N] [--replay FILE]
                        run random graphs on every device; a failure is shrunk and printed;
                        --realizations runs programs of which a part is realized in between,
                        --replay repeats a printed failure
  replay REV [--show N] [--ignore-opts] [TARGET…]
                        compare the kernels of a fixed corpus with those of a revision;
                        --ignore-opts compares text and launch sizes only
  help                  print this text
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = words.split_first().map_or(("", &[][..]), |(t, r)| (t.as_str(), r));
    match task {
        "test" => suite::run(rest),
        "lint" => suite::lint(),
        "bench" => bench::run(rest),
        "package" => ended(package::run()),
        "fuzz" => ended(fuzz::main(rest)),
        "replay" => ended(replay::run(rest)),
        "readme-table" => ended(readme_table::run()),
        "corpus" => ended(corpus::run(rest)),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        "" => usage("missing task"),
        other => usage(&format!("unknown task `{other}`")),
    }
}

fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Prints an error and the usage; the exit code is 2.
pub fn usage(what: &str) -> ExitCode {
    eprintln!("xtask: {what}\n\n{USAGE}");
    ExitCode::from(2)
}
