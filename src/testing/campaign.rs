//! Runs of many seeds on several threads, in batches that share a start of the C compiler.

use super::bounds::BoundedValue;
use super::case::Case;
use super::devices::lacks;
use super::graph::random_case;
use super::run::{Failure, check_all};
use super::setup::{Setup, setups};
use super::shrink::{Report, shrink};
use super::tally::Tally;
use crate::compile;
use crate::ir::toposort;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of cases that are compiled together. Past a hundred kernels the start of the compiler
/// takes no significant time.
const BATCH: u64 = 16;

/// The options of a run of many seeds.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub count: u64,
    /// The number of threads.
    pub threads: usize,
    /// The time after which no batch starts.
    pub deadline: Option<Instant>,
    /// The number of failures of each kind that are shrunk; others are only counted.
    pub shrink_each: usize,
    /// The time limit for shrinking a failure.
    pub shrink_time: Duration,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Found {
    /// The coverage.
    pub tally: Tally,
    /// The shrunk failures.
    pub reports: Vec<Report>,
    /// For each kind of failure the count, and the first seed and setup.
    pub kinds: BTreeMap<String, (usize, u64, String)>,
}

impl Campaign {
    /// Returns a run of these seeds on all cores.
    pub fn new(first: u64, count: u64) -> Campaign {
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
        Campaign {
            first,
            count,
            threads,
            deadline: None,
            shrink_each: 2,
            shrink_time: Duration::from_secs(20),
        }
    }

    /// Runs the seeds.
    pub fn run(&self) -> Found {
        let next = AtomicU64::new(0);
        let found = Mutex::new(Found::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let start = next.fetch_add(BATCH, Ordering::Relaxed);
                        if start >= self.count || self.deadline.is_some_and(|d| Instant::now() > d)
                        {
                            return;
                        }
                        let seeds: Vec<u64> = (start..(start + BATCH).min(self.count))
                            .map(|i| self.first.wrapping_add(i))
                            .collect();
                        self.batch(&seeds, &found);
                    }
                });
            }
        });
        found.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn batch(&self, seeds: &[u64], found: &Mutex<Found>) {
        let cases: Vec<Case> = seeds.iter().map(|s| random_case(*s)).collect();
        let expected: Vec<Vec<BoundedValue>> = cases.iter().map(Case::expected).collect();
        let plans: Vec<Vec<Setup>> = seeds.iter().map(|s| setups(*s)).collect();
        let mut work: Vec<(&Case, &[BoundedValue], &Setup)> = Vec::new();
        let mut whose = Vec::new();
        let mut left_out = BTreeMap::new();
        for i in 0..cases.len() {
            for setup in &plans[i] {
                if lacks(setup.device, toposort(&cases[i].outputs).iter().map(|u| u.dtype())) {
                    *left_out.entry(setup.device).or_default() += 1;
                    continue;
                }
                work.push((&cases[i], &expected[i], setup));
                whose.push(i);
            }
        }
        let mut opts = BTreeMap::new();
        let results = check_all(&work, &mut opts);
        // Random graphs do not repeat, so the cache has no use.
        if compile::programs() > 1000 {
            compile::clear_programs();
        }
        let mut wanted: Vec<(usize, Setup, Failure)> = Vec::new();
        {
            let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
            cases.iter().zip(&expected).for_each(|(c, e)| found.tally.add(c, e));
            found.tally.join(&Tally { opts, left_out, ..Tally::default() });
            let mut blamed: Vec<usize> = Vec::new();
            for ((result, i), w) in results.into_iter().zip(&whose).zip(&work) {
                let Err(failure) = result else { continue };
                let kind = format!(
                    "{} {}",
                    if failure.kind().len() > 10 { "" } else { w.2.device },
                    failure.kind()
                );
                let entry =
                    found.kinds.entry(kind).or_insert_with(|| (0, seeds[*i], w.2.to_string()));
                entry.0 += 1;
                // One setup per case is shrunk.
                if entry.0 <= self.shrink_each && !blamed.contains(i) {
                    blamed.push(*i);
                    wanted.push((*i, w.2.clone(), failure));
                }
            }
        }
        for (i, setup, failure) in wanted {
            let report = shrink(seeds[i], &cases[i], &setup, &failure, self.shrink_time);
            found.lock().unwrap_or_else(|e| e.into_inner()).reports.push(report);
        }
    }
}
