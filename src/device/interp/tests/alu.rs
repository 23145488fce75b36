//! Compares the specialized functions with the definition, over ops, dtypes and edge values, bit
//! for bit.

use crate::device::interp::alu::{fast, slow};
use crate::device::interp::tests::*;
use crate::dtype::Const;
use crate::ir::Group;

/// Returns the values at the edges of a dtype, as the bits of its lanes.
fn edges(dtype: DType) -> Vec<u64> {
    let mut out = if dtype.is_float() { float_edges(dtype) } else { int_edges(dtype) };
    out.sort();
    out.dedup();
    out
}

fn float_edges(dtype: DType) -> Vec<u64> {
    let floats = [
        0.0,
        -0.0,
        0.5,
        1.0,
        -1.0,
        1.5,
        -2.5,
        3.7,
        127.9,
        128.0,
        255.9,
        -129.0,
        65504.0,
        2147483648.0,
        -2147483649.0,
        4294967296.0,
    ];
    let wide = [
        9.3e18,
        -9.3e18,
        1.9e19,
        1e38,
        -1e38,
        1e-40,
        1e-310,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut out: Vec<u64> =
        floats.iter().chain(&wide).map(|v| Const::Float(*v).to_bits(dtype)).collect();
    // NaNs of other bits than the canonical one, quiet and signalling.
    match dtype.bits() {
        64 => out.extend([0xfff8_0000_0000_0001, 0x7ff0_0000_0000_0001, 1, 0x000f_ffff_ffff_ffff]),
        32 => out.extend([0xffc0_0001, 0x7f80_0001, 1, 0x007f_ffff]),
        16 => out.extend([0xfe01, 0x7c01, 0x7f81, 1]),
        _ => out.extend([0xff, 0x7f, 0x7d, 1]),
    }
    out
}

fn int_edges(dtype: DType) -> Vec<u64> {
    let ints = [
        0i64, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256, -1, -2, -3,
        -7, -64, -128, -129,
    ];
    let wide = [
        32767,
        32768,
        65535,
        -32768,
        1 << 24,
        (1 << 24) + 1,
        i32::MAX as i64,
        i32::MIN as i64,
        u32::MAX as i64,
        1 << 53,
        (1 << 53) + 1,
    ];
    let all = [i64::MAX, i64::MIN, i64::MIN + 1, i64::MAX - 1, 0x4000_0000_0000_0001];
    let bits = |v: &i64| Const::Int(*v).normalize(dtype).to_bits(dtype);
    ints.iter().chain(&wide).chain(&all).map(bits).collect()
}

/// Compares a specialized function with the definition on all combinations of edge values, and
/// returns their number.
fn check(op: Op, dtype: DType, from: [DType; 3], arity: usize) -> usize {
    let Some(f) = fast(op, dtype, from[0]) else { return 0 };
    let values: Vec<Vec<u64>> =
        (0..3).map(|k| if k < arity { edges(from[k]) } else { vec![0] }).collect();
    // All triples would be slow, so the third operand takes fewer values.
    let third = values[2].iter().step_by(if arity == 3 { 3 } else { 1 });
    let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
    for z in third {
        for x in &values[0] {
            for y in &values[1] {
                a.push(*x);
                b.push(*y);
                c.push(*z);
            }
        }
    }
    let (mut got, mut want) = (vec![1u64; a.len()], vec![2u64; a.len()]);
    f(&mut got, &a, &b, &c);
    slow(op, dtype, from, arity, &mut want, [&a, &b, &c]);
    for i in 0..a.len() {
        assert_eq!(
            got[i], want[i],
            "{op:?} {dtype} of {from:?}: lanes {:#x} {:#x} {:#x}, got {:#x}, not {:#x}",
            a[i], b[i], c[i], got[i], want[i]
        );
    }
    1
}

#[test]
fn fast_forms_are_the_definition() {
    let mut dtypes = DType::ALL.to_vec();
    dtypes.push(DType::INDEX);
    let mut forms = 0;
    for &op in Op::ALL.iter().filter(|op| op.is_alu()) {
        for &t in &dtypes {
            forms += match op {
                Op::Cast => dtypes.iter().map(|&from| check(op, t, [from; 3], 1)).sum(),
                Op::Bitcast => dtypes
                    .iter()
                    .filter(|from| from.bits() == t.bits())
                    .map(|&from| check(op, t, [from; 3], 1))
                    .sum(),
                Op::Where => check(op, t, [DType::BOOL, t, t], 3),
                _ if op.is(Group::Comparison) => check(op, DType::BOOL, [t; 3], 2),
                _ => check(op, t, [t; 3], op.arity()),
            };
        }
    }
    // The ops that dominate the time of kernels have a specialized function.
    assert!(forms > 350, "{forms} fast forms");
    for op in [Op::Add, Op::Mul, Op::Lt] {
        for t in [DType::F32, DType::F64, DType::I32, DType::I64, DType::INDEX, DType::U8] {
            assert!(fast(op, t, t).is_some(), "{op:?} {t}");
        }
    }
}
