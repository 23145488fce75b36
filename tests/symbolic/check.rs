//! Checks by evaluation that a rewrite preserves values.

use super::random::Rng;
use picograd::dtype::{Const, DType, Scalar};
use picograd::ir::{Arg, Op, UOp, eval, print, toposort};
use rustc_hash::FxHashMap;

/// The binary ops on integers, without those that only lowering makes.
pub const INTEGER_OPS: [Op; 11] = [
    Op::Add,
    Op::Mul,
    Op::IDiv,
    Op::Mod,
    Op::Max,
    Op::Min,
    Op::And,
    Op::Or,
    Op::Xor,
    Op::Shl,
    Op::Shr,
];

pub type Leaves = FxHashMap<UOp, Const>;

/// The leaves of expressions, whose values a test chooses.
pub fn leaves(roots: &[UOp]) -> Vec<UOp> {
    toposort(roots)
        .into_iter()
        .filter(|u| matches!(u.op(), Op::Param | Op::Var | Op::Range))
        .collect()
}

/// The value of each node, operands first.
pub fn values(order: &[UOp], leaves: &Leaves) -> FxHashMap<u64, Const> {
    let mut values: FxHashMap<u64, Const> = FxHashMap::default();
    for u in order {
        let value = match (leaves.get(u), u.arg()) {
            (Some(v), _) => *v,
            (None, Arg::Const(c)) => *c,
            _ => {
                let x: Vec<Const> = u.src().iter().map(|s| values[&s.id()]).collect();
                let from = if u.op() == Op::Where { u.dtype() } else { u.src()[0].dtype() };
                eval::alu(u.op(), u.dtype(), from, &x)
            }
        };
        values.insert(u.id(), value);
    }
    values
}

/// An integer or bool as a number.
pub fn number(c: Const, d: DType) -> i128 {
    match c.as_i64().expect("an integer") {
        v if d.scalar == Scalar::U64 => v as u64 as i128,
        v => v as i128,
    }
}

/// Asserts that the bounds of every node contain its value.
#[track_caller]
pub fn bounds_hold(order: &[UOp], values: &FxHashMap<u64, Const>) {
    for u in order.iter().filter(|u| !u.dtype().is_float()) {
        let (lo, hi) = u.bounds();
        let v = number(values[&u.id()], u.dtype());
        assert!(lo <= v && v <= hi, "the value {v} is not within {lo}..={hi} of\n{}", print(u));
    }
}

/// A value of a leaf, often at an edge.
pub fn choose(rng: &mut Rng, leaf: &UOp) -> Const {
    let d = leaf.dtype();
    if matches!(leaf.op(), Op::Range | Op::Var) {
        let (lo, hi) = leaf.bounds();
        let (lo, hi) = (lo as i64, hi as i64);
        let v = match rng.below(4) {
            0 => lo,
            1 => hi,
            _ => {
                lo.wrapping_add((rng.next() as u128 % (hi as i128 - lo as i128 + 1) as u128) as i64)
            }
        };
        return Const::Int(v);
    }
    if d.is_bool() {
        return Const::Bool(rng.one_in(2));
    }
    if d.is_float() {
        let special =
            [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, 0.3, 65504.0];
        return match rng.below(3) {
            0 => Const::from_bits(rng.next(), d),
            _ => Const::Float(rng.pick(&special)).normalize(d),
        };
    }
    match rng.below(8) {
        0 => d.min_value(),
        1 => d.max_value(),
        2 => Const::Int(0),
        3 => Const::Int(1).normalize(d),
        4 => Const::Int(-1).normalize(d),
        _ => Const::from_bits(rng.next() >> rng.below(64), d),
    }
}

/// Assignments of the leaves: all if there are at most `limit`, otherwise `limit` random ones.
pub fn assignments(rng: &mut Rng, leaves: &[UOp], limit: usize) -> Vec<Leaves> {
    let sizes: Vec<i128> = leaves
        .iter()
        .map(|u| match u.op() {
            Op::Range | Op::Var => u.vmax() - u.vmin() + 1,
            _ => 1 << 64,
        })
        .collect();
    let total = sizes.iter().fold(1i128, |a, b| a.saturating_mul(*b));
    if total > limit as i128 {
        return (0..limit)
            .map(|_| leaves.iter().map(|u| (u.clone(), choose(rng, u))).collect())
            .collect();
    }
    (0..total)
        .map(|mut n| {
            let digit = |(u, size): (&UOp, &i128)| {
                let v = u.vmin() + n % size;
                n /= size;
                (u.clone(), Const::Int(v as i64))
            };
            leaves.iter().zip(&sizes).map(digit).collect()
        })
        .collect()
}

/// Asserts that `after` has the value of `before` wherever `valid` holds, and that bounds hold in
/// both. Returns the number of compared assignments.
#[track_caller]
pub fn same_value(
    rng: &mut Rng,
    before: &UOp,
    after: &UOp,
    valid: Option<&UOp>,
    limit: usize,
) -> usize {
    assert_eq!(
        before.dtype(),
        after.dtype(),
        "the dtype changed:\n{}\n{}",
        print(before),
        print(after)
    );
    let roots: Vec<UOp> = [Some(before), valid].into_iter().flatten().cloned().collect();
    let leaves = leaves(&roots);
    let (old, new) = (toposort(&roots), after.toposort());
    let mut counted = 0;
    for at in assignments(rng, &leaves, limit) {
        let x = values(&old, &at);
        bounds_hold(&old, &x);
        if valid.is_some_and(|v| !x[&v.id()].is_true()) {
            continue;
        }
        let say = || {
            let mut at: Vec<String> = at.iter().map(|(u, v)| format!("{u:?} = {v}")).collect();
            at.sort();
            format!("at {at:#?}\n{}=>\n{}", print(before), print(after))
        };
        let y = values(&new, &at);
        assert!(
            x[&before.id()] == y[&after.id()],
            "{} became {} {}",
            x[&before.id()],
            y[&after.id()],
            say()
        );
        if valid.is_none() {
            bounds_hold(&new, &y);
        }
        counted += 1;
    }
    counted
}
