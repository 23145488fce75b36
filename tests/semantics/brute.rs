//! Every op on every pair of edge values, and every cast of every edge value, on every device,
//! against `ir::eval::alu`.

use super::common::{computed, devices, differences, stored};
use picograd::dtype::Const;
use picograd::ir::{Op, eval};
use picograd::testing::lacks;
use picograd::{DType, Tensor};

type Binary = fn(&Tensor, &Tensor) -> Tensor;

const INT_OPS: &[(Op, Binary)] = &[
    (Op::Add, |x, y| x.add(y)),
    (Op::Mul, |x, y| x.mul(y)),
    (Op::IDiv, |x, y| x.idiv(y)),
    (Op::Mod, |x, y| x.modulo(y)),
    (Op::Shl, |x, y| x.lshift(y)),
    (Op::Shr, |x, y| x.rshift(y)),
    (Op::Max, |x, y| x.maximum(y)),
    (Op::Min, |x, y| x.minimum(y)),
    (Op::And, |x, y| x.bitwise_and(y)),
    (Op::Or, |x, y| x.bitwise_or(y)),
    (Op::Xor, |x, y| x.bitwise_xor(y)),
    (Op::Lt, |x, y| x.lt(y)),
    (Op::Eq, |x, y| x.eq(y)),
    (Op::Ne, |x, y| x.ne(y)),
    (Op::Pow, |x, y| x.pow(y)),
];

const FLOAT_OPS: &[(Op, Binary)] = &[
    (Op::Add, |x, y| x.add(y)),
    (Op::Mul, |x, y| x.mul(y)),
    (Op::Div, |x, y| x.div(y)),
    (Op::Max, |x, y| x.maximum(y)),
    (Op::Min, |x, y| x.minimum(y)),
    (Op::Lt, |x, y| x.lt(y)),
    (Op::Eq, |x, y| x.eq(y)),
    (Op::Ne, |x, y| x.ne(y)),
];

const BOOL_OPS: &[(Op, Binary)] = &[
    (Op::Add, |x, y| x.add(y)),
    (Op::Mul, |x, y| x.mul(y)),
    (Op::Max, |x, y| x.maximum(y)),
    (Op::Min, |x, y| x.minimum(y)),
    (Op::And, |x, y| x.bitwise_and(y)),
    (Op::Or, |x, y| x.bitwise_or(y)),
    (Op::Xor, |x, y| x.bitwise_xor(y)),
    (Op::Lt, |x, y| x.lt(y)),
    (Op::Eq, |x, y| x.eq(y)),
    (Op::Ne, |x, y| x.ne(y)),
];

fn all(dtypes: impl Fn(DType) -> bool) -> Vec<DType> {
    DType::ALL.iter().copied().filter(|d| dtypes(*d)).collect()
}

/// The dtypes that a device supports.
fn all_on(device: &str, dtypes: impl Fn(DType) -> bool) -> Vec<DType> {
    let (kept, left_out): (Vec<DType>, Vec<DType>) =
        all(dtypes).into_iter().partition(|d| !lacks(device, [*d]));
    if !left_out.is_empty() {
        eprintln!("skipped on {device}, which does not compute in them: {left_out:?}");
    }
    kept
}

/// Integers near zero, near the bit width, and near the ends.
fn integers(dtype: DType) -> Vec<Const> {
    let bits = dtype.bits() as i128;
    let (least, greatest) = if dtype.is_unsigned() {
        (0, (1 << bits) - 1)
    } else {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    };
    let near = [
        0i128,
        1,
        2,
        3,
        5,
        7,
        10,
        bits - 1,
        bits,
        bits + 1,
        greatest,
        greatest - 1,
        greatest / 2,
        greatest / 2 + 1,
        greatest / 3,
    ];
    let mut values: Vec<i128> = near
        .iter()
        .flat_map(|v| [*v, -*v])
        .chain([least, least + 1])
        .filter(|v| (least..=greatest).contains(v))
        .collect();
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(|v| Const::Int(v as i64).normalize(dtype)).collect()
}

/// Floats at the ends of each class, some in between, and the special values.
fn floats(dtype: DType) -> Vec<Const> {
    let bits = dtype.bits();
    let mantissa = [
        (DType::F64, 52),
        (DType::F32, 23),
        (DType::F16, 10),
        (DType::BF16, 7),
        (DType::F8E4M3, 3),
        (DType::F8E5M2, 2),
    ];
    let mantissa = mantissa.iter().find(|(d, _)| *d == dtype).expect("a float").1;
    let one = Const::Float(1.0).to_bits(dtype);
    let top = (1u64 << (bits - 1)) - 1;
    let least_normal = 1u64 << mantissa;
    let infinity = Const::Float(f64::INFINITY).to_bits(dtype);
    let codes = [
        0,
        1,
        2,
        3,
        least_normal - 1,
        least_normal,
        least_normal + 1,
        one - 1,
        one,
        one + 1,
        one + least_normal,
        one + least_normal / 2,
    ];
    let more = [infinity, infinity - 1, infinity - 2, top / 3, top / 2, top / 5, top - 1];
    let both = |c: &u64| [*c, *c | 1 << (bits - 1)];
    codes
        .iter()
        .chain(&more)
        .flat_map(both)
        .map(|c| Const::from_bits(c, dtype))
        .chain([Const::Float(f64::NAN)])
        .collect()
}

fn edges(dtype: DType) -> Vec<Const> {
    match dtype {
        DType::BOOL => vec![Const::Bool(false), Const::Bool(true)],
        d if d.is_int() => integers(d),
        d => floats(d),
    }
}

/// Computes ops on all pairs of edge values on a device and compares. The lists are also truncated
/// to lengths that need scalar code.
fn check_pairs(dtype: DType, ops: &[(Op, Binary)], device: &str) {
    let values = edges(dtype);
    let pairs: Vec<(Const, Const)> =
        values.iter().flat_map(|x| values.iter().map(move |y| (*x, *y))).collect();
    let whole = pairs.len().next_multiple_of(64);
    for len in [whole, whole + 3] {
        let (x, y): (Vec<Const>, Vec<Const>) = pairs.iter().copied().cycle().take(len).unzip();
        let (a, b) = (stored(&x, dtype, &[len], device), stored(&y, dtype, &[len], device));
        let results: Vec<Tensor> = ops.iter().map(|(_, f)| f(&a, &b)).collect();
        Tensor::realize_many(&results.iter().collect::<Vec<_>>()).unwrap();
        for ((op, _), t) in ops.iter().zip(&results) {
            let expected: Vec<Const> = x
                .iter()
                .zip(&y)
                .map(|(x, y)| eval::alu(*op, t.dtype(), dtype, &[*x, *y]))
                .collect();
            // Integer powers are exact; float powers are not.
            if let Some((i, e, g)) = differences(&expected, &computed(t)).first() {
                panic!(
                    "{device}, {len} elements: {op:?} of {dtype} {} and {} is {g}, expected {e}",
                    x[*i], y[*i]
                );
            }
        }
    }
}

#[test]
fn integer_ops_are_exact_on_all_pairs() {
    for device in devices() {
        for dtype in all_on(&device, |d| d.is_int()) {
            check_pairs(dtype, INT_OPS, &device);
        }
    }
}

#[test]
fn bool_ops_are_exact_on_all_pairs() {
    for device in devices() {
        check_pairs(DType::BOOL, BOOL_OPS, &device);
    }
}

#[test]
fn float_ops_are_exact_on_all_pairs() {
    for device in devices() {
        for dtype in all_on(&device, |d| d.is_float()) {
            check_pairs(dtype, FLOAT_OPS, &device);
        }
    }
}

/// Values at which the result of some cast changes: ties and their neighbours in each float dtype,
/// and the ends of each integer dtype.
fn cast_edges(dtype: DType) -> Vec<Const> {
    // Every code of the small dtypes.
    if dtype.bits() == 8 && !dtype.is_bool() || dtype.bits() == 16 && dtype.is_float() {
        return (0..1u64 << dtype.bits()).map(|c| Const::from_bits(c, dtype)).collect();
    }
    let mut out = edges(dtype);
    if dtype.is_int() {
        // Near each power of two, and just past a tie of each mantissa width.
        for k in 0..dtype.bits() {
            for d in [-1i64, 0, 1] {
                out.push(Const::Int((1i64 << k).wrapping_add(d)).normalize(dtype));
                for m in [3, 4, 8, 11, 24, 53].into_iter().filter(|m| *m < k) {
                    for tie in [1i64, 3] {
                        let v = (1i64 << k).wrapping_add(tie << (k - m)).wrapping_add(d);
                        out.push(Const::Int(v).normalize(dtype));
                        out.push(Const::Int(v.wrapping_neg()).normalize(dtype));
                    }
                }
            }
        }
    } else if dtype.is_float() {
        let mut around = |v: f64| {
            for v in [v, -v] {
                let code = Const::Float(v).cast(DType::F64, dtype).to_bits(dtype);
                out.extend(
                    [code.wrapping_sub(1), code, code + 1].map(|c| Const::from_bits(c, dtype)),
                );
            }
        };
        for to in all(|d| d.is_float()) {
            let top = Const::Float(f64::INFINITY).to_bits(to) & ((1 << (to.bits() - 1)) - 1);
            let step = (top >> 8).max(1) | 1;
            let value = |c: u64| Const::from_bits(c, to).as_f64(to);
            for code in (0..top).step_by(step as usize).chain([0, 1, 2, 3, top - 2, top - 1]) {
                let (x, y) = (value(code), value(code + 1));
                around(x);
                around(if y.is_finite() { x * 0.5 + y * 0.5 } else { x * (1.0 + 1.0 / 64.0) });
            }
            around(464.0);
            around(61440.0);
            around(65520.0);
        }
        for k in [7, 8, 15, 16, 31, 32, 63, 64] {
            let v = 2f64.powi(k);
            for d in [0.0, 0.5, 1.0, -0.5, -1.0] {
                around(v + d);
            }
        }
    }
    out
}

/// Casts every dtype to every other, in vector and scalar code.
#[test]
fn casts_are_exact_on_all_edge_values() {
    for device in devices() {
        let dtypes = all_on(&device, |_| true);
        for &from in &dtypes {
            let values = cast_edges(from);
            let whole = values.len().next_multiple_of(64);
            for len in [whole, whole + 3] {
                let x: Vec<Const> = values.iter().copied().cycle().take(len).collect();
                let t = stored(&x, from, &[len], &device);
                let to: Vec<DType> = dtypes.iter().copied().filter(|d| *d != from).collect();
                let results: Vec<Tensor> = to.iter().map(|d| t.cast(*d)).collect();
                Tensor::realize_many(&results.iter().collect::<Vec<_>>()).unwrap();
                for (to, r) in to.iter().zip(&results) {
                    let expected: Vec<Const> =
                        x.iter().map(|c| eval::alu(Op::Cast, *to, from, &[*c])).collect();
                    if let Some((i, e, g)) = differences(&expected, &computed(r)).first() {
                        panic!(
                            "{device}, {len} elements: cast of {from} {} to {to} is {g}, expected \
                             {e}",
                            x[*i]
                        );
                    }
                }
            }
        }
    }
}
