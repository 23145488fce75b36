//! `modulo` and `fmod` of floats: exact for every finite pair, on every device.

use crate::common::{self, devices, stored};
use picograd::DType;
use picograd::dtype::Const;
use picograd::testing::lacks;

/// A few numbers of every exponent with both signs, and the extreme values.
fn values(dtype: DType) -> Vec<Const> {
    let (digits, exponents) = match dtype {
        DType::F64 => (52u32, 2048u64),
        DType::F32 => (23, 256),
        DType::F16 => (10, 32),
        _ => (7, 256),
    };
    let step = (exponents / 128).max(1);
    let mut bits: Vec<u64> = Vec::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for e in (0..exponents).step_by(step as usize).chain([exponents - 2, exponents - 1]) {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        for fraction in [0, 1, (1 << digits) - 1, seed >> (64 - digits)] {
            bits.push(e << digits | fraction);
        }
    }
    let sign = 1u64 << (dtype.bits() - 1);
    bits.iter()
        .enumerate()
        .map(|(i, b)| Const::from_bits(if i % 3 == 1 { b | sign } else { *b }, dtype))
        .collect()
}

fn expected(x: f64, y: f64, dtype: DType) -> [f64; 2] {
    // The remainder of two numbers of a dtype is representable in it, and `%` of Rust is exact.
    let rest = x % y;
    let floor = match rest {
        0.0 => 0f64.copysign(y),
        r if r.is_nan() || (r < 0.0) == (y < 0.0) => r,
        r => Const::Float(if dtype == DType::F64 { r + y } else { (r as f32 + y as f32) as f64 })
            .cast(DType::F64, dtype)
            .as_f64(dtype),
    };
    [floor, rest]
}

#[test]
fn float_remainders_are_exact() {
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            if lacks(&device, [dtype]) {
                continue;
            }
            let all = values(dtype);
            // Pairs at a fixed distance cover all differences of exponents.
            let shifts = if device == "INTERP" || dtype == DType::F64 { 23 } else { 101 };
            let n = all.len();
            let x: Vec<Const> = (0..n * shifts).map(|i| all[i % n]).collect();
            let y: Vec<Const> = (0..n * shifts)
                .map(|i| all[(i % n + (i / n) * (n / shifts) + i / n) % n])
                .collect();
            let (tx, ty) =
                (stored(&x, dtype, &[x.len()], &device), stored(&y, dtype, &[y.len()], &device));
            for (k, (name, t)) in
                [("modulo", tx.modulo(&ty)), ("fmod", tx.fmod(&ty))].into_iter().enumerate()
            {
                for (i, got) in common::computed(&t).iter().enumerate() {
                    let (a, b, got) = (x[i].as_f64(dtype), y[i].as_f64(dtype), got.as_f64(dtype));
                    let want = expected(a, b, dtype)[k];
                    let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                    assert!(
                        same,
                        "{name}({a:e}, {b:e}) in {dtype} on {device} is {got:e}, expected {want:e}"
                    );
                }
            }
        }
    }
}
