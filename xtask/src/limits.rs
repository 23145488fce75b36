//! Roofline of this machine, measured by loops that do nothing else: multiply-adds, reads, copies.
//! All kernel threads run at once, and the best of several short runs counts.

use crate::cpu_workloads::Work;
use picograd::compiler::target::Target;
use std::time::{Duration, Instant};

/// Rates of all threads together.
pub struct Limits {
    /// f32 operations per second.
    pub flops: f64,
    /// Bytes read per second, from memory and from 16 MiB, which the last-level cache may hold.
    pub read: [f64; 2],
    /// Bytes read and written per second by a copy, at the same sizes.
    pub copy: [f64; 2],
}

/// Elements at the two sizes, inputs and outputs together.
const SIZES: [usize; 2] = [32 << 20, 4 << 20];

/// The number of bytes up to which work is compared with the smaller size.
const SMALL_WORK: f64 = 34e6;

impl Limits {
    /// Measures with the threads and the vectors of a target for about this long.
    pub fn measure(target: &Target, time: Duration) -> Limits {
        let mut loops = Loops::new(target);
        let each = time / 5;
        let flops = loops.flops(each);
        let [large, small] = [0, 1].map(|i| (loops.read(i, each), loops.copy(i, each)));
        Limits { flops, read: [large.0, small.0], copy: [large.1, small.1] }
    }
    /// Returns the shortest time for an amount of work.
    pub fn seconds(&self, work: Work) -> f64 {
        let size = usize::from(is_small(work));
        match work {
            Work::Flops(n) | Work::Model(n) => n / self.flops,
            Work::DoubleFlops(n) => n / (self.flops / 2.0),
            Work::Weights(n) => n / self.read[0],
            Work::Read(n) => n / self.read[size],
            Work::Copied(n) => n / self.copy[size],
        }
    }
}

fn is_small(work: Work) -> bool {
    matches!(work, Work::Read(n) | Work::Copied(n) if n <= SMALL_WORK)
}

/// The loops and their memory.
pub struct Loops {
    threads: usize,
    vector_bytes: usize,
    /// The array of each thread, at both sizes.
    arrays: [Vec<Vec<Line>>; 2],
}

impl Loops {
    pub fn new(target: &Target) -> Loops {
        let threads = picograd::device::host::pool::threads();
        let array = |size: usize| vec![Line([1.0; LANES]); size / threads / LANES];
        let arrays = SIZES.map(|size| (0..threads).map(|_| array(size)).collect());
        Loops { threads, vector_bytes: target.vector_bytes, arrays }
    }
    /// Measures the loop that bounds an amount of work. Returns the shortest time for the work.
    pub fn seconds(&mut self, work: Work, time: Duration) -> f64 {
        let size = usize::from(is_small(work));
        match work {
            Work::Flops(n) | Work::Model(n) => n / self.flops(time),
            Work::DoubleFlops(n) => n / (self.flops(time) / 2.0),
            Work::Weights(n) => n / self.read(0, time),
            Work::Read(n) => n / self.read(size, time),
            Work::Copied(n) => n / self.copy(size, time),
        }
    }
    /// Multiply-adds in registers: operations per second.
    fn flops(&self, time: Duration) -> f64 {
        const ROUNDS: usize = 100_000;
        let width = self.vector_bytes;
        let seconds = best(time, self.threads, &mut vec![(); self.threads], |()| {
            multiply_add(std::hint::black_box(0.5), ROUNDS, width);
        });
        (ROUNDS * SUMS * LANES * 2 * self.threads) as f64 / seconds.as_secs_f64()
    }
    /// Reads one of the sizes: bytes per second.
    fn read(&mut self, size: usize, time: Duration) -> f64 {
        let seconds = best(time, self.threads, &mut self.arrays[size], |part| {
            std::hint::black_box(sum(part));
        });
        SIZES[size] as f64 * 4.0 / seconds.as_secs_f64()
    }
    /// Copies half of one of the sizes to the other half: bytes per second, read and written.
    fn copy(&mut self, size: usize, time: Duration) -> f64 {
        let arrays = &mut self.arrays[size];
        let half = arrays[0].len() / 2;
        let mut halves: Vec<_> = arrays.iter_mut().map(|a| a.split_at_mut(half)).collect();
        let seconds = best(time, self.threads, &mut halves, |(from, to)| copied(from, to));
        SIZES[size] as f64 * 4.0 / seconds.as_secs_f64()
    }
}

/// Shortest time in which every thread does its share.
fn best<T: Send>(
    time: Duration,
    threads: usize,
    parts: &mut [T],
    work: impl Fn(&mut T) + Sync,
) -> Duration {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < time || best == Duration::MAX {
        // All threads start together, and the time ends with the last.
        let there = std::sync::Barrier::new(threads);
        let run = |part: &mut T| {
            there.wait();
            let start = Instant::now();
            work(part);
            start.elapsed()
        };
        let longest = std::thread::scope(|scope| {
            let run = &run;
            let handles: Vec<_> =
                parts.iter_mut().map(|part| scope.spawn(move || run(part))).collect();
            handles.into_iter().map(|h| h.join().expect("a loop does not panic")).max()
        });
        best = best.min(longest.expect("one thread at least"));
    }
    best
}

/// f32 lanes of a cache line, the widest vector.
const LANES: usize = 16;
/// Independent accumulators.
const SUMS: usize = 12;

/// A cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([f32; LANES]);

/// Multiply-adds in registers; `x` is opaque to the compiler.
macro_rules! sums {
    ($x:ident, $rounds:ident, $splat:path, $fma:path, $lanes:literal) => {{
        let mut sums = [$splat($x); SUMS];
        let (scale, more) = ($splat($x), $splat($x + 0.25));
        for _ in 0..$rounds * LANES / $lanes {
            for sum in &mut sums {
                *sum = $fma(*sum, scale, more);
            }
        }
        std::hint::black_box(sums);
    }};
}

/// Uses vectors of at most `width` bytes, so that a lower level of the CPU has its own roofline.
fn multiply_add(x: f32, rounds: usize, width: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};
        #[target_feature(enable = "avx512f")]
        fn avx512(x: f32, rounds: usize) {
            sums!(x, rounds, _mm512_set1_ps, _mm512_fmadd_ps, 16)
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2(x: f32, rounds: usize) {
            sums!(x, rounds, _mm256_set1_ps, _mm256_fmadd_ps, 8)
        }
        if width >= 64 && std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has the features that the function was compiled for.
            return unsafe { avx512(x, rounds) };
        }
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma");
        if width >= 32 && has_avx2 {
            // SAFETY: as above.
            return unsafe { avx2(x, rounds) };
        }
    }
    let _ = width;
    sums!(x, rounds, f32::from, f32::mul_add, 1)
}

/// Reads four streams at once, which is faster than one.
fn sum(part: &[Line]) -> f32 {
    let mut sums = [Line([0.0; LANES]); 4];
    let quarter = part.len() / 4;
    let (a, b) = part.split_at(2 * quarter);
    let ((a, b), (c, d)) = (a.split_at(quarter), b.split_at(quarter));
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        for (sum, line) in sums.iter_mut().zip([a, b, c, d]) {
            sum.0.iter_mut().zip(&line.0).for_each(|(s, x)| *s += x);
        }
    }
    sums.iter().flat_map(|s| &s.0).sum()
}

/// Copies with non-temporal stores if the CPU has them.
fn copied(from: &[Line], to: &mut [Line]) {
    #[cfg(target_arch = "x86_64")]
    for (from, to) in from.iter().zip(to) {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
        for i in (0..LANES).step_by(4) {
            // SAFETY: four lanes from `i` on are inside the cache line, which is aligned to 64
            // bytes.
            unsafe {
                _mm_stream_ps(to.0.as_mut_ptr().add(i), _mm_loadu_ps(from.0.as_ptr().add(i)))
            };
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the fence has no operands; it orders the non-temporal stores before later loads.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}
