//! The threads that run CPU kernels. [`run`] takes a closure and a count, and returns after the
//! closure has been called once for every index, with the number of the thread that calls it.
//!
//! Tasks are claimed one at a time, so that a slow index does not delay the others, and the caller
//! claims as well: a job finishes even if no worker wakes up in time. A worker without work spins
//! for a few tens of microseconds (the next kernel of a graph usually arrives sooner) and sleeps
//! afterwards.
//!
//! One job runs at a time. A call during another job, from another thread or from inside a task,
//! does all of its work on the calling thread: it cannot deadlock, and the cores are busy anyway.
//!
//! Every task sees the default floating-point modes (round to nearest, subnormals preserved, no
//! traps), on the workers and on the caller, whatever a library in the process has set. Otherwise a
//! result would depend on the thread that computed it.
//!
//! After a `fork` the child has no workers: its jobs still finish, on the calling thread alone. A
//! fork while a job runs in another thread is not supported.

use super::cores::Cores;
use crate::device::backend::lock;
use crate::env::{self, MAX_THREADS};
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Time that a thread spins before it sleeps. Waking a sleeping thread costs 5 to 50 µs, so
/// spinning longer than that gains nothing.
const SPIN: Duration = Duration::from_micros(40);

/// Returns the threads of a job, the caller included: `THREADS` if it is a positive number, else
/// the physical cores that this process may use.
pub fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| threads_from(env::var("THREADS").as_deref(), cores().threads()))
}

/// Returns the number of threads and how it came about, as in `2 threads: 4 logical CPUs in the
/// affinity mask, 2 physical cores, no cgroup limit`.
pub(super) fn describe() -> String {
    let (threads, cores) = (threads(), cores());
    let from = if threads == threads_from(None, cores.threads()) { "" } else { "by THREADS, of " };
    format!("{threads} threads: {from}{cores}")
}

fn threads_from(asked: Option<&str>, cores: usize) -> usize {
    asked
        .and_then(|s| s.trim().parse().ok())
        .filter(|&n: &usize| n > 0)
        .unwrap_or(cores)
        .min(MAX_THREADS)
}

/// Returns the cores that this process may use.
pub(super) fn cores() -> &'static Cores {
    static CORES: OnceLock<Cores> = OnceLock::new();
    CORES.get_or_init(Cores::detect)
}

/// Calls `f(0, t)`, `f(1, t)`, … `f(n - 1, t)`, spread over the threads in no fixed order, and
/// returns when all calls have returned. `t` is the number of the thread in the job, less than
/// [`threads`]: 0 is the caller. Calls of one job with the same number follow each other.
///
/// # Panics
/// With the first panic of `f`. Indices that no thread had claimed at that time are skipped.
pub fn run(n: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    if n == 0 {
        return;
    }
    if n == 1 || threads() == 1 {
        return inline(n, f);
    }
    global().run(n, f);
}

fn inline(n: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    let _modes = FloatModes::default_until_drop();
    (0..n).for_each(|i| f(i, 0));
}

/// Returns the pool of the process; its workers are started by the first job that can use them and
/// never end.
fn global() -> &'static ThreadPool {
    static POOL: OnceLock<&'static ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| ThreadPool::start(threads() - 1))
}

/// A value on its own cache lines, so that the two hot counters do not share one. 128 bytes: x86
/// prefetches lines in pairs.
#[repr(align(128))]
struct CacheLine<T>(T);

/// The current job. The lifetime of the closure is erased; see the safety notes of
/// `ThreadPool::run`.
#[derive(Clone, Copy)]
struct Task {
    f: *const (dyn Fn(usize, usize) + Sync),
    n: usize,
}

type Payload = Box<dyn Any + Send>;

struct ThreadPool {
    /// True while a job runs. The thread that sets it owns `task` until `unfinished` is zero again.
    busy: AtomicBool,
    /// Unclaimed tasks of the job. Claiming is the only way to access `task`.
    unclaimed: CacheLine<AtomicUsize>,
    /// Tasks of the job that have not returned yet. The job, and with it the closure, lives until
    /// this is zero.
    unfinished: CacheLine<AtomicUsize>,
    task: UnsafeCell<Task>,
    /// Set by the first panic; tasks claimed later are skipped.
    panicked: AtomicBool,
    panic: Mutex<Option<Payload>>,
    workers: AtomicUsize,
    asleep: AtomicUsize,
    idle_lock: Mutex<()>,
    job_available: Condvar,
    caller_waits: AtomicBool,
    caller: Mutex<()>,
    job_finished: Condvar,
    /// Zero if there are more threads than cores: a spinning thread would keep the core from one
    /// with work.
    spin: Duration,
}

// SAFETY: `task` is the only field that is not Sync by itself. It is written by the thread that
// holds `busy` while no task is open or running, and read only after a task was claimed; the
// release store of `unclaimed` and the acquire in `claim` order the two.
unsafe impl Sync for ThreadPool {}
// SAFETY: the pointer in `task` is only followed under the same protocol; nothing in the pool is
// tied to a thread.
unsafe impl Send for ThreadPool {}

impl ThreadPool {
    fn start(workers: usize) -> &'static ThreadPool {
        fn nothing(_: usize, _: usize) {}
        let pool: &'static ThreadPool = Box::leak(Box::new(ThreadPool {
            busy: AtomicBool::new(false),
            unclaimed: CacheLine(AtomicUsize::new(0)),
            unfinished: CacheLine(AtomicUsize::new(0)),
            task: UnsafeCell::new(Task { f: &nothing, n: 0 }),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            workers: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            idle_lock: Mutex::new(()),
            job_available: Condvar::new(),
            caller_waits: AtomicBool::new(false),
            caller: Mutex::new(()),
            job_finished: Condvar::new(),
            spin: if workers < cores().threads() { SPIN } else { Duration::ZERO },
        }));
        for i in 1..=workers {
            // A thread that cannot be started is not needed: the caller claims its tasks.
            if std::thread::Builder::new()
                .name(format!("pico-cpu-{i}"))
                .spawn(move || pool.run_worker(i))
                .is_ok()
            {
                pool.workers.fetch_add(1, Ordering::Relaxed);
            }
        }
        pool
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        if self.busy.swap(true, Ordering::Acquire) {
            return inline(n, f);
        }
        // SAFETY: only the lifetime changes. This function does not return, and does not unwind,
        // before `unfinished` is zero, so every call through the pointer ends before the borrow
        // does.
        let f = unsafe {
            std::mem::transmute::<
                &(dyn Fn(usize, usize) + Sync),
                &'static (dyn Fn(usize, usize) + Sync),
            >(f)
        };
        // SAFETY: `busy` was free and is now owned, and the previous job ended with no task open or
        // running, so that nothing reads `task`.
        unsafe { *self.task.get() = Task { f, n } };
        self.panicked.store(false, Ordering::Relaxed);
        self.unfinished.0.store(n, Ordering::Relaxed);
        // Sequentially consistent with `asleep`: either we see the sleeper or it sees the open
        // tasks before it sleeps.
        self.unclaimed.0.store(n, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.wake_workers(n - 1);
        }
        {
            let _modes = FloatModes::default_until_drop();
            while let Some(open) = self.claim() {
                self.run_task(open, 0);
            }
        }
        self.wait_for_workers();
        let payload =
            if self.panicked.load(Ordering::Relaxed) { lock(&self.panic).take() } else { None };
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }

    fn wake_workers(&self, wanted: usize) {
        // A worker that has seen no open task holds the mutex until it waits, so locking it once
        // ensures that the worker receives the notification.
        drop(lock(&self.idle_lock));
        if wanted >= self.workers.load(Ordering::Relaxed) {
            self.job_available.notify_all();
        } else {
            (0..wanted).for_each(|_| self.job_available.notify_one());
        }
    }

    /// Claims one open task; the value is the number of open tasks before, which gives the index.
    fn claim(&self) -> Option<usize> {
        let mut open = self.unclaimed.0.load(Ordering::Relaxed);
        while open > 0 {
            match self.unclaimed.0.compare_exchange_weak(
                open,
                open - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(open),
                Err(now) => open = now,
            }
        }
        None
    }

    fn run_task(&self, open: usize, thread: usize) {
        // SAFETY: a task was claimed and has not been counted out of `unfinished`, so the job is
        // the current one and `task` stays as it is.
        let Task { f, n } = unsafe { *self.task.get() };
        if !self.panicked.load(Ordering::Relaxed) {
            // SAFETY: the caller of `run` keeps the closure alive until this task is counted below.
            let f = unsafe { &*f };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(n - open, thread))) {
                lock(&self.panic).get_or_insert(payload);
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
        if self.unfinished.0.fetch_sub(1, Ordering::SeqCst) == 1
            && self.caller_waits.load(Ordering::SeqCst)
        {
            drop(lock(&self.caller));
            self.job_finished.notify_all();
        }
    }

    fn wait_for_workers(&self) {
        if self.spin_until(|| self.unfinished.0.load(Ordering::Acquire) == 0) {
            return;
        }
        let mut guard = lock(&self.caller);
        self.caller_waits.store(true, Ordering::SeqCst);
        while self.unfinished.0.load(Ordering::SeqCst) != 0 {
            guard = self.job_finished.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }

    /// Runs the worker of a number: claims tasks, spins while there are none, and sleeps after
    /// that.
    fn run_worker(&self, thread: usize) {
        loop {
            if !self.spin_until(|| self.unclaimed.0.load(Ordering::Relaxed) > 0) {
                let mut guard = lock(&self.idle_lock);
                self.asleep.fetch_add(1, Ordering::SeqCst);
                while self.unclaimed.0.load(Ordering::SeqCst) == 0 {
                    guard = self.job_available.wait(guard).unwrap_or_else(|e| e.into_inner());
                }
                self.asleep.fetch_sub(1, Ordering::SeqCst);
            }
            // Set for each job, not once: a task of an earlier one may have called a library that
            // leaves other modes behind.
            let _modes = FloatModes::default_until_drop();
            while let Some(open) = self.claim() {
                self.run_task(open, thread);
            }
        }
    }

    fn spin_until(&self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.spin.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > self.spin {
                return false;
            }
        }
    }
}

/// Sets the default floating-point modes of the thread, and restores the previous ones when
/// dropped.
struct FloatModes {
    before: u64,
}

#[cfg(target_arch = "x86_64")]
mod modes {
    /// All exceptions masked, round to nearest, no flush to zero.
    pub(super) const DEFAULT: u64 = 0x1f80;
    /// The bits that are modes, not sticky exception flags.
    pub(super) const MASK: u64 = 0xffc0;

    pub(super) fn get() -> u64 {
        let mut value = 0u32;
        // SAFETY: stores the control register into a local of its size.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags))
        };
        u64::from(value)
    }

    pub(super) fn set(value: u64) {
        let value = value as u32;
        // SAFETY: the value is the default or was read from the register before, so no reserved bit
        // is set.
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{}]",
                in(reg) &value,
                options(nostack, readonly, preserves_flags)
            )
        };
    }
}

#[cfg(target_arch = "aarch64")]
mod modes {
    pub(super) const DEFAULT: u64 = 0;
    pub(super) const MASK: u64 = !0;

    pub(super) fn get() -> u64 {
        let value: u64;
        // SAFETY: reads the floating-point control register.
        unsafe {
            std::arch::asm!(
                "mrs {}, fpcr",
                out(reg) value,
                options(nomem, nostack, preserves_flags)
            )
        };
        value
    }

    pub(super) fn set(value: u64) {
        // SAFETY: the value is the default or was read from the register before.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack, preserves_flags))
        };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod modes {
    pub(super) const DEFAULT: u64 = 0;
    pub(super) const MASK: u64 = 0;

    pub(super) fn get() -> u64 {
        0
    }

    pub(super) fn set(_: u64) {}
}

impl FloatModes {
    fn default_until_drop() -> FloatModes {
        let before = modes::get();
        if before & modes::MASK != modes::DEFAULT & modes::MASK {
            modes::set(modes::DEFAULT);
        }
        FloatModes { before }
    }
}

impl Drop for FloatModes {
    fn drop(&mut self) {
        if self.before & modes::MASK != modes::get() & modes::MASK {
            modes::set(self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_index_runs_once() {
        for pool in [ThreadPool::start(0), ThreadPool::start(1), ThreadPool::start(3)] {
            for n in (1..40).chain([1000, 4096]) {
                let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                pool.run(n, &|i, _| {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "n = {n}");
            }
        }
        run(0, &|_, _| panic!("there is no index"));
        let here = std::thread::current().id();
        run(1, &|i, thread| assert_eq!((i, thread, std::thread::current().id()), (0, 0, here)));
    }

    #[test]
    fn calls_of_one_thread_number_follow_each_other() {
        let pool = ThreadPool::start(3);
        let inside: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..50 {
            pool.run(64, &|_, thread| {
                assert_eq!(inside[thread].fetch_add(1, Ordering::SeqCst), 0);
                std::thread::sleep(Duration::from_micros(3));
                inside[thread].fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    #[test]
    fn nested_and_concurrent_calls_finish() {
        let pool = ThreadPool::start(2);
        let sum = AtomicU64::new(0);
        std::thread::scope(|s| {
            for t in 0..3u64 {
                let sum = &sum;
                s.spawn(move || {
                    for round in 0..400u64 {
                        pool.run(8, &|i, _| {
                            pool.run(3, &|j, _| {
                                sum.fetch_add((i * 3 + j) as u64, Ordering::Relaxed);
                            });
                        });
                        // Now and then long enough for the workers to fall asleep.
                        if round % 50 == t {
                            std::thread::sleep(Duration::from_micros(300));
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 3 * 400 * (0..24).sum::<u64>());
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let pool = ThreadPool::start(2);
        for bad in 0..8 {
            let ran = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|i, _| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    if i == bad {
                        std::panic::panic_any(format!("task {i}"));
                    }
                    std::thread::sleep(Duration::from_micros(50));
                })
            }))
            .expect_err("the panic of a task");
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("task {bad}")));
            assert!(ran.into_inner() <= 8);
            let after = AtomicUsize::new(0);
            pool.run(100, &|_, _| {
                after.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(after.into_inner(), 100);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn tasks_see_the_default_float_modes() {
        const FLUSH: u64 = 0x9fc0;
        let before = modes::get();
        modes::set(FLUSH);
        // Started by a thread with odd modes, which the workers inherit.
        let pool = ThreadPool::start(2);
        let wrong = AtomicUsize::new(0);
        for _ in 0..50 {
            pool.run(16, &|_, _| {
                wrong.fetch_add(
                    usize::from(modes::get() & modes::MASK != modes::DEFAULT),
                    Ordering::Relaxed,
                );
                std::thread::sleep(Duration::from_micros(5));
            });
        }
        run(1, &|_, _| {
            wrong.fetch_add(
                usize::from(modes::get() & modes::MASK != modes::DEFAULT),
                Ordering::Relaxed,
            );
        });
        let after = modes::get();
        modes::set(before);
        assert_eq!((wrong.into_inner(), after & modes::MASK), (0, FLUSH & modes::MASK));
    }

    #[test]
    fn thread_counts_are_limited() {
        assert_eq!(threads_from(None, 4), 4);
        assert_eq!(threads_from(Some("2"), 4), 2);
        assert_eq!(threads_from(Some("0"), 4), 4);
        assert_eq!(threads_from(Some("many"), 4), 4);
        assert_eq!(threads_from(Some("999999"), 4), MAX_THREADS);
        assert!(threads() >= 1);
    }

    /// Prints the cost of an empty job: `cargo test --release --lib latency_is_printed -- --ignored
    /// --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn latency_is_printed() {
        let pool = ThreadPool::start(1);
        let mut times: Vec<f64> = (0..20_000)
            .map(|_| {
                let start = Instant::now();
                pool.run(2, &|_, _| {});
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "empty run(2), back to back: min {:.2} µs, median {:.2}, p99 {:.2}",
            times[0], times[10_000], times[19_800]
        );
        let mut cold: Vec<f64> = (0..200)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                let start = Instant::now();
                pool.run(2, &|_, _| {});
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        cold.sort_by(f64::total_cmp);
        println!(
            "empty run(2), worker asleep: min {:.2} µs, median {:.2}, p99 {:.2}",
            cold[0], cold[100], cold[198]
        );
    }
}
