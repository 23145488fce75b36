//! Beam search. Input: a kernel and a device. Output: the list of `Opt`s whose program was fastest
//! on the device.
//!
//! The search begins with the unoptimized kernel, the heuristic's choice, and prefixes of that
//! list. In each round every kernel that is one `Opt` away from the best `width` kernels is
//! lowered, compiled and timed on random values, and the best of all survive, until a round gains
//! too little or the time limit is reached.
//!
//! **Invariant:** a candidate that does not compile, does not end, faults, or computes other values
//! than the unoptimized kernel is dropped, and the search continues. Equal programs are timed once.
//! In the end the best and the heuristic's choice are timed alternately, so that noise does not
//! decide.

mod scratch;
mod trial;

use self::scratch::Scratch;
use self::trial::FirstRun;
use super::build::{compile_program, compile_programs};
use super::pipeline::check_dtypes;
use crate::device::host::pool;
use crate::device::{Counters, Device, Executable, Purpose, buffer, count, profile};
use crate::disk_cache::{self, CacheEntry, CacheKey, DiskCache, EntryKind, hash128};
use crate::env;
use crate::error::{Error, Result};
use crate::heuristic;
use crate::ir::{self, UOp};
use crate::lower::{self, Program};
use crate::opt::{self, Kernel, Opt};
use crate::pass::verify_after;
use rustc_hash::FxHashSet;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ratio of times below which a round counts as an improvement, and a result replaces the
/// heuristic's choice.
const GAIN: f64 = 0.985;
/// Maximum number of steps of the unoptimized kernel, per second of the time limit. A longer kernel
/// is not run: it would use most of the time limit, or exceed it.
const MAX_UNOPTIMIZED_STEPS: f64 = 4e8;
/// Maximum ratio of a candidate's steps to those of the heuristic's choice. A candidate with more,
/// such as one that recomputes each row for every element, is not run: a run on a GPU cannot be
/// stopped.
const MAX_STEP_RATIO: f64 = 32.0;
/// Maximum length of a program, unless the heuristic's own is longer. Longer programs take long to
/// compile and never won in measurements.
const MAX_UOPS: usize = 3000;
/// A candidate with this multiple of the best time is not timed again.
const RETIME_RATIO: u32 = 2;
/// Minimum and maximum number of runs of a candidate, and the total time after which the minimum
/// suffices.
const RUNS: (usize, usize) = (3, 40);
const MEASURED: Duration = Duration::from_millis(6);
/// Duration of a run from which on cold caches hardly affect its time.
const LONG: Duration = Duration::from_millis(120);
/// Minimum time limit of a first run, which touches its memory for the first time.
const MIN_FIRST_RUN_LIMIT: Duration = Duration::from_millis(100);
/// The time of a first run that may be due to cold memory.
const COLD: Duration = Duration::from_millis(5);
/// Rounds in which the best candidates are timed alternately.
const FINAL_ROUNDS: usize = 3;

/// The extent of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beam {
    /// The beam width: `BEAM`.
    pub width: usize,
    /// The time limit of one kernel: `BEAM_SECONDS`.
    pub seconds: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The Opts to apply.
    pub opts: Vec<Opt>,
    /// The kernel's time with them.
    pub time: Duration,
    /// Its time with those that the heuristic chooses.
    pub heuristic: Duration,
    /// Compiled programs.
    pub tried: usize,
    /// The duration of the search.
    pub took: Duration,
}

/// Wraps every executable before it is run; tests inject faulty ones.
type Wrap<'a> = &'a dyn Fn(Arc<dyn Executable>) -> Arc<dyn Executable>;

/// Returns the kernel with the Opts that a search found, in this process or an earlier one, or with
/// the heuristic's choice if nothing can be timed.
pub(in crate::compile) fn tuned(kernel: &Kernel, device: &Device, beam: Beam) -> Result<Kernel> {
    let key = key(&kernel.ast, device);
    if let Some(known) = load_tuned(disk_cache::global(), key, beam.width)
        .and_then(|opts| kernel.apply_all(&opts, device.target()).ok())
    {
        return Ok(known);
    }
    match search(kernel, device, beam, &|e| e)? {
        Some(found) => {
            store_tuned(disk_cache::global(), key, device, beam.width, &found);
            kernel.apply_all(&found.opts, device.target())
        }
        None => Ok(heuristic::choose(kernel, device.target())),
    }
}

/// Searches for the Opts of a kernel, without the disk cache. `None` if nothing can be timed: the
/// device runs nothing, or there is not enough memory.
pub(crate) fn tune(ast: &UOp, device: &Device, beam: Beam) -> Result<Option<Tuned>> {
    search(&Kernel::new(ast.clone()), device, beam, &|e| e)
}

/// Returns the cache key of a tuned list.
fn key(ast: &UOp, device: &Device) -> CacheKey {
    CacheKey::of(&[
        b"opts 3",
        ir::print(ast).as_bytes(),
        format!("{:?}", device.target()).as_bytes(),
        device.describe().as_bytes(),
    ])
}

/// Returns a cached list, if its search was at least as wide.
fn load_tuned(store: &DiskCache, key: CacheKey, width: usize) -> Option<Vec<Opt>> {
    let text = String::from_utf8(store.get(&[key]).pop().flatten()?).ok()?;
    let (searched, opts) = text.split_once('\n')?;
    if searched.parse::<usize>().ok()? < width { None } else { opt::parse(opts).ok() }
}

fn store_tuned(store: &DiskCache, key: CacheKey, device: &Device, width: usize, found: &Tuned) {
    let value = format!("{width}\n{}", opt::show(&found.opts));
    store.put(&[CacheEntry {
        key,
        kind: EntryKind::Opts,
        device: device.name().as_str(),
        value: value.as_bytes(),
    }]);
}

/// A kernel to time, with its program.
struct Candidate {
    kernel: Kernel,
    program: Program,
}

/// A candidate with its time.
struct Timed {
    candidate: Candidate,
    executable: Arc<dyn Executable>,
    time: Duration,
    /// True if all its neighbours were tried.
    expanded: bool,
}

struct Search<'a> {
    device: &'a Device,
    deadline: Instant,
    wrap: Wrap<'a>,
    scratch: Scratch,
    /// The outputs of the unoptimized kernel.
    expected: Vec<Vec<u8>>,
    /// Programs that were tried, by the hash of their text.
    seen: FxHashSet<u128>,
    max_uops: usize,
    max_steps: f64,
    best: Option<Duration>,
}

fn search(kernel: &Kernel, device: &Device, beam: Beam, wrap: Wrap) -> Result<Option<Tuned>> {
    check_dtypes(&kernel.ast, device.target())?;
    let start = Instant::now();
    let chosen = heuristic::choose(kernel, device.target());
    let (Some(plain), Some(chosen)) = (candidate(kernel, device), candidate(&chosen, device))
    else {
        return Ok(None);
    };
    let scratch = match Scratch::new(&kernel.ast, &plain.program, device) {
        Ok(scratch) if scratch.is_real() => scratch,
        // The kernel itself may still fit in memory.
        Ok(_) | Err(Error::OutOfMemory { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    count(device.name(), &Counters { searched: 1, ..Counters::default() });
    let mut span = profile::span(|| format!("search {}", kernel.name()).into());
    let progress = Progress::new(kernel)?;
    let limit = Duration::try_from_secs_f64(beam.seconds).unwrap_or(Duration::from_secs(1 << 20));
    let mut s = Search {
        device,
        deadline: start + limit,
        wrap,
        scratch,
        expected: Vec::new(),
        seen: FxHashSet::default(),
        max_uops: MAX_UOPS.max(chosen.program.uops.len() * 2),
        max_steps: MAX_STEP_RATIO * chosen.program.estimate.steps,
        best: None,
    };
    // These two are trusted, and the first that runs defines the expected values. The unoptimized
    // kernel may exceed a driver's time limit; the heuristic's choice is what runs without a
    // search.
    let list = chosen.kernel.opts.clone();
    let is_short = plain.program.estimate.steps <= MAX_UNOPTIMIZED_STEPS * beam.seconds;
    let plain = if is_short { s.time_reference(plain).unwrap_or(None) } else { None };
    let Some(mut by_heuristic) = s.time_reference(chosen)? else { return Ok(None) };
    s.best = Some(plain.iter().map(|t| t.time).fold(by_heuristic.time, Duration::min));
    let parts = s.sublists_of(kernel, &by_heuristic.candidate.kernel);
    let mut kept: Vec<Timed> = s.time_all(parts)?;
    kept.extend(plain);
    while s.round(&mut kept, &mut by_heuristic, beam.width, &progress)? {}
    kept.sort_by_key(|t| t.time);
    kept.truncate(FINAL_ROUNDS);
    let best = s.final_comparison(&mut by_heuristic, &mut kept)?;
    let (opts, time) =
        best.map_or((list, by_heuristic.time), |t| (t.candidate.kernel.opts.clone(), t.time));
    let (heuristic, tried, took) = (by_heuristic.time, s.seen.len(), start.elapsed());
    let found = Tuned { opts, time, heuristic, tried, took };
    progress.done(&found);
    span.note("programs", || found.tried.into());
    span.note("opts", || opt::show(&found.opts).into());
    Ok(Some(found))
}

/// Lowers a kernel. A failure is a bug in picograd: it is reported, and the search continues.
fn candidate(kernel: &Kernel, device: &Device) -> Option<Candidate> {
    let config = env::config().ok()?;
    let lower = || {
        lower::lower(&kernel.ast, device.target(), &mut |pass, state| {
            verify_after(config, pass, state)
        })
    };
    match catch_unwind(AssertUnwindSafe(lower)) {
        Ok(program) => Some(Candidate { kernel: kernel.clone(), program }),
        Err(_) => {
            report(kernel, "lowering failed");
            None
        }
    }
}

/// Prints a line for developers of picograd.
fn report(kernel: &Kernel, why: &str) {
    eprintln!(
        "picograd: BEAM dropped {} with {}: {why}; this is a bug in picograd",
        kernel.name(),
        opt::show(&kernel.opts)
    );
}

impl Search<'_> {
    /// Returns candidates from sublists of the heuristic's Opts: its prefixes, and the list without
    /// each single Opt. Thread order and vector lanes are chosen again.
    fn sublists_of(&mut self, kernel: &Kernel, chosen: &Kernel) -> Vec<Candidate> {
        let list = chosen.without_last().opts;
        let prefixes = (1..list.len()).map(|n| list[..n].to_vec());
        let without = (0..list.len()).map(|i| [&list[..i], &list[i + 1..]].concat());
        let applied = prefixes
            .chain(without)
            .filter_map(|opts| kernel.apply_all(&opts, self.device.target()).ok());
        let completed = applied.map(|k| heuristic::completed(&k, self.device.target()));
        let candidates: Vec<Candidate> =
            completed.filter_map(|kernel| candidate(&kernel, self.device)).collect();
        candidates.into_iter().filter(|c| self.is_new(c)).collect()
    }

    /// Tries the neighbours of the best kernels. Returns true if that gained enough for another
    /// round, and there is time for it.
    fn round(
        &mut self,
        kept: &mut Vec<Timed>,
        by_heuristic: &mut Timed,
        width: usize,
        progress: &Progress,
    ) -> Result<bool> {
        let before = self.best.unwrap_or(by_heuristic.time);
        kept.sort_by_key(|t| t.time);
        kept.truncate(width.max(1));
        let mut next: Vec<Candidate> = Vec::new();
        // The heuristic's choice is in the first beam, however many are faster.
        for t in kept.iter_mut().chain([&mut *by_heuristic]).filter(|t| !t.expanded) {
            t.expanded = true;
            for k in heuristic::actions(&t.candidate.kernel, self.device.target()) {
                if Instant::now() >= self.deadline {
                    break;
                }
                next.extend(candidate(&k, self.device).filter(|c| self.is_new(c)));
            }
        }
        while !next.is_empty() && Instant::now() < self.deadline {
            let rest = next.split_off(next.len().min(pool::threads().max(2) * 8));
            kept.extend(self.time_all(std::mem::replace(&mut next, rest))?);
            progress.update(self.seen.len(), self.best.unwrap_or(before), by_heuristic.time);
        }
        let gained = self.best.is_some_and(|b| b.as_secs_f64() < before.as_secs_f64() * GAIN);
        Ok(gained && Instant::now() < self.deadline)
    }

    /// Returns true if this program is new, and small enough to win.
    fn is_new(&mut self, c: &Candidate) -> bool {
        let small =
            c.program.uops.len() <= self.max_uops && c.program.estimate.steps <= self.max_steps;
        small && self.seen.insert(hash128(ir::print_program(&c.program.uops).as_bytes()))
    }

    /// Times a kernel that also runs without a search.
    fn time_reference(&mut self, c: Candidate) -> Result<Option<Timed>> {
        self.is_new(&c);
        let executable = compile_program(self.device, &c.program)?.executable;
        let _alone = buffer::lock_for_kernel();
        self.scratch.restore()?;
        // SAFETY: as in `time`.
        let first = unsafe { executable.timed(&self.scratch.places(), &c.program.launch) }?;
        let got = self.scratch.outputs()?;
        if self.expected.is_empty() {
            self.expected = got;
        } else if let Some(why) = self.scratch.difference(&self.expected, &got) {
            report(&c.kernel, &why);
            return Ok(None);
        }
        let time = if first >= LONG { first } else { self.time(&*executable, &c.program)? };
        Ok(Some(Timed { candidate: c, executable, time, expanded: false }))
    }

    /// Returns the times of the candidates that compile, return and compute the expected values.
    fn time_all(&mut self, candidates: Vec<Candidate>) -> Result<Vec<Timed>> {
        let compiled: Vec<(Candidate, Arc<dyn Executable>)> = self.compile(candidates);
        let _alone = buffer::lock_for_kernel();
        let runs = self.first_runs(&compiled);
        let mut timed = Vec::new();
        for ((candidate, executable), run) in compiled.into_iter().zip(runs) {
            match run {
                FirstRun::Died => report(&candidate.kernel, "its first run ended the process"),
                FirstRun::Ended(time)
                    if time > self.second_run_limit(candidate.program.launch.chunks) => {}
                FirstRun::Ended(_) if Instant::now() < self.deadline => {
                    match self.check_and_time(&candidate, &*executable) {
                        Ok(Some(time)) => {
                            self.best = Some(self.best.map_or(time, |b| b.min(time)));
                            timed.push(Timed { candidate, executable, time, expanded: false });
                        }
                        Ok(None) => {}
                        // A rejected launch drops the candidate; a lost device ends the search.
                        Err(e) => {
                            if self.device.synchronize().is_err() {
                                let kernel = &candidate.kernel;
                                let msg = format!(
                                    "BEAM: the device was lost by {} with {}: {e}",
                                    kernel.name(),
                                    opt::show(&kernel.opts)
                                );
                                return Err(Error::Device(msg));
                            }
                        }
                    }
                }
                FirstRun::Ended(_) | FirstRun::Refused | FirstRun::Slow => {}
            }
        }
        Ok(timed)
    }

    /// Returns the results of the first runs. Machine code could end this process, so that it first
    /// runs in a forked one.
    fn first_runs(&self, compiled: &[(Candidate, Arc<dyn Executable>)]) -> Vec<FirstRun> {
        let native = |e: &Arc<dyn Executable>| e.machine_code().is_some();
        let to_try: Vec<_> = compiled
            .iter()
            .filter(|(_, e)| native(e))
            .map(|(c, e)| (&**e, c.program.launch))
            .collect();
        let timeout = MIN_FIRST_RUN_LIMIT.max(self.second_run_limit(usize::MAX));
        let mut tried =
            trial::run_in_fork(&to_try, &self.scratch.places(), timeout, self.deadline).into_iter();
        let harmless = FirstRun::Ended(Duration::ZERO);
        compiled
            .iter()
            .map(|(_, e)| if native(e) { tried.next().unwrap_or(FirstRun::Slow) } else { harmless })
            .collect()
    }

    /// Returns the time of a first run on one thread above which a candidate of this many chunks is
    /// not run again.
    fn second_run_limit(&self, chunks: usize) -> Duration {
        let threads = if self.device.target().chunks { chunks.min(pool::threads()) } else { 1 };
        self.best.map_or(Duration::MAX, |b| b * RETIME_RATIO * 2 * threads.max(1) as u32 + COLD)
    }

    /// Times the best and the heuristic's choice alternately. Returns the best if it is faster by
    /// more than noise.
    fn final_comparison<'t>(
        &mut self,
        by_heuristic: &mut Timed,
        best: &'t mut [Timed],
    ) -> Result<Option<&'t Timed>> {
        let _alone = buffer::lock_for_kernel();
        self.best = None;
        let mut times = vec![Duration::MAX; best.len() + 1];
        for _ in 0..FINAL_ROUNDS {
            for (t, least) in best.iter().chain([&*by_heuristic]).zip(&mut times) {
                *least = (*least).min(self.time(&*t.executable, &t.candidate.program)?);
            }
        }
        for (t, time) in best.iter_mut().chain([by_heuristic]).zip(&times) {
            t.time = *time;
        }
        let heuristic = times[times.len() - 1].as_secs_f64();
        Ok(best.iter().min_by_key(|t| t.time).filter(|t| t.time.as_secs_f64() < heuristic * GAIN))
    }

    /// Compiles candidates together, or one by one if one is rejected.
    fn compile(&self, candidates: Vec<Candidate>) -> Vec<(Candidate, Arc<dyn Executable>)> {
        let programs: Vec<&Program> = candidates.iter().map(|c| &c.program).collect();
        let compile = |programs: &[&Program]| -> Result<Vec<Arc<dyn Executable>>> {
            let kernels = compile_programs(self.device, programs, Purpose::Measure)?;
            Ok(kernels.into_iter().map(|k| k.executable).collect())
        };
        let executables: Vec<Option<Arc<dyn Executable>>> = match compile(&programs) {
            Ok(all) => all.into_iter().map(Some).collect(),
            Err(_) => programs.iter().map(|p| Some(compile(&[p]).ok()?.swap_remove(0))).collect(),
        };
        candidates
            .into_iter()
            .zip(executables)
            .filter_map(|(c, e)| Some((c, (self.wrap)(e?))))
            .collect()
    }

    fn check_and_time(
        &mut self,
        c: &Candidate,
        executable: &dyn Executable,
    ) -> Result<Option<Duration>> {
        self.scratch.restore()?;
        // SAFETY: as in `time`.
        unsafe { executable.timed(&self.scratch.places(), &c.program.launch) }?;
        if let Some(why) = self.scratch.difference(&self.expected, &self.scratch.outputs()?) {
            report(&c.kernel, &why);
            return Ok(None);
        }
        self.time(executable, &c.program).map(Some)
    }

    /// Returns the minimum of several times, while no other kernels run.
    fn time(&self, executable: &dyn Executable, program: &Program) -> Result<Duration> {
        let places = self.scratch.places();
        let (mut least, mut total) = (Duration::MAX, Duration::ZERO);
        for n in 0..RUNS.1 {
            let far = self.best.is_some_and(|b| least != Duration::MAX && least > b * RETIME_RATIO);
            if far || (n >= RUNS.0 && total >= MEASURED) || total >= LONG {
                break;
            }
            // SAFETY: the program was lowered from the kernel of an item that was planned, with
            // Opts that apply to it, and the scratch buffers have the lengths and dtypes of its
            // arguments.
            let time = unsafe { executable.timed(&places, &program.launch) }?;
            least = least.min(time);
            total += time;
        }
        Ok(least)
    }
}

/// Progress: a line that is rewritten on a terminal, a line at the end elsewhere under `DEBUG=1`.
struct Progress {
    name: String,
    terminal: bool,
    shown: bool,
}

impl Progress {
    fn new(kernel: &Kernel) -> Result<Progress> {
        let terminal = std::io::stderr().is_terminal();
        Ok(Progress { name: kernel.name(), terminal, shown: terminal || env::config()?.debug >= 1 })
    }

    fn update(&self, tried: usize, best: Duration, heuristic: Duration) {
        if self.terminal {
            let text = format!(
                "\r\x1b[Kbeam {}: {} after {tried} programs, heuristic {}",
                self.name,
                micros(best),
                micros(heuristic)
            );
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    fn done(&self, found: &Tuned) {
        if self.shown {
            let (name, tried, took) = (&self.name, found.tried, found.took.as_secs_f64());
            let (time, heuristic) = (micros(found.time), micros(found.heuristic));
            let list =
                if found.opts.is_empty() { "no Opts".to_string() } else { opt::show(&found.opts) };
            let start = if self.terminal { "\r\x1b[K" } else { "" };
            eprintln!(
                "{start}beam {name}: {time}, heuristic {heuristic}, {tried} programs in {took:.1} \
                 s: {list}"
            );
        }
    }
}

fn micros(t: Duration) -> String {
    format!("{:.1} us", t.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests;
