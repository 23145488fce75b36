//! Integer bounds: the interval of a node's values from those of its operands, and arithmetic of
//! intervals.

use super::{Arg, Combine, Fold, Group, Op, UOp};
use crate::dtype::{Const, DType, Scalar};

/// Inclusive bounds of an integer or bool value. 128 bits hold every 64-bit value, and the sums and
/// products of two.
pub type Bounds = (i128, i128);

/// The bounds of a value about which nothing is known.
pub(super) const EVERYTHING: Bounds = (i128::MIN, i128::MAX);

/// Returns all values of a dtype.
pub fn dtype_bounds(dtype: DType) -> Bounds {
    match dtype.scalar {
        Scalar::Bool => (0, 1),
        Scalar::U64 => (0, u64::MAX as i128),
        _ if dtype.is_int() => {
            let v = |c: Const| c.as_i64().expect("integer limits") as i128;
            (v(dtype.min_value()), v(dtype.max_value()))
        }
        _ => EVERYTHING,
    }
}

/// Returns true if the interval is within the values of a dtype.
pub(crate) fn fits(b: Bounds, dtype: DType) -> bool {
    let all = dtype_bounds(dtype);
    all.0 <= b.0 && b.1 <= all.1
}

/// Returns the sums of two values.
pub(crate) fn plus(a: Bounds, b: Bounds) -> Bounds {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// Returns the products of two values.
pub(crate) fn product((a, b): Bounds, (c, d): Bounds) -> Bounds {
    extremes([a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)])
}

/// Returns the intersection of two intervals.
pub(crate) fn meet(a: Bounds, b: Bounds) -> Bounds {
    (a.0.max(b.0), a.1.min(b.1))
}

/// Returns the smallest interval that contains both.
fn hull(a: Bounds, b: Bounds) -> Bounds {
    (a.0.min(b.0), a.1.max(b.1))
}

fn extremes(of: [i128; 4]) -> Bounds {
    (of.into_iter().fold(i128::MAX, i128::min), of.into_iter().fold(i128::MIN, i128::max))
}

/// Returns the bounds of a bool that is known to be true, known to be false, or neither.
fn decided(always: bool, never: bool) -> Bounds {
    (always as i128, !never as i128)
}

pub(super) fn make_bounds(u: &UOp) -> Bounds {
    let dtype = u.dtype();
    if dtype.is_float() || dtype == DType::VOID {
        return EVERYTHING;
    }
    let found = match u.op() {
        Op::Const | Op::Var | Op::Special | Op::Range | Op::Iota => leaf(u),
        Op::Lt | Op::Eq | Op::Ne => comparison(u),
        Op::And | Op::Or | Op::Xor | Op::Shl | Op::Shr => bitwise(u),
        Op::Cast => cast(u),
        Op::Reduce | Op::Scan => reduction(u),
        op if op.is(Group::Binary) => arithmetic(u),
        _ => selection(u),
    };
    // An operation that may wrap can have any value.
    found.filter(|b| fits(*b, dtype)).unwrap_or_else(|| dtype_bounds(dtype))
}

fn leaf(u: &UOp) -> Option<Bounds> {
    let below = |n: i128| (0, (n - 1).max(0));
    match (u.op(), u.arg()) {
        (_, Arg::Const(c)) => {
            let v = c.as_i64().expect("an integer dtype has an integer literal");
            let v = if u.dtype().scalar == Scalar::U64 { v as u64 as i128 } else { v as i128 };
            Some((v, v))
        }
        (_, Arg::Var { min, max, .. } | Arg::BoundVar { min, max, .. }) => {
            Some((*min as i128, *max as i128))
        }
        (_, Arg::Special { extent, .. }) => Some(below(*extent as i128)),
        (Op::Range, _) => Some(below(u.operand().vmax())),
        (Op::Iota, _) => Some(below(u.numel() as i128)),
        _ => None,
    }
}

fn comparison(u: &UOp) -> Option<Bounds> {
    let (x, y) = u.as_binary()?;
    if x.dtype().is_float() {
        return None;
    }
    let ((a, b), (c, d)) = (x.bounds(), y.bounds());
    let (same, apart) = (a == b && (a, b) == (c, d), b < c || d < a);
    Some(match u.op() {
        Op::Lt => decided(b < c, a >= d),
        Op::Eq => decided(same, apart),
        _ => decided(apart, same),
    })
}

fn bitwise(u: &UOp) -> Option<Bounds> {
    let (x, y) = u.as_binary()?;
    let ((a, b), (c, d)) = (x.bounds(), y.bounds());
    let constant = c == d;
    match u.op() {
        Op::And if u.dtype().is_bool() => Some((a.min(c), b.min(d))),
        Op::Or if u.dtype().is_bool() => Some((a.max(c), b.max(d))),
        Op::Xor if u.dtype().is_bool() => (a == b && constant).then_some((a ^ c, a ^ c)),
        Op::And if a >= 0 && c >= 0 => Some((0, b.min(d))),
        Op::And if c >= 0 => Some((0, d)),
        Op::And if a >= 0 => Some((0, b)),
        Op::Or | Op::Xor if a >= 0 && c >= 0 => {
            let top = b.max(d) as u128;
            let mask = if top == 0 { 0 } else { u128::MAX >> top.leading_zeros() };
            Some((0, mask as i128))
        }
        Op::Shl if constant && (0..63).contains(&c) => Some(product((a, b), (1 << c, 1 << c))),
        Op::Shr if constant && (0..u.dtype().bits() as i128).contains(&c) => Some((a >> c, b >> c)),
        _ => None,
    }
}

fn cast(u: &UOp) -> Option<Bounds> {
    let from = u.operand();
    if from.dtype().is_float() {
        return None;
    }
    let (lo, hi) = from.bounds();
    Some(if u.dtype().is_bool() { decided(lo > 0 || hi < 0, lo == 0 && hi == 0) } else { (lo, hi) })
}

fn arithmetic(u: &UOp) -> Option<Bounds> {
    let (x, y) = u.as_binary()?;
    let (x, y) = (x.bounds(), y.bounds());
    match u.op() {
        Op::Add if u.dtype().is_bool() => Some((x.0.max(y.0), x.1.max(y.1))),
        Op::Add => Some(plus(x, y)),
        Op::Mul => Some(product(x, y)),
        Op::Max => Some((x.0.max(y.0), x.1.max(y.1))),
        Op::Min => Some((x.0.min(y.0), x.1.min(y.1))),
        Op::IDiv | Op::CDiv => quotient(u.op() == Op::CDiv, x, y),
        Op::Mod => remainder(x, y),
        // The remainders of nonnegative dividends are equal; otherwise the sign is the dividend's.
        Op::CMod if x.0 >= 0 && y.0 > 0 => remainder(x, y),
        Op::CMod if y.0 > 0 => {
            let most = y.1 - 1;
            Some((x.0.max(-most), if x.1 <= 0 { 0 } else { x.1.min(most) }))
        }
        _ => None,
    }
}

/// Returns the quotients of floor or truncating division; none if the divisor can be zero.
fn quotient(trunc: bool, (a, b): Bounds, (c, d): Bounds) -> Option<Bounds> {
    if c <= 0 && d >= 0 {
        return None;
    }
    let div = |x: i128, y: i128| {
        if trunc { x / y } else { x.div_euclid(y) - ((y < 0 && x.rem_euclid(y) != 0) as i128) }
    };
    Some(extremes([div(a, c), div(a, d), div(b, c), div(b, d)]))
}

/// Returns the remainders of floor division; none if the divisor can be zero.
fn remainder((a, b): Bounds, (c, d): Bounds) -> Option<Bounds> {
    if c > 0 {
        if c == d && a.div_euclid(c) == b.div_euclid(c) {
            return Some((a.rem_euclid(c), b.rem_euclid(c)));
        }
        return Some((0, if a >= 0 { b.min(d - 1) } else { d - 1 }));
    }
    (d < 0).then_some((c + 1, 0))
}

/// Returns the bounds of a reduction or a scan, from the number of values that it combines.
fn reduction(u: &UOp) -> Option<Bounds> {
    let Arg::Reduce { fold, .. } = u.arg() else { return None };
    let (lo, hi) = u.operand().bounds();
    let (least, most) = combined_values(u)?;
    match fold {
        Fold::Max | Fold::Min if least > 0 => Some((lo, hi)),
        Fold::Add if !u.dtype().is_bool() => Some((
            lo.saturating_mul(if lo < 0 { most } else { least }),
            hi.saturating_mul(if hi < 0 { least } else { most }),
        )),
        _ => None,
    }
}

/// Returns the smallest and the largest number of values that an element of a reduction or a scan
/// combines. The extent of a range, and of an axis, may depend on variables.
fn combined_values(u: &UOp) -> Option<Bounds> {
    let Arg::Reduce { axes, .. } = u.arg() else { return None };
    let x = u.operand();
    let axis = |&a: &usize| {
        let size = x.shape()[a] as i128;
        (x.extent(a).map_or(size, |e| e.min() as i128), size)
    };
    let range = |r: &UOp| match r.as_range() {
        Some(r) => (r.extent.vmin().max(0), r.extent.vmax().max(0)),
        None => (0, i128::MAX),
    };
    let times = |n: Bounds, m: Bounds| (n.0.saturating_mul(m.0), n.1.saturating_mul(m.1));
    let n = if axes.is_empty() {
        u.src()[1..].iter().map(range).fold((1, 1), times)
    } else {
        axes.iter().map(axis).fold((1, 1), times)
    };
    // An element of a scan combines itself at least.
    Some(if u.op() == Op::Scan { (1, n.1.max(1)) } else { n })
}

/// Returns the bounds of an op whose values are those of operands.
fn selection(u: &UOp) -> Option<Bounds> {
    let all = |list: &[UOp]| list.iter().map(UOp::bounds).reduce(hull);
    match u.op() {
        Op::Slice | Op::Contiguous | Op::Copy | Op::Gep | Op::Shuffle => Some(u.operand().bounds()),
        // An element outside is 0.
        Op::Pad | Op::Gather => Some(hull(u.operand().bounds(), (0, 0))),
        op if op.is(Group::Movement) || op.is(Group::Mark) => Some(u.operand().bounds()),
        Op::Where => all(&u.src()[1..]),
        Op::Vectorize | Op::Shards | Op::Cat => all(u.src()),
        Op::Scatter => {
            let s = u.as_scatter()?;
            let selects = !matches!(s.combine, Combine::Add | Combine::Mul);
            selects.then(|| hull(s.base.bounds(), s.value.bounds()))
        }
        _ => None,
    }
}
