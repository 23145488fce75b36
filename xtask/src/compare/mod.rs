//! `cargo xtask bench cpu --compare`: our kernels, the reference kernels, the peers and the
//! roofline in turns, so that other load on the machine affects all of them. For each workload it
//! prints a line of JSON, and at the end a table.
//!
//! In each round every participant repeats the workload for a short time, and its fastest
//! repetition counts. A figure is the median over the rounds; a ratio is the median of the ratios
//! of each round, and above 1 ours is faster.

mod reference;
mod table;
mod worker;

use crate::bench::Figure;
use crate::cpu::wants;
use crate::cpu_workloads::{self, Run, Workload};
use crate::limits::Loops;
use picograd::compiler::target::Target;
use picograd::{Device, Result};
use std::time::{Duration, Instant};
use table::Row;
use worker::Worker;

/// Rounds of each workload. The goals of the benchmark ask for seven at least.
const ROUNDS: usize = 7;

/// The options of the command line.
pub struct Options<'a> {
    /// Measures each turn for less time.
    pub quick: bool,
    /// The Python that has the peers.
    pub peer: Option<&'a str>,
    /// Parts of names; all workloads if there are none.
    pub wanted: Vec<&'a str>,
}

impl<'a> Options<'a> {
    /// Reads the words after `bench cpu`. `None` if one of them is not known or `--compare` is
    /// missing.
    pub fn parse(words: &[&'a str]) -> Option<Options<'a>> {
        let mut options = Options { quick: false, peer: None, wanted: vec![] };
        let (mut words, mut compare) = (words.iter(), false);
        while let Some(&word) = words.next() {
            match word {
                "--compare" => compare = true,
                "--quick" => options.quick = true,
                "--peer" => options.peer = Some(words.next()?),
                _ if word.starts_with('-') => return None,
                _ => options.wanted.push(word),
            }
        }
        compare.then_some(options)
    }
}

/// Prints the comparison of the chosen workloads.
pub fn figures(options: &Options) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    let mut loops = Loops::new(device.target());
    let mut workers = workers(options, device.target());
    let time = Duration::from_millis(if options.quick { 30 } else { 100 });
    let mut rows = Vec::new();
    for workload in cpu_workloads::all() {
        if wants(&options.wanted, workload.name) {
            let row = compare(&workload, &mut workers, &mut loops, time)?;
            print(&row);
            rows.push(row);
        }
    }
    println!("\n{}", table::text(&rows));
    Ok(())
}

/// Starts the reference kernels and the peers. What cannot be started is left out, with a reason.
fn workers(options: &Options, target: &Target) -> Vec<Worker> {
    let left_out = |name: &str, reason: String| eprintln!("{name} is left out: {reason}");
    let mut workers = Vec::new();
    match reference::start(target) {
        Ok(worker) => workers.push(worker),
        Err(reason) => left_out("reference", reason),
    }
    for name in worker::PEERS {
        match worker::peer(options.peer, name, target) {
            Ok(worker) => workers.push(worker),
            Err(reason) => left_out(name, reason),
        }
    }
    left_out("llama.cpp", worker::llama());
    workers
}

/// Measures one workload in turns.
fn compare(
    workload: &Workload,
    workers: &mut [Worker],
    loops: &mut Loops,
    time: Duration,
) -> Result<Row> {
    let Workload { name, work, .. } = *workload;
    let mut run = (workload.prepare)()?;
    run()?;
    // The first request to a worker prepares the workload. What cannot run it has no column.
    let mut ready: Vec<&mut Worker> = Vec::new();
    for worker in workers {
        match worker.seconds(name, Duration::ZERO) {
            Ok(_) => ready.push(worker),
            Err(reason) => eprintln!("{name}: {}: {reason}", worker.name),
        }
    }
    let mut row = Row::new(name, work, ready.iter().map(|w| w.name.clone()).collect());
    for round in 0..ROUNDS {
        row.roofline.push(loops.seconds(work, time / 2));
        row.ours.push(turn(&mut run, time)?);
        // Another one begins each round, so that none always follows the same one.
        let count = ready.len();
        for i in (0..count).map(|i| (i + round) % count) {
            let seconds = ready[i].seconds(name, time).unwrap_or(f64::INFINITY);
            row.others[i].1.push(seconds);
        }
    }
    row.others.retain(|(_, seconds)| seconds.iter().all(|s| s.is_finite()));
    Ok(row)
}

/// Returns the time of our fastest repetition.
fn turn(run: &mut Run, time: Duration) -> Result<f64> {
    let (begin, mut best, mut runs) = (Instant::now(), Duration::MAX, 0);
    while runs < 2 || begin.elapsed() < time {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed());
        runs += 1;
    }
    Ok(best.as_secs_f64())
}

/// Prints the line of a workload.
fn print(row: &Row) {
    let value = |seconds: f64| row.work.value(seconds);
    let mut figure =
        Figure::in_suite("compare", row.name, value(table::median(&row.ours)), row.work.unit());
    for (name, seconds) in &row.others {
        figure = figure.with(name, value(table::median(seconds)));
    }
    figure = figure.with("roofline", value(table::median(&row.roofline)));
    if let Some((name, seconds)) = row.best_peer() {
        figure = figure.with_text("best_peer", name);
        figure = figure.with("of_best_peer", table::median_ratio(seconds, &row.ours));
    }
    if let Some(seconds) = row.reference() {
        figure = figure.with("of_reference", table::median_ratio(seconds, &row.ours));
    }
    figure.with("of_roofline", table::median_ratio(&row.roofline, &row.ours)).print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--compare", "--peer", "py", "gemv", "--quick"]).unwrap();
        assert!(options.quick);
        assert_eq!((options.peer, options.wanted), (Some("py"), vec!["gemv"]));
        for words in [&["gemv"][..], &["--compare", "--peer"], &["--compare", "--slow"]] {
            assert!(Options::parse(words).is_none(), "{words:?}");
        }
    }
}
