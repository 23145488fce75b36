//! Runs functions over every float32 and prints the largest error: `cargo run --release --example math_sweep -- [step] [name...]`.
//!
//! The step between inputs is 1 unless given, which takes one to three minutes per function when built with
//! `RUSTFLAGS=-Ctarget-cpu=native`; without a native fma it takes far longer. `pow` runs over 2^27 / step pairs.

#[path = "../tests/math/oracle.rs"]
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
        let inputs = (0..=u32::MAX).step_by(step).map(f32::from_bits);
        let (err, x) = worst(inputs.map(|x| (ulp_error((f.run)(x), (f.oracle)(x as f64)), x)));
        let (bits, got, want) = (x.to_bits(), (f.run)(x), (f.oracle)(x as f64));
        println!("{:8} {err:.4} of {} ulp at {x:e} (0x{bits:08x}): {got:e}, wanted {want:e}", f.name, f.ulp);
    }
    if wanted("pow") {
        let error = |(x, y): (f32, f32)| (ulp_error(pow(x, y), (x as f64).powf(y as f64)), (x, y));
        let (err, (x, y)) = worst(Pairs(1).take((1 << 27) / step).map(error));
        let (got, want) = (pow(x, y), (x as f64).powf(y as f64));
        println!("pow      {err:.4} ulp at {x:e} (0x{:08x}), {y:e} (0x{:08x}): {got:e}, wanted {want:e}", x.to_bits(), y.to_bits());
    }
}

/// The pair with the largest error; the first of equal ones.
fn worst<T>(errors: impl Iterator<Item = (f64, T)>) -> (f64, T) {
    errors.reduce(|a, b| if b.0 > a.0 { b } else { a }).expect("there are inputs")
}
