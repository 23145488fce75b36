//! Bounds of reductions and scans, which a compiler may compute in any order.

use super::bounds::{Bound, BoundedValue, Narrow, hull, outward, within};
use crate::dtype::DType;
use crate::ir::Fold;
use crate::reference::Value;

/// Returns the bounds of a reduction.
pub(super) fn reduce(x: &BoundedValue, fold: Fold, axes: &[usize], value: &Value) -> Vec<Bound> {
    // The positions of the elements that each result combines.
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

/// Returns the bounds of a scan: each result combines all elements up to it.
pub(super) fn scan(x: &BoundedValue, fold: Fold, axis: usize, dtype: DType) -> Vec<Bound> {
    let (n, inner) = (x.value.shape[axis], x.value.shape[axis + 1..].iter().product::<usize>());
    let row = |i: usize| {
        let place = i / inner % n;
        (0..=place).map(|k| i - (place - k) * inner).collect::<Vec<usize>>()
    };
    (0..x.value.data.len()).map(|i| reduced(x, fold, &row(i), dtype)).collect()
}

/// Returns the bounds of one result of a reduction.
fn reduced(x: &BoundedValue, fold: Fold, row: &[usize], dtype: DType) -> Bound {
    let exact = row.iter().all(|&i| x.bounds[i] == Bound::Exact);
    if !dtype.is_float() || row.is_empty() {
        return if exact { Bound::Exact } else { Bound::Unknown };
    }
    let Some(of) = row.iter().map(|&i| x.interval(i)).collect::<Option<Vec<(f64, f64)>>>() else {
        return Bound::Unknown;
    };
    if matches!(fold, Fold::Max | Fold::Min) {
        return extreme(fold, exact, &of);
    }
    let rounded = fold == Fold::Add && x.rounded_product;
    if of.iter().any(|x| !x.0.is_finite() || !x.1.is_finite()) {
        // Infinities and NaN give the same result in every order, if finite values alone do not
        // overflow.
        let total: f64 = of.iter().map(|x| x.0.abs()).filter(|v| v.is_finite()).sum();
        let same = exact && !rounded && fold == Fold::Add && total < 1e30;
        return if same { Bound::Exact } else { Bound::Unknown };
    }
    let wide = dtype.computed_in();
    match fold {
        Fold::Add => sum(x, exact && !rounded, &of, wide, dtype),
        _ => product(exact, &of, wide, dtype),
    }
}

fn extreme(fold: Fold, exact: bool, of: &[(f64, f64)]) -> Bound {
    // NaN propagates, whatever the other values are.
    if exact || of.iter().any(|x| x.0.is_nan()) {
        // The result of one element may be the element, or its maximum (minimum) with the identity,
        // which is never -0.
        let minus_zero = of.len() == 1 && is_minus_zero(of[0].0);
        return if minus_zero { Bound::Within(-0.0, 0.0) } else { Bound::Exact };
    }
    let best = |v: &mut dyn Iterator<Item = f64>| match fold {
        Fold::Max => v.fold(f64::NEG_INFINITY, f64::max),
        _ => v.fold(f64::INFINITY, f64::min),
    };
    within(best(&mut of.iter().map(|x| x.0)), best(&mut of.iter().map(|x| x.1)))
}

fn is_minus_zero(v: f64) -> bool {
    v == 0.0 && v.is_sign_negative()
}

/// Returns the number of binary digits of a float dtype of 32 or 64 bits.
fn digits(wide: DType) -> i32 {
    if wide == DType::F64 { 53 } else { 24 }
}

/// Returns the bounds of a sum. `exact`: the values are known and no rounded products.
fn sum(x: &BoundedValue, exact: bool, of: &[(f64, f64)], wide: DType, dtype: DType) -> Bound {
    if exact && sums_exactly(of, digits(wide)) {
        // The sum of minus zeros depends on the identity.
        let minus_zero = of.iter().all(|x| is_minus_zero(x.0));
        return if minus_zero { Bound::Within(-0.0, 0.0) } else { Bound::Exact };
    }
    let (n, unit) = (of.len() as f64, 2.0f64.powi(-digits(wide)));
    let (lo, hi) = of.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
    let total: f64 = of.iter().map(|x| x.0.abs().max(x.1.abs())).sum();
    // n - 1 roundings of partial sums, none larger than the total; and the roundings of the sums
    // here, in f64.
    let mut slack = (n - 1.0) * unit * total * 1.01 + n * 2.0f64.powi(-53) * total * 2.0;
    // A tensor core truncates every product and every sum.
    if x.narrow == Narrow::Product {
        slack += (3.0 * n + 1.0) * unit * total * 1.01;
    }
    // Products that are added before they are rounded differ by half a unit each.
    if x.rounded_product {
        let is_double = wide == DType::F64;
        let least = if is_double { f64::from_bits(1) } else { f64::from(f32::from_bits(1)) };
        slack += n * (unit * total * 1.01 + least);
    }
    outward(lo - slack, hi + slack, 1, wide, dtype)
}

fn product(exact: bool, of: &[(f64, f64)], wide: DType, dtype: DType) -> Bound {
    if exact && multiplies_exactly(of, digits(wide)) {
        return Bound::Exact;
    }
    let most: f64 = of.iter().map(|x| x.0.abs().max(x.1.abs()).max(1.0)).product();
    let least: f64 =
        of.iter().map(|x| x.0.abs().min(x.1.abs()).min(1.0)).filter(|v| *v > 0.0).product();
    let (top, bottom) = if wide == DType::F64 { (1e300, 1e-300) } else { (1e37, 1e-37) };
    if most > top || least < bottom {
        return Bound::Unknown;
    }
    let (lo, hi) =
        of.iter().fold((1.0f64, 1.0f64), |p, x| hull([p.0 * x.0, p.0 * x.1, p.1 * x.0, p.1 * x.1]));
    let (n, unit) = (of.len() as f64, 2.0f64.powi(-digits(wide)));
    let slack = n * (unit + 2.0f64.powi(-52)) * lo.abs().max(hi.abs()) * 1.01;
    outward(lo - slack, hi + slack, 1, wide, dtype)
}

/// Returns the odd part of a float and the exponent of its lowest digit.
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

/// Returns true if every partial sum, in every order, has at most this number of digits.
fn sums_exactly(of: &[(f64, f64)], digits: i32) -> bool {
    let Some(lowest) = of.iter().filter(|x| x.0 != 0.0).map(|x| odd_part(x.0).1).min() else {
        return true;
    };
    let total: f64 = of.iter().map(|x| x.0.abs()).sum();
    total <= (2.0f64).powi(lowest.saturating_add(digits)) && lowest > -140
}

/// Returns true if every partial product, in every order, has at most this number of digits.
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
