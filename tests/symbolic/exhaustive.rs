//! Rules with literals, for all small literals and all operand values.

use super::check::{INTEGER_OPS, choose, same_value, values};
use super::random::{Rng, anything, range, var};
use picograd::dtype::{Const, DType};
use picograd::ir::{Op, UOp, print, toposort};
use picograd::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Asserts that the simplified expression has the same value everywhere.
fn everywhere(u: &UOp) {
    same_value(&mut Rng(0), u, &simplify(u), None, 4096);
}

/// Asserts that the expressions of each pair are equal for each value of the leaf.
fn same_for(pairs: &[(UOp, UOp)], leaf: &UOp, leaf_values: impl IntoIterator<Item = Const>) {
    let order = toposort(pairs.iter().flat_map(|(b, a)| [b, a]));
    for v in leaf_values {
        let values = values(&order, &FxHashMap::from_iter([(leaf.clone(), v)]));
        for (b, a) in pairs {
            let same = values[&b.id()] == values[&a.id()];
            assert!(same, "x = {v}\n{}=>\n{}", print(b), print(a));
        }
    }
}

#[test]
fn sums_divided_or_compared_by_literals_keep_their_value() {
    let (x, y) = (var("x", DType::INDEX, -3, 3), range(4, 0));
    for a in -4..=4i64 {
        for b in [-4, -3, -1, 1, 2, 4, 6] {
            for c in [-5, 0, 1, 7] {
                let sum = &x * a + &y * b + c;
                for d in -6..=6i64 {
                    everywhere(&(&sum / d));
                    everywhere(&(&sum % d));
                    everywhere(&sum.lt(d));
                    everywhere(&UOp::int(d).lt(&sum));
                    everywhere(&sum.equals(d));
                    everywhere(&sum.lt(&y * d));
                }
            }
        }
    }
}

#[test]
fn nested_divisions_by_literals_keep_their_value() {
    for (lo, hi) in [(-30, 30), (0, 30), (-30, -1)] {
        let x = var("x", DType::INDEX, lo, hi);
        for a in -6..=12i64 {
            for b in -6..=12i64 {
                for outer in [Op::IDiv, Op::Mod, Op::Lt, Op::Eq, Op::Mul, Op::Add] {
                    everywhere(&(&x / a).binary(outer, b));
                    everywhere(&(&x % a).binary(outer, b));
                }
                everywhere(&((&x / a) * b + &x % a));
                everywhere(&((&x % a) * b + (&x / a) * a));
            }
        }
    }
}

/// Every op with one or two literals, for every 8-bit value of the operand.
#[test]
fn byte_ops_with_literals_keep_their_value() {
    let ops = INTEGER_OPS.into_iter().chain([Op::Lt, Op::Eq, Op::Ne]);
    for d in [DType::I8, DType::U8] {
        let x = anything(d, 0);
        let literals: Vec<UOp> = [0, 1, 2, 3, 7, 8, 9, 100, 127, 128, 254, 255]
            .map(|v| UOp::constant(v as i64, d))
            .into();
        for op in ops.clone() {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for a in &literals {
                let once = x.binary(op, a);
                before.extend([a.binary(op, &x), once.clone()]);
                before.extend(
                    literals.iter().filter(|_| once.dtype() == d).map(|b| once.binary(op, b)),
                );
            }
            after.extend(before.iter().map(simplify));
            let pairs: Vec<(UOp, UOp)> = before.into_iter().zip(after).collect();
            same_for(&pairs, &x, (0..256).map(|v| Const::Int(v).normalize(d)));
        }
    }
}

/// Casts and bitcasts through every dtype, for all values of 8 bits and many of others.
#[test]
fn conversions_through_every_dtype_keep_their_value() {
    let all: Vec<DType> = DType::ALL.iter().copied().chain([DType::INDEX]).collect();
    let rng = &mut Rng(1);
    for &from in &all {
        let x = anything(from, 0);
        let values_of_x: Vec<Const> = match from.bits() {
            8 => (0..256).map(|v| Const::from_bits(v, from)).collect(),
            _ => (0..200).map(|_| choose(rng, &x)).collect(),
        };
        let mut pairs = Vec::new();
        for &by in &all {
            for &to in &all {
                let cast = x.cast(by).cast(to);
                pairs.push((cast.clone(), simplify(&cast)));
                // The bits of a NaN are not specified, so values start and end as integers.
                if from.bits() == by.bits()
                    && by.bits() == to.bits()
                    && !from.is_float()
                    && !to.is_float()
                {
                    let bits = x.bitcast(by).bitcast(to);
                    pairs.push((bits.clone(), simplify(&bits)));
                }
            }
        }
        same_for(&pairs, &x, values_of_x);
    }
}

/// Bounds of a reduction hold for every runtime extent of its range.
#[test]
fn bounds_of_a_symbolic_reduction_hold() {
    use picograd::ir::{Arg, AxisKind, Fold, ToSrc};
    let n = var("n", DType::INDEX, 0, 5);
    let r = UOp::range(&n, 0, AxisKind::Reduce);
    let fold = |fold: Fold, body: &UOp| {
        let arg = Arg::Reduce { fold, axes: Default::default() };
        UOp::new(Op::Reduce, body.dtype(), [body.clone(), r.clone()].to_src(), arg).bounds()
    };
    let all = (i64::MIN as i128, i64::MAX as i128);
    assert_eq!(fold(Fold::Add, &UOp::int(1)), (0, 5));
    assert_eq!(fold(Fold::Add, &UOp::int(-2)), (-10, 0));
    assert_eq!(fold(Fold::Add, &var("x", DType::INDEX, -1, 3)), (-5, 15));
    assert_eq!(fold(Fold::Max, &UOp::int(1)), all);
    assert_eq!(fold(Fold::Mul, &UOp::int(1)), all);
}
