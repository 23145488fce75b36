//! Values with bounds: what the reference computes, and between which limits the answer of any
//! right compiler lies.
//!
//! A compiler may fold a reduce in any order, and its transcendental functions may be off by as
//! many ulp as `docs/semantics.md` promises. Everything else is one correctly rounded operation on
//! given operands. So a value is `Exact` as long as nothing of that kind was met; from there on it
//! lies in an interval, and since rounding is monotone the interval of a result has rounded ends
//! itself: nothing is estimated that can be computed.

use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Arg, Fold, Group, Op, UOp, eval};
use crate::reference::{self, Value};
use smallvec::SmallVec;

/// What is known of one element besides the value that the reference has for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Every right answer has these bits (a NaN has any).
    Exact,
    /// A right answer is a float between the two, both included.
    Within(f64, f64),
    /// Nothing: a comparison of values that are equal but for rounding, say. Such an element is not
    /// compared.
    Unknown,
}

/// A computed tensor with its bounds.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The reference's answer.
    pub value: Value,
    /// For each element, what is known.
    pub bounds: Vec<Bound>,
    /// Is some element a product that was rounded? A sum of such products may add them up before
    /// they are.
    pub rounded_product: bool,
    /// Is it floats of 16 bits in f32, or a product of two such? A sum of such products may be one
    /// of a tensor core's.
    pub narrow: Narrow,
}

/// What floats of 16 bits have become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Something else.
    No,
    /// The same values in f32.
    Value,
    /// Products of such.
    Product,
}

impl Traced {
    /// A value that is known: the content of an input.
    pub fn exact(value: Value) -> Traced {
        let bounds = vec![Bound::Exact; value.data.len()];
        Traced { value, bounds, rounded_product: false, narrow: Narrow::No }
    }
    /// The limits of an element of a float tensor.
    pub fn interval(&self, i: usize) -> Option<(f64, f64)> {
        match (self.bounds[i], self.value.data[i]) {
            (Bound::Exact, Const::Float(v)) => Some((v, v)),
            (Bound::Within(lo, hi), _) => Some((lo, hi)),
            _ => None,
        }
    }
    /// Is this answer for element `i` a right one?
    pub fn admits(&self, i: usize, answer: Const) -> bool {
        match (self.bounds[i], answer) {
            (Bound::Exact, a) => a == self.value.data[i],
            (Bound::Within(lo, hi), Const::Float(v)) => lo <= v && v <= hi,
            (Bound::Within(..), _) => false,
            (Bound::Unknown, _) => true,
        }
    }
}

/// One node from its operands.
pub fn trace(u: &UOp, src: &[&Traced]) -> Traced {
    let values: SmallVec<[&Value; 3]> = src.iter().map(|t| &t.value).collect();
    let value = reference::node(u, &values);
    let bounds = match (u.op(), u.arg()) {
        (Op::Const | Op::Iota, _) => vec![Bound::Exact; value.data.len()],
        (Op::Reduce, Arg::Reduce { fold, axes }) => reduce(src[0], *fold, axes, &value),
        (Op::Gather, _) => super::indexed::gather(u, src),
        (Op::Scatter, _) => super::indexed::scatter(u, src),
        (Op::Contiguous | Op::Copy, _) | (Op::Shards, Arg::Shards { axis: None, .. }) => {
            src[0].bounds.clone()
        }
        (Op::Scan, Arg::Reduce { fold, axes }) => scan(src[0], *fold, axes[0], value.dtype),
        (Op::Shards | Op::Cat, _) => joined(u, src),
        (op, _) if op.is(Group::Mark) => src[0].bounds.clone(),
        (_, Arg::Movement(_)) => moved(u, src[0]),
        _ => elementwise(u, src, &value),
    };
    for (i, b) in bounds.iter().enumerate() {
        if let (Bound::Within(lo, hi), Const::Float(v)) = (b, value.data[i]) {
            assert!(*lo <= v && v <= *hi, "{v} of {u:?} is not between {lo} and {hi}");
        }
    }
    let rounded_product = match u.op() {
        Op::Mul => is_rounded(src, &value),
        Op::Contiguous | Op::Copy => src[0].rounded_product,
        Op::Cat => src.iter().any(|s| s.rounded_product),
        op => (op.is(Group::Mark) || op.is(Group::Movement)) && src[0].rounded_product,
    };
    let narrow = match u.op() {
        Op::Cast
            if u.dtype() == DType::F32
                && matches!(src[0].value.dtype.scalar, Scalar::F16 | Scalar::BF16) =>
        {
            Narrow::Value
        }
        Op::Mul if src.iter().all(|s| s.narrow == Narrow::Value) => Narrow::Product,
        op if op.is(Group::Mark)
            || op.is(Group::Movement)
            || matches!(op, Op::Contiguous | Op::Copy) =>
        {
            src[0].narrow
        }
        _ => Narrow::No,
    };
    Traced { value, bounds, rounded_product, narrow }
}

/// Is some of these products of floats not the exact one, or of operands that are not known
/// exactly?
fn is_rounded(src: &[&Traced], product: &Value) -> bool {
    let at = |t: &Traced, i: usize| if t.value.shape.is_empty() { 0 } else { i };
    let float = |c: Const| if let Const::Float(v) = c { v } else { f64::NAN };
    matches!(product.dtype, DType::F32 | DType::F64)
        && product.data.iter().enumerate().any(|(i, p)| {
            let known = src.iter().all(|t| t.bounds[at(t, i)] == Bound::Exact);
            let [x, y] = [0, 1].map(|k| float(src[k].value.data[at(src[k], i)]));
            // Infinities and NaN come out the same; where only the product is infinite it was
            // rounded.
            let same = x.is_nan()
                || y.is_nan()
                || x.is_infinite()
                || y.is_infinite()
                || x.mul_add(y, -float(*p)) == 0.0;
            !known || !same
        })
}

/// Where each element of a moved tensor comes from is found by moving the positions.
fn moved(u: &UOp, x: &Traced) -> Vec<Bound> {
    let positions = (1..=x.value.data.len()).map(|i| Const::Int(i as i64)).collect();
    let positions = Value { dtype: DType::I64, shape: x.value.shape.clone(), data: positions };
    let from = reference::node(u, &[&positions]);
    let bound = |c: &Const| match c.as_i64() {
        // Zeros around are exact.
        Some(0) | None => Bound::Exact,
        Some(i) => x.bounds[i as usize - 1],
    };
    from.data.iter().map(bound).collect()
}

/// The same for parts that are put together.
fn joined(u: &UOp, src: &[&Traced]) -> Vec<Bound> {
    let all: Vec<Bound> = src.iter().flat_map(|t| t.bounds.iter().copied()).collect();
    let mut next = 0;
    let mut positions = |t: &Traced| {
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

fn elementwise(u: &UOp, src: &[&Traced], value: &Value) -> Vec<Bound> {
    let at = |t: &Traced, i: usize| if t.value.shape.is_empty() { 0 } else { i };
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
                    // The bits of a NaN are nobody's promise.
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

/// The interval between two values; none where one is not a number or both ends are the same but in
/// doubt about the sign of zero.
fn within(lo: f64, hi: f64) -> Bound {
    if lo.is_nan() || hi.is_nan() || (lo.is_infinite() && hi.is_infinite()) {
        Bound::Unknown
    } else {
        Bound::Within(lo.min(hi), hi.max(lo))
    }
}

/// A correctly rounded op is monotone in each operand (division: away from zero), so its extremes
/// are at corners.
pub(super) fn rounded(op: Op, dtype: DType, of: &[(f64, f64)]) -> Bound {
    if op == Op::Div && of[1].0 <= 0.0 && of[1].1 >= 0.0 {
        return Bound::Unknown;
    }
    if op == Op::Mod && !is_one_turn(dtype, of) {
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

/// Whether a remainder has the same quotient over all of the interval, where it grows with the
/// number. A turn in between would make it less at the upper end.
fn is_one_turn(dtype: DType, of: &[(f64, f64)]) -> bool {
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
        // Zero lies between, or it does not.
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
        // Special values have one answer, except that a function that is off by an ulp may or may
        // not overflow.
        let special = value.is_nan() || of.iter().any(|x| x.0 == 0.0 || x.0.is_infinite());
        return if exact && special { Bound::Exact } else { Bound::Unknown };
    }
    // Narrow floats are computed in f32 and rounded once.
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let f = |x: f64, y: f64| -> f64 {
        let args = [Const::Float(x), Const::Float(y)];
        match eval::alu(op, wide, wide, &args[..of.len()]) {
            Const::Float(v) => v,
            _ => f64::NAN,
        }
    };
    let (lo, hi) = of[0];
    let ends = match op {
        Op::Sin | Op::Cos => {
            let half = (hi - lo) / 2.0;
            let middle = f(lo + half, 0.0);
            (middle - half * 1.001, middle + half * 1.001)
        }
        Op::Tan => {
            let branch = |x: f64| (x / std::f64::consts::PI + 0.5).floor();
            if branch(lo) != branch(hi) {
                return Bound::Unknown;
            }
            (f(lo, 0.0), f(hi, 0.0))
        }
        Op::Pow => {
            let (a, b) = of[1];
            let plain = lo.to_bits() == hi.to_bits() && a.to_bits() == b.to_bits();
            if !plain && lo <= 0.0 {
                return Bound::Unknown;
            }
            let corners = [f(lo, a), f(lo, b), f(hi, a), f(hi, b)];
            (
                corners.into_iter().fold(f64::INFINITY, f64::min),
                corners.into_iter().fold(f64::NEG_INFINITY, f64::max),
            )
        }
        _ => (f(lo, 0.0), f(hi, 0.0)),
    };
    let (lo, hi) = (ends.0.min(ends.1), ends.0.max(ends.1));
    if !lo.is_finite() || !hi.is_finite() {
        return Bound::Unknown;
    }
    // One step more, since steps are half as long below a power of two.
    outward(lo, hi, i64::from(op.ulp()) + 1, wide, dtype)
}

/// An interval made wider by `k` steps of a dtype on both sides, then rounded to another.
fn outward(lo: f64, hi: f64, k: i64, wide: DType, dtype: DType) -> Bound {
    let round = |v: f64, k: i64| -> f64 {
        let Const::Float(v) = Const::Float(v).cast(DType::F64, wide) else { return f64::NAN };
        match Const::Float(step(v, k, wide)).cast(DType::F64, dtype) {
            Const::Float(v) => v,
            _ => f64::NAN,
        }
    };
    within(round(lo, -k), round(hi, k))
}

/// The float of a dtype `k` places after this one.
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

fn reduce(x: &Traced, fold: Fold, axes: &[usize], value: &Value) -> Vec<Bound> {
    // The elements of each row, by their positions.
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); value.data.len()];
    let shape = &x.value.shape;
    for i in 0..x.value.data.len() {
        let (mut rest, mut place, mut stride) = (i, 0, 1);
        for axis in (0..shape.len()).rev() {
            if !axes.contains(&axis) {
                place += rest % shape[axis] * stride;
                stride *= shape[axis];
            }
            rest /= shape[axis];
        }
        rows[place].push(i);
    }
    rows.iter().map(|row| reduced(x, fold, row, value.dtype)).collect()
}

/// Each element is a fold of all up to it.
fn scan(x: &Traced, fold: Fold, axis: usize, dtype: DType) -> Vec<Bound> {
    let (n, inner) = (x.value.shape[axis], x.value.shape[axis + 1..].iter().product::<usize>());
    let row = |i: usize| {
        let place = i / inner % n;
        (0..=place).map(|k| i - (place - k) * inner).collect::<Vec<usize>>()
    };
    (0..x.value.data.len()).map(|i| reduced(x, fold, &row(i), dtype)).collect()
}

fn reduced(x: &Traced, fold: Fold, row: &[usize], dtype: DType) -> Bound {
    let exact = row.iter().all(|&i| x.bounds[i] == Bound::Exact);
    if !dtype.is_float() || row.is_empty() {
        return if exact { Bound::Exact } else { Bound::Unknown };
    }
    let Some(of) = row.iter().map(|&i| x.interval(i)).collect::<Option<Vec<(f64, f64)>>>() else {
        return Bound::Unknown;
    };
    if matches!(fold, Fold::Max | Fold::Min) {
        // A NaN wins over whatever the others are.
        if exact || of.iter().any(|x| x.0.is_nan()) {
            // Of one element alone the fold may be that element, or the greater (lesser) of it and
            // the start, which is never -0.
            let minus_zero = of.len() == 1 && of[0].0 == 0.0 && of[0].0.is_sign_negative();
            return if minus_zero { Bound::Within(-0.0, 0.0) } else { Bound::Exact };
        }
        let best = |v: &mut dyn Iterator<Item = f64>| {
            if fold == Fold::Max {
                v.fold(f64::NEG_INFINITY, f64::max)
            } else {
                v.fold(f64::INFINITY, f64::min)
            }
        };
        return within(best(&mut of.iter().map(|x| x.0)), best(&mut of.iter().map(|x| x.1)));
    }
    let rounded = fold == Fold::Add && x.rounded_product;
    if of.iter().any(|x| !x.0.is_finite() || !x.1.is_finite()) {
        // Infinities and NaN give the same in every order, as long as finite values do not overflow
        // on their own.
        let total: f64 = of.iter().map(|x| x.0.abs()).filter(|v| v.is_finite()).sum();
        return if exact && !rounded && fold == Fold::Add && total < 1e30 {
            Bound::Exact
        } else {
            Bound::Unknown
        };
    }
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let digits = if wide == DType::F64 { 53 } else { 24 };
    let n = of.len() as f64;
    let unit = (2.0f64).powi(-digits);
    match fold {
        Fold::Add if exact && !rounded && sums_exactly(&of, digits) => {
            // Minus zeros alone give the zero that the order of folding gives.
            if of.iter().all(|x| x.0 == 0.0 && x.0.is_sign_negative()) {
                Bound::Within(-0.0, 0.0)
            } else {
                Bound::Exact
            }
        }
        Fold::Add => {
            let (lo, hi) = of.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
            let total: f64 = of.iter().map(|x| x.0.abs().max(x.1.abs())).sum();
            // n - 1 roundings of partial sums, none larger than the total; and our own sums here
            // have errors of the same kind in f64.
            let slack = (n - 1.0) * unit * total * 1.01 + n * 2.0f64.powi(-53) * total * 2.0;
            // Products that are added before they are rounded differ from those here by half a unit
            // each.
            let least =
                if wide == DType::F64 { f64::from_bits(1) } else { f64::from(f32::from_bits(1)) };
            // A tensor core cuts digits off where others round, from every product and every sum.
            let slack = if x.narrow == Narrow::Product {
                slack + (3.0 * n + 1.0) * unit * total * 1.01
            } else {
                slack
            };
            let slack = if rounded { slack + n * (unit * total * 1.01 + least) } else { slack };
            outward(lo - slack, hi + slack, 1, wide, dtype)
        }
        _ if exact && multiplies_exactly(&of, digits) => Bound::Exact,
        _ => {
            let most: f64 = of.iter().map(|x| x.0.abs().max(x.1.abs()).max(1.0)).product();
            let least: f64 =
                of.iter().map(|x| x.0.abs().min(x.1.abs()).min(1.0)).filter(|v| *v > 0.0).product();
            let (top, bottom) = if wide == DType::F64 { (1e300, 1e-300) } else { (1e37, 1e-37) };
            if most > top || least < bottom {
                return Bound::Unknown;
            }
            let (lo, hi) = of.iter().fold((1.0f64, 1.0f64), |p, x| {
                let c = [p.0 * x.0, p.0 * x.1, p.1 * x.0, p.1 * x.1];
                (
                    c.into_iter().fold(f64::INFINITY, f64::min),
                    c.into_iter().fold(f64::NEG_INFINITY, f64::max),
                )
            });
            let size = lo.abs().max(hi.abs());
            let slack = n * (unit + 2.0f64.powi(-52)) * size * 1.01;
            outward(lo - slack, hi + slack, 1, wide, dtype)
        }
    }
}

/// The odd part of a float and the exponent of its lowest digit.
fn odd_part(v: f64) -> (u64, i32) {
    let bits = v.abs().to_bits();
    let (mut m, mut e) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    if e == 0 {
        e = 1
    } else {
        m |= 1 << 52
    }
    let zeros = m.trailing_zeros();
    (m >> zeros, e - 1075 + zeros as i32)
}

/// Is every partial sum, in every order, a float of so many digits?
fn sums_exactly(of: &[(f64, f64)], digits: i32) -> bool {
    let Some(lowest) = of.iter().filter(|x| x.0 != 0.0).map(|x| odd_part(x.0).1).min() else {
        return true;
    };
    let total: f64 = of.iter().map(|x| x.0.abs()).sum();
    total <= (2.0f64).powi(lowest.saturating_add(digits)) && lowest > -140
}

/// Is every partial product?
fn multiplies_exactly(of: &[(f64, f64)], digits: i32) -> bool {
    let size: f64 = of.iter().map(|x| x.0.abs().max(1.0)).product();
    let small: f64 = of.iter().filter(|x| x.0 != 0.0).map(|x| x.0.abs().min(1.0)).product();
    if size > 1e30 || small < 1e-30 {
        return false;
    }
    if of.iter().any(|x| x.0 == 0.0) {
        return true;
    }
    let mut odd = 1u128;
    for x in of {
        odd = odd.saturating_mul(odd_part(x.0).0 as u128);
        if odd >= 1 << digits {
            return false;
        }
    }
    true
}

/// The least positive width of numbers that a dtype tells apart around one: what a health check
/// scales by.
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
