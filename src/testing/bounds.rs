//! Values with bounds: the result of the reference evaluator, and the interval of the results of
//! any correct compiler.
//!
//! A compiler may reduce in any order, and the errors of transcendental functions are those that
//! `docs/semantics.md` allows. All other ops are correctly rounded. A value is `Exact` if it
//! depends on no reduction that rounds and on no transcendental function; else it is in an
//! interval. Since rounding is monotone, the ends of intervals are computed and not estimated.

use super::fold_bounds;
use crate::dtype::{Const, DType, Fma, Scalar};
use crate::ir::{Arg, Group, Op, UOp, eval};
use crate::reference::{self, Value};
use smallvec::SmallVec;

/// The bounds of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Every correct result has the bits of the reference value; a NaN may have any.
    Exact,
    /// A correct result is a float between the two, both included.
    Within(f64, f64),
    /// No bounds, as for a comparison of values that differ by rounding. The element is not
    /// compared.
    Unknown,
}

/// A value of the reference evaluator with bounds.
#[derive(Clone, Debug)]
pub struct BoundedValue {
    /// The reference value.
    pub value: Value,
    /// The bounds of each element.
    pub bounds: Vec<Bound>,
    /// True if an element is a rounded product. A sum may add such products before they are
    /// rounded.
    pub rounded_product: bool,
    /// The relation to floats of 16 bits. A tensor core may compute sums of their products.
    pub narrow: Narrow,
}

/// The relation of f32 values to floats of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Other values.
    No,
    /// Floats of 16 bits converted to f32.
    Value,
    /// Products of two of them.
    Product,
}

impl BoundedValue {
    /// Returns an input, whose content is known.
    pub fn exact(value: Value) -> BoundedValue {
        let bounds = vec![Bound::Exact; value.data.len()];
        BoundedValue { value, bounds, rounded_product: false, narrow: Narrow::No }
    }
    /// Returns the interval of an element of a float tensor.
    pub fn interval(&self, i: usize) -> Option<(f64, f64)> {
        match (self.bounds[i], self.value.data[i]) {
            (Bound::Exact, Const::Float(v)) => Some((v, v)),
            (Bound::Within(lo, hi), _) => Some((lo, hi)),
            _ => None,
        }
    }
    /// Returns true if `answer` is a correct result of element `i`.
    pub fn accepts(&self, i: usize, answer: Const) -> bool {
        match (self.bounds[i], answer) {
            (Bound::Exact, a) => a == self.value.data[i],
            (Bound::Within(lo, hi), Const::Float(v)) => lo <= v && v <= hi,
            (Bound::Within(..), _) => false,
            (Bound::Unknown, _) => true,
        }
    }
}

/// Evaluates a node with bounds from its operands.
pub fn evaluate_bounded(u: &UOp, src: &[&BoundedValue]) -> BoundedValue {
    let values: SmallVec<[&Value; 3]> = src.iter().map(|t| &t.value).collect();
    let value = reference::node(u, &values);
    let bounds = match (u.op(), u.arg()) {
        (Op::Const | Op::Iota, _) => vec![Bound::Exact; value.data.len()],
        (Op::Reduce, Arg::Reduce { fold, axes }) => {
            fold_bounds::reduce(src[0], *fold, axes, &value)
        }
        (Op::Gather, _) => super::indexed::gather(u, src),
        (Op::Scatter, _) => super::indexed::scatter(u, src),
        (Op::Shards, Arg::Shards { axis: None, .. }) => src[0].bounds.clone(),
        (Op::Scan, Arg::Reduce { fold, axes }) => {
            fold_bounds::scan(src[0], *fold, axes[0], value.dtype)
        }
        (Op::Shards | Op::Cat, _) => joined(u, src),
        (_, Arg::Movement(_)) => moved(u, src[0]),
        (op, _) if passes(op) => src[0].bounds.clone(),
        _ => elementwise(u, src, &value),
    };
    for (i, b) in bounds.iter().enumerate() {
        if let (Bound::Within(lo, hi), Const::Float(v)) = (b, value.data[i]) {
            assert!(*lo <= v && v <= *hi, "{v} of {u:?} is not between {lo} and {hi}");
        }
    }
    let rounded_product = match u.op() {
        Op::Mul => is_rounded(src, &value),
        Op::Cat => src.iter().any(|s| s.rounded_product),
        op => passes(op) && src[0].rounded_product,
    };
    let narrow = match u.op() {
        Op::Cast
            if u.dtype() == DType::F32
                && matches!(src[0].value.dtype.scalar, Scalar::F16 | Scalar::BF16) =>
        {
            Narrow::Value
        }
        Op::Mul if src.iter().all(|s| s.narrow == Narrow::Value) => Narrow::Product,
        op if passes(op) => src[0].narrow,
        _ => Narrow::No,
    };
    BoundedValue { value, bounds, rounded_product, narrow }
}

/// Returns true if the elements of the first operand are those of the result.
fn passes(op: Op) -> bool {
    op.is(Group::Mark) || op.is(Group::Movement) || matches!(op, Op::Contiguous | Op::Copy)
}

/// Returns true if one of the products of floats is rounded, or may be.
fn is_rounded(src: &[&BoundedValue], product: &Value) -> bool {
    let at = |t: &BoundedValue, i: usize| if t.value.shape.is_empty() { 0 } else { i };
    let float = |c: Const| if let Const::Float(v) = c { v } else { f64::NAN };
    matches!(product.dtype, DType::F32 | DType::F64)
        && product.data.iter().enumerate().any(|(i, p)| {
            let known = src.iter().all(|t| t.bounds[at(t, i)] == Bound::Exact);
            let [x, y] = [0, 1].map(|k| float(src[k].value.data[at(src[k], i)]));
            // Infinite and NaN operands give exact products; other infinite products are rounded.
            let same = x.is_nan()
                || y.is_nan()
                || x.is_infinite()
                || y.is_infinite()
                || x.fma(y, -float(*p)) == 0.0;
            !known || !same
        })
}

/// Returns the bounds after a movement op, found by moving the positions of the elements.
fn moved(u: &UOp, x: &BoundedValue) -> Vec<Bound> {
    let positions = (1..=x.value.data.len()).map(|i| Const::Int(i as i64)).collect();
    let positions = Value { dtype: DType::I64, shape: x.value.shape.clone(), data: positions };
    let from = reference::node(u, &[&positions]);
    let bound = |c: &Const| match c.as_i64() {
        // Padding is exact.
        Some(0) | None => Bound::Exact,
        Some(i) => x.bounds[i as usize - 1],
    };
    from.data.iter().map(bound).collect()
}

/// Returns the bounds of concatenated parts, found by concatenating the positions of their
/// elements.
fn joined(u: &UOp, src: &[&BoundedValue]) -> Vec<Bound> {
    let all: Vec<Bound> = src.iter().flat_map(|t| t.bounds.iter().copied()).collect();
    let mut next = 0;
    let mut positions = |t: &BoundedValue| {
        let data = t
            .value
            .data
            .iter()
            .map(|_| {
                Const::Int({
                    next += 1;
                    next - 1
                })
            })
            .collect();
        Value { dtype: DType::I64, shape: t.value.shape.clone(), data }
    };
    let parts: Vec<Value> = src.iter().map(|t| positions(t)).collect();
    let from = reference::node(u, &parts.iter().collect::<Vec<_>>());
    from.data.iter().map(|c| c.as_i64().map_or(Bound::Exact, |i| all[i as usize])).collect()
}

fn elementwise(u: &UOp, src: &[&BoundedValue], value: &Value) -> Vec<Bound> {
    let at = |t: &BoundedValue, i: usize| if t.value.shape.is_empty() { 0 } else { i };
    (0..value.data.len())
        .map(|i| {
            let bound = |k: usize| src[k].bounds[at(src[k], i)];
            let interval = |k: usize| src[k].interval(at(src[k], i));
            let all_exact = (0..src.len()).all(|k| bound(k) == Bound::Exact);
            match u.op() {
                Op::Where => match (bound(0), src[0].value.data[at(src[0], i)].is_true()) {
                    (Bound::Exact, true) => bound(1),
                    (Bound::Exact, false) => bound(2),
                    _ => Bound::Unknown,
                },
                Op::Bitcast => {
                    // The bits of a NaN are not defined.
                    let nan =
                        matches!(src[0].value.data[at(src[0], i)], Const::Float(v) if v.is_nan());
                    if all_exact && !nan { Bound::Exact } else { Bound::Unknown }
                }
                op if op.is(Group::Transcendental) && u.dtype().is_float() => {
                    let of: Option<SmallVec<[(f64, f64); 2]>> =
                        (0..src.len()).map(interval).collect();
                    of.map_or(Bound::Unknown, |of| {
                        transcendental(op, u.dtype(), &of, value.data[i])
                    })
                }
                _ if all_exact => Bound::Exact,
                Op::Cast if src[0].value.dtype.is_float() => {
                    interval(0).map_or(Bound::Unknown, |x| cast(u.dtype(), x))
                }
                op if op.is(Group::Comparison) && src[0].value.dtype.is_float() => {
                    match (interval(0), interval(1)) {
                        (Some(x), Some(y)) => compare(op, x, y),
                        _ => Bound::Unknown,
                    }
                }
                op if u.dtype().is_float() => {
                    let of: Option<SmallVec<[(f64, f64); 3]>> =
                        (0..src.len()).map(interval).collect();
                    of.map_or(Bound::Unknown, |of| rounded(op, u.dtype(), &of))
                }
                _ => Bound::Unknown,
            }
        })
        .collect()
}

/// Returns the interval between two values; unknown if one is NaN or both are infinite.
pub(super) fn within(lo: f64, hi: f64) -> Bound {
    if lo.is_nan() || hi.is_nan() || (lo.is_infinite() && hi.is_infinite()) {
        Bound::Unknown
    } else {
        Bound::Within(lo.min(hi), hi.max(lo))
    }
}

/// Returns the interval of a correctly rounded op. It is monotone in each operand (division away
/// from zero), so that the extremes are at the corners.
pub(super) fn rounded(op: Op, dtype: DType, of: &[(f64, f64)]) -> Bound {
    if op == Op::Div && of[1].0 <= 0.0 && of[1].1 >= 0.0 {
        return Bound::Unknown;
    }
    if op == Op::Mod && !has_one_quotient(dtype, of) {
        return Bound::Unknown;
    }
    let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
    for corner in 0..1usize << of.len() {
        let x: SmallVec<[Const; 3]> = of
            .iter()
            .enumerate()
            .map(|(k, (a, b))| Const::Float(if corner >> k & 1 == 0 { *a } else { *b }))
            .collect();
        let Const::Float(v) = eval::alu(op, dtype, dtype, &x) else { return Bound::Unknown };
        if v.is_nan() {
            return Bound::Unknown;
        }
        (lo, hi) = (lo.min(v), hi.max(v));
    }
    within(lo, hi)
}

/// Returns true if a remainder has the same quotient on the complete interval, so that it is
/// monotone.
fn has_one_quotient(dtype: DType, of: &[(f64, f64)]) -> bool {
    let ((lo, hi), y) = (of[0], of[1].0);
    let rest = |x: f64| match eval::alu(Op::Mod, dtype, dtype, &[Const::Float(x), Const::Float(y)])
    {
        Const::Float(v) => v,
        _ => f64::NAN,
    };
    of[1].0.to_bits() == of[1].1.to_bits() && hi - lo < y.abs() / 4.0 && rest(lo) <= rest(hi)
}

pub(super) fn cast(to: DType, (lo, hi): (f64, f64)) -> Bound {
    let (a, b) = (Const::Float(lo).cast(DType::F64, to), Const::Float(hi).cast(DType::F64, to));
    match (a, b) {
        (Const::Float(a), Const::Float(b)) => within(a, b),
        // The interval contains zero and other values.
        (Const::Bool(_), _) if lo <= 0.0 && hi >= 0.0 && (lo, hi) != (0.0, 0.0) => Bound::Unknown,
        _ if a == b => Bound::Exact,
        _ => Bound::Unknown,
    }
}

fn compare(op: Op, x: (f64, f64), y: (f64, f64)) -> Bound {
    let decided = match op {
        Op::Lt => x.1 < y.0 || x.0 >= y.1,
        _ => x.1 < y.0 || y.1 < x.0 || (x.0 == x.1 && y.0 == y.1),
    };
    let nan = [x.0, x.1, y.0, y.1].iter().any(|v| v.is_nan());
    if decided || nan { Bound::Exact } else { Bound::Unknown }
}

fn transcendental(op: Op, dtype: DType, of: &[(f64, f64)], value: Const) -> Bound {
    let exact = of.iter().all(|(lo, hi)| lo.to_bits() == hi.to_bits() || lo.is_nan());
    let Const::Float(value) = value else { return Bound::Unknown };
    if !value.is_finite() {
        // Special values are exact, except that an error of an ulp may decide whether a function
        // overflows.
        let special = value.is_nan() || of.iter().any(|x| x.0 == 0.0 || x.0.is_infinite());
        return if exact && special { Bound::Exact } else { Bound::Unknown };
    }
    let wide = dtype.computed_in();
    let f = |x: f64, y: f64| -> f64 {
        let args = [Const::Float(x), Const::Float(y)];
        match eval::alu(op, wide, wide, &args[..of.len()]) {
            Const::Float(v) => v,
            _ => f64::NAN,
        }
    };
    let Some(ends) = extremes(op, of, &f) else { return Bound::Unknown };
    let (lo, hi) = (ends.0.min(ends.1), ends.0.max(ends.1));
    if !lo.is_finite() || !hi.is_finite() {
        return Bound::Unknown;
    }
    // One step more, because steps are half as long below a power of two.
    outward(lo, hi, i64::from(op.ulp()) + 1, wide, dtype)
}

/// Returns the extremes of a transcendental function `f` on intervals, before rounding.
fn extremes(op: Op, of: &[(f64, f64)], f: &dyn Fn(f64, f64) -> f64) -> Option<(f64, f64)> {
    let (lo, hi) = of[0];
    Some(match op {
        Op::Sin | Op::Cos => {
            let half = (hi - lo) / 2.0;
            let middle = f(lo + half, 0.0);
            (middle - half * 1.001, middle + half * 1.001)
        }
        Op::Tan => {
            let branch = |x: f64| (x / std::f64::consts::PI + 0.5).floor();
            if branch(lo) != branch(hi) {
                return None;
            }
            (f(lo, 0.0), f(hi, 0.0))
        }
        Op::Pow => {
            let (a, b) = of[1];
            let plain = lo.to_bits() == hi.to_bits() && a.to_bits() == b.to_bits();
            if !plain && lo <= 0.0 {
                return None;
            }
            hull([f(lo, a), f(lo, b), f(hi, a), f(hi, b)])
        }
        _ => (f(lo, 0.0), f(hi, 0.0)),
    })
}

/// The smallest and the largest of four values.
pub(super) fn hull(of: [f64; 4]) -> (f64, f64) {
    let least = of.into_iter().fold(f64::INFINITY, f64::min);
    (least, of.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

/// Returns the interval widened by `k` steps of a dtype on both sides, then rounded to another
/// dtype.
pub(super) fn outward(lo: f64, hi: f64, k: i64, wide: DType, dtype: DType) -> Bound {
    let round = |v: f64, k: i64| -> f64 {
        let Const::Float(v) = Const::Float(v).cast(DType::F64, wide) else { return f64::NAN };
        match Const::Float(step(v, k, wide)).cast(DType::F64, dtype) {
            Const::Float(v) => v,
            _ => f64::NAN,
        }
    };
    within(round(lo, -k), round(hi, k))
}

/// Returns the float of a dtype that is `k` steps above this one.
fn step(v: f64, k: i64, dtype: DType) -> f64 {
    let sign = 1u64 << (dtype.bits() - 1);
    let bits = Const::Float(v).to_bits(dtype);
    let place = if bits & sign != 0 { -((bits & !sign) as i64) } else { bits as i64 } + k;
    let bits = if place < 0 { place.unsigned_abs() | sign } else { place as u64 };
    match Const::from_bits(bits, dtype) {
        Const::Float(v) => v,
        _ => f64::NAN,
    }
}

/// Returns the spacing of the floats of a dtype above one.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype.scalar {
        Scalar::F8E4M3 => 0.125,
        Scalar::F8E5M2 => 0.25,
        Scalar::F16 => 2.0f64.powi(-10),
        Scalar::BF16 => 2.0f64.powi(-7),
        Scalar::F32 => 2.0f64.powi(-23),
        _ => 2.0f64.powi(-52),
    }
}
