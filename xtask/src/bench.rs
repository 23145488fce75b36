//! `cargo xtask bench compile`: compile time from tensors to source text, without a C compiler.
//! Prints one line of JSON per figure: `{"suite":"compile","name":…,"value":…,"unit":…}`, and if
//! known `limit`, `peer`, `peer_value` and `ratio` (value over peer's).
//!
//! Totals are CPU time of the thread, which depends little on other load; `wall_ms` and the times
//! by pass are wall-clock time. Each is the best of several runs. Cold runs start with all caches
//! of the process empty.

use crate::{ir, models, suite, usage};
use picograd::compile::{Compiled, pipeline};
use picograd::exec::ScheduleItem;
use picograd::schedule::Request;
use picograd::{Tensor, compile, device, exec, schedule};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts of the compile suite.
const PARTS: [&str; 4] = ["ir", "gpt2", "resnet50", "mnist_step"];

/// Runs a suite. A debug build runs the release build of itself.
pub fn run(words: &[String]) -> ExitCode {
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    let words: Vec<&str> = all.iter().copied().filter(|w| *w != "--save").collect();
    let known = match words.split_first() {
        Some((&"compile", rest)) => rest.iter().all(|w| *w == "--quick" || PARTS.contains(w)),
        Some((&"cpu", rest)) => {
            crate::compare::Options::parse(rest).is_some()
                || rest.iter().all(|w| matches!(*w, "--quick" | "--counts") || !w.starts_with('-'))
        }
        Some((&("gpu" | "beam" | "jit" | "memory"), rest)) => {
            rest.iter().all(|w| !w.starts_with('-'))
        }
        Some((&"ops", rest)) => crate::ops::Options::parse(rest).is_some(),
        Some((&("kernels" | "kernel_compile"), rest)) => rest.is_empty(),
        _ => false,
    };
    if !known {
        return usage(
            "bench: expected a suite (compile, kernels, kernel_compile, cpu, gpu, jit, memory, \
             ops, beam), then options of that suite and --save; compile takes --quick and the \
             parts ir, gpt2, resnet50, mnist_step",
        );
    }
    let quick = words.contains(&"--quick");
    if cfg!(debug_assertions) {
        let mut args = vec!["run", "--quiet", "--release", "--package", "xtask", "--", "bench"];
        args.extend(&all);
        let mut cargo = suite::cargo(&args);
        // These suites run no kernel, and one of them needs an empty disk cache.
        let folder = std::env::temp_dir().join(format!("picograd-bench-{}", std::process::id()));
        if matches!(words[0], "kernels" | "kernel_compile" | "compile") {
            cargo.env("DEV", "NULL").env("PICO_CACHE", &folder);
        }
        let status = cargo.status();
        let _ = std::fs::remove_dir_all(&folder);
        return match status {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(e) => usage(&format!("failed to run cargo: {e}")),
        };
    }
    crate::saved::start(words.len() < all.len());
    let code = measure(&words, quick);
    if let Err(e) = crate::saved::finish() {
        return usage(&e);
    }
    code
}

/// Runs the suite named by the first word.
fn measure(words: &[&str], quick: bool) -> ExitCode {
    let wanted = |part: &str| words.contains(&part) || !words.iter().any(|w| PARTS.contains(w));
    if words[0] != "compile" {
        let figures = match words[0] {
            "kernels" => crate::kernels::figures(),
            "cpu" => cpu(&words[1..], quick),
            "gpu" => crate::gpu::figures(&words[1..]),
            "beam" => crate::beam::figures(&words[1..]),
            "jit" => crate::jit::figures(&words[1..]),
            "ops" => crate::ops::figures(
                &crate::ops::Options::parse(&words[1..]).expect("the words were checked above"),
            ),
            "memory" => crate::memory::figures(&words[1..]),
            _ => crate::kernel_compile::figures(),
        };
        return match figures {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("xtask: {e}");
                ExitCode::FAILURE
            }
        };
    }
    if wanted("ir") {
        ir::figures();
    }
    if wanted("gpt2") {
        model("gpt2", models::gpt2, quick, |f| match f.name.as_str() {
            // The prefill of 64 tokens, embedding included.
            "gpt2_kernels" => f.peer("tinygrad 0.14", 198.0),
            _ => f,
        });
    }
    if wanted("resnet50") {
        model("resnet50", models::resnet50, quick, |f| f);
    }
    if wanted("mnist_step") {
        return match training_step(quick) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => usage(&e.to_string()),
        };
    }
    ExitCode::SUCCESS
}

/// Runs the suite of CPU kernels, alone or beside others.
fn cpu(words: &[&str], quick: bool) -> picograd::Result<()> {
    if let Some(options) = crate::compare::Options::parse(words) {
        return crate::compare::figures(&options);
    }
    let wanted: Vec<&str> = words.iter().copied().filter(|w| !w.starts_with('-')).collect();
    if words.contains(&"--counts") {
        return crate::counts::figures(&wanted);
    }
    crate::cpu::figures(quick, &wanted)
}

/// Upper limits of the figures; lower limits for rates.
const LIMITS: [(&str, f64); 9] = [
    ("intern_nodes", 2e6),
    ("intern_nodes_again", 2e6),
    ("fixpoint_idle", 100.0),
    ("once_idle", 100.0),
    ("gpt2_cold", 100.0),
    ("gpt2_warm", 5.0),
    ("resnet50_cold", 100.0),
    ("resnet50_warm", 5.0),
    ("mnist_step_warm", 2.0),
];

/// A line of the output.
pub struct Figure {
    suite: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    more: String,
}

impl Figure {
    /// Returns a figure of the compile suite, with the limit that is set for it.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        let figure = Figure::in_suite("compile", name, value, unit);
        match LIMITS.iter().find(|l| l.0 == figure.name) {
            Some((_, limit)) => figure.with("limit", *limit),
            None => figure,
        }
    }
    /// Returns a figure of another suite.
    pub fn in_suite(
        suite: &'static str,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
    ) -> Figure {
        Figure { suite, name: name.into(), value, unit, more: String::new() }
    }
    /// Adds a field.
    pub fn with(mut self, name: &str, value: f64) -> Figure {
        write!(self.more, ",\"{name}\":{value:.3}").expect("a string takes all text");
        self
    }
    /// Adds a field with a text.
    pub fn with_text(mut self, name: &str, text: &str) -> Figure {
        write!(self.more, ",\"{name}\":\"{text}\"").expect("a string takes all text");
        self
    }
    /// Adds the value of a peer, and the ratio to it.
    pub fn peer(mut self, peer: &str, value: f64) -> Figure {
        let ratio = self.value / value;
        self = self.with_text("peer", peer);
        self.with("peer_value", value).with("ratio", ratio)
    }
    /// Prints the line, with the ratio to the saved run of this machine if there is one.
    pub fn print(&self) {
        let saved =
            crate::saved::record(format!("{}/{}", self.suite, self.name), self.value, self.unit);
        let saved = saved.map_or(String::new(), |ratio| format!(",\"of_saved\":{ratio:.3}"));
        println!(
            "{{\"suite\":\"{}\",\"name\":\"{}\",\"value\":{:.3},\"unit\":\"{}\"{}{saved}}}",
            self.suite, self.name, self.value, self.unit, self.more
        );
    }
}

/// CPU time of this thread.
pub fn clock() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, and the pointer is to one.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    assert_eq!(rc, 0, "the clock of a thread can be read");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Times and counts of one compilation, from tensor methods to source text.
struct Trip {
    cpu: Duration,
    wall: Duration,
    /// Passes in the order of the pipeline, with their times.
    passes: Vec<(&'static str, Duration)>,
    nodes: usize,
    kernels: usize,
    programs: usize,
}

/// Builds a graph, schedules it and compiles every kernel to source text.
fn trip(build: fn() -> Tensor) -> Trip {
    let before = device::counters();
    let (cpu, start) = (clock(), Instant::now());
    let output = build();
    let building = start.elapsed();
    let request = Request { node: output.uop(), device: output.device().clone(), reuse: vec![] };
    let clock_schedule = Instant::now();
    // SAFETY: the graph is that of a tensor, and nothing runs.
    let scheduled =
        unsafe { exec::schedule_unchecked(&[request]) }.expect("the graph has a schedule");
    let scheduling = clock_schedule.elapsed();
    let clock_compile = Instant::now();
    let compiled: Vec<Arc<Compiled>> = scheduled
        .items
        .iter()
        .filter_map(|i| i.compile().expect("NULL takes every kernel").compiled().cloned())
        .collect();
    let compiling = clock_compile.elapsed();
    let (cpu, wall) = (clock() - cpu, start.elapsed());
    let mut unique = compiled.clone();
    unique.sort_by_key(Arc::as_ptr);
    unique.dedup_by(|a, b| Arc::ptr_eq(a, b));
    // Programs from the cache took no time in this run.
    let after = device::counters();
    let (planned, made) =
        (after.schedule_hits == before.schedule_hits, after.compiled > before.compiled);
    let of_plan = |name: &str| {
        let times = scheduled.plan.times.iter().filter(|t| planned && t.0 == name);
        times.map(|t| t.1).sum::<Duration>()
    };
    let of_programs = |f: &dyn Fn(&Compiled) -> Duration| {
        if made { unique.iter().map(|c| f(c)).sum() } else { Duration::ZERO }
    };
    let mut passes = vec![("build", building)];
    passes.extend(schedule::passes().map(|p| (p.info.name, of_plan(p.info.name))));
    let rest = scheduling.saturating_sub(passes[1..].iter().map(|p| p.1).sum());
    passes.push(("schedule_cache", rest));
    let from = passes.len();
    for pass in pipeline::passes().into_iter().skip(schedule::passes().len()) {
        let of = |c: &Compiled| c.times.iter().filter(|t| t.0 == pass.name).map(|t| t.1).sum();
        passes.push((pass.name, of_programs(&of)));
    }
    let rest = compiling.saturating_sub(passes[from..].iter().map(|p| p.1).sum());
    passes.push(("program_cache", rest));
    let kernels =
        scheduled.items.iter().filter(|i| matches!(i, ScheduleItem::Kernel { .. })).count();
    Trip {
        cpu,
        wall,
        passes,
        nodes: output.uop().toposort().len(),
        kernels,
        programs: unique.len(),
    }
}

fn ms(t: Duration) -> f64 {
    t.as_secs_f64() * 1e3
}

/// Prints the figures of a model. `note` may add fields to a figure.
fn model(name: &str, build: fn() -> Tensor, quick: bool, note: impl Fn(Figure) -> Figure) {
    let cold = || {
        schedule::clear_cache();
        compile::clear_programs();
        trip(build)
    };
    let best = |runs: usize, f: &dyn Fn() -> Trip| {
        (0..runs).map(|_| f()).min_by_key(|t| t.cpu).expect("one run at least")
    };
    let cold = best(if quick { 1 } else { 3 }, &cold);
    let warm = best(if quick { 1 } else { 9 }, &|| trip(build));
    let figure =
        |what: &str, value: f64, unit| note(Figure::new(format!("{name}_{what}"), value, unit));
    figure("cold", ms(cold.cpu), "ms").with("wall_ms", ms(cold.wall)).print();
    figure("warm", ms(warm.cpu), "ms").with("wall_ms", ms(warm.wall)).print();
    figure("nodes", cold.nodes as f64, "nodes").print();
    figure("kernels", cold.kernels as f64, "kernels").print();
    figure("programs", cold.programs as f64, "programs").print();
    for (which, trip) in [("cold", &cold), ("warm", &warm)] {
        for (pass, time) in trip.passes.iter().filter(|p| !p.1.is_zero()) {
            let share = time.as_secs_f64() / trip.wall.as_secs_f64().max(1e-9);
            figure(&format!("{which}_{pass}"), ms(*time), "ms").with("share", share).print();
        }
    }
}

/// Host overhead of a warm training step, measured on NULL, which runs no kernels.
fn training_step(quick: bool) -> picograd::Result<()> {
    if picograd::Device::default_name().as_str() != "NULL" {
        eprintln!(
            "mnist_step_warm is measured with DEV=NULL alone: on other devices kernels would run"
        );
        return Ok(());
    }
    let mut step = crate::cpu_workloads::mnist_step()?;
    let mut timed = || -> picograd::Result<(Duration, Duration)> {
        let (cpu, start) = (clock(), Instant::now());
        step()?;
        Ok((clock() - cpu, start.elapsed()))
    };
    for _ in 0..3 {
        timed()?;
    }
    let all =
        (0..if quick { 3 } else { 30 }).map(|_| timed()).collect::<picograd::Result<Vec<_>>>()?;
    let best = all.into_iter().min().expect("one run at least");
    Figure::new("mnist_step_warm", ms(best.0), "ms").with("wall_ms", ms(best.1)).print();
    Ok(())
}
