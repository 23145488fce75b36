//! Measures the time per instruction. It has no limit, which a busy machine could exceed; run it
//! with `--ignored --nocapture`.

use crate::device::interp::InterpLaunch;
use crate::device::interp::tests::*;

/// CPU time of this thread in nanoseconds, which excludes the other load of the machine.
fn cpu_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the struct that it is given and to nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns a loop of an index computation, a load and a multiply-add: seven instructions in the
/// body.
fn dot(width: usize, trips: i32) -> List {
    let mut p = List::default();
    let (out, x) = (p.global(0, width, DType::F32), p.global(1, 1024, DType::F32));
    let l = p.special(SpecialKind::Local, 0, width);
    let acc = p.acc(0, &f32c(0.0));
    let r = p.range(0, &i32c(trips));
    let at = p.expr(&((&r + &l) & 1023i32));
    let v = p.load(&x, &at);
    let last = p.assign(&acc, &(&acc + &(&v * 1.5f32)));
    p.end(&r);
    p.store(&out, &l, &last);
    p
}

#[test]
#[ignore = "a measurement"]
fn instruction_time_is_printed() {
    for (width, trips) in [(1, 1_000_000), (32, 100_000), (256, 10_000)] {
        let interp = Interp::compile(&dot(width, trips).0).unwrap();
        let (mut out, mut x) = (vec![0; width * 4], f32s(&[0.5; 1024]));
        for races in [false, true] {
            let bufs = [Memory::new(&mut out), Memory::new(&mut x)];
            let begin = cpu_time();
            let launch = InterpLaunch { grid: [1; 3], local: [width, 1, 1], chunks: 1 };
            interp.run_with(&bufs, launch, &Options { races, vars: &[] }).unwrap();
            let each = (cpu_time() - begin) as f64 / (width as f64 * trips as f64 * 7.0);
            println!("workgroup of {width}, races {races}: {each:.1} ns per scalar instruction");
        }
    }
}
