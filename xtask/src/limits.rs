//! Roofline of this machine, measured by loops that do nothing else: multiply-adds, reads, copies.
//! All kernel threads run at once, and the best of several short runs counts.

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

impl Limits {
    /// Measures with a number of threads for about this long.
    pub fn measure(threads: usize, time: Duration) -> Limits {
        let each = time / 5;
        const ROUNDS: usize = 100_000;
        let flops = best(each, threads, &mut vec![(); threads], |()| {
            multiply_add(std::hint::black_box(0.5), ROUNDS);
        });
        let mut read = [0.0; 2];
        let mut copy = [0.0; 2];
        for (i, size) in SIZES.into_iter().enumerate() {
            let bytes = size as f64 * 4.0;
            let mut from: Vec<Vec<Line>> =
                (0..threads).map(|_| vec![Line([1.0; LANES]); size / threads / LANES]).collect();
            read[i] = bytes
                / best(each, threads, &mut from, |part| {
                    std::hint::black_box(sum(part));
                })
                .as_secs_f64();
            let mut halves: Vec<_> =
                from.iter_mut().map(|part| part.split_at_mut(size / threads / LANES / 2)).collect();
            copy[i] = bytes
                / best(each, threads, &mut halves, |(from, to)| copied(from, to)).as_secs_f64();
        }
        Limits {
            flops: (ROUNDS * SUMS * LANES * 2 * threads) as f64 / flops.as_secs_f64(),
            read,
            copy,
        }
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

fn multiply_add(x: f32, rounds: usize) {
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
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has the features that the function was compiled for.
            return unsafe { avx512(x, rounds) };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            // SAFETY: as above.
            return unsafe { avx2(x, rounds) };
        }
    }
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
