//! Tasks of the project: `cargo xtask help` lists them.

mod beam;
mod bench;
mod corpus;
mod cpu;
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
mod replay;
mod resnet;
mod saved;
mod suite;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [FILTER…]   all tests; with filters only those whose names contain one of them;
                   with DEV=<device> only the tests of results, on that device
  lint             format, and what clippy says of all code
  bench compile    speed of the compiler, one line of JSON per figure; runs in release
  bench kernels    how many kernels models and training steps are
  bench kernel_compile
                   time from a linear program to machine code, through each compiler that is here
  bench cpu        speed of kernels on the CPU and the share of what it can do; --quick for less \
                     time,
                   names or parts of them for some of the workloads
  bench gpu        speed of kernels on the default device
  bench jit        what capturing functions gains, on the default device
  bench memory     the most memory that training steps and a decoded token have at one time, on \
                     the default device
  bench ops        time of single ops and gradients, on the default device; --peer PYTHON measures \
                     PyTorch
                   beside it, --quick for less time, --list for the cases, --sample for 40 of them
  bench beam       what a search for optimisations gains over the heuristic, on the default device
  package          tests and benchmarks as programs in target/device, for a machine that has a \
                     device but no cargo
  fuzz [--seconds N] [--seed S] [--realizations N]
                   random graphs on every device until time is up; a failing one is shrunk and \
                     printed
  replay REV [--show N] [TARGET…]
                   kernels of a fixed corpus that differ from those of a revision
  help             this text
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
        "corpus" => ended(corpus::run(rest)),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        "" => usage("a task is missing"),
        other => usage(&format!("there is no task `{other}`")),
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

/// What is wrong with the words, the usage, and code 2.
fn usage(what: &str) -> ExitCode {
    eprintln!("xtask: {what}\n\n{USAGE}");
    ExitCode::from(2)
}
