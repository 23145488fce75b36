//! `cargo xtask test`: runs all tests in one command. Input: filters. Output: the steps, what was
//! skipped and why, and the result. With `DEV` set, only the device tests run, on that device.
//! `cargo xtask lint` checks the format and runs clippy.
//!
//! All steps use the dev profile, so that they share one build.

use crate::parallel;
use picograd::{Device, env, testing};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Result of a step.
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

struct Step {
    what: &'static str,
    outcome: Outcome,
    time: Duration,
}

/// Runs the steps; with filters, only the tests that match.
pub fn run(filters: &[String]) -> ExitCode {
    let mut steps = Vec::new();
    let device = env::config().ok().and_then(|c| c.device.as_deref());
    if let (true, Some(device)) = (filters.is_empty(), device) {
        steps.push(on_device(device));
    } else if filters.is_empty() {
        // The smoke tests run before the long build, so that a broken stage shows within a minute.
        steps.push(step(
            "smoke tests",
            &["test", "--quiet", "--package", "picograd", "--package", "xtask", "--test", "tiny"],
        ));
        // The examples have no tests; `lint` compiles them.
        steps.push(parallel_step(
            "tests",
            &["test", "--workspace", "--lib", "--bins", "--tests"],
            true,
        ));
    } else {
        let mut args = vec!["test", "--workspace", "--no-fail-fast", "--"];
        args.extend(filters.iter().map(String::as_str));
        steps.push(step("filtered tests", &args));
    }
    report(&steps)
}

/// Checks the format and runs clippy on everything, examples included.
pub fn lint() -> ExitCode {
    report(&[
        tool("format", "fmt", "rustfmt", &["fmt", "--all", "--check"]),
        tool(
            "lints",
            "clippy",
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        ),
    ])
}

/// Runs the device tests on a device.
fn on_device(device: &str) -> Step {
    const WHAT: &str = "device tests on the device of DEV";
    let mut args = vec!["test", "--package", "picograd"];
    args.extend(
        ["ops", "autograd", "semantics", "random_graphs"]
            .into_iter()
            .flat_map(|name| ["--test", name]),
    );
    // The device is not compiled into this program, so the tests report whether it is available.
    if let Some(feature) = testing::feature_of(device) {
        args.extend(["--features", feature]);
        return parallel_step(WHAT, &args, false);
    }
    match Device::get(device) {
        Ok(_) => parallel_step(WHAT, &args, false),
        Err(why) if testing::is_required(device) => {
            println!("PICO_REQUIRE names {device}, which is not available: {why}");
            Step { what: WHAT, outcome: Outcome::Failed, time: Duration::ZERO }
        }
        Err(why) => Step {
            what: WHAT,
            outcome: Outcome::Skipped(why.to_string().replace('\n', "; ")),
            time: Duration::ZERO,
        },
    }
}

fn step(what: &'static str, args: &[&str]) -> Step {
    let start = Instant::now();
    println!("\n== {what}: cargo {}", args.join(" "));
    let outcome = match cargo(args).status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(e) => {
            println!("failed to run cargo: {e}");
            Outcome::Failed
        }
    };
    Step { what, outcome, time: start.elapsed() }
}

/// Returns a step of several test binaries, with the doctests if `documents` is set.
fn parallel_step(what: &'static str, args: &[&str], documents: bool) -> Step {
    let start = Instant::now();
    println!("\n== {what}: cargo {}", args.join(" "));
    let outcome = if parallel::run(args, documents) { Outcome::Passed } else { Outcome::Failed };
    Step { what, outcome, time: start.elapsed() }
}

/// Returns a step that needs a component of the toolchain, which a minimal one lacks.
fn tool(what: &'static str, command: &str, component: &str, args: &[&str]) -> Step {
    let there = cargo(&[command, "--version"]).output().is_ok_and(|o| o.status.success());
    if there {
        return step(what, args);
    }
    let why =
        format!("the toolchain has no {component}; `rustup component add {component}` installs it");
    Step { what, outcome: Outcome::Skipped(why), time: Duration::ZERO }
}

/// Returns the cargo that runs this program, so that the toolchain is the same.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // The same setting as in the alias for this program, so that both share one build.
    if std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

fn report(steps: &[Step]) -> ExitCode {
    println!("\n== summary");
    for v in env::VARIABLES {
        if let Some(value) = std::env::var_os(v.name) {
            println!("note     {}={} was set", v.name, value.to_string_lossy());
        }
    }
    for (what, why) in absent() {
        println!("absent   {what}: {why}");
    }
    for s in steps {
        let seconds = s.time.as_secs_f64();
        match &s.outcome {
            Outcome::Passed => println!("passed   {} ({seconds:.0} s)", s.what),
            Outcome::Failed => println!("FAILED   {} ({seconds:.0} s)", s.what),
            Outcome::Skipped(why) => println!("skipped  {}: {why}", s.what),
        }
    }
    if steps.iter().any(|s| matches!(s.outcome, Outcome::Failed)) {
        println!("some steps failed");
        return ExitCode::FAILURE;
    }
    println!("all steps passed");
    ExitCode::SUCCESS
}

/// Devices and programs that this machine lacks, so that their tests were skipped.
fn absent() -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (name, found) in Device::list() {
        if let Err(why) = found {
            list.push((format!("device {name}"), why.to_string().replace('\n', "; ")));
        }
    }
    if !Command::new("clang").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let what = "tests that compare gcc with clang had one of them";
        list.push(("clang".to_string(), what.to_string()));
    }
    list
}
