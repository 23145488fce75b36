//! Rules of index arithmetic: integers of the dtype `index`, evaluated in 64 bits. Sums have one
//! canonical form, by which division, remainder and comparison by literals are split. Reordering a
//! sum is exact even if it wraps; rules that need its true value check [`Linear::fits`], so that
//! every rule is exact for wrapping integers.

use super::linear::{Linear, gcd, rank};
use crate::dtype::DType;
use crate::ir::{Op, UOp};
use crate::rewrite::rules;

rules! {
    /// Exact rules on expressions of index dtype.
    pub INDEX |u, _cx: ()| when takes_indices {
        index_order:     {Commutative}(x, y) if is_misplaced(u, x, y)  => y.binary(u.op(), x);
        mul_distribute:  Mul(Add(..), #_c)                             => distribute(u);
        sum_collect:     Add(_, _) if !collected(u)                    => collect(u);
        idiv_linear:     IDiv(x, #c) if c > 0                          => divide(x, c);
        mod_linear:      Mod(x, #c) if c > 0                           => remainder(x, c);
        idiv_idiv:       IDiv(IDiv(x, #a), #b) if a > 0 && b > 0       => divide_twice(x, a, b);
        mod_mod:         Mod(Mod(x, #a), #b) if is_multiple(a, b)      => x % b;
        idiv_mod:        IDiv(Mod(x, #a), #b) if a > 0 && is_multiple(a, b) => &(x / b) % (a / b);
        idiv_negative:   IDiv(x, #c) if negates(x, c)                  => &-x / -c;
        mod_negative:    Mod(x, #c) if negates(x, c)                   => -(&-x % -c);
        lt_literal_left: Lt(#c, x) if c != i64::MAX && !is_literal(x) => x.lt(c + 1).not();
        lt_linear:       Lt(x, #c)                                     => less(x, c);
        lt_difference:   Lt(x, y) if !is_literal(x) && !is_literal(y)  => difference(x, y);
        lt_idiv:         Lt(IDiv(x, #d), #c) if d > 0                  => less_quotient(x, d, c);
        eq_linear:       Eq(x, #c)                                     => equal(x, c);
        eq_idiv_zero:    Eq(IDiv(x, #d), 0) if d > 0 && x.vmin() >= 0  => x.lt(d);
    }
}

/// Returns true if the operands are scalars of index dtype.
fn takes_indices(u: &UOp) -> bool {
    u.src().first().is_some_and(|x| x.dtype() == DType::INDEX)
}

fn is_literal(u: &UOp) -> bool {
    u.op() == Op::Const
}

/// Returns true if the operands of a product, comparison or bit operation are not in canonical
/// order.
fn is_misplaced(u: &UOp, x: &UOp, y: &UOp) -> bool {
    u.op() != Op::Add && rank(y) < rank(x)
}

fn is_multiple(a: i64, b: i64) -> bool {
    a != 0 && b > 0 && a % b == 0
}

fn distribute(u: &UOp) -> Option<UOp> {
    Linear::of(u).map(|l| l.build())
}

/// Returns `x // d < c` as `x < c * d`, unless the product overflows.
fn less_quotient(x: &UOp, d: i64, c: i64) -> Option<UOp> {
    c.checked_mul(d).map(|b| x.lt(b))
}

/// Returns `x // a // b` as one division, unless the divisor overflows.
fn divide_twice(x: &UOp, a: i64, b: i64) -> Option<UOp> {
    a.checked_mul(b).map(|c| x / c)
}

/// Returns true if the literal is negative and both have a negation.
fn negates(x: &UOp, c: i64) -> bool {
    c < 0 && c != i64::MIN && x.vmin() > i64::MIN as i128
}

/// Returns true if the sum is in the form of [`collect`]. Most are, and the test creates no node.
fn collected(u: &UOp) -> bool {
    let (mut sum, mut after) = (u, None);
    loop {
        let (rest, last) = match (sum.op(), sum.src()) {
            (Op::Add, [rest, last]) => (Some(rest), last),
            _ => (None, sum),
        };
        let term = match (last.op(), last.src()) {
            (Op::Mul, [x, c]) => match c.as_int() {
                Some(0 | 1) => return false,
                Some(_) => x,
                None => last,
            },
            _ => last,
        };
        let literal_last = term.op() == Op::Const && after.is_none() && !term.is_int(0);
        if matches!(term.op(), Op::Add | Op::Mod)
            || (term.op() == Op::Const && !literal_last)
            || term.as_mul().is_some_and(|m| m.y.op() == Op::Const)
        {
            return false;
        }
        let place = rank(term);
        if after.is_some_and(|after| place >= after) {
            return false;
        }
        let Some(rest) = rest else { return true };
        (sum, after) = (rest, Some(place));
    }
}

/// Returns a sum in canonical form, with `(x//c)*c + x%c` replaced by `x`.
fn collect(u: &UOp) -> Option<UOp> {
    let mut l = Linear::of(u)?;
    let mut again = true;
    while again {
        again = false;
        for i in 0..l.terms.len() {
            let (t, k) = l.terms[i].clone();
            let (Op::Mod, [x, c]) = (t.op(), t.src()) else { continue };
            let Some(c) = c.as_int().filter(|c| *c > 0) else { continue };
            let Some(kc) = k.checked_mul(c) else { continue };
            // x//c may be a sum; each of its terms must occur with the right coefficient.
            let Some(q) = quotient(x, c) else { continue };
            if q.terms.is_empty()
                || !q
                    .terms
                    .iter()
                    .all(|(t, n)| n.checked_mul(kc).is_some_and(|w| l.coefficient(t) == w))
            {
                continue;
            }
            l.add_term(&t, -k)?;
            l.add_scaled(&q, kc.checked_neg()?)?;
            l.add_scaled(&Linear::of(x)?, k)?;
            l.normalize();
            again = true;
            break;
        }
    }
    Some(l.build())
}

/// A division in parts: `whole + left.0 // left.1`.
struct Quotient {
    whole: Linear,
    left: Option<(Linear, i64)>,
}

/// Returns `x // c` with the multiples of `c` taken out.
fn factor_out(x: &Linear, c: i64) -> Option<Quotient> {
    // Multiples of `c` leave the division, also those in the literal.
    let (mut whole, mut rest) = x.split(c);
    whole.constant = rest.constant.div_euclid(c);
    rest.constant = rest.constant.rem_euclid(c);
    if !x.fits() || !rest.fits() {
        return None;
    }
    if let Some(q) = constant_quotient(&rest, c) {
        whole.constant = whole.constant.checked_add(q)?;
        return Some(Quotient { whole, left: None });
    }
    if let Some((mut whole, _, q)) = residues(x, c) {
        whole.constant = whole.constant.checked_add(q)?;
        return Some(Quotient { whole, left: None });
    }
    // (g·y + r) // (g·d) with 0 <= r < g is y // d.
    let left = match factor(&rest, c) {
        Some((y, g, _)) => (y, c / g),
        None => (rest, c),
    };
    Some(Quotient { whole, left: Some(left) })
}

/// Returns `x // c` with the multiples of `c` taken out; none if that changes nothing.
fn divide(x: &UOp, c: i64) -> Option<UOp> {
    let Quotient { whole, left } = factor_out(&Linear::of(x)?, c)?;
    let nothing = whole.terms.is_empty() && whole.constant == 0;
    match left {
        None => Some(whole.build()),
        Some((_, d)) if nothing && d == c => None,
        Some((y, d)) if nothing => Some(&y.build() / d),
        Some((y, d)) => Some(whole.build() + &y.build() / d),
    }
}

/// Returns the sum to which `x // c` simplifies, for a simplified `x`. Operands are not simplified,
/// so that the work does not depend on the depth of nested divisions.
fn quotient(x: &UOp, c: i64) -> Option<Linear> {
    let (mut sum, mut x, mut c) = (Linear::from(0), Linear::of(x)?, c);
    loop {
        let Quotient { whole, left } = factor_out(&x, c)?;
        sum.add_scaled(&whole, 1)?;
        let Some((y, d)) = left else { break };
        // (z // a) // d is z // (a·d), which may be split further.
        let nested = match y.terms.as_slice() {
            [(t, 1)] if y.constant == 0 => {
                t.as_idiv().and_then(|d| Some((d.x, d.y.as_int().filter(|a| *a > 0)?)))
            }
            _ => None,
        };
        match nested {
            Some((z, a)) => (x, c) = (Linear::of(z)?, d.checked_mul(a)?),
            // A smaller divisor may divide more terms.
            None if d < c => (x, c) = (y, d),
            None => {
                sum.add_term(&(&y.build() / d), 1)?;
                break;
            }
        }
    }
    sum.normalize();
    Some(sum)
}

/// Returns `x % c` without the multiples of `c`.
fn remainder(x: &UOp, c: i64) -> Option<UOp> {
    let l = Linear::of(x).filter(Linear::fits)?;
    let (whole, mut rest) = l.split(c);
    let constant = rest.constant.rem_euclid(c);
    let changed = !whole.terms.is_empty() || constant != rest.constant;
    rest.constant = constant;
    if !rest.fits() {
        return None;
    }
    if let Some(q) = constant_quotient(&rest, c) {
        rest.constant = rest.constant.checked_sub(q.checked_mul(c)?)?;
        return Some(rest.build());
    }
    if let Some((_, mut rest, q)) = residues(&l, c) {
        rest.constant = rest.constant.checked_sub(q.checked_mul(c)?)?;
        return Some(rest.build());
    }
    // (g·y + r) % (g·d) with 0 <= r < g is g·(y % d) + r.
    if let Some((y, g, r)) = factor(&rest, c) {
        return Some(&(&y.build() % (c / g)) * g + r.build());
    }
    changed.then(|| &rest.build() % c)
}

/// Returns `x` as `whole·c + rest` with coefficients of the rest reduced modulo `c`, and `rest //
/// c`, if it is constant.
fn residues(x: &Linear, c: i64) -> Option<(Linear, Linear, i64)> {
    let (whole, rest) = near_zero(x, c, false)?;
    if let Some(q) = constant_quotient(&rest, c) {
        return Some((whole, rest, q));
    }
    let (whole, rest) = near_zero(x, c, true)?;
    constant_quotient(&rest, c).map(|q| (whole, rest, q))
}

/// Returns `x` as `whole·c + rest` with coefficients of the rest from 0 to c-1, or on both sides of
/// zero.
fn near_zero(x: &Linear, c: i64, both: bool) -> Option<(Linear, Linear)> {
    let cut = |k: i64| {
        let r = k.rem_euclid(c);
        let r = if both && r > c / 2 { r - c } else { r };
        Some((k.checked_sub(r)? / c, r))
    };
    let (whole_constant, rest_constant) = cut(x.constant)?;
    let (mut whole, mut rest) = (Linear::from(whole_constant), Linear::from(rest_constant));
    for (t, k) in &x.terms {
        let (q, r) = cut(*k)?;
        whole.terms.push((t.clone(), q));
        rest.terms.push((t.clone(), r));
    }
    whole.normalize();
    rest.normalize();
    (x.fits() && rest.fits() && whole.fits()).then_some((whole, rest))
}

/// Returns `x % c < b` as the clauses `x >= 0` and `x < b`, where `x` without multiples of `c` is
/// between
/// -c and c, and negative values give remainders of at least `b`. Only for conjunctions: the
/// negation would be larger than the comparison.
pub(super) fn wrapped(clause: &UOp) -> Option<[UOp; 2]> {
    let (Op::Lt, [rest, b]) = (clause.op(), clause.src()) else { return None };
    let (Op::Mod, [x, c]) = (rest.op(), rest.src()) else { return None };
    let (b, c) = (b.as_int()?, c.as_int().filter(|c| *c > 0 && x.dtype() == DType::INDEX)?);
    let (_, t) = near_zero(&Linear::of(x)?, c, true)?;
    let (lo, hi) = t.bounds();
    if b > c || lo >= 0 || hi >= c as i128 || lo + (c as i128) < b as i128 {
        return None;
    }
    let t = t.build();
    Some([super::simplify(&t.lt(0i64).not()), super::simplify(&t.lt(b))])
}

/// Returns `l // c`, if it is constant within the bounds.
fn constant_quotient(l: &Linear, c: i64) -> Option<i64> {
    let (lo, hi) = l.bounds();
    let q = lo.div_euclid(c as i128);
    i64::try_from(q).ok().filter(|_| q == hi.div_euclid(c as i128))
}

/// Writes `rest` as g·y + r with g > 1 dividing `c` and 0 <= r < g.
fn factor(rest: &Linear, c: i64) -> Option<(Linear, i64, Linear)> {
    let mut candidates: Vec<i64> =
        rest.terms.iter().map(|(_, k)| gcd(*k, c)).filter(|g| *g > 1).collect();
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.dedup();
    for g in candidates {
        let (mut y, mut r) = rest.split(g);
        y.constant = r.constant.div_euclid(g);
        r.constant = r.constant.rem_euclid(g);
        let (lo, hi) = r.bounds();
        if !y.terms.is_empty() && lo >= 0 && hi < g as i128 {
            return Some((y, g, r));
        }
    }
    None
}

/// Returns `x < y` as a comparison with zero.
fn difference(x: &UOp, y: &UOp) -> Option<UOp> {
    let mut l = Linear::of(x).filter(Linear::fits)?;
    l.add_scaled(&Linear::of(y).filter(Linear::fits)?, -1)?;
    l.normalize();
    l.fits().then(|| l.build().lt(0i64))
}

/// Returns `x < c` with the literals on the right and a common factor divided out.
fn less(x: &UOp, c: i64) -> Option<UOp> {
    let mut l = Linear::of(x).filter(Linear::fits)?;
    let c = c.checked_sub(l.constant)?;
    l.constant = 0;
    if l.terms.is_empty() {
        return Some(UOp::truth(0 < c));
    }
    // In canonical form the first coefficient is positive.
    let negative = l.terms[0].1 < 0;
    if negative {
        for (_, k) in &mut l.terms {
            *k = k.checked_neg()?;
        }
    }
    if !l.fits() {
        return None;
    }
    if negative {
        // -y < c is y > -c is not (y < 1-c).
        return Some(l.build().lt(1i64.checked_sub(c)?).not());
    }
    let mut factors: Vec<i64> = l.terms.iter().map(|(_, k)| k.saturating_abs()).collect();
    factors.push(l.terms.iter().fold(0, |g, (_, k)| gcd(g, *k)));
    factors.sort_unstable_by(|a, b| b.cmp(a));
    for g in factors.into_iter().filter(|g| *g > 1) {
        let (y, r) = l.split(g);
        let (lo, hi) = r.bounds();
        if y.terms.is_empty() || lo < 0 || hi >= g as i128 {
            continue;
        }
        // g·y + r < g·q + s depends on y alone, unless r may be on both sides of s.
        let (q, s) = (c.div_euclid(g), c.rem_euclid(g) as i128);
        if lo >= s {
            return Some(y.build().lt(q));
        }
        if hi < s {
            return Some(y.build().lt(q.checked_add(1)?));
        }
    }
    Some(l.build().lt(c))
}

/// Returns `x == c` with the literals on the right and a common factor divided out.
fn equal(x: &UOp, c: i64) -> Option<UOp> {
    let mut l = Linear::of(x)?;
    let c = c.checked_sub(l.constant)?;
    l.constant = 0;
    if l.terms.is_empty() {
        return Some(UOp::truth(c == 0));
    }
    // A sum that wraps need not be a multiple of a common factor of its coefficients; then only the
    // sign is divided out.
    let mut g = if l.fits() { l.terms.iter().fold(0, |g, (_, k)| gcd(g, *k)) } else { 1 };
    if c % g != 0 {
        return Some(UOp::truth(false));
    }
    if l.terms[0].1 < 0 {
        g = -g;
    }
    for (_, k) in &mut l.terms {
        *k = k.checked_div(g)?;
    }
    Some(l.build().equals(c.checked_div(g)?))
}
