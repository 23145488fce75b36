//! Runs functions over every float32 and prints the largest error: `cargo run --release --example
//! math_sweep -- [step] [name...]`.
//!
//! The step between inputs is 1 unless given. That takes half an hour for all functions, and only
//! if the compiler has a native fma and sees through the dtypes of the plain numbers:
//! `RUSTFLAGS="-Ctarget-cpu=native -Cllvm-args=-inline-threshold=5000 -Ccodegen-units=1"`. `pow`
//! runs over 2^27 / step pairs.

#[path = "../tests/compiler/oracle.rs"]
mod oracle;

use oracle::{Pairs, UNARY, pow, ulp_error};

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let step = names.first().and_then(|s| s.parse().ok());
    if step.is_some() {
        names.remove(0);
    }
    let step: usize = step.unwrap_or(1);
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);

    for f in UNARY.iter().filter(|f| wanted(f.name)) {
        // Negative inputs of an odd or even function must mirror the positive ones to the bit,
        // which saves their oracle.
        let last = if f.mirror == 0.0 { u32::MAX } else { u32::MAX >> 1 };
        let error = |x: f32| {
            let got = (f.run)(x);
            let mirrored = || {
                let (other, want) = ((f.run)(-x), got * f.mirror);
                other.to_bits() == want.to_bits() || other.is_nan() && want.is_nan()
            };
            let fits = f.mirror == 0.0 || mirrored();
            (if fits { ulp_error(got, (f.oracle)(x as f64)) } else { f64::INFINITY }, x)
        };
        let (err, x) = worst((0..=last).step_by(step).map(f32::from_bits).map(error));
        let (bits, got, want) = (x.to_bits(), (f.run)(x), (f.oracle)(x as f64));
        println!(
            "{:8} {err:.4} of {} ulp at {x:e} (0x{bits:08x}): {got:e}, wanted {want:e}",
            f.name, f.ulp
        );
    }
    if wanted("pow") {
        let error = |(x, y): (f32, f32)| (ulp_error(pow(x, y), (x as f64).powf(y as f64)), (x, y));
        let (err, (x, y)) = worst(Pairs(1).take((1 << 27) / step).map(error));
        let (got, want) = (pow(x, y), (x as f64).powf(y as f64));
        println!(
            "pow      {err:.4} ulp at {x:e} (0x{:08x}), {y:e} (0x{:08x}): {got:e}, wanted {want:e}",
            x.to_bits(),
            y.to_bits()
        );
    }
}

/// Returns the pair with the largest error; the first of equal ones.
fn worst<T>(errors: impl Iterator<Item = (f64, T)>) -> (f64, T) {
    errors.reduce(|a, b| if b.0 > a.0 { b } else { a }).expect("there are inputs")
}
